//! `dat info`, and the checks of `dat doctor` that need an open device.

use std::net::Ipv6Addr;

use dat_core::provider::{Fault, Provider};
use hca_mlx5::platform::Blocks;
use hca_mlx5::{Congestion, IbPort, Mlx5, PortState};
use serde::Serialize;
use vfio_host::{Address, Host, Interface, Opened, Trouble};

use super::End;
use super::against::Differences;
use super::args::{Info, Iommu, Link};
use super::doctor::{Check, State};
use super::failure::Failure;
use super::hca::{self, Hca};
use super::out::{Out, table};
use super::traffic::{await_link, bring_up_config, open_device};

/// Properties read from the open device.
#[derive(Clone, Debug, Serialize)]
struct Said {
    pci_id: Option<String>,
    /// The kernel's interface to the IOMMU, if the device is on vfio-pci.
    iommu: Option<&'static str>,
    firmware: String,
    link_type: &'static str,
    /// The port in its InfiniBand subnet.
    #[serde(skip_serializing_if = "Option::is_none")]
    subnet: Option<InSubnet>,
    /// The port carries traffic.
    link_up: bool,
    mac: String,
    node_guid: String,
    /// Greatest payload of a packet.
    path_mtu: u32,
    /// Greatest frame.
    frame_size: u16,
    max_queue_pairs: u32,
    max_completion_queues: u32,
    max_memory_keys: u32,
    max_message: u32,
    memory_windows: bool,
    interrupt_vectors: u16,
    /// What a post writes to the device, and why not more.
    doorbells: &'static str,
    /// 4 KiB pages that the firmware holds.
    firmware_pages: u32,
    /// Congestion control as the firmware has it; none if the function may not ask.
    congestion_control: Option<CongestionControl>,
    /// The device has given its MAC; a virtual function has none before its host sets one.
    #[serde(skip)]
    mac_given: bool,
}

/// An InfiniBand port in its subnet.
#[derive(Clone, Debug, Serialize)]
struct InSubnet {
    state: &'static str,
    lid: u16,
    sm_lid: u16,
    gid: String,
    #[serde(skip)]
    waits_for_manager: bool,
}

impl InSubnet {
    fn of(port: &IbPort) -> Self {
        Self {
            state: port.state.name(),
            lid: port.lid,
            sm_lid: port.sm_lid,
            gid: Ipv6Addr::from_bits(port.gid).to_string(),
            waits_for_manager: matches!(port.state, PortState::Init | PortState::Armed),
        }
    }

    fn rows(&self) -> [Vec<String>; 4] {
        let lid = |lid: u16| if lid == 0 { "none".to_owned() } else { lid.to_string() };
        [
            row("port state", self.state),
            row("LID", lid(self.lid)),
            row("subnet manager's LID", lid(self.sm_lid)),
            row("GID", &self.gid),
        ]
    }
}

/// Congestion control of RoCE: priorities, and the notifications.
#[derive(Clone, Debug, Serialize)]
struct CongestionControl {
    reacts: Vec<u8>,
    notifies: Vec<u8>,
    cnp_dscp: u8,
    cnp_priority: u8,
    cnp_interval_us: u32,
}

impl CongestionControl {
    fn of(found: Congestion) -> Self {
        let priorities = |bits: u8| (0..8).filter(|bit| bits >> bit & 1 != 0).collect();
        Self {
            reacts: priorities(found.reacts),
            notifies: priorities(found.notifies),
            cnp_dscp: found.cnp_dscp,
            cnp_priority: found.cnp_priority,
            cnp_interval_us: found.cnp_interval,
        }
    }

    fn rows(&self) -> [Vec<String>; 3] {
        let priorities = |list: &[u8]| match list {
            [] => "off".to_owned(),
            list => {
                let list: Vec<String> = list.iter().map(u8::to_string).collect();
                format!("priorities {}", list.join(" "))
            }
        };
        let Self { cnp_dscp, cnp_priority, cnp_interval_us, .. } = self;
        [
            row("ECN: slows down", priorities(&self.reacts)),
            row("ECN: notifies", priorities(&self.notifies)),
            row(
                "ECN: notifications",
                format!("DSCP {cnp_dscp}, priority {cnp_priority}, {cnp_interval_us} us apart"),
            ),
        ]
    }
}

/// The result of the command.
#[derive(Debug, Serialize)]
struct Report {
    device: String,
    machine: Option<Hca>,
    said: Option<Said>,
}

impl Said {
    fn mtu(&self) -> String {
        match self.subnet {
            Some(_) => self.path_mtu.to_string(),
            None => format!("{} (frames of {} bytes)", self.path_mtu, self.frame_size),
        }
    }
}

