//! Floods by source: what a good peer notices of them.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use dat_core::{EpState, Event};
use dat_tests::attack::honest::{self, Flood, LOOK, rate};
use dat_tests::attack::mad::Req;
use dat_tests::attack::{Cm, EVIL, Mad, arp, datagram, station};
use dat_tests::session::{QUALIFIER, Session, Setup};

/// Connections measured.
const SAMPLES: usize = 20;
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

fn endured(flood: impl FnMut(&mut Session<'_>)) {
    endured_after(Duration::ZERO, flood);
}

/// Good connections are hardly slower under the flood, when it has lasted for so long, than before
/// it, and an established connection moves its data.
fn endured_after(first: Duration, mut flood: impl FnMut(&mut Session<'_>)) {
    Setup::default().run(|session| {
        session.connect();
        let slowest = |flood: Flood<'_>, session: &mut Session<'_>| {
            (0..SAMPLES).map(|_| honest::connect(session, flood)).max().unwrap()
        };
        let before = slowest(&mut |_| {}, session);
        honest::pass(session, first, &mut flood);
        let under = slowest(&mut flood, session);
        assert!(under <= before * 3 + LOOK, "{under:?}, without the flood {before:?}");
        assert_eq!([session.state(0), session.state(1)], [EpState::Connected; 2]);
        session.traffic(1);
    });
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
    endured(rate(100_000, |s, n| request(s, n, QUALIFIER as u16, host(n))));
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
