//! The `dat` command: sets up a machine with a NIC and runs verified traffic between two.
//!
//! `list`, `doctor`, `bind` and `unbind` read and write `/sys`, `/proc` and `/dev` through one
//! [`tree::Tree`] value, so that they run against a copied tree as well. `info`, `listen`, `ping`
//! and `perf` open the device: a NIC bound to vfio-pci, or a device model behind a vfio-user
//! socket, which is the same to them; `hw-test` does all that a card may do otherwise, and keeps a
//! report. `top`, `counters`, `connections` and `trace` ask processes that have a device open. `conf` and `install-provider` register HCAs with uDAPL programs, `run` starts the ranks of
//! one.
//!
//! Every subcommand is a file. It returns its exit code, or a [`failure::Failure`]. Nothing here
//! panics on input of a user, a file system, a device or a peer. The traffic commands use only what
//! the library offers to any program.

mod against;
mod args;
mod bind;
mod compat;
mod conf;
mod device;
mod doctor;
mod failure;
mod group;
mod hca;
mod hw_test;
mod info;
mod install_provider;
mod list;
mod needs;
mod netdev;
mod out;
mod process;
mod run;
mod signals;
mod traffic;
mod tree;
mod vfs;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Args, Command};
use out::Out;

/// The result of a subcommand: an exit status of `dat --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Success: every check passed.
    Ok,
    /// A check or the traffic failed, and the failure has been printed.
    Failed,
    /// A program that was run has ended with this code.
    Code(u8),
}

/// Returns the subcommands and their options, as man pages and completions are made of.
#[must_use]
pub fn command() -> clap::Command {
    Args::command()
}

/// Runs the command with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    run(std::env::args_os())
}

/// Runs the command with these arguments, the first of which is its name.
#[must_use]
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => {
            // Help and version go to standard output and are a success. A closed pipe is no error.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    out::logs(args.verbose, args.errors_only);
    let out = Out::new(args.json);
    let end = match &args.command {
        Command::List(it) => list::run(it, &out),
        Command::Info(it) => info::run(it, &out),
        Command::Bind(it) => bind::bind(it, &out),
        Command::Unbind(it) => bind::unbind(it, &out),
        Command::Doctor(it) => doctor::run(it, &out),
        Command::Listen(it) => traffic::listen::run(it, &out),
        Command::Ping(it) => traffic::ping::run(it, &out),
        Command::Perf(it) => traffic::perf::run(it, &out),
        Command::Top(it) => watch::top::run(it, &out),
        Command::Counters(it) => watch::counters::run(it, &out),
        Command::Connections(it) => watch::connections::run(it, &out),
        Command::Trace(it) => watch::trace::run(it, &out),
        Command::Conf(it) => conf::run(it, &out),
        Command::InstallProvider(it) => install_provider::run(it, &out),
        Command::Run(it) => run::run(it),
        Command::HwTest(it) => hw_test::run(it, &out),
        Command::Compat(it) => compat::run(it, &out),
    };
    match end {
        Ok(End::Ok) => ExitCode::SUCCESS,
        Ok(End::Failed) => ExitCode::from(1),
        Ok(End::Code(code)) => ExitCode::from(code),
        Err(failure) => out.failure(&failure),
    }
}

/// Reads a report of `dat hw-test` to be continued, for tests.
#[doc(hidden)]
pub fn read_report(file: &std::path::Path) -> Result<(), String> {
    hw_test::read_report(file).map_err(|failure| failure.cause)
}
