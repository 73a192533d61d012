//! `cargo xtask fields`: which fields of the device's interface our driver uses, and who else does.
//!
//! The model notes every field that a driver sets. Three files of such notes are checked in: of
//! stock Linux on the model, of Linux on a real ConnectX-4 (from its recorded trace), and of our
//! driver. What only ours sets is the honest size of what nobody but us has checked, so each such
//! field has a line in `tests/data/fields-review.txt` that names the driver known to run on silicon
//! which sets it too, or why it must be set. This verb writes `docs/field-coverage.md` from the
//! files; `cargo xtask tidy` fails when the page is not what they say, or a line is missing or too
//! many.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use dat_lab::run;

/// Where the notes are.
const DATA: &str = "tests/data";
/// What they make.
const PAGE: &str = "docs/field-coverage.md";
/// Notes of others: column, files.
const OTHERS: &[(&str, &[&str])] = &[
    ("Linux", &["fields-linux-6.1.txt", "fields-linux-6.12.txt"]),
    ("card", &["fields-connectx4.txt"]),
];
/// Notes of ours.
const OURS: &str = "fields-ours.txt";
/// The reasons.
const REVIEW: &str = "fields-review.txt";
/// Tests whose runs make our notes, beside the demo's: modules of the test program `model`.
const TESTS: &[&str] =
    &["bringup::", "dat_connect::", "dat_transfer::", "dat_memory::", "dat_break::"];
/// Runs of the demo.
const DEMOS: &[&[&str]] = &[
    &["--count", "4", "--size", "4K"],
    &["--count", "4", "--ipv6", "--vlan", "5", "--mtu", "1024"],
];

/// A field: `in CREATE_QP qpc.pd`.
type Key = String;
/// Values by field.
type Notes = BTreeMap<Key, String>;

/// Runs our driver and writes its notes.
pub(crate) fn record() -> Result<()> {
    let file = run::root().join(DATA).join(OURS);
    if file.exists() {
        fs::remove_file(&file)?;
    }
    for demo in DEMOS {
        let mut command = run::cargo();
        command.args(["run", "--quiet", "-p", "dat-tests"]);
        command.args(["--features", "seeded", "--bin", "demo", "--"]);
        command.args(*demo).env("DAT_FIELDS", &file);
        run::quiet(command)?;
    }
    let mut command = run::cargo();
    command.args(["test", "--quiet", "-p", "dat-tests", "--features", "seeded"]);
    command.args(["--test", "model", "--"]).args(TESTS);
    command.env("DAT_FIELDS", &file);
    run::quiet(command)?;
    println!("  {}", file.display());
    Ok(())
}

/// Writes the page.
pub(crate) fn write() -> Result<()> {
    let root = run::root();
    let page = page(&root)?;
    fs::write(root.join(PAGE), page)?;
    println!("  {PAGE}");
    Ok(())
}

/// What is wrong with the page, if anything.
pub(crate) fn faults(root: &Path) -> Vec<String> {
    let fault = match page(root) {
        Err(error) => format!("{error:#}"),
        Ok(page) => match fs::read_to_string(root.join(PAGE)) {
            Ok(text) if text == page => return Vec::new(),
            Ok(_) => format!("{PAGE} is not what its data says: run `cargo xtask fields`"),
            Err(error) => format!("{PAGE}: {error}"),
        },
    };
    vec![fault]
}

fn page(root: &Path) -> Result<String> {
    let ours = load(root, &[OURS])?;
    let mut others = Vec::new();
    for (name, files) in OTHERS {
        others.push((*name, load(root, files)?));
    }
    let review = review(root)?;
    render(&ours, &others, &review)
}

fn text(root: &Path, name: &str) -> Result<String> {
    let path = root.join(DATA).join(name);
    fs::read_to_string(&path).with_context(|| format!("{}", path.display()))
}

fn load(root: &Path, files: &[&str]) -> Result<Notes> {
    let mut notes = Notes::new();
    for file in files {
        for line in text(root, file)?.lines() {
            if line.starts_with('#') || line.is_empty() {
                continue;
            }
            let Some((key, values)) = line.split_once(": ") else {
                bail!("{file}: not a note: {line}");
            };
            let known = notes.entry(key.into()).or_default();
            for value in values.split(' ') {
                if !known.split(' ').any(|other| other == value) {
                    known.push_str(if known.is_empty() { "" } else { " " });
                    known.push_str(value);
                }
            }
        }
    }
    Ok(notes)
}

