//! One port of the fabric as a provider.
//!
//! Length: one implementation of the whole seam, method by method in the seam's order.

use core::fmt;
use core::net::IpAddr;
use core::task::Poll;

use heapless::Deque;
use heapless::Vec;

use crate::fault;
use crate::provider::Backing;
use crate::provider::CompletionQueue;
use crate::provider::Cq;
use crate::provider::HcaCounters;
use crate::provider::HcaLimits;
use crate::provider::Hook;
use crate::provider::MadIn;
use crate::provider::Moderation;
use crate::provider::Mr;
use crate::provider::Mw;
use crate::provider::Net;
use crate::provider::NewQp;
use crate::provider::NextHop;
use crate::provider::Notice;
use crate::provider::Pages;
use crate::provider::Path;
use crate::provider::Pd;
use crate::provider::Polled;
use crate::provider::PostFlags;
use crate::provider::Provider;
use crate::provider::Qp;
use crate::provider::QpInit;
use crate::provider::QpStep;
use crate::provider::RecvQueue;
use crate::provider::Region;
use crate::provider::Segment;
use crate::provider::SendQueue;
use crate::provider::SharedRq;
use crate::provider::SharedRqInit;
use crate::provider::WorkRequest;
use crate::testing::CQES;
use crate::testing::exec::counts;
use crate::testing::fabric::CqSlot;
use crate::testing::fabric::Fabric;
use crate::testing::fabric::QpSlot;
use crate::testing::fabric::Receive;
use crate::testing::fabric::Request;
use crate::testing::fabric::Segments;
use crate::testing::fabric::SharedSlot;
use crate::testing::fabric::State;
use crate::testing::fabric::Work;
use crate::testing::keys::Key;
use crate::testing::keys::Kind;
use crate::testing::keys::PAGES;
use crate::testing::keys::in_port;
use crate::testing::shared::LoopShared;
use crate::types::completion::Arrived;
use crate::types::completion::Completion;
use crate::types::completion::Direction;
use crate::types::completion::Status;
use crate::types::fault::Fault;
use crate::types::flags::Access;
use crate::types::time::Instant;

/// RNR retries without end.
const FOR_EVER: u8 = 7;

/// One of the two HCAs of a [`Fabric`].
pub struct LoopHca<'f> {
    fabric: &'f Fabric,
    port: usize,
    limits: HcaLimits,
    hook: Option<Hook<'f>>,
}

impl fmt::Debug for LoopHca<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopHca").field("port", &self.port).finish_non_exhaustive()
    }
}

impl<'f> LoopHca<'f> {
    /// Opens port 0 or 1 of `fabric`. A port that is open already is taken over, empty.
    #[must_use]
    pub fn new(fabric: &'f Fabric, port: usize) -> Self {
        Self::using(fabric, port)
    }
}

impl<'f> LoopHca<'f> {
    /// As [`LoopHca::new`], for a program that says what it uses.
    #[must_use]
    pub fn using(fabric: &'f Fabric, port: usize) -> Self {
        let port = port.min(1);
        if let Some(port) = fabric.inner.borrow_mut().ports.get_mut(port) {
            port.open = true;
        }
        let mut limits = fabric.limits();
        limits.node_guid += port as u64;
        Self { fabric, port, limits, hook: None }
    }

    /// Sees what is done, by `hook`.
    #[must_use]
    pub fn with_hook(self, hook: Hook<'f>) -> Self {
        Self { hook: Some(hook), ..self }
    }

    fn with<T>(
        &mut self,
        f: impl FnOnce(&mut crate::testing::fabric::Port) -> Option<T>,
    ) -> Option<T> {
        self.fabric.inner.borrow_mut().ports.get_mut(self.port).and_then(f)
    }
}

