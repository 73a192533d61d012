//! The thread that has the adapter, beside posters and reapers, and beside another that wants it.

use core::time::Duration;

use dat_core::*;
use loom::sync::{Arc, Mutex};

use crate::world::{NONE, Side, World, explore};

/// What became of requests of cookies from 0 on, in the order of their events: whether each
/// succeeded; and how often the connection ended.
fn endings(events: &[Event], ep: Ep) -> (Vec<bool>, usize) {
    let (mut ends, mut done) = (0, Vec::new());
    for event in events {
        match *event {
            Event::Dto(DtoEvent { cookie, status, .. }) => {
                assert_eq!(cookie, done.len() as u64, "{events:?}");
                assert!(matches!(status, DtoStatus::Success | DtoStatus::ErrFlushed));
                done.push(status == DtoStatus::Success);
            }
            Event::Disconnected(of) if of == ep => ends += 1,
            other => panic!("{other:?}"),
        }
    }
    (done, ends)
}

fn disconnect(side: &mut Side, now: Instant) {
    side.ia.ep_disconnect(now, side.ep, CloseFlag::Abrupt).unwrap();
    side.ia.advance(now);
}

/// Two requests are posted while the connection is ended; the device carries none out if `held`.
fn posts_while_it_ends(held: bool) {
    explore(2, move || {
        let mut world = World::connected();
        world.fabric.hold(held);
        let (from, to) = (world.a.seg(), world.b.far());
        let mut poster = world.a.ia.ep_take_poster(world.a.ep).unwrap();
        let posting = loom::thread::spawn(move || {
            let post = |n| poster.post_rdma_write(&[from], n, &to, NONE).unwrap();
            (0..2).for_each(post);
            poster
        });
        disconnect(&mut world.a, world.now);
        let mut events = world.a.drain();
        let Ok(poster) = posting.join() else { panic!() };
        world.a.ia.ep_return_poster(poster).unwrap();
        world.fabric.hold(false);
        world.run();
        events.extend(world.a.drain());
        let (done, ends) = endings(&events, world.a.ep);
        assert_eq!((done.len(), ends), (2, 1), "{events:?}");
        assert!(!held || done == [false; 2]);
    });
}

#[test]
fn each_request_ends_once_though_the_connection_ends_meanwhile() {
    posts_while_it_ends(false);
}

#[test]
fn each_request_that_the_device_has_not_begun_is_flushed() {
    posts_while_it_ends(true);
}

#[test]
fn a_receive_posted_while_the_connection_ends_is_flushed() {
    explore(2, || {
        let mut world = World::connected();
        let to = world.a.seg();
        let mut poster = world.a.ia.ep_take_poster(world.a.ep).unwrap();
        let posting = loom::thread::spawn(move || {
            (0..2).for_each(|n| poster.post_recv(&[to], n, NONE).unwrap());
            poster
        });
        disconnect(&mut world.a, world.now);
        let Ok(poster) = posting.join() else { panic!() };
        world.a.ia.ep_return_poster(poster).unwrap();
        world.run();
        let events = world.a.drain();
        assert_eq!(endings(&events, world.a.ep), (vec![false; 2], 1), "{events:?}");
    });
}

/// The reaper is in another thread while completions, flushes and the end of the connection come.
#[test]
fn the_end_of_a_connection_comes_last_and_once() {
    explore(2, || {
        let mut world = World::connected();
        let (from, to) = (world.a.seg(), world.b.far());
        world.a.ia.ep_post_rdma_write(world.a.ep, &[from], 0, &to, NONE).unwrap();
        world.fabric.hold(true);
        world.a.ia.ep_post_rdma_write(world.a.ep, &[from], 1, &to, NONE).unwrap();
        let mut reaper = world.a.ia.evd_take_reaper(world.a.evd).unwrap();
        let reaping = loom::thread::spawn(move || {
            let events: Vec<Event> = (0..4).filter_map(|_| reaper.dequeue().ok()).collect();
            (reaper, events)
        });
        disconnect(&mut world.a, world.now);
        let (mut reaper, mut events) = reaping.join().unwrap();
        world.run();
        events.extend(core::iter::from_fn(|| reaper.dequeue().ok()));
        assert_eq!(events.last(), Some(&Event::Disconnected(world.a.ep)), "{events:?}");
        assert_eq!(endings(&events, world.a.ep), (vec![true, false], 1));
        assert_eq!(reaper.dropped(), (0, 0));
    });
}

/// Runs the two with the side's adapter behind a lock, as the uDAPL provider has it, and then lets
/// the first finish the world.
fn both(
    own: fn(&mut Side, Instant),
    other: fn(&mut Side, Instant),
    make: fn() -> World,
    end: fn(&mut Side, Instant),
) {
    explore(3, move || {
        let world = make();
        let now = world.now;
        let side = Arc::new(Mutex::new(world.a));
        let second = Arc::clone(&side);
        let thread = loom::thread::spawn(move || other(&mut second.lock().unwrap(), now));
        own(&mut side.lock().unwrap(), now);
        thread.join().unwrap();
        end(&mut side.lock().unwrap(), now);
    });
}

/// The answer to its request never comes: the timer ends it, or the program frees it before.
#[test]
fn a_timer_and_a_free_meet() {
    const LATE: Duration = Duration::from_secs(60);
    let asked = || {
        let mut world = World::unconnected();
        world.ask();
        loom::explore();
        world
    };
    both(
        |side, now| {
            side.ia.advance(now + LATE);
        },
        |side, now| side.ia.ep_free(now, side.ep).unwrap(),
        asked,
        |side, now| {
            side.ia.advance(now + LATE);
            assert!(side.ia.ep_query(side.ep).is_err());
            let events = side.drain();
            assert!(events.len() <= 1, "{events:?}");
            side.ia.advance(now + LATE + LATE);
            assert!(side.ia.pz_free(side.pz).is_err(), "the LMR is in it");
        },
    );
}

/// One thread accepts a request, another rejects it.
#[test]
fn a_request_is_answered_once() {
    explore(3, || {
        let mut world = World::unconnected();
        let cr = world.ask();
        loom::explore();
        let now = world.now;
        let (a, b) = (world.a, world.b);
        let asker = a.ep;
        let side = Arc::new(Mutex::new(b));
        let second = Arc::clone(&side);
        let rejecting =
            loom::thread::spawn(move || second.lock().unwrap().ia.cr_reject(now, cr, b"").is_ok());
        let accepted = {
            let mut side = side.lock().unwrap();
            let ep = side.ep;
            side.ia.cr_accept(now, cr, Some(ep), b"").is_ok()
        };
        let rejected = rejecting.join().unwrap();
        assert_ne!(accepted, rejected, "one of both answers");
        let Ok(side) = Arc::try_unwrap(side).map(|side| side.into_inner().unwrap()) else {
            panic!()
        };
        let mut world = World { a, b: side, ..world };
        world.run();
        let events = world.a.drain();
        let [event] = events[..] else { panic!("{events:?}") };
        match event {
            Event::Established(ep) => assert!(accepted && ep == asker),
            _ => assert!(rejected, "{event:?}"),
        }
    });
}
