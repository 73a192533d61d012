//! The catalogue of faults.
//!
//! A seed enables some kinds of fault and gives each a weight: some seeds lose frames and nothing
//! else, others reset devices every few milliseconds. What a fault excuses stands beside it:
//! everything else that a consumer sees must be what it would see without.

use std::fmt;

use dat_tests::laws::rng::Rng;
use dat_tests::session::line::attribute;
use mlx5_model::host::Nanos;
use mlx5_model::wire::impair::{Fault as Frame, Rates};

use crate::aim::Class;

/// A microsecond.
pub const US: Nanos = 1_000;
/// A millisecond.
pub const MS: Nanos = 1_000_000;
/// A second.
pub const S: Nanos = 1_000_000_000;

/// Lost, damaged and refused frames of a thousand, below which no connection may break: seven
/// retries of seven lost messages do not happen by accident.
pub const LIGHT: u32 = 30;
/// An interruption of the link that transport retries outlast.
pub const SHORT: Nanos = 50 * MS;

/// Kinds of fault, each a row of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Frames of a host are lost at random.
    Loss,
    /// Frames are doubled.
    Duplication,
    /// Frames overtake each other.
    Reordering,
    /// Bits flip.
    Corruption,
    /// Frames arrive late.
    Delay,
    /// Chosen frames of connections are lost: answers, or what is answered.
    Frames,
    /// Messages of connection management are lost, doubled or late.
    Mads,
    /// Questions where a peer is, or answers to them, are lost.
    Neighbours,
    /// The link is down for a while.
    Unplug,
    /// The function is reset under its driver.
    Reset,
    /// The firmware dies.
    Death,
    /// Commands are answered late, or without an event.
    SlowCommands,
    /// A command is refused.
    RefusedCommand,
    /// A command is never answered.
    MutedCommand,
    /// The firmware asks for pages, or gives some back.
    Pages,
    /// A host does nothing for a while.
    Pause,
    /// The consumers of a host do not look at one of its Event Dispatchers for a while.
    Neglect,
    /// Time passes and nobody runs.
    Jump,
    /// The adapter is closed and opened.
    Reopen,
}

/// The catalogue: a kind of fault and the chance, in 100, that a seed has it.
pub const CATALOGUE: [(Kind, usize); 19] = [
    (Kind::Loss, 45),
    (Kind::Duplication, 30),
    (Kind::Reordering, 30),
    (Kind::Corruption, 25),
    (Kind::Delay, 30),
    (Kind::Frames, 30),
    (Kind::Mads, 35),
    (Kind::Neighbours, 25),
    (Kind::Unplug, 25),
    (Kind::Reset, 20),
    (Kind::Death, 15),
    (Kind::SlowCommands, 30),
    (Kind::RefusedCommand, 15),
    (Kind::MutedCommand, 10),
    (Kind::Pages, 30),
    (Kind::Pause, 35),
    (Kind::Neglect, 50),
    (Kind::Jump, 20),
    (Kind::Reopen, 25),
];

/// A fault, at a host.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Where.
    pub host: usize,
    /// What.
    pub what: What,
}

/// What goes wrong.
#[derive(Clone, Debug)]
pub enum What {
    /// Chances of random faults for the frames that the host sends, for a while.
    Rates(Rates, Nanos),
    /// The host's next frames arrive later.
    Late(u32, Nanos),
    /// Of the next frames of this kind that the host sends so many arrive, then so many are lost.
    Frames(Class, u32, u32),
    /// The next CM messages of this kind that the host sends.
    Mads(u16, u32, Frame),
    /// The first ARP or Neighbor Discovery frame that the host sends, or the next, is lost.
    Neighbours,
    /// The cable is out for a while; with `true` the port says so.
    Unplug(Nanos, bool),
    /// Function level reset.
    Reset,
    /// Fatal health, with this syndrome.
    Death(u8),
    /// The next commands are answered this much later.
    SlowCommands(u32, Nanos),
    /// The next commands are answered without an event.
    SilentCommands(u32),
    /// The command after so many others is refused.
    RefusedCommand(u32),
    /// The command after so many others is never answered.
    MutedCommand(u32),
    /// The firmware asks for so many pages.
    Pages(i32),
    /// The host does nothing for a while.
    Pause(Nanos),
    /// Nobody looks at the Event Dispatcher of this number for a while.
    Neglect(usize, Nanos),
    /// All clocks jump.
    Jump(Nanos),
    /// The adapter is closed and opened.
    Reopen,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host;
        match &self.what {
            What::Rates(r, time) => write!(
                f,
                "frames of h{host}: lost {}, doubled {}, damaged {}, overtaken {} of 1000, for {} us",
                r.drop,
                r.duplicate,
                r.corrupt,
                r.reorder,
                time / US
            ),
            What::Late(count, by) => {
                write!(f, "next {count} frames of h{host}: {} us late", by / US)
            }
            What::Frames(class, after, count) => {
                write!(f, "{count} frames of h{host} after {after} others: {class:?}: Drop")
            }
            What::Mads(id, count, fault) => {
                write!(f, "next {count} CM messages {id:#x} of h{host}: {fault:?}")
            }
            What::Neighbours => write!(f, "next ARP or ND frame of h{host}: Drop"),
            What::Unplug(time, seen) => {
                write!(f, "cable of h{host} out for {} us, seen: {seen}", time / US)
            }
            What::Reset => write!(f, "function of h{host} reset"),
            What::Death(syndrome) => write!(f, "firmware of h{host} dies, syndrome {syndrome:#x}"),
            What::SlowCommands(count, by) => {
                write!(f, "next {count} commands of h{host}: {} us late", by / US)
            }
            What::SilentCommands(count) => write!(f, "next {count} commands of h{host}: no event"),
            What::RefusedCommand(after) => {
                write!(f, "command of h{host} after {after} others: refused")
            }
            What::MutedCommand(after) => {
                write!(f, "command of h{host} after {after} others: never answered")
            }
            What::Pages(count) => write!(f, "firmware of h{host} asks for {count} pages"),
            What::Pause(time) => write!(f, "h{host} does nothing for {} us", time / US),
            What::Neglect(which, time) => {
                write!(f, "h{host} does not look at dispatcher {which} for {} us", time / US)
            }
            What::Jump(by) => write!(f, "clocks jump by {} us", by / US),
            What::Reopen => write!(f, "adapter of h{host} closed and opened"),
        }
    }
}

