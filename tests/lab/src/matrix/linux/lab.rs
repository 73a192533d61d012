//! The matrix's place: a model with an HCA for each side, two guests of stock Linux, the host's driver, and
//! what is done to them.
//!
//! The guests stay up from cell to cell. One that has died is booted again for the next.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::side::{Pairing, Place, Side};
use crate::guest::control::Control;
use crate::guest::shell::{Answer, Shell, TIMED_OUT};
use crate::guest::stage::{Guest, Id, Stage, System};
use crate::matrix::dat;
use crate::matrix::program::{Environment, Program, Ready};

/// The guests' configurations: networks 9 and tagged 11 belong to the HCAs, 10 and 12 to Soft-RoCE
/// and who talks to it.
const ETHERNET: [&str; 2] = [
    "HOST=1 HCA='9 10' HCA_VLAN='11 12' PAST=9\n",
    "HOST=2 HCA=9 HCA_VLAN=11 SOFT=10 SOFT_VLAN=12 PAST=10\n",
];
/// The same on InfiniBand, where one guest manages the subnet, and nobody is a Soft-RoCE.
const IB: [&str; 2] = ["HOST=1 IB=9 SM=1 PAST=9\n", "HOST=2 IB=9 PAST=10\n"];
/// Seconds in which a program of the host is ready to serve.
const READY: u64 = 15;
/// Where dtest and its relatives tell each other their addresses.
const MEETING: u16 = 15828;
/// What a `dat` that serves says when it does.
const LISTENS: &str = "listens on";
/// Our side's names and addresses in DAT's registry, as guests have them.
const REGISTRY: [(&str, &str); 2] = [("ia9", "192.168.9.3/24"), ("ia10", "192.168.10.3/24")];
/// Those of its twin.
const TWIN: [(&str, &str); 1] = [("ia9", "192.168.9.4/24")];

/// What joins the sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// An Ethernet switch, with a way out for Soft-RoCE.
    Ethernet,
    /// A switch of InfiniBand.
    InfiniBand,
}

/// The lab.
pub(crate) struct Lab<'s, 'm> {
    /// What it is built on.
    pub(crate) stage: &'s mut Stage<'m>,
    link: Link,
    model: Option<Id>,
    control: Option<Control>,
    guests: [Option<Shell>; 2],
    /// What is there already when a cell begins is not the cell's.
    booted: u32,
    place: Place,
    /// DAT's programs on our side and its twin, once a cell has needed them.
    programs: [Option<dat::Programs>; 2],
    /// An archive of what guests have beside the usual.
    more: Option<PathBuf>,
    reports: Vec<String>,
}

/// What a program that goes on by itself is there for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Role {
    /// It listens.
    Server,
    /// It calls.
    Client,
}

impl Role {
    /// As a guest's scripts call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

/// A program at work.
pub(crate) struct Begun {
    /// Where.
    pub(crate) side: Side,
    /// As what.
    pub(crate) role: Role,
    program: Program,
}

impl<'s, 'm> Lab<'s, 'm> {
    /// An empty one; what is needed is started when it is.
    pub(crate) fn new(stage: &'s mut Stage<'m>, link: Link) -> Result<Self> {
        let [first, second, ours, meeting] = free_ports()?;
        let [socket, twin] = ["ours", "twin"].map(|name| stage.path(name));
        let place = Place { link, socket, twin, ports: [first, second, ours], meeting };
        Ok(Self {
            stage,
            link,
            place,
            programs: [None, None],
            more: None,
            model: None,
            control: None,
            guests: [None, None],
            booted: 0,
            reports: Vec::new(),
        })
    }

    /// Guests that are booted from now on have the files of this archive, too.
    pub(crate) fn give(&mut self, more: PathBuf) {
        self.more = Some(more);
    }

    /// How often a guest was booted.
    pub(crate) fn boots(&self) -> u32 {
        self.booted
    }

    /// Sees to it that everything that a pairing needs is up.
    pub(crate) fn ready(&mut self, pairing: Pairing) -> Result<()> {
        if self.model.is_some_and(|id| self.stage.is_over(id)) {
            self.end()?;
        }
        if self.model.is_none() {
            let sockets = self.sockets();
            // Soft-RoCE is the peer of our side where there is one.
            let many = if self.link == Link::InfiniBand { 4 } else { 3 };
            let sockets: Vec<&Path> = sockets.iter().take(many).map(PathBuf::as_path).collect();
            let [uplink, soft, control] =
                ["uplink", "soft", "control"].map(|name| self.stage.path(name));
            let text = |path: &PathBuf| path.to_string_lossy().into_owned();
            let wire = format!("dgram:{},{}", text(&uplink), text(&soft));
            let link = match self.link {
                Link::Ethernet => &["--wire", &wire],
                Link::InfiniBand => ["--link", "ib"].as_slice(),
            };
            let control_path = text(&control);
            let args = [link, &["--control", &control_path]].concat();
            let id = self.stage.server("model", &sockets, &args)?;
            self.model = Some(id);
            self.control = Some(Control::new(&control)?);
        }
        let missing: Vec<usize> = [pairing.server, pairing.client]
            .into_iter()
            .filter_map(guest)
            .filter(|nth| self.guests[*nth].is_none())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let mut booting = Vec::new();
        for nth in missing {
            booting.push((nth, self.boot(nth)?));
        }
        for (nth, id) in booting {
            let (shell, set_up) = Shell::new(self.stage, id)?;
            ensure!(set_up.status == 0, "a guest's set-up failed:\n{}", set_up.text());
            self.guests[nth] = Some(shell);
        }
        Ok(())
    }

