//! Two adapters on one fabric, as small as they can be.

use core::net::IpAddr;
use core::time::Duration;

use dat_core::provider::Net;
use dat_core::testing::{Fabric, LoopHca};
use dat_core::*;

pub(crate) type Own = Ia<'static, LoopHca<'static>>;
pub(crate) type Poster = EpPoster<'static, LoopHca<'static>>;
pub(crate) type Reaper = EvdReaper<'static, LoopHca<'static>>;

pub(crate) const NONE: CompletionFlags = CompletionFlags::empty();
const PORT: u64 = 4711;

thread_local! {
    static FABRIC: &'static Fabric = Box::leak(Box::new(Fabric::new()));
}

/// One side: an Endpoint whose streams all come to one Event Dispatcher.
pub(crate) struct Side {
    pub(crate) ia: Own,
    pub(crate) pz: Pz,
    pub(crate) evd: Evd,
    pub(crate) cr: Evd,
    pub(crate) ep: Ep,
    pub(crate) lmr: LmrParam,
}

pub(crate) struct World {
    pub(crate) fabric: &'static Fabric,
    pub(crate) a: Side,
    pub(crate) b: Side,
    pub(crate) now: Instant,
}

/// Words of the stack of the thread that opens adapters. loom's own threads have 4,096.
const STACK: usize = 1 << 20;

/// Tries all interleavings, with so many preemptions at most, of what `threads` starts after it has
/// made a [`World`].
pub(crate) fn explore(preemptions: usize, threads: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.preemption_bound = Some(preemptions);
    // It is too large for the stacks of loom's threads.
    FABRIC.with(|_| ());
    let threads = std::sync::Arc::new(threads);
    builder.check(move || {
        let threads = std::sync::Arc::clone(&threads);
        let builder = loom::thread::Builder::new().stack_size(STACK);
        builder.spawn(move || threads()).unwrap().join().unwrap();
    });
}

impl Side {
    fn new(fabric: &'static Fabric, port: u8) -> Self {
        let storage: &'static mut Storage<_, 1, 3, 2, 2, 4, 1> =
            Box::leak(Box::new(Storage::new()));
        let parts = storage.parts();
        parts.make_known();
        let net = Net::new(addr(port), 24);
        let hca = LoopHca::new(fabric, port.into());
        let mut ia = Ia::open(hca, parts, net, Instant::ZERO, [0x12 + port; 32]).unwrap();
        let pz = ia.pz_create().unwrap();
        let all = EvdFlags::DEFAULT & !EvdFlags::ASYNC | EvdFlags::SOFTWARE;
        let evd = ia.evd_create(4, all).unwrap();
        let cr = ia.evd_create(2, EvdFlags::CR).unwrap();
        let lmr = ia.lmr_create(pz, fabric.region(port.into()), MemPriv::ALL).unwrap();
        let attr = EpAttr { max_recv_dtos: 2, max_request_dtos: 2, ..ia.ep_attr_default() };
        let ep = ia.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), Some(&attr)).unwrap();
        Self { ia, pz, evd, cr, ep, lmr }
    }

    pub(crate) fn seg(&self) -> LmrTriplet {
        LmrTriplet { addr: self.lmr.region.addr, len: 8, context: self.lmr.lmr_context }
    }

    pub(crate) fn far(&self) -> RmrTriplet {
        RmrTriplet { addr: self.lmr.region.addr, len: 8, context: self.lmr.rmr_context }
    }

    pub(crate) fn drain(&mut self) -> Vec<Event> {
        core::iter::from_fn(|| self.ia.evd_dequeue(self.evd).ok()).collect()
    }
}

impl World {
    /// Two sides that do not know each other yet; `b` listens.
    pub(crate) fn unconnected() -> Self {
        loom::stop_exploring();
        let fabric = FABRIC.with(|fabric| *fabric);
        fabric.clear();
        let [a, mut b] = [0, 1].map(|port| Side::new(fabric, port));
        b.ia.psp_create(PORT, b.cr, PspFlag::Consumer).unwrap();
        Self { fabric, a, b, now: Instant::from_nanos(1_000_000_000) }
    }

    /// Two connected sides with nothing in their queues. What follows is explored.
    pub(crate) fn connected() -> Self {
        let mut world = Self::unconnected();
        let cr = world.ask();
        world.b.ia.cr_accept(world.now, cr, Some(world.b.ep), b"").unwrap();
        world.run();
        for side in [&mut world.a, &mut world.b] {
            assert_eq!(side.drain(), [Event::Established(side.ep)]);
        }
        loom::explore();
        world
    }

    /// `a` asks; the request that waits at `b`.
    pub(crate) fn ask(&mut self) -> Cr {
        let (ep, limit) = (self.a.ep, Duration::from_secs(5));
        self.a.ia.ep_connect(self.now, ep, addr(1), PORT, limit, b"", Qos::BestEffort).unwrap();
        self.run();
        match self.b.ia.evd_dequeue(self.b.cr) {
            Ok(Event::ConnectionRequest { cr, .. }) => cr,
            other => panic!("{other:?}"),
        }
    }

    /// Lets both sides do what is due, without letting time pass.
    pub(crate) fn run(&mut self) {
        for _ in 0..100 {
            let work = [&mut self.a, &mut self.b].map(|side| side.ia.advance(self.now).work);
            if work == [false; 2] {
                return;
            }
        }
        panic!("never idle");
    }
}

fn addr(port: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + port])
}
