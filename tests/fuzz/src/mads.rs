//! Connection datagrams: any MAD into the parsers, and a program of calls, times and MADs into a
//! connection manager.
//!
//! MADs of the program answer what the manager has sent, with the right IDs, and are then changed;
//! so they reach every state. A connection has one end, and nothing after it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use dat_core::Instant;
use dat_core::cm::wire::{Header, IpHeader, Message};
use dat_core::cm::{
    AcceptParams, Cm, CmEvent, Config, ConnId, ConnectParams, Reason, ServiceId, SidrParams, Slot,
};
use dat_core::provider::{Class, Mtu, Random};
use dat_tests::attack::Cm as Kind;
use dat_tests::attack::mad::{Mad, Req};

use crate::input::{Patch, patch, steps};

const OWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 1));
/// A slot more than peers, so that connections meet, and also run out of them.
const SLOTS: usize = 4;

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Step {
    /// Any bytes.
    Any {
        from: u8,
        mad: [u8; 64],
    },
    /// A request of a peer.
    Request {
        from: u8,
        number: u8,
        datagrams: bool,
        patches: [Option<Patch>; 2],
    },
    /// A message of that kind that names a connection of the manager and one of the peer's.
    Answer {
        kind: u8,
        own: u8,
        foreign: u8,
        about: u8,
        patches: [Option<Patch>; 2],
    },
    /// What the manager has sent, back to it.
    Echo {
        sent: u8,
        patches: [Option<Patch>; 2],
    },
    Pass {
        millis: u16,
    },
    Connect {
        to: u8,
        qpn: u8,
        private: u8,
    },
    LookUp {
        to: u8,
        private: u8,
    },
    Accept {
        conn: u8,
        qpn: u8,
        private: u8,
    },
    Reject {
        conn: u8,
        reason: u8,
        private: u8,
    },
    Ready {
        conn: u8,
    },
    Disconnect {
        conn: u8,
    },
    Abort {
        conn: u8,
    },
    Arrived {
        conn: u8,
    },
    Keep {
        conn: u8,
        kept: bool,
    },
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    if first & 1 == 0 {
        parse(rest);
    } else {
        let mut slots = [const { Slot::new() }; SLOTS];
        let mut world = World::new(&mut slots);
        steps(&mut Unstructured::new(rest), 64).for_each(|step| world.step(step));
        world.end();
    }
}

/// What is understood means the same when it is written and read again.
fn parse(data: &[u8]) {
    let mut mad = [0; 256];
    let len = data.len().min(256);
    mad[..len].copy_from_slice(&data[..len]);
    if let Ok((transaction, message)) = Message::parse(&mad) {
        let again = message.emit(transaction);
        assert_eq!(Message::parse(&again), Ok((transaction, message)));
    }
    if let Some(bytes) = data.first_chunk() {
        if let Ok(header) = IpHeader::parse(bytes) {
            assert_eq!(IpHeader::parse(&header.emit()), Ok(header));
        }
    }
}

fn peer(n: u8) -> IpAddr {
    match n % 4 {
        3 => IpAddr::V6(std::net::Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 2)),
        n => IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 2 + n)),
    }
}

fn pick<T: Copy>(list: &[T], n: u8) -> Option<T> {
    // The newest first: programs are mostly about it.
    list.iter().rev().nth(usize::from(n) % list.len().max(1)).copied()
}

struct World<'s> {
    cm: Cm<'s>,
    now: Instant,
    /// Connections by the order in which they began.
    conns: Vec<ConnId>,
    ended: BTreeSet<u32>,
    sent: Vec<(IpAddr, [u8; 256])>,
}

impl<'s> World<'s> {
    fn new(slots: &'s mut [Slot]) -> Self {
        Self {
            cm: Cm::new(slots, Config::new(0x0266_66ff_fe00_0001), Random::new([7; 32])),
            now: Instant::from_nanos(1_000_000_000),
            conns: Vec::new(),
            ended: BTreeSet::new(),
            sent: Vec::new(),
        }
    }

