//! Interface between a transport engine and its device, and the plain values that both pass.
//!
//! An [`Engine`](super::Engine) knows packets, sequence numbers and timers. It knows no WQE
//! layout, no CQE, no memory key and no command: those are the device's, reached by [`Host`].
//! A call into the engine may call the host many times, but never the other way round:
//! in particular [`Host::transmit`] queues a frame and must not deliver it to any engine at once,
//! even if it is addressed to this very device (the device loop brings it back by `on_packet`).
//!
//! Reference: IBTA volume 1, chapter 9 (transport), chapter 10.3 (QP states).
//!
//! Length: half of it is documentation; a seam is read as one page.

use std::net::IpAddr;

use super::packet::Layers;
use crate::wire::frame::DEFAULT_PKEY;
use crate::wire::ib::grh::Gid;

pub use crate::host::Nanos;

/// A MAC address as it stands on the wire.
pub type Mac = [u8; 6];

/// The error part of a completion, in the numbers a mlx5 error CQE carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Syndrome {
    /// A message does not fit: a send above the path's limit, or a receive buffer too short.
    LocalLength = 0x01,
    /// The work request is not one this QP may run.
    LocalQpOperation = 0x02,
    /// A local key does not allow the access.
    LocalProtection = 0x04,
    /// Flushed, because the QP is in error.
    Flushed = 0x05,
    /// A memory window bind broke a rule.
    MwBind = 0x06,
    /// A response made no sense.
    BadResponse = 0x10,
    /// The responder's own memory refused a write of the peer.
    LocalAccess = 0x11,
    /// The peer called the request invalid (NAK 0x61).
    RemoteInvalidRequest = 0x12,
    /// The peer refused the access (NAK 0x62).
    RemoteAccess = 0x13,
    /// The peer failed to carry it out (NAK 0x63).
    RemoteOperation = 0x14,
    /// No answer after all retries.
    TransportRetryExceeded = 0x15,
    /// The peer had no receive work request after all retries.
    RnrRetryExceeded = 0x16,
    /// Aborted by the responder.
    Aborted = 0x22,
}

/// The kind of service a QP gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QpKind {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// The initiator of an extended reliable connection: a send queue only.
    XrcInitiator,
    /// The target of one: receives come from the shared queue that each request names.
    XrcTarget,
    /// Unreliable datagram.
    Ud,
    /// QP1: an unreliable datagram QP that is always number 1 on the wire.
    Gsi,
    /// QP0: the same for subnet management packets, number 0, on virtual lane 15.
    Smi,
    /// A send queue that only edits memory keys (mlx5 service type REG_UMR); never on the wire.
    RegUmr,
}

/// The states of a QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QpState {
    /// Nothing runs, nothing is remembered.
    #[default]
    Reset,
    /// Receives may be posted.
    Init,
    /// Requests of the peer are served.
    Rtr,
    /// Both directions run.
    Rts,
    /// A datagram QP whose send queue has failed; its receive queue runs on.
    Sqer,
    /// Everything posted is flushed.
    Err,
}

/// How a work request waits for earlier ones (`fm_ce_se[7:5]`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fence {
    /// It need not wait.
    #[default]
    None,
    /// 1: for earlier memory key edits.
    InitiatorSmall,
    /// 2: for earlier READs and atomics.
    Fence,
    /// 3: for everything before it.
    Strong,
    /// 4: for earlier memory key edits, READs and atomics.
    SmallAndFence,
}

/// One piece of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSegment {
    /// Its length; the "0 means 2 GiB" of the layout is already resolved.
    pub len: u32,
    /// The local key.
    pub lkey: u32,
    /// Its address under that key.
    pub addr: u64,
}

/// Data of a SEND or WRITE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Bytes to fetch when the packet is built, and again when it is sent again.
    Segments(Vec<DataSegment>),
    /// Bytes that came within the work request.
    Inline(Vec<u8>),
}

impl Payload {
    /// The message length.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Segments(list) => segments_len(list),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// Whether the message has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The sum of the lengths of `list`.
#[must_use]
pub fn segments_len(list: &[DataSegment]) -> u64 {
    list.iter().map(|s| u64::from(s.len)).sum()
}

/// A place in the peer's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Virtual address under `rkey`.
    pub va: u64,
    /// The peer's key.
    pub rkey: u32,
    /// On an XRC target the shared queue that the request names: its protection domain counts, not
    /// the QP's.
    pub pool: Option<u32>,
}

