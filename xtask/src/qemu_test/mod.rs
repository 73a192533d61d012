//! `cargo xtask qemu-test`: the driver where its users run it, in guests under QEMU, on devices of the model.
//!
//! Each scenario starts the model's server, boots one or two guests and judges what they say. The guests run under
//! emulation (TCG) on any machine; what a real IOMMU or a real CPU's memory system would add, they do not show.

mod archive;
mod control;
mod machine;
pub(crate) mod packages;
mod process;
mod programs;
mod scenarios;
mod stage;
mod vmlinux;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::run;
use machine::Machine;
use programs::Programs;
use scenarios::{SCENARIOS, Scenario};
use stage::Stage;

/// Where things that are fetched or built for guests are kept.
fn folder() -> Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .current_dir(run::root())
        .no_deps()
        .exec()?;
    Ok(metadata
        .target_directory
        .join("qemu-test")
        .into_std_path_buf())
}

/// Prints the names of the scenarios.
pub(crate) fn list() {
    for scenario in SCENARIOS {
        println!("{:<12} {}", scenario.name, scenario.about);
    }
}

/// Plays the scenarios named, or all, and fails where one does.
pub(crate) fn qemu_test(names: &[String], verbose: bool) -> Result<()> {
    let (_, failed) = scenarios(names, verbose)?;
    ensure!(failed.is_empty(), "scenarios failed: {}", failed.join(", "));
    Ok(())
}

/// Plays the scenarios named, or all: how many went well, and which did not.
pub(crate) fn scenarios(names: &[String], verbose: bool) -> Result<(usize, Vec<&'static str>)> {
    for name in names {
        ensure!(
            SCENARIOS.iter().any(|s| s.name == name),
            "there is no scenario {name}; `cargo xtask qemu-test --list` names them"
        );
    }
    let start = Instant::now();
    println!("$ qemu-test");
    let folder = folder()?;
    let machine = Machine::find(&folder)?;
    let programs = Programs::build(&folder)?;
    let prepared = start.elapsed();

    let chosen: Vec<&Scenario> = SCENARIOS
        .iter()
        .filter(|s| names.is_empty() || names.iter().any(|name| name == s.name))
        .collect();
    let next = AtomicUsize::new(0);
    let played = Mutex::new(Vec::new());
    // Guests sleep much of their time: two scenarios at once take little more than one.
    let workers = thread::available_parallelism().map_or(1, |n| n.get().min(2));
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(scenario) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let row = play(&machine, &programs, scenario, verbose);
                    played
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(row);
                }
            });
        }
    });
    let mut rows = played.into_inner().unwrap_or_else(PoisonError::into_inner);
    rows.sort_by_key(|row| SCENARIOS.iter().position(|s| s.name == row.name));

    println!("\n| scenario | result | s | |\n|---|---|---|---|");
    println!("| preparation | | {:.1} | |", prepared.as_secs_f64());
    let mut failed = Vec::new();
    for Row {
        name,
        played,
        seconds,
    } in &rows
    {
        let (result, what) = match played {
            Ok(what) => ("ok", what.clone()),
            Err(error) => {
                failed.push(*name);
                let text = format!("{error:#}");
                ("FAILED", text.lines().next().unwrap_or_default().to_owned())
            }
        };
        println!("| {name} | {result} | {seconds:.1} | {what} |");
    }
    println!("\n{} s in all", start.elapsed().as_secs());
    Ok((rows.len() - failed.len(), failed))
}

/// How a scenario went.
struct Row {
    name: &'static str,
    played: Result<String>,
    seconds: f64,
}

fn play(machine: &Machine, programs: &Programs, scenario: &Scenario, verbose: bool) -> Row {
    let name = scenario.name;
    let start = Instant::now();
    let played = Stage::new(machine, programs, name, verbose)
        .and_then(|mut stage| (scenario.play)(&mut stage));
    let seconds = start.elapsed().as_secs_f64();
    match &played {
        Ok(what) => println!("  {name:<12} ok      {seconds:5.1} s  {what}"),
        Err(error) => println!("  {name:<12} FAILED  {seconds:5.1} s  {error:#}"),
    }
    Row {
        name,
        played,
        seconds,
    }
}