    fn step(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Any { from, mad: first } => {
                let mut mad = [0; 256];
                mad[..64].copy_from_slice(&first);
                self.cm.input(now, peer(from), &mad);
            }
            Step::Request { from, number, datagrams, patches } => {
                let addrs = [peer(from), OWN];
                let mut mad = if datagrams {
                    Mad::sidr_req(u64::from(number), u32::from(number) + 9, 7174, addrs)
                } else {
                    Req::new(number.into(), 7174, addrs).mad()
                };
                patch(&mut mad.0, &patches);
                self.cm.input(now, addrs[0], &mad.0);
            }
            Step::Answer { kind, own, foreign, about, patches } => {
                self.answer(kind, own, foreign, about, &patches);
            }
            Step::Echo { sent, patches } => {
                if let Some((to, mut mad)) = pick(&self.sent, sent) {
                    patch(&mut mad, &patches);
                    self.cm.input(now, to, &mad);
                }
            }
            Step::Pass { millis } => {
                self.now = now + Duration::from_millis(u64::from(millis) * 8);
                self.cm.advance(self.now);
            }
            _ => self.call(step),
        }
        self.poll();
    }

    /// A message that fits to what was sent last to somebody.
    fn answer(&mut self, kind: u8, own: u8, foreign: u8, about: u8, patches: &[Option<Patch>; 2]) {
        let Some((to, sent)) = pick(&self.sent, own) else { return };
        let sent = Mad(sent);
        let (transaction, id) = (sent.transaction(), sent.word(0));
        let foreign = match sent.word(4) {
            0 => 0x4000_0000 + u32::from(foreign),
            known => known,
        };
        let kind = Kind::ALL[usize::from(kind) % Kind::ALL.len()];
        let ids = [foreign, id];
        let number = u32::from(about) + 0x100;
        let mut mad = match kind {
            Kind::Rep => Mad::rep(transaction, ids, number, number, u64::from(about)),
            Kind::Rej => Mad::rej(transaction, ids, about & 3, 28, &[]),
            Kind::Mra => Mad::mra(transaction, ids, about & 3, about >> 3),
            Kind::Dreq => Mad::dreq(transaction, ids, if about == 0 { number } else { 0x11 }),
            Kind::SidrRep => Mad::sidr_rep(transaction, id, about & 7, number, number),
            Kind::Req | Kind::Rtu | Kind::Drep | Kind::SidrReq | Kind::Lap | Kind::Apr => {
                Mad::between(kind, transaction, ids)
            }
        };
        patch(&mut mad.0, patches);
        self.cm.input(self.now, to, &mad.0);
    }

    fn call(&mut self, step: Step) {
        let now = self.now;
        let data = [0x5a; 255];
        match step {
            Step::Connect { to, qpn, private } => {
                let params = ConnectParams {
                    remote: peer(to),
                    local: OWN,
                    service: if to & 4 == 0 { ServiceId::tcp(7174) } else { ServiceId(u64::MAX) },
                    source_port: 41564,
                    qpn: u32::from(qpn),
                    responder_resources: 4,
                    initiator_depth: 3,
                    retry_count: 6,
                    rnr_retry: 5,
                    mtu: Mtu::B1024,
                    ack_timeout: 17,
                    flow_label: 0x3c52a,
                    class: Class::default(),
                    hop_limit: 64,
                    private_data: &data[..usize::from(private)],
                };
                self.conns.extend(self.cm.connect(now, &params).ok());
            }
            Step::LookUp { to, private } => {
                let params = SidrParams {
                    remote: peer(to),
                    local: OWN,
                    service: ServiceId::udp(7174),
                    source_port: 41564,
                    class: Class::default(),
                    private_data: &data[..usize::from(private)],
                };
                self.conns.extend(self.cm.sidr_request(now, &params).ok());
            }
            Step::Accept { conn, qpn, private } => {
                let Some(conn) = pick(&self.conns, conn) else { return };
                let data = &data[..usize::from(private)];
                let qpn = u32::from(qpn);
                let _ = self.cm.sidr_accept(now, conn, qpn, 5, data);
                if self.cm.prepare_reply(conn, data).is_ok() {
                    let params = AcceptParams {
                        qpn,
                        responder_resources: 2,
                        initiator_depth: 1,
                        target_ack_delay: 15,
                        rnr_retry: 7,
                    };
                    let _ = self.cm.accept(now, conn, &params);
                }
            }
            Step::Reject { conn, reason, private } => {
                let Some(conn) = pick(&self.conns, conn) else { return };
                let data = &data[..usize::from(private)];
                let ari = &data[..usize::from(reason).min(data.len())];
                let _ = self.cm.reject(now, conn, Reason(reason.into()), ari, data);
            }
            Step::Ready { conn } => {
                self.each(conn, |cm, conn| cm.ready(now, conn).is_ok());
            }
            Step::Disconnect { conn } => {
                self.each(conn, |cm, conn| cm.disconnect(now, conn).is_ok());
            }
            Step::Abort { conn } => {
                self.each(conn, |cm, conn| cm.abort(now, conn));
                self.ended.extend(pick(&self.conns, conn).map(ConnId::comm_id));
            }
            Step::Arrived { conn } => self.each(conn, |cm, conn| cm.data_arrived(now, conn)),
            Step::Keep { conn, kept: true } => self.each(conn, Cm::keep),
            Step::Keep { conn, kept: false } => self.each(conn, Cm::release),
            Step::Any { .. }
            | Step::Request { .. }
            | Step::Answer { .. }
            | Step::Echo { .. }
            | Step::Pass { .. } => {}
        }
    }

    fn each<T>(&mut self, conn: u8, call: impl FnOnce(&mut Cm<'s>, ConnId) -> T) {
        if let Some(conn) = pick(&self.conns, conn) {
            call(&mut self.cm, conn);
        }
    }

    /// Takes all events and datagrams.
    fn poll(&mut self) {
        while let Some(event) = self.cm.poll_event() {
            let conn = event.conn();
            let _ = self.cm.private_data(conn);
            assert!(!self.ended.contains(&conn.comm_id()), "{event:?} after the end");
            match event {
                CmEvent::Request(_) | CmEvent::SidrRequest(_) => self.conns.push(conn),
                CmEvent::Reply(_) | CmEvent::Established { .. } => {}
                CmEvent::SidrReply(_)
                | CmEvent::Rejected { .. }
                | CmEvent::Unreachable { .. }
                | CmEvent::Disconnected { .. } => {
                    self.ended.insert(conn.comm_id());
                }
            }
        }
        for _ in 0..200 {
            let Some(transmit) = self.cm.poll_transmit(self.now) else { return };
            assert!(
                Header::new_checked(&transmit.mad).is_ok() && Message::parse(&transmit.mad).is_ok()
            );
            self.sent.push((transmit.to, transmit.mad));
        }
        panic!("the manager never stops sending");
    }

    /// All connections are given up; then all slots come back.
    fn end(mut self) {
        for conn in self.conns.clone() {
            self.cm.release(conn);
            self.cm.abort(self.now, conn);
            self.ended.insert(conn.comm_id());
        }
        for _ in 0..1000 {
            self.poll();
            let Some(deadline) = self.cm.next_deadline() else { break };
            self.now = self.now.max(deadline);
            self.cm.advance(self.now);
        }
        assert_eq!(self.cm.next_deadline(), None, "timers never end");
        assert_eq!(self.cm.vacant_slots(), SLOTS, "slots are lost");
    }
}
