//! `dat ping`: measures round trips of a message to the peer and its answer, one after the other.

use std::time::{Duration, Instant};

use dat_core::{DtoOperation, Event};
use serde::Serialize;
use vfio_host::{Host, Nic};

use super::super::args::Ping;
use super::super::failure::Failure;
use super::super::out::{Out, progress};
use super::super::{End, signals};
use super::adapter::{self, Task};
use super::call::{Call, Callee};
use super::hello::{Hello, Kind};
use super::histogram::{Histogram, Latency, Row};

/// The result.
#[derive(Debug, Serialize)]
struct Report {
    peer: String,
    size: u32,
    /// Round trips, all verified on both sides.
    count: u64,
    /// Ctrl-C ended it early.
    interrupted: bool,
    latency_us: Option<Latency>,
    histogram: Vec<Row>,
    #[serde(skip)]
    picture: String,
}

pub(crate) fn run(ping: &Ping, out: &Out) -> Result<End, Failure> {
    let callee =
        Callee { peer: ping.peer.address(&ping.adapter)?, timeout: ping.timeout, spin: ping.poll };
    let hello =
        Hello { kind: Kind::Ping, depth: 1, size: ping.size, count: ping.count, seed: 0, mtu: 0 };
    hello.check().map_err(Failure::usage)?;
    let report = adapter::with(&ping.adapter, Pinging { ping, callee, hello, out })?;
    out.result(&report, &words(&report))?;
    // As ping(8): an interrupted run succeeds if there was at least one round trip.
    Ok(if report.count > 0 { End::Ok } else { End::Failed })
}

fn words(report: &Report) -> String {
    let Report { peer, size, count, latency_us, picture, .. } = report;
    let mut text =
        format!("{count} round trips of {size} bytes with {peer}, verified on both sides\n");
    if let Some(Latency { min, median, mean, p90, p99, p999, max }) = latency_us {
        text.push_str(&format!(
            "min {min:.1} us, median {median:.1} us, mean {mean:.1} us, p90 {p90:.1} us, p99 {p99:.1} us, p99.9 {p999:.1} us, max {max:.1} us\n"
        ));
        text.push_str(picture);
    }
    text
}

struct Pinging<'a> {
    ping: &'a Ping,
    callee: Callee,
    hello: Hello,
    out: &'a Out,
}

impl Task for Pinging<'_> {
    type Report = Report;

    fn run<'p, H: Host>(self, nic: &mut Nic<'_, 'p, H>) -> Result<Report, Failure> {
        let Self { ping, callee, hello, out } = self;
        let mut call = Call::new(nic, callee, hello)?;
        let bar = progress(*out, ping.count, "ping");
        let mut times = Histogram::new();
        let mut number = 0;
        while ping.count == 0 || number < ping.count {
            let Some(time) = trip(nic, &mut call, number)? else {
                break;
            };
            times.add(time);
            bar.inc(1);
            number += 1;
            pause(ping.interval);
        }
        bar.finish_and_clear();
        call.part(nic)?;
        Ok(Report {
            peer: callee.peer.to_string(),
            size: ping.size,
            count: number,
            interrupted: number < ping.count,
            latency_us: times.latency(),
            histogram: times.rows(),
            picture: times.picture(),
        })
    }
}

/// Runs one round trip. Returns `None` after Ctrl-C.
fn trip<'p, H: Host>(
    nic: &mut Nic<'_, 'p, H>,
    call: &mut Call<'p, H>,
    number: u64,
) -> Result<Option<Duration>, Failure> {
    let question = 2 * number;
    call.conn.fill(number, question);
    let start = Instant::now();
    call.conn.ping(nic, number)?;
    let (piece, len) = loop {
        let Some(event) = call.next(nic)? else {
            return Ok(None);
        };
        if let Event::Dto(dto) = event {
            if dto.operation == DtoOperation::Receive {
                break (dto.cookie, dto.len);
            }
        }
    };
    let time = start.elapsed();
    if len != call.conn.hello.size {
        return Err(Failure::new(format!(
            "answer {number} has {len} bytes instead of {}",
            call.conn.hello.size
        )));
    }
    if let Some(at) = call.conn.received_wrong(piece, question + 1) {
        return Err(Failure::new(format!("answer {number} has wrong contents from byte {at} on")));
    }
    call.conn.post_recv(nic, piece)?;
    Ok(Some(time))
}

/// Sleeps for a time, or until Ctrl-C.
fn pause(time: Duration) {
    let until = Instant::now() + time;
    while !signals::asked() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(adapter::SLICE));
    }
}
