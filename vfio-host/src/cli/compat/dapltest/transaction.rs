//! A transaction test: its threads, and what each does.
//!
//! A thread connects its connections one after the other; over each the sides tell where their
//! memory is. Then the server says that it is ready, the client when it has heard that of all
//! connections of all threads; and both go through the operations as often as they are told, all
//! connections of a thread in step. At the end the server says that it is done, then the client.
//!
//! Verified (`-V`): in round N of 0 and on, all that is moved is the byte N + 1. The last three
//! operations keep the sides apart: the client looks when it has the first, the server when it has
//! the second, and each writes the next round's bytes then.

use std::cell::Cell;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::super::super::failure::Failure;
use super::buffers::Note;
use super::hub::{Hub, Task, all};
use super::leg::{self, Leg};
use super::terms::Terms;
use super::wire::{Op, Transfer};
use crate::Host;

/// What a test has moved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ran {
    /// The slowest thread's time.
    pub(super) time: Duration,
    /// Operations of all connections.
    pub(super) operations: u64,
    /// Bytes sent by this side.
    pub(super) sent: u64,
    /// Bytes received.
    pub(super) received: u64,
    /// Bytes read, by whichever side.
    pub(super) read: u64,
    /// Bytes written, likewise.
    pub(super) written: u64,
}

/// The connections of a test, by thread.
#[derive(Debug)]
pub(super) struct Threads<'p, H: Host> {
    threads: Vec<Vec<Leg<'p, H>>>,
}

impl<'p, H: Host> Threads<'p, H> {
    /// Makes them. The ports of a server are open from here on.
    pub(super) fn new(hub: &Hub<'_, '_, 'p, H>, terms: &Terms) -> Result<Self, Failure> {
        let mut made = Self { threads: Vec::new() };
        for thread in 0..terms.threads {
            made.threads.push(Vec::new());
            for nth in 0..terms.eps {
                let leg = leg::port(terms.first_port, thread * terms.eps + nth, terms.peer)
                    .and_then(|port| Leg::new(hub, terms, port));
                match (leg, made.threads.last_mut()) {
                    (Ok(leg), Some(legs)) => legs.push(leg),
                    (Ok(_), None) => {}
                    (Err(failure), _) => {
                        // What failed first is what is told.
                        let _ = made.free(hub);
                        return Err(failure);
                    }
                }
            }
        }
        Ok(made)
    }

    /// Gives them back.
    pub(super) fn free(self, hub: &Hub<'_, '_, 'p, H>) -> Result<(), Failure> {
        let legs = self.threads.into_iter().flatten();
        legs.map(|leg| leg.free(hub)).fold(Ok(()), Result::and)
    }

    /// Runs the test to its end.
    pub(super) async fn run(
        &mut self,
        hub: &Hub<'_, '_, 'p, H>,
        terms: &Terms,
        bar: &ProgressBar,
    ) -> Result<Ran, Failure> {
        let shared = Shared {
            waiting: Cell::new(terms.threads * terms.eps),
            ran: Cell::new(Ran::default()),
            bar,
        };
        let threads = self.threads.iter_mut().map(|legs| -> Task<'_> {
            let thread = Thread { hub, terms, legs, shared: &shared };
            Box::pin(thread.run())
        });
        let ended = all(threads.collect()).await;
        let eps: Vec<_> = self.threads.iter().flatten().map(Leg::ep).collect();
        hub.part(&eps).await;
        ended.map(|()| shared.ran.get())
    }
}

/// What the threads of a test share.
struct Shared<'a> {
    /// Connections whose server is not ready.
    waiting: Cell<u32>,
    ran: Cell<Ran>,
    bar: &'a ProgressBar,
}

/// One of them.
struct Thread<'a, 'h, 's, 'p, H: Host> {
    hub: &'a Hub<'h, 's, 'p, H>,
    terms: &'a Terms,
    legs: &'a mut [Leg<'p, H>],
    shared: &'a Shared<'a>,
}

impl<H: Host> Thread<'_, '_, '_, '_, H> {
    async fn run(self) -> Result<(), Failure> {
        let Self { hub, terms, .. } = self;
        for leg in self.legs.iter_mut() {
            leg.connect(hub, terms).await?;
            leg.introduce(hub, terms).await?;
        }
        self.fill(0);
        self.ready().await?;
        let start = Instant::now();
        for round in 0..terms.iterations {
            self.round(round).await?;
            self.shared.bar.inc(1);
        }
        self.farewell().await?;
        self.count(start.elapsed());
        Ok(())
    }

    /// Waits until both sides are ready; a client until the servers of all threads are.
    async fn ready(&self) -> Result<(), Failure> {
        let (hub, waiting) = (self.hub, &self.shared.waiting);
        if self.terms.is_server() {
            self.say_all(Note::ReadyOut).await?;
            return self.hear_all(Note::ReadyIn).await;
        }
        for leg in &*self.legs {
            leg.hear(hub, Note::ReadyIn).await?;
            waiting.set(waiting.get().saturating_sub(1));
            hub.stir();
        }
        let peer = self.terms.peer.to_string();
        hub.holds("the message that all are ready", &peer, || waiting.get() == 0).await?;
        self.say_all(Note::ReadyOut).await
    }

    /// Waits until both sides are done.
    async fn farewell(&self) -> Result<(), Failure> {
        if self.terms.is_server() {
            self.say_all(Note::DoneOut).await?;
            self.hear_all(Note::DoneIn).await
        } else {
            self.hear_all(Note::DoneIn).await?;
            self.say_all(Note::DoneOut).await
        }
    }

