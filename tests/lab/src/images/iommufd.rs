//! A kernel with iommufd, which Debian's kernels leave out: built once from Debian's source
//! package, with only what guests of VFIO need, and kept. The build takes some minutes and 2 GB.
//!
//! Nothing is installed: the compiler and `perl` are the machine's, other tools are unpacked beside
//! the source, of the machine's own release, so that they run with its C library.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::packages::{Apt, LIBRARIES, alone, codename, unpack};
use crate::run;

/// The options that are set.
const CONFIG: &str = include_str!("iommufd.config");
/// The source, and the suite that it is from.
const SOURCE: (&str, &str) = ("linux-source-6.12", "trixie");
/// Tools that the build runs, besides compiler, `perl` and `tar`.
const TOOLS: [&str; 6] = ["bc", "bison", "flex", "libelf-dev", "make", "xz-utils"];
/// What no build of this kernel reads, but most of the source's size. Every `Kconfig` is read.
const LEFT_OUT: [&str; 3] = ["*.dts", "*.dtsi", "*/drivers/gpu/drm/amd/include"];

/// The folder of the build, and the kernel that is kept.
#[derive(Debug)]
pub(crate) struct Build {
    folder: PathBuf,
}

impl Build {
    /// Below `folder`.
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.join("iommufd") }
    }

    fn kernel(&self) -> PathBuf {
        self.folder.join("vmlinux")
    }

    fn source(&self) -> PathBuf {
        self.folder.join("source")
    }

    fn tools(&self) -> PathBuf {
        self.folder.join("tools")
    }

    /// Whether a kernel of these options is there.
    fn is_built(&self) -> bool {
        let made = fs::read_to_string(self.folder.join("config"));
        self.kernel().is_file() && made.is_ok_and(|made| made == CONFIG)
    }

    /// Fetches source and tools, unless the kernel, or they, are there.
    pub(crate) fn fetch(&self) -> Result<()> {
        let mark = self.folder.join("fetched");
        if self.is_built() || mark.is_file() {
            return Ok(());
        }
        let _alone = alone();
        let (package, suite) = SOURCE;
        let release = codename()?;
        let parent = self.folder.parent().context("a folder without a parent")?;
        let mut suites = vec![release.as_str(), suite];
        suites.dedup();
        let apt = Apt::new(parent, &suites)?;
        apt.update()?;
        let mut tools = apt.download(&release, &TOOLS)?;
        // The machine has a C library.
        let of_libc = |deb: &PathBuf| {
            let name = deb.file_name().unwrap_or_default().to_string_lossy().into_owned();
            ["libc6", "libgcc-s1", "libcrypt1"].iter().any(|start| name.starts_with(start))
        };
        tools.retain(|deb| !of_libc(deb));
        unpack(&tools, &self.tools())?;
        let packed = self.folder.join("packed");
        unpack(&[apt.one(package)?], &packed)?;
        let archive = packed.join("usr/src").join(format!("{package}.tar.xz"));
        self.extract(&archive)?;
        fs::remove_dir_all(packed)?;
        fs::write(mark, package)?;
        Ok(())
    }

    fn extract(&self, archive: &Path) -> Result<()> {
        let source = self.source();
        println!("  unpacking the source of the kernel into {}", source.display());
        if source.exists() {
            fs::remove_dir_all(&source)?;
        }
        fs::create_dir_all(&source)?;
        let mut xz = self.tool("xz");
        let mut xz = xz.arg("-dc").arg(archive).stdout(Stdio::piped()).spawn()?;
        let mut tar = Command::new("tar");
        tar.args(["-x", "--strip-components=1", "-C"]).arg(&source);
        tar.args(LEFT_OUT.map(|what| format!("--exclude={what}")));
        tar.stdin(xz.stdout.take().context("no output of xz")?);
        let done = tar.status()?;
        ensure!(xz.wait()?.success() && done.success(), "{} is broken", archive.display());
        Ok(())
    }

    /// A command that finds the tools and their libraries.
    fn tool(&self, name: &str) -> Command {
        let root = self.tools();
        let usr = root.join("usr");
        let mut path = OsString::from(usr.join("bin"));
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let of_arch = root.join(LIBRARIES);
        let mut libraries = of_arch.clone().into_os_string();
        // Releases before the merge of `/lib` and `/usr/lib`.
        libraries.push(":");
        libraries.push(root.join("lib/x86_64-linux-gnu"));
        let of_tools = usr.join("bin").join(name);
        let program = if of_tools.is_file() { of_tools.into() } else { OsString::from(name) };
        let mut command = Command::new(program);
        command
            .env("PATH", path)
            .env("LD_LIBRARY_PATH", &libraries)
            .env("LIBRARY_PATH", &libraries)
            .env("C_INCLUDE_PATH", usr.join("include"))
            .env("BISON_PKGDATADIR", usr.join("share/bison"))
            .env("M4", usr.join("bin/m4"));
        command
    }

    fn make(&self) -> Command {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let mut make = self.tool("make");
        make.arg("-C").arg(self.source()).arg("-s").arg(format!("-j{jobs}"));
        make
    }

    /// Builds the kernel, unless it is there, from what [`Build::fetch`] fetched. What an earlier
    /// run has compiled is used.
    pub(crate) fn build(&self) -> Result<PathBuf> {
        if self.is_built() {
            return Ok(self.kernel());
        }
        println!("  building a kernel with iommufd: some minutes, once");
        let options = self.folder.join("options");
        fs::write(&options, CONFIG)?;
        let mut configure = self.make();
        configure.arg("allnoconfig").env("KCONFIG_ALLCONFIG", &options);
        run::capture(configure)?;
        let config = fs::read_to_string(self.source().join(".config"))?;
        for option in CONFIG.lines().filter(|line| line.ends_with("=y")) {
            ensure!(config.lines().any(|line| line == option), "the source does not take {option}");
        }
        let mut build = self.make();
        build.arg("vmlinux");
        run::capture(build)?;
        let mut strip = Command::new("strip");
        strip.arg(self.source().join("vmlinux")).arg("-o").arg(self.kernel());
        run::silent(strip)?;
        fs::write(self.folder.join("config"), CONFIG)?;
        for folder in [self.source(), self.tools()] {
            fs::remove_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
        }
        fs::remove_file(self.folder.join("fetched"))?;
        Ok(self.kernel())
    }
}
