//! The fabric: the memory of both ports, and what a test may do to it.

use core::cell::Cell;
use core::cell::RefCell;
use core::net::IpAddr;

use heapless::Deque;
use heapless::Vec;

use crate::fault;
use crate::provider::Atomic;
use crate::provider::Bind;
use crate::provider::Destination;
use crate::provider::HcaLimits;
use crate::provider::LinkType;
use crate::provider::MadIn;
use crate::provider::Mtu;
use crate::provider::Notice;
use crate::provider::Pd;
use crate::provider::Region;
use crate::provider::Registration;
use crate::provider::Segment;
use crate::provider::{Class, Classes};
use crate::testing::CQES;
use crate::testing::CQS;
use crate::testing::KEYS;
use crate::testing::MEMORY;
use crate::testing::QPS;
use crate::testing::REQUESTS;
use crate::testing::SEGMENTS;
use crate::testing::SHARED;
use crate::testing::SHARED_RECEIVES;
use crate::testing::keys::Key;
use crate::types::completion::Completion;
use crate::types::fault::Fault;
use crate::types::triplet::RmrTriplet;

/// First address of port 0's memory; port 1's follows it.
pub(super) const BASE: u64 = 0x1000_0000;
/// Memory behind that of the ports that is open to both, as memory of two processes may be.
pub(super) const COMMON: Region = Region { addr: BASE + 2 * MEMORY as u64, len: COMMON_LEN as u64 };
/// Bytes of it.
const COMMON_LEN: usize = 4096;

/// What becomes of a management datagram on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It arrives.
    Deliver,
    /// It is lost.
    Lose,
    /// It arrives twice.
    Duplicate,
}

/// What a send queue entry asks for.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Send(Segments),
    Write(Segments, RmrTriplet),
    Read(Segments, RmrTriplet),
    Bind(Bind),
    Register(Registration),
    Atomic(Segments, RmrTriplet, Atomic),
    WriteImmed(Segments, RmrTriplet, u32),
    Datagram(Segments, Destination, Option<u32>),
    SendInvalidate(Segments, u32),
}

pub(super) type Segments = Vec<Segment, SEGMENTS>;

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) token: u16,
    pub(super) signaled: bool,
    pub(super) solicited: bool,
    pub(super) work: Work,
}

#[derive(Clone, Debug)]
pub(super) struct Receive {
    pub(super) token: u16,
    pub(super) segments: Segments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Reset,
    Init,
    Rtr,
    Rts,
    Error,
}

#[derive(Debug)]
pub(super) struct QpSlot {
    pub(super) pd: Pd,
    pub(super) send_cq: usize,
    pub(super) recv_cq: usize,
    pub(super) index: u32,
    pub(super) state: State,
    pub(super) access: crate::types::flags::Access,
    /// Of a queue pair for datagrams.
    pub(super) qkey: Option<u32>,
    pub(super) peer: Option<(usize, u32)>,
    /// The queue has room for one request beyond those of the consumer.
    pub(super) sends: Deque<Request, { REQUESTS + 1 }>,
    /// Requests of the consumer that it was made for.
    pub(super) requests: usize,
    pub(super) recvs: Deque<Receive, REQUESTS>,
    /// Where its receives come from instead.
    pub(super) shared: Option<usize>,
    /// Requests at the tail of `sends` that were posted with DEFER and have no doorbell yet.
    pub(super) deferred: usize,
    /// It waits for the peer's receives without end.
    pub(super) patient: bool,
    /// The first packet has been announced.
    pub(super) has_received: bool,
}

#[derive(Debug, Default)]
pub(super) struct CqSlot {
    pub(super) entries: Deque<Completion, { 2 * CQES }>,
    pub(super) depth: usize,
    /// Armed, and only for solicited and failed completions.
    pub(super) armed: Option<bool>,
}

#[derive(Debug)]
pub(super) struct SharedSlot {
    pub(super) pd: Pd,
    pub(super) receives: Deque<Receive, SHARED_RECEIVES>,
    /// A receive that leaves fewer raises a notice.
    pub(super) limit: usize,
}

