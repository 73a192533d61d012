//! The side of the program: a thread that takes callers and sends them what the program gives it.

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::{PATIENCE, make_folder};

/// Number of the next adapter of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// What both threads see.
#[derive(Debug)]
struct Shared {
    /// Somebody waits for a snapshot.
    asked: AtomicBool,
    /// Wakes the program.
    wake: OwnedFd,
    /// Ends the thread.
    end: OwnedFd,
}

/// A socket that is served.
#[derive(Debug)]
pub(crate) struct Server {
    path: PathBuf,
    shared: Arc<Shared>,
    answers: Sender<String>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens in `folder`; `wake` is written to when somebody asks.
    pub(crate) fn new(folder: &Path, wake: OwnedFd) -> io::Result<Self> {
        make_folder(folder)?;
        sweep(folder);
        let (pid, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(format!("{pid}.{number}.sock"));
        // One of an earlier process of this number.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        let end = eventfd(0, EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(Shared { asked: AtomicBool::new(false), wake, end });
        let (answers, received) = channel();
        let thread = thread::Builder::new().name("dat-status".into()).spawn({
            let shared = Arc::clone(&shared);
            move || serve(&listener, &shared, &received)
        })?;
        Ok(Self { path, shared, answers, thread: Some(thread) })
    }

    /// Returns whether somebody waits for a snapshot, once for each.
    pub(crate) fn asked(&self) -> bool {
        // Relaxed: the flag stands for nothing but itself, and the answer goes through a channel.
        self.shared.asked.load(Ordering::Relaxed)
            && self.shared.asked.swap(false, Ordering::Relaxed)
    }

    /// Gives the answer.
    pub(crate) fn answer(&self, snapshot: &super::Snapshot) {
        let text = serde_json::to_string(snapshot);
        // Nobody receives it if the thread has ended.
        let _ = self.answers.send(text.unwrap_or_else(|error| error.to_string()));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.shared.end, &1_u64.to_ne_bytes());
        // A caller who waits holds nobody up.
        let _ = self.answers.send("the adapter has been closed".into());
        let _ = fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the process that a socket belongs to, by its name.
pub(super) fn process_of(socket: &Path) -> Option<u32> {
    let name = socket.file_name()?.to_str()?;
    let (pid, number) = name.strip_suffix(".sock")?.split_once('.')?;
    number.parse::<u32>().ok()?;
    pid.parse().ok()
}

/// Removes sockets that nobody listens on, of processes that were killed.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if process_of(&path).is_some() && UnixStream::connect(&path).is_err_and(refused) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Takes one caller after the other until the end.
fn serve(listener: &UnixListener, shared: &Shared, answers: &Receiver<String>) {
    loop {
        let mut fds =
            [PollFd::new(listener, PollFlags::IN), PollFd::new(&shared.end, PollFlags::IN)];
        // Signals are the program's; one that comes here starts the wait again.
        let _ = poll(&mut fds, None);
        let [_, end] = fds;
        if !end.revents().is_empty() {
            return;
        }
        if let Ok((stream, _)) = listener.accept() {
            // A caller that does not take it goes without.
            let _ = reply(stream, shared, answers);
        }
    }
}

fn reply(mut stream: UnixStream, shared: &Shared, answers: &Receiver<String>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // One that came too late for an earlier caller.
    while answers.try_recv().is_ok() {}
    shared.asked.store(true, Ordering::Relaxed);
    let _ = rustix::io::write(&shared.wake, &1_u64.to_ne_bytes());
    let text = answers.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        format!("the program has not driven its adapter for {} s", PATIENCE.as_secs())
    });
    let (mut rest, start) = (text.as_bytes(), Instant::now());
    while !rest.is_empty() && start.elapsed() < PATIENCE {
        let written = stream.write(rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    Ok(())
}
