//! `dat compat` against itself, and against peers that are not what they should be. (Against the
//! programs themselves it is tried in guests.)

use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::Duration;

use crate::stage::{Process, Run, Stage};

const NONE: [String; 0] = [];

/// A server at 192.168.7.1 on HCA 0, at work.
pub(crate) fn serve(stage: &Stage, program: &str, more: &str) -> Process {
    serve_as(stage, program, &format!("--ip 192.168.7.1/24 {more}"))
}

pub(crate) fn serve_as(stage: &Stage, program: &str, more: &str) -> Process {
    let mut process = Process::start(stage.command(&format!("compat {program}"), 0, more));
    process.wait_for("listens on");
    process
}

/// The client at 192.168.7.2 on HCA 1.
pub(crate) fn call(stage: &Stage, program: &str, more: &str) -> Run {
    let more = format!("--ip 192.168.7.2/24 {more}");
    stage.run(&format!("compat {program}"), 1, &more)
}

/// A TCP port that nobody uses.
pub(crate) fn free_port() -> u16 {
    let any = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    any.local_addr().unwrap().port()
}

#[test]
fn rping_is_verified_on_both_sides() {
    let stage = Stage::new();
    for (count, size) in [(20, 64), (60, 26), (3, 65535)] {
        let server = serve(&stage, "rping", "-V");
        let more = format!("--client 192.168.7.1 -C {count} -S {size} -V");
        let client = call(&stage, "rping", &more).well();
        let words = format!("{count} pings of {size} bytes with 192.168.7.1:7174, verified");
        assert!(client.out.contains(&words), "{client:?}");
        let server = server.end().well();
        let words =
            format!("rping server: {count} pings of {size} bytes with 192.168.7.2, verified");
        assert!(server.out.contains(&words), "{server:?}");
    }
    assert_eq!(stage.complaints(), NONE);
}

#[test]
fn rping_over_ipv6_a_vlan_and_another_port() {
    let stage = Stage::new();
    let server =
        serve_as(&stage, "rping", "--server --ip fd00:7::1/64 --vlan 5 -p 7000 --poll --json");
    let client = stage.run(
        "compat rping",
        1,
        "--ip fd00:7::2/64 --vlan 5 --client fd00:7::1 -p 7000 -S 3000 -V --poll --json",
    );
    let (client, server) = (client.well().json(), server.end().well().json());
    assert_eq!((&client["role"], &client["count"]), (&"client".into(), &10.into()));
    assert_eq!((&server["role"], &server["count"]), (&"server".into(), &10.into()));
    assert_eq!((&server["size"], &server["peer"]), (&3000.into(), &"fd00:7::2".into()));
    assert_eq!((&client["verified"], &server["verified"]), (&true.into(), &false.into()));
    assert!(client["latency_us"]["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn rping_meets_the_wrong_peers() {
    let stage = Stage::new();
    // A port where nobody listens, and one whose program says no.
    let listener = stage.listen("--port 7174 --count 1");
    call(&stage, "rping", "--client 192.168.7.1 -p 9")
        .fails(1, &["nothing listens on its port 9", "help: start rping -s there"]);
    call(&stage, "rping", "--client 192.168.7.1")
        .fails(1, &["192.168.7.1:7174 refused the connection", "help:"]);
    drop(listener);
    let nobody = call(&stage, "rping", "--client 192.168.7.9 --timeout 1");
    nobody.fails(1, &["192.168.7.9", "help: is it up"]);

    // A client that wants something else of an rping server.
    let server = serve(&stage, "rping", "-p 4711");
    stage.client("ping", 1, "").fails(1, &["is no dat listen of this version"]);
    assert_eq!(server.end().code, 1);
}

#[test]
fn rping_with_packets_that_the_server_s_port_does_not_have() {
    let stage = Stage::new();
    let server = serve(&stage, "rping", "--mtu 512 -V");
    call(&stage, "rping", "--client 192.168.7.1").fails(
        1,
        &["192.168.7.1:7174 cannot take packets of 1024 bytes", "help: give a smaller --mtu here"],
    );
    call(&stage, "rping", "--client 192.168.7.1 --mtu 512 -S 9000 -C 2 -V").well();
    server.end().well();
}

#[test]
fn rping_servers_wait_no_longer_than_their_option_says() {
    let stage = Stage::new();
    let run = serve(&stage, "rping", "--wait 0.5").end();
    let run = run.fails(1, &["a rping -c client did not come within 0.5 s", "help:"]);
    assert!(run.took < Duration::from_secs(5), "{run:?}");
    let server = serve(&stage, "rping", "");
    server.interrupt();
    server.end().fails(1, &["interrupted"]);
}

#[test]
fn rping_peers_that_vanish_are_missed() {
    let stage = Stage::new();
    let endless = || {
        let more = "--ip 192.168.7.2/24 --client 192.168.7.1 -C 0 --timeout 2 -v";
        let mut client = Process::start(stage.command("compat rping", 1, more));
        client.wait_for("connecting to");
        thread::sleep(Duration::from_millis(300));
        client
    };
    // The server parts in good order: its own words say so, and the client's.
    let server = serve(&stage, "rping", "");
    let client = endless();
    server.interrupt();
    server.end().fails(1, &["interrupted"]);
    client.end().fails(1, &["192.168.7.1:7174", "help:"]);
    // The server dies.
    let mut server = serve(&stage, "rping", "");
    let client = endless();
    server.kill();
    let client = client.end().fails(1, &["192.168.7.1:7174", "help:"]);
    assert!(client.took < Duration::from_secs(15), "{client:?}");
    // The client ends it: that is a server's ordinary end.
    let server = serve(&stage, "rping", "-V");
    let client = endless();
    client.interrupt();
    client.end().well();
    server.end().well();
}

#[test]
fn arguments_that_cannot_be() {
    let stage = Stage::of(1);
    for (program, more, words) in [
        ("rping", "--client 192.168.7.1", "own address"),
        ("rping", "--client fd00::1", "different kinds"),
        ("rping", "--client 192.168.7.2 -S 25", "26..=65535"),
        ("rping", "--client 192.168.7.2 --server", "cannot be used"),
    ] {
        let more = format!("--ip 192.168.7.1/24 {more}");
        let run = stage.run(&format!("compat {program}"), 0, &more);
        run.fails(2, &[words]);
    }
}
