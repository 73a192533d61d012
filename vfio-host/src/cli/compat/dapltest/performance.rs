//! A performance test: RDMA operations of a client on one connection, as many at a time as it may,
//! then one after the other.
//!
//! The server opens a port, tells over the connection where its memory is, and waits for a message
//! of the same length, which says that the client is done. It has no part in what goes on between.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use dat_core::{CompletionFlags, Cr, Ep, LmrTriplet, MemPriv, RmrTriplet};
use indicatif::ProgressBar;

use super::super::super::failure::Failure;
use super::super::super::traffic::adapter::dat;
use super::super::super::traffic::histogram::Histogram;
use super::super::super::traffic::memory::Memory;
use super::super::link::Links;
use super::hub::{Hub, Point, interrupted, late};
use super::processor::Processor;
use super::wire::{FAR, Far, Order, Performance, Transfer};
use crate::Host;

/// Where a segment, or a message, may begin.
const ALIGN: usize = 256;
/// Bytes of memory that an operation may have.
const MEMORY: u64 = 8 << 20;
/// Attempts to connect that the other side may take for ghosts of an earlier connection.
const ATTEMPTS: usize = 4;
/// No flags.
const PLAIN: CompletionFlags = CompletionFlags::empty();

/// What the client has measured.
#[derive(Debug)]
pub(super) struct Measured {
    /// Operations at a time.
    pub(super) pipeline: u32,
    /// Of all operations through the pipeline.
    pub(super) time: Duration,
    /// Per cent of this machine's processors that were busy meanwhile.
    pub(super) busy: Option<f64>,
    /// From a post to its completion, one after the other.
    pub(super) latency: Histogram,
    /// Of a post.
    pub(super) posts: Histogram,
    /// From the wait for a completion to the completion.
    pub(super) reaps: Histogram,
}

/// The connection of a test.
#[derive(Debug)]
pub(super) struct Track<'p, H: Host> {
    ep: Ep,
    command: Performance,
    peer: SocketAddr,
    /// Two messages: this side's, the other's.
    notes: Memory<'p, H>,
    data: Memory<'p, H>,
    point: Option<Point>,
    pipeline: u32,
}

impl<'p, H: Host> Track<'p, H> {
    /// Makes it. The port of a server is open from here on.
    pub(super) fn new(
        hub: &Hub<'_, '_, 'p, H>,
        command: Performance,
        peer: SocketAddr,
        server: bool,
    ) -> Result<Self, Failure> {
        check(hub, &command)?;
        let attr = hub.nic(|nic| nic.query().0);
        let most = match command.transfer {
            Transfer::Read => attr.max_rdma_read_per_ep_out,
            Transfer::Write | Transfer::Send => attr.max_dto_per_ep,
        };
        let pipeline =
            command.iterations.min(command.pipeline).min(attr.max_dto_per_ep).min(most).max(1);
        let requests = u16::try_from(pipeline).unwrap_or(u16::MAX);
        let segments = u8::try_from(command.segments).unwrap_or(u8::MAX);
        let ep = hub.ep_create(requests, 1, segments)?;
        let memories = memories(hub, &command, server);
        let (notes, data) = match memories {
            Ok(memories) => memories,
            Err(failure) => {
                let _ = hub.ep_free(ep);
                return Err(failure);
            }
        };
        let mut track = Self { ep, command, peer, notes, data, point: None, pipeline };
        let opened = track.recv(hub).and_then(|()| {
            if server {
                track.point = Some(hub.listen(peer.port(), None)?);
            }
            Ok(())
        });
        match opened {
            Ok(()) => Ok(track),
            Err(failure) => {
                let _ = track.free(hub);
                Err(failure)
            }
        }
    }

    /// Gives everything back.
    pub(super) fn free(mut self, hub: &Hub<'_, '_, 'p, H>) -> Result<(), Failure> {
        let closed = self.close(hub);
        let freed = hub.ep_free(self.ep);
        let (notes, data) = (self.notes, self.data);
        let memory = hub.nic(|nic| notes.free(nic).and(data.free(nic)));
        closed.and(freed).and(memory)
    }

    fn close(&mut self, hub: &Hub<'_, '_, 'p, H>) -> Result<(), Failure> {
        self.point.take().map_or(Ok(()), |point| hub.close(&point))
    }

    fn recv(&self, hub: &Hub<'_, '_, 'p, H>) -> Result<(), Failure> {
        let piece = self.notes.local(ALIGN, FAR);
        hub.nic(|nic| nic.ep_post_recv(self.ep, &[piece], 0, PLAIN))
            .map_err(|ret| dat("dat_ep_post_recv", ret))
    }

    async fn hear(&self, hub: &Hub<'_, '_, 'p, H>, what: &str) -> Result<[u8; FAR], Failure> {
        let peer = self.peer.ip().to_string();
        let dto = hub.came(self.ep, &peer, what).await?;
        if dto.len as usize != FAR {
            return Err(Failure::new(format!(
                "{peer} sent {} bytes instead of {what}, which has {FAR}",
                dto.len
            ))
            .remedy("is it dapltest?"));
        }
        let mut bytes = [0; FAR];
        self.notes.load(ALIGN, &mut bytes);
        Ok(bytes)
    }

