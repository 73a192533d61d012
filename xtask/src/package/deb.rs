//! What stands in the package, and the archive.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use dat_lab::run;

use super::{epoch, put, sbom};

/// The name of the package.
pub(super) const NAME: &str = "dat-mlx5";
/// Revision of the packaging of one version.
const REVISION: u32 = 1;
/// Who answers for the package, unless `DEBFULLNAME` and `DEBEMAIL` say otherwise.
const MAINTAINER: (&str, &str) = ("dat-mlx5 maintainers", "maintainers@dat-mlx5.example");
/// Programs, as cargo names them.
const PROGRAMS: [&str; 2] = ["dat", "mlx5-model"];
/// Files of `packaging/` and their names in the package.
const FILES: [(&str, &str); 3] = [
    ("60-dat-mlx5.rules", "usr/lib/udev/rules.d/60-dat-mlx5.rules"),
    ("dat-listen@.service", "usr/lib/systemd/system/dat-listen@.service"),
    ("vfio-ids.conf", "usr/share/doc/dat-mlx5/examples/vfio-ids.conf"),
];

/// A package that was built.
#[derive(Debug)]
pub(super) struct Deb(PathBuf);

impl Deb {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn hash(&self) -> Result<String> {
        let mut sum = Command::new("sha256sum");
        sum.arg(&self.0);
        let text = run::silent(sum)?;
        Ok(text.split(' ').next().unwrap_or_default().to_owned())
    }

    /// The package that an earlier run has built.
    pub(super) fn existing(folder: &Path) -> Result<Self> {
        let path = folder.join(file_name()?);
        ensure!(path.exists(), "{} is not there: `cargo xtask package` builds it", path.display());
        Ok(Self(path))
    }
}

fn version() -> String {
    format!("{}-{REVISION}", env!("CARGO_PKG_VERSION"))
}

fn architecture(of: &str) -> Result<String> {
    let mut query = Command::new("dpkg-architecture");
    query.args(["-q", of]);
    Ok(run::silent(query).context("install dpkg-dev")?.trim().to_owned())
}

fn file_name() -> Result<String> {
    Ok(format!("{NAME}_{}_{}.deb", version(), architecture("DEB_HOST_ARCH")?))
}

/// Where the provider stands: it is loaded by a path, never linked with.
pub(super) fn libraries() -> Result<String> {
    Ok(format!("/usr/lib/{}/{NAME}", architecture("DEB_HOST_MULTIARCH")?))
}

