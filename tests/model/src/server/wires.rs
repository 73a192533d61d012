//! The wires between the functions of a server: a switch port each, and a port for the uplink.
//!
//! Frames leave a port in the moment they are sent; a count tells the event loop that somebody has
//! something to receive. The uplink keeps what its socket does not take yet, as a switch would, up
//! to a limit; beyond it, or with nobody at the other end, frames are lost and counted.

use super::sockets::{self, SocketFile};
use super::{Link, Settings};
use crate::subnet::Identity;
use crate::subnet::wires::{self, SwitchPort};
use crate::wire::frame;
use crate::wire::impair::{Impaired, Rates};
use crate::wire::pcap::{LinkType, Tap};
use crate::wire::switch::{Port, cable, switch};
use crate::wire::{ModelClock, Wire};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Frames that wait for the uplink at the most.
const BACKLOG: usize = 1024;
/// Frames taken from the uplink in one turn.
const MOST_FRAMES: usize = 1024;
/// Longest frame: what Ethernet can carry and then some.
const LONGEST: usize = 65_536;

/// A wire that leads nowhere.
#[derive(Debug)]
struct Void;

impl Wire for Void {
    fn send(&mut self, _frame: &[u8]) {}

    fn recv(&mut self) -> Option<Vec<u8>> {
        None
    }
}

/// One capture file for all wires. Unbuffered: what was captured survives a kill.
type Capture = Arc<Mutex<Tap<Void, File>>>;

/// Fault rates of all wires of a server, and whether only RoCE is hit.
pub(super) type Impairment = Arc<Mutex<(Rates, bool)>>;

/// An end of a cable, or a port of a switch of either kind.
#[derive(Debug)]
enum End {
    Plain(Port),
    InfiniBand(SwitchPort),
}

impl End {
    fn wire(&mut self) -> &mut dyn Wire {
        match self {
            Self::Plain(port) => port,
            Self::InfiniBand(port) => port,
        }
    }
}

impl Wire for End {
    fn send(&mut self, frame: &[u8]) {
        self.wire().send(frame);
    }

    fn send_owned(&mut self, frame: Vec<u8>) {
        self.wire().send_owned(frame);
    }

    fn recv(&mut self) -> Option<Vec<u8>> {
        self.wire().recv()
    }

    fn set_carrier(&mut self, is_up: bool) {
        self.wire().set_carrier(is_up);
    }
}

/// What the switch of InfiniBand says of itself. Servers on one subnet differ in
/// its GUID where their seeds do.
fn identity(settings: &Settings) -> Identity {
    let guid = 0x0002_c9ff_fe00_0000 | settings.seed() & 0xff_ffff;
    Identity {
        node_guid: guid,
        system_guid: guid,
        description: "switch of the model".into(),
        vendor_id: 0x02c9,
        device_id: 0xcb20,
    }
}

/// A function's end of the switch.
#[derive(Debug)]
pub(super) struct Plug {
    port: Impaired<End>,
    impairment: Impairment,
    sent: Arc<AtomicU64>,
    capture: Option<Capture>,
    is_infiniband: bool,
}

impl Wire for Plug {
    fn send(&mut self, frame: &[u8]) {
        self.send_owned(frame.to_vec());
    }

    fn send_owned(&mut self, frame: Vec<u8>) {
        self.capture(&frame);
        let (rates, only_roce) = *self.impairment.lock().unwrap_or_else(PoisonError::into_inner);
        let hit = !only_roce || !self.is_infiniband && frame::is_roce(&frame);
        self.port.set_rates(if hit { rates } else { Rates::default() });
        self.port.send_owned(frame);
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    fn recv(&mut self) -> Option<Vec<u8>> {
        let frame = self.port.recv()?;
        // A switch of InfiniBand sends frames of its own, and changes those that it relays.
        if let End::InfiniBand(_) = self.port.inner() {
            self.capture(&frame);
        }
        Some(frame)
    }

    fn set_carrier(&mut self, is_up: bool) {
        self.port.set_carrier(is_up);
        self.sent.fetch_add(1, Ordering::Relaxed);
    }
}

impl Plug {
    fn capture(&self, frame: &[u8]) {
        if let Some(capture) = &self.capture {
            let mut capture = capture.lock().unwrap_or_else(PoisonError::into_inner);
            capture.send(frame);
        }
    }
}

/// The datagram socket of `-netdev dgram`: a frame in each datagram.
///
/// Two sockets, so that a peer may come back as another socket of the same name: one is bound and
/// takes frames from anybody, the other is connected to the present owner of the name.
#[derive(Debug)]
struct Uplink {
    plug: Plug,
    inward: UnixDatagram,
    _file: SocketFile,
    outward: UnixDatagram,
    connected: bool,
    remote: PathBuf,
    waiting: VecDeque<Vec<u8>>,
    buffer: Vec<u8>,
    lost: u64,
}

impl Uplink {
    /// Takes what came, and sends what may be sent.
    fn pump(&mut self) {
        for _ in 0..MOST_FRAMES {
            let Ok(length) = self.inward.recv(&mut self.buffer) else {
                break;
            };
            let frame = self.buffer.get(..length).unwrap_or_default();
            self.plug.send(frame);
        }
        while let Some(frame) = self.plug.recv() {
            if self.waiting.len() < BACKLOG {
                self.waiting.push_back(frame);
            } else {
                self.lost += 1;
            }
        }
        while let Some(frame) = self.waiting.front() {
            self.connected = self.connected || self.outward.connect(&self.remote).is_ok();
            if !self.connected {
                self.lost += self.waiting.len() as u64;
                self.waiting.clear();
                break;
            }
            match self.outward.send(frame) {
                Ok(_) => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) =>
                {
                    break;
                }
                // The peer has gone; the next frame looks for another.
                Err(_) => {
                    self.connected = false;
                    self.lost += 1;
                }
            }
            self.waiting.pop_front();
        }
    }
}

