//! Answers to commands: a device whose outputs, mailboxes and command entries have other bytes than
//! they should, while the driver is brought up, makes one of everything, and is taken down.
//!
//! It returns in time, and stores nowhere but in its own memory.

use std::time::Duration;

use arbitrary::Unstructured;
use dat_tests::bringup::{journey, patience};
use dat_tests::host::watched::Watched;

use crate::input::steps;
use crate::world::{Rule, change_answers, rig};

/// Runs the target.
pub fn run(data: &[u8]) {
    with(data, |_| true);
}

/// The same, with the answers to some commands changed only.
pub(crate) fn with(data: &[u8], concerns: fn(u16) -> bool) {
    let rules: Vec<Rule> = steps(&mut Unstructured::new(data), 24).collect();
    let rig = rig();
    change_answers(&rig, rules, concerns);
    let start = rig.now();
    let _ = journey(&Watched::new(&rig.slot), &patience());
    assert!(rig.now() - start < Duration::from_secs(60), "{:?}", rig.now() - start);
    assert_eq!(rig.slot.views().strays(), 0, "the driver stored where nobody has memory");
}
