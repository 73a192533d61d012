//! What a holder of DAT programs has: Debian's programs and registry, unpacked, and the provider of
//! this workspace beside them.
//!
//! The provider is built for this machine, so the programs run under this machine's loader wherever
//! that is new enough for them, and under that of their own tree otherwise. Nothing of what the
//! stock providers need is on the library path.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};

use crate::images::archive::Archive;
use crate::images::packages::{self, Tree};
use crate::images::programs;
use crate::images::valgrind;
use crate::run;

/// The provider's package.
const PACKAGE: &str = "dapldat";
/// Its file.
pub(super) const LIBRARY: &str = "libdapldat.so";
/// The registry.
pub(super) const REGISTRY: &str = "libdat2.so.2";
/// Has programs print line by line where they would not; they are killed at times, and what they
/// said would be lost.
const LINES: &str = "usr/libexec/coreutils/libstdbuf.so";
/// The loader that programs name. In the tree of an older release it is not below `usr`.
const LOADER: &str = "lib64/ld-linux-x86-64.so.2";
/// Where that tree has libraries.
const PLACES: [&str; 2] = [packages::LIBRARIES, "lib/x86_64-linux-gnu"];
/// Programs of the list.
pub(super) const PROGRAMS: [&str; 5] = ["dapltest", "dtest", "dtestcm", "dtestsrq", "dtestx"];
/// Where guests have them.
const PLACE: &str = "dat";
/// The libraries that the issue of all this is to do without.
pub(super) const UNWANTED: [&str; 5] =
    ["libibverbs", "librdmacm", "libmlx5", "libdaplofa", "libdaploscm"];

/// Programs, registry and provider.
pub(super) struct Kit {
    /// The provider.
    pub(super) library: PathBuf,
    tree: Tree,
    /// Has the registry and nothing else.
    path: PathBuf,
    /// They run under the loader of their own tree.
    own_loader: bool,
    /// What is loaded into every program that no tool runs.
    preload: Vec<PathBuf>,
}

impl Kit {
    /// Unpacks and builds below `folder` what is not there yet.
    pub(super) fn find(folder: &Path) -> Result<Self> {
        let tree = packages::tree(folder, &packages::DAPL)?;
        let path = folder.join("dat-registry");
        fs::create_dir_all(&path)?;
        let from = tree.root().join(packages::LIBRARIES).join(REGISTRY);
        let bytes = fs::read(&from).with_context(|| format!("{}", from.display()))?;
        let to = path.join(REGISTRY);
        // Programs of another run may have it mapped: it is never written to.
        if !fs::read(&to).is_ok_and(|there| there == bytes) {
            let own = (std::process::id(), std::thread::current().id());
            let new = path.join(format!("new-{own:?}"));
            fs::write(&new, &bytes)?;
            fs::rename(&new, &to)?;
        }
        let mut kit = Self {
            library: build()?,
            preload: vec![tree.root().join(LINES)],
            tree,
            path,
            own_loader: false,
        };
        kit.own_loader = !kit.fits()?;
        for program in PROGRAMS {
            let loaded = kit.libraries(&kit.program(program))?;
            let odd = unwanted(loaded.iter().map(|path| path.to_string_lossy().into_owned()));
            ensure!(odd.is_none(), "{program} needs {odd:?}");
        }
        let loaded = kit.libraries(&kit.library)?;
        let odd = unwanted(loaded.iter().map(|path| path.to_string_lossy().into_owned()));
        ensure!(odd.is_none(), "{LIBRARY} needs {odd:?}");
        Ok(kit)
    }

