//! The port's place in the network: its RoCE addresses, and the raw Ethernet port on which
//! neighbours are found.
//!
//! Joins the device's side (`eth`, the RoCE address table) with the protocols (`neigh`). A raw
//! Ethernet port that fails is made anew, at most once a second, and each time later if the device
//! does not let go of it; until then questions to neighbours are lost as on any wire.

use core::net::IpAddr;
use core::task::Poll;
use core::time::Duration;

use dat_core::Instant;
use dat_core::provider::{Fault, Net};

use crate::data::work;
use crate::device::{Device, note};
use crate::net::eth::{self, FRAME_MAX, Port};
use crate::net::neigh::{Counters, Mac, Neighbours};
use crate::platform::Platform;
use crate::prm::gid::Gid;
use crate::prm::mkey::Mkey;
use crate::verbs::cq::CqObject;
use crate::verbs::mkey;

/// Least time between two attempts to make a failed port anew.
const REBUILD: Duration = Duration::from_secs(1);

/// The network half of the driver, with room for `NEIGHBOURS` neighbours.
#[derive(Debug)]
pub(crate) struct Network<'p, P: Platform, const NEIGHBOURS: usize> {
    neighbours: Neighbours<NEIGHBOURS>,
    vlan: Option<u16>,
    pd: Option<u32>,
    key: Option<Mkey>,
    port: Port<'p, P>,
    /// Entries of the RoCE address table in use, from 0 on.
    addresses: u16,
    rebuild: Instant,
    /// How often in a row the failed port could not be taken down; then its memory is lost.
    stuck: u8,
    fired: bool,
    /// The last service left frames behind.
    more: bool,
}

impl<'p, P: Platform, const NEIGHBOURS: usize> Network<'p, P, NEIGHBOURS> {
    /// Gives the port its addresses and starts listening for neighbours. On failure all that was
    /// made is gone again.
    pub(crate) fn create(
        device: &mut Device<'p, P>,
        net: &Net,
        now: Instant,
    ) -> Result<Self, Fault> {
        let mut this = Self {
            neighbours: Neighbours::new(device.identity().mac, net, now)?,
            vlan: net.vlan,
            pd: None,
            key: None,
            port: Port::new(device.platform()),
            addresses: 0,
            rebuild: now,
            stuck: 0,
            fired: false,
            more: false,
        };
        this.neighbours.set_secret([device.random.next_u64(), device.random.next_u64()]);
        for &(addr, mac) in device.config.neighbours {
            this.neighbours.fix(addr, mac)?;
        }
        match this.build(device) {
            Ok(()) => Ok(this),
            Err(fault) => {
                // The first failure is the one to tell.
                let _ = this.undo(device);
                Err(fault)
            }
        }
    }

    fn build(&mut self, device: &mut Device<'p, P>) -> Result<(), Fault> {
        for address in self.neighbours.gids() {
            device.set_roce_address(self.addresses, *address, self.vlan)?;
            self.addresses = self.addresses.saturating_add(1);
        }
        let pd = device.alloc_pd()?;
        self.pd = Some(pd);
        self.key = Some(mkey::physical(device, pd)?);
        self.open_port(device)
    }

    fn open_port(&mut self, device: &mut Device<'p, P>) -> Result<(), Fault> {
        let (Some(pd), Some(key)) = (self.pd, self.key) else {
            return Ok(());
        };
        let config = eth::Config {
            pd,
            lkey: key.0,
            reserved: false,
            groups: &self.neighbours.groups(),
            vlan: self.vlan,
        };
        self.port.open(device, &config)?;
        self.port.arm();
        Ok(())
    }

    fn undo(&mut self, device: &mut Device<'p, P>) -> Result<(), Fault> {
        let mut first = self.port.close(device);
        if let Some(key) = self.key.take() {
            note(&mut first, mkey::destroy(device, key));
        }
        if let Some(pd) = self.pd.take() {
            note(&mut first, device.dealloc_pd(pd));
        }
        while let Some(last) = self.addresses.checked_sub(1) {
            self.addresses = last;
            note(&mut first, device.clear_roce_address(last));
        }
        first
    }

