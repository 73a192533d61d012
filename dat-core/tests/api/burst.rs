//! Lists of writes that wait or are refused within, bursts of events of two Endpoints, and sequences
//! that go round.

#![expect(clippy::wildcard_enum_match_arm, clippy::panic, clippy::unwrap_used, reason = "a test")]

use crate::pair::*;
use dat_core::*;

use DtoStatus::Success;

fn of(ty: DatType, subtype: DatSubtype) -> DatReturn {
    DatReturn::new(ty, subtype)
}

/// Writes of 8 bytes, the cookie counted from `first`.
fn writes(p: &Pair, first: u64, count: u64) -> Vec<Rdma> {
    (0..count)
        .map(|n| Rdma {
            cookie: first + n,
            local: p.a.seg(8 * n, 8),
            remote: p.b.far(512 + 8 * n, 8),
        })
        .collect()
}

/// The cookies of up to `most` successes.
fn burst(side: &mut Side, most: usize) -> Vec<u64> {
    let mut cookies = Vec::new();
    let each = |event| match event {
        Event::Dto(dto) => {
            assert_eq!((dto.status, dto.len), (Success, 8));
            cookies.push(dto.cookie);
        }
        other => panic!("{other:?}"),
    };
    let count = side.ia.evd_dequeue_each(side.request, most, each).unwrap();
    assert_eq!(count, cookies.len());
    cookies
}

#[test]
fn a_list_can_wait_for_the_doorbell_and_can_be_silent() {
    let mut p = Pair::connected();
    let list = writes(&p, 0, 4);
    let flags = CompletionFlags::DEFER;
    p.a.ia.ep_post_rdma_writes(p.a.ep, &list, flags).unwrap();
    assert_eq!(burst(&mut p.a, 9), []);
    p.a.ia.ep_ring(p.a.ep).unwrap();
    assert_eq!(burst(&mut p.a, 9), [0, 1, 2, 3]);
    let flags = CompletionFlags::SUPPRESS;
    p.a.ia.ep_post_rdma_writes(p.a.ep, &list, flags).unwrap();
    assert_eq!(burst(&mut p.a, 9), []);
    let list = writes(&p, 7, 1);
    p.a.ia.ep_post_rdma_writes(p.a.ep, &list, FLAGS).unwrap();
    assert_eq!(burst(&mut p.a, 9), [7]);
}

#[test]
fn sequences_go_round() {
    let mut p = Pair::connected();
    for cookie in 0..70_000 {
        p.b.post_recv(cookie).unwrap();
        p.a.send(cookie, if cookie % 3 == 0 { FLAGS } else { SUPPRESS }).unwrap();
        assert_eq!(p.b.dtos(p.b.recv), [(cookie, Success)]);
        let expected: &[_] = if cookie % 3 == 0 { &[(cookie, Success)] } else { &[] };
        assert_eq!(p.a.dtos(p.a.request), expected);
    }
}

#[test]
fn a_refusal_ends_a_list_and_what_was_before_it_is_posted() {
    let mut p = Pair::connected();
    let good = writes(&p, 0, 5);
    let range = of(DatType::InvalidParameter, DatSubtype::InvalidArg3);
    let unknown = of(DatType::PrivilegesViolation, DatSubtype::PrivilegesRdmaWrite);
    let length = DatReturn::of(DatType::LengthError);
    type Spoil = (fn(&mut Rdma), DatReturn);
    let spoil: [Spoil; 4] = [
        (|write| write.local.addr = 1, range),
        (|write| write.local.context = 77, unknown),
        (|write| write.local.context ^= 1, unknown),
        (|write| write.remote.len = 7, length),
    ];
    for (spoil, ret) in spoil {
        for posted in 0..5 {
            let mut list = good.clone();
            spoil(&mut list[posted]);
            let refused = p.a.ia.ep_post_rdma_writes(p.a.ep, &list, FLAGS);
            assert_eq!(refused, Err(Refused { posted, ret }));
            assert_eq!(burst(&mut p.a, 9), (0..posted as u64).collect::<Vec<_>>());
        }
    }
    let flags = CompletionFlags::from_bits_retain(1 << 20);
    let ret = of(DatType::InvalidParameter, DatSubtype::InvalidArg6);
    let refused = p.a.ia.ep_post_rdma_writes(p.a.ep, &good, flags);
    assert_eq!(refused, Err(Refused { posted: 0, ret }));
    // A list that fills the queue ends where the slots do.
    let list = writes(&p, 0, 40);
    let ret = of(DatType::InsufficientResources, DatSubtype::ResourceCredits);
    let refused = p.a.ia.ep_post_rdma_writes(p.a.ep, &list, FLAGS);
    assert_eq!(refused, Err(Refused { posted: 32, ret }));
    assert_eq!(burst(&mut p.a, 99), (0..32).collect::<Vec<_>>());
}

