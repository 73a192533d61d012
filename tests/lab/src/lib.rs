//! `cargo xtask qemu-test`: the driver where its users run it, in guests under QEMU, on devices of
//! the model.
//!
//! Each scenario starts the model's server, boots one or two guests and judges what they say. The
//! guests run under emulation (TCG) on any machine; what a real IOMMU or a real CPU's memory system
//! would add, they do not show.

#![expect(
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a tool that prints and is run by hand"
)]

mod guest;
pub mod images;
mod matrix;
pub mod run;
mod scenarios;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};

use guest::stage::Stage;
use images::iommufd::Build;
use images::machine::Machine;
use images::packages;
use images::programs::Programs;
use matrix::{dat, linux, mpi};
use scenarios::{IOMMUFD, PACKAGE, SCENARIOS, Scenario};

/// Kind of the cells of the matrix in [`names`].
pub const CELL: &str = "matrix cell";
/// Kinds of the rows of DAT programs, by where they run.
pub const ROWS: [&str; 5] = [
    "DAT program row, host",
    "DAT program row, guest",
    "DAT program row, wire",
    "DAT program row, safe",
    "DAT program row, InfiniBand",
];

/// Where the headers of DAT are, from the distribution's package.
pub fn dat_headers() -> Result<PathBuf> {
    let tree = packages::tree(&folder()?, &packages::DAPL)?;
    Ok(tree.root().join("usr/include"))
}

/// Fetches what the scenarios of `options` run on.
pub fn fetch(options: &Options) -> Result<()> {
    Machine::find(&folder()?, Some(&options.kernel), None).map(drop)
}

/// Where things that are fetched or built for guests are kept.
pub fn folder() -> Result<PathBuf> {
    Ok(run::target()?.join("qemu-test"))
}

/// What to run, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Scenarios to run; all, if none is named
    scenarios: Vec<String>,
    /// Name the scenarios
    #[arg(long)]
    list: bool,
    /// Show what guests and servers print
    #[arg(long, short)]
    verbose: bool,
    /// Instead, stock Linux on the model: its drivers and its tools
    #[arg(long)]
    linux: bool,
    /// Instead, the DAT programs of others, over the uDAPL provider of this workspace
    #[arg(long, conflicts_with = "linux")]
    dat: bool,
    /// Instead, MPI libraries of others over that provider, each rank with an HCA
    #[arg(long, conflicts_with_all = ["linux", "dat", "iommufd"])]
    mpi: bool,
    #[command(flatten)]
    prefixes: mpi::Prefixes,
    /// Instead, guests of a kernel with iommufd, which is built once (some minutes)
    #[arg(long, conflicts_with_all = ["linux", "dat"])]
    iommufd: bool,
    /// Instead, this Debian package in a guest of Debian; takes root
    #[arg(long, value_name = "FILE", conflicts_with_all = ["linux", "dat", "mpi", "iommufd"])]
    package: Option<PathBuf>,
    /// Shorten what takes long, as `cargo xtask test` does
    #[arg(long)]
    short: bool,
    /// The version of stock Linux
    #[arg(long, default_value = DEFAULT_KERNEL)]
    kernel: String,
    /// Of the matrix, only cells with this in their name (`TEST / SERVER-CLIENT`); of the DAT
    /// programs, only such rows; of MPI, only such cells (`SETTING / RANKS`); of tinygrad, only such settings; `A|B` is either
    #[arg(long, value_name = "PART")]
    cells: Option<String>,
    /// Of the matrix, write the rows that ran with every pairing into docs/interop.md; of
    /// all DAT programs, the table into docs/dat-programs.md
    #[arg(long)]
    bless: bool,
    #[command(flatten)]
    notes: Notes,
}

/// Kinds and names of scenarios, matrix cells and DAT program rows.
pub fn names() -> Result<Vec<(&'static str, String)>> {
    let mut names = Vec::new();
    let tables = [
        ("guests", SCENARIOS),
        ("--linux", linux::SCENARIOS),
        ("--dat", dat::SCENARIOS),
        ("--mpi", mpi::SCENARIOS),
        ("--iommufd", IOMMUFD),
        ("--package", PACKAGE),
    ];
    for (table, scenarios) in tables {
        let of_table = scenarios.iter().map(|scenario| format!("{table}: {}", scenario.name));
        names.extend(of_table.map(|name| ("scenario", name)));
    }
    names.extend(linux::cells().map(|cell| (CELL, cell)));
    names.extend(dat::row_names()?);
    Ok(names)
}

/// What the models of a run write down.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Notes {
    /// Add notes of every field that the guests' drivers set to this file
    #[arg(long, value_name = "FILE")]
    fields: Option<PathBuf>,
    /// Write every command of a scenario in mlx5_core's own hexdump form
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

impl Notes {
    /// As arguments of the model's server, which runs in another folder.
    fn args(&self) -> Result<Vec<std::ffi::OsString>> {
        let mut args = Vec::new();
        if self.fields.is_some() {
            // Where there is a third HCA, it belongs to the driver of this workspace.
            args.extend(["--fields-of", "0", "--fields-of", "1"].map(Into::into));
        }
        for (option, file) in [("--fields", &self.fields), ("--trace", &self.trace)] {
            if let Some(file) = file {
                args.push(option.into());
                args.push(std::path::absolute(file)?.into());
            }
        }
        Ok(args)
    }
}

