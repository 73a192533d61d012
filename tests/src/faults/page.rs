//! All cells, and `docs/faults.md` as they write it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

use super::cell::{self, Cell, Outcome};
use super::process::{Process, Seen};
use super::rows::GROUPS;
use super::what::{Phase, Row};
use crate::host::inproc::lock;

const HEAD: &str = "\
# Faults

Made by `cargo xtask faults --bless`, checked by `cargo xtask test`. Do not edit.

Each fault strikes in each of four phases of a consumer's work. The run goes on to its end; then an
adapter is opened on the same host, connects and moves data, and all memory, firmware pages and
mappings are back. Where a cell says *reset*, the host resets the function first, as opening a device
does (`Host::renew`, `dat`); all other adapters were opened without.

| phase | the consumer |
|---|---|
| bring-up | opens the adapter, makes its objects, takes its first connection |
| connecting | connects, and takes another connection, with some traffic |
| in traffic | has sends, RDMA writes and reads outstanding both ways, registers memory, takes another connection |
| closing | is asked for a connection, disconnects with requests outstanding, frees, closes |

What it sees are results of its calls, in the words of the driver's errors, completions that are no
success, and events that it would not see without the fault. *Within* is the time from the strike
until all had ended, of the model's time; the consumer has set `Config::command_timeout` to 5 s and
connects with a limit of 20 s.
";

/// The page, from the root of the workspace.
#[must_use]
pub fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/faults.md")
}

/// Whether a name is wanted: all are, or those that contain one of `only`.
#[must_use]
pub fn wanted(name: &str, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|only| name.contains(only.as_str()))
}

/// All faults whose names contain one of `only`.
pub fn rows(only: &[String]) -> impl Iterator<Item = &'static Row> {
    let rows = GROUPS.iter().flat_map(|group| group.rows);
    rows.filter(move |row| wanted(row.name, only))
}

/// Runs the cells of these faults, on as many threads as there are processors; `each` sees a cell when
/// it has ended.
#[must_use]
pub fn cells(only: &[String], each: &(dyn Fn(&Cell) + Sync)) -> Vec<Cell> {
    let all = rows(only).flat_map(|row| Phase::ALL.map(|phase| (row, phase)));
    let (work, done) = (Mutex::new(all.enumerate()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some((n, (row, phase))) = lock(&work).next() else { break };
                    let cell = cell::run(row, phase);
                    each(&cell);
                    lock(&done).push((n, cell));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, cell)| cell).collect()
}

/// A row of the page.
#[must_use]
pub fn line(cell: &Cell) -> String {
    let (name, phase) = (cell.row.name, cell.phase.name());
    match &cell.outcome {
        Ok(Outcome { sees, peer, within, then }) => {
            format!("| {name} | {phase} | {sees} | {peer} | {within} | {then} |")
        }
        Err(why) => format!("| {name} | {phase} | cannot strike: {why} | | | |"),
    }
}

/// A row of a fault of a process.
#[must_use]
pub fn process_line(process: &Process, phase: Phase, seen: &Seen) -> String {
    let Seen { sees, then, .. } = seen;
    format!("| {} | {} | {sees} | {then} |", process.name, phase.name())
}

/// The page of all cells, and of the rows of processes.
#[must_use]
pub fn page(cells: &[Cell]) -> String {
    let mut text = HEAD.to_owned();
    let mut cells = cells.iter();
    for group in GROUPS {
        let _ = write!(text, "\n## {}\n\n{}\n\n", group.name, group.is);
        text.push_str("| fault | what it is | may take |\n|---|---|---|\n");
        for row in group.rows {
            let _ = writeln!(text, "| {} | {} | {} |", row.name, row.is, row.loses.name());
        }
        text.push_str("\n| fault | phase | the consumer sees | its peer sees | within | then |\n");
        text.push_str("|---|---|---|---|---|---|\n");
        for cell in cells.by_ref().take(Phase::ALL.len() * group.rows.len()) {
            let _ = writeln!(text, "{}", line(cell));
        }
    }
    text
}

/// Rows of a run that the page has not, and rows of the page, of faults with those names, that the
/// run has not.
#[must_use]
pub fn differences(rows: &[String], names: &[&str], page: &str) -> Vec<String> {
    let has: BTreeSet<&str> = page.lines().collect();
    let ran: BTreeSet<&str> = rows.iter().map(String::as_str).collect();
    let of_phase = |line: &str| {
        let mut fields = line.split(" | ");
        let name = fields.next().and_then(|name| name.strip_prefix("| "));
        let phase = fields.next();
        name.is_some_and(|name| names.contains(&name))
            && Phase::ALL.iter().any(|known| Some(known.name()) == phase)
    };
    let new = ran.difference(&has).map(|row| format!("the run has   {row}"));
    let old = has.difference(&ran).filter(|row| of_phase(row));
    new.chain(old.map(|row| format!("the page has  {row}"))).collect()
}
