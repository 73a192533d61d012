//! What a post and the dequeue of its completion cost a C program, in instructions: through the registry and the provider down to
//! the doorbell. The device is a model behind a socket, so a doorbell is a message; that is a store on a card, and not counted.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::corners::{both, compile};
use super::kit::Kit;
use crate::qemu_test::stage::Stage;

/// The program.
const BENCH: &str = "tests/dapl/bench.c";
/// The functions in which instructions are counted, and the one in them where they are not: what sends a doorbell as a message. What
/// it sends at other times is counted instead, and is the same in both runs.
const COUNTED: [&str; 2] = [
    "--toggle-collect=measured_*",
    "--toggle-collect=vfio_host::user::VfioUser::write",
];
/// Rounds of the two runs whose difference counts.
const ROUNDS: [u64; 2] = [20, 220];
/// Instructions that one may cost; OpenFabrics dapl takes 967.
const GOAL: u64 = 300;

/// Counts.
pub(super) fn play(stage: &mut Stage<'_>, kit: &Kit) -> Result<String> {
    let bench = compile(kit, BENCH, &stage.path("bench"), &[])?;
    let [a, b] = ["a", "b"].map(|name| stage.path(name));
    let model = stage.server("model", &[&a, &b], &[])?;
    let conf = both(stage, kit, [&a, &b], &[])?;
    let [few, many] = ROUNDS;
    let first = collected(stage, kit, &bench, &conf, few)?;
    let second = collected(stage, kit, &bench, &conf, many)?;
    stage.hang_up(model, Duration::from_secs(10))?;
    let cost = second.saturating_sub(first) / (many - few);
    ensure!(cost > 0, "nothing was counted");
    ensure!(
        cost <= GOAL,
        "{cost} instructions for a write and its completion, the goal is {GOAL}"
    );
    Ok(format!(
        "{cost} instructions for a write of 64 bytes and its completion, without the message that stands for a doorbell"
    ))
}

/// Instructions of a run.
fn collected(
    stage: &mut Stage<'_>,
    kit: &Kit,
    bench: &Path,
    conf: &Path,
    rounds: u64,
) -> Result<u64> {
    let tool = [
        "valgrind",
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        // The driver is made on a large stack.
        "--max-stackframe=67108864",
        COUNTED[0],
        COUNTED[1],
    ];
    let mut command = kit.under(&tool, bench, conf)?;
    command.args(["hca0", "hca1", &rounds.to_string()]);
    let id = stage.start("bench", command)?;
    let end = stage.outcome(id, Duration::from_secs(300));
    ensure!(
        end.is_some_and(|status| status.success()),
        "the bench ended with {end:?}:{}",
        stage.tail(id)
    );
    let [_, said] = stage.outputs(id);
    let count = said.iter().find_map(|line| {
        let (_, count) = line.split_once("Collected : ")?;
        count.trim().parse().ok()
    });
    count.with_context(|| format!("callgrind told no count:{}", stage.tail(id)))
}
