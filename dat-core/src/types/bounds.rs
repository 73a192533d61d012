//! How much one call of [`Ia::advance`](crate::Ia::advance) does at most. Where a bound is reached
//! there may be more, and the call says so: it reports work, or a deadline that has come.

/// Datagrams of QP1 taken in.
pub(crate) const DATAGRAMS_IN: usize = 256;
/// Datagrams of QP1 sent.
pub(crate) const DATAGRAMS_OUT: usize = 256;
/// Notices of the device.
pub(crate) const NOTICES: usize = 256;
/// Events of the connection manager, after each datagram.
pub(crate) const CM_EVENTS: usize = 256;
/// Deadlines of the connection manager.
pub(crate) const DEADLINES: usize = 256;
/// Endpoints whose time has come, those that wait for more than their time, and look-ups that wait
/// for a path: of each.
pub(crate) const VISITS: usize = 64;
/// Queue pairs that take a step at the same time, and objects that are made or freed together.
pub(crate) const STEPS: usize = 8;
/// Event Dispatchers in which something may have come that somebody listens for.
pub(crate) const LOOKS: usize = 256;
/// Datagrams that wait for the way to their peer and are tried again.
pub(crate) const RETRIES: usize = 4;
/// Datagrams that wait for the way to their peer.
pub(crate) const WAITING: usize = 16;
/// Of these, those of one peer, when others have no room.
pub(crate) const WAITING_OF_ONE: usize = WAITING / 4;
