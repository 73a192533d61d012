//! `cargo xtask nostd`: links dat-core and hca-mlx5 into a freestanding static image.
//!
//! The link is the proof. std anywhere in the graph is a duplicate panic handler, alloc is a missing allocator, and any
//! symbol of a C library is undefined. What the linker let through is then looked at once more.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Symbols no freestanding image has.
const FOREIGN: &[&str] = &[
    "malloc", "free", "pthread_", "_Unwind_", "__libc", "dlopen", "printf",
];

pub(crate) fn nostd() -> Result<()> {
    let target = run::root().join("target").join("nostd");
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
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTFLAGS", "--cfg dat_image");
    run::quiet(build)?;
    let image = target.join(TARGET).join("image").join("dat-unikernel");
    let bytes = fs::read(&image).with_context(|| format!("{}", image.display()))?;
    ensure!(
        bytes.get(16..18) == Some(&[2, 0]),
        "the image is not a static executable (ELF type EXEC)"
    );
    let mut nm = Command::new("nm");
    nm.arg(&image);
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
    let mut size = Command::new("size");
    size.arg(&image);
    let size = run::quiet(size)?;
    let text = size
        .lines()
        .nth(1)
        .unwrap_or_default()
        .split_whitespace()
        .next()
        .unwrap_or("?");
    println!("  no std, no alloc, no libc symbol; text + rodata {text} bytes at opt-level s");
    Ok(())
}
