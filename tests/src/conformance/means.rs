//! Helpers of almost every case: Endpoints with their Event Dispatchers, connections, registered
//! memory, refusals.

use std::time::Duration;

use dat_core::{
    CloseFlag, CompletionFlags, Cr, DatReturn, DatSubtype, DatType, DtoEvent, DtoOperation,
    DtoStatus, Ep, EpAttr, EpState, Evd, EvdFlags, Event, LmrParam, LmrTriplet, MemPriv, Psp,
    PspFlag, Pz, Qos, RmrTriplet,
};

use super::adapters::{A, Adapters, B, LIMIT, Side};

/// No flags.
pub const NONE: CompletionFlags = CompletionFlags::empty();

/// An Endpoint with its zone and its three Event Dispatchers (which may be one).
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Whose it is.
    pub side: usize,
    /// Its zone.
    pub pz: Pz,
    /// Where receives complete.
    pub recv: Evd,
    /// Where requests and binds complete.
    pub request: Evd,
    /// Where connection events go.
    pub conn: Evd,
    /// The Endpoint.
    pub ep: Ep,
}

/// A service point and where its requests arrive.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Whose it is.
    pub side: usize,
    /// The service point.
    pub psp: Psp,
    /// Its Event Dispatcher.
    pub evd: Evd,
    /// Its qualifier.
    pub qualifier: u64,
}

/// Registered memory.
#[derive(Clone, Copy, Debug)]
pub struct Mem {
    /// Whose it is.
    pub side: usize,
    /// Its registration.
    pub lmr: LmrParam,
}

impl Mem {
    /// A piece of it, for requests of its own side.
    #[must_use]
    pub fn seg(&self, at: usize, len: usize) -> LmrTriplet {
        self.lmr.local(at as u64, len as u32)
    }

    /// The same piece as a peer names it.
    #[must_use]
    pub fn far(&self, at: usize, len: usize) -> RmrTriplet {
        self.lmr.remote(at as u64, len as u32)
    }
}

/// Asserts a refusal with exactly this code: class, type and subtype.
#[track_caller]
pub fn refused<T: std::fmt::Debug, E: Into<DatReturn>>(
    result: Result<T, E>,
    ty: DatType,
    subtype: DatSubtype,
) {
    let ret: DatReturn = match result {
        Ok(value) => panic!("expected {ty:?}/{subtype:?}, got {value:?}"),
        Err(error) => error.into(),
    };
    let word = 1 << 31 | u32::from(ty.number()) << 16 | u32::from(subtype.number());
    assert_eq!((ret.ty(), ret.subtype(), ret.raw()), (ty, subtype, word), "{ret}");
}

