//! `cargo xtask bench`: instructions of the data path, counted by callgrind; time, as a ratio to
//! the limit loop; what the device does; bytes of state. One table, and a failure where a goal is
//! missed. With `--peers`, the same of libmlx5 and of uDAPL.

mod harness;
mod peers;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};

use dat_lab::images::valgrind;
use dat_lab::run;

/// The page of the table, and the text above the table.
const PAGE: &str = "docs/generated/benchmarks.md";
const HEAD: &str = "\
# Cost of the data path

Made by `cargo xtask bench --bless`. Do not edit.

Instructions of one operation, post and reap, for the whole stack from the DAT call to the doorbell; time as a multiple of a
hand-written loop that does the same to the same rings, the row `limit…` of its kind (any machine). What the same costs through
uDAPL over libmlx5, by default and single-threaded, is from [peers.md](peers.md). A figure above its goal fails the verb; goals
marked as aims are of half an operation, or of a habit, and are reported. Time is of the best of several rounds.

Instructions, time and multiples are with write-combining pages, where a request goes to the device with its doorbell; those
behind `8 B` are without, where the doorbell is 8 bytes and the device fetches the request. Lines are those of a data cache of
32 KiB that an operation misses (simulated; rings of 1024 requests do not fit).

A registration is of 4 KiB or 1 MiB at an odd address; `again` is one inside memory that another registration holds, which shares
its mapping. In process the pages are lent already, and the time is the driver's. Over vfio-user the memory is of the heap, written
to before, and the time is that of the calling thread, with what it waits for the server while it spins. Through VFIO each mapping is
one ioctl when it is made and one when it ends.

";
/// Two threads with Endpoints of their own may take this much longer than one, after what the limit
/// loop itself takes longer, in hundredths.
const THREADS: f64 = 1.05;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write the table into docs/generated/benchmarks.md; with --peers, theirs into
    /// docs/generated/peers.md
    #[arg(long)]
    bless: bool,
    /// Also measure libmlx5 and uDAPL, built from Debian's sources (fetched once, kept below
    /// target/peers; needs `cc`), in turn with our own cases
    #[arg(long)]
    peers: bool,
}

/// One case, as the bench binary lists it.
struct Case {
    name: String,
    ops: usize,
    goal: f64,
    /// The goal is an aim: missing it is not a failure.
    aim: bool,
    words_goal: f64,
    time_goal: f64,
    /// The case of the peers that does the same.
    peer: String,
    /// The case whose time is its limit; empty if there is none.
    limit: String,
    /// It rings a doorbell.
    rings: bool,
}

/// One measured case.
struct Row {
    case: Case,
    /// With blocks to write-combining pages, and by doorbells of 8 bytes if it makes a difference.
    ways: [Option<Cost>; 2],
    economy: Option<Vec<f64>>,
}

/// What an operation costs one way.
struct Cost {
    counted: Option<Counted>,
    /// Time of the best round, and as a multiple of that of its limit.
    nanoseconds: f64,
    ratio: Option<f64>,
}

/// What callgrind counts of an operation.
#[derive(Clone, Copy)]
struct Counted {
    instructions: f64,
    /// Lines that miss the first data cache.
    lines: f64,
}

/// Runs everything.
pub(crate) fn bench(options: &Options) -> Result<()> {
    let harness = if options.peers { harness::harness()? } else { None };
    let mut build = run::cargo();
    build.args(["build", "--profile", "bench", "-p", "dat-tests", "--bin", "bench"]);
    run::capture(build)?;
    let binary = binary()?;
    let missing = valgrind::command().err();
    let counting = missing.is_none();
    if let Some(error) = &missing {
        eprintln!(
            "{error:#}: INSTRUCTIONS ARE NOT COUNTED, only time is measured, and the gate has not run"
        );
    }

    let cases = records(&binary, &["--list"])?
        .iter()
        .map(|record| parse(record).with_context(|| format!("the bench listed {record:?}")))
        .collect::<Result<Vec<Case>>>()?;
    let timed = records(&binary, &["--time", "--economy", "--sizes", "--registration"])?;
    let rings: Vec<&str> =
        cases.iter().filter(|case| case.rings).map(|case| case.name.as_str()).collect();
    let by_words = records(&binary, &["--time", "--words", "--only", &rings.join(",")])?;
    let cost = |case: &Case, timed: &[Vec<String>], counted: Option<Counted>| -> Result<Cost> {
        let nanoseconds = field(timed, "time", &case.name, 2)?;
        let limit = case.limit.as_str();
        let limit = if limit.is_empty() { None } else { Some(field(timed, "time", limit, 2)?) };
        Ok(Cost { counted, nanoseconds, ratio: limit.map(|limit| nanoseconds / limit) })
    };
    let counts = if counting { count_all(&binary, &cases)? } else { vec![[None; 2]; cases.len()] };
    let mut rows = Vec::new();
    for (case, [combined, words]) in cases.into_iter().zip(counts) {
        let words = if case.rings { Some(cost(&case, &by_words, words)?) } else { None };
        let ways = [Some(cost(&case, &timed, combined)?), words];
        let economy = timed
            .iter()
            .find(|r| r[0] == "economy" && r[1] == case.name)
            .map(|r| r[2..].iter().filter_map(|f| f.parse().ok()).collect());
        rows.push(Row { case, ways, economy });
    }

    let counted = |row: &Row| row.ways[0].as_ref()?.counted.map(|counted| counted.instructions);
    let ours: BTreeMap<String, f64> =
        rows.iter().filter_map(|row| Some((row.case.name.clone(), counted(row)?))).collect();
    let measured = match &harness {
        Some(harness) if counting => Some(peers::measure(harness, &binary, &ours)?),
        _ => None,
    };
    if let Some(page) = &measured {
        println!("\n{page}");
        if options.bless {
            write_page(peers::PAGE, page)?;
        }
    }
    let page = match measured {
        Some(page) => page,
        None => fs::read_to_string(run::root().join(peers::PAGE)).context(peers::PAGE)?,
    };

    let mut missed = Vec::new();
    let mut table = table(&rows, &peers::udapl(&page), &mut missed);
    others(&timed, &mut table, &mut missed)?;
    println!("\n{table}");
    if !counting {
        bail!("the instruction gate did not run: install valgrind");
    }
    if options.bless {
        write_page(PAGE, &format!("{HEAD}{table}"))?;
    }
    if missed.is_empty() { Ok(()) } else { bail!("goals missed: {}", missed.join("; ")) }
}

