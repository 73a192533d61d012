//! The provider seam: what DAT asks of an HCA, and all it knows of one.
//!
//! One trait carries the control path ([`Provider`]) and four the data path ([`SendQueue`],
//! [`RecvQueue`], [`SharedRecvQueue`], [`CompletionQueue`]). The data-path objects are values of
//! their own: dat-core moves the two queues of a queue pair into the posting half of an Endpoint
//! and the completion queue into the reaping half of an Event Dispatcher, so that two threads share
//! neither a lock nor a cache line they both write.
//!
//! Rules of the seam:
//! * No method calls back into dat-core, and none waits for the network. A method may wait for the
//!   *device* (a command), always with a deadline of the provider's own.
//! * Handles are `Copy` newtypes made by the provider; dat-core only carries them.
//! * What the device said of a failure survives in [`Fault`].
//! * `now` is a parameter wherever time matters.
//!
//! Two implementors exist: `hca-mlx5`, and `crate::testing`, which is memory only.
//!
//! Length: half of it is documentation; a seam is read as one page.

use core::fmt;
use core::net::IpAddr;
use core::task::Poll;

use crate::types::time::Instant;

pub use crate::types::activity::{Activity, Hook, Severity};
pub use crate::types::class::{Class, Classes};
pub use crate::types::completion::{
    Arrived, Completion, Direction, Extra, NetworkHeader, Status, lid_address, lid_of,
};
pub use crate::types::fault::{Fault, FaultKind};
pub use crate::types::flags::Access;
pub use crate::types::key_order::KeyOrder;
pub use crate::types::mtu::Mtu;
pub use crate::types::net::Net;
pub use crate::types::random::Random;
pub use crate::types::siphash::siphash;
pub use crate::types::triplet::RmrTriplet;

/// A protection domain (DAT: Protection Zone).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pd(pub u32);

/// A queue pair. `number` is the 24-bit number the wire knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Qp {
    /// The QPN, 24 bits.
    pub number: u32,
}

/// A completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cq(pub u32);

/// A shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedRq(pub u32);

/// A registered memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mr {
    /// The key local segments carry.
    pub lkey: u32,
    /// The key peers carry; given back, the newest that registrations made of it.
    pub rkey: u32,
}

/// A memory window. Only the upper 24 bits of its key are fixed; each bind takes a new low byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mw {
    /// The key as created, bound to nothing; given back, the newest that binds made of it.
    pub rkey: u32,
}

/// A span of consumer memory by virtual address.
///
/// A plain description: the provider decides whether the device may be given that memory at all,
/// and refuses ([`FaultKind::BadParameter`]) what its platform has not handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// First byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
}

bitflags::bitflags! {
    /// How one request is posted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PostFlags: u8 {
        /// Write a completion when it succeeds. Errors always complete.
        const SIGNALED = 0x01;
        /// Mark the message so that the peer's solicited notification fires.
        const SOLICITED = 0x02;
        /// Start only after all earlier reads of this queue have finished.
        const FENCE = 0x04;
        /// Build the request but leave the doorbell to a later post or to [`SendQueue::ring`].
        const DEFER = 0x08;
        /// The host must not read the segments itself: their addresses mean something to their keys
        /// only, or earlier reads of this queue may still write them.
        const GATHER = 0x10;
    }
}

/// One local segment, checked by dat-core against its LMR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Virtual address of the first byte.
    pub addr: u64,
    /// Length in bytes; never 0 (dat-core drops empty segments).
    pub len: u32,
    /// The region's lkey.
    pub lkey: u32,
}

/// What an atomic operation does to the 8 bytes at the far end. It answers with what was there
/// before, in the order of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Adds, modulo 2^64.
    FetchAdd(u64),
    /// Replaces it with `swap` if it is `compare`.
    CmpSwap {
        /// What must be there.
        compare: u64,
        /// What will be there then.
        swap: u64,
    },
}

/// A provider or a port without multicast groups.
#[must_use]
pub const fn no_groups() -> Fault {
    crate::fault!(
        Unsupported,
        "join a multicast group",
        "the port has no multicast groups",
        "use a port of InfiniBand"
    )
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The way there.
    pub path: Path,
    /// The peer's QPN.
    pub qpn: u32,
    /// The peer's Q_Key.
    pub qkey: u32,
}

/// What a window opens to whom, besides its range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Every queue pair of its protection domain: a window of type 1.
    #[default]
    Domain,
    /// The queue pair that binds it, alone: a window of type 2, as [`Provider::mw_create_for_qp`]
    /// makes them.
    QueuePair {
        /// It is bound by that queue pair already, as far as is known.
        bound: bool,
    },
}

