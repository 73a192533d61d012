//! The catalogue of faults, or a part of it. `cargo xtask faults` starts it.
#![expect(clippy::print_stdout, reason = "a program for the command line")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;
use dat_tests::faults::process::{self, PROCESSES, Seen};
use dat_tests::faults::{Phase, child, page};

/// Strikes each fault in each phase, and checks what the consumer sees and that all comes back.
#[derive(Parser)]
struct Args {
    /// Only faults whose names contain this
    #[arg(long)]
    only: Option<String>,
    /// Write docs/faults.md
    #[arg(long, conflicts_with = "only")]
    bless: bool,
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
    let only = args.only.as_deref();
    let cells = page::cells(only);
    let mut bad = 0;
    for cell in &cells {
        println!("{}", page::line(cell));
        cell.wrong.iter().for_each(|wrong| println!("  wrong: {wrong}"));
        bad += usize::from(!cell.wrong.is_empty());
    }
    let program = std::env::current_exe()?;
    let mut rows = Vec::new();
    for process in PROCESSES.iter().filter(|p| only.is_none_or(|only| p.name.contains(only))) {
        for phase in Phase::ALL {
            match process::cell(&program, process, phase) {
                Ok(seen) => {
                    let row = page::process_line(process, phase, &seen);
                    println!("{row}");
                    if let Seen { took: Some(took), text, .. } = &seen {
                        println!("  it saw: {text}; connected again after {took}");
                    }
                    rows.push(row);
                }
                Err(error) => {
                    println!("| {} | {} |\n  wrong: {error:#}", process.name, phase.name());
                    bad += 1;
                }
            }
        }
    }
    println!("{} cells", cells.len() + rows.len());
    if args.bless && bad == 0 {
        let file = page::file();
        std::fs::write(&file, page::page(&cells, &rows))
            .with_context(|| file.display().to_string())?;
    }
    Ok(bad)
}
