//! A device that another process offers over a vfio-user socket.
//!
//! The same driver runs without a kernel in between: registers are accessed by messages, memory is
//! a file that both processes map, interrupts are eventfds. No privilege is needed. Register stores
//! are posted, and a load completes after all earlier stores, as on a bus.
//!
//! The connection ends if the server exits, sends malformed or unexpected messages, or does not
//! answer a request within [`Options::reply_limit`]. From then on every load returns all ones, as
//! for a removed device, and [`Host::trouble`] names the cause. The server is not trusted with more
//! than the memory that it maps; docs/vfio-host.md says what it can and cannot do.

mod client;
mod message;
mod swap;
#[cfg(feature = "testing")]
mod testing;

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dat_core::provider::Region;
use hca_mlx5::platform::{Bar, Blocks};
use vfio_bindings::bindings::vfio::{
    VFIO_DMA_MAP_FLAG_READ, VFIO_DMA_MAP_FLAG_WRITE, VFIO_IRQ_SET_ACTION_TRIGGER,
    VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_ERR_IRQ_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_PCI_REQ_IRQ_INDEX,
};

use self::client::Client;
use self::swap::SWAPPED;
use crate::error::{Error, Kind};
use crate::host::{Host, Mapping, Options, Reach, Trouble};
use crate::iova;
use crate::machine::Machine;
use crate::map::{Pages, Promised};
use crate::memory::{Area, Iommu, Memory, Piece, host_over_memory, platform_over_memory};
use crate::pci::{self, ConfigSpace};
use crate::wakeups::{VECTORS, Wakeups};

#[cfg(feature = "testing")]
pub use self::testing::make_requests;

/// Longest wait for a device after its reset: twice the limit of PCI Express.
const BACK: Duration = Duration::from_secs(2);
/// Time between two polls of that wait.
const LOOK: Duration = Duration::from_millis(10);

/// A device behind a socket.
#[derive(Debug)]
pub struct VfioUser {
    iommu: Connection,
    bar_len: usize,
    memory: Memory,
    machine: Machine,
    wakeups: Wakeups,
    /// The function was reset while a driver used it.
    severed: AtomicBool,
    name: String,
}

/// The connection, shared by all parts of the host.
#[derive(Debug)]
struct Connection {
    client: Mutex<Client>,
    /// The process that opened it.
    owner: u32,
    name: String,
    /// Why it ended, if it has.
    gone: OnceLock<Error>,
}

