//! `cargo xtask bench`: instructions of the data path, counted by callgrind; time, as a ratio to
//! the limit loop; what the device does; bytes of state. One table, and a failure where a goal is
//! missed.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};

use dat_lab::images::valgrind;
use dat_lab::run;

/// The page that carries the table, and what stands above it there.
const PAGE: &str = "docs/generated/benchmarks.md";
const HEAD: &str = "\
# Cost of the data path

Made by `cargo xtask bench --bless`. Do not edit.

Instructions of one operation, post and reap, for the whole stack from the DAT call to the doorbell; time as a multiple of a
hand-written loop that moves the same bytes (any machine). The peer is uDAPL 2.1.10 over libmlx5, measured with the same
rules. A figure above its goal fails the verb; goals marked as aims are of half an operation, or of a habit, and are
reported. Time is of the best of several rounds.

";
/// Two threads with Endpoints of their own may take this much longer than one, after what the limit
/// loop itself takes longer, in hundredths.
const THREADS: f64 = 1.05;

/// One case, as the bench binary lists it.
struct Case {
    name: String,
    ops: usize,
    goal: f64,
    /// The goal is to be worked towards, and fails nothing while it is missed.
    aim: bool,
    time_goal: f64,
    peer: (u32, u32),
}

/// One measured case.
struct Row {
    case: Case,
    instructions: Option<f64>,
    /// Of the best round, as a multiple of the limit's.
    ratio: f64,
    nanoseconds: f64,
    economy: Option<Vec<f64>>,
}

/// Runs everything; with `bless` the table goes into its page.
pub(crate) fn bench(bless: bool) -> Result<()> {
    let mut build = run::cargo();
    build.args(["build", "--profile", "bench", "-p", "dat-tests", "--bin", "bench"]);
    run::quiet(build)?;
    let binary = binary()?;
    let missing = valgrind::command().err();
    let counting = missing.is_none();
    if let Some(error) = &missing {
        eprintln!(
            "{error:#}: INSTRUCTIONS ARE NOT COUNTED, only time is measured, and the gate has not run"
        );
    }

    let timed = records(&binary, &["--time", "--economy", "--sizes"])?;
    let limit = field(&timed, "time", "limit", 2)?;
    let mut rows = Vec::new();
    for record in records(&binary, &["--list"])? {
        let case = parse(&record).with_context(|| format!("the bench listed {record:?}"))?;
        let instructions = if counting { Some(count(&binary, &case)?) } else { None };
        let nanoseconds = field(&timed, "time", &case.name, 2)?;
        let economy = timed
            .iter()
            .find(|r| r[0] == "economy" && r[1] == case.name)
            .map(|r| r[2..].iter().filter_map(|f| f.parse().ok()).collect());
        rows.push(Row { case, instructions, ratio: nanoseconds / limit, nanoseconds, economy });
    }

    let mut missed = Vec::new();
    let mut table = table(&rows, &mut missed);
    others(&timed, &mut table, &mut missed)?;
    println!("\n{table}");
    if !counting {
        bail!("the instruction gate did not run: install valgrind");
    }
    if bless {
        write_page(&table)?;
    }
    if missed.is_empty() { Ok(()) } else { bail!("goals missed: {}", missed.join("; ")) }
}

/// Where cargo has put the binary.
fn binary() -> Result<PathBuf> {
    let metadata =
        cargo_metadata::MetadataCommand::new().current_dir(run::root()).no_deps().exec()?;
    Ok(metadata.target_directory.join("release").join("bench").into_std_path_buf())
}

