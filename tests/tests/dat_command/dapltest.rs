//! `dat compat dapltest` against itself, and against peers that are not what they should be.
//! (Against the tool itself it is tried in guests.)

use crate::compat::{call, serve, serve_as};
use crate::stage::{Process, Stage};

const NONE: [String; 0] = [];
const SERVER: &str = "-s 192.168.7.1 -T";

fn server(stage: &Stage, more: &str) -> Process {
    serve(stage, "dapltest", &format!("-T S {more}"))
}

/// A client's run, which must go well; what it says.
#[track_caller]
fn client(stage: &Stage, more: &str) -> String {
    call(stage, "dapltest", &format!("{SERVER} {more}")).well().out
}

/// Ends a server, which must have served so many tests well.
#[track_caller]
fn quit(stage: &Stage, server: Process, tests: u32) {
    let report = client(stage, "Q");
    assert!(report.contains("192.168.7.1:62000 was told to end"), "{report}");
    let run = server.end().well();
    let words = format!("{tests} tests, 0 failures");
    assert!(run.out.contains(&words), "{run:?}");
    assert_eq!(stage.complaints(), NONE);
}

/// The commands of the OFA's interop event of November 2007, with fewer iterations.
#[test]
fn the_eleven_commands() {
    let stage = Stage::new();
    let server = server(&stage, "");
    let both = "client SR 256 1 server RR 4096 1 server SR 256 1";
    for (command, says) in [
        ("T -i 200 client SR 256 1 server SR 256 1", "1 threads, 1 EPs"),
        ("T -i 20 -V -P client SR 1024 3 -f server SR 1536 2 -f", "verified"),
        ("T -i 20 -V -P client SR 1024 1 server SR 1024 1", "verified"),
        ("T -i 20 -w 10 -V -P client SR 1024 3 server SR 1536 2", "1 threads, 10 EPs"),
        ("T -i 20 -V -P client SR 256 1 server RW 4096 1 server SR 256 1", "verified"),
        (&format!("T -i 20 -V -P {both}"), "verified"),
        (&format!("T -i 10 -t 4 -w 8 -V -P {both} {both}"), "4 threads, 8 EPs"),
        ("P -i 1024 -p 64 -m p RW 8192 2", "raw: RW, 1024, 8192, 2, 64,"),
        ("P -i 1024 -p 64 -m p RW 4096 2", "raw: RW, 1024, 4096, 2, 64,"),
        ("P -i 1024 -p 64 -m p RW 4096 1", "raw: RW, 1024, 4096, 1, 64,"),
        ("T -i 20 -w 10 -V -P client SR 1024 3 server SR 1536 2", "verified"),
    ] {
        let report = client(&stage, command);
        assert!(report.contains(says), "{command}: {report}");
    }
    quit(&stage, server, 11);
}

#[test]
fn every_operation_is_verified_in_both_directions() {
    let stage = Stage::new();
    let server = server(&stage, "-n 5000 --timeout 5");
    for more in [
        "-V -i 300 client SR 64 server SR 64",
        "-V -i 7 -r -w 3 client RW 4096 1 server RW 2048 4 client SR 1024 4 server SR 4096 2 \
         client SR 1024 3 -f server SR 2048 1 -f",
        "-V -i 3 -t 2 -w 2 client RR 32768 4 server RR 32768 1 client SR 16384 4 -f server SR 16384 4 -f",
        // Segments that leave gaps over there.
        "-V -i 3 client RR 100 3 server RW 33 4 client RW 7 2 server RR 1 4 client SR 1 4 server SR 3 3",
        "-i 1 client SR 4096 server SR 4096",
        "-i 3 -P -d client SR server RR client RW server SR",
    ] {
        let report = client(&stage, &format!("T -n 5000 {more}"));
        let verified = more.contains("-V");
        assert_eq!(report.contains("verified"), verified, "{more}: {report}");
    }
    for more in ["RR 32768 1", "RR 100 3", "-p 1 RW 4 1", "-m b -p 16 RW 65536 2", "RW"] {
        client(&stage, &format!("P -n 5000 -i 40 {more}"));
    }
    let report = client(&stage, "Q -n 5000");
    assert!(report.contains("192.168.7.1:5000 was told to end"), "{report}");
    let run = server.end().well();
    assert!(run.out.contains("11 tests, 0 failures"), "{run:?}");
    let ready = run.out.matches("Dapltest: Service Point Ready - ").count();
    assert_eq!(ready, 12, "{run:?}");
    assert_eq!(stage.complaints(), NONE);
}

/// Hundreds of connections, again and again: the places of those that have just ended are taken.
/// And more than there is room for.
#[test]
fn hundreds_of_connections_at_a_time() {
    let stage = Stage::new();
    let server = server(&stage, "");
    for _ in 0..3 {
        let report =
            client(&stage, "T -i 3 -t 24 -w 32 -V client SR 256 server RW 256 server SR 256");
        assert!(report.contains("24 threads, 32 EPs"), "{report}");
    }
    let refused = call(&stage, "dapltest", &format!("{SERVER} T -t 32 -w 32 client SR server SR"));
    refused.fails(
        1,
        &[
            "-t 32 -w 32 are 32 times 32 connections; this adapter has room for 1023 more Endpoints",
            "help: give a smaller -t or -w",
        ],
    );
    quit(&stage, server, 3);
}

