//! An echo server that posts buffers by ownership.
//!
//! ```text
//! cargo run --example owned -- 0000:3b:00.0 192.168.7.1/24
//! cargo run --example owned -- vfio-user:/run/hca0 192.168.7.1/24
//! ```
//!
//! Sixteen receives are posted at all times. A message is sent back from its receive buffer,
//! without a copy, and the buffer is posted again after the send. The program never holds a buffer
//! that the device uses, because posting moves it.

#![expect(clippy::print_stdout, reason = "a program that prints its progress")]

use std::error::Error;
use std::time::Duration;

use dat_core::provider::Net;
use dat_core::{
    CompletionFlags, DtoOperation, DtoStatus, EvdFlags, Event, MemPriv, OwningPoster, PspFlag,
};
use vfio_host::owned::{Piece, Pool};
use vfio_host::{Host, Nic, NicStorage, Opened, Options};

const NONE: CompletionFlags = CompletionFlags::empty();
const PORT: u64 = 4711;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, device, network] = &args[..] else {
        return Err("usage: owned <address of the device> <own address>/<prefix>".into());
    };
    let (addr, prefix) = network.split_once('/').ok_or("no prefix")?;
    let net = Net { addr: addr.parse()?, prefix: prefix.parse()?, gateway: None, vlan: None };
    match vfio_host::open(&device.parse()?, &Options::default())? {
        Opened::Vfio(host) => serve(&host, net),
        Opened::User(host) => serve(&host, net),
    }
}

fn serve<H: Host>(host: &H, net: Net) -> Result<(), Box<dyn Error>> {
    let mut storage = Box::new(NicStorage::new());
    let mut nic = Nic::open(host, storage.parts(), net, &hca_mlx5::Config::default())?;
    let pz = nic.pz_create()?;
    let evd = nic.evd_create(128, EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::CR)?;
    let ep = nic.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
    nic.psp_create(PORT, evd, PspFlag::Consumer)?;

    let rights = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
    let pool = Pool::register(&mut nic, pz, 16, 4096, rights)?;
    let half = nic.ep_take_poster(ep)?;
    let mut poster = OwningPoster::<_, Piece<'_, H>, 32>::new(half).map_err(|_| "not idle")?;
    while let Some(piece) = pool.take() {
        poster.post_recv(piece, NONE).map_err(|refused| refused.ret)?;
    }
    loop {
        let event = match nic.evd_wait(evd, Duration::from_secs(3600), 1) {
            Ok(event) => event,
            Err(error) => return Err(error.to_string().into()),
        };
        // Only the completion returns the buffer.
        let done = match poster.complete(event) {
            Ok(done) => done,
            Err(Event::ConnectionRequest { cr, .. }) => {
                nic.cr_accept(cr, Some(ep), b"")?;
                continue;
            }
            Err(event) if event.is_terminal() => break,
            Err(_) => continue,
        };
        let received =
            matches!(done.event, Event::Dto(dto) if dto.operation == DtoOperation::Receive);
        if done.status != DtoStatus::Success {
            drop(done.buffer);
        } else if received {
            println!("{} bytes", done.len);
            poster.post_send(done.buffer, NONE).map_err(|refused| refused.ret)?;
        } else {
            poster.post_recv(done.buffer, NONE).map_err(|refused| refused.ret)?;
        }
    }
    let now = nic.now();
    let freed = poster.free(now, &mut nic, drop);
    freed.map_err(|(error, _)| error.to_string())?;
    pool.close(&mut nic).map_err(|(error, _)| error)?;
    Ok(nic.close(dat_core::CloseFlag::Abrupt)?)
}
