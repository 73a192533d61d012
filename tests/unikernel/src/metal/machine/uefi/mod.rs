//! An UEFI application. Firmware has numbered the buses and placed the BARs: the root bridge's
//! protocol (EFI_PCI_ROOT_BRIDGE_IO_PROTOCOL) gives configuration space, registers and memory for
//! DMA, the console text, EFI_RNG_PROTOCOL random numbers.
//!
//! The application returns to firmware. Before that the HCA is closed and reaches no memory any
//! more, its memory is unmapped and given back.

mod stack;

use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use hca_mlx5::platform::Blocks;
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams, ScopedProtocol, SearchType};
use uefi::proto::ProtocolPointer;
use uefi::proto::loaded_image::LoadedImage;
use uefi::proto::pci::root_bridge::PciRootBridgeIo;
use uefi::proto::rng::Rng;
use uefi::{Handle, Identify as _, Status, entry};
use uefi_raw::protocol::pci::root_bridge::{
    PciRootBridgeIoAccess, PciRootBridgeIoProtocol,
    PciRootBridgeIoProtocolAttributes as Attributes, PciRootBridgeIoProtocolOperation as Operation,
    PciRootBridgeIoProtocolWidth as Width,
};
use uefi_raw::table::boot::{AllocateType, MemoryType};

use super::cpu;
pub(crate) use super::cpu::{COUNTER, ticks};
use crate::clock::Clock;
use crate::console::say;
use crate::host::{ARENA, FIRMWARE, Lent};
use crate::pci::{Address, Bar, Config};
use crate::program::{self, Bus, Failed};

/// Bytes of a command line.
const LINE: usize = 512;
/// Root bridges that are searched, at most.
const BRIDGES: usize = 16;
/// Bytes of a page of UEFI.
const PAGE: usize = 4096;

#[entry]
fn main() -> Status {
    // The shell's, which would reset the machine in mid-test.
    let _ = boot::set_watchdog_timer(0, 0, None);
    let done = stack::run(&run);
    let (done, used) = done.unwrap_or((Err("the application was started twice"), 0));
    say!("stack: {} of {} KiB used", used.div_ceil(1024), stack::LEN / 1024);
    if let Err(why) = done {
        say!("dat-metal: {why}");
    }
    say!("dat-metal: result {}", if done.is_ok() { "ok" } else { "failed" });
    if done.is_ok() { Status::SUCCESS } else { Status::ABORTED }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say!("dat-metal: {info}");
    say!("dat-metal: result failed");
    // The HCA may still reach memory, so firmware must not go on with it.
    uefi::runtime::reset(uefi::runtime::ResetType::SHUTDOWN, Status::ABORTED, None)
}

fn run() -> Result<(), Failed> {
    let mut line = [0; LINE];
    let options = program::options(load_options(&mut line))?;
    let mut handles = [const { MaybeUninit::uninit() }; BRIDGES];
    let found = boot::locate_handle(SearchType::ByProtocol(&PciRootBridgeIo::GUID), &mut handles);
    let handles = found.map_err(|_| "firmware has no PCI root bridge")?;
    for handle in handles {
        let Some(bridge) = Bridge::open(*handle) else { continue };
        let first = bridge.first_bus();
        if program::find(&bridge, first, &options).is_none() {
            continue;
        }
        let Some(memory) = Memory::new(&bridge) else {
            return Err("firmware has no memory for DMA");
        };
        let clock = clock().ok_or("the counter stands still")?;
        let map = |bar: Bar| {
            let len = usize::try_from(bar.len).ok()?;
            Some(Registers { bridge, base: bar.base, len })
        };
        let bus = Bus { config: &bridge, map: &map, first, window: None };
        // SAFETY: memory that was allocated for this, and is freed below.
        let done = unsafe { program::run(&bus, memory.lent(), &options, clock) };
        memory.free(&bridge)?;
        return done;
    }
    Err("there is no HCA (vendor 15b3) on the buses of firmware")
}

/// Copies the load options: those of a boot entry or, after the name of the program, of the shell.
fn load_options(to: &mut [u8; LINE]) -> &str {
    let mut len = 0;
    let image = open::<LoadedImage>(boot::image_handle());
    if let Some(bytes) = image.as_ref().and_then(|image| image.load_options_as_bytes()) {
        let units = bytes
            .chunks_exact(2)
            .map(|unit| u16::from_le_bytes(unit.try_into().unwrap_or_default()));
        for (place, unit) in to.iter_mut().zip(units.take_while(|unit| *unit != 0)) {
            // Options are ASCII.
            *place = u8::try_from(unit).unwrap_or(b'?');
            len += 1;
        }
    }
    let text = to.get(..len).and_then(|text| str::from_utf8(text).ok()).unwrap_or_default();
    let text = text.trim_start();
    match text.split_once(' ') {
        Some((program, rest)) if !program.contains('=') => rest,
        _ => text,
    }
}

