//! `dat compat ucmatose`: one side of ucmatose (whose source is called cmatose).
//!
//! So many connections are made, one after the other. When all are there the server sends so many
//! messages on each; the client, when it has them all, sends as many. The server parts when it has
//! those. What is in the messages nobody says: it is whatever lay in memory over there, so only
//! their number and length can be verified.
//!
//! That program retries nothing when a receive is missing, so the receives of a connection are
//! there before it is.

use std::net::SocketAddr;
use std::time::Instant;

use dat_core::{DtoOperation, LmrTriplet, MemPriv};
use serde::Serialize;
use vfio_host::Host;

use super::super::End;
use super::super::failure::Failure;
use super::super::out::Out;
use super::super::traffic::adapter::{self, Play};
use super::super::traffic::memory::Memory;
use super::args::Ucmatose;
use super::ends::{Makings, other_size};
use super::link::{Links, News};
use crate::Nic;

/// Messages in flight on one connection.
const SENDS: u16 = 16;

/// What is told at the end.
#[derive(Debug, Serialize)]
struct Told {
    role: &'static str,
    peer: String,
    connections: usize,
    /// Messages each way on each.
    messages: u16,
    size: u32,
    /// From the first connection to the last.
    connect_seconds: f64,
}

pub(super) fn run(ucmatose: &Ucmatose, out: &Out) -> Result<End, Failure> {
    let server = ucmatose.side.peer(&ucmatose.adapter, ucmatose.port)?;
    let own = ucmatose.side.adapter(&ucmatose.adapter);
    let told = adapter::with(&own, Playing { ucmatose, server })?;
    let Told { role, peer, connections, messages, size, connect_seconds } = &told;
    let words = format!(
        "ucmatose {role}: {connections} connections with {peer} in {connect_seconds:.3} s, \
         {messages} messages of {size} bytes each way on each\n"
    );
    out.result(&told, &words)?;
    Ok(End::Ok)
}

struct Playing<'a> {
    ucmatose: &'a Ucmatose,
    server: Option<SocketAddr>,
}

impl Play for Playing<'_> {
    type Told = Told;

    fn play<'p, H: Host>(self, nic: &mut Nic<'_, 'p, H>) -> Result<Told, Failure> {
        let Self { ucmatose, server } = self;
        let mut table = Table::new(nic, ucmatose)?;
        let connect_seconds = match server {
            Some(server) => table.call(nic, server)?,
            None => table.serve(nic, ucmatose)?,
        };
        let told = Told {
            role: if server.is_some() { "client" } else { "server" },
            peer: table.links.peer.clone(),
            connections: table.state.len(),
            messages: table.messages,
            size: ucmatose.message_size,
            connect_seconds,
        };
        table.free(nic)?;
        Ok(told)
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    up: bool,
    over: bool,
    posted: u16,
    sent: u16,
    received: u16,
}

/// The connections and their memory.
struct Table<'p, H: Host> {
    links: Links,
    state: Vec<Progress>,
    /// Messages each way on each connection.
    messages: u16,
    size: usize,
    /// Where all messages come in: nobody looks at them.
    inward: Memory<'p, H>,
    outward: Memory<'p, H>,
}

impl<'p, H: Host> Table<'p, H> {
    fn new(nic: &mut Nic<'_, 'p, H>, ucmatose: &Ucmatose) -> Result<Self, Failure> {
        let count = usize::from(ucmatose.connections);
        let size = ucmatose.message_size as usize;
        let messages = if size == 0 { 0 } else { ucmatose.message_count };
        let makings = Makings { count, requests: SENDS, receives: messages.max(1) };
        let links = Links::new(nic, makings, &ucmatose.patience, "ucmatose")?;
        let both = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
        let bytes = size.max(1);
        Ok(Self {
            inward: Memory::new(nic, links.pz, bytes, both)?,
            outward: Memory::new(nic, links.pz, bytes, MemPriv::LOCAL_READ)?,
            links,
            state: vec![Progress::default(); count],
            messages,
            size,
        })
    }

    fn free(self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        self.links.free(nic, [self.inward, self.outward])
    }