/// Field to reason: `FIELD - SOURCE: reason`.
fn review(root: &Path) -> Result<Notes> {
    let mut reasons = Notes::new();
    for line in text(root, REVIEW)?.lines() {
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let Some((key, reason)) = line.split_once(" - ") else {
            bail!("{REVIEW}: no reason: {line}");
        };
        ensure!(reason.contains(": ") && reason.len() > 20, "{REVIEW}: not SOURCE: REASON: {line}");
        let twice = reasons.insert(key.trim().into(), reason.trim().into());
        ensure!(twice.is_none(), "{REVIEW}: twice: {key}");
    }
    Ok(reasons)
}

/// What a driver sets, apart from what the device writes and from what the model reads.
fn driver(notes: &Notes) -> impl Iterator<Item = (&Key, &String)> {
    notes.iter().filter(|(key, _)| key.starts_with("in ") || key.starts_with("wqe "))
}

fn render(ours: &Notes, others: &[(&str, Notes)], review: &Notes) -> Result<String> {
    let alone: BTreeMap<&Key, &String> = driver(ours)
        .filter(|(key, _)| !others.iter().any(|(_, notes)| notes.contains_key(*key)))
        .collect();
    let missing: Vec<_> = alone.keys().filter(|key| !review.contains_key(**key)).collect();
    let stale: Vec<_> = review.keys().filter(|key| !alone.contains_key(key)).collect();
    ensure!(
        missing.is_empty() && stale.is_empty(),
        "{REVIEW}: no line for {missing:#?}; needless lines {stale:#?}"
    );
    let mut out = String::from(
        "# Field coverage\n\n\
         Made by `cargo xtask fields` from notes that the device model takes: every field of every command, context and work\n\
         request that a driver sets. Linux is the stock driver of 6.1 and 6.12 with its user space on the model; the card is the\n\
         recorded bring-up of a real ConnectX-4, which ends before the first queue pair. A field counts once for each command or\n\
         kind of work request that carries it; setting means a value that is not zero, and in SET_HCA_CAP one that is not the\n\
         device's own already.\n\n",
    );
    summary(&mut out, ours, others)?;
    reviewed(&mut out, &alone, review, ours)?;
    values(&mut out, ours, others)?;
    left_out(&mut out, ours, others)?;
    Ok(out)
}

fn summary(out: &mut String, ours: &Notes, others: &[(&str, Notes)]) -> Result<()> {
    writeln!(out, "## How many\n")?;
    writeln!(out, "| | commands and contexts | work requests |")?;
    writeln!(out, "|---|---|---|")?;
    let count = |class: &str, test: &dyn Fn(&Key) -> bool| {
        driver(ours).filter(|(key, _)| key.starts_with(class) && test(key)).count()
    };
    let mut row = |what: &str, test: &dyn Fn(&Key) -> bool| {
        let (commands, requests) = (count("in ", test), count("wqe ", test));
        writeln!(out, "| {what} | {commands} | {requests} |")
    };
    row("set by our driver", &|_| true)?;
    for (name, notes) in others {
        let what = match *name {
            "card" => "of these, set by Linux on the card",
            _ => "of these, set by Linux on the model",
        };
        row(what, &|key| notes.contains_key(key))?;
    }
    row("**set by our driver alone**", &|key| {
        !others.iter().any(|(_, notes)| notes.contains_key(key))
    })?;
    let linux = |class: &str| {
        let fields: BTreeSet<_> = others
            .iter()
            .flat_map(|(_, notes)| driver(notes))
            .map(|(key, _)| key)
            .filter(|key| key.starts_with(class) && !ours.contains_key(*key))
            .collect();
        fields.len()
    };
    let (commands, requests) = (linux("in "), linux("wqe "));
    writeln!(out, "| set by Linux alone | {commands} | {requests} |\n")?;
    Ok(())
}

/// Whether the model was seen to look at the field in our runs; its notes are by layout.
fn read_by_model(ours: &Notes, key: &str) -> bool {
    let (_, path) = parts(key);
    let mut names = path.rsplit('.');
    let field = names.next().unwrap_or(path).trim_end_matches("[]");
    // A context stands in its command under a name of its own.
    let layout = names.next().map(|entry| match entry {
        "memory_key_mkey_entry" => "mkc",
        "eq_context_entry" => "eqc",
        "primary_address_path" => "ads",
        "roce_address" => "roce_addr_layout",
        "outer_headers" => "fte_match_set_lyr_2_4",
        other => other,
    });
    let layout = match parts(key).0.split_once('/') {
        Some(("SET_HCA_CAP", "0")) => Some("cmd_hca_cap"),
        _ => layout,
    };
    ours.keys().any(|key| {
        key.strip_prefix("model ").and_then(|rest| rest.split_once(' ')).is_some_and(
            |(place, name)| {
                name == field && layout.map_or(place.ends_with("_in"), |layout| layout == place)
            },
        )
    })
}