/// The helpers of its keys.
impl LoopHca<'_> {
    /// Whether the port may reach that memory.
    fn owns(&self, backing: Backing<'_>) -> bool {
        match backing {
            Backing::Host(region) => in_port(self.port, region),
            Backing::Pages { pages, log_page, .. } => pages.iter().all(|&addr| {
                let len = 1_u64.checked_shl(log_page.into()).unwrap_or(u64::MAX);
                in_port(self.port, Region { addr, len })
            }),
        }
    }

    fn add_region(&mut self, key: Option<Key>) -> Result<Mr, Fault> {
        self.with(|port| port.add_key(key?))
            .map(|key| Mr { lkey: key, rkey: key })
            .ok_or_else(|| full("mr_create"))
    }

    fn requests_edit_keys(&self, step: &'static str) -> Result<(), Fault> {
        self.fabric.step(step)?;
        let none = fault!(Unsupported, step, "this port has no memory windows");
        if self.limits.windows { Ok(()) } else { Err(none) }
    }

    fn add_window(&mut self, pd: Pd, kind: Kind) -> Result<Mw, Fault> {
        self.with(|port| port.add_key(Key::closed(pd, kind)))
            .map(|rkey| Mw { rkey })
            .ok_or_else(|| full("mw_create"))
    }
}

fn not_ours() -> Fault {
    fault!(BadParameter, "mr_create", "the memory is not this port's")
}

fn none(operation: &'static str, object: &'static str, number: u32) -> Fault {
    fault!(BadParameter, "", "there is no such object").of(object, number).during(operation)
}

fn full(operation: &'static str) -> Fault {
    fault!(Resources, "", "the table is full").during(operation)
}

impl<'f> Provider for LoopHca<'f> {
    type Sq = LoopSq<'f>;
    type Rq = LoopRq<'f>;
    type Cq = LoopCq<'f>;
    type Shared = LoopShared<'f>;

    fn limits(&self) -> &HcaLimits {
        &self.limits
    }

