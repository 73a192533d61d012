//! One connection of a transaction test: how it comes about, what goes over it, how it ends.
//!
//! All receives are posted before there is a connection, in the order in which the other side
//! sends: where its memory is, that it is ready, the messages of the operations. Each of the latter
//! is posted again when it has come, until the last round; what says that the other side is done is
//! posted before the last round begins.

use std::net::{IpAddr, SocketAddr};

use dat_core::{CompletionFlags, DatReturn, DtoEvent, Ep, LmrTriplet, RmrTriplet};

use super::super::super::failure::Failure;
use super::super::super::traffic::adapter::dat;
use super::super::link::Links;
use super::buffers::{Buffers, Note};
use super::hub::{Hub, PROGRAM, Point, late};
use super::terms::Terms;
use super::wire::{GREETING, Transfer};
use crate::Host;

/// Attempts to connect that the other side may take for ghosts of an earlier connection.
const ATTEMPTS: usize = 4;
/// Cookies of operations begin here: those of other messages are places in memory.
const OPS: u64 = 1 << 32;
/// No flags.
const PLAIN: CompletionFlags = CompletionFlags::empty();

/// The connection.
#[derive(Debug)]
pub(super) struct Leg<'p, H: Host> {
    ep: Ep,
    pub(super) buffers: Buffers<'p, H>,
    port: u16,
    /// The port, while it is open.
    point: Option<Point>,
    /// Who is on the other side.
    pub(super) peer: String,
    /// Its memory, by operation.
    far: Vec<RmrTriplet>,
}

impl<'p, H: Host> Leg<'p, H> {
    /// Makes it. A server's port is open from here on.
    pub(super) fn new(hub: &Hub<'_, '_, 'p, H>, terms: &Terms, port: u16) -> Result<Self, Failure> {
        let depth = terms.depth();
        let ep = hub.ep_create(depth, depth, terms.segments())?;
        let buffers = match Buffers::new(hub, &terms.ops, terms.is_server()) {
            Ok(buffers) => buffers,
            Err(failure) => {
                let _ = hub.ep_free(ep);
                return Err(failure);
            }
        };
        let mut leg =
            Self { ep, buffers, port, point: None, peer: terms.peer.to_string(), far: Vec::new() };
        match leg.open(hub, terms) {
            Ok(()) => Ok(leg),
            Err(failure) => {
                let _ = leg.free(hub);
                Err(failure)
            }
        }
    }

    /// Posts the first receives, and opens the port of a server.
    fn open(&mut self, hub: &Hub<'_, '_, 'p, H>, terms: &Terms) -> Result<(), Failure> {
        self.recv_note(hub, Note::FarIn)?;
        self.recv_note(hub, Note::ReadyIn)?;
        for (nth, op) in terms.ops.iter().enumerate() {
            if op.transfer == Transfer::Send && !terms.ours(op) {
                self.recv(hub, nth)?;
            }
        }
        if terms.is_server() && self.point.is_none() {
            let reserved = terms.rsp.then_some(self.ep);
            self.point = Some(hub.listen(self.port, reserved)?);
        }
        Ok(())
    }

    /// Gives everything back.
    pub(super) fn free(mut self, hub: &Hub<'_, '_, 'p, H>) -> Result<(), Failure> {
        let closed = self.close(hub);
        let freed = hub.ep_free(self.ep);
        closed.and(freed).and(self.buffers.free(hub))
    }

    fn close(&mut self, hub: &Hub<'_, '_, 'p, H>) -> Result<(), Failure> {
        self.point.take().map_or(Ok(()), |point| hub.close(&point))
    }

