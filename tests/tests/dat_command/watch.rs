//! `dat top`, `dat counters` and `dat connections`, on processes that move data.

use std::process::Command;
use std::time::{Duration, Instant};

use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use rustix::process::Signal;
use serde_json::Value;

use super::stage::{LONG, Process, Run, Stage, follows};

/// `dat` with arguments that need no device.
fn dat(stage: &Stage, arguments: &str) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat-command"));
    command.args(arguments.split_whitespace());
    Process::start(with_folder(command, stage)).end()
}

fn with_folder(mut command: Command, stage: &Stage) -> Command {
    command.env("DAT_STATUS_DIR", stage.folder().join("status"));
    command
}

/// Looks until what is found is as wanted.
fn until(stage: &Stage, arguments: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let found = dat(stage, arguments).well().json();
        if wanted(&found) {
            return found;
        }
        assert!(start.elapsed() < LONG, "{found:#}");
    }
}

#[test]
fn top_shows_rates_of_both_sides() {
    let stage = Stage::new();
    let none = dat(&stage, "top --once --interval 0.1").well();
    assert_eq!(none.out, "no adapter is open in a process of this user\n");
    let listener = stage.listen("--count 1");
    let more = "192.168.7.1 --ip 192.168.7.2/24 --kind send --size 2000 --duration 60";
    let perf = Process::start(stage.command("perf", 1, more));
    let find = |found: &Value, address: &str| {
        let adapters = found["adapters"].as_array().unwrap().iter();
        adapters.clone().find(|adapter| adapter["address"] == address).cloned()
    };
    let report = until(&stage, "top --once --json --interval 0.3", |found| {
        find(found, "192.168.7.2").is_some_and(|perf| perf["rates"]["sent"].as_f64() > Some(10.0))
    });
    follows(&report, include_str!("../../../docs/dat-top.schema.json"));
    let (sender, receiver) =
        (find(&report, "192.168.7.2").unwrap(), find(&report, "192.168.7.1").unwrap());
    let rate = |adapter: &Value, name: &str| adapter["rates"][name].as_f64().unwrap();
    // Bytes and operations belong together.
    let bytes = rate(&sender, "sent_bytes") / rate(&sender, "sent");
    assert!((1999.0..=2000.1).contains(&bytes), "{bytes}");
    assert!(rate(&receiver, "received") > 10.0 && rate(&receiver, "read") == 0.0, "{receiver:#}");
    assert_eq!(receiver["listens"], Value::from(vec![4711]));
    let endpoint = &sender["endpoints"][0];
    assert_eq!(
        (&endpoint["state"], &endpoint["peer"]),
        (&"Connected".into(), &"192.168.7.1:4711".into())
    );
    assert!(endpoint["most_requests"].as_u64() >= Some(16), "{endpoint}");

    // A process is chosen by its number or its device.
    let pid = sender["pid"].as_u64().unwrap();
    let counters = dat(&stage, &format!("counters {pid}")).well().out;
    assert!(
        counters.contains("POST_SEND_DATA") && counters.contains("CM_ACTIVE_EST"),
        "{counters}"
    );
    assert_eq!(counters.matches("open for").count(), 1, "{counters}");
    let connections = dat(&stage, &format!("connections {}", stage.device(0))).well().out;
    assert!(connections.contains("192.168.7.2:") && connections.contains("listens on 4711"));
    assert_eq!(connections.matches("open for").count(), 1, "{connections}");
    let none = dat(&stage, "connections 0000:01:02.3 --json").well().json();
    assert_eq!(none["adapters"], Value::from(Vec::<Value>::new()));

    let several = dat(&stage, "trace").fails(2, &["help: name one of them, or a device"]);
    let line = several.err.lines().next().unwrap();
    assert!(line.contains("there are the processes ") && line.contains(&pid.to_string()), "{line}");

    // One that does not run is named, and holds nobody up.
    perf.signal(Signal::STOP);
    let found = until(&stage, "connections --json", |found| found["silent"][0]["pid"] == pid);
    let why = found["silent"][0]["why"].as_str();
    assert_eq!(why, Some("nothing came for 2 s; it may be stopped"), "{found:#}");
    perf.signal(Signal::CONT);
    perf.interrupt();
    let run = perf.end();
    assert!(run.err.contains("interrupted after"), "{run:?}");
    listener.end();
    let none = dat(&stage, "top --once --interval 0.1").well();
    assert_eq!(none.out, "no adapter is open in a process of this user\n");
}