/// Makes the clock: the counter's own frequency, or what firmware's stall says.
fn clock() -> Option<Clock> {
    #[cfg(target_arch = "aarch64")]
    return Clock::new(cpu::hertz(), 1_000_000_000);
    #[cfg(target_arch = "x86_64")]
    {
        let start = ticks();
        boot::stall(core::time::Duration::from_millis(20));
        Clock::new(ticks().wrapping_sub(start), 20_000_000)
    }
}

/// Opens a protocol that firmware's own drivers may use too.
fn open<P: ProtocolPointer + ?Sized>(handle: Handle) -> Option<ScopedProtocol<P>> {
    let agent = boot::image_handle();
    let params = OpenProtocolParams { handle, agent, controller: None };
    // SAFETY: the protocols that are opened stay as long as firmware does, and nothing runs beside
    // this application.
    unsafe { boot::open_protocol(params, OpenProtocolAttributes::GetProtocol) }.ok()
}

/// A root bridge's protocol.
#[derive(Clone, Copy, Debug)]
struct Bridge(NonNull<PciRootBridgeIoProtocol>);

impl Bridge {
    fn open(handle: Handle) -> Option<Self> {
        let protocol = open::<PciRootBridgeIo>(handle)?;
        // The type is transparent.
        Some(Self(NonNull::from(&*protocol).cast()))
    }

    fn protocol(&self) -> &PciRootBridgeIoProtocol {
        // SAFETY: firmware's table, which stays and is not written.
        unsafe { self.0.as_ref() }
    }

    fn read(&self, of: &PciRootBridgeIoAccess, width: Width, address: u64) -> Option<u32> {
        let mut value = u32::MAX;
        let to = (&raw mut value).cast();
        // SAFETY: firmware's function, with room for one unit.
        let status = unsafe { (of.read)(self.0.as_ptr(), width, address, 1, to) };
        (status == Status::SUCCESS).then_some(value)
    }

    fn write(&self, of: &PciRootBridgeIoAccess, width: Width, address: u64, values: &[u64]) {
        let (count, from) = (values.len(), values.as_ptr().cast());
        // SAFETY: firmware's function, with as many units as it takes. What a register makes the
        // HCA do stays inside memory that it was given.
        let _ = unsafe { (of.write)(self.0.as_ptr(), width, address, count, from) };
    }

    /// Returns the first of its bus numbers: the descriptors are those of ACPI, of which the one
    /// for bus numbers (kind 2) has the lowest at offset 14.
    fn first_bus(&self) -> u8 {
        let mut resources = ptr::null();
        // SAFETY: firmware's function.
        let status = unsafe { (self.protocol().configuration)(self.0.as_ptr(), &mut resources) };
        let mut at = resources.cast::<u8>();
        if status != Status::SUCCESS || at.is_null() {
            return 0;
        }
        // A descriptor is 46 bytes, and there are five kinds.
        for _ in 0..16 {
            // SAFETY: inside the list, which ends with another tag.
            let head = unsafe { at.cast::<[u8; 4]>().read_unaligned() };
            if head[0] != 0x8a {
                break;
            }
            if head[3] == 2 {
                // SAFETY: inside the descriptor.
                return unsafe { at.add(14).read() };
            }
            // SAFETY: the next descriptor or the end tag.
            at = unsafe { at.add(46) };
        }
        0
    }
}

impl Config for Bridge {
    fn read(&self, at: Address, offset: u16) -> u32 {
        let access = &self.protocol().pci;
        self.read(access, Width::UINT32, place(at, offset)).unwrap_or(u32::MAX)
    }
    fn write(&self, at: Address, offset: u16, value: u32) {
        let access = &self.protocol().pci;
        self.write(access, Width::UINT32, place(at, offset), &[value.into()]);
    }
}

/// A function's register as the protocol names it; those from 256 on stand elsewhere.
fn place(at: Address, offset: u16) -> u64 {
    let function =
        u64::from(at.bus) << 24 | u64::from(at.device) << 16 | u64::from(at.function) << 8;
    let offset = u64::from(offset & 0xffc);
    function | if offset < 256 { offset } else { offset << 32 }
}

/// Memory for DMA: the arena and the firmware's pages.
#[derive(Debug)]
struct Memory([(Lent, usize, *mut core::ffi::c_void); 2]);

impl Memory {
    fn new(bridge: &Bridge) -> Option<Self> {
        let arena = Self::piece(bridge, ARENA)?;
        let Some(firmware) = Self::piece(bridge, FIRMWARE) else {
            let _ = Self::free_piece(bridge, arena);
            return None;
        };
        Some(Self([arena, firmware]))
    }

