//! Posters and reapers in threads of their own.

use dat_core::*;

use crate::world::{NONE, Poster, Reaper, World, explore};

const WRITES: u64 = 3;

/// Posts RDMA writes with cookies from 0 on, each until it is admitted. `turns` bounds the attempts
/// that a full queue refuses.
fn post(
    poster: &mut Poster,
    from: LmrTriplet,
    to: &RmrTriplet,
    flags: fn(u64) -> CompletionFlags,
) -> u64 {
    let mut posted = 0;
    for _ in 0..2 * WRITES {
        match poster.post_rdma_write(&[from], posted, to, flags(posted)) {
            Ok(()) => posted += 1,
            Err(full) => {
                assert_eq!(full.ty(), DatType::InsufficientResources);
                loom::thread::yield_now();
            }
        }
        if posted == WRITES {
            break;
        }
    }
    posted
}

/// The cookies of the successes that a reaper finds in so many attempts.
fn reap(reaper: &mut Reaper, attempts: usize) -> Vec<u64> {
    let mut cookies = Vec::new();
    for _ in 0..attempts {
        match reaper.dequeue() {
            Ok(Event::Dto(DtoEvent { cookie, status: DtoStatus::Success, len: 8, .. })) => {
                cookies.push(cookie);
            }
            Ok(other) => panic!("{other:?}"),
            Err(_) => loom::thread::yield_now(),
        }
    }
    cookies
}

fn two_threads(flags: fn(u64) -> CompletionFlags) {
    explore(3, move || {
        let mut world = World::connected();
        let (from, to) = (world.a.seg(), world.b.far());
        let mut poster = world.a.ia.ep_take_poster(world.a.ep).unwrap();
        let mut reaper = world.a.ia.evd_take_reaper(world.a.evd).unwrap();
        let posting = loom::thread::spawn(move || post(&mut poster, from, &to, flags));
        let mut cookies = reap(&mut reaper, 3);
        let posted = posting.join().unwrap();
        cookies.extend(reap(&mut reaper, 3));
        let reported = |cookie: &u64| !flags(*cookie).contains(CompletionFlags::SUPPRESS);
        assert_eq!(cookies, (0..posted).filter(reported).collect::<Vec<_>>());
        assert_eq!(reaper.dropped(), (0, 0));
    });
}

#[test]
fn a_slot_that_is_used_again_gives_each_completion_its_own_cookie() {
    two_threads(|_| NONE);
}

#[test]
fn suppressed_requests_end_with_the_one_behind_them() {
    two_threads(|n| if n == 0 { CompletionFlags::SUPPRESS } else { NONE });
}
