//! A man in the middle of a vfio-user connection: passes messages on between a client and an
//! honest server until it misbehaves.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use mlx5_model::Config as Card;
use mlx5_model::server::{Handle, Server, Settings};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tempfile::TempDir;

/// Bytes of a header.
const HEADER: usize = 16;
/// Descriptors of one message.
const MOST: usize = 200;

/// What the server does with one reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Passes it on.
    Honest,
    /// Sends the first part of it, and nothing more.
    Half,
    /// Sends it byte by byte, one every so often.
    Trickle(Duration),
    /// Sends error replies to requests that nobody made, without end; then nothing.
    Complain(Duration),
    /// Fills its body with this byte.
    Fill(u8),
    /// Answers another request.
    WrongId,
    /// Says that the reply is so long.
    Length(u32),
    /// Sends a request of its own instead.
    Request,
    /// Sends so many descriptors with it.
    Descriptors(usize),
    /// Sends it twice.
    Twice,
    /// Hangs up.
    Dead,
    /// Sends nothing.
    Silent,
}

/// An honest server, and the man in the middle of its only connection.
pub(crate) struct Proxy {
    pub(crate) path: PathBuf,
    /// Files that the client has lent for DMA.
    pub(crate) lent: Arc<Mutex<Vec<File>>>,
    /// Eventfds that the client has given for interrupts.
    pub(crate) wired: Arc<Mutex<Vec<File>>>,
    /// Decides on each reply, by its number and the command.
    act: Arc<Mutex<Decide>>,
    _server: Handle,
    _folder: TempDir,
}

type Decide = Box<dyn FnMut(usize, u16) -> Act + Send>;

impl Proxy {
    pub(crate) fn new(act: impl FnMut(usize, u16) -> Act + Send + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sockets = ["a", "b"].map(|name| folder.path().join(name));
        let settings = Settings::with_device(&Card::default(), sockets.clone());
        let server = Server::start(settings).unwrap();
        let path = folder.path().join("evil");
        let listener = UnixListener::bind(&path).unwrap();
        let [lent, wired] = [(); 2].map(|()| Arc::new(Mutex::new(Vec::new())));
        let act: Arc<Mutex<Decide>> = Arc::new(Mutex::new(Box::new(act)));
        let (files, fds) = (Arc::clone(&lent), Arc::clone(&wired));
        let (decide, real) = (Arc::clone(&act), sockets[0].clone());
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                serve(&client, &real, [&files, &fds], &decide);
            }
        });
        Self { path, lent, wired, act, _server: server, _folder: folder }
    }

    /// Decides otherwise from now on.
    pub(crate) fn then(&self, act: impl FnMut(usize, u16) -> Act + Send + 'static) {
        *self.act.lock().unwrap() = Box::new(act);
    }
}

fn serve(
    client: &UnixStream,
    real: &Path,
    [lent, wired]: [&Mutex<Vec<File>>; 2],
    decide: &Mutex<Decide>,
) {
    let server = UnixStream::connect(real).unwrap();
    let mut number = 0;
    while let Some((request, fds)) = receive(client) {
        let command = u16::from_ne_bytes([request[2], request[3]]);
        if let 2 | 8 = command {
            let mut files = if command == 2 { lent } else { wired }.lock().unwrap();
            files.extend(fds.iter().map(|fd| File::from(fd.try_clone().unwrap())));
        }
        send(&server, &request, &fds);
        if request[8] & 0x10 != 0 {
            continue;
        }
        let Some((reply, fds)) = receive(&server) else { return };
        let act = decide.lock().unwrap()(number, command);
        number += 1;
        if !answer(client, reply, &fds, act) {
            return;
        }
    }
}

/// Answers the client; whether the connection goes on.
fn answer(client: &UnixStream, mut reply: Vec<u8>, fds: &[OwnedFd], act: Act) -> bool {
    let error = |n: u16| {
        let mut bytes = [0; HEADER];
        bytes[..2].copy_from_slice(&n.to_ne_bytes());
        bytes[2..4].copy_from_slice(&10_u16.to_ne_bytes());
        bytes[4..8].copy_from_slice(&(HEADER as u32).to_ne_bytes());
        bytes[8..12].copy_from_slice(&0x21_u32.to_ne_bytes());
        bytes[12..16].copy_from_slice(&22_u32.to_ne_bytes());
        bytes
    };
    let id = u16::from_ne_bytes([reply[0], reply[1]]);
    match act {
        Act::Honest => return send(client, &reply, fds),
        Act::Half => {
            let half = reply.len() - 2;
            send(client, &reply[..half], &[]);
            let _ = receive(client);
        }
        Act::Trickle(gap) => {
            for byte in &reply {
                if !send(client, &[*byte], &[]) {
                    return false;
                }
                thread::sleep(gap);
            }
            return true;
        }
        Act::Complain(gap) => {
            let mut n = id.wrapping_add(1);
            // A minute: longer than any deadline.
            for _ in 0..60_000_000_u64 / (gap.as_micros() as u64).max(1) {
                if n != id && !send(client, &error(n), &[]) {
                    return false;
                }
                n = n.wrapping_add(1);
                if !gap.is_zero() {
                    thread::sleep(gap);
                }
            }
        }
        Act::Fill(byte) => {
            reply[HEADER..].fill(byte);
            return send(client, &reply, fds);
        }
        Act::WrongId => {
            reply[..2].copy_from_slice(&id.wrapping_add(7).to_ne_bytes());
            return send(client, &reply, fds);
        }
        Act::Length(len) => {
            reply[4..8].copy_from_slice(&len.to_ne_bytes());
            send(client, &reply, fds);
            let _ = receive(client);
        }
        Act::Request => {
            reply[8..12].copy_from_slice(&0_u32.to_ne_bytes());
            return send(client, &reply, fds);
        }
        Act::Descriptors(count) => {
            let null = File::open("/dev/null").unwrap();
            let many: Vec<OwnedFd> =
                (0..count).map(|_| null.as_fd().try_clone_to_owned().unwrap()).collect();
            return send(client, &reply, &many);
        }
        Act::Twice => return send(client, &reply, fds) && send(client, &reply, &[]),
        Act::Dead => {}
        Act::Silent => {
            let _ = receive(client);
        }
    }
    false
}

/// The next message, with its descriptors.
fn receive(from: &UnixStream) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut fds = Vec::new();
    let mut message = Vec::new();
    let mut len = HEADER;
    while message.len() < len {
        let mut buffer = vec![0; len - message.len()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(from, &mut [IoSliceMut::new(&mut buffer)], &mut control, flags).ok()?;
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                fds.extend(rights);
            }
        }
        if got.bytes == 0 {
            return None;
        }
        message.extend(&buffer[..got.bytes]);
        if message.len() == HEADER {
            len = u32::from_ne_bytes(message[4..8].try_into().unwrap()) as usize;
        }
    }
    Some((message, fds))
}

/// Sends all of it, the descriptors with the first byte; whether that went.
fn send(to: &UnixStream, message: &[u8], fds: &[OwnedFd]) -> bool {
    let mut at = 0;
    while at < message.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        if at == 0 && !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&borrowed)));
        }
        let flags = SendFlags::NOSIGNAL;
        match sendmsg(to, &[IoSlice::new(&message[at..])], &mut control, flags) {
            Ok(count) => at += count,
            Err(_) => return false,
        }
    }
    true
}
