//! One client: whole messages with their descriptors out of a stream, and replies back, without
//! ever blocking.
//!
//! Descriptors travel beside the bytes they were sent with. No read here goes beyond the end of a
//! message, so what arrives with one belongs to it.

use super::protocol::{HEADER, Header, MOST_BYTES, MOST_FDS};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Replies that a client has not fetched, at the most; it is hung up on beyond.
const MOST_UNSENT: usize = 4 * MOST_BYTES;

/// Result of a receive.
#[derive(Debug)]
pub(super) enum Received {
    /// A message, whole.
    Message(Header, Vec<u8>, Vec<OwnedFd>),
    /// Nothing more for now.
    Nothing,
    /// The client is gone, or speaks something else.
    End(&'static str),
}

/// A client's stream.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    /// The message under way: header and body, as far as they came.
    message: Vec<u8>,
    header: Option<Header>,
    /// Length of `message` when the present part is whole.
    want: usize,
    fds: Vec<OwnedFd>,
    unsent: Vec<u8>,
    broken: bool,
}

impl Connection {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            message: Vec::new(),
            header: None,
            want: HEADER,
            fds: Vec::new(),
            unsent: Vec::new(),
            broken: false,
        })
    }

    /// The next message.
    pub(super) fn receive(&mut self) -> Received {
        if self.broken {
            return Received::End("does not fetch its replies");
        }
        loop {
            while self.message.len() < self.want {
                match self.fill() {
                    Ok(0) if self.message.is_empty() => return Received::End("hung up"),
                    Ok(0) => return Received::End("hung up within a message"),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Received::Nothing;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return Received::End("connection lost"),
                }
            }
            match (self.header.take(), self.message.first_chunk::<HEADER>()) {
                (Some(header), _) => {
                    let body = self.message.split_off(HEADER);
                    self.message.clear();
                    self.want = HEADER;
                    return Received::Message(header, body, core::mem::take(&mut self.fds));
                }
                (None, Some(bytes)) => {
                    let header = Header::decode(bytes);
                    let Some(body) = header.body() else {
                        return Received::End("sent a message of impossible length");
                    };
                    self.header = Some(header);
                    self.want = HEADER + body;
                }
                (None, None) => return Received::Nothing,
            }
        }
    }

    /// Reads towards the end of the present part.
    fn fill(&mut self) -> io::Result<usize> {
        let have = self.message.len();
        self.message.resize(self.want, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let into = self.message.get_mut(have..).unwrap_or_default();
        let result = rustix::net::recvmsg(
            &self.stream,
            &mut [IoSliceMut::new(into)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        );
        self.message.truncate(have + result.as_ref().map_or(0, |got| got.bytes));
        let got = result?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        if got.flags.contains(ReturnFlags::CTRUNC) || self.fds.len() > MOST_FDS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(got.bytes)
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
