//! Bytes of work requests: the driver posts, and the model reads other bytes than it wrote.
//!
//! The model completes them with an error or not, and the driver takes what it completes. Each
//! request that comes back was outstanding, and comes back once.

use arbitrary::{Arbitrary, Unstructured};

use crate::input::{Patch, steps};
use crate::lone::{self, Lone};

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Step {
    /// Opcode, size and first segments of the next request that is read are others.
    Garble([Option<Patch>; 6]),
    Post {
        kind: u8,
        len: u16,
        flags: u8,
    },
    Events,
    Turn {
        micros: u16,
    },
    Connect,
}

/// Runs the target.
pub fn run(data: &[u8]) {
    lone::with(data, |lone| {
        steps(&mut Unstructured::new(data), 80).for_each(|step| make(lone, step));
        for _ in 0..20 {
            lone.turn(1_000_000);
            lone.events();
        }
    });
}

fn make(lone: &mut Lone<'_>, step: Step) {
    match step {
        Step::Garble(patches) => lone.device().garble = patches.to_vec(),
        Step::Post { kind, len, flags } => {
            lone.post(kind, len, flags);
            lone.world.turn_by(1_000);
        }
        Step::Events => lone.events(),
        Step::Turn { micros } => lone.turn(u64::from(micros) * 1_000 + 1),
        Step::Connect => {
            let _ = lone.ia.ep_reset(lone.ep);
            lone.connect();
        }
    }
}
