//! What a child of a fork gets of the memory that its parent shares with a server: copies of lent
//! pages, nothing of the arena, and no device. The parent forks in a process of its own, because a
//! child has only one of its threads.
#![expect(unsafe_code, reason = "fork is no safe function")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dat_core::provider::Region;
use dat_tests::bytes::Bytes;
use hca_mlx5::platform::{Bar, Dma, Lend, Reach};
use libc::{SIGSEGV, WEXITSTATUS, WIFEXITED, WIFSIGNALED, WTERMSIG};
use vfio_host::user::VfioUser;
use vfio_host::{Host, Options};

use crate::reopen::alone;
use crate::rig::Rig;

/// Runs the test in a process of its own, on a server of this one.
fn program(name: &str, test: impl FnOnce(VfioUser)) {
    const MARK: &str = "VFIO_USER_FORKS";
    if let Some(socket) = std::env::var_os(MARK) {
        return test(VfioUser::open(Path::new(&socket), &Options::default()).unwrap());
    }
    let rig = Rig::new();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(MARK, &rig.sockets[0])
        .status();
    assert!(status.unwrap().success());
}

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Exit(i32),
    Signal(i32),
}

/// A child, which ends with `child`: with 0 if that holds.
fn fork(child: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child uses what it has and ends.
    match unsafe { libc::fork() } {
        0 => {
            let code = i32::from(!child());
            // SAFETY: nothing of the parent's is to be run in the child.
            unsafe { libc::_exit(code) }
        }
        pid => {
            assert!(pid > 0);
            pid
        }
    }
}

fn end(child: libc::pid_t) -> End {
    let mut status = 0;
    // SAFETY: the status is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    if WIFEXITED(status) {
        return End::Exit(WEXITSTATUS(status));
    }
    assert!(WIFSIGNALED(status));
    End::Signal(WTERMSIG(status))
}

fn lend<const N: usize>(host: &VfioUser, bytes: &Bytes<N>, reach: Reach) {
    // SAFETY: taken back, or kept to the end.
    unsafe { host.lend(bytes.addr(), N as u64, reach) }.unwrap();
}

static STATIC: Bytes<9000> = Bytes::new();

/// A child finds what was there at the fork, whatever its parent stores then, and its parent
/// nothing of what the child stores.
fn copied<const N: usize>(host: &VfioUser, bytes: &Bytes<N>) {
    for reach in [Reach::ReadWrite, Reach::Read] {
        bytes.put(N - 20, b"before the fork");
        lend(host, bytes, reach);
        let (mut wait, mut go) = UnixStream::pair().unwrap();
        let child = fork(|| {
            wait.read_exact(&mut [0]).unwrap();
            let same = bytes.get(N - 20, 15) == b"before the fork" && bytes.get(0, 1) == [0];
            bytes.put(N - 20, b"of the child");
            same && bytes.get(N - 20, 12) == b"of the child"
        });
        bytes.put(N - 20, b"of the parent");
        // A page without contents is copied too.
        bytes.put(0, b"p");
        go.write_all(b"!").unwrap();
        assert_eq!(end(child), End::Exit(0));
        assert_eq!(bytes.get(N - 20, 15), b"of the parentrk");
        host.take_back(bytes.addr(), N as u64);
        assert_eq!(bytes.get(N - 20, 15), b"of the parentrk");
        bytes.put(0, &[0]);
    }
}

#[test]
fn a_child_gets_copies_of_lent_memory() {
    program("fork::a_child_gets_copies_of_lent_memory", |host| {
        copied(&host, &*Box::new(Bytes::<20_001>::new()));
        copied(&host, &STATIC);
        // The stack of a thread that does not fork.
        thread::scope(|scope| {
            let (ready, lent) = std::sync::mpsc::channel();
            let (done, end) = std::sync::mpsc::channel::<()>();
            let (host, bytes) = (&host, Bytes::<5000>::new());
            scope.spawn(move || {
                lend(host, &bytes, Reach::ReadWrite);
                ready.send(()).unwrap();
                end.recv().unwrap_err();
                assert_eq!(bytes.get(9, 1), [0]);
                host.take_back(bytes.addr(), 5000);
            });
            lent.recv().unwrap();
            copied(host, &STATIC);
            drop(done);
        });
    });
}

