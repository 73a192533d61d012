//! `dat hw-test`: every step on the model, reports that were cut or forged, what a report must not
//! say, and every open fact of silicon named.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use mlx5_model::facts::OpenFact;
use mlx5_model::server::{Handle, Rude, Server, Settings};
use mlx5_model::{Config, Facts};
use serde_json::Value;
use tempfile::TempDir;

use crate::compat::serve;
use crate::golden;
use crate::stage::{Process, Stage};

/// A model, and a folder for reports.
struct Bench {
    _server: Handle,
    folder: TempDir,
}

impl Bench {
    fn new(device: &Config, rude: Vec<Rude>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sockets = [folder.path().join("hca")];
        let settings = Settings { rude, ..Settings::with_device(device, sockets) };
        Self { _server: Server::start(settings).unwrap(), folder }
    }

    fn with(facts: &str) -> Self {
        Self::new(&Config { facts: facts.parse().unwrap(), ..Config::default() }, Vec::new())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, more: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dat-command"));
        command.arg("hw-test").arg(format!("vfio-user:{}", self.at("hca").display()));
        command.arg("--report").arg(self.at("report")).args(more.split_whitespace());
        command
    }

    fn run(&self, more: &str) -> Output {
        let output = self.command(more).output().unwrap();
        assert!(!text(&output.stderr).contains("panicked"), "{}", text(&output.stderr));
        golden::seen(&text(&output.stdout), &text(&output.stderr));
        output
    }

