//! `docs/dat-seed-pages.md`: the sentences of four manual pages, and what guards each.
//!
//! `tests/src/conformance/pages.txt` has the sentences by number. A rule names those that it was
//! written from in its source.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{Rule, Texts, columns, lines};

/// The sentences, beside the cases.
pub(super) const TABLE: &str = "pages.txt";
/// What is made of them.
pub(super) const PAGE: &str = "docs/dat-seed-pages.md";

/// One sentence of a page.
#[derive(Debug)]
struct Sentence {
    call: String,
    number: u32,
    fact: String,
    /// A guard besides the rules.
    other: String,
}

/// All sentences, in the order of the table.
#[derive(Debug, Default)]
pub(super) struct Pages {
    sentences: Vec<Sentence>,
}

/// A rule's source: its letter, and the page and sentences that it was written from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source<'r> {
    pub(super) kind: &'r str,
    call: Option<&'r str>,
    pub(super) numbers: Vec<u32>,
}

impl<'r> Source<'r> {
    /// `M`, `M 3 4`, `M dat_ep_reset 3`, `E19 10`. Nothing if it is none of these.
    pub(super) fn parse(rule: &'r Rule) -> Option<Self> {
        let mut parts = rule.source.split_whitespace().peekable();
        let kind = parts.next()?;
        let call = parts.next_if(|part| part.starts_with("dat_"));
        let numbers: Result<Vec<u32>, _> = parts.map(str::parse).collect();
        let numbers = numbers.ok()?;
        let page = kind == "M" || call.is_some() || !numbers.is_empty();
        let call = call.or(page.then_some(rule.call.as_str()));
        Some(Self { kind, call, numbers })
    }

    /// The page, as people write it, with the numbers of its sentences.
    pub(super) fn page(&self) -> String {
        let Some(call) = self.call else {
            return String::new();
        };
        let numbers: Vec<String> = self.numbers.iter().map(u32::to_string).collect();
        format!("{call}(3) {}", numbers.join(", ")).trim_end().to_owned()
    }
}

impl Pages {
    /// Reads the table.
    pub(super) fn read(&mut self, text: &str, faults: &mut Vec<String>) {
        for (line, row) in lines(text) {
            let read = columns::<4>(row).and_then(|[call, number, fact, other]| {
                Some(Sentence { call, number: number.parse().ok()?, fact, other })
            });
            match read {
                Some(sentence) if sentence.number == self.next(&sentence.call) => {
                    self.sentences.push(sentence);
                }
                Some(sentence) => faults.push(format!(
                    "{TABLE}:{line}: sentence {} of {} is out of order",
                    sentence.number, sentence.call
                )),
                None => faults.push(format!("{TABLE}:{line}: not `call | number | fact | guard`")),
            }
        }
    }

    /// The number of the next sentence of that page.
    fn next(&self, call: &str) -> u32 {
        let last = self.sentences.iter().rev().find(|s| s.call == call);
        last.map_or(1, |sentence| sentence.number + 1)
    }

