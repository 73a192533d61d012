//! Opening and closing, again and again: what is taken is given back.

use std::fs;

use anyhow::{Context, Result, anyhow, ensure};
use dat_core::{CloseFlag, EvdFlags, MemPriv};
use hca_mlx5::Config;
use vfio_host::{Address, Host, Nic, NicStorage, Options};

use super::hosts::{Part, with};
use super::sides::net;

/// Rounds before which a process may still grow: allocators keep a little.
const WARM: u32 = 3;

/// Resources of the machine that a process holds.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    /// Open files.
    files: usize,
    /// Mapped ranges of device files and of huge pages.
    maps: usize,
    /// KiB of locked memory.
    locked: String,
}

impl Held {
    fn now() -> Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
        let maps = fs::read_to_string("/proc/self/maps")?;
        let of_device = |line: &&str| ["vfio", "memfd", "huge"].iter().any(|w| line.contains(w));
        Ok(Self {
            files: fs::read_dir("/proc/self/fd")?.count(),
            maps: maps.lines().filter(of_device).count(),
            locked: locked.context("no VmLck")?.trim().to_owned(),
        })
    }
}

/// One round on one device.
struct Round;

impl Part for Round {
    fn run<H: Host>(&self, hosts: &mut [H]) -> Result<()> {
        let host = hosts.first().context("this takes a device")?;
        let mut room = Box::new(NicStorage::new());
        let mut nic = Nic::open(host, room.parts(), net(0), &Config::default())
            .map_err(|error| anyhow!("{error}"))?;
        let buffer = nic.buffer(64 << 10).context("no memory for a buffer")?;
        let mut objects = || {
            let pz = nic.pz_create()?;
            let evd = nic.evd_create(64, EvdFlags::DTO | EvdFlags::CONNECTION)?;
            nic.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
            nic.lmr_create(pz, buffer.region(), MemPriv::ALL)
        };
        objects().map_err(|error| anyhow!("objects: {error}"))?;
        // Closing takes everything down that is still there.
        nic.close(CloseFlag::Abrupt).map_err(|error| anyhow!("close: {error}"))?;
        buffer.release();
        Ok(())
    }
}

/// Runs all rounds.
pub(super) fn run(device: &Address, times: u32) -> Result<()> {
    // Small enough for a few huge pages, so that most of the time goes into opening and closing,
    // not into mappings.
    let options =
        Options { arena: 4 << 20, read_only: 2 << 20, firmware: 32 << 20, ..Options::default() };
    let mut first = None;
    for round in 1..=times {
        with(std::slice::from_ref(device), &options, &Round)
            .with_context(|| format!("round {round}"))?;
        let held = Held::now()?;
        if round == WARM {
            first = Some(held);
        } else if let Some(first) = &first {
            ensure!(
                *first == held,
                "after round {WARM} this held {first:?}, after round {round} {held:?}"
            );
        }
    }
    let held = first.context("too few rounds")?;
    println!(
        "@@reopen {times} times, {} files, {} maps and {} locked after each",
        held.files, held.maps, held.locked
    );
    Ok(())
}
