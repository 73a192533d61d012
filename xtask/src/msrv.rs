//! `cargo xtask msrv`: builds and tests with the lowest version of the compiler that the workspace
//! promises (`rust-version` of Cargo.toml).
//!
//! A compiler of that version in the search path or of rustup is used; otherwise Debian's own, which
//! stands in a root of its own below `target/`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::MetadataCommand;
use dat_lab::images::roots::Root;
use dat_lab::run;

/// The release whose compiler is the lowest that is promised, and what a build takes of it.
const SUITE: &str = "trixie";
const PACKAGES: &[&str] = &["rustc", "cargo", "gcc", "libc6-dev", "ca-certificates"];
/// Packages whose unit tests run. The uDAPL provider's compare with headers that are fetched; it is
/// built.
const TESTED: &[&str] = &["dat-core", "hca-mlx5", "vfio-host", "dat-mlx5", "mlx5-model"];

/// Its listings run on embassy too, which takes a newer compiler (heapless 0.9).
const BOOK: &str = "dat-book";

/// Builds everything but the book, tests what a user needs and runs the demo.
pub(crate) fn msrv() -> Result<()> {
    let wanted = wanted()?;
    let compiler = Compiler::find(&wanted)?;
    println!("  compiler {wanted}: {}", compiler.name());
    let check = ["check", "--locked", "--workspace", "--all-targets", "--all-features"];
    compiler.cargo(&[&check[..], &["--exclude", BOOK]].concat())?;
    let mut tests = vec!["test", "--quiet", "--locked", "--all-features", "--lib", "--bins"];
    tests.extend(TESTED.iter().flat_map(|name| ["-p", name]));
    compiler.cargo(&tests)?;
    compiler.cargo(&["run", "--quiet", "--locked", "-p", "dat-tests", "--bin", "demo"])?;
    println!("{} packages tested with Rust {wanted}", TESTED.len());
    Ok(())
}

/// The version that Cargo.toml promises.
fn wanted() -> Result<String> {
    let metadata = MetadataCommand::new().current_dir(run::root()).no_deps().exec()?;
    let package = metadata.packages.iter().find(|package| package.name.as_str() == "dat-core");
    let version = package.and_then(|package| package.rust_version.as_ref());
    let version = version.context("dat-core has no rust-version")?;
    Ok(format!("{}.{}", version.major, version.minor))
}

/// Where the compiler is.
enum Compiler {
    /// In the search path.
    Path,
    /// One of rustup's toolchains.
    Rustup(String),
    /// Debian's, in a root of its own.
    Debian(Box<Root>),
}

impl Compiler {
    fn find(wanted: &str) -> Result<Self> {
        let is_wanted = |program: &str, args: &[&str]| {
            let out = Command::new(program).args(args).output();
            out.is_ok_and(|out| {
                let text = String::from_utf8_lossy(&out.stdout).into_owned();
                out.status.success() && version(&text).is_some_and(|found| found == wanted)
            })
        };
        if is_wanted("rustc", &["--version"]) {
            return Ok(Self::Path);
        }
        if is_wanted("rustup", &["run", wanted, "rustc", "--version"]) {
            return Ok(Self::Rustup(wanted.to_owned()));
        }
        let folder = run::target()?;
        let root = Root::kept(&folder, "rust", SUITE, PACKAGES).with_context(|| {
            format!("no Rust {wanted}; `rustup toolchain install {wanted}` brings it")
        })?;
        let said = root.run("rustc --version")?;
        let found = version(&said).context("rustc does not tell its version")?;
        ensure!(
            found == wanted,
            "{SUITE} has Rust {found}, Cargo.toml promises {wanted}: change one of them"
        );
        let home = home()?;
        let registry = home.join("registry");
        std::fs::create_dir_all(&registry)?;
        let workspace = run::root();
        let inside = Path::new("/root/.cargo/registry");
        Ok(Self::Debian(Box::new(
            root.with(&workspace, &workspace).with(&folder, &folder).with(&registry, inside),
        )))
    }

    fn name(&self) -> &str {
        match self {
            Self::Path => "the one in the search path",
            Self::Rustup(_) => "rustup's",
            Self::Debian(_) => "Debian's, unpacked below target/",
        }
    }

    /// Runs cargo of this compiler in the workspace, with a target folder of its own.
    fn cargo(&self, args: &[&str]) -> Result<()> {
        let target = run::target()?.join("msrv");
        let mut command = match self {
            Self::Path => Command::new("cargo"),
            Self::Rustup(version) => {
                let mut command = Command::new("rustup");
                command.args(["run", version, "cargo"]);
                command
            }
            Self::Debian(root) => {
                let line =
                    format!("cd '{}' && exec cargo {}", run::root().display(), args.join(" "));
                println!("$ cargo {}", args.join(" "));
                let mut command = root.command(&line);
                command.env("RUST_MIN_STACK", "16777216");
                small(&mut command, &target);
                let status = command.status()?;
                ensure!(status.success(), "Rust of {SUITE} fails");
                return Ok(());
            }
        };
        command.args(args).current_dir(run::root());
        small(&mut command, &target);
        run::plain(command, "the lowest version of Rust fails")
    }
}

/// What serves debuggers and a second build is left out.
fn small(command: &mut Command, target: &Path) {
    command.env("CARGO_TARGET_DIR", target);
    command.envs([("CARGO_INCREMENTAL", "0"), ("CARGO_PROFILE_DEV_DEBUG", "0")]);
}

/// Cargo's own folder.
pub(crate) fn home() -> Result<std::path::PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    match std::env::var_os("HOME") {
        Some(home) => Ok(Path::new(&home).join(".cargo")),
        None => bail!("neither CARGO_HOME nor HOME is set"),
    }
}

/// Major and minor version of what `rustc --version` prints.
fn version(text: &str) -> Option<String> {
    let mut numbers = text.strip_prefix("rustc ")?.split(['.', ' ', '-']);
    Some(format!("{}.{}", numbers.next()?, numbers.next()?))
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn the_version_is_read_from_what_rustc_prints() {
        let text = "rustc 1.85.1 (4eb161250 2025-03-15) (built from a source tarball)\n";
        assert_eq!(version(text).as_deref(), Some("1.85"));
        assert_eq!(version("rustc 1.95.0-nightly (abc 2026-01-01)").as_deref(), Some("1.95"));
        assert_eq!(version("error: no toolchain\n"), None);
    }
}
