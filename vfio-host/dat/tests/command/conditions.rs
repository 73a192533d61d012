//! What users meet between a card and its first message: each condition with its check, its finding
//! and a remedy that can be pasted, over machines of files.

use crate::list_doctor::{check, says};
use crate::machine::Machine;

const A: &str = "0000:3b:00.0";
const FOLDER: &str = "/sys/bus/pci/devices/0000:3b:00.0";
const CDEV: &str = "/dev/vfio/devices/vfio0";

/// A machine with a function on vfio-pci in group 12.
fn bound() -> Machine {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("vfio-pci"));
    machine
}

/// The kernel offers the function by iommufd as well.
fn with_iommufd(machine: &Machine) {
    machine.folder(&format!("{FOLDER}/vfio-dev/vfio0"));
    for file in ["/dev/iommu", CDEV] {
        machine.private(file);
    }
}

#[track_caller]
fn doctor(machine: &Machine, more: &[&str], name: &str) -> (String, String, String) {
    let args = [&["doctor", A, "--json"], more].concat();
    check(&machine.run(&args), name)
}

#[test]
fn the_interface_to_the_iommu_is_named_and_can_be_forced() {
    let machine = bound();
    let (state, found, _) = doctor(&machine, &[], "IOMMU interface");
    assert_eq!((state.as_str(), found.as_str()), ("ok", "type1 (/dev/vfio/vfio, /dev/vfio/12)"));
    let (state, found, remedy) = doctor(&machine, &["--iommu", "iommufd"], "IOMMU interface");
    assert_eq!(state, "fail");
    says(&found, &["no iommufd", "Linux 6.6", "CONFIG_VFIO_DEVICE_CDEV"]);
    says(&remedy, &["modprobe iommufd"]);

    with_iommufd(&machine);
    let (state, found, _) = doctor(&machine, &[], "IOMMU interface");
    assert_eq!(
        (state.as_str(), found.as_str()),
        ("ok", "iommufd (/dev/iommu, /dev/vfio/devices/vfio0)")
    );
    let (state, found, _) = doctor(&machine, &[], "rights");
    assert_eq!(state, "ok");
    says(&found, &["/dev/iommu and /dev/vfio/devices/vfio0"]);
    let (_, found, _) = doctor(&machine, &["--iommu", "type1"], "IOMMU interface");
    says(&found, &["type1"]);
    let run = machine.run(&["doctor", A, "--iommu", "both"]);
    assert_eq!(run.code, 2);
    says(&run.err, &["auto, type1, iommufd or none"]);
}

#[test]
fn a_kernel_with_iommufd_alone_needs_no_module_of_type_1() {
    let machine = bound();
    with_iommufd(&machine);
    std::fs::remove_dir_all(machine.at("/sys/module/vfio_iommu_type1")).unwrap();
    for file in ["/dev/vfio/vfio", "/dev/vfio/12"] {
        std::fs::remove_file(machine.at(file)).unwrap();
    }
    let run = machine.run(&["doctor", A]);
    assert_eq!(run.code, 0, "{}", run.out);
    says(&run.out, &["ok    VFIO             vfio-pci and iommufd", "IOMMU interface  iommufd"]);
}

#[test]
fn a_user_with_rights_to_the_group_only_uses_the_group() {
    let machine = bound();
    with_iommufd(&machine);
    // The group was given to this user, iommufd was not.
    machine.status(12345, 12345, "0000000000000000");
    machine.public("/dev/vfio/12");
    machine.public("/dev/vfio/vfio");
    let run = machine.run(&["doctor", A, "--json"]);
    let (state, found, _) = check(&run, "IOMMU interface");
    assert_eq!(state, "ok");
    says(&found, &["type1", "/dev/iommu is there, but not for this user"]);
    assert_eq!(check(&run, "rights").0, "ok");
    let (state, found, remedy) = doctor(&machine, &["--iommu", "iommufd"], "rights");
    assert_eq!(state, "fail");
    says(&found, &["user 12345 may not open", CDEV]);
    says(&remedy, &["sudo chown $USER", "SUBSYSTEM==\"vfio-dev\""]);
}

#[test]
fn a_group_without_an_iommu_is_refused_in_words() {
    let machine = bound();
    machine.file("/sys/kernel/iommu_groups/12/name", "vfio-noiommu");
    machine.file("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y");
    let run = machine.run(&["doctor", A, "--json"]);
    assert_eq!(run.code, 1);
    let (state, found, remedy) = check(&run, "IOMMU group");
    assert_eq!(state, "fail");
    says(&found, &["/dev/vfio/noiommu-12", "all of this machine's memory"]);
    says(&remedy, &["intel_iommu=on", "echo N > /sys/module/vfio/parameters"]);
    assert_eq!(check(&run, "no-IOMMU mode").0, "warn");

    let (state, found, remedy) = doctor(&machine, &["--iommu", "none"], "IOMMU interface");
    assert_eq!(state, "fail");
    says(&found, &["physical addresses", "contiguous"]);
    says(&remedy, &["switch the IOMMU on"]);
}

