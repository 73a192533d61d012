//! `dat bind` and `dat unbind` over machines of files, with a thread that does what the kernel
//! does.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::machine::{Machine, Run};

const A: &str = "0000:3b:00.0";
const FOLDER: &str = "/sys/bus/pci/devices/0000:3b:00.0";
const DEFAULT_V4: &str =
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT";

/// Runs the command while a thread answers like the kernel: a device unbound loses its driver, a
/// device probed gets the one that the override names, or `own` if there is none.
fn with_kernel(machine: &Machine, own: Option<&str>, args: &[&str]) -> Run {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let kernel = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let driver = machine.at(&format!("{FOLDER}/driver"));
                let unbind = driver.join("unbind");
                if fs::read_to_string(&unbind).is_ok_and(|text| text == format!("{A}\n")) {
                    fs::write(&unbind, "").unwrap();
                    fs::remove_file(&driver).unwrap();
                }
                let probe = machine.at("/sys/bus/pci/drivers_probe");
                // The write that unbinds is seen first, as it is carried out first.
                if !driver.exists() && fs::read_to_string(&probe).unwrap() == format!("{A}\n") {
                    fs::write(&probe, "").unwrap();
                    let over = machine.text(&format!("{FOLDER}/driver_override"));
                    let over = over.trim();
                    if let Some(driver) = if over.is_empty() { own } else { Some(over) } {
                        machine.driver(A, driver);
                    }
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let run = machine.run(args);
        over.store(true, Ordering::Relaxed);
        kernel.join().unwrap();
        run
    })
}

fn driver(machine: &Machine) -> Option<String> {
    let link = fs::read_link(machine.at(&format!("{FOLDER}/driver"))).ok()?;
    Some(link.file_name().unwrap().to_string_lossy().into_owned())
}

