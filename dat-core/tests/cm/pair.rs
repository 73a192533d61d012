//! Two connection managers and the link between them. Nothing happens but by a call of the test,
//! and no clock is read.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use dat_core::Instant;
use dat_core::cm::wire::{Header, Message};
use dat_core::cm::{
    AcceptParams, Cm, CmEvent, Config, ConnId, ConnectParams, Reason, ServiceId, Slot,
};
use dat_core::provider::{Class, Mtu, Random};

pub(crate) const PORT: u16 = 7174;
pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;
/// One way over the link.
pub(crate) const LATENCY: Duration = Duration::from_millis(1);
pub(crate) const QPN_A: u32 = 0x11;
pub(crate) const QPN_B: u32 = 0x22;
pub(crate) const CLASS: Class = Class { traffic_class: 8, priority: 5 };
pub(crate) const Q_KEY: u32 = 0x0123_4567;
pub(crate) const GUIDS: [u64; 2] = [0x5054_00ff_fe12_3401, 0x5054_00ff_fe12_3402];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Req,
    Mra,
    Rej,
    Rep,
    Rtu,
    Dreq,
    Drep,
    SidrReq,
    SidrRep,
}

pub(crate) fn kind(mad: &[u8; 256]) -> Kind {
    match Header::new_checked(mad).unwrap().attribute() {
        0x10 => Kind::Req,
        0x11 => Kind::Mra,
        0x12 => Kind::Rej,
        0x13 => Kind::Rep,
        0x14 => Kind::Rtu,
        0x15 => Kind::Dreq,
        0x16 => Kind::Drep,
        0x17 => Kind::SidrReq,
        0x18 => Kind::SidrRep,
        other => panic!("attribute {other:#x} on the wire"),
    }
}

/// Fate of a datagram on the link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    Deliver,
    Lose,
    Twice(Duration),
    Late(Duration),
}

/// How a node answers by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consumer {
    /// Accepts requests, makes queue pairs ready.
    Willing,
    /// Does nothing; the test does.
    Silent,
    /// Rejects requests.
    Unwilling(Reason),
}

pub(crate) struct Node {
    pub(crate) cm: Cm<'static>,
    pub(crate) address: IpAddr,
    pub(crate) consumer: Consumer,
    /// All its events, never cleared by the harness.
    pub(crate) events: Vec<CmEvent>,
    /// Private data of the newest event.
    pub(crate) private: Vec<u8>,
    /// `ready` returned `Ok` for these.
    pub(crate) ready: Vec<ConnId>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    pub(crate) by: usize,
    pub(crate) mad: [u8; 256],
}

impl Sent {
    pub(crate) fn transaction(&self) -> u64 {
        Header::new_checked(&self.mad).unwrap().transaction()
    }

    pub(crate) fn kind(&self) -> Kind {
        kind(&self.mad)
    }

    pub(crate) fn message(&self) -> Message {
        Message::parse(&self.mad).unwrap().1
    }
}

#[derive(Clone, Copy)]
struct Flying {
    at: Instant,
    serial: usize,
    from: IpAddr,
    to: IpAddr,
    mad: [u8; 256],
}

type Link = Box<dyn FnMut(&Sent) -> Fate>;

pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) nodes: [Node; 2],
    /// Everything that was sent, delivered or not.
    pub(crate) log: Vec<Sent>,
    flying: Vec<Flying>,
    link: Link,
}

pub(crate) fn cm(slots: usize, guid: u64, seed: u64) -> Cm<'static> {
    let slots = Box::leak(vec![Slot::new(); slots].into_boxed_slice());
    Cm::new(slots, Config::new(guid), random(seed))
}

/// The random numbers of a seed.
pub(crate) fn random(seed: u64) -> Random {
    let mut bytes = [0x5a; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    Random::new(bytes)
}

pub(crate) fn v4(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, last).into()
}

