//! One thread that owns everything: it steps the devices, waits for due work, and serves clients.
//!
//! No call here blocks but the one wait. All functions share the thread, so a frame from one is in
//! the other before the next message is read, and nothing needs a lock for company.

use super::Settings;
use super::control::Control;
use super::function::Function;
use super::report::Report;
use super::sockets;
use super::wires::Fabric;
use crate::host::Nanos;
use crate::watch::Tracer;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

/// Something to be done between two steps.
pub(super) type Job = Box<dyn FnOnce(&mut EventLoop) + Send>;

/// Rounds of stepping in one turn, while frames keep going to and fro.
const MOST_ROUNDS: usize = 16;

/// Source of a wake-up.
#[derive(Clone, Copy, Debug)]
enum Ready {
    Jobs,
    Frames,
    Listener(usize),
    Client(usize),
    Room(usize),
    Control,
    Line(usize),
}

fn reads(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

fn writes(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::OUT)
}

/// A server's whole state.
#[derive(Debug)]
pub(super) struct EventLoop {
    functions: Vec<Function>,
    fabric: Fabric,
    control: Option<Control>,
    jobs: Receiver<Job>,
    wake: Arc<OwnedFd>,
    began: Instant,
    running: bool,
}

impl EventLoop {
    /// Binds every socket.
    pub(super) fn new(
        settings: Settings,
        jobs: Receiver<Job>,
        wake: Arc<OwnedFd>,
    ) -> io::Result<Self> {
        let (fabric, plugs) = Fabric::new(&settings)?;
        let trace = settings.trace.as_ref().map(File::create).transpose()?;
        let functions: Vec<Function> = settings
            .functions
            .into_iter()
            .zip(plugs)
            .enumerate()
            .map(|(nth, ((socket, device), plug))| {
                let mut function = Function::new(socket, device, plug, &settings.rude)?;
                let of = &settings.fields_of;
                if let Some(notes) = &settings.fields {
                    if of.is_empty() || of.contains(&nth) {
                        function.hca().observe(Box::new(notes.clone()));
                    }
                }
                if let Some(file) = &trace {
                    // All functions write to one file, a command at a time.
                    function.hca().observe(Box::new(Tracer::new(file.try_clone()?)));
                }
                Ok(function)
            })
            .collect::<io::Result<_>>()?;
        let control = settings.control.as_deref().map(Control::new).transpose()?;
        Ok(Self { functions, fabric, control, jobs, wake, began: Instant::now(), running: true })
    }

    /// A function by number.
    pub(super) fn function(&mut self, nth: usize) -> Option<&mut Function> {
        self.functions.get_mut(nth)
    }

    /// Ends after this turn.
    pub(super) fn quit(&mut self) {
        self.running = false;
    }

    /// Serves until a client or a signal ends it.
    pub(super) fn run(mut self) -> Report {
        while self.running {
            let due = self.step();
            if self.functions.iter().any(Function::quits) {
                break;
            }
            // A wait that fails has nothing to wait for; the turn then looks at everybody.
            let ready = self.wait(due).unwrap_or_default();
            self.step();
            for ready in ready {
                self.handle(ready);
            }
            if let Some(control) = &mut self.control {
                control.sweep();
            }
        }
        Report {
            functions: self.functions.iter().map(Function::report).collect(),
            uplink_lost: self.fabric.lost(),
        }
    }

    fn now(&self) -> Nanos {
        Nanos::try_from(self.began.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// Lets every device do what is due, until no frame moves; says when next.
    fn step(&mut self) -> Option<Nanos> {
        let now = self.now();
        self.fabric.clock.set(now);
        let mut due = None;
        for _ in 0..MOST_ROUNDS {
            let sent = self.fabric.sent();
            self.fabric.pump();
            let wishes = self.functions.iter_mut().filter_map(|one| one.step(now));
            due = wishes.min();
            if self.fabric.sent() == sent {
                self.fabric.pump();
                return due;
            }
        }
        due.map_or(Some(now), |due| Some(due.min(now)))
    }

    /// Sleeps until something is due or somebody wants something.
    fn wait(&self, due: Option<Nanos>) -> io::Result<Vec<Ready>> {
        let mut who = vec![(Ready::Jobs, PollFd::new(&self.wake, PollFlags::IN))];
        who.extend(self.fabric.inward().map(|fd| (Ready::Frames, reads(fd))));
        who.extend(self.fabric.outward().map(|fd| (Ready::Frames, writes(fd))));
        for (nth, one) in self.functions.iter().enumerate() {
            // The client before the listener: a client that reconnects must not find its old
            // connection.
            if let Some(client) = one.connection() {
                who.push((Ready::Client(nth), reads(client.fd())));
                if client.is_behind() {
                    who.push((Ready::Room(nth), writes(client.fd())));
                }
            }
            who.push((Ready::Listener(nth), reads(one.listener())));
        }
        if let Some(control) = &self.control {
            who.push((Ready::Control, reads(control.listener())));
            for (nth, (fd, behind)) in control.connections().enumerate() {
                let wanted = if behind { writes(fd) } else { reads(fd) };
                who.push((Ready::Line(nth), wanted));
            }
        }
        let (tokens, mut fds): (Vec<Ready>, Vec<PollFd<'_>>) = who.into_iter().unzip();
        let patience = due.map(|due| due.saturating_sub(self.now()));
        let timeout = patience.map(|nanos| Timespec {
            tv_sec: 0_i64.wrapping_add_unsigned(nanos / 1_000_000_000),
            tv_nsec: 0_i64.wrapping_add_unsigned(nanos % 1_000_000_000),
        });
        rustix::event::poll(&mut fds, timeout.as_ref())?;
        Ok(tokens
            .into_iter()
            .zip(&fds)
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|(token, _)| token)
            .collect())
    }

    fn handle(&mut self, ready: Ready) {
        match ready {
            Ready::Jobs => {
                sockets::drain(&self.wake);
                while let Ok(job) = self.jobs.try_recv() {
                    job(self);
                }
            }
            // The next step moves them.
            Ready::Frames => {}
            Ready::Listener(nth) => {
                if let Some(one) = self.functions.get_mut(nth) {
                    one.accept();
                }
            }
            Ready::Client(nth) => {
                if let Some(one) = self.functions.get_mut(nth) {
                    one.serve();
                }
            }
            Ready::Room(nth) => {
                if let Some(one) = self.functions.get_mut(nth) {
                    one.flush();
                }
            }
            Ready::Control => {
                if let Some(control) = &mut self.control {
                    control.accept();
                }
            }
            Ready::Line(nth) => {
                if let Some(control) = &mut self.control {
                    self.running &=
                        control.serve(nth, &mut self.functions, &self.fabric.impairment);
                }
            }
        }
    }
}