/// One memory window bind (or, with `len` 0, unbind).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bind {
    /// The window's key before the bind; the low byte may be stale.
    pub old_rkey: u32,
    /// The key after it: same upper 24 bits, another low byte.
    pub new_rkey: u32,
    /// lkey of the region beneath.
    pub lkey: u32,
    /// First address of the region that the window opens.
    pub addr: u64,
    /// The address by which peers name that byte.
    pub start: u64,
    /// Bytes it opens; 0 unbinds.
    pub len: u64,
    /// Only the `REMOTE_*` bits count.
    pub access: Access,
    /// Whom it opens them to.
    pub scope: Scope,
}

/// What memory is registered.
#[derive(Clone, Copy, Debug)]
pub enum Backing<'a> {
    /// Memory of the host.
    Host(Region),
    /// Pages by their device addresses, one after another.
    Pages {
        /// Where each begins; multiples of the page.
        pages: &'a [u64],
        /// log2 of the page.
        log_page: u8,
        /// Bytes of them, from the first on.
        len: u64,
    },
}

/// A page list that a fast registration takes over, as the provider keeps it for the device:
/// dat-core only carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Where it stands.
    pub addr: u64,
    /// By which key the device reads it.
    pub lkey: u32,
    /// How many pages.
    pub count: u32,
    /// log2 of the page.
    pub log_page: u8,
}

/// One fast registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The region's key before; the low byte may be stale.
    pub old_key: u32,
    /// The key after it: same upper 24 bits, another low byte.
    pub new_key: u32,
    /// The address by which segments and peers name the first byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// What it grants.
    pub access: Access,
    /// Of [`Provider::mr_pages`].
    pub pages: Pages,
}

