//! `dat doctor`: what stands between this user and traffic, and how to mend it.
//!
//! Every check is a row: its name, the device it is about, how it came out, what was found, what to
//! do. The checks of the machine and of a device read files; only what the device itself says needs
//! it opened, and that only if all else is well.

mod function;
mod machine;

use serde::Serialize;
use vfio_host::Address;

use super::End;
use super::args::Doctor;
use super::failure::Failure;
use super::hca::{self, Hca};
use super::info;
use super::out::Out;
use super::tree::Tree;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// As it should be.
    Ok,
    /// It works, but not as well as it could, or something is worth knowing.
    Warn,
    /// It stands in the way.
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
    /// What was looked at.
    pub(crate) check: &'static str,
    /// The device it is about, if about one.
    pub(crate) device: Option<String>,
    /// How it came out.
    pub(crate) state: State,
    /// What was found.
    pub(crate) found: String,
    /// What to do, one thing a line.
    pub(crate) remedy: Vec<String>,
}

impl Check {
    /// A check of the machine.
    pub(crate) fn new(check: &'static str, state: State, found: impl Into<String>) -> Self {
        Self { check, device: None, state, found: found.into(), remedy: Vec::new() }
    }

    /// Names the device it is about.
    #[must_use]
    pub(crate) fn of(mut self, device: &impl ToString) -> Self {
        self.device = Some(device.to_string());
        self
    }

    /// Adds something to do.
    #[must_use]
    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy.push(remedy.into());
        self
    }
}

/// What there is to tell at the end.
#[derive(Debug, Serialize)]
struct Told {
    well: bool,
    checks: Vec<Check>,
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
                checks.extend(function::checks(&tree, hca));
            }
        }
        Some(Address::Pci(address)) => {
            checks.extend(machine::checks(&tree));
            checks.extend(function::checks(&tree, &hca::one(&tree, *address)?));
        }
        // Nothing of this machine is asked of such a device but its socket.
        Some(Address::User(_)) => {}
    }
    if let Some(device) = &doctor.device
        && !doctor.closed
        && tree.is_machine()
        && well(&checks)
    {
        checks.extend(info::checks(device));
    }
    let told = Told { well: well(&checks), checks };
    out.result(&told, &words(&told, &tree))?;
    Ok(if told.well { End::Ok } else { End::Failed })
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

fn words(told: &Told, tree: &Tree) -> String {
    let mut text = String::new();
    let mut about = None;
    for check in &told.checks {
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
    let failed = told.checks.iter().filter(|check| check.state == State::Fail).count();
    let tree = if tree.is_machine() { "" } else { " (of a copy; the device was not opened)" };
    text.push_str(&match failed {
        0 => format!("\nnothing stands in the way{tree}\n"),
        1 => format!("\n1 thing stands in the way{tree}\n"),
        n => format!("\n{n} things stand in the way{tree}\n"),
    });
    text
}
