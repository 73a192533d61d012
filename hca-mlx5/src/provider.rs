//! The driver as a provider: [`Mlx5`] joins the device, its queues and keys and the network into
//! what `dat-core` asks for.
//!
//! Every object a caller holds stands in a table of this value, so that a handle that was never
//! given out, or was destroyed, is refused here in words instead of by the firmware in numbers, and
//! so that [`Provider::close`] can undo what is left. The tables are as long as the const generics
//! say. The posting and reaping ends are not in them: they are the caller's, work without this
//! value, and must not be used after the object is destroyed.
//!
//! Failures of a queue pair, of the port and of the device arrive as events and leave as
//! [`Notice`]s; events of QP1 and of the raw Ethernet port are dealt with here and never seen
//! outside.
//!
//! Over 600 lines because it is one trait, implemented in one place: each method is a check of its
//! handles and one call.
//!
//! Length: one trait, one implementation, its tables and their checks.

mod inspect;
mod keys;
mod landing;
mod pairs;
mod table;
mod tasks;

use core::net::IpAddr;
use core::task::Poll;
use core::time::Duration;

use dat_core::Instant;
use dat_core::fault;
use dat_core::provider::{
    self as seam, Access, Backing, Destination, Fault, HcaCounters, HcaLimits, Hook, KeyOrder,
    LinkType, MadIn, Moderation, Mr, MrInit, Mw, Net, NewQp, NextHop, Notice, Pages, Path, Pd,
    Provider, Qp, QpInit, QpStep, Random, Region, SharedRq, SharedRqInit, SubnetPath, Task,
    canonical,
};
use heapless::Deque;

use crate::data::send::{MAX_DATAGRAM_SEGMENTS, MAX_SEGMENTS, WIDEST};
use crate::data::{Cq, Rq, Shared, Sq};
use crate::device::eq::{Event, QpEvent, SubnetChange};
use crate::device::in_flight::few;
use crate::device::{Config, Congestion, Device, FLIGHTS, IbPort, health, note};
use crate::net::gsi::Gsi;
use crate::net::ib::sm::{Counters as SubnetManagerCounters, State as SubnetManagerState};
use crate::net::ib::{Counters as SubnetCounters, Subnet};
use crate::net::neigh::Counters;
use crate::net::network::Network;
use crate::platform::{Fence, Platform};
use crate::prm::cmd::Opcode;
use crate::prm::object;
use crate::prm::qp::Qpn;
use crate::provider::keys::{KeyEntry, KeyKind};
use crate::provider::landing::Landings;
use crate::provider::table::Table;
use crate::verbs::cq::{self, CqObject};
use crate::verbs::mkey::{self, Wanted};
use crate::verbs::qp::{self, QpObject};
use crate::verbs::srq::{self, SrqObject};
use crate::verbs::uar::{self, Doorbells, Register};

/// Shared receive queues of one driver.
const SHARED: usize = 16;
/// Notices that wait to be read.
const NOTICES: usize = 64;
/// How long the device may take to carry out what it was posted.
const WORK_LIMIT: Duration = Duration::from_secs(1);
/// Completion queues the driver has for itself: two of QP1; one of the raw Ethernet port, or two of
/// IP over InfiniBand and two of QP0.
const fn own_cqs(link: LinkType) -> u32 {
    match link {
        LinkType::Ethernet => 3,
        LinkType::InfiniBand => 6,
    }
}
/// Queue pairs that are the driver's own, or of the device itself: QP0 and QP1, and raw Ethernet
/// ports.
const OWN_QPS: usize = 16;
/// Hop limit of every packet.
const HOP_LIMIT: u8 = 64;
/// Most reads outstanding that the limits can state.
const LOG_READS: u8 = 7;
/// Flow labels have 20 bits.
const FLOW_LABEL: u32 = 0xf_ffff;

