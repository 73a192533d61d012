//! `dat compat pingpong`: one side of ibv_rc_pingpong, ibv_srq_pingpong and
//! ([`ud_pingpong`](super::ud_pingpong)) ibv_ud_pingpong.
//!
//! Both sides do the same: on each connection, when the last message has been sent and one has
//! come, the next goes out; the client starts. It is over for a side when it has sent and received
//! so many, over all connections. ibv_srq_pingpong tells [`SRQ_LINES`] addresses whatever the
//! number of its connections.
//!
//! Over there the buffer that is received into is the one that is sent from, so whatever a client
//! sends comes back: the client here sends contents of its own and expects nothing else, and the
//! server here returns what it got. Every page of the contents begins with a zero, which is what
//! those programs look at.

use std::time::Instant;

use dat_core::cm::QpTerms;
use dat_core::provider::Provider;
use dat_core::{DtoOperation, LmrTriplet, MemPriv};
use serde::Serialize;
use vfio_host::Host;

use super::super::End;
use super::super::failure::Failure;
use super::super::out::{Out, progress};
use super::super::traffic::adapter::{self, Play};
use super::super::traffic::contents;
use super::super::traffic::memory::Memory;
use super::args::{Kind, Pingpong};
use super::ends::Makings;
use super::link::{Links, News};
use super::oob::{self, Address, Channel, matching};
use super::ud_pingpong::Ball;
use crate::Nic;

/// Addresses that ibv_srq_pingpong tells.
const SRQ_LINES: usize = 256;
/// Receives of one connection: the peer never has more than one message under way, and one is being
/// looked at.
const RECVS: usize = 2;
/// What the programs of that name give a queue pair: acknowledgement timeout, retries, retries
/// without a receive.
const PATIENCE: (u8, u8, u8) = (14, 7, 7);
/// Bytes whose first is zero.
pub(super) const PAGE: usize = 4096;

/// What is told at the end.
#[derive(Debug, Serialize)]
struct Told {
    kind: Kind,
    role: &'static str,
    peer: String,
    connections: usize,
    size: u32,
    /// Messages each way.
    iters: u64,
    verified: bool,
    seconds: f64,
    microseconds_per_iter: f64,
    megabytes_per_second: f64,
}

pub(super) fn run(pingpong: &Pingpong, out: &Out) -> Result<End, Failure> {
    let play = Playing { pingpong, out };
    let told = adapter::with(&pingpong.adapter(), play)?;
    out.result(&told, &words(&told))?;
    Ok(End::Ok)
}

fn words(told: &Told) -> String {
    let Told {
        kind,
        role,
        peer,
        connections,
        size,
        iters,
        verified,
        seconds,
        microseconds_per_iter,
        megabytes_per_second,
    } = told;
    let checked = if *verified { ", verified" } else { "" };
    let name = name(*kind);
    let over = match connections {
        0 => String::new(),
        some => format!(" over {some} connections"),
    };
    format!(
        "{name} {role}: {iters} messages of {size} bytes each way with {peer}{over}{checked}\n\
         {seconds:.3} s, {microseconds_per_iter:.1} us a round trip, {megabytes_per_second:.2} MB/s\n"
    )
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Rc => "ibv_rc_pingpong",
        Kind::Srq => "ibv_srq_pingpong",
        Kind::Ud => "ibv_ud_pingpong",
    }
}

struct Playing<'a> {
    pingpong: &'a Pingpong,
    out: &'a Out,
}

impl Play for Playing<'_> {
    type Told = Told;

    fn play<'p, H: Host>(self, nic: &mut Nic<'_, 'p, H>) -> Result<Told, Failure> {
        let Self { pingpong, out } = self;
        let bar = || progress(*out, pingpong.iters, "pingpong");
        let (peer, seconds, connections) = if pingpong.kind == Kind::Ud {
            let mut ball = Ball::new(nic, pingpong)?;
            let peer = ball.meet(nic, pingpong)?;
            let (bar, start) = (bar(), Instant::now());
            ball.play(nic, pingpong, |done| bar.set_position(done))?;
            let seconds = start.elapsed().as_secs_f64();
            bar.finish_and_clear();
            ball.free(nic)?;
            (peer, seconds, 0)
        } else {
            let mut table = Table::new(nic, pingpong)?;
            let peer = table.meet(nic, pingpong)?;
            let (bar, start) = (bar(), Instant::now());
            table.play(nic, pingpong, |done| bar.set_position(done))?;
            let seconds = start.elapsed().as_secs_f64();
            bar.finish_and_clear();
            let connections = table.state.len();
            table.free(nic)?;
            (peer, seconds, connections)
        };
        let (iters, size) = (pingpong.iters, pingpong.size());
        #[expect(clippy::cast_precision_loss, reason = "figures to look at")]
        let count = iters as f64;
        Ok(Told {
            kind: pingpong.kind,
            role: if pingpong.client.is_some() { "client" } else { "server" },
            peer,
            connections,
            size,
            iters,
            verified: pingpong.chk,
            seconds,
            microseconds_per_iter: seconds * 1e6 / count,
            megabytes_per_second: 2.0 * f64::from(size) * count / seconds / 1e6,
        })
    }
}

