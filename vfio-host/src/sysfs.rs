//! PCI functions as sysfs shows them: their driver, their IOMMU group, and whether that group can
//! be used.
//!
//! This module only reads files, under a root that tests replace. The administrator of the machine
//! binds drivers, with the commands that the errors name.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::address::PciAddress;
use crate::error::{Error, Kind};
use crate::host::Interface;

/// The kernel driver that gives programs access to functions.
pub const VFIO_PCI: &str = "vfio-pci";
/// The file with the limit of mappings for each container.
pub const ENTRY_LIMIT: &str = "/sys/module/vfio_iommu_type1/parameters/dma_entry_limit";
/// The switch of VFIO's mode without an IOMMU.
pub const UNSAFE_MODE: &str = "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode";
/// The name of a group that VFIO makes for a function without an IOMMU.
const NO_IOMMU: &str = "vfio-noiommu";
/// How to get an IOMMU.
const SWITCH_ON: &str = "switch the IOMMU on in the firmware's setup (VT-d, AMD-Vi, SMMU) and boot Linux with intel_iommu=on where it is Intel's";
/// Drivers that group members may have: they do no DMA.
const HARMLESS: [&str; 3] = [VFIO_PCI, "pcieport", "pci-stub"];

/// A PCI function as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its address.
    pub address: PciAddress,
    /// The driver that it is bound to.
    pub driver: Option<String>,
    /// Its IOMMU group, if it is behind an IOMMU.
    pub group: Option<u32>,
}

/// The files by which a function is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The kernel's interface to the IOMMU: [`Interface::Type1`] or [`Interface::Iommufd`].
    pub interface: Interface,
    /// The function's IOMMU group.
    pub group: u32,
    /// The IOMMU's file, and that of the group or of the function.
    pub files: [String; 2],
}

/// The kernel's file trees.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Self {
        Self::at("/")
    }
}

impl Sysfs {
    /// Reads the trees `sys` and `dev` under `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the directory of all functions.
    fn devices(&self) -> PathBuf {
        self.root.join("sys/bus/pci/devices")
    }

    /// Returns the directory of a function.
    pub fn path(&self, address: PciAddress) -> PathBuf {
        self.devices().join(address.to_string())
    }

    /// Reads one function.
    pub fn function(&self, address: PciAddress) -> Result<Function, Error> {
        self.look_at(address).ok_or_else(|| {
            Error::new(
                Kind::NotFound,
                address.to_string(),
                "there is no such PCI function",
                "`dat list` names those that there are",
            )
        })
    }

    fn look_at(&self, address: PciAddress) -> Option<Function> {
        let path = self.path(address);
        path.exists().then(|| Function {
            address,
            driver: link(&path.join("driver")),
            group: link(&path.join("iommu_group")).and_then(|group| group.parse().ok()),
        })
    }

    /// Reads the functions of an IOMMU group.
    pub fn members(&self, group: u32) -> Vec<Function> {
        let path = format!("sys/kernel/iommu_groups/{group}/devices");
        let mut found: Vec<_> = names(&self.root.join(path))
            .iter()
            .filter_map(|name| self.look_at(name.parse().ok()?))
            .collect();
        found.sort_by_key(|function| function.address);
        found
    }

    /// Checks that a program can open the function: it is behind an IOMMU and bound to vfio-pci,
    /// and all members of its group are usable. Returns the group.
    pub fn check(&self, address: PciAddress, wanted: Interface) -> Result<u32, Error> {
        let function = self.function(address)?;
        if wanted == Interface::None {
            return Err(no_addresses(address));
        }
        let Some(group) = function.group else {
            return Err(no_iommu(address));
        };
        if self.is_unsafe(group) {
            return Err(unsafe_mode(address, group));
        }
        if function.driver.as_deref() != Some(VFIO_PCI) {
            return Err(not_bound(&function));
        }
        match self.blocking(group) {
            others if others.is_empty() => Ok(group),
            others => Err(not_viable(address, group, &others)),
        }
    }

    /// Returns whether VFIO made this group for a function without an IOMMU.
    pub fn is_unsafe(&self, group: u32) -> bool {
        let name = self.root.join(format!("sys/kernel/iommu_groups/{group}/name"));
        text(&name).as_deref() == Some(NO_IOMMU)
    }

