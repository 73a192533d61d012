//! Successful runs: every test, every kind of network, several at a time.

use std::process::Stdio;

use crate::compat::{call, free_port, serve};
use crate::stage::{Process, Stage, follows};

#[test]
fn ping_is_served_and_reported() {
    let stage = Stage::new();
    let listener = stage.listen("--count 2");
    let ping = stage.client("ping", 1, "--count 200").well();
    let said = &ping.out;
    assert!(
        said.contains("200 round trips of 64 bytes with 192.168.7.1:4711, verified on both sides"),
        "{said}"
    );
    assert!(said.contains("median") && said.contains("p99") && said.contains("###"), "{said}");
    assert_eq!(ping.err, "");

    let json = stage.client("ping", 1, "--count 50 --size 4K --poll --json").well().json();
    assert_eq!((&json["count"], &json["size"]), (&50.into(), &4096.into()));
    let latency = |name: &str| json["latency_us"][name].as_f64().unwrap();
    assert!(latency("min") > 0.0 && latency("min") <= latency("median"));
    assert!(latency("median") <= latency("p99") && latency("p99") <= latency("max"));
    let rows = json["histogram"].as_array().unwrap();
    let count: u64 = rows.iter().map(|row| row["count"].as_u64().unwrap()).sum();
    assert_eq!(count, 50);

    let listener = listener.end().well();
    let lines: Vec<&str> = listener.out.lines().collect();
    assert_eq!(lines.len(), 2, "{}", listener.out);
    assert!(lines[0].starts_with("192.168.7.2: ping, 64 bytes, 200 verified in"), "{}", lines[0]);
    assert!(lines[0].ends_with("complete"), "{}", lines[0]);
    assert_eq!(stage.complaints(), Vec::<String>::new());
}

