//! An unprivileged tree of the distribution's packages, for a machine whose own QEMU is too old or absent.
//!
//! apt itself does the work, in a state of its own below `target/`: the machine's mirror, proxies, credentials and
//! archive keys are read from the machine's configuration at run time, only the suite is another one. Nothing is
//! installed: the packages are unpacked, and QEMU runs under the tree's own loader and libraries.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::run;

/// The suites that have a QEMU with a vfio-user client (10.1 or newer): the stable one, and above it its backports.
const SUITES: [&str; 2] = ["trixie", "trixie-backports"];
/// What is unpacked from the newer suite, with all that it needs.
const FROM_BACKPORTS: [&str; 1] = ["qemu-system-x86"];
/// What is unpacked from the older one.
const FROM_STABLE: [&str; 3] = ["busybox-static", "xz-utils", "zstd"];
/// Depends on the newest kernel that is built for virtual machines: a third of the size of the one for all hardware.
const KERNEL: &str = "linux-image-cloud-amd64";
/// Where the loader stands in the tree, and the libraries.
const LOADER: &str = "usr/lib64/ld-linux-x86-64.so.2";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// The unpacked tree.
#[derive(Debug, Clone)]
pub(crate) struct Tree(PathBuf);

impl Tree {
    /// The folder below which everything stands.
    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    /// A command that runs a program of the tree with the tree's loader and libraries.
    pub(crate) fn command(&self, program: &str) -> Vec<OsString> {
        vec![
            self.0.join(LOADER).into(),
            "--library-path".into(),
            self.0.join(LIBRARIES).into(),
            self.0.join("usr/bin").join(program).into(),
        ]
    }
}

/// The tree below `folder`: the one that is there, or a new one.
pub(crate) fn tree(folder: &Path) -> Result<Tree> {
    let root = folder.join("tree");
    let mark = root.join(".recipe");
    let recipe = format!("{SUITES:?} {FROM_BACKPORTS:?} {FROM_STABLE:?} {KERNEL}\n");
    if fs::read_to_string(&mark).is_ok_and(|made| made == recipe) {
        return Ok(Tree(root));
    }
    make(folder, &root).context(
        "no QEMU with vfio-user-pci (10.1 or newer) and a kernel for it could be had.\n  \
         Either install qemu-system-x86 10.1 or newer, busybox-static and a kernel with its modules, \
         or name them: QEMU=/path/to/qemu-system-x86_64 KERNEL=/path/to/vmlinuz [KERNEL_MODULES=/lib/modules/VERSION]",
    )?;
    fs::write(&mark, recipe)?;
    Ok(Tree(root))
}

fn make(folder: &Path, root: &Path) -> Result<()> {
    let apt = Apt::new(folder, &SUITES)?;
    apt.update()?;
    let mut debs = apt.download(SUITES[1], &FROM_BACKPORTS)?;
    debs.extend(apt.download(SUITES[0], &FROM_STABLE)?);
    debs.push(apt.kernel()?);
    debs.sort();
    debs.dedup();
    unpack(&debs, root)?;
    fs::remove_dir_all(&apt.folder)?;
    Ok(())
}

/// Packages into a new folder.
pub(crate) fn unpack(debs: &[PathBuf], root: &Path) -> Result<()> {
    println!(
        "  unpacking {} packages into {}",
        debs.len(),
        root.display()
    );
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
pub(crate) fn codename() -> Result<String> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        "packages are unpacked on x86-64 machines only"
    );
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

/// apt in a state of its own.
pub(crate) struct Apt {
    folder: PathBuf,
    conf: PathBuf,
}

impl Apt {
    /// Below `parent`, with the packages of `suites` as the machine's own mirror has them.
    pub(crate) fn new(parent: &Path, suites: &[&str]) -> Result<Self> {
        let folder = parent.join("apt");
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        for place in ["lists/partial", "archives/partial", "sources", "kernel"] {
            fs::create_dir_all(folder.join(place))?;
        }
        fs::write(folder.join("status"), "")?;
        let (uri, keys) = mirror(&codename()?)?;
        let mut source = format!(
            "Types: deb\nURIs: {uri}\nSuites: {}\nComponents: main\n",
            suites.join(" ")
        );
        if let Some(keys) = keys {
            source.push_str(&format!("Signed-By: {keys}\n"));
        }
        fs::write(folder.join("sources/qemu.sources"), source)?;

        // The machine's ways of fetching (proxies, time limits) hold here too; its hooks and its state do not.
        let mut dump = Command::new("apt-config");
        dump.arg("dump");
        let machine = run::silent(dump)?;
        let mut conf = String::new();
        for line in machine.lines() {
            if line.starts_with("Acquire::") && !line.starts_with("Acquire::IndexTargets") {
                conf.push_str(line);
                conf.push('\n');
            }
        }
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

    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("APT_CONFIG", &self.conf)
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .current_dir(self.folder.join("kernel"));
        command
    }

    /// Reads the mirror's lists.
    pub(crate) fn update(&self) -> Result<()> {
        let mut update = self.command("apt-get");
        update.args(["update", "-qq", "-o", "APT::Update::Error-Mode=any"]);
        run::quiet(update)
            .map(drop)
            .context(
                "the machine's package mirror did not give what is needed (a signature that cannot be verified means: \
                 install a newer debian-archive-keyring)",
            )
    }

    /// Packages of a suite with all that they need, in the archive folder.
    pub(crate) fn download(&self, suite: &str, packages: &[&str]) -> Result<Vec<PathBuf>> {
        let mut get = self.command("apt-get");
        get.args(["install", "-qq", "-y", "--download-only", "-t", suite])
            .args(packages);
        run::quiet(get)?;
        found(&self.folder.join("archives"))
    }

    /// The kernel's own package, without the tools that an installed system needs around it.
    fn kernel(&self) -> Result<PathBuf> {
        let mut depends = self.command("apt-cache");
        depends.args(["depends", "--important", KERNEL]);
        let text = run::silent(depends)?;
        let image = text
            .lines()
            .find_map(|line| {
                let name = line.trim().strip_prefix("Depends: ")?;
                name.starts_with("linux-image-").then_some(name)
            })
            .ok_or_else(|| anyhow!("{KERNEL} depends on no kernel"))?;
        self.one(image)
    }

    /// One package (`name` or `name=version`), without what it depends on.
    pub(crate) fn one(&self, package: &str) -> Result<PathBuf> {
        let mut get = self.command("apt-get");
        get.args(["download", "-qq", package]);
        run::quiet(get)?;
        found(&self.folder.join("kernel"))?
            .pop()
            .ok_or_else(|| anyhow!("apt-get has downloaded no {package}"))
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
            assert_eq!(
                signed_by(text).as_deref(),
                Some("/usr/share/keyrings/a.gpg")
            );
        }
        assert_eq!(signed_by("deb http://a/ stable main\n"), None);
        assert_eq!(
            signed_by("Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n"),
            None
        );
    }
}
