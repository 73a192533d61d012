//! `--vfs`: the virtual functions of a physical function.

use std::process::Command;

use crate::machine::{Machine, Run};

const PARENT: &str = "0000:3b:00.0";
const FOLDER: &str = "/sys/bus/pci/devices/0000:3b:00.0";

/// The address of a virtual function by its number, as they follow the card's two ports.
fn address(nth: usize) -> String {
    format!("0000:3b:{:02x}.{}", (nth + 2) / 8, (nth + 2) % 8)
}

/// A machine with a card whose kernel driver has made virtual functions, each with such a driver.
fn machine(drivers: &[Option<&str>]) -> Machine {
    let machine = Machine::ready();
    machine.hca(PARENT, 12, Some("mlx5_core"));
    machine.file(&format!("{FOLDER}/sriov_totalvfs"), "16");
    machine.file(&format!("{FOLDER}/sriov_numvfs"), &drivers.len().to_string());
    for (group, (nth, driver)) in (20..).zip(drivers.iter().enumerate()) {
        let address = address(nth);
        machine.device(&address, (0x15b3, 0x101a), 0x02_0000, group, *driver);
        machine.link(&format!("/sys/bus/pci/devices/{address}/physfn"), &format!("../{PARENT}"));
        machine.link(&format!("{FOLDER}/virtfn{nth}"), &format!("../{address}"));
    }
    machine
}

fn conf(machine: &Machine, args: &str) -> Run {
    let words: Vec<&str> = args.split_whitespace().collect();
    machine.run(&[&["conf", "--vfs"], &words[..]].concat())
}

#[track_caller]
fn says(run: &Run, code: i32, cause: &str, help: &str) {
    let wanted = format!("dat: error: {cause}\n  help: {help}\n");
    assert_eq!((run.code, run.err.as_str()), (code, wanted.as_str()));
    assert_eq!(run.out, "");
}

#[test]
fn each_virtual_function_has_a_line_in_the_order_of_their_numbers() {
    let machine = machine(&[Some("vfio-pci"); 12]);
    let run = conf(&machine, "3b:00.0 --ip 192.168.6.250/23 --name hca --log warn");
    assert_eq!(run.code, 0, "{}", run.err);
    let lines: Vec<&str> = run.out.lines().collect();
    assert_eq!(lines.len(), 12);
    for (nth, ip) in ["6.250", "6.251", "6.252", "6.253", "6.254", "6.255", "7.0", "7.1", "7.2"]
        .into_iter()
        .chain(["7.3", "7.4", "7.5"])
        .enumerate()
    {
        let function = address(nth);
        let wanted = format!(
            "hca{nth} u2.0 nonthreadsafe default libdapldat.so dapldat.2.0 \
             \"{function} ip=192.168.{ip}/23 log=warn\" \"\""
        );
        assert_eq!(lines[nth], wanted);
    }
}

#[test]
fn two_physical_functions_have_a_row_each() {
    let machine = machine(&[Some("vfio-pci"); 2]);
    let other = "/sys/bus/pci/devices/0000:5e:00.0";
    machine.hca("0000:5e:00.0", 40, Some("mlx5_core"));
    machine.device("0000:5e:00.2", (0x15b3, 0x101a), 0x02_0000, 41, Some("vfio-pci"));
    machine.link(&format!("{other}/virtfn0"), "../0000:5e:00.2");
    let run = conf(&machine, "3b:00.0 5e:00.0 --ip 10.0.0.1/24 --ip fd00::1/64");
    assert_eq!(run.code, 0, "{}", run.err);
    let wanted = ["0000:3b:00.2 ip=10.0.0.1/24", "0000:3b:00.3 ip=10.0.0.2/24"];
    let wanted = [wanted[0], wanted[1], "0000:5e:00.2 ip=fd00::1/64"];
    for (nth, (line, wanted)) in run.out.lines().zip(wanted).enumerate() {
        assert!(line.starts_with(&format!("dat{nth} ")) && line.contains(wanted), "{line}");
    }
    says(
        &conf(&machine, "3b:00.0 5e:00.0 --ip 10.0.0.1/24 --ip 10.0.0.2/24"),
        2,
        "0000:3b:00.3 and 0000:5e:00.2 would both have the address 10.0.0.2",
        "name each physical function once, with an --ip behind those before",
    );
    says(
        &conf(&machine, "3b:00.0 3b:00.0 --ip 10.0.0.1/24 --ip 10.0.0.9/24"),
        2,
        "0000:3b:00.0 is named twice",
        "name each physical function once, with an --ip behind those before",
    );
}