    /// A program's file.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.tree.root().join("usr/bin").join(name)
    }

    /// Headers of DAT.
    pub(super) fn headers(&self) -> PathBuf {
        self.tree.root().join("usr/include")
    }

    /// The folder of the registry.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this machine's loader and C library will do for the programs.
    fn fits(&self) -> Result<bool> {
        let out = Command::new(self.program("dapltest"))
            .env("LD_TRACE_LOADED_OBJECTS", "1")
            .env("LD_LIBRARY_PATH", &self.path)
            .output()?;
        let said = String::from_utf8_lossy(&out.stdout).into_owned()
            + &String::from_utf8_lossy(&out.stderr);
        Ok(out.status.success() && !said.contains("not found"))
    }

    /// A program of the tree, or one that was built here, as words of a command.
    fn words(&self, program: &Path) -> Vec<OsString> {
        if !self.own_loader {
            return vec![program.into()];
        }
        let root = self.tree.root();
        let mut path = self.path.clone().into_os_string();
        for place in PLACES {
            path.push(":");
            path.push(root.join(place));
        }
        vec![self.loader().into(), "--library-path".into(), path, program.into()]
    }

    /// A command that runs a program over the provider, as `conf` says; with words in `tool`, under
    /// valgrind, to which they are said.
    pub(super) fn under(&self, tool: &[&str], program: &Path, conf: &Path) -> Result<Command> {
        let words = self.words(program);
        let (first, rest) = words.split_first().context("no command")?;
        let mut command = if tool.is_empty() {
            Command::new(first)
        } else {
            let mut valgrind = valgrind::command()?;
            valgrind.args(tool).arg(first);
            valgrind
        };
        command.args(rest).env("DAT_OVERRIDE", conf);
        if !self.own_loader {
            command.env("LD_LIBRARY_PATH", &self.path);
        }
        if tool.is_empty() {
            let preload = std::env::join_paths(&self.preload)?;
            command.env("LD_PRELOAD", preload).env("_STDBUF_O", "L");
        }
        Ok(command)
    }

    /// Has every program from now on load this as well.
    pub(super) fn preload(&mut self, library: PathBuf) {
        self.preload.push(library);
    }

    /// The libraries that a file is loaded with.
    fn libraries(&self, file: &Path) -> Result<BTreeSet<PathBuf>> {
        let command = if self.own_loader {
            let words = self.words(file);
            let (loader, rest) = words.split_first().context("no loader")?;
            let mut command = Command::new(loader);
            command.arg("--list").args(rest);
            command
        } else {
            let mut command = Command::new("ldd");
            command.arg(file).env("LD_LIBRARY_PATH", &self.path);
            command
        };
        programs::loaded(command)
    }

    /// The loader that programs name.
    fn loader(&self) -> PathBuf {
        let usual = Path::new("/").join(LOADER);
        if self.own_loader { self.tree.root().join(LOADER) } else { usual }
    }

    /// Everything for a guest, with these programs beside the usual ones: all below one folder but
    /// for the loader, and `conf` for each of its devices.
    pub(super) fn archive(&self, more: &[&Path], confs: &[(&str, &str)]) -> Result<Vec<u8>> {
        let mut archive = Archive::default();
        let mut files: Vec<PathBuf> = PROGRAMS.iter().map(|name| self.program(name)).collect();
        files.extend(more.iter().map(|path| path.to_path_buf()));
        files.push(self.library.clone());
        files.extend(self.preload.iter().cloned());
        let mut all: BTreeSet<PathBuf> = files.iter().cloned().collect();
        for file in &files {
            all.extend(self.libraries(file)?);
        }
        let loader = fs::read(self.loader())?;
        archive.file(LOADER, &loader)?;
        for file in &all {
            let name = file.file_name().and_then(|name| name.to_str());
            let name = name.ok_or_else(|| anyhow!("{}: no name", file.display()))?;
            let bytes = fs::read(file).with_context(|| format!("{}", file.display()))?;
            archive.file(&format!("{PLACE}/{name}"), &bytes)?;
        }
        for (name, text) in confs {
            archive.file(&format!("{PLACE}/{name}"), text.as_bytes())?;
        }
        archive.finish()
    }
}

/// The stock provider.
const STOCK: [&str; 4] = [
    "libdaplofa.so.2",
    REGISTRY,
    // Empty, and named by programs of that time.
    "libpthread.so.0",
    "libdl.so.2",
];
/// Its registration: the network device of Soft-RoCE.
const STOCK_CONF: &str =
    "hca u2.0 nonthreadsafe default /dat/libdaplofa.so.2 dapl.2.0 \"soft 0\" \"\"\n";
/// The same on InfiniBand: the network device of IPoIB.
const SUBNET_CONF: &str =
    "hca u2.0 nonthreadsafe default /dat/libdaplofa.so.2 dapl.2.0 \"hca 0\" \"\"\n";

/// Programs, registry and stock provider for guests of stock Linux, whose loader and verbs they
/// use.
pub(super) fn stock_archive(folder: &Path) -> Result<Vec<u8>> {
    let tree = packages::tree(folder, &packages::DAPL)?;
    let mut archive = Archive::default();
    let mut libraries = Vec::new();
    for name in STOCK {
        let files = PLACES.map(|place| Path::new(place).join(name));
        let found = files.into_iter().find(|file| tree.root().join(file).exists());
        libraries.push(found.ok_or_else(|| anyhow!("no package has {name}"))?);
    }
    let programs = PROGRAMS.map(|name| Path::new("usr/bin").join(name));
    let files = libraries.into_iter().chain(programs);
    for file in files.chain([PathBuf::from(LINES)]) {
        let name = file.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| anyhow!("{}: no name", file.display()))?;
        let path = tree.root().join(&file);
        let bytes = fs::read(&path).with_context(|| format!("{}", path.display()))?;
        archive.file(&format!("{PLACE}/{name}"), &bytes)?;
    }
    archive.file(&format!("{PLACE}/stock.conf"), STOCK_CONF.as_bytes())?;
    archive.file(&format!("{PLACE}/subnet.conf"), SUBNET_CONF.as_bytes())?;
    archive.finish()
}

/// What comes before a command in a guest.
pub(super) fn guest_command(conf: &str, command: &str) -> String {
    format!(
        "env LD_LIBRARY_PATH=/{PLACE} LD_PRELOAD=/{PLACE}/libstdbuf.so _STDBUF_O=L DAT_OVERRIDE=/{PLACE}/{conf} /{PLACE}/{command}"
    )
}

/// The same for the stock provider in a guest of stock Linux.
pub(super) fn stock_command(command: &str) -> String {
    guest_command("stock.conf", command)
}

/// The same on InfiniBand.
pub(super) fn subnet_command(command: &str) -> String {
    guest_command("subnet.conf", command)
}

/// The provider's file, where guests have it.
pub(super) fn guest_library() -> String {
    format!("/{PLACE}/{LIBRARY}")
}

/// The first of these that should not be there.
pub(super) fn unwanted(mut names: impl Iterator<Item = String>) -> Option<String> {
    names.find(|name| UNWANTED.iter().any(|bad| name.contains(bad)))
}

/// How it is built: as whoever installs it builds it.
const PROFILE: &str = "provider";

/// Builds the provider, for this machine.
fn build() -> Result<PathBuf> {
    let mut build = run::cargo();
    build.args(["build", "--quiet", "--profile", PROFILE, "-p", PACKAGE]);
    run::capture(build)?;
    let library = run::target()?.join(PROFILE).join(LIBRARY);
    ensure!(library.exists(), "cargo has built no {}", library.display());
    Ok(library)
}
