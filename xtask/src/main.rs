//! The verbs of this workspace. `cargo xtask help` lists them.
//!
//! Of ours this crate imports the lab only, which runs guests and imports none: both build when
//! nothing else does. Each verb prints the commands it runs.
#![expect(
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_sign_loss,
    reason = "a command line tool that prints and is run by hand"
)]

mod barriers;
mod bench;
mod book;
mod coverage;
mod features;
mod fields;
mod fuzz;
mod hit;
mod layouts;
mod loom;
mod msrv;
mod mutants;
mod nostd;
mod package;
mod pictures;
mod planted;
mod readme;
mod record;
mod sanitize;
mod scale;
mod soak;
mod suite;
mod switches;
mod targets;
mod tidy;
mod trace;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use dat_lab::run;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The verbs of this workspace")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Connect two Interface Adapters over two emulated HCAs and move data (`-- --help` lists its
    /// options)
    #[command(disable_help_flag = true)]
    Demo {
        /// Options of the demo
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// All checks and tests: formatting, clippy, tidy, nostd, documentation, all tests, guests
    Test {
        /// Skip the tests in guests under QEMU
        #[arg(long)]
        no_guests: bool,
    },
    /// Rules of the workspace: dependencies, file sizes, unsafe, fences, man page to file to test,
    /// coverage of DAT, measures of the design
    Tidy(tidy::Options),
    /// Write the pictures of the documents, one of them a run of the demo
    Pictures,
    /// Names of rules, cases, rows, cells, seeded bugs and scenarios, in docs/generated/record.txt
    Record(record::Options),
    /// Link dat-core and hca-mlx5 into a freestanding static image
    Nostd {
        /// Instead, build both for CPUs without an operating system (x86-64, AArch64, RISC-V,
        /// Cortex-M) with core only, and run their tests on a big-endian one; takes
        /// minutes, and the sources of the compiler's library
        #[arg(long)]
        targets: bool,
    },
    /// The driver in guests under QEMU, on emulated HCAs: VFIO behind an IOMMU, two guests, bare
    /// metal, faults
    QemuTest(dat_lab::Options),
    /// Write docs/field-coverage.md: which fields of the device's interface we and other drivers
    /// use
    Fields {
        /// First run our driver and note what it sets
        #[arg(long)]
        record: bool,
    },
    /// The layouts of the device's interface against Linux's and mstflint's, the newest that Debian
    /// has
    Layouts,
    /// Commands of a bring-up: record them, compare two recordings field by field
    Trace {
        #[command(subcommand)]
        verb: trace::Trace,
    },
    /// Ten million random DAT calls against a reference model, and a million stale contexts on each
    /// provider, optimized
    Calls,
    /// Small faults in copies of dat-core and hca-mlx5, and which tests notice them; fails where a
    /// goal is missed
    Mutants(mutants::Options),
    /// Random programs against the laws of liveness and safety, optimized: `--steps N --seed S`,
    /// `--model` for the driver over the device model; `--law NAME --episode SEED` repeats one
    /// episode
    Laws {
        /// Arguments of the program; `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Hosts, devices and a switch from one number, optimized: `--seeds K --from N` or `--seed N`,
    /// `--ops M`, `--trace`, `--pcap FILE`; `--planted [--only NAME]` looks which of the planted
    /// bugs it finds, and `--bless` writes docs/generated/planted.md
    #[command(disable_help_flag = true)]
    Sim {
        /// Arguments of the program; `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// A random attacker on the wire beside two honest peers, optimized: `--minutes N --seed S` or
    /// `--frames N`; `--bless` writes docs/generated/forgery.md instead
    Attack {
        /// Arguments of the program; `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Connections without end, under faults, optimized: `--hours N`, `--minutes M`; memory,
    /// descriptors, mappings and objects must not grow
    Soak(soak::Options),
    /// Every fault of the catalogue in each phase of a consumer's work: `--only NAME` for some;
    /// `--bless` writes docs/faults.md
    Faults {
        /// Arguments of the program; `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Searches for inputs of devices, peers, files and programs that break a promise
    /// (tests/fuzz): `--minutes N`, `--list`, `--minimize`, `--coverage`
    Fuzz(fuzz::Options),
    /// All interleavings of the threads that share an adapter, tried by loom
    Loom,
    /// Build and test with the lowest version of Rust that Cargo.toml promises
    Msrv,
    /// A Debian package of the programs, the uDAPL provider and the model, with lintian's verdict:
    /// `--twice` compares two builds, `--install` uses it in clean roots
    Package(package::Options),
    /// README's commands in clean roots of Debian 12 and 13, and the time to the first `dat ping`;
    /// takes root
    Readme(readme::Options),
    /// Each crate with every set of its features
    Features,
    /// The tests of drivers, hosts and model under ThreadSanitizer or AddressSanitizer
    Sanitize(sanitize::Options),
    /// Lines of the product that tests execute, by LLVM's counters; fails where a goal is missed
    Hit,
    /// The driver on the model with every open fact of silicon set otherwise: each setting alone, pairs,
    /// random sets, every kind of card
    Switches(switches::Options),
    /// Instructions, time as a ratio to the limit loop, device economy, sizes; fails where a goal
    /// is missed. `--peers` also measures libmlx5 and uDAPL
    Bench(bench::Options),
    /// docs/book as pages for a browser, in target/book; installs mdBook below target/tools where
    /// there is none
    Book,
    /// What each call, event and datagram costs beside 1, 1,000 and 10,000 objects; fails where a
    /// cost grows by more than its gate
    Scale(scale::Options),
}

fn main() -> ExitCode {
    match verb() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn verb() -> Result<ExitCode> {
    match Cli::parse().verb {
        Verb::Demo { args } => {
            let status = run::cargo()
                .args(["run", "--release", "-p", "dat-tests", "--bin", "demo", "--"])
                .args(args)
                // File names of the demo are relative to the user's current folder.
                .current_dir(std::env::current_dir()?)
                .status()?;
            return Ok(status
                .code()
                .map_or(ExitCode::FAILURE, |c| ExitCode::from(c.clamp(0, 255) as u8)));
        }
        Verb::Test { no_guests } => suite::test(!no_guests)?,
        Verb::Tidy(options) => tidy::tidy(&options)?,
        Verb::Pictures => pictures::pictures()?,
        Verb::Record(options) => record::record(&options)?,
        Verb::Nostd { targets: false } => nostd::nostd()?,
        Verb::Nostd { targets: true } => targets::targets()?,
        Verb::QemuTest(options) => dat_lab::qemu_test(&options)?,
        Verb::Fields { record } => {
            if record {
                fields::record()?;
            }
            fields::write()?;
        }
        Verb::Layouts => layouts::layouts()?,
        Verb::Trace { verb } => trace::trace(verb)?,
        Verb::Calls => {
            let calls = ["dat-core", "--features", "testing", "--test", "random_calls"];
            let replays = ["dat-tests", "--test", "replays"];
            for test in [&calls[..], &replays] {
                let mut command = run::cargo();
                command.args(["test", "--release", "-p"]).args(test);
                command.args(["--", "--nocapture"]);
                run::plain(command, "a call was answered otherwise")?;
            }
        }
        Verb::Mutants(options) => mutants::mutants(&options)?,
        Verb::Laws { args } => {
            let mut command = run::cargo();
            command.args(["run", "--release", "-p", "dat-tests", "--bin", "laws", "--"]);
            command.args(args);
            run::plain(command, "a law does not hold")?;
        }
        Verb::Attack { args } => {
            let mut command = run::cargo();
            if args == ["--bless"] {
                command.args(["test", "-p", "dat-suite", "--test", "attacks", "table"]);
                command.env("FORGERY_BLESS", "1");
            } else {
                command.args(["run", "--release", "-p", "dat-tests", "--bin", "attack", "--"]);
                command.args(args);
            }
            run::plain(command, "an attack succeeded")?;
        }
        Verb::Sim { mut args } if args.iter().any(|arg| arg == "--planted") => {
            args.retain(|arg| arg != "--planted");
            planted::planted(&planted::Options::parse_from(args))?;
        }
        Verb::Sim { args } => {
            let mut command = run::cargo();
            command.args(["run", "--quiet", "--profile", "sim", "-p", "dat-sim", "--bin", "sim"]);
            // File names are relative to the user's current folder.
            command.arg("--").args(args).current_dir(std::env::current_dir()?);
            run::plain(command, "a rule of the simulation does not hold")?;
        }
        Verb::Soak(options) => soak::soak(&options)?,
        Verb::Faults { args } => {
            let mut command = run::cargo();
            command.args(["run", "--quiet", "-p", "dat-tests", "--bin", "faults", "--"]).args(args);
            run::plain(command, "a fault takes more than it may")?;
        }
        Verb::Fuzz(options) => fuzz::fuzz(&options)?,
        Verb::Loom => loom::loom()?,
        Verb::Msrv => msrv::msrv()?,
        Verb::Package(options) => package::package(&options)?,
        Verb::Readme(options) => readme::readme(&options)?,
        Verb::Features => features::features()?,
        Verb::Sanitize(options) => sanitize::sanitize(&options)?,
        Verb::Hit => hit::hit()?,
        Verb::Switches(options) => switches::switches(&options)?,
        Verb::Bench(options) => bench::bench(&options)?,
        Verb::Book => book::book()?,
        Verb::Scale(options) => scale::scale(&options)?,
    }
    Ok(ExitCode::SUCCESS)
}
