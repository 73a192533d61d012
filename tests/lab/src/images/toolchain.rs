//! A toolchain that builds core from its sources, for targets without a compiled library.
//!
//! A usual toolchain has no library for CPUs without an operating system, or for firmware, so cargo
//! builds core (`-Zbuild-std=core`, which a stable toolchain does when `RUSTC_BOOTSTRAP` is set;
//! the crates themselves use nothing unstable). The sources are the toolchain's own if it has them,
//! else those of the distribution's package of exactly its version, beside a copy of the toolchain
//! made of hard links.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};

use super::packages::{self, Apt, alone};
use crate::run;

/// The distribution's suites with sources of newer toolchains, oldest first.
const SUITES: [&str; 2] = ["trixie", "trixie-backports"];

/// A toolchain with the sources of its library.
#[derive(Debug)]
pub struct Toolchain {
    root: PathBuf,
    /// The folder of everything here.
    folder: PathBuf,
    /// Its build folder.
    build: PathBuf,
}

impl Toolchain {
    /// Finds the toolchain's own sources, or fetches them.
    pub fn find() -> Result<Self> {
        let _alone = alone();
        let folder = run::target()?.join("targets");
        fs::create_dir_all(&folder)?;
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
            beside(&sysroot, version, &folder).with_context(|| {
                format!(
                    "the sources of Rust {version}'s library could not be had, so nothing can be built for other targets.\n  \
                     Either `rustup component add rust-src`, or a Debian machine whose mirror has the package rust-src {version}"
                )
            })?
        };
        println!("  sources of the library: {}", library(&root).display());
        Ok(Self { root, build: folder.join("build"), folder })
    }

    /// The folder that it was fetched into.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder into which its cargo builds.
    #[must_use]
    pub fn build(&self) -> &Path {
        &self.build
    }

    /// Returns a command of its cargo, in the workspace.
    #[must_use]
    pub fn cargo(&self) -> Command {
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
