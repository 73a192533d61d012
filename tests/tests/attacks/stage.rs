//! Connections brought into every state, with what only their two ends know.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use dat_core::{CloseFlag, Cr, Ep, EpState, Event, Qos};
use dat_tests::attack::{Cm, EVIL, Mad, datagram, station};
use dat_tests::session::line::mad;
use dat_tests::session::{LIMIT, QUALIFIER, Session};
use mlx5_model::wire::impair::Fault;

/// Long enough for a message to be taken in and answered, and for nothing else.
const SOON: Duration = Duration::from_millis(5);
/// Longer than the first retransmission takes, and shorter than what an MRA grants.
const RETRIED: Duration = Duration::from_secs(12);
/// An address that nobody has.
pub(crate) const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 7, 66));
/// Communication ID, queue pair and GUID of a peer that exists only in forgeries.
const FORGED: (u32, u32, u64) = (0x6a6b_6c6d, 0x123, 0x0266_66ff_fe66_6666);
const QKEY: u32 = 0x1122;

/// States of a connection, at the side that is attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    ReqSent,
    ReqReceived,
    RepSent,
    EstablishedActive,
    EstablishedPassive,
    DreqSent,
    TimeWait,
    SidrSent,
    SidrReceived,
}

impl State {
    pub(crate) const ALL: [Self; 9] = [
        Self::ReqSent,
        Self::ReqReceived,
        Self::RepSent,
        Self::EstablishedActive,
        Self::EstablishedPassive,
        Self::DreqSent,
        Self::TimeWait,
        Self::SidrSent,
        Self::SidrReceived,
    ];
}

/// Fields that a forgery may have wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Field {
    /// Communication ID of the side that is attacked, or the request ID of a look-up.
    Own,
    /// Communication ID of its peer.
    Peer,
    /// Source address.
    Gid,
    /// Queue pair of the side that is attacked.
    Qpn,
    /// Transaction ID.
    Transaction,
}

/// A connection in a state, and what its ends know of it.
pub(crate) struct Known {
    pub(crate) state: State,
    pub(crate) victim: usize,
    /// Of the victim.
    pub(crate) own: u32,
    /// Of its peer.
    pub(crate) peer: u32,
    /// Of the exchange under way.
    pub(crate) transaction: u64,
    /// Queue pair of the victim.
    pub(crate) qpn: u32,
    /// Queue pair and adapter of its peer.
    pub(crate) peer_qpn: u32,
    pub(crate) peer_guid: u64,
    /// The request that waits for the consumer.
    cr: Option<Cr>,
    ep: Ep,
}

/// The messages of one kind among recorded frames.
pub(crate) fn messages(frames: &[Vec<u8>], kind: Cm) -> Vec<Mad> {
    let all = frames.iter().filter_map(|frame| Mad::of(&mad(frame)?));
    all.filter(|mad| Cm::of(&mad.0) == Some(kind)).collect()
}

fn qpn(session: &Session<'_>, side: usize, ep: Ep) -> u32 {
    session.pair.ias[side].ep_query(ep).unwrap().qp.map_or(0, |qp| qp.number)
}