pub(crate) fn v6(last: u16) -> IpAddr {
    Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, last).into()
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::with(8, 8, [v4(1), v4(2)])
    }

    pub(crate) fn with(slots_a: usize, slots_b: usize, addresses: [IpAddr; 2]) -> Self {
        let node = |slots, who: usize| Node {
            cm: cm(slots, GUIDS[who], 0x5eed + who as u64),
            address: addresses[who],
            consumer: Consumer::Willing,
            private: Vec::new(),
            events: vec![],
            ready: vec![],
        };
        Self {
            now: Instant::from_nanos(1_000_000_000),
            nodes: [node(slots_a, A), node(slots_b, B)],
            log: vec![],
            flying: vec![],
            link: Box::new(|_| Fate::Deliver),
        }
    }

    /// A pair with one connection from A to B, and its name on either side.
    pub(crate) fn established() -> (Self, ConnId, ConnId) {
        let mut pair = Self::new();
        let a = pair.connect(QPN_A);
        pair.exchange();
        let b = pair.request().conn;
        assert_eq!(pair.events_of(B, b)[1..], [CmEvent::Established { conn: b }]);
        assert_eq!(pair.nodes[A].ready, [a]);
        (pair, a, b)
    }

    pub(crate) fn link(&mut self, link: impl FnMut(&Sent) -> Fate + 'static) {
        self.link = Box::new(link);
    }

    /// Loses the next `count` messages of this kind, of either side.
    pub(crate) fn lose(&mut self, what: Kind, mut count: usize) {
        self.link(move |sent| {
            if sent.kind() == what && count > 0 {
                count -= 1;
                Fate::Lose
            } else {
                Fate::Deliver
            }
        });
    }

    pub(crate) fn params(&self, qpn: u32) -> ConnectParams<'static> {
        ConnectParams {
            remote: self.nodes[B].address,
            local: self.nodes[A].address,
            service: ServiceId::tcp(PORT),
            source_port: 41564,
            qpn,
            responder_resources: 4,
            initiator_depth: 3,
            retry_count: 6,
            rnr_retry: 5,
            mtu: Mtu::B1024,
            ack_timeout: 17,
            flow_label: 0x3c52a,
            class: CLASS,
            hop_limit: 64,
            private_data: b"hello",
        }
    }

    pub(crate) fn accept_params() -> AcceptParams {
        AcceptParams {
            qpn: QPN_B,
            responder_resources: 2,
            initiator_depth: 4,
            target_ack_delay: 15,
            rnr_retry: 7,
        }
    }

    /// A asks B for a connection.
    pub(crate) fn connect(&mut self, qpn: u32) -> ConnId {
        let params = self.params(qpn);
        self.nodes[A].cm.connect(self.now, &params).unwrap()
    }

    /// Takes the messages and events of both nodes until there are no more.
    pub(crate) fn turn(&mut self) {
        for by in [A, B] {
            loop {
                let busy = self.take_events(by) | self.take_mads(by);
                if !busy {
                    break;
                }
            }
        }
    }

    fn take_events(&mut self, by: usize) -> bool {
        let (now, node) = (self.now, &mut self.nodes[by]);
        let mut any = false;
        while let Some(event) = node.cm.poll_event() {
            any = true;
            node.events.push(event);
            node.private = node.cm.private_data(event.conn()).to_vec();
            match (event, node.consumer) {
                (CmEvent::Request(request), Consumer::Willing) => {
                    let mut params = Self::accept_params();
                    params.qpn += u32::try_from(request.conn.index()).unwrap();
                    params.initiator_depth = request.terms.initiator_depth.min(4);
                    node.cm.prepare_reply(request.conn, b"welcome").unwrap();
                    node.cm.accept(now, request.conn, &params).unwrap();
                }
                (CmEvent::SidrRequest(request), Consumer::Willing) => {
                    node.cm.sidr_accept(now, request.conn, QPN_B, Q_KEY, b"here").unwrap();
                }
                (
                    CmEvent::Request(request) | CmEvent::SidrRequest(request),
                    Consumer::Unwilling(reason),
                ) => {
                    node.cm.reject(now, request.conn, reason, &[], b"go away").unwrap();
                }
                (CmEvent::Reply(reply), Consumer::Willing) => {
                    node.cm.ready(now, reply.conn).unwrap();
                    node.ready.push(reply.conn);
                }
                _ => {}
            }
        }
        any
    }

    fn take_mads(&mut self, by: usize) -> bool {
        let mut any = false;
        while let Some(transmit) = self.nodes[by].cm.poll_transmit(self.now) {
            any = true;
            let sent = Sent { at: self.now, by, mad: transmit.mad };
            self.log.push(sent);
            let (first, second) = match (self.link)(&sent) {
                Fate::Deliver => (Some(LATENCY), None),
                Fate::Lose => (None, None),
                Fate::Twice(later) => (Some(LATENCY), Some(LATENCY + later)),
                Fate::Late(by) => (Some(LATENCY + by), None),
            };
            for delay in [first, second].into_iter().flatten() {
                self.flying.push(Flying {
                    at: self.now + delay,
                    serial: self.flying.len(),
                    from: self.nodes[by].address,
                    to: transmit.to,
                    mad: transmit.mad,
                });
            }
        }
        any
    }

    /// Puts a datagram into a node as if it came from `from`.
    pub(crate) fn inject(&mut self, to: usize, from: IpAddr, mad: &[u8; 256]) {
        self.nodes[to].cm.input(self.now, from, mad);
        self.turn();
    }

    /// Lets `span` pass: every datagram and every deadline in its turn.
    pub(crate) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        for _ in 0..100_000 {
            self.turn();
            let arrival = self.flying.iter().map(|flying| flying.at).min();
            let deadlines = self.nodes.iter().filter_map(|node| node.cm.next_deadline());
            let Some(next) = arrival.into_iter().chain(deadlines).min().filter(|at| *at <= end)
            else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            for node in &mut self.nodes {
                node.cm.advance(self.now);
            }
            self.turn();
            let mut due: Vec<_> =
                self.flying.iter().filter(|f| f.at <= self.now).copied().collect();
            self.flying.retain(|flying| flying.at > self.now);
            due.sort_by_key(|flying| (flying.at, flying.serial));
            for flying in due {
                for node in self.nodes.iter_mut().filter(|node| node.address == flying.to) {
                    node.cm.input(self.now, flying.from, &flying.mad);
                }
                self.turn();
            }
        }
        panic!("the nodes never come to rest");
    }

    /// Long enough for any exchange without loss, too short for any timer.
    pub(crate) fn exchange(&mut self) {
        self.run(Duration::from_millis(100));
    }

    /// Long enough for every retry and timewait.
    pub(crate) fn exhaust(&mut self) {
        self.run(Duration::from_secs(600));
    }

    /// The one request that B got.
    pub(crate) fn request(&self) -> dat_core::cm::Request {
        let mut requests = self.nodes[B].events.iter().filter_map(|event| match event {
            CmEvent::Request(request) => Some(*request),
            _ => None,
        });
        let first = requests.next().unwrap();
        assert_eq!(requests.next(), None);
        first
    }

    /// The one reply that A got.
    pub(crate) fn reply(&self) -> dat_core::cm::Reply {
        match self.nodes[A].events[..] {
            [CmEvent::Reply(reply), ..] => reply,
            ref other => panic!("no reply but {other:?}"),
        }
    }

    /// The events of a connection at a node.
    pub(crate) fn events_of(&self, who: usize, conn: ConnId) -> Vec<CmEvent> {
        self.nodes[who].events.iter().filter(|event| event.conn() == conn).copied().collect()
    }

    /// The last event of a connection at a node.
    pub(crate) fn last(&self, who: usize, conn: ConnId) -> Option<CmEvent> {
        self.events_of(who, conn).last().copied()
    }

    pub(crate) fn sent(&self, what: Kind) -> Vec<Sent> {
        self.log.iter().filter(|sent| sent.kind() == what).copied().collect()
    }

    pub(crate) fn kinds(&self) -> Vec<Kind> {
        self.log.iter().map(Sent::kind).collect()
    }

    /// All slots of both sides are free again.
    pub(crate) fn no_leaks(&self, slots: usize) {
        for node in &self.nodes {
            assert_eq!(node.cm.vacant_slots(), slots);
            assert_eq!(node.cm.next_deadline(), None);
        }
    }
}
