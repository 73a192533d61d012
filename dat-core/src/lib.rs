//! The Direct Access Transport, versions 1.2 and 2.0, without an operating system beneath it.
//!
//! [`Ia`] is the control half: it makes, connects and frees. [`EpPoster`] and [`EvdReaper`] are the data halves, values that
//! other threads may own. All state lies in a [`Storage`] that the caller places; nothing here allocates, waits, or knows a
//! clock. The HCA is behind the traits of [`provider`]; [`cm`] speaks the InfiniBand connection manager.
//!
//! Calls are named after the manual pages: `dat_ep_create(3)` is [`Ia::ep_create`], in `ep/create.rs`.
#![no_std]
#![forbid(unsafe_code)]

mod atomic;
pub mod cm;
mod cr;
mod dat_return;
pub mod ep;
mod evd;
mod event;
mod flags;
mod handle;
pub mod ia;
mod lmr;
mod post;
pub mod provider;
mod psp;
mod pz;
mod random;
pub mod rmr;
mod shared;
mod storage;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
mod triplet;

pub use cr::{CrParam, MAX_ACCEPT_PRIVATE, MAX_REJECT_PRIVATE, MAX_UD_REPLY_PRIVATE};
pub use dat_return::{DatReturn, DatSubtype, DatType, Error};
pub use ep::{
    EpAttr, EpModify, EpParam, EpState, EpStatus, MAX_CONNECT_PRIVATE, MAX_CONNECT_UD_PRIVATE,
};
pub use ep::{GRH_LEN, sender};
pub use evd::{EvdParam, EvdReaper};
pub use event::{AsyncEvent, DtoEvent, DtoOperation, DtoStatus, Event, IbDtoEvent, IbOperation};
pub use flags::{CloseFlag, CompletionFlags, EvdFlags, MemPriv, PspFlag, Qos};
pub use handle::{Cr, Ep, Evd, Lmr, Psp, Pz, Rmr};
pub use ia::{Ia, IaAttr, Next, ProviderAttr};
pub use lmr::LmrParam;
pub use post::{EpPoster, MAX_SEGMENTS, RdmaWrite, Refused};
pub use provider::{Extra, Fault, FaultKind};
pub use psp::PspParam;
pub use rmr::RmrParam;
pub use storage::Storage;
pub use time::Instant;
pub use triplet::{LmrTriplet, RmrTriplet};