#[derive(Clone, Copy, Debug)]
struct QpEntry {
    object: QpObject,
    register: Option<Register>,
    pd: Pd,
    cqs: [u32; 2],
    shared: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct SharedEntry {
    object: SrqObject,
    pd: Pd,
}

/// One HCA with room for `QPS` queue pairs, `CQS` completion queues and `KEYS` memory regions and
/// windows (powers of two); and for `NEIGHBOURS`, whose MACs are remembered. With more of them in
/// traffic than that, each is searched for again and again.
#[derive(Debug)]
pub struct Mlx5<
    'p,
    P: Platform,
    const QPS: usize = 64,
    const CQS: usize = 64,
    const KEYS: usize = 512,
    const NEIGHBOURS: usize = 64,
> {
    pub(crate) device: Device<'p, P>,
    pub(crate) limits: HcaLimits,
    doorbells: Doorbells,
    gsi: Option<Gsi<'p, P>>,
    /// Of an Ethernet port.
    network: Option<Network<'p, P, NEIGHBOURS>>,
    /// Of an InfiniBand port.
    subnet: Option<Subnet<'p, P, NEIGHBOURS>>,
    /// As many as queue pairs.
    pds: Table<(), QPS>,
    cqs: Table<CqObject, CQS>,
    qps: Table<QpEntry, QPS>,
    shared: Table<SharedEntry, SHARED>,
    pub(crate) keys: Table<KeyEntry, KEYS>,
    notices: Deque<Notice, NOTICES>,
    /// For payload in completions, where there is any.
    landings: Option<Landings<'p, P>>,
    /// Of flow labels, which everybody on the way sees.
    labels: Random,
    /// The time of the last service.
    now: Instant,
}

impl<
    'p,
    P: Platform,
    const QPS: usize,
    const CQS: usize,
    const KEYS: usize,
    const NEIGHBOURS: usize,
> Mlx5<'p, P, QPS, CQS, KEYS, NEIGHBOURS>
{
    /// The way to `remote`, who has asked us if `asker`.
    fn path(&mut self, remote: IpAddr, asker: bool, now: Instant) -> Poll<Result<Path, Fault>> {
        let remote = canonical(remote);
        if let (Some(subnet), Some(gsi)) = (self.subnet.as_mut(), self.gsi.as_mut()) {
            return subnet.resolve(&self.device, gsi, remote, asker, now);
        }
        let Some(network) = self.network.as_mut() else {
            return Poll::Ready(Err(fault!(
                BadState,
                "resolve",
                "the port has no address yet",
                "give the port its address first",
            )
            .at(remote)));
        };
        let source_index = network.source_index(remote);
        network.resolve(remote, asker, now).map_ok(|remote_mac| Path {
            remote,
            next_hop: NextHop::Mac(remote_mac),
            source_index,
            hop_limit: HOP_LIMIT,
            class: self.limits.classes.best_effort,
            // Any label but 0 spreads connections over the equal paths of a network. A datagram to
            // somebody who asked has no need of that.
            flow_label: if asker { 0 } else { (self.labels.next_u32() & FLOW_LABEL).max(1) },
        })
    }

    /// Brings the device up and starts QP1. The port has no address yet: [`Provider::set_net`]
    /// gives it one.
    pub fn open(platform: &'p P, config: &Config<'p>) -> Result<Self, Fault> {
        let queue_pairs = QPS.saturating_add(OWN_QPS).next_power_of_two().ilog2();
        let log_min_qp = u8::try_from(queue_pairs).unwrap_or(u8::MAX).max(config.log_min_qp);
        let config = &Config { log_min_qp, ..*config };
        Self::over(Device::open(platform, config)?, config)
    }

    /// The provider over a device that is up.
    pub(crate) fn over(mut device: Device<'p, P>, config: &Config<'p>) -> Result<Self, Fault> {
        let landings = fit(&device, config)
            .and_then(|()| device.alloc_counters())
            .and_then(|()| Landings::new(&device, config, [QPS, KEYS]));
        let made = landings.and_then(|landings| match Gsi::create(&mut device) {
            Ok(gsi) => Ok((landings, gsi)),
            Err(fault) => {
                if let Some(landings) = landings {
                    landings.close(device.platform());
                }
                Err(fault)
            }
        });
        let (landings, gsi) = match made {
            Ok(made) => made,
            Err(fault) => {
                // The first failure is the one to tell.
                let _ = device.dealloc_counters();
                let _ = device.close();
                return Err(fault);
            }
        };
        let limits = limits(&device, config, [QPS, CQS, KEYS]);
        Ok(Self {
            labels: device.random.fork(),
            device,
            limits,
            doorbells: Doorbells::default(),
            gsi: Some(gsi),
            network: None,
            subnet: None,
            pds: Table::new(),
            cqs: Table::new(),
            qps: Table::new(),
            shared: Table::new(),
            keys: Table::new(),
            notices: Deque::new(),
            landings,
            now: Instant::ZERO,
        })
    }

    /// The device beneath, for its capabilities and its identity.
    #[must_use]
    pub fn device(&self) -> &Device<'p, P> {
        &self.device
    }

    /// Whether the port carries traffic, as the device says now.
    pub fn link_up(&mut self) -> Result<bool, Fault> {
        self.device.port_up()
    }

    /// The port in its InfiniBand subnet, as the device says now; `None` of an Ethernet port.
    pub fn ib_port(&mut self) -> Result<Option<IbPort>, Fault> {
        match self.device.link() {
            LinkType::Ethernet => Ok(None),
            LinkType::InfiniBand => self.device.ib_port().map(Some),
        }
    }

