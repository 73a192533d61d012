//! dat_rmr_free(3): the window is closed when the call returns, whatever became of its bind.

use dat_core::{
    CloseFlag, CompletionFlags, DatSubtype as Sub, DatType as Ty, DtoOperation, DtoStatus, EpState,
    Event, Lmr, LmrTriplet, MemPriv, PhysicalPages, Rmr, RmrTriplet, VaType,
};

use crate::conformance::evd::MOMENT;
use crate::conformance::reach::{Try, pattern};
use crate::conformance::{A, Adapters, B, End, Mem, NONE, Side, refused};

const SUPPRESS: CompletionFlags = CompletionFlags::SUPPRESS;

/// Two connected Endpoints, memory of both, and a window of side B over a registration of its own.
struct Windowed {
    ends: [End; 2],
    mems: [Mem; 2],
    lmr: Lmr,
    rmr: Rmr,
    range: LmrTriplet,
}

impl Windowed {
    fn new(ias: &mut Adapters<'_, impl Side>, own: bool) -> Self {
        let (ends, mems) = ias.armed();
        Self::on(ias, ends, mems, own)
    }

    fn on(ias: &mut Adapters<'_, impl Side>, ends: [End; 2], mems: [Mem; 2], own: bool) -> Self {
        let pz = ends[B].pz;
        let rmr =
            if own { ias.b.rmr_create_for_ep(pz).unwrap() } else { ias.b.rmr_create(pz).unwrap() };
        let region = mems[B].lmr.region;
        let lmr = ias.b.lmr_create(pz, region, MemPriv::ALL).unwrap();
        let range = LmrTriplet { context: lmr.lmr_context, ..mems[B].seg(0, 64) };
        Self { ends, mems, lmr: lmr.lmr, rmr, range }
    }

    /// Another Endpoint of the window's zone, connected with a peer of its own, and the Endpoint
    /// whose Event Dispatchers it has.
    fn another(&self, ias: &mut Adapters<'_, impl Side>) -> (End, [End; 2]) {
        let (spare, far) = (ias.end(B), ias.end(A));
        let pz = self.ends[B].pz;
        let ep = ias.b.ep_create(
            Some(pz),
            Some(spare.recv),
            Some(spare.request),
            Some(spare.conn),
            None,
        );
        let near = End { pz, ep: ep.unwrap(), ..spare };
        ias.connect(&far, &near);
        (spare, [far, near])
    }

    /// Posts the bind; what peers name the range by.
    fn bind(
        &self,
        ias: &mut Adapters<'_, impl Side>,
        cookie: u64,
        flags: CompletionFlags,
    ) -> RmrTriplet {
        let (ep, rights) = (self.ends[B].ep, MemPriv::REMOTE);
        let bound = ias.b.rmr_bind(self.rmr, &self.range, rights, ep, cookie, flags);
        RmrTriplet { addr: self.range.addr, len: 64, context: bound.unwrap() }
    }

    /// The device has carried the bind out when a message that was sent behind it has arrived.
    /// Nothing is dequeued at side B.
    fn carried_out(&self, ias: &mut Adapters<'_, impl Side>) {
        ias.recv(&self.ends[A], &self.mems[A], 0, 64, 3);
        ias.send(&self.ends[B], &self.mems[B], 0, 8, 4);
        ias.done(&self.ends[A], DtoOperation::Receive, 3);
        ias.pass(MOMENT);
    }

    /// Frees the window, and at once the registration beneath it.
    #[track_caller]
    fn free(&self, ias: &mut Adapters<'_, impl Side>) {
        self.free_window(ias);
        ias.b.lmr_free(self.lmr).unwrap();
    }

    /// Frees the window. The handle is dead.
    #[track_caller]
    fn free_window(&self, ias: &mut Adapters<'_, impl Side>) {
        ias.b.rmr_free(self.rmr).unwrap();
        for freed in [ias.b.rmr_free(self.rmr), ias.b.rmr_query(self.rmr).map(|_| ())] {
            refused(freed, Ty::InvalidHandle, Sub::InvalidHandleRmr);
        }
    }

