//! `dat compat perftest` against itself, and against peers that are not what they should be: what
//! they say over TCP is written here byte by byte. (Against the programs themselves it is tried in
//! guests.)

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use mlx5_model::Config;

use crate::compat::{call, free_port, serve, serve_as};
use crate::foreign::serving_restless_memory;
use crate::stage::{Process, Run, Stage};

const NONE: [String; 0] = [];

/// One test, both sides; the server's end and the client's.
fn both(stage: &Stage, test: &str, more: &str) -> [Run; 2] {
    differing(stage, test, more, more)
}

/// The same with other arguments for each side.
fn differing(stage: &Stage, test: &str, server: &str, client: &str) -> [Run; 2] {
    let port = free_port();
    let program = format!("perftest {test}");
    let serving = serve(stage, &program, &format!("{server} -p {port}"));
    let client = call(stage, &program, &format!("{client} -p {port} --client 127.0.0.1"));
    [serving.end(), client]
}

#[test]
fn every_test_is_verified_on_both_sides() {
    let stage = Stage::new();
    for (test, more, words) in [
        ("send_bw", "-n 300", "300 messages of 65536 bytes"),
        ("send_bw", "-n 500 -s 100", "500 messages of 100 bytes"),
        ("send_bw", "-n 100 -s 3000 -q 5", "500 messages of 3000 bytes"),
        ("send_bw", "-n 10 -s 1M --poll", "10 messages of 1048576 bytes"),
        ("send_lat", "-n 300", "300 messages of 2 bytes"),
        ("send_lat", "-n 50 -s 9000 --poll", "50 messages of 9000 bytes"),
        ("write_bw", "-n 300", "300 writes of 65536 bytes"),
        ("write_bw", "-n 77 -s 100 --mtu 256", "77 writes of 100 bytes"),
        ("write_bw", "-n 50 -s 16K -q 4", "200 writes of 16384 bytes"),
        ("write_bw", "-n 3 -s 20 -q 16", "48 writes of 20 bytes"),
        ("write_lat", "-n 300", "300 writes of 2 bytes"),
        ("write_lat", "-n 20 -s 1", "20 writes of 1 bytes"),
        ("write_lat", "-n 20 -s 10000", "20 writes of 10000 bytes"),
        ("read_bw", "-n 200", "200 reads of 65536 bytes"),
        ("read_bw", "-n 300 -s 1000 -q 3 -o 1", "900 reads of 1000 bytes"),
        ("atomic_bw", "-n 300", "300 atomics of 8 bytes"),
        ("atomic_bw", "-n 300 -q 2 -A CMP_AND_SWAP", "600 atomics of 8 bytes"),
        ("atomic_bw", "-n 5 -t 3 -A FETCH_AND_ADD", "5 atomics of 8 bytes"),
    ] {
        for run in both(&stage, test, &format!("{more} -V")) {
            let run = run.well();
            assert!(run.out.contains(words) && run.out.contains(", verified"), "{run:?}");
        }
    }
    let [server, client] = both(&stage, "read_lat", "-n 200 -V").map(Run::well);
    assert!(client.out.contains("200 reads of 2 bytes"), "{client:?}");
    // Nobody tells a server of these how many there were.
    assert!(server.out.contains("ib_read_lat server: reads of 2 bytes"), "{server:?}");
    assert_eq!(stage.complaints(), NONE);
}

#[test]
fn receivers_short_of_receives() {
    let stage = Stage::new();
    for (server, client) in [("-r 1", "-t 16"), ("-r 2", "-t 128")] {
        let more = "-n 40 -s 1024 -V";
        let runs =
            differing(&stage, "send_bw", &format!("{more} {server}"), &format!("{more} {client}"));
        for run in runs {
            assert!(run.well().out.contains("40 messages of 1024 bytes"));
        }
    }
    assert_eq!(stage.complaints(), NONE);
}

