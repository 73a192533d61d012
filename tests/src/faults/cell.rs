//! One cell: a fault in a phase, what the consumers see, and whether all comes back afterwards.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mlx5_model::host::Nanos;

use super::consumer::{Note, Room, Scene};
use super::machine::{Later, Machine, Trap, plug};
use super::what::{Loss, MS, Phase, Row, S, What};
use crate::host::inproc::enable;
use crate::host::watched::Watched;

/// What a cell found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What the consumer of the struck host sees.
    pub sees: String,
    /// What that of its peer sees.
    pub peer: String,
    /// Everything had ended after this, from the strike on.
    pub within: &'static str,
    /// How the adapter works again.
    pub then: &'static str,
}

/// A cell and its result.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The fault.
    pub row: Row,
    /// Where it strikes.
    pub phase: Phase,
    /// What was seen, or why it cannot strike.
    pub outcome: Result<Outcome, &'static str>,
    /// What was wrong.
    pub wrong: Vec<String>,
}

/// Time for a fault to show after the phase in which it struck.
const LINGER: Nanos = 3 * S;
/// The same, where registers read otherwise.
const SLOW: Nanos = 12 * S;
/// The most different things that a cell names.
const MOST: usize = 4;

/// Steps of time that a cell names.
const LADDER: [(Nanos, &str); 10] = [
    (MS, "1 ms"),
    (10 * MS, "10 ms"),
    (100 * MS, "100 ms"),
    (S, "1 s"),
    (2 * S, "2 s"),
    (5 * S, "5 s"),
    (10 * S, "10 s"),
    (30 * S, "30 s"),
    (60 * S, "60 s"),
    (150 * S, "150 s"),
];

/// The step that is not shorter.
#[must_use]
pub fn within(time: Nanos) -> &'static str {
    LADDER.iter().find(|(step, _)| time <= *step).map_or("longer", |(_, name)| name)
}

/// What a consumer saw, each thing once, in order.
fn seen(notes: &[Note], side: usize) -> String {
    let mut all: Vec<&str> = Vec::new();
    for note in notes.iter().filter(|note| note.side == side) {
        if !all.contains(&note.text.as_str()) {
            all.push(&note.text);
        }
    }
    let more = all.len() > MOST;
    all.truncate(MOST);
    match (all.is_empty(), more) {
        (true, _) => "nothing".to_owned(),
        (false, false) => all.join("; "),
        (false, true) => all.join("; ") + "; ...",
    }
}

/// Runs a cell. A panic is one of the things that are wrong.
#[must_use]
pub fn run(row: &Row, phase: Phase) -> Cell {
    let mut cell = Cell { row: *row, phase, outcome: Err(""), wrong: Vec::new() };
    if let Some(why) = row.why_not(phase) {
        cell.outcome = Err(why);
        return cell;
    }
    match catch_unwind(AssertUnwindSafe(|| attempt(Some(row), phase))) {
        Ok((outcome, wrong)) => (cell.outcome, cell.wrong) = (Ok(outcome), wrong),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            cell.wrong.push(format!("panics: {}", text.unwrap_or_default()));
        }
    }
    cell
}

/// Runs all phases, with a fault in one, or with none at all.
#[must_use]
pub fn attempt(row: Option<&Row>, phase: Phase) -> (Outcome, Vec<String>) {
    let (world, machines) = plug();
    let watched = [0, 1].map(|side| Watched::new(&machines[side].slot));
    let mut rooms: Vec<Box<Room<'_, '_>>> = (0..3).map(|_| Box::new(Room::new())).collect();
    let mut scene = Scene {
        world: Arc::clone(&world),
        machines: &machines,
        watched: &watched,
        rooms: rooms.iter_mut(),
        sides: [None, None],
        trap: Trap::default(),
        notes: Vec::new(),
        wrong: Vec::new(),
        vectors: None,
        paused: 0,
        later: Later::join(&world, &machines),
        jump: 0,
        late: VecDeque::new(),
        cookie: 0,
        contents: 0,
    };
    let outcome = scene.whole(row, phase);
    (outcome, scene.wrong)
}

