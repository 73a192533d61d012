//! The device, open and with an address: what every traffic command starts from and ends with.

use std::time::{Duration, Instant};

use dat_core::provider::{Net, Provider};
use dat_core::{CloseFlag, DatReturn, DtoStatus, Ep, Evd, Event};
use hca_mlx5::Config;
use hca_mlx5::cmd::dump::{Dump, Observer};
use tracing::{debug, info, trace};
use vfio_host::{Address, Host, Nic, Opened, Options, Room, WaitError};

use super::super::args::Adapter;
use super::super::failure::Failure;
use super::super::signals;

/// Memory for the buffers of tests, besides what the library suggests: in all, and of it what the
/// device only reads.
const BUFFERS: usize = 24 << 20;
const SEND_BUFFERS: usize = 8 << 20;
/// Longest sleep: so soon a Ctrl-C is heeded.
pub(crate) const SLICE: Duration = Duration::from_millis(100);
/// Looks at an empty queue between two looks at everything else.
const LOOKS: u32 = 64;

/// What a command does on an open adapter of either kind of host.
pub(crate) trait Play {
    /// What comes of it.
    type Told;

    /// Does it. What it made goes with the adapter if it fails.
    fn play<'p, H: Host>(self, nic: &mut Nic<'_, 'p, H>) -> Result<Self::Told, Failure>;
}

/// How much memory the device gets.
pub(crate) fn options() -> Options {
    let suggested = Options::default();
    Options {
        arena: suggested.arena + BUFFERS,
        read_only: suggested.read_only + SEND_BUFFERS,
        ..suggested
    }
}

/// Commands of the device go to the log.
struct Log;

impl Observer for Log {
    fn command(&self, dump: &Dump<'_>) {
        trace!("\n{dump}");
    }
}

/// How the device is brought up.
pub(crate) fn bring_up_config() -> Config<'static> {
    Config { observer: Some(&Log), ..Config::default() }
}

/// Opens the device, plays, and gives everything back.
pub(crate) fn with<P: Play>(adapter: &Adapter, play: P) -> Result<P::Told, Failure> {
    signals::watch()?;
    let net = adapter.net()?;
    let mut config = bring_up_config();
    if let Some(mtu) = adapter.mtu {
        config = config.with_path_mtu(mtu);
    }
    match open(&adapter.device)? {
        Opened::Vfio(host) => on(&host, net, &config, play),
        Opened::User(host) => on(&host, net, &config, play),
    }
}

/// Opens the device.
pub(crate) fn open(device: &Address) -> Result<Opened, Failure> {
    info!("opening {device}");
    vfio_host::open(device, &options()).map_err(Failure::from)
}

fn on<'p, H: Host, P: Play>(
    host: &'p H,
    net: Net,
    config: &Config<'p>,
    play: P,
) -> Result<P::Told, Failure> {
    let mut room = Box::new(Room::new());
    let mut nic = Nic::open(host, room.parts(), net, config).map_err(|error| {
        let failure = Failure::from(error);
        if failure.remedy.is_empty() {
            return failure.remedy(format!("dat doctor {} looks closer", host.name()));
        }
        failure
    })?;
    info!("{} is up, with the address {}", host.name(), net.addr);
    let told = play.play(&mut nic);
    let flag = match told {
        Ok(_) => CloseFlag::Graceful,
        Err(_) => CloseFlag::Abrupt,
    };
    let closed = nic.close(flag);
    info!("{} is closed", host.name());
    let told = told?;
    closed.map_err(|error| Failure::new(format!("closing {}: {error}", host.name())))?;
    Ok(told)
}

/// Why nothing works any more, if the device is lost.
pub(crate) fn trouble<H: Host>(nic: &Nic<'_, '_, H>) -> Option<Failure> {
    if let Some(trouble) = nic.host().trouble() {
        return Some(trouble.into());
    }
    let fault = nic.lost()?;
    Some(Failure::fault(nic.host().name(), *fault))
}