/// What is posted to a send queue, besides its segments.
#[derive(Clone, Copy, Debug)]
pub enum WorkRequest<'a> {
    /// A SEND of the segments in order.
    Send,
    /// The same, and the peer's HCA closes the window of that key when the message has arrived.
    SendInvalidate(u32),
    /// A datagram of the segments in order, and an immediate. Only on a queue pair of
    /// [`Service::Datagram`], where it is all that is posted.
    SendUd(&'a Destination, Option<u32>),
    /// An RDMA WRITE of the segments.
    Write(&'a RmrTriplet),
    /// The same, which ends with an immediate that takes a receive of the peer.
    WriteImmed(&'a RmrTriplet, u32),
    /// An RDMA READ into the segments.
    Read(&'a RmrTriplet),
    /// An atomic on the 8 bytes at the far end; the one segment has 8 bytes for the answer.
    Atomic(Atomic, &'a RmrTriplet),
    /// A window bind or unbind. Requests posted after it start only when it has taken effect. An
    /// unbind may be of a region of [`Provider::mr_allocate`] as well, whose key it closes.
    Bind(&'a Bind),
    /// A fast registration of a region of [`Provider::mr_allocate`]. Requests posted after it start
    /// only when it has taken effect.
    Register(&'a Registration),
}

impl WorkRequest<'_> {
    /// Returns the memory at the far end that the request names.
    #[inline(always)]
    #[must_use]
    pub const fn remote(&self) -> Option<&RmrTriplet> {
        match self {
            Self::Write(remote)
            | Self::WriteImmed(remote, _)
            | Self::Read(remote)
            | Self::Atomic(_, remote) => Some(remote),
            Self::Send
            | Self::SendInvalidate(_)
            | Self::SendUd(..)
            | Self::Bind(_)
            | Self::Register(_) => None,
        }
    }
}

/// The send queue of a queue pair: the posting end, owned by one thread.
///
/// dat-core guarantees: never more requests outstanding than [`QpInit::requests`] and, where
/// [`SendQueue::has_room`], one RDMA WRITE of no bytes; never more segments than
/// [`QpInit::request_segments`]; keys are changed only with [`QpInit::binds`]; a far end as long as
/// the segments; and only while the queue pair is in Rts. So nothing here can fail.
///
/// A request has a *token*, by which its completion names it: known before it is posted, and
/// returned by the method that posts it. Tokens of requests outstanding at one time differ; they
/// need not be consecutive.
pub trait SendQueue {
    /// The token that the next request will have. Behind a request of one segment it has gone up by
    /// one.
    fn next_token(&self) -> u16;
    /// Whether there is room for a request of no bytes, if that of token `since` is the oldest that
    /// may be outstanding, also when `left` more of the widest follow before it completes. There is
    /// none only if all since then were as wide as any can be.
    fn has_room(&self, since: u16, left: u16) -> bool {
        let _ = (since, left);
        true
    }
    /// Posts a request.
    fn post(&mut self, work: WorkRequest<'_>, segments: &[Segment], flags: PostFlags) -> u16;
    /// Posts RDMA WRITEs of one segment each, of `len` bytes if they are of one length, and leaves
    /// the doorbell to a later post or to [`SendQueue::ring`].
    #[inline]
    fn post_writes(
        &mut self,
        writes: impl Iterator<Item = (Segment, RmrTriplet)>,
        len: Option<u32>,
        flags: PostFlags,
    ) {
        let _ = len;
        for (segment, remote) in writes {
            self.post(WorkRequest::Write(&remote), &[segment], flags.union(PostFlags::DEFER));
        }
    }
    /// Rings the doorbell for every request posted with [`PostFlags::DEFER`] since the last
    /// doorbell.
    fn ring(&mut self);
}

/// The receive queue of a queue pair: the posting end, owned by one thread.
pub trait RecvQueue {
    /// Posts one receive. Its token counts by one from 0 after each reset of the queue pair.
    fn recv(&mut self, segments: &[Segment]) -> u16;
    /// Posts receives of one segment each.
    fn recv_each(&mut self, receives: impl Iterator<Item = Segment>) {
        for segment in receives {
            self.recv(&[segment]);
        }
    }
    /// The segments of a receive that is still posted, in order; for posting them anew to a queue
    /// that takes this one's place.
    fn posted(&self, token: u16, take: impl FnMut(Segment));
}

/// A shared receive queue: the posting end, owned by one thread.
///
/// Any of its receives may be the next to complete. dat-core guarantees: never more outstanding
/// than [`SharedRqInit::receives`], a receive being outstanding from its post to its release.
pub trait SharedRecvQueue {
    /// The token that the next receive will have.
    fn next_token(&self) -> u16;
    /// Posts one receive. Its token, below 32,768, names no other until it is released.
    fn recv(&mut self, segments: &[Segment]) -> u16;
    /// The receive of that token is done with: the token may name another.
    fn release(&mut self, token: u16);
}

/// What [`CompletionQueue::poll_plain`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// The device has written nothing.
    Empty,
    /// A request succeeded: index of its queue pair, and its token.
    Sent(u32, u16),
    /// A receive succeeded: index of its queue pair, its token, and the bytes received.
    Received(u32, u16, u32),
    /// Something else is there, for [`CompletionQueue::poll`] to take.
    Other,
}

/// How often a completion queue that is asked to tells of its completions. By default of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moderation {
    /// So many completions since the last notice have one at once. 0: each has.
    pub completions: u16,
    /// Fewer have one when so many microseconds have gone by since the last; the first after a
    /// pause at once, or as much later: devices may differ. At most [`Self::LONGEST`]. 0: each has
    /// one.
    pub period: u16,
}

impl Moderation {
    /// The longest period, in microseconds.
    pub const LONGEST: u16 = 4095;
}

/// A completion queue: the reaping end, owned by one thread.
pub trait CompletionQueue {
    /// As [`CompletionQueue::poll`], for successes only, in few words that fit into registers.
    /// Anything else stays where it is.
    fn poll_plain(&mut self) -> Polled;
    /// Takes successes of requests of the queue pair `index` one after another, as long as they are
    /// there, a slot is left for each, and `take` accepts the slot and the token; the one it
    /// declines stays where it is. Returns how many there were; it may end before there are no
    /// more. Their entries are the device's again when the call returns.
    fn poll_sent<S>(&mut self, index: u32, slots: &[S], take: impl FnMut(&S, u16) -> bool) -> u32;
    /// Takes up to `most` successes of receives of the queue pair `index`, whose tokens follow one
    /// another from `token` on, as long as `take` accepts their bytes; the one it declines stays
    /// where it is. It may end before there are no more. Their entries are the device's again when
    /// the call returns.
    fn poll_received(&mut self, index: u32, token: u16, most: usize, take: impl FnMut(u32) -> bool);
    /// The next completion, if the device has written one. Entries that make no sense are skipped
    /// and counted.
    fn poll(&mut self) -> Option<Completion>;
    /// Shows the completions that wait, the oldest first, and takes none: those from position
    /// `from` on, as [`CompletionQueue::taken`] counts. Returns the position behind the newest.
    fn survey(&self, from: u64, see: impl FnMut(Completion)) -> u64;
    /// The position behind the newest completion that the device has written, without a look at
    /// each.
    fn written(&self) -> u64;
    /// The completion taken last, in full; of use only right after it was taken.
    fn last(&self) -> Option<Completion>;
    /// Completions taken since the queue was made, those that made no sense included.
    fn taken(&self) -> u64;
    /// Asks for one event when the next completion (any, or only a solicited or failed one)
    /// arrives.
    ///
    /// Completions that arrived before the call raise the event at once.
    fn arm(&mut self, solicited_only: bool);
    /// Takes out what completed of the queue pair with that index, which has left service, each to
    /// `gone`; all else stays, in its order.
    fn sweep(&mut self, index: u32, gone: impl FnMut(Direction, u16));
}

/// What a queue pair serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// One connection (RC).
    Connected,
    /// Datagrams from and to anybody (UD).
    Datagram {
        /// What every datagram to it has to carry.
        qkey: u32,
    },
}

/// What a queue pair is made of.
#[derive(Clone, Copy, Debug)]
pub struct QpInit {
    /// What it serves.
    pub service: Service,
    /// Its protection domain.
    pub pd: Pd,
    /// Where requests complete.
    pub send_cq: Cq,
    /// Where receives complete.
    pub recv_cq: Cq,
    /// Most requests outstanding. The queue has room for as many of the widest; and for one of no
    /// bytes, which is dat-core's own, if [`SendQueue::has_room`] says so.
    pub requests: u16,
    /// Most receives outstanding.
    pub receives: u16,
    /// Most segments of a request.
    pub request_segments: u8,
    /// Most segments of a receive.
    pub receive_segments: u8,
    /// Its requests may change keys: [`WorkRequest::Bind`], [`WorkRequest::Register`].
    pub binds: bool,
    /// 24 bits that come back in every completion of it ([`Completion::index`]).
    pub index: u32,
    /// The shared receive queue it takes its receives from; it has none of its own then.
    pub shared: Option<SharedRq>,
}

/// What a shared receive queue is made of.
#[derive(Clone, Copy, Debug)]
pub struct SharedRqInit {
    /// Its protection domain, that of the memory of its receives.
    pub pd: Pd,
    /// Most receives outstanding.
    pub receives: u16,
    /// Most segments of a receive.
    pub segments: u8,
}

/// Memory to register.
#[derive(Clone, Copy, Debug)]
pub struct MrInit {
    /// Its protection domain.
    pub pd: Pd,
    /// The memory, of the host.
    pub region: Region,
    /// The address that segments and peers name its first byte by.
    pub start: u64,
    /// Rights.
    pub access: Access,
}

/// What became of one of several; none before it was tried.
pub type Done<T> = Option<Result<T, Fault>>;

/// What became of a queue pair, one of several that are made.
pub type MadeQp<P> = Done<NewQp<<P as Provider>::Sq, <P as Provider>::Rq>>;

/// One of several things that a provider is asked for, and what became of it.
pub enum Task<P: Provider + ?Sized> {
    /// [`Provider::qp_create`].
    QpCreate(QpInit, MadeQp<P>),
    /// [`Provider::qp_modify`].
    QpModify(Qp, QpStep, Result<(), Fault>),
    /// [`Provider::qp_destroy`], which takes the posting ends or drops them.
    QpDestroy(Qp, Ends<P>, Result<(), Fault>),
    /// [`Provider::mr_map`], of host memory.
    MrCreate(MrInit, Done<Mr>),
    /// [`Provider::mr_destroy`].
    MrDestroy(Mr, Result<(), Fault>),
}

impl<P: Provider + ?Sized> fmt::Debug for Task<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QpCreate(init, _) => f.debug_tuple("QpCreate").field(init).finish(),
            Self::QpModify(qp, step, _) => f.debug_tuple("QpModify").field(qp).field(step).finish(),
            Self::QpDestroy(qp, ..) => f.debug_tuple("QpDestroy").field(qp).finish(),
            Self::MrCreate(init, _) => f.debug_tuple("MrCreate").field(init).finish(),
            Self::MrDestroy(mr, _) => f.debug_tuple("MrDestroy").field(mr).finish(),
        }
    }
}

