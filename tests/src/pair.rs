//! Two Interface Adapters on two emulated HCAs, joined by a wire: the fixture of the demo and of
//! most tests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use dat_core::provider::{Classes, Net};
use dat_core::{Ep, Error, Evd, Event, Ia, Instant, Storage};
use hca_mlx5::cmd::dump::Observer;
use hca_mlx5::platform::Clock as _;
use hca_mlx5::{Config, Mlx5};
use mlx5_model::wire::impair::{Impaired, Rates};
use mlx5_model::wire::{ModelClock, Wire, switch};

use mlx5_model::{Config as Card, Hca, LinkLayer};

use crate::host::chosen::or_chosen;
use crate::host::inproc::{Memory, Slot, World};

/// The driver on a slot of the in-process host.
pub type Driver<'s> = Mlx5<'s, Slot>;
/// An adapter's storage in tests: 16 Endpoints, 32 Event Dispatchers, 64 LMRs, 256 DTOs each way.
pub type Room<'s> = Storage<Driver<'s>, 16, 32, 64, 256>;

/// Bytes of a RoCEv2 packet around its payload, at most: what the port's frame size leaves room
/// for.
const HEADERS: u16 = 114;

/// Parameters of the stage.
#[derive(Clone, Debug, Default)]
pub struct Stage {
    /// The two cards.
    pub cards: [Card; 2],
    /// Memory of each slot.
    pub memory: Memory,
    /// Path MTU; 4096 if not given.
    pub mtu: Option<u16>,
    /// IPv6 addresses instead of IPv4.
    pub ipv6: bool,
    /// 802.1Q VLAN of both.
    pub vlan: Option<u16>,
    /// Traffic class and priority of each side.
    pub classes: [Classes; 2],
    /// Disturbances of the wire, both ways.
    pub rates: Rates,
    /// Seed of every random choice.
    pub seed: u64,
    /// Waits look at even intervals of half a microsecond: times can be compared.
    pub even: bool,
    /// The sides whose driver runs the built-in subnet manager.
    pub managers: [bool; 2],
}

/// Wraps each end of the wire: for taps and scripted faults. Called with the side's index.
pub type Wrap<'a> = &'a mut dyn FnMut(usize, Box<dyn Wire + Send>) -> Box<dyn Wire + Send>;

impl Stage {
    /// Two cards with these open facts.
    ///
    /// # Panics
    /// If one does not exist.
    #[must_use]
    pub fn of(facts: &str) -> Self {
        let facts = facts.parse().unwrap_or_else(|error| panic!("{facts}: {error}"));
        let card = Card { facts, ..Card::default() };
        Self { cards: [card.clone(), card], ..Self::default() }
    }

    /// The address of a side.
    #[must_use]
    pub fn address(&self, side: usize) -> IpAddr {
        let last = 1 + side as u8;
        if self.ipv6 {
            IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 7, 0, 0, 0, last.into()))
        } else {
            IpAddr::V4(Ipv4Addr::new(192, 168, 7, last))
        }
    }

    /// The network of a side.
    #[must_use]
    pub fn net(&self, side: usize) -> Net {
        let prefix = if self.ipv6 { 64 } else { 24 };
        Net { addr: self.address(side), prefix, gateway: None, vlan: self.vlan }
    }

    /// Two InfiniBand cards on a cable; side 0 runs the subnet manager.
    #[must_use]
    pub fn infiniband() -> Self {
        let cards = [Card::infiniband(), Card::infiniband()];
        Self { cards, managers: [true, false], ..Self::default() }
    }

    /// Whether the cards speak InfiniBand, because the stage or the environment says so.
    fn is_infiniband(&self) -> bool {
        or_chosen(&self.cards[0]).link == LinkLayer::InfiniBand
    }

    /// What the cards are plugged into: a switch, or of InfiniBand cards a cable.
    #[must_use]
    pub fn ports(&self) -> [switch::Port; 2] {
        if self.is_infiniband() {
            return switch::cable().into();
        }
        let ports = switch::switch(2);
        ports.try_into().unwrap_or_else(|_| unreachable!("two ports"))
    }

    /// Plugs both cards in.
    pub fn plug(&self, wrap: Wrap<'_>) -> (Arc<World>, [Slot; 2]) {
        self.plug_with(&ModelClock::default(), wrap)
    }

    /// Plugs both cards into a world with this clock.
    pub fn plug_with(&self, clock: &ModelClock, wrap: Wrap<'_>) -> (Arc<World>, [Slot; 2]) {
        let world = World::with_clock(clock);
        let mut ports = self.ports().into_iter();
        let slots = [0, 1].map(|side| {
            let seed = self.seed.wrapping_mul(2).wrapping_add(side as u64);
            let port = ports.next().unwrap();
            let wire = Impaired::new(port, world.clock(), seed).rates(self.rates);
            let wire = wrap(side, Box::new(wire));
            let mut card = or_chosen(&self.cards[side]);
            card.seed = card.seed.wrapping_add(seed);
            card.mac[5] = card.mac[5].wrapping_add(side as u8);
            Slot::plug(&world, self.memory, seed, |memory| Hca::new(card, memory, wire))
        });
        (world, slots)
    }

    /// Configuration of the driver at bring-up.
    #[must_use]
    pub fn config<'p>(&self, observer: Option<&'p (dyn Observer + Sync)>) -> Config<'p> {
        let mut config = Config { observer, ..Config::default() };
        if let Some(mtu) = self.mtu {
            config.frame_size = mtu + HEADERS;
        }
        config
    }

    /// Builds the stage, brings both sides up and runs `test` on it when their links are up.
    pub fn run<T>(&self, test: impl FnOnce(&mut Pair<'_>) -> T) -> T {
        self.run_at_once(|pair| {
            pair.await_links();
            test(pair)
        })
    }

    /// The same, before.
    pub fn run_at_once<T>(&self, test: impl FnOnce(&mut Pair<'_>) -> T) -> T {
        let (world, slots) = self.plug(&mut |_, wire| wire);
        let mut rooms = [Box::new(Room::new()), Box::new(Room::new())];
        let [a, b] = &mut rooms;
        let ias = [self.open(&slots[0], a, 0, None), self.open(&slots[1], b, 1, None)];
        let ias = ias.map(|ia| ia.unwrap_or_else(|e| panic!("open: {e}")));
        test(&mut Pair { world, slots: [&slots[0], &slots[1]], ias, stage: self.clone() })
    }

    /// Brings one side up.
    pub fn open<'s>(
        &self,
        slot: &'s Slot,
        room: &'s mut Room<'s>,
        side: usize,
        observer: Option<&'s (dyn Observer + Sync)>,
    ) -> Result<Ia<'s, Driver<'s>>, Error> {
        // Where the environment says that the link is InfiniBand, nobody has named a manager.
        let is_named = self.cards[side].link == LinkLayer::InfiniBand;
        let config = Config {
            classes: self.classes[side],
            subnet_manager: if is_named { self.managers[side] } else { side == 0 },
            ..self.config(observer)
        };
        let driver = Driver::open(slot, &slot.config(config))?;
        let now = Instant::from_nanos(slot.now());
        Ia::open(driver, room.parts(), self.net(side), now, slot.entropy())
    }
}

