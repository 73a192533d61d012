//! `cargo xtask bench --peers`: libmlx5 and uDAPL over it, measured in the same run as our own
//! cases, and the page that keeps their figures.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::harness::Harness;
use super::{count, records};

/// The page.
pub(super) const PAGE: &str = "docs/generated/peers.md";

/// Interfaces of the harness, by their columns.
const COLUMNS: [(&str, &str); 3] = [
    ("libmlx5", "`ibv_post_send`, `ibv_poll_cq`"),
    ("ibv_wr", "`ibv_wr_*`, `ibv_start_poll`"),
    ("udapl", "uDAPL"),
];
/// Configurations of libmlx5: with the locks of the default, and with none.
const HOW: [&str; 2] = ["threaded", "single"];
/// Rounds of timing: ours and theirs in turn. The best of each counts.
const ROUNDS: usize = 5;
/// Blocks of a case and round, and blocks that callgrind counts.
const BLOCKS: &str = "1000";
const COUNTED: &str = "4";

/// A figure of the default and of the single-threaded library.
type Both = [f64; 2];

/// One case.
#[derive(Debug)]
struct Row {
    name: String,
    instructions: f64,
    nanoseconds: f64,
    /// Instructions and nanoseconds, by column.
    peers: [Option<(Both, Both)>; 3],
}

/// Measures all; returns the text of the page. `ours` are our instructions by case.
pub(super) fn measure(
    harness: &Harness,
    binary: &Path,
    ours: &BTreeMap<String, f64>,
) -> Result<String> {
    let cases = records(&harness.program, &["list"])?;
    // The first interface has all cases.
    let all = cases.iter().filter(|case| case[1] == COLUMNS[0].0).map(|case| &case[2]);
    let names: Vec<&String> = all.filter(|name| ours.contains_key(*name)).collect();
    let (own, theirs) = time(binary, harness, &names)?;
    let mut rows = Vec::new();
    for name in names {
        let mut peers = [None; 3];
        for (cell, (peer, _)) in peers.iter_mut().zip(COLUMNS) {
            if !cases.iter().any(|case| case[1] == peer && case[2] == *name) {
                continue;
            }
            let mut both = ([0.0; 2], [0.0; 2]);
            for (n, how) in HOW.into_iter().enumerate() {
                let mut command = vec!["count", peer, name];
                command.extend([how, COUNTED]);
                both.0[n] = count(&format!("{peer}_{name}"), &harness.program, &command)?;
                both.1[n] = figure(&theirs, &format!("{peer} {name} {how}"))?;
            }
            *cell = Some(both);
        }
        let instructions = ours[name];
        let nanoseconds = figure(&own, name)?;
        rows.push(Row { name: name.clone(), instructions, nanoseconds, peers });
    }
    Ok(page(&harness.versions, &rows, figure(&own, "limit")?))
}

type Times = BTreeMap<String, f64>;

fn figure(times: &Times, name: &str) -> Result<f64> {
    times.get(name).copied().with_context(|| format!("no time of {name}"))
}

/// Runs ours, with the limit loop, before and after each run of theirs.
fn time(binary: &Path, harness: &Harness, names: &[&String]) -> Result<(Times, Times)> {
    let (mut own, mut theirs) = (Times::new(), Times::new());
    let mut only = "limit".to_owned();
    for name in names {
        let _ = write!(only, ",{name}");
    }
    for round in 0..=ROUNDS {
        let timed = records(binary, &["--time", "--only", &only, "--blocks", BLOCKS])?;
        keep_best(&mut own, &timed)?;
        if round < ROUNDS {
            keep_best(&mut theirs, &records(&harness.program, &["time", BLOCKS])?)?;
        }
    }
    Ok((own, theirs))
}

fn keep_best(best: &mut Times, records: &[Vec<String>]) -> Result<()> {
    for record in records {
        let [kind, name @ .., time] = record.as_slice() else { bail!("no record: {record:?}") };
        if kind == "time" {
            let time: f64 = time.parse()?;
            best.entry(name.join(" ")).and_modify(|t| *t = t.min(time)).or_insert(time);
        }
    }
    Ok(())
}

