//! Memory at DAT level over the driver and the model: what a key opens, for which peer, how far and
//! how long.
//!
//! Length: one test per rule of memory, on one harness.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::time::Duration;

use dat_core::provider::Region;
use dat_core::{
    CompletionFlags, DatSubtype, DatType, DtoOperation, DtoStatus, Event, LmrTriplet, MemPriv, Rmr,
    RmrTriplet,
};
use dat_tests::host::chosen::firmware_grows;
use dat_tests::session::{NONE, Session, Setup, contents, far, seg};
use hca_mlx5::dma::Buffer;
use hca_mlx5::platform::Dma;

/// Posts a bind at side 1 and waits for it; returns the triplet that a peer uses.
#[track_caller]
fn bind(session: &mut Session<'_>, rmr: Rmr, at: usize, len: usize, rights: MemPriv) -> RmrTriplet {
    let range = session.seg(1, at, len);
    bind_range(session, rmr, &range, rights)
}

#[track_caller]
fn bind_range(
    session: &mut Session<'_>,
    rmr: Rmr,
    range: &LmrTriplet,
    rights: MemPriv,
) -> RmrTriplet {
    let ep = session.sides[1].ep;
    let context = session.pair.ias[1].rmr_bind(rmr, range, rights, ep, 7, NONE).unwrap();
    let evd = session.sides[1].request;
    assert_eq!(
        session.event(1, evd),
        Event::RmrBind { rmr, cookie: 7, status: DtoStatus::Success }
    );
    RmrTriplet { addr: range.addr, len: range.len, context }
}

fn window(session: &mut Session<'_>) -> Rmr {
    let pz = session.sides[1].pz;
    session.pair.ias[1].rmr_create(pz).unwrap()
}

/// Kind of an access of side 0 to memory of side 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// Tries an access. If it is refused the connection breaks on both sides, no byte of the target has
/// changed, and both are connected anew.
#[track_caller]
fn allowed(session: &mut Session<'_>, access: Access, to: RmrTriplet) -> bool {
    let len = to.len as usize;
    let before = [session.all(0), session.all(1)];
    let (ep, local) = (session.sides[0].ep, [session.seg(0, 0x100, len)]);
    let cookie = 42;
    match access {
        Access::Read => {
            session.pair.ias[0].ep_post_rdma_read(ep, &local, cookie, &to, NONE).unwrap()
        }
        Access::Write => {
            let n = u32::from(before[0][0x100]) + 1;
            session.fill(0, 0x100, len, n);
            session.pair.ias[0].ep_post_rdma_write(ep, &local, cookie, &to, NONE).unwrap();
        }
    }
    match session.requests(0, 1)[0] {
        (42, DtoStatus::Success) => {
            let lmr = session.sides[1].lmr.region;
            let at = (to.addr - lmr.addr) as usize;
            let there = session.look(1, at, len);
            assert_eq!(there, session.look(0, 0x100, len), "{access:?} of other bytes");
            let mut after = session.all(1);
            after[at..at + len].copy_from_slice(&before[1][at..at + len]);
            assert!(after == before[1], "bytes beside the target changed");
            true
        }
        (42, DtoStatus::ErrRemoteAccess) => {
            assert!(session.all(1) == before[1], "a refused access changed the target");
            if access == Access::Read {
                assert!(session.all(0) == before[0], "a refused read brought something");
            }
            session.ended();
            for side in 0..2 {
                let ep = session.sides[side].ep;
                session.pair.ias[side].ep_reset(ep).unwrap();
            }
            session.connect();
            false
        }
        other => panic!("{access:?} at {to:?}: {other:?}"),
    }
}

const RIGHTS: [MemPriv; 4] =
    [MemPriv::empty(), MemPriv::REMOTE_READ, MemPriv::REMOTE_WRITE, MemPriv::REMOTE];

#[test]
fn each_right_of_a_region() {
    Setup::default().connected(|session| {
        for rights in RIGHTS {
            let lmr = session.register(1, rights | MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE);
            assert_eq!(lmr.rmr_context == 0, rights.is_empty());
            let to = far(&lmr, 0x2000, 700);
            assert_eq!(
                allowed(session, Access::Read, to),
                rights.contains(MemPriv::REMOTE_READ),
                "{rights:?}"
            );
            assert_eq!(
                allowed(session, Access::Write, to),
                rights.contains(MemPriv::REMOTE_WRITE),
                "{rights:?}"
            );
            session.pair.ias[1].lmr_free(lmr.lmr).unwrap();
        }
    });
}