    async fn say(&self, hub: &Hub<'_, '_, 'p, H>, bytes: [u8; FAR]) -> Result<(), Failure> {
        self.notes.store(0, &bytes);
        let piece = self.notes.local(0, FAR);
        hub.nic(|nic| nic.ep_post_send(self.ep, &[piece], 0, PLAIN))
            .map_err(|ret| dat("dat_ep_post_send", ret))?;
        let peer = self.peer.ip().to_string();
        let done = hub.done(self.ep, &peer, "the end of a send").await;
        done.map(drop)
    }

    /// The server's side.
    pub(super) async fn serve(
        &mut self,
        hub: &Hub<'_, '_, 'p, H>,
        order: Order,
    ) -> Result<(), Failure> {
        let ended = self.served(hub, order).await;
        hub.part(&[self.ep]).await;
        ended
    }

    async fn served(&mut self, hub: &Hub<'_, '_, 'p, H>, order: Order) -> Result<(), Failure> {
        for _ in 0..ATTEMPTS {
            let cr = self.asked(hub).await?;
            hub.nic(|nic| nic.cr_accept(cr, Some(self.ep), &[]))
                .map_err(|e| dat("dat_cr_accept", e))?;
            if hub.up(self.ep, self.peer).await? {
                self.close(hub)?;
                let (addr, _, key) = self.data.far();
                self.say(hub, Far { key, addr }.bytes(order)).await?;
                return self.hear(hub, "the message that it is done").await.map(drop);
            }
            hub.ep_reset(self.ep)?;
            self.recv(hub)?;
        }
        Err(rejected(self.peer))
    }

    async fn asked(&self, hub: &Hub<'_, '_, 'p, H>) -> Result<Cr, Failure> {
        loop {
            let asked = hub.asked(self.peer.port(), hub.timeout).await;
            let what = format!("a connection to port {}", self.peer.port());
            let peer = self.peer.ip();
            let (cr, remote) = asked.ok_or_else(|| late(&what, hub.timeout, &peer.to_string()))?;
            if remote == peer {
                return Ok(cr);
            }
            hub.nic(|nic| Links::refuse(nic, cr));
        }
    }

    /// The client's side.
    pub(super) async fn call(
        &mut self,
        hub: &Hub<'_, '_, 'p, H>,
        order: Order,
        bar: &ProgressBar,
    ) -> Result<Measured, Failure> {
        let ended = self.called(hub, order, bar).await;
        hub.part(&[self.ep]).await;
        ended
    }

    async fn called(
        &mut self,
        hub: &Hub<'_, '_, 'p, H>,
        order: Order,
        bar: &ProgressBar,
    ) -> Result<Measured, Failure> {
        let mut attempts = 0;
        loop {
            hub.nic(|nic| nic.ep_connect(self.ep, self.peer, hub.timeout, &[]))
                .map_err(|e| dat("dat_ep_connect", e))?;
            if hub.up(self.ep, self.peer).await? {
                break;
            }
            attempts += 1;
            if attempts == ATTEMPTS {
                return Err(rejected(self.peer));
            }
            hub.ep_reset(self.ep)?;
            self.recv(hub)?;
        }
        let bytes = self.hear(hub, "the address of its memory").await?;
        let Far { key, addr } = Far::read(bytes, order);
        let work = Work {
            segments: self.segments(),
            far: RmrTriplet {
                addr,
                len: self.command.size.saturating_mul(self.command.segments),
                context: key,
            },
        };
        let mut measured = Measured {
            pipeline: self.pipeline,
            time: Duration::ZERO,
            busy: None,
            latency: Histogram::new(),
            posts: Histogram::new(),
            reaps: Histogram::new(),
        };
        self.flow(hub, &work, &mut measured, bar)?;
        self.drip(hub, &work, &mut measured, bar)?;
        self.say(hub, [0; FAR]).await?;
        Ok(measured)
    }

    /// The segments of an operation on the client's side.
    fn segments(&self) -> Vec<LmrTriplet> {
        let len = self.command.size as usize;
        let stride = len.next_multiple_of(ALIGN);
        let segments = 0..self.command.segments as usize;
        segments.map(|nth| self.data.local(nth * stride, len)).collect()
    }

    /// All operations, as many at a time as the pipeline holds.
    fn flow(
        &self,
        hub: &Hub<'_, '_, 'p, H>,
        work: &Work,
        measured: &mut Measured,
        bar: &ProgressBar,
    ) -> Result<(), Failure> {
        let all = self.command.iterations;
        let before = Processor::now();
        let start = Instant::now();
        let (mut posted, mut reaped) = (0, 0);
        while reaped < all {
            while posted < all && posted - reaped < self.pipeline {
                measured.posts.add(self.post(hub, work)?);
                posted += 1;
            }
            measured.reaps.add(self.reap(hub, self.command.poll)?);
            reaped += 1;
            bar.inc(1);
        }
        measured.time = start.elapsed();
        measured.busy = Processor::busy(before, Processor::now());
        Ok(())
    }

