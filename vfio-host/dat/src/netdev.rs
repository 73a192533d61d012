//! Addresses and routes that this machine would lose with a network interface, including those of
//! interfaces stacked on it.
//!
//! Read from `/proc/net`, which has no list of IPv4 addresses by interface: an address shows as the
//! route to its network. A /32 address without a route is not found.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::tree::Tree;

/// Flag of an IPv6 reject route.
const REJECT: u64 = 0x200;
/// Scope of a global IPv6 address.
const GLOBAL: &str = "00";

/// Returns the interface `name` and those stacked on it.
fn stack(tree: &Tree, name: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut found = vec![name.to_owned()];
    while let Some(name) = found.pop() {
        let folder = format!("/sys/class/net/{name}");
        for entry in tree.names(&folder) {
            if let Some(upper) = entry.strip_prefix("upper_") {
                found.push(upper.to_owned());
            }
        }
        if !names.insert(name) {
            found.retain(|name| !names.contains(name));
        }
    }
    names
}

/// Returns texts about the addresses and routes of the interface `name` and those stacked on it,
/// each with the interface that has it.
pub(crate) fn carries(tree: &Tree, name: &str) -> Vec<(String, String)> {
    let mut said = Vec::new();
    for name in &stack(tree, name) {
        let texts = [routes_v4(tree, name), routes_v6(tree, name), addresses_v6(tree, name)];
        said.extend(texts.into_iter().flatten().map(|text| (name.clone(), text)));
    }
    said
}

/// Returns whether the interface `name`, or one stacked on it, has the address `ip`: as far as the
/// routes say, for IPv4.
pub(crate) fn has(tree: &Tree, name: &str, ip: IpAddr) -> bool {
    stack(tree, name).iter().any(|name| match ip.to_canonical() {
        IpAddr::V4(ip) => networks_v4(tree, name).iter().any(|(to, gateway, mask)| {
            let ip = u32::from_ne_bytes(ip.octets());
            *mask != 0 && *gateway == 0 && ip & mask == *to
        }),
        IpAddr::V6(ip) => addresses_v6(tree, name).iter().any(|said| {
            said.split_whitespace().next_back().is_some_and(|last| last == ip.to_string())
        }),
    })
}

/// Returns destination, gateway and mask of each IPv4 route of an interface, as native words whose
/// bytes are in network order.
fn networks_v4(tree: &Tree, name: &str) -> Vec<(u32, u32, u32)> {
    let table = tree.text("/proc/net/route").unwrap_or_default();
    let word = |text: &str| u32::from_str_radix(text, 16).ok();
    let row = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let &[interface, to, gateway, _, _, _, _, mask, ..] = columns.as_slice() else {
            return None;
        };
        let row = (word(to)?, word(gateway)?, word(mask)?);
        (interface == name).then_some(row)
    };
    table.lines().filter_map(row).collect()
}

fn routes_v4(tree: &Tree, name: &str) -> Vec<String> {
    let words = |(to, gateway, mask): (u32, u32, u32)| {
        if to == 0 && mask == 0 {
            return format!("{name} carries the default IPv4 route");
        }
        let net = Ipv4Addr::from(to.to_ne_bytes());
        let length = mask.count_ones();
        let what = if gateway == 0 { "network" } else { "route to" };
        format!("{name} carries the IPv4 {what} {net}/{length}")
    };
    networks_v4(tree, name).into_iter().map(words).collect()
}

fn routes_v6(tree: &Tree, name: &str) -> Vec<String> {
    let table = tree.text("/proc/net/ipv6_route").unwrap_or_default();
    let is_default = |line: &&str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let &[to, length, .., flags, interface] = columns.as_slice() else {
            return false;
        };
        let refused = u64::from_str_radix(flags, 16).is_ok_and(|flags| flags & REJECT != 0);
        let anything = length == "00" && to.bytes().all(|digit| digit == b'0');
        interface == name && anything && !refused
    };
    match table.lines().find(is_default) {
        Some(_) => vec![format!("{name} carries the default IPv6 route")],
        None => Vec::new(),
    }
}

fn addresses_v6(tree: &Tree, name: &str) -> Vec<String> {
    let table = tree.text("/proc/net/if_inet6").unwrap_or_default();
    let row = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let &[address, _, _, scope, _, interface] = columns.as_slice() else {
            return None;
        };
        let address = Ipv6Addr::from(u128::from_str_radix(address, 16).ok()?);
        (interface == name && scope == GLOBAL)
            .then(|| format!("{name} has the IPv6 address {address}"))
    };
    table.lines().filter_map(row).collect()
}
