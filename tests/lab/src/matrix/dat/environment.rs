//! Where DAT programs run: on the host over the provider of this workspace, or in a guest.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};

use super::kit::{self, Kit};
use super::rows::PORT;
use crate::guest::shell::{Answer, Shell};
use crate::guest::stage::Stage;
use crate::matrix::program::{Environment, POLL, Program, listens};

/// A stage, and the guest on it, if there is one.
pub(super) struct Own<'s, 'm> {
    /// The stage.
    pub(super) stage: &'s mut Stage<'m>,
    /// The guest's console.
    pub(super) shell: Option<Shell>,
}

impl<'m> Environment<'m> for Own<'_, 'm> {
    fn stage(&mut self) -> &mut Stage<'m> {
        self.stage
    }

    fn console(&mut self, _guest: usize, limit: u64, command: &str) -> Result<Answer> {
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

/// A side of a row: where it runs, and with which registration.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// On the host, with this file; under valgrind, where there are words for it.
    Host(PathBuf, &'static [&'static str]),
    /// In this guest, behind these words.
    Guest(usize, fn(&str) -> String),
}

/// Begins a program, as `role`.
pub(super) fn begin<'m>(
    env: &mut impl Environment<'m>,
    kit: Option<&Kit>,
    place: &Place,
    role: &'static str,
    command: &str,
) -> Result<Program> {
    match place {
        Place::Host(conf, tool) => {
            let kit = kit.context("no provider for a process of the host")?;
            let mut words = command.split_whitespace();
            let program = words.next().context("no program")?;
            let mut command = kit.under(tool, &kit.program(program), conf)?;
            command.args(words);
            Ok(Program::Host(env.stage().start(role, command)?, [0, 0]))
        }
        Place::Guest(guest, under) => Program::in_guest(env, *guest, role, &under(command)),
    }
}

/// Fails if the process of the host works with something else than the registry and the
/// provider of this workspace.
pub(super) fn loaded<'m>(program: &Program, env: &mut impl Environment<'m>) -> Result<()> {
    let Program::Host(id, _) = program else {
        return Ok(());
    };
    let maps = fs::read_to_string(format!("/proc/{}/maps", env.stage().pid(*id)))?;
    let odd = kit::unwanted(maps.lines().map(str::to_owned));
    ensure!(odd.is_none(), "the process has loaded {odd:?}");
    for needed in [kit::REGISTRY, kit::LIBRARY] {
        ensure!(maps.contains(needed), "the process has not loaded {needed}");
    }
    Ok(())
}

/// The right to use the port of the host where dtest and its relatives meet, which they cannot be
/// asked to change.
#[derive(Debug)]
pub(super) struct Port(#[expect(dead_code, reason = "held, not read")] File);

impl Port {
    /// Waits for it.
    pub(super) fn take() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("qemu-test-port-{PORT}"));
        let file = File::create(&path).with_context(|| format!("{}", path.display()))?;
        let until = Instant::now() + Duration::from_secs(600);
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            ensure!(Instant::now() < until, "another run holds {}", path.display());
            thread::sleep(POLL * 10);
        }
        ensure!(!listens(PORT), "port {PORT} is in use, and these programs know no other");
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