    /// What the built-in subnet manager does; `None` if it does not run.
    #[must_use]
    pub fn subnet_manager(&self) -> Option<SubnetManagerState> {
        self.subnet.as_ref().and_then(Subnet::manager)
    }

    /// Whether queue pairs write whole work requests with their doorbells: the host can
    /// ([`Config::blocks`](crate::Config::blocks)), and the device has BlueFlame.
    #[must_use]
    pub fn writes_whole_requests(&self) -> bool {
        uar::register_size(&self.device).is_some()
    }

    /// Whether the device may write like completions in compressed form: asked for by
    /// [`Config::compress_completions`](crate::Config::compress_completions), and the device can.
    #[must_use]
    pub fn compresses_completions(&self) -> bool {
        self.device.config.compress_completions && self.device.caps().general.cqe_compression()
    }

    /// Congestion control as the firmware has it; `None` where the function may not ask.
    pub fn congestion(&mut self) -> Result<Option<Congestion>, Fault> {
        self.device.congestion()
    }

    /// Counts of ARP and Neighbor Discovery, of what was refused by cause; `None` before the port
    /// has an address.
    #[must_use]
    pub fn neighbours(&self) -> Option<&Counters> {
        self.network.as_ref().map(Network::counters)
    }

    /// Counts of what came in on an InfiniBand port and was dropped; `None` of an Ethernet port, and
    /// until the port has an address.
    #[must_use]
    pub fn subnet_counters(&self) -> Option<SubnetCounters> {
        self.subnet.as_ref().map(Subnet::counters)
    }

    /// Counts of the built-in subnet manager; `None` if it does not run.
    #[must_use]
    pub fn subnet_manager_counters(&self) -> Option<SubnetManagerCounters> {
        self.subnet.as_ref().and_then(Subnet::manager_counters)
    }

    /// Connection management datagrams dropped because they were malformed.
    #[must_use]
    pub fn malformed_datagrams(&self) -> u32 {
        self.gsi.as_ref().map_or(0, Gsi::malformed)
    }

    pub(crate) fn known_pd(&self, op: Opcode, pd: Pd) -> Result<(), Fault> {
        if self.pds.has(pd.0) { Ok(()) } else { Err(no_such_object(op, object::PD, pd.0)) }
    }

    /// Turns the device's events into notices, as many as there is room for.
    fn collect(&mut self, now: Instant) {
        let mut asked = false;
        while !self.notices.is_full() {
            let Some(event) = self.device.next_event() else {
                return;
            };
            // One question to the port covers all its events that came before.
            if matches!(event, Event::Port { .. }) && core::mem::replace(&mut asked, true) {
                continue;
            }
            if let Some(notice) = self.translate(event, now) {
                let _ = self.notices.push_back(notice);
            }
        }
    }

    /// Translates an event to a notice; `None` if it concerns only the driver, or an object that is
    /// gone.
    fn translate(&mut self, event: Event, now: Instant) -> Option<Notice> {
        match event {
            Event::Completion { cqn } => {
                let known = !self.own_event(cqn, None) && self.cqs.has(cqn);
                known.then_some(Notice::Completion(seam::Cq(cqn)))
            }
            Event::CqError { cqn, syndrome } => {
                let known =
                    !self.own_event(cqn, Some(cq_fault(cqn, syndrome))) && self.cqs.has(cqn);
                known.then_some(Notice::CqError(seam::Cq(cqn)))
            }
            Event::Qp { qpn, what } => self.translate_qp(qpn, what),
            Event::Shared { srqn, limit } => {
                let known = self.shared.has(srqn);
                known.then_some(if limit {
                    Notice::SharedLimit(SharedRq(srqn))
                } else {
                    Notice::SharedError(SharedRq(srqn))
                })
            }
            Event::Port { port: _, up } => {
                // The event is a hint: by now the port may be in another state again.
                let up = self.device.port_up().unwrap_or(up);
                if let Some(subnet) = self.subnet.as_mut() {
                    subnet.port_changed(false);
                }
                if up {
                    if let Some(network) = self.network.as_mut() {
                        network.link_up(now);
                    }
                }
                Some(Notice::Link(up))
            }
            Event::Subnet(change) => {
                if let Some(subnet) = self.subnet.as_mut() {
                    subnet.port_changed(change == SubnetChange::Reregister);
                }
                None
            }
            Event::Warning(fault) => Some(Notice::Warning(fault)),
            Event::Dead(fault) => Some(Notice::Catastrophic(fault)),
        }
    }

