//! `libdapldat.so`: the driver as a uDAPL 2.0 provider, for programs that load providers by the
//! stock registry `libdat2.so.2`.
//!
//! A line of `dat.conf` names this library and gives a device, an address and options ([`config`]).
//! The registry loads the library, calls [`dat_provider_init`], and from then on calls through the
//! dispatch table that each handle begins with ([`call`]).
//!
//! * [`abi`] - what C sees: types, numbers, layouts.
//! * [`object`] - handles. [`gate`] - access to the posters and reapers in handles. [`combine`] -
//!   calls of several threads carried out together.
//! * [`adapter`] - one HCA under a lock, shared by all Interface Adapters that the process has open
//!   on it.
//! * [`progress`] - the thread that drives the adapter between calls. [`sleep`] - waits.
//! * [`heap`] - the library's memory: it calls no `malloc` of the process.
//! * `include/dat_dapldat.h` - the provider's own extension, as C has it.
//! * [`call`] - the calls, a file for each kind of object; its front page says how one is written.
//!
//! # Where stock programs and the manual differ
//!
//! A request is honoured, or refused with the manual's code. These are the exceptions; each can be
//! seen by a query.
//!
//! | request | result | reason |
//! |---|---|---|
//! | `max_rdma_size` below the adapter's, by `dat_ep_create` | raised; `dat_ep_query` returns it | dtest states 64 KiB, writes more |
//! | `max_message_size`, `max_rdma_size` 0 | the adapter's; `dat_ep_query` returns them | dtest, dtestsrq clear what they do not use |
//! | `srq_soft_hw` 0 | no watermark; `dat_ep_query` returns -1 | the same |
//! | `max_rdma_read_iov`, `max_rdma_write_iov` 0 | those of requests; `dat_ep_query` returns them | the same; DAT 1.1 has no such fields |
//! | memory without local read | local read is added; `dat_lmr_query` returns it | dtest sends from such memory |
//! | `DAT_PROVIDER_FIELD_PROVIDER_SPECIFIC_ATTR` and other lists | the number of elements is filled too | dtest, dtestsrq read both |
//! | any mask of `dat_cno_query` but 0 | all fields | the masks of `udat.h` are no bits |
//! | `dat_evd_dequeue` of a DTO Event Dispatcher that is empty | `DAT_QUEUE_EMPTY` without the error class | dtest compares the whole word |
//!
//! `dat_ep_create_with_srq` and `dat_ep_modify` take sizes that are not 0 as they are. A second
//! `dat_rmr_free` of one handle, which the manual leaves open, returns `DAT_INVALID_HANDLE` with
//! `DAT_INVALID_HANDLE_RMR`.
//!
//! `unsafe` is in `abi/pointer.rs` and `abi/va_list.rs` (arguments of consumers), `gate.rs`,
//! `object.rs`, `heap.rs`, `adapter/hold.rs` (host, memory and driver), `adapter/lent.rs` (the
//! consumer's memory), `registry.rs` (functions of the registry) and `progress.rs` (signals of a
//! thread).

mod abi;
mod adapter;
mod call;
mod combine;
mod config;
mod gate;
mod heap;
mod log;
mod object;
mod progress;
mod registry;
mod sleep;
mod sync;
mod variant;

pub use registry::{dapl_extensions, dat_provider_fini, dat_provider_init};

/// Parses the parameters of a line of `dat.conf`, for tests.
#[doc(hidden)]
pub fn read_parameters(text: &str) -> Result<(), String> {
    let config = config::Config::read(text)?;
    let _ = (config.dtos(), config.events(), config.evds(), config.options());
    if config.is_same(&config) { Ok(()) } else { Err("it differs from itself".into()) }
}

/// Registers a line of `dat.conf` about a socket without a registry, for tests. Returns its
/// dispatch table, a `DAT_PROVIDER` that is never freed.
#[doc(hidden)]
pub fn add_line(name: &std::ffi::CStr, text: &str) -> Result<*const std::ffi::c_void, String> {
    Ok(registry::begin::<variant::User>(name, config::Config::read(text)?).cast())
}
