//! `cargo xtask scale`: what each call, each event of the device and each datagram costs beside 1,
//! 1,000 and 10,000 objects of each kind, in instructions, counted by callgrind. A cost may grow
//! by its goal, or by what `tests/src/scale/cases.rs` allows it for now.

mod dump;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::{fs, thread};

use anyhow::{Context, Result, anyhow, bail, ensure};

use dat_lab::run;

use self::dump::Cost;
use crate::bench;

/// The page of the table, and the text above the table.
const PAGE: &str = "docs/generated/scale.md";
const HEAD: &str = "\
# Cost beside many objects

Made by `cargo xtask scale --bless`. Do not edit.

Each side has n connected Endpoints, and n Protection Zones, Event Dispatchers, CNOs, LMRs, RMRs and service points. Instructions
are those of the driver alone, of one call; the ratio is that of 10,000 to 1. A ratio above its gate fails the verb. Where the gate
is above the goal, the cost still grows: the last column names the function in which most of what is added is spent. Times are of
one run on one machine, without the model's own.

";
/// Objects of each kind.
const COUNTS: [usize; 3] = [1, 1000, 10_000];
/// What a cost may grow by.
const GOAL: f64 = 1.2;
/// Runs of each call under callgrind, and against the clock.
const ROUNDS: [&str; 2] = ["3", "9"];

/// Lines that a write and its completion may miss beside 4,096 Endpoints: 8, and what the benchmark
/// itself misses.
const LINES: f64 = 8.05;
/// Connections that are open, and those that are made then.
const CONNECTIONS: [usize; 2] = [10_000, 5_000];
/// Endpoints that write in turn.
const WRITERS: usize = 65_536;

/// Adapters of a mesh, Endpoints for each pair, and seconds that it may take.
const MESHES: [[usize; 3]; 2] = [[32, 32, 600], [2, 65_536, 600]];
/// The mesh of the short form.
const SHORT_MESH: [usize; 3] = [32, 2, 600];

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write the table into docs/generated/scale.md
    #[arg(long)]
    bless: bool,
    /// 1 and 1,000 objects only, and no times
    #[arg(long)]
    short: bool,
    /// Other numbers of objects than 1, 1,000 and 10,000; ratios are of the last to the first
    #[arg(long, value_delimiter = ',', conflicts_with = "bless")]
    counts: Vec<usize>,
    /// So many functions in which each case's growth is spent
    #[arg(long, default_value_t = 1)]
    functions: usize,
}

/// The costs of all cases beside so many objects.
type Costs = BTreeMap<String, Cost>;

/// Cases that make one thing a program does.
struct Sum {
    name: String,
    /// Nanoseconds.
    goal: f64,
    /// The ratio that it is allowed for now.
    gate: f64,
    parts: Vec<String>,
}

/// Runs everything.
pub(crate) fn scale(options: &Options) -> Result<()> {
    let mut build = run::cargo();
    build.args(["build", "--profile", "bench", "-p", "dat-tests", "--bin", "scale"]);
    run::capture(build)?;
    let binary = run::target()?.join("release").join("scale");
    let counts = match options {
        Options { counts, .. } if !counts.is_empty() => counts.clone(),
        Options { short: true, .. } => COUNTS[..2].to_vec(),
        Options { .. } => COUNTS.to_vec(),
    };
    let (gates, sums) = gates(&binary)?;
    let costs = costs(&binary, &counts)?;
    let times = if options.short {
        Vec::new()
    } else {
        counts.iter().map(|&count| times(&binary, count)).collect::<Result<Vec<_>>>()?
    };
    let mut missed = Vec::new();
    let mut table = table(&counts, &gates, &costs, &times, options.functions, &mut missed)?;
    table += &add_up(&counts, &sums, &costs, &times, &mut missed)?;
    if !options.short {
        table += &figures(&binary, &mut missed)?;
    }
    println!("\n{table}");
    if options.bless {
        bench::write_page(PAGE, &format!("{HEAD}{table}"))?;
    }
    if missed.is_empty() { Ok(()) } else { bail!("above their gates: {}", missed.join("; ")) }
}

