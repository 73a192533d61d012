//! dat_cno_modify_agent(3).

use crate::engine::Ia;
use crate::objects::cno::Agent;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::Cno;

impl<P: Provider> Ia<'_, P> {
    /// Gives a CNO another agent, or none. One that has not been called yet is forgotten. It is
    /// called once, after the next event that arrives.
    #[doc(alias = "dat_cno_modify_agent")]
    pub fn cno_modify_agent(&mut self, cno: Cno, agent: Option<Agent>) -> Result<(), Error> {
        let control = self.events.cnos.live_mut(cno)?;
        control.agent = agent;
        control.due = None;
        Ok(())
    }
}
