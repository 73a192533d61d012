//! Unprivileged trees of the distribution's packages: a QEMU for a machine whose own is too old or
//! absent, and the stock programs and kernels that guests run.
//!
//! apt itself does the work, in a state of its own below `target/`: the machine's mirror, proxies,
//! credentials and archive keys are read from the machine's configuration at run time, only the
//! suite is another one. Nothing is installed: the packages are unpacked, and QEMU runs under the
//! tree's own loader and libraries.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::programs;
use crate::run;

/// What a tree is made of.
#[derive(Debug)]
pub struct Recipe {
    /// Its folder.
    name: &'static str,
    /// Packages by the suite that they come from, each with all that it needs.
    parts: &'static [(&'static str, &'static [&'static str])],
    /// A package that depends on a kernel, and its suite: the kernel's package is unpacked without
    /// what it depends on.
    kernel: Option<(&'static str, &'static str)>,
    /// What to do where it cannot be had.
    remedy: &'static str,
}

/// A QEMU that has a vfio-user client (10.1 or newer), from the backports of the stable suite; and
/// the newest kernel that is built for virtual machines: a third of the size of the one for all
/// hardware.
pub const QEMU: Recipe = Recipe {
    name: "tree",
    parts: &[
        ("trixie-backports", &["qemu-system-x86"]),
        ("trixie", &["busybox-static", "xz-utils", "zstd"]),
    ],
    kernel: Some(("trixie", "linux-image-cloud-amd64")),
    remedy: "no QEMU with vfio-user-pci (10.1 or newer) and a kernel for it could be had.\n  \
             Either install qemu-system-x86 10.1 or newer, busybox-static and a kernel with its modules, \
             or name them: QEMU=/path/to/qemu-system-x86_64 KERNEL=/path/to/vmlinuz [KERNEL_MODULES=/lib/modules/VERSION]",
};

/// What tries the model as stock Linux would: the programs of rdma-core and what goes with them.
pub const USERLAND: Recipe = Recipe {
    name: "userland",
    parts: &[(
        "trixie",
        &[
            "rdma-core",
            "ibverbs-providers",
            "ibverbs-utils",
            "rdmacm-utils",
            "perftest",
            "infiniband-diags",
            "opensm",
            "python3-pyverbs",
            "iproute2",
            "ethtool",
            "iputils-ping",
            "iperf3",
            "pciutils",
            "busybox-static",
        ],
    )],
    kernel: None,
    remedy: "the programs that stock Linux is tried with could not be had (run without --linux to do without)",
};

/// DAT as a distribution ships it: the registry with its headers, the programs, and what has them
/// print line by line. The newest release that has them.
pub const DAPL: Recipe = Recipe {
    name: "dapl",
    parts: &[("bookworm", &["dapl2-utils", "libdapl2", "libdapl-dev", "coreutils"])],
    kernel: None,
    remedy: "the DAT programs of Debian 12 could not be had",
};

/// What rdma-core's tests of DevX put commands together with. They read the first 8 bytes of an entry
/// of an event queue and leave the rest to scapy, which since 2.6 wants all of them: this is the newest
/// before.
pub const SCAPY: Recipe = Recipe {
    name: "scapy",
    parts: &[("bookworm", &["python3-scapy"])],
    kernel: None,
    remedy: "scapy, which tests of rdma-core import, could not be had",
};

/// Firmware that boots over networks, InfiniBand among them.
pub const IPXE: Recipe = Recipe {
    name: "ipxe",
    parts: &[("trixie", &["ipxe"])],
    kernel: None,
    remedy: "iPXE could not be had",
};

/// Machines of other CPUs, of the release of [`QEMU`], and UEFI firmware.
pub const MACHINES: Recipe = Recipe {
    name: "machines",
    parts: &[
        ("trixie-backports", &["qemu-system-arm", "qemu-system-riscv"]),
        ("trixie", &["ovmf", "qemu-efi-aarch64"]),
    ],
    kernel: None,
    remedy: "QEMU for aarch64 and riscv64 (10.1 or newer) and UEFI firmware could not be had",
};