    /// Brings the connection about.
    pub(super) async fn connect(
        &mut self,
        hub: &Hub<'_, '_, 'p, H>,
        terms: &Terms,
    ) -> Result<(), Failure> {
        let peer = SocketAddr::new(terms.peer, self.port);
        for _ in 0..ATTEMPTS {
            if terms.is_server() {
                self.accept(hub, terms).await?;
            } else {
                hub.nic(|nic| nic.ep_connect(self.ep, peer, hub.timeout, GREETING))
                    .map_err(|e| dat("dat_ep_connect", e))?;
            }
            if hub.up(self.ep, peer).await? {
                return self.close(hub);
            }
            // An RSP takes one request, and this one came to nothing.
            if terms.rsp {
                self.close(hub)?;
            }
            hub.ep_reset(self.ep)?;
            self.open(hub, terms)?;
        }
        Err(Failure::new(format!("no attempt to connect with {peer} succeeds"))
            .remedy("the output of dapltest there says more"))
    }

    async fn accept(&self, hub: &Hub<'_, '_, 'p, H>, terms: &Terms) -> Result<(), Failure> {
        let port = self.port;
        loop {
            let asked = hub.asked(port, hub.timeout).await;
            let (cr, remote) = asked.ok_or_else(|| {
                late(&format!("a connection to port {port}"), hub.timeout, &self.peer)
            })?;
            if remote != terms.peer {
                hub.nic(|nic| Links::refuse(nic, cr));
                continue;
            }
            return hub.nic(|nic| {
                let request = nic.cr_query(cr).map_err(|e| dat("dat_cr_query", e))?;
                if !request.private_data.starts_with(GREETING) {
                    Links::refuse(nic, cr);
                    return Err(Failure::new(format!(
                        "{remote} asks at port {port} with other private data than {PROGRAM}'s"
                    ))
                    .remedy("is it dapltest?"));
                }
                let ep = (!terms.rsp).then_some(self.ep);
                nic.cr_accept(cr, ep, &[]).map_err(|e| dat("dat_cr_accept", e))
            });
        }
    }

    /// Tells the other side where this side's memory is, and hears where that one's is; a client
    /// speaks first.
    pub(super) async fn introduce(
        &mut self,
        hub: &Hub<'_, '_, 'p, H>,
        terms: &Terms,
    ) -> Result<(), Failure> {
        self.buffers.tell(terms.order);
        if terms.is_server() {
            self.hear(hub, Note::FarIn).await?;
            self.say(hub, Note::FarOut)?;
            self.said(hub, Note::FarOut).await?;
        } else {
            self.say(hub, Note::FarOut)?;
            self.said(hub, Note::FarOut).await?;
            self.hear(hub, Note::FarIn).await?;
        }
        self.far = self.buffers.told();
        Ok(())
    }

    /// Sends a message that is no operation's.
    pub(super) fn say(&self, hub: &Hub<'_, '_, 'p, H>, note: Note) -> Result<(), Failure> {
        let piece = self.buffers.note(note);
        hub.nic(|nic| nic.ep_post_send(self.ep, &[piece], note.cookie(), PLAIN))
            .map_err(|ret| dat("dat_ep_post_send", ret))
    }

    /// Waits until it has been sent.
    pub(super) async fn said(&self, hub: &Hub<'_, '_, 'p, H>, note: Note) -> Result<(), Failure> {
        let dto = hub.done(self.ep, &self.peer, "the end of a send").await?;
        self.check(&dto, note.cookie(), note.len(), "a send ended")
    }

    /// Waits for one.
    pub(super) async fn hear(&self, hub: &Hub<'_, '_, 'p, H>, note: Note) -> Result<(), Failure> {
        let what = match note {
            Note::FarIn | Note::FarOut => "the addresses of its memory",
            Note::ReadyIn | Note::ReadyOut => "the message that it is ready",
            Note::DoneIn | Note::DoneOut => "the message that it is done",
        };
        let dto = hub.came(self.ep, &self.peer, what).await?;
        self.check(&dto, note.cookie(), note.len(), what)
    }

    /// Makes room for one.
    pub(super) fn recv_note(&self, hub: &Hub<'_, '_, 'p, H>, note: Note) -> Result<(), Failure> {
        self.post_recv(hub, &[self.buffers.note(note)], note.cookie())
    }