#[test]
fn virtual_functions_that_are_left_come_with_the_command_that_ends_them() {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("mlx5_core"));
    machine.file(&format!("{FOLDER}/sriov_numvfs"), "4");
    let (state, found, remedy) = doctor(&machine, &[], "in use");
    assert_eq!(state, "warn");
    says(&found, &["its 4 virtual functions vanish"]);
    let command = format!("echo 0 | sudo tee {FOLDER}/sriov_numvfs");
    says(&remedy, &[&command]);
    let run = machine.run(&["bind", A]);
    assert_eq!(run.code, 1);
    says(&run.out, &["refused: its 4 virtual functions", &format!("-> {command}")]);
}

#[test]
fn a_default_route_on_the_card_is_named_before_it_is_lost() {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("mlx5_core"));
    machine.netdev(A, "enp59s0f0");
    machine.file(
        "/proc/net/route",
        "Iface\tDestination\tGateway\nenp59s0f0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0",
    );
    let (state, found, remedy) = doctor(&machine, &[], "in use");
    assert_eq!(state, "warn");
    says(&found, &["enp59s0f0 carries the default IPv4 route"]);
    says(&remedy, &["from another interface: sudo ip addr flush dev enp59s0f0"]);
    let run = machine.run(&["bind", "--check", A]);
    says(&run.out, &["refused: enp59s0f0 carries", "-> from another interface"]);
}

#[test]
fn lockdown_says_what_still_works() {
    let machine = bound();
    machine.file("/sys/kernel/security/lockdown", "[none] integrity confidentiality");
    assert!(!machine.run(&["doctor", A]).out.contains("lockdown"));
    machine.file("/sys/kernel/security/lockdown", "none [integrity] confidentiality");
    let (state, found, remedy) = doctor(&machine, &[], "lockdown");
    assert_eq!(state, "ok");
    says(&found, &["integrity: VFIO works", "setpci"]);
    assert_eq!(remedy, "");
    std::fs::remove_dir_all(machine.at("/sys/bus/pci/drivers/vfio-pci")).unwrap();
    let (_, _, remedy) = doctor(&machine, &[], "lockdown");
    says(&remedy, &["sudo mokutil --import"]);
}

#[test]
fn vfio_pci_that_takes_the_card_at_boot_is_named_with_its_place() {
    let machine = bound();
    for (path, text, place) in [
        ("/proc/cmdline", "ro vfio-pci.ids=8086:1572,15b3:1019", "kernel's command line"),
        (
            "/etc/modprobe.d/vfio.conf",
            "# ours\noptions vfio-pci ids=15b3:1019:15b3:0008",
            "/etc/modprobe.d/vfio.conf",
        ),
    ] {
        machine.file(path, text);
        let (state, found, remedy) = doctor(&machine, &[], "at boot");
        assert_eq!(state, "warn");
        says(&found, &["every 15b3:1019 of this machine goes to vfio-pci", place]);
        says(&remedy, &["update-initramfs", "dracut"]);
        machine.file(path, "ro options vfio-pci ids=15b3:101");
        assert!(!machine.run(&["doctor", A]).out.contains("at boot"), "{path}");
    }
}

#[test]
fn an_override_that_names_another_driver_is_a_warning() {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("mlx5_core"));
    for name in ["mlx5_core", "(null)", ""] {
        machine.file(&format!("{FOLDER}/driver_override"), name);
        assert!(!machine.run(&["doctor", A]).out.contains("driver_override"), "{name}");
    }
    machine.file(&format!("{FOLDER}/driver_override"), "pci-stub");
    let (state, found, remedy) = doctor(&machine, &[], "driver_override");
    assert_eq!(state, "warn");
    says(&found, &["it names pci-stub"]);
    says(&remedy, &["echo | sudo tee", "driver_override"]);
}

#[test]
fn a_container_is_recognised_and_gets_its_list_of_devices() {
    let machine = bound();
    machine.file("/.dockerenv", "");
    let (state, found, _) = doctor(&machine, &[], "container");
    assert_eq!(state, "ok");
    says(&found, &["no capability is needed"]);
    std::fs::remove_file(machine.at("/dev/vfio/12")).unwrap();
    let (state, _, remedy) = doctor(&machine, &[], "container");
    assert_eq!(state, "fail");
    says(
        &remedy,
        &["docker run --device /dev/vfio/vfio --device /dev/vfio/12 --ulimit memlock=-1"],
    );

    with_iommufd(&machine);
    machine.file("/run/.containerenv", "");
    std::fs::remove_file(machine.at("/dev/iommu")).unwrap();
    let (_, _, remedy) = doctor(&machine, &[], "container");
    says(&remedy, &["podman run --device /dev/vfio/vfio"]);
}
