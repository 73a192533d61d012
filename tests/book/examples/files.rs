//! A file server whose clients read the memory themselves: docs/book, chapter 2.
//!
//! ```text
//! cargo run -p dat-book --example files -- 0000:3b:00.0 192.168.7.1/24 FILE
//! cargo run -p dat-book --example files -- 0000:5e:00.0 192.168.7.2/24 192.168.7.1:4711 COPY
//! ```
#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "fields of a word; pieces of a buffer of known length; the events it waits for"
)]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use vfio_host::prelude::*;

const PORT: u64 = 4711;
const LIMIT: Duration = Duration::from_secs(10);
const NONE: CompletionFlags = CompletionFlags::empty();
/// Bytes of one read.
const CHUNK: u32 = 64 << 10;
/// Reads outstanding.
const DEPTH: u32 = 8;

// ANCHOR: offer
/// Where the file is in the server's memory: what accepts a connection.
struct Offer(RmrTriplet);

impl PrivateData<16> for Offer {
    fn to_bytes(&self) -> [u8; 16] {
        let RmrTriplet { addr, len, context } = self.0;
        (u128::from(addr) << 64 | u128::from(len) << 32 | u128::from(context)).to_be_bytes()
    }

    fn from_bytes(bytes: &[u8; 16]) -> Option<Self> {
        let word = u128::from_be_bytes(*bytes);
        let (addr, len, context) = ((word >> 64) as u64, (word >> 32) as u32, word as u32);
        Some(Self(RmrTriplet { addr, len, context }))
    }
}
// ANCHOR_END: offer

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [device, net, what @ ..] = &args[..] else {
        return Err("usage: files DEVICE ADDRESS/PREFIX (FILE | SERVER COPY)".into());
    };
    match open(&device.parse()?, &Options::default())? {
        Opened::Vfio(host) => run(&host, net.parse()?, what),
        Opened::User(host) => run(&host, net.parse()?, what),
    }
}

fn run<H: Host>(host: &H, net: Net, what: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    match what {
        [server, copy] => std::fs::write(copy, fetch(host, net, server.parse()?)?)?,
        [file] => offer(host, net, &std::fs::read(file)?)?,
        _ => return Err("name a file, or a server and a copy".into()),
    }
    Ok(())
}

// ANCHOR: serve
/// Lets one client read the contents, until it ends the connection.
pub fn offer<H: Host>(host: &H, net: Net, contents: &[u8]) -> Result<(), Error> {
    let mut storage = Box::new(NicStorage::new());
    let mut nic = Nic::open(host, storage.parts(), net, &Config::default())?;
    let pz = nic.pz_create()?;
    let evd = nic.evd_create(64, EvdFlags::DEFAULT)?;
    let ep = nic.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
    let rights = MemPriv::LOCAL_READ | MemPriv::REMOTE_READ;
    let memory = Pool::register(&mut nic, pz, 1, contents.len(), rights)?;
    let mut file = memory.take()?;
    let len = file.copy_in(0, contents);
    let offer = Offer(RmrTriplet { len, ..file.remote() });
    nic.psp_create(PORT, evd, PspFlag::Consumer)?;
    loop {
        match nic.evd_wait(evd, Duration::MAX, 1)? {
            Event::ConnectionRequest { cr, .. } => {
                nic.cr_accept(cr, Some(ep), &offer.for_accept())?;
            }
            event if event.is_terminal() => break,
            _ => {}
        }
    }
    Ok(nic.close(CloseFlag::Abrupt)?)
}
// ANCHOR_END: serve

// ANCHOR: fetch
/// Reads the file that the server at that address offers.
pub fn fetch<H: Host>(host: &H, net: Net, server: SocketAddr) -> Result<Vec<u8>, Error> {
    let mut storage = Box::new(NicStorage::new());
    let mut nic = Nic::open(host, storage.parts(), net, &Config::default())?;
    let pz = nic.pz_create()?;
    let evd = nic.evd_create(64, EvdFlags::DEFAULT)?;
    let ep = nic.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
    let pool = Pool::register(&mut nic, pz, DEPTH, CHUNK as usize, MemPriv::LOCAL)?;
    nic.ep_connect(ep, server, LIMIT, b"")?;
    match nic.evd_wait(evd, LIMIT, 1)? {
        Event::Established(_) => {}
        other => return Err(Error::unexpected(other)),
    }
    let Some(Offer(file)) = Offer::from_private_data(nic.ep_private_data(ep)?) else {
        return Err(Error::unexpected("no offer"));
    };
    let mut poster = OwningPoster::<_, _, { DEPTH as usize }>::new(nic.ep_take_poster(ep)?)?;
    let mut contents = vec![0; file.len as usize];
    let (mut next, mut asked) = (0, VecDeque::new());
    loop {
        // As many reads as there are pieces; a piece that comes back is read into again.
        while next < file.len {
            let Ok(piece) = pool.take() else { break };
            let len = CHUNK.min(file.len - next);
            let part = RmrTriplet { addr: file.addr + u64::from(next), len, ..file };
            poster.post_rdma_read(piece, ..len, &part, NONE)?;
            asked.push_back(next as usize);
            next += len;
        }
        // Reads complete in the order of their posts.
        let Some(at) = asked.pop_front() else { break };
        let done = poster.complete(nic.evd_wait(evd, LIMIT, 1)?).map_err(Error::unexpected)?;
        let (piece, len) = done.succeeded()?;
        piece.copy_out(0, &mut contents[at..at + len as usize]);
    }
    nic.close(CloseFlag::Abrupt)?;
    Ok(contents)
}
// ANCHOR_END: fetch