/// Two Endpoints whose requests and receives share one Event Dispatcher complete in a random order:
/// bursts of any length give what was posted, each with its own Endpoint, in the order of
/// completion. A request that fails, and those flushed behind it, come in their places.
#[test]
fn bursts_of_two_endpoints_are_in_order_and_each_has_its_own() {
    let mut p = Pair::connected_as(Merge::RecvRequest, None);
    let firsts = [p.a.ep, p.b.ep];
    for side in [&mut p.a, &mut p.b] {
        let (evd, conn) = (Some(side.recv), Some(side.conn));
        let ep = side.ia.ep_create(Some(side.pz), evd, evd, conn, None);
        side.ep = ep.unwrap();
    }
    p.connect();
    let eps = [[firsts[0], p.a.ep], [firsts[1], p.b.ep]];
    let (evd, mut dice) = (p.a.request, 1_u32);
    let mut roll = |sides: u32| {
        dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (dice >> 16) % sides
    };
    let mut due = std::collections::VecDeque::new();
    let mut cookie = 0;
    for round in 0..400 {
        // Each completes at once, so the order of posting is that of completion.
        for _ in 0..roll(9) {
            cookie += 1;
            let which = roll(2) as usize;
            let (ep, peer) = (eps[0][which], eps[1][which]);
            let [here, there] = [p.a.seg(0, 8), p.b.seg(64, 8)];
            match roll(6) {
                0 => {
                    // A message of the peer.
                    p.a.ia.ep_post_recv(ep, &[here], cookie, FLAGS).unwrap();
                    let silent = CompletionFlags::SUPPRESS;
                    p.b.ia.ep_post_send(peer, &[there], 0, silent).unwrap();
                    due.push_back((ep, cookie, DtoOperation::Receive));
                }
                silent @ (1 | 2) => {
                    let flags = if silent == 1 { CompletionFlags::SUPPRESS } else { FLAGS };
                    let far = p.b.far(128, 8);
                    p.a.ia.ep_post_rdma_read(ep, &[here], cookie, &far, flags).unwrap();
                    if flags == FLAGS {
                        due.push_back((ep, cookie, DtoOperation::RdmaRead));
                    }
                }
                _ => {
                    let far = p.b.far(512, 8);
                    p.a.ia.ep_post_rdma_write(ep, &[here], cookie, &far, FLAGS).unwrap();
                    due.push_back((ep, cookie, DtoOperation::RdmaWrite));
                }
            }
        }
        // The last round takes everything.
        while due.len() > 8 || round == 399 && !due.is_empty() {
            let most = 1 + roll(9) as usize;
            let before = due.len();
            let each = |event| match event {
                Event::Dto(dto) => {
                    assert_eq!((dto.status, dto.len), (Success, 8));
                    let next = due.pop_front();
                    assert_eq!(next, Some((dto.ep, dto.cookie, dto.operation)));
                }
                other => panic!("{other:?}"),
            };
            let count = p.a.ia.evd_dequeue_each(evd, most, each).unwrap();
            assert_eq!(count, most.min(before));
            assert_eq!(before - due.len(), count);
        }
        let silent = p.b.drain(p.b.request);
        assert_eq!(silent, []);
    }

    // In the middle of a burst one fails.
    let mut far = p.b.far(512, 8);
    let seg = p.a.seg(0, 8);
    let bad = far.context ^ 1;
    let mut expected = Vec::new();
    p.fabric.hold(true);
    for (cookie, which) in [(1, 0), (2, 0), (3, 1), (4, 0), (5, 0), (6, 1)] {
        far.context = if cookie == 4 { bad } else { p.b.far(512, 8).context };
        let ep = eps[0][which];
        p.a.ia.ep_post_rdma_write(ep, &[seg], cookie, &far, FLAGS).unwrap();
        let status = match cookie {
            4 => DtoStatus::ErrRemoteAccess,
            5 => DtoStatus::ErrFlushed,
            _ => Success,
        };
        expected.push((ep, cookie, status));
    }
    p.fabric.hold(false);
    p.run_until_idle();
    let mut seen = Vec::new();
    let each = |event| {
        if let Event::Dto(dto) = event {
            seen.push((dto.ep, dto.cookie, dto.status));
        }
    };
    p.a.ia.evd_dequeue_each(evd, 99, each).unwrap();
    for ep in eps[0] {
        let of = |all: &[(Ep, u64, DtoStatus)]| -> Vec<_> {
            all.iter().copied().filter(|(of, ..)| *of == ep).collect()
        };
        assert_eq!(of(&seen), of(&expected));
    }
    assert_eq!(seen.len(), 6);
}

