//! `dat bind` and `dat unbind`: a plan of writes to the tree, printed or executed.
//!
//! All devices are checked before the first is changed. A device that fails halfway is restored.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use tracing::info;
use vfio_host::sysfs::VFIO_PCI;
use vfio_host::{Address, PciAddress};

use super::args::{Bind, Unbind};
use super::doctor::ids_at_boot;
use super::failure::Failure;
use super::hca::{self, Hca, folder};
use super::out::Out;
use super::tree::Tree;
use super::{End, group, netdev};

/// The folder of that driver, once its module is loaded.
const VFIO_FOLDER: &str = "/sys/bus/pci/drivers/vfio-pci";
/// The file that makes the kernel probe for a driver again.
const PROBE: &str = "/sys/bus/pci/drivers_probe";
/// Longest wait for a driver to bind or unbind.
const PATIENCE: Duration = Duration::from_secs(5);

/// One write.
#[derive(Clone, Debug, Serialize)]
struct Step {
    path: String,
    value: String,
}

impl Step {
    fn new(path: impl Into<String>, value: impl Into<String>) -> Self {
        Self { path: path.into(), value: value.into() }
    }

    /// Returns it as a shell command.
    fn words(&self) -> String {
        let Self { path, value } = self;
        if value.is_empty() {
            return format!("echo > {path}");
        }
        format!("echo {value} > {path}")
    }

    fn run(&self, tree: &Tree) -> Result<(), Failure> {
        info!("{}", self.words());
        tree.write(&self.path, &self.value).map_err(|error| {
            let failure = Failure::new(format!("{}: {error}", self.words()));
            if error.kind() == io::ErrorKind::PermissionDenied {
                failure.remedy("only root may do this: sudo dat ...")
            } else {
                failure
            }
        })
    }
}

/// The steps for one device.
#[derive(Debug, Serialize)]
struct Plan {
    device: String,
    driver_before: Option<String>,
    driver_after: Option<String>,
    /// Reasons to refuse; empty if there are none.
    objections: Vec<String>,
    /// A command for each of them.
    remedies: Vec<String>,
    steps: Vec<Step>,
    done: bool,
    #[serde(skip)]
    address: PciAddress,
}

impl Plan {
    fn new(hca: &Hca) -> Self {
        Self {
            device: hca.address.to_string(),
            driver_before: hca.driver.clone(),
            driver_after: hca.driver.clone(),
            objections: Vec::new(),
            remedies: Vec::new(),
            steps: Vec::new(),
            done: false,
            address: hca.address,
        }
    }

    /// Adds the steps that unbind the present driver and probe for another one with this override.
    fn hand_over(&mut self, to: &str) {
        let folder = folder(&self.address);
        self.steps.push(Step::new(format!("{folder}/driver_override"), to));
        if self.driver_before.is_some() {
            self.steps.push(Step::new(format!("{folder}/driver/unbind"), self.device.clone()));
        }
        self.steps.push(Step::new(PROBE, self.device.clone()));
    }

