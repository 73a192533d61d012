//! The image: entry, panic handler, and an adapter on a machine without an operating system.
//!
//! The machine is minimal: BAR 0 at a fixed address, device addresses equal to CPU addresses, the
//! time stamp counter as clock. The image exists for the linker, which must find everything that
//! the calls of both crates need. It does not search a bus for the device.
#![expect(unsafe_code, reason = "the entry of a freestanding image, and memory at fixed addresses")]

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;

use dat_core::provider::Net;
use dat_core::{
    Agent, AnyHandle, CloseFlag, Comm, CompletionFlags, CounterType, Ep, EpCounter, EpModify,
    Error, Evd, EvdCounter, EvdFlags, Event, Ia, IaCounter, Instant, LmrParam, LmrTriplet, LookUp,
    MemOptimize, MemPriv, MemType, Memory, PhysicalPages, ProviderInfo, PspFlag, Pz, Qos, Registry,
    RmrTriplet, SrqAttr, Storage, Upcall, UpcallFlag, UpcallPolicy, VaType,
};
use hca_mlx5::dma::{Buffer, Memory as DeviceMemory};
use hca_mlx5::mmio::{self, MappedBar};
use hca_mlx5::platform::{Bar, Blocks, Clock, Dma, Fence, RawArena, Reach, Span, arena_words};
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
/// The address of BAR 0, assigned by firmware, and its length.
const BAR: usize = 0xf000_0000;
const BAR_LEN: usize = 32 << 20;
/// Time stamp ticks per microsecond.
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
    arena: RawArena<[u64; arena_words(ARENA)]>,
    taken: AtomicUsize,
}

impl Bar for Machine {
    fn bar_len(&self) -> usize {
        self.bar.len()
    }
    fn read32(&self, offset: usize) -> u32 {
        self.bar.read32(offset)
    }
    fn write32(&self, offset: usize, value: u32) {
        self.bar.write32(offset, value);
    }
    fn write64(&self, offset: usize, value: u64) {
        self.bar.write64(offset, value);
    }
    #[inline]
    fn write_block(&self, offset: usize, block: &[u64; 8], how: Blocks) {
        self.bar.write_block(offset, block, how);
    }
}

impl Dma for Machine {
    type Probe = ();

    fn memory(&self) -> &DeviceMemory {
        self.arena.memory()
    }
    fn alloc(&self, len: usize, align: usize, _: Reach) -> Option<Span> {
        self.arena.alloc(len, align)
    }
    fn free(&self, span: Span) {
        self.arena.free(span);
    }
    fn iova(&self, offset: usize) -> Option<(u64, usize)> {
        let memory = self.arena.memory();
        memory.iova(memory.addr(), offset)
    }
    fn fence(&self, fence: Fence) {
        mmio::fence(fence);
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
        // Pages are not reused: this machine opens one device, once.
        pages.len()
    }
}

impl Clock for Machine {
    fn now(&self) -> u64 {
        // SAFETY: reading the time stamp counter changes nothing.
        unsafe { core::arch::x86_64::_rdtsc() }.wrapping_mul(1_000) / TICKS
    }
    fn relax(&self) {
        core::hint::spin_loop();
    }
}

impl Machine {
    fn entropy(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for word in bytes.chunks_exact_mut(8) {
            let mixed = (self.now() | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
            word.copy_from_slice(&mixed.to_le_bytes());
        }
        bytes
    }
}

type Driver = Mlx5<'static, Machine, 8, 16, 32>;

/// All state of the adapter, in a static.
struct StaticStorage(core::cell::UnsafeCell<Storage<Driver, 4, 8, 16, 64>>);

// SAFETY: the image has one thread.
unsafe impl Sync for StaticStorage {}

static STORAGE: StaticStorage = StaticStorage(core::cell::UnsafeCell::new(Storage::new()));

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
        // SAFETY: a static that is used only here.
        arena: RawArena::new(
            unsafe { DeviceMemory::new(memory.cast(), ARENA) },
            [0; arena_words(ARENA)],
        ),
        taken: AtomicUsize::new(0),
    };
    static PLACE: Once<Machine> = Once::new();
    let machine = PLACE.put(machine);
    // SAFETY: this is called once, so nobody else holds a reference.
    let storage = unsafe { &mut *STORAGE.0.get() };
    let _ = serve(machine, storage);
}