/// Counts all cases beside 1 and 1,000 objects, in the program that the tests were built with.
pub(crate) fn short() -> Result<()> {
    let binary = run::target()?.join("debug").join("scale");
    let counts = &COUNTS[..2];
    let (gates, _) = gates(&binary)?;
    let mut missed = Vec::new();
    table(counts, &gates, &costs(&binary, counts)?, &[], 1, &mut missed)?;
    print!("{}", mesh(&binary, SHORT_MESH, &mut missed)?);
    if missed.is_empty() { Ok(()) } else { bail!("costs grow: {}", missed.join("; ")) }
}

/// What a case may cost beside the last of these numbers of objects, if it may cost `gate` times as
/// much beside the most: a cost that grows does so with their number. Twice and a half of that,
/// because what is not optimized grows faster.
fn allowed(gate: f64, counts: &[usize]) -> f64 {
    match (counts.last(), COUNTS.last()) {
        (Some(&last), Some(&most)) if last < most => {
            (1.0 + 2.5 * (gate - 1.0) * last as f64 / most as f64).max(GOAL)
        }
        _ => gate,
    }
}

fn costs(binary: &Path, counts: &[usize]) -> Result<Vec<Costs>> {
    thread::scope(|scope| {
        let workers: Vec<_> =
            counts.iter().map(|&count| scope.spawn(move || count_all(binary, count))).collect();
        let ended = |_| Err(anyhow!("a counting thread ended"));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(ended)).collect()
    })
}

/// The ratio that each case is allowed for now, and the sums.
fn gates(binary: &Path) -> Result<(BTreeMap<String, f64>, Vec<Sum>)> {
    let gate = |present: &str| Ok::<_, anyhow::Error>(present.parse::<f64>()?.max(GOAL));
    let (mut gates, mut sums) = (BTreeMap::new(), Vec::new());
    for record in bench::records(binary, &["--list"])? {
        match record.as_slice() {
            [_, name, present] => _ = gates.insert(name.clone(), gate(present)?),
            [_, name, goal, present, parts] => sums.push(Sum {
                name: name.clone(),
                goal: goal.parse()?,
                gate: gate(present)?,
                parts: parts.split(',').map(str::to_owned).collect(),
            }),
            _ => bail!("the program listed {record:?}"),
        }
    }
    Ok((gates, sums))
}

/// The arguments of each process beside so many objects.
fn arguments(count: usize, rounds: &str) -> [Vec<String>; 2] {
    let args = ["--eps", &count.to_string(), "--rounds", rounds].map(str::to_owned);
    [args.to_vec(), [&args[..], &["--listened".into()]].concat()]
}

/// Counts all cases beside so many objects: in processes that make these once.
fn count_all(binary: &Path, count: usize) -> Result<Costs> {
    let mut costs = Costs::new();
    let folder = run::target()?.join("scale").join(count.to_string());
    for args in arguments(count, ROUNDS[0]) {
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let options = [
            format!("--callgrind-out-file={}", folder.join("out").display()),
            format!("--dump-after={}", dump::MEASURED),
            format!("--toggle-collect={}", dump::MEASURED),
            format!("--toggle-collect={}", dump::OUTSIDE),
        ];
        let out = bench::callgrind(binary, &args, &options)?;
        let printed = String::from_utf8_lossy(&out.stdout);
        let ran: Vec<&str> = printed
            .lines()
            .filter_map(|line| line.strip_prefix("ran\t")?.split('\t').next())
            .collect();
        ensure!(!ran.is_empty(), "nothing was measured");
        let dump = |number: usize| folder.join(format!("out.{number}"));
        for (index, name) in ran.iter().enumerate() {
            let path = dump(index + 1);
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            costs.entry((*name).to_owned()).or_default().add(&text)?;
        }
        // The last is of what comes behind the last call.
        ensure!(!dump(ran.len() + 2).exists(), "callgrind counted more calls than were measured");
    }
    fs::remove_dir_all(&folder)?;
    Ok(costs)
}

