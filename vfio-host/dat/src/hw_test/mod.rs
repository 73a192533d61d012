//! `dat hw-test`: what a card that nobody here has seen does, step by step, as a report to send.
//!
//! [`guards`] says whether the machine can do without the function, then each step is a file.
//! A step brings the device up anew, so that one that fails does not take the next with it.
//! [`watch`] sees every command, [`report`] writes lines, [`names`] hides who owns the card.

mod commands;
mod facts;
mod guards;
mod machine;
mod names;
mod replay;
mod report;
mod segment;
mod watch;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use dat_core::CloseFlag;
use dat_core::provider::Net;
use hca_mlx5::Config;
use serde::Serialize;
use serde_json::json;
use vfio_host::{Host, Nic, NicStorage, Opened};

use self::names::Names;
use self::report::{Report, fail};
use self::watch::{Mode, Watch};
use super::args::HwTest;
use super::failure::Failure;
use super::out::Out;
use super::tree::Tree;
use super::{End, hca, signals, traffic};

/// Number of steps.
pub(crate) const STEPS: u8 = 12;
/// The port's address if nobody gives another: nothing but this program answers for it.
const OWN: (Ipv4Addr, u8) = (Ipv4Addr::new(169, 254, 77, 1), 16);

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
    if let IpAddr::V4(own) = net.addr
        && own != OWN.0
    {
        names.ip(net.addr);
    }
    args.peer.into_iter().for_each(|peer| names.ip(peer));
    let report =
        if resumes { Report::resume(&path, names)? } else { Report::create(&path, names)? };
    let watch = Watch::new(&report);
    let run = Run { args, tree: &tree, report: &report, watch: &watch, net };
    let tested = match traffic::open_device(device) {
        Ok(Opened::Vfio(host)) => run.steps(host),
        Ok(Opened::User(host)) => run.steps(host),
        Err(failure) => Err(failure),
    };
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
        "{} passed, {} failed; send {}\n",
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

    /// Makes all steps on an open device.
    fn steps<H: Host>(&self, mut host: H) -> Result<(), Failure> {
        let space = host.config_space()?;
        let (vendor, id) = space.id().unwrap_or((u16::MAX, u16::MAX));
        let device = format!("{vendor:04x}:{id:04x}");
        self.report.head(&device, space.revision().unwrap_or(0), hca::name(id.into()))?;
        if self.wants(0) {
            guards::run(self.args, self.tree, self.report)?;
        }
        if self.wants(1) {
            machine::run(self.args, self.tree, self.report, &host)?;
        }
        if self.wants(2) {
            segment::run(self.report, &mut host)?;
        }
        self.session(&mut host, 3, Mode::Full, |nic| commands::run(nic, self.report))?;
        Ok(())
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
        self.stop()?;
        self.report.prepare(step, "reset", || {
            host.renew()?;
            Ok(String::new())
        })?;
        let host: &'h H = host;
        self.watch.forget();
        self.watch.set(mode);
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
        self.report.prepare(step, "close", || {
            let closed = nic.close(CloseFlag::Abrupt);
            let pages = self.watch.pages();
            self.report.line(
                "pages",
                json!({
                    "boot": pages.boot, "init": pages.init, "regular": pages.regular,
                    "returned": pages.returned,
                }),
                false,
            );
            facts::report_teardown(self.report, self.watch);
            closed?;
            if pages.given() != pages.returned {
                return fail(format!("{} pages given, {} back", pages.given(), pages.returned));
            }
            Ok(format!("{} pages given and given back", pages.given()))
        })?;
        acted
    }

    /// A failure if the user wants an end.
    fn stop(&self) -> Result<(), Failure> {
        if signals::asked() {
            return Err(Failure::new("interrupted").remedy("--resume continues the report"));
        }
        Ok(())
    }
}
