//! Entries of completion queues: an Endpoint posts, and completes as the input says, which the
//! device did not.
//!
//! Each request that comes back was outstanding, and comes back once.

use arbitrary::{Arbitrary, Unstructured};
use dat_core::CloseFlag;
use mlx5_model::Wrote;

use crate::input::{Patch, patch, steps};
use crate::lone::{self, Lone, Ring};

#[derive(Clone, Copy, Debug, Arbitrary)]
struct Entry {
    /// Of requests, or of receives.
    requests: bool,
    opcode: u8,
    /// Block or receive that it says has completed.
    counter: u16,
    /// Of the queue pair, or of another.
    own: bool,
    syndrome: u8,
    len: u16,
    patches: [Option<Patch>; 2],
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Step {
    Post {
        kind: u8,
        len: u16,
        flags: u8,
    },
    Complete(Entry),
    /// The same again, so many times.
    Repeat {
        count: u8,
    },
    /// At another place of the ring, and of another lap.
    Elsewhere {
        at: u8,
        owner: bool,
        entry: Entry,
    },
    Events,
    Turn {
        micros: u16,
    },
    Disconnect {
        graceful: bool,
    },
    Connect,
    Resize {
        entries: u8,
    },
}

/// Runs the target.
pub fn run(data: &[u8]) {
    lone::with(data, |lone| {
        // The two of the Endpoint were made last. The model's own entries do not arrive there.
        let rings = lone.device().cqs.clone();
        let own = rings[rings.len() - 2..].to_vec();
        let rings = own.clone();
        lone.slot.hca().set_mangle(Some(Box::new(move |kind, iova, _| {
            kind != Wrote::Cqe || !rings.iter().any(|ring| ring.has_entry(iova))
        })));
        let mut world = World { lone, rings: own, written: [0; 2], last: None };
        steps(&mut Unstructured::new(data), 80).for_each(|step| world.step(step));
    });
}

struct World<'w, 's> {
    lone: &'w mut Lone<'s>,
    /// Of receives, and of requests.
    rings: Vec<Ring>,
    written: [u32; 2],
    last: Option<Entry>,
}

impl World<'_, '_> {
    fn step(&mut self, step: Step) {
        let lone = &mut *self.lone;
        let now = lone.now();
        match step {
            Step::Post { kind, len, flags } => lone.post(kind, len, flags),
            Step::Complete(entry) => {
                self.complete(&entry);
                self.last = Some(entry);
            }
            Step::Repeat { count } => {
                if let Some(entry) = self.last {
                    for next in 0..count % 40 {
                        self.complete(&Entry {
                            counter: entry.counter.wrapping_add(next.into()),
                            ..entry
                        });
                    }
                }
            }
            Step::Elsewhere { at, owner, entry } => {
                self.write(&entry, u32::from(at), u8::from(owner));
            }
            Step::Events => lone.events(),
            Step::Turn { micros } => lone.turn(u64::from(micros) * 1_000 + 1),
            Step::Disconnect { graceful } => {
                let flag = if graceful { CloseFlag::Graceful } else { CloseFlag::Abrupt };
                let _ = lone.ia.ep_disconnect(now, lone.ep, flag);
            }
            Step::Connect => {
                let _ = lone.ia.ep_reset(lone.ep);
                lone.connect();
            }
            Step::Resize { entries } => {
                // Whether it moves or not, its entries come to the ring that it had.
                let _ = lone.ia.evd_resize(lone.evds[usize::from(entries) & 1], entries.into());
            }
        }
    }

    /// Writes the next entry of its ring.
    fn complete(&mut self, entry: &Entry) {
        let which = usize::from(entry.requests);
        let number = self.written[which];
        self.written[which] += 1;
        let log_size = self.rings[which].log_size;
        self.write(entry, number, (number >> log_size & 1) as u8);
    }

    fn write(&self, entry: &Entry, number: u32, owner: u8) {
        let ring = &self.rings[usize::from(entry.requests)];
        let qpn = self.lone.device().qps.last().map_or(0, |qp| qp.number);
        let mut bytes = [0; lone::CQE];
        bytes[0x2e..0x30].copy_from_slice(&entry.len.to_be_bytes());
        bytes[0x37] = entry.syndrome;
        let qpn = if entry.own { qpn } else { qpn ^ 1 };
        bytes[0x38..0x3c].copy_from_slice(&qpn.to_be_bytes());
        bytes[0x3c..0x3e].copy_from_slice(&entry.counter.to_be_bytes());
        bytes[0x3f] = entry.opcode & 0xfe | owner;
        patch(&mut bytes, &entry.patches);
        let place = number & ((1 << ring.log_size) - 1);
        if let Some(address) = ring.at(u64::from(place) * lone::CQE as u64) {
            let _ = self.lone.slot.hca().dma_write(address, &bytes);
        }
    }
}
