//! `cargo xtask qemu-test --dat`: the DAT programs that others wrote, loaded by the registry that
//! others wrote, over the provider of this workspace. `programs.tsv` says which, with which
//! arguments, and what they have to say.

mod corners;
mod cost;
mod environment;
mod kit;
mod ours;
mod processes;
mod report;
mod rows;
mod runner;
mod tiers;

pub(crate) use ours::{Programs, READY};

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::ROWS;
use crate::folder;
use crate::guest::stage::Stage;
use crate::matrix::outcome::Outcome;
use crate::scenarios::Scenario;
use kit::Kit;
use rows::Tier;
use tiers::Choice;

/// The scenarios, in the order they run.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "host",
        about: "both sides on the host, each with an HCA behind a socket; those with several threads over the locked provider too",
        run: host,
        stock: false,
    },
    Scenario {
        name: "processes",
        about: "sixteen thousand connections of one process that leave nothing behind, memcheck of a hundred, a hundred opens",
        run: processes,
        stock: false,
    },
    Scenario {
        name: "corners",
        about: "what the manual pages say of corners, by a probe in C of this workspace",
        run: corners,
        stock: false,
    },
    Scenario {
        name: "cost",
        about: "instructions of an RDMA write and its completion, from a program in C to the doorbell",
        run: cost,
        stock: false,
    },
    Scenario {
        name: "guest",
        about: "both sides in a guest, each with an HCA behind /dev/vfio",
        run: guest,
        stock: false,
    },
    Scenario {
        name: "wire",
        about: "one side on the host, the other the stock provider over Soft-RoCE in a guest",
        run: wire,
        stock: true,
    },
    Scenario {
        name: "ib",
        about: "on InfiniBand: both sides on the host, and one side the stock provider over mlx5_ib in a guest with OpenSM",
        run: ib,
        stock: true,
    },
    Scenario {
        name: "stock",
        about: "the list with the stock provider over Soft-RoCE on both sides: what the list is worth",
        run: stock,
        stock: true,
    },
];

/// Has programs ask for a provider that is safe for threads.
const THREADSAFE: &str = "tests/dapl/threadsafe.c";
/// What the stock provider does not pass.
const KNOWN: &str = include_str!("stock.tsv");
/// Places in the documentation.
#[cfg(test)]
const SECTIONS: [&str; 6] = ["host", "processes", "guest", "wire", "ib", "stock"];

/// Kinds and names of the rows, a kind for each tier.
pub(crate) fn row_names() -> Result<Vec<(&'static str, String)>> {
    let tiers = [Tier::Host, Tier::Guest, Tier::Wire, Tier::Safe, Tier::Subnet];
    let rows = rows::rows()?;
    let of_tier = |(tier, kind): (Tier, &'static str)| {
        let rows = rows.iter().filter(move |row| row.is_of(tier));
        rows.map(move |row| (kind, row.name.clone()))
    };
    Ok(tiers.into_iter().zip(ROWS).flat_map(of_tier).collect())
}

/// All that needs no guest: every row of the host, shortened, and what is not seen in what programs
/// print.
pub(crate) fn here(stage: &mut Stage<'_>) -> Result<String> {
    let [host, safe] = beside(stage, Choice::Quick)?;
    let sum = report::sum(&[("host", &host), ("safe for threads", &safe)])?;
    let found = processes::run(stage, &Kit::find(&folder()?)?)?;
    let (processes, corners, cost) = (processes::sum(&found)?, corners(stage)?, cost(stage)?);
    Ok(format!("{sum}; {processes}; {corners}; {cost}"))
}

/// A selection of the rows in a guest and with Soft-RoCE, and which ones it leaves out.
pub(crate) fn away(stage: &mut Stage<'_>) -> Result<String> {
    let kit = Kit::find(&folder()?)?;
    let guest = tiers::guest(stage, &kit, Choice::Quick)?;
    let [one, other] = tiers::wire(stage, &kit, Choice::Quick)?;
    println!("    {}", report::left(&guest, &one)?);
    let sum =
        report::sum(&[("guest", &guest), ("ours serves", &one), ("Soft-RoCE serves", &other)])?;
    Ok(format!(
        "{sum}: {} in a guest, {} with Soft-RoCE both ways; the others by --dat",
        guest.len(),
        one.len()
    ))
}