    fn hook(&self) -> Option<Hook<'_>> {
        self.hook
    }

    fn set_net(&mut self, net: &Net, _now: Instant) -> Result<(), Fault> {
        self.fabric.step("set_net")?;
        self.with(|port| {
            port.addr = Some(net.addr);
            Some(())
        })
        .ok_or_else(|| none("set_net", "port", self.port as u32))
    }

    fn resolve(&mut self, remote: IpAddr, _now: Instant) -> Poll<Result<Path, Fault>> {
        if self.fabric.pending.get() {
            return Poll::Pending;
        }
        if self.fabric.unresolved.get() == Some(remote) {
            return Poll::Ready(Err(full("resolve")));
        }
        let known =
            self.fabric.inner.borrow().ports.iter().any(|p| p.open && p.addr == Some(remote));
        if !known || self.fabric.unreachable.get() == Some(remote) {
            return Poll::Ready(Err(fault!(
                Unreachable,
                "resolve",
                "no port of the fabric has that address"
            )));
        }
        Poll::Ready(Ok(Path {
            remote,
            next_hop: NextHop::Mac([2, 0, 0, 0, 0, 1]),
            source_index: 0,
            hop_limit: 64,
            class: self.limits.classes.best_effort,
            flow_label: 0,
        }))
    }

    fn pd_create(&mut self) -> Result<Pd, Fault> {
        self.fabric.step("pd_create")?;
        self.with(|port| {
            let free = port.pds.trailing_ones();
            port.pds |= 1_u32.checked_shl(free)?;
            Some(Pd(free))
        })
        .ok_or_else(|| full("pd_create"))
    }

    fn pd_destroy(&mut self, pd: Pd) -> Result<(), Fault> {
        let used = self
            .with(|port| {
                let keys = port.keys.iter().flatten().any(|key| key.pd == pd);
                let shared = port.shared.iter().flatten().any(|queue| queue.pd == pd);
                Some(keys || shared || port.qps.iter().flatten().any(|qp| qp.pd == pd))
            })
            .unwrap_or(false);
        if used {
            return Err(fault!(BadState, "pd_destroy", "still in use").of("PD", pd.0));
        }
        self.with(|port| {
            let bit = 1_u32.checked_shl(pd.0)?;
            (port.pds & bit != 0).then(|| port.pds &= !bit)
        })
        .ok_or_else(|| none("pd_destroy", "PD", pd.0))
    }

    fn mr_create(&mut self, pd: Pd, region: Region, access: Access) -> Result<Mr, Fault> {
        self.mr_map(pd, Backing::Host(region), region.addr, access)
    }

    fn mr_map(
        &mut self,
        pd: Pd,
        backing: Backing<'_>,
        start: u64,
        access: Access,
    ) -> Result<Mr, Fault> {
        self.fabric.step("mr_create")?;
        if !self.owns(backing) {
            return Err(not_ours());
        }
        let key = Key::region(pd, backing, start, access);
        self.add_region(key)
    }

    fn mr_allocate(&mut self, pd: Pd, pages: u32) -> Result<Mr, Fault> {
        self.requests_edit_keys("mr_create")?;
        let fits = pages as usize <= PAGES;
        self.add_region(fits.then(|| Key::closed(pd, Kind::Registered)))
    }

    fn mr_pages(&mut self, mr: Mr, pages: &[u64], log_page: u8) -> Result<Pages, Fault> {
        let len = (pages.len() as u64) << log_page.min(32);
        let backing = Backing::Pages { pages, log_page, len };
        if !self.owns(backing) {
            return Err(not_ours());
        }
        self.with(|port| port.keep_list(mr.lkey, pages, log_page))
            .ok_or_else(|| none("mr_create", "MKEY", mr.lkey))?;
        Ok(Pages { count: pages.len() as u32, log_page, ..Pages::default() })
    }

    fn mr_reserved(&mut self, pd: Pd) -> Result<Mr, Fault> {
        self.fabric.step("mr_create")?;
        // Device addresses are the host's here; the port reaches its own memory.
        let all = self.fabric.region(self.port);
        let access = Access::LOCAL_READ | Access::LOCAL_WRITE;
        self.add_region(Key::region(pd, Backing::Host(all), all.addr, access))
    }

    fn shared_memory(&self, name: &[u8; 40]) -> Option<Region> {
        (self.fabric.name.get()? == *name).then_some(crate::testing::fabric::COMMON)
    }

    fn sync(&self, incoming_read: bool) {
        // The memory is coherent: a call is counted, no more.
        self.fabric.count_sync(self.port, incoming_read);
    }

    fn mr_destroy(&mut self, mr: Mr) -> Result<(), Fault> {
        self.with(|port| port.drop_key(mr.lkey).then_some(()))
            .ok_or_else(|| none("mr_destroy", "MKEY", mr.lkey))
    }

    fn mw_create(&mut self, pd: Pd) -> Result<Mw, Fault> {
        self.requests_edit_keys("mw_create")?;
        self.add_window(pd, Kind::Window)
    }

    fn mw_create_for_qp(&mut self, pd: Pd) -> Result<Mw, Fault> {
        self.requests_edit_keys("mw_create")?;
        self.add_window(pd, Kind::OwnWindow)
    }

    fn mw_renew(&mut self, mw: Mw) -> Result<Mw, Fault> {
        let pd = self.with(|port| {
            let entry = port.keys.get(crate::testing::keys::slot(mw.rkey))?.as_ref()?;
            (entry.kind == Kind::OwnWindow).then_some(entry.pd)
        });
        let pd = pd.ok_or_else(|| none("mw_create", "MKEY", mw.rkey))?;
        let new = self.mw_create_for_qp(pd)?;
        self.mw_destroy(mw)?;
        Ok(new)
    }

    fn mw_destroy(&mut self, mw: Mw) -> Result<(), Fault> {
        self.fabric.step("mw_destroy")?;
        if self.fabric.kept.get() {
            return Err(fault!(Resources, "mw_destroy", "the test keeps windows"));
        }
        self.with(|port| port.drop_key(mw.rkey).then_some(()))
            .ok_or_else(|| none("mw_destroy", "MKEY", mw.rkey))
    }

    fn cq_create(&mut self, entries: u32) -> Result<(Cq, LoopCq<'f>), Fault> {
        self.fabric.step("cq_create")?;
        let depth = depth_for(entries);
        if entries as usize > 2 * CQES {
            return Err(fault!(Resources, "cq_create", "too many entries"));
        }
        let number = self
            .with(|port| {
                let free = port.cqs.iter().position(Option::is_none)?;
                *port.cqs.get_mut(free)? = Some(CqSlot { depth, ..CqSlot::default() });
                Some(free)
            })
            .ok_or_else(|| full("cq_create"))?;
        Ok((
            Cq(number as u32),
            LoopCq { fabric: self.fabric, port: self.port, number, last: None, taken: 0 },
        ))
    }

    fn cq_resize(&mut self, cq: Cq, _end: &mut LoopCq<'f>, entries: u32) -> Result<(), Fault> {
        self.fabric.step("cq_resize")?;
        let depth = depth_for(entries);
        if entries as usize > 2 * CQES {
            return Err(fault!(Resources, "cq_resize", "too many entries"));
        }
        let fits = self
            .with(|port| {
                let slot = port.cqs.get_mut(cq.0 as usize)?.as_mut()?;
                // A device reports the end of the queue that it leaves in an entry of that queue.
                let fits = slot.entries.len() < slot.depth && slot.entries.len() <= depth;
                slot.depth = if fits { depth } else { slot.depth };
                Some(fits)
            })
            .ok_or_else(|| none("cq_resize", "CQ", cq.0))?;
        if fits {
            Ok(())
        } else {
            Err(fault!(BadState, "cq_resize", "more entries wait").of("CQ", cq.0))
        }
    }

    fn cq_moderate(&mut self, cq: Cq, _: Moderation) -> Result<(), Fault> {
        self.fabric.step("cq_moderate")?;
        // It tells of each: sooner than it has to.
        let there = self.with(|port| port.cqs.get(cq.0 as usize)?.as_ref().map(|_| ()));
        there.ok_or_else(|| none("cq_moderate", "CQ", cq.0))
    }

    fn cq_destroy(&mut self, cq: Cq, _end: LoopCq<'f>) -> Result<(), Fault> {
        let number = cq.0 as usize;
        let used = |qp: &QpSlot| qp.send_cq == number || qp.recv_cq == number;
        if self.with(|port| port.qps.iter().flatten().any(used).then_some(())).is_some() {
            return Err(fault!(BadState, "cq_destroy", "still in use").of("CQ", cq.0));
        }
        self.with(|port| port.cqs.get_mut(number)?.take().map(|_| ()))
            .ok_or_else(|| none("cq_destroy", "CQ", cq.0))
    }

    fn qp_create(&mut self, init: &QpInit) -> Result<NewQp<LoopSq<'f>, LoopRq<'f>>, Fault> {
        self.fabric.step("qp_create")?;
        let slot = QpSlot {
            pd: init.pd,
            send_cq: init.send_cq.0 as usize,
            recv_cq: init.recv_cq.0 as usize,
            index: init.index,
            state: State::Reset,
            access: Access::empty(),
            qkey: None,
            peer: None,
            sends: Deque::new(),
            requests: init.requests.into(),
            recvs: Deque::new(),
            shared: init.shared.map(|queue| queue.0 as usize),
            deferred: 0,
            patient: true,
            has_received: false,
        };
        let number = self
            .with(|port| {
                let free = port.qps.iter().position(Option::is_none)?;
                *port.qps.get_mut(free)? = Some(slot);
                Some(free)
            })
            .ok_or_else(|| full("qp_create"))?;
        let end = End { fabric: self.fabric, port: self.port, number, token: 0 };
        Ok(NewQp {
            qp: Qp { number: crate::testing::FIRST_QPN | number as u32 },
            sq: LoopSq(end.clone()),
            rq: LoopRq(end),
        })
    }

    fn qp_modify(&mut self, qp: Qp, step: &QpStep) -> Result<(), Fault> {
        crate::types::atomic::command_answered();
        self.fabric.step("qp_modify")?;
        let port = self.port;
        let number = (qp.number & 0xff) as usize;
        let mut inner = self.fabric.inner.borrow_mut();
        let peer_of = |remote: IpAddr, inner: &crate::testing::fabric::Memory| {
            inner.ports.iter().position(|port| port.addr == Some(remote))
        };
        let peer = match step {
            QpStep::Rtr { path, remote_qpn, .. } => {
                peer_of(path.remote, &inner).map(|far| (far, *remote_qpn))
            }
            QpStep::Datagram { .. }
            | QpStep::Init { .. }
            | QpStep::Rts { .. }
            | QpStep::Error
            | QpStep::Reset => None,
        };
        let Some(slot) = inner.qp(port, number) else {
            return Err(none("qp_modify", "QP", qp.number));
        };
        let next = match (step, slot.state) {
            (QpStep::Datagram { qkey }, State::Reset) => {
                slot.qkey = Some(*qkey);
                State::Rts
            }
            (QpStep::Init { access }, State::Reset) => {
                slot.access = *access;
                State::Init
            }
            (QpStep::Rtr { .. }, State::Init) => {
                slot.peer = peer;
                State::Rtr
            }
            (QpStep::Rts { rnr_retry, .. }, State::Rtr) => {
                slot.patient = *rnr_retry >= FOR_EVER;
                State::Rts
            }
            (QpStep::Error, _) => State::Error,
            (QpStep::Reset, _) => State::Reset,
            (
                QpStep::Datagram { .. }
                | QpStep::Init { .. }
                | QpStep::Rtr { .. }
                | QpStep::Rts { .. },
                _,
            ) => {
                return Err(fault!(
                    BadState,
                    "qp_modify",
                    "that step does not follow from its state"
                )
                .of("QP", qp.number));
            }
        };
        slot.state = next;
        if next == State::Reset {
            slot.sends.clear();
            slot.recvs.clear();
            slot.deferred = 0;
            slot.has_received = false;
            slot.peer = None;
        }
        if next == State::Error {
            inner.flush(port, number);
        }
        drop(inner);
        self.fabric.run();
        Ok(())
    }

    fn qp_restart(&mut self, _qp: Qp, sq: &mut LoopSq<'f>, rq: &mut LoopRq<'f>) {
        sq.0.token = 0;
        rq.0.token = 0;
    }

    fn qp_destroy(&mut self, qp: Qp, _sq: LoopSq<'f>, _rq: LoopRq<'f>) -> Result<(), Fault> {
        self.fabric.seen("qp_destroy");
        self.with(|port| port.qps.get_mut((qp.number & 0xff) as usize)?.take().map(|_| ()))
            .ok_or_else(|| none("qp_destroy", "QP", qp.number))
    }

    fn shared_create(&mut self, init: &SharedRqInit) -> Result<(SharedRq, LoopShared<'f>), Fault> {
        self.fabric.step("shared_create")?;
        let slot = SharedSlot { pd: init.pd, receives: Deque::new(), limit: 0 };
        let number = self
            .with(|port| {
                let free = port.shared.iter().position(Option::is_none)?;
                *port.shared.get_mut(free)? = Some(slot);
                Some(free)
            })
            .ok_or_else(|| full("shared_create"))?;
        let end = LoopShared::new(self.fabric, self.port, number);
        Ok((SharedRq(number as u32), end))
    }

    fn shared_arm(&mut self, queue: SharedRq, limit: u16) -> Result<(), Fault> {
        self.fabric.step("shared_arm")?;
        self.with(|port| {
            port.shared.get_mut(queue.0 as usize)?.as_mut()?.limit = usize::from(limit);
            Some(())
        })
        .ok_or_else(|| none("shared_arm", "SRQ", queue.0))
    }

    fn shared_destroy(&mut self, queue: SharedRq, _end: LoopShared<'f>) -> Result<(), Fault> {
        let number = queue.0 as usize;
        let used = |qp: &QpSlot| qp.shared == Some(number);
        if self.with(|port| port.qps.iter().flatten().any(used).then_some(())).is_some() {
            return Err(fault!(BadState, "shared_destroy", "still in use").of("SRQ", queue.0));
        }
        self.with(|port| port.shared.get_mut(number)?.take().map(|_| ()))
            .ok_or_else(|| none("shared_destroy", "SRQ", queue.0))
    }

    fn mad_send(&mut self, path: &Path, mad: &[u8; 256]) -> Result<(), Fault> {
        if self.fabric.crowded.get() {
            return Err(full("mad_send"));
        }
        self.fabric.carry(self.port, path.remote, mad);
        Ok(())
    }

    fn mad_recv(&mut self) -> Option<MadIn> {
        self.with(|port| port.mads.pop_front())
    }

    fn await_device(&mut self, mut done: impl FnMut() -> bool) -> bool {
        // Whatever can be carried out is carried out at once, and nothing else happens while nobody
        // calls.
        self.fabric.run();
        done()
    }

    fn service(&mut self, _now: Instant) {
        self.fabric.run();
    }

    fn notice(&mut self) -> Option<Notice> {
        self.with(|port| port.notices.pop_front())
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn counters(&mut self) -> Result<HcaCounters, Fault> {
        self.fabric.step("counters")?;
        let diag = self.with(|port| Some(port.diag)).unwrap_or_default();
        Ok(HcaCounters { link: [0; 9], diag })
    }

    fn close(&mut self) -> Result<(), Fault> {
        self.with(|port| {
            port.left = port.alive();
            port.addr = None;
            port.pds = 0;
            port.keys = [const { None }; crate::testing::KEYS];
            port.cqs = [const { None }; crate::testing::CQS];
            port.qps = [const { None }; crate::testing::QPS];
            port.shared = [const { None }; crate::testing::SHARED];
            port.mads.clear();
            port.notices.clear();
            port.open = false;
            Some(())
        })
        .ok_or_else(|| none("close", "port", self.port as u32))
    }
}

