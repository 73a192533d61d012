use std::os::unix::fs::symlink;

use super::*;

/// A tree of files like sysfs.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn add(self, address: &str, driver: Option<&str>, group: Option<u32>) -> Self {
        let root = self.0.path();
        let device = root.join("sys/bus/pci/devices").join(address);
        fs::create_dir_all(&device).unwrap();
        if let Some(driver) = driver {
            symlink(Path::new("../../../bus/pci/drivers").join(driver), device.join("driver"))
                .unwrap();
        }
        if let Some(group) = group {
            let place = root.join(format!("sys/kernel/iommu_groups/{group}"));
            fs::create_dir_all(place.join("devices")).unwrap();
            symlink(&place, device.join("iommu_group")).unwrap();
            symlink(&device, place.join("devices").join(address)).unwrap();
        }
        self
    }

    fn check(&self, address: &str) -> Result<u32, Error> {
        Sysfs::at(self.0.path()).check(address.parse().unwrap(), Interface::Auto)
    }
}

fn refused(tree: &Tree) -> (Kind, String) {
    let error = tree.check("0000:3b:00.0").unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn a_function_alone_or_with_harmless_members_is_usable() {
    let tree = Tree::new()
        .add("0000:3b:00.0", Some("vfio-pci"), Some(7))
        .add("0000:3a:00.0", Some("pcieport"), Some(7))
        .add("0000:3b:00.1", None, Some(7))
        .add("0000:3b:00.2", Some("mlx5_core"), Some(8));
    assert_eq!(tree.check("0000:3b:00.0").unwrap(), 7);
}

#[test]
fn a_missing_function_is_named() {
    let (kind, text) = refused(&Tree::new());
    assert_eq!(kind, Kind::NotFound);
    assert_eq!(
        text,
        "0000:3b:00.0: there is no such PCI function; `dat list` names those that there are"
    );
}

#[test]
fn no_iommu_says_where_to_switch_it_on() {
    let (kind, text) = refused(&Tree::new().add("0000:3b:00.0", Some("vfio-pci"), None));
    assert_eq!(kind, Kind::NoIommu);
    assert!(text.contains("not behind an IOMMU") && text.contains("intel_iommu=on"), "{text}");
}

#[test]
fn another_driver_is_named_with_the_command_that_takes_the_function() {
    let (kind, text) = refused(&Tree::new().add("0000:3b:00.0", Some("mlx5_core"), Some(7)));
    assert_eq!(kind, Kind::NotBound);
    assert_eq!(
        text,
        "0000:3b:00.0: the function is bound to mlx5_core, not to vfio-pci; as root: modprobe vfio-pci; \
         echo vfio-pci > /sys/bus/pci/devices/0000:3b:00.0/driver_override; \
         echo 0000:3b:00.0 > /sys/bus/pci/devices/0000:3b:00.0/driver/unbind; \
         echo 0000:3b:00.0 > /sys/bus/pci/drivers_probe"
    );
    let (_, text) = refused(&Tree::new().add("0000:3b:00.0", None, Some(7)));
    assert!(text.contains("bound to no driver") && !text.contains("unbind"), "{text}");
}

#[test]
fn a_shared_group_names_its_members_and_a_remedy_for_each() {
    let tree = Tree::new().add("0000:3b:00.0", Some("vfio-pci"), Some(7)).add(
        "0000:3b:00.1",
        Some("mlx5_core"),
        Some(7),
    );
    let (kind, text) = refused(&tree);
    assert_eq!(kind, Kind::Group);
    assert_eq!(
        text,
        "0000:3b:00.0: IOMMU group 7 is shared with 0000:3b:00.1 (bound to mlx5_core), and goes to one owner as a whole; \
         as root: echo vfio-pci > /sys/bus/pci/devices/0000:3b:00.1/driver_override; \
         echo 0000:3b:00.1 > /sys/bus/pci/devices/0000:3b:00.1/driver/unbind; \
         echo 0000:3b:00.1 > /sys/bus/pci/drivers_probe"
    );
}

#[test]
fn a_group_that_vfio_made_without_an_iommu_is_refused() {
    let tree = Tree::new().add("0000:3b:00.0", Some("vfio-pci"), Some(7));
    let name = tree.0.path().join("sys/kernel/iommu_groups/7/name");
    fs::write(name, "vfio-noiommu\n").unwrap();
    let (kind, text) = refused(&tree);
    assert_eq!(kind, Kind::NoIommu);
    for words in ["noiommu-7", "all of this machine's memory", "intel_iommu=on", "echo N > "] {
        assert!(text.contains(words), "{text}");
    }
    let address = "0000:3b:00.0".parse().unwrap();
    let error = Sysfs::at(tree.0.path()).check(address, Interface::None).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.to_string().contains("physical addresses"), "{error}");
}

#[test]
fn iommufd_is_chosen_where_its_files_may_be_used() {
    let tree = Tree::new().add("0000:3b:00.0", Some("vfio-pci"), Some(7));
    let root = tree.0.path();
    let sysfs = Sysfs::at(root);
    let address = "0000:3b:00.0".parse().unwrap();
    let chosen = |wanted, may: bool| {
        sysfs.access(address, 7, wanted, |_| may).map(|access| access.interface)
    };
    let file = |path: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    };
    file("dev/vfio/7");
    assert_eq!(chosen(Interface::Auto, true), Ok(Interface::Type1));
    assert_eq!(chosen(Interface::Iommufd, true).unwrap_err().kind(), Kind::Unsupported);
    // The function's file without iommufd's is not enough.
    fs::create_dir_all(sysfs.path(address).join("vfio-dev/vfio3")).unwrap();
    file("dev/vfio/devices/vfio3");
    assert_eq!(chosen(Interface::Auto, true), Ok(Interface::Type1));
    file("dev/iommu");
    assert_eq!(chosen(Interface::Auto, true), Ok(Interface::Iommufd));
    assert_eq!(chosen(Interface::Auto, false), Ok(Interface::Type1));
    assert_eq!(chosen(Interface::Type1, true), Ok(Interface::Type1));
    assert_eq!(chosen(Interface::Iommufd, false), Ok(Interface::Iommufd));
    fs::remove_file(root.join("dev/vfio/7")).unwrap();
    assert_eq!(chosen(Interface::Auto, false), Ok(Interface::Iommufd));
    let access = sysfs.access(address, 7, Interface::Auto, |_| true).unwrap();
    assert_eq!(access.files, ["/dev/iommu", "/dev/vfio/devices/vfio3"]);
}
