//! `dat hw-test`: what a card that nobody here has seen does, step by step, as a report to send.
//!
//! [`guards`] says whether the machine can do without the function, then each step is a file.
//! A step brings the device up anew, so that one that fails does not take the next with it.
//! [`watch`] sees every command, [`report`] writes lines, [`names`] hides who owns the card.

mod commands;
mod ends;
mod events;
mod facts;
mod guards;
mod keys;
mod link;
mod machine;
mod names;
mod numbers;
mod pages;
mod pair;
mod peer;
mod queue_pair;
mod raw;
mod replay;
mod report;
mod resume;
mod segment;
mod watch;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use dat_core::CloseFlag;
use dat_core::provider::Net;
use hca_mlx5::Config;
use serde::Serialize;
use serde_json::json;
use vfio_host::{Address, Host, Nic, NicStorage, Opened, Options};

use self::names::Names;
use self::report::{Report, fail};
use self::watch::{Mode, Pages, Watch};
use super::args::HwTest;
use super::failure::Failure;
use super::out::Out;
use super::tree::Tree;
use super::{End, hca, signals, traffic};

/// Number of steps.
pub(crate) const STEPS: u8 = 12;
/// The port's address if nobody gives another: nothing but this program answers for it.
const OWN: (Ipv4Addr, u8) = (Ipv4Addr::new(169, 254, 77, 1), 16);

/// The step that resets the device in traffic.
const RESETS: u8 = 10;

/// Steps for which the device is opened once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    First,
    Writable,
    Link,
    Ends,
    Last,
}

impl Part {
    fn steps(self) -> std::ops::RangeInclusive<u8> {
        match self {
            Self::First => 0..=6,
            Self::Writable => 6..=6,
            Self::Link => 7..=7,
            Self::Ends => 9..=10,
            Self::Last => 11..=11,
        }
    }
}

/// What every step has at hand.
struct Run<'a> {
    args: &'a HwTest,
    tree: &'a Tree,
    report: &'a Report,
    watch: &'a Watch<'a>,
    net: Net,
}

/// The result of the command.
#[derive(Debug, Serialize)]
struct Summary {
    passed: u32,
    failed: u32,
    skipped: u32,
    report: PathBuf,
}

/// Reads a report, as one that is continued.
pub(crate) fn read_report(file: &Path) -> Result<(), Failure> {
    Report::resume(file, Names::new(true)).map(drop)
}

pub(crate) fn run(args: &HwTest, out: &Out) -> Result<End, Failure> {
    if let Some(file) = &args.replay {
        return replay::run(args, file, out);
    }
    let Some(device) = &args.device else {
        return Err(Failure::usage("a DEVICE is missing"));
    };
    let (path, resumes) = args.file()?;
    let net = args.net(OWN)?;
    signals::watch()?;
    let tree = args.root.tree();
    let undo = guards::pass(args, &tree, out)?;

    let mut names = Names::new(!args.names);
    names.text(&device.to_string(), "DEVICE");
    if net.addr != IpAddr::V4(OWN.0) {
        names.ip(net.addr);
    }
    args.peer.into_iter().for_each(|peer| names.ip(peer));
    let report =
        if resumes { Report::resume(&path, names)? } else { Report::create(&path, names)? };
    let watch = Watch::new(&report);
    let run = Run { args, tree: &tree, report: &report, watch: &watch, net };
    let tested = run.all(device);
    let tally = report.finish()?;
    tested?;
    let summary = Summary {
        passed: tally.passed,
        failed: tally.failed,
        skipped: tally.skipped,
        report: report.path().to_path_buf(),
    };
    if !undo.is_empty() {
        out.say(&undo)?;
    }
    let text = format!(
        "{}{} passed, {} failed; send {}\n",
        report.table(),
        summary.passed,
        summary.failed,
        report.path().display()
    );
    out.result(&summary, &text)?;
    Ok(if tally.failed == 0 { End::Ok } else { End::Failed })
}

impl<'a> Run<'a> {
    /// Whether a step is to be done.
    fn wants(&self, step: u8) -> bool {
        self.args.wants(step) && self.report.wants(step)
    }

    /// Makes all steps. Between some the device is closed: for another program, or to be opened
    /// otherwise.
    fn all(&self, device: &Address) -> Result<(), Failure> {
        let usual = traffic::options();
        self.part(device, &usual, Part::First)?;
        self.part(device, &Options { read_only: 0, ..usual }, Part::Writable)?;
        self.part(device, &usual, Part::Link)?;
        if self.wants(8) {
            peer::run(self, device)?;
        }
        self.part(device, &usual, Part::Ends)?;
        if self.wants(10) {
            ends::kill(self, device)?;
            ends::virtual_function(self, device)?;
        }
        self.part(device, &usual, Part::Last)
    }