/// Brings stock Linux up on the model and writes its commands to a file.
pub fn trace(file: &std::path::Path) -> Result<()> {
    qemu_test(&Options {
        scenarios: vec!["look".into()],
        linux: true,
        notes: Notes { trace: Some(file.into()), ..Notes::default() },
        ..Options::default()
    })
}

/// The stock Linux that is tried if none is named.
const DEFAULT_KERNEL: &str = "6.12";

impl Default for Options {
    fn default() -> Self {
        Self {
            scenarios: Vec::new(),
            list: false,
            verbose: false,
            linux: false,
            dat: false,
            mpi: false,
            prefixes: mpi::Prefixes::default(),
            iommufd: false,
            package: None,
            short: false,
            kernel: DEFAULT_KERNEL.to_owned(),
            cells: None,
            bless: false,
            notes: Notes::default(),
        }
    }
}

impl Options {
    /// The scenarios of guests, with what takes long shortened.
    #[must_use]
    pub fn short() -> Self {
        Self { short: true, ..Self::default() }
    }

    /// A package where its users have it.
    #[must_use]
    pub fn package(file: PathBuf) -> Self {
        Self { package: Some(file), ..Self::default() }
    }

    fn table(&self) -> &'static [Scenario] {
        if self.linux {
            linux::SCENARIOS
        } else if self.dat {
            dat::SCENARIOS
        } else if self.mpi {
            mpi::SCENARIOS
        } else if self.iommufd {
            IOMMUFD
        } else if self.package.is_some() {
            PACKAGE
        } else {
            SCENARIOS
        }
    }
}

/// Runs the scenarios named, or all, and fails where one does.
pub fn qemu_test(options: &Options) -> Result<()> {
    if options.list {
        for scenario in options.table() {
            println!("{:<12} {}", scenario.name, scenario.about);
        }
        return Ok(());
    }
    let (_, failed) = scenarios(options)?;
    ensure!(failed.is_empty(), "scenarios failed: {}", failed.join(", "));
    Ok(())
}

/// Runs the scenarios named, or all; returns how many passed and which failed.
pub fn scenarios(options: &Options) -> Result<(usize, Vec<&'static str>)> {
    let (table, names) = (options.table(), &options.scenarios);
    for name in names {
        ensure!(
            table.iter().any(|s| s.name == name),
            "there is no scenario {name}; `--list` names them"
        );
    }
    let start = Instant::now();
    println!("$ qemu-test");
    let folder = folder()?;
    let chosen: Vec<&Scenario> = table
        .iter()
        .filter(|s| names.is_empty() || names.iter().any(|name| name == s.name))
        .collect();
    let stock = chosen.iter().any(|scenario| scenario.stock);
    let stock = stock.then_some(options.kernel.as_str());
    let build = options.iommufd.then(|| Build::new(&folder));
    if let Some(build) = &build {
        if let Err(error) = build.fetch() {
            println!("SKIPPED: the source of a kernel with iommufd could not be had: {error:#}");
            return Ok((0, Vec::new()));
        }
    }
    let machine = Machine::find(&folder, stock, build.as_ref())?;
    let programs = Programs::build(&folder)?;
    let prepared = start.elapsed();

    let next = AtomicUsize::new(0);
    let rows = Mutex::new(Vec::new());
    // Guests sleep half of their time, above all while the kernel waits for a function that was
    // reset: one scenario more than there are processors keeps these busy. Two pairs of stock
    // Linux do not sleep, DAT's programs share a port, and ranks keep all processors busy.
    let workers = if options.linux || options.dat || options.mpi {
        1
    } else {
        thread::available_parallelism().map_or(1, |n| n.get().min(2) + 1)
    };
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(scenario) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let row = run(&machine, &programs, scenario, options);
                    rows.lock().unwrap_or_else(PoisonError::into_inner).push(row);
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    rows.sort_by_key(|row| table.iter().position(|s| s.name == row.name));

    println!("\n| scenario | result | s | |\n|---|---|---|---|");
    println!("| preparation | | {:.1} | |", prepared.as_secs_f64());
    let mut failed = Vec::new();
    for Row { name, outcome, seconds } in &rows {
        let (result, what) = match outcome {
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
    outcome: Result<String>,
    seconds: f64,
}

fn run(machine: &Machine, programs: &Programs, scenario: &Scenario, options: &Options) -> Row {
    let name = scenario.name;
    let start = Instant::now();
    let outcome = Stage::new(machine, programs, name, options)
        .and_then(|mut stage| (scenario.run)(&mut stage));
    let seconds = start.elapsed().as_secs_f64();
    match &outcome {
        Ok(what) => println!("  {name:<12} ok      {seconds:5.1} s  {what}"),
        Err(error) => println!("  {name:<12} FAILED  {seconds:5.1} s  {error:#}"),
    }
    Row { name, outcome, seconds }
}
