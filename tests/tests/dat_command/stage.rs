//! A model server, and `dat` processes on its HCAs.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use mlx5_model::Config;
use mlx5_model::server::{Handle, Server, Settings};
use mlx5_model::wire::frame::Packet;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use tempfile::TempDir;

use crate::golden;

/// Longer than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// HCAs on sockets.
pub(crate) struct Stage {
    pub(crate) server: Option<Handle>,
    pub(crate) sockets: Vec<PathBuf>,
    folder: TempDir,
}

impl Stage {
    /// Two HCAs.
    pub(crate) fn new() -> Self {
        Self::of(2)
    }

    pub(crate) fn of(count: usize) -> Self {
        Self::with(&Config::default(), count)
    }

    /// HCAs like this one.
    pub(crate) fn with(device: &Config, count: usize) -> Self {
        Self::start(device, count, false)
    }

    /// Two HCAs and a capture of what passes between them.
    pub(crate) fn captured() -> Self {
        Self::start(&Config::default(), 2, true)
    }

    fn start(device: &Config, count: usize, capture: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sockets: Vec<PathBuf> = (0..count).map(|n| folder.path().join(n.to_string())).collect();
        let pcap = capture.then(|| folder.path().join("pcap"));
        let settings = Settings { pcap, ..Settings::with_device(device, sockets.clone()) };
        Self { server: Some(Server::start(settings).unwrap()), sockets, folder }
    }

    /// Ends the server and returns the RoCE packets of the capture.
    pub(crate) fn packets(mut self) -> Vec<Packet> {
        drop(self.server.take());
        let file = std::fs::read(self.folder.path().join("pcap")).unwrap();
        let mut reader = pcap_file::pcap::PcapReader::new(file.as_slice()).unwrap();
        let mut packets = Vec::new();
        while let Some(frame) = reader.next_packet() {
            packets.extend(Packet::parse(&frame.unwrap().data).ok());
        }
        packets
    }

    /// The folder of its files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// DEVICE of an HCA.
    pub(crate) fn device(&self, nth: usize) -> String {
        format!("vfio-user:{}", self.sockets[nth].display())
    }

    /// `dat VERB DEVICE`, where VERB may be several words, with more arguments in one string.
    pub(crate) fn command(&self, verb: &str, nth: usize, more: &str) -> Command {
        self.command_of(env!("CARGO_BIN_EXE_dat-command"), verb, nth, more)
    }

    /// The same of another program.
    pub(crate) fn command_of(&self, program: &str, verb: &str, nth: usize, more: &str) -> Command {
        let mut command = Command::new(program);
        command.args(verb.split_whitespace()).arg(self.device(nth));
        command.args(more.split_whitespace()).env("DAT_STATUS_DIR", self.folder().join("status"));
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, verb: &str, nth: usize, more: &str) -> Run {
        Process::start(self.command(verb, nth, more)).end()
    }

    /// Runs a client on an HCA whose address ends in its number plus 1, as listeners' addresses do.
    pub(crate) fn client(&self, verb: &str, nth: usize, more: &str) -> Run {
        self.run(verb, nth, &format!("192.168.7.1 --ip 192.168.7.{}/24 {more}", nth + 1))
    }

    /// A listener at 192.168.7.1 on HCA 0, at work.
    pub(crate) fn listen(&self, more: &str) -> Process {
        self.listen_as("192.168.7.1/24", more)
    }

    pub(crate) fn listen_as(&self, ip: &str, more: &str) -> Process {
        let mut process = Process::start(self.command("listen", 0, &format!("--ip {ip} {more}")));
        process.wait_for("listens on");
        process
    }

    /// Messages of all clients so far, doorbells of send queues, completions.
    pub(crate) fn work(&self) -> [u64; 3] {
        let server = self.server.as_ref().unwrap();
        let of = |nth| {
            let work = server.with(nth, |function| {
                let (messages, stats) = (function.report().messages, function.stats());
                [messages, stats.sq_doorbells, stats.cqes]
            });
            work.unwrap()
        };
        let [a, b] = [of(0), of(1)];
        core::array::from_fn(|n| a[n] + b[n])
    }

    /// Returns the complaints of the models.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let server = self.server.as_ref().unwrap();
        (0..self.sockets.len())
            .flat_map(|nth| server.with(nth, |function| function.complaints().to_vec()).unwrap())
            .collect()
    }
}

/// A process, ended with the value.
pub(crate) struct Process {
    child: Child,
    said: String,
    err: Option<BufReader<std::process::ChildStderr>>,
    /// It is `dat`, and no other program.
    is_dat: bool,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a process ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let err = child.stderr.take().map(BufReader::new);
        let is_dat = command.get_program() == env!("CARGO_BIN_EXE_dat-command");
        Self { child, said: String::new(), err, is_dat }
    }

    /// Waits until a line of standard error has these words.
    pub(crate) fn wait_for(&mut self, words: &str) {
        let err = self.err.as_mut().unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(err.read_line(&mut line).unwrap(), 0, "it ended: {}", self.said);
            self.said.push_str(&line);
            if line.contains(words) {
                return;
            }
        }
    }

    pub(crate) fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// From now on no file that it writes grows beyond that.
    pub(crate) fn limit_files(&self, len: u64) {
        let limit = Rlimit { current: Some(len), maximum: None };
        prlimit(Some(Pid::from_child(&self.child)), Resource::Fsize, limit).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Closes the reading end of its standard output.
    pub(crate) fn deafen(&mut self) {
        drop(self.child.stdout.take());
    }

    /// Waits for its end, which must not take too long.
    pub(crate) fn end(mut self) -> Run {
        let start = Instant::now();
        let mut out = self.child.stdout.take();
        let out = thread::spawn(move || {
            let mut text = String::new();
            if let Some(out) = &mut out {
                out.read_to_string(&mut text).unwrap();
            }
            text
        });
        let mut err = self.err.take().unwrap();
        let err = thread::spawn(move || {
            let mut text = String::new();
            err.read_to_string(&mut text).unwrap();
            text
        });
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < LONG, "it does not end; so far: {}", self.said);
            thread::sleep(Duration::from_millis(2));
        };
        let run = Run {
            code: status.code().unwrap_or(-1),
            out: out.join().unwrap(),
            err: std::mem::take(&mut self.said) + &err.join().unwrap(),
            took: start.elapsed(),
        };
        assert!(!run.err.contains("panicked"), "{}", run.err);
        if self.is_dat {
            golden::seen(&run.out, &run.err);
        }
        run
    }
}

impl Run {
    /// Insists on success.
    #[track_caller]
    pub(crate) fn well(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Insists on a failure of that code, with these words on standard error.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        for words in words {
            assert!(self.err.contains(words), "{words:?} is missing: {self:?}");
        }
        self
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// Insists that a value is as a schema says.
#[track_caller]
pub(crate) fn follows(value: &serde_json::Value, schema: &str) {
    let schema = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let errors: Vec<String> = schema
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

/// For processes that are run to their end elsewhere.
pub(crate) fn code(output: &Output) -> Option<i32> {
    output.status.code()
}
