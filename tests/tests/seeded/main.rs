//! Ten bugs planted in the model's layouts, and the referees that catch each.
//!
//! `data/seeds.txt` says of each bug which referees catch it. Three of them run here: the
//! **cross-test** of the two notations, the **driver** on the model in process, and **recorded**
//! frames of Linux Soft-RoCE; what the file says of them must be so, no less and no more. The
//! fourth, stock **linux** on the model, is a scenario of `cargo xtask qemu-test --linux`. A bug
//! that nobody catches fails this test.
//!
//! One test only: a bug is planted in the process.
#![expect(clippy::unwrap_used, reason = "test code: a panic here is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::Parser;
use dat_tests::demo::{self, Options};
use mlx5_model::ifc::seeds::{SEEDS, plant};
use mlx5_model::wire::frame::Packet;

mod pairs;

/// Two Soft-RoCE hosts: connect, SEND, READ, WRITE, disconnect of one rping.
const RECORDED: &str = include_str!("../../model/src/wire/frame/fixtures/rxe-rping.hex");

/// Whether a referee catches what is planted now.
type Referee = fn() -> bool;

const REFEREES: [(&str, Referee); 3] =
    [("cross-test", cross_test), ("driver", driver), ("recorded", recorded)];

fn cross_test() -> bool {
    !pairs::disagreements().is_empty()
}

/// The demo: everything a connection does, contents compared on both sides. A complaint of the
/// model counts.
fn driver() -> bool {
    let options = Options::parse_from(["demo", "--count", "4", "--size", "4K"]);
    let outcome = catch_unwind(AssertUnwindSafe(|| demo::run(&options)));
    match outcome {
        Ok(Ok(report)) => !report.complaints.is_empty(),
        Ok(Err(_)) | Err(_) => true,
    }
}

/// Whether a recorded frame is not understood, or not made again as it was.
fn recorded() -> bool {
    RECORDED.lines().any(|line| {
        let frame: Vec<u8> = (0..line.len() / 2)
            .map(|n| u8::from_str_radix(&line[2 * n..2 * n + 2], 16).unwrap())
            .collect();
        Packet::parse(&frame).map_or(true, |packet| {
            // The first four opcode bits of a reply that carries an AETH say what its syndrome may
            // be.
            let refused = packet.ext.aeth.is_some_and(|aeth| aeth.syndrome & 0xe0 != 0);
            refused || packet.build() != frame
        })
    })
}

/// Rows of the file: number and name of the bug, and the referees that catch it.
fn listed() -> BTreeMap<usize, (String, BTreeSet<String>)> {
    let mut bugs = BTreeMap::new();
    for line in include_str!("../../data/seeds.txt").lines() {
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let (head, referees) = line.split_once(": ").unwrap();
        let (number, name) = head.split_once(' ').unwrap();
        let referees = referees.split(' ').map(String::from).collect();
        bugs.insert(number.parse().unwrap(), (String::from(name), referees));
    }
    bugs
}

#[test]
fn every_planted_bug_is_caught_by_whom_the_list_says() {
    for (name, referee) in REFEREES {
        assert!(!referee(), "{name} finds a bug where none is planted");
    }
    let listed = listed();
    assert_eq!(listed.len(), SEEDS.len());
    let mut wrong = Vec::new();
    for (number, seed) in (1..).zip(SEEDS) {
        let (name, expected) = &listed[&number];
        assert_eq!(*name, format!("{}.{}", seed.name.0, seed.name.1));
        plant(number);
        let mut caught: BTreeSet<String> = REFEREES
            .iter()
            .filter(|(_, referee)| referee())
            .map(|(name, _)| String::from(*name))
            .collect();
        plant(0);
        // Linux is asked elsewhere.
        caught.extend(expected.get("linux").cloned());
        println!("{number} {name}, {}: {caught:?}", seed.what);
        if caught != *expected || caught.is_empty() {
            wrong.push(format!("{number} {name}: caught by {caught:?}, listed {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
