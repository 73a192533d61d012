//! `dat top`: rates, queues, connections and errors of open adapters, between two looks.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use dat_core::EpCounter;
use serde::Serialize;
use vfio_host::status::{self, Snapshot};

use super::super::args::Top;
use super::super::failure::Failure;
use super::super::out::{Out, table};
use super::super::{End, signals};
use super::connections::number;
use super::{Silent, head, look, rest, used};

/// Longest sleep between two looks at Ctrl-C.
const SLICE: Duration = Duration::from_millis(100);
/// Clears a terminal and goes to its upper left corner.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// What the program has posted: operations, and the bytes of those that bring or send some.
const SENT: [EpCounter; 4] =
    [EpCounter::PostSend, EpCounter::PostSendUd, EpCounter::PostWrite, EpCounter::PostWriteImm];
const SENT_DATA: [EpCounter; 4] = [
    EpCounter::PostSendData,
    EpCounter::PostSendUdData,
    EpCounter::PostWriteData,
    EpCounter::PostWriteImmData,
];
const READ: [EpCounter; 3] = [EpCounter::PostRead, EpCounter::PostCmpSwap, EpCounter::PostFetchAdd];
const READ_DATA: [EpCounter; 1] = [EpCounter::PostReadData];
const RECEIVED: [EpCounter; 4] =
    [EpCounter::Recv, EpCounter::RecvUd, EpCounter::RecvImm, EpCounter::RecvRdmaImm];
const RECEIVED_DATA: [EpCounter; 4] = [
    EpCounter::RecvData,
    EpCounter::RecvUdData,
    EpCounter::RecvImmData,
    EpCounter::RecvRdmaImmData,
];

/// One look. `docs/dat-top.schema.json` describes its JSON.
#[derive(Debug, Serialize)]
struct Report {
    /// Between the two looks.
    seconds: f64,
    adapters: Vec<Adapter>,
    silent: Vec<Silent>,
}

#[derive(Debug, Serialize)]
struct Adapter {
    pid: u32,
    program: String,
    device: String,
    address: IpAddr,
    open_seconds: f64,
    lost: Option<String>,
    listens: Vec<u64>,
    /// Of all its Endpoints.
    rates: Rates,
    /// Counters of errors, retransmissions and drops that are not 0, since it was opened.
    errors: BTreeMap<String, u64>,
    endpoints: Vec<Endpoint>,
    #[serde(skip)]
    head: String,
}

#[derive(Debug, Serialize)]
struct Endpoint {
    queue_pair: Option<u32>,
    state: String,
    peer: Option<SocketAddr>,
    requests: u32,
    most_requests: u16,
    receives: Option<u32>,
    most_receives: u16,
    rates: Rates,
}

/// Operations and payload bytes in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Rates {
    sent: f64,
    sent_bytes: f64,
    read: f64,
    read_bytes: f64,
    received: f64,
    received_bytes: f64,
}

impl Rates {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn of(before: Option<&status::Endpoint>, now: &status::Endpoint, seconds: f64) -> Self {
        let rate = |names: &[EpCounter]| {
            let before = before.map_or(0, |before| before.sum(names));
            // Less than before: the program has reset them.
            now.sum(names).saturating_sub(before) as f64 / seconds.max(1e-9)
        };
        Self {
            sent: rate(&SENT),
            sent_bytes: rate(&SENT_DATA),
            read: rate(&READ),
            read_bytes: rate(&READ_DATA),
            received: rate(&RECEIVED),
            received_bytes: rate(&RECEIVED_DATA),
        }
    }

    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.read += other.read;
        self.read_bytes += other.read_bytes;
        self.received += other.received;
        self.received_bytes += other.received_bytes;
    }

    fn cells(&self) -> [String; 6] {
        [
            format!("{:.0}", self.sent),
            format!("{:.1}", self.sent_bytes / 1e6),
            format!("{:.0}", self.read),
            format!("{:.1}", self.read_bytes / 1e6),
            format!("{:.0}", self.received),
            format!("{:.1}", self.received_bytes / 1e6),
        ]
    }
}