/// Returns the path of the binary that cargo has built.
fn binary() -> Result<PathBuf> {
    Ok(run::target()?.join("release").join("bench"))
}

/// Runs the binary and parses its records, one a line, fields separated by tabs.
pub(crate) fn records(binary: &Path, args: &[&str]) -> Result<Vec<Vec<String>>> {
    let mut command = Command::new(binary);
    command.args(args);
    let text = run::capture(command)?;
    Ok(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

fn parse(record: &[String]) -> Result<Case> {
    let [_, name, ops, goal, aim, words_goal, time_goal, peer, limit, rings] = record else {
        bail!("not ten fields");
    };
    Ok(Case {
        name: name.clone(),
        ops: ops.parse()?,
        goal: goal.parse()?,
        aim: aim.parse()?,
        words_goal: words_goal.parse()?,
        time_goal: time_goal.parse::<f64>()? / 100.0,
        peer: peer.clone(),
        limit: limit.clone(),
        rings: rings.parse()?,
    })
}

fn field(records: &[Vec<String>], kind: &str, name: &str, at: usize) -> Result<f64> {
    records
        .iter()
        .find(|r| r[0] == kind && r[1] == name)
        .and_then(|r| r.get(at)?.parse().ok())
        .ok_or_else(|| anyhow!("the bench printed no {kind} of {name}"))
}

/// Counts all cases, each in its ways, on all CPUs: unlike a time, a count is the same whatever runs
/// beside it.
fn count_all(binary: &Path, cases: &[Case]) -> Result<Vec<[Option<Counted>; 2]>> {
    let next = AtomicUsize::new(0);
    let counts = Mutex::new(vec![[None; 2]; cases.len()]);
    let work = || -> Result<()> {
        while let Some((at, case)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            cases.get(at).map(|case| (at, case))
        } {
            let combined = count_case(binary, case, &[])?;
            let words =
                if case.rings { Some(count_case(binary, case, &["--words"])?) } else { None };
            counts.lock().unwrap_or_else(PoisonError::into_inner)[at] = [Some(combined), words];
        }
        Ok(())
    };
    thread::scope(|scope| {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..cpus).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| anyhow!("a counting thread ended"))?)
    })?;
    Ok(counts.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn count_case(binary: &Path, case: &Case, way: &[&str]) -> Result<Counted> {
    let function = format!("dat_tests::bench::loops::{}", case.name);
    let ops = (4 * case.ops).to_string();
    let mut args = vec!["--case", case.name.as_str(), "--ops", &ops];
    args.extend(way);
    let cache = ["--cache-sim=yes", "--D1=32768,8,64", "--I1=32768,8,64", "--LL=8388608,16,64"];
    // Ir Dr Dw I1mr D1mr D1mw ...
    match *events(&function, binary, &args, &cache)? {
        [instructions, _, _, _, reads, writes, ..] => {
            Ok(Counted { instructions, lines: reads + writes })
        }
        _ => bail!("callgrind simulated no cache"),
    }
}

/// Counts the instructions per operation, of a function and everything that it calls.
fn count(function: &str, binary: &Path, args: &[&str]) -> Result<f64> {
    events(function, binary, args, &[])?.first().copied().context("callgrind counted nothing")
}

/// Counts callgrind's events per operation.
pub(crate) fn events(
    function: &str,
    binary: &Path,
    args: &[&str],
    options: &[&str],
) -> Result<Vec<f64>> {
    let toggle = format!("--toggle-collect={function}");
    let options = [&["--callgrind-out-file=/dev/null", &toggle], options].concat();
    let out = callgrind(binary, args, &options)?;
    let said = String::from_utf8_lossy(&out.stderr);
    let collected = said
        .lines()
        .find_map(|line| line.split("Collected :").nth(1))
        .map(|line| line.split_whitespace().filter_map(|word| word.parse::<f64>().ok()).collect())
        .unwrap_or_else(Vec::new);
    let printed = String::from_utf8_lossy(&out.stdout).into_owned();
    let ran = printed
        .lines()
        .find_map(|line| line.strip_prefix("ran\t")?.split('\t').nth(1)?.parse::<f64>().ok());
    match (collected.first(), ran) {
        (Some(&first), Some(ran)) if first > 0.0 && ran > 0.0 => {
            Ok(collected.iter().map(|events| events / ran).collect())
        }
        _ => bail!("callgrind counted nothing of {function}: is it still there?"),
    }
}

/// Runs the binary under callgrind.
pub(crate) fn callgrind(
    binary: &Path,
    args: &[impl AsRef<OsStr>],
    options: &[impl AsRef<OsStr>],
) -> Result<Output> {
    let mut command = valgrind::command()?;
    command.args(["--tool=callgrind", "--error-exitcode=1"]).args(options).arg(binary).args(args);
    println!("$ {}", run::shown(&command));
    let out = command.output()?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        bail!("`{}` ended with {}:\n{said}", run::shown(&command), out.status);
    }
    Ok(out)
}