/// A static that is initialized once, by the only thread.
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
    storage: &'static mut Storage<Driver, 4, 8, 16, 64>,
) -> Result<(), Error> {
    let now = || Instant::from_nanos(machine.now());
    let driver =
        Driver::open(machine, &Config { entropy: machine.entropy(), ..Config::default() })?;
    let addr = IpAddr::V4(Ipv4Addr::new(192, 168, 7, 2));
    let net = Net { addr, prefix: 24, gateway: None, vlan: None };
    let mut ia = Ia::open(driver, storage.parts(), net, now(), machine.entropy())?;
    let pz = ia.pz_create()?;
    let evd = ia.evd_create(64, EvdFlags::DEFAULT | EvdFlags::SOFTWARE)?;
    let ep = ia.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
    let psp = ia.psp_create(4711, evd, PspFlag::Consumer)?;
    let Some(buffer) = Buffer::zeroed(machine, 4096) else {
        return ia.close(now(), CloseFlag::Abrupt);
    };
    let lmr = ia.lmr_create(pz, buffer.region(), MemPriv::ALL)?;
    let rmr = ia.rmr_create(pz)?;
    memory(&mut ia, pz, ep, rmr, &lmr)?;
    let iov = [LmrTriplet { addr: lmr.region.addr, len: 4096, context: lmr.lmr_context }];
    ia.ep_post_recv(ep, &iov, 0, CompletionFlags::empty())?;
    ia.ep_connect(now(), ep, addr, 4711, Duration::from_secs(1), b"image", Qos::BestEffort)?;
    let shared = share(&mut ia, now(), ep, (pz, evd), &iov)?;
    for _ in 0..1_000_000 {
        ia.advance(now());
        match ia.evd_dequeue(evd) {
            Ok(Event::ConnectionRequest { cr, .. }) => ia.cr_accept(now(), cr, Some(ep), b"")?,
            Ok(Event::ReservedRequest { cr, .. }) => ia.cr_handoff(now(), cr, 4711)?,
            Ok(Event::CommonRequest { cr, .. }) => ia.cr_reject(now(), cr, b"")?,
            Ok(Event::Established(ep)) => {
                exercise(&mut ia, ep, rmr, &iov)?;
                notify(&mut ia, now(), evd)?;
            }
            Ok(event) if event.is_terminal() => break,
            Ok(_) | Err(_) => {}
        }
    }
    ia.ep_disconnect(now(), ep, CloseFlag::Graceful)?;
    ia.ep_reset(ep)?;
    ia.ep_free(now(), shared.1)?;
    ia.srq_free(shared.0)?;
    ia.rmr_free(rmr)?;
    ia.lmr_free(lmr.lmr)?;
    ia.ep_free(now(), ep)?;
    ia.psp_free(psp)?;
    ia.evd_free(evd)?;
    ia.pz_free(pz)?;
    ia.close(now(), CloseFlag::Graceful)
}

