//! `dat compat udaddy`: one side of udaddy, ucmatose's sister for datagrams.
//!
//! A client asks the server's port for a queue pair as often as it is told to, each time for
//! another Endpoint of its own, and sends so many datagrams to each that it is given. Each carries
//! the number of the sender's queue pair as its immediate: the server sends as many back, when all
//! have come. What is in them nobody says, so only number and length can be verified.

use std::net::SocketAddr;

use dat_core::provider::Destination;
use dat_core::{GRH_LEN, LmrTriplet, MemPriv};
use serde::Serialize;
use vfio_host::Host;

use super::super::End;
use super::super::failure::Failure;
use super::super::out::Out;
use super::super::traffic::adapter::{self, Play};
use super::super::traffic::memory::Memory;
use super::args::Udaddy;
use super::datagram::{Came, Datagrams, Heard};
use super::ends::{Makings, other_size};
use crate::Nic;

/// What rdma_cm gives every queue pair of its UDP port space.
const QKEY: u32 = 0x0123_4567;

/// What is told at the end.
#[derive(Debug, Serialize)]
struct Told {
    role: &'static str,
    peer: String,
    endpoints: usize,
    /// Datagrams each way on each.
    messages: u16,
    size: u32,
}

pub(super) fn run(udaddy: &Udaddy, out: &Out) -> Result<End, Failure> {
    let server = udaddy.side.peer(&udaddy.adapter, udaddy.port)?;
    let own = udaddy.side.adapter(&udaddy.adapter);
    let told = adapter::with(&own, Playing { udaddy, server })?;
    let Told { role, peer, endpoints, messages, size } = &told;
    let words = format!(
        "udaddy {role}: {endpoints} Endpoints with {peer}, {messages} datagrams of {size} bytes each way on each\n"
    );
    out.result(&told, &words)?;
    Ok(End::Ok)
}

struct Playing<'a> {
    udaddy: &'a Udaddy,
    server: Option<SocketAddr>,
}

impl Play for Playing<'_> {
    type Told = Told;

    fn play<'p, H: Host>(self, nic: &mut Nic<'_, 'p, H>) -> Result<Told, Failure> {
        let Self { udaddy, server } = self;
        let mtu = adapter::path_mtu(nic);
        if udaddy.message_size > u32::from(mtu) {
            return Err(Failure::new(format!("a datagram has at most {mtu} bytes here"))
                .remedy("give a smaller -S, or a greater --mtu"));
        }
        let mut table = Table::new(nic, udaddy)?;
        match server {
            Some(server) => table.call(nic, server)?,
            None => table.serve(nic, udaddy)?,
        }
        let told = Told {
            role: if server.is_some() { "client" } else { "server" },
            peer: table.all.peer.clone(),
            endpoints: table.state.len(),
            messages: table.messages,
            size: udaddy.message_size,
        };
        table.all.free(nic, [table.inward, table.outward])?;
        Ok(told)
    }
}

/// How far an Endpoint is.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Where its datagrams go.
    to: Option<Destination>,
    posted: u16,
    sent: u16,
    received: u16,
}

/// The Endpoints and their memory.
struct Table<'p, H: Host> {
    all: Datagrams,
    state: Vec<Progress>,
    messages: u16,
    size: usize,
    /// Where datagrams come in, a place for each Endpoint: all of one have the same sender.
    inward: Memory<'p, H>,
    outward: Memory<'p, H>,
}

impl<'p, H: Host> Table<'p, H> {
    fn new(nic: &mut Nic<'_, 'p, H>, udaddy: &Udaddy) -> Result<Self, Failure> {
        let count = usize::from(udaddy.connections);
        let size = udaddy.message_size as usize;
        let messages = if size == 0 { 0 } else { udaddy.message_count };
        let makings = Makings { count, requests: messages.max(1), receives: messages.max(1) };
        let all = Datagrams::new(nic, makings, QKEY, &udaddy.patience, "udaddy")?;
        let both = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
        let inward = Memory::new(nic, all.pz, (size + GRH_LEN) * count, both)?;
        let outward = Memory::new(nic, all.pz, size.max(1), MemPriv::LOCAL_READ)?;
        Ok(Self { all, state: vec![Progress::default(); count], messages, size, inward, outward })
    }

    fn place(&self, link: usize) -> LmrTriplet {
        let len = self.size + GRH_LEN;
        self.inward.local(link * len, len)
    }

