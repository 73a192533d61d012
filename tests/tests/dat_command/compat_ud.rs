//! `dat compat` with datagrams, against itself.

use crate::compat::{call, free_port, serve, serve_as};
use crate::stage::Stage;

#[test]
fn udaddy_with_many_endpoints() {
    let stage = Stage::new();
    for (count, messages, size) in [(1, 10, 100), (48, 2, 1), (3, 128, 1024), (2, 5, 0)] {
        let more = format!("-c {count} -C {messages} -S {size}");
        let server = serve(&stage, "udaddy", &more);
        let client = call(&stage, "udaddy", &format!("{more} --client 192.168.7.1"));
        let messages = if size == 0 { 0 } else { messages };
        let words = format!("{messages} datagrams of {size} bytes each way on each");
        for run in [client.well(), server.end().well()] {
            let all = format!("{count} Endpoints with");
            assert!(run.out.contains(&all) && run.out.contains(&words), "{run:?}");
        }
    }
    assert!(stage.complaints().is_empty());
}

#[test]
fn udaddy_over_ipv6_a_vlan_and_another_port() {
    let stage = Stage::new();
    let more = "--vlan 5 -p 7000 -S 4096 --mtu 4096 --poll --json";
    let server = serve_as(&stage, "udaddy", &format!("--ip fd00:7::1/64 {more}"));
    let client = format!("--ip fd00:7::2/64 --client fd00:7::1 {more}");
    let client = stage.run("compat udaddy", 1, &client).well().json();
    let server = server.end().well().json();
    for (report, role, peer) in
        [(client, "client", "[fd00:7::1]:7000"), (server, "server", "fd00:7::2")]
    {
        assert_eq!((&report["role"], &report["peer"]), (&role.into(), &peer.into()));
        assert_eq!((&report["messages"], &report["size"]), (&10.into(), &4096.into()));
    }
}

#[test]
fn udaddy_meets_the_wrong_peers() {
    let stage = Stage::new();
    let listener = stage.listen("--port 9 --count 1");
    call(&stage, "udaddy", "--client 192.168.7.1")
        .fails(1, &["nothing listens on its port 7174", "help: start udaddy there"]);
    // A service point for connections has no Endpoint for datagrams to give.
    call(&stage, "udaddy", "--client 192.168.7.1 -p 9 --timeout 2")
        .fails(1, &["192.168.7.1", "help:"]);
    drop(listener);
    call(&stage, "udaddy", "--client 192.168.7.9 --timeout 1")
        .fails(1, &["192.168.7.9 does not answer", "help: is it up"]);
    call(&stage, "udaddy", "--client 192.168.7.1 -S 2000")
        .fails(1, &["at most 1024 bytes", "help: give a smaller -S"]);
    let server = serve(&stage, "udaddy", "-c 1 -S 100 --timeout 1");
    call(&stage, "udaddy", "--client 192.168.7.1 -S 200 --timeout 1")
        .fails(1, &["did not come within 1 s", "a datagram that is lost is not repeated"]);
    server.end().fails(1, &[]);
    let server = serve(&stage, "udaddy", "-c 1 --timeout 1");
    call(&stage, "udaddy", "--client 192.168.7.1 -c 2 --timeout 1").fails(1, &["help:"]);
    assert_eq!(server.end().code, 1);
    // A client that wants a connection is at the wrong program.
    let server = serve(&stage, "udaddy", "-p 7174 --wait 2");
    call(&stage, "rping", "--client 192.168.7.1").fails(1, &["refused the connection"]);
    server.end().fails(1, &["a udaddy client did not come within 2 s"]);
}

#[test]
fn pingpong_with_datagrams_is_verified_on_both_sides() {
    let stage = Stage::new();
    for more in ["-n 50 -c", "-n 20 -s 1 -c --poll", "-n 10 -s 4K -c --mtu 4096"] {
        let port = free_port();
        let more = format!("{more} -p {port}");
        let server = serve(&stage, "pingpong ud", &more);
        let client = call(&stage, "pingpong ud", &format!("{more} --client 127.0.0.1"));
        for run in [client.well(), server.end().well()] {
            assert!(run.out.contains("verified"), "{run:?}");
        }
    }
    call(&stage, "pingpong ud", "-s 1025 --client 127.0.0.1")
        .fails(1, &["at most 1024 bytes", "help: give a smaller -s"]);
    assert!(stage.complaints().is_empty());
}