/// The entries of a queue that is to have so many, as a device has them.
fn depth_for(entries: u32) -> usize {
    (entries as usize).next_power_of_two()
}

/// What the two posting ends have in common.
#[derive(Clone, Debug)]
struct End<'f> {
    fabric: &'f Fabric,
    port: usize,
    number: usize,
    token: u16,
}

impl End<'_> {
    fn next(&mut self) -> u16 {
        let token = self.token;
        self.token = token.wrapping_add(1);
        token
    }
}

fn list(segments: &[Segment]) -> Segments {
    Vec::from_slice(segments).unwrap_or_default()
}

/// The send queue of a loop queue pair.
#[derive(Debug)]
pub struct LoopSq<'f>(End<'f>);

impl LoopSq<'_> {
    fn push(&mut self, work: Work, flags: PostFlags) -> u16 {
        let token = self.0.next();
        {
            let mut inner = self.0.fabric.inner.borrow_mut();
            if let Some(qp) = inner.qp(self.0.port, self.0.number) {
                let signaled = flags.contains(PostFlags::SIGNALED);
                // dat-core's credit keeps the queue from ever being full: a device would overwrite
                // what it has not carried out.
                assert!(qp.sends.len() <= qp.requests, "the send queue overruns");
                let _ = qp.sends.push_back(Request {
                    token,
                    signaled,
                    solicited: flags.contains(PostFlags::SOLICITED),
                    work,
                });
                qp.deferred = if flags.contains(PostFlags::DEFER) { qp.deferred + 1 } else { 0 };
            }
        }
        self.0.fabric.run();
        token
    }
}

