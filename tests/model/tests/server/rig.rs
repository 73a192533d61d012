//! Sockets in a directory of their own, a client that speaks the protocol by bytes, and a driver in
//! a few lines.

use mlx5_model::Config;
use mlx5_model::server::{Handle, Server, Settings};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::fs::File;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Nothing here takes that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A directory with a short name, gone when dropped.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let nth = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mlx5-{}-{nth}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A device with few pages.
pub(crate) fn quick() -> Config {
    Config { init_pages: Some(10), ..Config::default() }
}

/// A server with one such device at `a`.
pub(crate) fn serve(dir: &Dir) -> Handle {
    Server::start(Settings::with_device(&quick(), [dir.at("a")])).unwrap()
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

pub(crate) fn memfd(bytes: u64) -> File {
    let fd = rustix::fs::memfd_create("ram", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let file = File::from(fd);
    file.set_len(bytes).unwrap();
    file
}

pub(crate) fn eventfd() -> OwnedFd {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap()
}

/// How often an eventfd was signalled since the last call.
pub(crate) fn signalled(fd: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    match rustix::io::read(fd, &mut count) {
        Ok(8) => u64::from_ne_bytes(count),
        _ => 0,
    }
}

/// The commands of the protocol.
pub(crate) mod command {
    pub(crate) const VERSION: u16 = 1;
    pub(crate) const DMA_MAP: u16 = 2;
    pub(crate) const DMA_UNMAP: u16 = 3;
    pub(crate) const DEVICE_INFO: u16 = 4;
    pub(crate) const REGION_INFO: u16 = 5;
    pub(crate) const IRQ_INFO: u16 = 7;
    pub(crate) const SET_IRQS: u16 = 8;
    pub(crate) const REGION_READ: u16 = 9;
    pub(crate) const REGION_WRITE: u16 = 10;
    pub(crate) const RESET: u16 = 13;
}

pub(crate) const EINVAL: i32 = 22;

/// Numbers one after the other, little endian: `f![a as u32, b as u64]`.
macro_rules! fields {
    ($($value:expr),* $(,)?) => {{
        let mut bytes: Vec<u8> = Vec::new();
        $(bytes.extend_from_slice(&$value.to_le_bytes());)*
        bytes
    }};
}
pub(crate) use fields;

/// A client by bytes.
pub(crate) struct Raw {
    pub(crate) stream: UnixStream,
    id: u16,
}

impl Raw {
    /// Connected, not greeted.
    pub(crate) fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, id: 0 }
    }

    /// Connected and greeted.
    pub(crate) fn greet(path: &Path) -> Self {
        let mut raw = Self::connect(path);
        let mut hello = fields![0u16, 1u16];
        hello.extend_from_slice(b"{\"capabilities\":{\"max_msg_fds\":8}}\0");
        raw.call(command::VERSION, &hello, &[]).unwrap();
        raw
    }

    pub(crate) fn post(&mut self, command: u16, flags: u32, body: &[u8], fds: &[BorrowedFd<'_>]) {
        self.id = self.id.wrapping_add(1);
        let mut message = fields![self.id, command, (16 + body.len()) as u32, flags, 0u32];
        message.extend_from_slice(body);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let bufs = [IoSlice::new(&message)];
        let sent = rustix::net::sendmsg(&self.stream, &bufs, &mut control, SendFlags::NOSIGNAL);
        assert_eq!(sent.unwrap(), message.len());
    }

    /// The reply that must come next.
    pub(crate) fn reply(&mut self) -> Result<Vec<u8>, i32> {
        let mut header = [0; 16];
        self.stream.read_exact(&mut header).unwrap();
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!(word(0) as u16, self.id, "the reply to another request");
        let mut body = vec![0; word(4) as usize - 16];
        self.stream.read_exact(&mut body).unwrap();
        match word(8) {
            1 => Ok(body),
            0x21 => Err(0_i32.wrapping_add_unsigned(word(12))),
            flags => panic!("reply with flags {flags:#x}"),
        }
    }

    pub(crate) fn call(
        &mut self,
        command: u16,
        body: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Vec<u8>, i32> {
        self.post(command, 0, body, fds);
        self.reply()
    }

    pub(crate) fn read(&mut self, region: u32, offset: u64, n: u32) -> Result<Vec<u8>, i32> {
        let reply = self.call(command::REGION_READ, &fields![offset, region, n], &[])?;
        Ok(reply[16..].to_vec())
    }

    fn access(region: u32, offset: u64, bytes: &[u8]) -> Vec<u8> {
        let mut body = fields![offset, region, bytes.len() as u32];
        body.extend_from_slice(bytes);
        body
    }

    pub(crate) fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) -> Result<(), i32> {
        let body = Self::access(region, offset, bytes);
        self.call(command::REGION_WRITE, &body, &[]).map(|_| ())
    }

    /// A posted write: no reply is wanted.
    pub(crate) fn store(&mut self, region: u32, offset: u64, bytes: &[u8]) {
        let body = Self::access(region, offset, bytes);
        self.post(command::REGION_WRITE, 0x10, &body, &[]);
    }

    pub(crate) fn map(
        &mut self,
        flags: u32,
        offset: u64,
        iova: u64,
        size: u64,
        ram: Option<&File>,
    ) -> Result<(), i32> {
        let fds: Vec<BorrowedFd<'_>> = ram.iter().map(|file| file.as_fd()).collect();
        let body = fields![32u32, flags, offset, iova, size];
        self.call(command::DMA_MAP, &body, &fds).map(|_| ())
    }

    pub(crate) fn unmap(&mut self, flags: u32, iova: u64, size: u64) -> Result<(), i32> {
        let body = fields![24u32, flags, iova, size];
        self.call(command::DMA_UNMAP, &body, &[]).map(|_| ())
    }

    pub(crate) fn set_irqs(
        &mut self,
        flags: u32,
        index: u32,
        start: u32,
        count: u32,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), i32> {
        let body = fields![20u32, flags, index, start, count];
        self.call(command::SET_IRQS, &body, fds).map(|_| ())
    }

    /// Memory decoding and bus mastering.
    pub(crate) fn set_command(&mut self, bits: u8) {
        self.write(7, 4, &[bits, 0]).unwrap();
    }

    pub(crate) fn be32(&mut self, offset: u64) -> u32 {
        let bytes = self.read(0, offset, 4).unwrap();
        u32::from_be_bytes(bytes.try_into().unwrap())
    }
}

/// Where the driver's memory is on the bus, and how much.
pub(crate) const BASE: u64 = 0x1_4000_0000;
pub(crate) const BYTES: u64 = 1 << 20;
const IN_BOXES: u64 = 0x1_0000;
const OUT_BOXES: u64 = 0x2_0000;
pub(crate) const RING: u64 = 0x4_0000;
const PAGES: u64 = 0x8_0000;

/// Little more than a driver's command interface: slot 0, one mailbox each way.
pub(crate) struct Driver {
    pub(crate) raw: Raw,
    pub(crate) ram: File,
    token: u8,
}

impl Driver {
    /// Memory mapped, command page set.
    pub(crate) fn new(path: &Path) -> Self {
        let mut raw = Raw::greet(path);
        let ram = memfd(BYTES);
        raw.map(3, 0, BASE, BYTES, Some(&ram)).unwrap();
        raw.set_command(6);
        let mut driver = Self { raw, ram, token: 0 };
        driver.set_page();
        driver
    }

    pub(crate) fn set_page(&mut self) {
        let page = BASE.to_be_bytes();
        self.raw.store(0, 0x10, &page[..4]);
        self.raw.store(0, 0x14, &page[4..]);
        assert_eq!(self.raw.be32(0x14) & 0xffff_f000, BASE as u32);
    }

    pub(crate) fn get(&self, at: u64, n: usize) -> Vec<u8> {
        let mut bytes = vec![0; n];
        self.ram.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    pub(crate) fn owned(&self) -> bool {
        self.get(0x3f, 1)[0] & 1 != 0
    }

    /// Fills the slot and rings.
    pub(crate) fn post(&mut self, input: &[u8], out_len: usize) {
        self.token = self.token.wrapping_add(1).max(1);
        for (at, data) in [(IN_BOXES, input.get(16..)), (OUT_BOXES, None)] {
            let mut block = [0; 576];
            let data = data.unwrap_or_default();
            block[..data.len()].copy_from_slice(data);
            block[0x23d] = self.token;
            self.ram.write_all_at(&block, at).unwrap();
        }
        let mut entry = [0; 64];
        let head = input.len().min(16);
        entry[0] = 7;
        entry[4..8].copy_from_slice(&(input.len() as u32).to_be_bytes());
        entry[8..16].copy_from_slice(&(BASE + IN_BOXES).to_be_bytes());
        entry[16..16 + head].copy_from_slice(&input[..head]);
        entry[0x30..0x38].copy_from_slice(&(BASE + OUT_BOXES).to_be_bytes());
        entry[0x38..0x3c].copy_from_slice(&(out_len as u32).to_be_bytes());
        entry[0x3c] = self.token;
        entry[0x3f] = 1;
        self.ram.write_all_at(&entry, 0).unwrap();
        self.raw.store(0, 0x18, &1u32.to_be_bytes());
    }

    /// Runs a command of at most 528 bytes; the answer's first 16.
    pub(crate) fn exec(&mut self, input: &[u8], out_len: usize) -> Vec<u8> {
        self.post(input, out_len);
        until("the answer to a command", || !self.owned());
        let entry = self.get(0, 64);
        assert_eq!(entry[0x3f], 0, "delivery");
        entry[0x20..0x30].to_vec()
    }

    pub(crate) fn ok(&mut self, input: &[u8], out_len: usize) -> Vec<u8> {
        let answer = self.exec(input, out_len);
        assert_eq!(answer[0], 0, "{:02x?}: {answer:02x?}", &input[..2]);
        answer
    }

    fn give(&mut self, which: u16, first: u64) {
        let pages = word(&self.ok(&cmd(0x107, which, 16), 16), 12);
        let mut input = cmd(0x108, 1, 16);
        input[12..16].copy_from_slice(&pages.to_be_bytes());
        for k in 0..u64::from(pages) {
            let page = BASE + PAGES + (first + k) * 4096;
            input.extend_from_slice(&page.to_be_bytes());
        }
        self.ok(&input, 16);
    }

    /// Up to INIT_HCA.
    pub(crate) fn init(&mut self) {
        self.ok(&cmd(0x104, 0, 16), 16);
        self.give(1, 0);
        self.give(2, 16);
        self.ok(&cmd(0x102, 0, 32), 16);
    }

    /// An event queue of 16 entries for command events, armed: its UAR and number.
    pub(crate) fn event_queue(&mut self, vector: u32) -> (u64, u32) {
        let uar = word(&self.ok(&cmd(0x802, 0, 16), 16), 8);
        for k in 0..16 {
            self.ram.write_all_at(&[1], RING + k * 64 + 0x3f).unwrap();
        }
        let mut input = cmd(0x301, 0, 280);
        input[0x1c..0x20].copy_from_slice(&(4 << 24 | uar).to_be_bytes());
        input[0x24..0x28].copy_from_slice(&vector.to_be_bytes());
        input[0x58..0x60].copy_from_slice(&(1u64 << 0x0a).to_be_bytes());
        input[0x110..0x118].copy_from_slice(&(BASE + RING).to_be_bytes());
        let eqn = word(&self.ok(&input, 16), 8);
        let page = u64::from(uar) << 12;
        self.arm(page, eqn, 0);
        (page, eqn)
    }

    pub(crate) fn arm(&mut self, page: u64, eqn: u32, ci: u32) {
        self.raw.store(0, page | 0x40, &(eqn << 24 | ci).to_be_bytes());
    }
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// A command of `n` bytes.
pub(crate) fn cmd(opcode: u16, op_mod: u16, n: usize) -> Vec<u8> {
    let mut bytes = vec![0; n];
    bytes[0..2].copy_from_slice(&opcode.to_be_bytes());
    bytes[6..8].copy_from_slice(&op_mod.to_be_bytes());
    bytes
}
