//! `libdapldat.so`: the driver as a uDAPL 2.0 provider, for programs that load providers by the stock registry `libdat2.so.2`.
//!
//! A line of `dat.conf` names this library and gives a device, an address and options ([`config`]). The registry loads the
//! library, calls [`dat_provider_init`], and from then on calls through the dispatch table that each handle begins with
//! ([`call`]).
//!
//! * [`abi`] - what C sees: types, numbers, layouts.
//! * [`object`] - handles. [`gate`] - the data halves of Endpoints and Event Dispatchers, which handles hold.
//! * [`adapter`] - one HCA, shared by all Interface Adapters that the process has open on it, and its control half under a lock.
//! * [`progress`] - the thread that keeps connections going while nobody calls. [`sleep`] - waits.
//! * [`call`] - the calls, a file for each kind of object; its front page says how one is written.
//!
//! `unsafe` is in `abi/pointer.rs` and `abi/va_list.rs` (what consumers hand over), `gate.rs`, `object.rs`, `adapter/hold.rs` (what
//! lives as long as an adapter), `adapter/lent.rs` (memory of the consumer's), `registry.rs` (what the registry exports) and
//! `progress.rs` (the signals of a thread).

mod abi;
mod adapter;
mod call;
mod config;
mod gate;
mod log;
mod object;
mod progress;
mod registry;
mod sleep;
mod variant;

pub use registry::{dapl_extensions, dat_provider_fini, dat_provider_init};
