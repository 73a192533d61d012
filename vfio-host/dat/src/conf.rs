//! `dat conf`: lines of `dat.conf`, by which a uDAPL registry finds the provider and the provider
//! its HCA.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use dat_core::provider::Mtu;
use serde::Serialize;
use vfio_host::{Address, class, neighbour};

use super::args::{Conf, Registrations};
use super::failure::Failure;
use super::out::Out;
use super::tree::Tree;
use super::{End, hca, vfs};

/// The provider's file.
pub(crate) const LIBRARY: &str = "libdapldat.so";
/// The interface version, which the registry compares with that of the consumer.
const INTERFACE: &str = "u2.0";
/// The provider's name and version, which the registry does not check.
const VERSION: &str = "dapldat.2.0";

/// A line of `dat.conf`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Line {
    /// The name that a consumer opens.
    pub(crate) name: String,
    /// Whether it is for consumers that ask for a thread-safe provider.
    pub(crate) threadsafe: bool,
    /// The provider's file.
    pub(crate) library: String,
    /// The parameters of the provider.
    pub(crate) parameters: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = if self.threadsafe { "threadsafe" } else { "nonthreadsafe" };
        write!(
            f,
            "{} {INTERFACE} {threads} default {} {VERSION} \"{}\" \"\"",
            self.name, self.library, self.parameters
        )
    }
}

/// Checks that a word needs no quoting in a line and contains no blanks.
fn word(what: &str, text: &str) -> Result<String, Failure> {
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\\' | '#');
    if text.is_empty() || text.contains(odd) {
        return Err(Failure::usage(format!("{what} {text:?} cannot be written to dat.conf"))
            .remedy("choose one without blanks, quotes, backslashes and #"));
    }
    Ok(text.to_owned())
}

fn path(what: &str, path: &Path) -> Result<String, Failure> {
    let text = path
        .to_str()
        .ok_or_else(|| Failure::usage(format!("{what} {} is no text", path.display())))?;
    word(what, text)
}

/// A device, its address, and the length of the network's prefix.
pub(crate) type Addressed = (Address, (IpAddr, u8));

/// Returns the requested devices, or all that are bound to vfio-pci, each with its address.
fn devices(asked: &Registrations, tree: &Tree) -> Result<Vec<Addressed>, Failure> {
    let devices = if asked.devices.is_empty() { bound(tree)? } else { asked.devices.clone() };
    if asked.ip.len() != devices.len() {
        let named: Vec<String> = devices.iter().map(Address::to_string).collect();
        return Err(Failure::usage(format!(
            "{} need one address each, and --ip is given {} times",
            named.join(", "),
            asked.ip.len()
        ))
        .remedy("give --ip ADDRESS/PREFIX once for each, in this order"));
    }
    let devices = devices.into_iter().zip(asked.ip.iter().copied()).collect();
    if asked.vfs { vfs::functions(tree, devices) } else { Ok(devices) }
}

/// Returns all HCAs that are bound to vfio-pci.
fn bound(tree: &Tree) -> Result<Vec<Address>, Failure> {
    let bound: Vec<Address> = hca::all(tree)
        .into_iter()
        .filter(|hca| hca.supported && hca.on_vfio())
        .map(|hca| Address::Pci(hca.address))
        .collect();
    if bound.is_empty() {
        return Err(Failure::new("no HCA is bound to vfio-pci").remedy(
            "dat list shows what there is, sudo dat bind DEVICE binds it; or name a device: vfio-user:PATH is one too",
        ));
    }
    Ok(bound)
}

/// Returns the requested lines.
pub(crate) fn lines(
    asked: &Registrations,
    tree: &Tree,
    library: &Path,
) -> Result<Vec<Line>, Failure> {
    let devices = devices(asked, tree)?;
    let library = path("the library", library)?;
    let mut lines = Vec::new();
    for (nth, (device, ip)) in devices.iter().enumerate() {
        if let Address::User(socket) = device {
            path("the socket", socket)?;
        }
        let name =
            if devices.len() == 1 { asked.name.clone() } else { format!("{}{nth}", asked.name) };
        lines.push(Line {
            name: word("the name", &name)?,
            threadsafe: asked.threadsafe,
            library: library.clone(),
            parameters: parameters(asked, device, *ip)?,
        });
    }
    Ok(lines)
}

/// Returns the parameters of the provider for a device.
fn parameters(
    asked: &Registrations,
    device: &Address,
    (ip, prefix): (IpAddr, u8),
) -> Result<String, Failure> {
    let mut text = format!("{device} ip={ip}/{prefix}");
    if let Some(gateway) = asked.gateway {
        if gateway.is_ipv4() != ip.is_ipv4() {
            return Err(Failure::usage(format!(
                "--gateway {gateway} and --ip {ip} are of different kinds"
            )));
        }
        text.push_str(&format!(" gateway={gateway}"));
    }
    if let Some(vlan) = asked.vlan {
        text.push_str(&format!(" vlan={vlan}"));
    }
    if asked.neigh.len() > neighbour::MOST {
        return Err(Failure::usage(format!(
            "--neigh fixes {} neighbours at most",
            neighbour::MOST
        )));
    }
    for &(addr, mac) in &asked.neigh {
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        text.push_str(&format!(" neigh={addr},{mac}"));
    }
    if let Some(mtu) = asked.mtu.map(Mtu::bytes) {
        text.push_str(&format!(" mtu={mtu}"));
    }
    if let Some(tos) = asked.tos {
        text.push_str(&format!(" tos={tos:#04x}"));
    }
    if let Some(priority) = asked.priority {
        text.push_str(&format!(" priority={priority}"));
    }
    for &(qos, class) in &asked.qos {
        text.push_str(&format!(" qos={}", class::words(qos, class)));
    }
    if let Some(endpoints) = asked.endpoints {
        text.push_str(&format!(" endpoints={endpoints}"));
    }
    if let Some(memory) = asked.memory {
        text.push_str(&format!(" memory={memory}"));
    }
    if asked.writable_queues {
        text.push_str(" queues=writable");
    }
    if asked.completions.compress_completions {
        text.push_str(" completions=compressed");
    }
    if asked.completions.inline_receives {
        text.push_str(" receives=inline");
    }
    if asked.subnet_manager {
        text.push_str(" sm=on");
    }
    if asked.status {
        text.push_str(" status=on");
    }
    if let Some(log) = asked.log {
        text.push_str(&format!(" log={}", log.word()));
    }
    Ok(text)
}

/// Formats lines as a text.
pub(crate) fn text(lines: &[Line]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

pub(crate) fn run(conf: &Conf, out: &Out) -> Result<End, Failure> {
    let lines = lines(&conf.lines, &conf.root.tree(), &conf.library)?;
    out.result(&lines, &text(&lines))?;
    Ok(End::Ok)
}