pub(crate) fn run(top: &Top, out: &Out) -> Result<End, Failure> {
    signals::watch()?;
    let which = top.which.as_deref();
    let draws = !top.once && !out.json() && io::stdout().is_terminal();
    let (mut before, _) = look(which);
    let mut since = Instant::now();
    while pause(since + top.interval) {
        let (now, silent) = look(which);
        let seconds = since.elapsed().as_secs_f64();
        since = Instant::now();
        let adapters = now.iter().map(|now| adapter(&before, now, seconds)).collect();
        let end = rest(&now, &silent);
        before = now;
        let report = Report { seconds, adapters, silent };
        let clear = if draws { CLEAR } else { "" };
        out.result(&report, &format!("{clear}{}{end}", words(&report)))?;
        if top.once {
            break;
        }
    }
    Ok(End::Ok)
}

/// Sleeps until then; `false` after Ctrl-C.
fn pause(until: Instant) -> bool {
    while !signals::asked() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(SLICE));
    }
    false
}

fn adapter(before: &[Snapshot], now: &Snapshot, seconds: f64) -> Adapter {
    let same = |other: &&Snapshot| (other.pid, &other.device) == (now.pid, &now.device);
    let before = before.iter().find(same).map_or(&[][..], |before| &before.endpoints);
    let mut rates = Rates::default();
    let endpoints = now.endpoints.iter().map(|endpoint| {
        // A queue pair's number comes back, but not within an interval.
        let same = |other: &&status::Endpoint| other.queue_pair == endpoint.queue_pair;
        let before = before.iter().find(same).filter(|_| endpoint.queue_pair.is_some());
        let own = Rates::of(before, endpoint, seconds);
        rates.add(&own);
        Endpoint {
            queue_pair: endpoint.queue_pair,
            state: endpoint.state.clone(),
            peer: endpoint.peer.map(|ip| SocketAddr::new(ip, endpoint.peer_port)),
            requests: endpoint.requests,
            most_requests: endpoint.most_requests,
            receives: endpoint.receives,
            most_receives: endpoint.most_receives,
            rates: own,
        }
    });
    let endpoints = endpoints.collect();
    let is_trouble = |name: &str| ["ERR", "ASYNC", "WARN"].iter().any(|part| name.contains(part));
    let errors = now.counters.iter().filter(|(name, _)| is_trouble(name));
    Adapter {
        pid: now.pid,
        program: now.program.clone(),
        device: now.device.clone(),
        address: now.address,
        open_seconds: now.open_seconds,
        lost: now.lost.clone(),
        listens: now.listens.clone(),
        rates,
        errors: errors.map(|(name, count)| (name.clone(), *count)).collect(),
        endpoints,
        head: head(now),
    }
}

fn words(report: &Report) -> String {
    let mut text = String::new();
    for adapter in &report.adapters {
        text.push_str(&adapter.head);
        for (name, count) in &adapter.errors {
            text.push_str(&format!("  {name} {count}\n"));
        }
        let names = [
            "  QP",
            "state",
            "peer",
            "requests",
            "receives",
            "sent/s",
            "MB/s",
            "read/s",
            "MB/s",
            "received/s",
            "MB/s",
        ];
        let mut rows = vec![names.map(str::to_owned).to_vec()];
        for endpoint in &adapter.endpoints {
            let mut row = vec![
                format!("  {}", number(endpoint.queue_pair)),
                endpoint.state.clone(),
                endpoint.peer.map_or_else(|| "-".into(), |peer| peer.to_string()),
                used(Some(endpoint.requests), endpoint.most_requests),
                used(endpoint.receives, endpoint.most_receives),
            ];
            row.extend(endpoint.rates.cells());
            rows.push(row);
        }
        let mut row = vec!["  all".into(), format!("{} Endpoints", adapter.endpoints.len())];
        row.extend([const { String::new() }; 3]);
        row.extend(adapter.rates.cells());
        rows.push(row);
        text.push_str(&table(&rows));
    }
    text
}