    /// Receives for all that an Endpoint will be sent.
    fn recvs(&self, nic: &mut Nic<'_, 'p, H>, link: usize) -> Result<(), Failure> {
        for _ in 0..self.messages {
            self.all.recv(nic, link, self.place(link), 0)?;
        }
        Ok(())
    }

    /// The client's side.
    fn call(&mut self, nic: &mut Nic<'_, 'p, H>, server: SocketAddr) -> Result<(), Failure> {
        for link in 0..self.state.len() {
            self.recvs(nic, link)?;
            self.all.ask(nic, link, server)?;
        }
        self.until(nic, "the server's answer", |it, _| it.to.is_some())?;
        self.send_all(nic)?;
        self.until(nic, "the server's datagrams", |it, all| it.sent == all && it.received == all)
    }

    /// The server's side.
    fn serve(&mut self, nic: &mut Nic<'_, 'p, H>, udaddy: &Udaddy) -> Result<(), Failure> {
        self.all.listen(nic, udaddy.port)?;
        let mut next = 0;
        while next < self.state.len() {
            let wait = (next == 0).then_some(udaddy.patience.wait);
            match self.all.heard(nic, wait, "a udaddy client")? {
                Heard::Asked(cr) => {
                    self.recvs(nic, next)?;
                    self.all.accept(nic, cr, next)?;
                    next += 1;
                }
                heard @ (Heard::Sent(_) | Heard::Came(..) | Heard::Found(_)) => {
                    self.dealt(nic, heard)?;
                }
            }
        }
        self.until(nic, "the client's datagrams", |it, all| it.received == all)?;
        self.send_all(nic)?;
        self.until(nic, "the end of all sends", |it, all| it.sent == all)
    }

    /// Waits until something holds of every Endpoint.
    fn until(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        what: &str,
        holds: impl Fn(&Progress, u16) -> bool,
    ) -> Result<(), Failure> {
        while !self.state.iter().all(|it| holds(it, self.messages)) {
            let heard = self.all.heard(nic, None, what)?;
            self.dealt(nic, heard)?;
        }
        Ok(())
    }

    fn dealt(&mut self, nic: &mut Nic<'_, 'p, H>, heard: Heard) -> Result<(), Failure> {
        let (link, change): (_, fn(&mut Progress)) = match heard {
            Heard::Asked(cr) => {
                return nic.cr_reject(cr, &[]).map_err(|e| adapter::dat("dat_cr_reject", e));
            }
            Heard::Found(link) => {
                let to = self.all.found(nic, link)?;
                if let Some(state) = self.state.get_mut(link) {
                    state.to = Some(to);
                }
                return Ok(());
            }
            Heard::Came(link, came) => {
                self.came(nic, link, came)?;
                (link, |it| it.received += 1)
            }
            Heard::Sent(link) => (link, |it| it.sent += 1),
        };
        self.state.get_mut(link).map_or(Ok(()), |state| {
            change(state);
            Ok(())
        })
    }

    /// A datagram is there: the first tells a server where to answer.
    fn came(&mut self, nic: &mut Nic<'_, 'p, H>, link: usize, came: Came) -> Result<(), Failure> {
        if came.len as usize != self.size {
            return Err(other_size(&self.all.peer, came.len, self.size));
        }
        let told = came.immediate.ok_or_else(|| {
            Failure::new(format!(
                "{} sent a datagram without the number of its queue pair",
                self.all.peer
            ))
            .remedy("is it udaddy?")
        })?;
        if self.state.get(link).is_some_and(|state| state.to.is_none()) {
            let mut header = [0; GRH_LEN];
            self.inward.load(link * (self.size + GRH_LEN), &mut header);
            let to = self.all.back(nic, &header, told)?;
            if let Some(state) = self.state.get_mut(link) {
                state.to = Some(to);
            }
        }
        Ok(())
    }

    fn send_all(&mut self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        let piece = self.outward.local(0, self.size);
        for link in 0..self.state.len() {
            let own = self.all.qpn(nic, link)?;
            let to = self.state.get(link).and_then(|state| state.to);
            for _ in 0..self.messages {
                let to = to.ok_or_else(|| Failure::new("nobody has said where to send"))?;
                self.all.send(nic, link, piece, &to, Some(own))?;
            }
            if let Some(state) = self.state.get_mut(link) {
                state.posted = self.messages;
            }
        }
        Ok(())
    }
}