    fn recvs(&self) -> Vec<LmrTriplet> {
        let piece = self.inward.local(0, self.size);
        vec![piece; usize::from(self.messages)]
    }

    /// The client's side.
    fn call(&mut self, nic: &mut Nic<'_, 'p, H>, server: SocketAddr) -> Result<f64, Failure> {
        let start = Instant::now();
        let recvs = self.recvs();
        for link in 0..self.state.len() {
            self.links.connect(nic, link, server, &recvs)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        self.until(nic, "the server's messages", |it, all| it.received == all)?;
        self.send_all(nic)?;
        // The server parts when it has them, which need not be told here.
        self.until(nic, "the server's parting", |it, _| it.over)?;
        Ok(seconds)
    }

    /// The server's side.
    fn serve(&mut self, nic: &mut Nic<'_, 'p, H>, ucmatose: &Ucmatose) -> Result<f64, Failure> {
        self.links.listen(nic, ucmatose.port)?;
        let (mut cr, _) = self.links.asked(nic, ucmatose.patience.wait)?;
        let start = Instant::now();
        let recvs = self.recvs();
        let mut next = 0;
        loop {
            self.links.recvs(nic, next, &recvs)?;
            self.links.accept(nic, cr, next)?;
            next += 1;
            if next == self.state.len() {
                break;
            }
            cr = loop {
                if let Some(cr) = self.turn(nic, "the next connection")? {
                    break cr;
                }
            };
        }
        self.until(nic, "the last connection", |it, _| it.up)?;
        let seconds = start.elapsed().as_secs_f64();
        self.links.deafen(nic)?;
        self.send_all(nic)?;
        self.until(nic, "the end of all sends", |it, all| it.sent == all)?;
        self.until(nic, "the client's messages", |it, all| it.received == all)?;
        self.links.part(nic)?;
        Ok(seconds)
    }

    /// Waits until something holds of every connection.
    fn until(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        what: &str,
        holds: impl Fn(&Progress, u16) -> bool,
    ) -> Result<(), Failure> {
        while !self.state.iter().all(|it| holds(it, self.messages)) {
            if let Some(cr) = self.turn(nic, what)? {
                Links::refuse(nic, cr);
            }
        }
        Ok(())
    }

    /// Waits for one thing and deals with it; a request is the caller's to answer.
    fn turn(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        what: &str,
    ) -> Result<Option<dat_core::Cr>, Failure> {
        let (link, dto) = match self.links.heard(nic, what)? {
            News::Asked(cr) => return Ok(Some(cr)),
            News::Up(link) => {
                if let Some(state) = self.state.get_mut(link) {
                    state.up = true;
                }
                return Ok(None);
            }
            News::Over(link) => {
                let messages = self.messages;
                if let Some(state) = self.state.get_mut(link) {
                    state.over = true;
                    if state.received < messages {
                        return Err(Failure::new(format!(
                            "{} ended connection {link} after {} of {messages} messages",
                            self.links.peer, state.received
                        ))
                        .remedy(
                            "its output says why; -c, -C and -S have to be the same on both sides",
                        ));
                    }
                }
                return Ok(None);
            }
            News::Again(_) => return Ok(None),
            News::Done(link, dto) => (link, dto),
        };
        let Some(state) = self.state.get_mut(link) else {
            return Ok(None);
        };
        if dto.operation == DtoOperation::Receive {
            if dto.len as usize != self.size {
                return Err(other_size(&self.links.peer, dto.len, self.size));
            }
            state.received += 1;
        } else {
            state.sent += 1;
            self.send(nic, link)?;
        }
        Ok(None)
    }

    fn send_all(&mut self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        for link in 0..self.state.len() {
            for _ in 0..SENDS {
                self.send(nic, link)?;
            }
        }
        Ok(())
    }

    /// Sends the next message of a connection, if there is one.
    fn send(&mut self, nic: &mut Nic<'_, 'p, H>, link: usize) -> Result<(), Failure> {
        let Some(state) = self.state.get_mut(link) else {
            return Ok(());
        };
        if state.posted == self.messages {
            return Ok(());
        }
        state.posted += 1;
        let piece = self.outward.local(0, self.size);
        self.links.send(nic, link, piece, 0)
    }
}