/// Part of a SEND after its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trailer {
    /// Nothing.
    #[default]
    None,
    /// Immediate data: the 32 bits as a big-endian number.
    Imm(u32),
    /// A key of the peer that it shall invalidate.
    Invalidate(u32),
}

/// An edit of a memory key: target and the raw segments that say how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UmrWqe {
    /// The target key (dword 3 of the control segment).
    pub mkey: u32,
    /// Fence mode of the control segment.
    pub fence: u8,
    /// All bytes after the control segment: UMR control, mkey and data segments.
    pub segments: Vec<u8>,
}

/// The work of a send queue entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Nothing but a completion.
    Nop,
    /// SEND, SEND_IMM, SEND_INVAL.
    Send {
        /// Immediate data or key to invalidate.
        trailer: Trailer,
        /// The message.
        data: Payload,
    },
    /// RDMA WRITE, with or without immediate data.
    Write {
        /// Where to.
        remote: RemoteAddress,
        /// Immediate data.
        imm: Option<u32>,
        /// The message.
        data: Payload,
    },
    /// RDMA READ.
    Read {
        /// Where from.
        remote: RemoteAddress,
        /// Where to.
        into: Vec<DataSegment>,
    },
    /// Atomic compare and swap of 8 bytes.
    CompareSwap {
        /// The operand.
        remote: RemoteAddress,
        /// Value to store on a match.
        swap: u64,
        /// Value to match.
        compare: u64,
        /// Where the old value goes.
        into: Vec<DataSegment>,
    },
    /// Atomic fetch and add of 8 bytes.
    FetchAdd {
        /// The operand.
        remote: RemoteAddress,
        /// Value to add.
        add: u64,
        /// Where the old value goes.
        into: Vec<DataSegment>,
    },
    /// A memory key edit.
    Umr(UmrWqe),
    /// Invalidation of a local key.
    LocalInvalidate(u32),
}

/// A parsed send queue entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendWqe {
    /// Its first WQEBB, counted modulo 65,536.
    pub index: u16,
    /// How many WQEBBs it takes, at least 1.
    pub bbs: u16,
    /// The opcode byte as posted, for the CQE.
    pub opcode: u8,
    /// Whether a successful end makes a completion.
    pub signaled: bool,
    /// The requests that it waits for.
    pub fence: Fence,
    /// Whether the peer's completion is a solicited one.
    pub solicited: bool,
    /// The operation.
    pub operation: Operation,
    /// Where to, on a datagram QP.
    pub av: Option<Datagram>,
    /// The peer's shared receive queue, on an XRC initiator.
    pub xrc_srqn: Option<u32>,
}

/// A send queue entry that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadWqe {
    /// The error.
    pub syndrome: Syndrome,
    /// WQEBBs to skip to the next entry, as far as that is known; 0 counts as 1.
    pub bbs: u16,
    /// The opcode byte.
    pub opcode: u8,
}

/// A receive work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecvWqe {
    /// Its counter (RQ) or index (SRQ), for the CQE.
    pub index: u16,
    /// Where the message goes.
    pub segments: Vec<DataSegment>,
    /// The shared queue it came from, which says whose memory and which CQ it is.
    pub pool: Option<u32>,
}

/// A path through the network, as an address vector or a QP's primary path gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Of an Ethernet port.
    Roce(RocePath),
    /// Of an InfiniBand port.
    Ib(IbPath),
}

impl Default for Path {
    fn default() -> Self {
        Self::Roce(RocePath::default())
    }
}

/// A path through a subnet of InfiniBand. The rate is none of it: links of the model have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IbPath {
    /// The peer's LID, or a multicast one.
    pub dlid: u16,
    /// Low bits of the own LID, as far as its LMC leaves them free.
    pub path_bits: u8,
    /// Service level.
    pub sl: u8,
    /// What the global route header says, if there is one.
    pub global: Option<GlobalPath>,
}

/// The part of a path in the global route header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalPath {
    /// Index of the own GID in the port's table.
    pub source_index: u8,
    /// The peer's GID.
    pub dgid: Gid,
    /// Traffic class.
    pub tclass: u8,
    /// Flow label.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
}

/// The own end of a path through a subnet of InfiniBand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IbSource {
    /// Source LID, path bits among it.
    pub slid: u16,
    /// Virtual lane of the service level.
    pub vl: u8,
    /// The own GID, of a path with a global part.
    pub sgid: Gid,
}

