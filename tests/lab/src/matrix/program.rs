//! Programs at work, for both runners: processes of the host, and programs that a guest's console
//! begins.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::judge::Ended;
use crate::guest::shell::Answer;
use crate::guest::stage::{Id, Stage};

/// How often something is looked at that should happen soon.
pub(super) const POLL: Duration = Duration::from_millis(20);
/// How a guest's scripts say that a program had to be ended.
const ENDED: i32 = 99;
/// Lines of a program of a guest that are read at a time: what a console keeps is bounded.
const LINES: u32 = 2000;

/// A stage, and perhaps guests with a console.
pub(crate) trait Environment<'m> {
    /// The stage.
    fn stage(&mut self) -> &mut Stage<'m>;
    /// Runs a command in a guest, with a limit in seconds.
    fn console(&mut self, guest: usize, limit: u64, command: &str) -> Result<Answer>;
}

/// How one sees that a server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    /// It listens at this port.
    Port(u16),
    /// It says so.
    Says(&'static str),
}

/// A program at work.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Program {
    /// A process of the host, and how much of its two outputs has been looked at.
    Host(Id, [usize; 2]),
    /// A program of this guest under this name, and how many lines have been looked at.
    Guest(usize, &'static str, usize),
}

impl Program {
    /// Begins a program of a guest under a name.
    pub(super) fn in_guest<'m>(
        env: &mut impl Environment<'m>,
        guest: usize,
        name: &'static str,
        command: &str,
    ) -> Result<Self> {
        let answer = env.console(guest, 25, &format!("begin {name} {command}"))?;
        ensure!(answer.status == 0, "does not begin: {}", answer.text());
        Ok(Self::Guest(guest, name, 0))
    }

    /// What it has said that was not looked at yet.
    pub(super) fn new_lines<'m>(&mut self, env: &mut impl Environment<'m>) -> Result<Vec<String>> {
        match self {
            Self::Host(id, seen) => {
                let mut lines = Vec::new();
                for (output, seen) in env.stage().outputs(*id).iter().zip(seen) {
                    lines.extend(output.iter().skip(*seen).cloned());
                    *seen = output.len();
                }
                Ok(lines)
            }
            Self::Guest(guest, name, seen) => {
                let command = format!("tail -n +{} /tmp/{name}.out | tail -n {LINES}", *seen + 1);
                let lines = env.console(*guest, 25, &command)?.lines;
                *seen += lines.len();
                Ok(lines)
            }
        }
    }

    /// Ends it at once, as a crash would.
    pub(super) fn stop<'m>(&self, env: &mut impl Environment<'m>) -> Result<()> {
        match self {
            Self::Host(id, _) => env.stage().kill(*id),
            Self::Guest(guest, name, _) => {
                let answer = env.console(*guest, 25, &format!("stop {name}"))?;
                ensure!(answer.status == 0, "{name} does not stop: {}", answer.text());
            }
        }
        Ok(())
    }

    /// Its number, on the host.
    pub(super) fn pid<'m>(&self, env: &mut impl Environment<'m>) -> Result<u32> {
        match self {
            Self::Host(id, _) => Ok(env.stage().pid(*id)),
            Self::Guest(_, name, _) => bail!("{name} is in a guest"),
        }
    }

    /// Whether it has ended.
    pub(super) fn is_over<'m>(&self, env: &mut impl Environment<'m>) -> Result<bool> {
        match self {
            Self::Host(id, _) => Ok(env.stage().is_over(*id)),
            Self::Guest(guest, name, _) => {
                let answer = env.console(*guest, 25, &format!("test -e /tmp/{name}.status"))?;
                Ok(answer.status == 0)
            }
        }
    }

    /// Waits until it says something, and gives what it said up to then.
    pub(super) fn says<'m>(
        &mut self,
        env: &mut impl Environment<'m>,
        text: &str,
        within: u64,
    ) -> Result<Vec<String>> {
        let until = Instant::now() + Duration::from_secs(within);
        let mut lines = Vec::new();
        loop {
            let over = self.is_over(env)?;
            lines.extend(self.new_lines(env)?);
            if lines.iter().any(|line| line.contains(text)) {
                return Ok(lines);
            }
            if over || Instant::now() > until {
                let how = if over { "ended" } else { "is silent" };
                bail!("{how} before \"{text}\":\n{}", lines.join("\n"));
            }
            thread::sleep(POLL);
        }
    }

    /// Waits until it serves, for so many seconds.
    pub(super) fn ready_within<'m>(
        &mut self,
        env: &mut impl Environment<'m>,
        how: Ready,
        within: u64,
    ) -> Result<()> {
        match (how, &self) {
            (Ready::Says(text), _) => {
                // What it said belongs to the row all the same.
                let before = *self;
                self.says(env, text, within).context("the server")?;
                *self = before;
                Ok(())
            }
            (Ready::Port(port), Self::Guest(guest, ..)) => {
                let answer = env.console(*guest, 30, &format!("listening {port}"))?;
                ensure!(answer.status == 0, "the server: {}", answer.text());
                Ok(())
            }
            (Ready::Port(port), Self::Host(id, _)) => {
                let until = Instant::now() + Duration::from_secs(within);
                while !listens(port) {
                    if env.stage().is_over(*id) || Instant::now() > until {
                        bail!("the server listens at no port: {}", env.stage().tail(*id));
                    }
                    thread::sleep(POLL);
                }
                Ok(())
            }
        }
    }

    /// Waits for its end; for a moment only once `other` has ended, without which it would wait for
    /// ever.
    pub(super) fn reap_beside<'m>(
        &mut self,
        env: &mut impl Environment<'m>,
        within: u64,
        other: &Self,
    ) -> Result<Ended> {
        const GRACE: Duration = Duration::from_secs(10);
        let mut until = Instant::now() + Duration::from_secs(within);
        let mut alone = false;
        while !self.is_over(env)? && Instant::now() < until {
            if !alone && other.is_over(env)? {
                alone = true;
                until = until.min(Instant::now() + GRACE);
            }
            thread::sleep(match self {
                Self::Host(..) => POLL,
                // Asking takes the guest's time.
                Self::Guest(..) => POLL * 10,
            });
        }
        self.reap(env, 0)
    }

    /// Waits for its end, and ends it if it does not come; what it said that was not looked at yet.
    pub(super) fn reap<'m>(
        &mut self,
        env: &mut impl Environment<'m>,
        within: u64,
    ) -> Result<Ended> {
        match self {
            Self::Host(id, _) => {
                let end = env.stage().outcome(*id, Duration::from_secs(within));
                env.stage().kill(*id);
                Ok(Ended { status: end.map(code), lines: self.new_lines(env)? })
            }
            Self::Guest(guest, name, _) => {
                let command = format!("reap {name} {within} > /dev/null");
                let status = env.console(*guest, within + 20, &command)?.status;
                Ok(Ended {
                    status: (status != ENDED).then_some(status),
                    lines: self.new_lines(env)?,
                })
            }
        }
    }
}

/// As a shell would say it: a signal is a status above 128.
fn code(status: ExitStatus) -> i32 {
    let signal = status.signal().map(|signal| 128 + signal);
    status.code().or(signal).unwrap_or(-1)
}

/// Whether somebody listens at a port of the host.
pub(super) fn listens(port: u16) -> bool {
    // Local address and port, remote ones, state: 0A is listening.
    let local = format!(":{port:04X}");
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        let found = text.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|own| own.ends_with(&local)) && words.nth(1) == Some("0A")
        });
        if found {
            return true;
        }
    }
    false
}