    /// Executes the steps and waits until the driver has changed. Undoes them after a failure.
    fn run(&mut self, tree: &Tree) -> Result<(), Failure> {
        for step in &self.steps {
            if let Err(failure) = step.run(tree) {
                // Restore as far as possible; the first failure is the one to report.
                let over = format!("{}/driver_override", folder(&self.address));
                let _ = tree.write(&over, "");
                if self.driver_before.is_some() {
                    let _ = tree.write(PROBE, &self.device);
                }
                return Err(failure);
            }
        }
        let start = Instant::now();
        let link = format!("{}/driver", folder(&self.address));
        loop {
            self.driver_after = tree.link(&link);
            let changed = self.driver_after != self.driver_before;
            // The kernel acts at once; only the start of a driver may take a while. No driver at
            // all is a possible result too.
            let patience = match self.driver_after {
                Some(_) => PATIENCE,
                None => PATIENCE / 10,
            };
            if changed && self.driver_after.is_some() || start.elapsed() > patience {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Binds devices to vfio-pci.
pub(crate) fn bind(args: &Bind, out: &Out) -> Result<End, Failure> {
    let tree = args.root.tree();
    let hcas = hcas(&tree, &args.devices)?;
    let mut plans = Vec::new();
    for hca in &hcas {
        let mut plan = Plan::new(hca);
        if !hca.on_vfio() {
            (plan.objections, plan.remedies) = losses(&tree, hca).into_iter().unzip();
            plan.hand_over(VFIO_PCI);
        }
        plans.push(plan);
    }
    if !args.check && !tree.exists(VFIO_FOLDER) {
        return Err(
            Failure::new("the driver vfio-pci is not loaded").remedy("sudo modprobe vfio-pci")
        );
    }
    let refused = !args.force && plans.iter().any(|plan| !plan.objections.is_empty());
    if args.check || refused {
        return report(&tree, &hcas, &plans, args, out);
    }
    for plan in &mut plans {
        if plan.steps.is_empty() {
            out.say(&format!("{} is bound to vfio-pci already", plan.device))?;
            continue;
        }
        plan.run(&tree)?;
        if plan.driver_after.as_deref() != Some(VFIO_PCI) {
            let now = plan.driver_after.as_deref().unwrap_or("no driver");
            return Err(Failure::new(format!(
                "{}: the kernel did not bind it to vfio-pci; it has {now}",
                plan.device
            ))
            .remedy("the kernel log says why: dmesg | tail"));
        }
        plan.done = true;
        out.say(&format!(
            "{}: {} -> vfio-pci",
            plan.device,
            plan.driver_before.as_deref().unwrap_or("no driver")
        ))?;
    }
    for text in leftovers(&tree, &hcas, &[]) {
        out.say(&text)?;
    }
    if out.json() {
        out.result(&plans, "")?;
    }
    Ok(End::Ok)
}

/// Prints what would be done, or why it is refused.
fn report(
    tree: &Tree,
    hcas: &[Hca],
    plans: &[Plan],
    args: &Bind,
    out: &Out,
) -> Result<End, Failure> {
    let mut text = String::new();
    let mut line = |words: &str| {
        text.push_str(words);
        text.push('\n');
    };
    let (mut refused, mut objected) = (false, false);
    for plan in plans {
        if plan.steps.is_empty() {
            line(&format!("{}: bound to vfio-pci already", plan.device));
            continue;
        }
        for (objection, remedy) in plan.objections.iter().zip(&plan.remedies) {
            let verb = if args.force {
                "will be lost"
            } else {
                objected = true;
                "refused"
            };
            line(&format!("{}: {verb}: {objection}", plan.device));
            if !args.force {
                line(&format!("  -> {remedy}"));
            }
        }
        if args.check {
            line(&format!("{}: would do, as root:", plan.device));
            for step in &plan.steps {
                line(&format!("  {}", step.words()));
            }
        }
    }
    if args.check && !tree.exists(VFIO_FOLDER) {
        line("before that: the driver vfio-pci is not loaded: sudo modprobe vfio-pci");
        refused = true;
    }
    if args.check {
        let asked: Vec<String> = plans.iter().map(|plan| plan.device.clone()).collect();
        for words in leftovers(tree, hcas, &asked) {
            line(&words);
        }
    }
    if objected {
        line(
            "help: --force does it anyway; you lose a machine that you reach through that interface",
        );
    }
    out.result(&plans, &text)?;
    Ok(if refused || objected { End::Failed } else { End::Ok })
}

/// Returns what this machine would lose with the function's driver, each with the command that gives
/// it up first.
pub(crate) fn losses(tree: &Tree, hca: &Hca) -> Vec<(String, String)> {
    let carried = hca.netdevs.iter().flat_map(|name| netdev::carries(tree, name));
    let mut found: Vec<(String, String)> = carried
        .map(|(name, words)| {
            (words, format!("from another interface: sudo ip addr flush dev {name}"))
        })
        .collect();
    if hca.virtual_functions > 0 {
        found.push((
            format!("its {} virtual functions vanish with its driver", hca.virtual_functions),
            format!("echo 0 | sudo tee {}/sriov_numvfs", folder(&hca.address)),
        ));
    }
    found
}

/// Returns messages about devices of the same groups that still block them, except `asked`.
fn leftovers(tree: &Tree, hcas: &[Hca], asked: &[String]) -> Vec<String> {
    let mut groups: Vec<u32> = hcas.iter().filter_map(|hca| hca.iommu_group).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut said = Vec::new();
    for number in groups {
        let members: Vec<_> = group::members(tree, number)
            .into_iter()
            .filter(|member| !asked.contains(&member.address))
            .collect();
        if let Some(command) = group::mend(&members) {
            said.push(format!(
                "IOMMU group {number} cannot be used before all of it is handed over: {command}"
            ));
        }
    }
    for hca in hcas.iter().filter(|hca| hca.iommu_group.is_none()) {
        said.push(format!("{} is in no IOMMU group: dat doctor says what to do", hca.address));
    }
    said
}

/// Unbinds devices from vfio-pci.
pub(crate) fn unbind(args: &Unbind, out: &Out) -> Result<End, Failure> {
    let tree = args.root.tree();
    let hcas = hcas(&tree, &args.devices)?;
    let mut plans = Vec::new();
    for hca in &hcas {
        let mut plan = Plan::new(hca);
        if hca.driver.is_none() || hca.on_vfio() {
            plan.hand_over("");
        }
        plans.push(plan);
    }
    let mut text = String::new();
    for (plan, hca) in plans.iter_mut().zip(&hcas) {
        if let (true, Some(driver)) = (plan.steps.is_empty(), &plan.driver_before) {
            text.push_str(&format!("{} has its driver {driver} already\n", plan.device));
            continue;
        }
        if args.check {
            text.push_str(&format!("{}: would do, as root:\n", plan.device));
            for step in &plan.steps {
                text.push_str(&format!("  {}\n", step.words()));
            }
            continue;
        }
        plan.run(&tree)?;
        let before = plan.driver_before.as_deref().unwrap_or("no driver");
        match plan.driver_after.as_deref() {
            Some(VFIO_PCI) => {
                return Err(Failure::new(format!(
                    "{}: the kernel bound it to vfio-pci again",
                    plan.device
                ))
                .remedy(match ids_at_boot(&tree, hca) {
                    Some(place) => format!("take it out of {place}, and restart"),
                    None => {
                        "look for an `ids=` option of vfio-pci: modprobe --showconfig | grep vfio"
                            .into()
                    }
                }));
            }
            Some(driver) => text.push_str(&format!("{}: {before} -> {driver}\n", plan.device)),
            None => text.push_str(&format!(
                "{}: {before} -> no driver; sudo modprobe mlx5_core gives it one\n",
                plan.device
            )),
        }
        plan.done = true;
    }
    out.result(&plans, &text)?;
    Ok(End::Ok)
}

fn hcas(tree: &Tree, devices: &[Address]) -> Result<Vec<Hca>, Failure> {
    let one = |device: &Address| match device {
        Address::Pci(address) => hca::one(tree, *address),
        Address::User(_) => {
            Err(Failure::usage(format!("{device}: only PCI devices have a driver to be bound to")))
        }
    };
    devices.iter().map(one).collect()
}