/// Brings the first Endpoints into a state.
pub(crate) fn reach(session: &mut Session<'_>, state: State) -> Known {
    session.lines.iter().for_each(dat_tests::session::Line::record);
    let (a, b) = (session.sides[0].ep, session.sides[1].ep);
    let drop = |side: usize, kind: Cm| {
        session.lines[side].rule_mad(0, 1, Fault::Drop, kind as u16);
    };
    match state {
        State::ReqSent => drop(0, Cm::Req),
        State::RepSent => drop(0, Cm::Rtu),
        State::DreqSent => drop(0, Cm::Dreq),
        State::SidrSent => drop(0, Cm::SidrReq),
        _ => {}
    }
    let mut known = Known {
        state,
        victim: usize::from(matches!(
            state,
            State::ReqReceived | State::RepSent | State::EstablishedPassive | State::SidrReceived
        )),
        own: 0,
        peer: 0,
        transaction: 0,
        qpn: 0,
        peer_qpn: FORGED.1,
        peer_guid: FORGED.2,
        cr: None,
        ep: a,
    };
    match state {
        State::ReqSent => {
            session.ask(a, b"hello", LIMIT);
            session.pass(SOON);
        }
        State::ReqReceived => {
            session.ask(a, b"hello", LIMIT);
            known.cr = Some(session.request());
            // The peer asks again, and gets an MRA, which has the ID.
            session.pass(Duration::from_secs(6));
        }
        State::RepSent => {
            session.ask(a, b"hello", LIMIT);
            let (cr, now) = (session.request(), session.now());
            session.pair.ias[1].cr_accept(now, cr, Some(b), b"").unwrap();
            assert_eq!(session.connection(0), Event::Established(a));
            session.pass(SOON);
        }
        State::EstablishedActive | State::EstablishedPassive => session.connect(),
        State::DreqSent | State::TimeWait => {
            session.connect();
            session.disconnect(0, CloseFlag::Abrupt);
            session.pass(SOON);
            assert_eq!(session.connection(0), Event::Disconnected(a));
            if state == State::TimeWait {
                session.ended_at(1);
            }
        }
        State::SidrSent | State::SidrReceived => {
            let eps = [0, 1].map(|side| {
                let own = &session.sides[side];
                let ia = &mut session.pair.ias[side];
                ia.ep_create_ud(own.pz, own.recv, own.request, Some(own.conn), None, QKEY).unwrap()
            });
            let (now, to) = (session.now(), session.address(1));
            let best = Qos::BestEffort;
            let ia = &mut session.pair.ias[0];
            ia.ep_connect(now, eps[0], to, QUALIFIER, LIMIT, b"", best).unwrap();
            session.pass(SOON);
            known.ep = eps[known.victim];
            if state == State::SidrReceived {
                known.cr = Some(look_up(session));
            }
        }
    }
    let sent = [0, 1].map(|side| session.lines[side].recorded());
    session.lines.iter().for_each(dat_tests::session::Line::record);
    let first = |side: usize, kind: Cm| messages(&sent[side], kind).first().cloned();
    if let Some(req) = first(0, Cm::Req) {
        known.transaction = req.transaction();
        let rep = first(1, Cm::Rep);
        let mra = first(1, Cm::Mra);
        if known.victim == 0 {
            known.own = req.word(0);
            known.qpn = req.number(32);
            known.peer = FORGED.0;
            if let Some(rep) = rep {
                known.peer = rep.word(0);
                known.peer_qpn = rep.number(12);
                known.peer_guid = rep.word64(28);
            }
        } else {
            known.ep = b;
            known.own = rep.or(mra).map_or(0, |mad| mad.word(0));
            known.qpn = qpn(session, 1, b);
            known.peer = req.word(0);
            known.peer_qpn = req.number(32);
            known.peer_guid = req.word64(16);
        }
        if let Some(dreq) = first(0, Cm::Dreq) {
            known.transaction = dreq.transaction();
        }
    } else if let Some(req) = first(0, Cm::SidrReq) {
        known.transaction = req.transaction();
        known.own = req.word(0);
        known.peer = req.word(0);
    }
    known
}

fn look_up(session: &mut Session<'_>) -> Cr {
    let evd = session.sides[1].cr;
    match session.event(1, evd) {
        Event::UdConnectionRequest { cr, .. } => cr,
        other => panic!("{other:?}"),
    }
}

impl Known {
    /// The message as the peer would send it in this state.
    pub(crate) fn genuine(&self, session: &Session<'_>, kind: Cm) -> Mad {
        let ids = [self.peer, self.own];
        let tid = self.transaction;
        let addrs = [session.address(1 - self.victim), session.address(self.victim)];
        // What is under way: the request, its answer, or something else.
        let about = match self.state {
            State::ReqSent => 0,
            State::RepSent => 1,
            _ => 2,
        };
        match kind {
            // Another connection of the same queue pair: the old one looks stale.
            Cm::Req => {
                let mut req = dat_tests::attack::mad::Req::new(7, QUALIFIER as u16, addrs);
                (req.guid, req.qpn) = (self.peer_guid, self.peer_qpn);
                req.mad()
            }
            Cm::Mra => Mad::mra(tid, ids, about, 24),
            Cm::Rej => Mad::rej(tid, ids, about, 28, &[]),
            // No answer to anything here. The victim's own answer to it would go to the honest peer,
            // under a transaction that only the two know.
            Cm::Rep | Cm::Rtu if self.state == State::ReqReceived => {
                Mad::between(kind, tid ^ 0x0dd0, ids)
            }
            Cm::Rep => Mad::rep(tid, ids, self.peer_qpn, 0x11_2233, self.peer_guid),
            Cm::Rtu | Cm::Drep => Mad::between(kind, tid, ids),
            Cm::Dreq => Mad::dreq(tid ^ 0x0dd0, ids, self.qpn),
            Cm::SidrReq => Mad::sidr_req(tid ^ 0x0dd0, self.peer ^ 9, QUALIFIER as u16, addrs),
            Cm::SidrRep => Mad::sidr_rep(tid, self.own, 0, 0x123, 0x666),
            Cm::Lap | Cm::Apr => Mad::between(kind, tid, ids).put(12, &self.qpn.to_be_bytes()[1..]),
        }
    }

    /// The REJ of a peer that gave up before it knew the victim's ID.
    pub(crate) fn given_up(&self) -> Mad {
        Mad::rej(self.transaction, [self.peer, 0], 0, 4, &self.peer_guid.to_be_bytes())
    }