pub(crate) fn run(info: &Info, out: &Out) -> Result<End, Failure> {
    let tree = info.root.tree();
    let machine = match &info.device {
        Address::Pci(address) => Some(hca::one(&tree, *address)?),
        Address::User(_) => None,
    };
    let mut rows = machine.as_ref().map_or(Vec::new(), of_machine);
    let opens = machine.as_ref().is_none_or(Hca::on_vfio) && !info.closed && tree.is_machine();
    let said = if opens {
        match ask(&info.device, info.iommu, None) {
            Ok(said) => Some(said),
            Err(failure) => {
                // Print what the kernel knows even if the device cannot be opened.
                out.say(table(&rows).trim_end())?;
                return Err(failure);
            }
        }
    } else {
        None
    };
    if let Some(said) = &said {
        rows.extend(of_device(said));
    } else if !info.closed {
        let driver = "bind it to vfio-pci to read more from the device: dat bind --check".into();
        rows.push(vec!["(closed)".into(), driver]);
    }
    let report = Report { device: info.device.to_string(), machine, said };
    if let Some(file) = &info.against {
        let found = Differences::find(&report, file)?;
        out.result(&found, &found.words())?;
        return Ok(if found.none() { End::Ok } else { End::Failed });
    }
    out.result(&report, &table(&rows))?;
    Ok(End::Ok)
}

fn row(name: &str, value: impl ToString) -> Vec<String> {
    vec![name.to_owned(), value.to_string()]
}

fn of_machine(hca: &Hca) -> Vec<Vec<String>> {
    let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let link = match (hca.link.words(), hca.link.missed()) {
        (Some(now), Some(best)) => format!("{now} (the device can do {best})"),
        (Some(now), None) => now,
        (None, _) => "-".into(),
    };
    let number = |value: Option<u64>| dash(&value.map(|value| value.to_string()));
    let mut rows = vec![
        row("address", hca.address),
        row("device", format!("{} (15b3:{:04x})", hca.name, hca.device_id)),
        row("driver", dash(&hca.driver)),
        row("IOMMU group", number(hca.iommu_group.map(u64::from))),
        row("PCI link", link),
        row("NUMA node", number(hca.numa_node)),
    ];
    if let Some(parent) = &hca.physical_function {
        rows.push(row("physical function", parent));
    }
    if hca.virtual_functions > 0 {
        rows.push(row("virtual functions", hca.virtual_functions));
    }
    for (name, value) in [("kernel: firmware", &hca.firmware), ("kernel: board", &hca.board)] {
        if let Some(value) = value {
            rows.push(row(name, value));
        }
    }
    if !hca.netdevs.is_empty() {
        rows.push(row("kernel: network", hca.netdevs.join(", ")));
    }
    rows
}

fn of_device(said: &Said) -> Vec<Vec<String>> {
    let up = if said.link_up { "up" } else { "down" };
    let windows = if said.memory_windows { "yes" } else { "no" };
    let id = said.pci_id.as_deref().unwrap_or("-");
    let mut rows = vec![
        row("PCI ID", id),
        row("IOMMU interface", said.iommu.unwrap_or("-")),
        row("firmware", &said.firmware),
        row("link type", format!("{}, {up}", said.link_type)),
        row("node GUID", &said.node_guid),
        row("path MTU", said.mtu()),
        row("queue pairs", said.max_queue_pairs),
        row("completion queues", said.max_completion_queues),
        row("memory keys", said.max_memory_keys),
        row("greatest message", said.max_message),
        row("memory windows", windows),
        row("interrupt vectors", said.interrupt_vectors),
        row("doorbells", said.doorbells),
        row("firmware pages", format!("{} of 4 KiB", said.firmware_pages)),
    ];
    if let Some(subnet) = &said.subnet {
        rows.splice(4..4, subnet.rows());
    } else {
        let made_up = if said.mac_given { "" } else { ", made up: the function has none" };
        rows.insert(4, row("MAC", format!("{}{made_up}", said.mac)));
    }
    match &said.congestion_control {
        Some(found) => rows.extend(found.rows()),
        None => rows.push(row("ECN", "the function may not ask")),
    }
    rows
}

/// Opens a device, reads its properties and closes it. With `wait` it waits for the link.
fn ask(device: &Address, iommu: Iommu, wait: Option<Link>) -> Result<Said, Failure> {
    match open_device(device, iommu)? {
        Opened::Vfio(host) => asked(&host, Some(host.interface()), wait),
        Opened::User(host) => asked(&host, None, wait),
    }
}

