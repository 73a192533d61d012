//! Data over a wire that loses, corrupts, reorders and doubles 15 % of the frames each: what arrives
//! is bit-exact.
//!
//! At these rates 30 % of the frames do not arrive, and a packet or its acknowledgement fails in
//! every other attempt, so that all seven retries fail about once in 200 such packets: the
//! connection breaks, as it must. The consumer makes it anew and goes on with the first message that
//! no completion has confirmed.

use std::fmt;
use std::time::{Duration, Instant as Real};

use dat_core::{DtoEvent, DtoOperation, DtoStatus, EpState, Event};
use mlx5_model::wire::impair::{Rates, Struck};

use crate::pair::Stage;
use crate::session::{LIMIT, Session, Setup};

/// Of each fault, in 1/1000. A frame meets one at most.
pub const RATES: Rates = Rates { drop: 150, corrupt: 150, reorder: 150, duplicate: 150, pkey: 0 };
/// Messages of a side that are under way together: sends, writes and reads in turn. What follows a
/// lost packet is sent again, so that more of them would only be lost more often.
const MESSAGES: usize = 6;
/// The longest.
const LONGEST: usize = 8 << 10;
/// Attempts to connect in a row, and the time between two.
const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_secs(2);
const LENGTHS: [usize; 7] = [LONGEST, 4096, LONGEST, 1, 5000, LONGEST, 2049];

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Bytes that arrived, to each side.
    pub bytes: [u64; 2],
    /// Connections that broke.
    pub broken: u64,
    /// Attempts to connect that came to nothing.
    pub refused: u64,
    /// Packets that were sent again.
    pub again: u64,
    /// Faults of both directions.
    pub struck: [Struck; 2],
    /// How long it took.
    pub time: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |count: fn(&Struck) -> u64| self.struck.iter().map(count).sum::<u64>();
        write!(
            f,
            "{} and {} MiB bit-exact in {:.1} s: {} frames lost, {} corrupt, {} overtaken, {} \
             doubled; {} packets sent again, {} connections broken and made anew, {} attempts failed",
            self.bytes[0] >> 20,
            self.bytes[1] >> 20,
            self.time.as_secs_f64(),
            sum(|struck| struck.drop),
            sum(|struck| struck.corrupt),
            sum(|struck| struck.reorder),
            sum(|struck| struck.duplicate),
            self.again,
            self.broken,
            self.refused
        )
    }
}

/// Moves at least so many bytes to each side.
///
/// # Panics
/// If a byte is wrong, or anything ends otherwise than by a retry count.
#[must_use]
pub fn run(bytes: u64, seed: u64) -> Report {
    let stage = Stage { seed, ..Stage::default() };
    let setup = Setup { stage, bytes: 4 * MESSAGES * LONGEST, merged: true, ..Setup::default() };
    let start = Real::now();
    let mut report = setup.connected(|session| {
        session.lines.iter().for_each(|line| line.rates(RATES));
        let mut report = Report::default();
        for round in 0.. {
            if report.bytes.iter().all(|arrived| *arrived >= bytes) {
                break;
            }
            messages(session, round, &mut report);
        }
        report.struck = [0, 1].map(|side| session.lines[side].struck());
        let slots = session.pair.slots.iter();
        report.again = slots.map(|slot| slot.hca().stats().retransmissions).sum();
        session.lines.iter().for_each(|line| line.rates(Rates::default()));
        report
    });
    report.time = start.elapsed();
    report
}

/// A message of a round.
#[derive(Clone, Copy)]
struct Message {
    /// Who asks for it.
    side: usize,
    n: usize,
    len: usize,
    contents: u32,
}

impl Message {
    fn new(round: u32, side: usize, n: usize) -> Self {
        let len = LENGTHS[(round as usize * 5 + side * 3 + n) % LENGTHS.len()];
        Self { side, n, len, contents: (round * 2 + side as u32) * MESSAGES as u32 + n as u32 }
    }

    const fn operation(self) -> DtoOperation {
        [DtoOperation::Send, DtoOperation::RdmaWrite, DtoOperation::RdmaRead][self.n % 3]
    }

    /// Where it is, and who gets it, where.
    fn ends(self) -> [(usize, usize); 2] {
        let kind = match self.operation() {
            DtoOperation::RdmaRead => [(1 - self.side, 2), (self.side, 3)],
            _ => [(self.side, 0), (1 - self.side, 1)],
        };
        kind.map(|(side, area)| (side, (area * MESSAGES + self.n) * LONGEST))
    }

    fn post(self, session: &mut Session<'_>) {
        let (side, cookie) = (self.side, self.n as u64);
        let [(from, source), (to, target)] = self.ends();
        match self.operation() {
            DtoOperation::Send => session.send(side, source, self.len, cookie),
            DtoOperation::RdmaRead => {
                let far = session.far(from, source, self.len);
                session.read_from(side, target, self.len, far, cookie);
            }
            _ => {
                let far = session.far(to, target, self.len);
                session.write_to(side, source, self.len, far, cookie);
            }
        }
    }
}