/// A path of RoCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RocePath {
    /// Index of the own address in the device's RoCE address table.
    pub source_index: u16,
    /// The peer's MAC, or that of the router.
    pub dmac: Mac,
    /// The peer's address (an IPv4-mapped GID is an IPv4 address).
    pub dst: IpAddr,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// TOS or traffic class.
    pub tclass: u8,
    /// IPv6 flow label.
    pub flow_label: u32,
    /// UDP source port.
    pub udp_sport: u16,
    /// 802.1p priority, used if the own address carries a VLAN.
    pub priority: u8,
}

impl Default for RocePath {
    fn default() -> Self {
        Self {
            source_index: 0,
            dmac: [0; 6],
            dst: IpAddr::from([0, 0, 0, 0]),
            hop_limit: 64,
            tclass: 0,
            flow_label: 0,
            udp_sport: 0xc000,
            priority: 0,
        }
    }
}

/// The destination of one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The path.
    pub path: Path,
    /// The peer's QP.
    pub qpn: u32,
    /// The Q_Key to send; one with bit 31 set means the QP's own.
    pub qkey: u32,
}

/// A valid entry of the device's address table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoceAddress {
    /// Source MAC.
    pub mac: Mac,
    /// VLAN identifier, if tagged.
    pub vlan: Option<u16>,
    /// Source IP; of RoCE v1, the GID.
    pub ip: IpAddr,
    /// RoCE v1.
    pub v1: bool,
}

/// Rights a remote access needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Remote read.
    Read,
    /// Remote write.
    Write,
    /// Remote atomic.
    Atomic,
}

/// Why a remote access was refused. Each makes a NAK 0x62, except the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteFault {
    /// Key, protection domain, right, range or window state.
    Access,
    /// The memory itself could not be reached (DMA refused): NAK 0x63.
    Operation,
}

/// Payload that stands in its completion and not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InCqe {
    len: u8,
    bytes: [u8; Self::MOST],
}

impl InCqe {
    /// Bytes of the largest form.
    pub const MOST: usize = 64;

    /// A whole message of at least one byte and of at most `most`.
    #[must_use]
    pub fn of(payload: &[u8], most: u8) -> Option<Self> {
        let mut bytes = [0; Self::MOST];
        let len = u8::try_from(payload.len()).ok().filter(|len| (1..=most).contains(len))?;
        bytes.get_mut(..payload.len())?.copy_from_slice(payload);
        Some(Self { len, bytes })
    }

    /// The message.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// A send queue entry came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendCompletion {
    /// Its first WQEBB.
    pub index: u16,
    /// Its opcode byte.
    pub opcode: u8,
    /// Bytes moved (READ and atomics: received).
    pub byte_len: u32,
    /// What a READ or an atomic brought, if it was not scattered.
    pub in_cqe: Option<InCqe>,
    /// How it ended.
    pub result: Result<(), Syndrome>,
}

/// Kind of an arrived message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvKind {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendImm(u32),
    /// SEND with invalidate, and the key that is now invalid.
    SendInval(u32),
    /// RDMA WRITE with immediate data.
    WriteImm(u32),
}

/// Sender of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramSource {
    /// The source QP.
    pub qpn: u32,
    /// The P_Key.
    pub pkey: u16,
    /// How the packet came.
    pub layers: Layers,
}

/// The network layer of a RoCE packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layer3 {
    /// RoCE v1: a GRH behind the Ethernet header.
    Grh,
    /// RoCE v2 over IPv6.
    Ipv6,
    /// RoCE v2 over IPv4.
    #[default]
    Ipv4,
}

/// A message that ended in a receive work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its kind.
    pub kind: RecvKind,
    /// Its length; on datagram QPs with the 40 bytes of the GRH area.
    pub byte_len: u32,
    /// Whether the sender asked for a solicited event.
    pub solicited: bool,
    /// Whether the packet that ended it bore a congestion mark (ECN CE).
    pub congested: bool,
    /// The sender, on datagram QPs.
    pub source: Option<DatagramSource>,
    /// The message, if it was not scattered.
    pub in_cqe: Option<InCqe>,
}

/// A receive work request came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvCompletion {
    /// Its counter or index.
    pub index: u16,
    /// The shared queue it came from.
    pub pool: Option<u32>,
    /// How it ended.
    pub result: Result<Received, Syndrome>,
}