#[test]
fn output_and_where_it_goes() {
    let stage = Stage::new();
    for (test, own) in [("write_bw", false), ("send_bw", true), ("write_lat", true)] {
        let port = free_port();
        let program = format!("perftest {test}");
        let more = format!("-n 60 -s 3000 -V --json -p {port}");
        let server =
            serve_as(&stage, &program, &format!("--ip fd00:7::1/64 --vlan 9 --mtu 2048 {more}"));
        let client = stage.run(
            &format!("compat {program}"),
            1,
            &format!("--ip fd00:7::2/64 --vlan 9 --client localhost {more}"),
        );
        let (server, client) = (server.end().well().json(), client.well().json());
        for (json, role, peer) in
            [(&server, "server", "fd00:7::2"), (&client, "client", "fd00:7::1")]
        {
            assert_eq!((&json["test"], &json["role"]), (&test.into(), &role.into()));
            assert_eq!((&json["operations"], &json["size"]), (&60.into(), &3000.into()));
            assert_eq!((&json["mtu"], &json["peer"]), (&2048.into(), &peer.into()));
            assert_eq!(json["verified"], true);
            assert!(json["seconds"].as_f64().unwrap() > 0.0);
            let bandwidth = test.ends_with("_bw");
            assert_eq!(json["megabytes_per_second"].is_f64(), bandwidth);
            assert_eq!(json["latency_us"].is_object(), !bandwidth);
        }
        // A server of writes has the client's word for it.
        let seconds = [&server, &client].map(|json| json["seconds"].as_f64().unwrap());
        assert_eq!((seconds[0] - seconds[1]).abs() > 1e-9, own, "{seconds:?}");
    }
}

#[test]
fn sides_that_disagree() {
    let stage = Stage::new();
    let short = "-n 40 -s 1000 --timeout 2 --wait 5";
    let [server, client] = differing(&stage, "send_bw", short, "-n 40 -s 999 --timeout 2");
    server.fails(1, &["192.168.7.2 sent 999 bytes instead of 1000", "help: give the same -s"]);
    client.fails(1, &["help:"]);
    let [server, client] = differing(&stage, "send_bw", short, "-n 40 -s 2000 --timeout 2");
    server.fails(1, &["did not fit its receive"]);
    client.fails(1, &["help:"]);
    let [server, client] = differing(&stage, "write_bw", short, "-n 40 -s 999 --timeout 2");
    server.fails(
        1,
        &["192.168.7.2 moved 999 bytes at a time instead of 1000", "help: give the same -s"],
    );
    client.fails(1, &["hung up"]);
    let [server, client] = differing(&stage, "write_bw", short, "-n 50 -s 1000 --timeout 2");
    server.fails(1, &["192.168.7.2 did 50 operations instead of 40", "help: give the same -n"]);
    client.fails(1, &["hung up"]);
    // A message too few.
    let [server, client] = differing(&stage, "send_lat", short, "-n 39 -s 1000 --timeout 1");
    server.fails(1, &["the next message did not come within 2 s"]);
    client.fails(1, &["did not say that it has done all within 1 s"]);
    // The server of this one writes first.
    let [server, client] =
        differing(&stage, "write_lat", "-n 39 -s 1000", "-n 40 -s 1000 --timeout 1");
    server.well();
    client
        .fails(1, &["192.168.7.1's next write did not come within 1 s", "help: give the same -n"]);
    // More than this side's memory.
    let [server, client] = differing(&stage, "write_bw", short, "-n 40 -s 100000 --timeout 2");
    server.fails(1, &["help:"]);
    client.fails(1, &["a write to 192.168.7.1 failed"]);
}

#[test]
fn sides_with_other_connections_or_tests() {
    let stage = Stage::new();
    let few = "-n 40 --timeout 2 --wait 5";
    let [server, client] = differing(&stage, "write_bw", &format!("{few} -q 2"), few);
    server.fails(1, &["has fewer connections than this side", "help: give the same -q"]);
    client.fails(1, &["127.0.0.1", "help:"]);
    let [server, client] = differing(&stage, "write_bw", few, &format!("{few} -q 2"));
    server.fails(1, &["has more connections than this side", "help: give the same -q"]);
    client.fails(1, &["127.0.0.1", "help:"]);
    for (own, other) in [
        ("write_bw", "write_lat"),
        ("write_lat", "write_bw"),
        ("send_bw", "write_bw"),
        ("read_bw", "atomic_bw"),
        ("atomic_bw", "read_bw"),
        ("write_bw", "read_bw"),
    ] {
        let port = free_port();
        let server = serve(&stage, &format!("perftest {own}"), &format!("{few} -p {port}"));
        let more = format!("{few} -p {port} --client 127.0.0.1");
        let client = call(&stage, &format!("perftest {other}"), &more);
        // The first side to notice reports it, and the other misses it.
        let server = server.end().fails(1, &["help:"]);
        client.fails(1, &["help:"]);
        assert!(server.took < Duration::from_secs(20), "{server:?}");
    }
}

