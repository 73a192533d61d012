//! Bugs that can be planted: ten fields of the layouts, each moved to where it does not belong.
//!
//! Which of the model's referees catches which bug is the business of a test
//! (`tests/tests/seeded/main.rs`). Only in builds with feature `seeded`: fields then know their names, a
//! planted bug is looked up at each access, and which fields the model ever looks at is noted.

use super::Field;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Layout and field.
pub type Name = (&'static str, &'static str);

/// One bug.
#[derive(Clone, Copy, Debug)]
pub struct Seed {
    /// The field that is moved.
    pub name: Name,
    /// By how many bits, forward.
    pub shift: isize,
    /// The bug in words.
    pub what: &'static str,
}

/// The bugs, numbered from 1.
pub const SEEDS: [Seed; 10] = [
    Seed {
        name: ("cqe", "byte_cnt"),
        shift: -32,
        what: "the byte count of a completion one word early",
    },
    Seed { name: ("qpc", "log_sq_size"), shift: 1, what: "the size of a send queue one bit late" },
    Seed { name: ("mkc", "len"), shift: 32, what: "the length of a memory key one word late" },
    Seed {
        name: ("eqe", "event_type"),
        shift: -8,
        what: "the type of an event in the first byte of its entry",
    },
    Seed {
        name: ("mkey_mask", "qpn"),
        shift: -1,
        what: "the mask bit for a key's queue pair one bit high",
    },
    Seed {
        name: ("ads", "src_addr_index"),
        shift: -8,
        what: "the index of the own address one byte early in the address path",
    },
    Seed {
        name: ("roce_addr_layout", "source_mac_31_0"),
        shift: -16,
        what: "the low half of a RoCE address's MAC over the high half",
    },
    Seed {
        name: ("rqtc", "rqt_actual_size"),
        shift: -16,
        what: "the number of queues over which received frames are spread half a word early",
    },
    Seed {
        name: ("aeth", "syndrome"),
        shift: 24,
        what: "the syndrome of an acknowledgement in the last byte of its header",
    },
    Seed {
        name: ("bth", "congestion_resv8a"),
        shift: 8,
        what: "the invariant CRC masks the destination queue pair instead of the congestion bits",
    },
];

static PLANTED: AtomicUsize = AtomicUsize::new(0);
static NOTING: AtomicBool = AtomicBool::new(false);
static HEEDED: Mutex<BTreeSet<Name>> = Mutex::new(BTreeSet::new());

/// Plants the bug of that number, from 1, in this process, instead of any other; 0 for none.
pub fn plant(number: usize) {
    PLANTED.store(number, Ordering::Relaxed);
}

/// Notes from now on which fields the model looks at.
pub fn note() {
    NOTING.store(true, Ordering::Relaxed);
}

/// Fields that the model has looked at since then.
pub fn heeded() -> Vec<Name> {
    let names = HEEDED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    names.iter().copied().collect()
}

impl Field {
    /// The field of that name.
    pub(crate) const fn called(self, layout: &'static str, field: &'static str) -> Self {
        Self { name: Some((layout, field)), ..self }
    }

    /// Where the model takes it to be: as declared, or where a bug has it.
    pub(super) fn taken(self) -> Self {
        let planted = PLANTED.load(Ordering::Relaxed);
        let seed = planted.checked_sub(1).and_then(|n| SEEDS.get(n));
        match seed.filter(|seed| Some(seed.name) == self.name) {
            Some(seed) => Self { bit: self.bit.saturating_add_signed(seed.shift), ..self },
            None => self,
        }
    }

    /// The same, of a field that is about to be read.
    pub(super) fn heeded(self) -> Self {
        if let Some(name) = self.name {
            if NOTING.load(Ordering::Relaxed) {
                let mut names = HEEDED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                names.insert(name);
            }
        }
        self.taken()
    }
}
