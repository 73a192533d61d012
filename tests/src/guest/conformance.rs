//! The conformance suite on devices of this machine.
//!
//! The HCAs come up once and stay up from case to case: each case has adapters of its own, which
//! are closed behind it, so a hundred cases also show that closing gives everything back. Only a
//! case that closes an adapter itself, or fails, has the next one start with a bring-up.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant as Wall};

use anyhow::{Result, ensure};
use dat_core::provider::Region;
use hca_mlx5::Config;
use vfio_host::Host;

use super::hosts::{Part, two};
use crate::conformance::hosted::Hosted;
use crate::conformance::{A, Adapters, B, OPENS, Party, Room, Side, all};

/// Longest sleep between two looks: soon enough for messages, which take less than the emulation of
/// one.
const NAP: Duration = Duration::from_micros(500);
/// Below this, nothing is slept at all.
const SHORT: Duration = Duration::from_micros(50);

/// Runs all cases.
pub(super) struct Conformance {
    /// Only those with this in their name.
    pub(super) only: String,
    /// Of these, only every so many: 1 for all.
    pub(super) every: usize,
}

/// What the driver of a host is given.
fn config<H: Host>(host: &H) -> Config<'_> {
    host.config(&Config::default()).unwrap()
}

/// Lets time pass.
fn pass<H: Host>(_: &H, span: Duration) {
    if span > SHORT {
        thread::sleep(span.min(NAP));
    } else {
        thread::yield_now();
    }
}

/// Memory that any process of this user can have by that name.
fn share<H: Host>(side: &Hosted<'_, H>, name: &[u8; 40]) -> Region {
    let shared = side.platform().share(name, 4096);
    shared.unwrap_or_else(|error| panic!("share: {error}"))
}

/// Runs the cases from number `next` on, until one fails; its name then. HCAs stay up.
fn batch<H: Host>(hosts: &[H; 2], next: &mut usize, chosen: &[usize]) -> Option<&'static str> {
    let mut up = [None, None];
    while let Some(&index) = chosen.get(*next) {
        *next += 1;
        let name = all::<Hosted<'_, H>>()[index].0;
        let start = Wall::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut rooms = [A, B].map(|_| Vec::from_iter((0..OPENS).map(|_| Room::new())));
            let [a, b] = &mut rooms;
            let open = |index: usize, up: Option<_>, rooms| {
                let side = Hosted::new(&hosts[index], config::<H>, pass::<H>, share::<H>);
                let hca = up.unwrap_or_else(|| side.hca());
                Party::open(index, side, hca, rooms)
            };
            let a = open(A, up[A].take(), &mut a[..]);
            let mut ias = Adapters::new(a, open(B, up[B].take(), &mut b[..]));
            ias.hurried = true;
            all()[index].1(&mut ias);
            up = ias.leave();
        }));
        println!("{name} {} ms", start.elapsed().as_millis());
        if outcome.is_err() {
            return Some(name);
        }
    }
    for hca in up.iter_mut().flatten() {
        let closed = dat_core::provider::Provider::close(hca);
        closed.unwrap_or_else(|fault| panic!("close: {fault}"));
    }
    None
}

impl Part for Conformance {
    fn run<H: Host>(&self, hosts: &mut [H]) -> Result<()> {
        let hosts = two(hosts)?;
        let cases = all::<Hosted<'_, H>>();
        let named = cases.iter().map(|(name, _)| name.contains(&self.only));
        let named = (0..).zip(named).filter(|(_, c)| *c).map(|(i, _)| i);
        let chosen: Vec<usize> = named.step_by(self.every.max(1)).collect();
        ensure!(!chosen.is_empty(), "no case has {:?} in its name", self.only);
        let (mut next, mut failed) = (0, Vec::new());
        let start = Wall::now();
        while next < chosen.len() {
            if let Some(name) = batch(hosts, &mut next, &chosen) {
                println!("@@failed {name}");
                failed.push(name);
                for host in hosts.iter_mut() {
                    host.renew().map_err(|error| anyhow::anyhow!("{error}"))?;
                }
            }
        }
        ensure!(
            failed.is_empty(),
            "{} of {} cases failed: {}",
            failed.len(),
            chosen.len(),
            failed.join(", ")
        );
        println!(
            "@@conformance {} of {} cases passed in {:.1} s",
            chosen.len(),
            cases.len(),
            start.elapsed().as_secs_f64()
        );
        Ok(())
    }
}
