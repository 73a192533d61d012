//! The program that guests run: a consumer on a real host, of the driver's two adapters side by
//! side.
//!
//! A subcommand chooses the part. Lines that begin with `@@` are for the host that watches the
//! guest's console; the exit code says whether all was as it should be. Everything here is generic
//! over [`vfio_host::Host`], so the same runs on `vfio-user:PATH` without a guest.
#![expect(clippy::print_stdout, reason = "a program whose lines are what it is for")]

mod conformance;
mod hold;
mod hosts;
mod idle;
mod lent;
mod parts;
mod reopen;
mod reset;
pub(crate) mod sides;
mod trouble;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use vfio_host::Address;

use crate::demo::Options;

/// The driver on devices bound to vfio-pci, or behind vfio-user sockets.
#[derive(Parser, Debug)]
#[command(name = "guest")]
struct Cli {
    #[command(subcommand)]
    part: Part,
}

/// Parts that can run.
#[derive(Subcommand, Debug)]
enum Part {
    /// The acts of the demo between two devices
    Demo {
        /// Two devices
        #[arg(num_args = 2)]
        devices: Vec<Address>,
        /// Bytes of one bulk transfer
        #[arg(long, default_value_t = 64 << 10)]
        size: usize,
        /// Bulk transfers
        #[arg(long, default_value_t = 64)]
        count: u32,
    },
    /// Every case of the conformance suite, between two devices that stay up from case to case
    Conformance {
        /// Two devices
        #[arg(num_args = 2)]
        devices: Vec<Address>,
        /// Only cases with this in their name
        #[arg(long, default_value = "")]
        only: String,
        /// Of these, only every Nth
        #[arg(long, default_value_t = 1)]
        every: usize,
    },
    /// A wait for what does not come costs no CPU time, and what comes raises an interrupt
    Idle {
        /// Two devices
        #[arg(num_args = 2)]
        devices: Vec<Address>,
    },
    /// Memory of the heap, of a stack and static, lent to two devices, and memory with a name
    Lent {
        /// Two devices
        #[arg(num_args = 2)]
        devices: Vec<Address>,
    },
    /// A reset of a function in the midst of traffic, and recovery
    Flr {
        /// Two devices
        #[arg(num_args = 2)]
        devices: Vec<Address>,
    },
    /// Opens and closes a device again and again, and looks for what leaks
    Reopen {
        /// The device
        device: Address,
        /// How often
        #[arg(long, default_value_t = 100)]
        times: u32,
    },
    /// Holds a device with registered memory, prints its maps and obeys words on standard input
    Hold {
        /// The device
        device: Address,
    },
    /// Opens a device and says how that went
    Open {
        /// The device
        device: Address,
    },
    /// Runs a program as another user
    As {
        /// The user's number
        user: u32,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Moves data between two devices until something goes wrong, and says what
    Trouble {
        /// Two devices
        #[arg(num_args = 2)]
        devices: Vec<Address>,
    },
}

/// The program.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.part) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(part: Part) -> Result<()> {
    let usual = vfio_host::Options::default();
    match part {
        Part::Demo { devices, size, count } => {
            let (size, count) = (size.to_string(), count.to_string());
            let options =
                Options::try_parse_from(["demo", "--json", "--size", &size, "--count", &count])?;
            hosts::with(&devices, &usual, &parts::Demo { options })
        }
        Part::Conformance { devices, only, every } => {
            hosts::with(&devices, &usual, &conformance::Conformance { only, every })
        }
        Part::Idle { devices } => hosts::with(&devices, &usual, &idle::Idle),
        Part::Lent { devices } => hosts::with(&devices, &usual, &lent::Lent),
        Part::Flr { devices } => hosts::with(&devices, &usual, &reset::Flr),
        Part::Reopen { device, times } => reopen::run(&device, times),
        Part::Hold { device } => hosts::with(&[device], &usual, &hold::Hold),
        Part::As { user, command } => {
            let (program, args) = command.split_first().context("no program")?;
            let mut command = Command::new(program);
            Err(command.args(args).uid(user).gid(user).exec().into())
        }
        Part::Open { device } => hosts::with(&[device], &usual, &parts::Open),
        Part::Trouble { devices } => hosts::with(&devices, &usual, &trouble::Trouble),
    }
}
