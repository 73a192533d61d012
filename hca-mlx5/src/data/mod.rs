//! The data path: send, receive and completion queues, and the doorbells between them and the
//! device.
//!
//! Each end is a value of its own, owned by one thread: it holds the platform by reference, the
//! place of its ring in the arena and its own index, and nothing it writes is shared with another
//! end. The control path makes them (`provider`) and never touches them again, except to rewind
//! them after a reset.
//!
//! PRM chapters "Work queue structure and access" and "Completion queues". What is deliberately not
//! here: the commands that make and destroy queues, anything that can fail, and any check that
//! `dat-core` has already made.

pub(crate) mod address_vector;
mod compressed;
pub mod cq;
pub(crate) mod inline;
pub mod recv;
pub mod ring;
pub mod send;
pub mod shared;
pub(crate) mod work;

#[cfg(test)]
pub(crate) mod scripted;
#[cfg(test)]
mod tests;

pub use cq::Cq;
pub(crate) use cq::Route;
pub use recv::Rq;
pub use send::Sq;
pub use shared::Shared;
