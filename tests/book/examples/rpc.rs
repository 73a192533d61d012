//! Remote procedure calls whose replies are written through a window: docs/book, chapter 3.
//!
//! ```text
//! cargo run -p dat-book --example rpc -- 0000:3b:00.0 192.168.7.1/24
//! cargo run -p dat-book --example rpc -- 0000:5e:00.0 192.168.7.2/24 192.168.7.1:4711 hello
//! ```
#![expect(
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "fields of a word; a program that prints its result; the events it waits for"
)]

use std::net::SocketAddr;
use std::time::Duration;

use vfio_host::prelude::*;

const PORT: u64 = 4711;
const LIMIT: Duration = Duration::from_secs(10);
const NONE: CompletionFlags = CompletionFlags::empty();

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [device, net, peer @ ..] = &args[..] else {
        return Err(Error::unexpected("usage: rpc DEVICE ADDRESS/PREFIX [SERVER TEXT]"));
    };
    match open(&device.parse()?, &Options::default())? {
        Opened::Vfio(host) => run(&host, net.parse()?, peer),
        Opened::User(host) => run(&host, net.parse()?, peer),
    }
}

fn run<H: Host>(host: &H, net: Net, peer: &[String]) -> Result<(), Error> {
    match peer {
        [server, text] => println!("{:?}", call(host, net, server.parse()?, &[text])?),
        _ => serve(host, net)?,
    }
    Ok(())
}

// ANCHOR: window
/// The head of a request: the window that takes the reply.
fn to_bytes(window: RmrTriplet) -> [u8; 16] {
    let RmrTriplet { addr, len, context } = window;
    (u128::from(addr) << 64 | u128::from(len) << 32 | u128::from(context)).to_be_bytes()
}

fn from_bytes(bytes: [u8; 16]) -> RmrTriplet {
    let word = u128::from_be_bytes(bytes);
    RmrTriplet { addr: (word >> 64) as u64, len: (word >> 32) as u32, context: word as u32 }
}
// ANCHOR_END: window

// ANCHOR: serve
/// Answers each request with its text in capitals, until the client ends the connection.
pub fn serve<H: Host>(host: &H, net: Net) -> Result<(), Error> {
    let mut storage = Box::new(NicStorage::new());
    let mut nic = Nic::open(host, storage.parts(), net, &Config::default())?;
    let pz = nic.pz_create()?;
    let evd = nic.evd_create(64, EvdFlags::DEFAULT)?;
    let ep = nic.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
    let pool = Pool::register(&mut nic, pz, 2, 4096, MemPriv::LOCAL)?;
    let (inbox, mut outbox) = (pool.take()?, pool.take()?);
    nic.ep_post_recv(ep, &[inbox.segment()], 0, NONE)?;
    nic.psp_create(PORT, evd, PspFlag::Consumer)?;
    loop {
        match nic.evd_wait(evd, Duration::MAX, 1)? {
            Event::ConnectionRequest { cr, .. } => nic.cr_accept(cr, Some(ep), b"")?,
            Event::Dto(done) if done.status == DtoStatus::ErrFlushed => {}
            Event::Dto(done) if done.status != DtoStatus::Success => {
                return Err(done.status.into());
            }
            Event::Dto(done) if done.operation == DtoOperation::Receive => {
                let request = inbox.to_vec(done.len);
                let Some((head, text)) = request.split_first_chunk() else { continue };
                let window = from_bytes(*head);
                let len = outbox.copy_in(0, &text.to_ascii_uppercase()).min(window.len);
                let reply = [LmrTriplet { len, ..outbox.segment() }];
                nic.ep_post_recv(ep, &[inbox.segment()], 0, NONE)?;
                nic.ep_post_rdma_write(ep, &reply, 0, &RmrTriplet { len, ..window }, NONE)?;
                // Says that the reply is there, and closes the window.
                nic.ep_post_send_with_invalidate(ep, &reply, 0, NONE, Some(window.context))?;
            }
            event if event.is_terminal() => break,
            _ => {}
        }
    }
    Ok(nic.close(CloseFlag::Abrupt)?)
}
// ANCHOR_END: serve

// ANCHOR: call
/// Asks the server at that address for each text, one after the other.
pub fn call<H: Host>(
    host: &H,
    net: Net,
    server: SocketAddr,
    texts: &[impl AsRef<[u8]>],
) -> Result<Vec<String>, Error> {
    let mut storage = Box::new(NicStorage::new());
    let mut nic = Nic::open(host, storage.parts(), net, &Config::default())?;
    let pz = nic.pz_create()?;
    let evd = nic.evd_create(64, EvdFlags::DEFAULT)?;
    let ep = nic.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
    // No right of peers: they reach it through the window alone.
    let pool = Pool::register(&mut nic, pz, 3, 4096, MemPriv::LOCAL)?;
    let (mut request, reply, notice) = (pool.take()?, pool.take()?, pool.take()?);
    let window = nic.rmr_create_for_ep(pz)?;
    nic.ep_connect(ep, server, LIMIT, b"")?;
    match nic.evd_wait(evd, LIMIT, 1)? {
        Event::Established(_) => {}
        other => return Err(Error::unexpected(other)),
    }
    let mut replies = Vec::new();
    for text in texts {
        nic.ep_post_recv(ep, &[notice.segment()], 0, NONE)?;
        let open = reply.segment();
        let context = nic.rmr_bind(window, &open, MemPriv::REMOTE_WRITE, ep, 0, NONE)?;
        let head = to_bytes(RmrTriplet { addr: open.addr, len: open.len, context });
        let message = [&head, text.as_ref()].concat();
        let len = request.copy_in(0, &message);
        // Posted behind the bind, so the window is open when the server has the request.
        nic.ep_post_send(ep, &[LmrTriplet { len, ..request.segment() }], 0, NONE)?;
        replies.push(loop {
            match nic.evd_wait(evd, LIMIT, 1)? {
                Event::Dto(done) if done.status != DtoStatus::Success => {
                    return Err(done.status.into());
                }
                Event::Dto(done) if done.operation == DtoOperation::ReceiveWithInvalidate => {
                    break String::from_utf8_lossy(&reply.to_vec(done.len)).into_owned();
                }
                Event::RmrBind { .. } | Event::Dto(_) => {}
                other => return Err(Error::unexpected(other)),
            }
        });
    }
    nic.close(CloseFlag::Abrupt)?;
    Ok(replies)
}
// ANCHOR_END: call
