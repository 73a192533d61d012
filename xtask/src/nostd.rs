//! `cargo xtask nostd`: links dat-core and hca-mlx5 into freestanding static images: one for the proof, and one that boots.
//!
//! The link is the proof. std anywhere in the graph is a duplicate panic handler, alloc is a missing allocator, and any
//! symbol of a C library is undefined. What the linker let through is then looked at once more.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{run, sizes};

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The image that has every call of both crates, and nothing else.
const PROOF: &str = "dat-unikernel";
/// Symbols no freestanding image has.
const FOREIGN: &[&str] = &[
    "malloc", "free", "pthread_", "_Unwind_", "__libc", "dlopen", "printf",
];

/// Builds the images; the folder they are in.
pub(crate) fn images() -> Result<PathBuf> {
    link(&run::root().join("target").join("nostd"), false)
}

pub(crate) fn nostd() -> Result<()> {
    let target = run::root().join("target").join("nostd");
    let images = images()?;
    // The one that is measured has every call and nothing else; the other one boots.
    for name in ["dat-metal", PROOF] {
        freestanding(&images.join(name))?;
    }
    println!("  no std, no alloc, no libc symbol");
    sizes::report("with the words of its errors", &images.join(PROOF))?;
    let silent = link(&target.join("silent"), true)?;
    sizes::report("--cfg dat_silent", &silent.join(PROOF))?;
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
        ensure!(
            !line.trim_start().starts_with("U "),
            "undefined symbol {name}"
        );
        ensure!(
            !FOREIGN.iter().any(|f| name.starts_with(f)),
            "the image holds {name}"
        );
    }
    Ok(())
}

/// Builds the images, with or without the words of their errors; the folder they are in.
fn link(target: &Path, silent: bool) -> Result<PathBuf> {
    let flags = if silent {
        "--cfg dat_image --cfg dat_silent"
    } else {
        "--cfg dat_image"
    };
    let mut build = run::cargo();
    build
        .args([
            "build",
            "--quiet",
            "-p",
            "dat-unikernel",
            "--profile",
            "image",
            "--target",
            TARGET,
        ])
        .env("CARGO_TARGET_DIR", target)
        .env("RUSTFLAGS", flags);
    run::quiet(build)?;
    Ok(target.join(TARGET).join("image"))
}
