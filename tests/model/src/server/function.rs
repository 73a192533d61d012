//! One function: a device, its socket, its client, and what the client's requests do.

use super::connection::{Connection, Filled};
use super::irqs::{self, Irqs};
use super::maps::{Map, Maps};
use super::protocol::{self, Header, MOST_DATA, Reply, Request};
use super::report::FunctionReport;
use super::rude::Rude;
use super::sockets::{self, SocketFile};
use super::wires::Plug;
use crate::config::Config;
use crate::faults::{Device, Faulty, Script};
use crate::hca::Hca;
use crate::host::{DmaError, Nanos};
use crate::regs::{BAR_BYTES, PBA};
use crate::stats::Stats;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

/// Regions as VFIO numbers them: six BARs, ROM, configuration space, VGA.
const REGIONS: u32 = 9;
const BAR0: u32 = 0;
const CONFIG: u32 = 7;
const CONFIG_BYTES: u64 = 4096;
/// Region may be read and written; it may not be mapped.
const READ_WRITE: u32 = 3;
/// A PCI device that can be reset.
const PCI_RESETTABLE: u32 = 3;
/// Reads from a client before the device is stepped again.
const MOST_READS: usize = 4;
/// How long a second client waits for the first to go. A descriptor may stay open for a moment in a
/// process that is being started, and a client that closed it and comes back must not be turned
/// away for that.
const GRACE: Nanos = 500_000_000;
/// Notes kept; a client that is wrong in a loop must not eat the machine's memory.
const MOST_NOTES: usize = 100;

/// One device behind one socket.
#[derive(Debug)]
pub struct Function {
    device: Faulty,
    socket: PathBuf,
    listener: UnixListener,
    _file: SocketFile,
    connection: Option<Connection>,
    /// The client that waits for the present one to go, and its time limit.
    waiting: Option<(UnixStream, Nanos)>,
    greeted: bool,
    maps: Maps,
    irqs: Irqs,
    vectors: u16,
    rude: Vec<Rude>,
    quits: bool,
    now: Nanos,
    due: Option<Nanos>,
    resets: u64,
    clients: u64,
    turned_away: u64,
    messages: u64,
    notes: Vec<String>,
}

impl Function {
    pub(super) fn new(
        socket: PathBuf,
        device: Config,
        plug: Plug,
        rude: &[Rude],
    ) -> io::Result<Self> {
        let (listener, file) = sockets::listen(&socket)?;
        let maps = Maps::default();
        let vectors = device.vectors;
        let mut hca = Hca::new(device, Box::new(maps.clone()), Box::new(plug));
        for rude in rude {
            match *rude {
                Rude::MuteAfter(n) => {
                    hca.set_command_hook(Some(Box::new(Script::new().mute_from(n))));
                }
                Rude::DmaLimit(n) => maps.set_limit(n),
                Rude::GoneAfter(_) | Rude::DieAfter(_) | Rude::QuitAfter(_) => {}
            }
        }
        Ok(Self {
            device: Faulty::new(hca),
            socket,
            listener,
            _file: file,
            connection: None,
            waiting: None,
            greeted: false,
            maps,
            irqs: Irqs::new(vectors),
            vectors,
            rude: rude.to_vec(),
            quits: false,
            now: 0,
            due: None,
            resets: 0,
            clients: 0,
            turned_away: 0,
            messages: 0,
            notes: Vec::new(),
        })
    }

    // Methods for tests.

    /// The device itself.
    pub fn hca(&mut self) -> &mut Hca {
        &mut self.device.hca
    }

    /// Returns the client's mappings, by address.
    pub fn maps(&self) -> Vec<Map> {
        self.maps.list()
    }

    /// DMA accesses refused for want of a mapping or a right.
    pub fn dma_refused(&self) -> u64 {
        self.maps.refused()
    }

    /// Tries to read memory as a broken device would.
    pub fn dma_read(&mut self, iova: u64, length: usize) -> Result<Vec<u8>, DmaError> {
        let mut bytes = vec![0; length];
        self.device.hca.dma_read(iova, &mut bytes)?;
        Ok(bytes)
    }

    /// Tries to write memory as a broken device would; nothing is written unless all of it may be.
    pub fn dma_write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaError> {
        // Without bus mastering not even an empty access leaves.
        self.device.hca.dma_write(iova, &[])?;
        self.maps.check_write(iova, bytes.len())?;
        self.device.hca.dma_write(iova, bytes)
    }

    /// Returns the device's counters.
    pub fn stats(&self) -> &Stats {
        self.device.hca.stats()
    }

    /// Returns the driver's faults that silicon would not report.
    pub fn complaints(&self) -> &[String] {
        self.device.hca.complaints()
    }

    /// Whether somebody is connected.
    pub fn has_client(&self) -> bool {
        self.connection.is_some()
    }

    /// The device falls off the bus, or returns. While it is gone reads give all ones, stores are
    /// lost, and it neither reads memory nor interrupts.
    pub fn set_gone(&mut self, gone: bool) {
        self.device.trouble.all_ones = gone;
    }

