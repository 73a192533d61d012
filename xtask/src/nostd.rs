//! `cargo xtask nostd`: links dat-core and hca-mlx5 into freestanding static images: one for the
//! proof, and one that boots.
//!
//! The link is the proof. std anywhere in the graph is a duplicate panic handler, alloc is a
//! missing allocator, and any symbol of a C library is undefined. What the linker let through is
//! then looked at once more.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{run, sizes};

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// An image, and what the two crates may have in it, with the words of their errors and without:
/// what they had when this was last measured, and a little.
struct Image {
    name: &'static str,
    /// What cargo calls it, and the features it is built with.
    built: [&'static str; 2],
    what: &'static str,
    limits: [u64; 2],
    /// It is the one that the goal of the sizes means.
    judged: bool,
}

const IMAGES: [Image; 3] = [
    Image {
        name: "dat-metal-call",
        built: ["dat-metal", "call"],
        what: "serves or calls",
        limits: [136_000, 112_000],
        judged: false,
    },
    Image {
        name: "dat-metal",
        built: ["dat-metal", ""],
        what: "boots and serves as DAT peer",
        limits: [127_000, 104_000],
        judged: true,
    },
    Image {
        name: "dat-unikernel",
        built: ["dat-unikernel", ""],
        what: "every call of all DAT",
        limits: [192_000, 174_000],
        judged: false,
    },
];
/// How the code of the images is made, besides `[profile.image]`: what costs fewer bytes at
/// opt-level s. An embedder who counts bytes gives the same to `cargo rustc`, for his program
/// alone: functions of other crates are better put into each other first.
const SMALLER: &[&str] = &[
    // The same instructions in several places become a function.
    "-Cllvm-args=-enable-machine-outliner=always",
    // Less is put into its callers than opt-level s would.
    "-Cllvm-args=-inline-threshold=35",
    "-Cllvm-args=-inlinehint-threshold=25",
    "-Cllvm-args=-inlinecold-threshold=0",
    // The image lies at a fixed address, and so does what it refers to.
    "-Crelocation-model=static",
    // Cases are compared, as an address in a table takes more than that; and no loop has its head
    // twice.
    "-Cllvm-args=-min-jump-table-entries=64",
    "-Cllvm-args=-rotation-max-header-size=0",
    // What is computed anew where it is wanted takes no register over a call, whose keeping would
    // cost more.
    "-Cllvm-args=-disable-machine-licm",
    "-Cllvm-args=-disable-machine-cse",
    "-Cllvm-args=-bonus-inst-threshold=0",
    "-Cllvm-args=-split-spill-mode=size",
    // Blocks stay in the order of the source, and their common ends are shared down to two
    // instructions.
    "-Cllvm-args=-disable-block-placement",
    "-Cllvm-args=-tail-merge-size=2",
    // No copy is broken up because of the stores before it.
    "-Cllvm-args=-x86-disable-avoid-SFB",
];
/// Symbols no freestanding image has.
const FOREIGN: &[&str] = &["malloc", "free", "pthread_", "_Unwind_", "__libc", "dlopen", "printf"];

/// Builds the images; the folder they are in.
pub(crate) fn images() -> Result<PathBuf> {
    link(&run::root().join("target").join("nostd"), false)
}

pub(crate) fn nostd() -> Result<()> {
    let images = images()?;
    for image in &IMAGES {
        freestanding(&images.join(image.name))?;
    }
    println!("  no std, no alloc, no libc symbol");
    let target = run::root().join("target").join("nostd");
    let silent = link(&target.join("silent"), true)?;
    // Who counts bytes ships the one without words.
    let modes =
        [(images, "with the words of its errors", false), (silent, "--cfg dat_silent", true)];
    for Image { name, what, limits, judged, .. } in &IMAGES {
        for ((folder, mode, shipped), limit) in modes.iter().zip(limits) {
            let what = format!("{name} ({what}), {mode}");
            sizes::report(&what, &folder.join(name), *limit, *judged && *shipped)?;
        }
    }
    Ok(())
}

/// A static executable without a symbol that is foreign or missing.
fn freestanding(image: &Path) -> Result<()> {
    let bytes = fs::read(image).with_context(|| format!("{}", image.display()))?;
    ensure!(
        bytes.get(16..18) == Some(&[2, 0]),
        "the image is not a static executable (ELF type EXEC)"
    );
    let mut nm = Command::new("nm");
    nm.arg(image);
    let names = run::quiet(nm)?;
    for line in names.lines() {
        let name = line.rsplit(' ').next().unwrap_or_default();
        ensure!(!line.trim_start().starts_with("U "), "undefined symbol {name}");
        ensure!(!FOREIGN.iter().any(|f| name.starts_with(f)), "the image holds {name}");
    }
    Ok(())
}

/// Builds the images, with or without the words of their errors; the folder they are in.
fn link(target: &Path, silent: bool) -> Result<PathBuf> {
    let flags = if silent { "--cfg dat_image --cfg dat_silent" } else { "--cfg dat_image" };
    let folder = target.join(TARGET).join("image");
    for Image { name, built, .. } in &IMAGES {
        let [bin, features] = *built;
        let mut build = run::cargo();
        build
            .args(["rustc", "--quiet", "-p", "dat-unikernel", "--bin", bin, "--features", features])
            .args(["--profile", "image", "--target", TARGET, "--"])
            .args(SMALLER)
            .env("CARGO_TARGET_DIR", target)
            .env("RUSTFLAGS", flags);
        run::quiet(build)?;
        if bin != *name {
            fs::copy(folder.join(bin), folder.join(name))
                .with_context(|| format!("{}", folder.join(name).display()))?;
        }
    }
    Ok(folder)
}
