//! Faults that only a process meets, over vfio-user with real processes: killed, stopped, forked,
//! without interrupts, reset from outside. Few and short: time is real.
//!
//! The program `faults` is the consumer too: `faults --consumer SOCKET` opens the adapter, connects
//! with a peer in the parent, moves data and closes. It prints `@phase NAME` before each phase and
//! waits for a line then; what it sees is behind `@sees`. If its device is lost, it closes the
//! adapter, renews the host, does everything again in the same process, and prints how long it took
//! until it was connected again.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use mlx5_model::server::{Handle, Server, Settings};
use rustix::process::{Pid, Signal, kill_process};
use vfio_host::Options;
use vfio_host::user::VfioUser;

use super::child::{LONG, echo};
use super::what::Phase;
use crate::bringup::light;

/// What happens to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// SIGKILL, this long after the phase has begun.
    Kill(Duration),
    /// It is stopped and goes on, 40 times: each sleep ends by EINTR.
    Interrupt,
    /// It is stopped for a while.
    Stop(Duration),
    /// It forks.
    Fork,
    /// The eventfds of its interrupts are closed at the server's end.
    Eventfds,
    /// The function is reset from outside.
    Reset,
}

/// A fault of a process.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub is: &'static str,
    /// What happens.
    pub strike: Strike,
}

const fn process(name: &'static str, is: &'static str, strike: Strike) -> Process {
    Process { name, is, strike }
}

/// All of them.
pub const PROCESSES: [Process; 8] = [
    process(
        "sigkill",
        "the process is killed at the begin of the phase",
        Strike::Kill(Duration::ZERO),
    ),
    process(
        "sigkill-1ms",
        "the process is killed 1 ms later",
        Strike::Kill(Duration::from_millis(1)),
    ),
    process(
        "sigkill-5ms",
        "the process is killed 5 ms later",
        Strike::Kill(Duration::from_millis(5)),
    ),
    process(
        "eintr",
        "the process is stopped and goes on, 40 times: its sleeps end by EINTR",
        Strike::Interrupt,
    ),
    process(
        "sigstop",
        "the process is stopped for 500 ms",
        Strike::Stop(Duration::from_millis(500)),
    ),
    process("fork", "the process forks, and the child runs another program", Strike::Fork),
    process(
        "eventfds",
        "the eventfds of the interrupts are closed at the server's end",
        Strike::Eventfds,
    ),
    process("reset", "the function is reset from outside", Strike::Reset),
];

/// What a cell found: what the consumer saw, and how its adapter worked again.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What the consumer saw.
    pub sees: &'static str,
    /// The same in the driver's words.
    pub text: String,
    /// How it goes on.
    pub then: &'static str,
    /// How long it took to be connected again, if the device was lost.
    pub took: Option<String>,
}

