//! Ethernet: mlx5e on the model against itself and against another kernel's network device.

use anyhow::{Context, Result, ensure};

use super::super::lab::Lab;
use super::super::side::{Pairing, Side};
use super::{How, Ours, Test};

const NO_NETDEV: Ours =
    Ours::Cannot("our side has no network device: it speaks ARP and neighbour discovery only");

pub(super) const TESTS: &[Test] = &[Test {
    name: "ethtool -S counts what a ping sends",
    quick: true,
    how: How::Own(counters, NO_NETDEV),
}];

/// Pings, and the bytes of each: with its headers a frame of 1042 bytes, which a port counts with
/// the four of its check.
const PINGS: u64 = 50;
const FRAME: u64 = 1042;
/// Frames that a network sends of its own accord in the meantime, and their bytes at the most.
const STRAY: u64 = 20;
/// Counters, how much each frame adds, and what the strays may.
const COUNTERS: [(&str, u64, u64); 8] = [
    ("tx_packets", 1, STRAY),
    ("rx_packets", 1, STRAY),
    ("tx_bytes", FRAME, STRAY * 200),
    ("rx_bytes", FRAME, STRAY * 200),
    ("tx_packets_phy", 1, STRAY),
    ("rx_packets_phy", 1, STRAY),
    ("tx_bytes_phy", FRAME + 4, STRAY * 200),
    ("rx_bytes_phy", FRAME + 4, STRAY * 200),
];

/// The counters of every mlx5 that takes part.
fn counters(lab: &mut Lab<'_, '_>, pairing: Pairing) -> Result<()> {
    let sides = [pairing.client, pairing.server];
    let hcas = sides.into_iter().filter(|side| *side != Side::Soft);
    let hcas: Vec<Side> = hcas.collect();
    let mut before = Vec::new();
    for side in &hcas {
        before.push(count(lab, *side)?);
    }
    let ping = format!("ping -q -c {PINGS} -i 0.01 -s 1000 {{peer}}");
    let ping = pairing.fill(&ping, pairing.client, lab.place());
    lab.must(pairing.client, 30, &ping)?;
    for (side, before) in hcas.iter().zip(&before) {
        let after = count(lab, *side)?;
        for ((name, each, stray), (before, after)) in COUNTERS.iter().zip(before.iter().zip(&after))
        {
            let (grown, least) = (after - before, PINGS * each);
            ensure!(
                (least..=least + stray).contains(&grown),
                "{side:?}: {name} grew by {grown} in {PINGS} pings, not by {least} and little more"
            );
        }
    }
    Ok(())
}

fn count(lab: &mut Lab<'_, '_>, side: Side) -> Result<Vec<u64>> {
    let text = lab.must(side, 10, "ethtool -S hca")?;
    let value = |name: &str| {
        let found = text.lines().find_map(|line| {
            let (counter, value) = line.trim().split_once(": ")?;
            (counter == name).then(|| value.parse().ok())?
        });
        found.with_context(|| format!("ethtool -S has no {name}:\n{text}"))
    };
    COUNTERS.iter().map(|(name, ..)| value(name)).collect()
}
