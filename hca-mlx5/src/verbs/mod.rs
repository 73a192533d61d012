//! Objects of the device, each with its commands side by side: create, modify, destroy.
//!
//! * `qp`, `cq`, `srq` - queue pairs, completion queues and shared receive queues. Their posting
//!   and polling ends are in [`data`](crate::data).
//! * [`mkey`], [`window`] - memory keys and memory windows, which together are the translation and
//!   protection table (TPT; PRM chapter "Address translation and protection"). Only memory of the
//!   platform's arena, or lent by the host, is ever described to the device. Binding a window is a
//!   request on a send queue (`data::send`).
//! * `memory` - memory of queues; `uar` - doorbell registers of queue pairs.

pub(crate) mod cq;
pub(crate) mod memory;
pub mod mkey;
pub(crate) mod qp;
pub(crate) mod srq;
pub(crate) mod uar;
pub mod window;