#[test]
fn top_goes_on_until_it_is_ended() {
    let stage = Stage::new();
    let listener = stage.listen("");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat-command"));
    command.args(["top", "--interval", "0.1"]);
    let top = Process::start(with_folder(command, &stage));
    std::thread::sleep(Duration::from_millis(800));
    top.interrupt();
    let out = top.end().well().out;
    assert!(out.matches("listens on 4711").count() >= 2, "{out}");
    assert!(!out.contains('\x1b'), "{out:?}");
    listener.interrupt();
    listener.end().well();
}

#[test]
fn trace_shows_commands_and_connections_as_they_come() {
    let stage = Stage::new();
    dat(&stage, "trace").fails(1, &["no process of this user has such an adapter open"]);
    let nobody = format!("trace {}", u32::MAX);
    dat(&stage, &nobody).fails(1, &["process 4294967295: it has no socket in", "help: dat top"]);
    let listener = stage.listen("");
    let start = |arguments: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dat-command"));
        command.args(arguments.split_whitespace());
        Process::start(with_folder(command, &stage))
    };
    dat(&stage, "trace --pcap /nowhere/cm.pcap")
        .fails(1, &["/nowhere/cm.pcap: No such file", "help: give --pcap a file"]);
    let file = stage.folder().join("cm.pcap");
    let all = start(&format!("trace --json --pcap {}", file.display()));
    let some = start("trace --count 2");
    std::thread::sleep(Duration::from_millis(500));
    stage.client("ping", 1, "--count 3").well();
    let some = some.end().well();
    assert_eq!(some.out.lines().count(), 2, "{some:?}");
    listener.interrupt();
    listener.end().well();
    // It ends with the process.
    let all = all.end().well();
    let lines: Vec<Value> =
        all.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let find = |words: &str| {
        let found = lines.iter().position(|line| line["text"].as_str().unwrap().contains(words));
        found.unwrap_or_else(|| panic!("{words}: {}", all.out))
    };
    assert!(find("REQ from 192.168.7.2") < find("REP to 192.168.7.2"), "{}", all.out);
    assert!(find("REP to 192.168.7.2") < find("RTU from 192.168.7.2"), "{}", all.out);
    assert!(!all.out.contains('\t') && !all.out.contains("\\t"), "{}", all.out);
    let file = std::fs::read(file).unwrap();
    let mut reader = PcapReader::new(file.as_slice()).unwrap();
    assert_eq!(reader.header().datalink, DataLink::RAW);
    let mut attributes = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        // Behind IP, UDP, BTH and DETH.
        assert_eq!((packet.data.len(), &packet.data[22..24]), (308, &[0x12, 0xb7][..]));
        attributes.push(packet.data[48 + 17]);
    }
    // REQ, REP, RTU, DREQ, DREP (IBTA vol. 1, 12.6).
    assert_eq!(attributes, [0x10, 0x13, 0x14, 0x15, 0x16], "{}", all.out);
    let asked = find("192.168.7.2");
    assert!(asked < find("RTR2RTS_QP") && find("RTR2RTS_QP") < find("DESTROY_QP"), "{}", all.out);
    let times: Vec<f64> = lines.iter().map(|line| line["seconds"].as_f64().unwrap()).collect();
    assert!(times.is_sorted() && lines.iter().all(|line| line["severity"] != "error"));
}