    fn report(&self) -> Vec<Value> {
        lines(&self.at("report"))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of<'v>(lines: &'v [Value], kind: &str) -> Vec<&'v Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether the report has that fact.
fn has_fact(lines: &[Value], fact: &str, setting: &str) -> bool {
    of(lines, "fact").iter().any(|line| line["fact"] == fact && line["setting"] == setting)
}

#[test]
fn every_step_passes_on_the_model() {
    let bench = Bench::with("");
    let output = bench.run("");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    let report = bench.report();
    let ends = of(&report, "end");
    let count = |result: &str| ends.iter().filter(|end| end["result"] == result).count();
    let path = bench.at("report");
    let last = format!("{} passed, 0 failed; send {}", count("pass"), path.display());
    assert_eq!(out.lines().last(), Some(&*last));
    assert_eq!(report[0]["kind"], "head");
    assert_eq!(report[0]["device"], "15b3:1013");
    assert_eq!(report.last().unwrap()["passed"], count("pass"));
    // Each check is announced before it ends, and each step has some.
    let begins = of(&report, "begin");
    assert_eq!(begins.len(), ends.len());
    for (begin, end) in begins.iter().zip(&ends) {
        assert_eq!(begin["check"], end["check"]);
    }
    for step in 0..12 {
        assert!(begins.iter().any(|begin| begin["step"] == step), "step {step}");
    }
    // Only what needs a machine, a peer or a card of another kind.
    let skipped: Vec<_> =
        ends.iter().filter(|end| end["result"] == "skip").map(|end| &end["check"]).collect();
    let expected = [
        "1.kernel-log",
        "5.error.atomic-unaligned",
        "8.peer.rping",
        "8.peer.write-bw.1024",
        "8.peer.write-bw.2048",
        "8.peer.write-bw.4096",
        "9.page-requests",
        "10.virtual-function",
        "11.kernel-log",
    ];
    assert!(skipped.iter().all(|check| expected.iter().any(|e| check == e)), "{skipped:?}");
    // What each error on purpose left.
    for what in ["send", "remote-key", "remote-range", "nobody", "no-receive", "local-length"] {
        let kept = of(&report, "cqe").into_iter().find(|cqe| cqe["what"] == what);
        assert_eq!(kept.unwrap()["bytes"].as_str().unwrap().len(), 128, "{what}");
    }
    assert_eq!(of(&report, "grh")[0]["bytes"].as_str().unwrap().len(), 80);
    assert!(of(&report, "command").len() > 100 && of(&report, "number").len() > 10);
    for fact in OpenFact::ALL.iter().filter(|fact| !unseen(**fact, "")) {
        let usual = fact.settings()[0].name;
        if !["profile", "card", "estimate"].contains(&usual) {
            assert!(has_fact(&report, fact.name(), usual), "{}={usual}", fact.name());
        }
    }
}

#[test]
fn a_report_has_no_name_unless_asked_to() {
    let device = Config::default();
    let mac = device.mac;
    let [a, b, c, d, e, f] = mac;
    let names: Vec<Vec<u8>> = vec![
        mac.to_vec(),
        vec![a, b, c, 3, 0, d, e, f],
        vec![a ^ 2, b, c, 0xff, 0xfe, d, e, f],
        vec![a, b, c, 0xff, 0xfe, d, e, f],
        vec![10, 11, 12, 13],
        vec![0xfd, 0x12, 0x34, 0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x99],
    ];
    let words = ["10.11.12.13", "fd12:3456::99"];
    for (more, ip) in
        [("", "10.11.12.13/24"), ("", "fd12:3456::99/64"), ("--names", "10.11.12.13/24")]
    {
        let bench = Bench::new(&device, Vec::new());
        let output = bench.run(&format!("--steps 0-7 --ip {ip} {more}"));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let bytes = fs::read(bench.at("report")).unwrap();
        let said = text(&bytes).to_lowercase();
        let colons = hex(&mac).as_bytes().chunks(2).map(text).collect::<Vec<_>>().join(":");
        let found = |name: &[u8]| {
            said.contains(&hex(name)) || bytes.windows(name.len()).any(|window| window == name)
        };
        if more == "--names" {
            assert!(found(&mac), "the MAC is missing");
            continue;
        }
        for name in &names {
            assert!(!found(name), "{ip}: {} is in the report", hex(name));
        }
        let socket = bench.at("hca").display().to_string();
        for word in words.iter().copied().chain([&*colons, &*socket]) {
            assert!(!said.contains(word), "{word} is in the report");
        }
        assert!(said.contains("020000000001"), "the stand-in is missing");
    }
}

/// Starts a test that hangs and waits until its report grows no more; kills it.
fn hang(bench: &Bench, more: &str) -> Value {
    let mut command = bench.command(more);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let path = bench.at("report");
    let (start, mut len, mut since) = (Instant::now(), 0, Instant::now());
    loop {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not hang");
        let now = fs::metadata(&path).map_or(0, |meta| meta.len());
        if now != len {
            (len, since) = (now, Instant::now());
        }
        if len > 0 && since.elapsed() > Duration::from_secs(4) {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    assert!(child.try_wait().unwrap().is_none(), "it ended");
    child.kill().unwrap();
    child.wait().unwrap();
    bench.report().pop().unwrap()
}

#[test]
fn the_last_line_names_the_command_that_hangs_and_a_resumed_run_goes_on_behind_it() {
    let bench = Bench::new(&Config::default(), vec![Rude::MuteAfter(7)]);
    let last = hang(&bench, "--steps 1-4");
    assert_eq!((&last["kind"], &last["step"]), (&"sends".into(), &3.into()), "{last}");
    assert!(last["name"].as_str().is_some_and(|name| !name.is_empty()), "{last}");
    let before = bench.report();

    // On a device that works.
    let mended = Bench::with("");
    fs::copy(bench.at("report"), mended.at("report")).unwrap();
    let output = mended.run("--steps 1-4 --resume");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report = mended.report();
    let ends = of(&report, "end");
    let hung = ends.iter().find(|end| end["check"] == "3.bring-up").unwrap();
    assert!(hung["says"].as_str().unwrap().contains("hung") && hung["result"] == "fail");
    let begun = |check: &str| of(&report, "begin").iter().filter(|b| b["check"] == check).count();
    assert_eq!(begun("1.machine"), 1, "it is not repeated");
    assert_eq!((begun("3.bring-up"), begun("3.bring-up.again")), (1, 1));
    assert!(begun("4.commands.polled") == 1 && report.len() > before.len());
    let out = text(&output.stdout);
    assert!(out.contains(", 1 failed; send "), "{out}");
}

#[test]
fn a_report_that_ends_early_says_how_to_go_on() {
    let bench = Bench::with("");
    let mut test = Process::start(bench.command("--steps 1-11"));
    test.wait_for("  3.bring-up ...");
    test.interrupt();
    test.end().fails(1, &["interrupted", "help: --resume continues the report"]);
    assert_eq!(bench.run("--steps 1-4 --resume").status.code(), Some(0));

    // A disk that is full from the second step on: no file grows.
    let bench = Bench::with("");
    let test = bench.command("--steps 1-11");
    let mut command = Command::new("env");
    command.arg("--ignore-signal=XFSZ").arg(test.get_program()).args(test.get_args());
    let mut test = Process::start(command);
    test.wait_for("  2.");
    test.limit_files(0);
    let run = test.end();
    golden::seen(&run.out, &run.err);
    let help = "help: make room on the disk, then continue with --resume";
    run.fails(1, &["report: File too large", help]);
    // What was cut in the middle of a check counts as hung.
    assert!(matches!(bench.run("--steps 1-4 --resume").status.code(), Some(0 | 1)));
}

#[test]
fn a_report_that_was_cut_is_continued() {
    let bench = Bench::with("");
    assert_eq!(bench.run("--steps 0-3").status.code(), Some(0));
    let whole = fs::read(bench.at("report")).unwrap();
    for cut in [whole.len() / 3, whole.len() / 2, whole.len() - 20] {
        let bench = Bench::with("");
        fs::write(bench.at("report"), &whole[..cut]).unwrap();
        let output = bench.run("--steps 0-3 --resume");
        let err = text(&output.stderr);
        // What was cut in the middle of a check counts as hung.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{err}");
        let report = bench.report();
        let mut checks: Vec<_> =
            of(&report, "end").iter().map(|end| end["check"].to_string()).collect();
        assert!(checks.iter().any(|check| check.contains("3.roce-address-1")), "{cut}: {err}");
        checks.sort();
        let before = checks.len();
        checks.dedup();
        assert_eq!(checks.len(), before, "{cut}: no check ended twice");
    }
}

#[test]
fn a_forged_report_is_refused_or_does_no_harm() {
    let head = r#"{"kind":"head","format":1,"device":"15b3:1013","anonymous":true}"#;
    let line = |check: &str, step: &str| {
        format!("{head}\n{{\"kind\":\"begin\",\"step\":{step},\"check\":\"{check}\"}}\n")
    };
    let bench = Bench::with("");
    let path = bench.at("report");
    for (forged, words) in [
        (String::new(), "no report of dat hw-test"),
        ("\u{0}\u{0}\u{0}".into(), "no report of dat hw-test"),
        ("hello\n".into(), "not JSON"),
        ("[1,2]\n".into(), "no report of dat hw-test"),
        (head.replace(":1,", ":2,") + "\n", "format 1"),
        (head.replace("true", "false") + "\n", "--names"),
        (head.replace("1013", "1017") + "\n", "15b3:1017"),
        (format!("{head}\n{{\"kind\":\n"), "not JSON"),
        (format!("{head}\n{}\n", "[".repeat(100_000)), "not JSON"),
        ("x".repeat(3 << 20), "no report of dat hw-test"),
    ] {
        fs::write(&path, &forged).unwrap();
        let output = bench.run("--steps 1 --resume");
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.contains(words), "{words}: {err}");
    }
    for harmless in [
        line("../../x", "3"),
        line("1.machine", "250"),
        line("1.machine", "-1"),
        line("1.machine", "1e99"),
        format!("{head}\n{{\"kind\":\"end\",\"step\":1,\"check\":\"1.x\",\"result\":7}}\n"),
        format!("{head}\n7\nnull\n{{\"kind\":{{}}}}\n"),
    ] {
        fs::write(&path, &harmless).unwrap();
        let output = bench.run("--steps 1-3 --resume");
        assert!(output.status.code().is_some(), "{harmless}");
        bench.report();
    }
    // An existing report is nobody's to write over.
    let output = bench.run("--steps 1");
    assert!(text(&output.stderr).contains("--resume"), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(1));
}

/// Facts that no observer of one function sees, or settings of them, and why.
const UNSEEN: &[(&str, &str, &str)] = &[
    (
        "page-event",
        "",
        "whether a request waits shows in its time only, and nothing says when it was due",
    ),
    ("umr-entry-bits", "", "the driver always sets the bits"),
    ("bf-data", "", "what comes with a doorbell is the same as what the device would fetch"),
    (
        "queue-writes",
        "",
        "what is written back is what was there; where it is not mapped writable the IOMMU says so",
    ),
    ("port-admin", "", "the driver sets the state at bring-up, before anything asks"),
    ("peer-mtu", "", "a loop does not pass the peer or a switch"),
    ("eqe-order", "", "an order of events that is allowed looks like any other"),
    ("command-order", "", "the driver has one command under way"),
    ("key-index", "", "what an index was before, only the driver that had it knows"),
    ("relaxed-writes", "", "the driver asks for no relaxed ordering unless its program does"),
    ("cqe-order", "", "completions that come late look like a slow device"),
    ("cqe-compression", "", "the driver has no completion queue with compression"),
    ("cq-arm-moderation", "", "the driver has no completion queue with moderation"),
    ("cq-solicited-moderation", "", "the driver has no completion queue with moderation"),
    ("cq-period-start", "", "the driver has no completion queue with moderation"),
    ("eswitch-manager", "filters", "frames to other addresses are not for a loop"),
    ("subnet-agent", "", "the steps are those of an Ethernet port"),
    ("ib-virt", "", "the steps are those of an Ethernet port"),
    ("host-endianness", "required", "the driver always writes the register"),
];

fn unseen(fact: OpenFact, setting: &str) -> bool {
    UNSEEN
        .iter()
        .any(|(name, only, _)| *name == fact.name() && (only.is_empty() || *only == setting))
}

/// Runs steps on a model with these facts; the report names each.
#[track_caller]
fn names(facts: &[(OpenFact, &str)], steps: &str, device: Config) {
    let mut chosen = Facts::default();
    for (fact, setting) in facts {
        chosen.set(*fact, setting).unwrap();
    }
    let bench = Bench::new(&Config { facts: chosen, ..device }, Vec::new());
    let output = bench.run(&format!("--steps {steps}"));
    let report = bench.report();
    for (fact, setting) in facts {
        let found = of(&report, "fact").into_iter().filter(|line| line["fact"] == fact.name());
        let found: Vec<_> = found.collect();
        assert!(
            has_fact(&report, fact.name(), setting),
            "{}={setting}: {found:?}\n{}",
            fact.name(),
            text(&output.stderr)
        );
    }
}

/// Settings of a fact besides its first that an observer can tell apart.
fn others(fact: OpenFact) -> Vec<&'static str> {
    let all = fact.settings().iter().skip(1).map(|setting| setting.name);
    all.filter(|setting| !unseen(fact, setting)).collect()
}

/// Facts that show in steps of their own.
const APART: &[(OpenFact, &str)] = &[
    (OpenFact::PortType, "3"),
    // The driver refuses some, and is not there to be asked more.
    (OpenFact::CqeVersion, "3"),
    (OpenFact::RoceVersion, "3"),
    (OpenFact::Flr, "2"),
    (OpenFact::Teardown, "3"),
    (OpenFact::Reclaim, "3"),
    (OpenFact::EqCreated, "4"),
    (OpenFact::GenEqe, "4"),
    (OpenFact::Link, "7"),
    (OpenFact::GrhChecksum, "7"),
    (OpenFact::GrhUpper, "7"),
    (OpenFact::CqeL3Type, "7"),
    (OpenFact::Shortage, "9"),
    (OpenFact::EnableLive, "10"),
];

#[test]
fn every_fact_that_can_be_seen_is_named() {
    // Capabilities and registers show together: the first setting of each, the second, and so on.
    let together: Vec<_> = OpenFact::ALL
        .iter()
        .copied()
        .filter(|fact| !unseen(*fact, "") && APART.iter().all(|(apart, _)| apart != fact))
        .collect();
    let rounds = together.iter().map(|fact| others(*fact).len()).max().unwrap();
    for round in 0..rounds {
        let facts: Vec<_> = together
            .iter()
            .filter_map(|fact| {
                let settings = others(*fact);
                Some((*fact, *settings.get(round.min(settings.len().checked_sub(1)?))?))
            })
            .collect();
        names(&facts, "2-3", Config { init_pages: Some(50), ..Config::default() });
    }
}

#[test]
fn facts_that_show_in_a_step_of_their_own_are_named() {
    for (fact, steps) in APART {
        for setting in others(*fact) {
            names(&[(*fact, setting)], steps, Config { init_pages: Some(50), ..Config::default() });
        }
    }
}

#[test]
fn every_reason_for_a_fact_unseen_is_about_a_fact() {
    for (name, setting, why) in UNSEEN {
        let fact = OpenFact::named(name).unwrap_or_else(|| panic!("{name}"));
        let known = fact.settings().iter().any(|known| known.name == *setting);
        assert!((setting.is_empty() || known) && why.len() > 10, "{name}");
    }
}

#[test]
fn a_report_is_replayed_on_the_program_that_is_found() {
    let bench = Bench::with("");
    let dat = bench.at("dat");
    fs::copy(env!("CARGO_BIN_EXE_dat-command"), &dat).unwrap();
    let file = bench.at("card.jsonl");
    fs::write(&file, "{}\n").unwrap();
    let replay = || {
        let mut command = Command::new(&dat);
        command
            .args(["hw-test", "--steps", "0-3", "--replay"])
            .arg(&file)
            .env("PATH", "/usr/bin:/bin");
        let output = command.output().unwrap();
        golden::seen(&text(&output.stdout), &text(&output.stderr));
        output
    };
    let output = replay();
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("mlx5-model is neither") && err.contains("cargo build"), "{err}");

