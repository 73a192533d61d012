//! `dat top`, `dat counters`, `dat connections` and `dat trace`: what adapters are doing that other processes of
//! this machine have open.
//!
//! Each of these processes answers on a socket ([`vfio_host::status`]). A user sees his own.

pub(crate) mod connections;
pub(crate) mod counters;
mod pcap;
pub(crate) mod top;
pub(crate) mod trace;

use std::net::SocketAddr;

use serde::Serialize;
use vfio_host::status::{self, Endpoint, Found, Snapshot};

/// A process that has an adapter open and does not tell about it.
#[derive(Clone, Debug, Serialize)]
struct Silent {
    pid: u32,
    why: String,
}

/// Returns the adapters of `which`, a process or a device, or all.
fn look(which: Option<&str>) -> (Vec<Snapshot>, Vec<Silent>) {
    let (mut adapters, mut silent) = (Vec::new(), Vec::new());
    for found in status::running(&status::folder()) {
        match found {
            Found::Adapter(adapter) => adapters.push(*adapter),
            Found::Silent { pid, why } => silent.push(Silent { pid, why }),
        }
    }
    if let Some(which) = which {
        let is_pid = |pid: u32| which == pid.to_string();
        adapters.retain(|adapter| is_pid(adapter.pid) || adapter.device == which);
        silent.retain(|process| is_pid(process.pid));
    }
    (adapters, silent)
}

/// The line that an adapter's part begins with.
fn head(adapter: &Snapshot) -> String {
    let Snapshot { pid, program, device, address, open_seconds, lost, listens, .. } = adapter;
    let mut text = format!("{program} ({pid}): {device}, {address}, open for {open_seconds:.0} s");
    if !listens.is_empty() {
        let ports: Vec<String> = listens.iter().map(u64::to_string).collect();
        text.push_str(&format!(", listens on {}", ports.join(" ")));
    }
    text.push('\n');
    if let Some(why) = lost {
        text.push_str(&format!("  the device is lost: {why}\n"));
    }
    text
}

/// What is said of processes that do not answer, and where there is nothing to say.
fn rest(adapters: &[Snapshot], silent: &[Silent]) -> String {
    let mut text = String::new();
    for Silent { pid, why } in silent {
        text.push_str(&format!("process {pid} does not answer: {why}\n"));
    }
    if adapters.is_empty() && silent.is_empty() {
        text.push_str("no adapter is open in a process of this user\n");
    }
    text
}

/// The peer as people write it.
fn peer(endpoint: &Endpoint) -> String {
    endpoint
        .peer
        .map_or_else(|| "-".into(), |ip| SocketAddr::new(ip, endpoint.peer_port).to_string())
}

/// What is in use of what there is.
fn used(used: Option<u32>, most: u16) -> String {
    used.map_or_else(|| format!("?/{most}"), |used| format!("{used}/{most}"))
}
