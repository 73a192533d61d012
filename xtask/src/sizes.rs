//! How large the freestanding images are: text and read-only data, in all and by whose source it
//! comes from.
//!
//! The goal is "image text+rodata of dat-core+hca-mlx5 <= 96 KB at opt-level s". The image that is
//! meant is the one that an embedder ships who counts bytes: `dat-metal`, which boots and serves as
//! DAT peer, of the parts that it uses (`Platform::USES`) and without the words of its errors
//! (`--cfg dat_silent`). `dat-metal-call`, which connects as well, and `dat-unikernel`, which has
//! every call there is, have limits of their own, so that they do not grow unnoticed. Each is
//! measured with the words of its errors and without.
//!
//! Text is attributed byte by byte, by the line tables. A byte counts for dat-core or hca-mlx5 if
//! its line is theirs, or if the line is somebody else's (core's `Option::map`, a queue of
//! heapless) that the compiler put into one of their functions: whatever is there because the two
//! crates are. Read-only data counts for them if they refer to it ([`rodata`]). The rest is what a
//! caller of them and the compiler's runtime bring: the image's own code, and functions of core and
//! smoltcp that stand by themselves. Tables of references, which other images relocate when they
//! start, count as the read-only data they are here (`link.ld`).

mod rodata;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run;

/// What the two crates shall need at opt-level s.
const GOAL: u64 = 96 << 10;

/// The crates that are measured, as their folders are called.
const OURS: [&str; 2] = ["dat-core", "hca-mlx5"];
/// What else is told apart: a folder in the path of the source, and the name to show.
const OTHERS: [(&str, &str); 3] =
    [("/core/src/", "core"), ("/smoltcp-", "smoltcp"), ("/heapless-", "heapless")];
/// Whatever else there is.
const IMAGE: &str = "image";

/// Prints the sizes of `image`, called `what`; fails if the two crates have more than `limit`, so
/// that nothing that was gained is lost again. Only the one that an embedder ships is held against
/// the goal, `judged`.
pub(crate) fn report(what: &str, image: &Path, limit: u64, judged: bool) -> Result<()> {
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
    let ((text, start), (rodata, first)) = (section(".text")?, section(".rodata")?);
    let bytes = attribute(&lines(image, start, text)?);
    let mut readelf = Command::new("readelf");
    readelf.arg("-rW").arg(image);
    let references = rodata::references(&run::silent(readelf)?)?;
    ensure!(
        !references.is_empty(),
        "the image has no relocations: was it linked with --emit-relocs?"
    );
    let ours = |address: u64| {
        let place = address.checked_sub(start).map(usize::try_from);
        let byte = place.and_then(|place| bytes.get(place.ok()?));
        byte.is_some_and(|byte| OURS.contains(&byte.name))
    };
    let owned = rodata::owned(first..first + rodata, &references, ours);

    let mut split = BTreeMap::<&str, u64>::new();
    let (mut code, mut foreign) = (0, 0);
    for byte in &bytes {
        *split.entry(byte.name).or_default() += 1;
        if OURS.contains(&byte.name) {
            code += 1;
            foreign += u64::from(byte.foreign);
        }
    }
    let total = code + owned;
    let goal = if judged { format!(" (goal {GOAL})") } else { String::new() };
    println!(
        "  {what}: dat-core + hca-mlx5 have {total} bytes of text and rodata at opt-level s{goal}, the whole image {}",
        text + rodata
    );
    let parts: Vec<String> = split.iter().map(|(name, bytes)| format!("{name} {bytes}")).collect();
    println!(
        "    rodata {owned} of {rodata}, text {text}: {}; of the two crates' text {foreign} are code of core, heapless and smoltcp in their functions",
        parts.join(", ")
    );
    ensure!(
        total <= limit,
        "the crates have grown to {total} bytes, more than {limit}: see which functions did with nm --size-sort"
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
    ask.args(["-a", "-i", "-e"]).arg(image).arg(format!("@{}", list.display()));
    run::silent(ask)
}

/// Whose a byte of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Byte {
    name: &'static str,
    /// Its line is somebody else's, in a function of that crate.
    foreign: bool,
}

/// Reads what `addr2line -a -i` says: an address, then the places of its line, the innermost first.
fn attribute(lines: &str) -> Vec<Byte> {
    let bytes = lines.split("0x").skip(1).map(|byte| {
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
        let foreign = depth != 0;
        Byte { name, foreign }
    });
    bytes.collect()
}

/// The source is of that crate of the workspace.
fn belongs(place: &str, name: &str) -> bool {
    place.contains(&format!("/{name}/src/")) || place.starts_with(&format!("{name}/src/"))
}

#[cfg(test)]
mod tests {
    use super::{Byte, attribute};

    #[test]
    fn a_byte_counts_for_the_crate_that_it_is_there_for() {
        let lines = "0x0000000000100000\n/w/dat-core/src/cm/mod.rs:1\n/w/tests/unikernel/src/image.rs:2\n\
            0x0000000000100001\n/rustc/1/library/core/src/option.rs:9\n/w/hca-mlx5/src/qp.rs:3\n\
            0x0000000000100002\n/rustc/1/library/core/src/slice/mod.rs:9\n\
            0x0000000000100003\n/r/smoltcp-0.14.0/src/wire/arp.rs:1 (discriminator 2)\n\
            0x0000000000100004\n??:0\n";
        let byte = |name, foreign| Byte { name, foreign };
        let expected = [
            byte("dat-core", false),
            byte("hca-mlx5", true),
            byte("core", false),
            byte("smoltcp", false),
            byte("image", false),
        ];
        assert_eq!(attribute(lines), expected);
    }
}