    /// All operations once more, one after the other, polled for.
    fn drip(
        &self,
        hub: &Hub<'_, '_, 'p, H>,
        work: &Work,
        measured: &mut Measured,
        bar: &ProgressBar,
    ) -> Result<(), Failure> {
        for _ in 0..self.command.iterations {
            let start = Instant::now();
            self.post(hub, work)?;
            self.reap(hub, true)?;
            measured.latency.add(start.elapsed());
            bar.inc(1);
        }
        Ok(())
    }

    fn post(&self, hub: &Hub<'_, '_, 'p, H>, work: &Work) -> Result<Duration, Failure> {
        let Work { segments, far } = work;
        hub.nic(|nic| {
            let start = Instant::now();
            match self.command.transfer {
                Transfer::Read => nic
                    .ep_post_rdma_read(self.ep, segments, 0, far, PLAIN)
                    .map_err(|ret| dat("dat_ep_post_rdma_read", ret)),
                Transfer::Write | Transfer::Send => nic
                    .ep_post_rdma_write(self.ep, segments, 0, far, PLAIN)
                    .map_err(|ret| dat("dat_ep_post_rdma_write", ret)),
            }?;
            Ok(start.elapsed())
        })
    }

    /// Waits for the end of an operation; nothing else is under way on a client.
    fn reap(&self, hub: &Hub<'_, '_, 'p, H>, spin: bool) -> Result<Duration, Failure> {
        let peer = self.peer.ip().to_string();
        let start = Instant::now();
        loop {
            if let Some(dto) = hub.done_already(self.ep, &peer)? {
                let wanted = self.command.size.saturating_mul(self.command.segments);
                if dto.len != wanted {
                    return Err(Failure::new(format!(
                        "an operation ended with {} bytes instead of {wanted}",
                        dto.len
                    ))
                    .remedy("this is a bug: run it again with -vvv"));
                }
                return Ok(start.elapsed());
            }
            interrupted()?;
            if start.elapsed() >= hub.timeout {
                return Err(late("the end of an operation", hub.timeout, &peer));
            }
            hub.wait(spin)?;
        }
    }
}

/// What is posted again and again.
struct Work {
    segments: Vec<LmrTriplet>,
    far: RmrTriplet,
}

fn memories<'p, H: Host>(
    hub: &Hub<'_, '_, 'p, H>,
    command: &Performance,
    server: bool,
) -> Result<(Memory<'p, H>, Memory<'p, H>), Failure> {
    let local = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
    let rights = match command.transfer {
        Transfer::Read if server => MemPriv::LOCAL_READ | MemPriv::REMOTE_READ,
        Transfer::Write if server => local | MemPriv::REMOTE_WRITE,
        Transfer::Read | Transfer::Write | Transfer::Send => local,
    };
    let len = (command.size as usize).next_multiple_of(ALIGN) * command.segments as usize;
    let notes = hub.memory(ALIGN * 2, local)?;
    match hub.memory(len, rights) {
        Ok(data) => Ok((notes, data)),
        Err(failure) => {
            let _ = hub.nic(|nic| notes.free(nic));
            Err(failure)
        }
    }
}

/// Whether this side can carry out a command. Nothing of it is believed before.
fn check<H: Host>(hub: &Hub<'_, '_, '_, H>, command: &Performance) -> Result<(), Failure> {
    let Performance { transfer, size, segments, iterations, pipeline, .. } = *command;
    if transfer == Transfer::Send {
        return Err(Failure::new(
            "a client wants a performance test of sends, which there is none of",
        )
        .remedy("RR or RW; is it dapltest?"));
    }
    if iterations == 0 || pipeline == 0 {
        return Err(Failure::new(format!(
            "a test of {iterations} iterations with {pipeline} at a time does nothing"
        ))
        .remedy("give -i and -p at least 1"));
    }
    let attr = hub.nic(|nic| nic.query().0);
    let most = match transfer {
        Transfer::Read => attr.max_iov_segments_per_rdma_read,
        Transfer::Write | Transfer::Send => attr.max_iov_segments_per_rdma_write,
    };
    let bytes = u64::from(size).next_multiple_of(ALIGN as u64) * u64::from(segments);
    if size == 0 || segments == 0 || segments > most || bytes > MEMORY {
        return Err(Failure::new(format!(
            "an operation of {segments} segments of {size} bytes is not possible here: {most} segments and {MEMORY} bytes are"
        ))
        .remedy("give other numbers of bytes and segments behind RR or RW"));
    }
    if hub.room() == 0 {
        return Err(Failure::new("this adapter has room for no more Endpoints")
            .remedy("wait for the end of the tests that are under way"));
    }
    Ok(())
}

fn rejected(peer: SocketAddr) -> Failure {
    Failure::new(format!("no attempt to connect with {peer} succeeds"))
        .remedy("the output of dapltest there says more")
}

/// The address of a test's connection.
pub(super) fn place(peer: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(peer, port)
}
