//! Checks of one function: driver, IOMMU group, rights to its file, PCI link.

use super::super::group;
use super::super::hca::{Hca, UNKNOWN};
use super::super::process::Process;
use super::super::tree::Tree;
use super::{Check, State};

/// Returns all checks of a function.
pub(super) fn checks(tree: &Tree, hca: &Hca) -> Vec<Check> {
    let mut checks = vec![what(hca), driver(hca), viable(tree, hca)];
    checks.extend(file(tree, hca));
    checks.extend(link(hca));
    checks.into_iter().map(|check| check.of(&hca.address)).collect()
}

fn what(hca: &Hca) -> Check {
    let mut found = format!("{} (15b3:{:04x})", hca.name, hca.device_id);
    if let Some(parent) = &hca.physical_function {
        found.push_str(&format!(", virtual function of {parent}"));
    }
    if hca.virtual_functions > 0 {
        found.push_str(&format!(", {} virtual functions", hca.virtual_functions));
    }
    if let Some(node) = hca.numa_node {
        found.push_str(&format!(", NUMA node {node}"));
    }
    if let Some(firmware) = &hca.firmware {
        found.push_str(&format!(", firmware {firmware}"));
    }
    if hca.name == UNKNOWN {
        return Check::new("device", State::Warn, format!("{found}: newer than this driver"));
    }
    Check::new("device", State::Ok, found)
}

fn driver(hca: &Hca) -> Check {
    let bind = format!("sudo dat bind {}", hca.address);
    match hca.driver.as_deref() {
        Some("vfio-pci") => Check::new("driver", State::Ok, "vfio-pci"),
        Some(driver) => Check::new(
            "driver",
            State::Fail,
            format!("{driver}: the kernel uses it; it has to be bound to vfio-pci"),
        )
        .remedy(format!("{bind} (first with --check)")),
        None => {
            Check::new("driver", State::Fail, "none; it has to be bound to vfio-pci").remedy(bind)
        }
    }
}

fn viable(tree: &Tree, hca: &Hca) -> Check {
    const NAME: &str = "IOMMU group";
    let Some(number) = hca.iommu_group else {
        return Check::new(NAME, State::Fail, "it is in none: it is not behind an IOMMU")
            .remedy("see the check IOMMU");
    };
    let members = group::members(tree, number);
    let others: Vec<String> = members
        .iter()
        .filter(|member| member.address != hca.address.to_string())
        .map(group::Member::words)
        .collect();
    let with = if others.is_empty() {
        "alone in it".into()
    } else {
        format!("together with {}", others.join(", "))
    };
    // The driver of the function itself is a separate check.
    let blocked =
        members.iter().any(|member| member.blocks && member.address != hca.address.to_string());
    let found = format!("{number}, {with}");
    match group::mend(&members) {
        Some(command) if blocked => {
            Check::new(NAME, State::Fail, found).remedy(format!("{command} (first with --check)"))
        }
        Some(_) | None => Check::new(NAME, State::Ok, found),
    }
}

/// Checks the rights to the file of the group, which exists once a device of it is bound.
fn file(tree: &Tree, hca: &Hca) -> Option<Check> {
    const NAME: &str = "rights";
    let path = format!("/dev/vfio/{}", hca.iommu_group?);
    if !hca.on_vfio() {
        return None;
    }
    let Some(rights) = tree.rights(&path) else {
        return Some(
            Check::new(NAME, State::Fail, format!("{path} is not there"))
                .remedy("in a container: pass it in; else look at udev"),
        );
    };
    let process = Process::new(tree);
    let user = process.user();
    Some(match process.may_use(&rights) {
        Some(true) => Check::new(NAME, State::Ok, format!("{user} may open {path}")),
        Some(false) => Check::new(
            NAME,
            State::Fail,
            format!(
                "{user} may not open {path} (owner {}, group {}, mode {:o})",
                rights.uid,
                rights.gid,
                rights.mode & 0o777
            ),
        )
        .remedy(format!("until it is bound anew: sudo chown $USER {path}"))
        .remedy("for good, in /etc/udev/rules.d: SUBSYSTEM==\"vfio\", GROUP=\"your-group\", MODE=\"0660\""),
        None => Check::new(NAME, State::Warn, format!("the user ID cannot be read; {path} exists")),
    })
}

fn link(hca: &Hca) -> Option<Check> {
    const NAME: &str = "PCI link";
    let words = hca.link.words()?;
    Some(match hca.link.missed() {
        None => Check::new(NAME, State::Ok, words),
        Some(best) => Check::new(NAME, State::Warn, format!("{words}; the device can do {best}"))
            .remedy("use another slot if bandwidth matters"),
    })
}
