//! What a hostile vfio-user server does with the files that it shares with its client, and lies in
//! its replies.
#![expect(unsafe_code, reason = "the tests lend their own memory")]

use std::fs::File;
use std::io::{IoSliceMut, Write};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use dat_tests::bytes::Bytes;
use hca_mlx5::platform::{Bar, Dma, Reach};
use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate};
use rustix::io::{ReadWriteFlags, preadv2};
use vfio_host::Host;
use vfio_host::user::VfioUser;

use crate::proxy::{Act, Proxy};
use crate::server::{DEADLINE, QUICK, REPLY_LIMIT, open, within};

fn honest() -> (Proxy, VfioUser) {
    let proxy = Proxy::new(|_, _| Act::Honest);
    let host = open(&proxy, "honest", DEADLINE).unwrap();
    (proxy, host)
}

fn lend<const N: usize>(host: &VfioUser, bytes: &Bytes<N>, reach: Reach) {
    // SAFETY: taken back before the bytes go.
    unsafe { host.lend(bytes.addr(), N as u64, reach) }.unwrap();
}

/// Whole pages: a server may write to all of the pages that lent bytes touch, so to what the
/// allocator or another test has there too.
#[repr(align(4096))]
struct Whole<const N: usize>(Bytes<N>);

/// Any reply while the device is opened, filled with one byte: lengths of regions of 0 and of all
/// ones, as many interrupts, another version, another configuration space.
#[test]
fn lies_of_every_reply_while_opening() {
    let mut opened = 0;
    for byte in [0, 1, 0x7f, 0x80, 0xff] {
        for nth in 0..20 {
            let proxy =
                Proxy::new(move |n, _| if n == nth { Act::Fill(byte) } else { Act::Honest });
            if let Ok(host) = open(&proxy, &format!("{byte} at {nth}"), DEADLINE) {
                opened += 1;
                within(DEADLINE, "use", move || {
                    let _ = (host.read32(0), host.config_space(), host.trouble());
                    let _ = host.read32(host.bar_len().wrapping_sub(4));
                    host.write64(host.bar_len().wrapping_sub(8) & !7, 1);
                });
            }
        }
    }
    // Most replies of these have no body.
    assert!((20..100).contains(&opened), "{opened}");
}

/// As above, for as long as the device is in use.
#[test]
fn lies_of_every_reply_in_use() {
    for byte in [0, 1, 0x7f, 0xff] {
        let (proxy, mut host) = honest();
        proxy.then(move |_, _| Act::Fill(byte));
        within(DEADLINE, "use", move || {
            let value = host.read32(0);
            assert_eq!(value, u32::from_ne_bytes([byte; 4]));
            let _ = host.config_space().map(|config| (config.express(), config.id()));
            let _ = host.renew();
        });
    }
}

/// A program that ends is not held up by a server that does not answer.
#[test]
fn a_silent_server_holds_up_no_end() {
    let (proxy, host) = honest();
    let bytes = Box::new(Bytes::<10_000>::new());
    lend(&host, &bytes, Reach::ReadWrite);
    proxy.then(|_, _| Act::Silent);
    let start = Instant::now();
    within(DEADLINE, "end", move || drop(host));
    assert!(start.elapsed() < REPLY_LIMIT + Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(bytes.get(0, 10_000), [0; 10_000]);
}

/// Whatever the file can be made to do, each byte of the memory stays there.
#[test]
fn files_lose_no_page() {
    let (proxy, host) = honest();
    let whole = Box::new(Whole(Bytes::<20_480>::new()));
    let bytes = &whole.0;
    bytes.put(0, &vec![7; 20_000]);
    lend(&host, bytes, Reach::ReadWrite);
    let lent = proxy.lent.lock().unwrap();
    assert!(lent.len() >= 3, "two of the arena and one of the process");
    for file in lent.iter() {
        let len = file.metadata().unwrap().len();
        for other in [0, 1, 4096, len - 1, len + 1, len * 2] {
            assert!(ftruncate(file, other).is_err());
        }
        assert!(file.write_at(&[1], len).is_err(), "it cannot grow");
        for flags in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
            assert!(fallocate(file, flags, 0, 4096).is_err());
        }
        for seals in [SealFlags::WRITE, SealFlags::FUTURE_WRITE] {
            assert!(fcntl_add_seals(file, seals).is_err());
        }
        // It may forget what is there, as it may write there.
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(file, punch, 0, len).unwrap();
    }
    for offset in (0..host.memory().len()).step_by(4096) {
        host.memory().store32(offset, 7);
        assert_eq!(host.memory().load32(offset), 7);
    }
    let _ = bytes.get(0, 20_000);
    bytes.put(9000, b"and on");
    drop(lent);
    host.take_back(bytes.addr(), 20_480);
    assert_eq!(bytes.get(9000, 6), b"and on");
}

