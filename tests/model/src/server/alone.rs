//! A function without an event loop, for tests that are its client and its clock.

use super::wires::Fabric;
use super::{Function, Settings};
use crate::config::Config;
use crate::host::Nanos;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

impl Function {
    /// A function that listens at `socket`, where nobody is answered but by
    /// [`Function::converse`].
    pub fn alone(socket: PathBuf, device: Config) -> io::Result<Self> {
        let settings =
            Settings { functions: vec![(socket.clone(), device.clone())], ..Settings::default() };
        let (_, plugs) = Fabric::new(&settings)?;
        let plug = plugs.into_iter().next().ok_or(io::ErrorKind::InvalidInput)?;
        Self::new(socket, device, plug, &[])
    }

    /// Takes a client in, and answers all that it has sent. Between two steps of the device, which
    /// are at `times`. The client must have hung up, and is gone then.
    pub fn converse(&mut self, client: UnixStream, times: impl Iterator<Item = Nanos>) {
        self.take_in(client);
        for now in times {
            self.step(now);
            self.serve();
            self.flush();
            if !self.has_client() {
                break;
            }
        }
    }
}
