//! Shared Receive Queues: dat_srq_*(3).
//!
//! Endpoints made with [`Ia::ep_create_with_srq`](crate::Ia::ep_create_with_srq) take their
//! receives from one queue. Its zone is that of the receives' memory, and may be another than the
//! Endpoints'. Events name the Endpoint that took the receive.

use crate::objects::table::Kind;
use crate::provider::SharedRq;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::handle::{Pz, Srq};

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
    /// Endpoints that take from it.
    pub(crate) users: u32,
}

impl Kind for SrqControl {
    type Handle = Srq;
    const STALE: DatReturn = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleSrq);
}
