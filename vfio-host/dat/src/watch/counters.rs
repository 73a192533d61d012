//! `dat counters`: what open adapters and their Endpoints have counted.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::End;
use super::super::args::Which;
use super::super::failure::Failure;
use super::super::out::Out;
use super::connections::number;
use super::{Silent, head, look, peer, rest};

#[derive(Serialize)]
struct Report {
    adapters: Vec<Adapter>,
    silent: Vec<Silent>,
}

#[derive(Serialize)]
struct Adapter {
    pid: u32,
    device: String,
    counters: BTreeMap<String, u64>,
    endpoints: Vec<Endpoint>,
}

#[derive(Serialize)]
struct Endpoint {
    queue_pair: Option<u32>,
    counters: BTreeMap<String, u64>,
}

pub(crate) fn run(which: &Which, out: &Out) -> Result<End, Failure> {
    let (adapters, silent) = look(which.which.as_deref());
    let mut text = String::new();
    for adapter in &adapters {
        text.push_str(&head(adapter));
        text.push_str(&lines("  ", &adapter.counters));
        for endpoint in &adapter.endpoints {
            let qp = number(endpoint.queue_pair);
            text.push_str(&format!("  QP {qp}, {}, peer {}\n", endpoint.state, peer(endpoint)));
            text.push_str(&lines("    ", &endpoint.counters));
        }
    }
    text.push_str(&rest(&adapters, &silent));
    let adapters = adapters.into_iter().map(|adapter| Adapter {
        pid: adapter.pid,
        device: adapter.device,
        counters: adapter.counters,
        endpoints: adapter
            .endpoints
            .into_iter()
            .map(|endpoint| Endpoint {
                queue_pair: endpoint.queue_pair,
                counters: endpoint.counters,
            })
            .collect(),
    });
    out.result(&Report { adapters: adapters.collect(), silent }, &text)?;
    Ok(End::Ok)
}

/// A line for each counter.
fn lines(indent: &str, counters: &BTreeMap<String, u64>) -> String {
    counters.iter().map(|(name, count)| format!("{indent}{name:24} {count}\n")).collect()
}