    /// A write of the peer is refused with a protection violation, changes nothing, and breaks the
    /// connection.
    #[track_caller]
    fn closed_to(
        &self,
        ias: &mut Adapters<'_, impl Side>,
        from: &End,
        local: LmrTriplet,
        far: RmrTriplet,
    ) {
        assert_eq!(ias.state(from), EpState::Connected);
        let status = ias.reach(from, Try::Write, local, far);
        assert_eq!(status, DtoStatus::ErrRemoteAccess);
        ias.broken(from.side, from.conn, from.ep);
        let there = ias.bytes(&self.mems[B], 0, 64);
        assert_eq!(there, pattern(B, 8192)[..64]);
    }

    #[track_caller]
    fn closed(&self, ias: &mut Adapters<'_, impl Side>, far: RmrTriplet) {
        let local = self.mems[A].seg(64, 64);
        self.closed_to(ias, &self.ends[A], local, far);
    }

    /// The next event of side B's requests is the completion of the bind; how it ended.
    #[track_caller]
    fn completion(&self, ias: &mut Adapters<'_, impl Side>, of: u64) -> DtoStatus {
        self.completion_at(ias, &self.ends[B], of)
    }

    /// The same, of another Endpoint's requests.
    #[track_caller]
    fn completion_at(&self, ias: &mut Adapters<'_, impl Side>, at: &End, of: u64) -> DtoStatus {
        match ias.event(B, at.request) {
            Event::RmrBind { rmr, cookie, status } if (rmr, cookie) == (self.rmr, of) => status,
            other => panic!("expected the completion of bind {of}, got {other:?}"),
        }
    }
}

/// The bind has completed, and its completion was not dequeued.
pub fn free_closes_a_window_whose_bind_is_undequeued(ias: &mut Adapters<'_, impl Side>) {
    for own in [false, true] {
        let setup = Windowed::new(ias, own);
        let far = setup.bind(ias, 1, NONE);
        setup.carried_out(ias);
        setup.free_window(ias);
        setup.closed(ias, far);
        ias.b.lmr_free(setup.lmr).unwrap();
        assert_eq!(setup.completion(ias, 1), DtoStatus::Success);
        ias.done(&setup.ends[B], DtoOperation::Send, 4);
    }
}

/// The bind was posted with its completion suppressed: there is none, before the call and after it.
pub fn free_closes_a_window_whose_bind_was_suppressed(ias: &mut Adapters<'_, impl Side>) {
    for own in [false, true] {
        let setup = Windowed::new(ias, own);
        let far = setup.bind(ias, 1, SUPPRESS);
        setup.carried_out(ias);
        setup.free_window(ias);
        setup.closed(ias, far);
        ias.b.lmr_free(setup.lmr).unwrap();
        ias.done(&setup.ends[B], DtoOperation::Send, 4);
        ias.expect_no_event(MOMENT, &[(B, setup.ends[B].request)]);
    }
}

/// The bind was posted a moment ago: it ends as any request does, and opens nothing.
pub fn free_closes_a_window_whose_bind_is_in_flight(ias: &mut Adapters<'_, impl Side>) {
    for (own, flags) in [(false, NONE), (true, NONE), (false, SUPPRESS)] {
        let setup = Windowed::new(ias, own);
        let far = setup.bind(ias, 1, flags);
        setup.free(ias);
        ias.pass(MOMENT);
        // Nothing keeps the bind from being carried out, so it is waited for.
        assert_eq!(ias.state(&setup.ends[B]), EpState::Connected);
        setup.closed(ias, far);
        if flags == NONE {
            assert_eq!(setup.completion(ias, 1), DtoStatus::Success);
        }
        ias.expect_no_event(MOMENT, &[(B, setup.ends[B].request)]);
    }
}

/// The bind cannot complete, because a send before it waits for the peer's receive.
pub fn free_closes_a_window_whose_bind_cannot_complete(ias: &mut Adapters<'_, impl Side>) {
    for own in [false, true] {
        let setup = Windowed::new(ias, own);
        let here = &setup.ends[B];
        ias.send(here, &setup.mems[B], 0, 8, 9);
        setup.bind(ias, 1, NONE);
        ias.pass(MOMENT);
        setup.free(ias);
        ias.pass(MOMENT);
        ias.broken(B, here.conn, here.ep);
        let bytes = ias.bytes(&setup.mems[B], 0, 64);
        assert_eq!(bytes, pattern(B, 8192)[..64]);
        // Both completions come, in order.
        let dto = ias.dto(B, here.request);
        assert_eq!((dto.cookie, dto.status), (9, DtoStatus::ErrFlushed));
        assert_eq!(setup.completion(ias, 1), DtoStatus::ErrFlushed);
    }
}

