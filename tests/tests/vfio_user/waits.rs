//! Waits: by threshold and timeout, over several dispatchers, from two threads, by another
//! program's descriptor.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use dat_core::{CloseFlag, DatType, EvdFlags, Event, PspFlag};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vfio_host::aio::AsyncNic;
use vfio_host::{NicStorage, WaitError};

use crate::rig::{LONG, NONE, Pair, Rig, SERVICE, Side, address};

const SHORT: Duration = Duration::from_millis(30);

#[test]
fn a_wait_ends_in_time_and_what_came_stays() {
    let rig = Rig::new();
    let host = rig.host(0);
    let mut room = Box::new(NicStorage::new());
    let Side { mut nic, .. } = Side::open(&host, &mut room, 0);
    let evd = nic.evd_create(4, EvdFlags::SOFTWARE).unwrap();
    let other = nic.evd_create(4, EvdFlags::SOFTWARE).unwrap();

    let start = Instant::now();
    assert_eq!(nic.evd_wait(evd, SHORT, 1), Err(WaitError::TIMEOUT));
    assert!(start.elapsed() >= SHORT);
    assert_eq!(nic.evd_wait(evd, Duration::ZERO, 1), Err(WaitError::TIMEOUT));

    nic.evd_post_se(evd, 1).unwrap();
    nic.evd_post_se(evd, 2).unwrap();
    assert_eq!(nic.evd_wait(evd, SHORT, 3), Err(WaitError::TIMEOUT));
    assert_eq!(nic.evd_more(evd), Ok(2));
    assert_eq!(nic.wait_any(&[other, evd], LONG), Ok(evd));
    nic.evd_post_se(evd, 3).unwrap();
    assert_eq!(nic.evd_wait(evd, LONG, 3), Ok(Event::Software(1)));
    assert_eq!(nic.evd_dequeue(evd), Ok(Event::Software(2)));
    assert_eq!(nic.evd_dequeue(evd), Ok(Event::Software(3)));
    assert!(nic.evd_dequeue(evd).is_err());

    for threshold in [0, 5] {
        let Err(WaitError::Dat(error)) = nic.evd_wait(evd, LONG, threshold) else {
            panic!("threshold {threshold}");
        };
        assert_eq!(error.ret().ty(), DatType::InvalidParameter);
    }
    nic.evd_post_se(evd, 4).unwrap();
    assert_eq!(nic.prepare(&[evd]), Ok(true));
    nic.evd_free(evd).unwrap();
    assert!(matches!(nic.evd_wait(evd, LONG, 1), Err(WaitError::Dat(_))));
}

#[test]
fn a_cno_gathers_dispatchers_and_has_a_descriptor() {
    let rig = Rig::new();
    let host = rig.host(0);
    let mut room = Box::new(NicStorage::new());
    let Side { mut nic, .. } = Side::open(&host, &mut room, 0);
    let (fd, cno) = nic.cno_fd_create().unwrap();
    let [one, two] =
        [0, 1].map(|_| nic.evd_create_with_cno(4, Some(cno), EvdFlags::SOFTWARE).unwrap());
    assert_eq!(nic.cno_wait(cno, SHORT), Err(WaitError::UNTRIGGERED));
    nic.evd_post_se(two, 1).unwrap();
    assert_eq!(nic.cno_wait(cno, LONG), Ok(Some(two)));
    nic.evd_post_se(one, 2).unwrap();
    assert_eq!(nic.cno_trigger(cno), Ok(one));
    assert_eq!(nic.cno_trigger(cno), Err(WaitError::UNTRIGGERED));
    // Nothing is there, so the descriptor is readable at most for the adapter's own sake.
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let _ = poll(&mut fds, Some(&Timespec::default())).unwrap();
    assert_eq!(nic.cno_trigger(cno), Err(WaitError::UNTRIGGERED));
    for evd in [one, two] {
        assert!(nic.evd_dequeue(evd).is_ok());
        nic.evd_free(evd).unwrap();
    }
    nic.cno_free(cno).unwrap();
}

