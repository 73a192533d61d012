//! `cargo xtask test`: all checks and tests, the fastest to fail first.

use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use dat_lab::run;

use crate::{loom, mutants, nostd, scale, tidy};

/// Fewer tests than this means that some did not run.
const LEAST: usize = 300;
/// Object of an error, and its remedy.
const GUESTS: &str = "guests (`cargo xtask test --no-guests` leaves them out)";

/// Runs everything; with `guests` also the tests in guests.
pub(crate) fn test(guests: bool) -> Result<()> {
    let start = Instant::now();
    let options = dat_lab::Options::short();
    // Fetching waits for the network, compiling for the processor.
    let fetched = guests.then(|| {
        let options = options.clone();
        thread::spawn(move || dat_lab::fetch(&options))
    });
    let cargo = |args: &[&str]| {
        let mut command = run::cargo();
        command.args(args);
        command
    };
    run::capture(cargo(&["fmt", "--all", "--", "--check", "-l"]))?;
    tidy::tidy(&tidy::Options::default())?;
    let mut clippy =
        cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--all-features"]);
    clippy.args(["--", "-D", "warnings"]);
    run::capture(clippy)?;
    nostd::nostd()?;
    let mut doc =
        cargo(&["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"]);
    doc.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links");
    run::capture(doc)?;
    mutants::short()?;
    loom::short()?;
    if let Some(fetched) = fetched {
        let fetched = fetched.join().map_err(|_| anyhow!("the thread that fetches panicked"))?;
        fetched.context(GUESTS)?;
    }

    let tests = ["test", "--quiet", "--workspace", "--all-features"];
    run::capture(cargo(&[&tests[..], &["--no-run"]].concat()))?;
    if guests {
        // Its valgrind comes the way the guests do.
        scale::short()?;
    }
    let mut tests = cargo(&[&tests[..], &["--no-fail-fast"]].concat());
    let headers =
        dat_lab::dat_headers().context("the headers that the uDAPL provider is compared with")?;
    tests.env("DAT_HEADERS", headers);
    println!("$ {}", run::shown(&tests));
    // Tests and guests both sleep half of their time.
    let (out, scenarios) = thread::scope(|scope| {
        let scenarios = guests.then(|| scope.spawn(|| dat_lab::scenarios(&options)));
        let out = tests.output();
        (out, scenarios.map(|scenarios| scenarios.join()))
    });
    let out = out?;
    let text = String::from_utf8_lossy(&out.stdout);
    let mut sum = Sum::of(&text);
    if !out.status.success() {
        print!("{text}");
        eprint!("{}", String::from_utf8_lossy(&out.stderr));
    }
    if let Some(scenarios) = scenarios {
        let scenarios = scenarios.map_err(|_| anyhow!("the thread of the guests panicked"))?;
        let (passed, failed) = scenarios.context(GUESTS)?;
        sum.passed += passed;
        sum.failed += failed.len();
    }
    println!("{} s in all", start.elapsed().as_secs());
    println!("{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.ignored);
    ensure!(out.status.success() && sum.failed == 0, "tests failed");
    ensure!(sum.ignored == 0, "{} tests are ignored; none may be", sum.ignored);
    if sum.passed < LEAST {
        bail!("only {} tests ran; there are more than {LEAST}", sum.passed);
    }
    Ok(())
}

/// The sum of the results of test binaries.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Sum {
    pub(crate) passed: usize,
    failed: usize,
    ignored: usize,
}

impl Sum {
    pub(crate) fn of(text: &str) -> Self {
        let mut sum = Self::default();
        for line in text.lines().filter_map(|line| line.strip_prefix("test result: ")) {
            let mut words = line.split([' ', ';', '.']).filter(|word| !word.is_empty());
            let mut last = "";
            for word in words.by_ref() {
                let number = || last.parse().unwrap_or(0);
                match word {
                    "passed" => sum.passed += number(),
                    "failed" => sum.failed += number(),
                    "ignored" => sum.ignored += number(),
                    _ => {}
                }
                last = word;
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::Sum;

    #[test]
    fn results_of_several_binaries_are_added() {
        let text = "test result: ok. 8 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
                    noise 5 passed\n\
                    test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.50s\n";
        assert_eq!(Sum::of(text), Sum { passed: 10, failed: 3, ignored: 1 });
    }
}
