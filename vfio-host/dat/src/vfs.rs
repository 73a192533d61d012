//! The virtual functions of physical functions, each with an address: `--vfs`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use vfio_host::sysfs::VFIO_PCI;
use vfio_host::{Address, PciAddress};

use super::conf::Addressed;
use super::failure::Failure;
use super::hca::{self, Hca, folder};
use super::tree::Tree;

/// The kernel driver that makes virtual functions of an HCA.
const KERNEL: &str = "mlx5_core";
/// The names of the links to them, each with its number.
const LINK: &str = "virtfn";

/// Returns the virtual functions of physical functions, each with its address: they count up from
/// that of their physical function.
pub(crate) fn functions(tree: &Tree, parents: Vec<Addressed>) -> Result<Vec<Addressed>, Failure> {
    let mut found = Vec::<Addressed>::new();
    for (device, (first, prefix)) in parents {
        let Address::Pci(address) = device else {
            return Err(Failure::usage(format!(
                "{device}: only PCI devices have virtual functions"
            ))
            .remedy("name it without --vfs"));
        };
        let parent = hca::one(tree, address)?;
        let functions = of(tree, &parent)?;
        let row = row((first, prefix), functions.len()).map_err(|left| {
            let count = functions.len();
            Failure::usage(format!(
                "--ip {first}/{prefix}: {address} has {count} virtual functions, and the network has {left} addresses from there on"
            ))
            .remedy("begin with an earlier address, or give a shorter prefix")
        })?;
        for (function, ip) in functions.into_iter().zip(row) {
            let function = Address::Pci(function);
            if let Some((other, _)) = found.iter().find(|(it, at)| it == &function || at.0 == ip) {
                let same = other == &function;
                return Err(Failure::usage(if same {
                    format!("{address} is named twice")
                } else {
                    format!("{other} and {function} would both have the address {ip}")
                })
                .remedy("name each physical function once, with an --ip behind those before"));
            }
            found.push((function, (ip, prefix)));
        }
    }
    Ok(found)
}

/// Returns the virtual functions of a physical function, in the order of their numbers. Each must be
/// ready to be opened.
fn of(tree: &Tree, parent: &Hca) -> Result<Vec<PciAddress>, Failure> {
    let (address, own) = (parent.address, folder(&parent.address));
    if let Some(physical) = &parent.physical_function {
        return Err(Failure::usage(format!("{address} is a virtual function of {physical}"))
            .remedy(format!("name {physical}, or leave out --vfs")));
    }
    let switch = format!("{own}/sriov_numvfs");
    let driver = parent.driver.as_deref().unwrap_or("no driver");
    let mut links: Vec<(u32, String)> = tree
        .names(&own)
        .into_iter()
        .filter_map(|name| Some((name.strip_prefix(LINK)?.parse().ok()?, name)))
        .collect();
    links.sort_unstable();
    if driver != KERNEL {
        // What vfio-pci makes (enable_sriov=1) opens with a token of the parent's driver only.
        let has = if links.is_empty() { "no".into() } else { links.len().to_string() };
        let first = if parent.on_vfio() {
            format!("sudo dat unbind {address}")
        } else {
            format!("sudo modprobe {KERNEL}")
        };
        return Err(Failure::new(format!(
            "{address}: it has {has} virtual functions, and {driver} instead of {KERNEL}, which makes and serves them"
        ))
        .remedy(format!("{first}; echo 8 | sudo tee {switch}")));
    }
    if links.is_empty() {
        let most = tree.number(&format!("{own}/sriov_totalvfs")).unwrap_or(0);
        let failure = Failure::new(format!("{address}: it has no virtual functions"));
        return Err(failure.remedy(if most == 0 {
            format!(
                "its firmware allows none: sudo mstconfig -d {address} set SRIOV_EN=1 NUM_OF_VFS=8, and restart the machine"
            )
        } else {
            format!("echo {} | sudo tee {switch} (at most {most})", most.min(8))
        }));
    }
    let (mut functions, mut unready) = (Vec::new(), Vec::new());
    for (_, link) in links {
        let named = tree.link(&format!("{own}/{link}")).and_then(|name| name.parse().ok());
        let function: PciAddress = named.ok_or_else(|| {
            Failure::new(format!("{own}/{link}: it names no PCI function"))
                .remedy("make them anew: write 0 to sriov_numvfs, then their number")
        })?;
        let driver = tree.link(&format!("{}/driver", folder(&function)));
        if driver.as_deref() != Some(VFIO_PCI) {
            unready.push((function.to_string(), driver.unwrap_or_else(|| "no driver".into())));
        }
        functions.push(function);
    }
    if unready.is_empty() {
        return Ok(functions);
    }
    let words: Vec<String> =
        unready.iter().map(|(it, driver)| format!("{it} ({driver})")).collect();
    let names: Vec<&str> = unready.iter().map(|(it, _)| it.as_str()).collect();
    Err(Failure::new(format!(
        "{address}: not bound to vfio-pci of its virtual functions: {}",
        words.join(", ")
    ))
    .remedy(format!("sudo dat bind {}", names.join(" "))))
}

/// Returns so many addresses of a network, from one on; or how many it has there.
fn row((first, prefix): (IpAddr, u8), count: usize) -> Result<Vec<IpAddr>, u128> {
    let (bits, value) = match first {
        IpAddr::V4(ip) => (32, u128::from(u32::from(ip))),
        IpAddr::V6(ip) => (128, u128::from(ip)),
    };
    let host = u128::MAX.checked_shr(128 - bits + u32::from(prefix)).unwrap_or(0);
    // The last one of an IPv4 network is for broadcasts.
    let most = if bits == 32 && host > 1 { host - 1 } else { host };
    let left = most.saturating_add(1).saturating_sub(value & host);
    if count as u128 > left {
        return Err(left);
    }
    let nth = |nth| match first {
        IpAddr::V4(ip) => IpAddr::V4(Ipv4Addr::from(u32::from(ip).wrapping_add(nth))),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from(u128::from(ip).wrapping_add(nth.into()))),
    };
    Ok((0..).map(nth).take(count).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_addresses_stays_in_its_network() {
        let row = |first: &str, prefix, count| {
            let row = row((first.parse().unwrap(), prefix), count);
            row.map(|row| row.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(row("10.0.0.255", 16, 3), Ok("10.0.0.255 10.0.1.0 10.0.1.1".into()));
        assert_eq!(row("10.0.0.253", 24, 2), Ok("10.0.0.253 10.0.0.254".into()));
        assert_eq!(row("10.0.0.253", 24, 3), Err(2));
        assert_eq!(row("10.0.0.255", 24, 1), Err(0));
        assert_eq!(row("10.0.0.0", 31, 2), Ok("10.0.0.0 10.0.0.1".into()));
        assert_eq!((row("10.0.0.1", 31, 2), row("10.0.0.1", 32, 2)), (Err(1), Err(1)));
        assert_eq!(row("255.255.255.254", 1, 2), Err(1));
        assert_eq!(row("fd00::fffe", 112, 2), Ok("fd00::fffe fd00::ffff".into()));
        assert_eq!((row("fd00::fffe", 112, 3), row("fd00::1", 128, 2)), (Err(2), Err(1)));
        assert_eq!(row("ffff::ffff", 1, 1), Ok("ffff::ffff".into()));
        assert_eq!(row("::fffe", 0, 2), Ok("::fffe ::ffff".into()));
    }
}
