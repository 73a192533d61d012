//! Two Interface Adapters on one loop fabric, and time in the test's hands.
#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a harness"
)]

use core::net::IpAddr;
use core::time::Duration;

use dat_core::provider::Net;
use dat_core::testing::{Fabric, LoopHca};
use dat_core::*;

pub type LoopIa = Ia<'static, LoopHca<'static>>;

pub const PORT: u64 = 4711;
pub const FLAGS: CompletionFlags = CompletionFlags::empty();
pub const SUPPRESS: CompletionFlags = CompletionFlags::SUPPRESS;

/// One side with an Endpoint, its streams, and the port's whole memory registered.
pub struct Side {
    pub ia: LoopIa,
    pub pz: Pz,
    pub recv: Evd,
    pub request: Evd,
    pub conn: Evd,
    pub cr: Evd,
    pub ep: Ep,
    pub lmr: LmrParam,
}

pub struct Pair {
    pub fabric: &'static Fabric,
    pub a: Side,
    pub b: Side,
    pub now: Instant,
}

pub fn addr(port: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + port])
}

pub fn open(fabric: &'static Fabric, port: u8) -> Ia<'static, LoopHca<'static>> {
    open_of::<8>(fabric, port)
}

/// One of so many Endpoints.
pub fn open_of<const EPS: usize>(
    fabric: &'static Fabric,
    port: u8,
) -> Ia<'static, LoopHca<'static>> {
    let storage: &'static mut Storage<_, EPS, 8, 8, 32, 64> = Box::leak(Box::new(Storage::new()));
    let net = Net::new(addr(port), 24);
    let hca = LoopHca::using(fabric, usize::from(port));
    Ia::open(hca, storage.parts(), net, Instant::ZERO, [0x12 + port; 32]).unwrap()
}

/// Which of the three streams of an Endpoint share an Event Dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    Apart,
    RecvRequest,
    RecvConn,
    RequestConn,
    All,
}

impl Merge {
    pub const ALL: [Self; 5] =
        [Self::Apart, Self::RecvRequest, Self::RecvConn, Self::RequestConn, Self::All];
}

impl Side {
    pub fn new(fabric: &'static Fabric, port: u8, merge: Merge, attr: Option<&EpAttr>) -> Self {
        Self::on(open(fabric, port), fabric, port, merge, attr)
    }

    /// On an adapter that is open already.
    pub fn on(
        mut ia: LoopIa,
        fabric: &'static Fabric,
        port: u8,
        merge: Merge,
        attr: Option<&EpAttr>,
    ) -> Self {
        let pz = ia.pz_create().unwrap();
        let every = EvdFlags::DEFAULT & !EvdFlags::ASYNC | EvdFlags::SOFTWARE;
        let mut evd = |flags| ia.evd_create(64, flags).unwrap();
        let (d, c) = (EvdFlags::DTO | EvdFlags::RMR_BIND, EvdFlags::CONNECTION);
        let (recv, request, conn) = match merge {
            Merge::Apart => (evd(d), evd(d), None),
            Merge::RecvRequest => {
                let one = evd(every);
                (one, one, None)
            }
            Merge::RecvConn => {
                let one = evd(every);
                (one, evd(d), Some(one))
            }
            Merge::RequestConn => {
                let one = evd(every);
                (evd(d), one, Some(one))
            }
            Merge::All => {
                let one = evd(every);
                (one, one, Some(one))
            }
        };
        let conn = conn.unwrap_or_else(|| ia.evd_create(8, c).unwrap());
        let cr = ia.evd_create(2, EvdFlags::CR).unwrap();
        let lmr = ia.lmr_create(pz, fabric.region(usize::from(port)), MemPriv::ALL).unwrap();
        let ep = ia.ep_create(Some(pz), Some(recv), Some(request), Some(conn), attr).unwrap();
        Self { ia, pz, recv, request, conn, cr, ep, lmr }
    }

    /// A triplet `at` bytes into the port's memory.
    pub fn seg(&self, at: u64, len: u32) -> LmrTriplet {
        LmrTriplet { addr: self.lmr.region.addr + at, len, context: self.lmr.lmr_context }
    }

    /// The same for a peer.
    pub fn far(&self, at: u64, len: u32) -> RmrTriplet {
        RmrTriplet { addr: self.lmr.region.addr + at, len, context: self.lmr.rmr_context }
    }

