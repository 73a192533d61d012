//! `dat list`, `dat info` and `dat doctor` over machines of files.

use crate::machine::{Machine, Run};

const A: &str = "0000:3b:00.0";
const B: &str = "0000:3b:00.1";

/// Asserts that the text has these pieces, in this order.
#[track_caller]
pub(crate) fn says(text: &str, pieces: &[&str]) {
    let mut rest = text;
    for piece in pieces {
        let at = rest.find(piece);
        let at =
            at.unwrap_or_else(|| panic!("{piece:?} is missing, or comes too early, in:\n{text}"));
        rest = &rest[at + piece.len()..];
    }
}

/// The check of that name in the JSON of doctor.
#[track_caller]
pub(crate) fn check(run: &Run, name: &str) -> (String, String, String) {
    let report = run.json();
    let all = report["checks"].as_array().unwrap();
    let check = all.iter().find(|check| check["check"] == name);
    let check = check.unwrap_or_else(|| panic!("no check {name} in {report:#}"));
    let remedies: Vec<&str> =
        check["remedy"].as_array().unwrap().iter().map(|remedy| remedy.as_str().unwrap()).collect();
    (
        check["state"].as_str().unwrap().into(),
        check["found"].as_str().unwrap().into(),
        remedies.join("\n"),
    )
}

#[test]
fn a_machine_without_an_hca_has_an_empty_list_and_failed_checks() {
    let machine = Machine::bare();
    let run = machine.run(&["list"]);
    assert_eq!((run.code, run.out.as_str()), (0, ""));
    says(&run.err, &["there is no HCA here", "15b3"]);
    assert_eq!(machine.run(&["list", "--quiet"]).err, "");
    let run = machine.run(&["list", "--json"]);
    assert_eq!((run.code, run.json()), (0, serde_json::json!([])));

    let run = machine.run(&["doctor"]);
    assert_eq!(run.code, 1);
    says(
        &run.out,
        &[
            "FAIL  IOMMU            none",
            "VT-d",
            "intel_iommu=on",
            "FAIL  VFIO             not loaded: vfio-pci, vfio_iommu_type1",
            "sudo modprobe -a vfio-pci vfio_iommu_type1",
            "FAIL  locked memory",
            "FAIL  HCA              none",
            "problems found",
        ],
    );
}

#[test]
fn the_real_machine_is_checked_without_a_panic() {
    for verb in ["list", "doctor"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_dat")).arg(verb).output();
        let run = Run::of(output.unwrap());
        assert!(run.code == 0 || verb == "doctor" && run.code == 1, "{}", run.err);
        assert!(!run.out.is_empty() || !run.err.is_empty());
    }
}

#[test]
fn a_ready_machine_has_a_healthy_hca() {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("vfio-pci"));
    let run = machine.run(&["doctor"]);
    assert_eq!(run.code, 0, "{}", run.out);
    says(
        &run.out,
        &[
            "ok    IOMMU            Intel VT-d; 1 groups",
            "ok    VFIO",
            "ok    locked memory",
            "any amount allowed",
            "ok    DMA entries",
            "65535 allowed",
            "ok    huge pages",
            "ok    HCA              1 mlx5 function found",
            A,
            "ok    device           ConnectX-5 Ex (15b3:1019), NUMA node 1",
            "ok    driver           vfio-pci",
            "ok    IOMMU group      12, alone in it",
            "ok    rights",
            "ok    PCI link         16.0 GT/s x16",
            "no problem found",
        ],
    );
    assert!(machine.run(&["doctor", "--json"]).json()["well"] == true);

    let run = machine.run(&["list"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    says(
        &run.out,
        &[
            "ADDRESS",
            "GROUP",
            A,
            "ConnectX-5 Ex",
            "15b3:1019",
            "vfio-pci",
            "12",
            "16.0 GT/s x16",
            "1",
        ],
    );
}

#[test]
fn two_hcas_in_one_group_are_usable_only_together() {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("vfio-pci"));
    machine.hca(B, 12, Some("mlx5_core"));
    machine.netdev(B, "enp59s0f1");
    machine.device("0000:3a:00.0", (0x8086, 0x2030), 0x06_0400, 12, Some("pcieport"));
    let run = machine.run(&["doctor", A, "--json"]);
    assert_eq!(run.code, 1);
    let (state, found, remedy) = check(&run, "IOMMU group");
    assert_eq!(state, "fail");
    says(
        &found,
        &[
            "12, together with",
            "0000:3a:00.0 (bridge, driver pcieport)",
            "0000:3b:00.1 (15b3:1019, driver mlx5_core, blocks the group)",
        ],
    );
    says(&remedy, &["sudo dat bind 0000:3b:00.1"]);

    // A member without a driver leaves the group to user space.
    std::fs::remove_file(machine.at(&format!("/sys/bus/pci/devices/{B}/driver"))).unwrap();
    let run = machine.run(&["doctor", A]);
    assert_eq!(run.code, 0, "{}", run.out);
    says(&run.out, &["0000:3b:00.1 (15b3:1019, no driver)"]);
}

