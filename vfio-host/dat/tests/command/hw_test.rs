//! The guards of `dat hw-test`: a function that the machine needs is refused, and --yes changes
//! nothing about that.

use crate::machine::Machine;

const A: &str = "0000:3b:00.0";
const NAME: &str = "enp59s0f0";
const ROUTES: &str =
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT";
const SOCKETS: &str = "  sl  local_address rem_address   st tx_queue rx_queue";

fn machine() -> Machine {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("mlx5_core"));
    machine.netdev(A, NAME);
    machine
}

fn word(bytes: [u8; 4]) -> String {
    format!("{:08X}", u32::from_ne_bytes(bytes))
}

fn route(to: [u8; 4], mask: [u8; 4]) -> String {
    let (to, mask) = (word(to), word(mask));
    format!("{ROUTES}\n{NAME}\t{to}\t00000000\t0001\t0\t0\t0\t{mask}\t0\t0\t0")
}

/// Runs it with --yes; it must be refused for this reason and change nothing.
#[track_caller]
fn refused(machine: &Machine, why: &str) {
    let report = machine.at("/report");
    let run = machine.run(&["hw-test", A, "--yes", "--report", report.to_str().unwrap()]);
    assert_eq!(run.code, 1, "{}", run.out);
    assert!(run.err.contains("refused") && run.err.contains(why), "{why}: {}", run.err);
    assert!(!report.exists());
    assert_eq!(machine.text(&format!("/sys/bus/pci/devices/{A}/driver_override")), "(null)\n");
}

#[test]
fn the_default_route_is_refused() {
    let machine = machine();
    machine.file("/proc/net/route", &route([0; 4], [0; 4]));
    refused(&machine, "carries the default IPv4 route");
}

#[test]
fn an_ssh_session_is_refused() {
    let machine = machine();
    machine.file("/proc/net/route", &route([10, 0, 0, 0], [255, 0, 0, 0]));
    let session = |address: [u8; 4], port: u16, state: &str| {
        format!("{SOCKETS}\n   0: {}:{port:04X} 0202A8C0:D2F0 {state} 00:0", word(address))
    };
    machine.file("/proc/net/tcp", &session([10, 1, 2, 3], 22, "01"));
    refused(&machine, "an SSH session to this machine runs over enp59s0f0");
    // One that has ended, another program's, and one over another interface.
    for table in [
        session([10, 1, 2, 3], 22, "06"),
        session([10, 1, 2, 3], 23, "01"),
        session([192, 168, 2, 2], 22, "01"),
    ] {
        machine.file("/proc/net/tcp", &table);
        let run = machine.run(&["hw-test", A, "--report", "unwritten"]);
        assert!(!run.err.contains("SSH"), "{}", run.err);
    }
    // Of IPv6, and of IPv4 in its mapped form.
    let mapped = format!("{:08X}", u32::from_ne_bytes([0, 0, 0xff, 0xff]));
    let local = format!("0000000000000000{mapped}{}", word([10, 1, 2, 3]));
    machine.file("/proc/net/tcp6", &format!("{SOCKETS}\n   0: {local}:0016 {local}:D2F0 01 00:0"));
    refused(&machine, "an SSH session");
}

#[test]
fn a_root_over_the_network_is_refused() {
    let machine = machine();
    machine.file("/proc/mounts", "10.1.2.9:/srv / nfs4 rw 0 0");
    // Without an address the function does not carry it.
    let run = machine.run(&["hw-test", A, "--report", "unwritten"]);
    assert!(!run.err.contains("mounted"), "{}", run.err);
    machine.file("/proc/net/route", &route([10, 0, 0, 0], [255, 0, 0, 0]));
    refused(&machine, "/ is mounted over the network (nfs4)");
    machine.file("/proc/mounts", "/dev/sda1 / ext4 rw 0 0");
    let disk = "../../devices/platform/host2/session1/target2:0:0/2:0:0:0/block/sda/sda1";
    machine.link("/sys/class/block/sda1", disk);
    refused(&machine, "iSCSI");
    machine.file("/proc/mounts", "/dev/nvme0n1 / ext4 rw 0 0");
    machine.link("/sys/class/block/nvme0n1", "../../devices/virtual/nvme-subsystem/nvme0n1");
    machine.file("/sys/class/nvme/nvme0/transport", "tcp");
    refused(&machine, "NVMe over fabrics");
    machine.file("/sys/class/nvme/nvme0/transport", "pcie");
    let run = machine.run(&["hw-test", A, "--report", "unwritten"]);
    assert!(!run.err.contains("mounted"), "{}", run.err);
}

#[test]
fn a_shared_group_and_virtual_functions_are_refused() {
    let machine = machine();
    machine.hca("0000:3b:00.1", 12, Some("mlx5_core"));
    refused(&machine, "0000:3b:00.1");
    let machine = self::machine();
    machine.file(&format!("/sys/bus/pci/devices/{A}/sriov_numvfs"), "4");
    refused(&machine, "its 4 virtual functions");
}

#[test]
fn without_yes_it_says_what_it_would_do_and_how_to_undo_it() {
    let machine = machine();
    machine.file("/proc/net/route", &route([10, 0, 0, 0], [255, 0, 0, 0]));
    let run = machine.run(&["hw-test", A, "--report", "unwritten"]);
    assert_eq!(run.code, 1);
    for words in ["taken from mlx5_core", "sudo dat unbind 0000:3b:00.0", "10.0.0.0/8"] {
        assert!(run.out.contains(words), "{words}: {}", run.out);
    }
    assert!(run.err.contains("nothing was done") && run.err.contains("--yes"), "{}", run.err);
    assert_eq!(machine.text(&format!("/sys/bus/pci/devices/{A}/driver_override")), "(null)\n");
}

#[test]
fn a_copy_of_a_machine_has_no_device_to_test() {
    let machine = machine();
    let report = machine.at("/report");
    let run = machine.run(&["hw-test", A, "--yes", "--report", report.to_str().unwrap()]);
    assert_eq!(run.code, 1, "{}", run.out);
    assert!(run.err.contains("0000:3b:00.0: it is in a copy of a machine"), "{}", run.err);
    assert!(!report.exists());
}

#[test]
fn arguments_that_cannot_be() {
    let machine = machine();
    for (args, words) in [
        (&["hw-test"][..], "DEVICE"),
        (&["hw-test", A], "--report FILE is missing"),
        (&["hw-test", A, "--report", "x", "--steps", "12"], "a step is 0 to 11"),
        (&["hw-test", A, "--report", "x", "--steps", "5-2"], "a step is 0 to 11"),
        (&["hw-test", A, "--report", "x", "--peer", "10.0.0.2"], "--ip"),
        (
            &["hw-test", A, "--report", "x", "--peer", "fd00::1", "--ip", "10.0.0.1/8"],
            "different kinds",
        ),
    ] {
        let run = machine.run(args);
        assert_eq!(run.code, 2, "{args:?}: {}", run.err);
        assert!(run.err.contains(words), "{words}: {}", run.err);
    }
}