/// Two Endpoints have a bind of the window under way, and neither can complete: both connections
/// are broken. A third without a bind of it stays connected.
pub fn free_breaks_each_connection_whose_bind_cannot_complete(ias: &mut Adapters<'_, impl Side>) {
    let setup = Windowed::new(ias, false);
    let mut pairs = vec![setup.ends];
    for _ in 0..2 {
        let (_, ends) = setup.another(ias);
        pairs.push(ends);
    }
    for [_, here] in &pairs {
        ias.send(here, &setup.mems[B], 0, 8, 9);
    }
    ias.pass(MOMENT);
    for [_, here] in &pairs[..2] {
        let bound = ias.b.rmr_bind(setup.rmr, &setup.range, MemPriv::REMOTE, here.ep, 1, NONE);
        bound.unwrap();
    }
    setup.free(ias);
    for [_, here] in &pairs[..2] {
        ias.broken(B, here.conn, here.ep);
        assert_eq!(ias.dto(B, here.request).status, DtoStatus::ErrFlushed);
        assert_eq!(setup.completion_at(ias, here, 1), DtoStatus::ErrFlushed);
    }
    assert_eq!(ias.state(&pairs[2][B]), EpState::Connected);
}

/// The bind was flushed, in DISCONNECTED or when the connection ended, and its completion was not
/// dequeued.
pub fn free_of_a_window_whose_bind_was_flushed(ias: &mut Adapters<'_, impl Side>) {
    for own in [false, true] {
        for before in [false, true] {
            let setup = Windowed::new(ias, own);
            let here = &setup.ends[B];
            ias.send(here, &setup.mems[B], 0, 8, 9);
            if before {
                setup.bind(ias, 1, NONE);
            }
            ias.disconnect(here, CloseFlag::Abrupt);
            assert_eq!(ias.event(B, here.conn), Event::Disconnected(here.ep));
            if !before {
                setup.bind(ias, 1, NONE);
            }
            setup.free(ias);
            assert_eq!(ias.dto(B, here.request).status, DtoStatus::ErrFlushed);
            let status = setup.completion(ias, 1);
            assert_eq!(status, DtoStatus::ErrFlushed);
            ias.event(A, setup.ends[A].conn);
            let now = ias.now();
            for end in setup.ends {
                ias[end.side].ep_free(now, end.ep).unwrap();
                for evd in [end.recv, end.request, end.conn] {
                    ias[end.side].evd_free(evd).unwrap();
                }
            }
        }
    }
}

/// The bind failed, and its completion was not dequeued: it still tells the failure, and the window
/// can be freed.
pub fn free_of_a_window_whose_bind_failed(ias: &mut Adapters<'_, impl Side>) {
    ias.refusing = true;
    let ends = ias.connected();
    let end = ends[B];
    // A registration that the device does not have yet: a bind over it is posted, and fails there.
    let lmr = ias.b.lmr_allocate(end.pz, 1).unwrap();
    let mem = ias.mem(B, end.pz, 4096, MemPriv::ALL);
    let pages = ias.b.side.pages(mem.lmr.region);
    let memory = PhysicalPages { pages: &pages, log_page: 12, len: 4096 };
    let (other, defer) = (ias.end(B), CompletionFlags::DEFER);
    let later = ias.b.ep_create(
        Some(end.pz),
        Some(other.recv),
        Some(other.request),
        Some(other.conn),
        None,
    );
    let later = End { pz: end.pz, ep: later.unwrap(), ..other };
    let far = ias.end(A);
    ias.connect(&far, &later);
    let contexts = ias.b.lmr_fmr(lmr, memory, MemPriv::ALL, VaType::Zb, later.ep, 1, defer);
    let range = LmrTriplet { addr: 0, len: 64, context: contexts.unwrap().lmr_context };
    let rmr = ias.b.rmr_create(end.pz).unwrap();
    let bound = ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE, end.ep, 5, NONE);
    bound.unwrap();
    ias.pass(MOMENT);
    ias.b.rmr_free(rmr).unwrap();
    let event = ias.event(B, end.request);
    let (cookie, status) = (5, DtoStatus::RmrOperationFailed);
    let failed = Event::RmrBind { rmr, cookie, status };
    assert_eq!(event, failed);
    ias.broken(B, end.conn, end.ep);
    let again = ias.b.rmr_free(rmr);
    refused(again, Ty::InvalidHandle, Sub::InvalidHandleRmr);
}

