//! `interop` against itself, and against peers that are not what they should be. (Against the
//! programs themselves it is tried in guests.)

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::compat::free_port;
use crate::stage::{Process, Run, Stage};

const INTEROP: &str = env!("CARGO_BIN_EXE_interop");
const NONE: [String; 0] = [];

/// A server on HCA 0, at work.
fn serve_as(stage: &Stage, program: &str, more: &str) -> Process {
    let mut process = Process::start(stage.command_of(INTEROP, program, 0, more));
    process.wait_for("listens on");
    process
}

fn serve(stage: &Stage, program: &str, more: &str) -> Process {
    serve_as(stage, program, &format!("--ip 192.168.7.1/24 {more}"))
}

/// A client on HCA 1.
fn call_as(stage: &Stage, program: &str, more: &str) -> Run {
    Process::start(stage.command_of(INTEROP, program, 1, more)).end()
}

fn call(stage: &Stage, program: &str, more: &str) -> Run {
    call_as(stage, program, &format!("--ip 192.168.7.2/24 {more}"))
}

/// Both sides of a program that connects by the connection manager, with the same arguments.
#[track_caller]
fn both(stage: &Stage, program: &str, more: &str, words: &str) {
    let server = serve(stage, program, more);
    let client = call(stage, program, &format!("--client 192.168.7.1 {more}"));
    for run in [client.well(), server.end().well()] {
        assert!(run.out.contains(words), "{run:?}");
    }
}

/// Both sides of a pingpong.
#[track_caller]
fn both_by_tcp(stage: &Stage, program: &str, more: &str) {
    let more = format!("{more} --port {}", free_port());
    let server = serve(stage, program, &more);
    let client = call(stage, program, &format!("--client 127.0.0.1 {more}"));
    for run in [client.well(), server.end().well()] {
        assert!(run.out.contains("verified"), "{run:?}");
    }
}

#[test]
fn pingpongs_are_verified_on_both_sides() {
    let stage = Stage::new();
    for (program, more) in [
        ("rc", "--messages 50 --size 4096"),
        ("rc", "--messages 3 --size 1048576"),
        ("rc", "--messages 20 --size 1 --mtu 256"),
        ("rc", "--messages 10 --size 5000 --mtu 4096"),
        ("srq", "--messages 200 --count 16 --size 4096"),
        ("srq", "--messages 7 --count 3 --size 9000 --mtu 512"),
        ("ud", "--messages 50 --size 1024"),
        ("ud", "--messages 20 --size 1"),
        ("ud", "--messages 10 --size 4096 --mtu 4096"),
    ] {
        both_by_tcp(&stage, program, more);
    }
    call(&stage, "ud", "--size 1025 --client 127.0.0.1").fails(1, &["at most 1024 bytes"]);
    assert_eq!(stage.complaints(), NONE);
}

#[test]
fn pingpong_over_ipv6_and_a_vlan() {
    let stage = Stage::new();
    let more = format!("--vlan 9 --messages 30 --size 3000 --port {}", free_port());
    let server = serve_as(&stage, "rc", &format!("--ip fd00:7::1/64 {more}"));
    call_as(&stage, "rc", &format!("--ip fd00:7::2/64 --client localhost {more}")).well();
    server.end().well();
}

#[test]
fn pingpong_sides_that_disagree() {
    let stage = Stage::new();
    let disagree = |program: &str, server: &str, client: &str| {
        let more = format!("--timeout 2 --port {}", free_port());
        let server = serve(&stage, program, &format!("{server} {more}"));
        let client = call(&stage, program, &format!("{client} --client 127.0.0.1 {more}"));
        (server.end(), client)
    };
    // A smaller message is noticed by its length, a larger one by the device.
    let (server, client) = disagree("rc", "--size 2000", "--size 1000");
    server.fails(1, &["the peer sent 1000 bytes instead of 2000"]);
    assert_eq!(client.code, 1);
    let (server, client) = disagree("rc", "--size 1000", "--size 2000");
    server.fails(1, &["Receive: ErrLocalLength"]);
    client.fails(1, &["Send: Err"]);
    let (server, client) = disagree("srq", "--count 4", "--count 2");
    server.fails(1, &["the peer has 2 connections"]);
    client.fails(1, &["hung up"]);
}

