//! Checks of the files that a function is opened by: the kernel's interface to the IOMMU, this
//! user's rights, and what a container has to be given.

use vfio_host::Interface;
use vfio_host::sysfs::Access;

use super::super::hca::Hca;
use super::super::process::Process;
use super::super::tree::Tree;
use super::{Check, State};

const INTERFACE: &str = "IOMMU interface";

/// Returns the checks of a function that is bound to vfio-pci: its files exist only then.
pub(super) fn checks(tree: &Tree, hca: &Hca, wanted: Interface) -> Vec<Check> {
    if wanted == Interface::None {
        if let Err(error) = tree.kernel().check(hca.address, wanted) {
            return vec![Check::failed(INTERFACE, &error)];
        }
    }
    let Some(group) = hca.iommu_group.filter(|_| hca.on_vfio()) else {
        return Vec::new();
    };
    let process = Process::new(tree);
    let may =
        |file: &str| tree.rights(file).is_some_and(|rights| process.may_use(&rights) == Some(true));
    let access = match tree.kernel().access(hca.address, group, wanted, may) {
        Ok(access) => access,
        Err(error) => return vec![Check::failed(INTERFACE, &error)],
    };
    let mut checks = vec![interface(tree, &access, &process), rights(tree, &access, &process)];
    checks.extend(container(tree, &access));
    checks
}

fn interface(tree: &Tree, access: &Access, process: &Process) -> Check {
    let mut found = format!("{} ({})", access.interface.word(), access.files.join(", "));
    if access.interface == Interface::Type1 {
        if let Some(rights) = tree.rights("/dev/iommu") {
            if process.may_use(&rights) == Some(false) {
                found.push_str("; /dev/iommu is there, but not for this user");
            }
        }
    }
    Check::new(INTERFACE, State::Ok, found)
}

/// Checks the rights to the files, that of the function or its group first.
fn rights(tree: &Tree, access: &Access, process: &Process) -> Check {
    const NAME: &str = "rights";
    let user = process.user();
    for file in access.files.iter().rev() {
        let Some(rights) = tree.rights(file) else {
            return Check::new(NAME, State::Fail, format!("{file} is not there"))
                .remedy("in a container: pass it in; else look at udev");
        };
        match process.may_use(&rights) {
            Some(true) => {}
            Some(false) => {
                return Check::new(
                    NAME,
                    State::Fail,
                    format!(
                        "{user} may not open {file} (owner {}, group {}, mode {:o})",
                        rights.uid,
                        rights.gid,
                        rights.mode & 0o777
                    ),
                )
                .remedy(format!("until it is bound anew: sudo chown $USER {file}"))
                .remedy("for good, in /etc/udev/rules.d: SUBSYSTEM==\"vfio\", GROUP=\"your-group\", MODE=\"0660\"; for iommufd SUBSYSTEM==\"vfio-dev\" and KERNEL==\"iommu\" as well");
            }
            None => {
                let found = format!("the user ID cannot be read; {file} exists");
                return Check::new(NAME, State::Warn, found);
            }
        }
    }
    Check::new(NAME, State::Ok, format!("{user} may open {}", access.files.join(" and ")))
}

/// Names what a container has to be given, in one.
fn container(tree: &Tree, access: &Access) -> Option<Check> {
    let kind = ["/run/.containerenv", "/.dockerenv"]
        .iter()
        .position(|mark| tree.exists(mark))
        .map(|at| if at == 0 { "podman" } else { "docker" })?;
    let devices: Vec<String> = access.files.iter().map(|file| format!("--device {file}")).collect();
    let missing = access.files.iter().any(|file| !tree.exists(file));
    let state = if missing { State::Fail } else { State::Ok };
    let found = if missing { "it lacks files of the device" } else { "it has the device's files" };
    let check = Check::new("container", state, format!("{found}; no capability is needed"));
    Some(if missing {
        check.remedy(format!("{kind} run {} --ulimit memlock=-1 ...", devices.join(" ")))
    } else {
        check
    })
}