#[test]
fn each_right_of_a_window() {
    Setup::default().connected(|session| {
        let rmr = window(session);
        for rights in RIGHTS {
            let to = bind(session, rmr, 0x2000, 700, rights);
            assert_eq!(
                allowed(session, Access::Read, to),
                rights.contains(MemPriv::REMOTE_READ),
                "{rights:?}"
            );
            let to = bind(session, rmr, 0x2000, 700, rights);
            assert_eq!(
                allowed(session, Access::Write, to),
                rights.contains(MemPriv::REMOTE_WRITE),
                "{rights:?}"
            );
        }
    });
}

#[test]
fn a_window_opens_its_range_and_not_a_byte_more() {
    Setup::default().connected(|session| {
        let rmr = window(session);
        for (at, len) in
            [(0x2000, 0x1000), (0x2003, 1), (0x1fff, 2), (0x2abc, 5000), (0, 1), (0xfffe, 2)]
        {
            for access in [Access::Read, Access::Write] {
                let whole = bind(session, rmr, at, len, MemPriv::REMOTE);
                assert!(allowed(session, access, whole));
                for (shift, len) in [
                    (-1, whole.len),
                    (1, whole.len),
                    (0, whole.len + 1),
                    (-1, whole.len + 2),
                    (-1, 1),
                    (i64::from(whole.len), 1),
                    (1 << 40, 1),
                ] {
                    let to =
                        RmrTriplet { addr: whole.addr.wrapping_add_signed(shift), len, ..whole };
                    assert!(
                        !allowed(session, access, to),
                        "{access:?} of a window of {} bytes: {shift} {len}",
                        whole.len
                    );
                }
                // The window is still bound: another connection ended.
                assert!(allowed(session, access, RmrTriplet { len: 1, ..whole }));
            }
        }
    });
}

#[test]
fn a_region_opens_its_range_and_not_a_byte_more() {
    Setup::default().connected(|session| {
        let whole = session.sides[1].mem.region();
        for (at, len) in [(0x1001, 1), (0x1fff, 2), (0x2345, 6789)] {
            let region = Region { addr: whole.addr + at, len };
            let lmr =
                session.pair.ias[1].lmr_create(session.sides[1].pz, region, MemPriv::ALL).unwrap();
            // The driver may register more than was asked, but says so; here it does not.
            assert_eq!(lmr.region, region);
            let all = far(&lmr, 0, len as usize);
            for access in [Access::Read, Access::Write] {
                assert!(allowed(session, access, all));
                for (shift, len) in
                    [(-1, all.len), (1, all.len), (0, all.len + 1), (-1, 1), (len as i64, 1)]
                {
                    let to = RmrTriplet { addr: all.addr.wrapping_add_signed(shift), len, ..all };
                    assert!(
                        !allowed(session, access, to),
                        "{access:?} of a region of {} bytes: {shift} {len}",
                        all.len
                    );
                }
            }
        }
    });
}

#[test]
fn two_regions_on_one_page_do_not_open_each_other() {
    Setup::default().connected(|session| {
        let base = session.sides[1].mem.region().addr;
        let pz = session.sides[1].pz;
        let halves = [0, 0x800].map(|at| {
            session.pair.ias[1]
                .lmr_create(pz, Region { addr: base + at, len: 0x800 }, MemPriv::ALL)
                .unwrap()
        });
        let [first, second] = halves.map(|lmr| far(&lmr, 0, 0x800));
        assert!(allowed(session, Access::Write, first) && allowed(session, Access::Write, second));
        assert!(!allowed(session, Access::Write, RmrTriplet { context: first.context, ..second }));
        assert!(!allowed(session, Access::Read, RmrTriplet { context: second.context, ..first }));
        assert!(!allowed(session, Access::Read, RmrTriplet { len: 0x801, ..first }));
    });
}

#[test]
fn each_bind_has_a_key_of_its_own() {
    Setup::default().connected(|session| {
        let rmr = window(session);
        let mut last = 0;
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..300 {
            let key = bind(session, rmr, n, 64, MemPriv::REMOTE).context;
            assert_ne!(key & 0xff, last & 0xff, "bind {n}");
            assert!(n == 0 || key >> 8 == last >> 8);
            assert_eq!(session.pair.ias[1].rmr_query(rmr).unwrap().rmr_context, key);
            seen.insert(key & 0xff);
            last = key;
        }
        assert!(seen.len() > 100, "{} different low bytes in 300 binds", seen.len());
    });
}

#[test]
fn keys_of_windows_do_not_follow_each_other() {
    // The same steps under two seeds: the low bytes are not the same.
    let keys = [1, 2].map(|seed| {
        Setup::seed(seed).connected(|session| {
            (0..8)
                .map(|n| {
                    let rmr = window(session);
                    bind(session, rmr, n, 64, MemPriv::REMOTE).context & 0xff
                })
                .collect::<Vec<_>>()
        })
    });
    assert_ne!(keys[0], keys[1]);
}

