//! `cargo xtask nostd --targets`: both crates for CPUs without an operating system, and their tests
//! on a big-endian one.
//!
//! Cargo builds core from its sources for them (`dat_lab::images::toolchain`). The big-endian CPU is
//! an s390x, emulated.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use dat_lab::images::packages::{self, Apt};
use dat_lab::images::toolchain::Toolchain;
use dat_lab::run;

use crate::barriers;
use crate::suite::Sum;

/// 64 bits, with and without strong order; 32 bits without 64-bit atomics; and a unikernel's.
const BARE: [&str; 5] = [
    "x86_64-unknown-none",
    "aarch64-unknown-none",
    "riscv64gc-unknown-none-elf",
    "thumbv7em-none-eabi",
    "x86_64-unknown-hermit",
];
const CRATES: [&str; 4] = ["-p", "dat-core", "-p", "hca-mlx5"];
const BIG: &str = "s390x-unknown-linux-gnu";
/// Packages that link and run programs of the big-endian CPU.
const CROSS: [&str; 3] = ["gcc-s390x-linux-gnu", "libc6-dev-s390x-cross", "qemu-user-static"];

pub(crate) fn targets() -> Result<()> {
    println!("$ nostd --targets");
    let toolchain = Toolchain::find()?;
    let folder = toolchain.folder();
    for target in BARE {
        let start = Instant::now();
        let mut build = toolchain.cargo();
        build.args(["build", "--quiet", "-Zbuild-std=core", "--target", target]).args(CRATES);
        run::capture(build)?;
        println!("  {target}: core only, {} s", start.elapsed().as_secs());
    }
    let mut cargo = toolchain.cargo();
    cargo.arg("-Zbuild-std=core");
    barriers::check(cargo, folder)?;
    let start = Instant::now();
    let mut test = toolchain.cargo();
    test.args(["test", "--quiet", "-Zbuild-std", "--target", BIG])
        .args(CRATES)
        .envs(cross(folder)?);
    let sum = Sum::of(&run::capture(test)?);
    ensure!(sum.passed > 0, "no test ran on {BIG}");
    println!(
        "  {BIG}: {} tests passed on a big-endian CPU, {} s",
        sum.passed,
        start.elapsed().as_secs()
    );
    Ok(())
}

/// Returns the environment for cargo to link and run programs of the big-endian CPU.
fn cross(folder: &Path) -> Result<BTreeMap<String, OsString>> {
    let linker = on_path(&["s390x-linux-gnu-gcc"]);
    let emulator = on_path(&["qemu-s390x", "qemu-s390x-static"]);
    let (linker, emulator, libraries) = match (linker, emulator) {
        (Some(linker), Some(emulator)) => (linker, emulator, PathBuf::from("/usr/s390x-linux-gnu")),
        _ => unpacked(folder).context(
            "no s390x compiler and emulator could be had.\n  \
             Either install gcc-s390x-linux-gnu, libc6-dev-s390x-cross and qemu-user, or use a Debian machine",
        )?,
    };
    let variable = |name: &str| format!("CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_{name}");
    let runner = format!("{} -L {}", emulator.display(), libraries.display());
    Ok([(variable("LINKER"), linker.into()), (variable("RUNNER"), runner.into())].into())
}

fn on_path(names: &[&str]) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)))
        .find(|program| program.is_file())
}

/// Compiler, emulator and libraries from the distribution's packages, unpacked below `folder`.
fn unpacked(folder: &Path) -> Result<(PathBuf, PathBuf, PathBuf)> {
    let tree = folder.join("s390x");
    let linker = tree.join("linker");
    if !linker.exists() {
        // The machine's own release, so that the programs run with the machine's own libraries.
        let release = packages::codename()?;
        let apt = Apt::new(folder, &[release.as_str()])?;
        apt.update()?;
        packages::unpack(&apt.download(&release, &CROSS)?, &tree)?;
        // The compiler finds its parts relative to its own path; those find their libraries by
        // this.
        let script = format!(
            "#!/bin/sh\nLD_LIBRARY_PATH={0}/usr/lib/x86_64-linux-gnu exec {0}/usr/bin/s390x-linux-gnu-gcc --sysroot={0} \"$@\"\n",
            tree.display()
        );
        fs::write(&linker, script)?;
        fs::set_permissions(&linker, fs::Permissions::from_mode(0o755))?;
    }
    let emulator = tree.join("usr/bin/qemu-s390x-static");
    if !emulator.exists() {
        bail!("the packages hold no emulator");
    }
    Ok((linker, emulator, tree.join("usr/s390x-linux-gnu")))
}
