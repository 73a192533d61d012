//! Hostile vfio-user servers: whatever they send or withhold, a call returns with an error within
//! its deadline, and memory stays mapped.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use hca_mlx5::platform::{Bar, Dma, Reach};
use rustix::fs::{SealFlags, fcntl_get_seals, ftruncate};
use vfio_host::user::VfioUser;
use vfio_host::{Host, Options};

use crate::proxy::{Act, Proxy};

/// How long the client waits for a reply: longer than what is to be quick.
pub(crate) const REPLY_LIMIT: Duration = Duration::from_millis(2500);
/// A call that takes longer than a few of those hangs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(8);
pub(crate) const QUICK: Duration = Duration::from_secs(2);

/// Runs `call` in a thread of its own, which is left behind if it hangs.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    what: &str,
    call: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (done, result) = mpsc::channel();
    let start = Instant::now();
    thread::spawn(move || done.send(call()));
    match result.recv_timeout(limit) {
        Ok(result) => result,
        Err(error) => panic!("{what}: no return within {:?}: {error}", start.elapsed()),
    }
}

pub(crate) fn open(
    proxy: &Proxy,
    what: &str,
    limit: Duration,
) -> Result<VfioUser, vfio_host::Error> {
    let path = proxy.path.clone();
    let options = Options { reply_limit: REPLY_LIMIT, ..Options::default() };
    within(limit, what, move || VfioUser::open(&path, &options))
}

/// While the device is being opened: at each of the first replies, and never later than that.
fn opening_fails(act: Act, limit: Duration) {
    let mut refused = 0;
    let numbers: &[usize] = if limit > QUICK { &[4] } else { &[0, 1, 2, 3, 5, 8] };
    for &nth in numbers {
        let proxy = Proxy::new(move |n, _| if n == nth { act } else { Act::Honest });
        refused += usize::from(open(&proxy, &format!("{act:?} at {nth}"), limit).is_err());
    }
    assert_eq!(refused, numbers.len(), "{act:?}");
}

/// While the device is in use: a load of a register gives all ones, and the cause is there.
fn using_fails(act: Act, limit: Duration) {
    let proxy = Proxy::new(|_, _| Act::Honest);
    let host = open(&proxy, "honest", DEADLINE).unwrap();
    assert_ne!(host.read32(0), u32::MAX);
    proxy.then(move |_, _| act);
    let (value, trouble) =
        within(limit, &format!("{act:?}"), move || (host.read32(0), host.trouble().is_some()));
    assert_eq!((value, trouble), (u32::MAX, true), "{act:?}");
}

macro_rules! hostile {
    ($($module:ident: $act:expr, $limit:expr;)*) => {
        $(mod $module {
            use super::*;
            #[test]
            fn while_opening() {
                opening_fails($act, $limit);
            }
            #[test]
            fn in_use() {
                using_fails($act, $limit);
            }
        })*
    };
}

hostile! {
    half_a_reply: Act::Half, DEADLINE;
    no_reply: Act::Silent, DEADLINE;
    a_reply_byte_by_byte: Act::Trickle(Duration::from_secs(1)), DEADLINE;
    complaints_without_end: Act::Complain(Duration::from_millis(1)), DEADLINE;
    complaints_as_fast_as_can_be: Act::Complain(Duration::ZERO), DEADLINE;
    complaints_now_and_then: Act::Complain(Duration::from_secs(1)), DEADLINE;
    another_request_s_reply: Act::WrongId, QUICK;
    a_reply_shorter_than_its_header: Act::Length(3), QUICK;
    a_reply_longer_than_memory: Act::Length(u32::MAX), QUICK;
    a_reply_that_promises_more: Act::Length(200), DEADLINE;
    a_request_instead_of_a_reply: Act::Request, QUICK;
    death: Act::Dead, QUICK;
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Descriptors that nobody asked for are closed, or the connection is: they do not pile up.
#[test]
fn descriptors_in_replies_do_not_pile_up() {
    for count in [1, 2, 16, 200] {
        let proxy = Proxy::new(|_, _| Act::Honest);
        let host = open(&proxy, "honest", DEADLINE).unwrap();
        proxy.then(move |_, _| Act::Descriptors(count));
        let before = open_descriptors();
        for _ in 0..20 {
            let _ = host.read32(0);
        }
        // Other tests of this program open some of their own.
        let more = open_descriptors().saturating_sub(before);
        assert!(more < 20 * count.min(16) || more < 200, "{more} more descriptors");
    }
}

/// The server has the file behind the memory: it may not make it shorter under its user.
#[test]
fn the_memory_file_cannot_be_truncated() {
    let proxy = Proxy::new(|_, _| Act::Honest);
    let host = open(&proxy, "honest", DEADLINE).unwrap();
    let span = host.alloc(1 << 16, 4096, Reach::ReadWrite);
    let lent = proxy.lent.lock().unwrap();
    assert!(!lent.is_empty() && span.is_some());
    for file in lent.iter() {
        let len = file.metadata().unwrap().len();
        assert!(ftruncate(file, 0).is_err(), "{len} bytes of memory are gone");
        assert!(ftruncate(file, len / 2).is_err());
        let seals = fcntl_get_seals(file).unwrap();
        assert!(seals.contains(SealFlags::SHRINK), "{seals:?}");
        // And nobody takes the seal off again.
        assert_eq!(file.metadata().unwrap().len(), len);
    }
    drop(lent);
    assert_ne!(host.read32(0), u32::MAX);
}

/// A reply twice: the second one answers nothing.
#[test]
fn a_reply_that_comes_twice_ends_the_connection() {
    let proxy = Proxy::new(|_, _| Act::Honest);
    let host = open(&proxy, "honest", DEADLINE).unwrap();
    proxy.then(|_, _| Act::Twice);
    let first = host.read32(0);
    let second = within(QUICK, "twice", move || (host.read32(4), host.trouble().is_some()));
    assert_ne!(first, u32::MAX);
    assert_eq!(second, (u32::MAX, true));
}

/// The whole open takes a bounded time too, with a server that is as slow as it may be each time.
#[test]
fn a_server_that_is_always_slow() {
    let proxy = Proxy::new(|_, _| Act::Trickle(Duration::from_millis(10)));
    let _ = open(&proxy, "slow", Duration::from_secs(60));
}
