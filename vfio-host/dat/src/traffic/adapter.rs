//! Opens and closes the device with its network address, for every traffic command.

use std::time::{Duration, Instant};

use dat_core::provider::{Classes, Fault, Net, Provider};
use dat_core::{CloseFlag, DatReturn, DtoStatus, Ep, Evd, Event};
use hca_mlx5::Config;
use hca_mlx5::cmd::dump::{Dump, Observer};
use tracing::{debug, info, trace, warn};
use vfio_host::{Address, Host, Nic, NicStorage, Opened, Options, WaitError, class, status};

use super::super::args::{Adapter, Completions, Iommu, Link};
use super::super::failure::Failure;
use super::super::signals;

/// Memory for the buffers of tests, in addition to the default: in all, and the part of it that is
/// read-only for the device.
const BUFFERS: usize = 24 << 20;
const SEND_BUFFERS: usize = 8 << 20;
/// Longest sleep, which bounds the reaction time to Ctrl-C.
pub(crate) const SLICE: Duration = Duration::from_millis(100);
/// Polls of an empty queue between two calls of `advance`.
pub(crate) const LOOKS: u32 = 64;

/// The work of a command on an open adapter of either kind of host.
pub(crate) trait Task {
    /// The result.
    type Report;

    /// Runs it. After an error, closing the adapter frees the objects that it made.
    fn run<'p, H: Host>(self, nic: &mut Nic<'_, 'p, H>) -> Result<Self::Report, Failure>;
}

/// Returns the memory sizes of the host.
pub(crate) fn options() -> Options {
    let suggested = Options::default();
    Options {
        arena: suggested.arena + BUFFERS,
        read_only: suggested.read_only + SEND_BUFFERS,
        ..suggested
    }
}

/// Logs the commands of the device.
struct Log;

impl Observer for Log {
    fn command(&self, dump: &Dump<'_>) {
        trace!("\n{dump}");
    }
}

/// Returns the configuration for bring-up.
pub(crate) fn bring_up_config() -> Config<'static> {
    Config { observer: Some(&Log), hook: Some(&status::traced), ..Config::default() }
}

/// Opens the device, runs the task and closes the device.
pub(crate) fn with<T: Task>(adapter: &Adapter, task: T) -> Result<T::Report, Failure> {
    signals::watch()?;
    let net = adapter.net()?;
    let best_effort = adapter.class();
    if let Some(note) = class::note(best_effort, &net) {
        warn!("{note}");
    }
    let classes = Classes { best_effort, ..Classes::default() };
    let Completions { compress_completions, inline_receives } = adapter.completions;
    let mut config = Config {
        neighbours: &adapter.neigh,
        classes,
        compress_completions,
        inline_receives,
        subnet_manager: adapter.subnet_manager,
        ..bring_up_config()
    };
    if let Some(mtu) = adapter.mtu {
        config = config.with_path_mtu(mtu);
    }
    let mut options = options();
    options.interface = adapter.iommu.interface;
    if adapter.writable_queues {
        options.read_only = 0;
    }
    match open_with(&adapter.device, &options)? {
        Opened::Vfio(host) => on(&host, net, adapter.link, &config, task),
        Opened::User(host) => on(&host, net, adapter.link, &config, task),
    }
}

/// Opens the device.
pub(crate) fn open(device: &Address, iommu: Iommu) -> Result<Opened, Failure> {
    open_with(device, &Options { interface: iommu.interface, ..options() })
}

fn open_with(device: &Address, options: &Options) -> Result<Opened, Failure> {
    info!("opening {device}");
    let opened = vfio_host::open(device, options)?;
    if let Opened::Vfio(host) = &opened {
        info!("{device}: the IOMMU by {}", host.interface().word());
    }
    Ok(opened)
}