/// A fault of a kind.
pub fn draw(kind: Kind, rng: &mut Rng, hosts: usize) -> Fault {
    let time = rng.of(&[20 * US, 200 * US, 2 * MS, 20 * MS, 200 * MS]);
    let low = [1, 5, 10, LIGHT, 100, 250];
    let none = Rates::default();
    let what = match kind {
        Kind::Loss => What::Rates(Rates { drop: rng.of(&low), ..none }, time),
        Kind::Duplication => What::Rates(Rates { duplicate: rng.of(&low), ..none }, time),
        Kind::Reordering => What::Rates(Rates { reorder: rng.of(&low), ..none }, time),
        Kind::Corruption => What::Rates(Rates { corrupt: rng.of(&low), ..none }, time),
        Kind::Delay => {
            What::Late(1 + rng.below(8) as u32, rng.of(&[3 * US, 30 * US, 300 * US, 5 * MS]))
        }
        Kind::Frames => {
            let class = rng.of(&[
                Class::Message,
                Class::Request,
                Class::Response,
                Class::Response,
                Class::Acknowledgement,
            ]);
            What::Frames(class, rng.of(&[0, 0, 1, 3]), rng.of(&[1, 1, 2, 5]))
        }
        Kind::Mads => {
            let id = rng.of(&[
                attribute::REQ,
                attribute::REP,
                attribute::RTU,
                attribute::RTU,
                attribute::REJ,
                attribute::DREQ,
                attribute::DREP,
            ]);
            let fault = rng.of(&[Frame::Drop, Frame::Drop, Frame::Duplicate, Frame::Delay(3 * MS)]);
            What::Mads(id, 1 + rng.below(3) as u32, fault)
        }
        Kind::Neighbours => What::Neighbours,
        Kind::Unplug => {
            What::Unplug(rng.of(&[100 * US, 5 * MS, SHORT, 500 * MS, 8 * S]), rng.percent(50))
        }
        Kind::Reset => What::Reset,
        Kind::Death => What::Death(rng.of(&[0x01, 0x07, 0x10])),
        Kind::SlowCommands if rng.percent(30) => What::SilentCommands(1 + rng.below(4) as u32),
        Kind::SlowCommands => {
            What::SlowCommands(1 + rng.below(6) as u32, rng.of(&[10 * US, MS, 30 * MS]))
        }
        Kind::RefusedCommand => What::RefusedCommand(rng.below(6) as u32),
        Kind::MutedCommand => What::MutedCommand(rng.below(6) as u32),
        Kind::Pages => What::Pages(rng.of(&[1, 8, 64, -1, -8])),
        Kind::Pause => What::Pause(rng.of(&[50 * US, MS, 20 * MS, 300 * MS])),
        Kind::Neglect => {
            What::Neglect(rng.below(64), rng.of(&[50 * US, 200 * US, 500 * US, 5 * MS]))
        }
        Kind::Jump => What::Jump(rng.of(&[100 * US, 10 * MS, 700 * MS, 3 * S])),
        Kind::Reopen => What::Reopen,
    };
    Fault { host: rng.below(hosts), what }
}
