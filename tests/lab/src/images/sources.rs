//! Sources of packages as their authors released them: the archives that the distribution calls
//! "orig", without the distribution's patches. apt checks them against the signed index.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::packages::{Apt, alone};
use crate::run;

/// A package, and the suite that its source is from.
pub type Wanted = (&'static str, &'static str);

/// An unpacked source.
#[derive(Debug)]
pub struct Source {
    /// Its folder.
    pub root: PathBuf,
    /// The version that its authors gave it.
    pub version: String,
}

/// Returns the sources, in order. Those that are not below `folder` yet are fetched.
pub fn sources(folder: &Path, wanted: &[Wanted]) -> Result<Vec<Source>> {
    let _alone = alone();
    let missing: Vec<Wanted> =
        wanted.iter().copied().filter(|one| existing(folder, *one).is_none()).collect();
    if !missing.is_empty() {
        fetch(folder, &missing)?;
    }
    let found = wanted.iter().map(|one| existing(folder, *one));
    found.collect::<Option<_>>().context("a source was unpacked and is not there")
}

/// The file with the version of a source. It is written last: without it the source is incomplete.
fn mark(folder: &Path, (package, suite): Wanted) -> PathBuf {
    folder.join(format!("{package}-{suite}.version"))
}

fn existing(folder: &Path, wanted: Wanted) -> Option<Source> {
    let version = fs::read_to_string(mark(folder, wanted)).ok()?;
    Some(Source { root: folder.join(wanted.0), version })
}

fn fetch(folder: &Path, wanted: &[Wanted]) -> Result<()> {
    let mut suites: Vec<&str> = wanted.iter().map(|(_, suite)| *suite).collect();
    suites.sort_unstable();
    suites.dedup();
    let apt = Apt::of_sources(folder, &suites)?;
    apt.update()?;
    for one in wanted {
        let (package, suite) = *one;
        let mut get = apt.command("apt-get");
        get.args(["source", "-qq", "--download-only", "--tar-only"]);
        get.arg(format!("{package}/{suite}"));
        run::capture(get)?;
        let (archive, version) = apt.archive(package)?;
        let root = folder.join(package);
        println!("  unpacking {package} {version} into {}", root.display());
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        fs::create_dir_all(&root)?;
        let mut tar = Command::new("tar");
        tar.args(["-x", "--strip-components=1", "-C"]).arg(&root).arg("-f").arg(archive);
        run::silent(tar).context("install tar, gzip and xz-utils")?;
        fs::write(mark(folder, *one), version)?;
    }
    apt.remove()
}

/// The version in the name of an archive, if it is that package's.
fn version(archive: &str, package: &str) -> Option<String> {
    let rest = archive.strip_prefix(package)?.strip_prefix('_')?;
    rest.split_once(".orig.tar.").map(|(version, _)| version.to_owned())
}

impl Apt {
    /// The archive of a source that was fetched, and its version.
    fn archive(&self, package: &str) -> Result<(PathBuf, String)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.fetched())? {
            let entry = entry?;
            if let Some(version) = version(&entry.file_name().to_string_lossy(), package) {
                found.push((entry.path(), version));
            }
        }
        ensure!(found.len() == 1, "apt-get has fetched {} sources of {package}", found.len());
        found.pop().context("no source")
    }
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn a_version_is_read_from_the_name_of_an_archive() {
        let of = |name| version(name, "dapl");
        assert_eq!(of("dapl_2.1.10.1.f1e05b7a.orig.tar.xz").as_deref(), Some("2.1.10.1.f1e05b7a"));
        assert_eq!(of("dapl_2.1.10.1.f1e05b7a-3.dsc"), None);
        assert_eq!(of("dapl-utils_2.1.orig.tar.gz"), None);
    }
}