#[test]
fn a_device_goes_to_vfio_and_back() {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("mlx5_core"));
    machine.netdev(A, "enp59s0f0");
    let run = with_kernel(&machine, Some("mlx5_core"), &["bind", "3b:00.0"]);
    assert_eq!(
        (run.code, run.out.as_str()),
        (0, "0000:3b:00.0: mlx5_core -> vfio-pci\n"),
        "{}",
        run.err
    );
    assert_eq!(driver(&machine).as_deref(), Some("vfio-pci"));

    let run = machine.run(&["bind", A]);
    assert_eq!((run.code, run.out.as_str()), (0, "0000:3b:00.0 is bound to vfio-pci already\n"));

    let run = with_kernel(&machine, Some("mlx5_core"), &["unbind", A, "--json"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let json = run.json();
    assert_eq!(json[0]["driver_before"], "vfio-pci");
    assert_eq!(json[0]["driver_after"], "mlx5_core");
    assert_eq!(json[0]["done"], true);
    assert_eq!(driver(&machine).as_deref(), Some("mlx5_core"));
    assert_eq!(machine.text(&format!("{FOLDER}/driver_override")), "\n");

    let run = machine.run(&["unbind", A]);
    assert_eq!(
        (run.code, run.out.as_str()),
        (0, "0000:3b:00.0 has its driver mlx5_core already\n")
    );
}

#[test]
fn check_prints_the_writes_and_makes_none() {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("mlx5_core"));
    machine.hca("0000:3b:00.1", 12, Some("mlx5_core"));
    let run = machine.run(&["bind", "--check", A]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert_eq!(
        run.out,
        "0000:3b:00.0: would do, as root:\n\
         \x20 echo vfio-pci > /sys/bus/pci/devices/0000:3b:00.0/driver_override\n\
         \x20 echo 0000:3b:00.0 > /sys/bus/pci/devices/0000:3b:00.0/driver/unbind\n\
         \x20 echo 0000:3b:00.0 > /sys/bus/pci/drivers_probe\n\
         IOMMU group 12 cannot be used before all of it is handed over: sudo dat bind 0000:3b:00.1\n"
    );
    assert_eq!(machine.text(&format!("{FOLDER}/driver_override")), "(null)\n");
    assert_eq!(driver(&machine).as_deref(), Some("mlx5_core"));

    let both = machine.run(&["bind", "--check", A, "0000:3b:00.1"]);
    assert!(!both.out.contains("cannot be used"), "{}", both.out);

    fs::remove_dir_all(machine.at("/sys/bus/pci/drivers/vfio-pci")).unwrap();
    let run = machine.run(&["bind", "--check", A]);
    assert_eq!(run.code, 1);
    assert!(run.out.contains("sudo modprobe vfio-pci"), "{}", run.out);
    let run = machine.run(&["bind", A]);
    assert_eq!(run.code, 1);
    assert!(run.err.contains("help: sudo modprobe vfio-pci"), "{}", run.err);
}

/// Losses of the machine, by the files that show them; each with its text.
#[test]
fn a_device_that_carries_connections_is_refused_unless_forced() {
    let route = |interface: &str, to: [u8; 4], gateway: u32, mask: [u8; 4]| {
        let word = |bytes| u32::from_ne_bytes(bytes);
        format!(
            "{DEFAULT_V4}\n{interface}\t{:08X}\t{gateway:08X}\t0001\t0\t0\t100\t{:08X}\t0\t0\t0",
            word(to),
            word(mask)
        )
    };
    let zeros = "00000000000000000000000000000000";
    let cases: [(&str, String, &str); 6] = [
        (
            "/proc/net/route",
            route("enp59s0f0", [0; 4], 0x0101_a8c0, [0; 4]),
            "enp59s0f0 carries the default IPv4 route",
        ),
        (
            "/proc/net/route",
            route("enp59s0f0", [192, 168, 7, 0], 0, [255, 255, 255, 0]),
            "enp59s0f0 carries the IPv4 network 192.168.7.0/24",
        ),
        // A bond above it, and a VLAN above that.
        (
            "/proc/net/route",
            route("bond0.7", [10, 0, 0, 0], 0, [255, 0, 0, 0]),
            "bond0.7 carries the IPv4 network 10.0.0.0/8",
        ),
        (
            "/proc/net/ipv6_route",
            format!(
                "{zeros} 00 {zeros} 00 fe800000000000000000000000000001 00000400 1 0 00000003 enp59s0f0"
            ),
            "enp59s0f0 carries the default IPv6 route",
        ),
        (
            "/proc/net/if_inet6",
            "fd000000000000070000000000000001 04 40 00 80 enp59s0f0".into(),
            "enp59s0f0 has the IPv6 address fd00:0:0:7::1",
        ),
        (
            "/sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs",
            "4".into(),
            "its 4 virtual functions vanish",
        ),
    ];
    for (path, text, words) in cases {
        let machine = Machine::ready();
        machine.hca(A, 12, Some("mlx5_core"));
        machine.netdev(A, "enp59s0f0");
        machine.folder("/sys/class/net/enp59s0f0/upper_bond0");
        machine.folder("/sys/class/net/bond0/upper_bond0.7");
        // A cycle, which must not be followed for ever.
        machine.folder("/sys/class/net/bond0.7/upper_enp59s0f0");
        machine.file(path, &text);
        for args in [&["bind", A][..], &["bind", "--check", A]] {
            let run = machine.run(args);
            assert_eq!(run.code, 1, "{words}");
            assert!(run.out.contains(&format!("{A}: refused: {words}")), "{words}: {}", run.out);
        }
        assert_eq!(driver(&machine).as_deref(), Some("mlx5_core"));
        let run = with_kernel(&machine, None, &["bind", "--force", A]);
        assert_eq!(run.code, 0, "{}", run.err);
        assert_eq!(driver(&machine).as_deref(), Some("vfio-pci"));
    }
}

#[test]
fn routes_of_other_interfaces_are_no_objection() {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("mlx5_core"));
    machine.netdev(A, "enp59s0f0");
    machine.file(
        "/proc/net/route",
        &format!(
            "{DEFAULT_V4}\neth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\nshort line"
        ),
    );
    let zeros = "00000000000000000000000000000000";
    // The unreachable default, which every interface-less table has, and a link-local address.
    machine.file(
        "/proc/net/ipv6_route",
        &format!("{zeros} 00 {zeros} 00 {zeros} ffffffff 1 0 00200200 enp59s0f0"),
    );
    machine.file("/proc/net/if_inet6", "fe800000000000000000000000000001 04 40 20 80 enp59s0f0");
    let run = machine.run(&["bind", "--check", A]);
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
}

