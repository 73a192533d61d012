//! Everything the provider can do without a peer, once: what a mute or refusing device is met on.

use std::fmt;
use std::net::IpAddr;

use dat_core::Instant;
use dat_core::provider::{
    Access, Class, Cq, Fault, LidHop, LinkType, Mtu, NextHop, Path, Pd, Provider, QpInit, QpStep,
    Region, Service,
};
use hca_mlx5::Config;
use hca_mlx5::platform::{Platform, Reach};

use super::{Driver, net};

/// How far a journey came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Bring-up.
    Open,
    /// The port's address.
    SetNet,
    /// Making a protection domain, a region, a window, a completion queue, a queue pair.
    Create,
    /// Walking the queue pair through its states.
    Modify,
    /// Destroying them all.
    Destroy,
    /// Giving the device up.
    Close,
    /// Nothing failed.
    Done,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Opens the device, makes one of everything, destroys it, closes. Where a step fails the device is
/// closed at once, and the failure is reported with the step; a failure of that close is not.
///
/// # Errors
/// The first failure.
pub fn journey<P: Platform>(platform: &P, config: &Config<'_>) -> Result<(), (Step, Fault)> {
    let now = Instant::from_nanos(platform.now());
    let mut driver = Driver::open(platform, config).map_err(|fault| (Step::Open, fault))?;
    let result = travel(&mut driver, platform, now);
    let closed = driver.close().map_err(|fault| (Step::Close, fault));
    result.and(closed)
}

fn travel<P: Platform>(
    driver: &mut Driver<'_, P>,
    platform: &P,
    now: Instant,
) -> Result<(), (Step, Fault)> {
    driver.set_net(&net(), now).map_err(|fault| (Step::SetNet, fault))?;
    let full = dat_core::fault!(Resources, "region", "no room in the arena");
    let span = platform.alloc(4096, 4096, Reach::ReadWrite).ok_or((Step::Create, full))?;
    let region = Region { addr: platform.memory().addr() + span.offset as u64, len: 4096 };
    let result = objects(driver, region);
    // The consumer's memory: his to free, because a test ends here and the device with it.
    platform.free(span);
    result
}

fn objects<P: Platform>(driver: &mut Driver<'_, P>, region: Region) -> Result<(), (Step, Fault)> {
    let create = |fault| (Step::Create, fault);
    let modify = |fault| (Step::Modify, fault);
    let destroy = |fault| (Step::Destroy, fault);

    let pd = driver.pd_create().map_err(create)?;
    let mr = driver.mr_create(pd, region, Access::all()).map_err(create)?;
    let mw = match driver.limits().windows {
        true => Some(driver.mw_create(pd).map_err(create)?),
        false => None,
    };
    let (cq, cq_end) = driver.cq_create(64).map_err(create)?;
    let made = driver.qp_create(&small_queue_pair(pd, cq)).map_err(create)?;
    for step in steps(driver.limits().link) {
        driver.qp_modify(made.qp, &step).map_err(modify)?;
    }
    driver.qp_destroy(made.qp, made.sq, made.rq).map_err(destroy)?;
    driver.cq_destroy(cq, cq_end).map_err(destroy)?;
    if let Some(mw) = mw {
        driver.mw_destroy(mw).map_err(destroy)?;
    }
    driver.mr_destroy(mr).map_err(destroy)?;
    driver.pd_destroy(pd).map_err(destroy)
}

fn steps(link: LinkType) -> [QpStep; 5] {
    let remote: IpAddr = "192.168.7.2".parse().unwrap();
    let path = Path {
        remote,
        next_hop: match link {
            LinkType::Ethernet => NextHop::Mac([2, 0, 0, 0, 0, 2]),
            LinkType::InfiniBand => NextHop::Lid(LidHop { lid: 2, ..LidHop::default() }),
        },
        source_index: 0,
        hop_limit: if link == LinkType::Ethernet { 64 } else { 0 },
        class: Class::default(),
        flow_label: 1,
    };
    [
        QpStep::Init { access: Access::all() },
        QpStep::Rtr {
            path,
            remote_qpn: 0x123,
            rq_psn: 1,
            mtu: Mtu::B1024,
            responder_resources: 4,
            min_rnr_timer: 12,
        },
        QpStep::Rts {
            sq_psn: 1,
            initiator_depth: 4,
            ack_timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
        },
        QpStep::Error,
        QpStep::Reset,
    ]
}

/// A connected queue pair of sixteen requests and receives, all of it on one completion queue.
#[must_use]
pub fn small_queue_pair(pd: Pd, cq: Cq) -> QpInit {
    QpInit {
        service: Service::Connected,
        pd,
        send_cq: cq,
        recv_cq: cq,
        requests: 16,
        receives: 16,
        request_segments: 2,
        receive_segments: 2,
        binds: true,
        index: 7,
        shared: None,
    }
}