    /// Takes note of an event of a completion queue of the driver's own: of a completion, or of its
    /// failure. False if it is not.
    fn own_event(&mut self, cqn: u32, fault: Option<Fault>) -> bool {
        if let Some(gsi) = self.gsi.as_mut().filter(|gsi| gsi.cq(cqn).is_some()) {
            match fault {
                None => gsi.event(),
                Some(fault) => gsi.fail(fault),
            }
            return true;
        }
        if let Some(network) = self.network.as_mut().filter(|net| net.cq(cqn).is_some()) {
            match fault {
                None => network.event(),
                Some(fault) => network.fail(fault),
            }
            return true;
        }
        if let Some(subnet) = self.subnet.as_mut().filter(|subnet| subnet.cq(cqn).is_some()) {
            subnet.event(cqn, fault);
            return true;
        }
        false
    }

    fn translate_qp(&mut self, qpn: u32, what: QpEvent) -> Option<Notice> {
        let fault = match what {
            QpEvent::Established => {
                let known = self.qps.has(qpn);
                return known.then_some(Notice::Established(Qp { number: qpn }));
            }
            // Flushed requests report the same, one by one; and the caller that takes a queue pair
            // out of service knows of its shared receives.
            QpEvent::Drained | QpEvent::LastWqe => return None,
            QpEvent::Catastrophic => {
                fault!(BadState, "queue pair", "the device could not use the queue pair's memory")
            }
            QpEvent::InvalidRequest => {
                fault!(BadState, "queue pair", "the peer sent a request that is invalid here")
            }
            QpEvent::AccessError => fault!(
                BadState,
                "queue pair",
                "the peer sent a request that no key or right here allows"
            ),
        };
        let fault = fault.of(object::QP, qpn);
        if let Some(gsi) = self.gsi.as_mut().filter(|gsi| gsi.owns_qp(qpn)) {
            gsi.fail(fault);
            return None;
        }
        if let Some(network) = self.network.as_mut().filter(|net| net.owns_queue(qpn)) {
            network.fail(fault);
            return None;
        }
        if let Some(subnet) = self.subnet.as_mut().filter(|subnet| subnet.owns_qp(qpn)) {
            subnet.event(qpn, Some(fault));
            return None;
        }
        // Events come late, in no order with commands: the failure may be that of a connection
        // which a reset has ended.
        let failed = self.qps.has(qpn) && qp::failed(&mut self.device, Qpn(qpn));
        failed.then_some(Notice::QpError(Qp { number: qpn }, fault))
    }
}

impl<
    'p,
    P: Platform,
    const QPS: usize,
    const CQS: usize,
    const KEYS: usize,
    const NEIGHBOURS: usize,
