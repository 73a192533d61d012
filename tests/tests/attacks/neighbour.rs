//! Forgeries of ARP and Neighbor Discovery: no message that was not asked for changes where the
//! frames for a peer go.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use dat_core::{CloseFlag, EpState};
use dat_tests::attack::{EVIL, Nd, arp, nd, station};
use dat_tests::pair::Stage;
use dat_tests::session::line::packet;
use dat_tests::session::{Session, Setup};

const BROADCAST: [u8; 6] = [0xff; 6];
const ZERO: [u8; 6] = [0; 6];
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];

fn v4(session: &Session<'_>, side: usize) -> Ipv4Addr {
    match session.address(side) {
        IpAddr::V4(v4) => v4,
        IpAddr::V6(_) => panic!("IPv6"),
    }
}

fn v6(session: &Session<'_>, side: usize) -> Ipv6Addr {
    match session.address(side) {
        IpAddr::V6(v6) => v6,
        IpAddr::V4(_) => panic!("IPv4"),
    }
}

/// Connects once, so that side 0 knows its peer; injects the forgeries at side 0; connects again.
/// Every frame of side 0 to its peer's address must go to the peer's MAC.
fn poisoned(ipv6: bool, forge: impl Fn(&Session<'_>) -> Vec<Vec<u8>>) {
    let stage = Stage { ipv6, ..Stage::default() };
    Setup { stage, ..Setup::default() }.run(|session| {
        session.connect();
        session.traffic(1);
        for frame in forge(session) {
            session.lines[0].inject(frame);
        }
        session.pass(Duration::from_millis(20));
        // The connection that exists has its own copy of the MAC.
        session.traffic(2);
        session.disconnect(0, CloseFlag::Graceful);
        session.ended();
        for side in 0..2 {
            let ep = session.sides[side].ep;
            session.pair.ias[side].ep_reset(ep).unwrap();
        }
        for frame in forge(session) {
            session.lines[0].inject(frame);
        }
        session.pass(Duration::from_millis(5));
        session.lines[0].record();
        session.ask(session.sides[0].ep, b"", Duration::from_secs(3));
        for frame in forge(session) {
            session.lines[0].inject(frame);
        }
        session.pass(Duration::from_millis(50));
        let sent = session.lines[0].recorded();
        let astray = sent.iter().filter_map(|frame| packet(frame));
        let astray = astray.filter(|packet| packet.net.dmac == EVIL).count();
        assert_eq!(astray, 0, "packets for the peer went to the attacker");
        let cr = session.request();
        let (now, b) = (session.now(), session.sides[1].ep);
        session.pair.ias[1].cr_accept(now, cr, Some(b), b"").unwrap();
        session.pass(Duration::from_millis(20));
        assert_eq!([session.state(0), session.state(1)], [EpState::Connected; 2]);
    });
}

macro_rules! poison {
    ($($test:ident: $ipv6:literal, $forge:expr;)*) => {
        $(#[test]
        fn $test() {
            poisoned($ipv6, $forge);
        })*
    };
}

fn request(s: &Session<'_>) -> Vec<Vec<u8>> {
    vec![arp([EVIL, station(0)], 1, (EVIL, v4(s, 1)), (ZERO, v4(s, 0)))]
}

fn advert(s: &Session<'_>, flags: u8) -> Nd {
    Nd::new(136, flags, v6(s, 1), v6(s, 0), v6(s, 1)).with_mac(EVIL)
}

fn to_us(message: &Nd) -> Vec<Vec<u8>> {
    vec![nd([EVIL, station(0)], message)]
}

poison! {
    an_arp_request_in_the_peer_s_name: false, request;
    an_arp_request_to_all_in_the_peer_s_name: false,
        |s| vec![arp([EVIL, BROADCAST], 1, (EVIL, v4(s, 1)), (ZERO, v4(s, 0)))];
    an_arp_reply_that_nobody_asked_for: false,
        |s| vec![arp([EVIL, station(0)], 2, (EVIL, v4(s, 1)), (station(0), v4(s, 0)))];
    a_gratuitous_arp_request: false,
        |s| vec![arp([EVIL, BROADCAST], 1, (EVIL, v4(s, 1)), (ZERO, v4(s, 1)))];
    a_gratuitous_arp_reply: false,
        |s| vec![arp([EVIL, BROADCAST], 2, (EVIL, v4(s, 1)), (BROADCAST, v4(s, 1)))];
    an_arp_whose_sender_differs_from_the_frame_s: false,
        |s| vec![arp([station(1), station(0)], 1, (EVIL, v4(s, 1)), (ZERO, v4(s, 0)))];
    a_solicitation_in_the_peer_s_name: true,
        |s| to_us(&Nd::new(135, 0, v6(s, 1), v6(s, 0), v6(s, 0)).with_mac(EVIL));
    an_advertisement_with_override: true, |s| to_us(&advert(s, 0x20));
    a_solicited_advertisement_with_override: true, |s| to_us(&advert(s, 0x60));
    an_advertisement_to_all_with_override: true, |s| {
        let mut message = advert(s, 0x20);
        message.to = ALL_NODES;
        vec![nd([EVIL, ALL_NODES_MAC], &message)]
    };
    an_advertisement_of_a_router: true, |s| to_us(&advert(s, 0xe0));
}

/// A second claim while the first one is being checked.
#[test]
fn a_storm_of_claims() {
    poisoned(false, |s| {
        (0..200_u8)
            .flat_map(|n| {
                let mac = if n % 2 == 0 { EVIL } else { [2, 0x66, 0x66, 0x66, 0x66, n] };
                let operation = 1 + u16::from(n % 4 / 2);
                vec![arp([mac, station(0)], operation, (mac, v4(s, 1)), (ZERO, v4(s, 0)))]
            })
            .collect()
    });
}

/// Answers of the wrong form to a question that is out: none counts, the right one does.
#[test]
fn malformed_advertisements_answer_no_question() {
    let stage = Stage { ipv6: true, ..Stage::default() };
    Setup { stage, ..Setup::default() }.run(|session| {
        let (own, peer) = (v6(session, 0), v6(session, 1));
        let good = Nd::new(136, 0x60, peer, own, peer).with_mac(EVIL);
        let bad = |change: &dyn Fn(&mut Nd)| {
            let mut message = good.clone();
            change(&mut message);
            message
        };
        let forgeries = [
            bad(&|m| m.hop_limit = 254),
            bad(&|m| m.hop_limit = 1),
            bad(&|m| m.hop_limit = 0),
            bad(&|m| m.code = 1),
            bad(&|m| m.spoil = 1),
            bad(&|m| m.target = ALL_NODES),
            bad(&|m| m.to = ALL_NODES),
            bad(&|m| m.options.clear()),
            bad(&|m| m.options[1] = 0),
            bad(&|m| m.options[1] = 2),
            bad(&|m| m.options[1] = 255),
            bad(&|m| m.options[0] = 1),
            bad(&|m| m.options.truncate(7)),
            bad(&|m| m.options[2..8].copy_from_slice(&BROADCAST)),
            bad(&|m| m.options[2..8].copy_from_slice(&ZERO)),
            bad(&|m| m.options[2..8].copy_from_slice(&ALL_NODES_MAC)),
            bad(&|m| m.options.extend([14, 0, 0, 0, 0, 0, 0, 0])),
            bad(&|m| m.options.extend([14, 1])),
            bad(&|m| m.options.extend([2, 200, 1, 2, 3, 4, 5, 6])),
            bad(&|m| m.kind = 137),
        ];
        session.lines[0].record();
        session.ask(session.sides[0].ep, b"", Duration::from_secs(3));
        for message in &forgeries {
            session.lines[0].inject(nd([EVIL, station(0)], message));
        }
        session.pass(Duration::from_millis(50));
        let sent = session.lines[0].recorded();
        let astray = sent.iter().filter_map(|frame| packet(frame));
        assert_eq!(astray.filter(|packet| packet.net.dmac == EVIL).count(), 0);
        let _ = session.request();
    });
}

/// More neighbours than the cache holds ask for us: a peer that is in use stays.
#[test]
fn a_crowd_of_askers_does_not_push_out_a_peer() {
    Setup::default().run(|session| {
        session.connect();
        let own = v4(session, 0);
        for n in 2..250_u8 {
            let mac = [2, 0x66, 0, 0, 0, n];
            let host = Ipv4Addr::new(192, 168, 7, n);
            session.lines[0].inject(arp([mac, station(0)], 1, (mac, host), (ZERO, own)));
            if n % 50 == 0 {
                session.pass(Duration::from_millis(1));
            }
        }
        session.pass(Duration::from_millis(10));
        // A second connection begins at once: without the entry it would have to ask.
        session.lines[0].record();
        let (a, b) = (session.endpoint(0), session.endpoint(1));
        session.connect_eps(a, b);
        let asked = session.lines[0].recorded();
        let asked = asked.iter().filter(|f| f[12..14] == [8, 6] && f[20..22] == [0, 1]).count();
        assert_eq!(asked, 0, "the peer in use had to be asked for again");
    });
}

/// A claim to our own address is never believed, and does not silence us.
#[test]
fn a_claim_to_our_own_address_changes_nothing() {
    Setup::default().run(|session| {
        session.connect();
        let own = v4(session, 0);
        for operation in [1, 2] {
            for target in [own, v4(session, 1)] {
                let frame = arp([EVIL, BROADCAST], operation, (EVIL, own), (ZERO, target));
                session.lines[0].inject(frame);
            }
        }
        session.pass(Duration::from_millis(10));
        session.traffic(1);
        let (a, b) = (session.endpoint(0), session.endpoint(1));
        session.connect_eps(a, b);
    });
}

/// ARP messages that are not of Ethernet and IPv4, or cut short.
#[test]
fn malformed_arp_answers_no_question() {
    Setup::default().run(|session| {
        let (own, peer) = (v4(session, 0), v4(session, 1));
        let good = arp([EVIL, station(0)], 2, (EVIL, peer), (station(0), own));
        session.lines[0].record();
        session.ask(session.sides[0].ep, b"", Duration::from_secs(3));
        for (at, value) in [(15, 6), (16, 6), (18, 8), (19, 16), (21, 3), (21, 9), (17, 1)] {
            let mut bad = good.clone();
            bad[at] = value;
            session.lines[0].inject(bad);
        }
        for len in [14, 15, 20, 28, 41] {
            session.lines[0].inject(good[..len].to_vec());
        }
        for mac in [ZERO, BROADCAST, [1, 0, 0x5e, 0, 0, 1]] {
            session.lines[0].inject(arp([EVIL, station(0)], 2, (mac, peer), (station(0), own)));
        }
        session.pass(Duration::from_millis(50));
        let sent = session.lines[0].recorded();
        assert!(sent.iter().filter_map(|f| packet(f)).all(|p| p.net.dmac == station(1)));
        let _ = session.request();
    });
}