    /// Chooses the interface to open a function of `group` by. `may` returns whether this process
    /// may use a file. Without a wish it is iommufd where both of its files may be used, or where
    /// the group has no file.
    pub fn access(
        &self,
        address: PciAddress,
        group: u32,
        wanted: Interface,
        may: impl Fn(&str) -> bool,
    ) -> Result<Access, Error> {
        let exists = |file: &str| self.root.join(file.trim_start_matches('/')).exists();
        let type1 = ["/dev/vfio/vfio".to_owned(), format!("/dev/vfio/{group}")];
        let nodes = names(&self.path(address).join("vfio-dev"));
        let iommufd = nodes
            .first()
            .map(|node| ["/dev/iommu".to_owned(), format!("/dev/vfio/devices/{node}")]);
        let there = iommufd.filter(|files| files.iter().all(|file| exists(file)));
        let made = |interface, files| Ok(Access { interface, group, files });
        let [_, of_group] = &type1;
        match (wanted, there) {
            (Interface::Iommufd, Some(files)) => made(Interface::Iommufd, files),
            (Interface::Iommufd, None) => Err(no_iommufd(address)),
            (Interface::Auto, Some(files))
                if !exists(of_group) || files.iter().all(|file| may(file)) =>
            {
                made(Interface::Iommufd, files)
            }
            _ => made(Interface::Type1, type1),
        }
    }

    /// Returns the members of a group whose drivers block its use.
    pub fn blocking(&self, group: u32) -> Vec<Function> {
        let harmless = |driver: &str| HARMLESS.contains(&driver);
        let mut members = self.members(group);
        members.retain(|member| !member.driver.as_deref().is_none_or(harmless));
        members
    }
}

/// Returns the contents of a file, trimmed.
pub fn text(file: &Path) -> Option<String> {
    let bytes = fs::read(file).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Returns the file name of a symbolic link's target.
pub fn link(file: &Path) -> Option<String> {
    let target = fs::read_link(file).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

/// Returns the names in a folder, sorted; none if it does not exist.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns the shell command that binds a function to vfio-pci.
pub(crate) fn bind_command(function: &Function) -> String {
    let address = function.address;
    let mut line = format!("echo {VFIO_PCI} > /sys/bus/pci/devices/{address}/driver_override; ");
    if function.driver.is_some() {
        let _ = write!(line, "echo {address} > /sys/bus/pci/devices/{address}/driver/unbind; ");
    }
    let _ = write!(line, "echo {address} > /sys/bus/pci/drivers_probe");
    line
}

fn driven(function: &Function) -> String {
    match &function.driver {
        Some(driver) => format!("bound to {driver}"),
        None => "bound to no driver".into(),
    }
}

fn no_iommu(address: PciAddress) -> Error {
    let cause = "the function is not behind an IOMMU";
    Error::new(Kind::NoIommu, address.to_string(), cause, SWITCH_ON)
}

fn unsafe_mode(address: PciAddress, group: u32) -> Error {
    Error::new(
        Kind::NoIommu,
        address.to_string(),
        format!(
            "VFIO offers the function without an IOMMU (/dev/vfio/noiommu-{group}): it would reach all of this machine's memory"
        ),
        format!("{SWITCH_ON}; then, as root: echo N > {UNSAFE_MODE}"),
    )
}

fn no_addresses(address: PciAddress) -> Error {
    Error::new(
        Kind::Unsupported,
        address.to_string(),
        "without an IOMMU the device takes physical addresses, and memory of a program has none that are contiguous and stay the same",
        SWITCH_ON,
    )
}

fn no_iommufd(address: PciAddress) -> Error {
    Error::new(
        Kind::Unsupported,
        address.to_string(),
        "the kernel has no iommufd for the function: it takes /dev/iommu and a file in /dev/vfio/devices (Linux 6.6, built with CONFIG_IOMMUFD and CONFIG_VFIO_DEVICE_CDEV)",
        "as root: modprobe iommufd; where that does not help: --iommu type1",
    )
}

fn not_bound(function: &Function) -> Error {
    Error::new(
        Kind::NotBound,
        function.address.to_string(),
        format!("the function is {}, not to {VFIO_PCI}", driven(function)),
        format!("as root: modprobe {VFIO_PCI}; {}", bind_command(function)),
    )
}

pub(crate) fn not_viable(address: PciAddress, group: u32, others: &[Function]) -> Error {
    let names: Vec<_> =
        others.iter().map(|other| format!("{} ({})", other.address, driven(other))).collect();
    let commands: Vec<_> = others.iter().map(bind_command).collect();
    Error::new(
        Kind::Group,
        address.to_string(),
        format!(
            "IOMMU group {group} is shared with {}, and goes to one owner as a whole",
            names.join(", ")
        ),
        format!("as root: {}", commands.join("; ")),
    )
}

#[cfg(test)]
mod tests;
