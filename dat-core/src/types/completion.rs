//! What a provider reads from a completion queue.

/// Which queue a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A request of the send queue.
    Send,
    /// A receive.
    Recv,
}

/// How a request ended, in the terms of the InfiniBand work completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// It succeeded.
    Success,
    /// Flushed: the queue pair had left Rts before it ran.
    Flushed,
    /// The message did not fit the local segments.
    LocalLength,
    /// The request was malformed for this queue pair.
    LocalQpOperation,
    /// A local key, range, right or PD was wrong.
    LocalProtection,
    /// A window bind was refused.
    WindowBind,
    /// The peer's response made no sense.
    BadResponse,
    /// A local access error at the responder.
    LocalAccess,
    /// The peer found the request invalid.
    RemoteInvalidRequest,
    /// The peer's key, range, right or PD was wrong.
    RemoteAccess,
    /// The peer could not carry it out.
    RemoteOperation,
    /// No acknowledgement after all retries.
    TransportRetry,
    /// The peer had no receive posted after all RNR retries.
    RnrRetry,
    /// The peer gave up.
    RemoteAborted,
    /// A syndrome this version does not know.
    Other,
}

/// One completion, as the provider read it from the device. Nothing in it is trusted: dat-core
/// checks the index, the token and the length against what it has outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// [`QpInit::index`](crate::provider::QpInit::index) of the queue pair.
    pub index: u32,
    /// Bytes received; of requests nothing, dat-core knows what it asked for.
    pub len: u32,
    /// Which request.
    pub token: u16,
    /// Which of the two queues.
    pub direction: Direction,
    /// How it ended.
    pub status: Status,
    /// The device's own syndrome byte, 0 on success.
    pub syndrome: u8,
    /// The device's vendor syndrome byte, 0 on success.
    pub vendor: u8,
    /// Of a receive that succeeded: what it tells besides.
    pub extra: Extra,
}

/// What has arrived in a receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrived {
    /// A message.
    #[default]
    Message,
    /// A message with an immediate.
    Immediate,
    /// The immediate of an RDMA write.
    WriteImmediate,
    /// A message that closed a window: its key is where others have the immediate.
    Invalidation,
}

/// What a receive tells besides its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// What it was.
    pub arrived: Arrived,
    /// The immediate, or the key that is closed; 0 if there is neither.
    pub immediate: u32,
    /// The sender's QPN, of a datagram.
    pub source_qpn: u32,
    /// The sender marked it to be announced.
    pub solicited: bool,
    /// What stands before a datagram, as the device says.
    pub network: NetworkHeader,
}

/// The network header of a datagram that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkHeader {
    /// The device does not say.
    #[default]
    Unsaid,
    /// IPv4, in the last 20 of the 40 bytes.
    V4,
    /// IPv6.
    V6,
}