    /// Closes the eventfds that the client gave for its interrupts: none arrives any more.
    pub fn forget_interrupts(&mut self) {
        self.irqs.clear();
    }

    /// Signals VFIO's error interrupt: an uncorrectable error on the link.
    pub fn signal_error(&mut self) {
        self.irqs.fire(irqs::ERROR, 0);
    }

    /// Signals VFIO's device request interrupt: somebody wants the device back.
    pub fn request_back(&mut self) {
        self.irqs.fire(irqs::REQUEST, 0);
    }

    /// The sum of it all.
    pub fn report(&self) -> FunctionReport {
        FunctionReport {
            socket: self.socket.clone(),
            clients: self.clients,
            turned_away: self.turned_away,
            messages: self.messages,
            commands: self.device.hca.commands(),
            dma_refused: self.maps.refused(),
            maps: self.maps.list(),
            stats: self.stats().clone(),
            complaints: self.complaints().to_vec(),
            notes: self.notes.clone(),
        }
    }

    // Methods for the event loop.

    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    pub(super) fn connection(&self) -> Option<&Connection> {
        self.connection.as_ref()
    }

    /// A fault asked for the server's end.
    pub(super) fn quits(&self) -> bool {
        self.quits
    }

    /// Lets the device do what is due; says when next.
    pub(super) fn step(&mut self, now: Nanos) -> Option<Nanos> {
        let before = core::mem::replace(&mut self.now, now);
        if let Some((stream, _)) = self.waiting.take_if(|(_, until)| *until <= now) {
            self.turn_away(stream);
        }
        let patience = self.waiting.as_ref().map(|(_, until)| *until);
        if self.device.trouble.all_ones {
            return patience;
        }
        if self.due.is_some_and(|due| due <= now) {
            // This thread may have slept past a deadline. What arrived meanwhile counts first.
            self.device.step(before);
        }
        self.due = self.device.step(now);
        for vector in self.device.interrupts() {
            self.irqs.fire(irqs::MSIX, vector);
        }
        self.misbehave();
        [self.due, patience].into_iter().flatten().min()
    }

    /// Begins what is asked to go wrong, once.
    fn misbehave(&mut self) {
        let commands = self.device.hca.commands();
        let mut due = Vec::new();
        self.rude.retain(|rude| {
            let (Rude::GoneAfter(n) | Rude::DieAfter(n) | Rude::QuitAfter(n)) = *rude else {
                return false;
            };
            if commands >= n {
                due.push(*rude);
            }
            commands < n
        });
        for rude in due {
            match rude {
                Rude::GoneAfter(_) => self.set_gone(true),
                Rude::DieAfter(_) => self.device.hca.die(1),
                Rude::QuitAfter(_) => self.quits = true,
                Rude::MuteAfter(_) | Rude::DmaLimit(_) => {}
            }
        }
    }

    /// Accepts a client. A second one waits a moment for the first to go, then it is turned away.
    pub(super) fn accept(&mut self) {
        // A client that hangs up and connects again must not find its old connection here. The end
        // shows in a read of its own.
        if self.serve() {
            self.serve();
        }
        while let Ok((stream, _)) = self.listener.accept() {
            if self.connection.is_none() {
                self.take_in(stream);
            } else if self.waiting.is_none() {
                self.waiting = Some((stream, self.now + GRACE));
            } else {
                self.turn_away(stream);
            }
        }
    }

    pub(super) fn take_in(&mut self, stream: UnixStream) {
        match Connection::new(stream) {
            Ok(connection) => {
                self.clients += 1;
                self.greeted = false;
                self.connection = Some(connection);
            }
            Err(error) => self.note(format!("client lost at once: {error}")),
        }
    }

    /// Hangs up on a second client. If it has sent its first message, it gets `EBUSY`.
    fn turn_away(&mut self, stream: UnixStream) {
        self.turned_away += 1;
        self.note("a second client was turned away: one is here already".into());
        let Ok(mut connection) = Connection::new(stream) else {
            return;
        };
        connection.fill();
        if let Ok(Some((header, ..))) = connection.take() {
            if !header.silent() {
                connection.send(&header.answer(Err(Errno::BUSY)));
            }
        }
    }

