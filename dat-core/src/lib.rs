//! The Direct Access Transport, versions 1.2 and 2.0, without an operating system beneath it.
//!
//! A program meets two types first. [`Ia`], the Interface Adapter, makes, connects and frees all
//! objects. [`Storage`] holds all memory of one: its parameters are the numbers of objects, and the
//! caller places it. Nothing here allocates, waits, or reads a clock: time is an argument, and
//! [`Ia::advance`] lets the adapter process device events and timers.
//!
//! ```
//! use core::time::Duration;
//! use dat_core::prelude::*;
//! use dat_core::testing::{Fabric, LoopHca};
//!
//! // Two ports of memory; a program with a card opens `hca_mlx5::Mlx5` instead.
//! let fabric: &'static Fabric = Box::leak(Box::new(Fabric::new()));
//! let open = |port: u8| {
//!     let storage: &'static mut Storage<_, 4, 4, 4, 8, 8> = Box::leak(Box::new(Storage::new()));
//!     let net = Net::new([10, 0, 0, 1 + port].into(), 24);
//!     let hca = LoopHca::new(fabric, port.into());
//!     let mut ia = Ia::open(hca, storage.parts(), net, Instant::ZERO, [1 + port; 32])?;
//!     let pz = ia.pz_create()?;
//!     let evd = ia.evd_create(8, EvdFlags::DEFAULT)?;
//!     let ep = ia.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
//!     let memory = ia.lmr_create(pz, fabric.region(port.into()), MemPriv::LOCAL)?;
//!     ia.ep_post_recv(ep, &[memory.local(0, 64)], 0, CompletionFlags::empty())?;
//!     Ok::<_, Error>((ia, evd, ep, memory))
//! };
//! let (mut server, events, accepting, message) = open(0)?;
//! server.psp_create(4711, events, PspFlag::Consumer)?;
//!
//! let (mut client, evd, ep, memory) = open(1)?;
//! fabric.write(memory.base() + 64, b"hello");
//! let (now, to, limit) = (Instant::ZERO, [10, 0, 0, 1].into(), Duration::from_secs(2));
//! client.ep_connect(now, ep, to, 4711, limit, b"", Qos::BestEffort)?;
//!
//! let echo = loop {
//!     server.advance(now);
//!     match server.evd_dequeue(events) {
//!         Ok(Event::ConnectionRequest { cr, .. }) => {
//!             server.cr_accept(now, cr, Some(accepting), b"")?;
//!         }
//!         Ok(Event::Dto(done)) if done.operation == DtoOperation::Receive => {
//!             let answer = [message.local(0, done.len)];
//!             server.ep_post_send(accepting, &answer, 0, CompletionFlags::empty())?;
//!         }
//!         _ => {}
//!     }
//!     client.advance(now);
//!     match client.evd_dequeue(evd) {
//!         Ok(Event::Established(_)) => {
//!             client.ep_post_send(ep, &[memory.local(64, 5)], 0, CompletionFlags::empty())?;
//!         }
//!         Ok(Event::Dto(done)) if done.operation == DtoOperation::Receive => break done,
//!         _ => {}
//!     }
//! };
//! assert_eq!((echo.status, echo.len), (DtoStatus::Success, 5));
//! # Ok::<(), Error>(())
//! ```
//!
//! The programs of `docs/book` go on from here: RDMA, windows, shared receives, datagrams, async
//! executors, recovery.
//!
//! Calls are named after the manual pages: `dat_ep_create(3)` is [`Ia::ep_create`], in
//! `api/ep/create.rs`. Other threads may own the data path: [`EpPoster`] posts, [`EvdReaper`] takes
//! events, both are `Send` and share no lock. The HCA is behind the traits of [`provider`]; [`cm`]
//! speaks the InfiniBand connection manager. Folders are floors, from `api` down to `types`; imports
//! point down.
#![no_std]
#![forbid(unsafe_code)]

mod api;
pub mod cm;
mod data;
mod engine;
mod objects;
pub mod provider;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod types;

/// The names that most programs need.
pub mod prelude {
    pub use crate::provider::Net;
    pub use crate::{
        CloseFlag, Completed, CompletionFlags, Cr, DatReturn, DtoEvent, DtoOperation, DtoStatus,
        Ep, EpAttr, EpPoster, Error, Evd, EvdFlags, EvdReaper, Event, Fault, Ia, Instant, Lend,
        LmrParam, LmrTriplet, MemPriv, OwningPoster, PrivateData, PspFlag, Pz, Qos, RmrTriplet,
        Storage,
    };
}