/// What a server says of a TCP client that says this, and hangs up or not.
fn unknown_peer(says: &[u8], stays: bool) -> Run {
    let stage = Stage::of(1);
    let port = free_port();
    let server = serve(&stage, "rc", &format!("--port {port} --timeout 1 --wait 5"));
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(says).unwrap();
    if !stays {
        drop(stream);
        return server.end();
    }
    server.end()
}

#[test]
fn pingpong_servers_and_unknown_peers_on_their_port() {
    let http = "GET / HTTP/1.1\r\nHost: somewhere\r\nUser-Agent: somebody\r\n\r\n";
    unknown_peer(http.as_bytes(), true).fails(1, &["is no LID:QPN:PSN:GID"]);
    unknown_peer(b"0000:000011:", false).fails(1, &["hung up after 12 of 52 bytes"]);
    unknown_peer(b"0000:000011:", true).fails(1, &["said nothing within 1 s"]);
    unknown_peer(&line(0x11, &Ipv6Addr::UNSPECIFIED), true).fails(1, &["no GID"]);
    unknown_peer(&line(0x11, &"fd00::2".parse().unwrap()), true)
        .fails(1, &["the peer's GID is fd00::2"]);
    // No device has that address.
    unknown_peer(&line(0x11, &"::ffff:192.168.7.9".parse().unwrap()), true)
        .fails(1, &["no connection"]);
}

fn line(qpn: u32, gid: &Ipv6Addr) -> Vec<u8> {
    let gid = u128::from(*gid);
    format!("0000:{qpn:06x}:000001:{gid:032x}\0").into_bytes()
}

#[test]
fn pingpong_clients_and_what_answers_them() {
    let stage = Stage::new();
    call(&stage, "rc", &format!("--client 127.0.0.1 --port {}", free_port()))
        .fails(1, &["TCP port"]);
    // A server whose queue pair does not exist: the address does, so that the first message is what
    // fails.
    let listener = stage.listen("");
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = server.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut received = [0; 52];
        stream.read_exact(&mut received).unwrap();
        stream.write_all(&line(0xf00, &"::ffff:192.168.7.1".parse().unwrap())).unwrap();
        let mut done = Vec::new();
        stream.read_to_end(&mut done).unwrap();
        (received, done)
    });
    let client = call(&stage, "rc", &format!("--client 127.0.0.1 --port {port}"));
    client.fails(1, &["Send: ErrTransport"]);
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
        ("--count 48 --messages 128 --size 2000", "48 connections"),
        ("--count 3 --messages 0", "3 connections"),
        ("--size 0", "0 messages of 0 bytes"),
    ] {
        both(&stage, "ucmatose", more, words);
    }
    let server = serve_as(&stage, "ucmatose", "--ip fd00::1/64 --count 2");
    call_as(&stage, "ucmatose", "--ip fd00::2/64 --client fd00::1 --count 2").well();
    server.end().well();
    assert_eq!(stage.complaints(), NONE);
}

#[test]
fn ucmatose_sides_that_disagree() {
    let stage = Stage::new();
    let server = serve(&stage, "ucmatose", "--size 200 --timeout 2");
    let client = call(&stage, "ucmatose", "--client 192.168.7.1 --size 100 --timeout 2");
    assert_eq!((client.code, server.end().code), (1, 1));
    let server = serve(&stage, "ucmatose", "--count 1 --timeout 2");
    let client = call(&stage, "ucmatose", "--client 192.168.7.1 --count 2 --timeout 2");
    assert_eq!((client.code, server.end().code), (1, 1));
    let server = serve(&stage, "ucmatose", "--count 2 --timeout 1");
    call(&stage, "ucmatose", "--client 192.168.7.1 --count 1 --timeout 2")
        .fails(1, &["connection 0 ended after 0 of 10 messages"]);
    server.end().fails(1, &["the next connection did not come within 1 s"]);
}

#[test]
fn udaddy_with_many_endpoints() {
    let stage = Stage::new();
    for (count, messages, size) in [(1, 10, 100), (48, 2, 1), (3, 128, 1024), (2, 5, 0)] {
        let more = format!("--count {count} --messages {messages} --size {size}");
        let messages = if size == 0 { 0 } else { messages };
        let words = format!("{count} connections, {messages} messages of {size} bytes");
        both(&stage, "udaddy", &more, &words);
    }
    let more = "--vlan 5 --port 7000 --size 4096 --mtu 4096";
    let server = serve_as(&stage, "udaddy", &format!("--ip fd00:7::1/64 {more}"));
    call_as(&stage, "udaddy", &format!("--ip fd00:7::2/64 --client fd00:7::1 {more}")).well();
    server.end().well();
    assert_eq!(stage.complaints(), NONE);
}

