//! `cargo xtask trace`: the commands of a bring-up, recorded and compared.
//!
//! The decoding by field names is the model's, in `dat-tests`' program `trace`; this verb builds
//! and calls it.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Subcommand, ValueEnum};

use dat_lab::run;

/// Recordings that are checked in, by the names they go by on the command line.
const KEPT: &[(&str, &str)] = &[
    ("connectx4", "tests/data/connectx4-linux.txt"),
    ("linux-6.12", "tests/data/trace-linux-6.12.txt"),
    ("ours", "tests/data/trace-ours.txt"),
];

#[derive(Subcommand)]
pub(crate) enum Trace {
    /// Bring a driver up on the model and write every command in mlx5_core's own hexdump form
    Record {
        /// Whose bring-up
        #[arg(long, value_enum, default_value_t = Driver::Ours)]
        driver: Driver,
        /// Where to
        file: PathBuf,
    },
    /// Compare two recordings, command by command and field by field; each a file, or one of
    /// connectx4, linux-6.12, ours
    Diff {
        /// The first
        first: PathBuf,
        /// The second
        second: PathBuf,
        /// Only what the drivers sent
        #[arg(long)]
        sent: bool,
        /// Addresses, object numbers and random values too
        #[arg(long)]
        all: bool,
    },
    /// Print a recording in the compact form of those that are kept
    Compact {
        /// The recording
        trace: PathBuf,
    },
    /// Print the notes of the fields that are set in a recording
    Fields {
        /// The recording
        trace: PathBuf,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Driver {
    /// This workspace's, in process
    Ours,
    /// Stock Linux's, in a guest
    Linux,
}

pub(crate) fn trace(verb: Trace) -> Result<()> {
    let here = std::env::current_dir()?;
    match verb {
        Trace::Record { driver, file } => {
            let file = here.join(file);
            match driver {
                Driver::Ours => ours(&file),
                Driver::Linux => dat_lab::trace(&file),
            }
        }
        Trace::Diff { first, second, sent, all } => {
            let mut args = vec!["diff".into(), kept(&first), kept(&second)];
            args.extend(sent.then(|| "--sent".into()));
            args.extend(all.then(|| "--all".into()));
            decode(&args)
        }
        Trace::Compact { trace } => decode(&["compact".into(), kept(&trace)]),
        Trace::Fields { trace } => decode(&["fields".into(), kept(&trace)]),
    }
}

/// The file of a recording that is kept, or the file named.
fn kept(name: &Path) -> PathBuf {
    match KEPT.iter().find(|(known, _)| Path::new(known) == name) {
        Some((_, file)) => run::root().join(file),
        None => name.to_path_buf(),
    }
}

fn ours(file: &Path) -> Result<()> {
    let mut command = run::cargo();
    command.args(["run", "--quiet", "-p", "dat-tests", "--bin", "demo", "--"]);
    command.args(["--count", "1", "--size", "4K", "--trace"]);
    command.arg(file);
    run::quiet(command)?;
    Ok(())
}

fn decode(args: &[PathBuf]) -> Result<()> {
    let mut command = run::cargo();
    command.args(["run", "--quiet", "-p", "dat-tests", "--bin", "trace", "--"]);
    // Files are named from where the user stands.
    let status = command.args(args).current_dir(std::env::current_dir()?).status()?;
    if !status.success() {
        bail!("`{}` ended with {status}", run::shown(&command));
    }
    Ok(())
}
