//! dat_cno_query(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::Cno;

/// `DAT_PROXY_TYPE`: how a CNO tells besides its waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// Not at all.
    None,
    /// By an agent, the next time.
    Agent,
    /// By a descriptor.
    Fd,
}

/// `DAT_CNO_PARAM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CnoParam {
    /// How it tells besides its waiters.
    pub proxy: Proxy,
    /// Event Dispatchers attached.
    pub evds: u32,
    /// Waits under way.
    pub waiters: u32,
    /// An event arrived since the last wait ended with one.
    pub triggered: bool,
}

impl<P: Provider> Ia<'_, P> {
    /// What the CNO is.
    #[doc(alias = "dat_cno_query")]
    pub fn cno_query(&self, cno: Cno) -> Result<CnoParam, Error> {
        let control = self.events.cnos.live(cno)?;
        Ok(CnoParam {
            proxy: match (&control.agent, control.fd) {
                (_, true) => Proxy::Fd,
                (Some(_), false) => Proxy::Agent,
                (None, false) => Proxy::None,
            },
            evds: control.evds,
            waiters: control.waiters,
            triggered: control.hint.is_some_and(|evd| self.events.exists(evd)),
        })
    }
}
