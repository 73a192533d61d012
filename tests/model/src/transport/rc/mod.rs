//! The reliable connection: requester and responder, which share nothing but the attributes.

pub(super) mod answers;
pub(super) mod flight;
pub(super) mod replies;
pub(super) mod requester;
pub(super) mod responder;
