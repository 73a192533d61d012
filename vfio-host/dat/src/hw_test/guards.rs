//! Step 0: whether this machine can do without the function, and how it gets it back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::args::{Bind, HwTest};
use super::super::failure::Failure;
use super::super::hca::{self, Hca};
use super::super::out::Out;
use super::super::tree::Tree;
use super::super::{bind, group, netdev};
use super::report::Report;
use vfio_host::{Address, PciAddress};

/// File systems that come over a network.
const REMOTE: &[&str] = &["nfs", "nfs4", "cifs", "ceph", "glusterfs", "lustre", "beegfs", "9p"];
/// The state of an established connection in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";
/// The port of SSH.
const SSH: u16 = 22;

/// Returns reasons for which no answer of the user's makes the test a good idea.
fn refusals(tree: &Tree, hca: &Hca) -> Vec<String> {
    let mut found = Vec::new();
    let sessions = sessions(tree);
    let mut carries = false;
    for name in &hca.netdevs {
        let own: Vec<_> = netdev::carries(tree, name).into_iter().map(|(_, said)| said).collect();
        carries |= !own.is_empty();
        found.extend(own.into_iter().filter(|said| said.contains("default")));
        if sessions.iter().any(|ip| netdev::has(tree, name, *ip)) {
            found.push(format!("an SSH session to this machine runs over {name}"));
        }
    }
    if carries {
        if let Some(kind) = remote_root(tree) {
            found.push(format!(
                "/ is mounted over the network ({kind}), perhaps over this function"
            ));
        }
    }
    if hca.virtual_functions > 0 {
        let count = hca.virtual_functions;
        found.push(format!("its {count} virtual functions would vanish with its driver"));
    }
    let members = hca.iommu_group.map(|number| group::members(tree, number)).unwrap_or_default();
    let own = hca.address.to_string();
    for member in members.iter().filter(|member| member.blocks && member.address != own) {
        found.push(format!("{} is in its IOMMU group and in use", member.words()));
    }
    found
}

/// Returns the local addresses of SSH sessions.
fn sessions(tree: &Tree) -> Vec<IpAddr> {
    let row = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let &[_, local, _, ESTABLISHED, ..] = columns.as_slice() else { return None };
        let (address, port) = local.split_once(':')?;
        if u16::from_str_radix(port, 16) != Ok(SSH) {
            return None;
        }
        // Native words whose bytes are in network order.
        let words: Vec<u8> = (0..address.len() / 8)
            .filter_map(|nth| address.get(8 * nth..8 * nth + 8))
            .filter_map(|word| u32::from_str_radix(word, 16).ok())
            .flat_map(u32::to_ne_bytes)
            .collect();
        if let Ok(v4) = <[u8; 4]>::try_from(&*words) {
            return Some(IpAddr::V4(Ipv4Addr::from(v4)));
        }
        let v6 = <[u8; 16]>::try_from(&*words).ok()?;
        Some(IpAddr::V6(Ipv6Addr::from(v6)).to_canonical())
    };
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let texts = tables.iter().filter_map(|path| tree.text(path));
    texts.flat_map(|text| text.lines().filter_map(row).collect::<Vec<_>>()).collect()
}

/// Returns how the root file system comes over a network, if it does.
fn remote_root(tree: &Tree) -> Option<String> {
    let mounts = tree.text("/proc/mounts")?;
    let root = mounts.lines().rev().find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        match columns.as_slice() {
            &[source, "/", kind, ..] => Some((source, kind)),
            _ => None,
        }
    });
    let (source, kind) = root?;
    if REMOTE.contains(&kind) {
        return Some(kind.to_owned());
    }
    let name = tree.link(source).or_else(|| Some(source.strip_prefix("/dev/")?.to_owned()))?;
    let mut disks = tree.names(&format!("/sys/class/block/{name}/slaves"));
    disks.push(name);
    let controllers = tree.names("/sys/class/nvme");
    let fabrics = controllers.iter().any(|name| {
        let transport = tree.text(&format!("/sys/class/nvme/{name}/transport"));
        transport.is_some_and(|transport| transport != "pcie")
    });
    disks.iter().find_map(|disk| {
        let path = tree.target(&format!("/sys/class/block/{disk}"))?;
        let kind = match &*path {
            path if path.contains("/session") => "iSCSI",
            path if fabrics && path.contains("nvme") => "NVMe over fabrics",
            _ => return None,
        };
        Some(kind.to_owned())
    })
}

/// Returns what the machine loses besides, which the user accepts with --yes.
fn losses(tree: &Tree, hca: &Hca) -> Vec<String> {
    let said =
        hca.netdevs.iter().flat_map(|name| netdev::carries(tree, name)).map(|(_, said)| said);
    said.filter(|said| !said.contains("default")).collect()
}

/// Returns the command that gives the function back.
fn undo(address: &PciAddress) -> String {
    format!("sudo dat unbind {address}")
}

/// Refuses a function that this machine needs; asks for --yes; binds it if it is not yet bound.
/// Returns what to say at the end.
pub(super) fn pass(args: &HwTest, tree: &Tree, out: &Out) -> Result<String, Failure> {
    let Some(Address::Pci(address)) = args.device else {
        // A device behind a socket is nothing that this machine has.
        return Ok(String::new());
    };
    let hca = hca::one(tree, address)?;
    let refused = refusals(tree, &hca);
    if !refused.is_empty() {
        return Err(Failure::new(format!("{address}: refused: {}", refused.join("; ")))
            .remedy("test a function that this machine can do without"));
    }
    let mut does = vec![format!("{address} ({}) is reset, tested and reset again", hca.name)];
    if !hca.on_vfio() {
        let driver = hca.driver.as_deref().unwrap_or("no driver");
        does.insert(0, format!("{address} is taken from {driver} and bound to vfio-pci"));
    }
    does.extend(losses(tree, &hca).into_iter().map(|loss| format!("until then lost: {loss}")));
    does.push(format!("afterwards `{}` gives it back", undo(&address)));
    for line in &does {
        out.say(line)?;
    }
    if !args.yes {
        return Err(Failure::new(format!("{address}: nothing was done"))
            .remedy("say --yes if that is what you want"));
    }
    if !tree.is_machine() {
        return Err(Failure::new(format!("{address}: it is in a copy of a machine")));
    }
    if !hca.on_vfio() {
        let devices = vec![Address::Pci(address)];
        let root = args.root.clone();
        bind::bind(&Bind { devices, check: false, force: true, root }, out)?;
    }
    Ok(format!("{} gives it back", undo(&address)))
}

/// Writes what the guards found. They have passed, or there were no report.
pub(super) fn run(args: &HwTest, tree: &Tree, report: &Report) -> Result<(), Failure> {
    report.check(0, "guards", || {
        let Some(Address::Pci(address)) = args.device else {
            return Ok("a device behind a socket: this machine needs nothing of it".into());
        };
        let hca = hca::one(tree, address)?;
        report.machine("driver", hca.driver.as_deref().unwrap_or("none"));
        let group = hca.iommu_group.map(|number| group::members(tree, number).len());
        report.machine("functions in the IOMMU group", &group.unwrap_or(0).to_string());
        Ok("this machine can do without it".into())
    })?;
    Ok(())
}
