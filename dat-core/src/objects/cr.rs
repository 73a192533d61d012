//! Connection Requests: dat_cr_*(3).

use crate::cm::event::Request;
use crate::cm::params::ConnId;
use crate::objects::asker::{RequestData, UdAsker};
use crate::objects::psp::Listener;
use crate::objects::table::Kind;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::handle::{Cr, Ep};

/// Bytes of private data in `cr_accept` and `cr_reject` of a request for datagrams: the field of
/// the SIDR_REP.
pub const MAX_UD_REPLY_PRIVATE: usize = 136;

/// What the control half knows of one CR.
#[derive(Debug)]
pub(crate) struct CrControl {
    /// `None` once the peer has gone.
    pub(crate) conn: Option<ConnId>,
    pub(crate) request: Request,
    pub(crate) private: RequestData,
    /// Who looks a service point up, if it says so.
    pub(crate) asker: Option<UdAsker>,
    /// The Endpoint that it is for.
    pub(crate) local_ep: Option<Ep>,
    /// That was not made by the consumer.
    pub(crate) provided: bool,
    /// Where it came to.
    pub(crate) listener: Listener,
}

impl Kind for CrControl {
    type Handle = Cr;
    const STALE: DatReturn = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleCr);
}

impl CrControl {
    /// It asks for the queue pair of a service, and for no connection.
    pub(crate) const fn looks_up(&self) -> bool {
        self.request.service.udp_port().is_some()
    }
}
