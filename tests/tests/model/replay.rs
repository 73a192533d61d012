//! Recorded cards: suites of this program run on models made of recordings (`MODEL_REPLAY`), and
//! the driver on recordings that were changed.
#![expect(clippy::unwrap_used, reason = "test code: a panic here is a failed test")]

use std::path::Path;
use std::process::Command;

use dat_core::provider::FaultKind;
use dat_tests::bringup::{Rig, Taken, journey, patience};
use mlx5_model::Config as Card;
use mlx5_model::replay::Replay;
use proptest::prelude::*;

/// Where the recordings are.
fn data(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data").join(name)
}

/// Runs tests of this program, by module, on models made of a file; but not those that need what
/// the card lacks.
fn suites(file: &str, modules: &[&str], skipped: &[&str]) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.env("MODEL_REPLAY", data(file)).args(modules).args(["--test-threads", "2"]);
    for name in skipped {
        program.args(["--skip", name]);
    }
    let ran = program.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}");
    let count = |line: &str| line.split(' ').nth(3)?.parse::<usize>().ok();
    let passed = said.lines().find(|line| line.starts_with("test result: ok.")).and_then(count);
    assert!(passed > Some(10), "{said}");
}

#[test]
fn suites_run_on_the_recorded_connectx_4() {
    // Its firmware had no memory windows, and asks for more pages than an adapter that was lost
    // leaves of the reserve.
    let skipped = ["window", "a_lost_device_works_again"];
    suites("connectx4-linux.txt", &["dat_connect", "dat_transfer", "dat_break"], &skipped);
}

#[test]
fn suites_run_on_a_report() {
    suites("report-connectx6dx.jsonl", &["dat_connect", "dat_transfer", "dat_break"], &[]);
}

const FILES: [&str; 2] = [
    include_str!("../../data/connectx4-linux.txt"),
    include_str!("../../data/report-connectx6dx.jsonl"),
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]
    /// Digits of capabilities are changed: what the model takes for a card, the driver opens or
    /// refuses, and all memory comes back.
    #[test]
    fn the_driver_opens_or_refuses_what_a_changed_recording_says(
        file in 0..2usize,
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..16u8), 1..6),
    ) {
        let mut bytes = FILES[file].as_bytes().to_vec();
        // Digits of words and messages that are not zero: there are few besides them.
        let digits: Vec<usize> = (1..bytes.len())
            .filter(|at| matches!(bytes[*at], b'1'..=b'9' | b'a'..=b'f') && bytes[at - 1] != b'"')
            .collect();
        for (at, value) in edits {
            bytes[digits[at.index(digits.len())]] = b"0123456789abcdef"[usize::from(value)];
        }
        if let Ok(replay) = Replay::read(&bytes) {
            let rig = Rig::new(Card { init_pages: Some(40), ..replay.config() });
            let result = journey(&rig.slot, &patience());
            let pages = rig.slot.hca().pages_owned() as usize;
            // What a device that does not answer may still write stays with it.
            let hangs = result.as_ref().is_err_and(|(_, fault)| fault.kind == FaultKind::Timeout);
            let arena = if hangs { rig.taken().arena } else { 0 };
            prop_assert_eq!(rig.taken(), Taken { arena, pages }, "{:?}", result);
        }
    }
}