/// Receives of 8 bytes, the cookie counted from `first`.
fn receives(side: &Side, first: u64, count: u64) -> Vec<Message> {
    (0..count).map(|n| Message { cookie: first + n, local: side.seg(8 * n, 8) }).collect()
}

#[test]
fn a_list_of_receives_is_filled_in_order_and_a_refusal_ends_it() {
    let mut p = Pair::connected();
    let good = receives(&p.b, 0, 5);
    p.b.ia.ep_post_recvs(p.b.ep, &good, FLAGS).unwrap();
    for cookie in 0..5 {
        p.a.send(cookie, FLAGS).unwrap();
    }
    assert_eq!(p.b.dtos(p.b.recv), [0, 1, 2, 3, 4].map(|cookie| (cookie, Success)));
    let range = of(DatType::InvalidParameter, DatSubtype::InvalidArg3);
    let unknown = of(DatType::PrivilegesViolation, DatSubtype::PrivilegesWrite);
    type Spoil = (fn(&mut Message), DatReturn);
    let spoil: [Spoil; 2] =
        [(|recv| recv.local.addr = 1, range), (|recv| recv.local.context ^= 1, unknown)];
    for (spoil, ret) in spoil {
        for posted in 0..5 {
            let mut list = good.clone();
            spoil(&mut list[posted]);
            let refused = p.b.ia.ep_post_recvs(p.b.ep, &list, FLAGS);
            assert_eq!(refused, Err(Refused { posted, ret }));
            for cookie in 0..posted as u64 {
                p.a.send(cookie, FLAGS).unwrap();
            }
            let expected: Vec<_> = (0..posted as u64).map(|cookie| (cookie, Success)).collect();
            assert_eq!(p.b.dtos(p.b.recv), expected);
        }
    }
    // A list that fills the queue ends where the slots do; in the state that flushes, all come back.
    let list = receives(&p.b, 100, 40);
    let ret = of(DatType::InsufficientResources, DatSubtype::ResourceCredits);
    let refused = p.b.ia.ep_post_recvs(p.b.ep, &list, FLAGS);
    assert_eq!(refused, Err(Refused { posted: 32, ret }));
}