impl Connection {
    /// Runs `what` on the connection, unless it has ended. Records its end.
    fn with<T>(&self, what: impl FnOnce(&mut Client) -> Result<T, Error>) -> Result<T, Error> {
        if let Some(error) = self.gone.get() {
            return Err(error.clone());
        }
        // A child must not use the socket, nor take a lock that a thread of its parent has.
        if std::process::id() != self.owner {
            let cause = "it is open in the parent process, not in this one";
            let remedy = "open another device after the fork";
            let error = || Error::new(Kind::Gone, &self.name, cause, remedy);
            return Err(self.gone.get_or_init(error).clone());
        }
        let mut client = self.lock();
        let result = what(&mut client);
        if let Some(error) = client.ended() {
            self.gone.get_or_init(|| error.clone());
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Client> {
        // No code panics while it holds this lock.
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wires the vectors to their eventfds, and the error and removal interrupts if the server has
    /// them.
    fn wire(&self, wakeups: &Wakeups) -> Result<(), Error> {
        let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
        for (vector, fd) in (0..).zip(wakeups.vectors()) {
            self.with(|c| c.set_irqs(flags, VFIO_PCI_MSIX_IRQ_INDEX, vector, 1, Some(fd.as_fd())))?;
        }
        for (index, fd) in
            [(VFIO_PCI_ERR_IRQ_INDEX, wakeups.error()), (VFIO_PCI_REQ_IRQ_INDEX, wakeups.removal())]
        {
            // A server need not support these kinds.
            let known = self.with(|client| Ok(client.interrupts(index).unwrap_or(0)))?;
            if known > 0 {
                self.with(|client| client.set_irqs(flags, index, 0, 1, Some(fd.as_fd())))?;
            }
        }
        Ok(())
    }

    fn config_space(&self) -> Result<ConfigSpace, Error> {
        self.first_of_config(pci::EXTENDED)
    }

    /// Reads up to `len` bytes of configuration space.
    fn first_of_config(&self, len: usize) -> Result<ConfigSpace, Error> {
        let mut bytes = vec![0xff; len];
        let index = VFIO_PCI_CONFIG_REGION_INDEX;
        self.with(|client| {
            let size = client.region_len(index)?;
            bytes.truncate(usize::try_from(size).unwrap_or(len));
            client.read(index, 0, &mut bytes)
        })?;
        Ok(ConfigSpace::new(bytes))
    }

    /// Switches bits of the command register on and off.
    fn command(&self, on: u16, off: u16) -> Result<(), Error> {
        let index = VFIO_PCI_CONFIG_REGION_INDEX;
        self.with(|client| {
            let mut bytes = [0; 2];
            client.read(index, pci::COMMAND, &mut bytes)?;
            let command = u16::from_le_bytes(bytes) & !off | on;
            client.write(index, pci::COMMAND, &command.to_le_bytes(), false)
        })
    }
}

impl Iommu for Connection {
    fn map(&self, area: &Area<'_>) -> Result<(), Error> {
        let (file, offset) = area.file.ok_or_else(|| {
            Error::new(
                Kind::Unsupported,
                area.mapping.purpose,
                "memory without a file cannot be shared",
                "",
            )
        })?;
        let flags = match area.mapping.reach {
            Reach::Read => VFIO_DMA_MAP_FLAG_READ,
            Reach::ReadWrite => VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
        };
        let Mapping { iova, len, .. } = area.mapping;
        self.with(|client| client.dma_map(flags, file, offset, iova, len))
    }

    fn unmap(&self, mapping: &Mapping) -> Result<(), Error> {
        self.with(|client| client.dma_unmap(mapping.iova, mapping.len))
    }

    fn entries_left(&self) -> Option<u32> {
        None
    }

    fn hold(&self, memory: &Promised, reach: Reach) -> Result<Vec<Piece>, Error> {
        SWAPPED.hold(memory, reach)
    }

    fn let_go(&self, memory: &Promised) {
        SWAPPED.let_go(&memory.pages());
    }
}

impl VfioUser {
    /// Connects to the server at `path`, resets its device, maps memory and wires interrupts.
    pub fn open(path: &Path, options: &Options) -> Result<Self, Error> {
        let name = format!("vfio-user:{}", path.display());
        let mut client = Client::connect(path, options.reply_limit)?;
        let lacks = |what: &str| {
            let remedy = "offer a PCI device that can be reset, with BAR 0 and MSI-X";
            Error::new(Kind::Unsupported, name.clone(), what, remedy)
        };
        if !client.resettable()? {
            return Err(lacks("its device cannot be reset"));
        }
        let bar_len = client.region_len(VFIO_PCI_BAR0_REGION_INDEX)?;
        let bar_len = usize::try_from(bar_len).unwrap_or(0);
        if bar_len == 0 {
            return Err(lacks("its device has no BAR 0"));
        }
        let vectors = client.interrupts(VFIO_PCI_MSIX_IRQ_INDEX)?;
        if vectors == 0 {
            return Err(lacks("its device has no MSI-X"));
        }
        let wakeups = Wakeups::new(usize::try_from(vectors).unwrap_or(VECTORS))?;
        let watched = wakeups.watch_peer(client.socket());
        watched.map_err(|errno| lacks(&format!("its socket cannot be watched: {errno}")))?;
        client.reset()?;
        let iommu = Connection {
            client: Mutex::new(client),
            owner: std::process::id(),
            name: name.clone(),
            gone: OnceLock::new(),
        };
        let memory = Memory::new(options, &[iova::DEFAULT_APERTURE], Pages::shared, &iommu)?;
        let host = Self {
            iommu,
            bar_len,
            memory,
            machine: Machine::new()?,
            wakeups,
            severed: AtomicBool::new(false),
            name,
        };
        host.enable()?;
        Ok(host)
    }

    /// Enables the device after a reset: waits until it answers, wires interrupts, then switches
    /// memory decoding and bus mastering on.
    fn enable(&self) -> Result<(), Error> {
        let deadline = Instant::now() + BACK;
        while self.iommu.first_of_config(pci::ID)?.id().is_none() {
            if Instant::now() > deadline {
                return Err(Error::new(
                    Kind::Gone,
                    &self.name,
                    "the device does not answer: it reads all ones",
                    "restart the server",
                ));
            }
            std::thread::sleep(LOOK);
        }
        self.iommu.wire(&self.wakeups)?;
        self.iommu.command(pci::MEMORY_SPACE | pci::BUS_MASTER, 0)
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        let index = VFIO_PCI_BAR0_REGION_INDEX;
        self.iommu.with(|c| c.read(index, offset as u64, to))
    }

    /// Stores to a register. If the server is gone, the next load shows it.
    // Never inline: instruction counts subtract this function, since a doorbell is a single store
    // on a real card.
    #[inline(never)]
    fn write(&self, offset: usize, data: &[u8]) {
        let inside = offset.checked_add(data.len()).is_some_and(|end| end <= self.bar_len);
        if inside && offset % data.len() == 0 {
            let index = VFIO_PCI_BAR0_REGION_INDEX;
            let _ = self.iommu.with(|c| c.write(index, offset as u64, data, true));
        }
    }
}

impl Bar for VfioUser {
    fn bar_len(&self) -> usize {
        self.bar_len
    }
    fn read32(&self, offset: usize) -> u32 {
        let mut bytes = [0xff; 4];
        let inside = offset.checked_add(4).is_some_and(|end| end <= self.bar_len);
        let there = inside && offset % 4 == 0 && !self.severed.load(Ordering::Acquire);
        if !there || self.read(offset, &mut bytes).is_err() {
            return u32::MAX;
        }
        u32::from_ne_bytes(bytes)
    }
    fn write32(&self, offset: usize, value: u32) {
        self.write(offset, &value.to_ne_bytes());
    }
    #[inline(always)]
    fn write64(&self, offset: usize, value: u64) {
        self.write(offset, &value.to_ne_bytes());
    }
    fn write_block(&self, offset: usize, block: &[u64; 8], _: Blocks) {
        for (at, word) in (offset..).step_by(8).zip(block) {
            self.write64(at, *word);
        }
    }
}

platform_over_memory!(VfioUser);

impl Host for VfioUser {
    host_over_memory!();

    fn blocks(&self) -> Blocks {
        // A doorbell is a message, and the server reads the request from memory that it maps.
        Blocks::Words
    }
    fn config_space(&self) -> Result<ConfigSpace, Error> {
        self.iommu.config_space()
    }
    fn reset(&self) -> Result<(), Error> {
        self.severed.store(true, Ordering::Release);
        self.iommu.with(Client::reset)
    }
    fn refused_stores(&self) -> u64 {
        self.iommu.with(|client| Ok(client.refused_writes())).unwrap_or(0)
    }
    fn trouble(&self) -> Option<Trouble> {
        if self.wakeups.saw_peer_end() && self.iommu.gone.get().is_none() {
            let _: Result<(), Error> =
                self.iommu.with(|client| Err(client.end("it closed the connection")));
        }
        if let Some(error) = self.iommu.gone.get() {
            return Some(Trouble::Gone(error.clone()));
        }
        self.wakeups.trouble()
    }
}

impl Drop for VfioUser {
    fn drop(&mut self) {
        // Bus mastering stops before the memory is unmapped. If the server is gone, nothing is
        // left to do.
        let _ = self.iommu.command(0, pci::BUS_MASTER);
        let _ = self.iommu.with(Client::reset);
        let flags = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER;
        let _ =
            self.iommu.with(|client| client.set_irqs(flags, VFIO_PCI_MSIX_IRQ_INDEX, 0, 0, None));
        let _ = self.memory.unmap(&self.iommu);
        let _ = self.iommu.with(|client| {
            client.hang_up();
            Ok(())
        });
    }
}