fn table(rows: &[Row], udapl: &BTreeMap<&str, &str>, missed: &mut Vec<String>) -> String {
    let mut text = String::from(
        "| case | instructions | goal | ns | x limit | 8 B: instructions | goal | x limit | lines | uDAPL | MMIO stores | BlueFlame bytes | DMA reads | DMA writes | CQEs |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let case = &row.case;
        let [combined, words] = &row.ways;
        let _ = write!(text, "| {} |", case.name);
        for (cost, goal, way) in
            [(combined, case.goal, ""), (words, case.words_goal, " by doorbells of 8 bytes")]
        {
            let said = match cost.as_ref().map(|cost| cost.counted) {
                Some(Some(Counted { instructions, .. })) => {
                    if goal != 0.0 && !case.aim && instructions > goal + 0.5 {
                        missed.push(format!(
                            "{}{way}: {instructions:.0} instructions, goal {goal:.0}",
                            case.name
                        ));
                    }
                    format!("{instructions:.0}")
                }
                Some(None) => "not counted".to_owned(),
                None => String::new(),
            };
            let goal = match goal {
                0.0 => String::new(),
                goal => format!("{goal:.0}{}", if case.aim { " (aim)" } else { "" }),
            };
            let _ = write!(text, " {said} | {goal} |");
            if way.is_empty() {
                let ns = cost.as_ref().map(|cost| format!("{:.1}", cost.nanoseconds));
                let _ = write!(text, " {} |", ns.unwrap_or_default());
            }
            let ratio = cost.as_ref().and_then(|cost| cost.ratio);
            // A limit of one word to memory is too short for a ratio that holds from run to run.
            if way.is_empty() && case.time_goal != 0.0 {
                if let Some(ratio) = ratio {
                    if ratio > case.time_goal {
                        missed.push(format!(
                            "{}: {ratio:.2} times the limit, goal {:.2}",
                            case.name, case.time_goal
                        ));
                    }
                }
            }
            let ratio = ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
            let _ = write!(text, " {ratio} |");
        }
        let lines = combined.as_ref().and_then(|cost| cost.counted).map(|counted| counted.lines);
        let lines = lines.map(|lines| format!("{lines:.1}")).unwrap_or_default();
        let peer = udapl.get(case.peer.as_str()).copied().unwrap_or_default();
        let _ = write!(text, " {lines} | {peer} |");
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

/// Threads, sizes, registrations.
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
    text.push_str(
        "\n| registration | where | register, us | release, us | goal of both | commands | IOMMU mappings |\n|---|---|---|---|---|---|---|\n",
    );
    for record in timed.iter().filter(|r| r[0] == "registration") {
        let [_, name, place, register, release, goal, commands, mappings] = record.as_slice()
        else {
            bail!("the bench printed {record:?}");
        };
        let both = register.parse::<f64>()? + release.parse::<f64>()?;
        let most = goal.parse::<f64>()?;
        let shown = if most == 0.0 { "" } else { goal };
        let _ = writeln!(
            text,
            "| {name} | {place} | {register} | {release} | {shown} | {commands} | {mappings} |"
        );
        if most != 0.0 && both > most {
            missed.push(format!("{name}, {place}: {both:.1} us, goal {goal}"));
        }
    }
    Ok(())
}

/// Writes a page.
pub(crate) fn write_page(name: &str, text: &str) -> Result<()> {
    let path = run::root().join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("$ wrote {name}");
    Ok(())
}
