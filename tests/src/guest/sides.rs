//! Two adapters on two devices of this machine: real time, and a sleep wherever nothing is to do.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant as Wall};

use anyhow::{Result, anyhow};
use dat_core::provider::Net;
use dat_core::{Evd, Event, Ia, Instant};
use hca_mlx5::{Config, Mlx5};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vfio_host::{Host, Nic, NicStorage};

use crate::demo::{Environment, Tally};

/// The network address of a side.
fn address(side: usize) -> IpAddr {
    Ipv4Addr::new(192, 168, 7, 1 + side as u8).into()
}

/// The network of a side.
pub(super) fn net(side: usize) -> Net {
    Net::new(address(side), 24)
}

/// Storage of two adapters.
pub(crate) fn rooms<'p, H: Host>() -> [Box<NicStorage<'p, H>>; 2] {
    [Box::new(NicStorage::new()), Box::new(NicStorage::new())]
}

/// Two adapters.
pub(crate) struct Sides<'s, 'p, H: Host> {
    pub(super) nics: [Nic<'s, 'p, H>; 2],
    /// Sleeps so far. Nothing is looked at twice without one in between.
    pub(super) sleeps: u64,
}

impl<'s, 'p, H: Host> Sides<'s, 'p, H> {
    /// Brings both devices up.
    pub(crate) fn open(
        hosts: &'p [H; 2],
        rooms: &'s mut [Box<NicStorage<'p, H>>; 2],
    ) -> Result<Self> {
        let [a, b] = rooms;
        let open = |side: usize, parts| {
            Nic::open(&hosts[side], parts, net(side), &Config::default())
                .map_err(|error| anyhow!("{error}"))
        };
        Ok(Self { nics: [open(0, a.parts())?, open(1, b.parts())?], sleeps: 0 })
    }
}

/// Sleeps until one of the adapters wants to be looked at.
fn sleep<H: Host>(nics: &[Nic<'_, '_, H>; 2], limit: Duration) {
    let mut fds = nics.each_ref().map(|nic| PollFd::new(nic, PollFlags::IN));
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // An interrupted sleep is a short one.
    let _ = poll(&mut fds, Some(&limit));
}

impl<'s, 'p: 's, H: Host> Environment<'s> for Sides<'s, 'p, H> {
    type Platform = H;
    type Driver = Mlx5<'p, H>;

    fn ia(&mut self, side: usize) -> &mut Ia<'s, Mlx5<'p, H>> {
        &mut self.nics[side]
    }

    fn platform(&self, side: usize) -> &'s H {
        self.nics[side].host()
    }

    fn address(&self, side: usize) -> IpAddr {
        address(side)
    }

    fn now(&self) -> Instant {
        self.nics[0].now()
    }

    fn first(&mut self, of: &[(usize, Evd)], limit: Duration) -> Result<Option<(usize, Event)>> {
        let until = Wall::now() + limit;
        loop {
            for (side, nic) in self.nics.iter_mut().enumerate() {
                let own = of.iter().filter(|(s, _)| *s == side);
                let evds: Vec<Evd> = own.map(|(_, evd)| *evd).collect();
                // Also when no event of this side is wanted: it is driven, and says when it wants
                // to be driven again.
                let ready = nic.prepare(&evds).map_err(|error| anyhow!("side {side}: {error}"))?;
                if ready {
                    if let Some(event) = evds.iter().find_map(|evd| nic.evd_dequeue(*evd).ok()) {
                        return Ok(Some((side, event)));
                    }
                }
            }
            let left = until.saturating_duration_since(Wall::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.sleeps += 1;
            sleep(&self.nics, left);
        }
    }

    fn tally(&self) -> Tally {
        Tally::default()
    }
}