    let model = bench.at("mlx5-model");
    let script = |lines: &str| {
        fs::write(&model, format!("#!/bin/sh\n{lines}\n")).unwrap();
        fs::set_permissions(&model, fs::Permissions::from_mode(0o755)).unwrap();
    };
    script("echo no such file >&2; exit 1");
    let err = text(&replay().stderr);
    assert!(err.contains("it did not get ready") && err.contains("card.jsonl"), "{err}");

    let socket = bench.at("hca");
    script(&format!(
        "[ \"$1 $2 $3\" = \"--replay {} --socket\" ] || exit 1\nln -s {} \"$4\"\necho ready\nexec sleep 60",
        file.display(),
        socket.display()
    ));
    let output = replay();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = lines(&bench.at("card.replayed"));
    assert_eq!(report[0]["device"], "15b3:1013");
}

#[test]
fn a_peer_is_spoken_to_with_its_own_programs() {
    let stage = Stage::new();
    let server = serve(&stage, "rping", "-V");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report");
    let network = "--ip 192.168.7.2/24 --peer 192.168.7.1 --peer-host 127.0.0.1";
    let more = format!("--steps 8 {network} --report {}", file.display());
    // Nobody has started the others.
    let run = stage.run("hw-test", 1, &more);
    assert!(run.out.contains("1 passed, 3 failed; send "), "{run:?}");
    let report = lines(&file);
    let ends = of(&report, "end");
    let says = |check: &str| {
        let end = ends.iter().find(|end| end["check"] == check).unwrap();
        end["says"].as_str().unwrap().to_owned()
    };
    assert!(says("8.peer.rping").contains("10 pings of 64 bytes"), "{}", says("8.peer.rping"));
    assert!(says("8.peer.write-bw.1024").contains("ib_write_bw"), "{ends:?}");
    assert!(!says("8.peer.rping").contains("192.168.7"), "{}", says("8.peer.rping"));
    server.end().well();
}
