//! How often each kind of step is taken.
//!
//! Two of twelve seeds are about everything. The others are narrow: two hosts, a few links, one kind
//! of program and one kind of fault, so that the two meet again and again. The kinds take turns, so
//! that a few seeds hold all of them.

use dat_tests::laws::rng::Rng;
use mlx5_model::OpenFact;
use mlx5_model::host::Nanos;

use crate::faults::{Kind, MS, S, US};

/// Kinds of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Draw {
    Send,
    Immediate,
    Write,
    Read,
    Atomic,
    Echo,
    Replace,
    Bad,
    Receive,
    Connect,
    Disconnect,
    Free,
    Grant,
    Revoke,
    Status,
    Resize,
    Datagram,
    Wait,
    Fault,
}

/// What the steps of a seed are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Everything.
    Everything,
    /// Requests, many of them reads and atomics.
    Transfers,
    /// Connections that begin and end.
    Connections,
    /// Messages to Endpoints that share their receives, and that are reset and freed.
    Receives,
    /// Windows and registrations, and what is done with their keys.
    Keys,
    /// Small Event Dispatchers that several Endpoints share. Nobody looks at them for a while, and
    /// meanwhile they are resized, and Endpoints are reset and freed.
    Queues,
}

/// Each kind with its usual weight.
const EVERYTHING: &[(Draw, usize)] = &[
    (Draw::Send, 300),
    (Draw::Immediate, 60),
    (Draw::Write, 250),
    (Draw::Read, 150),
    (Draw::Atomic, 60),
    (Draw::Echo, 40),
    (Draw::Replace, 40),
    (Draw::Bad, 8),
    (Draw::Receive, 60),
    (Draw::Connect, 45),
    (Draw::Disconnect, 10),
    (Draw::Free, 6),
    (Draw::Grant, 30),
    (Draw::Revoke, 20),
    (Draw::Status, 10),
    (Draw::Resize, 10),
    (Draw::Datagram, 40),
    (Draw::Wait, 6),
    (Draw::Fault, 15),
];

const TRANSFERS: &[(Draw, usize)] = &[
    (Draw::Send, 150),
    (Draw::Immediate, 30),
    (Draw::Write, 100),
    (Draw::Read, 200),
    (Draw::Atomic, 100),
    (Draw::Echo, 30),
    (Draw::Replace, 30),
    (Draw::Receive, 60),
    (Draw::Connect, 20),
    (Draw::Wait, 6),
    (Draw::Fault, 120),
];

const CONNECTIONS: &[(Draw, usize)] = &[
    (Draw::Send, 20),
    (Draw::Write, 10),
    (Draw::Receive, 10),
    (Draw::Connect, 80),
    (Draw::Disconnect, 40),
    (Draw::Free, 10),
    (Draw::Status, 5),
    (Draw::Wait, 30),
    (Draw::Fault, 20),
];

const RECEIVES: &[(Draw, usize)] = &[
    (Draw::Send, 600),
    (Draw::Immediate, 60),
    (Draw::Write, 20),
    (Draw::Receive, 20),
    (Draw::Connect, 60),
    (Draw::Disconnect, 5),
    (Draw::Free, 15),
    (Draw::Fault, 60),
];

const KEYS: &[(Draw, usize)] = &[
    (Draw::Send, 30),
    (Draw::Write, 60),
    (Draw::Read, 60),
    (Draw::Bad, 60),
    (Draw::Receive, 20),
    (Draw::Connect, 100),
    (Draw::Disconnect, 30),
    (Draw::Free, 10),
    (Draw::Grant, 120),
    (Draw::Revoke, 60),
    (Draw::Fault, 10),
];

const QUEUES: &[(Draw, usize)] = &[
    (Draw::Send, 300),
    (Draw::Immediate, 60),
    (Draw::Write, 300),
    (Draw::Read, 60),
    (Draw::Receive, 40),
    (Draw::Connect, 80),
    (Draw::Disconnect, 30),
    (Draw::Free, 15),
    (Draw::Resize, 60),
    (Draw::Fault, 80),
];

impl Program {
    /// The turn of each.
    const TURNS: [Self; 12] = [
        Self::Everything,
        Self::Transfers,
        Self::Queues,
        Self::Receives,
        Self::Keys,
        Self::Connections,
        Self::Everything,
        Self::Transfers,
        Self::Queues,
        Self::Keys,
        Self::Connections,
        Self::Transfers,
    ];

    /// What a seed is about.
    pub(crate) const fn of(seed: u64) -> Self {
        Self::TURNS[(seed % Self::TURNS.len() as u64) as usize]
    }

