//! Step 9: objects until the device has no more, and the pages that the firmware asks for
//! meanwhile.
//!
//! An adapter of ordinary size has room for fewer than a card, so this uses the driver itself, with
//! tables for more.

use std::time::Duration;

use dat_core::Instant;
use dat_core::provider::{Access, Provider, QpInit, Region, Service};
use hca_mlx5::dma::Buffer;
use hca_mlx5::prm::cmd::Opcode;
use hca_mlx5::prm::error::status;
use hca_mlx5::prm::pages::{ManagePagesIn, PageOp};
use hca_mlx5::{Config, Mlx5};
use vfio_host::Host;

use super::super::failure::Failure;
use super::Run;
use super::report::{Finding, Stop, skip};
use super::watch::{Command, Mode};

/// Queue pairs and keys at most.
const QPS: usize = 512;
const KEYS: usize = 4096;
/// Completion queues, of which the driver has three.
const CQS: usize = 4;
/// Longest making.
const LIMIT: Duration = Duration::from_secs(20);
/// A command that is still under way then waits for pages.
const WITHHELD: Duration = Duration::from_millis(20);
/// Memory of all keys.
const BYTES: usize = 4096;

/// The driver with tables for many.
type Large<'p, H> = Mlx5<'p, H, QPS, CQS, KEYS>;

pub(super) fn run<H: Host>(host: &mut H, run: &Run<'_>) -> Result<(), Failure> {
    run.renew(host, 9, Mode::Brief)?;
    let (host, report) = (&*host, run.report);
    let mut driver = None;
    report.prepare(9, "bring-up", || {
        let config = Config {
            observer: Some(run.watch),
            withhold_pages: Some(WITHHELD),
            ..Config::default()
        };
        let config = host.config(&config)?;
        driver = Some(Box::new(Large::open(host, &config)?));
        Ok(format!("{} commands", run.watch.count()))
    })?;
    let Some(mut driver) = driver else { return Ok(()) };
    let first = run.watch.count();
    report.check(9, "many", || many(host, &mut driver, run))?;
    report.check(9, "page-requests", || {
        let found = run.watch.commands(|commands| requests(commands.get(first..)?));
        let Some((how, given, longest)) = found else {
            report.fact("shortage", "none");
            return skip("the firmware asked for no pages while objects were made");
        };
        report.fact("shortage", how);
        report.number("pages asked for while objects were made", given, "");
        report.number("longest command behind a page request", longest, "us");
        Ok(format!("{given} pages, {how}"))
    })?;
    report.prepare(9, "close", || {
        let closed = driver.close();
        let pages = run.pages();
        closed?;
        pages.balance()
    })?;
    Ok(())
}

/// Makes what can be made, and destroys it. Events are read in between, so that a request for pages
/// which no command waits for is answered by none.
fn many<'p, H: Host>(host: &'p H, driver: &mut Large<'p, H>, run: &Run<'_>) -> Finding {
    let buffer = Buffer::zeroed(host, BYTES).ok_or(Stop::Fail("no memory".into()))?;
    let Region { addr, len } = buffer.region();
    let region = Region { addr, len };
    let pd = driver.pd_create()?;
    let (cq, end) = driver.cq_create(64)?;
    let init = QpInit {
        service: Service::Connected,
        pd,
        send_cq: cq,
        recv_cq: cq,
        requests: 16,
        receives: 16,
        request_segments: 1,
        receive_segments: 1,
        binds: true,
        index: 0,
        shared: None,
    };
    let (mut qps, mut keys, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    let start = std::time::Instant::now();
    while qps.len() < QPS && start.elapsed() < LIMIT / 2 {
        driver.service(Instant::from_nanos(host.now()));
        match driver.qp_create(&init) {
            Ok(made) => qps.push(made),
            Err(fault) => {
                ends.push(fault.to_string());
                break;
            }
        }
    }
    while keys.len() < KEYS && start.elapsed() < LIMIT {
        driver.service(Instant::from_nanos(host.now()));
        match driver.mr_create(pd, region, Access::LOCAL_READ | Access::LOCAL_WRITE) {
            Ok(key) => keys.push(key),
            Err(fault) => {
                ends.push(fault.to_string());
                break;
            }
        }
    }
    driver.service(Instant::from_nanos(host.now()));
    let counts = [qps.len(), keys.len()];
    for (name, count) in ["queue pairs made", "keys made"].into_iter().zip(counts) {
        run.report.number(name, count, "");
    }
    for key in keys {
        driver.mr_destroy(key)?;
    }
    for made in qps {
        driver.qp_destroy(made.qp, made.sq, made.rq)?;
    }
    driver.cq_destroy(cq, end)?;
    driver.pd_destroy(pd)?;
    buffer.release();
    let [made, registered] = counts;
    Ok(format!("{made} queue pairs, {registered} keys; {}", ends.join("; ")))
}

/// How the firmware got its pages while objects were made: the setting of the fact, their number,
/// and the longest command.
fn requests(running: &[Command]) -> Option<(&'static str, u32, f64)> {
    let gives: Vec<&Command> = running
        .iter()
        .filter(|command| {
            command.op == Opcode::ManagePages
                && command.op_mod == PageOp::Give as u16
                && command.status() == 0
        })
        .collect();
    let count = |command: &&Command| ManagePagesIn(&*command.input).input_num_entries();
    let given = gives.iter().map(count).fold(0, u32::saturating_add);
    let refused = running.iter().any(|command| command.status() == status::NO_RESOURCES);
    // Of a device that is slow for another reason some come during a command, too.
    let nested = gives.iter().filter(|command| command.nested).count();
    let how = match refused {
        _ if gives.is_empty() => return None,
        true => "refuse",
        false if 2 * nested > gives.len() => "stall",
        false => "beside",
    };
    let longest = running.iter().map(|command| command.us).reduce(f64::max).unwrap_or(0.0);
    Some((how, given, longest))
}