#[test]
fn a_kernel_that_does_nothing_is_reported() {
    let machine = Machine::ready();
    machine.hca(A, 12, None);
    let run = machine.run(&["bind", A]);
    assert_eq!(run.code, 1);
    assert!(run.err.contains("did not bind it to vfio-pci; it has no driver"), "{}", run.err);
    assert!(run.err.contains("dmesg"), "{}", run.err);
}

#[test]
fn a_failed_write_is_reported_and_undone() {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("mlx5_core"));
    fs::remove_file(machine.at("/sys/bus/pci/drivers_probe")).unwrap();
    let run = machine.run(&["bind", A]);
    assert_eq!(run.code, 1);
    assert!(
        run.err.contains("error: echo 0000:3b:00.0 > /sys/bus/pci/drivers_probe: No such file"),
        "{}",
        run.err
    );
    assert_eq!(machine.text(&format!("{FOLDER}/driver_override")), "\n");
}

#[test]
fn a_user_who_may_not_bind_learns_that_root_may() {
    let machine = Machine::ready();
    machine.hca(A, 12, Some("mlx5_core"));
    // A file that the kernel lets nobody write, root neither.
    machine.link(&format!("{FOLDER}/driver_override"), "/proc/sys/kernel/ostype");
    let run = machine.run(&["bind", A]);
    assert_eq!(run.code, 1);
    for words in ["driver_override: Permission denied", "help: only root may do this: sudo dat"] {
        assert!(run.err.contains(words), "{words}: {}", run.err);
    }
    assert_eq!(driver(&machine).as_deref(), Some("mlx5_core"));
}

#[test]
fn a_kernel_that_binds_it_to_vfio_again_is_reported_with_what_makes_it() {
    let again = |machine: &Machine, help: &str| {
        machine.hca(A, 12, Some("vfio-pci"));
        let run = with_kernel(machine, Some("vfio-pci"), &["unbind", A]);
        assert_eq!(run.code, 1, "{}", run.out);
        for words in ["0000:3b:00.0: the kernel bound it to vfio-pci again", help] {
            assert!(run.err.contains(words), "{words}: {}", run.err);
        }
    };
    // Each waits for another driver for some seconds.
    std::thread::scope(|scope| {
        scope.spawn(|| again(&Machine::ready(), "help: look for an `ids=` option of vfio-pci"));
        let machine = Machine::ready();
        machine.file("/proc/cmdline", "ro vfio-pci.ids=15b3:1019");
        again(&machine, "help: take it out of vfio-pci.ids=15b3:1019 on the kernel's command line");
    });
}

#[test]
fn impossible_arguments_are_usage_errors() {
    let machine = Machine::ready();
    for args in [
        &["bind"][..],
        &["bind", "nonsense"],
        &["bind", "vfio-user:/tmp/x"],
        &["bind", "vfio-user:"],
        &["doctor", "0000:3b:00"],
        &["list", "--frobnicate"],
        &["frobnicate"],
        &[],
    ] {
        let run = machine.run(args);
        assert_eq!(run.code, 2, "{args:?}: {}{}", run.out, run.err);
        assert!(!run.err.is_empty() && run.out.is_empty(), "{args:?}");
    }
    let run = machine.run(&["bind", "--json", "vfio-user:/tmp/x"]);
    assert_eq!(run.code, 2);
    assert!(run.json()["error"].as_str().unwrap().contains("only PCI devices"));
}
