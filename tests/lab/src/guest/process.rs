//! Child processes of a scenario: what they print is kept, what they may print is bounded, and they
//! never outlive it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Bytes kept of each output; a QEMU that has lost its device complains for ever.
const KEPT: usize = 256 << 10;
/// How often a process is asked whether it still runs.
const POLL: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Said {
    lines: Vec<String>,
    bytes: usize,
}

/// What a process has printed so far.
#[derive(Default)]
struct Output {
    said: Mutex<Said>,
    more: Condvar,
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: String) {
        let mut said = self.lock();
        said.bytes += line.len();
        if said.bytes <= KEPT {
            said.lines.push(line);
            self.more.notify_all();
        }
    }
}

/// A process under control.
pub(crate) struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    out: Arc<Output>,
    err: Arc<Output>,
    readers: Vec<JoinHandle<()>>,
    /// Lines of the output that have been looked at.
    seen: usize,
}

fn reader(
    from: impl Read + Send + 'static,
    to: Arc<Output>,
    echo: Option<String>,
) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        // A line without an end is bounded like everything else.
        while let Ok(1..) = (&mut from).take(4096).read_until(b'\n', &mut line) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if let Some(name) = &echo {
                eprintln!("  {name}| {text}");
            }
            to.push(text);
            line.clear();
        }
    })
}

impl Process {
    /// Starts a command. With `echo` its output is shown as it comes.
    pub(crate) fn start(name: &str, mut command: Command, echo: bool) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name} ({})", crate::run::shown(&command)))?;
        let (out, err) = (Arc::<Output>::default(), Arc::<Output>::default());
        let echo = echo.then(|| name.to_owned());
        let mut readers = Vec::new();
        if let Some(from) = child.stdout.take() {
            readers.push(reader(from, Arc::clone(&out), echo.clone()));
        }
        if let Some(from) = child.stderr.take() {
            readers.push(reader(from, Arc::clone(&err), echo));
        }
        Ok(Self {
            name: name.to_owned(),
            stdin: child.stdin.take(),
            child,
            out,
            err,
            readers,
            seen: 0,
        })
    }

    /// What the process is called here.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The next line of the output that has not been looked at, waiting a moment for it.
    pub(crate) fn next_line(&mut self) -> Option<String> {
        let said = self.out.lock();
        let mut said = if said.lines.len() > self.seen {
            said
        } else {
            let waited = self.out.more.wait_timeout(said, POLL);
            waited.unwrap_or_else(PoisonError::into_inner).0
        };
        let line = said.lines.get_mut(self.seen)?.clone();
        self.seen += 1;
        Some(line)
    }

    /// Waits for the end.
    pub(crate) fn wait(&mut self, until: Instant) -> Option<ExitStatus> {
        loop {
            match self.ended() {
                None if Instant::now() < until => thread::sleep(POLL),
                end => return end,
            }
        }
    }

    /// Sends a line to its standard input. A process that is gone is noticed elsewhere.
    pub(crate) fn say(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
        }
    }

    /// Closes its standard input.
    pub(crate) fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Ends it, if it has not ended by itself, and reads what it still had to say.
    pub(crate) fn kill(&mut self) {
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }

    /// Whether a line of either output contains something.
    pub(crate) fn said(&self, what: &str) -> bool {
        let outputs = [&self.out, &self.err];
        let has =
            |output: &&Arc<Output>| output.lock().lines.iter().any(|line| line.contains(what));
        outputs.iter().any(has)
    }

    /// Everything printed to the output so far.
    pub(crate) fn output(&self) -> Vec<String> {
        self.out.lock().lines.clone()
    }

    /// Everything printed to the standard error so far.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.err.lock().lines.clone()
    }

    /// Forgets what was printed so far, so that there is room for more.
    pub(crate) fn forget(&mut self) {
        let mut said = self.out.lock();
        *said = Said::default();
        self.seen = 0;
    }

    /// The last lines of both outputs, for a message.
    pub(crate) fn tail(&self, lines: usize) -> String {
        let mut text = String::new();
        for (what, output) in [("", &self.out), ("(stderr) ", &self.err)] {
            let said = output.lock();
            let from = said.lines.len().saturating_sub(lines);
            for line in said.lines.iter().skip(from) {
                text.push_str(&format!("\n    {}| {what}{line}", self.name));
            }
        }
        text
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
