//! `cargo xtask nostd`: links dat-core and hca-mlx5 into freestanding static images: one with every
//! call, and one that boots.
//!
//! The link fails if std is in the graph (duplicate panic handler), if alloc is (missing
//! allocator), or if a symbol of a C library is needed (undefined). Afterwards the symbols of the
//! image are checked once more. Only the flags of `[profile.image]` are used.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use dat_lab::images::programs;
use dat_lab::run;

use crate::barriers;

/// The images, with a description.
const IMAGES: [(&str, &str); 2] =
    [("dat-metal", "boots as a DAT peer"), ("dat-unikernel", "has every call of DAT")];
/// Symbols no freestanding image has.
const FOREIGN: &[&str] = &["malloc", "free", "pthread_", "_Unwind_", "__libc", "dlopen", "printf"];

pub(crate) fn nostd() -> Result<()> {
    for (name, what) in IMAGES {
        let image = programs::freestanding(name)?;
        freestanding(&image)?;
        let (text, rodata) = sizes(&image)?;
        println!("  {name} ({what}): {text} bytes of text and {rodata} of read-only data");
    }
    println!("  no std, no alloc, no libc symbol");
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--print", "target-libdir", "--target", barriers::TARGET]);
    let library = run::silent(rustc)?;
    if Path::new(library.trim()).exists() {
        return barriers::check(run::cargo(), &run::target()?);
    }
    println!(
        "  SKIPPED: barriers of RISC-V: `rustup target add {0}`, or `cargo xtask nostd --targets`",
        barriers::TARGET
    );
    Ok(())
}

/// Checks that an image is a static executable without foreign or undefined symbols.
fn freestanding(image: &Path) -> Result<()> {
    let bytes = fs::read(image).with_context(|| format!("{}", image.display()))?;
    ensure!(
        bytes.get(16..18) == Some(&[2, 0]),
        "the image is not a static executable (ELF type EXEC)"
    );
    let mut nm = Command::new("nm");
    nm.arg(image);
    let names = run::capture(nm)?;
    for line in names.lines() {
        let name = line.rsplit(' ').next().unwrap_or_default();
        ensure!(!line.trim_start().starts_with("U "), "undefined symbol {name}");
        ensure!(!FOREIGN.iter().any(|f| name.starts_with(f)), "the image holds {name}");
    }
    Ok(())
}

/// Returns the bytes of text and of read-only data of an image.
fn sizes(image: &Path) -> Result<(u64, u64)> {
    let mut size = Command::new("size");
    size.arg("-A").arg(image);
    let sections = run::capture(size)?;
    let section = |wanted: &str| -> Result<u64> {
        let mut lines = sections.lines().map(str::split_whitespace);
        let line = lines.find_map(|mut words| (words.next() == Some(wanted)).then_some(words));
        let bytes = line.and_then(|mut words| words.next());
        Ok(bytes.with_context(|| format!("the image has no {wanted}"))?.parse()?)
    };
    Ok((section(".text")?, section(".rodata")?))
}
