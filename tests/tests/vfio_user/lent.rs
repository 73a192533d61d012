//! Memory of the process as memory of the device: of the heap at odd addresses, static and of a
//! stack.
#![expect(
    unsafe_code,
    reason = "the test lends its own memory, and looks at it while the device may"
)]

use dat_core::provider::Region;
use dat_core::{CloseFlag, DatType, DtoStatus, Event, LmrParam, LmrTriplet, MemPriv, RmrTriplet};
use dat_tests::bytes::Bytes;
use hca_mlx5::platform::Lend;
use vfio_host::user::VfioUser;
use vfio_host::{Host, Kind, NicStorage, Options, Reach};

use crate::reopen::alone;
use crate::rig::{NONE, Pair, Rig, Side};

/// A piece of lent memory, registered.
struct Mem<'b, const N: usize> {
    bytes: &'b Bytes<N>,
    at: usize,
    len: usize,
    lmr: LmrParam,
}

impl<'b, const N: usize> Mem<'b, N> {
    fn of(side: &mut Side<'_>, bytes: &'b Bytes<N>, at: usize, len: usize) -> Self {
        let addr = bytes.addr() + at as u64;
        let host = side.nic.host();
        // SAFETY: it is taken back before the bytes go.
        unsafe { host.lend(addr, len as u64, Reach::ReadWrite) }.unwrap();
        let region = Region { addr, len: len as u64 };
        let rights = MemPriv::ALL | MemPriv::REMOTE_ATOMIC;
        let lmr = side.nic.lmr_create(side.pz, region, rights).unwrap();
        Self { bytes, at, len, lmr }
    }

    fn near(&self, at: usize, len: usize) -> LmrTriplet {
        LmrTriplet {
            addr: self.lmr.region.addr + at as u64,
            len: len as u32,
            context: self.lmr.lmr_context,
        }
    }

    fn far(&self, at: usize, len: usize) -> RmrTriplet {
        RmrTriplet {
            addr: self.lmr.region.addr + at as u64,
            len: len as u32,
            context: self.lmr.rmr_context,
        }
    }

    fn end(self, side: &mut Side<'_>) {
        side.nic.lmr_free(self.lmr.lmr).unwrap();
        side.nic.host().take_back(self.bytes.addr() + self.at as u64, self.len as u64);
    }
}

fn text(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| (n as u8).wrapping_mul(7).wrapping_add(seed)).collect()
}

static STATIC: Bytes<20_000> = Bytes::new();