#[test]
fn perf_of_every_kind_is_verified_on_both_sides() {
    let stage = Stage::new();
    let listener = stage.listen("--count 8 --json");
    for kind in ["send", "write", "read", "bind"] {
        // Sizes and counts that fill nothing evenly; one in flight, and as many as there may be.
        for more in ["--count 101 --size 1000 --depth 7", "--count 5 --size 1 --depth 1"] {
            let run = stage.client("perf", 1, &format!("--kind {kind} {more} --json")).well();
            let json = run.json();
            assert_eq!(json["test"], kind);
            let measured = &json["runs"][0];
            assert!(measured["operations_per_second"].as_f64().unwrap() > 0.0);
            assert_eq!(measured["megabytes_per_second"].is_null(), kind == "bind");
        }
    }
    let json = listener.end().well().json();
    assert_eq!(json["ok"], true);
    let sessions = json["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 8);
    for session in sessions {
        assert_eq!(session["outcome"], "complete", "{session}");
        assert_eq!(session["verified"], session["count"], "{session}");
    }
    assert_eq!(stage.complaints(), Vec::<String>::new());
}

/// Several connections, both directions, a rate: each connection is a test for the listener.
#[test]
fn perf_over_connections_and_at_a_rate() {
    let stage = Stage::new();
    let listener = stage.listen("--count 12 --json");
    let run = |more: &str| stage.client("perf", 1, &format!("{more} --json")).well().json();
    let both = run("--connections 3 --bidirectional --count 300 --size 1000 --depth 7");
    follows(&both, include_str!("../../../docs/dat-perf.schema.json"));
    assert_eq!((&both["connections"], &both["bidirectional"]), (&3.into(), &true.into()));
    assert_eq!(both["runs"][0]["count"], 1800, "{both:#}");
    let at_peer = &both["runs"][0]["at_peer"];
    assert_eq!(at_peer["count"], 1800, "{both:#}");
    for value in ["seconds", "operations_per_second", "cpu_us_per_operation"] {
        assert!(at_peer[value].as_f64().unwrap() > 0.0, "{value}: {both:#}");
    }
    for kind in ["write", "send", "read", "bind"] {
        let paced = run(&format!("--kind {kind} --rate 200 --warmup 0.2 --duration 1 --depth 2"));
        let measured = &paced["runs"][0];
        let count = measured["count"].as_u64().unwrap();
        assert!((180..=205).contains(&count), "{kind}: {measured:#}");
        let rate = measured["operations_per_second"].as_f64().unwrap();
        assert!((170.0..=205.0).contains(&rate), "{kind}: {measured:#}");
        // Without those before the measurement, which reads do not report apart.
        let seen = measured["at_peer"]["count"].as_u64().unwrap();
        let most = if kind == "read" { 250 } else { 215 };
        assert!((175..=most).contains(&seen), "{kind}: {measured:#}");
    }
    let out = stage
        .client("perf", 1, "--qps 2 --kind read --duration 0.3 --poll --interval 0.1")
        .well()
        .out;
    assert!(out.contains("16 in flight on each of 2 connections, all verified"), "{out}");
    let json = listener.end().well().json();
    let outcomes = json["sessions"].as_array().unwrap().iter();
    for session in outcomes {
        assert_eq!(session["outcome"], "complete", "{session}");
    }
    for (more, why) in [
        ("--kind bind --bidirectional", "a bind moves no data"),
        ("--connections 5 --bidirectional", "that makes 10 connections"),
        ("--warmup 1", "--duration"),
    ] {
        stage.client("perf", 1, more).fails(2, &[why]);
    }
}

/// Threads share an adapter by halves of connections; what each of them does is verified as ever.
#[test]
fn perf_by_threads() {
    let stage = Stage::new();
    let listener = stage.listen("--count 22 --json");
    for kind in ["send", "write", "read", "bind"] {
        let more = format!("--kind {kind} --threads 2 --connections 3 --count 200 --depth 5");
        let json = stage.client("perf", 1, &format!("{more} --size 300 --json")).well().json();
        follows(&json, include_str!("../../../docs/dat-perf.schema.json"));
        assert_eq!(json["runs"][0]["count"], 600, "{json:#}");
        assert_eq!(json["runs"][0]["at_peer"]["count"], 600, "{json:#}");
    }
    let timed = "--threads 3 --connections 2 --bidirectional --rate 400 --warmup 0.2 --duration 1";
    let json = stage.client("perf", 1, &format!("{timed} --depth 2 --json")).well().json();
    let count = json["runs"][0]["count"].as_u64().unwrap();
    assert!((350..=410).contains(&count), "{json:#}");
    let lines = "--threads 2 --connections 2 --duration 0.5 --interval 0.1 --sizes 64,4K,64K";
    let out = stage.client("perf", 1, lines).well().out;
    assert!(out.lines().filter(|line| line.contains(" s  ")).count() >= 9, "{out}");
    let json = listener.end().well().json();
    for session in json["sessions"].as_array().unwrap() {
        assert_eq!(session["outcome"], "complete", "{session}");
    }
}

/// A run by time ends with everything verified, a sweep has a connection for each size.
#[test]
fn perf_by_time_and_over_sizes() {
    let stage = Stage::new();
    let listener = stage.listen("--count 25 --json");
    // Reads one by one: often all that are posted are done when the time is over.
    for _ in 0..4 {
        stage.client("perf", 1, "--kind read --duration 0.1 --depth 1 --size 8").well();
    }
    for kind in ["send", "write", "read", "bind"] {
        // A depth whose half does not divide it.
        let run = stage.client(
            "perf",
            1,
            &format!("--kind {kind} --duration 0.3 --interval 0.1 --size 200 --depth 5"),
        );
        let out = run.well().out;
        assert!(out.lines().filter(|line| line.contains(" s  ")).count() >= 2, "{out}");
        assert!(out.contains("all verified") && out.contains("latency p50"), "{out}");
        assert!(out.contains("at the peer "), "{out}");
    }
    let file = stage.folder().join("perf.svg");
    let more = format!("--sizes 8..1K --count 40 --plot {} --json", file.display());
    let json = stage.client("perf", 1, &more).well().json();
    follows(&json, include_str!("../../../docs/dat-perf.schema.json"));
    let runs = json["runs"].as_array().unwrap();
    let sizes: Vec<_> = runs.iter().map(|run| run["size"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [8, 16, 32, 64, 128, 256, 512, 1024]);
    for run in runs {
        let latency = &run["latency_us"];
        let times = ["min", "median", "p90", "p99", "p999", "max"];
        let times = times.map(|name| latency[name].as_f64().unwrap());
        assert!(times.is_sorted() && times[0] > 0.0, "{run}");
        assert!(run["cpu_us_per_operation"].as_f64().unwrap() > 0.0, "{run}");
    }
    stage.client("perf", 1, "--count 8 --plot /nowhere/perf.svg").fails(
        1,
        &["/nowhere/perf.svg: No such file", "help: give --plot a file that can be written"],
    );
    let picture = std::fs::read_to_string(&file).unwrap();
    let page = roxmltree::Document::parse(&picture).unwrap();
    assert_eq!(page.root_element().tag_name().name(), "svg");
    let circles = page.descendants().filter(|node| node.has_tag_name("circle")).count();
    assert!(picture.contains("MB/s") && circles >= 24, "{picture}");
    let file = stage.folder().join("load.svg");
    let more = format!("--rate 500..2000 --duration 0.2 --plot {}", file.display());
    let json = stage.client("perf", 1, &format!("{more} --json")).well().json();
    follows(&json, include_str!("../../../docs/dat-perf.schema.json"));
    let rates: Vec<_> = json["runs"].as_array().unwrap().iter().map(|run| &run["rate"]).collect();
    assert_eq!(rates, [500, 1000, 2000]);
    let picture = std::fs::read_to_string(&file).unwrap();
    roxmltree::Document::parse(&picture).unwrap();
    assert!(picture.contains("latency against load"), "{picture}");
    let out = stage.client("perf", 1, "--sizes 64,4K,1M --depth 4 --count 8 --csv").well().out;
    let columns: Vec<usize> = out.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(columns, [17; 4], "{out}");
    stage.client("perf", 1, "--sizes 100,200 --count 8").well();
    let json = listener.end().well().json();
    for session in json["sessions"].as_array().unwrap() {
        assert_eq!(session["outcome"], "complete", "{session}");
    }
    assert_eq!(stage.complaints(), Vec::<String>::new());
}

/// Behind vfio-user a doorbell is a message, and an interrupt is a sleep and two more messages.
#[test]
fn an_operation_takes_few_doorbells_and_completions() {
    let stage = Stage::new();
    let listener = stage.listen("--count 3");
    let work = |verb: &str, more: &str| {
        let before = stage.work();
        stage.client(verb, 1, more).well();
        let after = stage.work();
        [0, 1, 2].map(|n| after[n] - before[n])
    };
    // What bringing an adapter up and connecting takes.
    let bare = work("perf", "--count 1")[0];

    // With a doorbell for each operation there were 4,500 and more.
    let [messages, doorbells, _] = work("perf", "--kind write --size 64 --depth 16 --count 4000");
    assert!(doorbells < 2000, "{doorbells} doorbells");
    assert!(messages.saturating_sub(bare) < 4000, "{messages} messages, {bare} of them set up");

    // A receive on either side and, since the queue must not fill up, every fifth send.
    let [_, doorbells, completions] = work("ping", "--count 1000");
    assert!((2000..2050).contains(&doorbells), "{doorbells} doorbells");
    assert!((2000..2600).contains(&completions), "{completions} completions");
    listener.end().well();
    assert_eq!(stage.complaints(), Vec::<String>::new());
}

#[test]
fn many_bytes_in_many_packets() {
    let stage = Stage::new();
    let listener = stage.listen("--count 4 --mtu 1024");
    // Connection management does not let the two disagree.
    let run = stage.client("perf", 1, "--mtu 2048");
    run.fails(1, &["192.168.7.1:4711 cannot take packets of 2048 bytes", "help: give the --mtu"]);
    for kind in ["send", "write", "read"] {
        let more = format!("--kind {kind} --count 60 --size 64K --depth 48 --mtu 1024");
        let run = stage.client("perf", 1, &more);
        assert!(
            run.well().out.contains("60 operations of 65536 bytes, 48 in flight, all verified")
        );
    }
    stage.client("ping", 1, "--count 3 --size 1M --mtu 512").well();
    listener.end().well();
}

#[test]
fn ipv6_vlan_and_another_port() {
    let stage = Stage::new();
    let listener = stage.listen_as("fd00:0:0:7::1/64", "--vlan 7 --port 5000 --count 1");
    let run =
        stage.run("ping", 1, "[fd00:0:0:7::1]:5000 --ip fd00:0:0:7::2/64 --vlan 7 --count 20");
    assert!(run.well().out.contains("20 round trips"));
    assert!(listener.end().well().out.starts_with("fd00:0:0:7::2: ping"));
}

#[test]
fn packets_have_the_class_of_the_side_that_connects() {
    for (network, class, vlan) in [
        (["192.168.7.1", "192.168.7.2/24", ""], "--tos 0x68", None),
        (["fd00:7::1", "fd00:7::2/64", "--vlan 7"], "--tclass 104 --sl 3", Some(3 << 13 | 7)),
    ] {
        let stage = Stage::captured();
        let [listener_ip, ip, vlan_option] = network;
        let prefix = ip.split_once('/').unwrap().1;
        let listener = stage.listen_as(
            &format!("{listener_ip}/{prefix}"),
            &format!("{vlan_option} --count 1 --tos 0x20"),
        );
        let more = format!("{listener_ip} --ip {ip} {vlan_option} {class} --count 20");
        let ping = stage.run("ping", 1, &more).well();
        assert_eq!(ping.err, "");
        listener.end().well();
        let packets = stage.packets();
        assert!(packets.len() > 60, "{}", packets.len());
        for packet in packets {
            // CM datagrams say that a switch may mark them.
            let ecn = if packet.bth.dest_qp == 1 { 2 } else { 0 };
            assert_eq!((packet.net.tclass, packet.net.vlan), (0x68 | ecn, vlan));
        }
    }
}

#[test]
fn programs_that_agree_without_a_connection_manager_have_their_own_class() {
    let stage = Stage::captured();
    let more = format!("-n 5 --tclass 0xb8 -p {}", free_port());
    let server = serve(&stage, "perftest send_lat", &more);
    call(&stage, "perftest send_lat", &format!("--client localhost {more}")).well();
    server.end().well();
    assert!(stage.packets().iter().all(|packet| packet.net.tclass == 0xb8));
}

#[test]
fn a_priority_that_no_frame_carries_is_noted() {
    let stage = Stage::new();
    let listener = stage.listen("--count 1");
    let ping = stage.client("ping", 1, "--count 3 --priority 3").well();
    assert!(ping.err.contains("priority 3 without a VLAN"), "{}", ping.err);
    assert!(ping.err.contains("egress queue only"), "{}", ping.err);
    listener.end().well();
}

#[test]
fn a_device_that_writes_to_work_queues_needs_them_writable() {
    let facts = "queue-writes=back".parse().unwrap();
    let card = mlx5_model::Config { facts, ..mlx5_model::Config::default() };
    let stage = Stage::with(&card, 2);
    let listener = stage.listen("--count 1 --writable-queues");
    stage.client("ping", 1, "--count 3 --writable-queues").well();
    listener.end().well();
    // By default it may not, and nothing that is sent leaves.
    let listener = stage.listen("--count 1");
    stage.client("ping", 1, "--count 3 --timeout 1").fails(1, &["192.168.7.1"]);
    drop(listener);
    // Where the device only reads, both will do.
    let stage = Stage::new();
    let listener = stage.listen("--count 1 --writable-queues");
    stage.client("ping", 1, "--count 3").well();
    listener.end().well();
}

/// Short messages in compressed completions arrive as any do.
#[test]
fn completions_may_be_compressed_and_hold_messages() {
    let facts = "cqe-compression=always".parse().unwrap();
    let card = mlx5_model::Config { facts, ..mlx5_model::Config::default() };
    let stage = Stage::with(&card, 2);
    for asked in
        ["--compress-completions", "--inline-receives", "--compress-completions --inline-receives"]
    {
        let listener = stage.listen(&format!("--count 2 {asked}"));
        stage.client("ping", 1, &format!("--count 50 --size 24 {asked}")).well();
        let perf = format!("--kind send --size 32 --depth 16 --count 2000 {asked}");
        stage.client("perf", 1, &perf).well();
        listener.end().well();
    }
}

#[test]
fn two_tests_at_a_time() {
    let stage = Stage::of(3);
    let listener = stage.listen("--count 2");
    let start = |nth: usize, kind: &str| {
        let more = format!("192.168.7.1 --ip 192.168.7.{}/24 --kind {kind} --count 2000", nth + 1);
        Process::start(stage.command("perf", nth, &more))
    };
    let (one, other) = (start(1, "write"), start(2, "send"));
    one.end().well();
    other.end().well();
    let out = listener.end().well().out;
    assert!(out.contains("192.168.7.2: write") && out.contains("192.168.7.3: send"), "{out}");
}

#[test]
fn info_and_doctor_ask_the_device() {
    let stage = Stage::new();
    let json = stage.run("info", 0, "--json").well().json();
    let said = &json["said"];
    assert_eq!((&said["link_type"], &said["link_up"]), (&"Ethernet".into(), &true.into()));
    assert_eq!((&said["path_mtu"], &said["pci_id"]), (&4096.into(), &"15b3:1013".into()));
    assert!(said["mac"].as_str().unwrap().starts_with("02:"), "{said}");
    let found = &said["congestion_control"];
    assert_eq!((&found["reacts"][7], &found["cnp_dscp"]), (&7.into(), &48.into()));
    stage.server.as_ref().unwrap().with(1, |function| {
        function.hca().set_congestion_control(0, 0x09);
    });
    let out = stage.run("info", 1, "").well().out;
    assert!(out.contains("slows down") && out.contains("priorities 0 3"), "{out}");
    assert!(out.contains("node GUID") && out.contains("firmware pages"), "{out}");
    assert!(out.contains("8 bytes: the host has no store of 64 bytes"), "{out}");

    // Against a report of the other one: what is its own, and what was changed.
    let report = stage.folder().join("report");
    std::fs::write(&report, stage.run("info", 0, "--json").well().out).unwrap();
    let against = format!("--against {}", report.display());
    let same = stage.run("info", 0, &against).well();
    assert!(same.out.starts_with("nothing differs from "), "{same:?}");
    let other = stage.run("info", 1, &format!("{against} --json"));
    assert_eq!(other.code, 1, "{other:?}");
    let differences = other.json()["differences"].as_array().unwrap().clone();
    let names: Vec<_> = differences.iter().map(|one| one["property"].as_str().unwrap()).collect();
    for own in ["device", "said.congestion_control.reacts", "said.mac", "said.node_guid"] {
        assert!(names.contains(&own), "{differences:#?}");
    }
    assert!(!names.contains(&"said.path_mtu"), "{differences:#?}");
    stage.run("info", 0, "--against /dev/null").fails(2, &["is no report", "dat info --json"]);

    let out = stage.run("doctor", 0, "").well().out;
    for words in
        ["ok    firmware", "ok    link             Ethernet, up", "ok    MAC", "no problem found"]
    {
        assert!(out.contains(words), "{words}: {out}");
    }
    stage.server.as_ref().unwrap().with(0, |function| function.hca().set_link(false));
    let run = stage.run("doctor", 0, "--link-wait 1");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.out.contains("FAIL  link             Ethernet, down"), "{}", run.out);
    assert!(run.err.contains("waiting for it for up to 1 s"), "{}", run.err);
}

#[test]
fn a_closed_output_is_nobodys_fault() {
    let stage = Stage::new();
    let listener = stage.listen("--count 1");
    let mut ping =
        Process::start(stage.command("ping", 1, "192.168.7.1 --ip 192.168.7.2/24 --count 5"));
    ping.deafen();
    ping.end().well();
    listener.end().well();
    let mut info = stage.command("info", 0, "");
    let mut child = info.stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn verbose_runs_show_the_commands_of_the_device() {
    let stage = Stage::new();
    let run = stage.run("info", 0, "-vvv").well();
    assert!(run.err.contains("QUERY_HCA_CAP"), "{}", &run.err[..run.err.len().min(2000)]);
    assert!(run.out.contains("firmware") && !run.out.contains("QUERY_HCA_CAP"));
}
