//! `cargo xtask qemu-test --mpi`: MPI libraries of others over the provider of this workspace, each
//! rank with an HCA of the model. `tests/mpi` has their programs, `dat run` is their wrapper.

mod calls;
mod guest;
mod hpcc;
mod job;
mod kills;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::outcome::{Outcome, attempt};
use crate::guest::stage::Stage;
use crate::images::mpi::{Intel, PACKAGE};
use crate::scenarios::Scenario;
use job::{Job, Library, PARTS, Program, Rig};

/// The scenarios, in the order they run.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "mpi",
        about: "a program that verifies contents over MPI libraries that speak uDAPL, at 2, 4 and 8 ranks",
        run: rows,
        stock: false,
    },
    Scenario {
        name: "mpi-calls",
        about: "every collective and one-sided call of Intel MPI over a sweep of sizes, contents verified; the rate of 1 MiB messages",
        run: calls::run,
        stock: false,
    },
    Scenario {
        name: "mpi-hpcc",
        about: "HPCC, compiled from its source, over Intel MPI: its own verification",
        run: hpcc::run,
        stock: false,
    },
    Scenario {
        name: "mpi-kills",
        about: "fifty times a rank is killed in mid-traffic: the others end, the next run starts at once, nothing is left",
        run: kills::run,
        stock: false,
    },
    Scenario {
        name: "mpi-guest",
        about: "two ranks of Intel MPI in a guest, each with a virtual function behind /dev/vfio; one is killed; pinned pages are counted",
        run: guest::run,
        stock: false,
    },
];

/// Names and values.
type Environment = &'static [(&'static str, &'static str)];
/// Numbers of ranks.
const RANKS: [usize; 3] = [2, 4, 8];
/// Settings of Intel MPI: the name of a row, and its environment.
const INTEL: [(&str, Environment); 11] = [
    ("RC", &[]),
    ("RC, translation cache", &[("I_MPI_DAPL_TRANSLATION_CACHE", "1")]),
    ("RC, no translation cache", &[("I_MPI_DAPL_TRANSLATION_CACHE", "0")]),
    ("RC, rendezvous by RDMA write", &[("I_MPI_DAPL_RDMA_RNDV_WRITE", "1")]),
    ("RC, rendezvous by RDMA read", &[("I_MPI_DAPL_RDMA_RNDV_WRITE", "0")]),
    ("RC, dynamic connections", &[("I_MPI_DYNAMIC_CONNECTION", "1")]),
    ("UD", &[UD]),
    ("UD, translation cache", &[UD, ("I_MPI_DAPL_UD_TRANSLATION_CACHE", "1")]),
    ("UD, no translation cache", &[UD, ("I_MPI_DAPL_UD_TRANSLATION_CACHE", "0")]),
    ("UD with RDMA", &[UD, MIXED]),
    (
        "UD with RDMA, no translation cache",
        &[
            UD,
            MIXED,
            ("I_MPI_DAPL_TRANSLATION_CACHE", "0"),
            ("I_MPI_DAPL_UD_TRANSLATION_CACHE", "0"),
        ],
    ),
];
/// Settings of Intel MPI with MPI_THREAD_MULTIPLE.
const THREADS: [(&str, Environment); 2] =
    [("four threads a rank, RC", &[]), ("four threads a rank, UD", &[UD])];
const UD: (&str, &str) = ("I_MPI_DAPL_UD", "enable");
const MIXED: (&str, &str) = ("I_MPI_DAPL_UD_RDMA_MIXED", "enable");
/// Settings of the two other libraries, as more words of their launchers and as environments.
const OPEN: [(&str, Environment); 2] =
    [("Open MPI", &[]), ("Open MPI, leave_pinned", &[("OMPI_MCA_mpi_leave_pinned", "1")])];
const MVAPICH: [(&str, Environment); 2] = [
    ("MVAPICH2", &[("MV2_USE_LAZY_MEM_UNREGISTER", "0")]),
    ("MVAPICH2, registration cache", &[("MV2_USE_LAZY_MEM_UNREGISTER", "1")]),
];

/// Libraries that only their holder has.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Prefixes {
    /// With --mpi, an installation of Open MPI (up to 1.6.5) that was built with its btl udapl
    #[arg(long, value_name = "PREFIX", requires = "mpi")]
    openmpi: Option<PathBuf>,
    /// With --mpi, an installation of MVAPICH2 that was built with --with-rdma=udapl
    #[arg(long, value_name = "PREFIX", requires = "mpi")]
    mvapich2: Option<PathBuf>,
}

/// A row of the table: its name, and how it went with each number of ranks.
type Rows = Vec<(String, Vec<Option<Outcome>>)>;

/// Names of the cells: setting, number of ranks.
fn cell(name: &str, ranks: usize) -> String {
    format!("{name} / {ranks}")
}

fn wanted(stage: &Stage<'_>, cell: &str) -> bool {
    stage.cells().is_none_or(|parts| parts.split('|').any(|part| cell.contains(part)))
}

/// Intel MPI, which this fetches.
fn intel(stage: &Stage<'_>, intel: &Intel, program: &Program) -> Result<Rig> {
    Rig::new(stage, Library::Intel(intel.clone()), program)
}