/// Every operation from and to it, at addresses that are no multiples of anything.
fn move_data<const N: usize, const M: usize>(
    pair: &mut Pair<'_>,
    ours: &Bytes<N>,
    theirs: &Bytes<M>,
) {
    let [a, b] = &mut pair.sides;
    // Other data on the pages of the memory stays.
    ours.put(0, b"before");
    ours.put(N - 5, b"after");
    let near = Mem::of(a, ours, 7, N - 13);
    let far = Mem::of(b, theirs, 3, M - 9);
    let (ep, far_ep) = (a.ep, b.ep);
    assert_eq!(ours.get(0, 6), b"before");

    // Send, of few and of many bytes, and in two pieces.
    for len in [5, 12, 44, 45, 300, 9001] {
        ours.put(7 + 1, &text(len, len as u8));
        let place = far.near(11, len);
        let [a, b] = &mut pair.sides;
        b.nic.ep_post_recv(far_ep, &[place], 1, NONE).unwrap();
        let half = len / 2;
        let list = [near.near(1, half), near.near(1 + half, len - half)];
        let list: &[_] = if len % 2 == 0 { &list } else { &[near.near(1, len)] };
        a.nic.ep_post_send(ep, list, 2, NONE).unwrap();
        let mut seen = [false; 2];
        while seen != [true; 2] {
            let (side, event) = pair.next().unwrap();
            let Event::Dto(done) = event else { panic!("{event:?}") };
            assert_eq!((done.status, done.len as usize), (DtoStatus::Success, len));
            seen[side] = true;
        }
        assert_eq!(theirs.get(3 + 11, len), text(len, len as u8), "{len} bytes");
    }

    // Write, of few bytes and of a word at any address, and read back.
    for (len, at) in [(1, 2), (8, 1), (8, 2), (28, 3), (29, 4), (9000, 5)] {
        ours.put(7 + at, &text(len, 99));
        let a = &mut pair.sides[0];
        let (near_t, far_t) = (near.near(at, len), far.far(at + 1, len));
        a.nic.ep_post_rdma_write(ep, &[near_t], 3, &far_t, NONE).unwrap();
        pair.done(0, 3);
        assert_eq!(theirs.get(3 + at + 1, len), text(len, 99));
        ours.put(7 + at, &text(len, 1));
        let a = &mut pair.sides[0];
        a.nic.ep_post_rdma_read(ep, &[near_t], 4, &far_t, NONE).unwrap();
        pair.done(0, 4);
        assert_eq!(ours.get(7 + at, len), text(len, 99));
    }

    // A list of writes in one.
    ours.put(7, &text(64, 50));
    let list = [0, 8, 17].map(|at| (near.near(at, 8), far.far(at + 100, 8)));
    for (near_t, far_t) in list {
        let a = &mut pair.sides[0];
        a.nic.ep_post_rdma_write(ep, &[near_t], 5, &far_t, NONE).unwrap();
        pair.done(0, 5);
    }
    assert_eq!(theirs.get(3 + 100, 16), text(64, 50)[..16]);

    // A window over it, and a write inside.
    let pz = pair.sides[1].pz;
    let rmr = pair.sides[1].nic.rmr_create(pz).unwrap();
    let range = far.near(201, 64);
    let rights = MemPriv::REMOTE_WRITE;
    let context = pair.sides[1].nic.rmr_bind(rmr, &range, rights, far_ep, 6, NONE);
    assert!(matches!(pair.event(1), Event::RmrBind { cookie: 6, .. }));
    let inside = RmrTriplet { addr: range.addr + 1, len: 8, context: context.unwrap() };
    let a = &mut pair.sides[0];
    a.nic.ep_post_rdma_write(ep, &[near.near(0, 8)], 7, &inside, NONE).unwrap();
    pair.done(0, 7);
    assert_eq!(theirs.get(3 + 202, 8), text(64, 50)[..8]);
    pair.sides[1].nic.rmr_free(rmr).unwrap();

    // Atomics: these want a multiple of 8 at the far end; what was there comes anywhere.
    let skew = far.lmr.region.addr.next_multiple_of(8) - far.lmr.region.addr;
    let skew = skew as usize + 400;
    theirs.put(3 + skew, &40u64.to_ne_bytes());
    let (fetched, counter) = (near.near(333, 8), far.far(skew, 8));
    let a = &mut pair.sides[0];
    a.nic.ep_post_fetch_add(ep, 2, &fetched, 8, &counter, NONE).unwrap();
    let event = pair.event(0);
    assert!(
        matches!(event, Event::IbDto(done) if done.status() == DtoStatus::Success),
        "{event:?}"
    );
    assert_eq!(ours.get(7 + 333, 8), 40u64.to_ne_bytes());
    assert_eq!(theirs.get(3 + skew, 8), 42u64.to_ne_bytes());

    let [a, b] = &mut pair.sides;
    near.end(a);
    far.end(b);
    assert_eq!(ours.get(0, 6), b"before");
    assert_eq!(ours.get(N - 5, 5), b"after");
}

fn on_heap<const N: usize>() -> Box<Bytes<N>> {
    Box::new(Bytes::new())
}

#[test]
fn memory_of_the_heap_serves_every_operation() {
    Rig::new().connected(|pair| {
        let (ours, theirs) = (on_heap::<10_007>(), on_heap::<12_345>());
        for _ in 0..3 {
            move_data(pair, &ours, &theirs);
        }
    });
}

#[test]
fn static_memory_and_a_stack_s_serve_too() {
    Rig::new().connected(|pair| {
        let stack: Bytes<11_111> = Bytes::new();
        for _ in 0..3 {
            move_data(pair, &stack, &STATIC);
        }
    });
}

