//! HPCC over Intel MPI.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::intel;
use super::job::{Job, Program};
use crate::guest::stage::Stage;
use crate::images::hpcc::Hpcc;
use crate::images::mpi::{Intel, PACKAGE};

/// Folders of its source with files that belong to the program.
const PARTS: [&str; 8] =
    ["hpl/src", "hpl/testing", "DGEMM", "FFT", "PTRANS", "RandomAccess", "STREAM", "src"];
/// Its parameters: a name in its example file, and what stands there instead.
const INPUT: [(&str, &str); 2] =
    [("1000         Ns", "400          Ns"), ("2            Ps", "1            Ps")];
const RANKS: usize = 2;
/// What lines of checks that PASSED have: of the linear solver, and of the transpositions, of which it
/// makes as many as it has time for.
const CHECKS: [&str; 2] = ["||Ax-b||", "WALL"];

/// HPCC.
pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let found = match Intel::fetch() {
        Ok(found) => found,
        Err(error) => return Ok(format!("SKIPPED: {PACKAGE} cannot be had: {error:#}")),
    };
    let hpcc = match Hpcc::fetch() {
        Ok(hpcc) => hpcc,
        Err(error) => return Ok(format!("SKIPPED: the source of hpcc cannot be had: {error:#}")),
    };
    let rig = intel(stage, &found, &program(&hpcc)?)?;
    let mut input = fs::read_to_string(hpcc.source.join("_hpccinf.txt"))?;
    for (is, shall) in INPUT {
        ensure!(input.contains(is), "its example has no {is:?}");
        input = input.replace(is, shall);
    }
    fs::write(stage.path("hpccinf.txt"), input)?;
    let job = Job { ranks: RANKS, environment: &[], words: &[], parts: &[] };
    rig.verified(stage, &job)?;
    judge(&fs::read_to_string(stage.path("hpccoutf.txt")).context("it wrote no result")?)
}

/// All files at once: there is nothing to build a second time.
fn program(Hpcc { source, include, algebra }: &Hpcc) -> Result<Program> {
    let mut words: Vec<_> =
        ["-w", "-DAdd__", "-DF77_INTEGER=int", "-DStringSunStyle", "-DHPL_CALL_CBLAS"]
            .map(std::ffi::OsString::from)
            .into();
    for folder in [&source.join("include"), &source.join("hpl/include"), include] {
        words.extend(["-I".into(), folder.into()]);
    }
    for part in PARTS {
        files(&source.join(part), &mut words)?;
    }
    Ok(Program { name: "hpcc", words, libraries: vec![algebra.into(), "-lm".into()] })
}

fn files(folder: &Path, found: &mut Vec<std::ffi::OsString>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "c") {
            found.push(path.into());
        }
    }
    Ok(())
}

/// Reads what it found out about its own results.
fn judge(text: &str) -> Result<String> {
    let value = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .with_context(|| format!("no {name}"))
    };
    ensure!(value("Success")? == "1", "it says that it failed");
    let bad = text.lines().find(|line| line.contains("FAILED") || line.contains("(failed)"));
    ensure!(bad.is_none(), "{}", bad.unwrap_or_default());
    let passed: Vec<&str> = text.lines().filter(|line| line.contains("PASSED")).collect();
    for check in CHECKS {
        ensure!(passed.iter().any(|line| line.contains(check)), "no line of {check} says PASSED");
    }
    for name in ["MPIRandomAccess_Errors", "MPIRandomAccess_LCG_Errors"] {
        ensure!(value(name)? == "0", "{name}={}", value(name)?);
    }
    let error: f64 = value("MPIFFT_maxErr")?.parse()?;
    ensure!(error < 1e-12, "MPIFFT_maxErr={error}");
    Ok(format!(
        "HPCC at {RANKS} ranks: {} checks passed, no random access went wrong, error of the transform {error:e}",
        passed.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::judge;

    const GOOD: &str = "Success=1\nMPIRandomAccess_Errors=0\nMPIRandomAccess_LCG_Errors=0\nMPIFFT_maxErr=1.07e-15\n";

    #[test]
    fn a_result_that_is_wrong_is_seen() {
        let good = format!("||Ax-b||_oo PASSED\nWALL 200 PASSED\n{GOOD}");
        assert!(judge(&good).is_ok());
        for (is, bad) in [
            ("Success=1", "Success=0"),
            ("WALL 200 PASSED", "WALL 200 FAILED"),
            ("WALL 200 PASSED", ""),
            ("||Ax-b||_oo PASSED", ""),
            ("_Errors=0", "_Errors=3"),
            ("e-15", "e-3"),
            ("MPIFFT_maxErr", "MPIFFT"),
        ] {
            assert!(judge(&good.replacen(is, bad, 1)).is_err(), "{bad}");
        }
    }
}
