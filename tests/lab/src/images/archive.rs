//! The guest's first file system: a `newc` cpio archive, as the kernel takes it (initramfs buffer
//! format).

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};

/// Modes of what is put in.
const DIRECTORY: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const CHARACTER_DEVICE: u32 = 0o020_600;
/// User and group of what has no other.
const ROOT: (u32, u32) = (0, 0);

/// An archive in the making.
#[derive(Debug, Default, Clone)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    names: BTreeSet<String>,
}

impl Archive {
    /// Whether something of this name is in it.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// A folder. Those around anything are put in as needed.
    pub(crate) fn folder(&mut self, name: &str) -> Result<()> {
        self.entry(name, DIRECTORY, ROOT, (0, 0), &[])
    }

    /// A file that anybody may run.
    pub(crate) fn file(&mut self, name: &str, content: &[u8]) -> Result<()> {
        self.entry(name, EXECUTABLE, ROOT, (0, 0), content)
    }

    /// A symbolic link.
    pub(crate) fn link(&mut self, name: &str, to: &str) -> Result<()> {
        self.entry(name, LINK, ROOT, (0, 0), to.as_bytes())
    }

    /// A character device.
    pub(crate) fn device(&mut self, name: &str, major: u32, minor: u32) -> Result<()> {
        self.entry(name, CHARACTER_DEVICE, ROOT, (major, minor), &[])
    }

    /// Folders, files and links below `root` with their rights, but what stands below a folder of
    /// `without`. A file of two names is two files.
    pub(crate) fn tree(&mut self, root: &Path, without: &[&str]) -> Result<()> {
        let mut folders = vec![root.to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).with_context(|| format!("{}", folder.display()))? {
                let path = entry?.path();
                let name = path.strip_prefix(root)?.to_str().context("a name that is no text")?;
                let about = fs::symlink_metadata(&path)?;
                let content = if about.is_symlink() {
                    fs::read_link(&path)?.into_os_string().into_encoded_bytes()
                } else if about.is_file() {
                    fs::read(&path).with_context(|| format!("{}", path.display()))?
                } else if about.is_dir() {
                    Vec::new()
                } else {
                    continue;
                };
                let owner = (about.uid(), about.gid());
                self.entry(name, about.mode(), owner, (0, 0), &content)?;
                if about.is_dir() && !without.contains(&name) {
                    folders.push(path);
                }
            }
        }
        Ok(())
    }

    /// The whole archive.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>> {
        self.entry("TRAILER!!!", 0, ROOT, (0, 0), &[])?;
        Ok(self.bytes)
    }

    fn entry(
        &mut self,
        name: &str,
        mode: u32,
        (user, group): (u32, u32),
        (major, minor): (u32, u32),
        content: &[u8],
    ) -> Result<()> {
        if let Some((folder, _)) = name.rsplit_once('/') {
            if !self.has(folder) {
                self.folder(folder)?;
            }
        }
        self.names.insert(name.to_owned());
        self.entries += 1;
        let size = u32::try_from(content.len()).context("a file of 4 GiB")?;
        let name_size = u32::try_from(name.len() + 1)?;
        let time = 0;
        let fields = [
            self.entries, // inode
            mode,
            user,
            group,
            1, // links
            time,
            size,
            0, // the disk that it is on
            0,
            major,
            minor,
            name_size,
            0, // checksum, of another variant
        ];
        self.bytes.write_all(b"070701")?;
        for field in fields {
            write!(self.bytes, "{field:08x}")?;
        }
        self.bytes.write_all(name.as_bytes())?;
        self.bytes.push(0);
        self.align();
        self.bytes.write_all(content)?;
        self.align();
        Ok(())
    }

    fn align(&mut self) {
        let len = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(len, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn entries_are_laid_out_as_the_kernel_reads_them() {
        let mut archive = Archive::default();
        archive.file("init", b"hello").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[14..22], b"000081ed", "mode");
        assert_eq!(&bytes[54..62], b"00000005", "size");
        assert_eq!(&bytes[94..102], b"00000005", "length of the name");
        assert_eq!(&bytes[110..115], b"init\0");
        assert_eq!(&bytes[116..121], b"hello");
        assert_eq!(&bytes[124..130], b"070701", "the trailer is aligned");
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn folders_come_before_what_is_in_them_and_once() {
        let mut archive = Archive::default();
        archive.file("a/b/one", b"").unwrap();
        archive.link("a/b/two", "one").unwrap();
        assert!(archive.has("a/b") && !archive.has("b"));
        let bytes = archive.finish().unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let at = |name: &str| text.find(name).unwrap();
        assert!(at("a\0") < at("a/b\0") && at("a/b\0") < at("a/b/one\0"));
        assert_eq!(text.matches("a/b\0").count(), 1);
    }
}