#[test]
fn an_hca_of_a_kernel_driver_is_listed_with_its_details() {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("mlx5_core"));
    machine.netdev(A, "enp59s0f0");
    let run = machine.run(&["list"]);
    says(&run.out, &[A, "mlx5_core", "16.35.4030", "enp59s0f0"]);
    let json = machine.run(&["list", "--json"]).json();
    let hca = &json[0];
    assert_eq!(hca["address"], A);
    assert_eq!(hca["firmware"], "16.35.4030");
    assert_eq!(hca["board"], "MT_0000000012");
    assert_eq!(hca["iommu_group"], 12);

    let run = machine.run(&["doctor", A, "--json"]);
    assert_eq!(run.code, 1);
    let (state, found, remedy) = check(&run, "driver");
    assert_eq!(state, "fail");
    says(&found, &["mlx5_core", "has to be bound to vfio-pci"]);
    says(&remedy, &["sudo dat bind 0000:3b:00.0"]);
    let run = machine.run(&["info", A]);
    assert_eq!(run.code, 0, "{}", run.err);
    says(&run.out, &["address", A, "ConnectX-5 Ex", "mlx5_core", "16.35.4030"]);
}

#[test]
fn virtual_functions_and_unsupported_devices_are_distinguished() {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("mlx5_core"));
    machine.file(&format!("/sys/bus/pci/devices/{A}/sriov_numvfs"), "1");
    let vf = "0000:3b:01.2";
    machine.device(vf, (0x15b3, 0x101a), 0x02_0000, 40, Some("vfio-pci"));
    machine.link(&format!("/sys/bus/pci/devices/{vf}/physfn"), &format!("../{A}"));
    machine.file("/dev/vfio/40", "");
    machine.device("0000:5e:00.0", (0x15b3, 0x1003), 0x02_8000, 50, None);
    machine.device("0000:00:1f.6", (0x8086, 0x15be), 0x02_0000, 9, Some("e1000e"));
    machine.device("0000:3c:00.0", (0x15b3, 0x1976), 0x06_0400, 51, Some("pcieport"));
    let run = machine.run(&["list"]);
    says(&run.out, &[A, vf, "ConnectX-5 Ex VF", "0000:5e:00.0", "not an mlx5 device"]);
    assert!(!run.out.contains("00:1f.6") && !run.out.contains("3c:00.0"), "{}", run.out);
    let run = machine.run(&["doctor", vf]);
    assert_eq!(run.code, 0, "{}", run.out);
    says(&run.out, &["ConnectX-5 Ex VF (15b3:101a), virtual function of 0000:3b:00.0"]);

    let newer = "0000:60:00.0";
    machine.device(newer, (0x15b3, 0x1ff3), 0x02_0000, 60, Some("vfio-pci"));
    machine.file("/dev/vfio/60", "");
    let run = machine.run(&["doctor", newer]);
    assert_eq!(run.code, 0, "{}", run.out);
    says(&run.out, &["warn", "unknown mlx5 device (15b3:1ff3)", "newer than this driver"]);

    for (address, words) in [
        ("5e:00.0", "15b3:1003 is no mlx5 device"),
        ("00:1f.6", "no NVIDIA/Mellanox network controller, but 8086:15be of class 020000"),
        ("77:00.0", "there is no such PCI device"),
    ] {
        let run = machine.run(&["doctor", address]);
        assert_eq!(run.code, 1);
        says(&run.err, &["dat: error: 0000:", words, "help:"]);
    }
}