    async fn say_all(&self, note: Note) -> Result<(), Failure> {
        for leg in &*self.legs {
            leg.say(self.hub, note)?;
        }
        for leg in &*self.legs {
            leg.said(self.hub, note).await?;
        }
        Ok(())
    }

    async fn hear_all(&self, note: Note) -> Result<(), Failure> {
        for leg in &*self.legs {
            leg.hear(self.hub, note).await?;
        }
        Ok(())
    }

    /// All operations once.
    async fn round(&self, round: u32) -> Result<(), Failure> {
        let Self { hub, terms, .. } = *self;
        let last = round + 1 == terms.iterations;
        if last {
            for leg in &*self.legs {
                leg.recv_note(hub, Note::DoneIn)?;
            }
        }
        // Sends of a client whose ends are looked for later: with `-f`.
        let mut deferred = Vec::new();
        for (nth, op) in terms.ops.iter().enumerate() {
            if terms.ours(op) {
                for leg in &*self.legs {
                    leg.post(hub, nth, op.transfer)?;
                }
                if op.deferred && !op.by_server {
                    deferred.push(nth);
                    continue;
                }
                // Those of one connection end in the order in which they were posted.
                for before in deferred.drain(..).chain([nth]) {
                    for leg in &*self.legs {
                        leg.done(hub, terms, before).await?;
                    }
                }
            } else if op.transfer == Transfer::Send {
                self.come(nth, op, last).await?;
                if op.deferred && !deferred.is_empty() {
                    let before = deferred.remove(0);
                    for leg in &*self.legs {
                        leg.done(hub, terms, before).await?;
                    }
                }
            }
            self.look(nth, op, round)?;
        }
        Ok(())
    }

    /// Waits for the messages of an operation, and makes room for the next.
    async fn come(&self, nth: usize, op: &Op, last: bool) -> Result<(), Failure> {
        debug_assert_eq!(op.transfer, Transfer::Send);
        for leg in &*self.legs {
            leg.came(self.hub, self.terms, nth).await?;
        }
        if !last {
            for leg in &*self.legs {
                leg.recv(self.hub, nth)?;
            }
        }
        Ok(())
    }

    /// Compares what a round has moved and prepares the next, if this operation says that the other
    /// side is done with it.
    fn look(&self, nth: usize, op: &Op, round: u32) -> Result<(), Failure> {
        let terms = self.terms;
        let barrier = terms.compared() + usize::from(terms.is_server());
        if !terms.validate || nth != barrier || op.transfer != Transfer::Send {
            return Ok(());
        }
        for (nth, op) in terms.ops.iter().enumerate().take(terms.compared()) {
            let arrives = match op.transfer {
                Transfer::Read => terms.ours(op),
                Transfer::Write | Transfer::Send => !terms.ours(op),
            };
            if arrives {
                self.compare(nth, op, round)?;
            }
        }
        if round + 1 < terms.iterations {
            self.fill(round + 1);
        }
        Ok(())
    }

    fn compare(&self, nth: usize, op: &Op, round: u32) -> Result<(), Failure> {
        for leg in &*self.legs {
            let Some((at, found)) = leg.buffers.differs(nth, pattern(round)) else {
                continue;
            };
            let gaps =
                op.segments > 1 && !op.size.is_multiple_of(256) && op.transfer == Transfer::Read;
            let remedy = if gaps {
                "dapltest lays segments 256 bytes apart and fills nothing in between: give a multiple of 256 bytes"
            } else {
                "the peer sent other contents, or one of the two adapters moved them wrongly: try two of a kind"
            };
            return Err(Failure::new(format!(
                "round {round}, operation {nth} ({} of {} bytes, {} segments) with {}: byte {at} is {found:#x} instead of {:#x}",
                op.transfer.name(),
                op.size,
                op.segments,
                leg.peer,
                pattern(round)
            ))
            .remedy(remedy));
        }
        Ok(())
    }

    /// Writes what a round moves.
    fn fill(&self, round: u32) {
        let terms = self.terms;
        if !terms.validate {
            return;
        }
        for (nth, op) in terms.ops.iter().enumerate().take(terms.compared()) {
            let leaves = match op.transfer {
                Transfer::Read => !terms.ours(op),
                Transfer::Write | Transfer::Send => terms.ours(op),
            };
            if leaves {
                for leg in &*self.legs {
                    leg.buffers.fill(nth, pattern(round));
                }
            }
        }
    }

    fn count(&self, time: Duration) {
        let terms = self.terms;
        let legs = self.legs.len() as u64;
        let times = u64::from(terms.iterations) * legs;
        let mut ran = self.shared.ran.get();
        ran.time = ran.time.max(time);
        ran.operations += times * terms.ops.len() as u64;
        for op in &terms.ops {
            let bytes = u64::from(op.size) * u64::from(op.segments) * times;
            let sum = match op.transfer {
                Transfer::Read => &mut ran.read,
                Transfer::Write => &mut ran.written,
                Transfer::Send if terms.ours(op) => &mut ran.sent,
                Transfer::Send => &mut ran.received,
            };
            *sum += bytes;
        }
        self.shared.ran.set(ran);
    }
}

/// The byte that a round moves; not zero in the first, as memory is at the start.
fn pattern(round: u32) -> u8 {
    let [byte, ..] = round.wrapping_add(1).to_le_bytes();
    byte
}
