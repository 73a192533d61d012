//! Values that all floors speak in: handles, flags, events, codes, time, and the states of
//! Endpoints.

pub(crate) mod activity;
pub(crate) mod atomic;
pub(crate) mod bounds;
pub(crate) mod class;
pub(crate) mod completion;
pub(crate) mod counters;
pub(crate) mod dat_return;
pub(crate) mod deadlines;
pub(crate) mod ep_attr;
pub(crate) mod ep_state;
pub(crate) mod event;
pub(crate) mod fault;
pub(crate) mod few;
pub(crate) mod flags;
pub(crate) mod handle;
pub(crate) mod key_order;
#[cfg(loom)]
pub(crate) mod modelled;
pub(crate) mod mtu;
pub(crate) mod net;
pub(crate) mod random;
pub(crate) mod siphash;
pub(crate) mod strerror;
pub(crate) mod time;
pub(crate) mod triplet;
