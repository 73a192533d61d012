//! The notes of fields that `docs/field-coverage.md` is made of, against what they were made from.
#![expect(clippy::unwrap_used, reason = "test code: a panic here is a failed test")]

use std::collections::BTreeSet;

use dat_tests::bringup::{Rig, journey, patience};
use mlx5_model::Config as Card;
use mlx5_model::watch::trace::{Command, compact, read};
use mlx5_model::watch::{Fields, Half, diff, leaves};

const OURS: &str = include_str!("../../data/fields-ours.txt");
const LINUX: [&str; 2] = [
    include_str!("../../data/fields-linux-6.1.txt"),
    include_str!("../../data/fields-linux-6.12.txt"),
];
const CARD: &str = include_str!("../../data/fields-connectx4.txt");
const CARD_TRACE: &str = include_str!("../../data/connectx4-linux.txt");
const LINUX_TRACE: &str = include_str!("../../data/trace-linux-6.12.txt");
const OUR_TRACE: &str = include_str!("../../data/trace-ours.txt");

/// Notes without their values.
fn keys(text: &str) -> BTreeSet<&str> {
    text.lines().filter_map(|line| line.split_once(": ")).map(|(key, _)| key).collect()
}

fn commands(text: &str) -> Vec<Command> {
    let commands = read(text).unwrap();
    assert!(commands.len() > 30, "{}", commands.len());
    commands
}

#[test]
fn the_card_s_notes_are_those_of_its_trace() {
    let fields = Fields::default();
    for command in commands(CARD_TRACE) {
        fields.command(command.opcode, &command.input, &command.output);
    }
    assert_eq!(fields.to_string(), CARD);
}

#[test]
fn our_notes_have_everything_that_one_of_everything_sets() {
    let rig = Rig::new(Card::default());
    let fields = Fields::default();
    rig.slot.hca().observe(Box::new(fields.clone()));
    journey(&rig.slot, &patience()).unwrap();
    let text = fields.to_string();
    let (seen, noted) = (keys(&text), keys(OURS));
    let new: Vec<_> = seen
        .difference(&noted)
        .filter(|key| key.starts_with("in ") || key.starts_with("wqe "))
        .collect();
    assert!(seen.len() > 150, "{}", seen.len());
    assert!(new.is_empty(), "run `cargo xtask fields --record`: {new:#?}");
}

#[test]
fn our_driver_sets_nothing_that_has_no_name() {
    let unnamed: Vec<_> = keys(OURS).into_iter().filter(|key| key.contains(" bits at ")).collect();
    assert!(unnamed.is_empty(), "{unnamed:#?}");
    for text in LINUX {
        assert!(keys(text).len() > 1000, "Linux's notes are of a whole run");
    }
}

#[test]
fn kept_traces_are_compact_and_have_names_for_what_was_sent() {
    for text in [LINUX_TRACE, OUR_TRACE] {
        let commands = commands(text);
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let again = compact(&commands);
        assert!(again.lines().eq(lines), "not what `cargo xtask trace compact` makes");
    }
    for command in commands(OUR_TRACE) {
        let sent = leaves(command.opcode, &command.input, &command.input, Half::Input);
        let unnamed: Vec<_> = sent.iter().filter(|leaf| leaf.path.starts_with("bits at")).collect();
        // A capability write carries back what the model's layout leaves unnamed.
        assert!(unnamed.is_empty() || command.opcode == 0x109, "{}: {unnamed:?}", command.name());
    }
}

#[test]
fn linux_on_the_model_begins_as_linux_on_the_card() {
    // Of a comparison of the two, by name and without what is one machine's: the bring-up is the
    // same driver's.
    let (card, linux) = (commands(CARD_TRACE), commands(LINUX_TRACE));
    let lines = diff::compare(&card, &linux[..card.len() + 20], false);
    let only_on_the_card = lines.iter().filter(|line| matches!(line, diff::Line::First(_))).count();
    assert!(
        only_on_the_card < card.len() / 2,
        "{only_on_the_card} of {} commands of the card's bring-up are not Linux's on the model",
        card.len()
    );
}
