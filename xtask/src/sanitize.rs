//! `cargo xtask sanitize`: tests under ThreadSanitizer and AddressSanitizer.
//!
//! The compiler's library is built with the sanitizer too, or what it synchronizes would not be
//! seen. ThreadSanitizer knows no fences. None has to be made known to it: the fences of the driver
//! order what the device sees, and no two threads of a process share that; the words that threads
//! share are handed over by acquire and release on the words themselves. A program with a race shows
//! first that races are found. One thing is suppressed: the test host's copies between what the CPU
//! sees and what the device sees stand for DMA, and go on beside the threads.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use dat_lab::run;

use crate::suite::Sum;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The copies that stand for DMA.
const SUPPRESSED: &str = "race:dat_tests::host::views::Views\n";
const REMEDY: &str = "rustup toolchain install nightly --profile minimal --component rust-src";

/// The sanitizers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Sanitizer {
    /// Data races
    Thread,
    /// Accesses outside, or after the end, of what was allocated
    Address,
}

/// Options of the verb.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Only this one
    sanitizer: Option<Sanitizer>,
}

/// A suite, and what of it is left out.
struct Suite {
    tests: &'static [&'static str],
    /// Beginnings of the names of tests that a sanitizer cannot judge.
    without: &'static [&'static str],
    /// Each test has a process of its own: a thread gets the stack of one that has ended, and
    /// AddressSanitizer believes of its deep frames what it believed of those before.
    alone: bool,
}

impl Suite {
    const fn whole(tests: &'static [&'static str]) -> Self {
        Self { tests, without: &[], alone: false }
    }
}

/// Memory is lent by whole pages: what stands beside it there belongs to others, and the copy of it
/// is an access outside to AddressSanitizer. A child whose death is the test reports it.
const LENDS: &[&str] = &["fork::", "lent::", "named::the_program_of_the_guests_lends"];

const SUITES: &[Suite] = &[
    Suite::whole(&["-p", "vfio-host", "--all-features", "--lib"]),
    Suite::whole(&["-p", "dapldat", "--test", "parts"]),
    Suite::whole(&["-p", "mlx5-model", "--all-features", "--lib"]),
    Suite::whole(&["-p", "dat-suite", "--test", "model", "--", "dat_threads"]),
    Suite { tests: &["-p", "dat-tests", "--test", "vfio_user"], without: LENDS, alone: true },
];

impl Sanitizer {
    const fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Address => "address",
        }
    }

    /// What the first line of its reports holds.
    const fn report(self) -> &'static str {
        match self {
            Self::Thread => "ThreadSanitizer",
            Self::Address => "AddressSanitizer",
        }
    }

    /// A program that is wrong in the way that it finds.
    const fn wrong(self) -> &'static str {
        match self {
            Self::Thread => {
                "static mut N: u64 = 0;\n\
                 fn main() {\n    let add = || for _ in 0..1000 { unsafe { N += 1 } };\n    \
                 let other = std::thread::spawn(add);\n    add();\n    other.join().unwrap();\n}\n"
            }
            Self::Address => {
                "fn main() {\n    let gone = { let b = Box::new(std::process::id()); &raw const *b };\n    \
                 println!(\"{}\", unsafe { gone.read_volatile() });\n}\n"
            }
        }
    }
}

pub(crate) fn sanitize(options: &Options) -> Result<()> {
    let all = [Sanitizer::Thread, Sanitizer::Address];
    if !is_there() {
        println!("  SKIPPED: sanitizers: `{REMEDY}`");
        return Ok(());
    }
    for sanitizer in all.into_iter().filter(|one| options.sanitizer.is_none_or(|s| s == *one)) {
        finds(sanitizer)?;
        for suite in SUITES {
            tests(sanitizer, suite)?;
        }
    }
    Ok(())
}

