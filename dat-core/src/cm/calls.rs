//! What the caller asks for.

use super::{
    AcceptParams, Cm, CmError, CmEvent, ConnId, ConnectParams, Counters, Reason, Transmit,
};
use crate::time::Instant;
use core::net::IpAddr;

impl Cm<'_> {
    /// Starts a connection: sends a REQ.
    pub fn connect(&mut self, now: Instant, params: &ConnectParams<'_>) -> Result<ConnId, CmError> {
        let _ = (now, params);
        Err(CmError::NoSlot)
    }

    /// Accepts a request: sends a REP. The queue pair must be in ready-to-send.
    pub fn accept(
        &mut self,
        now: Instant,
        conn: ConnId,
        params: &AcceptParams<'_>,
    ) -> Result<(), CmError> {
        let _ = (now, params);
        Err(CmError::Unknown(conn))
    }

    /// Rejects a request, or a reply: sends a REJ and forgets the connection.
    pub fn reject(
        &mut self,
        now: Instant,
        conn: ConnId,
        reason: Reason,
        ari: &[u8],
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let _ = (now, reason, ari, private_data);
        Err(CmError::Unknown(conn))
    }

    /// The active side's queue pair is in ready-to-send: sends the RTU. On `Ok` the connection is established.
    pub fn ready(&mut self, now: Instant, conn: ConnId) -> Result<(), CmError> {
        let _ = now;
        Err(CmError::Unknown(conn))
    }

    /// Ends an established connection: sends a DREQ. `Disconnected` follows. No effect while that is under way.
    pub fn disconnect(&mut self, now: Instant, conn: ConnId) -> Result<(), CmError> {
        let _ = now;
        Err(CmError::Unknown(conn))
    }

    /// Gives a connection up in whatever state it is, tells the peer what the state asks for, and says nothing more of it.
    pub fn abort(&mut self, now: Instant, conn: ConnId) {
        let _ = (now, conn);
    }

    /// A packet of the peer arrived on the queue pair: the passive side is established even if the RTU was lost.
    pub fn data_arrived(&mut self, now: Instant, conn: ConnId) {
        let _ = (now, conn);
    }

    /// Private data of the newest `Request`, `Reply` or `Rejected` of the connection; always the whole field of the
    /// message, padded with zeros. Readable until the next call of `input`, `connect` or `advance` after the connection's end.
    #[must_use]
    pub fn private_data(&self, conn: ConnId) -> &[u8] {
        let _ = conn;
        &[]
    }

    /// The PSN that this side asked the peer to start with (`rq_psn` of its queue pair).
    #[must_use]
    pub fn starting_psn(&self, conn: ConnId) -> Option<u32> {
        let _ = conn;
        None
    }

    /// Takes in one datagram that arrived on QP1 from `from`.
    pub fn input(&mut self, now: Instant, from: IpAddr, mad: &[u8; 256]) {
        let _ = (now, from, mad);
    }

    /// The next event; call until `None`.
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        None
    }

    /// The next datagram to send; call until `None` after every other call.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        let _ = now;
        None
    }

    /// Does what is due at `now`: retransmissions, giving up, ends of timewait.
    pub fn advance(&mut self, now: Instant) {
        let _ = now;
    }

    /// When `advance` wants to be called next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// What went over the wire.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters::default()
    }
}
