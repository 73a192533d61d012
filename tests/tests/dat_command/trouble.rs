//! Failures and their messages: cause, remedy and exit code, within seconds.

use std::time::Duration;

use mlx5_model::{CommandHook, Config, Verdict};

use crate::stage::{Process, Stage};

/// An endless ping from HCA 1, under way.
fn pinging(stage: &Stage) -> Process {
    let more = "192.168.7.1 --ip 192.168.7.2/24 --count 0 -v";
    let mut ping = Process::start(stage.command("ping", 1, more));
    ping.wait_for("connecting to");
    // Some of them have gone by.
    std::thread::sleep(Duration::from_millis(300));
    ping
}

#[test]
fn an_address_that_nobody_has() {
    let stage = Stage::new();
    let run = stage.run("ping", 1, "192.168.7.99 --ip 192.168.7.2/24 --timeout 1");
    let run = run.fails(1, &["dat: error:", "192.168.7.99", "help: is it up"]);
    assert!(run.took < Duration::from_secs(8), "{:?}", run.took);
    let json = stage.run("perf", 1, "192.168.7.99 --ip 192.168.7.2/24 --timeout 1 --json");
    assert!(json.json()["error"].as_str().unwrap().contains("192.168.7.99"));
}

#[test]
fn a_link_that_is_down_is_waited_for_and_named() {
    let stage = Stage::with(&Config { link_up: false, ..Config::default() }, 1);
    let device = stage.device(0);
    stage.run("listen", 0, "--ip 192.168.7.1/24 --link-wait 0").fails(
        1,
        &[&format!("{device}: the link stayed down for 0 s"), "help: plug the cable in, or look"],
    );
    let more = "--ip 192.168.7.1/24 --link-wait 60";
    let mut listener = Process::start(stage.command("listen", 0, more));
    listener.wait_for("the link is down; waiting for it");
    listener.interrupt();
    listener.end().fails(1, &[&format!("{device}: interrupted while waiting for the link")]);
    let run = stage.run("doctor", 0, "--link-wait 0");
    assert_eq!(run.code, 1, "{run:?}");
    for words in ["FAIL  link             Ethernet, down", "-> plug the cable in, or look at"] {
        assert!(run.out.contains(words), "{words}: {}", run.out);
    }
}

#[test]
fn doctor_names_what_a_port_or_a_firmware_lacks() {
    for (device, code, words) in [
        (
            Config::infiniband(),
            1,
            [
                "FAIL  link             no subnet manager",
                "-> run a subnet manager on a host of the subnet: sudo opensm",
                "-> between two ports joined by a cable, on one side: --sm",
            ],
        ),
        (
            Config { umr: false, ..Config::default() },
            0,
            [
                "warn  memory windows   the device has none: RMRs cannot be made",
                "-> update the firmware",
                "no problem found",
            ],
        ),
    ] {
        let stage = Stage::with(&device, 1);
        let run = stage.run("doctor", 0, "--link-wait 0");
        assert_eq!(run.code, code, "{run:?}");
        for words in words {
            assert!(run.out.contains(words), "{words}: {}", run.out);
        }
    }
}

/// Refuses a command.
struct Refuses(u16);

impl CommandHook for Refuses {
    fn command(&mut self, _: u64, opcode: u16, _: &[u8]) -> Verdict {
        if opcode == self.0 {
            Verdict::Refuse { status: 1, syndrome: 0x1234 }
        } else {
            Verdict::Run
        }
    }
}

#[test]
fn a_device_that_does_not_open_or_close_is_named() {
    const INIT_HCA: u16 = 0x102;
    const TEARDOWN_HCA: u16 = 0x103;
    let stage = Stage::of(1);
    let refuse = |opcode| {
        let hook = Some(Box::new(Refuses(opcode)) as Box<dyn CommandHook>);
        let server = stage.server.as_ref().unwrap();
        server.with(0, |function| function.hca().set_command_hook(hook)).unwrap();
    };
    let device = stage.device(0);
    let listener = stage.listen("");
    refuse(TEARDOWN_HCA);
    listener.interrupt();
    listener.end().fails(1, &[&format!("closing {device}: "), "TEARDOWN_HCA"]);
    refuse(INIT_HCA);
    let run = stage.run("listen", 0, "--ip 192.168.7.1/24");
    run.fails(1, &[&device, "INIT_HCA", &format!("help: run dat doctor {device}")]);
}

