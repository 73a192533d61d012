//! The client of a vfio-user socket.
//!
//! The server is not trusted. One request is outstanding at a time. Each has one deadline, which
//! covers sending it and whatever comes until its reply, and a longest reply. Anything but that
//! reply, or an error reply to an earlier posted write (at most one for each), ends the connection
//! permanently, with an error that names the failure: after a missing reply, a later one cannot be
//! matched with its request.
//!
//! The client sends eventfds and the files behind mappings only. It takes no file from the server,
//! so it maps none that could shrink: the kernel closes descriptors that come with a reply. Only the
//! description of a region may have some, for clients that map it; elsewhere they end the connection.
//!
//! Written by hand, because the client of the `vfio_user` crate supports neither read-only mappings
//! nor deadlines, takes error replies for success, and panics on malformed replies.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
    sendmsg, socket_with,
};

use vfio_bindings::bindings::vfio::VFIO_DEVICE_FLAGS_RESET;

use super::message::{Command, HEADER, Reply, long, request, word};
use crate::error::{Error, Kind};
use crate::events;
use crate::wakeups::timespec;

/// Bounds of the limit for a reply.
const PATIENCE: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(3600)];
/// Longest body of a reply. The longest that is asked for is configuration space.
const LONGEST: usize = 1 << 13;
/// The client's capabilities. One descriptor per message is all it needs.
const CAPABILITIES: &[u8] = b"{\"capabilities\":{\"max_msg_fds\":1}}\0";

/// The remedy if another client has the device.
const ONE_AT_A_TIME: &str = "end the program that has the device, or give this one another socket of the server's: \
                             each is one device, for one program at a time";

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: UnixStream,
    path: PathBuf,
    /// Longest wait for a reply.
    patience: Duration,
    next: u16,
    /// Posted writes since the last reply: error replies that may still come for them.
    posted: u16,
    /// Error replies that came for posted writes.
    refused: u64,
    /// Bytes that were read ahead.
    pending: Vec<u8>,
    /// Why the connection ended.
    ended: Option<Error>,
}

impl Client {
    /// Connects and negotiates the version. `patience` limits the wait for each reply.
    pub(crate) fn connect(path: &Path, patience: Duration) -> Result<Self, Error> {
        let [least, most] = PATIENCE;
        let patience = patience.clamp(least, most);
        let stream = reach(path, patience).map_err(|errno| unreachable(path, &errno.into()))?;
        Self::greet(stream, path, patience)
    }

    /// Negotiates the version on a connected socket.
    pub(super) fn greet(
        stream: UnixStream,
        path: &Path,
        patience: Duration,
    ) -> Result<Self, Error> {
        let mut client = Self {
            stream,
            path: path.to_owned(),
            patience,
            next: 0,
            posted: 0,
            refused: 0,
            pending: Vec::new(),
            ended: None,
        };
        let (major, minor) = (0u16.to_ne_bytes(), 1u16.to_ne_bytes());
        let body = client.ask(Command::Version, &[&major, &minor, CAPABILITIES], None)?;
        // The major version is in the lower 16 bits (little-endian), the minor in the upper; only
        // the major has to match.
        let [low, high, ..] = *body else {
            return Err(client.end("its version reply is too short"));
        };
        match u16::from_ne_bytes([low, high]) {
            0 => Ok(client),
            other => Err(Error::new(
                Kind::Unsupported,
                client.name(),
                format!("the server speaks version {other} of vfio-user, this program version 0"),
                "use a server of version 0",
            )),
        }
    }

    /// Returns the socket.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Returns how many posted writes the server has refused.
    pub(crate) fn refused_writes(&self) -> u64 {
        self.refused
    }

    /// Returns why the connection ended, if it has.
    pub(crate) fn ended(&self) -> Option<&Error> {
        self.ended.as_ref()
    }

    fn name(&self) -> String {
        format!("vfio-user:{}", self.path.display())
    }

    /// Asks whether the device can be reset.
    pub(crate) fn resettable(&mut self) -> Result<bool, Error> {
        let body = words(&[16, 0, 0, 0]);
        let reply = self.ask(Command::DeviceGetInfo, &[&body], None)?;
        Ok(word(&reply, 1) & VFIO_DEVICE_FLAGS_RESET != 0)
    }

    /// Asks for the length of region `index`; 0 if there is none.
    pub(crate) fn region_len(&mut self, index: u32) -> Result<u64, Error> {
        let body = words(&[32, 0, index, 0, 0, 0, 0, 0]);
        let reply = self.ask(Command::DeviceGetRegionInfo, &[&body], None)?;
        Ok(long(&reply, 4))
    }

    /// Asks for the number of interrupts of a kind.
    pub(crate) fn interrupts(&mut self, index: u32) -> Result<u32, Error> {
        let body = words(&[16, 0, index, 0]);
        let reply = self.ask(Command::DeviceGetIrqInfo, &[&body], None)?;
        Ok(word(&reply, 3))
    }