/// The records that the binary prints, one a line, fields separated by tabs.
fn records(binary: &PathBuf, args: &[&str]) -> Result<Vec<Vec<String>>> {
    let mut command = Command::new(binary);
    command.args(args);
    let text = run::quiet(command)?;
    Ok(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

fn parse(record: &[String]) -> Result<Case> {
    let [_, name, ops, goal, aim, time_goal, mt, st] = record else {
        bail!("not eight fields");
    };
    Ok(Case {
        name: name.clone(),
        ops: ops.parse()?,
        goal: goal.parse()?,
        aim: aim.parse()?,
        time_goal: time_goal.parse::<f64>()? / 100.0,
        peer: (mt.parse()?, st.parse()?),
    })
}

fn field(records: &[Vec<String>], kind: &str, name: &str, at: usize) -> Result<f64> {
    records
        .iter()
        .find(|r| r[0] == kind && r[1] == name)
        .and_then(|r| r.get(at)?.parse().ok())
        .ok_or_else(|| anyhow!("the bench printed no {kind} of {name}"))
}

/// Instructions per operation, everything below the case's function counted.
fn count(binary: &PathBuf, case: &Case) -> Result<f64> {
    let mut command = valgrind::command()?;
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--error-exitcode=1"])
        .arg(format!("--toggle-collect=dat_tests::bench::loops::{}", case.name))
        .arg(binary)
        .args(["--case", &case.name, "--ops", &(4 * case.ops).to_string()]);
    println!("$ {}", run::shown(&command));
    let out = command.output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    if !out.status.success() {
        bail!("`{}` ended with {}:\n{said}", run::shown(&command), out.status);
    }
    let collected =
        said.lines().find_map(|line| line.split("Collected :").nth(1)?.trim().parse::<f64>().ok());
    let printed = String::from_utf8_lossy(&out.stdout).into_owned();
    let ran = printed
        .lines()
        .find_map(|line| line.strip_prefix("ran\t")?.split('\t').nth(1)?.parse::<f64>().ok());
    match (collected, ran) {
        (Some(collected), Some(ran)) if collected > 0.0 && ran > 0.0 => Ok(collected / ran),
        _ => bail!("callgrind counted nothing of {}: is its function still there?", case.name),
    }
}

fn table(rows: &[Row], missed: &mut Vec<String>) -> String {
    let mut text = String::from(
        "| case | instructions | goal | uDAPL | ns | x limit | MMIO stores | BlueFlame bytes | DMA reads | DMA writes | CQEs |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let name = &row.case.name;
        let goal = row.case.goal;
        let counted = row.instructions.map_or("not counted".to_owned(), |n| format!("{n:.0}"));
        if let Some(n) = row.instructions
            && goal != 0.0
            && !row.case.aim
            && n > goal + 0.5
        {
            missed.push(format!("{name}: {n:.0} instructions, goal {goal:.0}"));
        }
        if row.case.time_goal != 0.0 && row.ratio > row.case.time_goal {
            missed.push(format!(
                "{name}: {:.2} times the limit, goal {:.2}",
                row.ratio, row.case.time_goal
            ));
        }
        let goal = if goal == 0.0 {
            String::new()
        } else {
            format!("{goal:.0}{}", if row.case.aim { " (aim)" } else { "" })
        };
        let peer = match row.case.peer {
            (0, _) => String::new(),
            (mt, st) => format!("{mt} / {st}"),
        };
        let _ = write!(
            text,
            "| {name} | {counted} | {goal} | {peer} | {:.1} | {:.2} |",
            row.nanoseconds, row.ratio
        );
        match &row.economy {
            Some(economy) => {
                for value in economy {
                    let value = format!("{value:.3}");
                    let _ =
                        write!(text, " {} |", value.trim_end_matches('0').trim_end_matches('.'));
                }
            }
            None => text.push_str(" | | | | |"),
        }
        text.push('\n');
    }
    text
}

/// Threads and sizes.
fn others(timed: &[Vec<String>], text: &mut String, missed: &mut Vec<String>) -> Result<()> {
    let slower = |name| -> Result<f64> {
        Ok(field(timed, "threads", name, 3)? / field(timed, "threads", name, 2)?)
    };
    let (limit, ours) = (slower("limit")?, slower("wr8_rt1")?);
    text.push_str("\n| | measured | goal |\n|---|---|---|\n");
    let _ = writeln!(
        text,
        "| threads2: two threads against one, own EP and EVD | {ours:.3} (limit loop {limit:.3}) | {THREADS} |"
    );
    if ours > THREADS * limit.max(1.0) {
        missed.push(format!(
            "threads2: {ours:.3} times one thread, the limit loop {limit:.3}, goal {THREADS}"
        ));
    }
    for record in timed.iter().filter(|r| r[0] == "size") {
        let [_, name, bytes, goal] = record.as_slice() else {
            bail!("the bench printed {record:?}");
        };
        let _ = writeln!(text, "| {name}, bytes | {bytes} | {goal} |");
        if bytes.parse::<u64>()? > goal.parse::<u64>()? {
            missed.push(format!("{name}: {bytes} bytes, goal {goal}"));
        }
    }
    Ok(())
}

/// Writes the page with the table.
fn write_page(table: &str) -> Result<()> {
    let path = run::root().join(PAGE);
    std::fs::write(&path, format!("{HEAD}{table}"))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("$ wrote {PAGE}");
    Ok(())
}