#[test]
fn too_little_locked_memory_is_named_with_need_limit_and_remedy() {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("vfio-pci"));
    machine.memlock("65536", "unlimited");
    let run = machine.run(&["doctor", A, "--json"]);
    assert_eq!(run.code, 1);
    let (state, found, remedy) = check(&run, "locked memory");
    assert_eq!(state, "fail");
    says(&found, &["MiB needed, up to", "64 KiB allowed"]);
    says(&remedy, &["ulimit -l "]);

    machine.memlock("65536", "65536");
    let (state, _, remedy) = check(&machine.run(&["doctor", A, "--json"]), "locked memory");
    assert_eq!(state, "fail");
    says(&remedy, &["/etc/security/limits.conf", "LimitMEMLOCK="]);

    // Enough to start with, perhaps not for all the firmware may ask for.
    machine.memlock("100000000", "100000000");
    let run = machine.run(&["doctor", A, "--json"]);
    assert_eq!(run.code, 0, "{}", run.out);
    assert_eq!(check(&run, "locked memory").0, "warn");

    // CAP_IPC_LOCK.
    machine.user("0000000000004000");
    let (state, found, _) = check(&machine.run(&["doctor", A, "--json"]), "locked memory");
    assert_eq!(state, "ok");
    says(&found, &["may lock any amount"]);

    machine.user("0000000000000000");
    machine.file("/proc/self/limits", "no such line");
    let (state, _, _) = check(&machine.run(&["doctor", A, "--json"]), "locked memory");
    assert_eq!(state, "warn");
}

#[test]
fn too_few_dma_entries_and_huge_pages_are_named() {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("vfio-pci"));
    machine.file("/sys/module/vfio_iommu_type1/parameters/dma_entry_limit", "0");
    machine.file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0");
    let run = machine.run(&["doctor", A, "--json"]);
    assert_eq!(run.code, 1);
    let (state, found, remedy) = check(&run, "DMA entries");
    assert_eq!(state, "fail");
    says(&found, &["needed, 0 allowed"]);
    says(&remedy, &["echo 65535 | sudo tee", "dma_entry_limit"]);
    let (state, found, remedy) = check(&run, "huge pages");
    assert_eq!(state, "warn");
    says(&found, &["0 of 1024 are free", "4 KiB pages"]);
    says(&remedy, &["sudo tee", "nr_hugepages"]);
}

#[test]
fn the_rights_to_the_group_are_this_users() {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("vfio-pci"));
    machine.status(12345, 12345, "0000000000000000");
    let run = machine.run(&["doctor", A, "--json"]);
    assert_eq!(run.code, 1);
    let (state, found, remedy) = check(&run, "rights");
    assert_eq!(state, "fail");
    says(&found, &["user 12345 may not open /dev/vfio/12", "mode 600"]);
    says(&remedy, &["sudo chown $USER /dev/vfio/12", "udev"]);

    // CAP_DAC_OVERRIDE.
    machine.status(12345, 12345, "0000000000000002");
    assert_eq!(check(&machine.run(&["doctor", A, "--json"]), "rights").0, "ok");

    std::fs::remove_file(machine.at("/dev/vfio/12")).unwrap();
    let (state, found, _) = check(&machine.run(&["doctor", A, "--json"]), "rights");
    assert_eq!(state, "fail");
    says(&found, &["/dev/vfio/12 is not there"]);
}

#[test]
fn a_missing_iommu_is_explained() {
    let machine = Machine::bare();
    machine.file("/proc/cmdline", "ro intel_iommu=off");
    let run = machine.run(&["doctor", "--json"]);
    let (_, found, remedy) = check(&run, "IOMMU");
    says(&found, &["started with intel_iommu=off"]);
    says(&remedy, &["take intel_iommu=off off"]);

    machine.file("/proc/cmdline", "ro");
    for (cpu, words) in [
        ("vendor_id\t: AuthenticAMD", "AMD-Vi"),
        ("vendor_id\t: GenuineIntel\nflags\t: fpu hypervisor", "virtual machine"),
        ("CPU architecture: 8", "switch the IOMMU on"),
    ] {
        machine.file("/proc/cpuinfo", cpu);
        let (state, _, remedy) = check(&machine.run(&["doctor", "--json"]), "IOMMU");
        assert_eq!(state, "fail");
        says(&remedy, &[words]);
    }

    machine.file("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y");
    let (state, found, _) = check(&machine.run(&["doctor", "--json"]), "no-IOMMU mode");
    assert_eq!(state, "warn");
    says(&found, &["not used here"]);

    machine.hca(A, 1, Some("vfio-pci"));
    std::fs::remove_dir_all(machine.at("/sys/kernel/iommu_groups")).unwrap();
    std::fs::remove_file(machine.at(&format!("/sys/bus/pci/devices/{A}/iommu_group"))).unwrap();
    let (state, found, _) = check(&machine.run(&["doctor", A, "--json"]), "IOMMU group");
    assert_eq!(state, "fail");
    says(&found, &["it is in none"]);
}

