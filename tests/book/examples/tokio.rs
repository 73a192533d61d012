//! The client of chapter 1 as a future on tokio: docs/book, chapter 5.
//!
//! ```text
//! cargo run -p dat-book --example tokio -- 0000:5e:00.0 192.168.7.2/24 192.168.7.1:4711 hello
//! ```
#![expect(
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a program that prints its result, and names the events that it waits for"
)]

use std::net::SocketAddr;
use std::time::Duration;

use vfio_host::aio::AsyncNic;
use vfio_host::prelude::*;

const LIMIT: Duration = Duration::from_secs(10);
const NONE: CompletionFlags = CompletionFlags::empty();

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [device, net, server, text] = &args[..] else {
        return Err("usage: tokio DEVICE ADDRESS/PREFIX SERVER TEXT".into());
    };
    let (net, server) = (net.parse()?, server.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = match open(&device.parse()?, &Options::default())? {
        Opened::Vfio(host) => runtime.block_on(ask(&host, net, server, text))?,
        Opened::User(host) => runtime.block_on(ask(&host, net, server, text))?,
    };
    println!("{answer}");
    Ok(())
}

// ANCHOR: next
/// The next event, if it comes within the limit. A wait that is given up loses no event.
async fn next<H: Host>(nic: &mut AsyncNic<'_, '_, H>, evd: Evd) -> Result<Event, Error> {
    let wait = tokio::time::timeout(LIMIT, nic.evd_wait(evd, 1));
    Ok(wait.await.unwrap_or(Err(WaitError::TIMEOUT))?)
}
// ANCHOR_END: next

// ANCHOR: ask
/// Sends a text to an echo server and returns its answer.
pub async fn ask<H: Host>(
    host: &H,
    net: Net,
    server: SocketAddr,
    text: &str,
) -> Result<String, Error> {
    let mut storage = Box::new(NicStorage::new());
    let nic = Nic::open(host, storage.parts(), net, &Config::default())?;
    let mut nic = AsyncNic::new(nic)?;
    let pz = nic.pz_create()?;
    let evd = nic.evd_create(64, EvdFlags::DEFAULT)?;
    let ep = nic.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
    let pool = Pool::register(&mut nic, pz, 2, 4096, MemPriv::LOCAL)?;
    let mut poster = OwningPoster::<_, _, 16>::new(nic.ep_take_poster(ep)?)?;
    poster.post_recv(pool.take()?, NONE)?;
    nic.ep_connect(ep, server, LIMIT, b"")?;
    let mut message = pool.take()?;
    let len = message.copy_in(0, text.as_bytes());
    match next(&mut nic, evd).await? {
        Event::Established(_) => poster.post_send(message, ..len, NONE)?,
        other => return Err(Error::unexpected(other)),
    }
    loop {
        let done = poster.complete(next(&mut nic, evd).await?).map_err(Error::unexpected)?;
        if done.is_receive() {
            let (answer, len) = done.succeeded()?;
            nic.close(CloseFlag::Abrupt).await?;
            return Ok(String::from_utf8_lossy(&answer.to_vec(len)).into_owned());
        }
    }
}
// ANCHOR_END: ask
