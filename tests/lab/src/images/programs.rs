//! What servers and guests run: the programs that `cargo test` builds for the tests, without their
//! debug information, and the libraries that they load.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::toolchain::Toolchain;
use crate::run;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The model's server, a program of the host.
const SERVER: &str = "mlx5-model";
/// Programs of the host: the server, and our side of the matrix beside `dat`.
const HOST: [&str; 2] = [SERVER, "interop"];
/// The image that is its own guest.
const IMAGE: &str = "dat-metal";
/// The profile of its builds for many machines.
const GALLERY: &str = "gallery";
/// Programs of the guest.
const GUEST: [&str; 2] = ["guest", "dat"];
/// A small test. Cargo then chooses the features of dependencies as it does for `cargo test`, so
/// that nothing is compiled twice.
const TEST: &str = "wakeup";

/// Built programs.
#[derive(Debug)]
pub(crate) struct Programs {
    /// Where the host runs them.
    pub(crate) folder: PathBuf,
    /// The freestanding image, which serves or calls.
    pub(crate) image: PathBuf,
    /// What every guest of VFIO has: programs in `bin`, libraries where this machine has them.
    pub(crate) guest: Vec<(String, Vec<u8>)>,
}

impl Programs {
    /// Builds the programs, and copies them below `folder`: a later build does not change what a
    /// running scenario starts.
    pub(crate) fn build(folder: &Path) -> Result<Self> {
        let mut build = run::cargo();
        build.args(["build", "--quiet", "--workspace", "--all-features", "--test", TEST]);
        let names = || HOST.into_iter().chain(GUEST);
        build.args(names().flat_map(|name| ["--bin", name]));
        run::capture(build)?;
        let built = run::target()?.join("debug");
        let folder = folder.join("programs");
        fs::create_dir_all(&folder)?;
        for name in names() {
            let mut strip = Command::new("strip");
            strip.arg("--strip-debug").arg(built.join(name)).arg("-o").arg(folder.join(name));
            run::silent(strip)?;
        }
        let mut guest = Vec::new();
        let mut libraries = BTreeSet::new();
        for name in GUEST {
            let path = folder.join(name);
            guest.push((format!("bin/{name}"), read(&path)?));
            let mut list = Command::new("ldd");
            list.arg(&path);
            libraries.extend(loaded(list)?);
        }
        for path in &libraries {
            let name = path.to_string_lossy().trim_start_matches('/').to_owned();
            guest.push((name, read(path)?));
        }
        Ok(Self { folder, image: freestanding(IMAGE)?, guest })
    }

    /// The model as a server.
    pub(crate) fn server(&self) -> PathBuf {
        self.folder.join(SERVER)
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("{}", path.display()))
}

/// The files that a program is loaded with, from the output of `ldd` or of a loader's `--list`.
pub(crate) fn loaded(mut list: Command) -> Result<BTreeSet<PathBuf>> {
    let text = String::from_utf8_lossy(&list.output()?.stdout).into_owned();
    ensure!(!text.contains("not found"), "`{}`: a library is missing:\n{text}", run::shown(&list));
    // `NAME => PATH (ADDRESS)`, and the loader without a name.
    let path = |line: &str| {
        let line = line.trim();
        let path = line.split_once(" => ").map_or(line, |(_, path)| path);
        let path = path.split_once(" (")?.0;
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    Ok(text.lines().filter_map(path).collect())
}

/// Builds the image that boots for targets without a compiled library.
pub(crate) fn metal(toolchain: &Toolchain, targets: &[&str]) -> Result<()> {
    let mut build = toolchain.cargo();
    build
        .args(["build", "--quiet", "-p", "dat-unikernel", "--bin", IMAGE, "--profile", GALLERY])
        // With the functions of a C library that compiled code calls.
        .args(["-Zbuild-std=core,compiler_builtins"])
        .arg("-Zbuild-std-features=compiler-builtins-mem")
        .args(targets.iter().flat_map(|target| ["--target", target]))
        .env("RUSTFLAGS", "--cfg dat_image -D warnings");
    run::capture(build).map(drop)
}

/// The path of an image that [`metal`] has built.
pub(crate) fn metal_of(toolchain: &Toolchain, target: &str) -> PathBuf {
    let suffix = if target.ends_with("uefi") { ".efi" } else { "" };
    toolchain.build().join(target).join(GALLERY).join(format!("{IMAGE}{suffix}"))
}

/// Builds a freestanding image of `dat-unikernel`.
pub fn freestanding(bin: &str) -> Result<PathBuf> {
    let target = run::target()?.join("nostd");
    let mut build = run::cargo();
    build
        .args(["build", "--quiet", "-p", "dat-unikernel", "--bin", bin])
        .args(["--profile", "image", "--target", TARGET])
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTFLAGS", "--cfg dat_image");
    run::capture(build)?;
    Ok(target.join(TARGET).join("image").join(bin))
}
