//! `dat bind` and `dat unbind`: a plan of writes to tree, told or carried out.
//!
//! All devices are looked at before the first is touched. A device that cannot be handed over is
//! given back.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use tracing::info;
use vfio_host::sysfs::VFIO_PCI;
use vfio_host::{Address, PciAddress};

use super::args::{Bind, Unbind};
use super::failure::Failure;
use super::hca::{self, Hca, folder};
use super::out::Out;
use super::tree::Tree;
use super::{End, group, netdev};

/// Where that driver is, once its module is loaded.
const VFIO_FOLDER: &str = "/sys/bus/pci/drivers/vfio-pci";
/// Where the kernel is told to look for a driver again.
const PROBE: &str = "/sys/bus/pci/drivers_probe";
/// So long a driver may take to appear, or to go.
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

    /// As a shell does it.
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

/// What is to be done to one device, or has been.
#[derive(Debug, Serialize)]
struct Plan {
    device: String,
    driver_before: Option<String>,
    driver_after: Option<String>,
    /// Why it is not done; empty if nothing stands against it.
    objections: Vec<String>,
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
            steps: Vec::new(),
            done: false,
            address: hca.address,
        }
    }

    /// The steps that leave the present driver and look for another one, with this override.
    fn hand_over(&mut self, to: &str) {
        let folder = folder(&self.address);
        self.steps.push(Step::new(format!("{folder}/driver_override"), to));
        if self.driver_before.is_some() {
            self.steps.push(Step::new(format!("{folder}/driver/unbind"), self.device.clone()));
        }
        self.steps.push(Step::new(PROBE, self.device.clone()));
    }

    /// Does it, and waits until the driver is another one than before. What fails in the middle is
    /// undone.
    fn run(&mut self, tree: &Tree) -> Result<(), Failure> {
        for step in &self.steps {
            if let Err(failure) = step.run(tree) {
                // As it was before, as far as it goes: the first failure is the one to tell.
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
            // The kernel answers at once; only a driver's own start may take a while. No driver at
            // all is an answer too.
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

/// Hands devices to vfio-pci.
pub(crate) fn bind(args: &Bind, out: &Out) -> Result<End, Failure> {
    let tree = args.root.tree();
    let hcas = hcas(&tree, &args.devices)?;
    let mut plans = Vec::new();
    for hca in &hcas {
        let mut plan = Plan::new(hca);
        if !hca.on_vfio() {
            plan.objections = objections(&tree, hca);
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
        return told(&tree, &hcas, &plans, args, out);
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

/// Tells what would be done, or why it is not.
fn told(tree: &Tree, hcas: &[Hca], plans: &[Plan], args: &Bind, out: &Out) -> Result<End, Failure> {
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
        for objection in &plan.objections {
            let verb = if args.force {
                "will be lost"
            } else {
                objected = true;
                "refused"
            };
            line(&format!("{}: {verb}: {objection}", plan.device));
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
            "help: --force does it nevertheless; a machine reached through that interface is lost by it",
        );
    }
    out.result(&plans, &text)?;
    Ok(if refused || objected { End::Failed } else { End::Ok })
}

/// What this machine would lose.
fn objections(tree: &Tree, hca: &Hca) -> Vec<String> {
    let mut found: Vec<String> =
        hca.netdevs.iter().flat_map(|name| netdev::carries(tree, name)).collect();
    if hca.virtual_functions > 0 {
        found.push(format!(
            "its {} virtual functions vanish with its driver",
            hca.virtual_functions
        ));
    }
    found
}

/// Devices of the same groups that still stand in the way, those `asked` for left out.
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

/// Hands devices back.
pub(crate) fn unbind(args: &Unbind, out: &Out) -> Result<End, Failure> {
    let tree = args.root.tree();
    let mut plans = Vec::new();
    for hca in hcas(&tree, &args.devices)? {
        let mut plan = Plan::new(&hca);
        if hca.driver.is_none() || hca.on_vfio() {
            plan.hand_over("");
        }
        plans.push(plan);
    }
    let mut text = String::new();
    for plan in &mut plans {
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
                .remedy("look for an `ids=` option of vfio-pci in /etc/modprobe.d and on the kernel's command line"));
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
