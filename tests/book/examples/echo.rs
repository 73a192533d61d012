//! An echo server and its client: docs/book, chapter 1.
//!
//! ```text
//! cargo run -p dat-book --example echo -- 0000:3b:00.0 192.168.7.1/24
//! cargo run -p dat-book --example echo -- 0000:5e:00.0 192.168.7.2/24 192.168.7.1:4711 hello
//! ```
#![expect(
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a program that prints its result, and names the events that it waits for"
)]

// ANCHOR: names
use std::net::SocketAddr;
use std::time::Duration;

use vfio_host::prelude::*;

const PORT: u64 = 4711;
const LIMIT: Duration = Duration::from_secs(10);
const NONE: CompletionFlags = CompletionFlags::empty();
// ANCHOR_END: names

// ANCHOR: main
fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let [device, net, peer @ ..] = &args[..] else {
        return Err(Error::unexpected("usage: echo DEVICE ADDRESS/PREFIX [SERVER TEXT]"));
    };
    match open(&device.parse()?, &Options::default())? {
        Opened::Vfio(host) => run(&host, net.parse()?, peer),
        Opened::User(host) => run(&host, net.parse()?, peer),
    }
}

fn run<H: Host>(host: &H, net: Net, peer: &[&str]) -> Result<(), Error> {
    match peer {
        [server, text] => println!("{}", ask(host, net, server.parse()?, text)?),
        _ => serve(host, net)?,
    }
    Ok(())
}
// ANCHOR_END: main

// ANCHOR: serve
/// Sends every message back, until the peer ends the connection.
pub fn serve<H: Host>(host: &H, net: Net) -> Result<(), Error> {
    let mut storage = Box::new(NicStorage::new());
    let mut nic = Nic::open(host, storage.parts(), net, &Config::default())?;
    let pz = nic.pz_create()?;
    let evd = nic.evd_create(64, EvdFlags::DEFAULT)?;
    let ep = nic.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
    let pool = Pool::register(&mut nic, pz, 16, 4096, MemPriv::LOCAL)?;
    let mut poster = OwningPoster::<_, _, 16>::new(nic.ep_take_poster(ep)?)?;
    while let Ok(buffer) = pool.take() {
        poster.post_recv(buffer, NONE)?;
    }
    nic.psp_create(PORT, evd, PspFlag::Consumer)?;
    loop {
        let event = nic.evd_wait(evd, Duration::MAX, 1)?;
        match poster.complete(event) {
            Ok(done) if done.status != DtoStatus::Success => drop(done), // after the end
            Ok(done) if done.is_receive() => poster.post_send(done.buffer, ..done.len, NONE)?,
            Ok(done) => poster.post_recv(done.buffer, NONE)?,
            Err(Event::ConnectionRequest { cr, .. }) => nic.cr_accept(cr, Some(ep), b"")?,
            Err(event) if event.is_terminal() => break,
            Err(_) => {}
        }
    }
    Ok(nic.close(CloseFlag::Abrupt)?)
}
// ANCHOR_END: serve

// ANCHOR: ask
/// Sends a text to the server at that address and returns its answer.
pub fn ask<H: Host>(host: &H, net: Net, server: SocketAddr, text: &str) -> Result<String, Error> {
    let mut storage = Box::new(NicStorage::new());
    let mut nic = Nic::open(host, storage.parts(), net, &Config::default())?;
    let pz = nic.pz_create()?;
    let evd = nic.evd_create(64, EvdFlags::DEFAULT)?;
    let ep = nic.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
    let pool = Pool::register(&mut nic, pz, 2, 4096, MemPriv::LOCAL)?;
    let mut poster = OwningPoster::<_, _, 16>::new(nic.ep_take_poster(ep)?)?;
    poster.post_recv(pool.take()?, NONE)?;
    nic.ep_connect(ep, server, LIMIT, b"")?;
    let mut message = pool.take()?;
    let len = message.copy_in(0, text.as_bytes());
    match nic.evd_wait(evd, LIMIT, 1)? {
        Event::Established(_) => poster.post_send(message, ..len, NONE)?,
        other => return Err(Error::unexpected(other)),
    }
    loop {
        let done = poster.complete(nic.evd_wait(evd, LIMIT, 1)?).map_err(Error::unexpected)?;
        if done.is_receive() {
            let (answer, len) = done.succeeded()?;
            nic.close(CloseFlag::Abrupt)?;
            return Ok(String::from_utf8_lossy(&answer.to_vec(len)).into_owned());
        }
    }
}
// ANCHOR_END: ask