/// Whether the device can write there now, found by trying.
fn reaches(rig: &Rig, side: usize, iova: u64) -> bool {
    let tried = rig.server().with(side, move |function| {
        let byte = function.dma_read(iova, 1)?;
        function.dma_write(iova, &byte)
    });
    tried.unwrap().is_ok()
}

fn process(host: &impl Host) -> Vec<vfio_host::Mapping> {
    let mut maps = host.maps();
    maps.retain(|map| map.purpose == "process");
    maps.sort_by_key(|map| map.iova);
    maps
}

#[test]
fn memory_taken_back_is_out_of_the_devices_reach() {
    let rig = Rig::new();
    rig.connected(|pair| {
        let bytes = on_heap::<5000>();
        let [a, b] = &mut pair.sides;
        let far = Mem::of(b, &bytes, 1, 4990);
        let maps = process(b.nic.host());
        let [map] = *maps else { panic!("{maps:?}") };
        assert!(map.len >= 4990 && map.reach == Reach::ReadWrite);
        assert_eq!(b.nic.host().lent(far.lmr.region).unwrap() % 4096, far.lmr.region.addr % 4096);
        assert!(reaches(&rig, 1, map.iova) && reaches(&rig, 1, map.iova + map.len - 1));
        assert!(!reaches(&rig, 1, map.iova - 1) && !reaches(&rig, 1, map.iova + map.len));

        // Taken from under its registration: the IOMMU refuses, and the Endpoint at the other end
        // gets the error.
        bytes.put(1, b"untouched");
        b.nic.host().take_back(far.lmr.region.addr, 4990);
        assert!(process(b.nic.host()).is_empty() && !reaches(&rig, 1, map.iova));
        let (near, far_t) = (a.near(0, 64), far.far(0, 64));
        let ep = a.ep;
        a.nic.ep_post_rdma_write(ep, &near, 9, &far_t, NONE).unwrap();
        loop {
            match pair.next().unwrap() {
                (0, Event::Dto(done)) => {
                    assert_ne!(done.status, DtoStatus::Success);
                    break;
                }
                (_, Event::Broken(_) | Event::Disconnected(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(bytes.get(1, 9), b"untouched");
        let b = &mut pair.sides[1];
        b.nic.lmr_free(far.lmr.lmr).unwrap();
        let region = far.lmr.region;
        let again = b.nic.lmr_create(b.pz, region, MemPriv::ALL).unwrap_err();
        assert_eq!(again.ret().ty(), DatType::InvalidParameter);
        assert!(again.to_string().contains("nor lent"), "{again}");
    });
}

#[test]
fn ranges_overlap_and_repeat() {
    let rig = Rig::new();
    rig.connected(|pair| {
        let bytes = on_heap::<40_960>();
        let base = bytes.addr().next_multiple_of(4096) - bytes.addr();
        let at = base as usize;
        bytes.put(0, &text(40_960, 3));
        let a = &mut pair.sides[0];
        let count = |side: &Side<'_>| process(side.nic.host()).len();
        let whole = Mem::of(a, &bytes, at, 20_480);
        let again = Mem::of(a, &bytes, at + 1, 20_479);
        assert_eq!(count(a), 1, "the same pages");
        let inner = Mem::of(a, &bytes, at + 8192, 100);
        let across = Mem::of(a, &bytes, at + 16_384, 8192);
        // The one inside shares the mapping. The last is in two files: what was exchanged before,
        // and what was not.
        assert_eq!(count(a), 3);
        whole.end(a);
        assert_eq!(count(a), 3);
        again.end(a);
        assert_eq!(count(a), 3, "that of the whole stays for the one inside");
        // Each of what is left still serves.
        for (mem, len) in [(&inner, 100), (&across, 8192)] {
            bytes.put(mem.at, &text(len, len as u8));
            let a = &mut pair.sides[0];
            let (ep, near) = (a.ep, mem.near(0, len));
            let far = pair.sides[1].far(0, len);
            let a = &mut pair.sides[0];
            a.nic.ep_post_rdma_write(ep, &[near], 3, &far, NONE).unwrap();
            pair.done(0, 3);
            assert_eq!(pair.sides[1].look(0, len), text(len, len as u8));
        }
        let a = &mut pair.sides[0];
        across.end(a);
        assert_eq!(count(a), 1);
        inner.end(a);
        assert_eq!(count(a), 0);
        let mut want = text(40_960, 3);
        want[at + 8192..at + 8292].copy_from_slice(&text(100, 100));
        want[at + 16_384..at + 24_576].copy_from_slice(&text(8192, 0));
        assert_eq!(bytes.get(0, 40_960), want);
        // Taken back too often: nothing happens.
        a.nic.host().take_back(bytes.addr(), 40_960);
    });
}

#[test]
fn two_devices_have_the_same_memory() {
    Rig::new().connected(|pair| {
        let bytes = on_heap::<20_000>();
        bytes.put(0, &text(20_000, 5));
        let [a, b] = &mut pair.sides;
        let from = Mem::of(a, &bytes, 3, 9000);
        let to = Mem::of(b, &bytes, 9003, 9000);
        let (ep, near, far) = (a.ep, from.near(0, 9000), to.far(0, 9000));
        a.nic.ep_post_rdma_write(ep, &[near], 1, &far, NONE).unwrap();
        pair.done(0, 1);
        let [a, b] = &mut pair.sides;
        from.end(a);
        assert_eq!(bytes.get(9003, 9000), text(20_000, 5)[3..9003]);
        to.end(b);
        assert_eq!(bytes.get(9003, 9000), text(20_000, 5)[3..9003]);
    });
}

#[test]
fn a_further_reach_is_given_beside_the_lesser() {
    let rig = Rig::new();
    let host = rig.host(0);
    let bytes = on_heap::<100>();
    let lend = |reach| {
        // SAFETY: taken back below.
        unsafe { host.lend(bytes.addr(), 100, reach) }.unwrap();
    };
    lend(Reach::Read);
    let first = process(&host)[0].iova;
    assert!(!reaches(&rig, 0, first));
    lend(Reach::ReadWrite);
    lend(Reach::Read);
    let maps = process(&host);
    assert_eq!(maps.len(), 2);
    assert!(!reaches(&rig, 0, first), "what was lent to be read stays so");
    assert!(maps.iter().any(|map| reaches(&rig, 0, map.iova)));
    for left in [2, 2, 0] {
        host.take_back(bytes.addr(), 100);
        assert_eq!(process(&host).len(), left);
    }
}

#[test]
fn memory_that_cannot_be_lent_is_refused_with_a_reason() {
    let rig = Rig::new();
    let host = rig.host(0);
    let lend = |addr: u64, len: u64, reach| {
        // SAFETY: it is refused.
        let error = unsafe { host.lend(addr, len, reach) }.unwrap_err();
        (error.kind(), error.to_string())
    };
    static CONSTANT: [u8; 8192] = [7; 8192];
    let constant = CONSTANT.as_ptr().expose_provenance() as u64;
    let (kind, text) = lend(constant, 8192, Reach::ReadWrite);
    assert!(kind == Kind::Unsupported && text.contains("may not write"), "{text}");
    let code = memory_that_cannot_be_lent_is_refused_with_a_reason as fn() as usize as u64;
    let (kind, text) = lend(code, 1, Reach::Read);
    assert!(kind == Kind::Unsupported && text.contains("code"), "{text}");
    let (kind, text) = lend(4096, 1, Reach::Read);
    assert!(kind == Kind::Unsupported && text.contains("no memory at 0x1000"), "{text}");
    for (addr, len) in [(constant, 0), (u64::MAX, 1), (u64::MAX - 4096, 8192), (4096, u64::MAX)] {
        assert_eq!(lend(addr, len, Reach::Read).0, Kind::Address);
    }
    assert!(process(&host).is_empty());
    // Constants can be read.
    // SAFETY: taken back below.
    unsafe { host.lend(constant, 8192, Reach::Read) }.unwrap();
    let iova = process(&host)[0].iova + constant % 4096;
    let seen = rig.server().with(0, move |function| function.dma_read(iova, 8));
    assert_eq!(seen.unwrap().unwrap(), [7; 8]);
    host.take_back(constant, 8192);
    assert_eq!(CONSTANT, [7; 8192]);
}

#[test]
fn a_gibibyte_is_one_registration() {
    let rig = Rig::new();
    let host = rig.host(0);
    let mut room = Box::new(NicStorage::new());
    let mut side = Side::open(&host, &mut room, 0);
    // Never touched, and so it costs nothing.
    let all: Vec<u8> = vec![0; 1 << 30];
    let region = Region { addr: all.as_ptr().expose_provenance() as u64, len: 1 << 30 };
    // SAFETY: taken back before it goes.
    unsafe { host.lend(region.addr, region.len, Reach::ReadWrite) }.unwrap();
    assert_eq!(process(&host).len(), 1);
    let lmr = side.nic.lmr_create(side.pz, region, MemPriv::ALL).unwrap();
    let last = host.lent(region).unwrap() + (1 << 30) - 3;
    let done = rig.server().with(0, move |function| function.dma_write(last, &[1, 2, 3]));
    done.unwrap().unwrap();
    side.nic.lmr_free(lmr.lmr).unwrap();
    host.take_back(region.addr, region.len);
    assert_eq!(all[(1 << 30) - 4..], [0, 1, 2, 3]);
}

/// Threads that store to the pages while these are exchanged find what they stored.
#[test]
fn stores_of_other_threads_are_not_lost() {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    let rig = Rig::new();
    let host = rig.host(0);
    let words: Vec<AtomicU32> = (0..8192).map(|_| AtomicU32::new(0)).collect();
    let over = AtomicBool::new(false);
    let (addr, len) = (words.as_ptr().expose_provenance() as u64, 4 * 8192);
    std::thread::scope(|scope| {
        for own in words.chunks(4096) {
            let over = &over;
            scope.spawn(move || {
                for value in 1.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    for (n, word) in own.iter().enumerate().step_by(256) {
                        let was = word.swap(value, Ordering::Relaxed);
                        assert_eq!(was, value - 1, "word {n}");
                    }
                }
            });
        }
        for _ in 0..2000 {
            // SAFETY: taken back at once.
            unsafe { host.lend(addr, len, Reach::ReadWrite) }.unwrap();
            host.take_back(addr, len);
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_host_that_ends_or_is_renewed_takes_everything_back() {
    let name = "lent::a_host_that_ends_or_is_renewed_takes_everything_back";
    alone(name, || {
        let rig = Rig::new();
        let bytes = on_heap::<50_000>();
        bytes.put(0, &text(50_000, 8));
        let shared = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let lines = maps.lines().filter(|line| line.contains("dat-process"));
            lines.filter(|line| line.contains("rw-s")).count()
        };
        let fds = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let mut first = None;
        for round in 0..20 {
            {
                let mut host = rig.host(0);
                let before = (fds(), host.maps());
                for at in [0, 100, 9000] {
                    // SAFETY: taken back by what follows.
                    unsafe { host.lend(bytes.addr() + at, 30_000, Reach::ReadWrite) }.unwrap();
                }
                // The server has the files too.
                assert!(shared() >= 2 && fds() > before.0);
                if round % 2 == 1 {
                    host.renew().unwrap();
                    assert_eq!(host.maps(), before.1);
                    host.take_back(bytes.addr(), 30_000);
                }
            }
            while rig.server().with(0, |function| function.has_client()).unwrap() {
                std::thread::yield_now();
            }
            assert_eq!(shared(), 0);
            assert_eq!(*first.get_or_insert(fds()), fds());
            assert_eq!(bytes.get(0, 50_000), text(50_000, 8));
        }
    });
}

/// The adapter is closed with the registration still there, and nothing is left.
#[test]
fn closing_ends_registrations_of_it() {
    let rig = Rig::new();
    let host = rig.host(0);
    let bytes = on_heap::<5000>();
    for _ in 0..3 {
        let mut room = Box::new(NicStorage::new());
        let mut side = Side::open(&host, &mut room, 0);
        let mem = Mem::of(&mut side, &bytes, 5, 100);
        side.buffer.release();
        side.nic.close(CloseFlag::Abrupt).unwrap();
        host.take_back(mem.lmr.region.addr, 100);
        assert!(process(&host).is_empty());
    }
}

/// Memory that was lent is the process's as before: it can be extended where `realloc` does it, and
/// what is discarded is zeros.
#[test]
fn memory_that_was_lent_can_be_extended_and_discarded() {
    const LEN: usize = (1 << 20) + 4096;
    let rig = Rig::new();
    let host = VfioUser::open(&rig.sockets[0], &Options::default()).unwrap();
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let place = unsafe { libc::mmap(std::ptr::null_mut(), LEN, rights, flags, -1, 0) };
    assert_ne!(place, libc::MAP_FAILED);
    let lend_once = |place: *mut libc::c_void, len: usize| {
        let addr = place.expose_provenance() as u64;
        // SAFETY: it is taken back before it changes.
        unsafe { host.lend(addr + 13, len as u64 - 26, Reach::ReadWrite) }.unwrap();
        // SAFETY: inside the mapping.
        unsafe { place.cast::<u8>().wrapping_add(len - 1).write_volatile(9) };
        host.take_back(addr + 13, len as u64 - 26);
    };
    // SAFETY: inside the mapping.
    unsafe { place.cast::<u8>().write_bytes(7, LEN) };
    lend_once(place, LEN);
    // SAFETY: the mapping is this test's, and the old address is not used any more.
    let place = unsafe { libc::mremap(place, LEN, 4 * LEN, libc::MREMAP_MAYMOVE) };
    assert_ne!(place, libc::MAP_FAILED);
    let byte = |at: usize| {
        // SAFETY: inside the mapping.
        unsafe { place.cast::<u8>().wrapping_add(at).read_volatile() }
    };
    assert_eq!([0, LEN - 2, LEN - 1, LEN, 4 * LEN - 1].map(byte), [7, 7, 9, 0, 0]);
    lend_once(place, 4 * LEN);
    assert_eq!([0, LEN - 1, LEN, 4 * LEN - 1].map(byte), [7, 9, 0, 9]);
    // SAFETY: the mapping is this test's.
    assert_eq!(unsafe { libc::madvise(place, 4 * LEN, libc::MADV_DONTNEED) }, 0);
    assert_eq!([0, LEN - 1, 4 * LEN - 1].map(byte), [0; 3]);
    // SAFETY: as above; it is not used any more.
    assert_eq!(unsafe { libc::munmap(place, 4 * LEN) }, 0);
}

/// Two buffers of a stack, one behind the other: the page on which one ends and the other begins
/// keeps the contents of both, in whatever order they are lent and taken back.
#[test]
fn neighbours_on_a_stack_share_a_page() {
    const LEN: usize = 20_001;
    let rig = Rig::new();
    let host = rig.host(0);
    let both = [const { Bytes::<LEN>::new() }; 2];
    let lend = |which: usize| {
        // SAFETY: it is taken back before the bytes go.
        unsafe { host.lend(both[which].addr(), LEN as u64, Reach::ReadWrite) }.unwrap();
    };
    let back = |which: usize| host.take_back(both[which].addr(), LEN as u64);
    for round in 0..40_u8 {
        let contents = [0, 1].map(|which| text(LEN, round.wrapping_mul(2) + which));
        let [first, last] = [usize::from(round % 2), usize::from(round / 2 % 2)];
        let look = |when: &str| {
            for which in [0, 1] {
                let bytes = both[which].get(0, LEN);
                let at = bytes.iter().zip(&contents[which]).position(|(is, should)| is != should);
                assert_eq!(at, None, "{when}, round {round}, buffer {which}");
            }
        };
        both[0].put(0, &contents[0]);
        both[1].put(0, &contents[1]);
        lend(first);
        look("one lent");
        lend(1 - first);
        look("both lent");
        back(last);
        look("one back");
        back(1 - last);
        look("both back");
    }
}
