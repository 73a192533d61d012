//! A broker whose clients share one receive queue: docs/book, chapter 4.
//!
//! ```text
//! cargo run -p dat-book --example pubsub -- 0000:3b:00.0 192.168.7.1/24
//! cargo run -p dat-book --example pubsub -- 0000:5e:00.0 192.168.7.2/24 192.168.7.1:4711
//! cargo run -p dat-book --example pubsub -- 0000:af:00.0 192.168.7.3/24 192.168.7.1:4711 hello
//! ```
#![expect(
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a program that prints its result, and names the events that it waits for"
)]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use dat_core::SrqAttr;
use vfio_host::prelude::*;

const PORT: u64 = 4711;
const LIMIT: Duration = Duration::from_secs(10);
const NONE: CompletionFlags = CompletionFlags::empty();

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [device, net, peer @ ..] = &args[..] else {
        return Err(Error::unexpected("usage: pubsub DEVICE ADDRESS/PREFIX [BROKER [TEXT]]"));
    };
    match open(&device.parse()?, &Options::default())? {
        Opened::Vfio(host) => run(&host, net.parse()?, peer),
        Opened::User(host) => run(&host, net.parse()?, peer),
    }
}

fn run<H: Host>(host: &H, net: Net, peer: &[String]) -> Result<(), Error> {
    match peer {
        [broker, text] => publish(host, net, broker.parse()?, text)?,
        [broker] => println!("{}", subscribe(host, net, broker.parse()?)?),
        _ => serve(host, net, usize::MAX)?,
    }
    Ok(())
}

// ANCHOR: broker
/// Passes every message to all clients, and the latest to each that comes later. Ends when so many
/// clients have come and gone.
pub fn serve<H: Host>(host: &H, net: Net, clients: usize) -> Result<(), Error> {
    let mut storage = Box::new(NicStorage::new());
    let mut nic = Nic::open(host, storage.parts(), net, &Config::default())?;
    let pz = nic.pz_create()?;
    let evd = nic.evd_create(1024, EvdFlags::DEFAULT)?;
    let attr = SrqAttr { max_recv_dtos: 64, max_recv_iov: 1, low_watermark: 0 };
    let srq = nic.srq_create(pz, &attr)?;
    let inbox = Pool::register(&mut nic, pz, 64, 256, MemPriv::LOCAL)?;
    let outbox = Pool::register(&mut nic, pz, 256, 256, MemPriv::LOCAL)?;
    // What is posted, by its cookie.
    let (mut posted, mut cookie) = (HashMap::new(), 0);
    while let Ok(piece) = inbox.take() {
        nic.srq_post_recv(srq, &[piece.segment()], cookie)?;
        posted.insert(cookie, piece);
        cookie += 1;
    }
    nic.psp_create(PORT, evd, PspFlag::Consumer)?;
    let (mut members, mut latest, mut gone) = (Vec::new(), None, 0);
    while gone < clients {
        let mut to_send: Vec<Ep> = Vec::new();
        match nic.evd_wait(evd, Duration::MAX, 1)? {
            Event::ConnectionRequest { cr, .. } => {
                let (evd, attr) = (Some(evd), nic.ep_attr_default());
                let ep = nic.ep_create_with_srq(Some(pz), evd, evd, evd, srq, &attr)?;
                nic.cr_accept(cr, Some(ep), b"")?;
            }
            Event::Established(ep) => {
                members.push(ep);
                to_send.push(ep);
            }
            Event::Dto(done) => {
                let Some(piece) = posted.remove(&done.cookie) else { continue };
                if done.operation == DtoOperation::Receive && done.status == DtoStatus::Success {
                    latest = Some(piece.to_vec(done.len));
                    to_send.clone_from(&members);
                    // The piece goes back to the queue, whichever message comes next.
                    nic.srq_post_recv(srq, &[piece.segment()], cookie)?;
                    posted.insert(cookie, piece);
                    cookie += 1;
                }
            }
            Event::Disconnected(ep) | Event::Broken(ep) | Event::AcceptCompletionError(ep) => {
                members.retain(|member| *member != ep);
                nic.ep_free(ep)?;
                gone += 1;
            }
            _ => {}
        }
        for ep in to_send {
            let (Some(message), Ok(mut piece)) = (&latest, outbox.take()) else { continue };
            let len = piece.copy_in(0, message);
            // A client without a receive, or that has gone, loses the message.
            if nic.ep_post_send(ep, &[LmrTriplet { len, ..piece.segment() }], cookie, NONE).is_ok()
            {
                posted.insert(cookie, piece);
                cookie += 1;
            }
        }
    }
    Ok(nic.close(CloseFlag::Abrupt)?)
}
// ANCHOR_END: broker

// ANCHOR: client
/// Joins the broker and gives it `message`, if there is one. Returns the first message that comes.
fn client<H: Host>(
    host: &H,
    net: Net,
    broker: SocketAddr,
    message: Option<&str>,
) -> Result<String, Error> {
    let mut storage = Box::new(NicStorage::new());
    let mut nic = Nic::open(host, storage.parts(), net, &Config::default())?;
    let pz = nic.pz_create()?;
    let evd = nic.evd_create(64, EvdFlags::DEFAULT)?;
    let ep = nic.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
    let pool = Pool::register(&mut nic, pz, 8, 256, MemPriv::LOCAL)?;
    let mut poster = OwningPoster::<_, _, 8>::new(nic.ep_take_poster(ep)?)?;
    let mut text = pool.take()?;
    while let Ok(piece) = pool.take() {
        poster.post_recv(piece, NONE)?;
    }
    nic.ep_connect(ep, broker, LIMIT, b"")?;
    match nic.evd_wait(evd, LIMIT, 1)? {
        Event::Established(_) => {}
        other => return Err(Error::unexpected(other)),
    }
    if let Some(message) = message {
        let len = text.copy_in(0, message.as_bytes());
        poster.post_send(text, ..len, NONE)?;
    }
    loop {
        let done = poster.complete(nic.evd_wait(evd, LIMIT, 1)?).map_err(Error::unexpected)?;
        if done.is_receive() {
            let (piece, len) = done.succeeded()?;
            nic.close(CloseFlag::Abrupt)?;
            return Ok(String::from_utf8_lossy(&piece.to_vec(len)).into_owned());
        }
    }
}

/// Gives the broker a message, and waits until it comes back as everybody's.
pub fn publish<H: Host>(host: &H, net: Net, broker: SocketAddr, text: &str) -> Result<(), Error> {
    client(host, net, broker, Some(text)).map(drop)
}

/// Waits for a message.
pub fn subscribe<H: Host>(host: &H, net: Net, broker: SocketAddr) -> Result<String, Error> {
    client(host, net, broker, None)
}
// ANCHOR_END: client