/// The thread that waits drives the adapter; the one with the reaping half sleeps until an agent
/// unparks it.
#[test]
fn a_thread_with_the_reaper_sleeps_until_an_agent_wakes_it() {
    const MESSAGES: u64 = 50;
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let rig = Rig::new();
    let host = rig.host(0);
    let mut room = Box::new(NicStorage::new());
    let Side { mut nic, .. } = Side::open(&host, &mut room, 0);
    let (request, reply) = std::sync::mpsc::channel();
    let cno = nic.cno_create(None).unwrap();
    let evd = nic.evd_create_with_cno(64, Some(cno), EvdFlags::SOFTWARE).unwrap();
    let mut reaper = nic.evd_take_reaper(evd).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut next = 0;
            while next < MESSAGES {
                // Asks for an agent, looks, and sleeps: what comes after the look finds the agent.
                let waker = std::sync::Arc::new(Unpark(std::thread::current()));
                let (done, installed) = std::sync::mpsc::channel();
                request.send((waker, done)).unwrap();
                installed.recv().unwrap();
                let mut seen = false;
                while let Ok(Event::Software(pointer)) = reaper.dequeue() {
                    assert_eq!(pointer, next);
                    next += 1;
                    seen = true;
                }
                if !seen {
                    std::thread::park_timeout(LONG);
                }
            }
        });
        let mut posted = 0;
        while let Ok((waker, done)) = reply.recv() {
            let agent = dat_core::Agent::Waker(waker.into());
            nic.cno_modify_agent(cno, Some(agent)).unwrap();
            done.send(()).unwrap();
            if posted < MESSAGES {
                nic.evd_post_se(evd, posted).unwrap();
                posted += 1;
            }
            assert!(nic.cno_wait(cno, LONG).is_ok() || posted == MESSAGES);
        }
    });
}

#[test]
fn two_threads_wait_for_each_other() {
    const MESSAGES: u64 = 200;
    let rig = Rig::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let host = rig.host(1);
            let mut room = Box::new(NicStorage::new());
            let mut side = Side::open(&host, &mut room, 1);
            let (evd, ep) = (side.evd, side.ep);
            side.nic.psp_create(SERVICE.into(), evd, PspFlag::Consumer).unwrap();
            let place = side.near(0, 64);
            side.nic.ep_post_recv(ep, &place, 0, NONE).unwrap();
            let Ok(Event::ConnectionRequest { cr, .. }) = side.nic.evd_wait(evd, LONG, 1) else {
                panic!("no request");
            };
            side.nic.cr_accept(cr, Some(ep), b"").unwrap();
            let event = side.nic.evd_wait(evd, LONG, 1);
            assert_eq!(event, Ok(Event::Established(ep)));
            for n in 0..MESSAGES {
                // The message, the next receive, the answer and its completion.
                let event = side.nic.evd_wait(evd, LONG, 1);
                assert!(matches!(event, Ok(Event::Dto(done)) if done.cookie == n), "{event:?}");
                assert_eq!(side.look(0, 8), n.to_ne_bytes());
                side.nic.ep_post_recv(ep, &place, n + 1, NONE).unwrap();
                side.nic.ep_post_send(ep, &place, 1000, NONE).unwrap();
                let event = side.nic.evd_wait(evd, LONG, 1);
                assert!(matches!(event, Ok(Event::Dto(done)) if done.cookie == 1000), "{event:?}");
            }
            let event = side.nic.evd_wait(evd, LONG, 1);
            assert!(matches!(event, Ok(Event::Dto(_) | Event::Disconnected(_))), "{event:?}");
        });
        let host = rig.host(0);
        let mut room = Box::new(NicStorage::new());
        let mut side = Side::open(&host, &mut room, 0);
        let (evd, ep) = (side.evd, side.ep);
        let remote = SocketAddr::new(address(1), SERVICE);
        // The listener may be up a moment later.
        loop {
            side.nic.ep_connect(ep, remote, LONG, b"").unwrap();
            match side.nic.evd_wait(evd, LONG, 1).unwrap() {
                Event::Established(_) => break,
                Event::NonPeerRejected(_) | Event::Unreachable(_) => side.nic.ep_reset(ep).unwrap(),
                other => panic!("{other:?}"),
            }
        }
        for n in 0..MESSAGES {
            let place = side.near(64, 64);
            side.nic.ep_post_recv(ep, &place, 1, NONE).unwrap();
            side.buffer.copy_in(0, &n.to_ne_bytes());
            let place = side.near(0, 64);
            side.nic.ep_post_send(ep, &place, 2, NONE).unwrap();
            // Both at once: the sending's completion and the answer.
            let first = side.nic.evd_wait(evd, LONG, 2).unwrap();
            let second = side.nic.evd_dequeue(evd).unwrap();
            for event in [first, second] {
                assert!(matches!(event, Event::Dto(done) if done.cookie < 3), "{event:?}");
            }
            assert_eq!(side.look(64, 8), n.to_ne_bytes());
        }
        side.nic.close(CloseFlag::Abrupt).unwrap();
    });
}