    /// Makes room for an operation's message.
    pub(super) fn recv(&self, hub: &Hub<'_, '_, 'p, H>, op: usize) -> Result<(), Failure> {
        self.post_recv(hub, &self.buffers.segments(op), OPS | op as u64)
    }

    fn post_recv(
        &self,
        hub: &Hub<'_, '_, 'p, H>,
        segments: &[LmrTriplet],
        cookie: u64,
    ) -> Result<(), Failure> {
        hub.nic(|nic| nic.ep_post_recv(self.ep, segments, cookie, PLAIN))
            .map_err(|ret| dat("dat_ep_post_recv", ret))
    }

    /// Begins an operation of this side.
    pub(super) fn post(
        &self,
        hub: &Hub<'_, '_, 'p, H>,
        op: usize,
        transfer: Transfer,
    ) -> Result<(), Failure> {
        let segments = self.buffers.segments(op);
        let (ep, cookie) = (self.ep, OPS | op as u64);
        let far = self.far.get(op).copied();
        let posted = hub.nic(|nic| match (transfer, far) {
            (Transfer::Read, Some(far)) => {
                nic.ep_post_rdma_read(ep, &segments, cookie, &far, PLAIN)
            }
            (Transfer::Write, Some(far)) => {
                nic.ep_post_rdma_write(ep, &segments, cookie, &far, PLAIN)
            }
            (Transfer::Send, Some(_)) => nic.ep_post_send(ep, &segments, cookie, PLAIN),
            (_, None) => Err(DatReturn::of(dat_core::DatType::InvalidParameter)),
        });
        posted.map_err(|ret| {
            let call = match transfer {
                Transfer::Read => "dat_ep_post_rdma_read",
                Transfer::Write => "dat_ep_post_rdma_write",
                Transfer::Send => "dat_ep_post_send",
            };
            dat(call, ret)
        })
    }

    /// Waits until it is done.
    pub(super) async fn done(
        &self,
        hub: &Hub<'_, '_, 'p, H>,
        terms: &Terms,
        op: usize,
    ) -> Result<(), Failure> {
        let dto = hub.done(self.ep, &self.peer, "the end of an operation").await?;
        let what = format!("operation {op} ended");
        self.check(&dto, OPS | op as u64, terms.bytes(op), &what)
    }

    /// Waits for an operation's message.
    pub(super) async fn came(
        &self,
        hub: &Hub<'_, '_, 'p, H>,
        terms: &Terms,
        op: usize,
    ) -> Result<(), Failure> {
        let what = format!("the message of operation {op}");
        let dto = hub.came(self.ep, &self.peer, &what).await?;
        self.check(&dto, OPS | op as u64, terms.bytes(op), &what)
    }

    fn check(&self, dto: &DtoEvent, cookie: u64, len: usize, what: &str) -> Result<(), Failure> {
        if dto.cookie != cookie {
            return Err(Failure::new(format!("{what}, but another request than the next ended"))
                .remedy("this is a bug: run it again with -vvv"));
        }
        if dto.len as usize != len {
            return Err(Failure::new(format!(
                "{what} with {} bytes instead of {len}, by {}",
                dto.len, self.peer
            ))
            .remedy("is it dapltest?"));
        }
        Ok(())
    }

    /// Its Endpoint.
    pub(super) fn ep(&self) -> Ep {
        self.ep
    }
}

/// The other side's port for a connection, if there is such a port.
pub(super) fn port(first: u32, nth: u32, peer: IpAddr) -> Result<u16, Failure> {
    let port = first.checked_add(nth).and_then(|port| u16::try_from(port).ok());
    port.filter(|port| *port != 0).ok_or_else(|| {
        Failure::new(format!(
            "{peer} wants connections at port {first} and {nth} behind it, which no IP network has"
        ))
        .remedy("start its server with a smaller -n")
    })
}
