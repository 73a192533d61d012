//! The datagrams of connection management.

mod reason;
mod service;

pub use reason::Reason;
pub use service::ServiceId;