    /// Kinds of fault that a narrow world has one of.
    pub(crate) const fn faults(self) -> &'static [Kind] {
        match self {
            Self::Everything => &[],
            Self::Transfers => &[Kind::Frames, Kind::Frames, Kind::Frames, Kind::Reordering],
            Self::Connections => &[Kind::Mads, Kind::Mads, Kind::Neighbours, Kind::Pause],
            Self::Receives | Self::Queues => &[Kind::Neglect],
            Self::Keys => &[Kind::Neglect, Kind::Frames, Kind::Reopen],
        }
    }

    /// Some consumers reset an Endpoint as soon as its connection has ended: what waits of it is of
    /// an earlier connection.
    pub(crate) const fn resets(self) -> bool {
        matches!(self, Self::Keys | Self::Queues)
    }

    /// Bytes of a message at most, and requests outstanding at most.
    pub(crate) const fn sizes(self) -> &'static [(usize, usize)] {
        match self {
            Self::Transfers => &[(1024, 16), (4096, 12), (16384, 4)],
            Self::Receives => &[(256, 16), (256, 4)],
            Self::Queues => &[(256, 2), (256, 4)],
            Self::Everything | Self::Connections | Self::Keys => {
                &[(256, 16), (256, 4), (1024, 16), (4096, 12), (16384, 4)]
            }
        }
    }

    /// Consumers take their time to answer a request for a connection, or refuse it, or end the
    /// connection as soon as it is there.
    pub(crate) const fn hesitates(self) -> bool {
        matches!(self, Self::Everything | Self::Connections)
    }

    /// What the devices of a narrow world differ in more often than not.
    pub(crate) const fn facts(self) -> &'static [OpenFact] {
        match self {
            Self::Everything | Self::Transfers | Self::Receives | Self::Queues => &[],
            Self::Connections => &[OpenFact::EqeOrder],
            Self::Keys => &[OpenFact::EqeOrder, OpenFact::KeyIndex],
        }
    }

    /// Links of a narrow world. Where there is one, nobody else finds the peer.
    pub(crate) const fn links(self) -> &'static [usize] {
        match self {
            Self::Everything => &[],
            Self::Connections => &[1, 2, 3],
            Self::Queues => &[2],
            Self::Receives => &[2, 3],
            Self::Transfers | Self::Keys => &[1, 2],
        }
    }

    /// How closely steps follow each other. Where little happens, what is lost stays lost until
    /// somebody misses it.
    pub(crate) const fn paces(self) -> &'static [Nanos] {
        match self {
            Self::Everything => &[US, 3 * US, 10 * US, 40 * US],
            Self::Transfers => &[40 * US, MS, 20 * MS],
            Self::Connections => &[MS, 20 * MS, 200 * MS],
            Self::Receives => &[3 * US, 10 * US, 40 * US],
            Self::Keys | Self::Queues => &[10 * US, 40 * US, 200 * US],
        }
    }

    /// Of so many steps a seed takes one.
    ///
    /// What narrow worlds do not meet soon they do not meet later. A ring has to go round a few
    /// times.
    pub(crate) const fn share(self) -> usize {
        match self {
            Self::Queues => 1,
            Self::Everything | Self::Receives | Self::Connections => 2,
            _ => 3,
        }
    }

    /// Times without a step. What is repeated in vain ends after seconds.
    pub(crate) const fn waits(self) -> &'static [Nanos] {
        match self {
            Self::Connections => &[20 * MS, 400 * MS, 10 * S],
            _ => &[50 * US, MS, 20 * MS, 400 * MS],
        }
    }

    /// Of 100 steps so many come with what makes them hard.
    pub(crate) const fn pairs(self) -> usize {
        match self {
            Self::Everything | Self::Receives | Self::Queues => 0,
            Self::Transfers | Self::Keys => 25,
            Self::Connections => 50,
        }
    }

    /// The steps of a burst are about one end more often than not.
    pub(crate) const fn stays(self) -> bool {
        matches!(self, Self::Keys | Self::Queues)
    }

    /// Weights of a seed: it leaves some kinds of step out and prefers others.
    pub(crate) fn weights(self, rng: &mut Rng) -> Vec<(Draw, usize)> {
        let usual = match self {
            Self::Everything => EVERYTHING,
            Self::Transfers => TRANSFERS,
            Self::Connections => CONNECTIONS,
            Self::Receives => RECEIVES,
            Self::Keys => KEYS,
            Self::Queues => QUEUES,
        };
        // Only a world about everything can do without a kind of step.
        let scales: &[usize] =
            if self == Self::Everything { &[0, 1, 4, 4, 4, 12] } else { &[1, 4, 4, 12] };
        let scaled = usual.iter().map(|&(draw, weight)| {
            let needed = matches!(draw, Draw::Connect | Draw::Receive | Draw::Fault);
            (draw, weight * if needed { 4 } else { rng.of(scales) })
        });
        scaled.collect()
    }
}
