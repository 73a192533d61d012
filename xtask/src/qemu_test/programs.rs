//! What servers and guests run, built by cargo into static programs: a guest has no libraries, and
//! one build serves both.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{nostd, run};

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The model's server, a program of the host.
const SERVER: &str = "mlx5-model";
/// The image that is its own guest.
const IMAGE: &str = "dat-metal";
/// Programs of the guest.
const GUEST: [&str; 2] = ["guest", "dat"];
/// Our side of the matrix, beside `dat`.
const INTEROP: &str = "interop";

/// Built programs.
#[derive(Debug)]
pub(crate) struct Programs {
    /// The model as a server.
    pub(crate) server: PathBuf,
    /// Where the others are: they run on the host as well.
    pub(crate) folder: PathBuf,
    /// The freestanding image, which serves or calls.
    pub(crate) image: PathBuf,
    /// Static programs that every guest has, by name.
    pub(crate) guest: Vec<(&'static str, Vec<u8>)>,
}

impl Programs {
    /// Builds everything below `folder`.
    pub(crate) fn build(folder: &Path) -> Result<Self> {
        let target = folder.join("build");
        let mut build = run::cargo();
        build
            .args(["build", "--quiet", "--release", "--target", TARGET])
            .args(["-p", "mlx5-model", "-p", "dat-tests", "-p", "dat"])
            .args(["--features", "mlx5-model/vfio-user", "--bin", SERVER, "--bin", INTEROP])
            .args(GUEST.iter().flat_map(|name: &&str| ["--bin", *name]))
            .env("CARGO_TARGET_DIR", &target)
            .env("RUSTFLAGS", "-C target-feature=+crt-static -C strip=debuginfo");
        run::quiet(build)?;
        let built = target.join(TARGET).join("release");
        let guest = GUEST.map(|name| {
            let path = built.join(name);
            let bytes = fs::read(&path).with_context(|| format!("{}", path.display()))?;
            Ok((name, bytes))
        });
        Ok(Self {
            server: built.join(SERVER),
            folder: built,
            image: nostd::images()?.join(IMAGE),
            guest: guest.into_iter().collect::<Result<_>>()?,
        })
    }
}

/// The model's server with bugs to plant.
pub(crate) fn seeded() -> Result<PathBuf> {
    // Apart from the others: the same program, built with another feature.
    let target = super::folder()?.join("seeded");
    let mut build = run::cargo();
    build
        .args(["build", "--quiet", "--release", "-p", SERVER])
        .args(["--features", "vfio-user,seeded", "--bin", SERVER])
        .env("CARGO_TARGET_DIR", &target);
    run::quiet(build)?;
    Ok(target.join("release").join(SERVER))
}
