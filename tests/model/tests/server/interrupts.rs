//! MSI-X by eventfd, from the event queue to the descriptor.

use crate::rig::{
    Dir, Driver, EINVAL, Raw, cmd, command, eventfd, fields, memfd, serve, signalled, until,
};
use std::os::fd::{AsFd, AsRawFd};
use vfio_user::Client;

const NONE_TRIGGER: u32 = 0x21;
const BOOL_TRIGGER: u32 = 0x22;
const EVENTFD_TRIGGER: u32 = 0x24;
const MSIX: u32 = 2;

#[test]
fn an_event_arrives_as_a_vector() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut driver = Driver::new(&dir.at("a"));
    driver.init();
    let fd = eventfd();
    driver.raw.set_irqs(EVENTFD_TRIGGER, MSIX, 3, 1, &[fd.as_fd()]).unwrap();
    let (page, eqn) = driver.event_queue(3);
    for n in 1..=3 {
        driver.ok(&cmd(0x80d, 0, 16), 16);
        until("the vector", || signalled(&fd) == 1);
        // Answered, not before: CREATE_EQ came before its queue, so NOP's is the first entry.
        assert_eq!(driver.get(crate::rig::RING + (n - 1) * 64, 2)[1], 0x0a);
        driver.arm(page, eqn, n as u32);
    }
    assert_eq!(server.stop().functions[0].complaints, [""; 0]);
}

#[test]
fn a_vector_without_eventfd_waits_for_one() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut driver = Driver::new(&dir.at("a"));
    driver.init();
    driver.event_queue(9);
    driver.ok(&cmd(0x80d, 0, 16), 16);
    let pending = |driver: &mut Driver| driver.raw.read(0, 0x3000, 8).unwrap();
    until("a pending bit", || pending(&mut driver)[1] == 2);
    let (other, fd) = (eventfd(), eventfd());
    let pair = [other.as_fd(), fd.as_fd()];
    driver.raw.set_irqs(EVENTFD_TRIGGER, MSIX, 8, 2, &pair).unwrap();
    assert_eq!((signalled(&other), signalled(&fd)), (0, 1));
    assert_eq!(pending(&mut driver), [0; 8]);
    assert_eq!(server.with(0, |one| one.stats().interrupts), Some(1));
}

#[test]
fn a_reset_forgets_what_was_pending() {
    let dir = Dir::new();
    let _server = serve(&dir);
    let mut raw = Raw::greet(&dir.at("a"));
    raw.set_irqs(NONE_TRIGGER, MSIX, 5, 1, &[]).unwrap();
    raw.set_command(2);
    assert_eq!(raw.read(0, 0x3000, 1).unwrap(), [1 << 5]);
    raw.call(command::RESET, &[], &[]).unwrap();
    raw.set_command(2);
    assert_eq!(raw.read(0, 0x3000, 1).unwrap(), [0]);
}

#[test]
fn eventfds_by_the_crates_client() {
    let dir = Dir::new();
    let _server = serve(&dir);
    let mut client = Client::new(&dir.at("a")).unwrap();
    let fds = [eventfd(), eventfd()];
    for (start, fd) in fds.iter().enumerate() {
        client.set_irqs(MSIX, EVENTFD_TRIGGER, start as u32, 1, &[fd.as_raw_fd()]).unwrap();
    }
    client.set_irqs(MSIX, NONE_TRIGGER, 1, 1, &[]).unwrap();
    assert_eq!((signalled(&fds[0]), signalled(&fds[1])), (0, 1));
    client.set_irqs(MSIX, NONE_TRIGGER, 0, 0, &[]).unwrap();
    client.set_irqs(MSIX, NONE_TRIGGER, 0, 2, &[]).unwrap();
    assert_eq!((signalled(&fds[0]), signalled(&fds[1])), (0, 0), "all taken away");
}

#[test]
fn a_burst_of_eventfds_and_chosen_triggers() {
    let dir = Dir::new();
    let _server = serve(&dir);
    let mut raw = Raw::greet(&dir.at("a"));
    let fds: Vec<_> = (0..16).map(|_| eventfd()).collect();
    let all: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    raw.set_irqs(EVENTFD_TRIGGER, MSIX, 0, 16, &all).unwrap();
    let mut body = fields![20u32, BOOL_TRIGGER, MSIX, 4u32, 3u32];
    body.extend_from_slice(&[1, 0, 1]);
    raw.call(command::SET_IRQS, &body, &[]).unwrap();
    let fired: Vec<usize> = (0..16).filter(|k| signalled(&fds[*k]) != 0).collect();
    assert_eq!(fired, [4, 6]);
    raw.set_irqs(EVENTFD_TRIGGER, MSIX, 4, 1, &[]).unwrap();
    raw.set_irqs(NONE_TRIGGER, MSIX, 4, 3, &[]).unwrap();
    let fired: Vec<usize> = (0..16).filter(|k| signalled(&fds[*k]) != 0).collect();
    assert_eq!(fired, [5, 6], "4 was taken away");
}

#[test]
fn nonsense_is_refused() {
    let dir = Dir::new();
    let _server = serve(&dir);
    let mut raw = Raw::greet(&dir.at("a"));
    let fd = eventfd();
    let fd = fd.as_fd();
    for (flags, index, start, count, fds) in [
        (EVENTFD_TRIGGER, 9, 0, 1, &[fd][..]),
        (EVENTFD_TRIGGER, MSIX, 32, 1, &[fd]),
        (EVENTFD_TRIGGER, MSIX, u32::MAX, 2, &[fd]),
        (EVENTFD_TRIGGER, MSIX, 0, 3, &[fd]),
        (NONE_TRIGGER, MSIX, 31, 2, &[]),
        (BOOL_TRIGGER, MSIX, 0, 2, &[]),
        (0, MSIX, 0, 1, &[]),
        (0x09, MSIX, 0, 1, &[]),
        (EVENTFD_TRIGGER, 1, 0, 1, &[fd]),
    ] {
        let refused = raw.set_irqs(flags, index, start, count, fds);
        assert_eq!(refused, Err(EINVAL), "{flags:#x} {index} {start} {count}");
    }
    let file = memfd(4096);
    let no_eventfd = raw.set_irqs(EVENTFD_TRIGGER, MSIX, 0, 1, &[file.as_fd()]);
    assert_eq!(no_eventfd, Err(EINVAL));
}

#[test]
fn error_and_request_have_lines_of_their_own() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut raw = Raw::greet(&dir.at("a"));
    let (error, request) = (eventfd(), eventfd());
    raw.set_irqs(EVENTFD_TRIGGER, 3, 0, 1, &[error.as_fd()]).unwrap();
    raw.set_irqs(EVENTFD_TRIGGER, 4, 0, 1, &[request.as_fd()]).unwrap();
    server.with(0, |one| one.request_back()).unwrap();
    assert_eq!((signalled(&error), signalled(&request)), (0, 1));
    server.with(0, |one| one.signal_error()).unwrap();
    assert_eq!((signalled(&error), signalled(&request)), (1, 0));
}