#[test]
fn a_key_is_dead_after_the_next_bind() {
    Setup::default().connected(|session| {
        let rmr = window(session);
        let old = bind(session, rmr, 0x2000, 64, MemPriv::REMOTE);
        assert!(allowed(session, Access::Write, old));
        let new = bind(session, rmr, 0x3000, 64, MemPriv::REMOTE);
        assert!(allowed(session, Access::Write, new));
        assert!(!allowed(session, Access::Write, old));
        assert!(!allowed(session, Access::Read, RmrTriplet { context: old.context, ..new }));
        assert!(!allowed(session, Access::Read, RmrTriplet { context: new.context, ..old }));
        // Bound to the same range with the same rights: the old key is dead all the same.
        let again = bind(session, rmr, 0x3000, 64, MemPriv::REMOTE);
        assert!(!allowed(session, Access::Read, new));
        assert!(allowed(session, Access::Read, again));
    });
}

#[test]
fn a_key_is_dead_after_the_unbind() {
    Setup::default().connected(|session| {
        let rmr = window(session);
        let key = bind(session, rmr, 0x2000, 64, MemPriv::REMOTE);
        let nothing = bind_range(session, rmr, &LmrTriplet::default(), MemPriv::REMOTE);
        assert_eq!(session.pair.ias[1].rmr_query(rmr).unwrap().bound, None);
        for context in [key.context, nothing.context] {
            for access in [Access::Read, Access::Write] {
                assert!(!allowed(session, access, RmrTriplet { context, ..key }));
            }
        }
        let key = bind(session, rmr, 0x2000, 64, MemPriv::REMOTE);
        assert!(allowed(session, Access::Write, key));
    });
}

#[test]
fn a_key_is_dead_when_the_free_of_its_window_returns() {
    Setup::default().connected(|session| {
        for unbound_first in [true, false] {
            let rmr = window(session);
            let key = bind(session, rmr, 0x2000, 64, MemPriv::REMOTE);
            assert!(allowed(session, Access::Write, key));
            if unbound_first {
                bind_range(session, rmr, &LmrTriplet::default(), MemPriv::REMOTE);
            }
            session.pair.ias[1].rmr_free(rmr).unwrap();
            assert!(!allowed(session, Access::Write, key));
            // Another window in its slot gets another key.
            let next = window(session);
            let new = bind(session, next, 0x2000, 64, MemPriv::REMOTE);
            assert!(!allowed(session, Access::Read, key));
            assert!(allowed(session, Access::Read, new));
            session.pair.ias[1].rmr_free(next).unwrap();
        }
    });
}

#[test]
fn a_window_outlives_the_connection_it_was_bound_on() {
    // Its scope is the Protection Zone.
    Setup::default().connected(|session| {
        let rmr = window(session);
        let key = bind(session, rmr, 0x2000, 64, MemPriv::REMOTE);
        assert!(!allowed(session, Access::Write, RmrTriplet { len: 65, ..key }));
        assert!(allowed(session, Access::Write, key));
        let (a, b) = (session.endpoint(0), session.endpoint(1));
        session.connect_eps(a, b);
        session.sides[0].ep = a;
        assert!(allowed(session, Access::Read, key));
    });
}

#[test]
fn a_bind_under_way_when_the_connection_ends() {
    for n in 0..6 {
        Setup::seed(n).connected(|session| {
            let rmr = window(session);
            let old = bind(session, rmr, 0x2000, 64, MemPriv::REMOTE);
            session.lines[1].cut(true);
            session.write(1, 0, 64, 1);
            let (ep, range) = (session.sides[1].ep, session.seg(1, 0x3000, 64));
            session.pair.ias[1].rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 2, NONE).unwrap();
            session.pass(Duration::from_millis(n));
            session.lines[1].cut(false);
            session.disconnect(1, dat_core::CloseFlag::Abrupt);
            let said = session.requests(1, 2);
            assert_eq!((said[0].0, said[1].0), (1, 2));
            session.ended();
            for side in 0..2 {
                let ep = session.sides[side].ep;
                session.pair.ias[side].ep_reset(ep).unwrap();
            }
            session.connect();
            // In any case the next bind is good and the keys before it are dead.
            let new = bind(session, rmr, 0x4000, 64, MemPriv::REMOTE);
            assert!(allowed(session, Access::Write, new));
            assert!(!allowed(session, Access::Write, old));
            session.pair.ias[1].rmr_free(rmr).unwrap();
            let lmr = session.sides[1].lmr.lmr;
            session.pair.ias[1].lmr_free(lmr).unwrap();
        });
    }
}

