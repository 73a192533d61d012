//! Clean root file systems of Debian releases, in which packages are installed and programs run as
//! on a new machine: made by mmdebstrap from the machine's own package sources, entered by chroot
//! in a mount namespace of their own. Both take root's rights.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::packages::{self, alone};
use crate::run;

/// The file beside a root that tells what it was made of.
const MARK: &str = "recipe";
/// What a program in a root finds of the machine's network: name servers and certificates.
const NETWORK: [&str; 2] = ["/etc/resolv.conf", "/etc/ssl/certs"];
/// What a root sees of the machine's environment: how programs reach a network.
const VARIABLES: [&str; 6] =
    ["http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];
/// Mounts the folders that come as pairs of arguments, and runs the script in the root.
const ENTER: &str = r#"set -e
root=$1 script=$2; shift 2
while [ $# -gt 1 ]; do
    if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$root${2%/*}"; touch "$root$2"; fi
    mount --bind "$1" "$root$2"; shift 2
done
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmp "$root/tmp"
exec chroot "$root" /bin/sh -c "$script""#;

/// An unpacked and configured release.
#[derive(Debug, Clone)]
pub struct Root {
    folder: PathBuf,
    binds: Vec<(PathBuf, PathBuf)>,
}

impl Root {
    /// Returns the root of a release with some packages below `folder`, made if it is not there.
    ///
    /// # Errors
    ///
    /// mmdebstrap or root's rights are missing, or the mirror does not give a package.
    pub fn kept(folder: &Path, name: &str, suite: &str, packages: &[&str]) -> Result<Self> {
        let _alone = alone();
        let folder = folder.join("roots");
        let root = folder.join(name);
        let mark = folder.join(format!("{name}.{MARK}"));
        let written = format!("{suite} {packages:?}\n");
        if !fs::read_to_string(&mark).is_ok_and(|made| made == written) {
            make(&folder, &root, suite, packages)?;
            fs::write(&mark, written)?;
        }
        Ok(Self { folder: root, binds: Vec::new() })
    }

    /// Returns a new root, without what earlier runs left in it.
    ///
    /// # Errors
    ///
    /// As [`Root::kept`].
    pub fn fresh(folder: &Path, name: &str, suite: &str, packages: &[&str]) -> Result<Self> {
        let _alone = alone();
        let folder = folder.join("roots");
        let root = folder.join(name);
        make(&folder, &root, suite, packages)?;
        Ok(Self { folder: root, binds: Vec::new() })
    }

    /// The folder of the root.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Shows a folder or a file of the machine in the root, at the same or another path.
    #[must_use]
    pub fn with(mut self, outside: &Path, inside: &Path) -> Self {
        self.binds.push((outside.to_path_buf(), inside.to_path_buf()));
        self
    }

    /// Returns a command that runs a shell script in the root, as root and with a clean environment.
    pub fn command(&self, script: &str) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--", "/bin/sh", "-c", ENTER]);
        command.arg("sh").arg(&self.folder).arg(script);
        for file in NETWORK.map(Path::new).iter().filter(|file| file.exists()) {
            command.arg(file).arg(file);
        }
        for (outside, inside) in &self.binds {
            command.arg(outside).arg(inside);
        }
        command.env_clear();
        for name in VARIABLES {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.envs([("HOME", "/root"), ("LC_ALL", "C.UTF-8"), ("TERM", "dumb")]);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Runs a script and returns what it prints to its standard output.
    ///
    /// # Errors
    ///
    /// The script failed; its output has been printed.
    pub fn run(&self, script: &str) -> Result<String> {
        println!("  # {}", script.lines().next().unwrap_or_default());
        run::silent(self.command(script)).with_context(|| format!("in {}", self.folder.display()))
    }

    /// The files of the root, sorted, without those of running kernels, caches and logs.
    ///
    /// # Errors
    ///
    /// The root cannot be read.
    pub fn files(&self) -> Result<Vec<String>> {
        let mut find = Command::new("find");
        find.arg(&self.folder).args(["-xdev", "-printf", "%P\n"]);
        let text = run::silent(find)?;
        let aside = ["proc/", "dev/", "sys/", "tmp/", "run/", "var/cache/", "var/log/"];
        let counts = |file: &&str| !file.is_empty() && !aside.iter().any(|a| file.starts_with(a));
        let mut files: Vec<String> = text.lines().filter(counts).map(str::to_owned).collect();
        files.sort();
        Ok(files)
    }
}

fn make(folder: &Path, root: &Path, suite: &str, packages: &[&str]) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "clean roots of Debian are made and entered by root only: run this as root"
    );
    fs::create_dir_all(folder)?;
    if root.exists() {
        fs::remove_dir_all(root)?;
    }
    let sources = folder.join("debian.sources");
    fs::write(&sources, packages::source(suite)?)?;
    let options = folder.join("apt.conf");
    fs::write(&options, format!("{}APT::Install-Recommends \"false\";\n", packages::acquire()?))?;
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--mode=root", "--variant=minbase", "--format=directory"]);
    make.arg(format!("--aptopt={}", options.display()));
    if !packages.is_empty() {
        make.arg(format!("--include={}", packages.join(",")));
    }
    make.arg(suite).arg(root).arg(&sources);
    run::capture(make).context("install mmdebstrap, and look whether apt reaches its mirror")?;
    Ok(())
}
