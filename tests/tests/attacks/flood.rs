//! Floods by source: what a good peer notices of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use dat_core::{EpState, Event};
use dat_tests::attack::honest::{self, Flood, LOOK, rate};
use dat_tests::attack::mad::Req;
use dat_tests::attack::storm::SEEN;
use dat_tests::attack::{Cm, EVIL, Mad, Nd, arp, datagram, nd, station};
use dat_tests::pair::Stage;
use dat_tests::session::{QUALIFIER, Session, Setup};

/// Connections measured; of the flood that is worst, so many that one in a hundred counts.
const SAMPLES: usize = 20;
const MANY: usize = 100;
/// How long a slow flood lasts before.
const SLOW: Duration = Duration::from_secs(3);

fn host(n: u32) -> IpAddr {
    // Of the network, but neither side nor any that another test uses.
    Ipv4Addr::new(192, 168, 7, 70 + (n % 180) as u8).into()
}

fn far_host(n: u32) -> IpAddr {
    Ipv4Addr::from(0x0b00_0000 | n.wrapping_mul(0x9e37_79b1) >> 8).into()
}

fn inject(session: &Session<'_>, from: IpAddr, mad: &Mad) {
    let frame = datagram([EVIL, station(1)], [from, session.address(1)], &mad.0);
    session.lines[1].inject(frame);
}

fn even(ipv6: bool) -> Setup {
    Setup { stage: Stage { ipv6, even: true, ..Stage::default() }, ..Setup::default() }
}