#[test]
fn a_free_while_the_bind_is_under_way() {
    Setup::default().connected(|session| {
        for _ in 0..20 {
            let rmr = window(session);
            let (ep, range) = (session.sides[1].ep, session.seg(1, 0x3000, 64));
            let context =
                session.pair.ias[1].rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 2, NONE).unwrap();
            session.pair.ias[1].rmr_free(rmr).unwrap();
            assert!(session.pair.ias[1].rmr_query(rmr).is_err());
            // The completion of the bind is still one of an operation.
            assert_eq!(session.requests(1, 1), [(2, DtoStatus::Success)]);
            session.pass(Duration::from_millis(1));
            let to = RmrTriplet { addr: range.addr, len: 64, context };
            assert!(!allowed(session, Access::Write, to));
        }
        let lmr = session.sides[1].lmr.lmr;
        session.pair.ias[1].lmr_free(lmr).unwrap();
    });
}

#[test]
fn a_region_is_held_by_the_windows_over_it() {
    Setup::default().connected(|session| {
        let (first, second) =
            (session.register(1, MemPriv::ALL), session.register(1, MemPriv::ALL));
        let rmr = window(session);
        bind_range(session, rmr, &seg(&first, 0, 64), MemPriv::REMOTE);
        let held = session.pair.ias[1].lmr_free(first.lmr).unwrap_err().ret();
        assert_eq!(held.subtype(), DatSubtype::InvalidStateLmrInUse);
        // The hold moves with the next bind.
        let key = bind_range(session, rmr, &seg(&second, 0x2000, 64), MemPriv::REMOTE);
        session.pair.ias[1].lmr_free(first.lmr).unwrap();
        assert!(session.pair.ias[1].lmr_free(second.lmr).is_err());
        assert!(allowed(session, Access::Write, key));
        session.pair.ias[1].rmr_free(rmr).unwrap();
        session.pair.ias[1].lmr_free(second.lmr).unwrap();
        assert!(!allowed(session, Access::Write, key));
    });
}

#[test]
fn a_freed_region_is_closed_to_both_sides() {
    Setup::default().connected(|session| {
        let lmr = session.register(1, MemPriv::ALL);
        let key = far(&lmr, 0x2000, 64);
        assert!(allowed(session, Access::Write, key));
        session.pair.ias[1].lmr_free(lmr.lmr).unwrap();
        assert!(!allowed(session, Access::Write, key));
        let ep = session.sides[1].ep;
        let got = session.pair.ias[1].ep_post_send(ep, &[seg(&lmr, 0, 8)], 1, NONE).unwrap_err();
        assert_eq!(got.ty(), DatType::PrivilegesViolation);
        // Its slot is in use again: the old key stays dead.
        for _ in 0..4 {
            let next = session.register(1, MemPriv::ALL);
            assert_ne!(next.rmr_context, lmr.rmr_context);
            assert!(!allowed(session, Access::Read, key));
            session.pair.ias[1].lmr_free(next.lmr).unwrap();
        }
    });
}

#[test]
fn keys_that_were_never_given_out() {
    Setup::default().connected(|session| {
        let good = session.far(1, 0x2000, 8);
        for other in [
            0,
            1,
            0x100,
            0x200,
            0xffff_ff00,
            u32::MAX,
            good.context ^ 1,
            good.context ^ 0x80,
            good.context ^ 0x100,
        ] {
            assert!(
                !allowed(session, Access::Write, RmrTriplet { context: other, ..good }),
                "{other:#x}"
            );
        }
        let lkey = session.sides[1].lmr.lmr_context;
        assert!(!allowed(session, Access::Read, RmrTriplet { context: lkey, ..good }));
    });
}

#[test]
fn zones_are_apart() {
    Setup::default().connected(|session| {
        let other = session.pair.ias[1].pz_create().unwrap();
        let region = session.sides[1].mem.region();
        let lmr = session.pair.ias[1].lmr_create(other, region, MemPriv::ALL).unwrap();
        // A peer whose Endpoint is in one zone does not reach memory in another.
        for access in [Access::Read, Access::Write] {
            assert!(!allowed(session, access, far(&lmr, 0x2000, 64)));
        }
        // Nor does this side itself.
        let (ep, own) = (session.sides[1].ep, [seg(&lmr, 0, 64)]);
        let there = session.far(0, 0, 64);
        let ia = &mut session.pair.ias[1];
        for got in [
            ia.ep_post_send(ep, &own, 1, NONE),
            ia.ep_post_recv(ep, &own, 1, NONE),
            ia.ep_post_rdma_read(ep, &own, 1, &there, NONE),
            ia.ep_post_rdma_write(ep, &own, 1, &there, NONE),
        ] {
            assert_eq!(got.unwrap_err().ty(), DatType::ProtectionViolation);
        }
        let rmr = ia.rmr_create(other).unwrap();
        let mine = seg(&session.sides[1].lmr, 0, 64);
        for range in [mine, own[0]] {
            let got = ia.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 1, NONE);
            assert_eq!(got.unwrap_err().ty(), DatType::ProtectionViolation);
        }
        let inner = ia.rmr_create(session.sides[1].pz).unwrap();
        let got = ia.rmr_bind(inner, &own[0], MemPriv::REMOTE, ep, 1, NONE);
        assert_eq!(got.unwrap_err().ty(), DatType::ProtectionViolation);
        session.traffic(1);
    });
}