    /// Lets a MAD arrive from the peer's address, or from another.
    pub(crate) fn inject(&self, session: &Session<'_>, mad: &Mad, elsewhere: bool) {
        let from = if elsewhere { NOBODY } else { session.address(1 - self.victim) };
        let macs = [EVIL, station(self.victim)];
        let frame = datagram(macs, [from, session.address(self.victim)], &mad.0);
        session.lines[self.victim].inject(frame);
    }

    /// Injects the message once for every bit of a field, with that bit wrong. `None` if the
    /// message has no such field.
    pub(crate) fn inject_wrong(
        &self,
        session: &mut Session<'_>,
        good: &Mad,
        kind: Cm,
        field: Field,
    ) -> Option<u32> {
        let one_id = matches!(kind, Cm::SidrReq | Cm::SidrRep);
        let (at, bits) = match field {
            Field::Own if kind == Cm::SidrRep => (24, 32),
            Field::Own if kind == Cm::Req || one_id => return None,
            Field::Own => (28, 32),
            Field::Peer if kind == Cm::Req || one_id => return None,
            Field::Peer => (24, 32),
            Field::Qpn if kind == Cm::Dreq => (32, 24),
            Field::Qpn => return None,
            Field::Transaction => (8, 64),
            Field::Gid => {
                self.inject(session, good, true);
                session.pass(SOON);
                return Some(0);
            }
        };
        for bit in 0..bits {
            let wrong = good.clone().flip(at + bit / 8, 0x80 >> (bit % 8));
            self.inject(session, &wrong, false);
            if bit % 16 == 15 {
                session.pass(Duration::from_millis(1));
            }
        }
        session.pass(SOON);
        Some(bits as u32)
    }

    /// Whether what the honest ends do next has its usual result: nothing has ended, altered or
    /// delayed the connection. Consumes the state.
    pub(crate) fn unharmed(&self, session: &mut Session<'_>) -> Result<(), String> {
        let (a, b) = (session.sides[0].ep, session.sides[1].ep);
        let own = &session.sides[self.victim];
        for evd in [own.conn, own.cr] {
            if let Ok(event) = session.pair.ias[self.victim].evd_dequeue(evd) {
                return Err(format!("{event:?}"));
            }
        }
        let expect = |session: &mut Session<'_>, side: usize, event: Event| {
            let evd = session.sides[side].conn;
            match session.pair.wait(side, evd, RETRIED) {
                Some(came) if came == event => Ok(()),
                other => Err(format!("side {side}: {other:?}, not {event:?}")),
            }
        };
        match self.state {
            State::ReqSent | State::ReqReceived => {
                let cr = match self.cr {
                    Some(cr) => cr,
                    None => {
                        let evd = session.sides[1].cr;
                        match session.pair.wait(1, evd, RETRIED) {
                            Some(Event::ConnectionRequest { cr, .. }) => cr,
                            other => return Err(format!("no request: {other:?}")),
                        }
                    }
                };
                let now = session.now();
                let accepted = session.pair.ias[1].cr_accept(now, cr, Some(b), b"");
                accepted.map_err(|error| format!("accept: {error:?}"))?;
                expect(session, 0, Event::Established(a))?;
                expect(session, 1, Event::Established(b))?;
            }
            State::RepSent => expect(session, 1, Event::Established(b))?,
            State::EstablishedActive | State::EstablishedPassive => {}
            // The DREQ comes again, and ends it on the other side.
            State::DreqSent => {
                expect(session, 1, Event::Disconnected(b))?;
                let again = messages(&session.lines[0].recorded(), Cm::Dreq).len();
                return if again == 0 { Err("no DREQ comes again".into()) } else { Ok(()) };
            }
            State::TimeWait => return Ok(()),
            State::SidrSent | State::SidrReceived => return self.found(session),
        }
        let states = [session.state(0), session.state(1)];
        if states != [EpState::Connected; 2] {
            return Err(format!("{states:?}"));
        }
        session.traffic(5);
        Ok(())
    }

    fn found(&self, session: &mut Session<'_>) -> Result<(), String> {
        let cr = match self.cr {
            Some(cr) => cr,
            None => look_up(session),
        };
        let own = &session.sides[1];
        let ia = &mut session.pair.ias[1];
        let ep = if self.victim == 1 {
            self.ep
        } else {
            ia.ep_create_ud(own.pz, own.recv, own.request, Some(own.conn), None, QKEY).unwrap()
        };
        let now = session.now();
        let accepted = session.pair.ias[1].cr_accept(now, cr, Some(ep), b"");
        accepted.map_err(|error| format!("accept: {error:?}"))?;
        match session.connection(0) {
            Event::UdEstablished(..) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }
}

/// The next connection event of a side is the end of its first Endpoint's connection.
trait Ended {
    fn ended_at(&mut self, side: usize);
}

impl Ended for Session<'_> {
    fn ended_at(&mut self, side: usize) {
        let event = self.connection(side);
        assert!(matches!(event, Event::Disconnected(_) | Event::Broken(_)), "{event:?}");
    }
}
