//! Two runs against each other, command by command and field by field.
//!
//! Commands are aligned by name, in order, so that what one run has and the other lacks shows as
//! such and the rest still meets its like. Of two commands that meet, every field that differs is
//! said with both values, but for those that [`Means`] calls addresses, handles and the like.

use super::messages::{Half, Leaf, Means, leaves};
use super::trace::Command;
use std::collections::BTreeMap;
use std::fmt;

/// One line of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Only the first run has the command.
    First(String),
    /// Only the second run has it.
    Second(String),
    /// Both have it, and a field differs.
    Field {
        /// The command.
        name: String,
        /// The half.
        half: Half,
        /// The field.
        path: String,
        /// In the first run.
        first: u64,
        /// In the second.
        second: u64,
    },
}

impl Line {
    /// Whether it is about what a device answered.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::Field { half: Half::Output, .. })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First(name) => write!(f, "- {name}"),
            Self::Second(name) => write!(f, "+ {name}"),
            Self::Field { name, half, path, first, second } => {
                write!(f, "  {name} {} {path}: {first:#x} | {second:#x}", half.word())
            }
        }
    }
}

/// Returns the differences, in order. `all`: values that say nothing are compared too.
#[must_use]
pub fn compare(first: &[Command], second: &[Command], all: bool) -> Vec<Line> {
    let names = |run: &[Command]| run.iter().map(Command::name).collect::<Vec<_>>();
    let (a, b) = (names(first), names(second));
    let mut lines = Vec::new();
    let (mut i, mut j) = (0, 0);
    for (x, y) in aligned(&a, &b) {
        lines.extend(a[i..x].iter().cloned().map(Line::First));
        lines.extend(b[j..y].iter().cloned().map(Line::Second));
        fields(&first[x], &second[y], all, &mut lines);
        (i, j) = (x + 1, y + 1);
    }
    lines.extend(a[i..].iter().cloned().map(Line::First));
    lines.extend(b[j..].iter().cloned().map(Line::Second));
    lines
}

/// The longest common subsequence, as pairs of indices.
fn aligned(a: &[String], b: &[String]) -> Vec<(usize, usize)> {
    let wide = b.len() + 1;
    let mut best = vec![0_u32; (a.len() + 1) * wide];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            best[i * wide + j] = if a[i] == b[j] {
                best[(i + 1) * wide + j + 1] + 1
            } else {
                best[(i + 1) * wide + j].max(best[i * wide + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut pairs = Vec::new();
    while i < a.len() && j < b.len() {
        if a[i] == b[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if best[(i + 1) * wide + j] >= best[i * wide + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

fn fields(first: &Command, second: &Command, all: bool, lines: &mut Vec<Line>) {
    for half in [Half::Input, Half::Output] {
        let set = |command: &Command| -> BTreeMap<String, u64> {
            let message = match half {
                Half::Input => &command.input,
                Half::Output => &command.output,
            };
            let found = leaves(command.opcode, &command.input, message, half);
            let pair = |leaf: Leaf| (leaf.path, leaf.value);
            found.into_iter().map(pair).collect()
        };
        let (a, b) = (set(first), set(second));
        for path in a.keys().chain(b.keys().filter(|path| !a.contains_key(*path))) {
            let value = |run: &BTreeMap<String, u64>| run.get(path).copied().unwrap_or(0);
            let (first_value, second_value) = (value(&a), value(&b));
            // One that is set and one that is not differ in more than the value.
            let one_sided = (first_value == 0) != (second_value == 0);
            let says = all || one_sided || Means::of(path) == Means::Value;
            if says && first_value != second_value {
                lines.push(Line::Field {
                    name: first.name(),
                    half,
                    path: path.clone(),
                    first: first_value,
                    second: second_value,
                });
            }
        }
    }
}