#[test]
fn a_bind_cannot_give_more_than_the_region_has() {
    Setup::default().connected(|session| {
        let rmr = window(session);
        let read_only = session.register(1, MemPriv::LOCAL_READ);
        let whole = read_only.region.len;
        let ep = session.sides[1].ep;
        let mut bind = |range: LmrTriplet, rights| {
            session.pair.ias[1].rmr_bind(rmr, &range, rights, ep, 1, NONE)
        };
        let got = bind(seg(&read_only, 0, 64), MemPriv::REMOTE_WRITE).unwrap_err();
        assert_eq!(got.ty(), DatType::PrivilegesViolation);
        for (at, len) in [(whole - 63, 64), (whole, 1), (u64::MAX, 1), (whole, u64::from(u32::MAX))]
        {
            let range = LmrTriplet {
                addr: read_only.region.addr.wrapping_add(at),
                len: len as u32,
                context: read_only.lmr_context,
            };
            let got = bind(range, MemPriv::REMOTE_READ).unwrap_err();
            assert_eq!(got.ty(), DatType::InvalidParameter, "{at} {len}");
        }
        bind(seg(&read_only, (whole - 64) as usize, 64), MemPriv::REMOTE_READ).unwrap();
        let evd = session.sides[1].request;
        session.event(1, evd);
        session.expect_no_event(Duration::from_millis(5));
    });
}

#[test]
fn a_key_sent_right_behind_its_bind_is_good_when_it_arrives() {
    Setup::default().connected(|session| {
        let rmr = window(session);
        for n in 0..30_u32 {
            session.recv(0, 0, 4, 1);
            let (ep, range) = (session.sides[1].ep, session.seg(1, 0x2000 + 64 * n as usize, 64));
            let context =
                session.pair.ias[1].rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 2, NONE).unwrap();
            session.sides[1].mem.copy_in(0, &context.to_be_bytes());
            session.send(1, 0, 4, 3);
            session.received(0, 1);
            let key = session.look(0, 0, 4);
            let context = u32::from_be_bytes(key.try_into().unwrap());
            session.fill(0, 0x1000, 64, n);
            session.write_to(0, 0x1000, 64, RmrTriplet { addr: range.addr, len: 64, context }, 4);
            session.requested(0, DtoOperation::RdmaWrite, 4);
            session.check(1, 0x2000 + 64 * n as usize, 64, n);
            assert_eq!(session.requests(1, 2), [(2, DtoStatus::Success), (3, DtoStatus::Success)]);
        }
    });
}

#[test]
fn suppressed_binds_are_silent_and_good() {
    Setup::default().connected(|session| {
        let rmr = window(session);
        let ep = session.sides[1].ep;
        for n in 0..100_usize {
            let range = session.seg(1, 0x2000 + n, 64);
            let flags = CompletionFlags::SUPPRESS;
            let context =
                session.pair.ias[1].rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 2, flags).unwrap();
            if n % 10 == 9 {
                session.write(1, 0, 1, 5);
                session.requested(1, DtoOperation::RdmaWrite, 5);
                assert!(allowed(
                    session,
                    Access::Write,
                    RmrTriplet { addr: range.addr, len: 64, context }
                ));
            }
        }
        session.expect_no_event(Duration::from_millis(5));
    });
}

#[test]
fn as_many_windows_as_there_is_room_for() {
    Setup::default().connected(|session| {
        let mut keys = Vec::new();
        for n in 0..64 {
            let rmr = window(session);
            keys.push((rmr, bind(session, rmr, 0x1000 + 100 * n, 100, MemPriv::REMOTE)));
        }
        let pz = session.sides[1].pz;
        let full = session.pair.ias[1].rmr_create(pz).unwrap_err().ret();
        assert_eq!(full.ty(), DatType::InsufficientResources);
        for (n, (_, key)) in keys.iter().enumerate() {
            session.fill(0, 0, 100, n as u32);
            session.write_to(0, 0, 100, *key, 1);
            session.requested(0, DtoOperation::RdmaWrite, 1);
        }
        for n in 0..64 {
            session.check(1, 0x1000 + 100 * n, 100, n as u32);
        }
        let (first, second) = (keys[0].1, keys[1].1);
        assert!(!allowed(session, Access::Write, RmrTriplet { context: first.context, ..second }));
        for (rmr, _) in keys {
            session.pair.ias[1].rmr_free(rmr).unwrap();
        }
    });
}

