//! One Interface Adapter on the model with an Endpoint that is connected to nobody: its peer, and
//! the device where it writes to memory or reads work requests, are what the input says.
//!
//! The connection is made without datagrams (`ep_connect_direct`), and the peer's MAC is fixed, so
//! it takes few steps. The device stays up from one input to the next, because bring-up takes longer
//! than most inputs do. An adapter with its objects and a network is made for each, and is gone
//! afterwards; what is left of an input are time and numbers of objects. A device that is otherwise
//! not as it was is reset.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use dat_core::provider::Provider as _;
use dat_core::{
    CompletionFlags, DtoEvent, Ep, Evd, EvdFlags, Event, Ia, IbDtoEvent, Instant, LmrParam,
    LmrTriplet, MemPriv, PspFlag, RmrTriplet, Storage,
};
use dat_tests::bringup::{absent_peer, net, patience};
use dat_tests::host::inproc::{Slot, World, enable};
use hca_mlx5::dma::Buffer;
use hca_mlx5::{Config, Mlx5};
use mlx5_model::host::{DmaError, HostMemory};
use mlx5_model::wire::Wire as _;
use mlx5_model::wire::switch::{Port, cable};
use mlx5_model::{CommandHook, Hca, Verdict};

use crate::input::{Patch, patch};
use crate::world::{MEMORY, card};

type Driver = Mlx5<'static, Slot, 16, 16, 32>;
type Room = Storage<Driver, 4, 8, 8, 16, 32>;

/// The peer, and the port of the service point.
pub(crate) const PEER: (IpAddr, [u8; 6]) =
    (IpAddr::V4(std::net::Ipv4Addr::new(192, 168, 7, 2)), [2, 0, 0, 0, 0, 2]);
pub(crate) const PORT: u16 = 4711;
/// Bytes of an entry of a completion queue.
pub(crate) const CQE: usize = 64;
/// Bytes of the memory that is registered.
const BYTES: usize = 0x4000;
/// One in so many inputs closes the adapter, and with it the device, instead of leaving it. Its
/// length says so, so that the same input does the same again.
const CLOSES: usize = 16;
const CREATE_CQ: u16 = 0x400;
const CREATE_QP: u16 = 0x500;

/// A ring of the driver's: its bytes as the device reaches them.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    /// Number of the queue.
    pub(crate) number: u32,
    start: u64,
    page: u64,
    pages: Vec<u64>,
    /// log2 of its entries, of a completion queue.
    pub(crate) log_size: u32,
}

impl Ring {
    /// Device address of a byte.
    pub(crate) fn at(&self, offset: u64) -> Option<u64> {
        let offset = self.start + offset;
        let page = self.pages.get((offset / self.page) as usize)?;
        Some(page + offset % self.page)
    }

    /// Whether an entry of a completion queue begins there.
    pub(crate) fn has_entry(&self, address: u64) -> bool {
        (0..1_u64 << self.log_size).any(|n| self.at(n * CQE as u64) == Some(address))
    }

    fn holds(&self, address: u64) -> bool {
        self.pages.iter().any(|page| (*page..page + self.page).contains(&address))
    }
}

/// What the device learned, and what it is to do.
#[derive(Debug, Default)]
pub(crate) struct Device {
    pub(crate) cqs: Vec<Ring>,
    pub(crate) qps: Vec<Ring>,
    /// Changes of what it reads next from rings of work requests.
    pub(crate) garble: Vec<Option<Patch>>,
    /// Completion queues and queue pairs that are not of the present input.
    older: [usize; 2],
    /// One of those queue pairs executed what it was not given.
    strained: bool,
}

impl Device {
    /// Forgets what an input has made.
    fn forget(&mut self) {
        let [cqs, qps] = self.older;
        self.cqs.truncate(cqs);
        self.qps.truncate(qps);
        self.garble.clear();
    }
}

