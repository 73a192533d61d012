//! `dat compat` against itself, and against peers that are not what they should be. (Against the
//! programs themselves it is tried in guests.)

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
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
fn pingpongs_of_both_kinds_are_verified_on_both_sides() {
    let stage = Stage::new();
    for (kind, more) in [
        ("rc", "-n 50 -c"),
        ("rc", "-n 3 -s 1M -c"),
        ("rc", "-n 20 -s 1 -c --mtu 256 --poll"),
        ("rc", "-n 10 -s 5000 -c --mtu 4096"),
        ("srq", "-n 200 -c"),
        ("srq", "-n 7 -q 3 -s 9000 -c --mtu 512"),
    ] {
        let port = free_port();
        let program = format!("pingpong {kind}");
        let server = serve(&stage, &program, &format!("{more} -p {port}"));
        let client = call(&stage, &program, &format!("{more} -p {port} --client 127.0.0.1"));
        for run in [client.well(), server.end().well()] {
            assert!(run.out.contains("verified"), "{run:?}");
        }
    }
    assert_eq!(stage.complaints(), NONE);
}

#[test]
fn pingpong_over_ipv6_and_what_it_tells() {
    let stage = Stage::new();
    let port = free_port();
    let more = format!("-n 30 -s 3000 -c --json -p {port}");
    let server = serve_as(&stage, "pingpong rc", &format!("--ip fd00:7::1/64 --vlan 9 {more}"));
    let client = stage.run(
        "compat pingpong rc",
        1,
        &format!("--ip fd00:7::2/64 --vlan 9 --client localhost {more}"),
    );
    for (run, role) in [(client, "client"), (server.end(), "server")] {
        let json = run.well().json();
        assert_eq!((&json["kind"], &json["role"]), (&"rc".into(), &role.into()));
        assert_eq!((&json["iters"], &json["size"]), (&30.into(), &3000.into()));
        assert!(json["microseconds_per_iter"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn pingpong_sides_that_disagree() {
    let stage = Stage::new();
    // A smaller message is noticed by its length, a larger one by the device.
    let port = free_port();
    let server = serve(&stage, "pingpong rc", &format!("-s 2000 -p {port}"));
    let client =
        call(&stage, "pingpong rc", &format!("-s 1000 --client 127.0.0.1 -p {port} --timeout 2"));
    server
        .end()
        .fails(1, &["192.168.7.2 sent 1000 bytes instead of 2000", "help: give the same -s"]);
    client.fails(1, &["help:"]);
    let port = free_port();
    let server = serve(&stage, "pingpong rc", &format!("-s 1000 -p {port}"));
    let client =
        call(&stage, "pingpong rc", &format!("-s 2000 --client 127.0.0.1 -p {port} --timeout 2"));
    server.end().fails(1, &["did not fit its receive"]);
    client.fails(1, &["a send to 192.168.7.1 failed", "help:"]);
    // Fewer connections over there.
    let port = free_port();
    let server = serve(&stage, "pingpong srq", &format!("-q 4 -p {port}"));
    let client =
        call(&stage, "pingpong srq", &format!("-q 2 --client 127.0.0.1 -p {port} --timeout 2"));
    server.end().fails(1, &["the peer has 2 connections, this side 4", "help: give -q 2 here"]);
    client.fails(1, &["hung up"]);
}

/// Runs a server with a TCP client that sends these bytes, and stays connected or hangs up.
fn foreign_client(says: &[u8], stays: bool) -> Run {
    let stage = Stage::of(1);
    let port = free_port();
    let more = format!("-p {port} --timeout 1 --wait 5");
    let server = serve(&stage, "pingpong rc", &more);
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(says).unwrap();
    if !stays {
        drop(stream);
        return server.end();
    }
    server.end()
}

#[test]
fn pingpong_servers_refuse_other_clients_on_their_port() {
    let http = "GET / HTTP/1.1\r\nHost: somewhere\r\nUser-Agent: somebody\r\n\r\n";
    foreign_client(http.as_bytes(), true).fails(1, &["which is no LID:QPN:PSN:GID", "help: is it"]);
    foreign_client(b"0000:000011:", false).fails(1, &["hung up before it said its queue pairs"]);
    foreign_client(b"0000:000011:", true)
        .fails(1, &["did not say its queue pairs within 1 s", "help: is it"]);
    foreign_client(&line(0x11, &Ipv6Addr::UNSPECIFIED), true)
        .fails(1, &["no GID", "help: give it -g N"]);
    foreign_client(&line(0x11, &"fd00::2".parse().unwrap()), true)
        .fails(1, &["the peer's GID is fd00::2", "an IPv4 GID"]);
    // Nobody has that address.
    foreign_client(&line(0x11, &"::ffff:192.168.7.9".parse().unwrap()), true)
        .fails(1, &["192.168.7.9 does not answer", "help: is it up"]);
}

fn line(qpn: u32, gid: &Ipv6Addr) -> Vec<u8> {
    let gid = u128::from(*gid);
    format!("0000:{qpn:06x}:000001:{gid:032x}\0").into_bytes()
}

#[test]
fn pingpong_clients_and_what_answers_them() {
    let stage = Stage::new();
    let port = free_port();
    call(&stage, "pingpong rc", &format!("--client 127.0.0.1 -p {port}"))
        .fails(1, &["TCP port", "help: does ibv_rc_pingpong run there"]);
    // A server whose queue pair does not exist: the address does, so that the first message is what
    // fails.
    let listener = stage.listen("");
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = server.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut received = [0; 52];
        stream.read_exact(&mut received).unwrap();
        let gid = "::ffff:192.168.7.1".parse().unwrap();
        stream.write_all(&line(0xf00, &gid)).unwrap();
        let mut done = Vec::new();
        stream.read_to_end(&mut done).unwrap();
        (received, done)
    });
    let client = call(&stage, "pingpong rc", &format!("--client 127.0.0.1 -p {port}"));
    client.fails(1, &["a send to 192.168.7.1 failed: no acknowledgement"]);
    let (received, done) = server.join().unwrap();
    let received = String::from_utf8(received.to_vec()).unwrap();
    assert!(received.ends_with(":00000000000000000000ffffc0a80702\0"), "{received:?}");
    assert_eq!(done, b"done\0");
    drop(listener);
}

#[test]
fn ucmatose_with_many_connections() {
    let stage = Stage::new();
    for (more, words) in [
        ("", "1 connections"),
        ("-c 48 -C 128 -S 2000", "48 connections"),
        ("-c 3 -C 0", "3 connections"),
        ("-S 0", "0 messages of 0 bytes"),
    ] {
        let server = serve(&stage, "ucmatose", more);
        let client = call(&stage, "ucmatose", &format!("--client 192.168.7.1 {more}"));
        for run in [client.well(), server.end().well()] {
            assert!(run.out.contains(words), "{run:?}");
        }
    }
    let server = serve_as(&stage, "ucmatose", "--ip fd00::1/64 -c 2 --json");
    let more = "--ip fd00::2/64 --client fd00::1 -c 2 --json";
    let client = stage.run("compat ucmatose", 1, more).well().json();
    assert_eq!((&client["connections"], &client["messages"]), (&2.into(), &10.into()));
    assert_eq!(server.end().well().json()["role"], "server");
    assert_eq!(stage.complaints(), NONE);
}

#[test]
fn ucmatose_sides_that_disagree() {
    let stage = Stage::new();
    let server = serve(&stage, "ucmatose", "-S 200 --timeout 2");
    let client = call(&stage, "ucmatose", "--client 192.168.7.1 -S 100 --timeout 2");
    assert_eq!((client.code, server.end().code), (1, 1));
    let server = serve(&stage, "ucmatose", "-c 1 --timeout 2");
    call(&stage, "ucmatose", "--client 192.168.7.1 -c 2 --timeout 2").fails(1, &["192.168.7.1"]);
    assert_eq!(server.end().code, 1);
    let server = serve(&stage, "ucmatose", "-c 2 --timeout 1");
    call(&stage, "ucmatose", "--client 192.168.7.1 -c 1 --timeout 2")
        .fails(1, &["192.168.7.1:7471 ended connection 0 after 0 of 10 messages"]);
    server.end().fails(1, &["the next connection did not come within 1 s"]);
}

#[test]
fn cmtime_in_batches_and_in_step() {
    let stage = Stage::new();
    // More connections than either side has Endpoints.
    let server = serve(&stage, "cmtime", "-c 1100");
    let client = call(&stage, "cmtime", "--client 192.168.7.1 -c 1100").well();
    let words = "1100 connections with 192.168.7.1:7471 made and ended in 1 rounds";
    assert!(client.out.contains(words), "{client:?}");
    assert!(client.took < Duration::from_secs(10), "{client:?}");
    assert!(server.end().well().out.contains("cmtime server: 1100"));

    let port = free_port();
    let mut server = serve(&stage, "cmtime", &format!("-c 40 --oob-port {port} --json"));
    server.wait_for("listens on TCP port");
    let more = format!("--client 192.168.7.1 -c 40 --oob 127.0.0.1 --oob-port {port} --json");
    let client = call(&stage, "cmtime", &more).well().json();
    let server = server.end().well().json();
    for json in [&client, &server] {
        assert_eq!((&json["connections"], &json["rounds"]), (&81.into(), &3.into()));
    }
    assert!(client["latency_us"]["median"].as_f64().unwrap() > 0.0);
    assert!(server["latency_us"].is_null());
    assert_eq!(stage.complaints(), NONE);
}

#[test]
fn cmtime_meets_the_wrong_peers() {
    let stage = Stage::new();
    call(&stage, "cmtime", "--client 192.168.7.9 --timeout 1").fails(1, &["192.168.7.9", "help:"]);
    let listener = stage.listen("--port 7471");
    call(&stage, "cmtime", "--client 192.168.7.1 -c 3").fails(1, &["refused the connection"]);
    call(&stage, "cmtime", "--client 192.168.7.1 -p 9 -c 3")
        .fails(1, &["nothing listens on its port 9"]);
    drop(listener);
    let port = free_port();
    let mut server = serve(&stage, "cmtime", &format!("--oob-port {port} --timeout 1"));
    server.wait_for("listens on TCP port");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(&[7]).unwrap();
    server.end().fails(1, &["is done with step 7 instead of 0", "help:"]);
    // A server that waits for more connections than come.
    let server = serve(&stage, "cmtime", "-c 5 --timeout 1");
    call(&stage, "cmtime", "--client 192.168.7.1 -c 3").well();
    server.end().fails(1, &["the next connection, or its end did not come within 1 s"]);
}

#[test]
fn arguments_that_cannot_be() {
    let stage = Stage::of(1);
    for (program, more, words) in [
        ("rping", "--client 192.168.7.1", "own address"),
        ("rping", "--client fd00::1", "different kinds"),
        ("rping", "--client 192.168.7.2 -S 25", "26..=65535"),
        ("rping", "--client 192.168.7.2 --server", "cannot be used"),
        ("pingpong uc", "", "uc"),
        ("udaddy", "--client 192.168.7.2 -c 49", "1..=48"),
        ("cmtime", "--oob localhost", "--client"),
        ("pingpong srq", "-q 0", "1..=48"),
        ("pingpong rc", "-s 2M", "1 to 1M"),
    ] {
        let more = format!("--ip 192.168.7.1/24 {more}");
        let run = stage.run(&format!("compat {program}"), 0, &more);
        run.fails(2, &[words]);
    }
}