    pub fn send(&mut self, cookie: u64, flags: CompletionFlags) -> Result<(), DatReturn> {
        let seg = self.seg(0, 8);
        self.ia.ep_post_send(self.ep, &[seg], cookie, flags)
    }

    pub fn post_recv(&mut self, cookie: u64) -> Result<(), DatReturn> {
        let seg = self.seg(1024, 64);
        self.ia.ep_post_recv(self.ep, &[seg], cookie, FLAGS)
    }

    pub fn state(&self) -> EpState {
        self.ia.ep_query(self.ep).unwrap().state
    }

    pub fn next(&mut self, evd: Evd) -> Option<Event> {
        match self.ia.evd_dequeue(evd) {
            Ok(event) => Some(event),
            Err(ret) => {
                assert_eq!(ret, DatReturn::QUEUE_EMPTY);
                None
            }
        }
    }

    pub fn drain(&mut self, evd: Evd) -> Vec<Event> {
        std::iter::from_fn(|| self.next(evd)).collect()
    }

    /// The DTO events of an Event Dispatcher as (cookie, status).
    pub fn dtos(&mut self, evd: Evd) -> Vec<(u64, DtoStatus)> {
        let dto = |event| match event {
            Event::Dto(dto) => Some((dto.cookie, dto.status)),
            _ => None,
        };
        self.drain(evd).into_iter().filter_map(dto).collect()
    }
}

impl Pair {
    /// Two sides that do not know each other yet; `b` listens.
    pub fn unconnected(merge: Merge, attr: Option<&EpAttr>) -> Self {
        let fabric: &'static Fabric = Box::leak(Box::new(Fabric::new()));
        let a = Side::new(fabric, 0, merge, attr);
        let mut b = Side::new(fabric, 1, merge, attr);
        b.ia.psp_create(PORT, b.cr, PspFlag::Consumer).unwrap();
        Self { fabric, a, b, now: Instant::from_nanos(1_000_000_000) }
    }

    /// Two connected sides with nothing in their queues.
    pub fn connected() -> Self {
        Self::connected_as(Merge::Apart, None)
    }

    pub fn connected_as(merge: Merge, attr: Option<&EpAttr>) -> Self {
        let mut pair = Self::unconnected(merge, attr);
        pair.connect();
        pair
    }

    pub fn connect(&mut self) {
        self.ask(b"").unwrap();
        self.run_until_idle();
        let cr = self.request().expect("a request");
        self.b.ia.cr_accept(self.now, cr, Some(self.b.ep), b"").unwrap();
        self.run_until_idle();
        for side in [&mut self.a, &mut self.b] {
            let event = side.next(side.conn);
            assert_eq!(event, Some(Event::Established(side.ep)));
            assert_eq!(side.state(), EpState::Connected);
        }
    }

    /// `a` starts to connect.
    pub fn ask(&mut self, private: &[u8]) -> Result<(), Error> {
        let second = Duration::from_secs(5);
        self.a.ia.ep_connect(self.now, self.a.ep, addr(1), PORT, second, private, Qos::BestEffort)
    }

    /// The request that waits at `b`.
    pub fn request(&mut self) -> Option<Cr> {
        match self.b.next(self.b.cr)? {
            Event::ConnectionRequest { cr, conn_qual, .. } => {
                assert_eq!(conn_qual, PORT);
                Some(cr)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Lets both sides do what is due, without letting time pass.
    pub fn run_until_idle(&mut self) {
        for _ in 0..100 {
            let a = self.a.ia.advance(self.now).work;
            let b = self.b.ia.advance(self.now).work;
            if !a && !b {
                return;
            }
        }
        panic!("never idle");
    }

    /// Lets time pass, from deadline to deadline.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        for _ in 0..10_000 {
            self.run_until_idle();
            let next = [self.a.ia.advance(self.now), self.b.ia.advance(self.now)]
                .iter()
                .filter_map(|next| next.deadline)
                .min();
            match next {
                Some(at) if at > self.now && at < end => self.now = at,
                Some(at) if at <= self.now => self.now = self.now + Duration::from_millis(1),
                _ => break,
            }
        }
        self.now = end;
        self.run_until_idle();
    }
}