fn rows(stage: &mut Stage<'_>) -> Result<String> {
    let mut left = Vec::new();
    let mut rows = Rows::new();
    let mut notes = Vec::new();
    let verify = Program::own("verify");
    match Intel::fetch() {
        Ok(found) => {
            let rig = intel(stage, &found, &verify)?;
            notes.push(rig.note());
            run_rows(stage, &rig, &INTEL, &["1"], &PARTS, &mut rows)?;
            run_rows(stage, &rig, &THREADS, &["1", "threads"], &["threads"], &mut rows)?;
        }
        Err(error) => left.push(format!("Intel MPI ({PACKAGE}): {error:#}")),
    }
    let prefixes = stage.mpi_prefixes().clone();
    let others = [
        (
            prefixes.openmpi,
            &OPEN,
            Library::Open as fn(PathBuf) -> Library,
            "Open MPI",
            "--openmpi PREFIX",
        ),
        (prefixes.mvapich2, &MVAPICH, Library::Mvapich, "MVAPICH2", "--mvapich2 PREFIX"),
    ];
    for (prefix, settings, library, name, option) in others {
        match prefix {
            Some(prefix) => {
                let rig = Rig::new(stage, library(prefix), &verify)?;
                run_rows(stage, &rig, settings, &["1"], &PARTS, &mut rows)?;
            }
            None => left.push(format!("{name}: name an installation by {option}")),
        }
    }
    println!("\n{}", table(&rows));
    for note in
        notes.iter().chain(&left.iter().map(|it| format!("left out: {it}")).collect::<Vec<_>>())
    {
        println!("{note}");
    }
    sum(&rows, &left)
}

fn run_rows(
    stage: &mut Stage<'_>,
    rig: &Rig,
    settings: &[(&str, Environment)],
    words: &[&str],
    parts: &[&str],
    rows: &mut Rows,
) -> Result<()> {
    for (name, environment) in settings {
        let mut outcomes = Vec::new();
        for ranks in RANKS {
            let cell = cell(name, ranks);
            if !wanted(stage, &cell) {
                outcomes.push(None);
                continue;
            }
            let job = Job { ranks, environment, words, parts };
            outcomes.push(Some(attempt(
                &cell,
                1,
                |_| false,
                || rig.verified(stage, &job).map(drop),
            )));
        }
        if outcomes.iter().any(Option::is_some) {
            rows.push(((*name).to_owned(), outcomes));
        }
    }
    Ok(())
}

fn table(rows: &Rows) -> String {
    let mut text = String::from("| setting |");
    for ranks in RANKS {
        text.push_str(&format!(" {ranks} ranks |"));
    }
    text.push_str("\n|---|---|---|---|\n");
    for (name, outcomes) in rows {
        text.push_str(&format!("| {name} |"));
        for outcome in outcomes {
            let cell = match outcome {
                Some(Outcome::Passed(seconds)) => format!(" {seconds:.1} s"),
                Some(other) => format!(" {}", other.cell()),
                None => String::new(),
            };
            text.push_str(&cell);
            text.push_str(" |");
        }
        text.push('\n');
    }
    text
}

fn sum(rows: &Rows, left: &[String]) -> Result<String> {
    let cells = || {
        rows.iter().flat_map(|(name, outcomes)| {
            let named = outcomes.iter().zip(RANKS).map(move |(it, ranks)| (cell(name, ranks), it));
            named.filter_map(|(name, it)| Some((name, it.as_ref()?)))
        })
    };
    let failed: Vec<String> =
        cells().filter(|(_, it)| it.is_failed()).map(|(name, _)| name).collect();
    let count = cells().count();
    if !failed.is_empty() {
        bail!("{} of {count} cells fail: {}", failed.len(), failed.join(", "));
    }
    let left: Vec<&str> = left.iter().filter_map(|it| it.split([':', '(']).next()).collect();
    let left = left.join(", ");
    ensure!(count > 0 || !left.is_empty(), "no cell is chosen");
    let left = if left.is_empty() { left } else { format!("; left out: {left}") };
    Ok(format!("{count} cells pass{left}"))
}

/// What every run of all tests makes, if the library was fetched before.
pub(crate) fn here(stage: &mut Stage<'_>) -> Result<String> {
    let Some(found) = Intel::there()? else {
        return Ok(format!(
            "SKIPPED: {PACKAGE} is not there; `cargo xtask qemu-test --mpi` fetches it"
        ));
    };
    let rig = intel(stage, &found, &Program::own("verify"))?;
    for (name, environment) in [("RC", &[][..]), ("UD", &[UD][..])] {
        let job = Job { ranks: 2, environment, words: &["0"], parts: &PARTS };
        rig.verified(stage, &job).with_context(|| cell(name, 2))?;
    }
    Ok("Intel MPI at 2 ranks, RC and UD, shortened; all by --mpi".to_owned())
}

/// The program's source, and what is loaded before it.
fn source(name: &str) -> PathBuf {
    crate::run::root().join("tests/mpi").join(name)
}

/// Whether a file is there, with a remedy.
fn needed(path: &Path) -> Result<&Path> {
    ensure!(path.exists(), "{}: there is no such file", path.display());
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_that_fails_fails_the_verb_and_what_is_left_out_is_named() {
        let row = |outcome| vec![("RC".to_owned(), vec![Some(outcome), None, None])];
        let left = ["MVAPICH2: name it".to_owned()];
        let good = row(Outcome::Passed(1.25));
        assert_eq!(sum(&good, &left).unwrap(), "1 cells pass; left out: MVAPICH2");
        assert!(table(&good).contains("| RC | 1.2 s | | |"), "{}", table(&good));
        let bad = row(Outcome::Failed("why".into()));
        assert!(sum(&bad, &left).unwrap_err().to_string().ends_with("cells fail: RC / 2"));
        assert!(sum(&Rows::new(), &[]).is_err());
    }
}
