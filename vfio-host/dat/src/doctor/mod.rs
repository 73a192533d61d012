//! `dat doctor`: checks all conditions for RDMA traffic and names remedies.
//!
//! Every check is a row: its name, its device, the result, the finding, the remedies. The checks of
//! the machine and of a device read files. The device is opened only if all other checks pass.

mod access;
mod causes;
mod function;
mod machine;

pub(crate) use function::ids_at_boot;

use serde::Serialize;
use vfio_host::Address;

use super::End;
use super::args::Doctor;
use super::failure::Failure;
use super::hca::{self, Hca};
use super::info;
use super::out::Out;
use super::tree::Tree;
use causes::Cause;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Passed.
    Ok,
    /// Usable with a restriction, or a remark.
    Warn,
    /// Prevents traffic.
    Fail,
}

impl State {
    fn mark(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

/// One check.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    /// Name of the check.
    pub(crate) check: &'static str,
    /// The device that it concerns, if any.
    pub(crate) device: Option<String>,
    /// The result.
    pub(crate) state: State,
    /// The finding.
    pub(crate) found: String,
    /// Remedies, one a line.
    pub(crate) remedy: Vec<String>,
}

impl Check {
    /// Makes a check of the machine.
    pub(crate) fn new(check: &'static str, state: State, found: impl Into<String>) -> Self {
        Self { check, device: None, state, found: found.into(), remedy: Vec::new() }
    }

    /// Sets the device that it concerns.
    #[must_use]
    pub(crate) fn of(mut self, device: &impl ToString) -> Self {
        self.device = Some(device.to_string());
        self
    }

    /// Makes a failed check of an error of the library.
    pub(crate) fn failed(check: &'static str, error: &vfio_host::Error) -> Self {
        Self::new(check, State::Fail, error.cause()).remedy(error.remedy())
    }

    /// Adds a remedy.
    #[must_use]
    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy.push(remedy.into());
        self
    }
}

/// The result of the command.
#[derive(Debug, Serialize)]
struct Report<'a> {
    well: bool,
    checks: &'a [Check],
    /// What did not pass, in the order to mend it.
    causes: Vec<Cause<'a>>,
}

pub(crate) fn run(doctor: &Doctor, out: &Out) -> Result<End, Failure> {
    let tree = doctor.root.tree();
    let mut checks = Vec::new();
    match &doctor.device {
        None => {
            checks.extend(machine::checks(&tree));
            let all = hca::all(&tree);
            checks.push(present(&all));
            for hca in all.iter().filter(|hca| hca.supported) {
                checks.extend(function::checks(&tree, hca, doctor.iommu.interface));
            }
        }
        Some(Address::Pci(address)) => {
            checks.extend(machine::checks(&tree));
            let hca = hca::one(&tree, *address)?;
            checks.extend(function::checks(&tree, &hca, doctor.iommu.interface));
        }
        // Such a device needs nothing of this machine except the socket.
        Some(Address::User(_)) => {}
    }
    if let Some(device) = &doctor.device {
        if !doctor.closed && tree.is_machine() && well(&checks) {
            checks.extend(info::checks(device, doctor.iommu, doctor.link));
        }
    }
    let report = Report { well: well(&checks), checks: &checks, causes: causes::ranked(&checks) };
    out.result(&report, &words(&report, &tree))?;
    Ok(if report.well { End::Ok } else { End::Failed })
}

fn well(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.state != State::Fail)
}

fn present(all: &[Hca]) -> Check {
    let usable = all.iter().filter(|hca| hca.supported).count();
    if usable > 0 {
        let s = if usable == 1 { "" } else { "s" };
        return Check::new("HCA", State::Ok, format!("{usable} mlx5 function{s} found"));
    }
    let found = match all.len() {
        0 => "none: no PCI network controller of NVIDIA/Mellanox (vendor 15b3)".into(),
        n => format!("none that this driver knows, but {n} other of NVIDIA/Mellanox"),
    };
    Check::new("HCA", State::Fail, found).remedy(
        "put in a ConnectX-4 or later, or use the device model over a socket: DEVICE vfio-user:PATH",
    )
}

fn words(report: &Report<'_>, tree: &Tree) -> String {
    let mut text = String::new();
    let mut about = None;
    for check in report.checks {
        if check.device != about {
            about.clone_from(&check.device);
            if let Some(device) = &about {
                text.push_str(&format!("\n{device}\n"));
            }
        }
        text.push_str(&format!("{:<5} {:<16} {}\n", check.state.mark(), check.check, check.found));
        for remedy in &check.remedy {
            text.push_str(&format!("      {:<16} -> {remedy}\n", ""));
        }
    }
    let failed = report.checks.iter().filter(|check| check.state == State::Fail).count();
    let tree = if tree.is_machine() { "" } else { " (of a copy; the device was not opened)" };
    text.push_str(&match failed {
        0 => format!("\nno problem found{tree}\n"),
        1 => format!("\n1 problem found{tree}\n"),
        n => format!("\n{n} problems found{tree}\n"),
    });
    if report.causes.len() > 1 {
        text.push_str("in this order, as one may be the cause of the next:\n");
    }
    for (nth, cause) in report.causes.iter().enumerate() {
        text.push_str(&cause.line(nth + 1));
    }
    text
}