    fn sockets(&self) -> [PathBuf; 4] {
        let [first, second] = ["first", "second"].map(|name| self.stage.path(name));
        [first, second, self.place.socket.clone(), self.place.twin.clone()]
    }

    fn boot(&mut self, nth: usize) -> Result<Id> {
        let sockets = self.sockets();
        let socket = sockets[nth].as_path();
        let [local, remote] = ["soft", "uplink"].map(|name| self.stage.path(name));
        let first = nth == 0;
        let mut options = vec![
            "-netdev".to_owned(),
            format!(
                "user,id=aside,restrict=off,hostfwd=tcp:127.0.0.1:{}-:18515",
                self.place.ports[nth]
            ),
            "-device".to_owned(),
            "e1000,netdev=aside,romfile=".to_owned(),
            // Where the address that our side has in the guest's network is the host.
            "-netdev".to_owned(),
            format!(
                "user,id=past,restrict=off,net=192.168.{net}.0/24,host=192.168.{net}.3,dns=192.168.{net}.4,dhcpstart=192.168.{net}.15",
                net = if first { 9 } else { 10 }
            ),
            "-device".to_owned(),
            "e1000,netdev=past,mac=52:54:00:12:35:01,romfile=".to_owned(),
        ];
        if first == (self.link == Link::InfiniBand) {
            if let Some(aside) = options.get_mut(1) {
                aside
                    .push_str(&format!(",hostfwd=tcp:127.0.0.1:{}-:{MEETING}", self.place.meeting));
            }
        }
        if !first && self.link == Link::Ethernet {
            options.extend([
                "-netdev".to_owned(),
                format!(
                    "dgram,id=soft,local.type=unix,local.path={},remote.type=unix,remote.path={}",
                    local.display(),
                    remote.display()
                ),
                "-device".to_owned(),
                "virtio-net-pci,netdev=soft,mac=52:54:00:12:34:02,romfile=".to_owned(),
            ]);
        }
        let guest = Guest {
            system: System::Stock,
            script: match self.link {
                Link::Ethernet => ETHERNET[nth],
                Link::InfiniBand => IB[nth],
            },
            devices: &[socket],
            options: &options,
            memory: 768,
            more: self.more.as_deref(),
            ..Guest::default()
        };
        self.booted += 1;
        let name = format!("{}-{}", if first { "first" } else { "second" }, self.booted);
        self.stage.guest(&name, &guest)
    }

    /// Runs a command in a side's guest, with a limit in seconds. A guest that does not answer is
    /// given up.
    pub(crate) fn run(&mut self, side: Side, limit: u64, command: &str) -> Result<Answer> {
        self.console(guest(side).context("our side is no guest")?, limit, command)
    }

    /// As [`Lab::run`], for what must go well.
    pub(crate) fn must(&mut self, side: Side, limit: u64, command: &str) -> Result<String> {
        let answer = self.run(side, limit, command)?;
        ensure!(answer.status == 0, "`{command}` ended with {}:\n{}", answer.status, answer.text());
        Ok(answer.text())
    }

    /// What it has of its own.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Starts a program of our side or its twin: one of DAT's, `interop`, or else `dat` with these
    /// arguments.
    fn ours(&mut self, side: Side, command: &str) -> Result<Id> {
        if !dat::Programs::has(command) {
            let interop = command.strip_prefix("interop ");
            let args = interop.unwrap_or(command).split_whitespace().collect::<Vec<_>>();
            return self.stage.program(if interop.is_some() { "interop" } else { "dat" }, &args);
        }
        let (name, socket, registry) = match side {
            Side::Twin => ("twin", &self.place.twin, TWIN.as_slice()),
            Side::First | Side::Second | Side::Soft | Side::Ours => {
                ("ours", &self.place.socket, REGISTRY.as_slice())
            }
        };
        let programs = &mut self.programs[usize::from(side == Side::Twin)];
        if programs.is_none() {
            *programs = Some(dat::Programs::new(self.stage, name, socket, registry)?);
        }
        let programs = programs.as_ref().context("no programs")?;
        self.stage.start(name, programs.command(command)?)
    }