/// A Shared Receive Queue with an Endpoint, and service points of the other kinds.
fn share(
    ia: &mut Ia<'_, Driver>,
    now: Instant,
    ep: Ep,
    (pz, evd): (Pz, Evd),
    iov: &[LmrTriplet; 1],
) -> Result<(dat_core::Srq, Ep), Error> {
    let srq =
        ia.srq_create(pz, &SrqAttr { max_recv_dtos: 4, max_recv_iov: 1, low_watermark: 1 })?;
    ia.srq_post_recv(srq, iov, 7)?;
    ia.srq_resize(srq, 8)?;
    ia.srq_set_lw(srq, 2)?;
    let _ = ia.srq_query(srq)?;
    let (some, attr) = (Some(evd), ia.ep_attr_default());
    let other = ia.ep_create_with_srq(Some(pz), some, some, some, srq, &attr)?;
    ia.ep_modify(other, &EpModify::default())?;
    ia.ep_set_watermark(now, other, Some(4), Some(8))?;
    let _ = (ia.ep_recv_query(other)?, ia.ep_query(other)?);
    let rsp = ia.rsp_create(4712, None, evd)?;
    let _ = ia.rsp_query(rsp)?;
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 4713);
    let csp = ia.csp_create(Comm::tcp(false), address, evd)?;
    let _ = ia.csp_query(csp)?;
    let second = Duration::from_secs(1);
    if ia.ep_dup_connect(now, other, ep, second, b"", Qos::BestEffort).is_err() {
        ia.ep_common_connect(now, other, address, second, b"")?;
    }
    ia.rsp_free(now, rsp)?;
    ia.csp_free(csp)?;
    Ok((srq, other))
}

/// Every memory call that is not used below.
fn memory(
    ia: &mut Ia<'_, Driver>,
    pz: Pz,
    ep: Ep,
    rmr: dat_core::Rmr,
    lmr: &LmrParam,
) -> Result<(), Error> {
    let (all, flags) = (MemPriv::ALL, CompletionFlags::empty());
    let over = ia.lmr_create_from(pz, Memory::Lmr(lmr.lmr), all, VaType::Zb)?;
    let shared = Memory::SharedVirtual(lmr.region, &[0; 40]);
    let _ = ia.lmr_create_from(pz, shared, all, VaType::Va);
    let pages = PhysicalPages { pages: &[lmr.region.addr], log_page: 12, len: 4096 };
    let (len, _) = ia.ia_memtype_hint(MemType::Physical, 4096, MemOptimize::Ia)?;
    let physical = ia.lmr_kcreate(pz, PhysicalPages { len, ..pages }, all, VaType::Va)?;
    let reserved = ia.ia_reserved_lmr(pz)?;
    let segment = LmrTriplet { addr: reserved.base(), len: 64, context: reserved.lmr_context };
    ia.lmr_sync_rdma_read(&[segment])?;
    ia.lmr_sync_rdma_write(&[segment])?;
    let queued = ia.lmr_allocate(pz, 8)?;
    let own = ia.rmr_create_for_ep(pz)?;
    let _ = ia.lmr_fmr(queued, pages, all, VaType::Zb, ep, 5, flags);
    let _ = ia.rmr_bind_as(own, &segment, all, VaType::Zb, ep, 6, flags);
    let _ = ia.lmr_invalidate(queued, ep, 7, flags);
    let _ = (ia.lmr_query(over.lmr)?, ia.rmr_query(rmr)?);
    ia.rmr_free(own)?;
    for lmr in [over.lmr, physical.lmr, queued] {
        ia.lmr_free(lmr)?;
    }
    Ok(())
}

fn exercise(
    ia: &mut Ia<'_, Driver>,
    ep: Ep,
    rmr: dat_core::Rmr,
    iov: &[LmrTriplet; 1],
) -> Result<(), Error> {
    let flags = CompletionFlags::empty();
    let context = ia.rmr_bind(rmr, &iov[0], MemPriv::REMOTE_WRITE, ep, 1, flags)?;
    let far = RmrTriplet { addr: iov[0].addr, len: 4096, context };
    ia.ep_post_send_with_invalidate(ep, iov, 5, flags, Some(context))?;
    ia.ep_post_rdma_read_to_rmr(ep, &far, 6, &far, flags)?;
    ia.ep_post_send(ep, iov, 2, flags)?;
    ia.ep_post_rdma_write(ep, iov, 3, &far, flags)?;
    ia.ep_post_rdma_read(ep, iov, 4, &far, flags)?;
    let _ = ia.ep_get_status(ep)?;
    objects(ia, ep)?;
    counters(ia, ep)
}

