//! A kernel's modules: those that a guest needs, unpacked, each behind those that it needs itself.
//!
//! What a module needs stands in the module: an unpacked package has no `modules.dep`, which is
//! made where it is installed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::vmlinux;

/// The field of a module's information that names what must be loaded before it.
const DEPENDS: &[u8] = b"depends=";

/// A module: its name as the kernel writes it, and its file, unpacked.
pub(crate) type Module = (String, Vec<u8>);

/// The modules named and all that they need, in the order of loading. What a kernel does not have
/// is left out: it is built in, or of another version, or it will be missed where it is used.
/// `tool` gives the command of a decompressor.
pub(crate) fn in_order(
    folder: &Path,
    names: &[&str],
    tool: &dyn Fn(&str) -> Result<Command>,
) -> Result<Vec<Module>> {
    let mut files = BTreeMap::new();
    walk(&folder.join("kernel"), &mut files)?;
    let mut order = Order { files, tool, found: Vec::new() };
    for name in names {
        order.add(name)?;
    }
    Ok(order.found)
}

struct Order<'t> {
    files: BTreeMap<String, PathBuf>,
    tool: &'t dyn Fn(&str) -> Result<Command>,
    found: Vec<Module>,
}

impl Order<'_> {
    fn add(&mut self, name: &str) -> Result<()> {
        // Taken out, so that nothing is added twice.
        let Some(path) = self.files.remove(name) else {
            return Ok(());
        };
        let bytes = self.unpacked(&path)?;
        for needed in depends(&bytes) {
            self.add(&needed)?;
        }
        self.found.push((name.to_owned(), bytes));
        Ok(())
    }

    fn unpacked(&self, path: &Path) -> Result<Vec<u8>> {
        let bytes = fs::read(path).with_context(|| format!("{}", path.display()))?;
        let (tool, option) = match path.extension().and_then(|e| e.to_str()) {
            Some("ko") => return Ok(bytes),
            Some("xz") => ("xz", "-dc"),
            Some("zst") => ("zstd", "-dcq"),
            Some("gz") => ("gzip", "-dc"),
            _ => bail!("{} is packed in an unknown way", path.display()),
        };
        let mut tool = (self.tool)(tool)?;
        tool.arg(option);
        let bytes = vmlinux::filter(tool, &bytes)?;
        ensure!(!bytes.is_empty(), "{} cannot be unpacked", path.display());
        Ok(bytes)
    }
}

/// What a module says it needs.
fn depends(module: &[u8]) -> Vec<String> {
    // A field begins where another one, or padding, ends.
    let mut fields = module.split(|byte| *byte == 0);
    let list = fields.find_map(|field| field.strip_prefix(DEPENDS));
    String::from_utf8_lossy(list.unwrap_or_default())
        .split(',')
        .filter(|name| !name.is_empty())
        .map(named)
        .collect()
}

/// A module's name, which has one character where its file may have another.
fn named(name: &str) -> String {
    name.replace('-', "_")
}

fn walk(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, files)?;
        } else if let Some((name, _)) =
            path.file_name().and_then(|name| name.to_str()?.split_once(".ko"))
        {
            files.insert(named(name), path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{depends, in_order};
    use std::fs;

    #[test]
    fn a_module_names_what_it_needs() {
        let module = b"\x7fELF\0license=GPL\0depends=ib_core,ib-uverbs\0name=x\0";
        assert_eq!(depends(module), ["ib_core", "ib_uverbs"]);
        assert!(depends(b"\0depends=\0").is_empty());
        assert!(depends(b"nothing").is_empty());
    }

    #[test]
    fn what_is_needed_comes_first_and_once() {
        let folder = std::env::temp_dir().join(format!("xtask-modules-{}", std::process::id()));
        let drivers = folder.join("kernel/drivers");
        fs::create_dir_all(&drivers).unwrap();
        for (name, needs) in
            [("top", "left,right"), ("left", "base-x"), ("right", "base-x"), ("base-x", "")]
        {
            let text = format!("\0depends={needs}\0");
            fs::write(drivers.join(format!("{name}.ko")), text).unwrap();
        }
        let order = in_order(&folder, &["top", "absent", "left"], &|_| anyhow::bail!("no tool"));
        fs::remove_dir_all(&folder).unwrap();
        let names: Vec<String> = order.unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["base_x", "left", "right", "top"]);
    }
}
