//! `cargo xtask package`: a Debian package of the programs, the uDAPL provider and the model.
//!
//! dpkg-deb writes the archive and dpkg-shlibdeps names the libraries; what stands in it comes from
//! `packaging/`, from the options of the programs (manual pages, completions) and from cargo (the
//! bill of materials). The same sources give the same bytes, whatever their folder is.

mod deb;
mod install;
mod sbom;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use dat_lab::run;

use crate::msrv;
use deb::Deb;

/// What to do with the package.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Build it a second time, from a copy in another folder, and compare
    #[arg(long)]
    twice: bool,
    /// Install it in clean roots of Debian 12 and 13, use it there, and remove it; takes root
    #[arg(long)]
    install: bool,
    /// Use it in a guest of Debian with systemd and udev, on two functions of the model; takes root
    #[arg(long)]
    guest: bool,
    /// Do not build: take the package that is there
    #[arg(long, conflicts_with = "twice")]
    built: bool,
}

/// Builds the package and checks it.
pub(crate) fn package(options: &Options) -> Result<()> {
    let folder = run::target()?.join("package");
    fs::create_dir_all(&folder)?;
    let deb = if options.built {
        Deb::existing(&folder)?
    } else {
        build(&run::root(), &folder.join("build"), &folder)?
    };
    println!("  {}  {}", deb.hash()?, deb.path().display());
    lintian(&deb)?;
    if options.twice {
        let copy = folder.join("another").join("place");
        copy_sources(&copy)?;
        let again = folder.join("again");
        let second = build(&copy, &again.join("build"), &again)?;
        let hashes = [deb.hash()?, second.hash()?];
        println!("  {}  {}", hashes[1], second.path().display());
        ensure!(
            hashes[0] == hashes[1],
            "the two packages differ: diffoscope {} {} tells where",
            deb.path().display(),
            second.path().display()
        );
        println!("built twice from two folders: the same bytes");
    }
    if options.install {
        install::install(&deb)?;
    }
    if options.guest {
        dat_lab::qemu_test(&dat_lab::Options::package(deb.path().to_path_buf()))?;
    }
    Ok(())
}

/// Builds the package of the sources in `root`, with cargo's output in `target`, into `folder`.
fn build(root: &Path, target: &Path, folder: &Path) -> Result<Deb> {
    fs::create_dir_all(folder)?;
    let packages = ["dat-mlx5", "mlx5-model", "dapldat", "dat-pages"];
    let mut command = run::cargo();
    command.args(["build", "--quiet", "--locked", "--profile", "deb"]);
    command.args(packages.iter().flat_map(|name| ["-p", name]));
    command.args(["--features", "mlx5-model/vfio-user"]).current_dir(root);
    command.env("CARGO_TARGET_DIR", target).env("CARGO_INCREMENTAL", "0");
    // Paths of this machine would be in every message of a panic.
    let home = msrv::home()?;
    let remap =
        [(root, "/usr/src/dat-mlx5"), (target, "/usr/src/target"), (&home, "/usr/src/cargo")];
    let remap = remap.map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
    command.env("CARGO_ENCODED_RUSTFLAGS", remap.join("\x1f"));
    run::plain(command, "the programs do not build")?;
    deb::write(root, &target.join("deb"), folder)
}

/// lintian's verdict: errors fail, everything else is printed.
fn lintian(deb: &Deb) -> Result<()> {
    let mut lintian = Command::new("lintian");
    lintian.args(["--fail-on", "error", "--tag-display-limit", "0", "--allow-root"]);
    lintian.arg(deb.path());
    match lintian.output() {
        Ok(out) => {
            println!("$ {}", run::shown(&lintian));
            let text = String::from_utf8_lossy(&out.stdout);
            text.lines().for_each(|line| println!("  {line}"));
            ensure!(out.status.success(), "lintian finds errors");
            println!("lintian: no errors, {} other remarks", text.lines().count());
        }
        Err(_) => println!("lintian NOT RUN: it is not installed (apt install lintian)"),
    }
    Ok(())
}

/// The files that git knows, in another folder.
pub(crate) fn copy_sources(to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    let mut list = Command::new("git");
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    list.current_dir(run::root());
    let names = run::silent(list).context("the sources are those that git knows")?;
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (run::root().join(name), to.join(name));
        // A file that was deleted and is still in git's index.
        if !from.exists() {
            continue;
        }
        fs::create_dir_all(to.parent().unwrap_or(&to))?;
        fs::copy(&from, &to).with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// Seconds since 1970 that stand for the time of the build.
fn epoch() -> Result<String> {
    if let Ok(named) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(named);
    }
    let mut log = Command::new("git");
    log.args(["log", "-1", "--format=%ct"]).current_dir(run::root());
    Ok(run::silent(log).context("set SOURCE_DATE_EPOCH where there is no git")?.trim().to_owned())
}

/// A file below a folder, with the folders around it.
fn put(folder: &Path, name: &str, content: &[u8]) -> Result<PathBuf> {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap_or(folder))?;
    fs::write(&path, content).with_context(|| format!("{}", path.display()))?;
    Ok(path)
}