fn word(message: &[u8], at: usize) -> u32 {
    message.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

fn list(message: &[u8], at: usize) -> Vec<u64> {
    let list = message.get(at..).unwrap_or_default().chunks_exact(8);
    list.map(|page| u64::from(word(page, 0)) << 32 | u64::from(word(page, 4))).collect()
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Device>>);

impl CommandHook for Shared {
    fn command(&mut self, _: u64, _: u16, _: &[u8]) -> Verdict {
        Verdict::Run
    }

    fn completed(&mut self, _: u64, opcode: u16, input: &[u8], output: &[u8]) {
        // Offsets of the published layouts, as in the benchmarks.
        let (page, offset, log_size) = match opcode {
            CREATE_CQ => (word(input, 0x28), word(input, 0x18), word(input, 0x1c) >> 24 & 31),
            CREATE_QP => (word(input, 0x18 + 0x14), word(input, 0x18 + 0x90), 0),
            _ => return,
        };
        let page = 1 << (12 + (page >> 24 & 31));
        let ring = Ring {
            number: word(output, 8) & 0xff_ffff,
            start: u64::from(offset >> 6 & 0x3f) * (page >> 6),
            page,
            pages: list(input, 0x110),
            log_size,
        };
        let mut device = self.0.lock().unwrap();
        if opcode == CREATE_CQ { device.cqs.push(ring) } else { device.qps.push(ring) }
    }
}

/// The host's memory as the device reads it.
struct Read {
    memory: Box<dyn HostMemory + Send>,
    device: Shared,
}

impl HostMemory for Read {
    fn read(&mut self, iova: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        self.memory.read(iova, buf)?;
        let mut device = self.device.0.lock().unwrap();
        if buf.len() >= 16 && !device.garble.is_empty() {
            if let Some(qp) = device.qps.iter().position(|qp| qp.holds(iova)) {
                device.strained |= qp < device.older[1];
                patch(buf, &std::mem::take(&mut device.garble));
            }
        }
        Ok(())
    }

    fn write(&mut self, iova: u64, buf: &[u8]) -> Result<(), DmaError> {
        self.memory.write(iova, buf)
    }
}

/// The adapter and its objects.
pub(crate) struct Lone<'s> {
    pub(crate) world: &'static Arc<World>,
    pub(crate) slot: &'static Slot,
    /// The far end of the cable.
    pub(crate) peer: &'s mut Port,
    device: Shared,
    pub(crate) ia: Ia<'s, Driver>,
    pub(crate) ep: Ep,
    /// Where receives and requests complete, connection events and requests go.
    pub(crate) evds: [Evd; 4],
    pub(crate) lmr: LmrParam,
    /// Cookies of what is posted.
    outstanding: BTreeSet<u64>,
    cookie: u64,
}

/// What is kept from one input to the next.
struct Host {
    slot: &'static Slot,
    peer: Port,
    device: Shared,
    room: Box<Room>,
    /// None if the device is to be reset.
    driver: Option<Driver>,
}

thread_local! {
    static HOST: RefCell<Option<Host>> = const { RefCell::new(None) };
}

impl Host {
    fn plug() -> Self {
        let (wire, peer) = cable();
        let device = Shared::default();
        let slot = Slot::plug(&World::new(), MEMORY, 1, |memory| {
            let memory = Box::new(Read { memory, device: device.clone() });
            Hca::new(card(), memory, Box::new(wire))
        });
        slot.hca().set_command_hook(Some(Box::new(device.clone())));
        // The driver borrows it and is kept. There is one for each thread.
        let slot = Box::leak(Box::new(slot));
        Self { slot, peer, device, room: Box::new(Room::new()), driver: None }
    }

    fn bring_up(&mut self) -> Driver {
        self.slot.hca().flr();
        self.slot.reclaim();
        enable(&mut self.slot.hca());
        *self.device.0.lock().unwrap() = Device::default();
        Driver::open(self.slot, &Config { neighbours: &[PEER], ..patience() }).unwrap()
    }
}

/// What the device and its driver hold, besides the rings.
fn held(slot: &Slot) -> (usize, usize, [usize; 3]) {
    (slot.in_use(), slot.views().pages_out(), slot.hca().live())
}

