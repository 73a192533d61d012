//! All interleavings of the threads that share one word or a few, tried by loom (`cargo xtask
//! loom`). What they do together is in `tests/interleavings`.

extern crate std as dat_std;

use core::sync::atomic::Ordering;
use dat_std::boxed::Box;
use dat_std::format;
use dat_std::vec::Vec;

use loom::sync::Arc;
use loom::thread;

use crate::data::shared::ep::EpShared;
use crate::data::shared::evd::EvdShared;
use crate::data::shared::keys::Keys;
use crate::data::shared::lmr::{CONTEXT_BITS, LmrShared, RmrShared};
use crate::data::shared::request::{Op, Request, RequestSlot, Tag};
use crate::data::shared::stack::{END, Link, Stack};
use crate::provider::Region;
use crate::types::atomic::AtomicU32;
use crate::types::flags::MemPriv;
use crate::types::handle::{Handle, Rmr};

/// Makes a value that threads share, and makes it known to loom.
fn shared<T: core::fmt::Debug>(value: T) -> Arc<T> {
    let _ = format!("{value:?}");
    Arc::new(value)
}

/// The elements of a chain that was taken, each released as a reaper does.
fn release(stack: &Stack, links: &[Link]) -> Vec<u32> {
    let (mut id, mut found) = (stack.take(), Vec::new());
    while id != END {
        let link = &links[id as usize];
        let next = link.next();
        link.release();
        found.push(id);
        id = next;
    }
    found
}

/// Two producers note something and push the same element and one of their own; the consumer
/// empties the stack meanwhile. What a push that was left out had noted is seen by whoever took
/// the element then.
#[test]
fn no_push_is_lost_and_none_comes_twice() {
    loom::model(|| {
        let links = [const { Link::new() }; 2];
        let state = shared((Stack::new(), links, [const { AtomicU32::new(0) }; 2]));
        let producers = [0, 1].map(|own| {
            let state = Arc::clone(&state);
            thread::spawn(move || {
                let (stack, links, notes) = &*state;
                notes[own].store(1, Ordering::Relaxed);
                stack.push(0, &links[0]);
            })
        });
        let (stack, links, notes) = &*state;
        let seen = || [0, 1].map(|own| notes[own].load(Ordering::Relaxed));
        let mut last = [0; 2];
        if release(stack, links) == [0] {
            last = seen();
        }
        for producer in producers {
            producer.join().unwrap();
        }
        // Whatever was not seen the first time is on the stack again.
        if release(stack, links) == [0] {
            last = seen();
        }
        assert_eq!(last, [1; 2]);
        assert!(stack.is_empty());
    });
}

#[test]
fn a_chain_holds_every_element_that_was_pushed() {
    loom::model(|| {
        let links = [const { Link::new() }; 3];
        let state = shared((Stack::new(), links));
        let other = Arc::clone(&state);
        let producer = thread::spawn(move || {
            let (stack, links) = &*other;
            assert!(stack.push(0, &links[0]) && stack.push(1, &links[1]));
        });
        let (stack, links) = &*state;
        assert!(stack.push(2, &links[2]));
        let mut all = release(stack, links);
        producer.join().unwrap();
        all.extend(release(stack, links));
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
    });
}

/// A poster fills a slot; a reaper on another thread has a completion of its token. Returns whether
/// every interleaving shows the whole request.
fn hands_over(order: Ordering) -> bool {
    let torn = dat_std::sync::Arc::new(dat_std::sync::atomic::AtomicBool::new(false));
    let seen = dat_std::sync::Arc::clone(&torn);
    loom::model(move || {
        let slot = shared(RequestSlot::new());
        let other = Arc::clone(&slot);
        let poster = thread::spawn(move || {
            let tag = Tag::new(Op::RdmaWrite, false, 7);
            other.fill(Request { cookie: 5, len: 64, tag }, order);
        });
        if slot.tag().is_plainly(7) && (slot.cookie(), slot.len()) != (5, 64) {
            seen.store(true, Ordering::Relaxed);
        }
        poster.join().unwrap();
    });
    !torn.load(Ordering::Relaxed)
}

#[test]
fn a_matching_token_shows_cookie_and_length() {
    assert!(hands_over(Ordering::Release));
    assert!(!hands_over(Ordering::Relaxed), "loom finds what the order is for");
}

/// The version is read before anything else, so what it counts is found.
#[test]
fn whoever_knows_the_version_finds_what_it_counts() {
    loom::model(|| {
        let state = shared((EvdShared::new(), Link::new()));
        let before = state.0.version();
        let other = Arc::clone(&state);
        let control = thread::spawn(move || {
            other.0.producer.flush.push(3, &other.1);
            other.0.changed();
        });
        if state.0.version() != before {
            assert_eq!(state.0.producer.flush.top(), 3);
        }
        control.join().unwrap();
        assert!(state.0.version() != before && !state.0.producer.flush.is_empty());
    });
}

/// A bind holds the LMR beneath while another thread frees it.
#[test]
fn an_lmr_is_held_or_free_and_never_both() {
    loom::model(|| {
        let slot = shared(LmrShared::new());
        let context = 5 << CONTEXT_BITS | 1;
        slot.occupy(context, 0, MemPriv::ALL, Region { addr: 0, len: 64 }, 7);
        let other = Arc::clone(&slot);
        let binder = thread::spawn(move || other.hold(context));
        // As `lmr_free` does: shut first, then look whether anybody holds it.
        slot.vacate();
        let used = slot.bound.load(Ordering::SeqCst) != 0;
        let held = binder.join().unwrap();
        assert!(used || !held, "a bind holds an LMR that was freed");
        assert_eq!(slot.bound.load(Ordering::SeqCst), u32::from(held));
    });
}

/// An RMR that stays is found while another comes in front of it and leaves.
#[test]
fn a_key_is_found_while_its_chain_changes() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let rmrs = [const { RmrShared::new() }; 2];
        for (rmr, slot) in rmrs.iter().zip(0..) {
            rmr.occupy(Rmr(Handle::new(slot, 7)));
            rmr.rkey.store((slot + 1) << 8, Ordering::Relaxed);
        }
        let heads = [const { AtomicU32::new(0) }; 1];
        let _ = format!("{heads:?} {rmrs:?}");
        let keys = Keys::new(Box::leak(Box::new(heads)), Box::leak(Box::new(rmrs)));
        keys.enter(0);
        let control = thread::spawn(move || {
            keys.enter(1);
            keys.leave(1);
        });
        assert!(keys.find(1 << 8).is_some());
        control.join().unwrap();
        assert!(keys.find(1 << 8).is_some() && keys.find(2 << 8).is_none());
    });
}

/// The control half looks through completions while the reaper dequeues them: a follower is counted
/// until its completion has been dequeued.
#[test]
fn a_follower_is_done_once() {
    loom::model(|| {
        let ep = shared(EpShared::new());
        ep.slow.follower.start(7, 3);
        let other = Arc::clone(&ep);
        let reaper = thread::spawn(move || {
            let follower = &other.slow.follower;
            let known = follower.follows(7).is_some();
            if known {
                follower.done(7);
            } else {
                assert!(follower.earlier_done());
            }
        });
        let follower = &ep.slow.follower;
        let completed = follower.completed(7).is_some();
        if completed && !follower.is_under_way() {
            follower.start(9, 5);
        }
        reaper.join().unwrap();
        let left = follower.count();
        assert_eq!(left, u32::from(follower.follows(9).is_some()), "{follower:?}");
    });
}
