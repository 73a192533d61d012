//! Adapters on the driver: over the model in process, under virtual time, or over devices of this
//! machine, in real time.

use std::cell::RefCell;
use std::time::Duration;

use dat_core::provider::{LinkType, Provider, Region};
use dat_core::{Ia, Instant};
use hca_mlx5::dma::Buffer;
use hca_mlx5::platform::{Dma as _, Fence, Platform, Span};
use hca_mlx5::{Config, Mlx5};
use mlx5_model::{Config as Card, LinkLayer};

use super::adapters::{A, Adapters, B, OPENS, Party, Room, Side};
use crate::bringup::light;
use crate::host::inproc::{Memory, Slot};
use crate::pair::Stage;

/// The driver on one platform.
pub struct Hosted<'p, P: Platform> {
    platform: &'p P,
    config: fn(&'p P) -> Config<'p>,
    pass: fn(&P, Duration),
    share: fn(&Self, &[u8; 40]) -> Region,
    buffers: RefCell<Vec<Buffer<'p, P>>>,
}

impl<P: Platform> std::fmt::Debug for Hosted<'_, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hosted").finish_non_exhaustive()
    }
}

impl<'p, P: Platform> Hosted<'p, P> {
    /// One on `platform`, whose driver is configured so, and where time passes and memory is shared so.
    #[must_use]
    pub fn new(
        platform: &'p P,
        config: fn(&'p P) -> Config<'p>,
        pass: fn(&P, Duration),
        share: fn(&Self, &[u8; 40]) -> Region,
    ) -> Self {
        Self { platform, config, pass, share, buffers: RefCell::default() }
    }

    /// The platform.
    #[must_use]
    pub fn platform(&self) -> &'p P {
        self.platform
    }

    /// Finds the buffer at `addr`, and the offset in it.
    fn find<T>(&self, addr: u64, act: impl FnOnce(&Buffer<'p, P>, usize) -> T) -> T {
        let buffers = self.buffers.borrow();
        let of = |buffer: &&Buffer<'p, P>| {
            let region = buffer.region();
            (region.addr..region.addr + region.len).contains(&addr)
        };
        let Some(buffer) = buffers.iter().find(of) else {
            panic!("no memory at {addr:#x}");
        };
        act(buffer, (addr - buffer.region().addr) as usize)
    }

    /// Orders the consumer's reads after a peer's accesses that no completion reports.
    fn fence(&self) {
        self.platform.fence(Fence::BeforeDoorbell);
        self.platform.fence(Fence::AfterOwnership);
    }
}

impl<P: Platform> Drop for Hosted<'_, P> {
    fn drop(&mut self) {
        self.buffers.take().into_iter().for_each(Buffer::release);
    }
}

impl<'p, P: Platform> Side for Hosted<'p, P> {
    type Hca = Mlx5<'p, P>;

    fn hca(&self) -> Mlx5<'p, P> {
        Mlx5::open(self.platform, &(self.config)(self.platform))
            .unwrap_or_else(|error| panic!("bring-up: {error}"))
    }

    fn entropy(&self) -> [u8; 32] {
        (self.config)(self.platform).entropy
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.platform.now())
    }

    fn pass(&self, span: Duration) {
        (self.pass)(self.platform, span);
    }

    fn memory(&self, len: usize) -> Region {
        let buffer = Buffer::zeroed(self.platform, len).expect("memory for a buffer");
        let region = buffer.region();
        self.buffers.borrow_mut().push(buffer);
        region
    }

    fn pages(&self, region: Region) -> Vec<u64> {
        let first = (region.addr - self.platform.memory().addr()) as usize;
        (first..first + region.len as usize)
            .step_by(4096)
            .map(|at| self.platform.iova(at).expect("memory of the arena").0)
            .collect()
    }

    fn share(&self, name: &[u8; 40]) -> Region {
        (self.share)(self, name)
    }

    fn store(&self, addr: u64, bytes: &[u8]) {
        self.store_unfenced(addr, bytes);
        self.fence();
    }

    fn load(&self, addr: u64, len: usize) -> Vec<u8> {
        self.fence();
        self.load_unfenced(addr, len)
    }

    fn store_unfenced(&self, addr: u64, bytes: &[u8]) {
        let stored = self.find(addr, |buffer, at| buffer.copy_in(at, bytes));
        assert_eq!(stored, bytes.len(), "no memory for all of it");
    }

    fn load_unfenced(&self, addr: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let loaded = self.find(addr, |buffer, at| buffer.copy_out(at, &mut bytes));
        assert_eq!(loaded, len, "no memory for all of it");
        bytes
    }
}