#[test]
fn a_port_where_nobody_listens() {
    let stage = Stage::new();
    let listener = stage.listen("");
    let run = stage.run("ping", 1, "192.168.7.1:4712 --ip 192.168.7.2/24");
    run.fails(
        1,
        &["192.168.7.1 is there, but nothing listens on its port 4712", "help: start dat listen"],
    );
    listener.interrupt();
    listener.end().well();
}

#[test]
fn another_vlan_is_another_world() {
    let stage = Stage::new();
    let listener = stage.listen("--vlan 8");
    stage.client("ping", 1, "--timeout 1 --vlan 9").fails(1, &["192.168.7.1", "VLAN"]);
    listener.interrupt();
    listener.end().well();
}

#[test]
fn a_socket_that_is_not_there_and_one_in_use() {
    let stage = Stage::new();
    let run = Process::start({
        let mut command = stage.command("info", 0, "");
        command.args(["--closed"]);
        command
    });
    run.end().well();
    let missing = std::process::Command::new(env!("CARGO_BIN_EXE_dat-command"))
        .args(["info", "vfio-user:/nonexistent/socket"])
        .output()
        .unwrap();
    assert_eq!(crate::stage::code(&missing), Some(1));
    let err = String::from_utf8(missing.stderr).unwrap();
    assert!(err.contains("/nonexistent/socket") && err.contains("help:"), "{err}");

    let listener = stage.listen("");
    let run = stage.run("doctor", 0, "");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.out.contains("FAIL  opens"), "{}", run.out);
    stage.run("info", 0, "").fails(1, &["dat: error:"]);
    listener.interrupt();
    listener.end().well();
}

#[test]
fn ctrl_c_gives_everything_back() {
    let stage = Stage::new();
    let listener = stage.listen("");
    let ping = pinging(&stage);
    ping.interrupt();
    let ping = ping.end().well();
    assert!(ping.out.contains("round trips"), "{}", ping.out);

    // The listener is interrupted in mid-test: the client reports it.
    let ping = pinging(&stage);
    listener.interrupt();
    let listener = listener.end().well();
    assert_eq!(listener.out.lines().count(), 2, "{}", listener.out);
    assert!(listener.out.lines().all(|line| line.ends_with("ended early")), "{}", listener.out);
    ping.end().fails(1, &["192.168.7.1:4711 ended the connection in mid-test"]);

    // Nothing is left behind: both come up again at once, and the models saw nothing out of order.
    let listener = stage.listen("--count 1");
    stage.client("perf", 1, "--count 100").well();
    listener.end().well();
    assert_eq!(stage.complaints(), Vec::<String>::new());
}

#[test]
fn a_listener_that_dies_is_missed() {
    let stage = Stage::new();
    let mut listener = stage.listen("");
    let more = "192.168.7.1 --ip 192.168.7.2/24 --count 0 --timeout 2 -v";
    let mut ping = Process::start(stage.command("ping", 1, more));
    ping.wait_for("connecting to");
    std::thread::sleep(Duration::from_millis(300));
    listener.kill();
    let ping = ping.end().fails(1, &["dat: error:", "192.168.7.1:4711", "help:"]);
    assert!(ping.took < Duration::from_secs(10), "{:?}", ping.took);
}

/// Each thread has connections of its own, and all end with the first that fails.
#[test]
fn threads_end_together() {
    let mut stage = Stage::new();
    let more = "192.168.7.1 --ip 192.168.7.2/24 --threads 2 --connections 2 --duration 600 -v";
    let start = |stage: &Stage| {
        let mut perf = Process::start(stage.command("perf", 1, more));
        for _ in 0..2 {
            perf.wait_for("connecting to");
        }
        std::thread::sleep(Duration::from_millis(500));
        perf
    };
    let listener = stage.listen("");
    let perf = start(&stage);
    perf.interrupt();
    perf.end().fails(1, &["interrupted after", "operations of 4096 bytes"]);
    let perf = start(&stage);
    listener.interrupt();
    perf.end().fails(1, &["192.168.7.1:4711 ended the connection in mid-test"]);
    listener.end();

    let listener = stage.listen("");
    let perf = start(&stage);
    stage.server.take().unwrap().stop();
    let run = perf.end().fails(1, &["dat: error:", &stage.device(1)]);
    assert!(run.took < Duration::from_secs(6), "{:?}", run.took);
    drop(listener);
}

