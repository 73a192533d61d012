//! The barriers of RISC-V, read in the compiler's listing of a small program.
//!
//! The driver names them itself (`hca-mlx5/src/platform/mmio.rs`), because those of `core` order
//! memory against memory only: a doorbell could pass its work request. No machine here has that
//! CPU, and its emulator carries everything out in order, so the instructions are what is looked
//! at: which stand between which accesses.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use dat_lab::run;

/// The CPU, and the target it is compiled for.
pub(crate) const TARGET: &str = "riscv64gc-unknown-none-elf";

const PROGRAM: &str = "\
#![no_std]
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use hca_mlx5::mmio::{MappedBar, fence};
use hca_mlx5::platform::Fence;

#[inline(never)]
pub fn post(ring: &AtomicU64, record: &AtomicU32, bar: &MappedBar) {
    ring.store(1, Relaxed);
    fence(Fence::BeforeRecord);
    record.store(2, Relaxed);
    fence(Fence::BeforeDoorbell);
    bar.write64(0x800, 3);
    fence(Fence::AfterDoorbell);
    ring.store(4, Relaxed);
}

#[inline(never)]
pub fn take(owner: &AtomicU32, entry: &AtomicU64) -> u64 {
    let own = owner.load(Relaxed);
    fence(Fence::AfterOwnership);
    entry.load(Relaxed) ^ u64::from(own)
}
";

/// A function of a listing, by a part of its symbol, and its accesses and fences in order.
const WANTED: [(&str, &str, &str, &[&str]); 3] = [
    (
        "listing",
        "listing",
        "post",
        &["sd", "fence rw, w", "sw", "fence w, o", "sd", "fence o, w", "sd"],
    ),
    ("listing", "listing", "take", &["lw", "fence r, rw", "ld"]),
    ("hca_mlx5", "MappedBar", "read32", &["lw", "fence i, ir"]),
];

/// Compiles the program with `cargo`, which has the target's library or makes it, and looks at the
/// listing.
pub(crate) fn check(mut cargo: Command, folder: &Path) -> Result<()> {
    let package = folder.join("listing");
    fs::create_dir_all(package.join("src"))?;
    let driver = run::root().join("hca-mlx5");
    let manifest = format!(
        "[package]\nname = \"listing\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [dependencies]\nhca-mlx5 = {{ path = \"{}\" }}\n\n[workspace]\n",
        driver.display()
    );
    fs::write(package.join("Cargo.toml"), manifest)?;
    fs::write(package.join("src/lib.rs"), PROGRAM)?;
    fs::copy(run::root().join("Cargo.lock"), package.join("Cargo.lock"))?;
    let build = package.join("target");
    let listings = build.join(TARGET).join("release/deps");
    // Listings of earlier runs have other names.
    if listings.exists() {
        fs::remove_dir_all(&listings)?;
    }
    cargo
        .args(["build", "--quiet", "--release", "--target", TARGET])
        .current_dir(&package)
        .env("CARGO_TARGET_DIR", &build)
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("RUSTFLAGS", "--emit=asm");
    run::capture(cargo)?;
    for (krate, owner, function, wanted) in WANTED {
        let listing = listing(&listings, krate)?;
        let found = accesses(&listing, owner, function)
            .with_context(|| format!("the listing of {krate} has no {function}"))?;
        ensure!(in_order(&found, wanted), "{function} has {found:?}, not {wanted:?}");
    }
    println!("  {TARGET}: doorbells, records, ownership and registers have their barriers");
    Ok(())
}

/// Returns the listing of a crate.
fn listing(folder: &Path, krate: &str) -> Result<String> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(&format!("{krate}-")) && name.ends_with(".s") {
            return Ok(fs::read_to_string(path)?);
        }
    }
    anyhow::bail!("there is no listing of {krate} in {}", folder.display())
}

/// Returns loads, stores and fences of a function that is not on the stack, as the listing has
/// them.
fn accesses(listing: &str, owner: &str, function: &str) -> Option<Vec<String>> {
    let is_start = |line: &&str| {
        line.starts_with('_')
            && line.ends_with(':')
            && line.contains(owner)
            && line.contains(function)
    };
    let mut lines = listing.lines().skip_while(|line| !is_start(line));
    lines.next()?;
    let body = lines.take_while(|line| !line.starts_with(".Lfunc_end"));
    let words = body.filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let rest = words.collect::<Vec<_>>().join(" ");
        match name {
            "fence" => Some(format!("fence {rest}")),
            "sd" | "sw" | "ld" if !rest.ends_with("(sp)") => Some(name.to_owned()),
            "lw" | "lwu" if !rest.ends_with("(sp)") => Some("lw".to_owned()),
            _ => None,
        }
    });
    Some(words.collect())
}

/// Whether all of `wanted` are there in that order. Accesses of the driver's own, such as that of a
/// length, may stand between.
fn in_order(found: &[String], wanted: &[&str]) -> bool {
    let mut found = found.iter();
    wanted.iter().all(|wanted| found.any(|found| found == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\
_ZN7listing4post17h0123E:
\tsd\tra, 8(sp)
\tsd\ta1, 0(a0)
\tfence\tw, o
\tld\ta2, 8(a3)
\tsd\ta1, 0(a2)
\tret
.Lfunc_end0:
_ZN7listing4take17h0123E:
\tlwu\ta0, 0(a0)
\tfence\tr, rw
.Lfunc_end1:
";

    #[test]
    fn accesses_and_fences_are_found_in_their_order() {
        let post = accesses(LISTING, "listing", "post").unwrap();
        assert_eq!(post, ["sd", "fence w, o", "ld", "sd"]);
        assert!(in_order(&post, &["sd", "fence w, o", "sd"]));
        // A barrier too few, another, and one on the wrong side.
        for wrong in [
            &["sd", "fence w, o", "sd", "fence o, w"][..],
            &["sd", "fence rw, rw", "sd"],
            &["fence w, o", "sd", "sd"],
        ] {
            assert!(!in_order(&post, wrong), "{wrong:?}");
        }
        assert_eq!(accesses(LISTING, "listing", "take").unwrap(), ["lw", "fence r, rw"]);
        assert_eq!(accesses(LISTING, "listing", "read32"), None);
    }
}