    /// Checks that rules name sentences that exist, and that each sentence has a guard; the page as
    /// it has to be.
    pub(super) fn check(&self, rules: &[Rule], texts: &Texts, faults: &mut Vec<String>) -> String {
        let known: BTreeSet<(&str, u32)> = self
            .sentences
            .iter()
            .map(|sentence| (sentence.call.as_str(), sentence.number))
            .collect();
        let mut guards: Vec<(&Rule, &str, u32)> = Vec::new();
        for rule in rules {
            let Some(source) = Source::parse(rule) else {
                faults.push(format!(
                    "{}: not a source: {} (a letter, a page, numbers of its sentences)",
                    rule.case, rule.source
                ));
                continue;
            };
            let call = source.call.unwrap_or_default();
            for number in source.numbers {
                if known.contains(&(call, number)) {
                    guards.push((rule, call, number));
                } else {
                    faults
                        .push(format!("{}: {call} has no sentence {number} in {TABLE}", rule.case));
                }
            }
        }
        let mut page = String::from(
            "# Four manual pages, sentence by sentence\n\n\
            Made by `cargo xtask tidy --bless` from `tests/src/conformance/pages.txt` and the rules beside it. Each sentence is given in\n\
            our own words. A case fails where the rule is broken; every case runs on the loop provider, on the driver over the device\n\
            model, and in a guest through `/dev/vfio`. The pages are those of section 3DAT of the illumos and Oracle Solaris manuals.\n",
        );
        let mut call = "";
        for sentence in &self.sentences {
            if sentence.call != call {
                call = &sentence.call;
                let head = "| | the page says | rule | guard | where |\n|---|---|---|---|---|";
                let _ = write!(page, "\n## {call}(3)\n\n{head}\n");
            }
            let mut of = guards
                .iter()
                .filter(|(_, call, number)| (*call, *number) == (&sentence.call, sentence.number))
                .map(|(rule, ..)| *rule)
                .peekable();
            if of.peek().is_none() && sentence.other.is_empty() {
                faults
                    .push(format!("{TABLE}: sentence {} of {call} has no guard", sentence.number));
            }
            let mut lead = (sentence.number.to_string(), sentence.fact.as_str());
            for rule in of {
                let (number, fact) = std::mem::take(&mut lead);
                let text = if rule.call == sentence.call {
                    rule.text.clone()
                } else {
                    format!("{}: {}", rule.call, rule.text)
                };
                let _ = writeln!(
                    page,
                    "| {number} | {fact} | {text} | `{}` | loop, model, guest |",
                    rule.case
                );
            }
            if !sentence.other.is_empty() {
                let (number, fact) = lead;
                let _ = writeln!(page, "| {number} | {fact} | | {} | |", sentence.other);
                // What looks like a test has to be one.
                for name in sentence.other.split('`').skip(1).step_by(2) {
                    let test = name.chars().all(|c| c == '_' || c.is_ascii_lowercase());
                    let found = |text: &String| text.contains(&format!("fn {name}("));
                    if test && !texts.values().any(found) {
                        faults.push(format!("{TABLE}: there is no test {name}"));
                    }
                }
            }
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(source: &str) -> Rule {
        Rule {
            call: "dat_a".into(),
            text: "it works".into(),
            source: source.into(),
            case: "a::works".into(),
        }
    }

    fn faults(table: &str, rules: &[Rule]) -> (String, Vec<String>) {
        let (mut pages, mut faults) = (Pages::default(), Vec::new());
        pages.read(table, &mut faults);
        let page = pages.check(rules, &Texts::new(), &mut faults);
        (page, faults)
    }

    #[test]
    fn sources_name_pages_and_sentences() {
        for (source, page) in [
            ("M", "dat_a(3)"),
            ("M 3 14", "dat_a(3) 3, 14"),
            ("M dat_b", "dat_b(3)"),
            ("E19 2", "dat_a(3) 2"),
            ("H", ""),
        ] {
            assert_eq!(Source::parse(&rule(source)).unwrap().page(), page);
        }
        for source in ["", "M three", "M 3 dat_b"] {
            assert_eq!(Source::parse(&rule(source)), None, "{source}");
        }
    }

    #[test]
    fn every_sentence_needs_a_guard_and_every_guard_a_sentence() {
        let table = "dat_a | 1 | it is | \ndat_a | 2 | it was | the type `A`";
        let (page, none) = faults(table, &[rule("M 1")]);
        assert!(none.is_empty(), "{none:?}");
        assert!(page.contains("| 1 | it is | it works | `a::works` | loop, model, guest |"));
        assert!(page.contains("| 2 | it was | | the type `A` | |"));
        assert_eq!(faults(table, &[rule("M 2")]).1.len(), 1, "1 has no guard");
        let far = [rule("M 1"), rule("M 3")];
        assert_eq!(faults(table, &far).1.len(), 1, "there is no 3");
        let other = [rule("M 1"), rule("M dat_b 1")];
        assert_eq!(faults(table, &other).1.len(), 1, "no such page");
        assert_eq!(faults("dat_a | 2 | late | x", &[]).1.len(), 1, "order");
        assert_eq!(faults("dat_a | 1 | it | `a_test`", &[]).1.len(), 1, "no test");
    }
}
