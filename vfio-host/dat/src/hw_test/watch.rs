//! Sees every command of the driver: writes it to the report, with its latency, and keeps it for
//! what follows from it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hca_mlx5::cmd::dump::{Direction, Dump, Observer};
use hca_mlx5::prm::At;
use hca_mlx5::prm::cmd::{InputHead, Opcode};
use hca_mlx5::prm::pages::{ManagePagesIn, ManagePagesOut, Need, PageOp};
use hca_mlx5::prm::qp::{AddressPath, CONTEXT_AT, PRIMARY_PATH_AT};
use hca_mlx5::prm::roce::{ROCE_ADDRESS, RoceAddress};
use hca_mlx5::prm::vport::{MODIFIED_CONTEXT, NicVportContext, QUERIED_CONTEXT};
use serde_json::json;

use super::names::Mac;
use super::report::{Finding, Report, fail, hex, micros};

/// Most commands kept.
const KEPT: usize = 20_000;

/// What becomes of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Each is announced on disk and written.
    #[default]
    Full,
    /// Each is announced and kept, but not written: others like it are in the report.
    Brief,
    /// Nothing, while commands are measured.
    Off,
}

/// A command that came back.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) op: Opcode,
    pub(crate) op_mod: u16,
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
    pub(crate) us: f64,
    /// It was sent while another one was under way.
    pub(crate) nested: bool,
}

impl Command {
    /// The status in its answer.
    pub(crate) fn status(&self) -> u8 {
        self.output.first().copied().unwrap_or(u8::MAX)
    }
}

#[derive(Debug)]
struct Flight {
    op: Opcode,
    input: Vec<u8>,
    start: Instant,
}

#[derive(Debug, Default)]
struct Seen {
    mode: Mode,
    flights: Vec<Flight>,
    commands: Vec<Command>,
}

/// The observer.
pub(crate) struct Watch<'r> {
    report: &'r Report,
    seen: Mutex<Seen>,
}