    /// Wires `fd` to vector `vector`, or sets up vectors by `flags` alone.
    pub(crate) fn set_irqs(
        &mut self,
        flags: u32,
        index: u32,
        start: u32,
        count: u32,
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<(), Error> {
        let body = words(&[20, flags, index, start, count]);
        self.ask(Command::DeviceSetIrqs, &[&body], fd).map(drop)
    }

    /// Maps `len` bytes of `file` at `offset` for the device at `iova`.
    pub(crate) fn dma_map(
        &mut self,
        flags: u32,
        file: BorrowedFd<'_>,
        offset: u64,
        iova: u64,
        len: u64,
    ) -> Result<(), Error> {
        let (head, tail) = (words(&[32, flags]), longs(&[offset, iova, len]));
        self.ask(Command::DmaMap, &[&head, &tail], Some(file)).map(drop)
    }

    /// Ends a mapping.
    pub(crate) fn dma_unmap(&mut self, iova: u64, len: u64) -> Result<(), Error> {
        let (head, tail) = (words(&[24, 0]), longs(&[iova, len]));
        self.ask(Command::DmaUnmap, &[&head, &tail], None).map(drop)
    }

    /// Resets the device.
    pub(crate) fn reset(&mut self) -> Result<(), Error> {
        events::reset(&self.name());
        self.ask(Command::DeviceReset, &[], None).map(drop)
    }

    /// Reads from a region.
    pub(crate) fn read(&mut self, region: u32, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        let count = u32::try_from(to.len()).unwrap_or(u32::MAX);
        let (head, tail) = (longs(&[offset]), words(&[region, count]));
        let reply = self.ask(Command::RegionRead, &[&head, &tail], None)?;
        match reply.get(16..).filter(|data| data.len() == to.len()) {
            Some(data) => to.copy_from_slice(data),
            None => return Err(self.end("it answered a read with the wrong number of bytes")),
        }
        Ok(())
    }

    /// Writes to a region; if `posted`, without waiting for a reply.
    pub(crate) fn write(
        &mut self,
        region: u32,
        offset: u64,
        data: &[u8],
        posted: bool,
    ) -> Result<(), Error> {
        let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let (head, tail) = (longs(&[offset]), words(&[region, count]));
        let body: &[&[u8]] = &[&head, &tail, data];
        if posted {
            let deadline = self.deadline();
            self.send(Command::RegionWrite, true, body, None, deadline)?;
            self.posted = self.posted.saturating_add(1);
            Ok(())
        } else {
            self.ask(Command::RegionWrite, body, None).map(drop)
        }
    }

    /// Sends a request and returns the body of its reply.
    fn ask(
        &mut self,
        command: Command,
        body: &[&[u8]],
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<Vec<u8>, Error> {
        let deadline = self.deadline();
        let id = self.send(command, false, body, fd, deadline)?;
        loop {
            let header = self.receive(command, HEADER, deadline)?;
            let parsed = header.first_chunk().and_then(|h| Reply::parse(h, LONGEST));
            let Some(reply) = parsed else {
                return Err(self.end("it sent something that is no reply"));
            };
            let body = self.receive(command, reply.body, deadline)?;
            if reply.id == id {
                self.posted = 0;
                return match reply.error {
                    None => Ok(body),
                    Some(errno) => Err(self.refused(command, errno)),
                };
            }
            // No call waits for a posted write, but a server may refuse it.
            let posted = id.wrapping_sub(reply.id) <= self.posted;
            if reply.error.is_none() || !posted {
                return Err(self.end("it answered a request that was not made"));
            }
            self.posted = self.posted.saturating_sub(1);
            self.refused = self.refused.saturating_add(1);
        }
    }

    /// Returns until when a request that begins now has to be answered.
    fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// Sends a request and returns its number.
    fn send(
        &mut self,
        command: Command,
        posted: bool,
        body: &[&[u8]],
        fd: Option<BorrowedFd<'_>>,
        deadline: Instant,
    ) -> Result<u16, Error> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        let id = self.next;
        self.next = id.wrapping_add(1);
        let message = request(id, command, posted, body);
        match send_all(&self.stream, &message, fd, deadline) {
            Ok(()) => Ok(id),
            Err(error) => Err(self.broken(command, &error)),
        }
    }

    /// Receives the next `len` bytes.
    fn receive(
        &mut self,
        command: Command,
        len: usize,
        deadline: Instant,
    ) -> Result<Vec<u8>, Error> {
        let mut buffer = [0; 512];
        while self.pending.len() < len {
            let (count, fds) = match receive_some(&self.stream, &mut buffer, deadline) {
                Ok((0, _)) => return Err(self.closed(command)),
                Ok(received) => received,
                Err(error) => return Err(self.broken(command, &error)),
            };
            if fds && command != Command::DeviceGetRegionInfo {
                let name = command.name();
                return Err(self.end(&format!("it answered {name} with file descriptors")));
            }
            self.pending.extend(buffer.iter().take(count));
        }
        let rest = self.pending.split_off(len);
        Ok(std::mem::replace(&mut self.pending, rest))
    }

    /// Makes the error of a request that the server refused. The connection stays usable.
    fn refused(&self, command: Command, errno: u32) -> Error {
        let errno = i32::try_from(errno).unwrap_or(0);
        if command == Command::Version && errno == libc::EBUSY {
            return Error::new(
                Kind::Busy,
                self.name(),
                "the server has a client on this socket already",
                ONE_AT_A_TIME,
            );
        }
        let full = command == Command::DmaMap && errno == libc::ENOSPC;
        let (kind, remedy) = if full {
            (Kind::DmaEntries, "let the server take more mappings")
        } else {
            (Kind::Refused, "see what the server printed")
        };
        let cause = io::Error::from_raw_os_error(errno);
        let said = format!("the server refused {}: {cause}", command.name());
        Error::new(kind, self.name(), said, remedy).because(cause)
    }

    /// Ends the connection after a failure of the socket.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "of the kinds of errors, those that have a remedy"
    )]
    fn broken(&mut self, command: Command, error: &io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::TimedOut => {
                let (name, patience) = (command.name(), self.patience);
                self.end(&format!("it did not answer {name} within {patience:?}"))
            }
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => self.closed(command),
            _ => self.end(&format!("the socket failed: {error}")).because_of(error),
        }
    }

    /// Ends the connection after the server has hung up. A server that has another client hangs up
    /// during the version exchange, and not every server states that reason.
    fn closed(&mut self, command: Command) -> Error {
        if command == Command::Version {
            let error = Error::new(
                Kind::Busy,
                self.name(),
                "the server hung up at once: it may have a client on this socket already",
                ONE_AT_A_TIME,
            );
            return self.over(error);
        }
        self.end("it closed the connection")
    }

    /// Ends the connection and returns the error.
    pub(crate) fn end(&mut self, cause: &str) -> Error {
        let error = Error::new(
            Kind::Gone,
            self.name(),
            format!("the server is gone: {cause}"),
            "start the server again and open the device anew",
        );
        self.over(error)
    }

    /// Ends the connection for the server too, although a child after a fork has the socket open.
    pub(crate) fn hang_up(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    fn over(&mut self, error: Error) -> Error {
        self.hang_up();
        self.ended.get_or_insert(error).clone()
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "of the kinds of errors, those that have a remedy"
)]
fn unreachable(path: &Path, error: &io::Error) -> Error {
    let name = format!("vfio-user:{}", path.display());
    let (kind, cause, remedy) = match error.kind() {
        io::ErrorKind::NotFound => (
            Kind::NotFound,
            "there is no such socket".into(),
            "start the server, or correct the path",
        ),
        io::ErrorKind::ConnectionRefused => (
            Kind::NotFound,
            "nobody listens on the socket".into(),
            "start the server; a socket that a dead one left behind may be removed",
        ),
        io::ErrorKind::WouldBlock => (
            Kind::Busy,
            "the server takes no more connections".into(),
            "see whether it hangs; it serves one program at a time",
        ),
        io::ErrorKind::PermissionDenied => (
            Kind::Permission,
            "this user may not write to the socket".into(),
            "run as the server's user, or let it open the socket to this one (chmod)",
        ),
        _ => (
            Kind::NotFound,
            format!("cannot connect: {error}"),
            "give the path of a vfio-user server's socket",
        ),
    };
    Error::new(kind, name, cause, remedy).because_of(error)
}

