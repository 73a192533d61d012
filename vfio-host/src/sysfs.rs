//! What the kernel says of PCI functions: who drives them, which IOMMU group they are in, and
//! whether that group can be used.
//!
//! Only files are read here, under a root that tests replace; binding is done by whoever owns the
//! machine, with the commands that the errors name.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::address::PciAddress;
use crate::error::{Error, Kind};

/// The driver that hands functions to programs.
pub const VFIO_PCI: &str = "vfio-pci";
/// How many mappings a container takes.
pub const ENTRY_LIMIT: &str = "/sys/module/vfio_iommu_type1/parameters/dma_entry_limit";
/// Drivers of group members that do not stand in the way: they do no DMA.
const HARMLESS: [&str; 3] = [VFIO_PCI, "pcieport", "pci-stub"];

/// A PCI function as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Where it is.
    pub address: PciAddress,
    /// The driver that it is bound to.
    pub driver: Option<String>,
    /// Its IOMMU group, if it is behind an IOMMU.
    pub group: Option<u32>,
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
    /// The trees `sys` and `dev` under `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where the functions are.
    fn devices(&self) -> PathBuf {
        self.root.join("sys/bus/pci/devices")
    }

    /// The directory of a function.
    pub fn path(&self, address: PciAddress) -> PathBuf {
        self.devices().join(address.to_string())
    }

    /// One function.
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

    /// The functions of an IOMMU group.
    pub fn members(&self, group: u32) -> Vec<Function> {
        let path = format!("sys/kernel/iommu_groups/{group}/devices");
        let mut found: Vec<_> = names(&self.root.join(path))
            .iter()
            .filter_map(|name| self.look_at(name.parse().ok()?))
            .collect();
        found.sort_by_key(|function| function.address);
        found
    }

    /// Whether a program could take hold of the function: it is behind an IOMMU, bound to vfio-pci,
    /// and so are all that share its group. Returns the group.
    pub fn check(&self, address: PciAddress) -> Result<u32, Error> {
        let function = self.function(address)?;
        let Some(group) = function.group else {
            return Err(no_iommu(address));
        };
        if function.driver.as_deref() != Some(VFIO_PCI) {
            return Err(not_bound(&function));
        }
        match self.in_the_way(group) {
            others if others.is_empty() => Ok(group),
            others => Err(not_viable(address, group, &others)),
        }
    }

    /// Members of a group whose drivers keep it from being used.
    pub fn in_the_way(&self, group: u32) -> Vec<Function> {
        let harmless = |driver: &str| HARMLESS.contains(&driver);
        let mut members = self.members(group);
        members.retain(|member| !member.driver.as_deref().is_none_or(harmless));
        members
    }
}

/// Contents of a file, without white space around it.
pub fn text(file: &Path) -> Option<String> {
    let bytes = fs::read(file).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Name of what a symbolic link points at.
pub fn link(file: &Path) -> Option<String> {
    let target = fs::read_link(file).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

/// Names in a folder, sorted; none if it is not there.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The shell line that gives a function to vfio-pci.
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
    Error::new(
        Kind::NoIommu,
        address.to_string(),
        "the function is not behind an IOMMU",
        "switch the IOMMU on in the firmware's setup (VT-d, AMD-Vi, SMMU) and boot Linux with intel_iommu=on where it is Intel's",
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
