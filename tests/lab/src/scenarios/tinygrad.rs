//! A driver of others, in user space like ours: tinygrad's for the ConnectX, as the Python package
//! index has it, between two devices of the model.
//!
//! tinygrad runs unmodified on a stand-in for what is below it (`machine.py`): a PCI device over
//! vfio-user, physical memory, GPUs that ring its doorbells. The driver is known to run on a
//! ConnectX-6. Where it fails with an open fact set otherwise, a ConnectX-6 is not so; `fails.tsv`
//! lists these settings. docs/tinygrad.md says what a run shows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::guest::stage::Stage;
use crate::{folder, run};

/// The package. Its sources are fetched, never kept here.
const PACKAGE: &str = "tinygrad==0.14.0";
/// The card that tinygrad's driver looks for.
const CARD: &str = "connectx-6";
/// Settings of open facts under which tinygrad fails: last words, a tab, what that shows.
const FAILS: &str = include_str!("tinygrad/fails.tsv");
/// What the model complains of, and why it is no fault: the registers' low byte has the size and
/// the stride of the queue, which only the device writes.
const COMPLAINT: &str = "complaint: command page ";
/// A run of full length: the rings wrap.
const FULL: &str = "140";
const QUICK: &str = "2";
const LIMIT: Duration = Duration::from_secs(120);

pub(super) fn referee(stage: &mut Stage<'_>) -> Result<String> {
    let sources = match sources(&folder()?.join("tinygrad")) {
        Ok(sources) => sources,
        Err(error) => {
            println!("  tinygrad skipped: {error:#}");
            return Ok(format!("SKIPPED: {PACKAGE} cannot be had: {error}"));
        }
    };
    let said = drive(stage, &sources, None, FULL)?.context("as the card is")?;
    if stage.is_short() {
        return Ok(said);
    }
    let mut wrong = Vec::new();
    let mut settings = settings(stage)?;
    let parts = stage.cells().unwrap_or_default().split('|').collect::<Vec<_>>();
    settings.retain(|setting| parts.iter().any(|part| setting.contains(part)));
    for setting in &settings {
        let failed = drive(stage, &sources, Some(setting), QUICK)?.err();
        let known = known(setting);
        println!("    {setting}: {}", failed.as_ref().map_or("ok".into(), ToString::to_string));
        match (failed, known) {
            (None, None) => {}
            (Some(failed), Some(known)) if failed.to_string().contains(known) => {}
            (failed, known) => wrong.push(format!("{setting}: {failed:?}, listed is {known:?}")),
        }
    }
    ensure!(wrong.is_empty(), "otherwise than fails.tsv says:\n{}", wrong.join("\n"));
    let failing = settings.iter().filter(|setting| known(setting).is_some()).count();
    Ok(format!("{said}; {} settings of open facts, {failing} fail as listed", settings.len()))
}

/// Runs tinygrad between two devices. Inside, the outcome: what was checked, or what failed.
fn drive(
    stage: &mut Stage<'_>,
    sources: &Path,
    setting: Option<&str>,
    lengths: &str,
) -> Result<Result<String>> {
    let [a, b] = ["a", "b"].map(|name| stage.path(name));
    let mut args = vec!["--card", CARD];
    args.extend(setting.iter().flat_map(|setting| ["--fact", setting]));
    let server = stage.server("model", &[&a, &b], &args)?;
    let mut python = Command::new("python3");
    python
        .arg(run::root().join("tests/lab/src/scenarios/tinygrad/referee.py"))
        .args([&a, &b])
        .arg(lengths)
        .env("PYTHONPATH", sources)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let id = stage.start("tinygrad", python)?;
    let Some(status) = stage.outcome(id, LIMIT) else {
        stage.kill(id);
        bail!("tinygrad does not end{}", stage.tail(id));
    };
    let errors = stage.complaints(id);
    let checks = stage.outputs(id)[0].iter().filter(|line| line.starts_with("ok: ")).count();
    stage.hang_up(server, Duration::from_secs(10))?;
    if !status.success() {
        return Ok(Err(anyhow::anyhow!(errors.last().cloned().unwrap_or_default())));
    }
    let report = stage.complaints(server);
    let words = ["complaint: ", "note: ", "refused "];
    let bad = report.iter().find(|line| {
        let line = line.trim();
        words.iter().any(|word| line.starts_with(word)) && !line.starts_with(COMPLAINT)
    });
    Ok(match bad {
        Some(line) => Err(anyhow::anyhow!("the model says: {}", line.trim())),
        None => Ok(format!("{checks} checks of {PACKAGE} on {CARD}")),
    })
}

/// Every setting of every open fact.
fn settings(stage: &Stage<'_>) -> Result<Vec<String>> {
    let mut list = Command::new(stage.built("mlx5-model"));
    list.args(["--facts", "list"]);
    let text = run::silent(list)?;
    let facts = text.lines().filter(|line| !line.starts_with(' '));
    let facts = facts.filter_map(|line| line.split_once('='));
    let all = facts.flat_map(|(name, settings)| {
        // What the capabilities of the card say.
        let settings = settings.split('|').filter(|setting| *setting != "profile");
        settings.map(move |setting| format!("{name}={setting}"))
    });
    Ok(all.collect())
}

/// Settings that fail, and their last words.
fn listed() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = FAILS.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut cells = line.split('\t');
        Some((cells.next()?, cells.next()?))
    })
}

fn known(setting: &str) -> Option<&'static str> {
    listed().find(|(of, _)| *of == setting).map(|(_, last)| last)
}

/// The unpacked sources below `parent`: those that are there, or new ones.
fn sources(parent: &Path) -> Result<PathBuf> {
    let sources = parent.join(PACKAGE.replace("==", "-"));
    if sources.exists() {
        return Ok(sources);
    }
    let fresh = parent.join("new");
    if parent.exists() {
        fs::remove_dir_all(parent)?;
    }
    fs::create_dir_all(&fresh)?;
    let python = |args: &[&str]| {
        let mut python = Command::new("python3");
        python.args(args).current_dir(parent);
        run::capture(python)
    };
    python(&["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", PACKAGE])?;
    let files = fs::read_dir(parent)?.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = files.into_iter().find(|path| path.extension().is_some_and(|e| e == "whl"));
    let wheel = wheel.context("pip has downloaded no wheel")?;
    python(&["-m", "zipfile", "-e", wheel.to_str().context("no text")?, "new"])?;
    fs::rename(fresh, &sources)?;
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::FAILS;

    #[test]
    fn whatever_fails_shows_something() {
        for line in FAILS.lines().filter(|line| !line.starts_with('#')) {
            let cells: Vec<_> = line.split('\t').collect();
            assert_eq!(cells.len(), 3, "{line}");
            assert!(cells[0].contains('=') && cells[2].len() > 20, "{line}");
        }
    }
}
