//! Finds the hosts that offer a service, and speaks to one by datagrams: docs/book, chapter 6.
//!
//! ```text
//! cargo run -p dat-book --example discovery -- 0000:3b:00.0 192.168.7.1/24 NAME
//! cargo run -p dat-book --example discovery -- 0000:5e:00.0 192.168.7.2/24 192.168.7.1 192.168.7.9
//! ```
#![expect(
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a short length; a program that prints its result; the events that it waits for"
)]

use std::net::IpAddr;
use std::task::Poll;
use std::time::Duration;

use dat_core::{GRH_LEN, IbOperation};
use vfio_host::prelude::*;

const PORT: u64 = 4711;
const LIMIT: Duration = Duration::from_secs(5);
const NONE: CompletionFlags = CompletionFlags::empty();
/// Bytes in front of each datagram.
const GRH: u32 = GRH_LEN as u32;
/// What a queue pair for datagrams wants to see in each of them.
const QKEY: u32 = 0x1d51_1d51;

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [device, net, what @ ..] = &args[..] else {
        return Err(Error::unexpected(
            "usage: discovery DEVICE ADDRESS/PREFIX (NAME | ADDRESS...)",
        ));
    };
    match open(&device.parse()?, &Options::default())? {
        Opened::Vfio(host) => run(&host, net.parse()?, what),
        Opened::User(host) => run(&host, net.parse()?, what),
    }
}

fn run<H: Host>(host: &H, net: Net, what: &[String]) -> Result<(), Error> {
    let hosts: Result<Vec<IpAddr>, _> = what.iter().map(|host| host.parse()).collect();
    match (hosts, what) {
        (Ok(hosts), _) => println!("{:?}", find(host, net, &hosts)?),
        (Err(_), [name, ..]) => announce(host, net, name)?,
        (Err(_), []) => {}
    }
    Ok(())
}

// ANCHOR: announce
/// Answers look-ups with a name, and a datagram with its own text. Ends after the first datagram.
pub fn announce<H: Host>(host: &H, net: Net, name: &str) -> Result<(), Error> {
    let mut storage = Box::new(NicStorage::new());
    let mut nic = Nic::open(host, storage.parts(), net, &Config::default())?;
    let pz = nic.pz_create()?;
    let evd = nic.evd_create(64, EvdFlags::DEFAULT)?;
    let ep = nic.ep_create_ud(pz, evd, evd, Some(evd), None, QKEY)?;
    let pool = Pool::register(&mut nic, pz, 1, 1024, MemPriv::LOCAL)?;
    let piece = pool.take()?;
    nic.ep_post_recv(ep, &[piece.segment()], 0, NONE)?;
    nic.psp_create(PORT, evd, PspFlag::Consumer)?;
    let mut peer = None;
    loop {
        match nic.evd_wait(evd, Duration::MAX, 1)? {
            Event::UdConnectionRequest { cr, .. } => {
                // Who asks can be answered: look-ups of this library say where they come from.
                let request = nic.cr_query(cr)?;
                peer = request.asker.map(|asker| (request.remote, asker));
                nic.cr_accept(cr, Some(ep), name.as_bytes())?;
            }
            Event::IbDto(done) if done.status() != DtoStatus::Success => {
                return Err(done.status().into());
            }
            Event::IbDto(done) if done.operation == IbOperation::RecvMsgUd => {
                let Some((remote, asker)) = peer else { break };
                let now = nic.now();
                // Its address was resolved for the answer to its look-up.
                let Poll::Ready(to) = nic.ud_address(now, remote, asker.qpn, asker.qkey) else {
                    continue;
                };
                let to = to?;
                let all = piece.segment();
                let (addr, len) = (all.addr + u64::from(GRH), done.len.saturating_sub(GRH));
                let text = LmrTriplet { addr, len, ..all };
                nic.ep_post_send_ud(ep, &[text], &to, None, 0, NONE)?;
            }
            Event::IbDto(_) => break, // sent
            _ => {}
        }
    }
    Ok(nic.close(CloseFlag::Abrupt)?)
}
// ANCHOR_END: announce

// ANCHOR: find
/// Asks all hosts at once. Returns the names of those that offer the service, after a datagram to
/// the first has come back.
pub fn find<H: Host>(host: &H, net: Net, hosts: &[IpAddr]) -> Result<Vec<String>, Error> {
    let mut storage = Box::new(NicStorage::new());
    let mut nic = Nic::open(host, storage.parts(), net, &Config::default())?;
    let pz = nic.pz_create()?;
    let evd = nic.evd_create(64, EvdFlags::DEFAULT)?;
    let ep = nic.ep_create_ud(pz, evd, evd, Some(evd), None, QKEY)?;
    let pool = Pool::register(&mut nic, pz, 2, 1024, MemPriv::LOCAL)?;
    let (mut ask, answer) = (pool.take()?, pool.take()?);
    nic.ep_post_recv(ep, &[answer.segment()], 0, NONE)?;
    for host in hosts {
        nic.ep_connect(ep, (*host, 4711).into(), LIMIT, b"")?;
    }
    let (mut names, mut first) = (Vec::new(), None);
    for _ in hosts {
        match nic.evd_wait(evd, 2 * LIMIT, 1)? {
            Event::UdEstablished(_, look_up) => {
                let found = nic.ep_ud_answer(ep, look_up)?;
                // The field is padded with zeros.
                let name = String::from_utf8_lossy(found.private_data);
                names.push(name.trim_end_matches('\0').to_owned());
                first = first.or(found.address.ok());
            }
            Event::UdReject(..) | Event::UdError(_) => {} // not there, or not offered there
            other => return Err(Error::unexpected(other)),
        }
    }
    let Some(to) = first else { return Ok(names) };
    let len = ask.copy_in(0, b"are you there?");
    nic.ep_post_send_ud(ep, &[LmrTriplet { len, ..ask.segment() }], &to, None, 0, NONE)?;
    loop {
        match nic.evd_wait(evd, LIMIT, 1)? {
            Event::IbDto(done) if done.status() != DtoStatus::Success => {
                return Err(done.status().into());
            }
            Event::IbDto(done) if done.operation == IbOperation::RecvMsgUd => break,
            _ => {}
        }
    }
    nic.close(CloseFlag::Abrupt)?;
    Ok(names)
}
// ANCHOR_END: find