impl SendQueue for LoopSq<'_> {
    fn next_token(&self) -> u16 {
        self.0.token
    }

    fn post(&mut self, work: WorkRequest<'_>, segments: &[Segment], flags: PostFlags) -> u16 {
        let list = list(segments);
        let work = match work {
            WorkRequest::Send => Work::Send(list),
            WorkRequest::SendInvalidate(rkey) => Work::SendInvalidate(list, rkey),
            WorkRequest::SendUd(to, immediate) => Work::Datagram(list, *to, immediate),
            WorkRequest::Write(remote) => Work::Write(list, *remote),
            WorkRequest::WriteImmed(remote, immediate) => {
                Work::WriteImmed(list, *remote, immediate)
            }
            WorkRequest::Read(remote) => Work::Read(list, *remote),
            WorkRequest::Atomic(atomic, remote) => Work::Atomic(list, *remote, atomic),
            WorkRequest::Bind(bind) => Work::Bind(*bind),
            WorkRequest::Register(registration) => Work::Register(*registration),
        };
        self.push(work, flags)
    }

    fn ring(&mut self) {
        {
            let mut inner = self.0.fabric.inner.borrow_mut();
            if let Some(qp) = inner.qp(self.0.port, self.0.number) {
                qp.deferred = 0;
            }
        }
        self.0.fabric.run();
    }
}