#[derive(Debug)]
pub(super) struct Port {
    pub(super) addr: Option<IpAddr>,
    pub(super) pds: u32,
    pub(super) keys: [Option<Key>; KEYS],
    pub(super) variant: u8,
    pub(super) cqs: [Option<CqSlot>; CQS],
    pub(super) qps: [Option<QpSlot>; QPS],
    pub(super) shared: [Option<SharedSlot>; SHARED],
    pub(super) mads: Deque<MadIn, 32>,
    pub(super) notices: Deque<Notice, 32>,
    pub(super) open: bool,
    /// What was counted of failures, in the order of the seam.
    pub(super) diag: [u64; 9],
    /// Calls of `Provider::sync` for incoming reads and for incoming writes.
    pub(super) syncs: [u32; 2],
    /// What was alive when the port was closed last.
    pub(super) left: (usize, usize, usize, usize),
}

impl Port {
    const fn new() -> Self {
        Self {
            addr: None,
            pds: 0,
            keys: [const { None }; KEYS],
            variant: 0,
            cqs: [const { None }; CQS],
            qps: [const { None }; QPS],
            shared: [const { None }; SHARED],
            mads: Deque::new(),
            notices: Deque::new(),
            open: false,
            diag: [0; 9],
            syncs: [0; 2],
            left: (0, 0, 0, 0),
        }
    }

    /// Objects alive: pds, keys, completion queues, queue pairs.
    pub(super) fn alive(&self) -> (usize, usize, usize, usize) {
        (
            self.pds.count_ones() as usize,
            self.keys.iter().flatten().count(),
            self.cqs.iter().flatten().count(),
            self.qps.iter().flatten().count(),
        )
    }
}

#[derive(Debug)]
pub(super) struct Memory {
    pub(super) ports: [Port; 2],
    pub(super) memory: [u8; 2 * MEMORY + COMMON_LEN],
    /// The request that is being carried out is marked as solicited.
    pub(super) solicited: bool,
}

/// Two ports and the memory of both. Ports are taken with [`crate::testing::hca::LoopHca::new`].
pub struct Fabric {
    pub(super) inner: RefCell<Memory>,
    pub(super) held: Cell<bool>,
    pub(super) fail: Cell<Option<u32>>,
    pub(super) unreachable: Cell<Option<IpAddr>>,
    pub(super) unresolved: Cell<Option<IpAddr>>,
    pub(super) pending: Cell<bool>,
    pub(super) crowded: Cell<bool>,
    pub(super) classes: Cell<Classes>,
    pub(super) windows: Cell<bool>,
    pub(super) kept: Cell<bool>,
    pub(super) extensions: Cell<bool>,
    pub(super) name: Cell<Option<[u8; 40]>>,
    pub(super) looks: Cell<[u32; 4]>,
    filter: Cell<fn(&[u8; 256]) -> Verdict>,
    watcher: Cell<fn(&str)>,
}

impl core::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Fabric").field("held", &self.held).finish_non_exhaustive()
    }
}

impl Default for Fabric {
    fn default() -> Self {
        Self::new()
    }
}

/// Of a port that was given none.
const BEST_EFFORT: Classes = Classes {
    best_effort: Class { traffic_class: 0, priority: 0 },
    high_throughput: None,
    low_latency: None,
    economy: None,
    premium: None,
};