    /// Starts a program that goes on by itself.
    pub(crate) fn begin(&mut self, side: Side, role: Role, command: &str) -> Result<Begun> {
        let program = match guest(side) {
            None => Program::Host(self.ours(side, command)?, [0; 2]),
            Some(nth) => Program::in_guest(self, nth, role.name(), command)?,
        };
        Ok(Begun { side, role, program })
    }

    /// Starts a server, and waits until it listens, at `port`, if it is one of a guest and the port
    /// is not 0.
    pub(crate) fn serve(&mut self, side: Side, port: u16, command: &str) -> Result<Begun> {
        let mut begun = self.begin(side, Role::Server, command)?;
        let how = match guest(side) {
            None if dat::Programs::has(command) => Ready::Says(dat::READY),
            None => Ready::Says(LISTENS),
            Some(_) if port == 0 => return Ok(begun),
            Some(_) => Ready::Port(port),
        };
        if let Err(error) = begun.program.ready_within(self, how, READY) {
            begun.program.stop(self)?;
            return Err(error.context(format!("`{command}` does not serve")));
        }
        Ok(begun)
    }

    /// Ends a program at once, as a crash would.
    pub(crate) fn stop(&mut self, begun: &Begun) -> Result<()> {
        begun.program.stop(self)
    }

    /// Whether a program has ended.
    pub(crate) fn is_over(&mut self, begun: &Begun) -> Result<bool> {
        begun.program.is_over(self)
    }

    /// Waits for a program's end, for so many seconds: its status, and what it said. `None`: it had
    /// to be ended.
    pub(crate) fn reap(&mut self, begun: &Begun, within: u64) -> Result<(Option<i32>, String)> {
        let mut program = begun.program;
        let ended = program.reap(self, within)?;
        Ok((ended.status, ended.lines.join("\n")))
    }

    /// Runs a client to its end.
    pub(crate) fn call(&mut self, side: Side, within: u64, command: &str) -> Result<Answer> {
        if !side.is_ours() {
            return self.run(side, within, command);
        }
        let ended = self.begin(side, Role::Client, command)?.program.reap(self, within)?;
        Ok(Answer { status: ended.status.unwrap_or(TIMED_OUT), lines: ended.lines })
    }

    /// Says something to the model.
    pub(crate) fn model(&mut self, line: &str) -> Result<Vec<String>> {
        self.control.as_mut().context("no model")?.tell(line)
    }

    /// The number of a side's HCA in the model, if it has one.
    pub(crate) fn hca(side: Side) -> Option<usize> {
        match side {
            Side::First => Some(0),
            Side::Second => Some(1),
            Side::Soft => None,
            Side::Ours => Some(2),
            Side::Twin => Some(3),
        }
    }

    /// Ends everything.
    pub(crate) fn end(&mut self) -> Result<()> {
        for shell in &mut self.guests {
            if let Some(shell) = shell.take() {
                self.stage.kill(shell.id);
            }
        }
        self.control = None;
        if let Some(id) = self.model.take() {
            if self.stage.is_over(id) {
                bail!("the model ended by itself:{}", self.stage.tail(id));
            }
            self.stage.hang_up(id, Duration::from_secs(10))?;
            self.reports.extend(self.stage.complaints(id));
        }
        Ok(())
    }

    /// What the models had to say at their ends.
    pub(crate) fn reports(&self) -> &[String] {
        &self.reports
    }
}

impl<'m> Environment<'m> for Lab<'_, 'm> {
    fn stage(&mut self) -> &mut Stage<'m> {
        self.stage
    }

    fn console(&mut self, guest: usize, limit: u64, command: &str) -> Result<Answer> {
        let shell = self.guests[guest].as_mut().context("the guest is not up")?;
        let answer = shell.run(self.stage, limit, command);
        if answer.is_err() {
            if let Some(shell) = self.guests[guest].take() {
                self.stage.kill(shell.id);
            }
        }
        answer
    }
}

/// Ports of the host that nobody has at present.
fn free_ports() -> Result<[u16; 4]> {
    let mut ports = [0; 4];
    // All at once, so that they differ.
    let mut bound = Vec::new();
    for _ in ports {
        bound.push(TcpListener::bind(("127.0.0.1", 0))?);
    }
    for (port, listener) in ports.iter_mut().zip(&bound) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// Which guest a side is in.
fn guest(side: Side) -> Option<usize> {
    match side {
        Side::First => Some(0),
        Side::Second | Side::Soft => Some(1),
        Side::Ours | Side::Twin => None,
    }
}
