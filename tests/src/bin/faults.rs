//! The catalogue of faults, or a part of it. `cargo xtask faults` starts it.
#![expect(clippy::print_stdout, reason = "a program for the command line")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;
use dat_tests::faults::process::{self, PROCESSES};
use dat_tests::faults::{Phase, child, page};

/// Strikes each fault in each phase, and checks what the consumer sees and that all comes back.
#[derive(Parser)]
struct Args {
    /// Only faults whose names contain one of these, with commas between them
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Write docs/faults.md
    #[arg(long, conflicts_with_all = ["only", "processes"])]
    bless: bool,
    /// Only faults that only a process meets, over vfio-user
    #[arg(long)]
    processes: bool,
    /// Be the consumer of a vfio-user socket
    #[arg(long, hide = true)]
    consumer: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(bad) => {
            eprintln!("error: {bad} cells fail");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// How many cells fail.
fn run(args: &Args) -> Result<usize> {
    if let Some(socket) = &args.consumer {
        return child::consumer(socket).map(|()| 0);
    }
    let only = &args.only;
    let cells = if args.processes {
        Vec::new()
    } else {
        page::cells(only, &|cell| {
            let wrong = cell.wrong.iter().map(|wrong| format!("\n  wrong: {wrong}"));
            println!("{}{}", page::line(cell), wrong.collect::<String>());
        })
    };
    let (processes, failed) = processes(only)?;
    let bad = cells.iter().filter(|cell| !cell.wrong.is_empty()).count() + failed;
    println!("{} cells", cells.len() + processes.len() + failed);
    if args.bless && bad == 0 {
        let file = page::file();
        let text = page::page(&cells, &processes);
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
    }
    Ok(bad)
}

/// The rows of cells of processes, and how many fail.
fn processes(only: &[String]) -> Result<(Vec<String>, usize)> {
    let program = std::env::current_exe()?;
    let (mut rows, mut bad) = (Vec::new(), 0);
    for process in PROCESSES.iter().filter(|process| page::wanted(process.name, only)) {
        for phase in Phase::ALL {
            match process::cell(&program, process, phase) {
                Ok(seen) => {
                    let row = page::process_line(process, phase, &seen);
                    println!("{row} connected after {:.1?}", seen.took);
                    rows.push(row);
                }
                Err(error) => {
                    println!("| {} | {} |\n  wrong: {error:#}", process.name, phase.name());
                    bad += 1;
                }
            }
        }
    }
    Ok((rows, bad))
}
