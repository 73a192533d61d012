//! Cuts a failing script down to the steps that it needs.

use crate::oracle::Violation;
use crate::run::{Options, run};
use crate::script::Script;

/// Runs at the most.
const RUNS: usize = 400;

/// Leaves out steps as long as the same rule is violated; what is left, and the runs that took.
///
/// Parts are left out first, large ones before small ones, then what is left is tried again: the
/// steps of a script do not depend on each other.
pub fn shrink(script: &Script, violation: &Violation) -> anyhow::Result<(Script, usize)> {
    let mut keep: Vec<usize> = script.steps.iter().map(|step| step.number).collect();
    let mut runs = 0;
    let fails = |keep: &[usize], runs: &mut usize| -> anyhow::Result<bool> {
        *runs += 1;
        let outcome = run(&script.only(keep), &Options::default())?;
        let same =
            |found: &Violation| found.rule == violation.rule && words(found) == words(violation);
        Ok(outcome.violation.as_ref().is_some_and(same))
    };
    // Nothing after the failure is needed: how many steps are is found by halves.
    let (mut low, mut high) = (0, keep.len());
    while low + 1 < high && runs < RUNS {
        let middle = low.midpoint(high);
        if fails(&keep[..middle], &mut runs)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    keep.truncate(high);
    let mut part = keep.len() / 2;
    while part > 0 && runs < RUNS {
        let (mut at, mut fewer) = (0, false);
        while at < keep.len() && runs < RUNS {
            let mut less = keep.clone();
            less.drain(at..(at + part).min(keep.len()));
            if fails(&less, &mut runs)? {
                keep = less;
                fewer = true;
            } else {
                at += part;
            }
        }
        if part > 1 || !fewer {
            part /= 2;
        }
    }
    Ok((script.only(&keep), runs))
}

/// What a violation says, without the numbers.
fn words(violation: &Violation) -> String {
    violation.text.chars().filter(|letter| !letter.is_ascii_digit()).take(60).collect()
}