/// The kernels for all hardware, by the version that their names begin with. The one for virtual
/// machines has no Soft-RoCE.
pub const KERNELS: [(&str, Recipe); 2] = [
    (
        "6.12",
        Recipe {
            name: "linux-6.12",
            parts: &[],
            kernel: Some(("trixie", "linux-image-amd64")),
            remedy: "stock Linux 6.12 could not be had (run without --linux to do without)",
        },
    ),
    (
        "6.1",
        Recipe {
            name: "linux-6.1",
            parts: &[],
            kernel: Some(("bookworm", "linux-image-amd64")),
            remedy: "stock Linux 6.1 could not be had (run without --kernel 6.1 to do without)",
        },
    ),
];

/// Where the libraries stand in the tree.
pub const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// The file that tells what a tree was made of.
const MARK: &str = ".recipe";

/// The unpacked tree.
#[derive(Debug, Clone)]
pub struct Tree(PathBuf);

impl Tree {
    /// Where the loader stands.
    pub const LOADER: &str = "usr/lib64/ld-linux-x86-64.so.2";

    /// The folder below which everything stands.
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// A command that runs a program of the tree with the tree's loader and libraries.
    pub fn command(&self, program: &str) -> Vec<OsString> {
        vec![
            self.0.join(Self::LOADER).into(),
            "--library-path".into(),
            self.0.join(LIBRARIES).into(),
            self.0.join("usr/bin").join(program).into(),
        ]
    }

    /// The libraries that a file of the tree is loaded with, as files of the tree; none, if it is
    /// no program.
    pub fn libraries(&self, file: &Path) -> Result<Vec<PathBuf>> {
        let file = self.0.join(file);
        let mut list = Command::new(self.0.join(Self::LOADER));
        list.arg("--library-path").arg(self.0.join(LIBRARIES)).arg("--list").arg(&file);
        let own = |path: PathBuf| path.strip_prefix(&self.0).map(Path::to_path_buf).ok();
        Ok(programs::loaded(list)?.into_iter().filter_map(own).collect())
    }

    /// The recipe that it was made by.
    pub fn made(&self) -> Result<String> {
        Ok(fs::read_to_string(self.0.join(MARK))?)
    }
}

/// Held while something is looked for and unpacked: of several threads that want it, one does the
/// work.
static UNPACKS: Mutex<()> = Mutex::new(());

/// Waits until no other thread unpacks anything.
pub fn alone() -> MutexGuard<'static, ()> {
    UNPACKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tree of a recipe below `folder`: the one that is there, or a new one.
pub fn tree(folder: &Path, recipe: &Recipe) -> Result<Tree> {
    let _alone = alone();
    let root = folder.join(recipe.name);
    let mark = root.join(MARK);
    let written = format!("{:?} {:?}\n", recipe.parts, recipe.kernel);
    if fs::read_to_string(&mark).is_ok_and(|made| made == written) {
        return Ok(Tree(root));
    }
    make(folder, &root, recipe).context(recipe.remedy)?;
    fs::write(&mark, written)?;
    Ok(Tree(root))
}

fn make(folder: &Path, root: &Path, recipe: &Recipe) -> Result<()> {
    let of_parts = recipe.parts.iter().map(|(suite, _)| *suite);
    let mut suites: Vec<&str> = of_parts.chain(recipe.kernel.map(|(suite, _)| suite)).collect();
    suites.sort_unstable();
    suites.dedup();
    let apt = Apt::new(folder, &suites)?;
    apt.update()?;
    let mut debs = Vec::new();
    for (suite, packages) in recipe.parts {
        debs.extend(apt.download(suite, packages)?);
    }
    if let Some((_, package)) = recipe.kernel {
        debs.push(apt.kernel(package)?);
    }
    debs.sort();
    debs.dedup();
    unpack(&debs, root)?;
    apt.remove()
}

/// Packages into a new folder.
pub fn unpack(debs: &[PathBuf], root: &Path) -> Result<()> {
    println!("  unpacking {} packages into {}", debs.len(), root.display());
    if root.exists() {
        fs::remove_dir_all(root)?;
    }
    fs::create_dir_all(root)?;
    for deb in debs {
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("--extract").arg(deb).arg(root);
        run::silent(unpack)?;
    }
    Ok(())
}