/// All wires of a server.
#[derive(Debug)]
pub(super) struct Fabric {
    sent: Arc<AtomicU64>,
    uplink: Option<Uplink>,
    /// Model time, for the capture.
    pub(super) clock: ModelClock,
    /// Faults of all wires, from now on.
    pub(super) impairment: Impairment,
}

impl Fabric {
    /// The wires that the settings ask for, and an end for each function.
    pub(super) fn new(settings: &Settings) -> io::Result<(Self, Vec<Plug>)> {
        let clock = ModelClock::default();
        let is_infiniband = settings.is_infiniband();
        let sent = Arc::new(AtomicU64::new(0));
        let capture = match &settings.pcap {
            Some(path) => {
                let file = File::create(path).map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                })?;
                let link = if is_infiniband { LinkType::InfiniBandErf } else { LinkType::Ethernet };
                Some(Arc::new(Mutex::new(Tap::of_link(link, Void, file, clock.clone())?)))
            }
            None => None,
        };
        let functions = settings.functions.len();
        let ports = match settings.link {
            Link::Switch | Link::Cable => functions,
            Link::Datagram { .. } => functions + 1,
        };
        let impairment = Impairment::default();
        let ends: Vec<End> = if settings.link == Link::Cable {
            if ports != 2 {
                return Err(io::Error::other(format!(
                    "a cable has two ends, and there are {ports} functions"
                )));
            }
            <[Port; 2]>::from(cable()).map(End::Plain).into()
        } else if is_infiniband {
            let ports = u8::try_from(ports).map_err(io::Error::other)?;
            wires::switch(identity(settings), ports, &clock)
                .into_iter()
                .map(End::InfiniBand)
                .collect()
        } else {
            switch(ports).into_iter().map(End::Plain).collect()
        };
        let mut plugs: Vec<Plug> = (settings.seed()..)
            .zip(ends)
            .map(|(seed, port)| Plug {
                port: Impaired::new(port, clock.clone(), seed),
                impairment: Arc::clone(&impairment),
                sent: Arc::clone(&sent),
                capture: capture.clone(),
                is_infiniband,
            })
            .collect();
        let last = plugs.split_off(functions).pop();
        let uplink = match (&settings.link, last) {
            (Link::Datagram { local, remote }, Some(mut plug)) => {
                plug.set_carrier(true);
                let (inward, file) = sockets::receive_at(local)?;
                let outward = UnixDatagram::unbound()?;
                outward.set_nonblocking(true)?;
                Some(Uplink {
                    plug,
                    inward,
                    _file: file,
                    outward,
                    connected: false,
                    remote: remote.clone(),
                    waiting: VecDeque::new(),
                    buffer: vec![0; LONGEST],
                    lost: 0,
                })
            }
            (Link::Switch | Link::Cable | Link::Datagram { .. }, _) => None,
        };
        let fabric = Self { sent, uplink, clock, impairment };
        Ok((fabric, plugs))
    }

    /// Grows with every frame.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Moves frames between the switch and the uplink.
    pub(super) fn pump(&mut self) {
        if let Some(uplink) = &mut self.uplink {
            uplink.pump();
        }
    }

    /// Frames that the uplink lost.
    pub(super) fn lost(&self) -> u64 {
        self.uplink.as_ref().map_or(0, |uplink| uplink.lost)
    }

    /// Descriptor that is readable when frames arrive.
    pub(super) fn inward(&self) -> Option<BorrowedFd<'_>> {
        self.uplink.as_ref().map(|uplink| uplink.inward.as_fd())
    }

    /// Descriptor that is writable when there is room, while frames wait for it.
    pub(super) fn outward(&self) -> Option<BorrowedFd<'_>> {
        let uplink = self.uplink.as_ref()?;
        (!uplink.waiting.is_empty()).then(|| uplink.outward.as_fd())
    }
}

#[cfg(test)]
mod tests;