/// The child runs on a copy of its parent's very stack, and the device loses no store to it.
#[test]
fn a_child_of_a_thread_whose_stack_is_lent_gets_a_copy() {
    alone("fork::a_child_of_a_thread_whose_stack_is_lent_gets_a_copy", || {
        let rig = Rig::new();
        let host = rig.host(0);
        let bytes = Bytes::<64>::new();
        lend(&host, &bytes, Reach::ReadWrite);
        let iova = host.lent(Region { addr: bytes.addr(), len: 64 }).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            // The device counts in the other half meanwhile.
            let counting = scope.spawn(|| {
                let mut count = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    count += 1;
                    let store = count.to_ne_bytes();
                    let done = rig.server().with(0, move |f| f.dma_write(iova + 32, &store));
                    done.unwrap().unwrap();
                }
                count
            });
            for n in 0..50 {
                bytes.put(0, &[n; 13]);
                let child = fork(|| {
                    let same = bytes.get(0, 13) == [n; 13];
                    bytes.put(0, &[0xcc; 64]);
                    same && bytes.get(0, 64) == [0xcc; 64]
                });
                assert_eq!(end(child), End::Exit(0));
                assert_eq!(bytes.get(0, 13), [n; 13]);
            }
            stop.store(true, Ordering::Relaxed);
            let count = counting.join().unwrap();
            assert_eq!(bytes.get(32, 8), count.to_ne_bytes());
        });
        bytes.put(0, b"of the parent");
        let seen = rig.server().with(0, move |f| f.dma_read(iova, 13));
        assert_eq!(seen.unwrap().unwrap(), b"of the parent");
        host.take_back(bytes.addr(), 64);
        assert_eq!(bytes.get(0, 13), b"of the parent");
        assert_eq!(end(fork(|| true)), End::Exit(0));
    });
}

#[test]
fn a_child_has_no_device() {
    program("fork::a_child_has_no_device", |host| {
        let span = host.alloc(4096, 4096, Reach::ReadWrite).unwrap();
        host.memory().store32(span.offset, 7);
        let first = host.read32(0);
        assert_ne!(first, u32::MAX);
        let child = fork(|| {
            let error = host.config_space().unwrap_err();
            let text = error.to_string();
            host.write32(0, 1);
            host.read32(0) == u32::MAX
                && host.reset() == Err(error)
                && text.contains("vfio-user:")
                && text.contains("open in the parent process")
                && host.trouble().is_some()
        });
        assert_eq!(end(child), End::Exit(0));
        let child = fork(|| host.memory().load32(span.offset) == 7);
        assert_eq!(end(child), End::Signal(SIGSEGV), "the arena is the parent's");
        // SAFETY: the child ends.
        let child = match unsafe { libc::fork() } {
            0 => {
                drop(host);
                // SAFETY: as above.
                unsafe { libc::_exit(0) }
            }
            child => child,
        };
        assert_eq!(end(child), End::Exit(0));
        // Whatever they tried, the parent's device works on.
        assert_eq!((host.read32(0), host.trouble()), (first, None));
        assert!(host.config_space().unwrap().bus_master());
        assert_eq!(host.memory().load32(span.offset), 7);
    });
}

#[test]
fn forks_while_other_threads_lend() {
    program("fork::forks_while_other_threads_lend", |host| {
        let stop = AtomicBool::new(false);
        let order = Ordering::Relaxed;
        let all: Vec<Box<Bytes<{ 1 << 16 }>>> = (0..3).map(|_| Box::default()).collect();
        thread::scope(|scope| {
            for bytes in &all {
                // Whole pages, on which the allocator has nothing.
                let addr = bytes.addr().next_multiple_of(4096);
                let (host, stop) = (&host, &stop);
                scope.spawn(move || {
                    while !stop.load(order) {
                        // SAFETY: taken back at once.
                        unsafe { host.lend(addr, 8 * 4096, Reach::ReadWrite) }.unwrap();
                        host.take_back(addr, 8 * 4096);
                    }
                });
            }
            for n in 0..100 {
                let child = fork(|| {
                    all[0].put(4096, b"child");
                    all[0].get(4096, 5) == b"child"
                });
                assert_eq!(end(child), End::Exit(0), "child {n}");
                assert_eq!(all[0].get(4096, 5), [0; 5]);
            }
            stop.store(true, order);
        });
    });
}
