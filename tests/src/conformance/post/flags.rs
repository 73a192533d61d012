//! The completion flags.

use std::time::Duration;

use dat_core::{
    CompletionFlags, DatSubtype, DatType, DtoOperation, DtoStatus, EpModify, EvdFlags, Event,
    MemPriv, RmrTriplet,
};

use super::super::{A, Adapters, B, NONE, Side, refused};
use super::{Dto, crosses, idle, memory, rig};

const SUPPRESS: CompletionFlags = CompletionFlags::SUPPRESS;
const BAD: DatType = DatType::InvalidParameter;

/// A receive is never suppressed, and knows neither solicitation nor fences.
pub fn flags_that_are_not_for_receives_are_refused(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    for flag in [
        SUPPRESS,
        CompletionFlags::SOLICITED_WAIT,
        CompletionFlags::BARRIER_FENCE,
        CompletionFlags::EVD_THRESHOLD,
    ] {
        let ret = ias.a.ep_post_recv(ends[A].ep, &[mems[A].seg(0, 8)], 1, flag);
        refused(ret, BAD, DatSubtype::InvalidArg5);
    }
    idle(ias, &ends[A]);
    crosses(ias, &ends, &mems);
}

/// UNSIGNALLED is for Endpoints that were made with it, in that direction; elsewhere it is refused.
pub fn unsignalled_wants_the_endpoints_consent(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let flag = CompletionFlags::UNSIGNALLED;
    for (dto, place) in [
        (Dto::Send, DatSubtype::InvalidArg5),
        (Dto::Recv, DatSubtype::InvalidArg5),
        (Dto::Write, DatSubtype::InvalidArg6),
        (Dto::Read, DatSubtype::InvalidArg6),
    ] {
        let ret = dto.post(ias, &ends[A], &[mems[A].seg(0, 8)], 1, &mems[B].far(0, 8), flag);
        refused(ret, BAD, place);
    }
    idle(ias, &ends[A]);
    let consents = |attr: &mut dat_core::EpAttr| {
        attr.request_completion_flags = CompletionFlags::UNSIGNALLED;
        attr.recv_completion_flags = CompletionFlags::UNSIGNALLED;
    };
    let ends = [A, B].map(|side| ias.end_with(side, false, consents));
    ias.connect(&ends[A], &ends[B]);
    let mems = memory(ias, &ends);
    ias.b.ep_post_recv(ends[B].ep, &[mems[B].seg(0, 8)], 1, flag).unwrap();
    ias.a.ep_post_send(ends[A].ep, &[mems[A].seg(0, 8)], 2, flag).unwrap();
    // They are events like any other once somebody looks.
    assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 1), 8);
    assert_eq!(ias.done(&ends[A], DtoOperation::Send, 2), 8);
}

/// A suppressed request that succeeds has no event; the next one that is not suppressed has its
/// own, and tells of it.
pub fn suppressed_successes_are_silent(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    ias.fill(&mems[A], 0, b"silent");
    for (n, dto) in Dto::REQUESTS.into_iter().enumerate() {
        ias.recv(&ends[B], &mems[B], 64, 6, 1);
        let (here, far) = (mems[A].seg(16 * n, 6), mems[B].far(32 * n, 6));
        dto.post(ias, &ends[A], &[here], 7, &far, SUPPRESS).unwrap();
        ias.send(&ends[A], &mems[A], 0, 6, 8);
        if dto == Dto::Send {
            ias.recv(&ends[B], &mems[B], 64, 6, 2);
        }
        assert_eq!(ias.done(&ends[A], DtoOperation::Send, 8), 6);
        assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 1), 6);
        if dto == Dto::Send {
            assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 2), 6);
        }
        // Requests before the later completion have ended: nothing is outstanding.
        idle(ias, &ends[A]);
    }
    ias.expect_no_event(Duration::from_millis(20), &[(A, ends[A].request)]);
}

