//! Attacks in an InfiniBand subnet: on subnet administration, IP over InfiniBand, connection
//! management and the built-in subnet manager.
//!
//! Length: one rig serves all of them, and each attack is a test.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use dat_core::provider::{FaultKind, Net, NextHop, Path, Provider as _};
use dat_core::{EpState, Event, Ia, Instant};
use dat_tests::attack::ib::{
    BROADCAST_GID, BROADCAST_KEY, BROADCAST_LID, GROUP_QPN, ib_datagram, ib_mad, ipoib_arp,
    smp_by_lid,
};
use dat_tests::attack::mad::Req;
use dat_tests::pair::{Driver, Pair, Room, Stage};
use dat_tests::session::{LIMIT, Session, Setup};
use hca_mlx5::net::ib::sm::{Side, State};
use hca_mlx5::platform::Clock as _;
use hca_mlx5::{Config, IbPort, PortState};
use mlx5_model::ifc::subnet::{port_info, smp as layout};
use mlx5_model::subnet::smp::{attribute, method};
use mlx5_model::subnet::{Cause, Smp};
use mlx5_model::wire::ib::{Grh, Packet};
use mlx5_model::{CommandHook, Verdict};

/// A LID and a GID that no port has.
const EVIL_LID: u16 = 0x66;
const EVIL_GID: u128 = 0xfe80_0000_0000_0000_0266_66ff_fe66_6666;
const EVIL_QPN: u32 = 0x666;
const SOON: Duration = Duration::from_millis(5);
const CREATE_QP: u16 = 0x500;
const MAD_IFC: u16 = 0x50d;

fn infiniband() -> Setup {
    Setup { stage: Stage::infiniband(), ..Setup::default() }
}

fn port(session: &mut Session<'_>, side: usize) -> IbPort {
    session.pair.ias[side].provider_mut().ib_port().unwrap().unwrap()
}

fn v4(session: &Session<'_>, side: usize) -> Ipv4Addr {
    match session.address(side) {
        IpAddr::V4(v4) => v4,
        IpAddr::V6(_) => panic!("IPv6"),
    }
}

/// The path from a side to an address, if it is known.
fn known(session: &mut Session<'_>, side: usize, to: IpAddr) -> Poll<Option<Path>> {
    let now = session.now();
    session.pair.ias[side].provider_mut().resolve(to, now).map(Result::ok)
}

/// The LID to which packets for an address go.
fn lid(session: &mut Session<'_>, side: usize, to: IpAddr) -> u16 {
    let found = session.pair.until(LIMIT, |pair| {
        let now = pair.now();
        match pair.ias[side].provider_mut().resolve(to, now) {
            Poll::Ready(found) => Some(found.unwrap()),
            Poll::Pending => None,
        }
    });
    let NextHop::Lid(hop) = found.unwrap().next_hop else { panic!("a LID") };
    hop.lid
}

fn strange(session: &Session<'_>, side: usize) -> u32 {
    session.pair.ias[side].provider().subnet_counters().unwrap().strange
}

fn drops(session: &Session<'_>, side: usize, why: Cause) -> u64 {
    let drops = session.pair.slots[side].hca().subnet_drops();
    drops.into_iter().filter(|(cause, _)| *cause == why).map(|(_, count)| count).sum()
}

fn packets(frames: &[Vec<u8>]) -> Vec<Packet> {
    frames.iter().filter_map(|frame| Packet::parse(frame).ok()).collect()
}

/// Questions and answers about paths start so.
fn is_path(packet: &Packet, method: u8) -> bool {
    packet.payload.get(..4) == Some(&[1, 3, 2, method]) && packet.payload[16..18] == [0, 0x35]
}

/// Neither side has anything to do at once when nothing has come.
fn at_rest(pair: &mut Pair<'_>) {
    for side in 0..2 {
        let now = pair.now();
        let _ = pair.ias[side].advance(now);
        let next = pair.ias[side].advance(now);
        assert!(!next.work, "side {side}");
        let due = next.deadline;
        assert!(due.is_none_or(|due| due > now), "side {side} is due at {due:?}, it is {now:?}");
    }
}

/// Counts commands of one kind.
struct Count(u16, Arc<AtomicUsize>);

