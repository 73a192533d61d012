//! How large the freestanding image is: text and read-only data, in all and by crate.
//!
//! A function counts for the crate that its symbol names first. What the compiler inlined counts for where it went, so the
//! split is only a pointer to where to look; the sum is exact, and it alone is held against the goal. Tables of references,
//! which other images relocate when they start, count as the read-only data they are here (`link.ld`).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run;

/// What the two crates, with all that they pull in, shall need at opt-level s.
const GOAL: u64 = 96 << 10;
/// What they may need as long as the goal is not met: nothing that was gained is lost again.
const LIMIT: u64 = 172_000;

const CRATES: [&str; 5] = ["dat_core", "hca_mlx5", "smoltcp", "heapless", "core"];
/// Whatever names none of [`CRATES`]: the image's own code, and the crates' code that went into it.
const IMAGE: &str = "image";

/// Prints the sizes of `image`, called `what`; fails if they are above what they may be.
pub(crate) fn report(what: &str, image: &Path) -> Result<()> {
    let mut size = Command::new("size");
    size.arg("-A").arg(image);
    let sections = run::quiet(size)?;
    let section = |wanted: &str| -> Result<u64> {
        let line = sections.lines().find(|line| line.starts_with(wanted));
        let bytes = line.and_then(|line| line.split_whitespace().nth(1));
        let bytes = bytes.with_context(|| format!("the image has no {wanted}"))?;
        Ok(bytes.parse()?)
    };
    let (text, rodata) = (section(".text")?, section(".rodata")?);
    let total = text + rodata;

    let mut nm = Command::new("nm");
    nm.arg("--demangle").arg("--print-size").arg(image);
    let mut split = BTreeMap::<&str, u64>::new();
    for line in run::quiet(nm)?.lines() {
        let mut words = line.splitn(4, ' ');
        let (_, Some(bytes), Some("t" | "T"), Some(name)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let owner = owner(name);
        *split.entry(owner).or_default() += u64::from_str_radix(bytes, 16)?;
    }
    let split: Vec<String> = split
        .iter()
        .map(|(owner, bytes)| format!("{owner} {bytes}"))
        .collect();
    println!(
        "  {what}: text + rodata {total} bytes at opt-level s (goal {GOAL})\n    rodata {rodata}, text {text}: {}",
        split.join(", ")
    );
    let most = if total <= GOAL { GOAL } else { LIMIT };
    ensure!(
        total <= most,
        "the image has grown to {total} bytes, more than {most}: see which functions did with nm --size-sort"
    );
    Ok(())
}

/// The crate that a demangled name starts with.
fn owner(name: &str) -> &'static str {
    let mut words = name.split(|c: char| !c.is_alphanumeric() && c != '_');
    let known = |word: &str| CRATES.into_iter().find(|known| *known == word);
    words
        .find_map(|word| {
            if word == "dat_unikernel" {
                Some(IMAGE)
            } else {
                known(word)
            }
        })
        .unwrap_or(IMAGE)
}

#[cfg(test)]
mod tests {
    use super::owner;

    #[test]
    fn a_function_counts_for_the_crate_it_names_first() {
        for (name, crate_name) in [
            ("dat_core::cm::Cm::allocate", "dat_core"),
            (
                "<hca_mlx5::provider::Mlx5<P,_,_,_> as dat_core::provider::Provider>::close",
                "hca_mlx5",
            ),
            (
                "<dat_unikernel::image::Machine as hca_mlx5::platform::Platform>::alloc",
                "image",
            ),
            ("core::slice::index::slice_index_fail", "core"),
            ("image_main", "image"),
            ("memcpy", "image"),
        ] {
            assert_eq!(owner(name), crate_name, "{name}");
        }
    }
}
