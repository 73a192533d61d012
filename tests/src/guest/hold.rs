//! Holds a device with memory mapped for it, while the owner of the device checks what it can
//! reach.
//!
//! Some of it is the program's own, lent, to be written and to be read.
//!
//! Tells the ledger in lines `@@map IOVA LEN RIGHTS PURPOSE`, then `@@held`, and waits for words on
//! standard input: `close` ends the adapter, so that the firmware's pages are given back, and tells
//! the ledger again; `end` ends all.

use std::io::BufRead;

use anyhow::{Context, Result, anyhow, bail, ensure};
use dat_core::{CloseFlag, EvdFlags, MemPriv};
use hca_mlx5::Config;
use vfio_host::{Host, Nic, NicStorage, Reach};

use super::hosts::Part;
use super::sides::net;
use crate::bytes::Bytes;

/// Bytes of a consumer's buffer.
const BUFFER: usize = 256 << 10;
/// Bytes of memory of its own.
const OWN: usize = 10_001;

/// Holds.
pub(super) struct Hold;

fn ledger<H: Host>(host: &H) {
    for map in host.maps() {
        println!("@@map {:#x} {:#x} {} {}", map.iova, map.len, map.reach, map.purpose);
    }
    println!("@@held");
}

fn await_word(word: &str) -> Result<()> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    ensure!(line.trim() == word, "got {line:?} instead of {word}");
    Ok(())
}

impl Part for Hold {
    #[expect(unsafe_code, reason = "what is lent here is taken back before it goes")]
    fn run<H: Host>(&self, hosts: &mut [H]) -> Result<()> {
        let host = hosts.first().context("this takes a device")?;
        let mut room = Box::new(NicStorage::new());
        let mut nic = Nic::open(host, room.parts(), net(0), &Config::default())
            .map_err(|error| anyhow!("{error}"))?;
        let own = [Bytes::<OWN>::new(), Bytes::new()];
        for (bytes, reach) in own.iter().zip([Reach::ReadWrite, Reach::Read]) {
            // SAFETY: taken back below.
            unsafe { host.lend(bytes.addr(), OWN as u64, reach) }
                .map_err(|error| anyhow!("lend: {error}"))?;
        }
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
        await_word("close")?;
        nic.close(CloseFlag::Abrupt).map_err(|error| anyhow!("close: {error}"))?;
        buffer.release();
        for bytes in &own {
            host.take_back(bytes.addr(), OWN as u64);
        }
        ledger(host);
        await_word("end")
    }
}
