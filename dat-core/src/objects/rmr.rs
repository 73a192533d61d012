//! Remote Memory Regions: dat_rmr_*(3).
//!
//! An RMR is a memory window. A bind is a request on an Endpoint's queue; it opens a range of an
//! LMR to peers under a fresh `rmr_context`, chosen before the bind runs, so that the consumer may
//! send it off right behind.
//!
//! A context comes back after 255 others of the same index, in an order that a peer cannot derive
//! from another index ([`KeyOrder`](crate::provider::KeyOrder)). Who has seen all 256 of a window
//! has seen the order: a window that serves mutually distrusting peers in turn is freed and made
//! anew between them. Regions and windows named by offsets (`VaType::Zb`) show the peer no address
//! of the host; those named by addresses do, by definition.
//!
//! One of [`Ia::rmr_create`](crate::Ia::rmr_create) belongs to its Protection Zone: it is bound on
//! any Endpoint of the zone, opens its range to the peers of all of them, and outlives the
//! connection it was bound on. One of [`Ia::rmr_create_for_ep`](crate::Ia::rmr_create_for_ep)
//! belongs to one Endpoint at a time: it opens its range to that Endpoint's peer alone, that peer
//! may close it again with a message, and it is unbound when the Endpoint is reset or freed.

use crate::objects::table::Kind;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::handle::{Pz, Rmr};

/// What the control half knows of one RMR; what changes at a bind is shared.
#[derive(Debug)]
pub(crate) struct RmrControl {
    pub(crate) pz: Pz,
    /// Freed by the consumer: its window is gone. The slot is kept until the completions of its
    /// binds have been dequeued.
    pub(crate) freed: bool,
}

impl Kind for RmrControl {
    type Handle = Rmr;
    const STALE: DatReturn = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleRmr);

    fn is_live(&self) -> bool {
        !self.freed
    }
}
