//! The consumer's process of [`super::process`], and its peer.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use dat_core::provider::Net;
use dat_core::{
    CloseFlag, CompletionFlags, DtoOperation, DtoStatus, Evd, EvdFlags, Event, LmrTriplet, MemPriv,
    PspFlag,
};
use hca_mlx5::Config;
use vfio_host::user::VfioUser;
use vfio_host::{Host, Nic, NicStorage, Options};

use super::consumer::brief_error;
use super::events::{dto_name, end_name, end_text};
use super::what::Phase;
use crate::session::{contents, pattern};

const SERVICE: u16 = 4711;
/// The longest wait for anything.
pub(super) const LONG: Duration = Duration::from_secs(30);
/// Events of one end come within this.
const SOON: Duration = Duration::from_secs(2);
const NONE: CompletionFlags = CompletionFlags::empty();
/// Bytes of a message, and messages that an end has room for.
const MESSAGE: usize = 64;
const PLACES: usize = 8;
/// Round trips of the traffic, if the parent does not say how many.
pub(super) const TRIPS: u32 = 60;

/// What the parent answers to the begin of a phase, if the process has to fork first. Else it is how
/// many round trips the traffic has.
pub(super) const FORK: &str = "fork";

fn net(side: u8) -> Net {
    Net::new([192, 168, 7, 1 + side].into(), 24)
}

fn failed(what: &str) -> impl Fn(dat_core::Error) -> anyhow::Error {
    move |error| anyhow!("{what}: {}", brief_error(&error))
}

/// When something was lost, or the process began, and when it was connected afterwards.
struct Times {
    since: Instant,
    connected: Option<Instant>,
}

impl Times {
    fn start() -> Self {
        Self { since: Instant::now(), connected: None }
    }

    /// Says what the consumer sees.
    fn sees(&mut self, error: anyhow::Error) -> anyhow::Error {
        *self = Self::start();
        say(&format!("@sees {error:#}")).err().unwrap_or(error)
    }
}