/// What the device had is out of its reach when it has been taken back, though it keeps the file:
/// bytes that were written, bytes that never were, and constants.
#[test]
fn memory_taken_back_is_out_of_the_server_s_reach() {
    let (proxy, host) = honest();
    for reach in [Reach::Read, Reach::ReadWrite] {
        let whole = Box::new(Whole(Bytes::<102_400>::new()));
        let bytes = &whole.0;
        bytes.put(50_000, b"written");
        lend(&host, bytes, reach);
        host.take_back(bytes.addr(), 102_400);
        let seen = bytes.get(0, 102_400);
        scribble(&proxy);
        assert_eq!(bytes.get(0, 102_400), seen, "{reach:?}");
    }
    let rights = rustix::mm::ProtFlags::READ;
    let flags = rustix::mm::MapFlags::PRIVATE;
    let null = std::ptr::null_mut();
    // SAFETY: a new mapping.
    let constant = unsafe { rustix::mm::mmap_anonymous(null, 8192, rights, flags) }.unwrap();
    let addr = constant.expose_provenance() as u64;
    // SAFETY: the mapping stays.
    unsafe { host.lend(addr, 8192, Reach::Read) }.unwrap();
    host.take_back(addr, 8192);
    scribble(&proxy);
    // SAFETY: as above.
    let constants = unsafe { std::slice::from_raw_parts(constant.cast::<u8>(), 8192) };
    assert_eq!(constants, [0; 8192]);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.starts_with(&format!("{addr:x}-"))).unwrap();
    assert!(line.contains(" r--p "), "{line}");
}

/// Writes to every byte of every file of the process.
fn scribble(proxy: &Proxy) {
    let lent = proxy.lent.lock().unwrap();
    for file in lent.iter().skip(2) {
        let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
        file.write_all_at(&vec![0xee; len], 0).unwrap();
    }
}

/// The server has the same open files, so it may make them blocking ones, and take what it put
/// there: nothing that looks for interrupts waits for it.
#[test]
fn interrupts_that_the_server_takes_back_block_nobody() {
    let (proxy, host) = honest();
    let wired = std::mem::take(&mut *proxy.wired.lock().unwrap());
    let start = Instant::now();
    assert!(wired.len() >= 3);
    for fd in wired.iter() {
        rustix::io::ioctl_fionbio(fd, false).unwrap();
    }
    thread::scope(|scope| {
        let fire = |mut fd: &File| {
            let mut count = [0; 8];
            while start.elapsed() < QUICK / 2 {
                fd.write_all(&1_u64.to_ne_bytes()).unwrap();
                thread::yield_now();
                // Takes it back, without being blocked itself.
                let to = &mut [IoSliceMut::new(&mut count)];
                let _ = preadv2(fd, to, u64::MAX, ReadWriteFlags::NOWAIT);
            }
        };
        let fd = &wired[0];
        scope.spawn(move || fire(fd));
        within(QUICK, "clear", move || {
            while start.elapsed() < QUICK / 2 {
                host.wakeups().sleep(Duration::from_millis(1));
                host.wakeups().clear();
            }
        });
    });
}
