//! dat_cno_create(3).

use crate::engine::Ia;
use crate::objects::cno::{Agent, CnoControl};
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::handle::Cno;

impl<P: Provider> Ia<'_, P> {
    /// Makes a CNO: no Event Dispatcher, no waiter, and at most one agent, which the first trigger
    /// detaches.
    ///
    /// `INSUFFICIENT_RESOURCES` when there are as many as Event Dispatchers.
    #[doc(alias = "dat_cno_create")]
    pub fn cno_create(&mut self, agent: Option<Agent>) -> Result<Cno, Error> {
        self.cno_make(agent, false)
    }

    pub(super) fn cno_make(&mut self, agent: Option<Agent>, fd: bool) -> Result<Cno, Error> {
        let control =
            CnoControl { agent, fd, evds: 0, waiters: 0, hint: None, due: None, generation: 0 };
        self.alive()?;
        let full = Error::new(DatType::InsufficientResources, DatSubtype::ResourceMemory);
        self.events.cnos.insert(control).map(Cno).ok_or(full)
    }
}