#[test]
fn ranks_take_virtual_functions() {
    let machine = machine(&[Some("vfio-pci"); 2]);
    let folder = tempfile::tempdir().unwrap();
    let run = |ranks: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
        command.args(["run", "-n", ranks, "--vfs", "3b:00.0", "--ip", "10.0.0.1/24", "--root"]);
        command.arg(machine.at("")).args(["--", "sh", "-c", "cat $DAT_OVERRIDE"]);
        Run::of(command.env("TMPDIR", folder.path()).output().unwrap())
    };
    let said = run("2");
    assert_eq!(said.code, 0, "{}", said.err);
    for parameters in ["\"0000:3b:00.2 ip=10.0.0.1/24\"", "\"0000:3b:00.3 ip=10.0.0.2/24\""] {
        assert!(said.out.contains(parameters), "{}", said.out);
    }
    let said = run("3");
    let wanted = "3 ranks, but 2 functions are named";
    assert!(said.code == 1 && said.err.contains(wanted), "{}", said.err);
}

#[test]
fn a_row_of_addresses_ends_with_its_network() {
    let machine = machine(&[Some("vfio-pci"); 4]);
    assert_eq!(conf(&machine, "3b:00.0 --ip 10.0.0.251/24").code, 0);
    says(
        &conf(&machine, "3b:00.0 --ip 10.0.0.252/24"),
        2,
        "--ip 10.0.0.252/24: 0000:3b:00.0 has 4 virtual functions, and the network has 3 \
         addresses from there on",
        "begin with an earlier address, or give a shorter prefix",
    );
    assert_eq!(conf(&machine, "3b:00.0 --ip fd00::1/128").code, 2);
    for (args, times) in [("3b:00.0", 0), ("3b:00.0 --ip 10.0.0.1/8 --ip 10.0.0.2/8", 2)] {
        says(
            &conf(&machine, args),
            2,
            &format!("0000:3b:00.0 need one address each, and --ip is given {times} times"),
            "give --ip ADDRESS/PREFIX once for each, in this order",
        );
    }
}

#[test]
fn functions_of_another_driver_are_named_with_the_command_that_binds_them() {
    let machine = machine(&[Some("vfio-pci"), Some("mlx5_core"), None]);
    says(
        &conf(&machine, "3b:00.0 --ip 10.0.0.1/24"),
        1,
        "0000:3b:00.0: not bound to vfio-pci of its virtual functions: 0000:3b:00.3 (mlx5_core), \
         0000:3b:00.4 (no driver)",
        "sudo dat bind 0000:3b:00.3 0000:3b:00.4",
    );
    machine.link(&format!("{FOLDER}/virtfn3"), "../odd");
    let run = conf(&machine, "3b:00.0 --ip 10.0.0.1/24");
    assert!(run.code == 1 && run.err.contains("/virtfn3: it names no PCI function"), "{}", run.err);
}

#[test]
fn without_virtual_functions_it_says_how_to_make_some() {
    let empty = machine(&[]);
    let args = "3b:00.0 --ip 10.0.0.1/24";
    says(
        &conf(&empty, args),
        1,
        "0000:3b:00.0: it has no virtual functions",
        "echo 8 | sudo tee /sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs (at most 16)",
    );
    for most in ["0", "much"] {
        empty.file(&format!("{FOLDER}/sriov_totalvfs"), most);
        says(
            &conf(&empty, args),
            1,
            "0000:3b:00.0: it has no virtual functions",
            "its firmware allows none: sudo mstconfig -d 0000:3b:00.0 set SRIOV_EN=1 \
             NUM_OF_VFS=8, and restart the machine",
        );
    }
    for (functions, has) in [(0, "no"), (2, "2")] {
        let machine = machine(&[Some("vfio-pci"); 2][..functions]);
        machine.driver(PARENT, "vfio-pci");
        says(
            &conf(&machine, args),
            1,
            &format!(
                "0000:3b:00.0: it has {has} virtual functions, and vfio-pci instead of mlx5_core, \
                 which makes and serves them"
            ),
            "sudo dat unbind 0000:3b:00.0; echo 8 | sudo tee \
             /sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs",
        );
    }
}

#[test]
fn anything_but_a_physical_function_is_refused() {
    let machine = machine(&[Some("vfio-pci")]);
    says(
        &conf(&machine, "3b:00.2 --ip 10.0.0.1/24"),
        2,
        "0000:3b:00.2 is a virtual function of 0000:3b:00.0",
        "name 0000:3b:00.0, or leave out --vfs",
    );
    says(
        &conf(&machine, "vfio-user:/run/a --ip 10.0.0.1/24"),
        2,
        "vfio-user:/run/a: only PCI devices have virtual functions",
        "name it without --vfs",
    );
    let run = conf(&machine, "5e:00.0 --ip 10.0.0.1/24");
    assert!(run.code == 1 && run.err.contains("no such PCI device"), "{}", run.err);
    let run = conf(&machine, "--ip 10.0.0.1/24");
    assert!(run.code == 2 && run.err.contains("<DEVICE>"), "{}", run.err);
}
