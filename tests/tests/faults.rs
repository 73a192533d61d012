//! All cells of the catalogue of faults: none fails, and each has the outcome that `docs/faults.md`
//! has for it. `cargo xtask faults --bless` writes that page.
#![expect(clippy::unwrap_used, reason = "test code: a panic here is a failed test")]

use dat_tests::faults::{Phase, page};

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
    let (outcome, wrong) = dat_tests::faults::cell::attempt(None, Phase::Closing);
    assert_eq!((outcome.sees.as_str(), outcome.peer.as_str()), ("nothing", "nothing"), "{wrong:?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
