//! `cargo xtask demo`: the main job, on two emulated HCAs.
#![expect(clippy::print_stdout, reason = "a program that tells what it does")]

use std::process::ExitCode;

use clap::Parser;
use dat_tests::demo::{self, Options};

fn main() -> ExitCode {
    let options = Options::parse();
    match demo::run(&options) {
        Ok(report) => {
            if options.json {
                match serde_json::to_string_pretty(&report) {
                    Ok(text) => println!("{text}"),
                    Err(error) => {
                        eprintln!("error: the report cannot be written: {error}");
                        return ExitCode::FAILURE;
                    }
                }
            } else {
                print!("{report}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
