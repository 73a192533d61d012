//! Local Memory Regions: dat_lmr_*(3).
//!
//! The `lmr_context` that consumers put into their triplets is a word of ours, slot and generation, so that a post finds
//! and checks its LMR without a search. The `rmr_context` is the key on the wire. Only virtual regions exist.

mod create;
mod free;
mod query;

pub use query::LmrParam;

use crate::Ia;
use crate::dat_return::{DatReturn, DatSubtype, DatType};
use crate::flags::MemPriv;
use crate::handle::{Lmr, Pz};
use crate::provider::{Mr, Provider, Region};

/// What the control half knows of one LMR.
#[derive(Debug)]
pub(crate) struct LmrControl {
    pub(crate) pz: Pz,
    pub(crate) mr: Mr,
    pub(crate) region: Region,
    pub(crate) privileges: MemPriv,
    pub(crate) context: u32,
}

impl<P: Provider> Ia<'_, P> {
    pub(crate) fn lmr(&self, lmr: Lmr) -> Result<&LmrControl, DatReturn> {
        self.lmrs.get(lmr.0).ok_or(DatReturn::new(
            DatType::InvalidHandle,
            DatSubtype::InvalidHandleLmr,
        ))
    }
}
