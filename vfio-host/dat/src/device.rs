//! DEVICE in any form that people use: a PCI address, a name that the kernel gives to the function,
//! or the socket of a vfio-user server.

use std::fs;
use std::path::Path;

use vfio_host::Address;

/// Where the kernel lists functions by name: RDMA devices, network interfaces.
const CLASSES: [&str; 2] = ["sys/class/infiniband", "sys/class/net"];

/// Parses DEVICE. Names are looked up on this machine.
pub(crate) fn parse(text: &str) -> Result<Address, String> {
    resolve(Path::new("/"), text)
}

fn resolve(root: &Path, text: &str) -> Result<Address, String> {
    let refused = match text.parse() {
        Ok(address) => return Ok(address),
        Err(error) => error,
    };
    let is_name = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if !is_name {
        return Err(refused.to_string());
    }
    let links = CLASSES.map(|class| root.join(class).join(text));
    let Some(named) = links.iter().find(|link| link.exists()) else {
        return Err(format!(
            "there is no RDMA device or network interface {text} here: `dat list` shows the devices; \
             a function that is bound to vfio-pci has no such name, only a PCI address (0000:3b:00.0)"
        ));
    };
    // The function's folder, whose name is its address.
    let function = fs::canonicalize(named.join("device")).ok();
    let name = function.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    name.and_then(|name| name.parse().ok()).ok_or_else(|| {
        format!("{text} is not a PCI function: `dat list` shows those that can be used")
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_device_has_several_names() {
        let root = tempfile::tempdir().unwrap();
        let function = root.path().join("sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.1");
        let virtual_one = root.path().join("sys/devices/virtual");
        for folder in [&function, &virtual_one] {
            fs::create_dir_all(folder).unwrap();
        }
        for (class, name, of) in [
            ("infiniband", "mlx5_1", Some(&function)),
            ("net", "eno1np1", Some(&function)),
            ("net", "dummy0", None),
            ("net", "virt0", Some(&virtual_one)),
        ] {
            let folder = root.path().join("sys/class").join(class).join(name);
            fs::create_dir_all(&folder).unwrap();
            if let Some(of) = of {
                symlink(of, folder.join("device")).unwrap();
            }
        }
        let resolve = |text: &str| resolve(root.path(), text);
        for text in ["0000:3b:00.1", "3b:00.1", "mlx5_1", "eno1np1"] {
            assert_eq!(resolve(text).unwrap().to_string(), "0000:3b:00.1", "{text}");
        }
        assert_eq!(resolve("vfio-user:/run/a").unwrap().to_string(), "vfio-user:/run/a");
        for (text, words) in [
            ("mlx5_7", "there is no RDMA device or network interface mlx5_7"),
            ("dummy0", "dummy0 is not a PCI function"),
            ("virt0", "virt0 is not a PCI function"),
            ("../../etc", "0000:3b:00.0"),
            ("3b:00", "0000:3b:00.0"),
            ("vfio-user:", "the path of the socket is missing"),
            ("", "0000:3b:00.0"),
        ] {
            let said = resolve(text).unwrap_err();
            assert!(said.contains(words), "{text}: {said}");
        }
    }
}
