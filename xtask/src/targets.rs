//! `cargo xtask nostd --targets`: both crates for CPUs without an operating system, and their tests
//! on a big-endian one.
//!
//! There is no compiled library for such targets in a usual toolchain, so cargo builds core from
//! its sources (`-Zbuild-std=core`, which a stable toolchain does when `RUSTC_BOOTSTRAP` is set;
//! the crates themselves use nothing unstable). The sources are the toolchain's own if it has them,
//! else those of the distribution's package of exactly its version, beside a copy of the toolchain
//! made of hard links. The big-endian CPU is an s390x, emulated.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use dat_lab::images::packages::{self, Apt};
use dat_lab::run;

use crate::barriers;
use crate::suite::Sum;

/// 64 bits, with and without strong order; and 32 bits without 64-bit atomics.
const BARE: [&str; 4] = [
    "x86_64-unknown-none",
    "aarch64-unknown-none",
    "riscv64gc-unknown-none-elf",
    "thumbv7em-none-eabi",
];
const CRATES: [&str; 4] = ["-p", "dat-core", "-p", "hca-mlx5"];
const BIG: &str = "s390x-unknown-linux-gnu";
/// The distribution's suites with sources of newer toolchains, oldest first.
const SUITES: [&str; 2] = ["trixie", "trixie-backports"];
/// Packages that link and run programs of the big-endian CPU.
const CROSS: [&str; 3] = ["gcc-s390x-linux-gnu", "libc6-dev-s390x-cross", "qemu-user-static"];

pub(crate) fn targets() -> Result<()> {
    println!("$ nostd --targets");
    let folder = run::target()?.join("targets");
    fs::create_dir_all(&folder)?;
    let toolchain = Toolchain::find(&folder)?;
    for target in BARE {
        let start = Instant::now();
        let mut build = toolchain.cargo();
        build.args(["build", "--quiet", "-Zbuild-std=core", "--target", target]).args(CRATES);
        run::capture(build)?;
        println!("  {target}: core only, {} s", start.elapsed().as_secs());
    }
    let mut cargo = toolchain.cargo();
    cargo.arg("-Zbuild-std=core");
    barriers::check(cargo, &folder)?;
    let start = Instant::now();
    let mut test = toolchain.cargo();
    test.args(["test", "--quiet", "-Zbuild-std", "--target", BIG])
        .args(CRATES)
        .envs(cross(&folder)?);
    let sum = Sum::of(&run::capture(test)?);
    ensure!(sum.passed > 0, "no test ran on {BIG}");
    println!(
        "  {BIG}: {} tests passed on a big-endian CPU, {} s",
        sum.passed,
        start.elapsed().as_secs()
    );
    Ok(())
}

/// A toolchain with the sources of its library.
struct Toolchain {
    root: PathBuf,
    /// Its build folder.
    build: PathBuf,
}

impl Toolchain {
    fn find(folder: &Path) -> Result<Self> {
        let rustc = || Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        let mut sysroot = rustc();
        sysroot.args(["--print", "sysroot"]);
        let sysroot = PathBuf::from(run::silent(sysroot)?.trim());
        let mut version = rustc();
        version.arg("--version");
        let version = run::silent(version)?;
        let version =
            version.split(' ').nth(1).ok_or_else(|| anyhow!("rustc does not tell its version"))?;
        let root = if library(&sysroot).join("Cargo.lock").exists() {
            sysroot
        } else {
            beside(&sysroot, version, folder).with_context(|| {
                format!(
                    "the sources of Rust {version}'s library could not be had, so nothing can be built for other targets.\n  \
                     Either `rustup component add rust-src`, or a Debian machine whose mirror has the package rust-src {version}"
                )
            })?
        };
        println!("  sources of the library: {}", library(&root).display());
        Ok(Self { root, build: folder.join("build") })
    }

    fn cargo(&self) -> Command {
        let bin = self.root.join("bin");
        let mut command = Command::new(bin.join("cargo"));
        command
            .current_dir(run::root())
            .env("RUSTC", bin.join("rustc"))
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_TARGET_DIR", &self.build)
            .env_remove("RUSTUP_TOOLCHAIN")
            // Set by the cargo that runs this; it would select the library of that toolchain.
            .env_remove("LD_LIBRARY_PATH");
        command
    }
}

/// Returns the path of the library sources of a toolchain.
fn library(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib/src/rust/library")
}

/// Returns a copy of the toolchain with the distribution's sources, made if it does not exist.
fn beside(sysroot: &Path, version: &str, folder: &Path) -> Result<PathBuf> {
    let root = folder.join(format!("rust-{version}"));
    if library(&root).join("Cargo.lock").exists() {
        return Ok(root);
    }
    ensure!(
        sysroot != Path::new("/usr") && sysroot.join("bin/cargo").exists(),
        "the toolchain in {} is the system's: install its package of library sources",
        sysroot.display()
    );
    let apt = Apt::new(folder, &SUITES)?;
    apt.update()?;
    let mut madison = apt.command("apt-cache");
    madison.args(["madison", "rust-src"]);
    let text = run::silent(madison)?;
    let package = package(&text, version).ok_or_else(|| {
        anyhow!("the mirror has no rust-src of version {version}; it has\n{text}")
    })?;
    let deb = apt.one(&format!("rust-src={package}"))?;
    let sources = folder.join(format!("rust-src-{version}"));
    packages::unpack(&[deb], &sources)?;
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    // Hard links need no space, but are impossible across file systems.
    let mut copy = Command::new("cp");
    copy.arg("-al").arg(sysroot).arg(&root);
    if run::silent(copy).is_err() {
        let _ = fs::remove_dir_all(&root);
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(sysroot).arg(&root);
        run::capture(copy)?;
    }
    let place = root.join("lib/rustlib/src");
    fs::create_dir_all(&place)?;
    symlink(sources.join(format!("usr/src/rustc-{version}")), place.join("rust"))?;
    ensure!(
        library(&root).join("Cargo.lock").exists(),
        "the package has no library of that version"
    );
    Ok(root)
}

/// Finds the package version for this compiler version in the output of `apt-cache madison`.
fn package<'a>(text: &'a str, version: &str) -> Option<&'a str> {
    text.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim).find(|package| {
        package.strip_prefix(version).is_some_and(|rest| rest.starts_with(['+', '-', '~']))
    })
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

#[cfg(test)]
mod tests {
    use super::package;

    #[test]
    fn only_the_package_of_the_very_version_will_do() {
        let text = " rust-src | 1.96.1+dfsg1-2~bpo13+1 | http://a/ trixie-backports/main amd64 Packages\n \
                    rust-src | 1.95.0+dfsg1-2~bpo13+1 | http://a/ trixie-backports/main amd64 Packages\n \
                    rust-src | 1.85.1+dfsg1-1+deb13u1 | http://a/ trixie/main amd64 Packages\n";
        assert_eq!(package(text, "1.95.0"), Some("1.95.0+dfsg1-2~bpo13+1"));
        assert_eq!(package(text, "1.85.1"), Some("1.85.1+dfsg1-1+deb13u1"));
        assert_eq!(package(text, "1.8"), None);
        assert_eq!(package(text, "1.97.0-nightly"), None);
    }
}
