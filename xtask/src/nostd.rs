//! `cargo xtask nostd`: links dat-core and hca-mlx5 into freestanding static images: one with every
//! call, and one that boots.
//!
//! The link fails if std is in the graph (duplicate panic handler), if alloc is (missing
//! allocator), or if a symbol of a C library is needed (undefined). Afterwards the symbols of the
//! image are checked once more. Only the flags of `[profile.image]` are used.
//!
//! In the image with every call, no function may lead to a panic but those that [`PANICS`] names:
//! whatever the compiler could not prove impossible shows as a call of `core::panicking`.

use std::collections::BTreeSet;
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

/// Functions that may lead to a panic, by parts of their symbols, and why they do not.
const PANICS: &[(&str, &str)] = &[
    ("core9panicking", "the panic itself"),
    ("slice_index_fail", "the panic itself"),
    ("smoltcp4wire3arp4Repr5parse", "slices a packet whose length `new_checked` has compared"),
    ("dat_unikernel5image", "the image's own consumer"),
];

pub(crate) fn nostd() -> Result<()> {
    for (name, what) in IMAGES {
        let image = programs::freestanding(name)?;
        freestanding(&image)?;
        if name == "dat-unikernel" {
            without_panics(&image)?;
        }
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

/// Checks that nothing else leads to a panic.
fn without_panics(image: &Path) -> Result<()> {
    let mut objdump = Command::new("objdump");
    objdump.args(["--disassemble", "--no-show-raw-insn"]).arg(image);
    let text = run::silent(objdump)?;
    let found = panicking(&text);
    ensure!(!found.is_empty(), "no function leads to a panic: the symbols are not what they were");
    let known = |name: &str| PANICS.iter().any(|(part, _)| name.contains(part));
    let more: Vec<_> = found.iter().filter(|name| !known(name)).collect();
    ensure!(more.is_empty(), "these lead to a panic: {more:?}");
    println!("  {} functions lead to a panic, all of them known", found.len());
    Ok(())
}

/// Returns the functions of a disassembly that call or jump into core's panics.
fn panicking(text: &str) -> BTreeSet<&str> {
    const TO: [&str; 4] = ["core9panicking", "_fail>", "unwrap_failed", "expect_failed"];
    let (mut function, mut found) = ("", BTreeSet::new());
    for line in text.lines() {
        if let Some((_, name)) = line.split_once(" <").filter(|_| line.ends_with(">:")) {
            function = name.trim_end_matches(">:");
        } else if (line.contains("call ") || line.contains("jmp "))
            && TO.iter().any(|to| line.contains(to))
            // Not a jump inside the function.
            && !line.contains('+')
        {
            found.insert(function);
        }
    }
    found
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

#[cfg(test)]
mod tests {
    use super::panicking;

    #[test]
    fn a_function_that_leads_to_a_panic_is_found() {
        let text = "\
0000000000101000 <_ZN8dat_core4good17h01E>:
  101000:\tcall   101100 <_ZN8dat_core4evil17h02E>
  101005:\tjmp    101000 <_RNvNtCs_4core9panicking9panic_fmt+0x4>
0000000000101100 <_ZN8dat_core4evil17h02E>:
  101100:\tcall   101200 <_RNvNtNtCs_4core5slice5index16slice_index_fail>
0000000000101200 <_RNvNtNtCs_4core5slice5index16slice_index_fail>:
  101200:\tjmp    101300 <_RNvNtCs_4core9panicking9panic_fmt>
";
        let found: Vec<_> = panicking(text).into_iter().collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("slice_index_fail") && found[1].contains("evil"), "{found:?}");
    }
}
