//! A device held with memory mapped for it, while somebody who has the device in hand looks what it can reach.
//!
//! Tells the ledger in lines `@@map IOVA LEN RIGHTS PURPOSE`, then `@@held`, and waits for words on standard input:
//! `close` ends the adapter, so that the firmware's pages are given back, and tells the ledger again; `end` ends all.

use std::io::BufRead;

use anyhow::{Context, Result, anyhow, bail, ensure};
use dat_core::{CloseFlag, EvdFlags, MemPriv};
use hca_mlx5::Config;
use vfio_host::{Host, Nic, Room};

use super::ground::net;
use super::hosts::Part;

/// Bytes of a consumer's buffer.
const BUFFER: usize = 256 << 10;

/// Holds.
pub(super) struct Hold;

fn ledger<H: Host>(host: &H) {
    for map in host.maps() {
        println!(
            "@@map {:#x} {:#x} {} {}",
            map.iova, map.len, map.reach, map.purpose
        );
    }
    println!("@@held");
}

fn told(word: &str) -> Result<()> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    ensure!(line.trim() == word, "told {line:?} instead of {word}");
    Ok(())
}

impl Part for Hold {
    fn play<H: Host>(&self, hosts: &mut [H]) -> Result<()> {
        let host = hosts.first().context("this takes a device")?;
        let mut room = Box::new(Room::new());
        let mut nic = Nic::open(host, &mut room, net(0), &Config::default())
            .map_err(|error| anyhow!("{error}"))?;
        let buffer = nic.buffer(BUFFER).context("no memory for a buffer")?;
        let mut make = || {
            let pz = nic.pz_create()?;
            let evd = nic.evd_create(64, EvdFlags::DTO | EvdFlags::CONNECTION)?;
            nic.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
            nic.lmr_create(pz, buffer.region(), MemPriv::LOCAL_READ)
        };
        if let Err(error) = make() {
            bail!("objects: {error}");
        }
        ledger(host);
        told("close")?;
        nic.close(CloseFlag::Abrupt)
            .map_err(|error| anyhow!("close: {error}"))?;
        buffer.release();
        ledger(host);
        told("end")
    }
}