/// Connects a socket. `patience` limits a wait for a full backlog of the listener.
fn reach(path: &Path, patience: Duration) -> Result<UnixStream, Errno> {
    let kind = SocketType::STREAM;
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Waits until the socket is ready. Fails at the deadline, even if it is ready.
fn await_ready(stream: &UnixStream, ready: PollFlags, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match poll(&mut [PollFd::new(stream, ready)], Some(&timespec(left))) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Receives what has come, at least a byte unless the server has hung up. Returns how many bytes,
/// and whether file descriptors came with them, which the kernel has closed.
fn receive_some(
    stream: &UnixStream,
    to: &mut [u8],
    deadline: Instant,
) -> io::Result<(usize, bool)> {
    loop {
        await_ready(stream, PollFlags::IN, deadline)?;
        let mut none = RecvAncillaryBuffer::default();
        match recvmsg(stream, &mut [IoSliceMut::new(to)], &mut none, RecvFlags::DONTWAIT) {
            Ok(got) => return Ok((got.bytes, got.flags.contains(ReturnFlags::CTRUNC))),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Sends all of `message`, and `fd` with its first byte.
fn send_all(
    stream: &UnixStream,
    message: &[u8],
    fd: Option<BorrowedFd<'_>>,
    deadline: Instant,
) -> io::Result<()> {
    let mut sent = 0;
    let mut fd = fd;
    while let Some(rest) = message.get(sent..).filter(|rest| !rest.is_empty()) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = fd.map(|fd| [fd]);
        if let Some(fds) = &fds {
            if !control.push(SendAncillaryMessage::ScmRights(fds)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(stream, &[IoSlice::new(rest)], &mut control, flags) {
            Ok(count) => {
                sent += count;
                fd = None;
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => await_ready(stream, PollFlags::OUT, deadline)?,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests;