impl<'r> Watch<'r> {
    /// Makes one.
    pub(crate) fn new(report: &'r Report) -> Self {
        Self { report, seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on commands are treated so.
    pub(crate) fn set(&self, mode: Mode) {
        self.seen().mode = mode;
    }

    /// Forgets the commands so far.
    pub(crate) fn forget(&self) {
        let seen = &mut *self.seen();
        seen.commands.clear();
        seen.flights.clear();
    }

    /// How many commands there are.
    pub(crate) fn count(&self) -> usize {
        self.seen().commands.len()
    }

    /// Runs `look` over the commands since the last [`Watch::forget`].
    pub(crate) fn commands<T>(&self, look: impl FnOnce(&[Command]) -> T) -> T {
        look(&self.seen().commands)
    }

    fn sent(&self, op: Opcode, message: &[u8]) {
        self.learn(op, Direction::Input, message);
        let mode = self.seen().mode;
        if mode != Mode::Off {
            let head = InputHead(message);
            let (opcode, op_mod) = (head.opcode(), head.op_mod());
            let step = self.report.step();
            let value =
                json!({ "step": step, "opcode": opcode, "op_mod": op_mod, "name": op.name() });
            self.report.line("sends", value, mode == Mode::Full);
        }
        let input = message.to_vec();
        self.seen().flights.push(Flight { op, input, start: Instant::now() });
    }

    fn came(&self, op: Opcode, message: &[u8]) {
        let flight = {
            let flights = &mut self.seen().flights;
            flights.iter().rposition(|flight| flight.op == op).map(|nth| (nth, flights.remove(nth)))
        };
        let Some((nth, Flight { input, start, .. })) = flight else { return };
        let us = micros(start);
        self.learn(op, Direction::Output, message);
        let head = InputHead(&*input);
        let (opcode, op_mod) = (head.opcode(), head.op_mod());
        let mode = self.seen().mode;
        if mode == Mode::Full {
            let (mut from, mut to) = (input.clone(), message.to_vec());
            self.report.names(|names| {
                names.scrub(&mut from);
                names.scrub(&mut to);
            });
            self.report.line(
                "command",
                json!({
                    "step": self.report.step(), "opcode": opcode, "op_mod": op_mod,
                    "in": hex(&from), "out": hex(&to), "us": us,
                }),
                false,
            );
        }
        let seen = &mut *self.seen();
        // Pages are counted even then.
        let kept = mode != Mode::Off || op == Opcode::ManagePages;
        if kept && seen.commands.len() < KEPT {
            let output = message.to_vec();
            seen.commands.push(Command { op, op_mod, input, output, us, nested: nth > 0 });
        }
    }

    /// Learns the names in a message, before it is written.
    fn learn(&self, op: Opcode, direction: Direction, message: &[u8]) {
        let mac = |word: u64| {
            let [_, _, mac @ ..] = word.to_be_bytes();
            mac
        };
        let halves = |high: u16, low: u32| mac(u64::from(high) << 32 | u64::from(low));
        let mut macs: Vec<Mac> = Vec::new();
        let mut guids = Vec::new();
        match (op, direction) {
            (Opcode::QueryNicVportContext, Direction::Output) => {
                let context = NicVportContext(At::<_, QUERIED_CONTEXT>(message));
                macs.push(mac(context.permanent_address()));
                guids.extend([
                    context.node_guid(),
                    context.port_guid(),
                    context.system_image_guid(),
                ]);
            }
            (Opcode::ModifyNicVportContext, Direction::Input) => {
                let context = NicVportContext(At::<_, MODIFIED_CONTEXT>(message));
                macs.push(mac(context.permanent_address()));
                let list = message
                    .get(MODIFIED_CONTEXT + NicVportContext::<[u8; 256]>::SIZE..)
                    .unwrap_or_default();
                macs.extend(
                    list.chunks_exact(8)
                        .filter_map(<[_]>::first_chunk::<8>)
                        .map(|e| mac(u64::from_be_bytes(*e))),
                );
            }
            (Opcode::SetRoceAddress, Direction::Input)
            | (Opcode::QueryRoceAddress, Direction::Output) => {
                let entry = RoceAddress(At::<_, ROCE_ADDRESS>(message));
                macs.push(halves(entry.source_mac_47_32(), entry.source_mac_31_0()));
            }
            (Opcode::Init2RtrQp, Direction::Input) => {
                let path = AddressPath(At::<_, { CONTEXT_AT + PRIMARY_PATH_AT }>(message));
                macs.push(halves(path.rmac_47_32(), path.rmac_31_0()));
            }
            _ => {}
        }
        self.report.names(|names| {
            macs.into_iter().for_each(|mac| names.mac(mac));
            guids.into_iter().for_each(|guid| names.guid(guid));
        });
    }

    /// Pages that the firmware asked for, by its need, and pages that came back.
    pub(crate) fn pages(&self) -> Pages {
        self.commands(|commands| {
            let mut pages = Pages::default();
            let mut need = 0;
            for command in commands.iter().filter(|command| command.status() == 0) {
                let manages = command.op == Opcode::ManagePages;
                if command.op == Opcode::QueryPages {
                    need = command.op_mod;
                } else if command.op == Opcode::InitHca {
                    need = Need::Regular as u16;
                } else if manages && command.op_mod == PageOp::Give as u16 {
                    let given = ManagePagesIn(&*command.input).input_num_entries();
                    let sum = match need {
                        1 => &mut pages.boot,
                        2 => &mut pages.init,
                        _ => &mut pages.regular,
                    };
                    *sum = sum.saturating_add(given);
                } else if manages && command.op_mod == PageOp::Take as u16 {
                    let got = ManagePagesOut(&*command.output).output_num_entries();
                    pages.returned = pages.returned.saturating_add(got);
                }
            }
            pages
        })
    }
}

/// Pages of the firmware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) boot: u32,
    pub(crate) init: u32,
    pub(crate) regular: u32,
    pub(crate) returned: u32,
}

impl Pages {
    /// All that were given.
    fn given(self) -> u32 {
        self.boot.saturating_add(self.init).saturating_add(self.regular)
    }

    /// All that were given must have come back.
    pub(crate) fn balance(self) -> Finding {
        let (given, returned) = (self.given(), self.returned);
        if given != returned {
            return fail(format!("{given} pages given, {returned} back"));
        }
        Ok(format!("{given} pages given and given back"))
    }
}

impl Observer for Watch<'_> {
    fn command(&self, dump: &Dump<'_>) {
        // So that -vvv prints them, as everywhere.
        tracing::trace!("\n{dump}");
        let message: Vec<u8> = dump.bytes().collect();
        match dump.direction {
            Direction::Input => self.sent(dump.opcode, &message),
            Direction::Output => self.came(dump.opcode, &message),
        }
    }
}