/// The name of the machine's Debian release.
pub fn codename() -> Result<String> {
    ensure!(cfg!(target_arch = "x86_64"), "packages are unpacked on x86-64 machines only");
    let os = fs::read_to_string("/etc/os-release").context("this is no Linux distribution")?;
    let field = |name: &str| {
        os.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .map(|value| value.trim_matches('"').to_owned())
    };
    ensure!(
        field("ID").as_deref() == Some("debian"),
        "packages are unpacked on Debian only, this is {}",
        field("PRETTY_NAME").unwrap_or_else(|| "another system".into())
    );
    field("VERSION_CODENAME").ok_or_else(|| anyhow!("the release has no name"))
}

/// The entry of a suite's packages in apt's sources: on the machine's own mirror.
pub(super) fn source(suite: &str) -> Result<String> {
    entry("deb", suite)
}

fn entry(types: &str, suites: &str) -> Result<String> {
    let (uri, keys) = mirror(&codename()?)?;
    let mut source = format!("Types: {types}\nURIs: {uri}\nSuites: {suites}\nComponents: main\n");
    if let Some(keys) = keys {
        source.push_str(&format!("Signed-By: {keys}\n"));
    }
    Ok(source)
}

/// The machine's ways of fetching (proxies, time limits), as lines of apt's configuration. Its hooks
/// and its state are left out.
pub(super) fn acquire() -> Result<String> {
    let mut dump = Command::new("apt-config");
    dump.arg("dump");
    let machine = run::silent(dump)?;
    let is_way =
        |line: &&str| line.starts_with("Acquire::") && !line.starts_with("Acquire::IndexTargets");
    Ok(machine.lines().filter(is_way).map(|line| format!("{line}\n")).collect())
}

/// apt in a state of its own.
#[derive(Debug)]
pub struct Apt {
    folder: PathBuf,
    conf: PathBuf,
}

impl Apt {
    /// Below `parent`, with the packages of `suites` as the machine's own mirror has them.
    pub fn new(parent: &Path, suites: &[&str]) -> Result<Self> {
        Self::of(parent, "deb", suites)
    }

    /// The same for source packages.
    pub(super) fn of_sources(parent: &Path, suites: &[&str]) -> Result<Self> {
        Self::of(parent, "deb-src", suites)
    }

    fn of(parent: &Path, types: &str, suites: &[&str]) -> Result<Self> {
        let folder = parent.join("apt");
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        for place in ["lists/partial", "archives/partial", "sources", "kernel"] {
            fs::create_dir_all(folder.join(place))?;
        }
        fs::write(folder.join("status"), "")?;
        fs::write(folder.join("sources/qemu.sources"), entry(types, &suites.join(" "))?)?;
        let mut conf = acquire()?;
        let at = |place: &str| folder.join(place).display().to_string();
        for (name, value) in [
            ("Dir::Etc::main", "/dev/null".to_owned()),
            ("Dir::Etc::parts", "/dev/null".to_owned()),
            ("Dir::Etc::preferences", "/dev/null".to_owned()),
            ("Dir::Etc::preferencesparts", "/dev/null".to_owned()),
            ("Dir::Etc::sourcelist", "/dev/null".to_owned()),
            ("Dir::Etc::sourceparts", at("sources")),
            ("Dir::State", at("")),
            ("Dir::State::lists", at("lists")),
            ("Dir::State::status", at("status")),
            ("Dir::Cache", at("")),
            ("Dir::Cache::archives", at("archives")),
            ("APT::Architecture", "amd64".to_owned()),
            ("APT::Sandbox::User", "root".to_owned()),
            ("APT::Install-Recommends", "false".to_owned()),
            ("Acquire::Languages", "none".to_owned()),
            ("Acquire::Retries", "3".to_owned()),
            ("Acquire::http::Timeout", "30".to_owned()),
            ("Acquire::https::Timeout", "30".to_owned()),
        ] {
            conf.push_str(&format!("{name} \"{value}\";\n"));
        }
        let path = folder.join("apt.conf");
        fs::write(&path, conf)?;
        Ok(Self { folder, conf: path })
    }

