//! A device that stops answering, refuses, or never starts: at every command and every register step the driver gives up
//! within its deadline, says which command it was, and leaves nothing behind that it may not keep.
//!
//! What it may keep: after a command without an answer the device may still write to host memory, so the arena's
//! mailboxes, the queues it was told of and the firmware's pages stay taken until the host resets the function. After a
//! refusal the device has let go of nothing and holds nothing new: there all of it comes back.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code: a panic here is a failed test")]

use std::time::Duration;

use dat_core::provider::FaultKind;
use dat_tests::bringup::{Rig, Step, Taken, Watched, journey, patience};
use hca_mlx5::Device;
use hca_mlx5::prm::cmd::Opcode;
use mlx5_model::Status;
use mlx5_model::Verdict;
use mlx5_model::faults::{Log, Script, When};

/// Opcodes of a journey without trouble.
fn commands() -> Vec<Opcode> {
    let rig = Rig::light();
    let log = Log::new(Script::new());
    rig.hook(Some(Box::new(log.clone())));
    journey(&rig.slot, &patience()).unwrap();
    let opcodes = log.records().iter().map(|r| Opcode::from_code(r.opcode).unwrap()).collect::<Vec<_>>();
    assert!(opcodes.len() > 80, "{}", opcodes.len());
    opcodes
}

/// A whole journey without trouble takes less.
const JOURNEY: Duration = Duration::from_millis(300);
/// The time limit of a command in these tests.
const LIMIT: Duration = Duration::from_millis(50);

#[test]
fn the_device_falls_mute_at_every_command() {
    let all = commands();
    for (n, op) in all.iter().enumerate() {
        let rig = Rig::light();
        rig.script(|first, script| script.mute_from(first + n as u64));
        let start = rig.now();
        let watched = Watched::new(&rig.slot);
        let (step, fault) = journey(&watched, &patience()).expect_err("a mute device is an error");
        let took = rig.now() - start;
        println!("{n} {op:?} {step} {took:?} {fault}");
    }
}