/// The Endpoint that the window was bound on is broken, reset or freed, with the completion of the
/// bind undequeued: peers of other Endpoints of the zone find it closed.
pub fn free_closes_a_window_whose_endpoint_is_gone(ias: &mut Adapters<'_, impl Side>) {
    for way in 0..3 {
        let setup = Windowed::new(ias, false);
        let (spare, [far, other]) = setup.another(ias);
        let window = setup.bind(ias, 1, NONE);
        setup.carried_out(ias);
        let here = &setup.ends[B];
        ias.disconnect(&setup.ends[A], CloseFlag::Abrupt);
        assert_eq!(ias.event(B, here.conn), Event::Disconnected(here.ep));
        ias.event(A, setup.ends[A].conn);
        let now = ias.now();
        match way {
            0 => {}
            1 => ias.b.ep_reset(here.ep).unwrap(),
            _ => ias.b.ep_free(now, here.ep).unwrap(),
        }
        // The memory of the first Endpoint is registered once more: three times fresh memory is
        // more than a loop port has.
        let region = setup.mems[A].lmr.region;
        let source = Mem { side: A, lmr: ias.a.lmr_create(far.pz, region, MemPriv::ALL).unwrap() };
        let read = ias.reach(&far, Try::Read, source.seg(0, 64), window);
        assert_eq!(read, DtoStatus::Success, "it outlives the connection");
        setup.free(ias);
        setup.closed_to(ias, &far, source.seg(0, 64), window);
        if way == 0 {
            assert_eq!(setup.completion(ias, 1), DtoStatus::Success);
        }
        ias.a.lmr_free(source.lmr.lmr).unwrap();
        let now = ias.now();
        let ends = [setup.ends[A], far, other, spare];
        for end in &ends {
            ias[end.side].ep_free(now, end.ep).unwrap();
        }
        if way < 2 {
            ias.b.ep_free(now, here.ep).unwrap();
        }
        for end in [setup.ends[A], *here, far, spare] {
            for evd in [end.recv, end.request, end.conn] {
                ias[end.side].evd_free(evd).unwrap();
            }
        }
    }
}

/// Nothing of the window is left when the call returns: its zone can be freed, with the completion
/// of the bind undequeued.
pub fn free_releases_the_zone_at_once(ias: &mut Adapters<'_, impl Side>) {
    for flags in [NONE, SUPPRESS] {
        let setup = Windowed::new(ias, false);
        setup.bind(ias, 1, flags);
        setup.carried_out(ias);
        setup.free(ias);
        ias.b.lmr_free(setup.mems[B].lmr.lmr).unwrap();
        let (now, here) = (ias.now(), &setup.ends[B]);
        let used = ias.b.pz_free(here.pz);
        refused(used, Ty::InvalidState, Sub::InvalidStatePzInUse);
        ias.b.ep_free(now, here.ep).unwrap();
        ias.b.pz_free(here.pz).unwrap();
        ias.event(A, setup.ends[A].conn);
    }
}

/// New windows are made while completions of freed ones lie undequeued: each completion has the
/// handle of its own window, and closes and opens nothing of another.
pub fn completions_of_freed_windows_are_their_own(ias: &mut Adapters<'_, impl Side>) {
    let setup = Windowed::new(ias, false);
    let first = setup.bind(ias, 1, NONE);
    setup.carried_out(ias);
    setup.free(ias);
    let next = Windowed::on(ias, setup.ends, setup.mems, false);
    assert_ne!(next.rmr, setup.rmr);
    assert_eq!(ias.b.rmr_query(next.rmr).unwrap().bound, None);
    let second = next.bind(ias, 2, NONE);
    assert_ne!(first.context, second.context);
    next.carried_out(ias);
    assert_eq!(setup.completion(ias, 1), DtoStatus::Success);
    ias.done(&setup.ends[B], DtoOperation::Send, 4);
    assert_eq!(next.completion(ias, 2), DtoStatus::Success);
    assert_eq!(ias.b.rmr_query(next.rmr).unwrap().bound, Some(next.range));
    let read = ias.reach(&setup.ends[A], Try::Read, setup.mems[A].seg(64, 64), second);
    assert_eq!(read, DtoStatus::Success);
    let fresh: Vec<u8> = ias.bytes(&setup.mems[B], 0, 64);
    assert_eq!(ias.bytes(&setup.mems[A], 64, 64), fresh);
    next.closed(ias, first);
    next.free(ias);
}