fn reviewed(
    out: &mut String,
    alone: &BTreeMap<&Key, &String>,
    review: &Notes,
    ours: &Notes,
) -> Result<()> {
    writeln!(
        out,
        "## Set by our driver alone\n\n\
         Each was held against drivers that are known to run on cards; the source names the file and structure or function.\n\
         What the model does not read, nobody has checked but by reading.\n"
    )?;
    writeln!(out, "| where | field | values | the model reads it | source and reason |")?;
    writeln!(out, "|---|---|---|---|---|")?;
    for (key, values) in alone {
        let (place, field) = parts(key);
        let reason = review.get(*key).map_or("", String::as_str);
        let read = if read_by_model(ours, key) { "yes" } else { "no" };
        writeln!(out, "| {place} | `{field}` | {values} | {read} | {reason} |")?;
    }
    writeln!(out)?;
    Ok(())
}

fn parts(key: &str) -> (&str, &str) {
    let (_, rest) = key.split_once(' ').unwrap_or(("", key));
    rest.split_once(' ').unwrap_or((rest, ""))
}

fn values(out: &mut String, ours: &Notes, others: &[(&str, Notes)]) -> Result<()> {
    writeln!(
        out,
        "## Set by both, to other values\n\n\
         Of fields whose values are kept (no addresses, object numbers or random ones, and four values at most): those of ours\n\
         that Linux was not seen to use.\n"
    )?;
    writeln!(out, "| where | field | ours alone | Linux |")?;
    writeln!(out, "|---|---|---|---|")?;
    for (key, values) in driver(ours) {
        let seen: Vec<&str> = others
            .iter()
            .filter_map(|(_, notes)| notes.get(key))
            .flat_map(|values| values.split(' '))
            .collect();
        // Where either has more values than are kept, nothing follows from those that are.
        if seen.is_empty() || seen.contains(&"...") || values.ends_with("...") {
            continue;
        }
        let own: Vec<_> = values.split(' ').filter(|value| !seen.contains(value)).collect();
        if !own.is_empty() {
            let (place, field) = parts(key);
            let theirs: BTreeSet<_> = seen.into_iter().collect();
            let theirs: Vec<_> = theirs.into_iter().collect();
            writeln!(out, "| {place} | `{field}` | {} | {} |", own.join(" "), theirs.join(" "))?;
        }
    }
    Ok(())
}

/// What Linux says where we say something else, or nothing.
fn left_out(out: &mut String, ours: &Notes, others: &[(&str, Notes)]) -> Result<()> {
    writeln!(
        out,
        "\n## Set by Linux alone, where ours sends the same\n\n\
         In commands and kinds of work requests that both send: what Linux sets and ours leaves zero.\n"
    )?;
    writeln!(out, "| where | fields |")?;
    writeln!(out, "|---|---|")?;
    let places: BTreeSet<&str> = driver(ours).map(|(key, _)| parts(key).0).collect();
    let mut rows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (key, _) in others.iter().flat_map(|(_, notes)| driver(notes)) {
        let (place, field) = parts(key);
        if places.contains(place) && !ours.contains_key(key) {
            rows.entry(place).or_default().insert(field);
        }
    }
    for (place, fields) in rows {
        let fields: Vec<_> = fields.into_iter().map(|field| format!("`{field}`")).collect();
        writeln!(out, "| {place} | {} |", fields.join(" "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(lines: &[(&str, &str)]) -> Notes {
        lines.iter().map(|(key, value)| (String::from(*key), String::from(*value))).collect()
    }

    #[test]
    fn what_only_ours_sets_needs_a_reason_and_nothing_else_may_have_one() {
        let ours = notes(&[("in A x", "0x1"), ("in A y", "0x2"), ("out A z", "0x3")]);
        let others = [("Linux", notes(&[("in A x", "0x1")]))];
        let review = notes(&[("in A y", "driver: it does it too")]);
        let page = render(&ours, &others, &review).unwrap();
        assert!(page.contains("| A | `y` | 0x2 | no | driver: it does it too |"));
        assert!(!page.contains("`z`"), "what the device writes is not the driver's");
        assert!(render(&ours, &others, &Notes::new()).is_err());
        let more = notes(&[("in A y", "driver: it does"), ("in A x", "driver: it does")]);
        assert!(render(&ours, &others, &more).is_err());
    }

    #[test]
    fn values_that_only_ours_has_are_listed() {
        let ours = notes(&[("in A x", "0x1 0x5"), ("in A y", "0x1 ...")]);
        let others = [("Linux", notes(&[("in A x", "0x1 0x2"), ("in A y", "0x2")]))];
        let page = render(&ours, &others, &Notes::new()).unwrap();
        assert!(page.contains("| A | `x` | 0x5 | 0x1 0x2 |"));
        assert!(!page.contains("`y`"));
    }
}