/// The receive queue of a loop queue pair.
#[derive(Debug)]
pub struct LoopRq<'f>(End<'f>);

impl RecvQueue for LoopRq<'_> {
    fn recv(&mut self, segments: &[Segment]) -> u16 {
        let token = self.0.next();
        {
            let mut inner = self.0.fabric.inner.borrow_mut();
            if let Some(qp) = inner.qp(self.0.port, self.0.number) {
                let _ = qp.recvs.push_back(Receive { token, segments: list(segments) });
            }
        }
        self.0.fabric.run();
        token
    }

    fn posted(&self, token: u16, take: impl FnMut(Segment)) {
        let mut inner = self.0.fabric.inner.borrow_mut();
        let found = inner
            .qp(self.0.port, self.0.number)
            .and_then(|qp| qp.recvs.iter().find(|receive| receive.token == token));
        if let Some(receive) = found {
            receive.segments.iter().copied().for_each(take);
        }
    }
}

/// A loop completion queue.
#[derive(Debug)]
pub struct LoopCq<'f> {
    fabric: &'f Fabric,
    port: usize,
    number: usize,
    /// Of the completion taken last.
    last: Option<Completion>,
    taken: u64,
}

impl LoopCq<'_> {
    /// The oldest completion, left where it is.
    fn front(&self) -> Option<Completion> {
        let inner = self.fabric.inner.borrow();
        let cq = inner.ports.get(self.port).and_then(|port| port.cqs.get(self.number));
        cq.and_then(|cq| cq.as_ref()?.entries.front().copied())
    }

    /// The completion at that position, left where it is.
    fn entry(&self, at: u64) -> Option<Completion> {
        let inner = self.fabric.inner.borrow();
        let cq = inner.ports.get(self.port).and_then(|port| port.cqs.get(self.number));
        cq?.as_ref()?.entries.iter().nth(usize::try_from(at - self.taken).ok()?).copied()
    }

    /// Counts a call that looks at the queue; see [`Fabric::looks`].
    fn looked(&self, by: usize) {
        let mut looks = self.fabric.looks.get();
        if let Some(count) = looks.get_mut(by) {
            *count += 1;
        }
        self.fabric.looks.set(looks);
    }

    fn take(&mut self) -> Option<Completion> {
        let mut inner = self.fabric.inner.borrow_mut();
        let taken = inner
            .ports
            .get_mut(self.port)?
            .cqs
            .get_mut(self.number)?
            .as_mut()?
            .entries
            .pop_front()?;
        self.last = Some(taken);
        self.taken += 1;
        Some(taken)
    }
}

