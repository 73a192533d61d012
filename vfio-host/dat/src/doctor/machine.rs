//! Checks of the machine: IOMMU, VFIO, lockdown, locked memory, DMA entries, huge pages.

use std::collections::BTreeSet;

use vfio_host::sysfs::{ENTRY_LIMIT, UNSAFE_MODE};

use super::super::needs::Needs;
use super::super::process::{Memlock, Process, memlock};
use super::super::tree::Tree;
use super::{Check, State};

/// A MiB.
const MIB: u64 = 1 << 20;

/// Returns all checks of the machine.
pub(super) fn checks(tree: &Tree) -> Vec<Check> {
    let needs = Needs::default();
    let mut checks = vec![iommu(tree)];
    checks.extend(unsafe_mode(tree));
    checks.push(modules(tree));
    checks.extend(lockdown(tree));
    checks.extend([
        locked(&needs, memlock(tree), &Process::new(tree)),
        entries(&needs, tree),
        huge_pages(&needs, tree),
    ]);
    checks
}

/// Returns the common name of an IOMMU that the kernel names.
fn kind(name: &str) -> &'static str {
    if name.starts_with("dmar") {
        "Intel VT-d"
    } else if name.starts_with("ivhd") {
        "AMD-Vi"
    } else if name.starts_with("smmu") || name.contains("iommu@") {
        "ARM SMMU"
    } else if name.starts_with("virtio") {
        "virtio-iommu"
    } else {
        "of another kind"
    }
}

fn iommu(tree: &Tree) -> Check {
    let kinds: BTreeSet<&str> =
        tree.names("/sys/class/iommu").iter().map(|name| kind(name)).collect();
    let groups = tree.names("/sys/kernel/iommu_groups").len();
    if groups > 0 {
        let kinds: Vec<&str> = kinds.into_iter().collect();
        let kinds = if kinds.is_empty() { "present".into() } else { kinds.join(", ") };
        return Check::new("IOMMU", State::Ok, format!("{kinds}; {groups} groups"));
    }
    let off = |cause: &str| Check::new("IOMMU", State::Fail, cause.to_owned());
    let line = tree.text("/proc/cmdline").unwrap_or_default();
    if let Some(word) = line
        .split_whitespace()
        .find(|word| matches!(*word, "iommu=off" | "intel_iommu=off" | "amd_iommu=off"))
    {
        return off(&format!("the kernel was started with {word}"))
            .remedy(format!("take {word} off the kernel's command line and restart"));
    }
    let cpu = tree.text("/proc/cpuinfo").unwrap_or_default();
    let check = off("none: a device would reach all of this machine's memory, so VFIO refuses it");
    let check = if cpu.contains("hypervisor") {
        check.remedy("this is a virtual machine: give it an IOMMU (QEMU: -device intel-iommu,intremap=on,caching-mode=on)")
    } else if cpu.contains("AuthenticAMD") {
        check.remedy("switch AMD-Vi (IOMMU) on in the firmware's set-up")
    } else if cpu.contains("GenuineIntel") {
        check.remedy("switch VT-d on in the firmware's set-up")
    } else {
        check.remedy("switch the IOMMU on in the firmware's set-up")
    };
    if cpu.contains("GenuineIntel") || cpu.contains("hypervisor") {
        check.remedy("start the kernel with intel_iommu=on")
    } else {
        check
    }
}

/// Warns about VFIO's mode without an IOMMU, which this driver does not use.
fn unsafe_mode(tree: &Tree) -> Option<Check> {
    let on = tree.text(UNSAFE_MODE)? == "Y";
    on.then(|| {
        Check::new(
            "no-IOMMU mode",
            State::Warn,
            "VFIO's unsafe mode without an IOMMU is on; it is not used here",
        )
        .remedy(format!("echo N | sudo tee {UNSAFE_MODE}"))
    })
}

fn modules(tree: &Tree) -> Check {
    let mut missing = Vec::new();
    if !tree.exists("/sys/bus/pci/drivers/vfio-pci") {
        missing.push("vfio-pci");
    }
    let iommufd = tree.exists("/dev/iommu");
    if !iommufd && !tree.exists("/sys/module/vfio_iommu_type1") {
        missing.push("vfio_iommu_type1");
    }
    if missing.is_empty() && !iommufd && !tree.exists("/dev/vfio/vfio") {
        return Check::new(
            "VFIO",
            State::Fail,
            "the modules are loaded, but /dev/vfio/vfio is not there",
        )
        .remedy("in a container: pass /dev/vfio in; else look at udev");
    }
    if missing.is_empty() {
        let module = if iommufd { "iommufd" } else { "vfio_iommu_type1" };
        return Check::new("VFIO", State::Ok, format!("vfio-pci and {module} are there"));
    }
    Check::new("VFIO", State::Fail, format!("not loaded: {}", missing.join(", ")))
        .remedy(format!("sudo modprobe -a {}", missing.join(" ")))
}