#[test]
fn the_descriptor_of_an_idle_adapter_does_not_spin() {
    let rig = Rig::new();
    rig.connected(|pair| {
        let side = &mut pair.sides[0];
        // The rest of the connection's work is done.
        let start = Instant::now();
        let mut turns = 0;
        while start.elapsed() < Duration::from_millis(500) {
            assert_eq!(side.nic.prepare(&[side.evd]), Ok(false));
            let fd = side.nic.as_fd();
            let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
            let limit = Timespec::try_from(Duration::from_millis(500)).unwrap();
            poll(&mut fds, Some(&limit)).unwrap();
            turns += 1;
        }
        assert!(turns < 50, "{turns} wake-ups in half a second");
    });
}

#[test]
fn futures_wait_for_each_other_in_one_thread() {
    // Adapters are large values, and futures move them about.
    let thread = std::thread::Builder::new().stack_size(16 << 20);
    thread.spawn(by_turns).unwrap().join().unwrap();
}

/// Nothing would wake such a wait any more.
#[test]
fn a_wait_on_a_runtime_that_has_ended_is_interrupted() {
    let rig = Rig::new();
    let host = rig.host(0);
    let mut room = Box::new(NicStorage::new());
    let Side { nic, evd, .. } = Side::open(&host, &mut room, 0);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let mut nic = first.block_on(async { AsyncNic::new(nic) }).unwrap();
    drop(first);
    let waited =
        runtime().block_on(async { tokio::time::timeout(LONG, nic.evd_wait(evd, 1)).await });
    let interrupted = dat_core::DatReturn::of(DatType::InterruptedCall);
    assert_eq!(waited.expect("in time"), Err(interrupted.into()));
}

fn by_turns() {
    const MESSAGES: u64 = 100;
    let rig = Rig::new();
    let hosts = [rig.host(0), rig.host(1)];
    let mut rooms = [Box::new(NicStorage::new()), Box::new(NicStorage::new())];
    let pair = Pair::open(&hosts, &mut rooms);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let [a, b] = pair.sides;
    // Each sends what it received and 1 more, by turns.
    async fn bounce(side: Side<'_>, starts: bool) {
        let (near, far) = (side.near(0, 64), side.near(64, 64));
        let (evd, ep, buffer) = (side.evd, side.ep, side.buffer);
        let mut nic = AsyncNic::new(side.nic).unwrap();
        // A dispatcher on which nothing comes ends by the runtime's limit.
        let async_evd = nic.async_evd();
        let idle = tokio::time::timeout(SHORT, nic.evd_wait(async_evd, 1)).await;
        assert!(idle.is_err());
        nic.ep_post_recv(ep, &far, 0, NONE).unwrap();
        let mut value = u64::from(starts);
        if starts {
            buffer.copy_in(0, &value.to_ne_bytes());
            nic.ep_post_send(ep, &near, 1000, NONE).unwrap();
        }
        while value < MESSAGES {
            match nic.evd_wait(evd, 1).await.unwrap() {
                Event::Dto(done) if done.cookie == 1000 => {}
                Event::Dto(_) => {
                    let mut bytes = [0; 8];
                    buffer.copy_out(64, &mut bytes);
                    value = u64::from_ne_bytes(bytes) + 1;
                    nic.ep_post_recv(ep, &far, 0, NONE).unwrap();
                    buffer.copy_in(0, &value.to_ne_bytes());
                    nic.ep_post_send(ep, &near, 1000, NONE).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        // The last message leaves before the adapter does.
        while let Ok(Event::Dto(done)) = nic.evd_wait(evd, 1).await {
            if done.cookie == 1000 {
                break;
            }
        }
        // Each waits for the other to know.
        nic.close(CloseFlag::Abrupt).await.unwrap();
    }
    runtime.unwrap().block_on(async {
        let both = async { tokio::join!(bounce(a, true), bounce(b, false)) };
        tokio::time::timeout(LONG, both).await.unwrap();
    });
}