impl CompletionQueue for LoopCq<'_> {
    fn poll_plain(&mut self) -> Polled {
        self.looked(0);
        let Some(next) = self.front() else {
            return Polled::Empty;
        };
        if next.status != Status::Success || next.extra.arrived != Arrived::Message {
            return Polled::Other;
        }
        self.take();
        match next.direction {
            Direction::Send => Polled::Sent(next.index, next.token),
            Direction::Recv => Polled::Received(next.index, next.token, next.len),
        }
    }

    fn poll_sent<S>(
        &mut self,
        index: u32,
        slots: &[S],
        mut take: impl FnMut(&S, u16) -> bool,
    ) -> u32 {
        self.looked(1);
        for (count, slot) in (0..).zip(slots) {
            let plain = self.front().is_some_and(|next| {
                next.status == Status::Success
                    && next.direction == Direction::Send
                    && next.index == index
                    && take(slot, next.token)
            });
            if !plain {
                return count;
            }
            self.take();
        }
        u32::try_from(slots.len()).unwrap_or(u32::MAX)
    }

    fn poll_received(
        &mut self,
        index: u32,
        mut token: u16,
        most: usize,
        mut take: impl FnMut(u32) -> bool,
    ) {
        self.looked(1);
        for _ in 0..most {
            let plain = self.front().is_some_and(|next| {
                next.status == Status::Success
                    && next.direction == Direction::Recv
                    && next.extra.arrived == Arrived::Message
                    && (next.index, next.token) == (index, token)
                    && take(next.len)
            });
            if !plain {
                return;
            }
            token = token.wrapping_add(1);
            self.take();
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        self.looked(3);
        self.take()
    }

    fn survey(&self, from: u64, mut see: impl FnMut(Completion)) -> u64 {
        let mut at = from.max(self.taken).min(self.written());
        // Nothing is borrowed while `see` runs: other threads may post meanwhile.
        while let Some(entry) = self.entry(at) {
            see(entry);
            at += 1;
        }
        at
    }

    fn written(&self) -> u64 {
        let inner = self.fabric.inner.borrow();
        let cq = inner.ports.get(self.port).and_then(|port| port.cqs.get(self.number)?.as_ref());
        self.taken + cq.map_or(0, |cq| cq.entries.len()) as u64
    }

    fn last(&self) -> Option<Completion> {
        self.looked(2);
        self.last
    }

    fn taken(&self) -> u64 {
        self.taken
    }

    fn arm(&mut self, solicited_only: bool) {
        let mut inner = self.fabric.inner.borrow_mut();
        let Some(port) = inner.ports.get_mut(self.port) else {
            return;
        };
        let Some(Some(cq)) = port.cqs.get_mut(self.number) else {
            return;
        };
        if cq.entries.iter().any(|entry| !solicited_only || counts(entry)) {
            cq.armed = None;
            let _ = port.notices.push_back(Notice::Completion(Cq(self.number as u32)));
        } else {
            cq.armed = Some(solicited_only);
        }
    }

    fn sweep(&mut self, index: u32, mut gone: impl FnMut(Direction, u16)) {
        let mut swept = Vec::<_, { 2 * CQES }>::new();
        {
            let mut inner = self.fabric.inner.borrow_mut();
            let Some(Some(cq)) =
                inner.ports.get_mut(self.port).and_then(|port| port.cqs.get_mut(self.number))
            else {
                return;
            };
            for _ in 0..cq.entries.len() {
                if let Some(entry) = cq.entries.pop_front() {
                    // As many fit as the queue has.
                    let _ = if entry.index == index {
                        swept.push((entry.direction, entry.token)).is_ok()
                    } else {
                        cq.entries.push_back(entry).is_ok()
                    };
                }
            }
        }
        for (direction, token) in swept {
            self.taken += 1;
            gone(direction, token);
        }
    }
}