impl<S: Side> Adapters<'_, S> {
    // ---- objects ----

    /// A zone, three Event Dispatchers and an Endpoint on them with the attributes that the adapter
    /// suggests.
    #[track_caller]
    pub fn end(&mut self, side: usize) -> End {
        self.end_with(side, false, |_| {})
    }

    /// The same with one Event Dispatcher for everything.
    #[track_caller]
    pub fn merged_end(&mut self, side: usize) -> End {
        self.end_with(side, true, |_| {})
    }

    /// The same with other attributes.
    #[track_caller]
    pub fn end_with(&mut self, side: usize, merged: bool, tweak: impl FnOnce(&mut EpAttr)) -> End {
        let ia = &mut self[side].ia;
        let dto = EvdFlags::DTO | EvdFlags::RMR_BIND;
        let pz = ia.pz_create().unwrap();
        let [recv, request, conn] = if merged {
            [ia.evd_create(64, dto | EvdFlags::CONNECTION).unwrap(); 3]
        } else {
            [(64, dto), (64, dto), (8, EvdFlags::CONNECTION)]
                .map(|(qlen, flags)| ia.evd_create(qlen, flags).unwrap())
        };
        let mut attr = ia.ep_attr_default();
        tweak(&mut attr);
        let ep = ia.ep_create(Some(pz), Some(recv), Some(request), Some(conn), Some(&attr));
        End { side, pz, recv, request, conn, ep: ep.unwrap() }
    }

    /// A public service point that leaves the Endpoint to the consumer, on a qualifier of its own.
    #[track_caller]
    pub fn listen(&mut self, side: usize) -> Point {
        let qualifier = self.free_qualifier();
        let ia = &mut self[side].ia;
        let evd = ia.evd_create(8, EvdFlags::CR).unwrap();
        let psp = ia.psp_create(qualifier, evd, PspFlag::Consumer).unwrap();
        Point { side, psp, evd, qualifier }
    }

    /// A qualifier that nobody listens on, and that is not given again.
    pub fn free_qualifier(&mut self) -> u64 {
        self.qualifier += 1;
        self.qualifier
    }

    // ---- connections ----

    /// `end` asks the other side for a connection.
    #[track_caller]
    pub fn ask(&mut self, end: &End, qualifier: u64, timeout: Duration, private: &[u8]) {
        let (now, to) = (self.now(), self[1 - end.side].address());
        let qos = Qos::BestEffort;
        self[end.side].ep_connect(now, end.ep, to, qualifier, timeout, private, qos).unwrap();
    }

    /// The next request that arrives at a service point.
    #[track_caller]
    pub fn request(&mut self, point: &Point) -> Cr {
        match self.event(point.side, point.evd) {
            Event::ConnectionRequest { cr, conn_qual, .. } if conn_qual == point.qualifier => cr,
            other => panic!("expected a request at {point:?}, got {other:?}"),
        }
    }

    /// Connects `from` with `to`, which are on different sides. The service point in between is
    /// gone afterwards.
    #[track_caller]
    pub fn connect(&mut self, from: &End, to: &End) {
        let point = self.listen(to.side);
        self.ask(from, point.qualifier, LIMIT, b"");
        let cr = self.request(&point);
        let now = self.now();
        self[to.side].cr_accept(now, cr, Some(to.ep), b"").unwrap();
        for end in [from, to] {
            assert_eq!(self.event(end.side, end.conn), Event::Established(end.ep));
            assert_eq!(self.state(end), EpState::Connected);
        }
        self[point.side].psp_free(point.psp).unwrap();
        self[point.side].evd_free(point.evd).unwrap();
    }

    /// Two Endpoints, connected.
    #[track_caller]
    pub fn connected(&mut self) -> [End; 2] {
        let ends = [self.end(A), self.end(B)];
        self.connect(&ends[A], &ends[B]);
        ends
    }

    /// Two connected Endpoints of which each has one Event Dispatcher for everything.
    #[track_caller]
    pub fn merged(&mut self) -> [End; 2] {
        let ends = [self.merged_end(A), self.merged_end(B)];
        self.connect(&ends[A], &ends[B]);
        ends
    }

    /// Ends the connection from one side.
    #[track_caller]
    pub fn disconnect(&mut self, end: &End, flag: CloseFlag) {
        let now = self.now();
        self[end.side].ep_disconnect(now, end.ep, flag).unwrap();
    }

    /// The state of an Endpoint.
    #[must_use]
    #[track_caller]
    pub fn state(&self, end: &End) -> EpState {
        self[end.side].ep_query(end.ep).unwrap().state
    }

    // ---- memory ----

    /// New memory, registered in a zone.
    #[track_caller]
    pub fn mem(&mut self, side: usize, pz: Pz, len: usize, rights: MemPriv) -> Mem {
        let party = &mut self[side];
        let region = party.side.memory(len);
        let lmr = party.ia.lmr_create(pz, region, rights).unwrap();
        Mem { side, lmr }
    }

    /// Stores bytes into it.
    pub fn fill(&self, mem: &Mem, at: usize, bytes: &[u8]) {
        let addr = mem.lmr.region.addr + at as u64;
        self[mem.side].side.store(addr, bytes);
    }

    /// Returns bytes of it.
    #[must_use]
    pub fn bytes(&self, mem: &Mem, at: usize, len: usize) -> Vec<u8> {
        let addr = mem.lmr.region.addr + at as u64;
        self[mem.side].side.load(addr, len)
    }

    // ---- transfers ----

    /// Posts a receive into a piece of memory.
    #[track_caller]
    pub fn recv(&mut self, end: &End, mem: &Mem, at: usize, len: usize, cookie: u64) {
        self[end.side].ep_post_recv(end.ep, &[mem.seg(at, len)], cookie, NONE).unwrap();
    }

    /// Posts a send of a piece of memory.
    #[track_caller]
    pub fn send(&mut self, end: &End, mem: &Mem, at: usize, len: usize, cookie: u64) {
        self[end.side].ep_post_send(end.ep, &[mem.seg(at, len)], cookie, NONE).unwrap();
    }

    /// The next event, which has to be the completion of a DTO.
    #[track_caller]
    pub fn dto(&mut self, side: usize, evd: Evd) -> DtoEvent {
        match self.event(side, evd) {
            Event::Dto(dto) => dto,
            other => panic!("side {side}: expected the completion of a DTO, got {other:?}"),
        }
    }

    /// The next event, which has to be the success of that request or receive; its length.
    #[track_caller]
    pub fn done(&mut self, end: &End, operation: DtoOperation, cookie: u64) -> u32 {
        let evd = match operation {
            DtoOperation::Receive => end.recv,
            _ => end.request,
        };
        let dto = self.dto(end.side, evd);
        assert_eq!(
            (dto.ep, dto.operation, dto.cookie, dto.status),
            (end.ep, operation, cookie, DtoStatus::Success)
        );
        dto.len
    }
}