/// Nanoseconds of each case beside so many objects: the median of its runs.
fn times(binary: &Path, count: usize) -> Result<BTreeMap<String, f64>> {
    let mut spans: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for args in arguments(count, ROUNDS[1]) {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        for record in bench::records(binary, &args)? {
            if let [kind, name, nanoseconds] = record.as_slice() {
                if kind == "ran" {
                    spans.entry(name.clone()).or_default().push(nanoseconds.parse()?);
                }
            }
        }
    }
    let median = |mut spans: Vec<f64>| {
        spans.sort_unstable_by(f64::total_cmp);
        spans[(spans.len() - 1) / 2]
    };
    Ok(spans.into_iter().map(|(name, spans)| (name, median(spans))).collect())
}

fn table(
    counts: &[usize],
    gates: &BTreeMap<String, f64>,
    costs: &[Costs],
    times: &[BTreeMap<String, f64>],
    functions: usize,
    missed: &mut Vec<String>,
) -> Result<String> {
    let (Some(first), Some(last)) = (costs.first(), costs.last()) else { bail!("no counts") };
    let mut text = String::from("| case |");
    for count in counts {
        let _ = write!(text, " {count} |");
    }
    text.push_str(" ratio | gate | goal |");
    for count in counts.iter().take(times.len()) {
        let _ = write!(text, " ns at {count} |");
    }
    text.push_str(" grows in |\n|---|");
    text.push_str(&"---|".repeat(counts.len() + 4 + times.len()));
    text.push('\n');
    for (name, cost) in first {
        let gate = gates.get(name).with_context(|| format!("{name} has no row in cases.rs"))?;
        let gate = allowed(*gate, counts);
        let grown = last.get(name).with_context(|| format!("{name} was not measured"))?;
        let _ = write!(text, "| {name} |");
        for costs in costs {
            let _ = write!(text, " {:.0} |", costs.get(name).map_or(0.0, Cost::each));
        }
        let ratio = grown.each() / cost.each();
        if ratio > gate + 0.005 {
            missed.push(format!("{name}: {ratio:.2} times, gate {gate:.2}"));
        }
        let _ = write!(text, " {ratio:.2} | {gate:.2} | {GOAL} |");
        for times in times {
            let time = times.get(name).map(|time| format!("{time:.0}"));
            let _ = write!(text, " {} |", time.unwrap_or_default());
        }
        let growth = if ratio > GOAL { grown.growth(cost, functions) } else { String::new() };
        let _ = writeln!(text, " {growth} |");
    }
    if let Some(name) = gates.keys().find(|name| !first.contains_key(*name)) {
        bail!("{name} has a row in cases.rs and was not measured");
    }
    Ok(text)
}

/// What a program does, as the sum of its cases.
fn add_up(
    counts: &[usize],
    sums: &[Sum],
    costs: &[Costs],
    times: &[BTreeMap<String, f64>],
    missed: &mut Vec<String>,
) -> Result<String> {
    let mut text = String::from("\n| on the host of one side |");
    for count in counts {
        let _ = write!(text, " {count} |");
    }
    text.push_str(" ratio | gate | goal | ns at the last | goal |\n|---|");
    text.push_str(&"---|".repeat(counts.len() + 5));
    text.push('\n');
    for Sum { name, goal, gate, parts } in sums {
        let all = |of: &dyn Fn(&str) -> Option<f64>| {
            parts.iter().map(|part| of(part)).sum::<Option<f64>>().context("a part is no case")
        };
        let costs = costs
            .iter()
            .map(|costs| all(&|part| costs.get(part).map(Cost::each)))
            .collect::<Result<Vec<f64>>>()?;
        let _ = write!(text, "| {name} |");
        for cost in &costs {
            let _ = write!(text, " {cost:.0} |");
        }
        let (Some(first), Some(last)) = (costs.first(), costs.last()) else { bail!("no counts") };
        let ratio = last / first;
        if ratio > gate + 0.005 {
            missed.push(format!("{name}: {ratio:.2} times, gate {gate:.2}"));
        }
        let time = match times.last() {
            Some(times) => format!("{:.0}", all(&|part| times.get(part).copied())?),
            None => String::new(),
        };
        let _ = writeln!(text, " {ratio:.2} | {gate:.2} | {GOAL} | {time} | {goal:.0} |");
    }
    Ok(text)
}