/// Says which phase begins, and waits until it may. How many round trips the traffic has.
fn begin(phase: Phase, marks: bool) -> Result<u32> {
    if !marks {
        return Ok(TRIPS);
    }
    say(&format!("@phase {}", phase.name()))?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    if line.trim() == FORK {
        // With a group to set, the child is made by fork.
        let gid = rustix::process::getgid().as_raw();
        let status = Command::new("true").gid(gid).status()?;
        ensure!(status.success(), "the child ends with {status}");
    }
    Ok(line.trim().parse().unwrap_or(TRIPS))
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// All phases on a host. An error is what the consumer sees; its adapter is closed then.
fn phases(host: &VfioUser, marks: bool, times: &mut Times) -> Result<()> {
    begin(Phase::BringUp, marks)?;
    let mut room = Box::new(NicStorage::new());
    let opened = Nic::open(host, room.parts(), net(0), &Config::default());
    let mut nic = opened.map_err(|error| {
        let cause = error.cause().split(';').next().unwrap_or_default();
        times.sees(anyhow!("open: {cause}"))
    })?;
    let worked = work(&mut nic, marks, times).map_err(|error| times.sees(error));
    if worked.is_err() {
        // Whether it can still do that is no matter: the reset that follows takes everything.
        let _ = nic.close(CloseFlag::Abrupt);
        return worked;
    }
    nic.close(CloseFlag::Graceful).map_err(|error| times.sees(failed("close")(error)))
}

/// An event that should not come, and those that follow until the connection ends, each once.
fn seen(nic: &mut Nic<'_, '_, VfioUser>, evd: Evd, event: Event) -> anyhow::Error {
    let (mut all, mut next) = (Vec::new(), Some(event));
    while let Some(event) = next {
        let end = end_name(&event);
        let text = match (event, end) {
            (Event::Dto(done), _) => dto_name(done.status).to_owned(),
            (_, Some((name, ep))) => end_text(name, nic.ep_cause(ep).ok().flatten()),
            (other, None) => format!("{other:?}"),
        };
        if !all.contains(&text) {
            all.push(text);
        }
        next = if end.is_some() { None } else { nic.evd_wait(evd, SOON, 1).ok() };
    }
    anyhow!(all.join("; "))
}

/// What is between opening and closing.
fn work(nic: &mut Nic<'_, '_, VfioUser>, marks: bool, times: &mut Times) -> Result<()> {
    let pz = nic.pz_create().map_err(failed("pz_create"))?;
    let evd = nic.evd_create(64, EvdFlags::DTO | EvdFlags::CONNECTION);
    let evd = evd.map_err(failed("evd_create"))?;
    let buffer = nic.buffer(4096).context("no room for a buffer")?;
    let lmr = nic.lmr_create(pz, buffer.region(), MemPriv::ALL).map_err(failed("lmr_create"))?;
    let some = Some(evd);
    let ep = nic.ep_create(Some(pz), some, some, some, None).map_err(failed("ep_create"))?;

    begin(Phase::Connecting, marks)?;
    let to = std::net::SocketAddr::new(net(1).addr, SERVICE);
    nic.ep_connect(ep, to, LONG, b"hello").map_err(failed("ep_connect"))?;
    match nic.evd_wait(evd, LONG, 1).map_err(|error| anyhow!("{error}"))? {
        Event::Established(_) => times.connected = Some(Instant::now()),
        other => return Err(seen(nic, evd, other)),
    }

    let trips = begin(Phase::Traffic, marks)?;
    let seg = |at: usize| {
        let addr = lmr.region.addr + at as u64;
        [LmrTriplet { addr, len: MESSAGE as u32, context: lmr.lmr_context }]
    };
    for n in 0..trips {
        buffer.copy_in(0, &contents(n, MESSAGE));
        nic.ep_post_recv(ep, &seg(1024), 1, NONE)?;
        nic.ep_post_send(ep, &seg(0), 2, NONE)?;
        for _ in 0..2 {
            match nic.evd_wait(evd, LONG, 1).map_err(|error| anyhow!("{error}"))? {
                Event::Dto(done) if done.status == DtoStatus::Success => {}
                other => return Err(seen(nic, evd, other)),
            }
        }
        let mut bytes = [0; MESSAGE];
        buffer.copy_out(1024, &mut bytes);
        let same = bytes.iter().enumerate().all(|(i, byte)| *byte == pattern(n, i));
        ensure!(same, "message {n} came back otherwise");
    }

    begin(Phase::Closing, marks)?;
    nic.ep_disconnect(ep, CloseFlag::Graceful).map_err(failed("ep_disconnect"))?;
    match nic.evd_wait(evd, LONG, 1).map_err(|error| anyhow!("{error}"))? {
        Event::Disconnected(_) => {}
        other => return Err(seen(nic, evd, other)),
    }
    nic.ep_free(ep).map_err(failed("ep_free"))?;
    nic.lmr_free(lmr.lmr).map_err(failed("lmr_free"))?;
    nic.evd_free(evd).map_err(failed("evd_free"))?;
    nic.pz_free(pz).map_err(failed("pz_free"))?;
    buffer.release();
    Ok(())
}

/// The consumer's process.
///
/// # Errors
/// What it cannot recover from.
pub fn consumer(socket: &Path) -> Result<()> {
    let mut times = Times::start();
    let mut host = VfioUser::open(socket, &Options::default())?;
    if phases(&host, true, &mut times).is_err() {
        host.renew()?;
        phases(&host, false, &mut times)?;
    }
    let connected = times.connected.context("never connected")?;
    let took = connected.saturating_duration_since(times.since);
    say(&format!("@connected {}", took.as_micros()))?;
    say("@done")
}

/// Answers each message with the same, on any number of connections one after the other.
pub(super) fn echo(host: &VfioUser, stop: &AtomicBool) -> Result<()> {
    let mut room = Box::new(NicStorage::new());
    let mut nic = Nic::open(host, room.parts(), net(1), &Config::default())?;
    let pz = nic.pz_create().map_err(failed("pz_create"))?;
    let evd = nic.evd_create(128, EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::CR);
    let evd = evd.map_err(failed("evd_create"))?;
    nic.psp_create(SERVICE.into(), evd, PspFlag::Consumer).map_err(failed("psp_create"))?;
    let buffer = nic.buffer(PLACES * MESSAGE).context("no room for a buffer")?;
    let lmr = nic.lmr_create(pz, buffer.region(), MemPriv::ALL).map_err(failed("lmr_create"))?;
    let seg = |n: u64| {
        let addr = lmr.region.addr + n % PLACES as u64 * MESSAGE as u64;
        [LmrTriplet { addr, len: MESSAGE as u32, context: lmr.lmr_context }]
    };
    while !stop.load(Ordering::Relaxed) {
        let Ok(event) = nic.evd_wait(evd, Duration::from_millis(50), 1) else { continue };
        match event {
            Event::ConnectionRequest { cr, .. } => {
                let some = Some(evd);
                let ep = nic.ep_create(Some(pz), some, some, some, None);
                let ep = ep.map_err(failed("ep_create"))?;
                for n in 0..PLACES as u64 {
                    nic.ep_post_recv(ep, &seg(n), n, NONE)?;
                }
                // It may have given up.
                let _ = nic.cr_accept(cr, Some(ep), b"");
            }
            Event::Dto(done) if done.status == DtoStatus::Success => {
                // An Endpoint that ended meanwhile takes no more.
                let _ = match done.operation {
                    DtoOperation::Receive => {
                        nic.ep_post_send(done.ep, &seg(done.cookie), done.cookie, NONE)
                    }
                    _ => nic.ep_post_recv(done.ep, &seg(done.cookie), done.cookie, NONE),
                };
            }
            Event::Disconnected(ep) | Event::Broken(ep) | Event::AcceptCompletionError(ep) => {
                nic.ep_free(ep).map_err(failed("ep_free"))?;
            }
            _ => {}
        }
    }
    nic.close(CloseFlag::Abrupt).map_err(failed("close"))?;
    buffer.release();
    Ok(())
}