/// The failure of a suppressed request has an event.
pub fn a_suppressed_request_tells_of_its_failure(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let nowhere = RmrTriplet { context: mems[B].lmr.rmr_context ^ 0xff, ..mems[B].far(0, 8) };
    Dto::Write.post(ias, &ends[A], &[mems[A].seg(0, 8)], 3, &nowhere, SUPPRESS).unwrap();
    let dto = ias.dto(A, ends[A].request);
    assert_eq!(
        (dto.cookie, dto.status, dto.operation),
        (3, DtoStatus::ErrRemoteAccess, DtoOperation::RdmaWrite)
    );
    ias.broken(A, ends[A].conn, ends[A].ep);
}

/// Suppressed requests alone, many times the queue's length: their slots come back.
pub fn suppressed_requests_never_fill_the_queue_for_good(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let (here, far) = (mems[A].seg(0, 8), mems[B].far(0, 8));
    for n in 0..200 {
        ias.until(|ias| {
            // Looking is what gives slots back, and there is nothing to be seen.
            assert_eq!(ias.look(A, ends[A].request), None, "{n}");
            Dto::Write.post(ias, &ends[A], &[here], n, &far, SUPPRESS).ok()
        });
    }
    ias.until(|ias| {
        assert_eq!(ias.look(A, ends[A].request), None);
        let ret = ias.a.ep_post_rdma_write(ends[A].ep, &[here], 999, &far, NONE);
        ret.ok()
    });
    assert_eq!(ias.done(&ends[A], DtoOperation::RdmaWrite, 999), 8);
    idle(ias, &ends[A]);
}

/// Requests of the most segments as many as the queue was made for, again and again, suppressed or
/// not, while somebody asks for the status: none is refused, and none overwrites another.
pub fn a_queue_holds_as_many_of_the_widest_as_it_was_made_for(ias: &mut Adapters<'_, impl Side>) {
    const PIECE: usize = 8;
    let most = ias.a.query().0.max_iov_segments_per_dto;
    for (dtos, iov, binds) in [
        (8_u16, 4, false),
        (16, 1, false),
        (16, 2, false),
        (4, 7, false),
        (5, 10, false),
        (8, 4, true),
        (1, 4, false),
    ] {
        let iov = u8::try_from(most.min(iov)).unwrap();
        let flags = if binds { EvdFlags::DTO | EvdFlags::RMR_BIND } else { EvdFlags::DTO };
        let evd = ias.a.evd_create(64, flags).unwrap();
        let mut from = ias.end_with(A, false, |attr| {
            (attr.max_request_dtos, attr.max_request_iov) = (dtos, iov);
            (attr.max_rdma_write_iov, attr.max_rdma_read_iov) = (iov, iov);
        });
        let change = EpModify { request_evd: Some(evd), ..EpModify::default() };
        ias.a.ep_modify(from.ep, &change).unwrap();
        ias.a.evd_free(from.request).unwrap();
        from.request = evd;
        let ends = [from, ias.end(B)];
        ias.connect(&ends[A], &ends[B]);
        let mems = [A, B].map(|side| ias.mem(side, ends[side].pz, 512, MemPriv::ALL));
        let each = usize::from(iov) * PIECE;
        for round in 0..6_u8 {
            let bytes: Vec<u8> = (0..each * usize::from(dtos))
                .map(|i| (i * 31 + i / 256 + usize::from(round) * 97) as u8)
                .collect();
            ias.fill(&mems[A], 0, &bytes);
            for n in 0..dtos {
                let at = usize::from(n) * each;
                // In some rounds the suppressed ones have one segment, in others as many as can be.
                let pieces: Vec<_> = match (round % 3, n % 2) {
                    (0, 0) => vec![mems[A].seg(at, each)],
                    _ => (0..each).step_by(PIECE).map(|i| mems[A].seg(at + i, PIECE)).collect(),
                };
                let (last, deferred) = (n + 1 == dtos, round % 2 == 0);
                let mut flags = NONE;
                flags.set(SUPPRESS, !last && (round != 5 || n % 3 != 0));
                flags.set(CompletionFlags::DEFER, !last && deferred);
                let far = mems[B].far(at, each);
                Dto::Write.post(ias, &ends[A], &pieces, n.into(), &far, flags).unwrap();
                if n % 4 == 2 || n + 2 == dtos {
                    ias.a.ep_get_status(ends[A].ep).unwrap();
                }
            }
            let mut cookie = u64::MAX;
            while cookie != u64::from(dtos) - 1 {
                let dto = ias.dto(A, ends[A].request);
                assert_eq!(dto.status, DtoStatus::Success);
                cookie = dto.cookie;
            }
            let what = (dtos, iov, binds, round);
            assert_eq!(ias.bytes(&mems[B], 0, bytes.len()), bytes, "{what:?}");
            idle(ias, &ends[A]);
        }
        for (end, mem) in ends.iter().zip(mems) {
            let now = ias.now();
            let ia = &mut ias[end.side].ia;
            ia.ep_free(now, end.ep).unwrap();
            for evd in [end.recv, end.request, end.conn] {
                ia.evd_free(evd).unwrap();
            }
            ia.lmr_free(mem.lmr.lmr).unwrap();
            ia.pz_free(end.pz).unwrap();
        }
    }
}

