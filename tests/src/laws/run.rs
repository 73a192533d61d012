//! Starts episodes, catches what fails, and cuts a failing episode down.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::rng::Rng;
use super::{Episode, Outcome, Violation, liveness, safety};
use crate::conformance::{Adapters, Side, hosted, loopback};

/// Which law is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// Everything accepted ends, with its event.
    Liveness,
    /// Nothing freed is reached.
    Safety,
}

impl Law {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Liveness, Self::Safety];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Liveness => "liveness",
            Self::Safety => "safety",
        }
    }
}

/// Provider below the adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// The loop provider.
    Loop,
    /// The driver over the device model in process.
    Model,
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The law.
    pub law: Law,
    /// Where.
    pub provider: Provider,
    /// Seed of the episodes' seeds.
    pub seed: u64,
    /// Steps in all.
    pub steps: u64,
    /// Failures to collect before the run ends.
    pub failures: usize,
}

/// An episode that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The law.
    pub law: Law,
    /// Where.
    pub provider: Provider,
    /// Seed of the episode.
    pub episode: u64,
    /// Fewest steps of its program that fail.
    pub cut: u64,
    /// The violation.
    pub violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = match self.provider {
            Provider::Loop => "",
            Provider::Model => " --model",
        };
        write!(
            f,
            "{}: {}\n  repeat: cargo xtask laws --law {} --episode {:#x} --cut {}{model}",
            self.violation.rule,
            self.violation.text,
            self.law.name(),
            self.episode,
            self.cut,
        )
    }
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Calls made.
    pub steps: u64,
    /// Episodes.
    pub episodes: u64,
    /// Failing episodes by rule.
    pub rules: BTreeMap<&'static str, u64>,
    /// The first failing episode of each rule.
    pub failures: Vec<Failure>,
    /// Time it took.
    pub time: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f64();
        let rate = self.steps as f64 / seconds.max(1e-9);
        writeln!(
            f,
            "{} steps, {} episodes, {seconds:.1} s, {rate:.0} steps/s",
            self.steps, self.episodes
        )?;
        for (rule, count) in &self.rules {
            writeln!(f, "  {count} episodes violate {rule}")?;
        }
        for failure in &self.failures {
            writeln!(f, "{failure}")?;
        }
        Ok(())
    }
}

/// Runs the program of a law over two adapters.
fn program<S: Side>(law: Law, ias: &mut Adapters<'_, S>, episode: Episode) -> Outcome {
    match law {
        Law::Liveness => liveness::episode(ias, episode),
        Law::Safety => safety::episode(ias, episode),
    }
}

/// Runs one episode. A panic of the implementation is a violation of rule `panic`.
#[must_use]
pub fn once(law: Law, provider: Provider, episode: Episode) -> Outcome {
    let mut outcome = None;
    let ran = catch_unwind(AssertUnwindSafe(|| match provider {
        Provider::Loop => loopback::run_small(|ias| outcome = Some(program(law, ias, episode))),
        Provider::Model => hosted::run_refusing(|ias| outcome = Some(program(law, ias, episode))),
    }));
    let text = match ran {
        Ok(()) => None,
        Err(panic) => Some(
            panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_default(),
        ),
    };
    let mut outcome =
        outcome.unwrap_or(Outcome { steps: 0, program: episode.cut.min(1 << 20), check: Ok(()) });
    if let (Some(text), Ok(())) = (text, &outcome.check) {
        outcome.check = Err(Violation { rule: "panic", text });
    }
    outcome
}

/// Finds the fewest steps that violate the same rule.
fn shrink(law: Law, provider: Provider, episode: u64, outcome: &Outcome) -> (u64, Violation) {
    let Err(first) = &outcome.check else {
        return (0, Violation { rule: "none", text: String::new() });
    };
    let mut best = (outcome.program, first.clone());
    let fails = |cut| {
        let again = Episode { seed: episode, cut, verbose: false };
        once(law, provider, again).check.err().filter(|violation| violation.rule == first.rule)
    };
    // A shorter program is a prefix of a longer one; what fails is not monotonous, so small cuts
    // are tried one by one.
    for cut in 0..outcome.program {
        if cut > 400 {
            break;
        }
        if let Some(violation) = fails(cut) {
            best = (cut, violation);
            break;
        }
    }
    best
}

/// Runs episodes until all steps are done or as many have failed as the plan wants.
#[must_use]
pub fn run(plan: &Plan) -> Report {
    let start = Instant::now();
    let mut report = Report::default();
    let mut seeds = Rng::new(plan.seed);
    let mut failed = 0;
    while report.steps < plan.steps && failed < plan.failures {
        let seed = seeds.next();
        let episode = Episode { seed, cut: u64::MAX, verbose: false };
        let outcome = once(plan.law, plan.provider, episode);
        report.steps += outcome.steps.max(1);
        report.episodes += 1;
        if let Err(violation) = &outcome.check {
            failed += 1;
            let count = report.rules.entry(violation.rule).or_default();
            *count += 1;
            if *count == 1 {
                let (cut, violation) = shrink(plan.law, plan.provider, seed, &outcome);
                report.failures.push(Failure {
                    law: plan.law,
                    provider: plan.provider,
                    episode: seed,
                    cut,
                    violation,
                });
            }
        }
    }
    report.time = start.elapsed();
    report
}