#[test]
fn regions_and_windows_over_memory_that_is_scattered_for_the_device() {
    let setup = Setup { bytes: 1 << 20, ..Setup::default() };
    setup.connected(|session| {
        // The buffer is one piece for the consumer and several for the device.
        let slot = session.pair.slots[1];
        let start = (session.sides[1].mem.addr() - slot.memory().addr()) as usize;
        let (_, run) = slot.iova(start).unwrap();
        assert!(run < 1 << 20);
        let rmr = window(session);
        let key = bind(session, rmr, run - 3000, 9000, MemPriv::REMOTE);
        session.fill(0, 0, 9000, 1);
        session.write_to(0, 0, 9000, key, 1);
        session.requested(0, DtoOperation::RdmaWrite, 1);
        session.check(1, run - 3000, 9000, 1);
        assert_eq!(session.look(1, run - 3001, 1), [0]);
        assert_eq!(session.look(1, run + 6000, 1), [0]);
        assert!(!allowed(session, Access::Write, RmrTriplet { len: 9001, ..key }));
        // All of it, by its region, both ways.
        session.fill(0, 0, 1 << 20, 2);
        session.write(0, 0, 1 << 20, 1);
        session.requested(0, DtoOperation::RdmaWrite, 1);
        session.check(1, 0, 1 << 20, 2);
        session.fill(1, 0, 1 << 20, 3);
        session.read(0, 0, 1 << 20, 1);
        session.requested(0, DtoOperation::RdmaRead, 1);
        assert!(session.look(0, 0, 1 << 20) == contents(3, 1 << 20));
    });
}

#[test]
fn regions_of_more_pages_than_a_command_carries() {
    let mut setup = Setup { bytes: 9 << 20, ..Setup::default() };
    setup.stage.memory.arena = 8192;
    setup.connected(|session| {
        // Pages of 4 KiB are the largest that fit, so the list has more than the 2,016 that one
        // command carries.
        let slot = session.pair.slots[1];
        let start = (session.sides[1].mem.addr() - slot.memory().addr()) as usize;
        let place = |at: usize| slot.iova(start + at).unwrap().0;
        let odd = |at: usize| (place(at) >> 12) % 2 != (at >> 12) as u64 % 2;
        let pages = (0..9 << 20).step_by(4096);
        let odd = pages.clone().filter(|&at| odd(at)).count();
        assert!(odd != 0 && odd != pages.count(), "not scattered enough");
        let border = 2016 * 4096;
        session.fill(0, 0, 1 << 20, 1);
        for at in [0, border - 5000, (9 << 20) - 9000] {
            session.write(0, 0, 9000, 1);
            session.requested(0, DtoOperation::RdmaWrite, 1);
            session.check(1, 0, 9000, 1);
            let far = RmrTriplet {
                addr: session.sides[1].lmr.region.addr + at as u64,
                len: 9000,
                context: session.sides[1].lmr.rmr_context,
            };
            session.write_to(0, 0, 9000, far, 1);
            session.requested(0, DtoOperation::RdmaWrite, 1);
            session.check(1, at, 9000, 1);
        }
        let rmr = window(session);
        let key = bind(session, rmr, border - 100, 200, MemPriv::REMOTE);
        session.fill(0, 0, 200, 2);
        session.write_to(0, 0, 200, key, 1);
        session.requested(0, DtoOperation::RdmaWrite, 1);
        session.check(1, border - 100, 200, 2);
        assert!(!allowed(session, Access::Write, RmrTriplet { len: 201, ..key }));
        // It is given back whole.
        session.pair.ias[1].rmr_free(rmr).unwrap();
        let lmr = session.sides[1].lmr;
        session.pair.ias[1].lmr_free(lmr.lmr).unwrap();
        let made = session.pair.ias[1].lmr_create(lmr.pz, lmr.region, MemPriv::ALL);
        session.sides[1].lmr = made.unwrap();
    });
}