/// Transport counters of a port, by the names of the queue counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are the PRM's")]
pub enum Tally {
    RxWriteRequests,
    RxReadRequests,
    RxAtomicRequests,
    OutOfBuffer,
    OutOfSequence,
    DuplicateRequest,
    RnrNakRetryErr,
    PacketSeqErr,
    ImpliedNakSeqErr,
    LocalAckTimeoutErr,
}

/// An asynchronous event about a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// The first packet arrived in RTR (EQE type 0x02).
    CommunicationEstablished,
    /// The last receive taken from a shared queue is done, after an error (0x13).
    LastWqeReached,
    /// The responder met an invalid request (0x10).
    InvalidRequest,
    /// The responder met an access violation (0x11).
    AccessError,
    /// A work queue cannot be read (0x05).
    Catastrophic,
}

/// Everything the engine of one QP works with. The device merges transitions; the engine sees
/// the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpAttr {
    /// The QP's number.
    pub qpn: u32,
    /// Service.
    pub kind: QpKind,
    /// State to be in.
    pub state: QpState,
    /// Path MTU in bytes: 256 to 4096.
    pub mtu: u32,
    /// log2 of the longest message (UD: also bounded by the MTU).
    pub log_msg_max: u8,
    /// The peer's QP.
    pub remote_qpn: u32,
    /// First PSN expected (set at RTR).
    pub rq_psn: u32,
    /// First PSN to send (set at RTS).
    pub sq_psn: u32,
    /// The path to the peer.
    pub path: Path,
    /// Index of the P_Key in the port's table.
    pub pkey_index: u16,
    /// Retransmissions for want of an answer or after a sequence NAK, 0 to 7.
    pub retry_count: u8,
    /// Retransmissions after RNR NAKs, 0 to 6; 7 is endless.
    pub rnr_retry: u8,
    /// Local ACK timeout: 4.096 us times 2 to this power; 0 never.
    pub ack_timeout: u8,
    /// The timer code sent with RNR NAKs.
    pub min_rnr_nak: u8,
    /// READs and atomics this side may have open.
    pub max_rd_atomic: u16,
    /// READs and atomics the peer may have open here.
    pub max_dest_rd_atomic: u16,
    /// Whether the peer may READ.
    pub remote_read: bool,
    /// Whether the peer may WRITE.
    pub remote_write: bool,
    /// Whether the peer may use atomics.
    pub remote_atomic: bool,
    /// Q_Key of a datagram QP.
    pub qkey: u32,
    /// Whether receives come from a shared queue, which an error must not flush.
    pub srq: bool,
    /// Whether the old value of an atomic is handed over little-endian (else big-endian).
    pub atomic_little_endian: bool,
    /// Whether key edits run as late as the rules allow: what real devices may do to a sender
    /// that forgets its fence.
    pub lazy_umr: bool,
    /// Longest message that stands in its completion instead of the receive's memory.
    pub in_cqe_receive: u8,
    /// The same of what a signalled READ or atomic brings.
    pub in_cqe_answer: u8,
    /// Packets in flight before the requester waits for an acknowledgement.
    pub window: u32,
}

impl Default for QpAttr {
    fn default() -> Self {
        Self {
            qpn: 0,
            kind: QpKind::Rc,
            state: QpState::Reset,
            mtu: 1024,
            log_msg_max: 31,
            remote_qpn: 0,
            rq_psn: 0,
            sq_psn: 0,
            path: Path::default(),
            pkey_index: 0,
            retry_count: 7,
            rnr_retry: 7,
            ack_timeout: 14,
            min_rnr_nak: 12,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            remote_read: false,
            remote_write: false,
            remote_atomic: false,
            qkey: 0,
            srq: false,
            atomic_little_endian: false,
            lazy_umr: false,
            in_cqe_receive: 0,
            in_cqe_answer: 0,
            window: 128,
        }
    }
}

/// The device around an engine.
///
/// All methods name the QP so that one implementor can serve all of them.
pub trait Host {
    /// Model time.
    fn now(&self) -> Nanos;

    /// The send queue entry that starts at WQEBB `index`; `None` if none is posted there
    /// (the doorbell record says so).
    fn fetch_send(&mut self, qpn: u32, index: u16) -> Option<Result<SendWqe, BadWqe>>;

