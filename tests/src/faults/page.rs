//! All cells, and `docs/faults.md` as they write it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

use super::cell::{self, Cell, Outcome};
use super::process::{PROCESSES, Process, Seen, WITHIN};
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

A reset from outside was also tried before every register write of every phase
(`cargo test -p dat-tests --test faults a_reset`).
";

const PROCESS: &str = "\
A process with the adapter meets a signal, forks, or loses what it shares with the device. These run
in real time over vfio-user: one process is the consumer, another has its peer and the devices.
*Within* is the most that a consumer waits until it is connected: from the start of its process (the
next one's, if it was killed), or from the loss of its adapter until it has closed it, reset the
function (`Host::renew`), opened it anew and connected. `cargo xtask faults` prints how long each
took.

A peer holds the connections of a process that was killed until it sends something, or until another
process asks it for a connection with the same queue pair. That request is refused as stale, and
repeated by the driver 0.5 s later; the peer has asked about the old connection meanwhile, and its
consumer sees it end.";

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
    let within = WITHIN.as_secs();
    format!("| {} | {} | {sees} | {within} s | {then} |", process.name, phase.name())
}

/// The page of all cells, and of the rows of processes.
#[must_use]
pub fn page(cells: &[Cell], processes: &[String]) -> String {
    let mut text = HEAD.to_owned();
    let mut cells = cells.iter();
    for group in GROUPS {
        let faults = group.rows.iter().map(|row| (row.name, row.is, row.loses.name()));
        section(&mut text, group.name, group.is, faults);
        text.push_str("| fault | phase | the consumer sees | its peer sees | within | then |\n");
        text.push_str("|---|---|---|---|---|---|\n");
        for cell in cells.by_ref().take(Phase::ALL.len() * group.rows.len()) {
            let _ = writeln!(text, "{}", line(cell));
        }
    }
    let faults = PROCESSES.iter().map(|fault| (fault.name, fault.is, fault.strike.loses()));
    section(&mut text, "Process", PROCESS, faults);
    text.push_str("| fault | phase | the consumer sees | within | then |\n|---|---|---|---|---|\n");
    processes.iter().for_each(|line| text.extend([line, "\n"]));
    text
}

/// Begins a section: what it is about, and its faults.
fn section<'a>(
    text: &mut String,
    name: &str,
    is: &str,
    faults: impl Iterator<Item = (&'a str, &'a str, &'a str)>,
) {
    let _ =
        write!(text, "\n## {name}\n\n{is}\n\n| fault | what it is | may take |\n|---|---|---|\n");
    for (name, is, loses) in faults {
        let _ = writeln!(text, "| {name} | {is} | {loses} |");
    }
    text.push('\n');
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