fn endured(flood: impl FnMut(&mut Session<'_>)) {
    endured_after(Duration::ZERO, flood);
}

fn endured_after(first: Duration, flood: impl FnMut(&mut Session<'_>)) {
    even(false).run(|session| endure(session, SAMPLES, first, flood));
}

/// Every good connection under the flood, when it has lasted for so long, takes at most three times
/// what the slowest takes without it: no good request was dropped, or it would take seconds. An
/// established connection moves its data as fast as before.
fn endure(
    session: &mut Session<'_>,
    samples: usize,
    first: Duration,
    mut flood: impl FnMut(&mut Session<'_>),
) {
    session.connect();
    let measure = |session: &mut Session<'_>, flood: Flood<'_>| {
        let mut slowest = [Duration::ZERO; 2];
        for n in 0..samples {
            let connect = honest::connect(session, flood);
            flood(session);
            let start = session.now();
            session.traffic(n as u32);
            slowest = [slowest[0].max(connect), slowest[1].max(session.now().since(start))];
        }
        slowest
    };
    let [before, alone] = measure(session, &mut |_| {});
    honest::pass(session, first, &mut flood);
    let [under, beside] = measure(session, &mut flood);
    eprintln!("connections {before:?}, then {under:?}; traffic {alone:?}, then {beside:?}");
    assert!(under <= before * 3, "{under:?}, without the flood {before:?}");
    assert!(beside <= alone * 21 / 20 + SEEN, "{beside:?}, without the flood {alone:?}");
    assert_eq!([session.state(0), session.state(1)], [EpState::Connected; 2]);
}

fn request(session: &Session<'_>, n: u32, port: u16, from: IpAddr) {
    let req = Req::new(n, port, [from, session.address(1)]);
    inject(session, from, &req.mad());
}

#[test]
fn eight_requests_a_second_from_addresses_where_nobody_is() {
    endured_after(SLOW, rate(8, |s, n| request(s, n, QUALIFIER as u16, host(n))));
}

#[test]
fn eight_requests_a_second_for_a_port_where_nobody_listens() {
    endured_after(SLOW, rate(8, |s, n| request(s, n, 99, host(n))));
}

#[test]
fn eight_requests_a_second_from_beyond_the_link() {
    endured_after(SLOW, rate(8, |s, n| request(s, n, QUALIFIER as u16, far_host(n))));
}

#[test]
fn a_thousand_requests_a_second_from_one_address_where_nobody_is() {
    endured_after(SLOW, rate(1_000, |s, n| request(s, n, QUALIFIER as u16, host(0))));
}

#[test]
fn a_hundred_thousand_requests_a_second_from_random_addresses() {
    let flood = rate(100_000, |s, n| request(s, n, QUALIFIER as u16, host(n)));
    even(false).run(|session| endure(session, MANY, Duration::ZERO, flood));
}

/// Who was never here before has to be looked for, too: it answers at once, and the flood does not
/// push it out meanwhile.
#[test]
fn somebody_new_is_found_under_a_flood_of_requests() {
    let mut flood = rate(100_000, |s, n| request(s, n, QUALIFIER as u16, host(n)));
    Setup::default().run(|session| {
        session.connect();
        honest::pass(session, Duration::from_millis(20), &mut flood);
        for n in 0..10 {
            let (new, own) = (Ipv4Addr::new(192, 168, 7, 20 + n), session.address(1));
            let mac = [2, 0, 0, 0, 7, n];
            let req = Req { psn: 77, ..Req::new(n.into(), QUALIFIER as u16, [new.into(), own]) };
            flood(session);
            session.lines[1].record();
            session.lines[1].inject(datagram([mac, station(1)], [new.into(), own], &req.mad().0));
            let start = session.now();
            'found: loop {
                assert!(session.now().since(start) < LOOK, "{new}");
                session.pair.turn_by(50_000);
                let asks =
                    |frame: &Vec<u8>| frame[12..14] == [8, 6] && frame[38..42] == new.octets();
                if session.lines[1].recorded().iter().any(asks) {
                    let IpAddr::V4(own) = own else { unreachable!("it is IPv4") };
                    let (there, back) = ([mac, station(1)], (station(1), own));
                    session.lines[1].inject(arp(there, 2, (mac, new), back));
                }
                session.lines[1].record();
                let ia = &mut session.pair.ias[1];
                while let Ok(Event::ConnectionRequest { cr, .. }) =
                    ia.evd_dequeue(session.sides[1].cr)
                {
                    let found = ia.cr_query(cr).unwrap().remote == IpAddr::from(new);
                    let _ = ia.cr_reject(start, cr, b"");
                    if found {
                        break 'found;
                    }
                }
                flood(session);
            }
        }
    });
}

/// The attacker's own addresses: it says where they are, and asks from there.
#[test]
fn fifty_thousand_requests_a_second_from_addresses_that_are_there() {
    endured(rate(100_000, |s, n| {
        let from = host(n / 2);
        if n % 2 == 1 {
            return request(s, n, QUALIFIER as u16, from);
        }
        let (IpAddr::V4(own), IpAddr::V4(from)) = (s.address(1), from) else { return };
        s.lines[1].inject(arp([EVIL, station(1)], 1, (EVIL, from), ([0; 6], own)));
    }));
}

#[test]
fn a_hundred_thousand_look_ups_a_second_from_random_addresses() {
    endured(rate(100_000, |s, n| {
        let addrs = [host(n), s.address(1)];
        inject(s, addrs[0], &Mad::sidr_req(n.into(), n, QUALIFIER as u16, addrs));
    }));
}

#[test]
fn a_hundred_thousand_requests_a_second_for_random_ports() {
    endured(rate(100_000, |s, n| request(s, n, n as u16 | 0x8000, host(n))));
}

#[test]
fn a_hundred_thousand_requests_a_second_from_the_good_peer_s_address() {
    endured(rate(100_000, |s, n| request(s, n, 99, s.address(0))));
}

#[test]
fn a_thousand_look_ups_a_second_from_addresses_where_nobody_is() {
    endured_after(
        SLOW,
        rate(1_000, |s, n| {
            let addrs = [host(n), s.address(1)];
            inject(s, addrs[0], &Mad::sidr_req(n.into(), n, 99, addrs));
        }),
    );
}

macro_rules! messages_of_no_connection {
    ($($test:ident: $kind:ident;)*) => {
        $(#[test]
        fn $test() {
            endured(rate(20_000, |s, n| {
                let id = n.wrapping_mul(0x9e37_79b1);
                inject(s, host(n), &Mad::between(Cm::$kind, n.into(), [id, !id]));
            }));
        })*
    };
}

messages_of_no_connection! {
    replies_of_no_connection: Rep;
    ready_messages_of_no_connection: Rtu;
    disconnect_requests_of_no_connection: Dreq;
    disconnect_replies_of_no_connection: Drep;
    rejections_of_no_connection: Rej;
    acknowledgements_of_no_connection: Mra;
    look_up_replies_of_no_connection: SidrRep;
    alternate_paths_of_no_connection: Lap;
}

#[test]
fn a_flood_of_disconnect_requests_from_one_source() {
    endured(rate(50_000, |s, n| inject(s, host(0), &Mad::dreq(n.into(), [n, !n], n))));
}

#[test]
fn a_flood_of_rejections_from_the_good_peer_s_address() {
    endured(rate(50_000, |s, n| inject(s, s.address(0), &Mad::rej(0, [n, !n], 0, 4, &[0; 8]))));
}

#[test]
fn a_flood_of_arp() {
    endured(rate(50_000, |s, n| {
        let (IpAddr::V4(own), IpAddr::V4(from)) = (s.address(1), host(n)) else { return };
        let mac = [2, 0x66, 0, 0, (n >> 8) as u8, n as u8];
        s.lines[1].inject(arp([mac, station(1)], 1, (mac, from), ([0; 6], own)));
    }));
}

#[test]
fn a_flood_of_neighbor_discovery() {
    let flood = rate(50_000, |s, n| {
        let (IpAddr::V6(own), mut from) = (s.address(1), [0; 16]) else { return };
        from.copy_from_slice(&own.octets());
        from[8..12].copy_from_slice(&n.wrapping_mul(0x9e37_79b1).to_be_bytes());
        let from = Ipv6Addr::from(from);
        let mac = [2, 0x66, 0, 0, (n >> 8) as u8, n as u8];
        // Solicitations, then advertisements that nobody asked for.
        let kind = 135 + (n % 2) as u8;
        let target = if kind == 135 { own } else { from };
        let message = Nd::new(kind, 0x60, from, own, target).with_mac(mac);
        s.lines[1].inject(nd([mac, station(1)], &message));
    });
    even(true).run(|session| endure(session, SAMPLES, Duration::ZERO, flood));
}

#[test]
fn a_flood_of_bytes() {
    endured(rate(50_000, |s, n| {
        let mut frame = vec![n as u8; 60 + n as usize % 1000];
        frame[..6].copy_from_slice(&station(1));
        frame[6..12].copy_from_slice(&EVIL);
        let kinds = [[8, 0], [8, 6], [0x86, 0xdd], [0x88, 0xcc], [0x81, 0]];
        frame[12..14].copy_from_slice(&kinds[n as usize % 5]);
        s.lines[1].inject(frame);
    }));
}

/// Requests that the consumer never answers: they fill its dispatcher, and no more than that.
#[test]
fn requests_that_wait_for_the_consumer_give_way() {
    Setup::default().run(|session| {
        session.connect();
        for n in 0..2_000 {
            request(session, n, QUALIFIER as u16, host(n));
            if n % 100 == 0 {
                session.pass(Duration::from_millis(1));
            }
        }
        session.pass(Duration::from_millis(100));
        session.traffic(1);
        // The consumer comes back, and rejects what is there; then there is space for others.
        let evd = session.sides[1].cr;
        while let Ok(Event::ConnectionRequest { cr, .. }) = session.pair.ias[1].evd_dequeue(evd) {
            let now = session.now();
            let _ = session.pair.ias[1].cr_reject(now, cr, b"");
        }
        session.pass(Duration::from_millis(10));
        let took = honest::connect(session, &mut |_| {});
        assert!(took < Duration::from_secs(6), "{took:?}");
    });
}

/// One call does a bounded amount of work, and says that there is more.
#[test]
fn an_advance_handles_a_bounded_number_of_datagrams() {
    Setup::default().run(|session| {
        session.connect();
        let before = session.pair.ias[1].cm_counters().received;
        for n in 0..480 {
            inject(session, host(n), &Mad::between(Cm::Drep, 1, [n, n]));
        }
        session.pair.world.turn_by(1_000);
        session.pair.world.turn_by(1_000);
        let mut received = before;
        let mut calls = 0;
        while received < before + 480 {
            let now = session.now();
            let next = session.pair.ias[1].advance(now);
            let after = session.pair.ias[1].cm_counters().received;
            assert!(after - received <= 256, "{} datagrams in one call", after - received);
            assert!(after > received, "call {calls} handled nothing");
            assert!(next.work || after == before + 480, "more is there, and call {calls} said no");
            (received, calls) = (after, calls + 1);
        }
        session.traffic(1);
    });
}