fn asked<H: Host>(
    host: &H,
    interface: Option<Interface>,
    wait: Option<Link>,
) -> Result<Said, Failure> {
    let failed = |fault: Fault| match host.trouble() {
        Some(trouble @ Trouble::Gone(_)) => trouble.into(),
        Some(_) | None => Failure::fault(host.name(), fault),
    };
    let config = host.config(&bring_up_config())?;
    let mut driver: Mlx5<'_, H> = Mlx5::open(host, &config).map_err(failed)?;
    if let Some(link) = wait {
        // What it finds is asked for once more.
        let _ = await_link(host.name(), link, || driver.link_up());
    }
    let link_up = driver.link_up();
    let port = driver.ib_port();
    let limits = *driver.limits();
    let identity = *driver.device().identity();
    let firmware_pages = driver.device().firmware_pages();
    let congestion = driver.congestion();
    let doorbells = match (host.blocks(), driver.writes_whole_requests()) {
        (Blocks::Words, _) => "8 bytes: the host has no store of 64 bytes (MOVDIR64B)",
        (_, false) => "8 bytes: the device has no BlueFlame",
        (Blocks::Combined, true) => "whole requests, write-combined",
        (Blocks::Whole, true) => "whole requests, 64 bytes at once",
    };
    let closed = driver.close();
    let link_up = link_up.map_err(failed)?;
    let port = port.map_err(failed)?;
    let congestion = congestion.map_err(failed)?;
    closed.map_err(failed)?;
    let (major, minor, sub) = limits.firmware;
    let id = host.config_space().ok().and_then(|space| space.id());
    Ok(Said {
        pci_id: id.map(|(vendor, device)| format!("{vendor:04x}:{device:04x}")),
        iommu: interface.map(Interface::word),
        firmware: format!("{major}.{minor}.{sub:04}"),
        link_type: if port.is_some() { "InfiniBand" } else { "Ethernet" },
        subnet: port.as_ref().map(InSubnet::of),
        link_up,
        mac: identity.mac.map(|byte| format!("{byte:02x}")).join(":"),
        node_guid: format!("{:016x}", identity.node_guid),
        path_mtu: limits.mtu.bytes(),
        frame_size: identity.frame_size,
        max_queue_pairs: limits.max_qp,
        max_completion_queues: limits.max_cq,
        max_memory_keys: limits.max_mkey,
        max_message: limits.max_message,
        memory_windows: limits.windows,
        interrupt_vectors: host.vectors(),
        doorbells,
        firmware_pages,
        congestion_control: congestion.map(CongestionControl::of),
        mac_given: identity.mac_given,
    })
}

/// Returns the checks of `dat doctor` that need an open device.
pub(crate) fn checks(device: &Address, iommu: Iommu, link: Link) -> Vec<Check> {
    let said = match ask(device, iommu, Some(link)) {
        Ok(said) => said,
        Err(failure) => {
            let check = Check::new("opens", State::Fail, failure.cause).of(device);
            return vec![match failure.remedy.as_str() {
                "" => check,
                remedy => check.remedy(remedy),
            }];
        }
    };
    let link = match &said.subnet {
        _ if said.link_up => Check::new("link", State::Ok, format!("{}, up", said.link_type)),
        Some(subnet) if subnet.waits_for_manager => {
            let found = format!("no subnet manager: the port is in {}", subnet.state);
            Check::new("link", State::Fail, found)
                .remedy("run a subnet manager on a host of the subnet: sudo opensm")
                .remedy("between two ports joined by a cable, on one side: --sm")
        }
        Some(_) | None => Check::new("link", State::Fail, format!("{}, down", said.link_type))
            .remedy("plug the cable in, or look at the switch's port"),
    };
    let mac = if let Some(subnet) = &said.subnet {
        Check::new("GID", State::Ok, &subnet.gid)
    } else if said.mac_given {
        Check::new("MAC", State::Ok, &said.mac)
    } else {
        Check::new("MAC", State::Warn, "none, so each start makes up another")
            .remedy("on the machine that has the physical function: ip link set DEV vf N mac 02:00:00:00:00:01")
    };
    let mtu = if said.path_mtu >= 1024 {
        Check::new("path MTU", State::Ok, said.mtu())
    } else {
        Check::new(
            "path MTU",
            State::Warn,
            format!("{}: frames of only {} bytes", said.path_mtu, said.frame_size),
        )
        .remedy("raise the MTU of the port, and of the switch")
    };
    let windows = if said.memory_windows {
        Check::new("memory windows", State::Ok, "the device has them")
    } else {
        Check::new("memory windows", State::Warn, "the device has none: RMRs cannot be made")
            .remedy("update the firmware")
    };
    let checks = [
        Check::new(
            "opens",
            State::Ok,
            format!(
                "it was reset, brought up and given back{}; {} interrupt vectors",
                said.iommu.map_or_else(String::new, |iommu| format!(", by {iommu}")),
                said.interrupt_vectors
            ),
        ),
        Check::new(
            "firmware",
            State::Ok,
            format!("{}, holds {} pages of 4 KiB", said.firmware, said.firmware_pages),
        ),
        link,
        Check::new("node GUID", State::Ok, &said.node_guid),
        mac,
        mtu,
        windows,
    ];
    checks.into_iter().map(|check| check.of(device)).collect()
}