/// Runs `act` with an adapter whose Endpoint is connected, for that input.
pub(crate) fn with(data: &[u8], act: impl FnOnce(&mut Lone<'_>)) {
    let mut host = HOST.take().unwrap_or_else(Host::plug);
    let driver = host.driver.take().unwrap_or_else(|| host.bring_up());
    let slot = host.slot;
    while host.peer.recv().is_some() {}
    let memory = Buffer::zeroed(slot, BYTES).unwrap();
    let now = Instant::from_nanos(slot.world().now());
    let mut ia = Ia::open(driver, host.room.parts(), net(), now, [3; 32]).unwrap();
    let before = held(slot);
    {
        let mut device = host.device.0.lock().unwrap();
        device.older = [device.cqs.len(), device.qps.len()];
    }
    let flags = [
        EvdFlags::DTO | EvdFlags::RMR_BIND,
        EvdFlags::DTO | EvdFlags::RMR_BIND,
        EvdFlags::CONNECTION,
        EvdFlags::CR,
    ];
    let evds = flags.map(|flags| ia.evd_create(16, flags).unwrap());
    ia.psp_create(PORT.into(), evds[3], PspFlag::Consumer).unwrap();
    let pz = ia.pz_create().unwrap();
    let lmr = ia.lmr_create(pz, memory.region(), MemPriv::ALL).unwrap();
    let mut attr = ia.ep_attr_default();
    (attr.max_request_dtos, attr.max_recv_dtos) = (8, 8);
    let ep = ia.ep_create(Some(pz), Some(evds[0]), Some(evds[1]), Some(evds[2]), Some(&attr));
    let mut lone = Lone {
        world: slot.world(),
        slot,
        peer: &mut host.peer,
        device: host.device.clone(),
        ia,
        ep: ep.unwrap(),
        evds,
        lmr,
        outstanding: BTreeSet::new(),
        cookie: 0,
    };
    lone.connect();
    act(&mut lone);
    let driver = lone.end(data.len() % CLOSES != 0);
    slot.hca().set_mangle(None);
    let mut device = host.device.0.lock().unwrap();
    let good = held(slot) == before && !device.strained;
    device.forget();
    drop(device);
    match driver {
        Some(driver) if good => host.driver = Some(driver),
        Some(mut driver) => drop(driver.close()),
        None => {}
    }
    memory.release();
    HOST.set(Some(host));
}

impl Lone<'_> {
    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.world.now())
    }

    pub(crate) fn device(&self) -> MutexGuard<'_, Device> {
        self.device.0.lock().unwrap()
    }

    /// The adapter does what is due, and a little time passes.
    pub(crate) fn turn(&mut self, leap: u64) {
        let now = self.now();
        let _ = self.ia.advance(now);
        self.world.turn_by(leap);
    }

    /// Connects the Endpoint, if it can be.
    pub(crate) fn connect(&mut self) {
        let now = self.now();
        let limit = Duration::from_secs(2);
        if self.ia.ep_connect_direct(now, self.ep, PEER.0, &absent_peer(), limit).is_ok() {
            (0..4).for_each(|_| self.turn(1_000));
        }
    }

    /// Bytes of the local memory, and of what the peer might have.
    fn segments(&self, len: u16) -> ([LmrTriplet; 1], RmrTriplet) {
        let (addr, len) = (self.lmr.region.addr, u32::from(len) % BYTES as u32);
        let local = LmrTriplet { addr, len, context: self.lmr.lmr_context };
        ([local], RmrTriplet { addr, len: BYTES as u32, context: 0x1234 })
    }

    /// Posts something.
    pub(crate) fn post(&mut self, kind: u8, len: u16, flags: u8) {
        let ([local], far) = self.segments(len);
        let flags = [
            CompletionFlags::empty(),
            CompletionFlags::SUPPRESS,
            CompletionFlags::SOLICITED_WAIT,
            CompletionFlags::BARRIER_FENCE,
        ][usize::from(flags) % 4];
        let (ep, ia) = (self.ep, &mut self.ia);
        let word = LmrTriplet { len: 8, ..local };
        self.cookie += 1;
        let cookie = self.cookie;
        let posted = match kind % 7 {
            0 | 1 => ia.ep_post_recv(ep, &[local], cookie, CompletionFlags::empty()),
            2 => ia.ep_post_send(ep, &[local], cookie, flags),
            3 => ia.ep_post_rdma_write(ep, &[local], cookie, &far, flags),
            4 => ia.ep_post_rdma_read(ep, &[local], cookie, &far, flags),
            5 => ia.ep_post_fetch_add(ep, 1, &word, cookie, &far, flags),
            _ => ia.ep_post_rdma_write_immed(ep, &[local], cookie, &far, 7, flags),
        };
        if posted.is_ok() {
            self.outstanding.insert(cookie);
        }
    }

    /// Takes all events there are. A request ends once.
    pub(crate) fn events(&mut self) {
        for evd in self.evds.into_iter().chain([self.ia.async_evd()]) {
            for taken in 0.. {
                let Ok(event) = self.ia.evd_dequeue(evd) else { break };
                assert!(taken < 1000, "events without end: {event:?}");
                if let Event::Dto(DtoEvent { cookie, .. })
                | Event::IbDto(IbDtoEvent { cookie, .. }) = event
                {
                    assert!(self.outstanding.remove(&cookie), "{event:?} is not outstanding");
                }
                self.request(&event);
            }
            let _ = self.ia.evd_arm(evd, false);
        }
    }

    /// The consumer rejects what asks for a connection.
    fn request(&mut self, event: &Event) {
        if let Event::ConnectionRequest { cr, .. } | Event::UdConnectionRequest { cr, .. } = event {
            let now = self.now();
            let _ = self.ia.cr_query(*cr);
            let _ = self.ia.cr_reject(now, *cr, b"no");
        }
    }

    /// Everything is taken down; the driver, if it is to be kept and may be.
    fn end(mut self, keep: bool) -> Option<Driver> {
        self.events();
        let (slot, now) = (self.slot, self.now());
        let driver = if keep && self.ia.lost().is_none() {
            self.ia.leave(now).ok()
        } else {
            let _ = self.ia.close(now, dat_core::CloseFlag::Abrupt);
            None
        };
        assert_eq!(slot.views().strays(), 0, "the driver stored where nobody has memory");
        driver
    }
}