/// A receive that is dequeued in a burst has its slot back: its event may post it anew.
#[test]
fn a_burst_gives_each_receive_back_before_its_event() {
    let mut p = Pair::connected();
    let full = receives(&p.b, 0, 32);
    p.b.ia.ep_post_recvs(p.b.ep, &full, FLAGS).unwrap();
    let mut poster = p.b.ia.ep_take_poster(p.b.ep).unwrap();
    let mut reaper = p.b.ia.evd_take_reaper(p.b.recv).unwrap();
    for round in 0..5 {
        for cookie in 0..32 {
            p.a.send(cookie, FLAGS).unwrap();
        }
        let mut seen = Vec::new();
        let count = reaper.dequeue_each(99, |event| {
            let Event::Dto(dto) = event else { panic!("{event:?}") };
            seen.push(dto.cookie);
            let again = p.b.seg(8 * (dto.cookie % 32), 8);
            poster.post_recv(&[again], dto.cookie + 32, FLAGS).unwrap();
        });
        assert_eq!(count, 32);
        assert_eq!(seen, (32 * round..32 * round + 32).collect::<Vec<_>>());
        assert_eq!(p.a.dtos(p.a.request).len(), 32);
    }
    p.b.ia.evd_return_reaper(reaper).unwrap();
    p.b.ia.ep_return_poster(poster).unwrap();
}

/// Lists of suppressed writes come without events; a row of them is at most half of the queue, and
/// its end completes without one too, so that the slots come back.
#[test]
fn lists_of_suppressed_writes_go_on_without_an_event() {
    let mut p = Pair::connected();
    for round in 0..20 {
        for count in [1, 15, 16, 9, 2] {
            let list = writes(&p, 0, count);
            p.a.ia.ep_post_rdma_writes(p.a.ep, &list, CompletionFlags::SUPPRESS).unwrap();
            assert_eq!(burst(&mut p.a, 9), [], "{round} {count}");
        }
        p.a.ia.ep_post_rdma_writes(p.a.ep, &writes(&p, 7, 3), FLAGS).unwrap();
        assert_eq!(burst(&mut p.a, 9), [7, 8, 9]);
    }
}

/// A burst into a list of events ends where the list does, and behind an event that brings more
/// than a plain completion.
#[test]
fn a_burst_into_a_list_keeps_what_its_last_event_brings_besides() {
    let mut p = Pair::connected();
    let list = writes(&p, 0, 6);
    p.a.ia.ep_post_rdma_writes(p.a.ep, &list, FLAGS).unwrap();
    let mut events = [Event::Software(0); 4];
    let cookies = |events: &[Event]| -> Vec<u64> {
        let cookie = |event: &Event| match event {
            Event::Dto(dto) => dto.cookie,
            other => panic!("{other:?}"),
        };
        events.iter().map(cookie).collect()
    };
    assert_eq!(p.a.ia.evd_dequeue_into(p.a.request, &mut []), Ok(0));
    assert_eq!(p.a.ia.evd_dequeue_into(p.a.request, &mut events), Ok(4));
    assert_eq!(cookies(&events), [0, 1, 2, 3]);
    assert_eq!(p.a.ia.evd_dequeue_into(p.a.request, &mut events), Ok(2));
    assert_eq!(cookies(&events[..2]), [4, 5]);
    assert_eq!(p.a.ia.evd_dequeue_into(p.a.request, &mut events), Ok(0));

    let all = receives(&p.b, 0, 4);
    p.b.ia.ep_post_recvs(p.b.ep, &all, FLAGS).unwrap();
    p.a.send(0, FLAGS).unwrap();
    for (cookie, immediate) in [(1, 17), (2, 18)] {
        let (local, far) = ([p.a.seg(0, 8)], p.b.far(512, 8));
        p.a.ia.ep_post_rdma_write_immed(p.a.ep, &local, cookie, &far, immediate, FLAGS).unwrap();
    }
    p.a.send(3, FLAGS).unwrap();
    let mut reaper = p.b.ia.evd_take_reaper(p.b.recv).unwrap();
    assert_eq!(reaper.dequeue_into(&mut events), 2);
    assert!(matches!(events[..2], [Event::Dto(_), Event::IbDto(_)]), "{events:?}");
    assert_eq!(reaper.extension().immediate, 17);
    assert_eq!(reaper.dequeue_into(&mut events), 1);
    assert_eq!(reaper.extension().immediate, 18);
    assert_eq!(reaper.dequeue_into(&mut events), 1);
    assert_eq!(cookies(&events[..1]), [3]);
    p.b.ia.evd_return_reaper(reaper).unwrap();
}
