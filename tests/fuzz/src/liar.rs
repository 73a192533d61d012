//! A platform that lies: memory that is not there, is misaligned, has holes for the device, or has
//! been changed by the device between two loads; pages, registers and times that make no sense.
//!
//! The driver gives up, or works; it returns in time, after a bounded number of loads.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arbitrary::{Arbitrary, Unstructured};
use dat_tests::bringup::{journey, patience};
use dat_tests::host::inproc::Slot;
use dat_tests::host::views::Shared;
use hca_mlx5::dma::Memory;
use hca_mlx5::platform::{Bar, Blocks, Clock, Dma, Fence, Reach, Span};

use crate::input::steps;
use crate::world::rig;

/// More loads or waits than this in one journey mean that it does not end.
const MOST: u64 = 3_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Arbitrary)]
enum What {
    /// Bytes that the driver loads from the device's memory are these, or have these bits flipped.
    Load {
        at: u8,
        bytes: [u8; 4],
        flip: bool,
    },
    Register {
        value: u32,
    },
    NoMemory,
    /// A span elsewhere than what was taken, or of another length.
    Span {
        by: i16,
        len: i16,
    },
    NoAddress,
    /// Another address, or another number of bytes behind it.
    Address {
        by: i16,
        len: u16,
    },
    FewerPages {
        most: u8,
    },
    /// A page given out twice, or misaligned.
    Page {
        flip: u16,
    },
    UnknownPages,
    /// Time leaps.
    Leap {
        millis: u16,
    },
}

#[derive(Clone, Copy, Debug, Arbitrary)]
struct Lie {
    what: What,
    /// From which call of its kind on, and for how many.
    after: u16,
    times: u8,
}

impl Lie {
    fn is_due(&self, call: u64) -> bool {
        let from = u64::from(self.after);
        (from..from + u64::from(self.times)).contains(&call)
    }
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let lies: Vec<Lie> = steps(&mut Unstructured::new(data), 24).collect();
    let rig = rig();
    let loads = Arc::new(AtomicU64::new(0));
    let (of_memory, counter) = (lies.clone(), Arc::clone(&loads));
    rig.slot.views().lie(Some(Box::new(move |_, bytes| {
        let call = counter.fetch_add(1, Ordering::Relaxed);
        assert!(call < MOST, "the driver loads without end");
        for lie in of_memory.iter().filter(|lie| lie.is_due(call)) {
            let What::Load { at, bytes: own, flip } = lie.what else { continue };
            let from = usize::from(at) % bytes.len().max(1);
            for (place, byte) in bytes[from..].iter_mut().zip(own) {
                *place = if flip { *place ^ byte } else { byte };
            }
        }
    })));
    let platform = Liar { slot: &rig.slot, lies, calls: RefCell::default(), late: Cell::new(0) };
    let _ = journey(&platform, &patience());
}

/// Kinds of calls, each counted.
#[derive(Clone, Copy, Debug)]
enum Call {
    Register,
    Alloc,
    Address,
    Pages,
    Return,
    Wait,
}

struct Liar<'s> {
    slot: &'s Slot,
    lies: Vec<Lie>,
    calls: RefCell<[u64; 6]>,
    late: Cell<u64>,
}

impl Liar<'_> {
    /// The lies that are due in this call of its kind.
    fn due(&self, call: Call) -> impl Iterator<Item = What> {
        let mut calls = self.calls.borrow_mut();
        let number = calls[call as usize];
        calls[call as usize] += 1;
        assert!(number < MOST, "{call:?} without end");
        self.lies.iter().filter(move |lie| lie.is_due(number)).map(|lie| lie.what)
    }
}

impl Bar for Liar<'_> {
    fn bar_len(&self) -> usize {
        self.slot.bar_len()
    }

    fn read32(&self, offset: usize) -> u32 {
        let value = self.slot.read32(offset);
        self.due(Call::Register).fold(value, |value, what| match what {
            What::Register { value } => value.to_be(),
            _ => value,
        })
    }

    fn write32(&self, offset: usize, value: u32) {
        self.slot.write32(offset, value);
    }

    fn write64(&self, offset: usize, value: u64) {
        self.slot.write64(offset, value);
    }

    fn write_block(&self, offset: usize, block: &[u64; 8], how: Blocks) {
        self.slot.write_block(offset, block, how);
    }
}

impl Dma for Liar<'_> {
    type Probe = Shared;

    fn memory(&self) -> &Memory<Shared> {
        self.slot.memory()
    }

    fn alloc(&self, len: usize, align: usize, reach: Reach) -> Option<Span> {
        let due: Vec<What> = self.due(Call::Alloc).collect();
        if due.contains(&What::NoMemory) {
            return None;
        }
        let span = self.slot.alloc(len, align, reach)?;
        Some(due.iter().fold(span, |span, what| match *what {
            What::Span { by, len } => Span {
                offset: span.offset.saturating_add_signed(by.into()),
                len: span.len.saturating_add_signed(len.into()),
            },
            _ => span,
        }))
    }

    fn free(&self, _: Span) {}

    fn iova(&self, offset: usize) -> Option<(u64, usize)> {
        let honest = self.slot.iova(offset);
        self.due(Call::Address).fold(honest, |address, what| match what {
            What::NoAddress => None,
            What::Address { by, len } => {
                address.map(|(at, _)| (at.wrapping_add_signed(by.into()), len.into()))
            }
            _ => address,
        })
    }

    fn fence(&self, fence: Fence) {
        self.slot.fence(fence);
    }

    fn pages_take(&self, to: &mut [u64]) -> usize {
        let (mut most, mut flips) = (to.len(), 0);
        for what in self.due(Call::Pages) {
            match what {
                What::FewerPages { most: few } => most = most.min(few.into()),
                What::Page { flip } => flips ^= u64::from(flip),
                _ => {}
            }
        }
        let taken = self.slot.pages_take(&mut to[..most]);
        if let Some(first) = to[..taken].first_mut() {
            *first ^= flips;
        }
        taken
    }

    fn pages_return(&self, pages: &[u64]) -> usize {
        let known = self.slot.pages_return(pages);
        if self.due(Call::Return).any(|what| what == What::UnknownPages) { 0 } else { known }
    }
}

impl Clock for Liar<'_> {
    fn now(&self) -> u64 {
        self.slot.now() + self.late.get()
    }

    fn relax(&self) {
        for what in self.due(Call::Wait) {
            if let What::Leap { millis } = what {
                self.late.set(self.late.get() + u64::from(millis) * 1_000_000);
            }
        }
        self.slot.relax();
    }
}
