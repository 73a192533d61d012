//! Losses of chosen frames: the next few of one kind that a host sends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Kinds of frame of a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A packet of a send or of a write.
    Message,
    /// A request for a read or an atomic.
    Request,
    /// What a read or an atomic brings.
    Response,
    /// An acknowledgement, or a refusal.
    Acknowledgement,
}

/// How often the same packet is lost: its next repetition arrives, so no connection breaks.
const REPEATS: u32 = 2;
/// Bytes of the Ethernet header, and of the UDP header.
const ETHERNET: usize = 14;
const UDP: usize = 8;
/// UDP port of RoCE version 2.
const PORT: [u8; 2] = 4791_u16.to_be_bytes();

/// What is to be lost of what a host sends.
#[derive(Clone, Debug, Default)]
pub struct Losses(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// By kind: so many arrive, then so many are lost.
    next: BTreeMap<Class, (u32, u32)>,
    /// How often each packet was lost: queue pair, sequence number, kind.
    lost: BTreeMap<(u32, u32, Class), u32>,
}

impl Losses {
    fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Of the next frames of that kind `after` arrive, then `count` are lost.
    pub fn aim(&self, class: Class, after: u32, count: u32) {
        self.with(|inner| inner.next.insert(class, (after, count)));
    }

    /// Nothing more is lost.
    pub fn clear(&self) {
        self.with(|inner| inner.next.clear());
    }

    /// Whether this frame is lost.
    #[must_use]
    pub fn strikes(&self, frame: &[u8]) -> bool {
        self.with(|inner| {
            if inner.next.is_empty() {
                return false;
            }
            let Some((qpn, psn, class)) = packet(frame) else { return false };
            let Some((after, count)) = inner.next.get_mut(&class) else { return false };
            if *after > 0 {
                *after -= 1;
                return false;
            }
            let lost = inner.lost.entry((qpn, psn, class)).or_default();
            if *lost == REPEATS {
                return false;
            }
            (*lost, *count) = (*lost + 1, *count - 1);
            if *count == 0 {
                inner.next.remove(&class);
            }
            true
        })
    }
}

/// The queue pair that a packet of a reliable connection goes to, its sequence number and its kind.
fn packet(frame: &[u8]) -> Option<(u32, u32, Class)> {
    let header = match frame.get(12..ETHERNET)? {
        [0x08, 0x00] => 20,
        [0x86, 0xdd] => 40,
        _ => return None,
    };
    let udp = ETHERNET + header;
    if frame.get(udp + 2..udp + 4)? != PORT {
        return None;
    }
    let bth = frame.get(udp + UDP..)?.first_chunk::<12>()?;
    let class = match bth[0] {
        0x00..=0x0b | 0x16 | 0x17 => Class::Message,
        0x0c | 0x13 | 0x14 => Class::Request,
        0x0d..=0x10 | 0x12 => Class::Response,
        0x11 => Class::Acknowledgement,
        _ => return None,
    };
    let number = |at: usize| u32::from_be_bytes([0, bth[at], bth[at + 1], bth[at + 2]]);
    Some((number(5), number(9), class))
}