    /// Opens the device and makes some steps.
    fn part(&self, device: &Address, options: &Options, part: Part) -> Result<(), Failure> {
        if !part.steps().any(|step| self.wants(step)) && part != Part::First {
            return Ok(());
        }
        match vfio_host::open(device, options)? {
            Opened::Vfio(host) => self.steps(host, part),
            Opened::User(host) => self.steps(host, part),
        }
    }

    fn steps<H: Host>(&self, mut host: H, part: Part) -> Result<(), Failure> {
        let host = &mut host;
        match part {
            Part::First => {
                let space = host.config_space()?;
                let (vendor, id) = space.id().unwrap_or((u16::MAX, u16::MAX));
                let device = format!("{vendor:04x}:{id:04x}");
                let revision = space.revision().unwrap_or(0);
                self.report.head(&device, revision, hca::name(id.into()))?;
                if self.wants(0) {
                    guards::run(self.args, self.tree, self.report)?;
                }
                if self.wants(1) {
                    machine::run(self.args, self.tree, self.report, host)?;
                }
                if self.wants(2) {
                    segment::run(self.report, host)?;
                }
                self.session(host, 3, Mode::Full, |nic| commands::run(nic, self.report))?;
                self.session(host, 4, Mode::Brief, |nic| events::run(nic, self))?;
                self.session(host, 5, Mode::Brief, |nic| queue_pair::run(nic, self))?;
                self.session(host, 6, Mode::Brief, |nic| keys::run(nic, self))
            }
            Part::Writable => self.session(host, 6, Mode::Brief, |nic| keys::writable(nic, self)),
            Part::Link => self.session(host, 7, Mode::Brief, |nic| link::run(nic, self)),
            Part::Ends => {
                if self.wants(9) {
                    pages::run(host, self)?;
                }
                self.session(host, 10, Mode::Brief, |nic| ends::enable(nic, self))?;
                self.session(host, 10, Mode::Brief, |nic| ends::reset(nic, self))?;
                if self.wants(10) { ends::reopen(host, self) } else { Ok(()) }
            }
            Part::Last => {
                self.session(host, 11, Mode::Brief, |nic| numbers::run(nic, self))?;
                if !self.wants(11) {
                    return Ok(());
                }
                self.report.check(11, "configuration-space", || {
                    segment::keep(self.report, "after", host, 0.0);
                    machine::config_space(self.report, "after", &host.config_space()?);
                    Ok(String::new())
                })?;
                self.report.check(11, "kernel-log", || {
                    machine::kernel_log(self.args, self.tree, self.report)
                })?;
                Ok(())
            }
        }
    }

    /// Brings the device up, makes a step, and takes it down.
    fn session<'h, H: Host>(
        &'h self,
        host: &'h mut H,
        step: u8,
        mode: Mode,
        act: impl FnOnce(&mut Nic<'_, 'h, H>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if !self.wants(step) {
            return Ok(());
        }
        self.renew(host, step, mode)?;
        let host: &'h H = host;
        let mut room = Box::new(NicStorage::new());
        let mut nic = None;
        let config = Config { observer: Some(self.watch), ..Config::default() };
        let up = self.report.prepare(step, "bring-up", || {
            nic = Some(Nic::open(host, room.parts(), self.net, &config)?);
            Ok(format!("{} commands", self.watch.count()))
        });
        facts::report_bring_up(self.report, self.watch);
        up?;
        let Some(mut nic) = nic else { return Ok(()) };
        let acted = act(&mut nic);
        self.watch.set(mode);
        let lost = nic.lost().copied();
        self.report.prepare(step, "close", || {
            let closed = nic.close(CloseFlag::Abrupt);
            let pages = self.pages();
            match lost {
                // It was reset on purpose: nothing comes back.
                Some(_) if step == RESETS => return Ok("the device was reset".into()),
                Some(fault) => return fail(format!("the device was lost: {fault}")),
                None => closed?,
            }
            pages.balance()
        })?;
        acted
    }

    /// Resets the function for a step, and begins to see its commands anew.
    fn renew<H: Host>(&self, host: &mut H, step: u8, mode: Mode) -> Result<(), Failure> {
        self.stop()?;
        self.report.prepare(step, "reset", || {
            host.renew()?;
            Ok(String::new())
        })?;
        self.watch.forget();
        self.watch.set(mode);
        Ok(())
    }

    /// Writes what a teardown gave back.
    fn pages(&self) -> Pages {
        let pages = self.watch.pages();
        let Pages { boot, init, regular, returned } = pages;
        self.report.line(
            "pages",
            json!({ "boot": boot, "init": init, "regular": regular, "returned": returned }),
            false,
        );
        facts::report_teardown(self.report, self.watch);
        pages
    }

    /// A failure if the user wants an end.
    fn stop(&self) -> Result<(), Failure> {
        if signals::asked() {
            return Err(Failure::new("interrupted").remedy("--resume continues the report"));
        }
        Ok(())
    }
}