> Provider for Mlx5<'p, P, QPS, CQS, KEYS, NEIGHBOURS>
{
    type Sq = Sq<'p, P>;
    type Rq = Rq<'p, P>;
    type Cq = Cq<'p, P>;
    type Shared = Shared<'p, P>;

    fn limits(&self) -> &HcaLimits {
        &self.limits
    }

    fn hook(&self) -> Option<Hook<'_>> {
        self.device.config.hook
    }

    fn set_net(&mut self, net: &Net, now: Instant) -> Result<(), Fault> {
        // Another adapter is opened on a device that is up.
        if let Some(network) = self.network.take() {
            network.destroy(&mut self.device)?;
        }
        if let Some(subnet) = self.subnet.take() {
            subnet.destroy(&mut self.device, self.gsi.as_mut())?;
        }
        match self.device.link() {
            LinkType::Ethernet => {
                self.network = Some(Network::create(&mut self.device, net, now)?);
            }
            LinkType::InfiniBand => {
                self.subnet = Some(Subnet::create(&mut self.device, net, now)?);
            }
        }
        Ok(())
    }

    fn resolve(&mut self, remote: IpAddr, now: Instant) -> Poll<Result<Path, Fault>> {
        self.path(remote, false, now)
    }

    fn resolve_asker(&mut self, remote: IpAddr, now: Instant) -> Poll<Result<Path, Fault>> {
        self.path(remote, true, now)
    }

    fn subnet_path(&self, path: &Path) -> Option<SubnetPath> {
        self.subnet.as_ref()?.subnet_path(path)
    }

    fn group_join(
        &mut self,
        qp: Qp,
        qkey: u32,
        group: IpAddr,
        now: Instant,
    ) -> Poll<Result<Destination, Fault>> {
        match (&mut self.subnet, &mut self.gsi) {
            (Some(subnet), Some(gsi)) => {
                subnet.join(&mut self.device, gsi, (qp.number, qkey), group, now)
            }
            _ => Poll::Ready(Err(seam::no_groups())),
        }
    }

    fn group_leave(&mut self, qp: Qp, group: Option<IpAddr>) -> Result<(), Fault> {
        match (&mut self.subnet, &mut self.gsi) {
            (Some(subnet), Some(gsi)) => subnet.leave(&mut self.device, gsi, qp.number, group),
            _ => Ok(()),
        }
    }

    fn pd_create(&mut self) -> Result<Pd, Fault> {
        if self.pds.is_full() {
            return Err(full(Opcode::AllocPd, object::PROTECTION_DOMAINS));
        }
        let pd = self.device.alloc_pd()?;
        if self.pds.insert(pd, ()) {
            Ok(Pd(pd))
        } else {
            Err(twice(Opcode::AllocPd, object::PD, pd))
        }
    }

    fn pd_destroy(&mut self, pd: Pd) -> Result<(), Fault> {
        self.known_pd(Opcode::DeallocPd, pd)?;
        if self.pds.in_use(pd.0) {
            return Err(in_use(Opcode::DeallocPd, object::PD, pd.0));
        }
        self.device.dealloc_pd(pd.0)?;
        self.pds.remove(pd.0);
        Ok(())
    }

    fn set_key_order(&mut self, order: &KeyOrder) {
        self.device.key_rest.order.copy(order);
    }

    fn mr_create(&mut self, pd: Pd, region: Region, access: Access) -> Result<Mr, Fault> {
        self.map_region(&MrInit { pd, region, start: region.addr, access })
    }

    fn mr_destroy(&mut self, mr: Mr) -> Result<(), Fault> {
        let mut one = [Task::MrDestroy(mr, Ok(()))];
        self.do_tasks(&mut one);
        if let [Task::MrDestroy(_, Err(fault))] = one { Err(fault) } else { Ok(()) }
    }

    // Inline, so that a host that maps only its own memory has no code for pages.
    #[inline(always)]
    fn mr_map(
        &mut self,
        pd: Pd,
        backing: Backing<'_>,
        start: u64,
        access: Access,
    ) -> Result<Mr, Fault> {
        match backing {
            Backing::Host(region) => self.map_region(&MrInit { pd, region, start, access }),
            Backing::Pages { pages, log_page, len } => {
                self.reachable()?;
                let wanted = Wanted { pd: pd.0, start, len, access };
                self.map_pages(&wanted, pages, log_page)
            }
        }
    }

    fn mr_allocate(&mut self, pd: Pd, pages: u32) -> Result<Mr, Fault> {
        self.reachable()?;
        self.allocate_region(pd, pages)
    }

    fn mr_pages(&mut self, mr: Mr, pages: &[u64], log_page: u8) -> Result<Pages, Fault> {
        self.keep_pages(mr, pages, log_page)
    }

    fn mr_reserved(&mut self, pd: Pd) -> Result<Mr, Fault> {
        self.reachable()?;
        self.reserved_region(pd)
    }

    fn shared_memory(&self, name: &[u8; 40]) -> Option<Region> {
        self.device.config.lender?.shared(name)
    }

    fn sync(&self, incoming_read: bool) {
        let platform = self.device.platform();
        if incoming_read {
            // ORDER: the consumer's stores precede whatever he tells the peer with, a doorbell or a
            // store.
            platform.fence(Fence::BeforeDoorbell);
        } else {
            // ORDER: the load that notified the consumer of the peer's write precedes the loads
            // of the written data.
            platform.fence(Fence::AfterOwnership);
        }
    }

    fn mw_create(&mut self, pd: Pd) -> Result<Mw, Fault> {
        self.create_window(pd, KeyKind::Window)
    }

    fn mw_create_for_qp(&mut self, pd: Pd) -> Result<Mw, Fault> {
        self.create_window(pd, KeyKind::OwnWindow)
    }

    fn mw_renew(&mut self, mw: Mw) -> Result<Mw, Fault> {
        self.renew_window(mw)
    }

    fn mw_destroy(&mut self, mw: Mw) -> Result<(), Fault> {
        self.destroy_window(mw)
    }

    fn cq_create(&mut self, entries: u32) -> Result<(seam::Cq, Self::Cq), Fault> {
        if self.cqs.is_full() {
            return Err(full(Opcode::CreateCq, object::COMPLETION_QUEUES));
        }
        let compressed = self.compresses_completions();
        let (object, mut end) = cq::create(&mut self.device, entries, compressed)?;
        if let Some(landings) = &self.landings {
            end.set_landing(landings.landing);
        }
        let cqn = object.cqn.0;
        if self.cqs.insert(cqn, object) {
            Ok((seam::Cq(cqn), end))
        } else {
            Err(twice(Opcode::CreateCq, object::CQ, cqn))
        }
    }

    fn cq_resize(&mut self, cq: seam::Cq, end: &mut Self::Cq, entries: u32) -> Result<(), Fault> {
        let object = self.cqs.get_mut(cq.0).filter(|_| end.cqn() == cq.0);
        let object = object.ok_or(no_such_object(Opcode::ModifyCq, object::CQ, cq.0))?;
        cq::resize(&mut self.device, object, end, entries)
    }

    fn cq_moderate(&mut self, cq: seam::Cq, moderation: Moderation) -> Result<(), Fault> {
        let object = self.cqs.get(cq.0).copied();
        let object = object.ok_or(no_such_object(Opcode::ModifyCq, object::CQ, cq.0))?;
        cq::moderate(&mut self.device, object.cqn, moderation)
    }

    fn cq_destroy(&mut self, cq: seam::Cq, end: Self::Cq) -> Result<(), Fault> {
        let object = self.cqs.get(cq.0).filter(|_| end.cqn() == cq.0);
        let object = object.ok_or(no_such_object(Opcode::DestroyCq, object::CQ, cq.0))?;
        if self.cqs.in_use(cq.0) {
            return Err(in_use(Opcode::DestroyCq, object::CQ, cq.0));
        }
        cq::destroy(&mut self.device, object)?;
        self.cqs.remove(cq.0);
        Ok(())
    }

    fn qp_create(&mut self, init: &QpInit) -> Result<NewQp<Self::Sq, Self::Rq>, Fault> {
        let making = self.begin_pair(init, 0)?;
        self.finish_pair(init, making)
    }

    fn qp_modify(&mut self, qp: Qp, step: &QpStep) -> Result<(), Fault> {
        self.step_pair(qp, step)
    }

    fn qp_modify_each(&mut self, steps: &mut [(Qp, QpStep, Result<(), Fault>)]) {
        for some in steps.chunks_mut(FLIGHTS) {
            let step = |qp, step| Task::QpModify(qp, step, Ok(()));
            let mut tasks = few(some.iter().map(|(qp, next, _)| step(*qp, *next)));
            self.do_tasks(&mut tasks);
            for ((.., done), task) in some.iter_mut().zip(&tasks) {
                if let Task::QpModify(.., stepped) = task {
                    *done = *stepped;
                }
            }
        }
    }

    fn do_each(&mut self, all: &mut [Task<Self>]) {
        self.do_tasks(all);
    }

    fn qp_restart(&mut self, _qp: Qp, sq: &mut Self::Sq, rq: &mut Self::Rq) {
        sq.restart();
        rq.restart();
    }

    fn qp_destroy(&mut self, qp: Qp, sq: Self::Sq, rq: Self::Rq) -> Result<(), Fault> {
        let mut one = [Task::QpDestroy(qp, Some((sq, rq)), Ok(()))];
        self.do_tasks(&mut one);
        if let [Task::QpDestroy(.., Err(fault))] = one { Err(fault) } else { Ok(()) }
    }

    fn shared_create(&mut self, init: &SharedRqInit) -> Result<(SharedRq, Self::Shared), Fault> {
        self.known_pd(Opcode::CreateRmp, init.pd)?;
        if self.shared.is_full() {
            return Err(full(Opcode::CreateRmp, object::SHARED_QUEUES));
        }
        let (object, end) = srq::create(&mut self.device, init)?;
        let (srqn, pd) = (object.srqn, init.pd);
        if self.shared.insert(srqn, SharedEntry { object, pd }) {
            self.pds.hold(pd.0);
            Ok((SharedRq(srqn), end))
        } else {
            Err(twice(Opcode::CreateRmp, object::SRQ, srqn))
        }
    }

    fn shared_arm(&mut self, queue: SharedRq, limit: u16) -> Result<(), Fault> {
        if !self.shared.has(queue.0) {
            return Err(no_such_object(Opcode::ModifyRmp, object::SRQ, queue.0));
        }
        srq::arm(&mut self.device, queue.0, limit)
    }

    fn shared_destroy(&mut self, queue: SharedRq, _end: Self::Shared) -> Result<(), Fault> {
        let entry = self.shared.get(queue.0);
        let entry = entry.ok_or(no_such_object(Opcode::DestroyRmp, object::SRQ, queue.0))?;
        if self.shared.in_use(queue.0) {
            return Err(in_use(Opcode::DestroyRmp, object::SRQ, queue.0));
        }
        let pd = entry.pd;
        srq::destroy(&mut self.device, &entry.object)?;
        self.shared.remove(queue.0);
        self.pds.release(pd.0);
        Ok(())
    }

    fn mad_send(&mut self, path: &Path, mad: &[u8; 256]) -> Result<(), Fault> {
        match self.gsi.as_mut() {
            Some(gsi) => gsi.send(path, mad),
            None => {
                Err(fault!(BadState, "send a datagram", "the device is closed", "open it anew"))
            }
        }
    }

    fn mad_recv(&mut self) -> Option<MadIn> {
        let gsi = self.gsi.as_mut()?;
        if self.device.link() == LinkType::Ethernet {
            return gsi.recv();
        }
        let now = self.now;
        loop {
            let arrival = gsi.arrival()?;
            let datagram = self.subnet.as_mut().and_then(|subnet| subnet.receive(&arrival, now));
            if datagram.is_some() {
                return datagram;
            }
        }
    }

    fn await_device(&mut self, done: impl FnMut() -> bool) -> bool {
        await_done(self.device.platform(), done)
    }

    fn service(&mut self, now: Instant) {
        self.now = now;
        let Self { device, cqs, gsi, network, subnet, .. } = self;
        let platform = device.platform();
        device.service(now, |cqn| {
            let own = || gsi.as_ref().and_then(|gsi| gsi.cq(cqn));
            let own = own().or_else(|| network.as_ref().and_then(|network| network.cq(cqn)));
            let own = own.or_else(|| subnet.as_ref().and_then(|subnet| subnet.cq(cqn)));
            if let Some(cq) = own.or_else(|| cqs.get(cqn)) {
                cq.event_read(platform);
            }
        });
        self.collect(now);
        if self.device.lost() {
            // Nothing can be made anew, and each attempt would take memory that a lost device never
            // gives back.
            return;
        }
        if let Some(gsi) = self.gsi.as_mut() {
            // A failure is tried again at the next service; the loss of the device has its own
            // event.
            let _ = gsi.service(&mut self.device, now);
        }
        if let Some(network) = self.network.as_mut() {
            network.service(&mut self.device, now);
        }
        if let (Some(subnet), Some(gsi)) = (self.subnet.as_mut(), self.gsi.as_mut()) {
            subnet.service(&mut self.device, gsi, now);
        }
    }

    fn notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    fn next_deadline(&self) -> Option<Instant> {
        let own = Some(self.device.next_deadline());
        // A lost device's network is not served any more, so what it waits for never comes.
        if self.device.lost() {
            return own;
        }
        let gsi = self.gsi.as_ref().and_then(Gsi::next_deadline);
        let network = self.network.as_ref().and_then(Network::next_deadline);
        let subnet = self.subnet.as_ref().and_then(Subnet::next_deadline);
        let network = Instant::sooner(network, subnet);
        Instant::sooner(Instant::sooner(gsi, network), own)
    }

    fn counters(&mut self) -> Result<HcaCounters, Fault> {
        self.device.counters()
    }

    fn close(&mut self) -> Result<(), Fault> {
        let mut first = Ok(());
        self.drop_all_pairs(&mut first);
        for entry in self.shared.values() {
            note(&mut first, srq::end(&mut self.device, &entry.object));
        }
        self.shared.clear();
        self.drop_all_keys(&mut first);
        for object in self.cqs.values() {
            note(&mut first, cq::end(&mut self.device, object));
        }
        self.cqs.clear();
        for pd in self.pds.numbers() {
            note(&mut first, self.device.dealloc_pd(pd));
        }
        self.pds.clear();
        if let Some(network) = self.network.take() {
            note(&mut first, network.destroy(&mut self.device));
        }
        if let Some(subnet) = self.subnet.take() {
            note(&mut first, subnet.destroy(&mut self.device, self.gsi.as_mut()));
        }
        if let Some(gsi) = self.gsi.take() {
            note(&mut first, gsi.destroy(&mut self.device));
        }
        note(&mut first, self.device.dealloc_counters());
        self.doorbells.close(&mut self.device);
        if let Some(landings) = self.landings.take() {
            landings.close(self.device.platform());
        }
        first.and(self.device.close())
    }
}

