//! `cargo xtask hit`: which lines of the product the tests execute, by LLVM's counters.
//!
//! Fails where less than the goal of a crate's lines is executed, or where no executed line names a
//! code of DAT that the sources give.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use cargo_metadata::Message;
use dat_lab::run;

/// The crates, and the per cent of their lines that tests execute at least.
const GOALS: [(&str, f64); 3] = [("dat-core", 90.0), ("hca-mlx5", 90.0), ("vfio-host", 90.0)];
/// Files of which every step is a call to VFIO in the kernel, which no test without a guest has:
/// `cargo xtask qemu-test` runs them.
const IN_GUESTS: [&str; 4] = ["mod.rs", "device.rs", "domain.rs", "ioctl.rs"];
/// Test programs that are run: all that need no guest.
const TESTS: [&[&str]; 5] = [
    &["--tests", "-p", "dat-core", "--all-features"],
    &["--tests", "-p", "hca-mlx5"],
    &["--tests", "-p", "vfio-host", "--all-features"],
    &["-p", "dat-suite", "--test", "conformance", "--test", "model", "--test", "attacks"],
    &["-p", "dat-tests", "--test", "vfio_user"],
];
const REMEDY: &str = "rustup component add llvm-tools";

pub(crate) fn hit() -> Result<()> {
    let Some(tools) = tools()? else {
        println!("  SKIPPED: lines that tests execute: `{REMEDY}`");
        return Ok(());
    };
    let folder = run::target()?.join("hit");
    let raw = folder.join("raw");
    if raw.exists() {
        fs::remove_dir_all(&raw)?;
    }
    let mut programs = BTreeSet::new();
    for tests in TESTS {
        let cargo = |more: &[&str]| {
            let mut cargo = run::cargo();
            cargo.arg("test").args(tests).args(more);
            cargo.env("CARGO_TARGET_DIR", &folder).env("RUSTFLAGS", "-Cinstrument-coverage");
            cargo.env("LLVM_PROFILE_FILE", raw.join("%p-%m.profraw"));
            cargo
        };
        let out = run::capture(cargo(&["--no-run", "--message-format", "json"]))?;
        for message in Message::parse_stream(out.as_bytes()) {
            if let Message::CompilerArtifact(artifact) = message? {
                programs.extend(artifact.executable.map(PathBuf::from));
            }
        }
        run::capture(cargo(&["--quiet"]))?;
    }
    let profile = folder.join("all.profdata");
    let mut merge = Command::new(tools.join("llvm-profdata"));
    merge.args(["merge", "--sparse", "-o"]).arg(&profile).arg(&raw);
    run::capture(merge)?;
    let mut show = Command::new(tools.join("llvm-cov"));
    show.args(["show", "--instr-profile"]).arg(&profile).args(["--show-instantiations=false"]);
    let mut programs = programs.iter();
    show.arg(programs.next().context("no test program")?);
    show.args(programs.flat_map(|program| [Path::new("--object"), program.as_path()]));
    show.args(GOALS.map(|(name, _)| run::root().join(name).join("src")));
    let mut lines = Lines::read(&run::silent(show)?);
    let vfio = run::root().join("vfio-host/src/vfio");
    for name in IN_GUESTS {
        let found = lines.0.remove(&vfio.join(name).display().to_string());
        let found = found.with_context(|| format!("no line of {name}"))?;
        println!("  vfio-host/src/vfio/{name}: {} lines that only guests execute", found.len());
    }
    let mut missed = Vec::new();
    for (name, goal) in GOALS {
        let percent = lines.percent(&run::root().join(name).join("src"));
        println!("  {name}: {percent:.1} % of the lines (goal {goal} %)");
        if percent < goal {
            missed.push(name.to_owned());
        }
    }
    missed.extend(lines.codes());
    ensure!(missed.is_empty(), "not executed: {missed:?}");
    Ok(())
}

/// Where this toolchain has LLVM's tools, if it has them.
fn tools() -> Result<Option<PathBuf>> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--print", "target-libdir"]);
    let library = PathBuf::from(run::silent(rustc)?.trim());
    let tools = library.parent().map(|rustlib| rustlib.join("bin"));
    Ok(tools.filter(|tools| tools.join("llvm-cov").exists()))
}

/// Lines with a counter, by file: whether each was executed, and its text.
#[derive(Debug, Default)]
struct Lines(BTreeMap<String, Vec<(bool, String)>>);

impl Lines {
    /// Reads what `llvm-cov show` prints: a file's name and a colon, then `number|count|text`.
    fn read(text: &str) -> Self {
        let (mut lines, mut file) = (Self::default(), String::new());
        for line in text.lines() {
            if let Some(name) = line.strip_suffix(':').filter(|name| name.starts_with('/')) {
                name.clone_into(&mut file);
            }
            let mut cells = line.splitn(3, '|');
            let (Some(number), Some(hits), Some(code)) = (cells.next(), cells.next(), cells.next())
            else {
                continue;
            };
            if number.trim().parse::<u32>().is_ok() {
                if let Some(hit) = executed(hits.trim()) {
                    lines.0.entry(file.clone()).or_default().push((hit, code.to_owned()));
                }
            }
        }
        lines
    }

    /// Per cent of the lines below a folder that were executed.
    fn percent(&self, folder: &Path) -> f64 {
        let below = self.0.iter().filter(|(file, _)| Path::new(file).starts_with(folder));
        let all: Vec<_> = below.flat_map(|(_, lines)| lines).collect();
        100.0 * all.iter().filter(|(hit, _)| *hit).count() as f64 / all.len().max(1) as f64
    }

    /// The codes of DAT that are named by lines with a counter, none of which was executed.
    fn codes(&self) -> Vec<String> {
        let mut codes = BTreeMap::<String, bool>::new();
        for (hit, code) in self.0.values().flatten() {
            for of in ["DatType::", "DatSubtype::"] {
                for rest in code.split(of).skip(1) {
                    let word =
                        rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
                    *codes.entry(format!("{of}{word}")).or_default() |= *hit;
                }
            }
        }
        codes.into_iter().filter(|(_, hit)| !hit).map(|(code, _)| code).collect()
    }
}

/// Whether a count says so, as it is printed: `0`, `12`, `3.4k`, `5.6M`.
fn executed(count: &str) -> Option<bool> {
    count.starts_with(|c: char| c.is_ascii_digit()).then_some(count != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_codes_are_counted() {
        let text = "/w/dat-core/src/x.rs:\n    1|       |//! front\n    2|  3.4k|    good(DatType::Abort);\n    \
                    3|      0|    evil(DatType::Abort, DatSubtype::NoSubtype);\n\n/w/hca-mlx5/src/y.rs:\n    1|      7|f()\n";
        let lines = Lines::read(text);
        assert!((lines.percent(Path::new("/w/dat-core/src")) - 50.0).abs() < 1e-9);
        assert!((lines.percent(Path::new("/w/hca-mlx5/src")) - 100.0).abs() < 1e-9);
        assert_eq!(lines.codes(), ["DatSubtype::NoSubtype"]);
    }
}