#[test]
fn a_device_that_vanishes_is_named_within_seconds() {
    let mut stage = Stage::new();
    let listener = stage.listen("");
    let ping = pinging(&stage);
    stage.server.take().unwrap().stop();
    for (process, socket) in [(listener, 0), (ping, 1)] {
        let device = stage.device(socket);
        let run = process.end().fails(1, &["dat: error:", &device]);
        assert!(run.took < Duration::from_secs(6), "{:?}", run.took);
    }
}

#[test]
fn a_firmware_that_falls_is_named_within_seconds() {
    let stage = Stage::new();
    let listener = stage.listen("");
    let ping = pinging(&stage);
    stage.server.as_ref().unwrap().with(1, |function| function.hca().die(1));
    let run = ping.end().fails(1, &["dat: error:", "help:"]);
    assert!(run.took < Duration::from_secs(15), "{:?}", run.took);
    drop(listener);
}

#[test]
fn arguments_that_cannot_be() {
    let stage = Stage::new();
    for (verb, more, words) in [
        ("ping", "192.168.7.1", "--ip"),
        ("ping", "192.168.7.1 --ip 192.168.7.2", "prefix is missing"),
        ("ping", "192.168.7.2 --ip 192.168.7.2/24", "own address"),
        ("ping", "fd00::1 --ip 192.168.7.2/24", "different kinds"),
        ("ping", "224.0.0.1 --ip 192.168.7.2/24", "not the address of a host"),
        ("perf", "192.168.7.1 --ip 192.168.7.2/24 --size 2M", "1 to 1M"),
        ("perf", "192.168.7.1 --ip 192.168.7.2/24 --size 1M --depth 48", "too much"),
        ("perf", "192.168.7.1 --ip 192.168.7.2/24 --kind ping", "--kind"),
        ("perf", "192.168.7.1 --ip 192.168.7.2/24 --count 0", "--count"),
        ("listen", "--ip 192.168.7.1/24 --gateway fd00::1", "different kinds"),
        ("listen", "--ip 192.168.7.1/24 --vlan 4095", "--vlan"),
        ("listen", "--ip 192.168.7.1/24 --mtu 1500", "path MTU"),
        ("listen", "--ip 192.168.7.1/24 --tos 256", "a traffic class is 0 to 255"),
        ("listen", "--ip 192.168.7.1/24 --tclass 0x100", "a traffic class is 0 to 255"),
        ("listen", "--ip 192.168.7.1/24 --priority 8", "a priority is 0 to 7"),
    ] {
        stage.run(verb, 0, more).fails(2, &[words]);
    }
}

#[test]
fn doctor_says_what_the_owner_of_a_virtual_function_without_a_mac_can_do() {
    let stage = Stage::with(&Config::vf(), 1);
    let run = stage.run("doctor", 0, "");
    assert_eq!(run.code, 0, "{run:?}");
    for words in ["warn  MAC", "ip link set DEV vf N mac"] {
        assert!(run.out.contains(words), "{words}: {}", run.out);
    }
}

#[test]
fn every_verb_explains_itself() {
    let help = |args: &[&str]| {
        let dat = env!("CARGO_BIN_EXE_dat-command");
        let output = std::process::Command::new(dat).args(args).output().unwrap();
        assert_eq!(crate::stage::code(&output), Some(0), "{args:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let all = help(&["--help"]);
    for words in ["Examples:", "Units:", "Exit status: 0", "vfio-user:PATH"] {
        assert!(all.contains(words), "{words}: {all}");
    }
    for verb in [
        "list", "info", "bind", "unbind", "doctor", "listen", "ping", "perf", "run", "hw-test",
        "compat",
    ] {
        assert!(all.contains(&format!("  {verb} ")), "{verb}: {all}");
        let own = help(&[verb, "--help"]);
        // A paragraph of its own besides the line in the list.
        assert!(own.split("Usage:").next().unwrap().trim().contains("\n\n"), "{own}");
    }
}
