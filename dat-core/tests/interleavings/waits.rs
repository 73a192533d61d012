//! Waits: no thread sleeps while an event is there that nobody announces.

use core::task::Poll;
use core::time::Duration;

use dat_core::*;

use crate::world::{NONE, World, explore};

/// The thread that has the adapter waits, as `dat_evd_wait` does: looks, arms, looks, sleeps.
/// Another posts.
#[test]
fn a_completion_ends_the_sleep_of_whoever_has_the_adapter() {
    explore(3, || {
        let mut world = World::connected();
        let (from, to) = (world.a.seg(), world.b.far());
        let mut poster = world.a.ia.ep_take_poster(world.a.ep).unwrap();
        let posting = loom::thread::spawn(move || {
            poster.post_rdma_write(&[from], 7, &to, NONE).unwrap();
        });
        let (now, evd, ia) = (world.now, world.a.evd, &mut world.a.ia);
        let mut wait = ia.evd_wait(now, evd, Duration::from_secs(1), 1).unwrap();
        let mut found = ia.evd_waited(now, &mut wait);
        if found.is_pending() {
            ia.evd_arm(evd, false).unwrap();
            found = ia.evd_waited(now, &mut wait);
        }
        posting.join().unwrap();
        if found.is_pending() {
            ia.advance(now);
            assert!(ia.evd_take_notice(evd), "it sleeps, and nothing wakes it");
            found = ia.evd_waited(now, &mut wait);
        }
        let Poll::Ready(Ok(Event::Dto(DtoEvent { cookie: 7, .. }))) = found else {
            panic!("{found:?}")
        };
    });
}

/// A reaper in another thread looks, arms, looks and sleeps while the connection ends. Who has the
/// adapter wakes it when the adapter says that something happened.
#[test]
fn the_end_of_a_connection_ends_the_sleep_of_a_reaper() {
    explore(3, || {
        let mut world = World::connected();
        let mut reaper = world.a.ia.evd_take_reaper(world.a.evd).unwrap();
        let reaping = loom::thread::spawn(move || {
            let mut found = reaper.dequeue();
            if found.is_err() {
                reaper.arm(false);
                found = reaper.dequeue();
            }
            (reaper, found)
        });
        world.a.ia.ep_disconnect(world.now, world.a.ep, CloseFlag::Abrupt).unwrap();
        let work = world.a.ia.advance(world.now).work;
        let (mut reaper, found) = reaping.join().unwrap();
        assert!(found.is_ok() || work, "it sleeps, and nothing wakes it");
        let found = found.or_else(|_| reaper.dequeue());
        assert_eq!(found, Ok(Event::Disconnected(world.a.ep)));
    });
}

/// What is posted after the end comes back flushed. The poster says so, and whoever waits is woken.
#[test]
fn a_post_behind_the_end_is_seen_or_announced() {
    explore(3, || {
        let mut world = World::connected();
        let (from, to) = (world.a.seg(), world.b.far());
        let mut poster = world.a.ia.ep_take_poster(world.a.ep).unwrap();
        let posting = loom::thread::spawn(move || {
            poster.post_rdma_write(&[from], 7, &to, NONE).unwrap();
            poster.is_flushing()
        });
        world.a.ia.ep_disconnect(world.now, world.a.ep, CloseFlag::Abrupt).unwrap();
        world.a.ia.advance(world.now);
        let seen = world.a.drain();
        let announced = posting.join().unwrap();
        let ended = |event: &Event| matches!(event, Event::Dto(DtoEvent { cookie: 7, .. }));
        let later = world.a.drain();
        assert!(seen.iter().chain(&later).any(ended), "{seen:?} {later:?}");
        assert!(seen.iter().any(ended) || announced, "it sleeps, and nothing wakes it");
    });
}
