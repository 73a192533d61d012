//! The Direct Access Transport, versions 1.2 and 2.0, without an operating system beneath it.
//!
//! [`Ia`] is the control half: it makes, connects and frees. [`EpPoster`] and [`EvdReaper`] are the
//! data halves, values that other threads may own. All state lies in a [`Storage`] that the caller
//! places; nothing here allocates, waits, or knows a clock. The HCA is behind the traits of
//! [`provider`]; [`cm`] speaks the InfiniBand connection manager.
//!
//! Calls are named after the manual pages: `dat_ep_create(3)` is [`Ia::ep_create`], in
//! `ep/create.rs`.
#![no_std]
#![forbid(unsafe_code)]

mod api;
mod atomic;
pub mod cm;
mod cno;
mod context;
pub mod counters;
mod cr;
mod csp;
mod dat_return;
mod data;
mod engine;
pub mod ep;
mod evd;
mod event;
mod flags;
mod handle;
pub mod ia;
pub mod lmr;
mod objects;
mod post;
pub mod provider;
mod psp;
mod pz;
mod random;
pub mod registry;
pub mod rmr;
mod rsp;
mod shared;
mod srq;
mod storage;
mod strerror;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
mod triplet;

pub use cno::{Agent, CnoParam, CnoWait, Proxy};
pub use context::{AnyHandle, HandleType};
pub use counters::{CounterType, EpCounter, EvdCounter, IaCounter};
pub use cr::{CrParam, MAX_ACCEPT_PRIVATE, MAX_REJECT_PRIVATE, MAX_UD_REPLY_PRIVATE};
pub use csp::CspParam;
pub use dat_return::{DatReturn, DatSubtype, DatType, Error};
pub use ep::{
    EpAttr, EpModify, EpParam, EpRecvInfo, EpState, EpStatus, LookUp, MAX_CONNECT_PRIVATE,
    MAX_CONNECT_UD_PRIVATE, UdAnswer,
};
pub use ep::{GRH_LEN, sender};
pub use evd::{EvdParam, EvdReaper, EvdWait, Upcall, UpcallFlag, UpcallPolicy};
pub use event::{AsyncEvent, DtoEvent, DtoOperation, DtoStatus, Event, IbDtoEvent, IbOperation};
pub use flags::{
    CloseFlag, Comm, CompletionFlags, ConnectFlag, EvdFlags, EvdState, MemPriv, PspFlag, Qos,
};
pub use handle::{Cno, Cr, Csp, Ep, Evd, Lmr, Psp, Pz, Rmr, Rsp, Srq};
pub use ia::{AsyncEvd, AttrValue, Ia, IaAttr, IaQuery, NamedAttr, Next, ProviderAttr};
pub use lmr::{Contexts, LmrParam, LmrState, MemOptimize, MemType, Memory, PhysicalPages, VaType};
pub use post::{Completed, Lend, OwningPoster, Returned};
pub use post::{EpPoster, MAX_SEGMENTS, RdmaWrite, Refused};
pub use provider::{Extra, Fault, FaultKind};
pub use psp::PspParam;
pub use registry::{HaRelationship, ProviderInfo, Registry};
pub use rmr::{RmrParam, RmrScope};
pub use rsp::RspParam;
pub use srq::{SrqAttr, SrqParam, SrqPoster, SrqState};
pub use storage::{Dtos, Marks, Parts, Sizes, Storage, Supply};
pub use strerror::strerror;
pub use time::Instant;
pub use triplet::{LmrTriplet, RmrTriplet};