/// Connects the Endpoints. An attempt of which all frames of one kind were lost is made anew: all
/// questions for the MAC of the peer, first of all.
fn connect(session: &mut Session<'_>, report: &mut Report) {
    let eps = [0, 1].map(|side| session.sides[side].ep);
    let requests = session.sides[1].cr;
    for _ in 0..ATTEMPTS {
        session.ask(eps[0], b"hello", LIMIT);
        let connected = session.pair.until(LIMIT, |pair| {
            let now = pair.now();
            while let Ok(Event::ConnectionRequest { cr, .. }) = pair.ias[1].evd_dequeue(requests) {
                pair.ias[1].cr_accept(now, cr, Some(eps[1]), b"welcome").unwrap();
            }
            match [0, 1].map(|side| pair.ias[side].ep_query(eps[side]).unwrap().state) {
                [EpState::Connected, EpState::Connected] => Some(true),
                [EpState::Disconnected, EpState::Disconnected | EpState::Unconnected] => {
                    Some(false)
                }
                _ => None,
            }
        });
        let connected = connected.unwrap_or_else(|| panic!("no connection: {}", states(session)));
        for (ia, side) in session.pair.ias.iter_mut().zip(&session.sides) {
            while ia.evd_dequeue(side.request).is_ok() {}
            if !connected {
                ia.ep_reset(side.ep).unwrap();
            }
        }
        if connected {
            return;
        }
        report.refused += 1;
        // What could not be resolved is not asked for again at once.
        let _: Option<()> = session.pair.until(PAUSE, |_| None);
    }
    panic!("no connection after {ATTEMPTS} attempts");
}

/// What both Endpoints say of themselves.
fn states(session: &mut Session<'_>) -> String {
    let states = [0, 1].map(|side| session.pair.ias[side].ep_get_status(session.sides[side].ep));
    format!("{states:?}")
}

/// A round of messages both ways; those that a broken connection leaves are posted again.
fn messages(session: &mut Session<'_>, round: u32, report: &mut Report) {
    let mut open: Vec<Message> =
        (0..2).flat_map(|side| (0..MESSAGES).map(move |n| Message::new(round, side, n))).collect();
    for message in &open {
        let [(side, at), _] = message.ends();
        session.fill(side, at, message.len, message.contents);
    }
    while !open.is_empty() {
        if session.state(0) != EpState::Connected {
            connect(session, report);
        }
        let sends = |message: &&Message| message.operation() == DtoOperation::Send;
        for message in open.iter().filter(sends) {
            let [_, (to, at)] = message.ends();
            session.recv(to, at, message.len, message.n as u64);
        }
        open.iter().for_each(|message| message.post(session));
        let receives = open.iter().filter(sends).count();
        attempt(session, &mut open, receives, report);
    }
}

/// Takes events until all messages are there or the connection has ended, and has the Endpoints
/// ready for the next one.
fn attempt(
    session: &mut Session<'_>,
    open: &mut Vec<Message>,
    mut receives: usize,
    report: &mut Report,
) {
    let mut ended = [false; 2];
    while !open.is_empty() || receives != 0 {
        let (side, event) = next(session);
        match event {
            Event::Dto(DtoEvent { status: DtoStatus::Success, operation, cookie, len, .. }) => {
                if operation == DtoOperation::Receive {
                    receives -= 1;
                    continue;
                }
                let is = |message: &Message| (message.side, message.n as u64) == (side, cookie);
                let at = open.iter().position(is).expect("it is outstanding");
                let message = open.remove(at);
                assert_eq!(operation, message.operation());
                assert_eq!(len as usize, message.len);
                let [_, (to, at)] = message.ends();
                session.check(to, at, message.len, message.contents);
                report.bytes[to] += message.len as u64;
            }
            // By its retries, or behind one.
            Event::Dto(DtoEvent {
                status: DtoStatus::ErrTransport | DtoStatus::ErrFlushed,
                ..
            }) => {}
            Event::Broken(_) | Event::Disconnected(_) => {
                assert!(!ended[side], "side {side}: {event:?} comes twice");
                ended[side] = true;
                if ended == [true; 2] {
                    report.broken += 1;
                    for side in 0..2 {
                        let ep = session.sides[side].ep;
                        session.pair.ias[side].ep_reset(ep).unwrap();
                    }
                    return;
                }
            }
            other => panic!("side {side}: {other:?}"),
        }
    }
}

fn next(session: &mut Session<'_>) -> (usize, Event) {
    let evds = [0, 1].map(|side| session.sides[side].request);
    let event = session.pair.until(LIMIT, |pair| {
        (0..2).find_map(|side| Some((side, pair.ias[side].evd_dequeue(evds[side]).ok()?)))
    });
    event.unwrap_or_else(|| {
        panic!("nothing comes within {LIMIT:?} of model time: {}", states(session))
    })
}