    /// Sends what waits for room.
    pub(super) fn flush(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.flush();
        }
    }

    /// Answers what the client asked. Returns whether there was anything.
    pub(super) fn serve(&mut self) -> bool {
        let before = self.messages;
        for _ in 0..MOST_READS {
            let Some(connection) = &mut self.connection else {
                break;
            };
            match (connection.fill(), self.answer_all()) {
                (_, Err(why)) | (Filled::End(why), Ok(())) => {
                    if why != "hung up" {
                        self.note(format!("client {why}"));
                    }
                    self.hang_up();
                }
                (Filled::Empty, Ok(())) => break,
                (Filled::More, Ok(())) => {}
            }
        }
        self.messages != before
    }

    /// Answers every message that has been read.
    fn answer_all(&mut self) -> Result<(), &'static str> {
        while let Some(connection) = &mut self.connection {
            let Some((header, body, fds)) = connection.take()? else { break };
            self.messages += 1;
            self.answer(&header, &body, fds);
        }
        Ok(())
    }

    /// The client is gone: so are its memory and its eventfds, and the function is as at power-on.
    fn hang_up(&mut self) {
        self.connection = None;
        self.maps.clear();
        self.irqs.clear();
        self.device.hca.flr();
        if let Some((stream, _)) = self.waiting.take() {
            self.take_in(stream);
        }
    }

    fn answer(&mut self, header: &Header, body: &[u8], fds: Vec<OwnedFd>) {
        let request = header.request(body);
        let result = match &request {
            Ok(request) => self.perform(request, fds),
            Err(errno) => Err(*errno),
        };
        if let Err(errno) = result {
            self.note(match &request {
                Ok(request) => format!("{request:x?}: {errno}"),
                Err(_) => format!("{header:x?}: {errno}"),
            });
        }
        if self.stats().resets != self.resets {
            self.resets = self.stats().resets;
            self.irqs.reset();
        }
        if let Some(connection) = self.connection.as_mut().filter(|_| !header.silent()) {
            connection.send(&header.answer(result));
        }
    }

    fn perform(&mut self, request: &Request<'_>, fds: Vec<OwnedFd>) -> Result<Vec<u8>, Errno> {
        if let Request::Version { major } = *request {
            self.greeted = true;
            return protocol::greeting(major);
        }
        if !self.greeted {
            return Err(Errno::PROTO);
        }
        match *request {
            Request::Version { .. } => {}
            Request::DmaMap { flags, offset, iova, size } => {
                if fds.len() > 1 {
                    return Err(Errno::INVAL);
                }
                let file = fds.into_iter().next().map(File::from);
                self.maps.map(flags, offset, iova, size, file)?;
            }
            Request::DmaUnmap { argsz, flags, iova, size } => {
                self.maps.unmap(flags, iova, size)?;
                let reply = Reply::default().u32(argsz).u32(flags);
                return Ok(reply.u64(iova).u64(size).done());
            }
            Request::DeviceInfo => {
                let reply = Reply::default().u32(16).u32(PCI_RESETTABLE);
                return Ok(reply.u32(REGIONS).u32(irqs::KINDS).done());
            }
            Request::RegionInfo { index } => {
                let size = region_bytes(index)?;
                let flags = if size == 0 { 0 } else { READ_WRITE };
                let reply = Reply::default().u32(32).u32(flags).u32(index).u32(0);
                return Ok(reply.u64(size).u64(u64::from(index) << 40).done());
            }
            Request::IrqInfo { index } => {
                let (flags, count) = self.irqs.info(index)?;
                let reply = Reply::default().u32(16).u32(flags);
                return Ok(reply.u32(index).u32(count).done());
            }
            Request::SetIrqs { flags, index, start, count, data } => {
                self.irqs.set(flags, index, start, count, data, fds)?
            }
            Request::RegionRead { offset, region, count } => {
                if count > MOST_DATA {
                    return Err(Errno::INVAL);
                }
                within(region, offset, count as usize)?;
                let mut data = vec![0; count as usize];
                self.read_region(region, offset, &mut data);
                let reply = Reply::default().u64(offset).u32(region).u32(count);
                return Ok(reply.bytes(&data).done());
            }
            Request::RegionWrite { offset, region, data } => {
                within(region, offset, data.len())?;
                if region == CONFIG {
                    self.device.config_write(offset as usize, data);
                } else {
                    self.device.bar_write(offset, data);
                }
                let reply = Reply::default().u64(offset).u32(region);
                return Ok(reply.u32(data.len() as u32).done());
            }
            Request::Reset => self.device.hca.flr(),
        }
        Ok(Vec::new())
    }

    fn read_region(&mut self, region: u32, offset: u64, data: &mut [u8]) {
        if region == CONFIG {
            self.device.config_read(offset as usize, data);
            return;
        }
        self.device.bar_read(offset, data);
        if self.device.trouble.all_ones {
            return;
        }
        // The host has the MSI-X table, so which vectors are pending is known here and not to the
        // device.
        let bits = PBA..PBA + u64::from(self.vectors).div_ceil(64) * 8;
        for (at, byte) in (offset..).zip(data) {
            if bits.contains(&at) {
                *byte = self.irqs.pending_byte((at - PBA) as usize);
            }
        }
    }

    fn note(&mut self, what: String) {
        if self.notes.len() < MOST_NOTES {
            self.notes.push(what);
        }
    }
}

/// Length of a region.
fn region_bytes(region: u32) -> Result<u64, Errno> {
    match region {
        BAR0 => Ok(BAR_BYTES),
        CONFIG => Ok(CONFIG_BYTES),
        other if other < REGIONS => Ok(0),
        _ => Err(Errno::INVAL),
    }
}

/// Whether an access lies within its region.
fn within(region: u32, offset: u64, length: usize) -> Result<(), Errno> {
    let size = region_bytes(region)?;
    let end = offset.checked_add(length as u64).ok_or(Errno::INVAL)?;
    if length == 0 || end > size {
        return Err(Errno::INVAL);
    }
    Ok(())
}