/// Runs a server of a test, to which a foreign client talks.
fn foreign_client(test: &str, talk: impl FnOnce(&mut TcpStream)) -> Run {
    let stage = Stage::of(1);
    let port = free_port();
    let more = format!("-p {port} --timeout 1 --wait 3");
    let server = serve(&stage, &format!("perftest {test}"), &more);
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    talk(&mut stream);
    let run = server.end();
    assert!(run.took < Duration::from_secs(15), "{run:?}");
    run
}

/// Sends bytes, and receives as many.
fn swap(stream: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
    stream.write_all(bytes).unwrap();
    let mut received = vec![0; bytes.len()];
    stream.read_exact(&mut received).unwrap();
    received
}

fn version(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(16, 0);
    bytes
}

/// The beginning of everything.
fn agree(stream: &mut TcpStream) {
    assert_eq!(swap(stream, &version("6.24")), version("6.24"));
    assert_eq!(swap(stream, &4096_u32.to_be_bytes()), 4096_u32.to_be_bytes());
    assert_eq!(swap(stream, &64_u32.to_be_bytes()), 64_u32.to_be_bytes());
    swap(stream, b"3\0");
}

fn key(qpn: u32, gid: &str) -> Vec<u8> {
    format!("0000:0001:{qpn:06x}:000001:00001234:00007f0000001000:{gid}:00000000:\0").into_bytes()
}

/// 192.168.7.9, where nobody is, and no address at all.
const NOBODY: &str = "00:00:00:00:00:00:00:00:00:00:ff:ff:c0:a8:07:09";
const NOWHERE: &str = "00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00";
const V6: &str = "fd:00:00:00:00:00:00:00:00:00:00:00:00:00:00:02";

#[test]
fn servers_refuse_other_clients_on_their_port() {
    let http = b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n";
    foreign_client("write_bw", |stream| stream.write_all(http).unwrap())
        .fails(1, &["which is no version of perftest", "help: is it"]);
    foreign_client("write_bw", |stream| stream.write_all(&version("5.4")).unwrap())
        .fails(1, &["speaks version 5.4 of perftest's exchange", "help: 5.70 is the oldest"]);
    foreign_client("send_bw", |_| ())
        .fails(1, &["did not say its version within 1 s", "help: is it"]);
    foreign_client("send_bw", |stream| {
        stream.write_all(b"6.").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
    })
    .fails(1, &["hung up before it said its version", "help:"]);
    for (said, words) in [
        (0_u32, "that its page size is 0"),
        (u32::MAX, "that its page size is 4294967295"),
        (5000, "that its page size is 5000"),
    ] {
        foreign_client("read_bw", |stream| {
            swap(stream, &version("6.24"));
            stream.write_all(&said.to_be_bytes()).unwrap();
        })
        .fails(1, &[words, "help:"]);
    }
    foreign_client("read_bw", |stream| {
        swap(stream, &version("6.24"));
        swap(stream, &4096_u32.to_be_bytes());
        stream.write_all(&4096_u32.to_be_bytes()).unwrap();
    })
    .fails(1, &["that the length of its cache lines is 4096", "help:"]);
    for mtu in [b"9\0", b"00", b"\0\0", b"33"] {
        foreign_client("read_bw", |stream| {
            swap(stream, &version("6.24"));
            swap(stream, &4096_u32.to_be_bytes());
            swap(stream, &64_u32.to_be_bytes());
            stream.write_all(mtu).unwrap();
        })
        .fails(1, &["which is no code of an MTU"]);
    }
}

#[test]
fn servers_and_keys_that_cannot_be() {
    for (key, words) in [
        (vec![b'x'; 108], "which is no key of perftest"),
        (vec![0; 108], "which is no key of perftest"),
        (key(0x11, NOWHERE), "has sent no GID"),
        (key(0x11, V6), "the peer's GID is fd00::2"),
        (key(0x11, NOBODY), "192.168.7.9 does not answer"),
    ] {
        foreign_client("atomic_bw", |stream| {
            agree(stream);
            swap(stream, &key);
        })
        .fails(1, &[words, "help:"]);
    }
    foreign_client("read_lat", |stream| {
        agree(stream);
        swap(stream, &key(0x11, NOBODY));
        swap(stream, &key(0x12, NOBODY));
    })
    .fails(1, &["the peer's first two keys differ", "help: is it ib_read_lat"]);
    // Pages as large as they can be leave no room for so many connections.
    let stage = Stage::of(1);
    let port = free_port();
    let more = format!("-q 5 -p {port} --timeout 1");
    let server = serve(&stage, "perftest write_bw", &more);
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    swap(&mut stream, &version("6.24"));
    swap(&mut stream, &(1_u32 << 20).to_be_bytes());
    swap(&mut stream, &64_u32.to_be_bytes());
    swap(&mut stream, b"5\0");
    server
        .end()
        .fails(1, &["pages of 1048576 bytes, times 5 connections", "help: give a smaller -q"]);
}

