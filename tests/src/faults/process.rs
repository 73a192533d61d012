//! Faults that only a process meets, over vfio-user with real processes: killed, stopped, forked,
//! without interrupts, reset from outside. Few and short: time is real.
//!
//! The program `faults` is the consumer too: `faults --consumer SOCKET` opens the adapter, connects
//! with a peer in the parent, moves data and closes. It prints `@phase NAME` before each phase and
//! waits for a line then; what it sees is behind `@sees`. If its device is lost, it closes the
//! adapter, renews the host and does everything again in the same process. Behind `@connected` is
//! how long it took until it was connected, from what it saw, or from its own start.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use mlx5_model::server::{Function, Handle, Server, Settings};
use mlx5_model::{CommandHook, Verdict};
use rustix::process::{Pid, Signal, kill_process};
use vfio_host::Options;
use vfio_host::user::VfioUser;

use super::child::{FORK, LONG, TRIPS, echo};
use super::what::{Loss, Phase};
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
    /// The function is reset from outside, while it carries out a command, or in traffic.
    Reset,
}

impl Strike {
    /// What it may take.
    #[must_use]
    pub const fn loses(self) -> &'static str {
        match self {
            Self::Kill(_) => "the process, with its adapter",
            Self::Reset => Loss::Adapter.name(),
            Self::Interrupt | Self::Stop(_) | Self::Fork | Self::Eventfds => Loss::Nothing.name(),
        }
    }
}

/// The most that a consumer waits for a connection: from its start, or from the loss of its adapter
/// until it has closed it, reset the function, opened it anew and connected.
pub const WITHIN: Duration = Duration::from_secs(5);

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

/// What a cell found.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What the consumer saw.
    pub sees: String,
    /// How it goes on.
    pub then: &'static str,
    /// How long it took then until there was a connection.
    pub took: Duration,
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

    /// Lets it run to its end: what it saw, if anything, and how long it took to connect.
    fn rest(&mut self) -> Result<(Option<String>, Duration)> {
        let (mut sees, mut took, mut last) = (None, None, String::new());
        while let Some(line) = self.lines.next() {
            last = line?;
            match last.split_once(' ') {
                Some(("@phase", _)) => self.answer(&TRIPS.to_string())?,
                Some(("@sees", text)) => sees = Some(text.to_owned()),
                Some(("@connected", text)) => took = Some(Duration::from_micros(text.parse()?)),
                _ => {}
            }
        }
        let status = self.child.wait()?;
        ensure!(last == "@done", "sees {sees:?}, does not recover, and ends with {status}: {last}");
        let took = took.context("never connected")?;
        ensure!(took < WITHIN, "is not connected before {took:?}");
        Ok((sees, took))
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
        let struck = struck(program, &bench, process.strike, phase);
        // Whatever happened: the next opening works, and nothing is left behind.
        let again = struck.and_then(|seen| {
            bench.vacated().context("after the fault")?;
            let next = Running::start(program, &bench.sockets[0])?.rest();
            let (sees, took) = next.context("the next process")?;
            ensure!(sees.is_none(), "the next process sees {sees:?}");
            bench.vacated().context("at the end")?;
            let sees = "the process is gone".to_owned();
            Ok(seen.unwrap_or(Seen { sees, then: "opened by another process", took }))
        });
        stop.store(true, Ordering::Relaxed);
        peer.join().map_err(|_| anyhow!("the peer panics"))?.context("the peer")?;
        again
    })
}

/// A command of the phase that is never answered, and whether it has come.
struct Mute(u64, Arc<AtomicBool>);

impl CommandHook for Mute {
    fn command(&mut self, nth: u64, _: u16, _: &[u8]) -> Verdict {
        if nth != self.0 {
            return Verdict::Run;
        }
        self.1.store(true, Ordering::Relaxed);
        Verdict::Mute
    }
}

/// Strikes; what the process saw, unless it is gone.
fn struck(program: &Path, bench: &Bench, strike: Strike, phase: Phase) -> Result<Option<Seen>> {
    let mut running = Running::start(program, &bench.sockets[0])?;
    let mark = format!("@phase {}", phase.name());
    loop {
        let line = running.lines.next().context("it ended before the phase")??;
        if line == mark {
            break;
        }
        ensure!(line.starts_with("@phase"), "{line}");
        running.answer(&TRIPS.to_string())?;
    }
    let commands = Arc::new(AtomicBool::new(phase == Phase::Traffic));
    if strike == Strike::Reset && phase != Phase::Traffic {
        let (nth, commands) = (if phase == Phase::BringUp { 9 } else { 0 }, Arc::clone(&commands));
        let mute = move |function: &mut Function| {
            let hca = function.hca();
            hca.set_command_hook(Some(Box::new(Mute(hca.commands() + nth, commands))));
        };
        bench.server.with(0, mute).context("no server")?;
    }
    running.answer(&match strike {
        Strike::Fork => FORK.to_owned(),
        // Until it is struck.
        Strike::Reset => u32::MAX.to_string(),
        // Each takes up to two seconds then.
        Strike::Eventfds => "3".to_owned(),
        Strike::Kill(_) | Strike::Interrupt | Strike::Stop(_) => TRIPS.to_string(),
    })?;
    match strike {
        Strike::Kill(after) => {
            thread::sleep(after);
            running.child.kill()?;
            running.child.wait()?;
            return Ok(None);
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
            let start = Instant::now();
            while !commands.load(Ordering::Relaxed) {
                ensure!(start.elapsed() < LONG, "no command comes");
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(2));
            let reset = |function: &mut Function| {
                function.hca().set_command_hook(None);
                function.hca().flr();
            };
            bench.server.with(0, reset).context("no server")?;
        }
    }
    let (sees, took) = running.rest()?;
    let lost = strike == Strike::Reset;
    ensure!(lost == sees.is_some(), "it sees {sees:?}");
    let then = if lost { "reset, opened again in the process" } else { "the same" };
    // The progress engine looks at the device each second, whatever announces itself.
    let waits = strike == Strike::Eventfds;
    let nothing = if waits { "waits that last up to 1 s" } else { "nothing" };
    Ok(Some(Seen { sees: sees.unwrap_or_else(|| nothing.to_owned()), then, took }))
}
