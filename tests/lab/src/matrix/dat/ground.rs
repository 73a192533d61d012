//! Where programs run: processes of the host, and programs that a guest's console begins.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::judge::Ended;
use super::kit::{self, Kit};
use super::rows::{PORT, Ready};
use crate::guest::shell::{Answer, Shell};
use crate::guest::stage::{Id, Stage};
use crate::matrix::linux::{Lab, Side};

/// How often something is looked at that should happen soon.
const POLL: Duration = Duration::from_millis(20);
/// Seconds in which a server serves.
const READY: u64 = 20;
/// How a guest's scripts say that a program had to be ended.
const ENDED: i32 = 99;

/// A stage, and perhaps a guest with a console.
pub(super) trait Ground<'m> {
    /// The stage.
    fn stage(&mut self) -> &mut Stage<'m>;
    /// Runs a command in the guest, with a limit in seconds.
    fn run(&mut self, limit: u64, command: &str) -> Result<Answer>;
}

/// A stage, and the guest on it, if there is one.
pub(super) struct Own<'s, 'm> {
    /// The stage.
    pub(super) stage: &'s mut Stage<'m>,
    /// The guest's console.
    pub(super) shell: Option<Shell>,
}

impl<'m> Ground<'m> for Own<'_, 'm> {
    fn stage(&mut self) -> &mut Stage<'m> {
        self.stage
    }

    fn run(&mut self, limit: u64, command: &str) -> Result<Answer> {
        let shell = self.shell.as_mut().context("there is no guest")?;
        let answer = shell.run(self.stage, limit, command);
        if answer.is_err() {
            // Whatever it was, the machine or the model may have said why.
            println!("    the guest's end:{}", self.stage.tails());
            self.shell = None;
        }
        answer
    }
}

/// The lab of stock Linux, whose guest with Soft-RoCE is the one.
pub(super) struct Wire<'l, 's, 'm>(pub(super) &'l mut Lab<'s, 'm>);

impl<'m> Ground<'m> for Wire<'_, '_, 'm> {
    fn stage(&mut self) -> &mut Stage<'m> {
        self.0.stage
    }

    fn run(&mut self, limit: u64, command: &str) -> Result<Answer> {
        self.0.run(Side::Soft, limit, command)
    }
}

/// A side of a row: where it runs, and with which registration.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// On the host, with this file; under valgrind, where there are words for it.
    Host(PathBuf, &'static [&'static str]),
    /// In the guest, behind these words.
    Guest(fn(&str) -> String),
}

/// A program at work.
#[derive(Debug, Clone, Copy)]
pub(super) enum Begun {
    /// A process of the host, and how much of its two outputs has been looked at.
    Host(Id, [usize; 2]),
    /// A program of the guest under this name, and how many lines have been looked at.
    Guest(&'static str, usize),
}

/// Begins a program, as `role`.
pub(super) fn begin<'m>(
    ground: &mut impl Ground<'m>,
    kit: Option<&Kit>,
    place: &Place,
    role: &'static str,
    command: &str,
) -> Result<Begun> {
    match place {
        Place::Host(conf, tool) => {
            let kit = kit.context("no provider for a process of the host")?;
            let mut words = command.split_whitespace();
            let program = words.next().context("no program")?;
            let mut command = kit.under(tool, &kit.program(program), conf)?;
            command.args(words);
            Ok(Begun::Host(ground.stage().start(role, command)?, [0, 0]))
        }
        Place::Guest(under) => {
            let answer = ground.run(25, &format!("begin {role} {}", under(command)))?;
            ensure!(answer.status == 0, "does not begin: {}", answer.text());
            Ok(Begun::Guest(role, 0))
        }
    }
}

