//! What a post and the dequeue of its completion cost a C program, in instructions: through the
//! registry and the provider down to the doorbell. The device is a model behind a socket, so a
//! doorbell is a message; that is a store on a card, and not counted.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::corners::{both, compile};
use super::kit::Kit;
use crate::guest::stage::Stage;

/// The program.
const BENCH: &str = "tests/dapl/bench.c";
/// The functions in which instructions are counted, and the one in them where they are not: what
/// sends a doorbell as a message.
const COUNTED: &str = "--toggle-collect=measured_*";
const MESSAGE: &str = "cfn=vfio_host::user::VfioUser::write";
/// Rounds of the two runs whose difference counts.
const ROUNDS: [u64; 2] = [20, 220];
/// Milliseconds that the device gets in a round: more, if it was late.
const NAPS: [u32; 3] = [1, 10, 100];
/// What is posted, and the most instructions that one write and its completion may cost. Of 64 bytes
/// OpenFabrics dapl takes 967.
const SHAPES: [Shape; 3] = [
    Shape { bytes: 64, list: 0, goal: 306 },
    Shape { bytes: 8, list: 0, goal: 311 },
    Shape { bytes: 8, list: 32, goal: 150 },
];

/// Writes of so many bytes, one by one or by lists of so many.
struct Shape {
    bytes: u32,
    list: u32,
    goal: u64,
}

/// Counts.
pub(super) fn run(stage: &mut Stage<'_>, kit: &Kit) -> Result<String> {
    let bench = compile(kit, BENCH, &stage.path("bench"), &[])?;
    let [a, b] = ["a", "b"].map(|name| stage.path(name));
    let model = stage.server("model", &[&a, &b], &[])?;
    let conf = both(stage, kit, [&a, &b], &[])?;
    let [few, many] = ROUNDS;
    let mut costs = Vec::new();
    for shape in &SHAPES {
        let first = counted(stage, kit, &bench, &conf, few, shape)?;
        let second = counted(stage, kit, &bench, &conf, many, shape)?;
        let writes = (many - few) * u64::from(shape.list.max(1));
        let cost = second.saturating_sub(first) / writes;
        let Shape { bytes, list, goal } = shape;
        let by = if *list == 0 { String::new() } else { format!(" in a list of {list}") };
        ensure!(cost > 0, "nothing was counted");
        ensure!(
            cost <= *goal,
            "{cost} instructions for a write of {bytes} bytes{by} and its completion, the goal is {goal}"
        );
        costs.push(format!("{cost} for a write of {bytes} bytes{by}"));
    }
    stage.hang_up(model, Duration::from_secs(10))?;
    Ok(format!(
        "instructions with the completion, without the message that stands for a doorbell: {}",
        costs.join(", ")
    ))
}

/// Instructions of a run's rounds.
fn counted(
    stage: &mut Stage<'_>,
    kit: &Kit,
    bench: &Path,
    conf: &Path,
    rounds: u64,
    shape: &Shape,
) -> Result<u64> {
    for nap in NAPS {
        if let Some(profile) = profile(stage, kit, bench, conf, rounds, nap, shape)? {
            return besides(&profile, rounds);
        }
    }
    bail!("completions came late in each of {} runs", NAPS.len())
}

/// The profile of a run; nothing, if a look came too early, which would be counted as well.
fn profile(
    stage: &mut Stage<'_>,
    kit: &Kit,
    bench: &Path,
    conf: &Path,
    rounds: u64,
    nap: u32,
    shape: &Shape,
) -> Result<Option<String>> {
    let profile = stage.path("profile");
    let out = format!("--callgrind-out-file={}", profile.display());
    let tool = [
        "--tool=callgrind",
        &out,
        "--compress-strings=no",
        // The driver is made on a large stack.
        "--max-stackframe=67108864",
        COUNTED,
    ];
    let mut command = kit.under(&tool, bench, conf)?;
    command.args(["hca0", "hca1", &rounds.to_string(), &nap.to_string()]);
    command.args([shape.bytes.to_string(), shape.list.to_string()]);
    let id = stage.start("bench", command)?;
    let end = stage.outcome(id, Duration::from_secs(300));
    ensure!(
        end.is_some_and(|status| status.success()),
        "the bench ended with {end:?}:{}",
        stage.tail(id)
    );
    let [said, _] = stage.outputs(id);
    let undisturbed = format!("{rounds} rounds, {rounds} looks");
    if !said.contains(&undisturbed) {
        return Ok(None);
    }
    let profile = fs::read_to_string(profile).context("callgrind left no profile")?;
    Ok(Some(profile))
}

/// Returns what a profile has counted without the messages, of which each round has one. Callgrind
/// counts a call's cost only inside [`COUNTED`], but its number everywhere: the connection manager
/// sends by the same function.
fn besides(profile: &str, rounds: u64) -> Result<u64> {
    let mut lines = profile.lines();
    let (mut all, mut calls, mut messages) = (None, 0, 0);
    while let Some(line) = lines.next() {
        if let Some(total) = line.strip_prefix("summary: ") {
            all = total.trim().parse::<u64>().ok();
        } else if line == MESSAGE {
            // How often it is called there, and on the next line, behind where, what is spent in
            // it.
            let number = |line: Option<&str>, place: usize| {
                let words = line?.split([' ', '=']);
                words.skip(place).find_map(|word| word.parse::<u64>().ok())
            };
            calls += number(lines.next(), 1).context("a call without a number")?;
            messages += number(lines.next(), 1).context("a call without a cost")?;
        }
    }
    ensure!(
        calls >= rounds,
        "{calls} messages in {rounds} rounds: their function has another name"
    );
    all.and_then(|all| all.checked_sub(messages)).context("callgrind reported no count")
}

#[cfg(test)]
mod tests {
    use super::besides;

    #[test]
    fn a_profile_is_counted_without_its_messages() {
        let call = |from: &str, cost: u64| {
            format!(
                "fn={from}\n26 10\ncfi=???\ncfn=vfio_host::user::VfioUser::write\ncalls=2 237\n26 {cost}\n"
            )
        };
        let text = format!("summary: 1000\n\n{}{}", call("a", 300), call("b", 80));
        assert_eq!(besides(&text, 3).unwrap(), 620);
        assert!(besides(&text, 5).is_err());
        assert!(besides(&text.replace("summary", "totals"), 4).is_err());
    }
}
