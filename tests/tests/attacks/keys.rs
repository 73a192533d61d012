//! What a connected peer can learn from the keys that it is given, and do with old ones.

use std::collections::VecDeque;

use dat_core::{DtoStatus, Ep, Event, LmrTriplet, MemPriv, Rmr, RmrTriplet};
use dat_tests::session::{NONE, Session, Setup};

/// Binds of one index before a context may come back.
const REST: usize = 255;

fn window(session: &mut Session<'_>) -> Rmr {
    let pz = session.sides[1].pz;
    session.pair.ias[1].rmr_create(pz).unwrap()
}

fn bind_on(session: &mut Session<'_>, ep: Ep, rmr: Rmr) -> u32 {
    let range = session.seg(1, 0x2000, 64);
    let ia = &mut session.pair.ias[1];
    let context = ia.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 7, NONE).unwrap();
    let evd = session.sides[1].request;
    let done = Event::RmrBind { rmr, cookie: 7, status: DtoStatus::Success };
    assert_eq!(session.event(1, evd), done);
    context
}

fn bind(session: &mut Session<'_>, rmr: Rmr) -> u32 {
    let ep = session.sides[1].ep;
    bind_on(session, ep, rmr)
}

/// SplitMix64, and back.
mod split_mix {
    const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

    /// The output of a state.
    pub(super) const fn mix(z: u64) -> u64 {
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    const fn unshift(z: u64, by: u32) -> u64 {
        let mut x = z;
        let mut n = by;
        while n < 64 {
            x = z ^ x >> by;
            n += by;
        }
        x
    }

    /// The state of an output.
    pub(super) const fn unmix(z: u64) -> u64 {
        let z = unshift(z, 31).wrapping_mul(0x3196_42b2_d24d_8ec3);
        let z = unshift(z, 27).wrapping_mul(0x96de_1b17_3f11_9089);
        unshift(z, 30)
    }

    /// The state so many steps on.
    pub(super) const fn step(state: u64, by: u64) -> u64 {
        state.wrapping_add(GAMMA.wrapping_mul(by))
    }
}

/// Each step of a key byte that a draw of seven bytes gives.
fn steps(output: u64) -> impl Iterator<Item = u8> {
    (output >> 8).to_le_bytes().into_iter().take(7).map(|byte| byte.max(1))
}

/// The states that draws of seven bytes of SplitMix64 can have had, if these are its steps in a
/// row from an unknown place on: as the state behind the last whole draw.
fn states(seen: &[u8]) -> Vec<u64> {
    let mut found = Vec::new();
    for at in 0..7 {
        let Some(draw) = seen.get(at..at + 7) else { break };
        // A step of 1 is a byte of 1 or of 0.
        let ones: Vec<usize> = (0..7).filter(|&n| draw[n] == 1).collect();
        for low in 0..=255_u64 {
            for zeros in 0..1_u32 << ones.len() {
                let mut bytes = [0; 8];
                bytes[..7].copy_from_slice(draw);
                for (n, &place) in ones.iter().enumerate() {
                    bytes[place] -= (zeros >> n & 1) as u8;
                }
                let state = split_mix::unmix(u64::from_le_bytes(bytes) << 8 | low);
                let follows = seen[at + 7..].chunks_exact(7).zip(1..).all(|(draw, n)| {
                    steps(split_mix::mix(split_mix::step(state, n))).eq(draw.iter().copied())
                });
                if follows && seen.len() >= at + 14 {
                    found.push(split_mix::step(state, ((seen.len() - at) / 7) as u64 - 1));
                }
            }
        }
    }
    found
}

#[test]
fn the_attack_finds_what_it_looks_for() {
    let state = 0x1234_5678_9abc_def0;
    assert_eq!(split_mix::unmix(split_mix::mix(state)), state);
    let draws = (1..4).flat_map(|n| steps(split_mix::mix(split_mix::step(state, n))));
    let seen: Vec<u8> = draws.collect();
    assert!(states(&seen[3..]).contains(&split_mix::step(state, 3)));
}

/// A dozen contexts of windows, as any RPC over RDMA hands out, and the generator is known: here of
/// the Endpoint, then of the adapter, from which all later PSNs and IDs come.
#[test]
fn contexts_of_windows_do_not_tell_the_next_ones() {
    for seed in 0..4 {
        Setup::seed(seed).connected(|session| {
            let rmr = window(session);
            let keys: Vec<u32> = (0..30).map(|_| bind(session, rmr)).collect();
            let seen: Vec<u8> =
                keys.windows(2).map(|pair| (pair[1].wrapping_sub(pair[0]) & 0xff) as u8).collect();
            let next: Vec<u32> = (0..7).map(|_| bind(session, rmr)).collect();
            let next: Vec<u8> = next
                .iter()
                .scan(keys[29], |last, key| {
                    let step = (key.wrapping_sub(*last) & 0xff) as u8;
                    *last = *key;
                    Some(step)
                })
                .collect();
            for state in states(&seen) {
                let draws = (0..3).flat_map(|n| steps(split_mix::mix(split_mix::step(state, n))));
                let draws: Vec<u8> = draws.collect();
                let known = draws.windows(next.len()).any(|window| window == next);
                assert!(!known, "seed {seed}: the generator behind the keys has state {state:#x}");
            }
        });
    }
}

/// From the keys of one Endpoint to those of another: the adapter's own generator.
#[test]
fn contexts_of_one_endpoint_do_not_tell_those_of_another() {
    Setup::default().connected(|session| {
        let rmr = window(session);
        let keys: Vec<u32> = (0..30).map(|_| bind(session, rmr)).collect();
        let seen: Vec<u8> =
            keys.windows(2).map(|pair| (pair[1].wrapping_sub(pair[0]) & 0xff) as u8).collect();
        let (a, b) = (session.endpoint(0), session.endpoint(1));
        session.connect_eps(a, b);
        let other: Vec<u32> = (0..8).map(|_| bind_on(session, b, rmr)).collect();
        let other: Vec<u8> =
            other.windows(2).map(|pair| (pair[1].wrapping_sub(pair[0]) & 0xff) as u8).collect();
        for state in states(&seen) {
            for back in 1..8 {
                let adapter = split_mix::unmix(before(state, back));
                for on in 1..8 {
                    let ep = split_mix::mix(split_mix::step(adapter, on));
                    let first: Vec<u8> = steps(split_mix::mix(split_mix::step(ep, 1))).collect();
                    assert_ne!(first[1..], other[..6], "the adapter's generator is known");
                }
            }
        }
    });
}

/// The state so many steps earlier.
const fn before(state: u64, by: u64) -> u64 {
    split_mix::step(state, by.wrapping_neg())
}

fn rests(kind: &str, contexts: impl Iterator<Item = u32>) {
    let mut last: VecDeque<u32> = VecDeque::new();
    for (n, context) in contexts.enumerate() {
        let again = last.iter().rev().position(|old| *old == context);
        assert_eq!(again, None, "{kind} {n}: {context:#010x} came back");
        last.push_back(context);
        if last.len() > REST - 1 {
            last.pop_front();
        }
    }
}

#[test]
fn a_context_does_not_come_back_within_255_binds() {
    Setup::default().connected(|session| {
        let rmr = window(session);
        rests("bind", (0..800).map(|_| bind(session, rmr)).collect::<Vec<_>>().into_iter());
    });
}

#[test]
fn a_context_does_not_come_back_within_255_binds_and_unbinds() {
    Setup::default().connected(|session| {
        let rmr = window(session);
        let mut all = Vec::new();
        for n in 0..600 {
            if n % 3 == 2 {
                let (ia, ep) = (&mut session.pair.ias[1], session.sides[1].ep);
                let nothing = LmrTriplet::default();
                all.push(ia.rmr_bind(rmr, &nothing, MemPriv::REMOTE, ep, 7, NONE).unwrap());
                let evd = session.sides[1].request;
                let _ = session.event(1, evd);
            } else {
                all.push(bind(session, rmr));
            }
        }
        rests("bind", all.into_iter());
    });
}

#[test]
fn a_context_of_a_region_does_not_come_back_within_255_registrations() {
    Setup::default().run(|session| {
        let all = (0..800).map(|_| {
            let lmr = session.register(1, MemPriv::ALL);
            session.pair.ias[1].lmr_free(lmr.lmr).unwrap();
            lmr.rmr_context
        });
        rests("registration", all.collect::<Vec<_>>().into_iter());
    });
}

#[test]
fn a_context_of_a_window_does_not_come_back_within_255_windows() {
    Setup::default().connected(|session| {
        let all = (0..800).map(|_| {
            let rmr = window(session);
            let context = bind(session, rmr);
            session.pair.ias[1].rmr_free(rmr).unwrap();
            context
        });
        rests("window", all.collect::<Vec<_>>().into_iter());
    });
}

/// After 1 to 255 further binds the first context opens nothing.
#[test]
fn the_first_context_opens_nothing_after_any_number_of_binds() {
    Setup::default().connected(|session| {
        let rmr = window(session);
        let addr = session.seg(1, 0x2000, 64).addr;
        let old = bind(session, rmr);
        for n in 1..=REST {
            let now = bind(session, rmr);
            if n == REST || !n.is_power_of_two() && n != 254 {
                continue;
            }
            assert_ne!(old, now, "bind {n} gave the first context again");
            let to = RmrTriplet { addr, len: 64, context: old };
            session.write_to(0, 0x100, 64, to, 3);
            assert_eq!(session.requests(0, 1), [(3, DtoStatus::ErrRemoteAccess)], "bind {n}");
            session.ended();
            for side in 0..2 {
                let ep = session.sides[side].ep;
                session.pair.ias[side].ep_reset(ep).unwrap();
            }
            session.connect();
        }
    });
}