/// Calls for objects of every kind, and queries of the adapter.
fn objects(ia: &mut Ia<'_, Driver>, ep: Ep) -> Result<(), Error> {
    ia.set_consumer_context(ep.into(), 1)?;
    let word = ia.get_consumer_context(ep.into())?;
    let _ = ia.get_handle_type(AnyHandle::Ia)?;
    let evd = ia.evd_create(4, EvdFlags::ASYNC)?;
    ia.set_async_evd(evd)?;
    let (attr, provider) = ia.query();
    let info = ProviderInfo {
        ia_name: attr.adapter_name,
        dapl_version: provider.dapl_version,
        is_thread_safe: provider.is_thread_safe,
    };
    let mut registry = Registry::<u64, 2>::new();
    registry.add_provider(info, word)?;
    registry.open(&info)?;
    registry.list_providers(&mut [None; 2])?;
    registry.providers_related(info.ia_name, info.ia_name)?;
    registry.close(&info)?;
    registry.remove_provider(&info)?;
    if let Err(ret) = ia.ha_related(info.ia_name) {
        let _ = dat_core::strerror(ret.raw())?;
    }
    Ok(())
}

/// A sink for formatted text.
struct Nowhere;

impl core::fmt::Write for Nowhere {
    fn write_str(&mut self, _text: &str) -> core::fmt::Result {
        Ok(())
    }
}

/// Counters, and the remaining calls for datagrams.
fn counters(ia: &mut Ia<'_, Driver>, ep: Ep) -> Result<(), Error> {
    let evd = ia.async_evd();
    ia.ia_start_counters(CounterType::Cm)?;
    ia.ia_query_counter(IaCounter::CmReqTx, true)?;
    ia.ep_query_counter(ep, EpCounter::PostSend, true)?;
    ia.evd_query_counter(evd, EvdCounter::Dequeue, true)?;
    ia.ia_stop_counters(CounterType::Cm)?;
    ia.ia_print_counters(&mut Nowhere, false)?;
    ia.ep_print_counters(ep, &mut Nowhere, false)?;
    ia.evd_print_counters(evd, &mut Nowhere, false)?;
    ia.ud_cm_free(ep, LookUp::from_raw(0))
}

/// Notification: CNOs, waits, upcalls.
fn notify(ia: &mut Ia<'_, Driver>, now: Instant, evd: Evd) -> Result<(), Error> {
    let agent = Agent::Function { instance: 1, function: |_, _| {} };
    let cno = ia.cno_create(Some(agent.clone()))?;
    let fd = ia.cno_fd_create()?;
    ia.evd_modify_cno(evd, Some(cno))?;
    ia.evd_disable(evd)?;
    ia.evd_enable(evd)?;
    ia.evd_set_unwaitable(evd)?;
    ia.evd_clear_unwaitable(evd)?;
    ia.evd_resize(evd, 128)?;
    ia.evd_post_se(evd, 0)?;
    let mut wait = ia.evd_wait(now, evd, Duration::MAX, 1)?;
    let _ = ia.evd_waited(now, &mut wait);
    ia.evd_wait_end(&mut wait);
    let _ = (ia.evd_more(evd), ia.evd_query(evd)?);
    let mut wait = ia.cno_wait(now, cno, Duration::MAX)?;
    let _ = ia.cno_waited(now, &mut wait);
    ia.cno_wait_end(&mut wait);
    let _ = (ia.cno_trigger(cno), ia.cno_query(cno)?);
    ia.cno_modify_agent(cno, Some(agent))?;
    ia.evd_modify_cno(evd, None)?;
    ia.cno_free(cno)?;
    ia.cno_free(fd)?;
    let (single, any) = (UpcallPolicy::SingleInstance, UpcallFlag::InvocAny);
    let upcall = Upcall { instance: 1, function: |_, _, _, _| {} };
    let called = ia.evd_kcreate(8, single, Some(upcall), EvdFlags::SOFTWARE)?;
    ia.evd_modify_upcall(called, UpcallPolicy::Disable, None, any)?;
    ia.evd_free(called)
}
