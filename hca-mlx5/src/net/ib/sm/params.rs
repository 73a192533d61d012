//! Numbers on the wire, deadlines, and what the caller decides.

use core::time::Duration;

/// Time in which an SMP is answered (OpenSM `OSM_DEFAULT_TRANS_TIMEOUT_MILLISEC`).
pub(super) const RESPONSE_TIME: Duration = Duration::from_millis(200);
/// How often an SMP is repeated (OpenSM `OSM_DEFAULT_RETRY_COUNT`).
pub(super) const RETRIES: u8 = 3;
/// From one sweep to the next (OpenSM `OSM_DEFAULT_SWEEP_INTERVAL_SECS`).
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// From a trap to the sweep it asks for. Traps come many at a time.
pub(super) const TRAP_DELAY: Duration = Duration::from_millis(100);
/// From one poll of the master to the next (OpenSM `OSM_SM_DEFAULT_POLLING_TIMEOUT_MILLISECS`).
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Polls without a master's answer after which it is lost (OpenSM
/// `OSM_SM_DEFAULT_POLLING_RETRY_NUMBER`).
pub(super) const POLLS: u8 = 4;
/// Set(PortInfo) in one sweep at most; six do all there is to do.
pub(super) const CHANGES: u8 = 8;
/// Time from trap to trap, and of an answer of the SA, as 4.096 us times two to this: 1 s (OpenSM
/// `OSM_DEFAULT_SUBNET_TIMEOUT`).
pub(super) const SUBNET_TIMEOUT: u8 = 18;
/// Answers that wait to be sent. More are dropped; who asked asks again.
pub(super) const ANSWERS: usize = 8;

/// The subnet prefix of a subnet without a router (IBTA volume 1, 4.1.1).
pub const SUBNET_PREFIX: u64 = 0xfe80_0000_0000_0000;

/// A packet's time in the subnet, 4.096 us times two to this, as the default of other managers is
/// (OpenSM `OSM_DEFAULT_SUBNET_TIMEOUT`).
pub(super) const PACKET_LIFETIME: u8 = SUBNET_TIMEOUT;

/// What the caller decides.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of the own port.
    pub port: u8,
    /// 0 to 15; the highest is master.
    pub priority: u8,
    /// Where transaction IDs begin: a random number, so that answers to a manager that was there
    /// before do not count.
    pub first_tid: u64,
}