impl Begun {
    /// What it has said that was not looked at yet.
    pub(super) fn news<'m>(&mut self, ground: &mut impl Ground<'m>) -> Result<Vec<String>> {
        match self {
            Self::Host(id, seen) => {
                let mut news = Vec::new();
                for (lines, seen) in ground.stage().outputs(*id).iter().zip(seen) {
                    news.extend(lines.iter().skip(*seen).cloned());
                    *seen = lines.len();
                }
                Ok(news)
            }
            Self::Guest(name, seen) => {
                let command = format!("tail -n +{} /tmp/{name}.out", *seen + 1);
                let news = ground.run(25, &command)?.lines;
                *seen += news.len();
                Ok(news)
            }
        }
    }

    /// Its number, on the host.
    pub(super) fn pid<'m>(&self, ground: &mut impl Ground<'m>) -> Result<u32> {
        match self {
            Self::Host(id, _) => Ok(ground.stage().pid(*id)),
            Self::Guest(name, _) => bail!("{name} is in a guest"),
        }
    }

    /// Whether it has ended.
    pub(super) fn is_over<'m>(&self, ground: &mut impl Ground<'m>) -> Result<bool> {
        match self {
            Self::Host(id, _) => Ok(ground.stage().is_over(*id)),
            Self::Guest(name, _) => {
                let answer = ground.run(25, &format!("test -e /tmp/{name}.status"))?;
                Ok(answer.status == 0)
            }
        }
    }

    /// Waits until it says something, and gives what it said up to then.
    pub(super) fn says<'m>(
        &mut self,
        ground: &mut impl Ground<'m>,
        text: &str,
        within: u64,
    ) -> Result<Vec<String>> {
        let until = Instant::now() + Duration::from_secs(within);
        let mut lines = Vec::new();
        loop {
            let over = self.is_over(ground)?;
            lines.extend(self.news(ground)?);
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

    /// Waits until it serves, and sees to it that it has loaded what it should, and nothing else.
    pub(super) fn ready<'m>(&mut self, ground: &mut impl Ground<'m>, how: Ready) -> Result<()> {
        self.ready_within(ground, how, READY)?;
        self.loaded(ground)
    }

    /// Fails if the process of the host works with something else than the registry and the
    /// provider of this workspace.
    pub(super) fn loaded<'m>(&self, ground: &mut impl Ground<'m>) -> Result<()> {
        let Self::Host(id, _) = self else {
            return Ok(());
        };
        let maps = fs::read_to_string(format!("/proc/{}/maps", ground.stage().pid(*id)))?;
        let odd = kit::unwanted(maps.lines().map(str::to_owned));
        ensure!(odd.is_none(), "the process has loaded {odd:?}");
        for needed in [kit::REGISTRY, kit::LIBRARY] {
            ensure!(maps.contains(needed), "the process has not loaded {needed}");
        }
        Ok(())
    }

    /// The first half of [`Self::ready`], with a limit in seconds.
    pub(super) fn ready_within<'m>(
        &mut self,
        ground: &mut impl Ground<'m>,
        how: Ready,
        within: u64,
    ) -> Result<()> {
        match (how, &self) {
            (Ready::Says(text), _) => {
                // What it said belongs to the row all the same.
                let before = *self;
                self.says(ground, text, within).context("the server")?;
                *self = before;
                Ok(())
            }
            (Ready::Port, Self::Guest(..)) => {
                let answer = ground.run(30, &format!("listening {PORT}"))?;
                ensure!(answer.status == 0, "the server: {}", answer.text());
                Ok(())
            }
            (Ready::Port, Self::Host(id, _)) => {
                let until = Instant::now() + Duration::from_secs(within);
                while !listens(PORT)? {
                    if ground.stage().is_over(*id) || Instant::now() > until {
                        bail!("the server listens at no port: {}", ground.stage().tail(*id));
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
        ground: &mut impl Ground<'m>,
        within: u64,
        other: &Self,
    ) -> Result<Ended> {
        const GRACE: Duration = Duration::from_secs(10);
        let mut until = Instant::now() + Duration::from_secs(within);
        let mut alone = false;
        while !self.is_over(ground)? && Instant::now() < until {
            if !alone && other.is_over(ground)? {
                alone = true;
                until = until.min(Instant::now() + GRACE);
            }
            thread::sleep(match self {
                Self::Host(..) => POLL,
                // Asking takes the guest's time.
                Self::Guest(..) => POLL * 10,
            });
        }
        self.reap(ground, 0)
    }

    /// Waits for its end, and ends it if it does not come; what it said that was not looked at yet.
    pub(super) fn reap<'m>(&mut self, ground: &mut impl Ground<'m>, within: u64) -> Result<Ended> {
        match self {
            Self::Host(id, _) => {
                let end = ground.stage().outcome(*id, Duration::from_secs(within));
                ground.stage().kill(*id);
                Ok(Ended { status: end.map(code), lines: self.news(ground)? })
            }
            Self::Guest(name, _) => {
                let command = format!("reap {name} {within} > /dev/null");
                let status = ground.run(within + 20, &command)?.status;
                Ok(Ended { status: (status != ENDED).then_some(status), lines: self.news(ground)? })
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
pub(super) fn listens(port: u16) -> Result<bool> {
    // Local address and port, remote ones, state: 0A is listening.
    let local = format!(":{port:04X}");
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        let found = text.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|own| own.ends_with(&local)) && words.nth(1) == Some("0A")
        });
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The right to use the port of the host where dtest and its relatives meet, which they cannot be
/// told to change.
#[derive(Debug)]
pub(super) struct Port(#[expect(dead_code, reason = "held, not read")] File);

impl Port {
    /// Waits for it.
    pub(super) fn take() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("qemu-test-port-{PORT}"));
        let file = File::create(&path).with_context(|| format!("{}", path.display()))?;
        let until = Instant::now() + Duration::from_secs(600);
        while file.try_lock().is_err() {
            ensure!(Instant::now() < until, "another run holds {}", path.display());
            thread::sleep(POLL * 10);
        }
        ensure!(!listens(PORT)?, "port {PORT} is in use, and these programs know no other");
        Ok(Self(file))
    }
}

/// Leads one connection to the host's [`PORT`] to another port of the host, behind which a guest's
/// is.
pub(super) fn lead(to: u16) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", PORT))?;
    thread::spawn(move || -> std::io::Result<()> {
        let (mut here, _) = listener.accept()?;
        drop(listener);
        let mut there = TcpStream::connect(("127.0.0.1", to))?;
        let (mut back, mut forth) = (there.try_clone()?, here.try_clone()?);
        let other = thread::spawn(move || std::io::copy(&mut back, &mut forth));
        let _ = std::io::copy(&mut here, &mut there);
        there.shutdown(std::net::Shutdown::Write)?;
        let _ = other.join();
        Ok(())
    });
    Ok(())
}

/// The guest's words for a side with the provider of this workspace.
pub(super) fn first(command: &str) -> String {
    kit::guest_command("first.conf", command)
}

/// The same for the other side.
pub(super) fn second(command: &str) -> String {
    kit::guest_command("second.conf", command)
}
