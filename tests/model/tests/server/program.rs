//! The program `mlx5-model`: its options, its control socket, its ends.

use crate::rig::{Dir, Driver, Raw, cmd, memfd};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, Command, Stdio};

/// A server process, killed with the test.
struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Program {
    fn start(dir: &Dir, args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mlx5-model"))
            .arg("--socket")
            .arg(dir.at("a"))
            .args(args)
            .arg("--until-eof")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let stdin = child.stdin.take();
        Self { child, stdin }
    }

    /// Waits for its end; what it said on stderr.
    fn end(mut self) -> String {
        self.stdin = None;
        let mut said = String::new();
        let stderr = self.child.stderr.as_mut().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }

    fn descriptors(&self) -> usize {
        let fds = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(fds).unwrap().count()
    }

    fn mappings(&self) -> usize {
        let maps = format!("/proc/{}/maps", self.child.id());
        std::fs::read_to_string(maps).unwrap().lines().count()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks the control socket; the answer without its last line, and that line.
fn ask(control: &mut BufReader<UnixStream>, line: &str) -> (Vec<String>, String) {
    writeln!(control.get_mut(), "{line}").unwrap();
    let mut data = Vec::new();
    loop {
        let mut line = String::new();
        assert_ne!(control.read_line(&mut line).unwrap(), 0, "hung up");
        let line = line.trim_end().to_owned();
        if line.starts_with("ok") || line.starts_with("error:") {
            return (data, line);
        }
        data.push(line);
    }
}

#[test]
fn the_end_of_its_input_is_its_end() {
    let dir = Dir::new();
    let program = Program::start(&dir, &[]);
    Driver::new(&dir.at("a")).ok(&cmd(0x104, 0, 16), 16);
    let said = program.end();
    assert!(said.contains("1 clients"), "{said}");
    assert!(!dir.at("a").exists());
}

#[test]
fn facts_and_cards_are_listed_and_set() {
    let run = |args: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_mlx5-model")).args(args).output().unwrap();
        let said = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8(said).unwrap())
    };
    let (listed, said) = run(&["--facts", "list"]);
    assert!(listed && said.contains("link=at-once|after-2s"), "{said}");
    let (listed, said) = run(&["--cards", "list"]);
    assert!(listed && said.contains("## connectx-7"), "{said}");
    for wrong in [["--fact", "link=never"], ["--fact", "bogus=1"], ["--card", "9"]] {
        let (served, said) = run(&[&["--socket", "/nowhere/a"][..], &wrong[..]].concat());
        assert!(!served && said.contains(wrong[1].split('=').next().unwrap()), "{said}");
    }
    let dir = Dir::new();
    let program = Program::start(&dir, &["--card", "7", "--fact", "link=after-2s"]);
    let mut driver = Driver::new(&dir.at("a"));
    driver.ok(&cmd(0x104, 0, 16), 16);
    drop(driver);
    program.end();
}

