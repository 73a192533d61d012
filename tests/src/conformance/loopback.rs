//! Adapters on the loop provider: two HCAs of memory only, and time that is a number.

use std::cell::Cell;
use std::time::Duration;

use dat_core::Instant;
use dat_core::provider::Region;
use dat_core::testing::{Fabric, LoopHca};

use super::adapters::{A, Adapters, B, OPENS, Party, Room, Side};

/// A page of the loop provider's memory, as far as cases care.
const PAGE: u64 = 4096;

/// One port of a fabric.
#[derive(Debug)]
pub struct Port<'f> {
    fabric: &'f Fabric,
    port: usize,
    now: &'f Cell<Instant>,
    used: Cell<u64>,
    /// Numbers drawn.
    drawn: Cell<u64>,
}

impl<'f> Side for Port<'f> {
    type Hca = LoopHca<'f>;

    fn hca(&self) -> LoopHca<'f> {
        LoopHca::new(self.fabric, self.port)
    }

    fn entropy(&self) -> [u8; 32] {
        let drawn = self.drawn.get() + 1;
        self.drawn.set(drawn);
        [(2 * drawn + 1) as u8 + self.port as u8; 32]
    }

    fn now(&self) -> Instant {
        self.now.get()
    }

    fn pass(&self, span: Duration) {
        self.now.set(self.now.get() + span);
    }

    fn hold(&self, held: bool) -> bool {
        self.fabric.hold(held);
        true
    }

    fn memory(&self, len: usize) -> Region {
        let all = self.fabric.region(self.port);
        let at = self.used.get();
        let end = at + (len as u64).next_multiple_of(PAGE);
        assert!(end <= all.len, "the memory of a loop port is used up");
        self.used.set(end);
        Region { addr: all.addr + at, len: len as u64 }
    }

    fn store(&self, addr: u64, bytes: &[u8]) {
        assert!(self.fabric.write(addr, bytes), "no memory at {addr:#x}");
    }

    fn pages(&self, region: Region) -> Vec<u64> {
        // Its HCAs see what the host sees.
        (region.addr..region.addr + region.len).step_by(PAGE as usize).collect()
    }

    fn share(&self, name: &[u8; 40]) -> Region {
        self.fabric.share(name)
    }

    fn load(&self, addr: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert!(self.fabric.read(addr, &mut bytes), "no memory at {addr:#x}");
        bytes
    }

    fn syncs(&self) -> Option<[u32; 2]> {
        Some(self.fabric.syncs(self.port))
    }
}

/// Runs a case on the loop provider, and asserts that closing leaves nothing behind.
///
/// # Panics
/// If the case fails.
pub fn run(case: impl FnOnce(&mut Adapters<'_, Port<'_>>)) {
    run_on(OPENS, case);
}

/// The same with storage for one adapter on each side, which is faster to make: nothing can be
/// opened again.
///
/// # Panics
/// If the case fails.
pub fn run_small(case: impl FnOnce(&mut Adapters<'_, Port<'_>>)) {
    run_on(1, case);
}

fn run_on(opens: usize, case: impl FnOnce(&mut Adapters<'_, Port<'_>>)) {
    let fabric = Box::new(Fabric::new());
    let now = Cell::new(Instant::from_nanos(1_000_000_000));
    let mut rooms = [A, B].map(|_| Vec::from_iter((0..opens).map(|_| Room::new())));
    let [a, b] = &mut rooms;
    let open = |port, rooms| {
        let side =
            Port { fabric: &fabric, port, now: &now, used: Cell::new(0), drawn: Cell::new(0) };
        let hca = side.hca();
        Party::open(port, side, hca, rooms)
    };
    let mut ias = Adapters::new(open(A, &mut a[..]), open(B, &mut b[..]));
    case(&mut ias);
    let tidy = ias.finish();
    for side in [A, B] {
        let left = fabric.left_at_close(side);
        assert!(
            !tidy || left == (0, 0, 0, 0),
            "side {side}: zones, keys, completion queues and queue pairs that closing left: {left:?}"
        );
    }
}
