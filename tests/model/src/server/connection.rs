//! One client: whole messages with their descriptors out of a stream, and replies back, without
//! ever blocking.
//!
//! A read takes all that has come, up to [`AHEAD`] bytes: a driver's doorbells are messages of some
//! bytes each, and a system call for each costs more than they do. Descriptors travel beside the
//! bytes they were sent with, and a read ends behind such bytes. So what comes with a read belongs
//! to the message that has its last byte.

use super::protocol::{HEADER, Header, MOST_BYTES, MOST_FDS};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Replies that a client has not fetched, at the most; it is hung up on beyond.
const MOST_UNSENT: usize = 4 * MOST_BYTES;
/// Bytes of a read, unless the message under way is longer.
const AHEAD: usize = 4096;

/// Why a client with so many is hung up on.
const UNFETCHED: &str = "does not fetch its replies";

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// There may be more.
    More,
    /// Nothing more for now.
    Empty,
    /// The client is gone, or speaks something else.
    End(&'static str),
}

/// A message: header, body, descriptors.
pub(super) type Message = (Header, Vec<u8>, Vec<OwnedFd>);

/// A client's stream.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    /// What has been read; the messages not taken yet are at `begin..end`.
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
    /// Descriptors that came, each with the place in `bytes` behind the read that brought it.
    fds: VecDeque<(usize, OwnedFd)>,
    unsent: Vec<u8>,
    broken: bool,
}

impl Connection {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            bytes: vec![0; AHEAD],
            begin: 0,
            end: 0,
            fds: VecDeque::new(),
            unsent: Vec::new(),
            broken: false,
        })
    }

    /// Reads once.
    pub(super) fn fill(&mut self) -> Filled {
        self.make_room();
        let room = self.bytes.len() - self.end;
        match self.read() {
            // Those of a message that is not whole, and of one that follows it in the buffer.
            Ok(_) if self.fds.len() > 2 * MOST_FDS => Filled::End("sent too many descriptors"),
            Ok((0, _)) if self.begin == self.end => Filled::End("hung up"),
            Ok((0, _)) => Filled::End("hung up within a message"),
            // A read also ends behind bytes that have descriptors.
            Ok((read, alone)) if read < room && alone => Filled::Empty,
            Ok(_) => Filled::More,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Filled::Empty,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Filled::More,
            Err(_) => Filled::End("connection lost"),
        }
    }

    /// Takes the next message, if all of it has been read. An error ends the connection.
    pub(super) fn take(&mut self) -> Result<Option<Message>, &'static str> {
        if self.broken {
            return Err(UNFETCHED);
        }
        let Some(length) = self.length()? else {
            return Ok(None);
        };
        let whole = self.bytes.get(self.begin..self.end).and_then(|read| read.get(..length));
        let Some((head, body)) = whole.and_then(|whole| whole.split_first_chunk::<HEADER>()) else {
            return Ok(None);
        };
        let (header, body) = (Header::decode(head), body.to_vec());
        self.begin += length;
        let own = self.fds.iter().take_while(|(at, _)| *at <= self.begin).count();
        if own > MOST_FDS {
            return Err("sent too many descriptors");
        }
        let fds = self.fds.drain(..own).map(|(_, fd)| fd).collect();
        Ok(Some((header, body, fds)))
    }

    /// Length of the next message, if its header has been read.
    fn length(&self) -> Result<Option<usize>, &'static str> {
        let read = self.bytes.get(self.begin..self.end).unwrap_or_default();
        let Some(head) = read.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let body = Header::decode(head).body().ok_or("sent a message of impossible length")?;
        Ok(Some(HEADER + body))
    }

    /// Moves the beginning of a message to the front, and makes the buffer long enough for it.
    fn make_room(&mut self) {
        self.bytes.copy_within(self.begin..self.end, 0);
        for (at, _) in &mut self.fds {
            *at -= self.begin;
        }
        self.end -= self.begin;
        self.begin = 0;
        let message = self.length().ok().flatten().unwrap_or(0);
        self.bytes.resize(message.max(AHEAD), 0);
    }

    /// Reads behind what there is: how many bytes, and whether without descriptors.
    fn read(&mut self) -> io::Result<(usize, bool)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let into = self.bytes.get_mut(self.end..).unwrap_or_default();
        let got = rustix::net::recvmsg(
            &self.stream,
            &mut [IoSliceMut::new(into)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        // The message is answered by the end of the connection: it lacks descriptors.
        if got.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.end += got.bytes;
        let before = self.fds.len();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds.map(|fd| (self.end, fd)));
            }
        }
        Ok((got.bytes, self.fds.len() == before))
    }

    /// Sends a reply, now or as soon as the client fetches what it has.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
        self.flush();
        self.broken |= self.unsent.len() > MOST_UNSENT;
    }

    /// Sends what waits.
    pub(super) fn flush(&mut self) {
        let mut sent = 0;
        while let Some(rest) = self.unsent.get(sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(n) => sent += n,
                // Any other error shows at the next receive.
                Err(_) => break,
            }
        }
        self.unsent.drain(..sent);
    }

    /// Replies wait for room in the socket.
    pub(super) fn is_behind(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests;