#[test]
fn udaddy_meets_the_wrong_peers() {
    let stage = Stage::new();
    let listener = stage.listen("--port 9 --count 1");
    let calls = |more: &str| call(&stage, "udaddy", &format!("--client 192.168.7.1 {more}"));
    calls("").fails(1, &["nothing listens on the server's port"]);
    // A service point for connections has no Endpoint for datagrams to give.
    assert_eq!(calls("--port 9 --timeout 2").code, 1);
    drop(listener);
    call(&stage, "udaddy", "--client 192.168.7.9 --timeout 1").fails(1, &["no connection"]);
    calls("--size 2000").fails(1, &["at most 1024 bytes"]);
    let server = serve(&stage, "udaddy", "--timeout 1");
    calls("--size 200 --timeout 1").fails(1, &["did not come within 1 s"]);
    assert_eq!(server.end().code, 1);
    let server = serve(&stage, "udaddy", "--timeout 1");
    assert_eq!(calls("--count 2 --timeout 1").code, 1);
    assert_eq!(server.end().code, 1);
    // A client that wants a connection is at the wrong program.
    let server = serve(&stage, "udaddy", "--wait 2");
    call(&stage, "ucmatose", "--client 192.168.7.1 --port 7174")
        .fails(1, &["the peer rejected the connection"]);
    server.end().fails(1, &["did not come within 2 s"]);
}

#[test]
fn cmtime_in_batches_and_in_step() {
    let stage = Stage::new();
    // More connections than either side has Endpoints.
    let server = serve(&stage, "cmtime", "--count 1100");
    let client = call(&stage, "cmtime", "--client 192.168.7.1 --count 1100").well();
    assert!(client.out.contains("1100 made and ended"), "{client:?}");
    assert!(client.took < Duration::from_secs(10), "{client:?}");
    server.end().well();

    let port = free_port();
    let mut server = serve(&stage, "cmtime", &format!("--count 40 --tcp-port {port}"));
    server.wait_for("listens on TCP port");
    let more = format!("--client 192.168.7.1 --count 40 --tcp 127.0.0.1 --tcp-port {port}");
    let client = call(&stage, "cmtime", &more).well();
    for run in [client, server.end().well()] {
        assert!(run.out.contains("81 made and ended"), "{run:?}");
    }
    assert_eq!(stage.complaints(), NONE);
}

#[test]
fn cmtime_meets_the_wrong_peers() {
    let stage = Stage::new();
    call(&stage, "cmtime", "--client 192.168.7.9 --timeout 1").fails(1, &["no connection"]);
    let listener = stage.listen("--port 7471");
    let calls = |more: &str| call(&stage, "cmtime", &format!("--client 192.168.7.1 {more}"));
    calls("--count 3").fails(1, &["rejected the connection"]);
    calls("--port 9 --count 3").fails(1, &["nothing listens on the server's port"]);
    drop(listener);
    let port = free_port();
    let mut server = serve(&stage, "cmtime", &format!("--tcp-port {port} --timeout 1"));
    server.wait_for("listens on TCP port");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(&[7]).unwrap();
    server.end().fails(1, &["instead of [0]"]);
    // A server that waits for more connections than come.
    let server = serve(&stage, "cmtime", "--count 5 --timeout 1");
    calls("--count 3").well();
    server.end().fails(1, &["did not come within 1 s"]);
}

#[test]
fn arguments_that_cannot_be() {
    let stage = Stage::of(1);
    for (program, more, code) in [
        ("uc", "", 2),
        ("cmtime", "--tcp localhost", 2),
        ("ucmatose", "--mtu 1000", 2),
        ("ucmatose", "--client fd00::1", 1),
    ] {
        let more = format!("--ip 192.168.7.1/24 {more}");
        let run = Process::start(stage.command_of(INTEROP, program, 0, &more)).end();
        assert_eq!(run.code, code, "{run:?}");
    }
}
