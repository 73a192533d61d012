//! Errors for requests that the kernel refuses, with cause and remedy.

use std::io;

use vfio_ioctls::VfioError;

use crate::address::PciAddress;
use crate::error::{Error, Kind};
use crate::host::Mapping;
use crate::sysfs::{self, ENTRY_LIMIT, Sysfs, not_viable};

/// Limits of mapped and locked memory, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    /// Bytes already locked for the device.
    pub(super) locked: u64,
    /// Upper limit of the bytes that it will need in all.
    pub(super) wanted: u64,
    /// `RLIMIT_MEMLOCK`; `None` if unlimited.
    pub(super) memlock: Option<u64>,
    /// Largest number of mappings of a container.
    pub(super) entries: Option<u32>,
}

impl Limits {
    /// Reads the limits of this process.
    pub(super) fn now(locked: u64, wanted: u64) -> Self {
        let memlock = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        let entries = sysfs::text(ENTRY_LIMIT.as_ref());
        Self { locked, wanted, memlock, entries: entries.and_then(|text| text.parse().ok()) }
    }
}

fn kib(bytes: u64) -> u64 {
    bytes.div_ceil(1024)
}

/// Makes the error of a refused mapping.
pub(super) fn map(error: &io::Error, mapping: &Mapping, limits: Limits) -> Error {
    let Mapping { iova, len, reach, purpose, .. } = mapping;
    let object = format!("{purpose} of {} KiB at {iova:#x} ({reach})", kib(*len));
    let needed = limits.locked.saturating_add(*len);
    let most = kib(needed.max(limits.wanted));
    match (error.raw_os_error(), limits.memlock) {
        (Some(libc::ENOMEM), Some(allowed)) if needed > allowed => Error::new(
            Kind::Memlock,
            object,
            format!(
                "the device needs {} KiB of locked memory now and up to {most} KiB later, and this process may lock {} KiB",
                kib(needed),
                kib(allowed)
            ),
            format!(
                "ulimit -l {most}, or in /etc/security/limits.conf: USER - memlock {most}; in a systemd unit: LimitMEMLOCK={most}K"
            ),
        ),
        (Some(libc::ENOMEM), _) => Error::new(
            Kind::Memory,
            object,
            "the machine has no memory to lock for it",
            "free some memory, or ask for less",
        ),
        (Some(libc::ENOSPC), _) => {
            let limit = limits.entries.map_or("of them".into(), |limit| limit.to_string());
            Error::new(
                Kind::DmaEntries,
                object,
                format!("the IOMMU container has all the mappings it takes: {limit}"),
                "as root: echo 65535 > /sys/module/vfio_iommu_type1/parameters/dma_entry_limit, then open the device anew",
            )
        }
        (Some(libc::EFAULT), _) => Error::new(
            Kind::Unsupported,
            object,
            "the process has no memory there, or none that the device could be given with these rights",
            "lend memory that is mapped, and may be written if the device is to write to it; no memory of a file that others share",
        ),
        (Some(libc::EINVAL | libc::EEXIST | libc::EADDRINUSE), _) => Error::new(
            Kind::Iova,
            object,
            format!("the IOMMU does not take the address: {error}"),
            "report this with the output of `dat doctor`",
        ),
        _ => {
            Error::new(Kind::Refused, object, format!("the kernel refused to map it: {error}"), "")
        }
    }
}

/// Makes the error of a refused container.
#[expect(clippy::wildcard_enum_match_arm, reason = "of the errors, those that have a remedy")]
pub(super) fn container(error: &VfioError) -> Error {
    let object = "/dev/vfio/vfio";
    match error {
        VfioError::OpenContainer(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Error::new(
                Kind::Permission,
                object,
                "this user may not open it",
                "as root: chmod 666 /dev/vfio/vfio (it gives access to no device by itself)",
            )
        }
        VfioError::OpenContainer(error) => Error::new(
            Kind::NoIommu,
            object,
            format!("the kernel has no VFIO: {error}"),
            "as root: modprobe vfio-pci",
        ),
        VfioError::VfioExtension => Error::new(
            Kind::NoIommu,
            object,
            "the kernel has no IOMMU driver for VFIO",
            "as root: modprobe vfio_iommu_type1; and switch the IOMMU on (firmware setup, intel_iommu=on)",
        ),
        other => Error::new(Kind::Refused, object, other.to_string(), ""),
    }
}

/// Makes the error of a file that cannot be opened.
pub(super) fn open(error: &io::Error, node: &str, address: PciAddress) -> Error {
    match error.raw_os_error() {
        Some(libc::EPERM) => Error::new(
            Kind::Permission,
            node,
            format!("the container's list of devices does not have it, which {address} needs"),
            format!("start the container with --device {node}"),
        ),
        Some(libc::EACCES) => Error::new(
            Kind::Permission,
            node,
            format!("this user may not open it, which {address} needs"),
            format!("as root: chown $USER {node}"),
        ),
        Some(libc::ENOENT) => Error::new(
            Kind::NotBound,
            node,
            format!("the kernel offers no such file for {address}"),
            "as root: modprobe vfio-pci, and bind the function to it",
        ),
        Some(libc::EBUSY) => Error::new(
            Kind::Busy,
            node,
            format!("another program has it open, and with it {address}"),
            format!("end it; `fuser {node}` names it"),
        ),
        _ => Error::new(Kind::Refused, node, format!("cannot be opened: {error}"), ""),
    }
}

fn interrupts(address: PciAddress, module: &str) -> Error {
    Error::new(
        Kind::NoIommu,
        address.to_string(),
        "the IOMMU does not remap interrupts, so a device could forge them",
        format!(
            "switch interrupt remapping on; or, trusting the device, as root: echo 1 > /sys/module/{module}/parameters/allow_unsafe_interrupts"
        ),
    )
}

/// Makes the error of a device that iommufd refuses.
pub(super) fn iommufd(error: &io::Error, address: PciAddress) -> Error {
    match error.raw_os_error() {
        Some(libc::EPERM) => interrupts(address, "iommufd"),
        // Of a device that is open, the kernel says either.
        Some(libc::EBUSY | libc::EINVAL) => Error::new(
            Kind::Busy,
            address.to_string(),
            format!("another program has it, or its IOMMU group, open: {error}"),
            "end it; `fuser /dev/vfio/devices/* /dev/vfio/*` names it",
        ),
        _ => Error::new(
            Kind::Refused,
            address.to_string(),
            format!("iommufd refused the function: {error}"),
            "see the kernel's log (dmesg)",
        ),
    }
}

/// Makes the error of a refused device.
#[expect(clippy::wildcard_enum_match_arm, reason = "of the errors, those that have a remedy")]
pub(super) fn device(error: &VfioError, address: PciAddress, group: u32, sysfs: &Sysfs) -> Error {
    match error {
        VfioError::OpenGroup(error, _) => open(error, &format!("/dev/vfio/{group}"), address),
        VfioError::GroupViable => not_viable(address, group, &sysfs.blocking(group)),
        VfioError::ContainerSetIOMMU(error) if error.errno() == libc::EPERM => {
            interrupts(address, "vfio_iommu_type1")
        }
        other => Error::new(
            Kind::Refused,
            address.to_string(),
            format!("VFIO refused the function: {other}"),
            "see the kernel's log (dmesg)",
        ),
    }
}

#[cfg(test)]
mod tests;
