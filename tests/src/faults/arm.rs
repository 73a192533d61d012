//! Makes a fault strike, and takes it away again.

use std::sync::{Arc, Mutex};

use mlx5_model::wire::impair::Fault as Frame;
use mlx5_model::{CommandHook, Hca, Verdict};

use super::consumer::Scene;
use super::machine::{Machine, Trap};
use super::what::{Numbers, Pick, What, nth};
use crate::host::inproc::{Slot, enable, lock};
use crate::host::watched::Watched;

/// Answers commands that a trap strikes.
struct Commands(Box<dyn FnMut(u16) -> Verdict + Send>);

impl CommandHook for Commands {
    fn command(&mut self, _: u64, opcode: u16, _: &[u8]) -> Verdict {
        (self.0)(opcode)
    }
}

/// Lets something happen to a device once, when a register write is due.
fn step(slot: &Slot, trap: &Trap, at: u64, act: fn(&mut Hca)) -> bool {
    if trap.strikes(nth(at), slot.world().now()) {
        act(&mut slot.hca());
    }
    true
}

/// A rule for frames of one side, or of both with one count.
fn frames(
    machines: &[Machine; 2],
    from: Option<usize>,
    fault: Frame,
    fits: impl FnMut(usize, &[u8]) -> bool + Send + 'static,
) {
    let fits = Arc::new(Mutex::new(fits));
    for side in (0..2).filter(|side| from.is_none_or(|from| from == *side)) {
        let fits = Arc::clone(&fits);
        let fits = move |frame: &[u8]| (*lock(&fits))(side, frame);
        machines[side].line.rule(0, u32::MAX, fault, fits);
    }
}

impl<'m> Scene<'_, 'm> {
    /// From now on the fault strikes.
    pub fn arm(&mut self, what: What) {
        self.trap.arm();
        let trap = self.trap.clone();
        let clock = self.world.clock();
        let machine: &'m Machine = &self.machines[0];
        let watched: &Watched<'m> = &self.watched[0];
        let now = self.world.now();
        let strikes = move |pick: Pick| trap.strikes(pick, clock.now());
        match what {
            What::Commands(pick, of, verdict) => {
                let hook = Commands(Box::new(move |opcode| {
                    let fits = of.is_none_or(|of| of == opcode) && strikes(pick);
                    if fits && std::env::var_os("FAULTS_TRACE").is_some() {
                        eprintln!("strikes command {opcode:#x}");
                    }
                    if fits { verdict } else { Verdict::Run }
                }));
                machine.slot.hca().set_command_hook(Some(Box::new(hook)));
            }
            What::Writes(pick, kind, change) => {
                machine.slot.hca().set_mangle(Some(Box::new(move |wrote, _, bytes| {
                    if wrote == kind && strikes(pick) {
                        change(bytes);
                    }
                    !bytes.is_empty()
                })));
            }
            What::Events(make) => {
                let numbers = self.numbers();
                // Before the driver has event queues there is nothing to write them to.
                let (trap, clock) = (self.trap.clone(), self.world.clock());
                let slot = &machine.slot;
                let mut waits = 0;
                watched.stores(move |offset| {
                    // After some doorbells of event queues: the queues are there.
                    waits += u32::from(offset >= 0x4000);
                    if waits >= 8 && trap.strikes(nth(0), clock.now()) {
                        let mut hca = slot.hca();
                        let pages = hca.pages_owned();
                        for (queue, event) in make(Numbers { pages, ..numbers }) {
                            hca.inject_event(queue, &event);
                        }
                    }
                    true
                });
            }
            What::Registers(pick, change) => watched.look(move |at, value| {
                let other = change(at, value);
                if other != value && strikes(pick) { other } else { value }
            }),
            What::Stores(pick) => watched.stores(move |_| !strikes(pick)),
            What::Step(at, act) => {
                let (slot, trap) = (&machine.slot, self.trap.clone());
                watched.stores(move |_| step(slot, &trap, at, act));
            }
            What::Frames(pick, from, which, fault) => {
                frames(self.machines, from, fault, move |_, frame| which(frame) && strikes(pick));
            }
            What::Instead(pick, from, which, make) => {
                let lines = [0, 1].map(|side| self.machines[side].line.clone());
                frames(self.machines, from, Frame::Drop, move |side, frame| {
                    let fits = which(frame) && strikes(pick);
                    if fits {
                        make(frame).into_iter().for_each(|frame| lines[1 - side].inject(frame));
                    }
                    fits
                });
            }
            What::Unplugged(span, seen) => {
                let _ = strikes(nth(0));
                machine.line.cut(true);
                if seen {
                    machine.slot.hca().set_link(false);
                }
                self.later.set(Some((
                    now + span,
                    Box::new(|machines| {
                        machines[0].line.cut(false);
                        machines[0].slot.hca().set_link(true);
                    }),
                )));
            }
            What::Vectors(pick, interrupts) => self.vectors = Some((pick, interrupts)),
            What::Grants(pick, ask) => {
                watched.grants(move |asked| !(asked == ask && strikes(pick)));
            }
            What::Refused(reads, span) => {
                let _ = strikes(nth(0));
                let everywhere = 0..u64::MAX;
                if reads {
                    machine.refusals.reads(everywhere);
                } else {
                    machine.refusals.writes(everywhere);
                }
                let clear = |machines: &[Machine; 2]| machines[0].refusals.clear();
                self.later.set(Some((now + span, Box::new(clear))));
            }
            What::Jump(by) => {
                let _ = strikes(nth(0));
                self.jump = by;
            }
            What::Pause(span) => {
                let _ = strikes(nth(0));
                self.paused = now + span;
            }
            What::Suspend(span) => {
                let _ = strikes(nth(0));
                self.paused = now + span;
                machine.slot.hca().flr();
                enable(&mut machine.slot.hca());
            }
        }
    }

    /// Takes the fault away: device, wire and host are well again, as far as they recover.
    pub fn disarm(&mut self) {
        self.trap.disarm();
        for side in 0..2 {
            self.machines[side].slot.hca().set_command_hook(None);
            self.machines[side].slot.hca().set_mangle(None);
            self.machines[side].line.cut(false);
            self.machines[side].slot.hca().set_link(true);
            self.machines[side].refusals.clear();
            self.watched[side].clear();
        }
        (self.vectors, self.paused, self.jump) = (None, 0, 0);
        self.later.set(None);
        self.late.clear();
    }

    /// Numbers of the objects of side 0.
    fn numbers(&self) -> Numbers {
        let Some(open) = &self.sides[0] else { return Numbers::default() };
        let qp = open.ends.first().and_then(|end| open.ia.ep_query(end.ep).ok()?.qp);
        Numbers { qpn: qp.map(|qp| qp.number), pages: 0 }
    }
}
