//! The consumer's process of [`super::process`], and its peer.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use dat_core::provider::Net;
use dat_core::{
    CloseFlag, CompletionFlags, DtoOperation, DtoStatus, EvdFlags, Event, LmrTriplet, MemPriv,
    PspFlag,
};
use hca_mlx5::Config;
use vfio_host::user::VfioUser;
use vfio_host::{Host, Nic, NicStorage, Options};

use super::what::Phase;
use crate::session::{contents, pattern};

const SERVICE: u16 = 4711;
/// The longest wait for anything.
pub(super) const LONG: Duration = Duration::from_secs(30);
const NONE: CompletionFlags = CompletionFlags::empty();
/// Bytes of a message, and messages that an end has room for.
const MESSAGE: usize = 64;
const PLACES: usize = 8;
/// Round trips of the traffic.
const TRIPS: u32 = 60;

fn net(side: u8) -> Net {
    Net { addr: [192, 168, 7, 1 + side].into(), prefix: 24, gateway: None, vlan: None }
}

fn failed(what: &str) -> impl Fn(dat_core::Error) -> anyhow::Error {
    move |error| anyhow!("{what}: {error}")
}

/// Says which phase begins, and waits until it may.
fn begin(phase: Phase, marks: bool) -> Result<()> {
    if !marks {
        return Ok(());
    }
    say(&format!("@phase {}", phase.name()))?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    if line.trim() == "fork" {
        // With a group to set, the child is made by fork.
        let gid = rustix::process::getgid().as_raw();
        let status = Command::new("true").gid(gid).status()?;
        ensure!(status.success(), "the child ends with {status}");
    }
    Ok(())
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// All phases on a host. An error is what the consumer sees.
fn phases(host: &VfioUser, marks: bool, connected: &mut Option<Instant>) -> Result<()> {
    begin(Phase::BringUp, marks)?;
    let mut room = Box::new(NicStorage::new());
    let mut nic = Nic::open(host, room.parts(), net(0), &Config::default())?;
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
        Event::Established(_) => *connected = Some(Instant::now()),
        other => bail!("{other:?}"),
    }

    begin(Phase::Traffic, marks)?;
    let seg = |at: usize| {
        let addr = lmr.region.addr + at as u64;
        [LmrTriplet { addr, len: MESSAGE as u32, context: lmr.lmr_context }]
    };
    for n in 0..TRIPS {
        buffer.copy_in(0, &contents(n, MESSAGE));
        nic.ep_post_recv(ep, &seg(1024), 1, NONE)?;
        nic.ep_post_send(ep, &seg(0), 2, NONE)?;
        for _ in 0..2 {
            match nic.evd_wait(evd, LONG, 1).map_err(|error| anyhow!("{error}"))? {
                Event::Dto(done) if done.status == DtoStatus::Success => {}
                Event::Dto(done) => bail!("{:?}", done.status),
                other => bail!("{other:?}"),
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
        other => bail!("{other:?}"),
    }
    nic.ep_free(ep).map_err(failed("ep_free"))?;
    nic.lmr_free(lmr.lmr).map_err(failed("lmr_free"))?;
    nic.evd_free(evd).map_err(failed("evd_free"))?;
    nic.pz_free(pz).map_err(failed("pz_free"))?;
    nic.close(CloseFlag::Graceful).map_err(failed("close"))?;
    buffer.release();
    Ok(())
}

/// The consumer's process.
///
/// # Errors
/// What it cannot recover from.
pub fn consumer(socket: &Path) -> Result<()> {
    let mut host = VfioUser::open(socket, &Options::default())?;
    let mut connected = None;
    if let Err(error) = phases(&host, true, &mut connected) {
        say(&format!("@sees {error:#}"))?;
        let start = Instant::now();
        host.renew()?;
        phases(&host, false, &mut connected)?;
        let took = connected.context("never connected")?.saturating_duration_since(start);
        say(&format!("@recovered {:.1} ms", took.as_secs_f64() * 1e3))?;
    }
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