/// Time in which a port that is active joins the groups of IP over InfiniBand.
const JOIN: Duration = Duration::from_millis(100);

/// What the driver of a slot is given.
fn config(slot: &Slot) -> Config<'_> {
    slot.config(Config::default())
}

/// The same of the side that manages the subnet, where the link is InfiniBand.
fn managing(slot: &Slot) -> Config<'_> {
    slot.config(Config { subnet_manager: true, ..Config::default() })
}

/// A piece of the arena is said to be shared.
fn share(side: &Hosted<'_, Slot>, name: &[u8; 40]) -> Region {
    let region = side.memory(4096);
    let offset = (region.addr - side.platform.memory().addr()) as usize;
    let len = region.len as usize;
    side.platform.share(name, Span { offset, len });
    region
}

/// Runs a case on the driver over the model in process, and asserts that closing leaves nothing
/// behind and that the models do not complain.
///
/// # Panics
/// If the case fails.
pub fn run(link: LinkLayer, case: impl FnOnce(&mut Adapters<'_, Hosted<'_, Slot>>)) {
    run_on(OPENS, link, case);
}

/// The same with storage for one adapter on each side, for a case that has the device refuse work
/// requests.
///
/// # Panics
/// If the case fails.
pub fn run_refusing(case: impl FnOnce(&mut Adapters<'_, Hosted<'_, Slot>>)) {
    run_on(1, LinkLayer::Ethernet, |ias| {
        ias.refusing = true;
        case(ias);
    });
}

fn run_on(opens: usize, link: LinkLayer, case: impl FnOnce(&mut Adapters<'_, Hosted<'_, Slot>>)) {
    let stage = Stage {
        cards: [(); 2].map(|()| Card { link, ..light() }),
        memory: Memory { arena: 512, firmware: 2048 },
        ..Stage::default()
    };
    let (_, slots) = stage.plug(&mut |_, wire| wire);
    let mut rooms = [A, B].map(|_| Vec::from_iter((0..opens).map(|_| Room::new())));
    let refusing = {
        let [a, b] = &mut rooms;
        let open = |index: usize, rooms| {
            let pass = |slot: &Slot, span: Duration| slot.world().turn_by(span.as_nanos() as u64);
            let config = if index == A { managing } else { config };
            let side = Hosted::new(&slots[index], config, pass, share);
            let hca = side.hca();
            Party::open(index, side, hca, rooms)
        };
        let mut ias = Adapters::new(open(A, &mut a[..]), open(B, &mut b[..]));
        // A port of InfiniBand is of use once it is managed.
        if ias.a.ia.provider().limits().link == LinkType::InfiniBand {
            let is_up = |ia: &mut Ia<'_, _>| Mlx5::link_up(ia.provider_mut()).unwrap_or(false);
            ias.until(|ias| (is_up(&mut ias.a.ia) && is_up(&mut ias.b.ia)).then_some(()));
            ias.pass(JOIN);
        }
        case(&mut ias);
        let refusing = ias.refusing;
        // Closing the device takes everything back, however a case left it.
        let _ = ias.finish();
        refusing
    };
    for (side, slot) in slots.iter().enumerate() {
        let complaints = slot.hca().complaints().to_vec();
        assert!(
            complaints.is_empty() || refusing,
            "the model of side {side} complains: {complaints:#?}"
        );
        let left = (slot.in_use(), slot.views().pages_out());
        assert_eq!(
            left,
            (0, 0),
            "side {side}: bytes of the arena and firmware pages not given back"
        );
    }
}
