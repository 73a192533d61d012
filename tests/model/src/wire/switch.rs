//! A learning Ethernet switch inside the process.
//!
//! Frames are forwarded in the moment they are sent, in port order where they are flooded: the
//! same sends give the same receives, every time. Ports may live in different threads. Not here:
//! VLAN membership, spanning tree, rate limits; see [`super::impair`] for trouble.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use super::Wire;
use crate::transport::host::Mac;

/// Frames a port's queue holds before it drops.
pub const QUEUE_DEPTH: usize = 1 << 16;

#[derive(Debug, Default)]
struct Fabric {
    queues: Vec<VecDeque<Vec<u8>>>,
    /// `None`: a plain cable, which looks at no address.
    learned: Option<BTreeMap<Mac, usize>>,
    dropped: u64,
}

/// One port of a switch: what a device plugs its link into.
#[derive(Debug)]
pub struct Port {
    fabric: Arc<Mutex<Fabric>>,
    index: usize,
}

/// A switch with `ports` ports.
#[must_use]
pub fn switch(ports: usize) -> Vec<Port> {
    let fabric = Arc::new(Mutex::new(Fabric {
        queues: (0..ports).map(|_| VecDeque::new()).collect(),
        learned: Some(BTreeMap::new()),
        ..Fabric::default()
    }));
    (0..ports).map(|index| Port { fabric: Arc::clone(&fabric), index }).collect()
}

/// A cable: two ends, each receiving what the other sends.
#[must_use]
pub fn cable() -> (Port, Port) {
    let fabric = Arc::new(Mutex::new(Fabric {
        queues: vec![VecDeque::new(), VecDeque::new()],
        ..Fabric::default()
    }));
    (Port { fabric: Arc::clone(&fabric), index: 0 }, Port { fabric, index: 1 })
}

impl Port {
    /// Frames lost in full queues, in the whole switch.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.fabric.lock().unwrap_or_else(PoisonError::into_inner).dropped
    }
}

impl Fabric {
    fn deliver(&mut self, port: usize, frame: Vec<u8>) {
        match self.queues.get_mut(port) {
            Some(queue) if queue.len() < QUEUE_DEPTH => queue.push_back(frame),
            Some(_) => self.dropped += 1,
            None => {}
        }
    }

    /// Learns where the sender of a frame is. Returns where its receiver is, if that is known;
    /// nothing for a frame that is none.
    fn learn(&mut self, from: usize, frame: &[u8]) -> Option<Option<usize>> {
        let (dst, rest) = frame.split_first_chunk::<6>()?;
        let src = rest.first_chunk::<6>()?;
        let Some(learned) = &mut self.learned else {
            return Some(None);
        };
        if !is_group(src) {
            learned.insert(*src, from);
        }
        Some(learned.get(dst).copied().filter(|_| !is_group(dst)))
    }
}

impl Wire for Port {
    fn send(&mut self, frame: &[u8]) {
        self.send_owned(frame.to_vec());
    }

    fn send_owned(&mut self, frame: Vec<u8>) {
        let mut fabric = self.fabric.lock().unwrap_or_else(PoisonError::into_inner);
        match fabric.learn(self.index, &frame) {
            None => {}
            Some(Some(port)) if port == self.index => {}
            Some(Some(port)) => fabric.deliver(port, frame),
            Some(None) => {
                for port in (0..fabric.queues.len()).filter(|p| *p != self.index) {
                    fabric.deliver(port, frame.clone());
                }
            }
        }
    }

    fn recv(&mut self) -> Option<Vec<u8>> {
        let mut fabric = self.fabric.lock().unwrap_or_else(PoisonError::into_inner);
        fabric.queues.get_mut(self.index)?.pop_front()
    }
}

/// Whether the I/G bit is set: multicast or broadcast.
fn is_group(mac: &Mac) -> bool {
    mac.first().is_some_and(|b| b & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(dst: u8, src: u8) -> Vec<u8> {
        let mut f = vec![0x02, 0, 0, 0, 0, dst, 0x02, 0, 0, 0, 0, src];
        f.extend_from_slice(&[0x08, 0x00, 1, 2, 3]);
        f
    }

    #[test]
    fn unknown_destinations_are_flooded_and_then_learned() {
        let mut ports = switch(3);
        ports[0].send(&frame(2, 1));
        assert_eq!(ports[1].recv(), Some(frame(2, 1)));
        assert_eq!(ports[2].recv(), Some(frame(2, 1)));
        assert_eq!(ports[0].recv(), None);
        ports[1].send(&frame(1, 2));
        assert_eq!(ports[0].recv(), Some(frame(1, 2)));
        assert_eq!(ports[2].recv(), None);
        ports[0].send(&frame(2, 1));
        assert_eq!(ports[1].recv(), Some(frame(2, 1)));
        assert_eq!(ports[2].recv(), None);
    }

    #[test]
    fn group_frames_are_always_flooded() {
        let mut ports = switch(3);
        let mut broadcast = frame(0, 1);
        broadcast[..6].fill(0xff);
        ports[1].send(&frame(1, 2));
        ports[0].recv();
        ports[2].recv();
        ports[0].send(&broadcast);
        assert_eq!(ports[1].recv(), Some(broadcast.clone()));
        assert_eq!(ports[2].recv(), Some(broadcast));
    }

    #[test]
    fn a_station_that_moves_is_learned_anew() {
        let mut ports = switch(3);
        ports[0].send(&frame(9, 1));
        ports[2].send(&frame(9, 1));
        while ports[0].recv().is_some() {}
        while ports[1].recv().is_some() {}
        while ports[2].recv().is_some() {}
        ports[1].send(&frame(1, 7));
        assert_eq!(ports[0].recv(), None);
        assert_eq!(ports[2].recv(), Some(frame(1, 7)));
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_runts_vanish() {
        let (mut a, mut b) = cable();
        for _ in 0..QUEUE_DEPTH + 3 {
            a.send(&frame(2, 1));
        }
        assert_eq!(a.dropped(), 3);
        let mut n = 0;
        while b.recv().is_some() {
            n += 1;
        }
        assert_eq!(n, QUEUE_DEPTH);
        a.send(&[1, 2, 3]);
        assert_eq!(b.recv(), None);
    }
}
