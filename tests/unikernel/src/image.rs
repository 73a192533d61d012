//! The image proper: entry, panic handler, and an adapter on a machine with nothing beneath it.
//!
//! The machine is the least there can be: BAR 0 at a fixed address, memory that the device sees where the CPU does, the
//! time stamp counter for a clock. It is here for the linker, which must pull in every call of both crates and find all
//! it needs; finding the device on a bus is not part of it.
#![expect(
    unsafe_code,
    reason = "the entry of a freestanding image, and memory at fixed addresses"
)]

use core::net::{IpAddr, Ipv4Addr};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;

use dat_core::provider::Net;
use dat_core::{
    CloseFlag, CompletionFlags, Ep, Error, EvdFlags, Event, Ia, Instant, LmrTriplet, MemPriv,
    PspFlag, Qos, RmrTriplet, Storage,
};
use hca_mlx5::dma::{Buffer, RawArena};
use hca_mlx5::mmio::MappedBar;
use hca_mlx5::platform::Platform;
use hca_mlx5::{Config, Mlx5};

core::arch::global_asm!(include_str!("start.s"), options(att_syntax));
core::arch::global_asm!(include_str!("mem.s"), options(att_syntax));

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// Bytes of the arena, and of the firmware's reserve.
const ARENA: usize = 4 << 20;
const FIRMWARE: usize = 64 << 20;
/// Where firmware has put BAR 0, and its length.
const BAR: usize = 0xf000_0000;
const BAR_LEN: usize = 32 << 20;
/// Time stamps of a microsecond.
const TICKS: u64 = 2_000;

#[repr(C, align(4096))]
struct Pages<const N: usize>(core::cell::UnsafeCell<[u8; N]>);

// SAFETY: only the arena and the device touch the bytes, through raw pointers.
unsafe impl<const N: usize> Sync for Pages<N> {}

#[unsafe(link_section = ".arena")]
static MEMORY: Pages<ARENA> = Pages(core::cell::UnsafeCell::new([0; ARENA]));
#[unsafe(link_section = ".arena")]
static RESERVE: Pages<FIRMWARE> = Pages(core::cell::UnsafeCell::new([0; FIRMWARE]));

struct Machine {
    bar: MappedBar,
    arena: RawArena,
    taken: AtomicUsize,
}

impl Platform for Machine {
    const WRITE_COMBINING: bool = false;

    hca_mlx5::forward_bar!(bar);
    hca_mlx5::forward_arena!(arena);
    hca_mlx5::forward_order!();

    fn iova(&self, offset: usize) -> Option<(u64, usize)> {
        self.arena.iova(self.arena.addr(), offset)
    }
    fn pages_take(&self, to: &mut [u64]) -> usize {
        let first = RESERVE.0.get() as usize;
        let mut done = 0;
        for place in to {
            let page = self.taken.fetch_add(1, Ordering::Relaxed);
            if page >= FIRMWARE / 4096 {
                break;
            }
            *place = (first + page * 4096) as u64;
            done += 1;
        }
        done
    }
    fn pages_return(&self, pages: &[u64]) -> usize {
        // The reserve is given out once: this machine opens one device, once.
        pages.len()
    }
    fn now(&self) -> u64 {
        // SAFETY: reading the time stamp counter changes nothing.
        unsafe { core::arch::x86_64::_rdtsc() }.wrapping_mul(1_000) / TICKS
    }
    fn relax(&self) {
        core::hint::spin_loop();
    }
    fn entropy(&self) -> u64 {
        self.now()
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(31)
    }
}

type Driver = Mlx5<'static, Machine, 8, 16, 32>;

/// All state of the adapter, made by the compiler.
struct Room(core::cell::UnsafeCell<Storage<Driver, 4, 8, 16, 64>>);

// SAFETY: the image has one thread.
unsafe impl Sync for Room {}

static ROOM: Room = Room(core::cell::UnsafeCell::new(Storage::new()));