impl CommandHook for Count {
    fn command(&mut self, _: u64, opcode: u16, _: &[u8]) -> Verdict {
        if opcode == self.0 {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
        Verdict::Run
    }
}

fn count(session: &Session<'_>, side: usize, opcode: u16) -> Arc<AtomicUsize> {
    let counter = Arc::new(AtomicUsize::new(0));
    let hook = Count(opcode, Arc::clone(&counter));
    session.pair.slots[side].hca().set_command_hook(Some(Box::new(hook)));
    counter
}

/// Sends a side's agent a request by LID, and returns the answer.
fn agent(session: &mut Session<'_>, side: usize, smp: &Smp) -> Option<Smp> {
    let own = port(session, side).lid;
    session.lines[side].record();
    session.lines[side].inject(smp_by_lid(EVIL_LID, own, smp).build());
    session.pass(SOON);
    let sent = packets(&session.lines[side].recorded());
    let tid = layout::tid.get64(&smp.0);
    let answers = sent.iter().filter_map(|packet| packet.subnet_mad().copied().map(Smp));
    answers
        .into_iter()
        .find(|answer| answer.method() == method::GET_RESP && layout::tid.get64(&answer.0) == tid)
}

fn request(method: u8, attribute: u16, tid: u64) -> Smp {
    Smp::request(method, attribute, 0, tid)
}

/// PortInfo of a side as a manager would set it again.
fn port_info_of(session: &mut Session<'_>, side: usize) -> Smp {
    let mut get = request(method::GET, attribute::PORT_INFO, 0x6600);
    get.set(layout::attr_mod, 1);
    let answer = agent(session, side, &get).unwrap();
    let mut set = request(method::SET, attribute::PORT_INFO, 0x6601);
    set.set(layout::attr_mod, 1);
    set.data_mut().copy_from_slice(answer.data());
    let data = set.data_mut();
    for field in [
        port_info::port_state,
        port_info::port_physical_state,
        port_info::link_width_enabled,
        port_info::link_speed_enabled,
        port_info::link_down_default_state,
    ] {
        field.set(data, 0);
    }
    set
}

// ---- subnet administration ----

/// Answers that have one thing wrong, and answers that nobody asked for.
#[test]
fn forged_path_records_are_dropped_and_counted() {
    infiniband().run(|session| {
        let (own, far) = (port(session, 1), port(session, 0));
        let mine = IpAddr::V6(Ipv6Addr::from_bits(own.gid));
        let yours = IpAddr::V6(Ipv6Addr::from_bits(far.gid));
        session.lines[0].record();
        assert_eq!(lid(session, 1, yours), far.lid);
        let sent = packets(&session.lines[0].recorded());
        let truth = sent.into_iter().find(|packet| is_path(packet, 0x81)).unwrap();
        // Asked for anew, and the true answer does not come.
        session.lines[0].cut(true);
        session.lines[1].record();
        assert_eq!(known(session, 1, mine), Poll::Pending);
        session.pass(SOON);
        let asked = packets(&session.lines[1].recorded());
        let asked = asked.into_iter().find(|packet| is_path(packet, 1)).unwrap();
        let mut forged = truth.clone();
        forged.payload[8..16].copy_from_slice(&asked.payload[8..16]);
        forged.payload[64..80].copy_from_slice(&own.gid.to_be_bytes());
        forged.payload[96..98].copy_from_slice(&EVIL_LID.to_be_bytes());
        type Edit = fn(&mut Packet);
        let edits: [(&str, Edit); 4] = [
            ("another transaction", |packet| packet.payload[15] ^= 1),
            ("another LID", |packet| packet.lrh.slid = EVIL_LID),
            ("another queue pair", |packet| packet.ext.deth.as_mut().unwrap().src_qp = EVIL_QPN),
            ("another destination", |packet| packet.payload[79] ^= 1),
        ];
        for (what, edit) in edits {
            let before = strange(session, 1);
            let mut packet = forged.clone();
            edit(&mut packet);
            session.lines[1].inject(packet.build());
            session.pass(SOON);
            assert_eq!(known(session, 1, mine), Poll::Pending, "{what}");
            assert_eq!(strange(session, 1), before + 1, "{what}");
        }
        // What is known stays when somebody answers again, unasked.
        let before = strange(session, 1);
        let mut unasked = truth;
        unasked.payload[96..98].copy_from_slice(&EVIL_LID.to_be_bytes());
        session.lines[1].inject(unasked.build());
        session.pass(SOON);
        assert_eq!(lid(session, 1, yours), far.lid);
        assert_eq!(strange(session, 1), before + 1);
        session.lines[0].cut(false);
        assert_eq!(lid(session, 1, mine), own.lid);
    });
}

/// The administrator itself answers with what cannot be: nothing of it is used.
#[test]
fn absurd_path_records_lead_nowhere() {
    infiniband().run(|session| {
        let own = port(session, 1);
        let yours = IpAddr::V6(Ipv6Addr::from_bits(port(session, 0).gid));
        session.lines[0].record();
        let _ = lid(session, 1, yours);
        let sent = packets(&session.lines[0].recorded());
        let truth = sent.into_iter().find(|packet| is_path(packet, 0x81)).unwrap();
        type Edit = fn(&mut [u8]);
        let edits: [(&str, Edit); 6] = [
            ("LID 0", |path| path[40..42].fill(0)),
            ("a multicast LID", |path| path[40..42].copy_from_slice(&[0xc0, 1])),
            ("the permissive LID", |path| path[40..42].fill(0xff)),
            ("MTU code 0", |path| path[54] = 0x80),
            ("MTU code 63", |path| path[54] = 0xbf),
            ("another partition", |path| path[50..52].copy_from_slice(&[0x92, 0x34])),
        ];
        session.lines[0].cut(true);
        for (n, (what, edit)) in edits.into_iter().enumerate() {
            let gid = EVIL_GID + n as u128;
            let to = IpAddr::V6(Ipv6Addr::from_bits(gid));
            session.lines[1].record();
            assert_eq!(known(session, 1, to), Poll::Pending);
            session.pass(SOON);
            let asked = packets(&session.lines[1].recorded());
            let asked = asked.into_iter().rfind(|packet| is_path(packet, 1)).unwrap();
            let mut answer = truth.clone();
            answer.payload[8..16].copy_from_slice(&asked.payload[8..16]);
            answer.payload[64..80].copy_from_slice(&gid.to_be_bytes());
            answer.payload[80..96].copy_from_slice(&own.gid.to_be_bytes());
            edit(&mut answer.payload[56..]);
            session.lines[1].inject(answer.build());
            session.pass(SOON);
            assert_eq!(known(session, 1, to), Poll::Ready(None), "{what}");
        }
        session.lines[0].cut(false);
    });
}

/// A manager asks side 1 again and again to register anew, and then nobody answers.
#[test]
fn a_storm_of_reregistrations_makes_nothing_anew() {
    infiniband().run(|session| {
        let mut set = port_info_of(session, 1);
        port_info::client_reregister.set(set.data_mut(), 1);
        let made = count(session, 1, CREATE_QP);
        for tid in 0..200 {
            layout::tid.set64(&mut set.0, 0x6700 + tid);
            let own = port(session, 1).lid;
            session.lines[1].inject(smp_by_lid(EVIL_LID, own, &set).build());
            session.pass(Duration::from_millis(1));
        }
        session.pass(Duration::from_millis(100));
        assert_eq!(made.load(Ordering::Relaxed), 0, "queue pairs made anew");
        at_rest(&mut session.pair);
        // The administrator is silent from here on.
        session.lines[0].cut(true);
        let own = port(session, 1).lid;
        session.lines[1].inject(smp_by_lid(EVIL_LID, own, &set).build());
        session.pass(Duration::from_millis(100));
        at_rest(&mut session.pair);
        session.pass(Duration::from_secs(20));
        at_rest(&mut session.pair);
        session.lines[0].cut(false);
        session.pair.slots[1].hca().set_command_hook(None);
        session.pass(Duration::from_secs(20));
        session.connect();
        session.traffic(0);
    });
}

// ---- IP over InfiniBand ----

/// A frame for the broadcast group.
fn broadcast(from: (u16, u32, u128), payload: &[u8]) -> Packet {
    let (lid, qpn, sgid) = from;
    let to = (BROADCAST_LID, GROUP_QPN);
    let mut packet = ib_datagram((lid, qpn), to, BROADCAST_KEY, payload);
    let [sgid, dgid] = [sgid, BROADCAST_GID].map(u128::to_be_bytes);
    packet.grh = Some(Grh { tclass: 0, flow_label: 0, hop_limit: 0, sgid, dgid });
    packet
}

#[test]
fn arp_takes_over_no_neighbour() {
    infiniband().run(|session| {
        let (yours, mine) = (v4(session, 0), v4(session, 1));
        let (own, far) = (port(session, 1), port(session, 0));
        assert_eq!(lid(session, 1, yours.into()), far.lid);
        let counters =
            |session: &Session<'_>| session.pair.ias[1].provider().subnet_counters().unwrap();
        let before = counters(session);
        for operation in [1, 2] {
            // Who has the address now is the attacker, says the attacker; and in the name of the
            // peer's port.
            for (gid, sender) in [(EVIL_GID, EVIL_GID), (far.gid, EVIL_GID), (far.gid, far.gid)] {
                let frame = ipoib_arp(operation, (EVIL_QPN, gid, yours), mine);
                let from = (EVIL_LID, EVIL_QPN, sender);
                session.lines[1].inject(broadcast(from, &frame).build());
                let frame = ipoib_arp(operation, (EVIL_QPN + 1, gid, yours), mine);
                session.lines[1].inject(broadcast(from, &frame).build());
            }
            // It claims our own address.
            let frame = ipoib_arp(operation, (EVIL_QPN, EVIL_GID, mine), mine);
            session.lines[1].inject(broadcast((EVIL_LID, EVIL_QPN, EVIL_GID), &frame).build());
        }
        session.pass(SOON);
        let after = counters(session);
        assert_eq!(after.forged - before.forged, 8, "{after:?}");
        assert_eq!(after.unsolicited - before.unsolicited, 3, "{after:?}");
        assert_eq!(after.accepted - before.accepted, 3, "{after:?}");
        assert_eq!(lid(session, 1, yours.into()), far.lid);
        assert_eq!(lid(session, 1, mine.into()), own.lid);
        session.connect();
        session.traffic(0);
    });
}

/// Nobody is asked for the own address: no answer can lead a connection to it elsewhere.
#[test]
fn the_own_address_is_nobody_elses() {
    infiniband().run(|session| {
        let own = port(session, 1);
        let mine = v4(session, 1);
        session.lines[1].record();
        let _ = known(session, 1, mine.into());
        let frame = ipoib_arp(2, (EVIL_QPN, EVIL_GID, mine), mine);
        session.lines[1].inject(broadcast((EVIL_LID, EVIL_QPN, EVIL_GID), &frame).build());
        session.pass(SOON);
        let sent = packets(&session.lines[1].recorded());
        let groups = sent.iter().filter(|packet| packet.lrh.dlid >= BROADCAST_LID).count();
        assert_eq!(groups, 0, "questions about the own address");
        assert_eq!(lid(session, 1, mine.into()), own.lid);
    });
}

#[test]
fn a_flood_of_arp_asks_for_one_path_each() {
    const FRAMES: usize = 2000;
    infiniband().run(|session| {
        let mine = v4(session, 1);
        session.lines[0].cut(true);
        session.lines[1].record();
        for n in 0..FRAMES as u128 {
            let gid = EVIL_GID + 1 + n;
            let frame = ipoib_arp(1, (EVIL_QPN, gid, Ipv4Addr::new(192, 168, 7, 66)), mine);
            session.lines[1].inject(broadcast((EVIL_LID, EVIL_QPN, gid), &frame).build());
            if n % 4 == 0 {
                session.pass(Duration::from_micros(100));
            }
        }
        session.pass(Duration::from_millis(100));
        let sent = packets(&session.lines[1].recorded());
        let asked = sent.iter().filter(|packet| is_path(packet, 1)).count();
        assert!(asked <= FRAMES + 100, "{asked} questions for {FRAMES} frames");
        let counters = session.pair.ias[1].provider().subnet_counters().unwrap();
        assert!(counters.dropped as usize > FRAMES / 2, "{counters:?}");
        session.lines[0].cut(false);
        session.pass(Duration::from_secs(10));
        at_rest(&mut session.pair);
        session.connect();
        session.traffic(0);
    });
}

// ---- connection management ----

/// A request names the LID of its sender. One where no port can be does not count.
#[test]
fn a_request_that_names_no_unicast_lid_is_answered_by_the_path() {
    for named in [0, 0xc001, 0xffff] {
        infiniband().run(|session| {
            session.lines[0].record();
            let (a, b) = (session.sides[0].ep, session.sides[1].ep);
            // The path is known before, so that the request leaves at once.
            let _ = lid(session, 0, session.address(1));
            session.lines[1].cut(true);
            session.ask(a, b"", LIMIT);
            session.pass(SOON);
            let sent = packets(&session.lines[0].recorded());
            let is_req = |packet: &Packet| {
                packet.payload.get(1) == Some(&7) && packet.payload[16..18] == [0, 0x10]
            };
            let mut forged = sent.into_iter().find(is_req).unwrap();
            forged.payload[24 + 52..24 + 54].copy_from_slice(&u16::to_be_bytes(named));
            session.lines[1].cut(false);
            session.lines[1].inject(forged.build());
            let cr = session.request();
            let now = session.now();
            session.pair.ias[1].cr_accept(now, cr, Some(b), b"").unwrap();
            assert_eq!(session.connection(0), Event::Established(a), "{named:#x}");
            assert_eq!(session.connection(1), Event::Established(b), "{named:#x}");
            session.traffic(0);
        });
    }
}

/// Requests from other LIDs in the name of the peer's port, without a LID, and for nobody.
#[test]
fn requests_from_elsewhere_open_nothing() {
    infiniband().connected(|session| {
        let (far, own) = (port(session, 0), port(session, 1));
        let cr = session.sides[1].cr;
        let gid = |gid: u128| IpAddr::V6(Ipv6Addr::from_bits(gid));
        let before = session.pair.ias[1].cm_counters();
        // From a LID that nobody has, from none, and from a group.
        for slid in [EVIL_LID, 0, BROADCAST_LID, 0xffff] {
            for n in 0..20 {
                let req = Req::new(n, 4711, [gid(far.gid), gid(own.gid)]);
                session.lines[1].inject(ib_mad((slid, 1), own.lid, &req.mad().0).build());
            }
            session.pass(Duration::from_millis(20));
        }
        session.pass(Duration::from_secs(20));
        assert!(session.pair.ias[1].evd_dequeue(cr).is_err(), "a request of nobody arrived");
        let after = session.pair.ias[1].cm_counters();
        assert!(after.unreachable + after.gave_way > before.unreachable, "{after:?}");
        assert_eq!([session.state(0), session.state(1)], [EpState::Connected; 2]);
        session.traffic(1);
    });
}

/// Datagrams to QP1 of any class and content, more than it has receives for.
#[test]
fn a_flood_of_datagrams_to_qp1_ends_no_connection() {
    infiniband().connected(|session| {
        let own = [port(session, 0).lid, port(session, 1).lid];
        let before = session.pair.ias[1].provider().subnet_counters().unwrap();
        for n in 0..3000_u32 {
            let mut mad = [0; 256];
            mad[..4].copy_from_slice(&[1, (n % 16) as u8, 2, (n / 16) as u8]);
            mad[8..12].copy_from_slice(&n.wrapping_mul(0x9e37_79b1).to_be_bytes());
            mad[17] = (n % 64) as u8;
            for (side, line) in session.lines.iter().enumerate() {
                line.inject(ib_mad((EVIL_LID, 1), own[side], &mad).build());
            }
            if n % 100 == 0 {
                session.pass(Duration::from_millis(1));
            }
        }
        session.pass(SOON);
        session.traffic(1);
        let after = session.pair.ias[1].provider().subnet_counters().unwrap();
        assert!(after.unserved > before.unserved + 2000, "{after:?}");
        assert!(after.strange > before.strange, "{after:?}");
        let sm = session.pair.ias[0].provider().subnet_manager_counters().unwrap();
        assert!(sm.unknown_requesters > 0, "{sm:?}");
        at_rest(&mut session.pair);
    });
}

// ---- what the port drops ----

#[test]
fn packets_of_other_partitions_lids_and_ports_reach_no_queue_pair() {
    infiniband().connected(|session| {
        let own = port(session, 1);
        let mad = [0; 256];
        let good = ib_mad((EVIL_LID, 1), own.lid, &mad);
        let with = |edit: fn(&mut Packet)| {
            let mut packet = good.clone();
            edit(&mut packet);
            packet
        };
        let foreign = Grh {
            tclass: 0,
            flow_label: 0,
            hop_limit: 0,
            sgid: EVIL_GID.to_be_bytes(),
            dgid: (EVIL_GID + 1).to_be_bytes(),
        };
        let cases = [
            (Cause::PKey, with(|packet| packet.bth.pkey = 0x9234)),
            (Cause::LidZero, with(|packet| packet.lrh.dlid = 0)),
            (Cause::NoGroup, with(|packet| packet.lrh.dlid = 0xc123)),
            (Cause::PermissiveLid, with(|packet| packet.lrh.dlid = 0xffff)),
            (Cause::NotMine, with(|packet| packet.lrh.dlid = EVIL_LID)),
            (Cause::QpZero, with(|packet| packet.bth.dest_qp = 0)),
            (Cause::Gid, Packet { grh: Some(foreign), ..good.clone() }),
        ];
        for (why, packet) in cases {
            let before = drops(session, 1, why);
            let counted = session.pair.ias[1].provider().subnet_counters().unwrap();
            session.lines[1].inject(packet.build());
            session.pass(SOON);
            assert_eq!(drops(session, 1, why), before + 1, "{why:?}");
            let now = session.pair.ias[1].provider().subnet_counters().unwrap();
            assert_eq!(now, counted, "{why:?}");
        }
        session.traffic(1);
    });
}

/// Two limited members of a partition do not reach each other.
#[test]
fn a_limited_member_does_not_reach_another() {
    infiniband().run(|session| {
        let own = port(session, 1);
        let mut set = request(method::SET, attribute::P_KEY_TABLE, 0x6900);
        set.data_mut()[..2].copy_from_slice(&[0x7f, 0xff]);
        assert_eq!(agent(session, 1, &set).map(|answer| answer.status()), Some(0));
        session.pass(Duration::from_millis(50));
        assert_eq!(port(session, 1).pkeys[0], 0x7fff);
        for (pkey, passes) in [(0x7fff, false), (0xffff, true)] {
            let before = drops(session, 1, Cause::PKey);
            let mut packet = ib_mad((EVIL_LID, 1), own.lid, &[0; 256]);
            packet.bth.pkey = pkey;
            session.lines[1].inject(packet.build());
            session.pass(SOON);
            assert_eq!(drops(session, 1, Cause::PKey) == before, passes, "{pkey:#x}");
        }
    });
}

// ---- subnet management ----

/// The firmware of side 0 leaves its agent to the driver.
fn agent_in_driver() -> Setup {
    let mut setup = infiniband();
    setup.stage.cards[0].facts = "subnet-agent=driver".parse().unwrap();
    setup
}

/// A manager has protected the port by a key. Who does not know it changes nothing.
#[test]
fn a_port_that_is_protected_is_changed_by_nobody_without_its_key() {
    agent_in_driver().run(|session| {
        const KEY: u64 = 0x1234_5678;
        let mut set = port_info_of(session, 0);
        port_info::m_key.set64(set.data_mut(), KEY);
        port_info::m_key_protect_bits.set(set.data_mut(), 1);
        assert_eq!(agent(session, 0, &set).map(|answer| answer.status()), Some(0));
        // The same again, without the key and with it.
        port_info::m_key.set64(set.data_mut(), 0);
        layout::tid.set64(&mut set.0, 0x6602);
        assert_eq!(agent(session, 0, &set), None, "changed without the key");
        layout::m_key.set64(&mut set.0, KEY);
        layout::tid.set64(&mut set.0, 0x6603);
        assert_eq!(agent(session, 0, &set).map(|answer| answer.status()), Some(0));
    });
}

/// Each request for the agent is a command: a service makes few of them.
#[test]
fn a_flood_at_qp0_costs_few_commands_a_service() {
    agent_in_driver().connected(|session| {
        let own = port(session, 0).lid;
        let asked = count(session, 0, MAD_IFC);
        let mut most = 0;
        for n in 0..2000 {
            let get = request(method::GET, attribute::NODE_INFO, n);
            session.lines[0].inject(smp_by_lid(EVIL_LID, own, &get).build());
            if n % 100 != 0 {
                continue;
            }
            session.pair.world.turn_by(1_000);
            let before = asked.load(Ordering::Relaxed);
            let now = session.now();
            let _ = session.pair.ias[0].advance(now);
            most = most.max(asked.load(Ordering::Relaxed) - before);
        }
        assert!((1..=16).contains(&most), "{most} commands in one service");
        session.pair.slots[0].hca().set_command_hook(None);
        session.pass(Duration::from_millis(100));
        at_rest(&mut session.pair);
        session.traffic(1);
    });
}

/// The other end answers everything, and wrongly.
#[test]
fn a_peer_that_answers_nonsense_holds_the_manager_up_and_no_more() {
    type Edit = fn(&mut Smp);
    let edits: [(&str, Edit); 5] = [
        ("busy", |answer| answer.set(layout::status, 1)),
        ("refused", |answer| answer.set(layout::status, 0x1c)),
        ("ones", |answer| answer.data_mut().fill(0xff)),
        ("zeros", |answer| answer.data_mut().fill(0)),
        ("another transaction", |answer| {
            let tid = layout::tid.get64(&answer.0);
            layout::tid.set64(&mut answer.0, tid + 1);
        }),
    ];
    for (what, edit) in edits {
        infiniband().run(|session| {
            session.lines[1].cut(true);
            let before = session.pair.ias[0].provider().subnet_manager_counters().unwrap();
            let mut sent = 0;
            for _ in 0..60_000 {
                session.lines[0].record();
                session.pair.turn();
                for packet in packets(&session.lines[0].recorded()) {
                    let Some(mad) = packet.subnet_mad() else { continue };
                    sent += 1;
                    let mut answer = Smp(*mad);
                    answer.set(layout::method, method::GET_RESP.into());
                    answer.0[4] |= 0x80;
                    answer.set(layout::hop_pointer, 1);
                    edit(&mut answer);
                    session.lines[0].inject(Packet::management(0xffff, 0xffff, &answer.0).build());
                }
            }
            at_rest(&mut session.pair);
            // A sweep in ten seconds, of a dozen requests and their repetitions at most.
            assert!(sent <= 48 * 7, "{what}: {sent} packets in a minute");
            let own = port(session, 0);
            assert_eq!((own.state, own.sm_lid), (PortState::Active, own.lid), "{what}");
            let state = session.pair.ias[0].provider().subnet_manager().unwrap();
            let good = matches!(
                state,
                State::Master | State::Switch | State::Down | State::Unanswered(Side::Peer)
            );
            assert!(good, "{what}: {state:?}");
            let after = session.pair.ias[0].provider().subnet_manager_counters().unwrap();
            if what == "another transaction" {
                assert!(after.malformed > before.malformed, "{after:?}");
            }
            session.lines[1].cut(false);
            session.pass(Duration::from_secs(25));
            session.connect();
            session.traffic(0);
        });
    }
}

// ---- addresses that are GIDs ----

/// Both sides have their GIDs for addresses: nothing is looked up by IP, and nobody waits for it.
#[test]
fn sides_without_ip_addresses_rest_and_connect() {
    let stage = Stage::infiniband();
    let (world, slots) = stage.plug(&mut |_, wire| wire);
    let mut rooms = [Box::new(Room::new()), Box::new(Room::new())];
    let [first, second] = &mut rooms;
    let mut gids = Vec::new();
    let ias = [(0, first), (1, second)].map(|(side, room)| {
        let config = Config { subnet_manager: side == 0, ..stage.config(None) };
        let slot = &slots[side];
        let mut driver = Driver::open(slot, &slot.config(config)).unwrap();
        let addr = IpAddr::V6(Ipv6Addr::from_bits(driver.ib_port().unwrap().unwrap().gid));
        gids.push(addr);
        let net = Net::new(addr, 64);
        let now = Instant::from_nanos(slot.now());
        Ia::open(driver, room.parts(), net, now, slot.entropy()).unwrap()
    });
    let mut pair = Pair { world, slots: [&slots[0], &slots[1]], ias, stage };
    pair.await_links();
    at_rest(&mut pair);
    let remote = gids[1];
    let found = pair.until(LIMIT, |pair| {
        let now = pair.now();
        match pair.ias[0].provider_mut().resolve(remote, now) {
            Poll::Ready(found) => Some(found),
            Poll::Pending => None,
        }
    });
    assert!(found.unwrap().map_err(|fault| fault.kind) != Err(FaultKind::Unreachable));
    // A REQ without a global header: its sender is known by the LID alone.
    let lids = [0, 1].map(|side| pair.ias[side].provider_mut().ib_port().unwrap().unwrap().lid);
    let end = pair.now() + Duration::from_secs(1);
    let who = IpAddr::V6(Ipv6Addr::from_bits(0x0100 << 112 | u128::from(lids[0])));
    while pair.now() < end {
        let now = pair.now();
        let found = pair.ias[1].provider_mut().resolve_asker(who, now);
        if let Poll::Ready(found) = found {
            assert_eq!(found.unwrap().remote, gids[0]);
            return;
        }
        pair.turn();
    }
    panic!("the port of LID {} has no GID", lids[0]);
}