/// The device can do what this provider is made of.
fn fit<P: Platform>(device: &Device<'_, P>, config: &Config<'_>) -> Result<(), Fault> {
    if !config.classes.is_valid() {
        return Err(fault!(
            BadParameter,
            "bring-up",
            "a priority of Config::classes is over 7",
            "use 0 to 7",
        ));
    }
    let caps = device.caps();
    if device.link() == LinkType::Ethernet && !caps.general.roce() {
        return Err(fault!(
            Unsupported,
            "bring-up",
            "the function has no RoCE",
            "enable RoCE for it, or choose another function",
        ));
    }
    if caps.general.cqe_version() != 1 {
        return Err(fault!(
            Unsupported,
            "bring-up",
            "completions do not carry the caller's index",
            "update the firmware",
        )
        .of("cqe_version", caps.general.cqe_version().into()));
    }
    Ok(())
}

/// Returns the limits of this device with tables of these lengths.
fn limits<P: Platform>(
    device: &Device<'_, P>,
    config: &Config<'_>,
    [qps, cqs, keys]: [usize; 3],
) -> HcaLimits {
    let caps = &device.caps().general;
    let table = |len: usize, log: u8| {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        len.min(1_u32.checked_shl(log.into()).unwrap_or(u32::MAX))
    };
    let armed = 1_u32.checked_shl(config.log_completion_events.into()).unwrap_or(u32::MAX);
    let identity = device.identity();
    let ring = 1_u32 << caps.log_max_qp_sz().min(15);
    let reads = caps.log_max_ra_req_qp().min(caps.log_max_ra_res_qp()).min(LOG_READS);
    HcaLimits {
        name: "mlx5",
        vendor: "NVIDIA",
        // The revision stands in configuration space, which the driver does not see.
        hardware: (0, 0),
        firmware: identity.firmware,
        link: device.link(),
        node_guid: identity.node_guid,
        max_qp: table(qps, caps.log_max_qp()),
        max_cq: table(cqs, caps.log_max_cq()).min(armed.saturating_sub(own_cqs(device.link()))),
        max_cqe: 1 << (caps.log_max_cq_sz().clamp(1, 22) - 1),
        max_qp_requests: ring / WIDEST,
        max_segments: MAX_SEGMENTS,
        max_mkey: table(keys, caps.log_max_mkey()),
        max_region: mkey::max_region(device.caps()),
        max_message: 1 << caps.log_max_msg().min(30),
        max_reads: 1 << reads,
        max_pd: table(qps, caps.log_max_pd()),
        mtu: device.path_mtu(),
        path_mtu: match device.link() {
            LinkType::Ethernet => config.path_mtu.min(device.path_mtu()),
            // The subnet administrator knows what each path has.
            LinkType::InfiniBand => device.path_mtu(),
        },
        classes: config.classes,
        windows: caps.imaicl() && !caps.umr_indirect_mkey_disabled(),
        atomics: device.caps().has_atomics(),
        registered_atomics: device.caps().has_atomics() && !caps.umr_modify_atomic_disabled(),
        max_datagram_segments: if caps.ud() { MAX_DATAGRAM_SEGMENTS } else { 0 },
        ack_delay: caps.local_ca_ack_delay(),
        max_shared: table(SHARED, caps.log_max_srq()),
        max_shared_receives: srq::most_receives(device),
    }
}

