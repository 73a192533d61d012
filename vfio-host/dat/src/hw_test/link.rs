//! Step 7: the link, and a datagram to the port's own QP1.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dat_core::{EvdFlags, Event, PspFlag};
use hca_mlx5::prm::cqe::{SENDER_AT, Sender};
use serde_json::json;
use vfio_host::{Host, Nic};

use super::super::failure::Failure;
use super::super::traffic::adapter::next;
use super::Run;
use super::raw::{self, UNTOUCHED};
use super::report::{Finding, fail};

/// How long the link is watched after it is up.
const WATCHED: Duration = Duration::from_millis(1500);
/// A link that is up within this was never down; one that is up within that trained fast.
const AT_ONCE: Duration = Duration::from_millis(800);
const SOON: Duration = Duration::from_secs(10);
/// Time of a connection.
const LIMIT: Duration = Duration::from_secs(20);
/// The service point.
const PORT: u16 = 4791;

pub(super) fn run<'p, H: Host>(nic: &mut Nic<'_, 'p, H>, run: &Run<'_>) -> Result<(), Failure> {
    let report = run.report;
    report.prepare(7, "link", || watch(nic, run))?;
    report.check(7, "own-QP1", || datagram(nic, run))?;
    Ok(())
}

/// Waits for the link and counts how often it changes.
fn watch<H: Host>(nic: &mut Nic<'_, '_, H>, run: &Run<'_>) -> Finding {
    let (start, mut up, mut changes, mut since) = (Instant::now(), false, 0, None);
    let limit = Duration::from_secs(run.args.link.link_wait);
    let mut first = None;
    while start.elapsed() < limit {
        nic.advance();
        let now = nic.provider_mut().link_up()?;
        if now != up {
            (up, since) = (now, Some(Instant::now()));
            changes += 1;
            report_edge(run, now, start);
            first = first.or_else(|| now.then(|| start.elapsed()));
        }
        if up && since.is_some_and(|since| since.elapsed() > WATCHED) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let Some(first) = first.filter(|_| up) else {
        return fail(format!("the link is down after {} s", limit.as_secs()));
    };
    let setting = match first {
        _ if changes > 1 => "flapping",
        first if first < AT_ONCE => "at-once",
        first if first < SOON => "after-2s",
        _ => "after-20s",
    };
    run.report.fact("link", setting);
    Ok(format!("up after {:.1} s, {changes} changes", first.as_secs_f64()))
}

fn report_edge(run: &Run<'_>, up: bool, start: Instant) {
    let name = if up { "link up after" } else { "link down after" };
    run.report.number(name, super::report::micros(start), "us");
}

/// Connects to the port's own address: the request is a datagram from QP1 to itself.
fn datagram<'p, H: Host>(nic: &mut Nic<'_, 'p, H>, run: &Run<'_>) -> Finding {
    let before = raw::completions(nic, true);
    raw::prepare_headers(nic);
    let streams = EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::CR;
    let evd = nic.evd_create(64, streams)?;
    let pz = nic.pz_create()?;
    let psp = nic.psp_create(PORT.into(), evd, PspFlag::Consumer)?;
    let ep = nic.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
    nic.ep_connect(ep, SocketAddr::new(run.net.addr, PORT), LIMIT, b"hw-test")?;
    let event = next(nic, evd, LIMIT, false)?;
    let headers = raw::new_headers(nic);
    for bytes in raw::new_completions(nic, true, &before) {
        let types: Option<[u8; 4]> = bytes.get(SENDER_AT..).and_then(|b| b.first_chunk().copied());
        let types = Sender::from_word(types.map_or(0, u32::from_be_bytes)).l3_type();
        run.report.fact("cqe-l3-type", if types == 0 { "absent" } else { "present" });
        run.report.bytes("cqe", bytes, json!({ "step": 7, "what": "own-QP1" }));
    }
    for bytes in &headers {
        header(run, bytes);
    }
    match event {
        Some(Event::ConnectionRequest { cr, .. }) => nic.cr_reject(cr, &[])?,
        Some(other) => return fail(format!("{other:?} came instead of the request")),
        None => {
            return fail(format!(
                "no request came; {} network headers did, {} datagrams were malformed",
                headers.len(),
                nic.provider().malformed_datagrams()
            ));
        }
    }
    let answer = next(nic, evd, LIMIT, false)?;
    nic.psp_free(psp)?;
    nic.ep_free(ep)?;
    nic.evd_free(evd)?;
    nic.pz_free(pz)?;
    match answer {
        Some(Event::PeerRejected(_)) => Ok(format!("{} network headers", headers.len())),
        other => fail(format!("the answer to the request: {other:?}")),
    }
}

/// The sum of a header's words, folded: all ones if its checksum is right.
fn sum(header: &[u8]) -> u16 {
    let words = header
        .chunks_exact(2)
        .filter_map(<[_]>::first_chunk::<2>)
        .map(|word| u32::from(u16::from_be_bytes(*word)));
    let sum: u32 = words.sum();
    u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap_or(0)
}

/// Keeps the 40 bytes before a datagram, and what they show.
fn header(run: &Run<'_>, bytes: &[u8]) {
    let v4 = run.net.addr.is_ipv4();
    if v4 {
        if let Some((upper, ip)) = bytes.split_at_checked(20) {
            let upper = match upper {
                all if all.iter().all(|byte| *byte == 0) => "zero",
                all if all.iter().all(|byte| *byte == 0xff) => "ones",
                all if all.iter().all(|byte| *byte == UNTOUCHED) => "untouched",
                _ => "other",
            };
            run.report.fact("grh-upper", upper);
            let checksum = match (ip.get(10..12), sum(ip)) {
                (Some([0, 0]), _) => "zero",
                (_, 0xffff) => "sent",
                _ => "rewritten",
            };
            run.report.fact("grh-checksum", checksum);
        }
    }
    let network = if v4 { "ipv4" } else { "ipv6" };
    run.report.bytes("grh", bytes.to_vec(), json!({ "network": network }));
}