/// What one connection waits for before its next message.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    send: bool,
    recv: bool,
}

/// The connections and their memory.
struct Table<'p, H: Host> {
    links: Links,
    state: Vec<Pending>,
    size: usize,
    /// Where messages come in: [`RECVS`] pieces for each connection.
    inward: Memory<'p, H>,
    /// What goes out: one piece for each connection.
    outward: Memory<'p, H>,
    /// What every message has to be; a server knows it from the first.
    wanted: Option<Vec<u8>>,
}

impl<'p, H: Host> Table<'p, H> {
    fn new(nic: &mut Nic<'_, 'p, H>, pingpong: &Pingpong) -> Result<Self, Failure> {
        let count = match pingpong.kind {
            Kind::Rc | Kind::Ud => 1,
            Kind::Srq => usize::from(pingpong.num_qp),
        };
        let makings = Makings { count, requests: 2, receives: 2 };
        let links = Links::new(nic, makings, &pingpong.patience, name(pingpong.kind))?;
        let size = pingpong.size() as usize;
        let both = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
        let inward = Memory::new(nic, links.pz, size * RECVS * count, both)?;
        let outward = Memory::new(nic, links.pz, size * count, MemPriv::LOCAL_READ)?;
        let mut table = Self {
            links,
            state: vec![Pending::default(); count],
            size,
            inward,
            outward,
            wanted: None,
        };
        if pingpong.client.is_some() {
            let mut bytes = vec![0; size];
            contents::fill(adapter::seed(nic), 0, &mut bytes);
            for page in bytes.chunks_mut(PAGE) {
                if let Some(first) = page.first_mut() {
                    *first = 0;
                }
            }
            for link in 0..count {
                table.outward.store(link * size, &bytes);
            }
            table.wanted = Some(bytes);
        }
        for link in 0..count {
            let pieces = [0, 1].map(|piece| table.recv_piece(link, piece));
            table.links.recvs(nic, link, &pieces)?;
        }
        Ok(table)
    }

    fn free(self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        self.links.free(nic, [self.inward, self.outward])
    }

    fn recv_place(&self, link: usize, piece: usize) -> usize {
        (link * RECVS + piece) * self.size
    }

    fn recv_piece(&self, link: usize, piece: usize) -> LmrTriplet {
        self.inward.local(self.recv_place(link, piece), self.size)
    }

    /// Finds the peer over TCP, and connects. Who it is.
    fn meet(&mut self, nic: &mut Nic<'_, 'p, H>, pingpong: &Pingpong) -> Result<String, Failure> {
        let (port, program) = (pingpong.port, name(pingpong.kind));
        let timeout = pingpong.patience.timeout;
        let ip = nic.query().0.ia_address;
        let mut own = Vec::new();
        for link in 0..self.state.len() {
            let qpn = self.links.qpn(nic, link)?;
            let [.., a, b, c] = adapter::seed(nic).to_be_bytes();
            own.push(Address::new(qpn, u32::from_be_bytes([0, a, b, c]), ip));
        }
        let count = own.len();
        if pingpong.kind == Kind::Srq {
            own.resize(SRQ_LINES, Address::NONE);
        }
        let peer = if let Some(host) = &pingpong.client {
            let mut channel = Channel::call(host, port, timeout, program)?;
            channel.say(&own)?;
            let far = channel.hear(nic, own.len())?;
            channel.done()?;
            self.connect(nic, &own, &far, count)?;
            channel.peer().to_owned()
        } else {
            let listener = oob::listen(port, program)?;
            let wait = pingpong.patience.wait;
            let mut channel = Channel::accept(nic, &listener, wait, timeout, program)?;
            let far = channel.hear(nic, own.len())?;
            self.connect(nic, &own, &far, count)?;
            channel.say(&own)?;
            channel.hear_done(nic)?;
            channel.peer().to_owned()
        };
        Ok(peer)
    }