#[test]
fn memory_that_the_host_refuses_the_device() {
    for (source, op) in [
        (true, DtoOperation::Send),
        (true, DtoOperation::RdmaWrite),
        (false, DtoOperation::RdmaRead),
        (false, DtoOperation::Receive),
    ] {
        Setup::default().connected(|session| {
            let slot = session.pair.slots[0];
            let (iova, _) = slot
                .iova((session.sides[0].mem.addr() - slot.memory().addr()) as usize + 0x3000)
                .unwrap();
            if source {
                session.refusals[0].reads(iova..iova + 0x1000);
            } else {
                session.refusals[0].writes(iova..iova + 0x1000);
            }
            let at = 0x2800;
            let got = match op {
                DtoOperation::Send => {
                    session.recv(1, 0, 8192, 1);
                    session.send(0, at, 4096, 2);
                    session.requests(0, 1)[0]
                }
                DtoOperation::RdmaWrite => {
                    session.write(0, at, 4096, 2);
                    session.requests(0, 1)[0]
                }
                DtoOperation::RdmaRead => {
                    session.read(0, at, 4096, 2);
                    session.requests(0, 1)[0]
                }
                DtoOperation::Receive => {
                    session.recv(0, at, 4096, 2);
                    session.send(1, 0, 4096, 1);
                    session.receives(0, 1)[0]
                }
                other @ (DtoOperation::ReceiveWithInvalidate
                | DtoOperation::BindMw
                | DtoOperation::LmrFmr
                | DtoOperation::LmrInvalidate) => panic!("{other:?} is not among them"),
            };
            assert_eq!(got, (2, DtoStatus::ErrLocalProtection), "{op:?}");
            assert!(session.refusals[0].count() > 0);
            session.ended();
            session.refusals[0].clear();
            while session.pair.ias[1].evd_dequeue(session.sides[1].recv).is_ok() {}
            while session.pair.ias[1].evd_dequeue(session.sides[1].request).is_ok() {}
            for side in 0..2 {
                let ep = session.sides[side].ep;
                session.pair.ias[side].ep_reset(ep).unwrap();
            }
            session.connect();
            session.traffic(1);
        });
    }
}

#[test]
fn a_target_that_the_host_refuses_the_device() {
    for access in [Access::Read, Access::Write] {
        Setup::default().connected(|session| {
            let slot = session.pair.slots[1];
            let (iova, _) = slot
                .iova((session.sides[1].mem.addr() - slot.memory().addr()) as usize + 0x3000)
                .unwrap();
            session.refusals[1].reads(iova..iova + 0x1000);
            session.refusals[1].writes(iova..iova + 0x1000);
            let to = session.far(1, 0x2800, 4096);
            match access {
                Access::Read => session.read_from(0, 0, 4096, to, 2),
                Access::Write => session.write_to(0, 0, 4096, to, 2),
            }
            let (cookie, status) = session.requests(0, 1)[0];
            assert_eq!(cookie, 2);
            assert!(
                matches!(status, DtoStatus::ErrRemoteAccess | DtoStatus::ErrRemoteResponder),
                "{access:?}: {status:?}"
            );
            assert!(session.refusals[1].count() > 0);
            session.ended();
        });
    }
}

#[test]
fn memory_that_is_not_the_platform_s_is_not_registered() {
    Setup::default().run(|session| {
        let (pz, slot) = (session.sides[0].pz, session.pair.slots[0]);
        let (base, len) = (slot.memory().addr(), slot.memory().len() as u64);
        let commands = slot.hca().commands();
        for (addr, size) in [
            (0, 4096),
            (base - 1, 1),
            (base - 4096, 8192),
            (base + len, 1),
            (base + len - 1, 2),
            (base, len + 1),
            (u64::MAX - 10, 10),
            (u64::MAX - 10, 100),
            (base, u64::MAX),
        ] {
            let got = session.pair.ias[0]
                .lmr_create(pz, Region { addr, len: size }, MemPriv::ALL)
                .unwrap_err();
            assert_eq!(got.ret().ty(), DatType::InvalidParameter, "{addr:#x} {size:#x}");
        }
        let none = session.pair.ias[0]
            .lmr_create(pz, Region { addr: base, len: 0 }, MemPriv::ALL)
            .unwrap_err();
        assert_eq!(none.ret().ty(), DatType::LengthError);
        assert_eq!(slot.hca().commands(), commands, "the device was asked");
    });
}

#[test]
fn registrations_come_and_go_without_a_trace() {
    Setup::default().run(|session| {
        let pz = session.sides[0].pz;
        let mut held = None;
        for n in 0..200_usize {
            let buffer = Buffer::zeroed(session.pair.slots[0], 1 + n * 177).unwrap();
            let lmr = session.pair.ias[0].lmr_create(pz, buffer.region(), MemPriv::ALL).unwrap();
            assert_eq!(session.pair.ias[0].lmr_query(lmr.lmr).unwrap(), lmr);
            session.pair.ias[0].lmr_free(lmr.lmr).unwrap();
            assert!(session.pair.ias[0].lmr_query(lmr.lmr).is_err());
            buffer.release();
            let pages = session.pair.slots[0].views().pages_out();
            let pages = if firmware_grows() { 0 } else { pages };
            let now = (session.pair.slots[0].in_use(), pages);
            assert_eq!(*held.get_or_insert(now), now);
        }
    });
}

