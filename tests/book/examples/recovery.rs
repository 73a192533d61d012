//! A server that outlives its device, and logs what driver and adapter do: docs/book, chapter 7.
//!
//! ```text
//! cargo run -p dat-book --example recovery -- 0000:3b:00.0 192.168.7.1/24
//! ```
#![expect(clippy::print_stderr, reason = "a program that says why it goes on")]

use std::time::Duration;

use vfio_host::prelude::*;

const PORT: u64 = 4711;
const NONE: CompletionFlags = CompletionFlags::empty();

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [device, net] = &args[..] else {
        return Err("usage: recovery DEVICE ADDRESS/PREFIX".into());
    };
    // ANCHOR: tracing
    tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).init();
    let config = Config { hook: Some(&vfio_host::events::tracing), ..Config::default() };
    // ANCHOR_END: tracing
    match open(&device.parse()?, &Options::default())? {
        Opened::Vfio(host) => serve(host, net.parse()?, &config)?,
        Opened::User(host) => serve(host, net.parse()?, &config)?,
    }
    Ok(())
}

// ANCHOR: serve
/// Serves one client after the other. Begins anew when the device was lost, and ends by any other
/// error, or by a client that says "stop".
pub fn serve<H: Host>(mut host: H, net: Net, config: &Config<'static>) -> Result<(), Error> {
    loop {
        let mut storage = Box::new(NicStorage::new());
        let mut nic = Nic::open(&host, storage.parts(), net, config)?;
        match clients(&mut nic) {
            Ok(()) => return Ok(nic.close(CloseFlag::Abrupt)?),
            Err(error) => match nic.lost() {
                Some(fault) => eprintln!("{}; beginning anew", causes(fault)),
                None => return Err(error),
            },
        }
        // The device does not answer any more, so this may fail; the function is reset below.
        let _ = nic.close(CloseFlag::Abrupt);
        drop(nic);
        host.renew()?;
    }
}
// ANCHOR_END: serve

// ANCHOR: clients
/// Serves clients until one says "stop".
fn clients<'p, H: Host>(nic: &mut Nic<'_, 'p, H>) -> Result<(), Error> {
    let pz = nic.pz_create()?;
    let evd = nic.evd_create(64, EvdFlags::DEFAULT)?;
    // The loss of the device ends the wait also where nobody is connected.
    nic.set_async_evd(evd)?;
    let ep = nic.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
    let pool = Pool::register(nic, pz, 16, 4096, MemPriv::LOCAL)?;
    let mut poster = OwningPoster::<_, Piece<'p, H>, 16>::new(nic.ep_take_poster(ep)?)?;
    nic.psp_create(PORT, evd, PspFlag::Consumer)?;
    loop {
        while let Ok(piece) = pool.take() {
            poster.post_recv(piece, NONE)?;
        }
        let done = match poster.complete(nic.evd_wait(evd, Duration::MAX, 1)?) {
            Ok(done) => done,
            Err(Event::ConnectionRequest { cr, .. }) => {
                nic.cr_accept(cr, Some(ep), b"")?;
                continue;
            }
            // The device: no client will come any more.
            Err(_) if nic.lost().is_some() => return Err(Error::unexpected("a lost device")),
            // The peer: ready for the next.
            Err(event) if event.is_terminal() => {
                poster.reset(nic, drop)?;
                continue;
            }
            Err(_) => continue,
        };
        if done.status != DtoStatus::Success || !done.is_receive() {
            continue; // dropped, it is in the pool again
        }
        if done.buffer.to_vec(done.len) == b"stop" {
            return Ok(());
        }
        poster.post_send(done.buffer, ..done.len, NONE)?;
    }
}
// ANCHOR_END: clients

// ANCHOR: causes
/// An error and what it came from, in one line.
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        line = format!("{line} (from: {source})");
        next = source.source();
    }
    line
}
// ANCHOR_END: causes