/// The posting ends of a queue pair that is to be destroyed.
pub type Ends<P> = Option<(<P as Provider>::Sq, <P as Provider>::Rq)>;

/// A queue pair as created: Reset state, with its two posting ends.
#[derive(Debug)]
pub struct NewQp<S, R> {
    /// Its handle.
    pub qp: Qp,
    /// Posting end of the send queue.
    pub sq: S,
    /// Posting end of the receive queue.
    pub rq: R,
}

/// The link layer of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkType {
    /// Ethernet, with RoCEv2.
    #[default]
    Ethernet,
    /// InfiniBand.
    InfiniBand,
}

/// The destination of packets in the link layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// Ethernet: MAC of the peer, or of the gateway to it.
    Mac([u8; 6]),
    /// InfiniBand.
    Lid(LidHop),
}

impl NextHop {
    /// As bytes, for [`NextHop::of`].
    pub(crate) const fn bytes(self) -> [u8; 6] {
        match self {
            Self::Mac(mac) => mac,
            Self::Lid(LidHop { lid, path_bits, rate, pkey_index }) => {
                let ([a, b], [c, d]) = (lid.to_be_bytes(), pkey_index.to_be_bytes());
                [a, b, path_bits, rate, c, d]
            }
        }
    }

    /// From the bytes of one on that link.
    pub(crate) const fn of(link: LinkType, bytes: [u8; 6]) -> Self {
        let [a, b, path_bits, rate, c, d] = bytes;
        match link {
            LinkType::Ethernet => Self::Mac(bytes),
            LinkType::InfiniBand => Self::Lid(LidHop {
                lid: u16::from_be_bytes([a, b]),
                path_bits,
                rate,
                pkey_index: u16::from_be_bytes([c, d]),
            }),
        }
    }
}

