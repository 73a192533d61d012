//! `dat top`, `dat counters` and `dat connections`, on processes that move data.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::stage::{LONG, Process, Run, Stage, follows};

/// `dat` with arguments that need no device.
fn dat(stage: &Stage, arguments: &str) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat-command"));
    command.args(arguments.split_whitespace());
    command.env("DAT_STATUS_DIR", stage.folder().join("status"));
    Process::start(command).end()
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
    command.args(["top", "--interval", "0.1"]).env("DAT_STATUS_DIR", stage.folder().join("status"));
    let top = Process::start(command);
    std::thread::sleep(Duration::from_millis(800));
    top.interrupt();
    let out = top.end().well().out;
    assert!(out.matches("listens on 4711").count() >= 2, "{out}");
    assert!(!out.contains('\x1b'), "{out:?}");
    listener.interrupt();
    listener.end().well();
}