/// A table: its title, the digits of its figures, this driver's figure, a peer's, and their unit.
type Section = (&'static str, usize, fn(&Row) -> f64, fn(&(Both, Both)) -> Both, f64);

fn page(versions: &str, rows: &[Row], limit: f64) -> String {
    let mut text = format!(
        "\
# Cost of the peers

Made by `cargo xtask bench --peers --bless`. Do not edit.

The same operations through this driver, through libmlx5 and through uDAPL over libmlx5, on one machine and in one run.
{versions}, both as their authors released them, compiled with `-O2`.
Of two figures the first is the default, with locks; the second is of `MLX5_SINGLE_THREADED=1` and a completion queue of one
thread. dapl keeps a lock of its own in both.

The objects of the libraries work on a queue pair over ordinary memory (`tests/peers`): 1024 entries, completions of version 1 that
are written ahead, BlueFlame on, a page of memory for the UAR, so that no side pays for a write to the card. Each request and each
completion is checked. Cases are those of [benchmarks.md](benchmarks.md). uDAPL has no lists.
"
    );
    let sections: [Section; 3] = [
        ("Instructions of an operation", 0, |row| row.instructions, |peer| peer.0, 1.0),
        ("Nanoseconds of an operation", 1, |row| row.nanoseconds, |peer| peer.1, 1.0),
        ("Multiples of the limit loop", 2, |row| row.nanoseconds, |peer| peer.1, limit),
    ];
    for (title, digits, own, theirs, unit) in sections {
        let _ = write!(text, "\n## {title}\n\n| case | this driver |");
        for (_, column) in COLUMNS {
            let _ = write!(text, " {column} |");
        }
        text.push_str("\n|---|---|---|---|---|\n");
        for row in rows {
            let _ = write!(text, "| {} | {:.digits$} |", row.name, own(row) / unit);
            for peer in &row.peers {
                let cell = peer.as_ref().map(theirs).map(|[threaded, single]| {
                    format!(" {:.digits$} / {:.digits$}", threaded / unit, single / unit)
                });
                let _ = write!(text, "{} |", cell.unwrap_or_default());
            }
            text.push('\n');
        }
    }
    text
}

/// Reads the instructions of uDAPL from the page, by case: the text of the cell.
pub(super) fn udapl(page: &str) -> BTreeMap<&str, &str> {
    let table = page.lines().skip_while(|line| !line.starts_with("## Instructions")).skip(1);
    let table = table.take_while(|line| !line.starts_with("## "));
    let cells = table.filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [case, _, .., udapl] = *cells else { return None };
        udapl.contains(" / ").then_some((case, udapl))
    });
    cells.collect()
}

#[cfg(test)]
mod tests {
    use super::{PAGE, Row, Times, keep_best, page, udapl};
    use dat_lab::run;

    fn row(name: &str, udapl: Option<([f64; 2], [f64; 2])>) -> Row {
        let verbs = Some(([560.0, 540.0], [50.0, 36.0]));
        let peers = [verbs, None, udapl];
        Row { name: name.to_owned(), instructions: 200.0, nanoseconds: 12.0, peers }
    }

    #[test]
    fn the_page_gives_back_the_instructions_of_udapl() {
        let rows = [row("wr8_rt1", Some(([960.2, 940.0], [68.0, 56.0]))), row("wr8_b32", None)];
        let text = page("libmlx5 is of rdma-core 1", &rows, 10.0);
        assert!(text.contains("| wr8_rt1 | 200 | 560 / 540 | | 960 / 940 |\n"), "{text}");
        assert!(text.contains("| wr8_rt1 | 12.0 | 50.0 / 36.0 | | 68.0 / 56.0 |\n"), "{text}");
        assert!(text.contains("| wr8_b32 | 1.20 | 5.00 / 3.60 | | |\n"), "{text}");
        assert_eq!(udapl(&text).into_iter().collect::<Vec<_>>(), [("wr8_rt1", "960 / 940")]);
        assert_eq!(udapl("# Another page\n").len(), 0);
    }

    #[test]
    fn the_best_round_counts() {
        let record =
            |time: &str| [["time", "udapl", "wr8_rt1", "single", time].map(str::to_owned).to_vec()];
        let mut best = Times::new();
        for time in ["70.0", "60.5", "61.0"] {
            assert!(keep_best(&mut best, &record(time)).is_ok());
        }
        assert_eq!(best.get("udapl wr8_rt1 single"), Some(&60.5));
        assert!(keep_best(&mut best, &record("fast")).is_err());
    }

    /// "A fifth of uDAPL over libmlx5" is what the page says.
    #[test]
    fn the_readme_says_what_the_page_says() -> anyhow::Result<()> {
        let text = std::fs::read_to_string(run::root().join(PAGE))?;
        let line = text.lines().find(|line| line.starts_with("| wr8_rt1 ")).unwrap_or_default();
        let ours: f64 = line.split('|').nth(2).unwrap_or_default().trim().parse()?;
        let peer: f64 = udapl(&text)["wr8_rt1"].split(" / ").next().unwrap_or_default().parse()?;
        assert_eq!((peer / ours).round(), 5.0, "{line}");
        let readme = std::fs::read_to_string(run::root().join("README.md"))?;
        assert!(readme.contains("a fifth of [uDAPL over libmlx5]"));
        Ok(())
    }
}