/// Called by the assembly with a stack and nothing else.
// SAFETY: no other symbol of the image has this name.
#[unsafe(no_mangle)]
extern "C" fn image_main() {
    let (Some(bar), Some(memory)) = (NonNull::new(BAR as *mut u8), NonNull::new(MEMORY.0.get()))
    else {
        return;
    };
    let machine = Machine {
        // SAFETY: firmware has put the BAR there, and this is its only mapping.
        bar: unsafe { MappedBar::new(bar, BAR_LEN) },
        // SAFETY: the static lives for ever and is touched by nobody else.
        arena: unsafe { RawArena::new(memory.cast(), ARENA) },
        taken: AtomicUsize::new(0),
    };
    static PLACE: Once<Machine> = Once::new();
    let machine = PLACE.put(machine);
    // SAFETY: this is called once, so nobody else holds a reference.
    let room = unsafe { &mut *ROOM.0.get() };
    let _ = serve(machine, room);
}

/// A value that is put into a static once, by the one thread there is.
struct Once<T>(core::cell::UnsafeCell<Option<T>>);

// SAFETY: the image has one thread.
unsafe impl<T> Sync for Once<T> {}

impl<T> Once<T> {
    const fn new() -> Self {
        Self(core::cell::UnsafeCell::new(None))
    }
    fn put(&'static self, value: T) -> &'static T {
        // SAFETY: called once per static, so nobody else holds a reference.
        unsafe { &mut *self.0.get() }.insert(value)
    }
}

/// Opens the adapter, answers one connection and uses every call once.
fn serve(
    machine: &'static Machine,
    room: &'static mut Storage<Driver, 4, 8, 16, 64>,
) -> Result<(), Error> {
    let now = || Instant::from_nanos(machine.now());
    let driver = Driver::open(machine, &Config::default())?;
    let addr = IpAddr::V4(Ipv4Addr::new(192, 168, 7, 2));
    let net = Net {
        addr,
        prefix: 24,
        gateway: None,
        vlan: None,
    };
    let mut ia = Ia::open(driver, room, net, now(), machine.entropy())?;
    let pz = ia.pz_create()?;
    let evd = ia.evd_create(64, EvdFlags::DEFAULT)?;
    let ep = ia.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
    let psp = ia.psp_create(4711, evd, PspFlag::Consumer)?;
    let Some(buffer) = Buffer::zeroed(machine, 4096) else {
        return ia.close(now(), CloseFlag::Abrupt);
    };
    let lmr = ia.lmr_create(pz, buffer.region(), MemPriv::ALL)?;
    let rmr = ia.rmr_create(pz)?;
    let iov = [LmrTriplet {
        addr: lmr.region.addr,
        len: 4096,
        context: lmr.lmr_context,
    }];
    ia.ep_post_recv(ep, &iov, 0, CompletionFlags::empty())?;
    ia.ep_connect(
        now(),
        ep,
        addr,
        4711,
        Duration::from_secs(1),
        b"image",
        Qos::BestEffort,
    )?;
    for _ in 0..1_000_000 {
        ia.advance(now());
        match ia.evd_dequeue(evd) {
            Ok(Event::ConnectionRequest { cr, .. }) => ia.cr_accept(now(), cr, Some(ep), b"")?,
            Ok(Event::Established(ep)) => exercise(&mut ia, ep, rmr, &iov)?,
            Ok(event) if event.is_terminal() => break,
            Ok(_) | Err(_) => {}
        }
    }
    ia.ep_disconnect(now(), ep, CloseFlag::Graceful)?;
    ia.ep_reset(ep)?;
    ia.rmr_free(rmr)?;
    ia.lmr_free(lmr.lmr)?;
    ia.ep_free(now(), ep)?;
    ia.psp_free(psp)?;
    ia.evd_free(evd)?;
    ia.pz_free(pz)?;
    ia.close(now(), CloseFlag::Graceful)
}

fn exercise(
    ia: &mut Ia<'_, Driver>,
    ep: Ep,
    rmr: dat_core::Rmr,
    iov: &[LmrTriplet; 1],
) -> Result<(), Error> {
    let flags = CompletionFlags::empty();
    let context = ia.rmr_bind(rmr, &iov[0], MemPriv::REMOTE_WRITE, ep, 1, flags)?;
    let far = RmrTriplet {
        addr: iov[0].addr,
        len: 4096,
        context,
    };
    ia.ep_post_send(ep, iov, 2, flags)?;
    ia.ep_post_rdma_write(ep, iov, 3, &far, flags)?;
    ia.ep_post_rdma_read(ep, iov, 4, &far, flags)?;
    let _ = ia.ep_get_status(ep)?;
    Ok(())
}