fn on<'p, H: Host, T: Task>(
    host: &'p H,
    net: Net,
    link: Link,
    config: &Config<'p>,
    task: T,
) -> Result<T::Report, Failure> {
    let mut room = Box::new(NicStorage::new());
    let mut nic = Nic::open(host, room.parts(), net, config).map_err(|error| {
        let failure = Failure::from(error);
        if failure.remedy.is_empty() {
            return failure.remedy(format!("run dat doctor {}", host.name()));
        }
        failure
    })?;
    info!("{} is up, with the address {}", host.name(), net.addr);
    if let Err(error) = nic.serve_status(&status::folder()) {
        // It moves data without.
        info!("dat top does not show this process: {error}");
    }
    let link = await_link(host.name(), link, || {
        // A subnet manager that is built in needs time to run.
        nic.advance();
        nic.provider_mut().link_up()
    });
    let done = link.and_then(|()| task.run(&mut nic));
    let flag = match done {
        Ok(_) => CloseFlag::Graceful,
        Err(_) => CloseFlag::Abrupt,
    };
    if let Some(counters) = nic.provider().neighbours() {
        info!("{}: neighbours: {counters}", host.name());
    }
    info!("{}: connection manager: {}", host.name(), nic.cm_counters());
    if let Some(warning) = nic.warning() {
        warn!("{}: the device reported trouble: {warning}", host.name());
    }
    let closed = nic.close(flag);
    match host.refused_stores() {
        0 => {}
        count => info!("{}: the server refused {count} register stores", host.name()),
    }
    info!("{} is closed", host.name());
    let report = done?;
    closed.map_err(|error| Failure::new(format!("closing {}: {error}", host.name())))?;
    Ok(report)
}

/// Waits for the link. Taking a card from its kernel driver takes its port down, and it comes up some
/// seconds after this driver has asked for it.
pub(crate) fn await_link(
    name: &str,
    Link { link_wait: wait }: Link,
    mut is_up: impl FnMut() -> Result<bool, Fault>,
) -> Result<(), Failure> {
    let start = Instant::now();
    let mut waits = false;
    while !is_up().map_err(|fault| Failure::fault(name, fault))? {
        if !std::mem::replace(&mut waits, true) {
            warn!("{name}: the link is down; waiting for it for up to {wait} s");
        }
        if start.elapsed() >= Duration::from_secs(wait) {
            return Err(Failure::new(format!("{name}: the link stayed down for {wait} s"))
                .remedy("plug the cable in, or look at the switch's port"));
        }
        if signals::asked() {
            return Err(Failure::new(format!("{name}: interrupted while waiting for the link")));
        }
        std::thread::sleep(SLICE);
    }
    if waits {
        warn!("{name}: the link is up after {:.1} s", start.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Returns the failure if the device is in trouble or lost.
pub(crate) fn trouble<H: Host>(nic: &Nic<'_, '_, H>) -> Option<Failure> {
    if let Some(trouble) = nic.host().trouble() {
        return Some(trouble.into());
    }
    let fault = nic.lost()?;
    Some(Failure::fault(nic.host().name(), *fault))
}

/// Returns the next event of an Event Dispatcher, `None` after `limit`. Polls if `spin`, otherwise
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
            Err(WaitError::TIMEOUT | WaitError::Lost(_)) => None,
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

/// Sleeps until one of the Event Dispatchers has an event, or for `limit`.
pub(crate) fn wait<H: Host>(
    nic: &mut Nic<'_, '_, H>,
    evds: &[Evd],
    limit: Duration,
) -> Result<(), Failure> {
    match nic.wait_any(evds, limit) {
        Ok(_) => Ok(()),
        Err(WaitError::TIMEOUT | WaitError::Lost(_)) => trouble(nic).map_or(Ok(()), Err),
        Err(WaitError::Dat(ret)) => Err(dat("dat_cno_wait", ret)),
        Err(WaitError::Device(trouble)) => Err(trouble.into()),
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

/// Returns the path MTU of this adapter's port.
pub(crate) fn path_mtu<H: Host>(nic: &Nic<'_, '_, H>) -> u16 {
    u16::try_from(nic.provider().limits().mtu.bytes()).unwrap_or(u16::MAX)
}

/// Returns a random seed for the contents of a test.
pub(crate) fn seed<H: Host>(nic: &Nic<'_, '_, H>) -> u64 {
    let bytes = nic.host().entropy().unwrap_or_default();
    bytes.first_chunk().map_or(0, |first| u64::from_ne_bytes(*first))
}

/// Makes the failure of a DAT call.
pub(crate) fn dat(call: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("{call}: {error}"))
}

/// Returns why a connection broke, as far as this side knows.
pub(crate) fn broken<H: Host>(nic: &mut Nic<'_, '_, H>, ep: Ep, peer: &str) -> Failure {
    // Trouble of the device itself may be reported after the broken connection.
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

/// Returns cause and remedy of a failed operation.
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
            ("the peer's answer is malformed", "is another device using that address?")
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
            ("the device reported a status that cannot occur here", "")
        }
        DtoStatus::RmrOperationFailed => (
            "the device refused to bind a memory window",
            "dat info says whether the device has memory windows",
        ),
    }
}