    fn piece(bridge: &Bridge, len: usize) -> Option<(Lent, usize, *mut core::ffi::c_void)> {
        let (this, protocol) = (bridge.0.as_ptr().cast_const(), bridge.protocol());
        let mut at = ptr::null_mut();
        let wide = Attributes::EFI_PCI_ATTRIBUTE_DUAL_ADDRESS_CYCLE.bits();
        let kind = MemoryType::BOOT_SERVICES_DATA;
        // SAFETY: firmware's function.
        let status = unsafe {
            (protocol.allocate_buffer)(this, AllocateType(0), kind, len / PAGE, &mut at, wide)
        };
        let cpu = NonNull::new(at.cast()).filter(|_| status == Status::SUCCESS)?;
        let (mut mapped, mut device, mut mapping) = (len, 0, ptr::null_mut());
        let both = Operation::BUS_MASTER_COMMON_BUFFER64;
        // SAFETY: firmware's function, with memory that it has allocated for this.
        let status = unsafe {
            (protocol.map)(this, both, at.cast_const(), &mut mapped, &mut device, &mut mapping)
        };
        if status == Status::SUCCESS && mapped == len {
            return Some((Lent { cpu, device }, len, mapping));
        }
        // SAFETY: allocated above and never used.
        let _ = unsafe { (protocol.free_buffer)(this, len / PAGE, at.cast_const()) };
        None
    }

    fn lent(&self) -> [Lent; 2] {
        let Self([(arena, ..), (firmware, ..)]) = self;
        [*arena, *firmware]
    }

    /// Gives the memory back. The HCA must not reach memory any more.
    fn free(self, bridge: &Bridge) -> Result<(), Failed> {
        let Self([arena, firmware]) = self;
        let done = [Self::free_piece(bridge, arena), Self::free_piece(bridge, firmware)];
        if done.contains(&false) { Err("firmware does not take the memory back") } else { Ok(()) }
    }

    fn free_piece(
        bridge: &Bridge,
        (lent, len, mapping): (Lent, usize, *mut core::ffi::c_void),
    ) -> bool {
        let (this, protocol) = (bridge.0.as_ptr().cast_const(), bridge.protocol());
        // SAFETY: firmware's function, with a mapping of its own.
        let unmapped = unsafe { (protocol.unmap)(this, mapping.cast_const()) };
        let at = lent.cpu.as_ptr().cast_const().cast();
        // SAFETY: as above; the driver that used the memory is closed.
        let freed = unsafe { (protocol.free_buffer)(this, len / PAGE, at) };
        unmapped == Status::SUCCESS && freed == Status::SUCCESS
    }
}

/// Registers behind the root bridge's protocol, at an address of the bus.
#[derive(Debug)]
pub(crate) struct Registers {
    bridge: Bridge,
    base: u64,
    len: usize,
}

// SAFETY: the application has one thread.
unsafe impl Send for Registers {}
// SAFETY: as above.
unsafe impl Sync for Registers {}

impl Registers {
    pub(crate) fn len(&self) -> usize {
        self.len
    }
    pub(crate) fn read32(&self, offset: usize) -> u32 {
        let value = self.at(offset, 4).and_then(|address| {
            self.bridge.read(&self.bridge.protocol().mem, Width::UINT32, address)
        });
        value.unwrap_or(u32::MAX)
    }
    pub(crate) fn write32(&self, offset: usize, value: u32) {
        self.write(offset, 4, Width::UINT32, &[value.into()]);
    }
    pub(crate) fn write64(&self, offset: usize, value: u64) {
        self.write(offset, 8, Width::UINT64, &[value]);
    }
    pub(crate) fn write_block(&self, offset: usize, block: &[u64; 8], _: Blocks) {
        self.write(offset, 64, Width::UINT64, block);
    }

    fn write(&self, offset: usize, len: usize, width: Width, values: &[u64]) {
        if let Some(address) = self.at(offset, len) {
            self.bridge.write(&self.bridge.protocol().mem, width, address, values);
        }
    }

    /// The address of registers, if they are there.
    fn at(&self, offset: usize, len: usize) -> Option<u64> {
        let end = offset.checked_add(len)?;
        (end <= self.len).then(|| self.base + offset as u64)
    }
}

/// Interrupts: an application has none, it polls.
#[derive(Debug)]
pub(crate) enum Interrupts {}

impl Interrupts {
    pub(crate) fn start(_: &Clock) -> Option<Self> {
        None
    }
    pub(crate) fn message(&self, _: u16) -> Option<(u64, u32)> {
        match *self {}
    }
    pub(crate) fn sleep(&self, _: u64) {
        match *self {}
    }
    pub(crate) fn arrivals(&self) -> [u32; 3] {
        match *self {}
    }
}

/// Returns the name of the source of random numbers: firmware's, else the CPU's.
pub(crate) fn generator() -> Option<&'static str> {
    if of_firmware().is_some() { Some("EFI_RNG_PROTOCOL") } else { cpu::generator() }
}

/// Reads random numbers.
pub(crate) fn random() -> Option<u64> {
    of_firmware().or_else(cpu::random)
}

fn of_firmware() -> Option<u64> {
    let handle = boot::get_handle_for_protocol::<Rng>().ok()?;
    let mut generator = open::<Rng>(handle)?;
    let mut bytes = [0; 8];
    generator.get_rng(None, &mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

/// Firmware's console.
#[derive(Debug)]
pub(crate) struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        uefi::system::with_stdout(|out| out.write_str(text))
    }
}
