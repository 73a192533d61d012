//! A switch whose ports are ends of wires: what devices with a port of InfiniBand plug in to.
//!
//! Frames are carried in the moment they are sent. A port is down until the device at the other end
//! says by [`Wire::set_carrier`] that it has a link.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::node::{Identity, Node};
use crate::wire::{ModelClock, Wire};

/// Frames that wait at a port before more are dropped.
const QUEUE_DEPTH: usize = 1 << 16;

#[derive(Debug)]
struct Shared {
    node: Node,
    /// Frames for the device at each port, from port 1.
    queues: Vec<VecDeque<Vec<u8>>>,
    /// Ports whose device has a link.
    carriers: Vec<bool>,
    dropped: u64,
}

/// One external port of a switch.
#[derive(Debug)]
pub struct SwitchPort {
    shared: Arc<Mutex<Shared>>,
    clock: ModelClock,
    index: usize,
}

/// A switch with `ports` external ports, which are numbered from 1.
#[must_use]
pub fn switch(identity: Identity, ports: u8, clock: &ModelClock) -> Vec<SwitchPort> {
    let shared = Arc::new(Mutex::new(Shared {
        node: Node::switch(identity, ports),
        queues: (0..ports).map(|_| VecDeque::new()).collect(),
        carriers: vec![false; ports.into()],
        dropped: 0,
    }));
    let port = |index| SwitchPort { shared: Arc::clone(&shared), clock: clock.clone(), index };
    (0..usize::from(ports)).map(port).collect()
}

impl Shared {
    /// Takes what leaves the node.
    fn collect(&mut self) {
        while let Some(port) = self.node.take_retrain() {
            self.train(port);
        }
        while let Some((port, frame)) = self.node.next_frame() {
            match self.queues.get_mut(usize::from(port).wrapping_sub(1)) {
                Some(queue) if queue.len() < QUEUE_DEPTH => queue.push_back(frame),
                Some(_) | None => self.dropped += 1,
            }
        }
    }

    /// The link of a port is lost, and trains again where both ends want it.
    fn train(&mut self, port: u8) {
        self.node.set_link(port, false);
        let has_carrier = self.carriers.get(usize::from(port).wrapping_sub(1)) == Some(&true);
        if has_carrier && self.node.wants_link(port) {
            self.node.set_link(port, true);
        }
    }
}

impl SwitchPort {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.node.advance(self.clock.now());
        shared
    }

    /// The port's number.
    fn number(&self) -> u8 {
        self.index as u8 + 1
    }

    /// Looks at the switch.
    pub fn with_node<T>(&self, look: impl FnOnce(&Node) -> T) -> T {
        look(&self.lock().node)
    }

    /// Frames lost in full queues, in the whole switch.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.lock().dropped
    }
}

impl Wire for SwitchPort {
    fn send(&mut self, frame: &[u8]) {
        self.send_owned(frame.to_vec());
    }

    fn send_owned(&mut self, frame: Vec<u8>) {
        let mut shared = self.lock();
        shared.node.arrive(self.number(), frame);
        shared.collect();
    }

    fn recv(&mut self) -> Option<Vec<u8>> {
        let mut shared = self.lock();
        shared.collect();
        shared.queues.get_mut(self.index)?.pop_front()
    }

    fn set_carrier(&mut self, is_up: bool) {
        let (index, number) = (self.index, self.number());
        let mut shared = self.lock();
        if let Some(carrier) = shared.carriers.get_mut(index) {
            if *carrier != is_up {
                *carrier = is_up;
                shared.train(number);
                shared.collect();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subnet::port::State;

    fn identity() -> Identity {
        Identity {
            node_guid: 0x10,
            system_guid: 0x10,
            description: "switch".into(),
            vendor_id: 0x2c9,
            device_id: 1,
        }
    }

    #[test]
    fn a_port_is_down_until_a_device_has_a_link() {
        let clock = ModelClock::default();
        let mut ports = switch(identity(), 2, &clock);
        let state = |ports: &[SwitchPort], number| {
            ports[0].with_node(|node| node.port(number).unwrap().state())
        };
        assert_eq!(state(&ports, 1), State::Down);
        ports[0].set_carrier(true);
        assert_eq!((state(&ports, 1), state(&ports, 2)), (State::Init, State::Down));
        ports[0].set_carrier(false);
        assert_eq!(state(&ports, 1), State::Down);
    }

    #[test]
    fn frames_that_are_none_are_dropped() {
        let clock = ModelClock::default();
        let mut ports = switch(identity(), 2, &clock);
        ports[0].set_carrier(true);
        for len in 0..64 {
            ports[0].send(&vec![0xff; len]);
        }
        assert_eq!(ports[1].recv(), None);
        assert!(ports[0].with_node(|node| node.drops().map(|drop| drop.2).sum::<u64>()) >= 64);
    }
}