/// A consumer's process with its output.
struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Running {
    fn start(program: &Path, socket: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("--consumer").arg(socket);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().context("no output")?;
        Ok(Self { child, lines: BufReader::new(out).lines() })
    }

    fn answer(&mut self, line: &str) -> Result<()> {
        let input = self.child.stdin.as_mut().context("no input")?;
        Ok(writeln!(input, "{line}")?)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Lets it run on; what it prints but the phases.
    fn rest(&mut self) -> Result<Vec<String>> {
        let mut rest = Vec::new();
        while let Some(line) = self.lines.next() {
            let line = line?;
            if line.starts_with("@phase") {
                self.answer("go")?;
            } else {
                rest.push(line);
            }
        }
        self.child.wait()?;
        Ok(rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server with two devices in a folder of its own.
struct Bench {
    server: Handle,
    sockets: [PathBuf; 2],
    folder: PathBuf,
}

impl Bench {
    fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("faults-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder)?;
        let sockets = ["a", "b"].map(|name| folder.join(name));
        let server = Server::start(Settings::with_device(&light(), sockets.clone()))?;
        Ok(Self { server, sockets, folder })
    }

    /// Waits until the server has seen that the process is gone; what it holds then.
    fn vacated(&self) -> Result<()> {
        let start = Instant::now();
        while self.server.with(0, |function| function.has_client()).context("no server")? {
            ensure!(start.elapsed() < LONG, "the server does not notice that its client is gone");
            thread::sleep(Duration::from_millis(1));
        }
        let (maps, pages) = self
            .server
            .with(0, |function| (function.maps().len(), function.hca().pages_owned()))
            .context("no server")?;
        ensure!((maps, pages) == (0, 0), "{maps} mappings and {pages} firmware pages are left");
        Ok(())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Stack of the peer's thread: an adapter's storage passes over it where nothing is optimized.
const STACK: usize = 32 << 20;

/// Runs one cell; `program` is the program `faults`.
///
/// # Errors
/// What went wrong.
pub fn cell(program: &Path, process: &Process, phase: Phase) -> Result<Seen> {
    let bench = Bench::new()?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let host = VfioUser::open(&bench.sockets[1], &Options::default())?;
        let stop = &stop;
        let peer = thread::Builder::new().stack_size(STACK);
        let peer = peer.spawn_scoped(scope, move || echo(&host, stop))?;
        let seen = struck(program, &bench, process.strike, phase);
        // Whatever happened: the next opening works, and nothing is left behind.
        let again = seen.and_then(|seen| {
            bench.vacated().context("after the fault")?;
            let rest = Running::start(program, &bench.sockets[0])?.rest()?;
            ensure!(rest == ["@done"], "the next process: {rest:?}");
            bench.vacated().context("at the end")?;
            Ok(seen)
        });
        stop.store(true, Ordering::Relaxed);
        peer.join().map_err(|_| anyhow!("the peer panics"))?.context("the peer")?;
        again
    })
}

fn struck(program: &Path, bench: &Bench, strike: Strike, phase: Phase) -> Result<Seen> {
    let mut running = Running::start(program, &bench.sockets[0])?;
    let mark = format!("@phase {}", phase.name());
    loop {
        let line = running.lines.next().context("it ended before the phase")??;
        if line == mark {
            break;
        }
        ensure!(line.starts_with("@phase"), "{line}");
        running.answer("go")?;
    }
    running.answer(if strike == Strike::Fork { "fork" } else { "go" })?;
    match strike {
        Strike::Kill(after) => {
            thread::sleep(after);
            running.child.kill()?;
            running.child.wait()?;
            let (sees, then) = ("it is gone", "opened by another process");
            return Ok(Seen { sees, text: String::new(), then, took: None });
        }
        Strike::Interrupt => {
            for _ in 0..40 {
                running.signal(Signal::STOP)?;
                running.signal(Signal::CONT)?;
                thread::sleep(Duration::from_micros(500));
            }
        }
        Strike::Stop(span) => {
            running.signal(Signal::STOP)?;
            thread::sleep(span);
            running.signal(Signal::CONT)?;
        }
        Strike::Fork => {}
        Strike::Eventfds => {
            bench.server.with(0, |function| function.forget_interrupts()).context("no server")?;
        }
        Strike::Reset => {
            thread::sleep(Duration::from_millis(2));
            bench.server.with(0, |function| function.hca().flr()).context("no server")?;
        }
    }
    let rest = running.rest()?;
    let of = |mark: &str| rest.iter().find_map(|line| Some(line.strip_prefix(mark)?.to_owned()));
    ensure!(rest.last().is_some_and(|line| line == "@done"), "it does not recover: {rest:?}");
    let took = of("@recovered ");
    let lost = strike == Strike::Reset;
    ensure!(lost || took.is_none(), "it loses its adapter: {rest:?}");
    let (sees, then) = if took.is_some() {
        ("the adapter is lost", "reset, opened again in the process")
    } else {
        ("nothing", "")
    };
    Ok(Seen { sees, text: of("@sees ").unwrap_or_default(), then, took })
}
