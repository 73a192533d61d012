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
    /// The slot of the first of the Endpoints that take from it, chained through them, counted from
    /// 1; 0 if there is none.
    pub(crate) users: u32,
}

impl Kind for SrqControl {
    type Handle = Srq;
    const STALE: DatReturn = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleSrq);
}

impl Objects<'_> {
    /// The Endpoint takes from the queue.
    pub(crate) fn join_srq(&mut self, srq: Srq, ep: Ep) {
        let Ok(control) = self.srqs.live_mut(srq) else { return };
        let own = ep.0.index() + 1;
        let next = core::mem::replace(&mut control.users, own);
        self.chain_users(own, next);
    }

    /// It takes from it no more.
    pub(crate) fn leave_srq(&mut self, srq: Srq, ep: Ep) {
        let Ok(control) = self.eps.live(ep) else { return };
        let [before, behind] = control.users;
        self.chain_users(before, behind);
        if before == 0 {
            if let Ok(control) = self.srqs.live_mut(srq) {
                control.users = behind;
            }
        }
    }

    /// These two follow each other.
    fn chain_users(&mut self, before: u32, behind: u32) {
        if let Some(control) = self.user(before).and_then(|ep| self.eps.get_mut(ep.0)) {
            let [_, next] = &mut control.users;
            *next = behind;
        }
        if let Some(control) = self.user(behind).and_then(|ep| self.eps.get_mut(ep.0)) {
            let [previous, _] = &mut control.users;
            *previous = before;
        }
    }

    fn user(&self, link: u32) -> Option<Ep> {
        self.eps.handle_at(link.checked_sub(1)?).map(Ep)
    }

    /// The first Endpoint that takes from the queue, or the one behind another.
    pub(crate) fn next_user(&self, srq: Srq, behind: Option<Ep>) -> Option<Ep> {
        let link = match behind {
            None => self.srqs.live(srq).ok()?.users,
            Some(ep) => {
                let [_, next] = self.eps.get(ep.0)?.users;
                next
            }
        };
        self.user(link)
    }
}