impl Scene<'_, '_> {
    /// All phases, then everything once more.
    fn whole(&mut self, row: Option<&Row>, phase: Phase) -> Outcome {
        if !self.open(1) {
            self.wrong.push("the peer does not open".to_owned());
            return Outcome::default();
        }
        let mut ended = 0;
        for now in Phase::ALL {
            if now != Phase::BringUp && self.sides[0].is_none() {
                break;
            }
            if let Some(row) = row.filter(|_| now == phase) {
                self.arm(row.what);
            }
            self.phase(now);
            if now == phase {
                ended = self.now();
                // Some faults are seen when somebody looks.
                let slow = row.is_some_and(|row| matches!(row.what, What::Registers(..)));
                self.rest(if slow { SLOW } else { LINGER });
                self.disarm();
                self.rest(S);
            }
        }
        let struck = self.trap.struck();
        let gone = self.sides[0].is_some() && !self.close(0);
        let notes = std::mem::take(&mut self.notes);
        let reset = gone || notes.iter().any(|note| note.side == 0 && note.loss == Loss::Adapter);
        let reset =
            reset || notes.iter().any(|note| note.side == 0 && note.text.starts_with("close"));
        if let (Some(row), None) = (row, struck) {
            self.wrong.push(format!("{} strikes nothing", row.name));
        }
        self.judge(row, &notes);
        let at = struck.unwrap_or(0);
        let last = notes.iter().map(|note| note.at).max().unwrap_or(0).max(ended);
        let then = if self.recover(reset) { "the same, opened again" } else { "" };
        Outcome {
            sees: seen(&notes, 0),
            peer: seen(&notes, 1),
            within: within(last.saturating_sub(at)),
            then: if reset { "reset, opened again" } else { then },
        }
    }

    /// Whether no more was lost than the row allows.
    fn judge(&mut self, row: Option<&Row>, notes: &[Note]) {
        let most = row.map_or(Loss::Nothing, |row| row.loses);
        for note in notes {
            let most = if note.side == 0 { most } else { most.min(Loss::Connection) };
            if note.loss > most {
                let Note { side, at, text, .. } = note;
                self.wrong.push(format!("side {side} loses too much at {at}: {text}"));
            }
        }
    }

    /// The adapter works again, and what was taken is back; whether it does.
    fn recover(&mut self, reset: bool) -> bool {
        let Machine { slot, .. } = &self.machines[0];
        if reset {
            slot.hca().flr();
            slot.reclaim();
            enable(&mut slot.hca());
        }
        self.taken(0, "after the fault");
        let complaints = [0, 1].map(|side| self.machines[side].slot.hca().complaints().len());
        if self.open(0) {
            let link = 5;
            if self.connect(link, 0) {
                self.post(link);
                self.drain(link);
                self.end(link, 0, dat_core::CloseFlag::Graceful);
            }
        }
        for side in [0, 1] {
            self.close(side);
            self.taken(side, "at the end");
            let slot = &self.machines[side].slot;
            let all = slot.hca().complaints().to_vec();
            if let Some(new) = all.get(complaints[side]..).filter(|new| !new.is_empty()) {
                self.wrong.push(format!("the model of side {side} complains: {new:?}"));
            }
            let strays = slot.views().strays();
            if strays != 0 {
                self.wrong.push(format!("side {side}: {strays} stores to memory that nobody has"));
            }
        }
        let notes = std::mem::take(&mut self.notes);
        for Note { side, text, .. } in &notes {
            self.wrong.push(format!("afterwards side {side} sees {text}"));
        }
        notes.is_empty()
    }

    /// Everything of a machine is back.
    fn taken(&mut self, side: usize, when: &str) {
        let slot = &self.machines[side].slot;
        let (bytes, pages) = (slot.in_use(), slot.views().pages_out());
        if (bytes, pages) != (0, 0) {
            self.wrong.push(format!("side {side}, {when}: {bytes} bytes and {pages} pages taken"));
        }
    }
}