/// A send behind a barrier starts when the reads before it have finished: it carries what they
/// brought.
pub fn a_fenced_send_follows_the_read(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    for n in 0..8_u8 {
        ias.fill(&mems[B], 0, &[n + 1; 2048]);
        ias.fill(&mems[A], 0, &[0xff; 2048]);
        ias.recv(&ends[B], &mems[B], 4096, 2048, 1);
        let (here, far) = (mems[A].seg(0, 2048), mems[B].far(0, 2048));
        ias.a.ep_post_rdma_read(ends[A].ep, &[here], 2, &far, NONE).unwrap();
        ias.a.ep_post_send(ends[A].ep, &[here], 3, CompletionFlags::BARRIER_FENCE).unwrap();
        assert_eq!(ias.done(&ends[A], DtoOperation::RdmaRead, 2), 2048);
        assert_eq!(ias.done(&ends[A], DtoOperation::Send, 3), 2048);
        assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 1), 2048);
        assert_eq!(ias.bytes(&mems[B], 4096, 2048), vec![n + 1; 2048]);
    }
}

/// DEFER leaves the doorbell to a later post, or to `ring`.
pub fn a_deferred_request_waits_for_the_bell(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let defer = CompletionFlags::DEFER;
    let (here, far) = (mems[A].seg(0, 8), mems[B].far(0, 8));
    for bell in [true, false] {
        for cookie in [1, 2] {
            ias.a.ep_post_rdma_write(ends[A].ep, &[here], cookie, &far, defer).unwrap();
        }
        ias.expect_no_event(Duration::from_millis(5), &[(A, ends[A].request)]);
        if bell {
            ias.a.ep_ring(ends[A].ep).unwrap();
        } else {
            ias.a.ep_post_rdma_write(ends[A].ep, &[here], 3, &far, NONE).unwrap();
        }
        for cookie in 1..=if bell { 2 } else { 3 } {
            assert_eq!(ias.done(&ends[A], DtoOperation::RdmaWrite, cookie), 8);
        }
    }
}

/// SUPPRESS means the same to a bind and to an unbind: no event of a success.
pub fn suppressed_binds_and_unbinds_are_silent_alike(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let rmr = ias.a.rmr_create(ends[A].pz).unwrap();
    for len in [64, 0, 128, 0] {
        let target = mems[A].seg(0, len);
        ias.a.rmr_bind(rmr, &target, MemPriv::REMOTE_WRITE, ends[A].ep, 1, SUPPRESS).unwrap();
        ias.expect_no_event(Duration::from_millis(5), &[(A, ends[A].request)]);
    }
    // The same without the flag tells.
    for len in [64, 0] {
        let target = mems[A].seg(0, len);
        ias.a.rmr_bind(rmr, &target, MemPriv::REMOTE_WRITE, ends[A].ep, 2, NONE).unwrap();
        let event = ias.event(A, ends[A].request);
        let status = DtoStatus::Success;
        assert_eq!(event, Event::RmrBind { rmr, cookie: 2, status });
    }
    crosses(ias, &ends, &mems);
}