#[test]
fn clients_of_one_server_at_the_same_time() {
    let stage = Stage::of(4);
    let server = server(&stage, "");
    let more = "-T T -i 60 -w 4 -V client SR 256 server RW 4096 server SR 256";
    let clients: Vec<Process> = (1..4)
        .map(|nth| {
            let ip = format!("--ip 192.168.7.{}/24 -s 192.168.7.1 {more}", nth + 1);
            Process::start(stage.command("compat dapltest", nth, &ip))
        })
        .collect();
    for client in clients {
        client.end().well();
    }
    quit(&stage, server, 3);
}

#[test]
fn over_ipv6_a_vlan_and_as_json() {
    let stage = Stage::new();
    let more = "--vlan 5 --poll --json -T";
    let server = serve_as(&stage, "dapltest", &format!("--ip fd00:7::1/64 {more} S"));
    let call = |wish: &str| {
        let more = format!("--ip fd00:7::2/64 {more} {wish}");
        stage.run("compat dapltest", 1, &more).well().json()
    };
    let report = call("T -s fd00:7::1 -i 20 -V client SR 3000 2 server RR 500 server SR 100");
    assert_eq!(
        (&report["role"], &report["test"], &report["peer"]),
        (&"client".into(), &"transaction".into(), &"[fd00:7::1]:62000".into())
    );
    assert_eq!(
        (&report["verified"], &report["operations"], &report["sent_bytes"]),
        (&true.into(), &120.into(), &((6000 + 4096) * 20).into())
    );
    assert_eq!(report["rdma_read_bytes"], 10_000);
    let report = call("P -s fd00:7::1 -i 50 -p 5 RR 256 2");
    assert_eq!(
        (&report["operation"], &report["bytes"], &report["pipeline"]),
        (&"RR".into(), &(50 * 512).into(), &5.into())
    );
    assert!(report["latency_us"]["mean"].as_f64().unwrap() > 0.0);
    assert_eq!(call("Q -s fd00:7::1")["test"], "quit");
    let report = server.end().well().json();
    assert_eq!(
        (&report["role"], &report["tests"], &report["failed"]),
        (&"server".into(), &2.into(), &0.into())
    );
}

#[test]
fn arguments_that_make_no_test() {
    let stage = Stage::new();
    for (more, words) in [
        ("-T L limit_ep", "have no peer"),
        ("-T F", "have no peer"),
        ("-T T -f script", "not read from a file"),
        ("-T T client SR server SR", "has to be told its server"),
        ("-T T -s 192.168.7.1 client SR", "needs a server SR and a client SR"),
        ("-T T -s 192.168.7.1 -m p client SR server SR", "-T T has no -m"),
        ("-T P -s 192.168.7.1 -V RW", "-T P has no -V"),
        ("-T P -s 192.168.7.1 SR", "is RR or RW, not SR"),
        ("-T S -i 4", "-T S has no -i"),
        ("-T Q -s 192.168.7.1 -R HT", "best effort"),
    ] {
        call(&stage, "dapltest", more).fails(2, &[words, "help:"]);
    }
}

#[test]
fn it_meets_the_wrong_peers() {
    let stage = Stage::new();
    let listener = stage.listen("--port 62000 --count 1");
    call(&stage, "dapltest", &format!("{SERVER} Q")).fails(1, &["refused the connection", "help:"]);
    call(&stage, "dapltest", &format!("{SERVER} Q -n 9"))
        .fails(1, &["nothing listens on its port 9", "help: start dapltest there"]);
    drop(listener);
    let nobody = "-T Q -s 192.168.7.9 --timeout 1";
    call(&stage, "dapltest", nobody).fails(1, &["192.168.7.9", "help: is it up"]);

    // First no client comes, and then one that sends no message of this protocol.
    let lonely = server(&stage, "--wait 0.5");
    lonely.end().fails(1, &["a dapltest client did not come within 0.5 s", "help:"]);
    let server = server(&stage, "-n 7174");
    call(&stage, "rping", "--client 192.168.7.1").fails(1, &["help:"]);
    client(&stage, "T -n 7174 -i 5 -V client SR server SR");
    client(&stage, "Q -n 7174");
    server.end().fails(1, &["a client at 192.168.7.2", "16 bytes instead of who the client is"]);
}

#[test]
fn a_client_that_goes_away_ends_its_test_only() {
    let stage = Stage::of(3);
    let server = server(&stage, "--timeout 2");
    let more = "--ip 192.168.7.3/24 -s 192.168.7.1 -T T -i 4000000 client SR server SR";
    let mut gone = Process::start(stage.command("compat dapltest", 2, &format!("-v {more}")));
    gone.wait_for("is up");
    std::thread::sleep(std::time::Duration::from_secs(1));
    gone.interrupt();
    gone.end().fails(1, &["interrupted"]);
    client(&stage, "T -i 50 -V client SR server SR");
    client(&stage, "Q");
    let run = server.end().fails(1, &["the transaction test with 192.168.7.3"]);
    assert!(run.out.contains("1 tests, 1 failures"), "{run:?}");
}

#[test]
fn a_server_that_is_ended_in_good_order() {
    let stage = Stage::new();
    let server = server(&stage, "");
    client(&stage, "T -i 5 client SR server SR");
    server.interrupt();
    let run = server.end().well();
    assert!(run.out.contains("1 tests, 0 failures"), "{run:?}");
}