/// The destination of packets in an InfiniBand subnet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LidHop {
    /// LID of the peer's port, or of the router to it.
    pub lid: u16,
    /// Low bits of the own LID.
    pub path_bits: u8,
    /// Static rate, as the device counts; 0 is the rate of the port.
    pub rate: u8,
    /// Entry of the P_Key table of the port.
    pub pkey_index: u16,
}

impl LidHop {
    /// LIDs that a port can have.
    pub const UNICAST: core::ops::Range<u16> = 1..0xc000;
}

/// What a REQ says of a path in an InfiniBand subnet ([`Provider::subnet_path`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubnetPath {
    /// GID of the own port.
    pub local_gid: u128,
    /// LID of the own port.
    pub local_lid: u16,
    /// P_Key.
    pub p_key: u16,
    /// Packet rate, as the specification counts.
    pub rate: u8,
    /// Path MTU.
    pub mtu: Mtu,
    /// Packet lifetime, as a CM code.
    pub lifetime: u8,
}

/// The resolved way to a peer. Made by [`Provider::resolve`], carried by dat-core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The peer's GID as an address. On Ethernet that is the peer's address (IPv4 as
    /// ::ffff:a.b.c.d).
    pub remote: IpAddr,
    /// Destination in the link layer.
    pub next_hop: NextHop,
    /// Entry of the local address table to send from.
    pub source_index: u8,
    /// Hop limit / TTL.
    pub hop_limit: u8,
    /// Traffic class and priority, or service level.
    pub class: Class,
    /// 20-bit flow label; also chooses the UDP source port.
    pub flow_label: u32,
}

/// One step of a queue pair's state machine. Each but the first is one command of the device.
#[derive(Clone, Copy, Debug)]
pub enum QpStep {
    /// Reset to ready-to-send, of a queue pair for datagrams.
    Datagram {
        /// What every datagram to it has to carry.
        qkey: u32,
    },
    /// Reset to Init: receives may be posted from now on.
    Init {
        /// What peers may do through this queue pair.
        access: Access,
    },
    /// Init to ready-to-receive.
    Rtr {
        /// The way to the peer.
        path: Path,
        /// The peer's QPN.
        remote_qpn: u32,
        /// First PSN to expect.
        rq_psn: u32,
        /// Path MTU.
        mtu: Mtu,
        /// Reads the peer may have outstanding here.
        responder_resources: u8,
        /// RNR timer code put into RNR NAKs.
        min_rnr_timer: u8,
    },
    /// Ready-to-receive to ready-to-send.
    Rts {
        /// First PSN to send.
        sq_psn: u32,
        /// Reads this side may have outstanding.
        initiator_depth: u8,
        /// ACK timeout, 4.096 us * 2^n.
        ack_timeout: u8,
        /// Transport retries, 0..7.
        retry_count: u8,
        /// RNR retries, 7 = without end.
        rnr_retry: u8,
    },
    /// To Error, from any state: both queues are flushed by the device.
    Error,
    /// To Reset, from any state: both queues are emptied without completions; tokens start over.
    Reset,
}

/// Bytes of one window at most, however long the region beneath is: adapters state the length of a
/// window's span in 31 bits.
pub const MAX_WINDOW: u32 = u32::MAX >> 1;

