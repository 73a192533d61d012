//! A program that polls the last byte of what a peer writes, as MPI libraries do, in real time: the
//! device is another thread, which reorders as much as relaxed ordering allows.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::thread;

use dat_core::MemPriv;
use dat_core::provider::Mtu;
use hca_mlx5::Config;
use mlx5_model::Config as Card;

use crate::rig::{BUFFER, NONE, Rig};

const LENS: [usize; 14] =
    [1, 2, 63, 64, 65, 255, 257, 1023, 1025, 4095, 4097, 9000, 20_001, 50_000];
/// Offsets of messages, odd ones too.
const PLACES: [usize; 5] = [0, 1, 7, 63, 4090];
/// No message is to be waited for.
const NOTHING: usize = 0;
/// No message is any more.
const OVER: usize = usize::MAX;

/// Ends the polling when dropped, also after a panic.
struct Over<'a>(&'a AtomicUsize);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(OVER, Ordering::Release);
    }
}

/// What a byte is before a message, and of it.
fn byte(at: usize, nth: usize) -> u8 {
    (at.wrapping_mul(7) + nth.wrapping_mul(31)) as u8 & 0x7f
}

/// Writes every message through a key with these rights besides all others. Returns how often its
/// last byte was seen before all others.
fn messages(more: MemPriv, mtu: Mtu) -> usize {
    let facts = "relaxed-writes=last-first".parse().unwrap();
    let rig = Rig::of(&Card { facts, ..Card::default() });
    let mut early = 0;
    rig.connected_by(&Config::default().with_path_mtu(mtu), |pair| {
        let [_, b] = &mut pair.sides;
        let target = b.nic.buffer(BUFFER).unwrap();
        let lmr = b.nic.lmr_create(b.pz, target.region(), MemPriv::ALL | more).unwrap();
        // The number of the message that is waited for, and whether it was seen.
        let (wanted, seen, count) =
            (AtomicUsize::new(NOTHING), AtomicBool::new(false), AtomicUsize::new(0));
        let all: Vec<_> = PLACES.into_iter().flat_map(|at| LENS.map(|len| (at, len))).collect();
        let poll = || {
            let (mut last, mut rest) = ([0], vec![0; BUFFER]);
            loop {
                let nth = wanted.swap(NOTHING, Ordering::AcqRel);
                if nth == OVER {
                    return;
                }
                let Some((at, len)) = nth.checked_sub(1).and_then(|nth| all.get(nth)) else {
                    std::hint::spin_loop();
                    continue;
                };
                let end = at + len - 1;
                target.copy_out(end, &mut last);
                while last != [byte(end, nth)] {
                    if wanted.load(Ordering::Relaxed) == OVER {
                        return;
                    }
                    target.copy_out(end, &mut last);
                }
                // ORDER: the polled byte precedes the reads of what it announces.
                fence(Ordering::Acquire);
                target.copy_out(*at, &mut rest[..*len]);
                let whole = (*at..).zip(&rest[..*len]).all(|(at, is)| *is == byte(at, nth));
                count.fetch_add(usize::from(!whole), Ordering::Relaxed);
                seen.store(true, Ordering::Release);
            }
        };
        thread::scope(|scope| {
            scope.spawn(poll);
            let _over = Over(&wanted);
            for (nth, (at, len)) in (1..).zip(&all) {
                let text: Vec<u8> = (*at..at + len).map(|at| byte(at, nth)).collect();
                let other: Vec<u8> = text.iter().map(|byte| byte | 0x80).collect();
                target.copy_in(*at, &other);
                wanted.store(nth, Ordering::Release);
                let [a, _] = &mut pair.sides;
                a.buffer.copy_in(0, &text);
                let far = dat_core::RmrTriplet {
                    addr: lmr.region.addr + *at as u64,
                    len: *len as u32,
                    context: lmr.rmr_context,
                };
                let (near, ep) = (a.near(0, *len), a.ep);
                a.nic.ep_post_rdma_write(ep, &near, nth as u64, &far, NONE).unwrap();
                pair.done(0, nth as u64);
                while !seen.swap(false, Ordering::AcqRel) {
                    thread::yield_now();
                }
            }
        });
        early = count.into_inner();
        pair.sides[1].nic.lmr_free(lmr.lmr).unwrap();
        target.release();
    });
    early
}

const MTUS: [Mtu; 3] = [Mtu::B256, Mtu::B1024, Mtu::B4096];

#[test]
fn a_program_that_sees_the_last_byte_sees_all_others() {
    for mtu in MTUS {
        assert_eq!(messages(MemPriv::empty(), mtu), 0, "{mtu:?}");
    }
}

/// So that the test above has something to find. It needs a processor for the program and one for
/// the device at the same time, which other tests may have.
#[test]
fn with_relaxed_ordering_it_may_not() {
    let tries = MTUS.into_iter().cycle().take(100);
    assert!(tries.map(|mtu| messages(MemPriv::RELAXED_ORDERING, mtu)).any(|early| early > 0));
}