/// Writes the package of the programs in `built` into `folder`.
pub(super) fn write(root: &Path, built: &Path, folder: &Path) -> Result<Deb> {
    let tree = folder.join("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    fs::create_dir_all(&tree)?;
    let libraries = libraries()?;
    let mut binaries = Vec::new();
    for name in PROGRAMS {
        binaries.push(put(&tree, &format!("usr/bin/{name}"), &fs::read(built.join(name))?)?);
    }
    let provider = format!("{}/libdapldat.so", libraries.trim_start_matches('/'));
    binaries.push(put(&tree, &provider, &fs::read(built.join("libdapldat.so"))?)?);

    let mut pages = Command::new(built.join("pages"));
    pages.arg(&tree);
    run::capture(pages)?;
    let packaging = root.join("packaging");
    for (from, to) in FILES {
        put(&tree, to, &fs::read(packaging.join(from)).with_context(|| from.to_owned())?)?;
    }
    fs::create_dir_all(tree.join("etc/dat-mlx5"))?;
    let doc = format!("usr/share/doc/{NAME}");
    let text = |name: &str| fs::read_to_string(packaging.join("debian").join(name));
    let readme = text("README.Debian")?.replace("@LIBRARIES@", &libraries);
    put(&tree, &format!("{doc}/README.Debian"), readme.as_bytes())?;
    let mit = indented(&fs::read_to_string(root.join("LICENSE-MIT"))?);
    let copyright = text("copyright")?.replace("@MIT@", &mit);
    put(&tree, &format!("{doc}/copyright"), copyright.as_bytes())?;
    put(&tree, &format!("{doc}/changelog"), &fs::read(root.join("CHANGELOG.md"))?)?;
    put(&tree, &format!("{doc}/changelog.Debian"), changelog()?.as_bytes())?;
    put(&tree, &format!("{doc}/sbom.cdx.json"), sbom::of(root)?.as_bytes())?;
    compress(&tree.join("usr/share/man/man1"))?;
    compress_file(&tree.join(&doc).join("changelog"))?;
    compress_file(&tree.join(&doc).join("changelog.Debian"))?;

    let control = text("control")?
        .replace("@VERSION@", &version())
        .replace("@ARCHITECTURE@", &architecture("DEB_HOST_ARCH")?)
        .replace("@SIZE@", &size(&tree)?)
        .replace("@DEPENDS@", &depends(folder, &binaries)?)
        .replace("@MAINTAINER@", &maintainer());
    put(&tree, "DEBIAN/control", control.as_bytes())?;
    let sums = sums(&tree)?;
    put(&tree, "DEBIAN/md5sums", sums.as_bytes())?;
    modes(&tree, &binaries[..PROGRAMS.len()])?;

    let deb = folder.join(file_name()?);
    let mut write = Command::new("dpkg-deb");
    // One thread: the archive is then the same on machines with more or fewer.
    write.args(["--root-owner-group", "--threads-max=1", "--build"]).arg(&tree).arg(&deb);
    write.env("SOURCE_DATE_EPOCH", epoch()?);
    run::capture(write)?;
    Ok(Deb(deb))
}

fn maintainer() -> String {
    let of = |name: &str, or: &str| std::env::var(name).unwrap_or_else(|_| or.to_owned());
    format!("{} <{}>", of("DEBFULLNAME", MAINTAINER.0), of("DEBEMAIL", MAINTAINER.1))
}

/// Debian's changelog: that of the packaging.
fn changelog() -> Result<String> {
    let mut date = Command::new("date");
    date.args(["-u", "-R", "-d", &format!("@{}", epoch()?)]).env("LC_ALL", "C");
    let date = run::silent(date)?;
    Ok(format!(
        "{NAME} ({}) unstable; urgency=medium\n\n  * Release {}; changelog.gz says what is new.\n\n -- {}  {date}",
        version(),
        env!("CARGO_PKG_VERSION"),
        maintainer()
    ))
}

/// Text as a field of a control file has it.
fn indented(text: &str) -> String {
    let line = |line: &str| if line.is_empty() { " .".to_owned() } else { format!(" {line}") };
    text.trim().lines().map(line).collect::<Vec<_>>().join("\n")
}

/// What the binaries are linked with, as dependencies.
fn depends(folder: &Path, binaries: &[PathBuf]) -> Result<String> {
    // The tool wants to stand in a source package.
    let work = folder.join("shlibdeps");
    put(
        &work,
        "debian/control",
        format!("Source: {NAME}\n\nPackage: {NAME}\nArchitecture: any\n").as_bytes(),
    )?;
    let mut tool = Command::new("dpkg-shlibdeps");
    tool.arg("-O").args(binaries.iter().map(|file| format!("-e{}", file.display())));
    let text = run::silent({
        tool.current_dir(&work);
        tool
    })?;
    let line = text.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(line.context("dpkg-shlibdeps names no libraries")?.to_owned())
}

fn compress(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        compress_file(&entry?.path())?;
    }
    Ok(())
}

fn compress_file(file: &Path) -> Result<()> {
    let mut gzip = Command::new("gzip");
    // Without name and time of the file.
    gzip.args(["-9", "-n", "-f"]).arg(file);
    run::silent(gzip).map(drop)
}

/// Kilobytes, as dpkg counts them: each file rounded up, and one for each folder.
fn size(tree: &Path) -> Result<String> {
    let mut sum = 0;
    let mut folders = vec![tree.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
                sum += 1;
            } else {
                sum += entry.metadata()?.len().div_ceil(1024);
            }
        }
    }
    Ok(sum.to_string())
}

/// The sums of all files, in the order of their names.
fn sums(tree: &Path) -> Result<String> {
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "find . -path ./DEBIAN -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum",
    ]);
    shell.current_dir(tree);
    Ok(run::silent(shell)?.replace("  ./", "  "))
}

/// The modes of Debian's policy, whatever the umask was.
fn modes(tree: &Path, programs: &[PathBuf]) -> Result<()> {
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    let mut folders = vec![tree.to_path_buf()];
    while let Some(folder) = folders.pop() {
        set(&folder, 0o755)?;
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                set(&path, if programs.contains(&path) { 0o755 } else { 0o644 })?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::indented;

    #[test]
    fn a_text_becomes_a_field_of_a_control_file() {
        assert_eq!(indented("one\n\ntwo\n"), " one\n .\n two");
    }
}