/// Says what a kernel that is locked down (Secure Boot) still does.
fn lockdown(tree: &Tree) -> Option<Check> {
    let modes = tree.text("/sys/kernel/security/lockdown")?;
    let mode = modes.split_once('[')?.1.split_once(']')?.0.to_owned();
    if mode == "none" {
        return None;
    }
    let found = format!("{mode}: VFIO works; setpci, and modules without a signature, do not");
    let check = Check::new("lockdown", State::Ok, found);
    Some(if tree.exists("/sys/bus/pci/drivers/vfio-pci") {
        check
    } else {
        check.remedy("if modprobe vfio-pci says \"Key was rejected\": it was built by hand; use the distribution's, or sudo mokutil --import its key")
    })
}

/// Formats bytes in MiB, rounded up, because a need must not be rounded down.
fn mib(bytes: u64) -> String {
    if bytes < MIB {
        return format!("{} KiB", bytes.div_ceil(1024));
    }
    format!("{} MiB", bytes.div_ceil(MIB))
}

fn locked(needs: &Needs, limit: Option<Memlock>, process: &Process) -> Check {
    const NAME: &str = "locked memory";
    let all = needs.arena + needs.firmware;
    let need = format!(
        "{} needed, up to {} if the firmware asks for all it may",
        mib(needs.arena),
        mib(all)
    );
    if process.locks_freely() {
        let found = format!("{need}; this process may lock any amount");
        return Check::new(NAME, State::Ok, found);
    }
    let Some(Memlock { soft, hard }) = limit else {
        return Check::new(NAME, State::Warn, "the limit cannot be read");
    };
    let allowed = soft.map_or("any amount".into(), mib);
    let found = format!("{need}; {allowed} allowed");
    let state = match soft {
        Some(soft) if soft <= needs.arena => State::Fail,
        Some(soft) if soft < all => State::Warn,
        Some(_) | None => return Check::new(NAME, State::Ok, found),
    };
    let kilobytes = all.div_ceil(1024);
    let check = Check::new(NAME, state, found);
    if hard.is_none_or(|hard| hard >= all) {
        return check.remedy(format!("in this shell: ulimit -l {kilobytes}"));
    }
    check
        .remedy(format!(
            "in /etc/security/limits.conf: USER - memlock {kilobytes}, then log in again"
        ))
        .remedy(format!(
            "for a systemd unit: LimitMEMLOCK={all}; for a container: --ulimit memlock={all}"
        ))
}

fn entries(needs: &Needs, tree: &Tree) -> Check {
    const NAME: &str = "DMA entries";
    let path = ENTRY_LIMIT;
    let need = needs.dma_entries;
    let Some(limit) = tree.number(path) else {
        let found = format!("{need} needed; this kernel states no limit");
        return Check::new(NAME, State::Ok, found);
    };
    let found = format!("{need} needed, {limit} allowed for each container");
    if limit >= need {
        return Check::new(NAME, State::Ok, found);
    }
    Check::new(NAME, State::Fail, found).remedy(format!("echo 65535 | sudo tee {path}"))
}

fn huge_pages(needs: &Needs, tree: &Tree) -> Check {
    const NAME: &str = "huge pages";
    let folder = "/sys/kernel/mm/hugepages/hugepages-2048kB";
    let number = |name: &str| tree.number(&format!("{folder}/{name}")).unwrap_or(0);
    let (all, free) = (number("nr_hugepages"), number("free_hugepages"));
    let need = needs.huge_pages;
    let found = format!("{need} of 2 MiB would be used, {free} of {all} are free");
    if free >= need {
        return Check::new(NAME, State::Ok, found);
    }
    let found = format!("{found}: it works with 4 KiB pages, at more work for the IOMMU");
    let wanted = all + need - free;
    Check::new(NAME, State::Warn, found)
        .remedy(format!("echo {wanted} | sudo tee {folder}/nr_hugepages"))
}
