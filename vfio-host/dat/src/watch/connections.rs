//! `dat connections`: the Endpoints of open adapters, with their peers.

use std::net::SocketAddr;

use serde::Serialize;
use vfio_host::status::Snapshot;

use super::super::End;
use super::super::args::Which;
use super::super::failure::Failure;
use super::super::out::{Out, table};
use super::{Silent, head, look, peer, rest, used};

#[derive(Serialize)]
struct Report<'a> {
    adapters: &'a [Snapshot],
    silent: &'a [Silent],
}

pub(crate) fn run(which: &Which, out: &Out) -> Result<End, Failure> {
    let (adapters, silent) = look(which.which.as_deref());
    let mut text = String::new();
    for adapter in &adapters {
        text.push_str(&head(adapter));
        if !adapter.endpoints.is_empty() {
            let names = ["  QP", "state", "own", "peer", "requests", "receives"];
            let mut rows = vec![names.map(str::to_owned).to_vec()];
            rows.extend(adapter.endpoints.iter().map(|endpoint| {
                vec![
                    format!("  {}", number(endpoint.queue_pair)),
                    endpoint.state.clone(),
                    SocketAddr::new(adapter.address, endpoint.port).to_string(),
                    peer(endpoint),
                    used(Some(endpoint.requests), endpoint.most_requests),
                    used(endpoint.receives, endpoint.most_receives),
                ]
            }));
            text.push_str(&table(&rows));
        }
    }
    text.push_str(&rest(&adapters, &silent));
    out.result(&Report { adapters: &adapters, silent: &silent }, &text)?;
    Ok(End::Ok)
}

/// A queue pair's number as the device's messages have it.
pub(super) fn number(queue_pair: Option<u32>) -> String {
    queue_pair.map_or_else(|| "-".into(), |number| format!("{number:#x}"))
}
