//! Shared Receive Queues: dat_srq_*(3).
//!
//! Endpoints made with [`Ia::ep_create_with_srq`](crate::Ia::ep_create_with_srq) take their
//! receives from one queue. Its zone is that of the receives' memory, and may be another than the
//! Endpoints'. Events name the Endpoint that took the receive.

use crate::objects::Objects;
use crate::objects::table::Kind;
use crate::provider::SharedRq;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::handle::{Ep, Pz, Srq};

/// `DAT_SRQ_ATTR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqAttr {
    /// Receives outstanding.
    pub max_recv_dtos: u16,
    /// Segments of a receive.
    pub max_recv_iov: u8,
    /// Fewer receives than this raise an event, once; 0, `DAT_SRQ_LW_DEFAULT`, asks for none.
    pub low_watermark: u16,
}

/// What the control half knows of one Shared Receive Queue.
#[derive(Debug)]
pub(crate) struct SrqControl {
    pub(crate) pz: Pz,
    pub(crate) queue: SharedRq,
    pub(crate) attr: SrqAttr,
    /// The low watermark has raised its event, or there is none.
    pub(crate) reported: bool,
    pub(crate) failed: bool,
    /// The first of the Endpoints that take from it, chained through them.
    pub(crate) users: Option<Ep>,
}

impl Kind for SrqControl {
    type Handle = Srq;
    const STALE: DatReturn = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleSrq);
}

impl Objects<'_> {
    /// The Endpoint takes from the queue.
    pub(crate) fn join_srq(&mut self, srq: Srq, ep: Ep) {
        let Ok(control) = self.srqs.live_mut(srq) else { return };
        let next = control.users.replace(ep);
        self.chain_users(Some(ep), next);
    }

    /// It takes from it no more.
    pub(crate) fn leave_srq(&mut self, srq: Srq, ep: Ep) {
        let Ok(control) = self.eps.live(ep) else { return };
        let [before, behind] = control.users;
        self.chain_users(before, behind);
        if before.is_none()
            && let Ok(control) = self.srqs.live_mut(srq)
        {
            control.users = behind;
        }
    }

    /// These two follow each other.
    fn chain_users(&mut self, before: Option<Ep>, behind: Option<Ep>) {
        if let Some(Ok(control)) = before.map(|ep| self.eps.live_mut(ep)) {
            let [_, next] = &mut control.users;
            *next = behind;
        }
        if let Some(Ok(control)) = behind.map(|ep| self.eps.live_mut(ep)) {
            let [previous, _] = &mut control.users;
            *previous = before;
        }
    }
}
