//! All cells of the catalogue of faults: none fails, and each has the outcome that `docs/faults.md`
//! has for it. `cargo xtask faults --bless` writes that page.
#![expect(clippy::unwrap_used, reason = "test code: a panic here is a failed test")]

use std::sync::atomic::{AtomicU64, Ordering};

use dat_tests::faults::rows::reset_before;
use dat_tests::faults::{Phase, cell, page, process};

fn compare(rows: &[String], names: &[&str]) {
    let file = page::file();
    let text = std::fs::read_to_string(&file).unwrap();
    let differ = page::differences(rows, names, &text);
    assert!(differ.is_empty(), "`cargo xtask faults --bless` writes {file:?}:\n{differ:#?}");
}

#[test]
fn each_fault_in_each_phase() {
    let cells = page::cells(&[], &|_| {});
    let wrong = cells.iter().filter(|cell| !cell.wrong.is_empty());
    let wrong: Vec<_> = wrong.map(|cell| (page::line(cell), &cell.wrong)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let names: Vec<&str> = page::rows(&[]).map(|row| row.name).collect();
    compare(&cells.iter().map(page::line).collect::<Vec<_>>(), &names);
}

/// Each fault of a process in one phase; `cargo xtask faults --processes` has them in all.
#[test]
fn each_fault_of_a_process_in_one_phase() {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_faults"));
    let text = std::fs::read_to_string(page::file()).unwrap();
    for (fault, phase) in process::PROCESSES.iter().zip(Phase::ALL.into_iter().cycle()) {
        let seen = process::cell(program, fault, phase);
        let seen = seen.unwrap_or_else(|error| panic!("{}: {error:#}", fault.name));
        let row = page::process_line(fault, phase, &seen);
        assert!(text.contains(&row), "the page has not {row}");
    }
}

#[test]
fn the_catalogue_is_large_and_nearly_all_of_it_strikes() {
    let all: Vec<_> = page::rows(&[]).collect();
    let never = all.iter().map(|row| row.never.len()).sum::<usize>();
    assert!(all.len() >= 120 && never * 10 <= all.len() * Phase::ALL.len(), "{never}");
    let mut names: Vec<_> = all.iter().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all.len());
}

#[test]
fn without_a_fault_nothing_is_seen() {
    let (outcome, wrong) = cell::attempt(None, Phase::Closing);
    assert_eq!((outcome.sees.as_str(), outcome.peer.as_str()), ("nothing", "nothing"), "{wrong:?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A reset from outside before each register write of each phase, until there is none left.
#[test]
fn a_reset_before_every_register_write() {
    for phase in Phase::ALL {
        let (next, last) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    loop {
                        let write = next.fetch_add(1, Ordering::Relaxed);
                        if write >= last.load(Ordering::Relaxed) {
                            return;
                        }
                        let cell = cell::run(&reset_before(write), phase);
                        if cell.wrong.iter().any(|wrong| wrong.ends_with("strikes nothing")) {
                            last.fetch_min(write, Ordering::Relaxed);
                        } else {
                            let line = page::line(&cell);
                            assert!(cell.wrong.is_empty(), "{write}: {line}: {:#?}", cell.wrong);
                        }
                    }
                });
            }
        });
        let writes = last.into_inner();
        assert!(writes > 20, "{}: {writes}", phase.name());
    }
}