/// What an HCA can do.
#[derive(Clone, Copy, Debug)]
pub struct HcaLimits {
    /// Name of the adapter, for `dat_ia_query`.
    pub name: &'static str,
    /// Name of the vendor.
    pub vendor: &'static str,
    /// Device revision: major, minor.
    pub hardware: (u32, u32),
    /// Firmware revision: major, minor, sub-minor.
    pub firmware: (u16, u16, u16),
    /// Link layer of the port.
    pub link: LinkType,
    /// Node GUID.
    pub node_guid: u64,
    /// Queue pairs.
    pub max_qp: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Half of the entries that one completion queue can have: the other half is for requests of
    /// dat-core's own.
    pub max_cqe: u32,
    /// Outstanding requests of one queue pair.
    pub max_qp_requests: u32,
    /// Segments of one request.
    pub max_segments: u8,
    /// Memory regions and windows together.
    pub max_mkey: u32,
    /// Bytes of one region. A window over it has at most [`MAX_WINDOW`].
    pub max_region: u64,
    /// Bytes of one message.
    pub max_message: u32,
    /// Reads outstanding as initiator and as responder.
    pub max_reads: u8,
    /// Protection domains.
    pub max_pd: u32,
    /// Largest payload of a packet on this port.
    pub mtu: Mtu,
    /// Largest payload that a connection is offered with; a peer may ask for up to `mtu`.
    pub path_mtu: Mtu,
    /// What quality of service connections can have, and the class that each leads to.
    pub classes: Classes,
    /// Memory windows exist.
    pub windows: bool,
    /// Atomics on 8 bytes exist, as initiator and as responder.
    pub atomics: bool,
    /// A region that a work request registers may allow them too.
    pub registered_atomics: bool,
    /// Most segments of a datagram that is sent; 0 if there are no queue pairs for datagrams.
    pub max_datagram_segments: u8,
    /// Ack delay code of this device (CM target ACK delay).
    pub ack_delay: u8,
    /// Shared receive queues; 0 if there are none.
    pub max_shared: u32,
    /// Outstanding receives of one shared receive queue.
    pub max_shared_receives: u16,
}

/// The address as it is compared here: an IPv4 address always as such, and never in its IPv6 form.
#[must_use]
pub fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// A connection management datagram of 256 bytes with the address it came from.
#[derive(Clone, Copy, Debug)]
pub struct MadIn {
    /// GID of the sender as an address; on Ethernet that is its address.
    pub from: IpAddr,
    /// `from` stands for a LID whose GID is not known yet: [`Path::remote`] of
    /// [`Provider::resolve_asker`] is the sender.
    pub unnamed: bool,
    /// The MAD.
    pub mad: [u8; 256],
}

/// What happened at the device besides completions.
#[derive(Clone, Copy, Debug)]
pub enum Notice {
    /// Completion event of an armed queue.
    Completion(Cq),
    /// A completion queue failed (overrun or access error).
    CqError(Cq),
    /// First packet of the peer arrived while the queue pair was in ready-to-receive.
    Established(Qp),
    /// A queue pair left its state by an error; the cause is in the fault.
    QpError(Qp, Fault),
    /// A shared receive queue holds fewer receives than it was armed for; said once.
    SharedLimit(SharedRq),
    /// A shared receive queue failed.
    SharedError(SharedRq),
    /// The link went down (`false`) or up (`true`).
    Link(bool),
    /// The device reports trouble, and goes on.
    Warning(Fault),
    /// The device is lost: nothing on it works any more.
    Catastrophic(Fault),
}

/// What the device counts, since whenever: only differences mean something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HcaCounters {
    /// Of the link: those of [`IaCounter`](crate::IaCounter) from `LNK_ERR_RCV` on, in that order;
    /// 0 where there is no such thing.
    pub link: [u64; 9],
    /// Of the transport of this driver's queue pairs: those from `DIAG_ERR_RQ_RAE` on.
    pub diag: [u64; 9],
}

/// The control path of an HCA.
pub trait Provider {
    /// Posting end of a send queue.
    type Sq: SendQueue;
    /// Posting end of a receive queue.
    type Rq: RecvQueue;
    /// Reaping end of a completion queue.
    type Cq: CompletionQueue;
    /// Posting end of a shared receive queue.
    type Shared: SharedRecvQueue;

    /// What the HCA can do. Constant after bring-up.
    fn limits(&self) -> &HcaLimits;