impl Fabric {
    /// A fabric with two closed ports.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            inner: RefCell::new(Memory {
                ports: [Port::new(), Port::new()],
                memory: [0; 2 * MEMORY + COMMON_LEN],
                solicited: false,
            }),
            held: Cell::new(false),
            fail: Cell::new(None),
            unreachable: Cell::new(None),
            unresolved: Cell::new(None),
            pending: Cell::new(false),
            crowded: Cell::new(false),
            classes: Cell::new(BEST_EFFORT),
            windows: Cell::new(true),
            kept: Cell::new(false),
            extensions: Cell::new(true),
            name: Cell::new(None),
            looks: Cell::new([0; 4]),
            filter: Cell::new(|_| Verdict::Deliver),
            watcher: Cell::new(|_| ()),
        }
    }

    /// Empties both ports, which may be taken anew. What was taken before is not to be used any more.
    pub fn clear(&self) {
        for port in &mut self.inner.borrow_mut().ports {
            *port = Port::new();
        }
        self.held.set(false);
    }

    /// While held, posted requests stay outstanding; releasing carries them out in order.
    pub fn hold(&self, held: bool) {
        self.held.set(held);
        if !held {
            self.run();
        }
    }

    /// Decides the fate of each management datagram from now on.
    pub fn filter(&self, filter: fn(&[u8; 256]) -> Verdict) {
        self.filter.set(filter);
    }

    /// Tells of every control call by its name, before it is carried out: what another thread would
    /// see just then.
    pub fn watch(&self, watcher: fn(&str)) {
        self.watcher.set(watcher);
    }

    /// The `n`-th control call from now (0 = the next) fails for want of resources; `None` ends it.
    pub fn fail_nth(&self, n: Option<u32>) {
        self.fail.set(n);
    }

    /// Windows are not given up from now on, as by a device whose keys are in use.
    pub fn keep_windows(&self, kept: bool) {
        self.kept.set(kept);
    }

    /// Nobody answers for this address.
    pub fn unreachable(&self, addr: Option<IpAddr>) {
        self.unreachable.set(addr);
    }

    /// The address that the device fails to find the way to, whoever is there.
    pub fn unresolved(&self, addr: Option<IpAddr>) {
        self.unresolved.set(addr);
    }

    /// While set, address resolution neither succeeds nor fails.
    pub fn silent(&self, pending: bool) {
        self.pending.set(pending);
    }

    /// While set, no management datagram finds room in the device.
    pub fn crowd(&self, crowded: bool) {
        self.crowded.set(crowded);
    }

    /// The classes of the ports. Decide it before the ports are taken.
    pub fn classes(&self, classes: Classes) {
        self.classes.set(classes);
    }

    /// Whether the ports offer memory windows. Decide it before the ports are taken.
    pub fn windows(&self, offered: bool) {
        self.windows.set(offered);
    }

    /// Whether the ports offer atomics and datagrams. Decide it before the ports are taken.
    pub fn extensions(&self, offered: bool) {
        self.extensions.set(offered);
    }

    /// Shares memory between the ports under a name, and says where it is; a name given before is
    /// forgotten.
    pub fn share(&self, name: &[u8; 40]) -> Region {
        self.name.set(Some(*name));
        COMMON
    }

    /// The consumer memory of a port.
    #[must_use]
    pub fn region(&self, port: usize) -> Region {
        Region { addr: BASE + (port.min(1) * MEMORY) as u64, len: MEMORY as u64 }
    }

    /// Copies into consumer memory; false if any byte lies outside it.
    pub fn write(&self, addr: u64, bytes: &[u8]) -> bool {
        let mut inner = self.inner.borrow_mut();
        let Some(at) = offset(addr) else { return false };
        let Some(to) = at.checked_add(bytes.len()).and_then(|end| inner.memory.get_mut(at..end))
        else {
            return false;
        };
        to.copy_from_slice(bytes);
        true
    }

    /// Copies out of consumer memory; false if any byte lies outside it.
    pub fn read(&self, addr: u64, bytes: &mut [u8]) -> bool {
        let inner = self.inner.borrow();
        let Some(at) = offset(addr) else { return false };
        let Some(from) = at.checked_add(bytes.len()).and_then(|end| inner.memory.get(at..end))
        else {
            return false;
        };
        bytes.copy_from_slice(from);
        true
    }

    /// Raises a notice at a port, as the device would.
    pub fn raise(&self, port: usize, notice: Notice) {
        if let Some(port) = self.inner.borrow_mut().ports.get_mut(port) {
            // A full queue loses the newest, which a test would see at once.
            let _ = port.notices.push_back(notice);
        }
    }

    /// How often completion queues were looked at since the last call: by `poll_plain`,
    /// `poll_sent` or `poll_received`, `last` and `poll`.
    #[must_use]
    pub fn looks(&self) -> [u32; 4] {
        self.looks.take()
    }

    /// Puts a completion into a port's queue as a broken device might: nothing in it is checked.
    pub fn forge(&self, port: usize, cq: crate::provider::Cq, completion: Completion) {
        let mut inner = self.inner.borrow_mut();
        if let Some(cq) = inner
            .ports
            .get_mut(port)
            .and_then(|port| port.cqs.get_mut(cq.0 as usize))
            .and_then(Option::as_mut)
        {
            let _ = cq.entries.push_back(completion);
        }
    }

    /// The completion index that a queue pair was made with, for forging its completions.
    #[must_use]
    pub fn index(&self, port: usize, qp: crate::provider::Qp) -> Option<u32> {
        let mut inner = self.inner.borrow_mut();
        inner.qp(port, (qp.number & 0xff) as usize).map(|qp| qp.index)
    }

    /// Objects alive at a port: pds, keys, completion queues, queue pairs.
    #[must_use]
    pub fn alive(&self, port: usize) -> (usize, usize, usize, usize) {
        self.inner.borrow().ports.get(port).map_or((0, 0, 0, 0), Port::alive)
    }

    /// The same at the moment the port was closed: what its user left to the device to clean up.
    #[must_use]
    pub fn left_at_close(&self, port: usize) -> (usize, usize, usize, usize) {
        self.inner.borrow().ports.get(port).map_or((0, 0, 0, 0), |port| port.left)
    }

    /// Calls of [`Provider::sync`](crate::provider::Provider::sync) at that port: for incoming
    /// reads, and for incoming writes.
    #[must_use]
    pub fn syncs(&self, port: usize) -> [u32; 2] {
        let inner = self.inner.borrow();
        inner.ports.get(port).map_or([0; 2], |port| port.syncs)
    }

    pub(super) fn count_sync(&self, port: usize, incoming_read: bool) {
        if let Some(port) = self.inner.borrow_mut().ports.get_mut(port) {
            let [reads, writes] = &mut port.syncs;
            let count = if incoming_read { reads } else { writes };
            *count = count.wrapping_add(1);
        }
    }

    /// Tells the watcher of a control call.
    pub(super) fn seen(&self, operation: &'static str) {
        self.watcher.get()(operation);
    }

    /// Counts one control call and fails it if its turn has come.
    pub(super) fn step(&self, operation: &'static str) -> Result<(), Fault> {
        self.seen(operation);
        match self.fail.get() {
            Some(0) => {
                self.fail.set(None);
                Err(fault!(Resources, "", "the test made this call fail").during(operation))
            }
            Some(n) => {
                self.fail.set(Some(n - 1));
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(super) fn carry(&self, from: usize, to: IpAddr, mad: &[u8; 256]) {
        let copies = match (self.filter.get())(mad) {
            Verdict::Deliver => 1,
            Verdict::Lose => 0,
            Verdict::Duplicate => 2,
        };
        let mut inner = self.inner.borrow_mut();
        let Some(source) = inner.ports.get(from).and_then(|port| port.addr) else {
            return;
        };
        for _ in 0..copies {
            if let Some(port) =
                inner.ports.iter_mut().find(|port| port.open && port.addr == Some(to))
            {
                // A full queue loses it, as a wire would.
                let _ = port.mads.push_back(MadIn { from: source, unnamed: false, mad: *mad });
            }
        }
    }

    pub(super) fn limits(&self) -> HcaLimits {
        HcaLimits {
            name: "loop",
            vendor: "memory",
            hardware: (1, 0),
            firmware: (0, 1, 0),
            link: LinkType::Ethernet,
            node_guid: 0x0200_00ff_fe00_0001,
            max_qp: QPS as u32,
            max_cq: CQS as u32,
            max_cqe: CQES as u32,
            max_qp_requests: REQUESTS as u32,
            max_segments: SEGMENTS as u8,
            max_mkey: KEYS as u32,
            max_region: MEMORY as u64,
            max_message: MEMORY as u32,
            max_reads: 16,
            max_pd: 32,
            mtu: Mtu::B1024,
            path_mtu: Mtu::B1024,
            classes: self.classes.get(),
            windows: self.windows.get(),
            atomics: self.extensions.get(),
            registered_atomics: self.extensions.get(),
            max_datagram_segments: if self.extensions.get() { 3 } else { 0 },
            ack_delay: 0,
            max_shared: SHARED as u32,
            max_shared_receives: SHARED_RECEIVES as u16,
        }
    }
}

/// Offset of an address in the fabric's memory.
pub(super) fn offset(addr: u64) -> Option<usize> {
    addr.checked_sub(BASE).and_then(|at| usize::try_from(at).ok())
}