/// The stage, up.
pub struct Pair<'s> {
    /// Time and the cards in it.
    pub world: Arc<World>,
    /// Where the cards are.
    pub slots: [&'s Slot; 2],
    /// The adapters.
    pub ias: [Ia<'s, Driver<'s>>; 2],
    /// Its parameters.
    pub stage: Stage,
}

impl std::fmt::Debug for Pair<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("ias", &self.ias).finish_non_exhaustive()
    }
}

impl Pair<'_> {
    /// Model time, as the adapters take it.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.world.now())
    }

    /// One round: both adapters do what is due, then time passes: a millisecond at most, and at
    /// most until the next deadline of anyone.
    pub fn turn(&mut self) {
        self.turn_by(1_000_000);
    }

    /// As [`Pair::turn`], with a shorter leap.
    pub fn turn_by(&mut self, mut leap: u64) {
        let now = self.now();
        for ia in &mut self.ias {
            let next = ia.advance(now);
            if next.work {
                leap = 1_000;
            } else if let Some(deadline) = next.deadline {
                leap = leap.min(deadline.since(now).as_nanos().max(1_000) as u64);
            }
        }
        self.world.turn_by(leap);
    }

    /// Waits until both links are up, as every host does; if they were not, until they have been for
    /// three seconds.
    ///
    /// # Panics
    /// If one stays down for a minute.
    pub fn await_links(&mut self) {
        let (start, mut since) = (self.now(), None);
        let up = self.until(Duration::from_secs(60), |pair| {
            let up = |ia: &mut Ia<'_, Driver<'_>>| ia.provider_mut().link_up().unwrap_or(true);
            let (up, now) = (pair.ias.iter_mut().all(up), pair.now());
            since = if up { since.or(Some(now)) } else { None };
            let since = since?;
            (now == start || now.since(since) >= Duration::from_secs(3)).then_some(())
        });
        assert!(up.is_some(), "a link stays down");
    }

    /// Turns until `done` gives a value, for `limit` of model time at most.
    pub fn until<T>(
        &mut self,
        limit: Duration,
        mut done: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let end = self.now() + limit;
        // Looks often at first, as a polling consumer would, and less often the longer nothing
        // comes.
        let mut leap = 500;
        loop {
            if let Some(value) = done(self) {
                return Some(value);
            }
            if self.now() >= end {
                return None;
            }
            self.turn_by(leap);
            if !self.stage.even {
                leap = (leap * 2).min(1_000_000);
            }
        }
    }

    /// Waits for the next event of an Event Dispatcher.
    pub fn wait(&mut self, side: usize, evd: Evd, limit: Duration) -> Option<Event> {
        self.until(limit, |pair| pair.ias[side].evd_dequeue(evd).ok())
    }

    /// Waits until an Endpoint has nothing outstanding.
    pub fn idle(&mut self, side: usize, ep: Ep, limit: Duration) -> bool {
        self.until(limit, |pair| {
            let status = pair.ias[side].ep_get_status(ep).ok()?;
            (status.request_idle && status.recv_idle).then_some(())
        })
        .is_some()
    }
}