    /// Takes the next receive work request of the QP's queue or shared queue; of `pool` if the
    /// request names one (XRC). On `Err` the entry is taken as well; the number is its index.
    fn take_recv(
        &mut self,
        qpn: u32,
        pool: Option<u32>,
    ) -> Option<Result<RecvWqe, (u16, Syndrome)>>;

    /// Whether the shared queue an XRC request names is there, and of this QP's XRC domain.
    fn pool_check(&mut self, qpn: u32, pool: u32) -> Result<(), RemoteFault> {
        let _ = (qpn, pool);
        Err(RemoteFault::Access)
    }

    /// Writes a received message at `offset` bytes into a receive work request, as
    /// [`scatter`](Self::scatter) does; the memory is that of the queue it came from.
    fn scatter_receive(
        &mut self,
        qpn: u32,
        to: &RecvWqe,
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), Syndrome> {
        self.scatter(qpn, &to.segments, offset, bytes)
    }

    /// Reads local memory: `buf` from `offset` bytes into the segments.
    fn gather(
        &mut self,
        qpn: u32,
        from: &[DataSegment],
        offset: u32,
        buf: &mut [u8],
    ) -> Result<(), Syndrome>;

    /// Writes local memory at `offset` bytes into the segments. Data beyond their end is
    /// [`Syndrome::LocalLength`], and then nothing is written.
    fn scatter(
        &mut self,
        qpn: u32,
        to: &[DataSegment],
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), Syndrome>;

    /// Whether the peer may access `len` bytes at `at`. Never asked for a length of 0.
    fn remote_check(
        &mut self,
        qpn: u32,
        at: RemoteAddress,
        len: u64,
        access: Access,
    ) -> Result<(), RemoteFault>;

    /// Reads memory for the peer, with the same check.
    fn remote_read(
        &mut self,
        qpn: u32,
        at: RemoteAddress,
        buf: &mut [u8],
        access: Access,
    ) -> Result<(), RemoteFault>;

    /// Writes memory for the peer, with the same check.
    fn remote_write(
        &mut self,
        qpn: u32,
        at: RemoteAddress,
        bytes: &[u8],
        access: Access,
    ) -> Result<(), RemoteFault>;

    /// Invalidates a key on the peer's behalf (SEND with invalidate).
    fn remote_invalidate(&mut self, qpn: u32, rkey: u32) -> Result<(), RemoteFault>;

    /// Carries out a memory key edit.
    fn umr(&mut self, qpn: u32, wqe: &UmrWqe) -> Result<(), Syndrome>;

    /// Carries out a LOCAL_INVAL.
    fn local_invalidate(&mut self, qpn: u32, key: u32) -> Result<(), Syndrome>;

    /// The RoCE address at `index` of the table, if one is set.
    fn roce_address(&self, index: u16) -> Option<RoceAddress>;

    /// The own end of a path of InfiniBand; `None` where the port is none of it.
    fn ib_source(&self, path: &IbPath) -> Option<IbSource> {
        let _ = path;
        None
    }

    /// The P_Key at `index` of the port's table.
    fn p_key(&self, index: u16) -> u16 {
        let _ = index;
        DEFAULT_PKEY
    }

    /// A packet came that is not of the QP's partition.
    fn p_key_violation(&mut self) {}

    /// A datagram came with another Q_Key than the QP's.
    fn q_key_violation(&mut self) {}

    /// A send queue entry ended: signalled, or with an error.
    fn complete_send(&mut self, qpn: u32, completion: SendCompletion);

    /// A receive work request ended.
    fn complete_recv(&mut self, qpn: u32, completion: RecvCompletion);

    /// The engine left its state by itself: `Err`, or `Sqer` on a datagram QP. The failing
    /// entry has completed by then; the flush is the engine's and follows.
    fn qp_error(&mut self, qpn: u32, state: QpState);

    /// Something to tell by an event queue.
    fn event(&mut self, qpn: u32, event: QpEvent);

    /// Leading bytes before a datagram over IPv4 that the device does not write.
    fn untouched(&self) -> u32 {
        0
    }

    /// Queues a frame for the wire (or for this device itself).
    fn transmit(&mut self, frame: Vec<u8>);

    /// A packet that is about to be transmitted has been before: for the books.
    fn retransmitted(&mut self) {}

    /// Something to count on behalf of a QP.
    fn count(&mut self, qpn: u32, what: Tally) {
        let _ = (qpn, what);
    }
}