    /// Who sees what adapter and driver do, if somebody does.
    fn hook(&self) -> Option<Hook<'_>> {
        None
    }

    /// Passes to the [`Hook`], if there is one, what the adapter has done: without one nothing is put
    /// together.
    #[inline(always)]
    fn report(&self, activity: impl FnOnce() -> Activity) {
        /// Beside the path of those that have none.
        #[cold]
        #[inline(never)]
        fn tell(hook: Hook<'_>, activity: impl FnOnce() -> Activity) {
            hook(&activity());
        }
        if let Some(hook) = self.hook() {
            tell(hook, activity);
        }
    }

    /// Gives the port its address. Called before anything else that concerns the network; given
    /// again, for another adapter on a device that is up already, it replaces the earlier one.
    fn set_net(&mut self, net: &Net, now: Instant) -> Result<(), Fault>;
    /// Gives the order in which keys of one index follow each other. A provider whose device uses an
    /// index again continues from the newest key that [`Provider::mr_destroy`] or
    /// [`Provider::mw_destroy`] named.
    fn set_key_order(&mut self, _order: &KeyOrder) {}
    /// The way to `remote`: pending while neighbour discovery runs, an error when it got no answer.
    /// Called again at [`Provider::next_deadline`] or after [`Provider::service`] reported work.
    fn resolve(&mut self, remote: IpAddr, now: Instant) -> Poll<Result<Path, Fault>>;

    /// The same, of a peer that asked: it may not exist, so a search for it gives way to others.
    fn resolve_asker(&mut self, remote: IpAddr, now: Instant) -> Poll<Result<Path, Fault>> {
        self.resolve(remote, now)
    }

    /// What a REQ has to say of a path of [`Provider::resolve`] on InfiniBand; `None` on Ethernet.
    fn subnet_path(&self, _path: &Path) -> Option<SubnetPath> {
        None
    }

    /// Makes a queue pair for datagrams a member of the multicast group of an IP address: what is
    /// sent to the destination returned comes to every member. A group that does not exist is made
    /// with `qkey`; one that has another is refused. Pending while the subnet's manager is asked.
    ///
    /// Members leave with [`Provider::qp_destroy`] at the latest.
    fn group_join(
        &mut self,
        _qp: Qp,
        _qkey: u32,
        _group: IpAddr,
        _now: Instant,
    ) -> Poll<Result<Destination, Fault>> {
        Poll::Ready(Err(no_groups()))
    }

    /// Takes a queue pair out of a group, or out of all. No effect if it is in none.
    fn group_leave(&mut self, _qp: Qp, _group: Option<IpAddr>) -> Result<(), Fault> {
        Ok(())
    }

    /// Makes a protection domain.
    fn pd_create(&mut self) -> Result<Pd, Fault>;
    /// Destroys it.
    fn pd_destroy(&mut self, pd: Pd) -> Result<(), Fault>;

    /// Registers memory.
    fn mr_create(&mut self, pd: Pd, region: Region, access: Access) -> Result<Mr, Fault>;
    /// Ends a registration; when it returns the device no longer touches the memory.
    fn mr_destroy(&mut self, mr: Mr) -> Result<(), Fault>;

    /// Registers memory whose first byte segments and peers name by the address `start`: of host
    /// memory any address, of pages a multiple of the page.
    fn mr_map(
        &mut self,
        pd: Pd,
        backing: Backing<'_>,
        start: u64,
        access: Access,
    ) -> Result<Mr, Fault>;
    /// Makes the key of a region of up to `pages` pages that opens nothing until
    /// [`WorkRequest::Register`] says what.
    fn mr_allocate(&mut self, pd: Pd, pages: u32) -> Result<Mr, Fault>;
    /// Keeps `pages` for the next registration of a region of [`Provider::mr_allocate`], for which
    /// none is under way.
    fn mr_pages(&mut self, mr: Mr, pages: &[u64], log_page: u8) -> Result<Pages, Fault>;
    /// Makes a key for local use of all memory by its device address.
    fn mr_reserved(&mut self, pd: Pd) -> Result<Mr, Fault>;
    /// The memory that the host shares with others under that name, if there is any.
    fn shared_memory(&self, _name: &[u8; 40]) -> Option<Region> {
        None
    }
    /// The host's earlier stores are there for a peer that reads, if `incoming_read`; else what a
    /// peer wrote earlier is there for the host's later loads.
    fn sync(&self, incoming_read: bool);

    /// Makes a memory window, bound to nothing.
    fn mw_create(&mut self, pd: Pd) -> Result<Mw, Fault>;
    /// Makes a window of type 2, bound to nothing: it opens its range to the queue pair that binds
    /// it, and a message of the peer may close it.
    fn mw_create_for_qp(&mut self, pd: Pd) -> Result<Mw, Fault>;
    /// Puts another, unbound window in the place of one of type 2. If it fails the old one is what
    /// it was.
    fn mw_renew(&mut self, mw: Mw) -> Result<Mw, Fault>;
    /// Destroys a window, bound or not; when it returns its keys open nothing.
    fn mw_destroy(&mut self, mw: Mw) -> Result<(), Fault>;

    /// Makes a completion queue of at least `entries` entries.
    fn cq_create(&mut self, entries: u32) -> Result<(Cq, Self::Cq), Fault>;
    /// Gives it at least `entries` entries. What waits in it, and what comes meanwhile, is kept;
    /// refused ([`FaultKind::BadState`]) if that does not fit, which changes nothing.
    fn cq_resize(&mut self, cq: Cq, end: &mut Self::Cq, entries: u32) -> Result<(), Fault>;
    /// Says when it tells of its completions, from now on. Refused
    /// ([`FaultKind::Unsupported`]) by a device that tells of each.
    fn cq_moderate(&mut self, cq: Cq, moderation: Moderation) -> Result<(), Fault> {
        let _ = moderation;
        Err(crate::fault!(Unsupported, "cq_moderate", "this device tells of each completion")
            .of("CQ", cq.0))
    }
    /// Destroys it. No queue pair may use it.
    fn cq_destroy(&mut self, cq: Cq, end: Self::Cq) -> Result<(), Fault>;

    /// Makes a queue pair, in Reset.
    fn qp_create(&mut self, init: &QpInit) -> Result<NewQp<Self::Sq, Self::Rq>, Fault>;
    /// Takes a queue pair one step on. The posting ends stay valid; after [`QpStep::Reset`] they
    /// start over, which the caller tells them by passing them to [`Provider::qp_restart`].
    fn qp_modify(&mut self, qp: Qp, step: &QpStep) -> Result<(), Fault>;
    /// The same for several queue pairs, each of which takes one step; what became of it stands
    /// behind it. A provider that can lets the device do them at the same time.
    fn qp_modify_each(&mut self, steps: &mut [(Qp, QpStep, Result<(), Fault>)]) {
        for (qp, step, done) in steps {
            *done = self.qp_modify(*qp, step);
        }
    }
    /// Rewinds the posting ends of a queue pair that has just been reset.
    fn qp_restart(&mut self, qp: Qp, sq: &mut Self::Sq, rq: &mut Self::Rq);
    /// Destroys a queue pair in any state.
    fn qp_destroy(&mut self, qp: Qp, sq: Self::Sq, rq: Self::Rq) -> Result<(), Fault>;

    /// Does several things, none of which needs another; what became of each stands in it. One that
    /// fails changes nothing of the others. A provider that can lets the device do them at the same
    /// time.
    fn do_each(&mut self, all: &mut [Task<Self>]) {
        for task in all {
            match task {
                Task::QpCreate(init, made) => *made = Some(self.qp_create(init)),
                Task::QpModify(qp, step, done) => *done = self.qp_modify(*qp, step),
                Task::QpDestroy(qp, ends, done) => {
                    if let Some((sq, rq)) = ends.take() {
                        *done = self.qp_destroy(*qp, sq, rq);
                    }
                }
                Task::MrCreate(MrInit { pd, region, start, access }, made) => {
                    *made = Some(self.mr_map(*pd, Backing::Host(*region), *start, *access));
                }
                Task::MrDestroy(mr, done) => *done = self.mr_destroy(*mr),
            }
        }
    }

    /// Makes a shared receive queue. No event is asked for.
    fn shared_create(&mut self, init: &SharedRqInit) -> Result<(SharedRq, Self::Shared), Fault>;
    /// Asks for one [`Notice::SharedLimit`] when a receive is taken that leaves fewer than `limit`;
    /// 0 asks for none.
    fn shared_arm(&mut self, queue: SharedRq, limit: u16) -> Result<(), Fault>;
    /// Destroys it, with what is posted. No queue pair may use it.
    fn shared_destroy(&mut self, queue: SharedRq, end: Self::Shared) -> Result<(), Fault>;

    /// Sends one connection management datagram from QP1 to the peer's QP1.
    fn mad_send(&mut self, path: &Path, mad: &[u8; 256]) -> Result<(), Fault>;
    /// The next datagram that arrived on QP1.
    fn mad_recv(&mut self) -> Option<MadIn>;

    /// Waits for what the device does by itself: calls `done` until it returns true, or until the
    /// provider's own limit has passed. Returns whether `done` did.
    fn await_device(&mut self, done: impl FnMut() -> bool) -> bool;
    /// Does what is due: events, page requests, health, neighbour discovery. Bounded work per call.
    fn service(&mut self, now: Instant);
    /// The next thing that happened; call until `None` after [`Provider::service`].
    fn notice(&mut self) -> Option<Notice>;
    /// When [`Provider::service`] wants to be called again even if nothing interrupts.
    fn next_deadline(&self) -> Option<Instant>;

    /// What the device has counted. A device that does not count a thing says 0.
    fn counters(&mut self) -> Result<HcaCounters, Fault>;

    /// Gives everything back and stops the device. The provider is unusable afterwards.
    fn close(&mut self) -> Result<(), Fault>;
}