/// A client that connects to a real queue pair's address and moves nothing, and what it claims
/// then.
fn liar(test: &str, more: &str, figures: &[[u8; 8]]) -> Run {
    let stage = Stage::new();
    let neighbour = stage.listen("");
    let port = free_port();
    let more = format!("--ip 192.168.7.2/24 -n 40 -p {port} --timeout 1 --wait 2 {more}");
    let mut server = Process::start(stage.command(&format!("compat perftest {test}"), 1, &more));
    server.wait_for("listens on");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    agree(&mut stream);
    let key = key(0x11, "00:00:00:00:00:00:00:00:00:00:ff:ff:c0:a8:07:01");
    // Keys, once more, and that it is ready; then that it has done all.
    for _ in 0..4 {
        swap(&mut stream, &key);
    }
    for figure in figures {
        swap(&mut stream, figure);
    }
    if figures.len() == 5 {
        // A server that believes it says a last word; another hangs up.
        let _ = stream.write_all(&key);
    } else {
        drop(stream);
    }
    let run = server.end();
    drop(neighbour);
    run
}

#[test]
fn servers_and_clients_that_claim_what_is_not_so() {
    let words = |size: u64, operations: u64, rate: f64| {
        let mean = 1.5_f64.to_be_bytes();
        [size.to_be_bytes(), operations.to_be_bytes(), mean, mean, rate.to_be_bytes()]
    };
    // Taken at its word, and not.
    liar("write_bw", "", &words(65536, 40, 1.0)).well();
    liar("write_bw", "-V", &words(65536, 40, 1.0))
        .fails(1, &["memory is wrong from byte 0 on", "help:"]);
    liar("atomic_bw", "-V", &words(8, 40, 1.0))
        .fails(1, &["40 additions of 1 by 192.168.7.1 add up to 0", "help:"]);
    liar("read_bw", "", &words(u64::MAX, 40, 1.0))
        .fails(1, &["moved 18446744073709551615 bytes at a time"]);
    liar("read_bw", "", &words(65536, 0, 1.0)).fails(1, &["did 0 operations instead of 40"]);
    for rate in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        let run = liar("read_bw", "--json", &words(65536, 40, rate)).well();
        let json = run.json();
        assert!(json["seconds"].is_null() && json["operations_per_second"].is_null(), "{run:?}");
    }
    liar("write_bw", "", &words(65536, 40, 1.0)[..2])
        .fails(1, &["hung up before it said its figures"]);
}

#[test]
fn clients_and_what_answers_them() {
    let stage = Stage::new();
    let port = free_port();
    call(&stage, "perftest read_bw", &format!("--client 127.0.0.1 -p {port}"))
        .fails(1, &["TCP port", "help: does ib_read_bw run there"]);
    // A server whose address is there, but not its queue pair.
    let listener = stage.listen("");
    for (test, words) in [
        ("send_bw", "a send to 192.168.7.1 failed: no acknowledgement"),
        ("write_bw", "a write to 192.168.7.1 failed: no acknowledgement"),
        ("read_bw", "a read from 192.168.7.1 failed: no acknowledgement"),
    ] {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut lengths = vec![16, 4, 4, 2];
            lengths.extend([108; 4]);
            let key = key(0xf00, "00:00:00:00:00:00:00:00:00:00:ff:ff:c0:a8:07:01");
            let answers =
                [&version("6.24")[..], &4096_u32.to_be_bytes(), &64_u32.to_be_bytes(), b"5\0"];
            let mut said = Vec::new();
            for (nth, length) in lengths.into_iter().enumerate() {
                let mut received = vec![0; length];
                if stream.read_exact(&mut received).is_err() {
                    break;
                }
                said.push(received);
                stream.write_all(answers.get(nth).unwrap_or(&&key[..])).unwrap();
            }
            said
        });
        let more = format!("--client 127.0.0.1 -p {port} -n 10 -s 100 -u 8");
        call(&stage, &format!("perftest {test}"), &more).fails(1, &[words, "help:"]);
        let said = server.join().unwrap();
        assert_eq!(said[0], version("6.24"));
        let line = String::from_utf8(said[4].clone()).unwrap();
        let gid = ":00:00:00:00:00:00:00:00:00:00:ff:ff:c0:a8:07:02:00000000:\0";
        assert!(line.starts_with("0000:00") && line.ends_with(gid), "{line:?}");
        assert!(said[4..].iter().all(|key| *key == said[4]), "{said:?}");
    }
    drop(listener);
}