#[test]
fn a_signal_ends_it_with_a_report() {
    let dir = Dir::new();
    let report = dir.at("report");
    let mut program = Program::start(&dir, &["--vf", "--report", report.to_str().unwrap()]);
    let mut raw = Raw::greet(&dir.at("a"));
    assert_eq!(raw.read(7, 0, 4).unwrap(), [0xb3, 0x15, 0x14, 0x10]);
    let pid = rustix::process::Pid::from_child(&program.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(program.child.wait().unwrap().success());
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    assert_eq!(json["functions"][0]["clients"], 1);
    assert_eq!(json["functions"][0]["messages"], 2);
}

#[test]
fn control_by_lines() {
    let dir = Dir::new();
    let path = dir.at("c");
    let program = Program::start(&dir, &["--control", path.to_str().unwrap()]);
    let mut control = BufReader::new(UnixStream::connect(&path).unwrap());
    let mut ask = |line: &str| ask(&mut control, line);
    assert_eq!(ask("maps 0"), (vec![], "ok 0".into()));
    let error = "error: DMA while bus mastering is off";
    assert_eq!(ask("read 0 0x1000 16").1, error);
    let mut raw = Raw::greet(&dir.at("a"));
    raw.set_command(6);
    let ram = memfd(0x4000);
    raw.map(1, 0, 0x1000, 0x1000, Some(&ram)).unwrap();
    raw.map(3, 0x1000, 0x8000, 0x3000, Some(&ram)).unwrap();
    let maps = vec!["0x1000 0x1000 r".to_owned(), "0x8000 0x3000 rw".to_owned()];
    assert_eq!(ask("maps 0"), (maps, "ok 2".into()));
    assert_eq!(ask("write 0 0xaffe 2 0x11").1, "ok");
    assert_eq!(ask("read 0 0xaffc 4").1, "ok 00001111");
    assert_eq!(ask("write 0 0x1000 1").1, "error: DMA to 0x1000 refused by the IOMMU");
    assert_eq!(ask("read 0 45056 1").1, "error: DMA to 0xb000 refused by the IOMMU");
    let (stats, ok) = ask("stats 0");
    let stats: serde_json::Value = serde_json::from_str(&stats[0]).unwrap();
    assert_eq!((ok.as_str(), &stats["dma_refused"]), ("ok", &2.into()));
    assert_eq!(ask("impair roce drop=1 pkey=1000").1, "ok");
    assert_eq!(ask("impair pkey=1001").1, "error: N: 0 to 1000");
    assert_eq!(ask("impair qkey=1").1, "error: qkey: no such kind");
    assert_eq!(ask("impair").1, "ok");
    assert_eq!(&stats["frames_wrong_pkey"], &0);
    assert_eq!(ask("die 0 0x10").1, "ok");
    assert_eq!(raw.be32(0x1010) >> 24, 0x10);
    assert_eq!(ask("flr 0").1, "ok");
    raw.set_command(2);
    assert_eq!(raw.be32(0x1010) >> 24, 0);
    assert_eq!(ask("gone 0").1, "ok");
    assert_eq!(raw.be32(0), u32::MAX);
    assert_eq!(ask("back 0").1, "ok");
    assert_ne!(raw.be32(0), u32::MAX);
    raw.store(0, 0x230, &[0; 4]);
    raw.be32(0);
    let (complaints, ok) = ask("complaints 0");
    assert_eq!(ok, "ok 1");
    assert!(complaints[0].contains("read-only register"), "{complaints:?}");
    for (line, word) in [
        ("maps 1", "there are 1"),
        ("maps", "HCA is missing"),
        ("maps x", "no number"),
        ("frobnicate 0", "no such command"),
        ("link 0 sideways", "up|down"),
        ("read 0 0 99999999999", "at most"),
        ("", "empty"),
    ] {
        let said = ask(line).1;
        assert!(said.starts_with("error: ") && said.contains(word), "{line}: {said}");
    }
    for line in ["link 0 down", "link 0 up", "error 0", "request 0"] {
        assert_eq!(ask(line).1, "ok");
    }
    assert_eq!(ask("quit").1, "ok");
    program.end();
}

#[test]
fn a_thousand_mappings_cost_neither_descriptors_nor_maps() {
    let dir = Dir::new();
    let path = dir.at("c");
    let program = Program::start(&dir, &["--control", path.to_str().unwrap()]);
    let mut raw = Raw::greet(&dir.at("a"));
    let ram = memfd(4 << 20);
    raw.map(3, 0, 0, 4096, Some(&ram)).unwrap();
    let before = (program.descriptors(), program.mappings());
    for page in 1..1024 {
        raw.map(3, page * 4096, page * 8192, 4096, Some(&ram)).unwrap();
    }
    assert_eq!((program.descriptors(), program.mappings()), before);
    // More than a socket takes at once.
    let mut control = BufReader::new(UnixStream::connect(&path).unwrap());
    assert_eq!(ask(&mut control, "maps 0").0.len(), 1024);
    drop(control);
    // Descriptors that belong to nothing are closed too.
    let fds = [std::os::fd::AsFd::as_fd(&ram)];
    for unwanted in [4, 9, 13, 99] {
        let _ = raw.call(unwanted, &[], &fds);
    }
    raw.unmap(4, 0, 0).unwrap();
    for _ in 0..100 {
        let fresh = memfd(8192);
        raw.map(3, 4096, 0x1000, 4096, Some(&fresh)).unwrap();
        raw.unmap(0, 0x1000, 4096).unwrap();
    }
    raw.read(7, 0, 4).unwrap();
    assert!(program.descriptors() < before.0, "{before:?}");
    assert!(program.mappings() < before.1, "{before:?}");
    program.end();
}

#[test]
fn mistakes_are_said_in_words() {
    for (args, word) in [
        (&["--socket", "/nonexistent/a"][..], "/nonexistent/a"),
        (&["--socket", "/tmp/x", "--wire", "string"], "dgram:LOCAL,REMOTE"),
        (&["--socket", "/tmp/x", "--rude", "very"], "KIND=N"),
        (&[], "--socket"),
    ] {
        let out = Command::new(env!("CARGO_BIN_EXE_mlx5-model")).args(args).output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(!out.status.success());
        assert!(said.contains(word), "{said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

/// Runs it on a file without a socket: success, stdout, stderr.
fn replay(file: &std::path::Path) -> (bool, String, String) {
    let program = env!("CARGO_BIN_EXE_mlx5-model");
    let ran = Command::new(program).arg("--replay").arg(file).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ran.status.success(), text(ran.stdout), text(ran.stderr))
}

#[test]
fn a_recording_is_served_and_says_what_it_lacks() {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../data");
    let report = data.join("report-connectx6dx.jsonl");
    let (good, lacks, _) = replay(&report);
    assert!(good && lacks.contains("lacks PTYS: that of connectx-6dx"), "{lacks}");
    let (good, lacks, _) = replay(&data.join("connectx4-linux.txt"));
    assert!(good && lacks.starts_with("recorded bring-up"), "{lacks}");
    let dir = Dir::new();
    let program = Program::start(&dir, &["--replay", report.to_str().unwrap()]);
    // Region 7 is configuration space.
    let id = Raw::greet(&dir.at("a")).read(7, 0, 4).unwrap();
    assert_eq!(id, [0xb3, 0x15, 0x1d, 0x10]);
    assert!(program.end().contains("lacks PTYS"));
    let bad = dir.at("bad");
    let text = std::fs::read_to_string(&report).unwrap().replace("\"us\":170}", "\"us\":-1}");
    std::fs::write(&bad, text).unwrap();
    let (good, _, said) = replay(&bad);
    assert!(
        !good && said.contains("bad: line ") && said.contains(": us: -1 is no number"),
        "{said}"
    );
    assert!(!replay(&dir.at("none")).0);
}

/// The shell makes of the line the arguments that QEMU takes, whatever the path of the socket.
#[test]
fn the_command_line_for_qemu_goes_through_a_shell() {
    let program = env!("CARGO_BIN_EXE_mlx5-model");
    let paths = ["/tmp/a", "/tmp/it's $HOME"];
    let output = Command::new(program)
        .args(["--qemu", "--socket", paths[0], "--socket", paths[1]])
        .output()
        .unwrap();
    assert!(output.status.success());
    let line = String::from_utf8(output.stdout).unwrap();
    let rest = line.trim_end().strip_prefix("qemu-system-x86_64 ").unwrap();
    let script = format!("printf '%s\\n' {rest}");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let words = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = words.lines().collect();
    for (option, value) in [
        ("-machine", "q35,memory-backend=ram"),
        ("-object", "memory-backend-memfd,id=ram,size=2G,share=on"),
    ] {
        assert!(words.windows(2).any(|pair| pair == [option, value]), "{words:?}");
    }
    let devices =
        words.iter().filter_map(|word| serde_json::from_str::<serde_json::Value>(word).ok());
    let sockets: Vec<String> = devices
        .filter(|device| device["driver"] == "vfio-user-pci")
        .map(|device| device["socket"]["path"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(sockets, paths);
}
