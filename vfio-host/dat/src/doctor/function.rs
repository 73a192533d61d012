//! Checks of one function: driver, what binds it at boot, what is lost with it, IOMMU group, PCI
//! link.

use vfio_host::Interface;
use vfio_host::sysfs::VFIO_PCI;

use super::super::hca::{Hca, UNKNOWN, folder};
use super::super::tree::Tree;
use super::super::{bind, group};
use super::{Check, State, access};

/// Returns all checks of a function.
pub(super) fn checks(tree: &Tree, hca: &Hca, wanted: Interface) -> Vec<Check> {
    let mut checks = vec![what(hca), driver(hca)];
    checks.extend(driver_override(tree, hca));
    checks.extend(at_boot(tree, hca));
    checks.extend(losses(tree, hca));
    checks.push(viable(tree, hca));
    checks.extend(access::checks(tree, hca, wanted));
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

/// Warns about an override that names another driver than the one that is bound.
fn driver_override(tree: &Tree, hca: &Hca) -> Option<Check> {
    let file = format!("{}/driver_override", folder(&hca.address));
    let name = tree.text(&file).filter(|name| !name.is_empty() && name != "(null)")?;
    if hca.driver.as_ref() == Some(&name) {
        return None;
    }
    let found = format!("it names {name}: the kernel will bind the function to no other driver");
    let check = Check::new("driver_override", State::Warn, found);
    Some(check.remedy(format!("echo | sudo tee {file} (dat bind writes it anew)")))
}

/// Returns what hands a function over to vfio-pci at each boot: the place, as users know it.
pub(crate) fn ids_at_boot(tree: &Tree, hca: &Hca) -> Option<String> {
    let id = format!("15b3:{:04x}", hca.device_id);
    // An ID may have subsystem and class behind it.
    let names = |list: &str| {
        list.split(',').any(|word| {
            word.strip_prefix(&id)
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_hexdigit()))
        })
    };
    let line = tree.text("/proc/cmdline").unwrap_or_default();
    let word = line.split_whitespace().find(|word| {
        let ids = word.strip_prefix("vfio-pci.ids=").or(word.strip_prefix("vfio_pci.ids="));
        ids.is_some_and(names)
    });
    if let Some(word) = word {
        return Some(format!("{word} on the kernel's command line"));
    }
    let files =
        tree.names("/etc/modprobe.d").into_iter().map(|name| format!("/etc/modprobe.d/{name}"));
    let options = |file: &String| {
        let text = tree.text(file).unwrap_or_default();
        text.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some("options")
                && words.next().is_some_and(|module| module.replace('-', "_") == "vfio_pci")
                && words.any(|word| word.strip_prefix("ids=").is_some_and(names))
        })
    };
    files.into_iter().find(options).map(|file| format!("ids= in {file}"))
}

fn at_boot(tree: &Tree, hca: &Hca) -> Option<Check> {
    let place = ids_at_boot(tree, hca)?;
    let found =
        format!("every 15b3:{:04x} of this machine goes to {VFIO_PCI}, by {place}", hca.device_id);
    let check = Check::new("at boot", State::Warn, found);
    Some(check.remedy(format!(
        "if one of them shall stay the kernel's: take it out there, sudo update-initramfs -u (or dracut -f), restart; then sudo dat bind {}",
        hca.address
    )))
}

/// Warns about what the machine loses when the function leaves its driver.
fn losses(tree: &Tree, hca: &Hca) -> Option<Check> {
    let losses = bind::losses(tree, hca);
    if losses.is_empty() {
        return None;
    }
    let (words, remedies): (Vec<_>, Vec<_>) = losses.into_iter().unzip();
    let check = Check::new("in use", State::Warn, words.join("; "));
    Some(remedies.into_iter().fold(check, |check, remedy| {
        if check.remedy.contains(&remedy) { check } else { check.remedy(remedy) }
    }))
}

fn viable(tree: &Tree, hca: &Hca) -> Check {
    const NAME: &str = "IOMMU group";
    let Some(number) = hca.iommu_group else {
        return Check::new(NAME, State::Fail, "it is in none: it is not behind an IOMMU")
            .remedy("see the check IOMMU");
    };
    if tree.kernel().is_unsafe(number) {
        if let Err(error) = tree.kernel().check(hca.address, Interface::Auto) {
            return Check::failed(NAME, &error);
        }
    }
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

fn link(hca: &Hca) -> Option<Check> {
    const NAME: &str = "PCI link";
    let words = hca.link.words()?;
    Some(match hca.link.missed() {
        None => Check::new(NAME, State::Ok, words),
        Some(best) => Check::new(NAME, State::Warn, format!("{words}; the device can do {best}"))
            .remedy("use another slot if bandwidth matters"),
    })
}
