//! The corners that the programs of others do not look into: a probe in C of this workspace, built
//! with the distribution's headers and run over its registry.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::kit::{self, Kit};
use super::tiers;
use crate::guest::stage::Stage;
use crate::run;

/// The probe.
const PROBE: &str = "tests/dapl/probe.c";
/// The program that uses the provider's own extension.
const LISTS: &str = "tests/dapl/lists.c";
/// How its good lines begin, and its bad ones.
const WORDS: [&str; 2] = ["ok ", "FAIL "];

/// Builds a program of C against the distribution's headers and registry; `words` are for the
/// compiler.
pub(super) fn compile(kit: &Kit, source: &str, to: &Path, words: &[&str]) -> Result<PathBuf> {
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-O2", "-g", "-Wall"])
        .args(words)
        .arg("-o")
        .arg(to)
        .arg(run::root().join(source))
        .arg("-I")
        .arg(kit.headers())
        .arg("-I")
        .arg(run::root().join("vfio-host/dapl/include"))
        .arg(kit.path().join(kit::REGISTRY));
    run::capture(cc)?;
    Ok(to.to_path_buf())
}

/// Two Interface Adapters of one process, `hca0` and `hca1`, on a model's sockets; `words` are for
/// `dat conf`.
pub(super) fn both(
    stage: &Stage<'_>,
    kit: &Kit,
    sockets: [&Path; 2],
    words: &[&str],
) -> Result<PathBuf> {
    let devices = sockets.map(|socket| format!("vfio-user:{}", socket.display()));
    let [a, b] = devices.each_ref().map(String::as_str);
    let ips = ["192.168.7.1/24", "192.168.7.2/24"];
    tiers::conf_of(stage, "both.conf", &[a, b], &ips, &kit.library, words)
}

/// Runs the probe; returns what it checked.
pub(super) fn run_probe(stage: &mut Stage<'_>, kit: &Kit) -> Result<String> {
    const LIMIT: Duration = Duration::from_secs(300);
    let probe = compile(kit, PROBE, &stage.path("probe"), &[])?;
    let [a, b] = ["a", "b"].map(|name| stage.path(name));
    let model = stage.server("model", &[&a, &b], &[])?;
    let conf = both(stage, kit, [&a, &b], &[])?;
    let mut command = kit.under(&[], &probe, &conf)?;
    command.args(["hca0", "hca1"]);
    command.args(stage.cells());
    let good = checked(stage, "probe", command, LIMIT)?.len();
    let lists = compile(kit, LISTS, &stage.path("lists"), &[])?;
    let mut command = kit.under(&[], &lists, &conf)?;
    command.args(["hca0", "hca1"]);
    let lists = checked(stage, "lists", command, LIMIT)?.len();
    stage.hang_up(model, Duration::from_secs(10))?;
    Ok(format!("{good} corners, {lists} checks of lists"))
}

/// Runs a program that says a line for each of its checks: what it found good.
pub(super) fn checked(
    stage: &mut Stage<'_>,
    name: &'static str,
    command: Command,
    limit: Duration,
) -> Result<Vec<String>> {
    let id = stage.start(name, command)?;
    let end = stage.outcome(id, limit);
    let [said, complaints] = stage.outputs(id);
    let bad: Vec<&str> = said.iter().filter_map(|line| line.strip_prefix(WORDS[1])).collect();
    let good: Vec<String> =
        said.iter().filter_map(|line| line.strip_prefix(WORDS[0])).map(str::to_owned).collect();
    for line in bad.iter().copied().chain(complaints.iter().map(String::as_str)) {
        println!("    {line}");
    }
    let end = end.with_context(|| format!("{name} does not end:{}", stage.tail(id)))?;
    if !end.success() {
        let last = said.last().map_or("", String::as_str);
        bail!("{} of {} are wrong; {end}, {last}", bad.len(), good.len() + bad.len());
    }
    ensure!(bad.is_empty() && !good.is_empty(), "{name} checked nothing");
    Ok(good)
}
