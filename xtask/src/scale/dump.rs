//! Dumps of callgrind: the cost of each function itself, in one call that was measured.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result};

/// The function between whose entry and return callgrind counts.
pub(super) const MEASURED: &str = "dat_tests::scale::meter::measured";
/// The way into the device model, which is left out.
pub(super) const OUTSIDE: &str = "dat_tests::bench::host::model::outside";

/// Instructions of each function itself, by its name and the file of ours that they stand in.
type Functions = BTreeMap<(String, String), u64>;

/// The costs of the runs of one case.
#[derive(Debug, Default)]
pub(super) struct Cost(Vec<Functions>);

fn sum(functions: &Functions) -> u64 {
    functions.values().sum()
}

impl Cost {
    /// The run of the median: what one of many runs does besides, as to draw new random bytes, is
    /// not of the case.
    fn median(&self) -> Functions {
        let mut runs: Vec<&Functions> = self.0.iter().collect();
        runs.sort_by_key(|run| sum(run));
        runs.get(runs.len().saturating_sub(1) / 2).copied().cloned().unwrap_or_default()
    }

    /// Instructions of one run.
    pub(super) fn each(&self) -> f64 {
        sum(&self.median()) as f64
    }

    /// Adds a dump.
    pub(super) fn add(&mut self, dump: &str) -> Result<()> {
        let mut functions = Functions::new();
        let mut names: [HashMap<&str, &str>; 2] = Default::default();
        let (mut function, mut file) = ("", "");
        // The line behind `calls=` is what the callee costs.
        let mut call = false;
        for line in dump.lines() {
            let named = line.split_once('=');
            let is_key = |key: &str| key.bytes().all(|byte| byte.is_ascii_lowercase());
            if let Some((key, value)) = named.filter(|(key, _)| is_key(key)) {
                match key {
                    "fn" => function = name(&mut names[0], value),
                    "cfn" => _ = name(&mut names[0], value),
                    "fl" | "fi" | "fe" => file = name(&mut names[1], value),
                    "cfl" | "cfi" => _ = name(&mut names[1], value),
                    "calls" => call = true,
                    _ => {}
                }
            } else if line
                .starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first))
            {
                if std::mem::take(&mut call) {
                    continue;
                }
                let cost = line.split(' ').nth(1).context("a line without a cost")?;
                let place = (short(function), short_file(file));
                *functions.entry(place).or_default() += cost.parse::<u64>()?;
            }
        }
        self.0.push(functions);
        Ok(())
    }

    /// The functions in which this costs more than `less`, with their part of what is added, and
    /// the file of ours in which most of that stands.
    pub(super) fn growth(&self, less: &Self, most: usize) -> String {
        let (more, less) = (self.median(), less.median());
        let each = |of: &Functions, place| of.get(place).map_or(0.0, |&cost| cost as f64);
        let mut functions: BTreeMap<&str, (f64, f64, &str)> = BTreeMap::new();
        for place in more.keys() {
            let added = each(&more, place) - each(&less, place);
            let (function, file) = place;
            let (all, best, of) = functions.entry(function).or_insert((0.0, 0.0, ""));
            *all += added;
            if added > *best && !file.is_empty() {
                (*best, *of) = (added, file);
            }
        }
        let mut functions: Vec<_> = functions.into_iter().collect();
        functions.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
        let all = sum(&more) as f64 - sum(&less) as f64;
        let said = functions.iter().take(most).map(|(function, (added, _, file))| {
            let file = if file.is_empty() { String::new() } else { format!(" ({file})") };
            format!("{function}{file} {:.0} %", 100.0 * added / all)
        });
        said.collect::<Vec<_>>().join(", ")
    }
}

/// A name, or the number that stands for it from its second use on.
fn name<'d>(names: &mut HashMap<&'d str, &'d str>, value: &'d str) -> &'d str {
    match value.split_once(' ') {
        Some((number, name)) if number.starts_with('(') => {
            names.insert(number, name);
            name
        }
        _ => names.get(value).copied().unwrap_or(value),
    }
}

/// A function without the parameters of its types, and the last words of its path.
fn short(function: &str) -> String {
    let function = function.split('\'').next().unwrap_or(function);
    let (mut depth, mut plain) = (0_usize, String::new());
    // `<T>::f` and `<T as Trait>::f`: the type is a part of the path.
    let function = match function.strip_prefix('<') {
        Some(rest) => rest.replacen(" as ", "<", 1),
        None => function.to_owned(),
    };
    for letter in function.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    let words: Vec<&str> = plain.split("::").filter(|word| !word.is_empty()).collect();
    words[words.len().saturating_sub(2)..].join("::")
}

/// The last parts of a path; nothing of a file of the standard library.
fn short_file(file: &str) -> String {
    if file.contains("/library/") {
        return String::new();
    }
    let parts: Vec<&str> = file.split('/').collect();
    parts[parts.len().saturating_sub(2)..].join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "version: 1\nevents: Ir\nfl=(1) /rustc/1/library/core/iter.rs\nfn=(1) a::B<c::D>::e\n\
                        10 7\n+1 3\ncfi=(2) /w/x/y.rs\ncfn=(2) <k::L<m> as n::O>::p\ncalls=1 5\n\
                        * 100\nfi=(2)\n12 4\n\nfn=(2)\n5 90\nfe=(1)\n-1 10\ntotals: 114\n";

    #[test]
    fn a_dump_has_the_cost_of_each_function_itself() {
        let (mut one, mut two) = (Cost::default(), Cost::default());
        one.add(DUMP).unwrap();
        for cost in ["1090", "90", "1090"] {
            two.add(&DUMP.replace("\n5 90", &format!("\n5 {cost}"))).unwrap();
        }
        assert_eq!((one.each(), two.each()), (114.0, 1114.0));
        assert_eq!(two.growth(&one, 1), "L::p (x/y.rs) 100 %");
    }
}