/// The registry of providers: dat_registry_*(3).
pub mod registry {
    pub use crate::api::registry::MAX_NAME;
}

pub use crate::api::cno::query::{CnoParam, Proxy};
pub use crate::api::cno::wait::CnoWait;
pub use crate::api::cr::accept::MAX_ACCEPT_PRIVATE;
pub use crate::api::cr::query::CrParam;
pub use crate::api::cr::reject::MAX_REJECT_PRIVATE;
pub use crate::api::csp::query::CspParam;
pub use crate::api::ep::connect_ud::UdAnswer;
pub use crate::api::ep::get_status::EpStatus;
pub use crate::api::ep::modify::EpModify;
pub use crate::api::ep::query::EpParam;
pub use crate::api::ep::recv_query::EpRecvInfo;
pub use crate::api::ep::survey::EpOutstanding;
pub use crate::api::evd::modify_upcall::UpcallFlag;
pub use crate::api::evd::query::EvdParam;
pub use crate::api::evd::wait::EvdWait;
pub use crate::api::ia::open_query::IaQuery;
pub use crate::api::ia::query::{AttrValue, IaAttr, NamedAttr, ProviderAttr};
pub use crate::api::lmr::fmr::Contexts;
pub use crate::api::lmr::memtype_hint::MemOptimize;
pub use crate::api::lmr::query::{LmrParam, LmrState};
pub use crate::api::post::owning::{Completed, Lend, OwningPoster, Returned};
pub use crate::api::private_data::PrivateData;
pub use crate::api::psp::query::PspParam;
pub use crate::api::registry::{HaRelationship, ProviderInfo, Registry};
pub use crate::api::rmr::query::{RmrParam, RmrScope};
pub use crate::api::rsp::query::RspParam;
pub use crate::api::srq::query::{SrqParam, SrqState};
pub use crate::data::list::{Message, Rdma, Refused, RmrBind};
pub use crate::data::poster::{EpPoster, MAX_SEGMENTS};
pub use crate::data::reaper::EvdReaper;
pub use crate::data::srq_poster::SrqPoster;
pub use crate::data::write_list::{Piece, Stretch};
pub use crate::engine::advance::Next;
pub use crate::engine::control::ep::EpCreate;
pub use crate::engine::control::lmr::LmrCreate;
pub use crate::engine::control::{Control, Controlled};
pub use crate::engine::counters::CounterType;
pub use crate::engine::establish::MAX_CONNECT_PRIVATE;
pub use crate::engine::open::AsyncEvd;
pub use crate::engine::storage::marks::{Dtos, Marks};
pub use crate::engine::storage::{Parts, Sizes, Storage, Supply};
pub use crate::engine::{Ia, Upcall};
pub use crate::objects::asker::{MAX_CONNECT_UD_PRIVATE, UdAsker};
pub use crate::objects::cno::Agent;
pub use crate::objects::cr::MAX_UD_REPLY_PRIVATE;
pub use crate::objects::lmr::{MemType, Memory, PhysicalPages};
pub use crate::objects::srq::SrqAttr;
pub use crate::types::activity::{Activity, Hook, Severity};
pub use crate::types::completion::{Extra, GRH_LEN, NetworkHeader};
pub use crate::types::counters::{EpCounter, EvdCounter, IaCounter};
pub use crate::types::dat_return::{DatReturn, DatSubtype, DatType, Error};
pub use crate::types::ep_attr::EpAttr;
pub use crate::types::ep_state::EpState;
pub use crate::types::event::{
    AsyncEvent, DtoEvent, DtoOperation, DtoStatus, Event, IbDtoEvent, IbOperation, LookUp,
};
pub use crate::types::fault::{Fault, FaultKind};
pub use crate::types::flags::{
    CloseFlag, Comm, CompletionFlags, ConnectFlag, EvdFlags, EvdState, MemPriv, PspFlag, Qos,
    UpcallPolicy, VaType,
};
pub use crate::types::handle::{
    AnyHandle, Cno, Cr, Csp, Ep, Evd, HandleType, Lmr, Psp, Pz, Rmr, Rsp, Srq,
};
pub use crate::types::strerror::strerror;
pub use crate::types::time::Instant;
pub use crate::types::triplet::{LmrTriplet, RmrTriplet};
