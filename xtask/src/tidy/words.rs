//! Words that this project does not use, counted in its sources and pages.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{Texts, files};

/// The words: a row is `banned` or `ordinary`, the word's forms, and a remark.
const LIST: &str = include_str!("words.tsv");

/// Counts the banned words in sources and pages: the sum, and a line for each word.
pub(super) fn count(root: &Path, texts: &Texts) -> Result<(usize, Vec<String>)> {
    let mut counts = forms(LIST);
    for text in texts.values() {
        count_in(text, &mut counts);
    }
    for page in files(root, ".md")? {
        if !page.starts_with(root.join("docs/generated")) {
            let text = fs::read_to_string(&page).with_context(|| format!("{}", page.display()))?;
            count_in(&text, &mut counts);
        }
    }
    let mut by_word = BTreeMap::<&str, usize>::new();
    for (word, count) in counts.values() {
        *by_word.entry(word).or_default() += count;
    }
    let sum = by_word.values().sum();
    Ok((sum, by_word.iter().map(|(word, count)| format!("{word} {count}")).collect()))
}

/// Returns a map from each form of a banned word to the word and a count of 0.
fn forms(list: &str) -> BTreeMap<&str, (&str, usize)> {
    let rows = list.lines().filter_map(|row| row.strip_prefix("banned\t"));
    let words = rows.map(|row| row.split('\t').next().unwrap_or_default());
    let forms = words.filter_map(|forms| Some((forms.split(' ').next()?, forms.split(' '))));
    forms.flat_map(|(word, forms)| forms.map(move |form| (form, (word, 0)))).collect()
}

/// Counts banned words, also as parts of identifiers, but not as command line options.
fn count_in(text: &str, counts: &mut BTreeMap<&str, (&str, usize)>) {
    let (mut rest, mut last) = (text, "");
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        let (before, from) = rest.split_at(start);
        let (word, after) = from.split_at(end_of_word(from));
        // As a shell takes it, and as clap does.
        let is_option = before.ends_with("--") || last == "long" && before == " = \"";
        if !is_option {
            if let Some((_, count)) = counts.get_mut(word.to_ascii_lowercase().as_str()) {
                *count += 1;
            }
        }
        (rest, last) = (after, word);
    }
}

/// Returns the length of the word at the start of `text`: `EndOf` has two words, `END` one.
fn end_of_word(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut end = 1;
    while let Some(byte) = bytes.get(end).filter(|byte| byte.is_ascii_alphabetic()) {
        if byte.is_ascii_uppercase() && bytes[end - 1].is_ascii_lowercase() {
            break;
        }
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_identifiers_are_words_and_options_are_not() {
        let list = "banned\tfoo foos\tx\nordinary\tway\tx\n";
        let mut counts = forms(list);
        count_in("Foo foos go_to_foo FOO2 TestFoo confoosed --foo way long = \"foo\"", &mut counts);
        assert_eq!(counts, BTreeMap::from([("foo", ("foo", 4)), ("foos", ("foo", 1))]));
    }
}