#[test]
fn servers_that_nobody_calls_and_ports_that_are_taken() {
    let stage = Stage::of(1);
    let more = format!("--wait 0.5 -p {}", free_port());
    serve(&stage, "perftest send_bw", &more).end().fails(
        1,
        &["no ib_send_bw called within 0.5 s", "help: start it there, with this machine as its"],
    );
    let taken = TcpListener::bind((std::net::Ipv6Addr::UNSPECIFIED, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let more = format!("perftest send_bw --ip 192.168.7.1/24 -p {port}");
    stage
        .run(&format!("compat {more}"), 0, "")
        .fails(1, &["Address already in use", "help: give another with -p"]);
    let without = Config { general_caps: vec![("atomic", 0)], ..Config::default() };
    let stage = Stage::with(&without, 1);
    stage.run("compat perftest atomic_bw", 0, "--ip 192.168.7.1/24").fails(
        1,
        &[&format!("{} has no atomics", stage.device(0)), "help: dat info says what it has"],
    );
}

#[test]
fn memory_that_somebody_else_changes() {
    let stage = Stage::new();
    for (test, more, words) in [
        (
            "read_bw",
            "-s 3000",
            ["brought other contents than an earlier one, from byte", "help: -V wants a peer"],
        ),
        (
            "atomic_bw",
            "",
            [" on connection 0 found 0x", "help: somebody else changes that memory, or one of"],
        ),
    ] {
        let run = serving_restless_memory(&stage, |port| {
            let more = format!("--client 127.0.0.1 -p {port} -n 1000000 -V {more}");
            call(&stage, &format!("perftest {test}"), &more)
        });
        run.fails(1, &words);
    }
}

#[test]
fn peers_that_vanish_are_missed() {
    let stage = Stage::new();
    for (test, words) in
        [("send_lat", ["help:"; 2]), ("write_lat", ["help:"; 2]), ("read_bw", ["hung up", "help:"])]
    {
        let port = free_port();
        let endless = format!("-n 4000000 -u 10 --timeout 2 -p {port}");
        let server = serve(&stage, &format!("perftest {test}"), &endless);
        let more = format!("--ip 192.168.7.2/24 --client 127.0.0.1 {endless}");
        let mut client =
            Process::start(stage.command(&format!("compat perftest {test}"), 1, &more));
        thread::sleep(Duration::from_millis(1500));
        client.kill();
        let server = server.end().fails(1, &words);
        assert!(server.took < Duration::from_secs(15), "{server:?}");
        drop(client);
    }
    // Ctrl-C is heeded wherever a side waits.
    let server = serve(&stage, "perftest write_lat", &format!("-p {}", free_port()));
    server.interrupt();
    server.end().fails(1, &["interrupted"]);
}

#[test]
fn arguments_that_cannot_be() {
    let stage = Stage::of(1);
    for (program, more, words) in [
        ("perftest send", "", "send_bw"),
        ("perftest atomic_bw", "-s 4", "an atomic has 8 bytes, not 4"),
        ("perftest send_lat", "-q 2", "ib_send_lat has one connection"),
        ("perftest send_bw", "-q 17", "1..=16"),
        ("perftest write_bw", "-q 16 -s 512K", "more than 4M"),
        ("perftest write_bw", "-n 0", "not in 1.."),
        ("perftest write_bw", "-u 32", "1..=31"),
        ("perftest atomic_bw", "-A ADD", "FETCH_AND_ADD"),
        ("perftest read_bw", "--client a --server", "cannot be used"),
    ] {
        let more = format!("--ip 192.168.7.1/24 {more}");
        stage.run(&format!("compat {program}"), 0, &more).fails(2, &[words]);
    }
}