/// The next event of an Event Dispatcher, if one comes within `limit`. Spins if told to, else
/// sleeps until the device interrupts.
pub(crate) fn next<H: Host>(
    nic: &mut Nic<'_, '_, H>,
    evd: Evd,
    limit: Duration,
    spin: bool,
) -> Result<Option<Event>, Failure> {
    let event = if spin {
        spin_for(nic, evd, limit)?
    } else {
        match nic.evd_wait(evd, limit, 1) {
            Ok(event) => Some(event),
            Err(WaitError::TIMEOUT) => None,
            Err(WaitError::Dat(ret)) => return Err(dat("dat_evd_wait", ret)),
            Err(WaitError::Device(trouble)) => return Err(trouble.into()),
        }
    };
    match event {
        Some(event) => {
            debug!("{event:?}");
            Ok(Some(event))
        }
        None => trouble(nic).map_or(Ok(None), Err),
    }
}

fn spin_for<H: Host>(
    nic: &mut Nic<'_, '_, H>,
    evd: Evd,
    limit: Duration,
) -> Result<Option<Event>, Failure> {
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS {
            match nic.evd_dequeue(evd) {
                Ok(event) => return Ok(Some(event)),
                Err(DatReturn::QUEUE_EMPTY) => std::hint::spin_loop(),
                Err(ret) => return Err(dat("dat_evd_dequeue", ret)),
            }
        }
        nic.advance();
        if let Some(trouble) = trouble(nic) {
            return Err(trouble);
        }
        if start.elapsed() >= limit {
            return Ok(None);
        }
        std::thread::yield_now();
    }
}

/// Greatest payload of a packet of this adapter's port.
pub(crate) fn path_mtu<H: Host>(nic: &Nic<'_, '_, H>) -> u16 {
    u16::try_from(nic.provider().limits().mtu.bytes()).unwrap_or(u16::MAX)
}

/// A number that no two tests share.
pub(crate) fn seed<H: Host>(nic: &Nic<'_, '_, H>) -> u64 {
    nic.host().entropy()
}

/// A DAT call failed.
pub(crate) fn dat(call: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("{call}: {error}"))
}

/// Why a connection is no more, as far as this side knows.
pub(crate) fn broken<H: Host>(nic: &mut Nic<'_, '_, H>, ep: Ep, peer: &str) -> Failure {
    // The news of the device itself may come after that of the connection.
    nic.advance();
    if let Some(trouble) = trouble(nic) {
        return trouble;
    }
    match nic.ep_cause(ep) {
        Ok(Some(fault)) => Failure::fault(&format!("the connection to {peer} broke"), fault),
        Ok(None) | Err(_) => Failure::new(format!("the connection to {peer} broke"))
            .remedy("look at the peer: its dat, its device, the cable"),
    }
}

/// Why an operation failed, in words, and what to do.
pub(crate) fn status(status: DtoStatus) -> (&'static str, &'static str) {
    match status {
        DtoStatus::Success => ("it succeeded", ""),
        DtoStatus::ErrFlushed => {
            ("the connection ended before it ran", "the peer's output says why")
        }
        DtoStatus::ErrLocalLength => {
            ("a message did not fit its receive", "are both dat of the same version?")
        }
        DtoStatus::ErrLocalEp => {
            ("the device refused the request", "this is a bug: run it again with -vvv")
        }
        DtoStatus::ErrLocalProtection => {
            ("the device refused local memory", "this is a bug: run it again with -vvv")
        }
        DtoStatus::ErrBadResponse => {
            ("the peer's answer makes no sense", "is another device using that address?")
        }
        DtoStatus::ErrRemoteAccess => {
            ("the peer's device refused its memory", "are both dat of the same version?")
        }
        DtoStatus::ErrRemoteResponder => {
            ("the peer could not carry it out", "the peer's output says why")
        }
        DtoStatus::ErrTransport => (
            "no acknowledgement came after all retries",
            "is the peer still there? does the path carry frames of this MTU (--mtu 1024 is safe), and is flow control set up?",
        ),
        DtoStatus::ErrReceiverNotReady => (
            "the peer had no receive posted after all retries",
            "the peer hangs, or its machine is too busy",
        ),
        DtoStatus::ErrPartialPacket | DtoStatus::ErrLocalMmError => {
            ("the device says something that does not exist here", "")
        }
        DtoStatus::RmrOperationFailed => (
            "the device refused to bind a memory window",
            "dat info says whether the device has memory windows",
        ),
    }
}