/// 64 GiB, of which only the ends are memory. Where the addresses of both agree, one key; where only
/// those in a page do, a key over 33 of at most 2 GiB.
#[test]
fn a_region_of_64_gib_is_written_and_read_at_its_ends() {
    const LEN: u64 = 64 << 30;
    for (shift, commands) in [(0, 1), (1 << 30, 1), (0x1000, 34), (0x7fff_f000, 34)] {
        Setup::default().connected(|session| {
            let region = session.pair.slots[1].lend_ends(LEN, shift);
            let keys = |session: &Session<'_>| {
                let hca = session.pair.slots[1].hca();
                hca.stats().commands.get(&0x200).copied().unwrap_or(0)
            };
            let before = keys(session);
            let pz = session.sides[1].pz;
            let lmr = session.pair.ias[1].lmr_create(pz, region, MemPriv::ALL).unwrap();
            assert_eq!(keys(session) - before, commands, "addresses that differ by {shift:#x}");
            for (n, at) in [0, 1, 4096 - 50, LEN - 8192, LEN - 100].into_iter().enumerate() {
                let target = far(&lmr, 0, 100);
                let target = RmrTriplet { addr: target.addr + at, ..target };
                reached(session, target, n as u32);
            }
            // Not a byte more.
            let beyond = RmrTriplet { addr: region.addr + LEN - 99, ..far(&lmr, 0, 100) };
            let (ep, local) = (session.sides[0].ep, [session.seg(0, 0, 100)]);
            session.pair.ias[0].ep_post_rdma_write(ep, &local, 1, &beyond, NONE).unwrap();
            assert_eq!(session.requests(0, 1), [(1, DtoStatus::ErrRemoteAccess)]);
            session.ended();
            session.pair.ias[1].lmr_free(lmr.lmr).unwrap();
            session.pair.slots[1].take_back(region);
        });
    }
}

/// Writes to memory that only the device of side 1 reaches, and reads it back.
#[track_caller]
fn reached(session: &mut Session<'_>, target: RmrTriplet, seed: u32) {
    let len = target.len as usize;
    session.fill(0, 0, len, seed + 1);
    let ep = session.sides[0].ep;
    let [from, to] = [0, 0x1000].map(|at| [session.seg(0, at, len)]);
    session.pair.ias[0].ep_post_rdma_write(ep, &from, 1, &target, NONE).unwrap();
    assert_eq!(session.requests(0, 1), [(1, DtoStatus::Success)]);
    let written = session.look(0, 0, len);
    assert_eq!(session.pair.slots[1].views().lent_at(target.addr, len), written);
    session.fill(0, 0x1000, len, seed + 99);
    session.pair.ias[0].ep_post_rdma_read(ep, &to, 2, &target, NONE).unwrap();
    assert_eq!(session.requests(0, 1), [(2, DtoStatus::Success)]);
    assert_eq!(session.look(0, 0x1000, len), written);
}

/// The span of a window has 31 bits of length, however long the region is.
#[test]
fn a_window_is_shorter_than_2_gib() {
    const LEN: u64 = 64 << 30;
    Setup::default().connected(|session| {
        let region = session.pair.slots[1].lend_ends(LEN, 0x1000);
        let pz = session.sides[1].pz;
        let lmr = session.pair.ias[1].lmr_create(pz, region, MemPriv::ALL).unwrap();
        let (rmr, ep) = (window(session), session.sides[1].ep);
        let range = |len| LmrTriplet {
            addr: region.addr + LEN - u64::from(len),
            len,
            context: lmr.lmr_context,
        };
        for len in [1 << 31, u32::MAX] {
            let refused =
                session.pair.ias[1].rmr_bind(rmr, &range(len), MemPriv::REMOTE, ep, 7, NONE);
            let mut poster = session.pair.ias[1].ep_take_poster(ep).unwrap();
            let fast = poster.rmr_bind(rmr, &range(len), MemPriv::REMOTE, 7, NONE);
            session.pair.ias[1].ep_return_poster(poster).unwrap();
            for refused in [refused, fast] {
                let refused = refused.unwrap_err();
                assert_eq!(refused.ty(), DatType::InvalidParameter);
                assert_eq!(refused.subtype(), DatSubtype::InvalidArg3);
            }
        }
        let longest = bind_range(session, rmr, &range((1 << 31) - 1), MemPriv::REMOTE);
        for (n, at) in [longest.len - 8000, longest.len - 100].into_iter().enumerate() {
            let target = RmrTriplet { addr: longest.addr + u64::from(at), len: 100, ..longest };
            reached(session, target, n as u32);
        }
        session.pair.ias[1].rmr_free(rmr).unwrap();
        session.pair.ias[1].lmr_free(lmr.lmr).unwrap();
        session.pair.slots[1].take_back(region);
    });
}