/// Whether there is a nightly toolchain with the sources of its library.
fn is_there() -> bool {
    let mut sysroot = Command::new("rustup");
    sysroot.args(["run", "nightly", "rustc", "--print", "sysroot"]);
    let Ok(out) = sysroot.output() else { return false };
    let root = String::from_utf8_lossy(&out.stdout).into_owned();
    let sources = Path::new(root.trim()).join("lib/rustlib/src/rust/library/Cargo.lock");
    out.status.success() && sources.exists()
}

/// Returns a cargo of the nightly toolchain that builds with the sanitizer.
fn cargo(sanitizer: Sanitizer) -> Result<Command> {
    let folder = run::target()?.join(format!("sanitize-{}", sanitizer.name()));
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo"])
        .current_dir(run::root())
        .env("CARGO_TARGET_DIR", folder)
        .env("RUSTFLAGS", format!("-Zsanitizer={}", sanitizer.name()))
        .env("RUSTDOCFLAGS", format!("-Zsanitizer={}", sanitizer.name()))
        // Those of the cargo that runs this.
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("RUSTC")
        .env_remove("CARGO")
        .env_remove("LD_LIBRARY_PATH");
    Ok(command)
}

/// Runs a program that is wrong, which must be found.
fn finds(sanitizer: Sanitizer) -> Result<()> {
    let folder = run::target()?.join(format!("sanitize-{}", sanitizer.name())).join("wrong");
    fs::create_dir_all(folder.join("src"))?;
    fs::write(
        folder.join("Cargo.toml"),
        "[package]\nname = \"wrong\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n",
    )?;
    fs::write(folder.join("src/main.rs"), sanitizer.wrong())?;
    let mut command = cargo(sanitizer)?;
    command.args(["run", "--quiet", "-Zbuild-std", "--target", TARGET]).current_dir(&folder);
    let out = command.output().context("rustup does not start")?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(
        !out.status.success() && said.contains(sanitizer.report()),
        "{} does not find what is wrong with {}:\n{said}",
        sanitizer.report(),
        folder.display()
    );
    println!("  {}: finds what is wrong with a program that is", sanitizer.report());
    Ok(())
}

fn tests(sanitizer: Sanitizer, suite: &Suite) -> Result<()> {
    let start = Instant::now();
    let mut passed = 0;
    if suite.alone {
        let list = output(sanitizer, suite, &["--list"])?;
        let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
        let judged = names.filter(|name| !suite.without.iter().any(|part| name.starts_with(part)));
        for name in judged {
            passed += Sum::of(&output(sanitizer, suite, &["--exact", name])?).passed;
        }
    } else {
        passed += Sum::of(&output(sanitizer, suite, &[])?).passed;
    }
    ensure!(passed > 0, "no test ran");
    println!("  {passed} tests, {} s, no report", start.elapsed().as_secs());
    Ok(())
}

/// Runs tests of a suite, without a report; what they printed.
fn output(sanitizer: Sanitizer, suite: &Suite, args: &[&str]) -> Result<String> {
    let mut command = cargo(sanitizer)?;
    command.args(["test", "--quiet", "-Zbuild-std", "--target", TARGET]).args(suite.tests);
    if !suite.tests.contains(&"--") {
        command.arg("--");
    }
    command.args(args);
    let headers = dat_lab::dat_headers();
    let headers = headers.context("the headers that the uDAPL provider is compared with")?;
    command.env("DAT_HEADERS", headers);
    if sanitizer == Sanitizer::Thread {
        let file = run::target()?.join("sanitize-thread/suppressed");
        fs::write(&file, SUPPRESSED)?;
        command.env("TSAN_OPTIONS", format!("suppressions={}", file.display()));
    }
    println!("$ {}", run::shown(&command));
    let out = command.output()?;
    let (text, said) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let reported = text.contains(sanitizer.report()) || said.contains(sanitizer.report());
    if !out.status.success() || reported {
        print!("{text}");
        eprint!("{said}");
        bail!("{}: a test failed, or a report", sanitizer.report());
    }
    Ok(text.into_owned())
}