/// Adapters in one process, each pair connected, every Endpoint in use; nothing is left.
fn mesh(
    binary: &Path,
    [nodes, each, limit]: [usize; 3],
    missed: &mut Vec<String>,
) -> Result<String> {
    let args = ["--mesh", &nodes.to_string(), "--eps", &each.to_string()];
    let records = bench::records(binary, &args)?;
    let Some([_, connections, _, seconds]) = records.first().map(Vec::as_slice) else {
        bail!("a mesh said {records:?}")
    };
    if seconds.parse::<f64>()? > limit as f64 {
        missed.push(format!("a mesh of {nodes} took {seconds} s"));
    }
    Ok(format!(
        "| {connections} connections of {nodes} adapters, a message each way, closed, s | {seconds} | {limit} |\n"
    ))
}

/// Figures that are no call's.
fn figures(binary: &Path, missed: &mut Vec<String>) -> Result<String> {
    let mut text = String::from("\n| | measured | goal |\n|---|---|---|\n");
    for record in bench::records(binary, &["--eps", "1000", "--figures"])? {
        let [kind, name, value, goal, present] = record.as_slice() else { continue };
        if kind != "figure" {
            continue;
        }
        let (value, goal) = (value.parse::<f64>()?, goal.parse::<f64>()?);
        let gate = present.parse::<f64>()?.max(goal);
        if value > gate {
            missed.push(format!("{name}: {value:.1}, gate {gate:.1}"));
        }
        let _ = writeln!(text, "| {name} | {value:.1} | {goal:.1} |");
    }
    for all in MESHES {
        text += &mesh(binary, all, missed)?;
    }
    let [open, more] = CONNECTIONS.map(|count| count.to_string());
    for record in bench::records(binary, &["--eps", &open, "--rate", &more])? {
        if let [kind, rate] = record.as_slice() {
            if kind == "rate" {
                let _ = writeln!(
                    text,
                    "| connections a second of two processes beside {open}, over the models of a third one | {rate} | 10000 or more |"
                );
            }
        }
    }
    let most = WRITERS.to_string();
    for record in bench::records(binary, &["--eps", &most, "--objects", "0", "--writes", "50"])? {
        if let [kind, name, nanoseconds] = record.as_slice() {
            if kind == "write" {
                let (what, goal) = match name.as_str() {
                    "sequence" => ("write 8 B and dequeue, in sequence", "45"),
                    "random" => ("write 8 B and dequeue, at random", "170"),
                    _ => ("one load behind another, of as many lines, at random", ""),
                };
                let _ = writeln!(text, "| {what}, {most} Endpoints, ns | {nanoseconds} | {goal} |");
            }
        }
    }
    let cache = ["--cache-sim=yes", "--D1=32768,8,64", "--I1=32768,8,64", "--LL=8388608,16,64"];
    let args = ["--eps", "4096", "--writes", "9", "--random"];
    let events = bench::events("dat_tests::scale::writes::block", binary, &args, &cache)?;
    let [instructions, _, _, _, reads, writes, ..] = *events else {
        bail!("callgrind simulated no cache")
    };
    let lines = reads + writes;
    if lines > LINES {
        missed.push(format!("cache lines of a write: {lines:.2}, gate {LINES}"));
    }
    let _ = writeln!(
        text,
        "| the same, 4,096 at random: cache lines missed ({instructions:.0} instructions) | {lines:.1} | 8 |"
    );
    Ok(text)
}
