//! The model behind vfio-user sockets: an HCA that another process, or a QEMU guest, takes for a
//! PCI device.
//!
//! One [`Server`] offers one or more functions, each on a UNIX socket of its own, joined by a
//! switch inside the process and, if asked, by an uplink to another process. A client (QEMU's
//! `vfio-user-pci`, or a driver that speaks the protocol itself) maps its memory by file
//! descriptor, reads and writes BAR and configuration space by message, and gets MSI-X vectors as
//! eventfds. Time is real: the device is stepped when something is due, a message came or a frame
//! arrived.
//!
//! ```no_run
//! use mlx5_model::server::{Server, Settings};
//! let server = Server::start(Settings::new(["/tmp/a.sock", "/tmp/b.sock"]))?;
//! // ... clients come and go ...
//! let refused = server.with(0, |function| function.dma_refused());
//! let report = server.stop();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! The same as a program: `mlx5-model --socket /tmp/a.sock --socket /tmp/b.sock`, which prints
//! `ready` when the sockets listen; `mlx5-model --help` lists its options.
//!
//! # What a client meets
//!
//! - Nothing can be mapped: every BAR access is a message, so the model sees each store, in order.
//! - One client at a time. A second one waits half a second for the first to go, then it is hung up
//!   on; the first is not disturbed.
//! - When a client goes, its mappings and eventfds are forgotten and the function is as at
//!   power-on; the next is welcome.
//! - A vector that fires without an eventfd stays pending, shows in the pending bits, and is
//!   delivered when one is set.
//! - DMA reaches what is mapped and nothing else. Accesses are split where mappings meet. Of each
//!   write the last aligned piece of up to eight bytes is stored last and at once, so an owner bit
//!   never precedes its entry.
//! - A client that breaks the protocol gets an error number, or is hung up on; it never stops the
//!   server.
//! - A client that truncates memory it has mapped here kills the process (SIGBUS): that trust is in
//!   the protocol.
//!
//! # Control socket
//!
//! [`CONTROL`] has its lines; `mlx5-model --help` shows them.
//!
//! # Why the protocol is written here
//!
//! The `vfio_user` crate has a server, and its client is the tests' referee. The server cannot be
//! stopped while a client is connected (the accepted stream is out of reach), reports a backend's
//! failure as success, leaves the payload of unknown commands in the stream, checks no bounds, and
//! panics on a malformed greeting. What remains of the protocol is small: `protocol` has the
//! layouts, `connection` the framing.
//!
//! Not here: migration, dirty page tracking, ioeventfds, DMA by message, mappable BARs, INTx.

mod alone;
mod connection;
mod control;
mod event_loop;
mod function;
mod irqs;
mod maps;
mod protocol;
mod report;
mod rude;
mod sockets;
mod wires;

pub use control::CONTROL;
pub use function::Function;
pub use maps::Map;
pub use report::{FunctionReport, Report};
pub use rude::Rude;

use crate::config::{Config, LinkLayer};
use crate::watch::Fields;
use event_loop::{EventLoop, Job};
use rustix::pipe::PipeFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// Wire between the functions of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// A switch inside the process.
    #[default]
    Switch,
    /// A cable between two functions.
    Cable,
    /// The switch, and an uplink: a datagram socket that carries a frame each, as QEMU's `-netdev
    /// dgram` does.
    Datagram {
        /// Where this end is bound.
        local: PathBuf,
        /// Where frames are sent; nobody need be there.
        remote: PathBuf,
    },
}

/// Settings of a server.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// A socket and a device for each function.
    pub functions: Vec<(PathBuf, Config)>,
    /// The wire between them.
    pub link: Link,
    /// Every frame that is sent, and every one that comes in by the uplink, goes into this capture
    /// file.
    pub pcap: Option<PathBuf>,
    /// Where the control socket listens.
    pub control: Option<PathBuf>,
    /// Faults of every function.
    pub rude: Vec<Rude>,
    /// Notes of the fields that pass.
    pub fields: Option<Fields>,
    /// Only of these functions, if any is named.
    pub fields_of: Vec<usize>,
    /// Every command is written to this file, in the form in which the stock driver dumps them.
    pub trace: Option<PathBuf>,
}

impl Settings {
    /// Default devices on these sockets, which differ in MAC and seed.
    pub fn new<P: Into<PathBuf>>(sockets: impl IntoIterator<Item = P>) -> Self {
        Self::with_device(&Config::default(), sockets)
    }

    /// Whether the first function's port, and so the switch, is one of InfiniBand.
    fn is_infiniband(&self) -> bool {
        self.functions.first().is_some_and(|(_, device)| device.link == LinkLayer::InfiniBand)
    }

    /// The seed of the first function, which the wires take for theirs.
    fn seed(&self) -> u64 {
        self.functions.first().map_or(0, |(_, device)| device.seed)
    }

    /// A device like `like` on each of these sockets; each has the next MAC and the next seed.
    pub fn with_device<P: Into<PathBuf>>(
        like: &Config,
        sockets: impl IntoIterator<Item = P>,
    ) -> Self {
        let functions = (0u8..=u8::MAX)
            .zip(sockets)
            .map(|(nth, socket)| {
                let mut device = like.clone();
                device.mac[5] = device.mac[5].wrapping_add(nth);
                device.seed = device.seed.wrapping_add(u64::from(nth));
                (socket.into(), device)
            })
            .collect();
        Self { functions, ..Self::default() }
    }
}

/// Starts servers.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Binds the sockets and serves them in a thread. When this returns, clients can connect.
    ///
    /// A socket file that nobody listens on is replaced; one with a listener is an error.
    pub fn start(settings: Settings) -> io::Result<Handle> {
        let (jobs, inbox) = mpsc::channel();
        let wake = Arc::new(sockets::eventfd()?);
        let (ended, ends) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let served = EventLoop::new(settings, inbox, Arc::clone(&wake))?;
        let thread = std::thread::Builder::new().name("mlx5-model".into()).spawn(move || {
            let report = served.run();
            drop(ends);
            report
        })?;
        Ok(Handle { jobs, wake, ended, thread: Some(thread) })
    }
}

/// A server at work. Dropping it stops it.
#[derive(Debug)]
pub struct Handle {
    jobs: mpsc::Sender<Job>,
    wake: Arc<OwnedFd>,
    ended: OwnedFd,
    thread: Option<JoinHandle<Report>>,
}

impl Handle {
    /// Calls `f` on a function, by its number, between two of its steps; gives what it returned.
    /// `None` if there is no such function, or the server has ended.
    pub fn with<R: Send + 'static>(
        &self,
        function: usize,
        f: impl FnOnce(&mut Function) -> R + Send + 'static,
    ) -> Option<R> {
        let (answer, result) = mpsc::channel();
        self.submit(Box::new(move |served| {
            if let Some(function) = served.function(function) {
                // Nobody to answer: then nobody waits.
                let _ = answer.send(f(function));
            }
        }));
        result.recv().ok()
    }

    /// Ends the server: clients are hung up on, socket files removed.
    pub fn stop(mut self) -> Report {
        self.end()
    }

    /// Readable (at its end) when the server has ended, by whatever cause.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    fn submit(&self, job: Job) {
        if self.jobs.send(job).is_ok() {
            sockets::signal(&self.wake);
        }
    }

    fn end(&mut self) -> Report {
        self.submit(Box::new(EventLoop::quit));
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(report)) => report,
            // A bug of the model must not end as an empty report.
            Some(Err(panic)) if !std::thread::panicking() => std::panic::resume_unwind(panic),
            Some(Err(_)) | None => Report::default(),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end();
        }
    }
}