/// Calls `done` until it returns true, or [`WORK_LIMIT`] has passed. Returns whether it did.
fn await_done<P: Platform>(platform: &P, mut done: impl FnMut() -> bool) -> bool {
    let deadline = health::clock(platform) + WORK_LIMIT;
    loop {
        // The clock before the look: a host that slept past the deadline still finds what is done.
        let now = health::clock(platform);
        if done() {
            return true;
        }
        if now >= deadline {
            return false;
        }
        platform.relax();
    }
}

#[cold]
pub(crate) fn no_such_object(op: Opcode, object: &'static str, number: u32) -> Fault {
    fault!(BadParameter, "", "there is no such object").of(object, number).during(op.name())
}

#[cold]
fn in_use(op: Opcode, object: &'static str, number: u32) -> Fault {
    fault!(BadState, "", "other objects still use it", "destroy those first")
        .of(object, number)
        .during(op.name())
}

#[cold]
pub(crate) fn full(op: Opcode, what: &'static str) -> Fault {
    fault!(
        Resources,
        "",
        "the driver's table is full",
        "destroy some, or give the driver a longer table",
    )
    .of(what, 0)
    .during(op.name())
}

#[cold]
pub(crate) fn twice(op: Opcode, object: &'static str, number: u32) -> Fault {
    fault!(Nonsense, "", "the device gave out a number that is in use", "reset the device",)
        .of(object, number)
        .during(op.name())
}

fn cq_fault(cqn: u32, syndrome: u8) -> Fault {
    let fault = match syndrome {
        1 => fault!(BadState, "completion queue", "the completion queue overran"),
        2 => fault!(
            BadState,
            "completion queue",
            "the device may not write the completion queue's memory"
        ),
        _ => fault!(BadState, "completion queue", "the completion queue failed"),
    };
    fault.with_answer(0, syndrome.into()).of(object::CQ, cqn)
}

#[cfg(test)]
mod tests;