    /// Returns a command that runs a program of apt under this configuration.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("APT_CONFIG", &self.conf)
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .current_dir(self.fetched());
        command
    }

    /// The folder in which commands run and into which they download.
    pub(super) fn fetched(&self) -> PathBuf {
        self.folder.join("kernel")
    }

    /// Deletes lists and archives.
    pub(super) fn remove(self) -> Result<()> {
        Ok(fs::remove_dir_all(self.folder)?)
    }

    /// Reads the mirror's lists.
    pub fn update(&self) -> Result<()> {
        let mut update = self.command("apt-get");
        update.args(["update", "-qq", "-o", "APT::Update::Error-Mode=any"]);
        run::capture(update)
            .map(drop)
            .context(
                "the machine's package mirror did not give what is needed (a signature that cannot be verified means: \
                 install a newer debian-archive-keyring)",
            )
    }

    /// Packages of a suite with all that they need, in the archive folder.
    pub fn download(&self, suite: &str, packages: &[&str]) -> Result<Vec<PathBuf>> {
        let mut get = self.command("apt-get");
        get.args(["install", "-qq", "-y", "--download-only", "-t", suite]).args(packages);
        run::capture(get)?;
        found(&self.folder.join("archives"))
    }

    /// The kernel's own package, without the tools that an installed system needs around it.
    fn kernel(&self, package: &str) -> Result<PathBuf> {
        self.one(&self.dependency(package, "linux-image-")?)
    }

    /// The package that another depends on, by how its name begins.
    pub fn dependency(&self, package: &str, prefix: &str) -> Result<String> {
        let mut depends = self.command("apt-cache");
        depends.args(["depends", "--important", package]);
        let text = run::silent(depends)?;
        let name = text.lines().find_map(|line| {
            let name = line.trim().strip_prefix("Depends: ")?;
            name.starts_with(prefix).then_some(name)
        });
        name.map(str::to_owned).ok_or_else(|| anyhow!("{package} depends on no {prefix}*"))
    }

    /// One package (`name` or `name=version`), without what it depends on.
    pub fn one(&self, package: &str) -> Result<PathBuf> {
        let mut get = self.command("apt-get");
        get.args(["download", "-qq", package]);
        run::capture(get)?;
        self.downloaded()?.pop().ok_or_else(|| anyhow!("apt-get has downloaded no {package}"))
    }

    /// The packages that [`Apt::one`] has fetched.
    pub fn downloaded(&self) -> Result<Vec<PathBuf>> {
        found(&self.fetched())
    }
}

fn found(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut debs = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "deb") {
            debs.push(path);
        }
    }
    Ok(debs)
}

/// The mirror that serves this machine's own release, and the keys that its entry names.
fn mirror(codename: &str) -> Result<(String, Option<String>)> {
    let mut targets = Command::new("apt-get");
    // Also on a machine that has never fetched a list: nothing is asked of what was downloaded.
    targets.args([
        "indextargets",
        "--no-release-info",
        "--format",
        "$(RELEASE)|$(COMPONENT)|$(REPO_URI)|$(SOURCESENTRY)",
        "Created-By: Packages",
    ]);
    let text = run::silent(targets).context("apt does not tell its sources")?;
    let Some((uri, entry)) = text.lines().find_map(|line| {
        let mut parts = line.split('|');
        let own = parts.next() == Some(codename) && parts.next() == Some("main");
        own.then(|| Some((parts.next()?, parts.next()?)))?
    }) else {
        bail!("the machine's package sources do not name {codename} main");
    };
    let keys = entry
        .rsplit_once(':')
        .and_then(|(file, _)| fs::read_to_string(file).ok())
        .and_then(|text| signed_by(&text));
    Ok((uri.to_owned(), keys))
}

/// The key file of a source, in either notation. Keys that stand in the source itself are left out.
fn signed_by(source: &str) -> Option<String> {
    source
        .split(|c: char| c.is_whitespace() || c == '[' || c == ']')
        .scan("", |before, word| {
            let value = match *before {
                "Signed-By:" => Some(word),
                _ => word.strip_prefix("signed-by="),
            };
            if !word.is_empty() {
                *before = word;
            }
            Some(value.filter(|path| path.starts_with('/')))
        })
        .flatten()
        .next()
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::signed_by;

    #[test]
    fn both_notations_of_a_key_file_are_read() {
        let new = "Types: deb\nURIs: http://a/\nSigned-By: /usr/share/keyrings/a.gpg\n";
        let old = "deb [arch=amd64 signed-by=/usr/share/keyrings/a.gpg] http://a/ stable main\n";
        for text in [new, old] {
            assert_eq!(signed_by(text).as_deref(), Some("/usr/share/keyrings/a.gpg"));
        }
        assert_eq!(signed_by("deb http://a/ stable main\n"), None);
        assert_eq!(signed_by("Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n"), None);
    }
}
