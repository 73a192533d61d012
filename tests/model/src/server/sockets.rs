//! Listening sockets that survive their predecessors, and eventfds.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::retry_on_intr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A socket file, removed when dropped.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody else may have tidied up.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A stream socket at `path` that does not block.
pub(super) fn listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let alive = || UnixStream::connect(path).is_ok();
    let listener = bind(path, |path| UnixListener::bind(path), alive)?;
    listener.set_nonblocking(true)?;
    Ok((listener, SocketFile(path.to_owned())))
}

/// A datagram socket at `path` that does not block.
pub(super) fn receive_at(path: &Path) -> io::Result<(UnixDatagram, SocketFile)> {
    let alive = || UnixDatagram::unbound().is_ok_and(|probe| probe.connect(path).is_ok());
    let socket = bind(path, |path| UnixDatagram::bind(path), alive)?;
    socket.set_nonblocking(true)?;
    Ok((socket, SocketFile(path.to_owned())))
}

/// Binds, replacing a socket file that a dead process left.
fn bind<S>(
    path: &Path,
    bind: impl Fn(&Path) -> io::Result<S>,
    alive: impl FnOnce() -> bool,
) -> io::Result<S> {
    let failed = |error: io::Error, why: &str| {
        io::Error::new(error.kind(), format!("{}: {why}{error}", path.display()))
    };
    match bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let file = std::fs::symlink_metadata(path)?;
            if !file.file_type().is_socket() {
                return Err(failed(error, "is a file and no socket: "));
            }
            if alive() {
                return Err(failed(error, "another process listens there: "));
            }
            std::fs::remove_file(path)?;
            bind(path).map_err(|error| failed(error, ""))
        }
        other => other.map_err(|error| failed(error, "")),
    }
}

/// A fresh eventfd that does not block.
pub(super) fn eventfd() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)
}

/// Adds one to an eventfd, unless that would block.
pub(super) fn signal(fd: &OwnedFd) {
    // An eventfd of somebody else's may be one that blocks; when it is full, it has been signalled.
    let mut room = [PollFd::new(fd, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = retry_on_intr(|| rustix::event::poll(&mut room, Some(&at_once)));
    if ready == Ok(1) {
        let _ = retry_on_intr(|| rustix::io::write(fd, &1u64.to_ne_bytes()));
    }
}

/// Sets an eventfd back to zero.
pub(super) fn drain(fd: &OwnedFd) {
    let _ = rustix::io::read(fd, &mut [0; 8]);
}

/// Whether a descriptor is an eventfd.
pub(super) fn is_eventfd(fd: &impl AsFd) -> bool {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    std::fs::read_link(link).is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
}