/// A selection of the rows on InfiniBand.
pub(crate) fn in_subnet(stage: &mut Stage<'_>) -> Result<String> {
    let columns = tiers::subnet(stage, &Kit::find(&folder()?)?, Choice::Quick)?;
    report::sum(&SUBNET.into_iter().zip(&columns).collect::<Vec<_>>())
}

/// The provider's file, and the folder of the registry, for programs that are in neither list.
pub(super) fn provider() -> Result<[PathBuf; 2]> {
    let kit = Kit::find(&folder()?)?;
    Ok([kit.library.clone(), kit.path().to_path_buf()])
}

/// Provider, registry and more programs with all that they load, for a guest: below `/dat`.
pub(super) fn guest_archive(more: &[&Path]) -> Result<Vec<u8>> {
    Kit::find(&folder()?)?.archive(more, &[])
}

fn host(stage: &mut Stage<'_>) -> Result<String> {
    let [host, safe] = beside(stage, Choice::Whole)?;
    report(stage, "host", &[("host", &host), ("safe for threads", &safe)])
}

/// The rows of the host, over the provider without locks and over the one that is safe for threads.
fn beside(stage: &mut Stage<'_>, choice: Choice) -> Result<[tiers::Outcomes; 2]> {
    let mut kit = Kit::find(&folder()?)?;
    let host = tiers::host(stage, &kit, choice)?;
    let words = ["-shared", "-fPIC"];
    let asks = stage.path("threadsafe.so");
    kit.preload(corners::compile(&kit, THREADSAFE, &asks, &words)?);
    Ok([host, tiers::safe(stage, &kit, choice)?])
}

fn processes(stage: &mut Stage<'_>) -> Result<String> {
    let kit = Kit::find(&folder()?)?;
    let found = processes::run(stage, &kit)?;
    let table = processes::table(&found);
    println!("\n{table}");
    if stage.bless() && stage.cells().is_none() {
        report::bless("processes", &table)?;
    }
    processes::sum(&found)
}

fn corners(stage: &mut Stage<'_>) -> Result<String> {
    corners::run_probe(stage, &Kit::find(&folder()?)?)
}

fn cost(stage: &mut Stage<'_>) -> Result<String> {
    cost::run(stage, &Kit::find(&folder()?)?)
}

fn guest(stage: &mut Stage<'_>) -> Result<String> {
    let kit = Kit::find(&folder()?)?;
    let outcomes = tiers::guest(stage, &kit, Choice::Whole)?;
    report(stage, "guest", &[("guest", &outcomes)])
}

fn wire(stage: &mut Stage<'_>) -> Result<String> {
    let kit = Kit::find(&folder()?)?;
    let [one, other] = tiers::wire(stage, &kit, Choice::Whole)?;
    report(stage, "wire", &[("ours serves", &one), ("Soft-RoCE serves", &other)])
}

/// Columns of the rows on InfiniBand.
const SUBNET: [&str; 3] = ["ours on both sides", "ours serves", "mlx5_ib serves"];

fn ib(stage: &mut Stage<'_>) -> Result<String> {
    let columns = tiers::subnet(stage, &Kit::find(&folder()?)?, Choice::Whole)?;
    report(stage, "ib", &SUBNET.into_iter().zip(&columns).collect::<Vec<_>>())
}

/// Why the stock provider does not pass a row, if it does not.
fn known(row: &str) -> Option<&'static str> {
    let mut rows = KNOWN.lines().filter_map(|line| line.split_once('\t'));
    rows.find_map(|(name, why)| (name == row).then_some(why))
}

fn stock(stage: &mut Stage<'_>) -> Result<String> {
    let mut outcomes = tiers::stock(stage)?;
    for (row, outcome) in outcomes.iter_mut().filter(|(_, outcome)| outcome.is_failed()) {
        if let Some(why) = known(row) {
            *outcome = Outcome::Known(why);
        }
    }
    report(stage, "stock", &[("stock on both sides", &outcomes)])
}

/// Prints the table, keeps it if that was asked for, and says how it went.
fn report(stage: &Stage<'_>, name: &str, columns: &[(&str, &tiers::Outcomes)]) -> Result<String> {
    let table = report::table(columns)?;
    println!("\n{table}");
    match (stage.bless(), stage.cells()) {
        (true, None) => report::bless(name, &table)?,
        (true, Some(_)) => report::bless_rows(name, &table)?,
        (false, _) => {}
    }
    report::sum(columns)
}