    fn connect(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        own: &[Address],
        far: &[Address],
        count: usize,
    ) -> Result<(), Failure> {
        let local = nic.query().0.ia_address;
        let (ack_timeout, retry_count, rnr_retry) = PATIENCE;
        for (link, (own, far)) in own.iter().zip(far).take(count).enumerate() {
            if far.qpn == 0 && link > 0 {
                return Err(Failure::new(format!(
                    "the peer has {link} connections, this side {count}"
                ))
                .remedy(format!("give -q {link} here, or -q {count} there")));
            }
            let remote = far.ip()?;
            matching(local, remote)?;
            self.links.peer = remote.to_string();
            let terms = QpTerms {
                remote_qpn: far.qpn,
                rq_psn: far.psn,
                sq_psn: own.psn,
                mtu: nic.provider().limits().mtu,
                responder_resources: 1,
                initiator_depth: 1,
                retry_count,
                rnr_retry,
                ack_timeout,
            };
            self.links.connect_direct(nic, link, remote, &terms)?;
        }
        Ok(())
    }

    /// To and fro, until both counts are full.
    fn play(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        pingpong: &Pingpong,
        tell: impl Fn(u64),
    ) -> Result<(), Failure> {
        let iters = pingpong.iters;
        for link in 0..self.state.len() {
            if pingpong.client.is_some() {
                self.send(nic, link)?;
            } else if let Some(pending) = self.state.get_mut(link) {
                pending.recv = true;
            }
        }
        let (mut sent, mut received) = (0, 0);
        while sent < iters || received < iters {
            let (link, dto) = match self.links.heard(nic, "the next message")? {
                News::Done(link, dto) => (link, dto),
                News::Asked(cr) => {
                    Links::refuse(nic, cr);
                    continue;
                }
                News::Up(_) | News::Over(_) | News::Again(_) => continue,
            };
            let was = self.state.get(link).copied().unwrap_or_default();
            let pending = match dto.operation {
                DtoOperation::Receive | DtoOperation::ReceiveWithInvalidate => {
                    self.received(nic, link, dto.cookie, dto.len, pingpong)?;
                    received += 1;
                    tell(received);
                    Pending { recv: false, ..was }
                }
                DtoOperation::Send
                | DtoOperation::RdmaRead
                | DtoOperation::RdmaWrite
                | DtoOperation::BindMw
                | DtoOperation::LmrFmr
                | DtoOperation::LmrInvalidate => {
                    sent += 1;
                    Pending { send: false, ..was }
                }
            };
            if let Some(state) = self.state.get_mut(link) {
                *state = pending;
            }
            if sent < iters && !pending.send && !pending.recv {
                self.send(nic, link)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, nic: &mut Nic<'_, 'p, H>, link: usize) -> Result<(), Failure> {
        if let Some(pending) = self.state.get_mut(link) {
            *pending = Pending { send: true, recv: true };
        }
        let piece = self.outward.local(link * self.size, self.size);
        self.links.send(nic, link, piece, 0)
    }

    /// A message is there: verified, taken over for the answer, and its place free again.
    fn received(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        link: usize,
        cookie: u64,
        len: u32,
        pingpong: &Pingpong,
    ) -> Result<(), Failure> {
        if len as usize != self.size {
            return Err(Failure::new(format!(
                "{} sent {len} bytes instead of {}",
                self.links.peer, self.size
            ))
            .remedy("give the same -s on both sides"));
        }
        let piece = usize::try_from(cookie).unwrap_or(0);
        let place = self.recv_place(link, piece);
        if pingpong.chk || pingpong.client.is_none() {
            let mut bytes = vec![0; self.size];
            self.inward.load(place, &mut bytes);
            if pingpong.client.is_none() {
                self.outward.store(link * self.size, &bytes);
            }
            if pingpong.chk {
                let wanted = self.wanted.get_or_insert_with(|| bytes.clone());
                if let Some(at) = wanted.iter().zip(&bytes).position(|(a, b)| a != b) {
                    return Err(Failure::new(format!(
                        "a message from {} is wrong from byte {at} on",
                        self.links.peer
                    ))
                    .remedy("it has to return what it receives; is it the program of that name?"));
                }
                // What does not come is not taken for what came last.
                bytes.fill(!0);
                self.inward.store(place, &bytes);
            }
        }
        self.links.recv(nic, link, self.recv_piece(link, piece), cookie)
    }
}
