//! HCAs of the device model on one switch, and a thread for each program on them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use dat_core::provider::Net;
use mlx5_model::server::{Handle, Server, Settings};
use tempfile::TempDir;
use vfio_host::user::VfioUser;
use vfio_host::{Error, Options};

/// Longer than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// An adapter's storage is made on the stack before it is moved into its box.
const STACK: usize = 16 << 20;

/// A model server.
pub(crate) struct Lab {
    pub(crate) server: Handle,
    sockets: Vec<PathBuf>,
    _folder: TempDir,
}

impl Lab {
    /// With so many HCAs.
    pub(crate) fn new(hcas: u8) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sockets: Vec<_> = (0..hcas).map(|hca| folder.path().join(hca.to_string())).collect();
        let server = Server::start(Settings::new(sockets.clone())).unwrap();
        Self { server, sockets, _folder: folder }
    }

    /// The address and port of the server, which runs on the first HCA.
    pub(crate) fn server(&self) -> SocketAddr {
        (self.net(0).addr, 4711).into()
    }

    /// The network of an adapter.
    pub(crate) fn net(&self, side: u8) -> Net {
        Net::new([192, 168, 7, 1 + side].into(), 24)
    }

    /// The HCA of an adapter.
    pub(crate) fn host(&self, side: u8) -> VfioUser {
        VfioUser::open(&self.sockets[usize::from(side)], &Options::default()).unwrap()
    }

    /// Runs `program` on an HCA, in a thread of its own, while `during` runs in this one.
    pub(crate) fn beside<A: Send, B>(
        &self,
        side: u8,
        program: impl FnOnce(VfioUser, Net) -> A + Send,
        during: impl FnOnce() -> B,
    ) -> (A, B) {
        thread::scope(|scope| {
            let run = || program(self.host(side), self.net(side));
            let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run).unwrap();
            let done = during();
            (thread.join().unwrap(), done)
        })
    }

    /// Runs a client on an HCA until it succeeds, because its server may not listen yet.
    pub(crate) fn client<T: Send>(
        &self,
        side: u8,
        client: impl Fn(&VfioUser, Net) -> Result<T, Error> + Sync,
    ) -> T {
        let run = |host: VfioUser, net| {
            let begin = Instant::now();
            loop {
                match client(&host, net) {
                    Ok(done) => return done,
                    Err(error) => assert!(begin.elapsed() < LONG, "{error}"),
                }
            }
        };
        self.beside(side, run, || ()).0
    }

    /// Runs a server on the first HCA and a client on the second; returns what the client does.
    pub(crate) fn pair<T: Send>(
        &self,
        server: impl FnOnce(VfioUser, Net) -> Result<(), Error> + Send,
        client: impl Fn(&VfioUser, Net) -> Result<T, Error> + Sync,
    ) -> T {
        let (served, done) = self.beside(0, server, || self.client(1, client));
        served.unwrap();
        done
    }
}