    /// Counts of what neighbours sent, those refused by cause.
    pub(crate) fn counters(&self) -> &Counters {
        self.neighbours.counters()
    }

    /// Undoes all of it.
    pub(crate) fn destroy(mut self, device: &mut Device<'p, P>) -> Result<(), Fault> {
        self.undo(device)
    }

    /// The MAC on the way to `remote`, who has asked us if `asker`: the question to its neighbour,
    /// who may not exist, is sent at the next service, if it has not given way to another by then.
    pub(crate) fn resolve(
        &mut self,
        remote: IpAddr,
        asker: bool,
        now: Instant,
    ) -> Poll<Result<Mac, Fault>> {
        let answer = if asker {
            self.neighbours.resolve_asker(remote, now)
        } else {
            self.neighbours.resolve(remote, now)
        };
        if answer.is_pending() && !asker {
            self.transmit(now);
        }
        answer
    }

    /// The entry of the address table that packets to `remote` come from: the link-local one for
    /// link-local peers.
    pub(crate) fn source_index(&self, remote: IpAddr) -> u8 {
        let link_local = |address: &Gid| {
            let v6 = address.v6();
            v6.is_some_and(|v6| v6.is_unicast_link_local())
        };
        let own = self.neighbours.gids();
        let index = if link_local(&remote.into()) { own.iter().position(link_local) } else { None };
        index.and_then(|index| u8::try_from(index).ok()).unwrap_or(0)
    }

    /// Its completion queue, if that has this number.
    pub(crate) fn cq(&self, cqn: u32) -> Option<&CqObject> {
        self.port.cq(cqn)
    }

    /// The send or receive queue is its own.
    pub(crate) fn owns_queue(&self, number: u32) -> bool {
        self.port.owns(number)
    }

    /// Takes note of a completion event of its queue.
    pub(crate) fn event(&mut self) {
        self.fired = true;
    }

    /// Takes note that one of its queues failed: the port is made anew.
    pub(crate) fn fail(&mut self, fault: Fault) {
        self.port.fail(fault);
    }

    /// Takes note that the link came back.
    pub(crate) fn link_up(&mut self, now: Instant) {
        self.neighbours.link_up(now);
    }

    /// Takes frames in and sends what is due.
    pub(crate) fn service(&mut self, device: &mut Device<'p, P>, now: Instant) {
        if !self.port.works() && now >= self.rebuild {
            // A failure here is tried again; the device's events report its own loss.
            let closed = self.port.close(device);
            self.stuck = if closed.is_err() { self.stuck.saturating_add(1).min(12) } else { 0 };
            self.rebuild = now + REBUILD * (1 << self.stuck);
            let _ = closed.and_then(|()| self.open_port(device));
        }
        let mut frame = [0; FRAME_MAX];
        let mut left = work::FRAMES;
        while let Some(len) = self.port.recv(&mut frame, &mut left) {
            if let Some(frame) = frame.get(..len) {
                self.neighbours.receive(frame, now);
            }
        }
        self.more = left == 0;
        self.transmit(now);
        if core::mem::take(&mut self.fired) {
            self.port.arm();
        }
    }

    fn transmit(&mut self, now: Instant) {
        for _ in 0..work::FRAMES {
            let Some(frame) = self.neighbours.transmit(now) else {
                return;
            };
            // A frame that cannot be sent is lost like one on the wire: neighbour discovery repeats
            // itself.
            let _ = self.port.send(&frame);
        }
    }

    /// When [`Network::service`] has something to do even if no frame comes in.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        // A port that does not work wants to be made anew.
        let rebuild = (!self.port.works()).then_some(self.rebuild);
        let rebuild = if self.more { Some(Instant::ZERO) } else { rebuild };
        let neighbours = self.neighbours.next_deadline();
        Instant::sooner(rebuild, neighbours)
    }
}