#[test]
fn a_slow_link_is_a_warning() {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("vfio-pci"));
    machine.file(&format!("/sys/bus/pci/devices/{A}/current_link_width"), "4");
    let run = machine.run(&["doctor", A, "--json"]);
    assert_eq!(run.code, 0);
    let (state, found, _) = check(&run, "PCI link");
    assert_eq!(
        (state.as_str(), found.as_str()),
        ("warn", "16.0 GT/s x4; the device can do 16.0 GT/s x16")
    );
}

#[test]
fn modules_without_their_files_are_a_container_s_or_udev_s() {
    let machine = Machine::ready();
    std::fs::remove_file(machine.at("/dev/vfio/vfio")).unwrap();
    let run = machine.run(&["doctor", "--json"]);
    assert_eq!(run.code, 1);
    let (state, found, remedy) = check(&run, "VFIO");
    assert_eq!(state, "fail");
    says(&found, &["the modules are loaded, but /dev/vfio/vfio is not there"]);
    says(&remedy, &["in a container: pass /dev/vfio in; else look at udev"]);
}

#[test]
fn a_device_is_compared_with_reports_only() {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("mlx5_core"));
    let file = machine.at("/report");
    let file = file.to_str().unwrap();
    for (text, words) in
        [("{", "report is no report: EOF"), ("{}", "report is no report of dat info")]
    {
        machine.file("/report", text);
        let run = machine.run(&["info", A, "--against", file]);
        assert_eq!((run.code, run.out.as_str()), (2, ""));
        says(&run.err, &[words, "help: give --against what dat info --json has written"]);
    }
}

#[test]
fn a_result_that_is_not_written_is_a_failure() {
    let machine = Machine::bare();
    for args in [&["list", "--json"][..], &["doctor"], &["conf", A, "--ip", "10.0.0.1/8"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let run = Run::of(machine.command(args).stdout(full).output().unwrap());
        assert_eq!(run.code, 1, "{args:?}");
        says(&run.err, &["dat: error: standard output: No space left on device"]);
    }
}

#[test]
fn malformed_files_in_the_tree_do_not_panic() {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("vfio-pci"));
    let folder = format!("/sys/bus/pci/devices/{A}");
    for name in
        ["current_link_speed", "current_link_width", "max_link_speed", "numa_node", "sriov_numvfs"]
    {
        for text in ["", "-1", "99999999999999999999999", "Unknown", "0xzz", "\u{fffd}\u{0}"] {
            machine.file(&format!("{folder}/{name}"), text);
            for verb in ["list", "doctor", "info"] {
                let args: &[&str] = if verb == "list" { &["list"] } else { &[verb, A] };
                let run = machine.run(args);
                assert!(run.code == 0, "{name} {text:?}: {}{}", run.out, run.err);
            }
        }
    }
    for (path, text) in [
        ("/proc/self/status", "Uid:\nGid:\t1\nCapEff:\tzz"),
        ("/proc/self/limits", "Max locked memory"),
        ("/sys/module/vfio_iommu_type1/parameters/dma_entry_limit", "many"),
    ] {
        machine.file(path, text);
        let run = machine.run(&["doctor"]);
        assert!(run.code <= 1);
    }
    // Not a folder, not a number, not a link.
    machine.file("/sys/kernel/iommu_groups/77/devices", "");
    machine.link(&format!("{folder}/iommu_group"), "../../twelve");
    assert_eq!(machine.run(&["list"]).code, 0);
}
