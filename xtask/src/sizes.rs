//! How large the freestanding image is: text and read-only data, in all and by whose source it comes from.
//!
//! Text is attributed byte by byte, by the line tables. A byte counts for dat-core or hca-mlx5 if its line is theirs, or if
//! the line is somebody else's (core's `Option::map`, a queue of heapless) that the compiler put into one of their functions:
//! whatever is there because the two crates are. Of read-only data all counts for them. The rest is what a caller of them
//! and the compiler's runtime bring: the image's own code, and functions of core and smoltcp that stand by themselves.
//! Tables of references, which other images relocate when they start, count as the read-only data they are here (`link.ld`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run;

/// What the two crates shall need at opt-level s.
const GOAL: u64 = 96 << 10;
/// What they may need as long as the goal is not met: nothing that was gained is lost again.
const LIMIT: u64 = 211_500;

/// The crates that are measured, as their folders are called.
const OURS: [&str; 2] = ["dat-core", "hca-mlx5"];
/// What else is told apart: a folder in the path of the source, and the name to show.
const OTHERS: [(&str, &str); 3] = [
    ("/core/src/", "core"),
    ("/smoltcp-", "smoltcp"),
    ("/heapless-", "heapless"),
];
/// Whatever else there is.
const IMAGE: &str = "image";

/// Prints the sizes of `image`, called `what`; fails if the two crates are above what they may be.
pub(crate) fn report(what: &str, image: &Path) -> Result<()> {
    let mut size = Command::new("size");
    size.arg("-A").arg(image);
    let sections = run::quiet(size)?;
    let section = |wanted: &str| -> Result<(u64, u64)> {
        let line = sections.lines().find(|line| line.starts_with(wanted));
        let mut words = line.into_iter().flat_map(|line| line.split_whitespace());
        let (Some(_), Some(bytes), Some(start)) = (words.next(), words.next(), words.next()) else {
            anyhow::bail!("the image has no {wanted}");
        };
        Ok((bytes.parse()?, start.parse()?))
    };
    let ((text, start), (rodata, _)) = (section(".text")?, section(".rodata")?);
    let split = attribute(&lines(image, start, text)?);
    let ours = OURS.iter().filter_map(|name| split.get(name));
    let (code, foreign) = ours.fold((0, 0), |(own, foreign), part| {
        (own + part.own + part.foreign, foreign + part.foreign)
    });
    let total = code + rodata;
    let all = text + rodata;
    println!(
        "  {what}: dat-core + hca-mlx5 have {total} bytes of text and rodata at opt-level s (goal {GOAL}), the whole image {all}"
    );
    let parts: Vec<String> = split
        .iter()
        .map(|(name, part)| format!("{name} {}", part.own + part.foreign))
        .collect();
    println!(
        "    rodata {rodata}, text {text}: {}; of the two crates' text {foreign} are code of core, heapless and smoltcp in their functions",
        parts.join(", ")
    );
    let most = if total <= GOAL { GOAL } else { LIMIT };
    ensure!(
        total <= most,
        "the crates have grown to {total} bytes, more than {most}: see which functions did with nm --size-sort"
    );
    Ok(())
}

/// For every byte of text the sources it comes from, the innermost first.
fn lines(image: &Path, start: u64, text: u64) -> Result<String> {
    let list = image.with_extension("addresses");
    let mut addresses = String::new();
    for address in start..start + text {
        writeln!(addresses, "{address:#x}")?;
    }
    fs::write(&list, addresses).with_context(|| format!("{}", list.display()))?;
    let mut ask = Command::new("addr2line");
    ask.args(["-a", "-i", "-e"])
        .arg(image)
        .arg(format!("@{}", list.display()));
    run::silent(ask)
}

/// Bytes of one crate: of its own source, and of others' source in its functions.
#[derive(Debug, Default, PartialEq, Eq)]
struct Part {
    own: u64,
    foreign: u64,
}

/// Counts what `addr2line -a -i` says: an address, then the places of its line, the innermost first.
fn attribute(lines: &str) -> BTreeMap<&'static str, Part> {
    let mut split = BTreeMap::<&str, Part>::new();
    for byte in lines.split("0x").skip(1) {
        let places: Vec<&str> = byte.lines().skip(1).collect();
        let ours = places.iter().enumerate().find_map(|(depth, place)| {
            let name = OURS.into_iter().find(|name| belongs(place, name))?;
            Some((name, depth))
        });
        let (name, depth) = ours.unwrap_or_else(|| {
            let innermost = places.first().copied().unwrap_or_default();
            let other = OTHERS.iter().find(|(folder, _)| innermost.contains(folder));
            (other.map_or(IMAGE, |(_, name)| *name), 0)
        });
        let part = split.entry(name).or_default();
        if depth == 0 {
            part.own += 1;
        } else {
            part.foreign += 1;
        }
    }
    split
}

/// The source is of that crate of the workspace.
fn belongs(place: &str, name: &str) -> bool {
    place.contains(&format!("/{name}/src/")) || place.starts_with(&format!("{name}/src/"))
}

#[cfg(test)]
mod tests {
    use super::{Part, attribute};

    #[test]
    fn a_byte_counts_for_the_crate_that_it_is_there_for() {
        let lines = "0x0000000000100000\n/w/dat-core/src/cm/mod.rs:1\n/w/tests/unikernel/src/image.rs:2\n\
            0x0000000000100001\n/rustc/1/library/core/src/option.rs:9\n/w/hca-mlx5/src/qp.rs:3\n\
            0x0000000000100002\n/rustc/1/library/core/src/slice/mod.rs:9\n\
            0x0000000000100003\n/r/smoltcp-0.14.0/src/wire/arp.rs:1 (discriminator 2)\n\
            0x0000000000100004\n??:0\n";
        let split = attribute(lines);
        let part = |own, foreign| Part { own, foreign };
        assert_eq!(split["dat-core"], part(1, 0));
        assert_eq!(split["hca-mlx5"], part(0, 1));
        assert_eq!(
            (&split["core"], &split["smoltcp"]),
            (&part(1, 0), &part(1, 0))
        );
        assert_eq!(split["image"], part(1, 0));
    }
}
