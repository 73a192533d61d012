//! Datagrams to QP1 of every length and with every wrong header: none stops it, none counts.

use std::time::Duration;

use dat_core::EpState;
use dat_tests::attack::mad::Req;
use dat_tests::attack::{Cm, EVIL, Mad, datagram, station};
use dat_tests::session::{QUALIFIER, Session, Setup};
use mlx5_model::wire::frame::{Deth, Packet};

use crate::stage::{NOBODY, State, reach};

/// Longer than a connection takes, shorter than a retransmission.
const AT_ONCE: Duration = Duration::from_millis(500);

fn inject(session: &Session<'_>, payload: &[u8]) {
    let addrs = [session.address(0), session.address(1)];
    session.lines[1].inject(datagram([EVIL, station(1)], addrs, payload));
}

/// A good connection, made while the bad datagrams come in, is not delayed by them.
fn connects_beside(session: &mut Session<'_>, bad: &[Vec<u8>]) {
    let (a, b) = (session.endpoint(0), session.endpoint(1));
    let (start, half) = (session.now(), bad.len() / 2);
    bad[..half].iter().for_each(|payload| inject(session, payload));
    session.ask(a, b"", Duration::from_secs(20));
    session.pair.turn_by(10_000);
    bad[half..].iter().for_each(|payload| inject(session, payload));
    let cr = session.request();
    let now = session.now();
    session.pair.ias[1].cr_accept(now, cr, Some(b), b"").unwrap();
    for side in 0..2 {
        let _ = session.connection(side);
    }
    let took = session.now().since(start);
    assert!(took < AT_ONCE, "{took:?} beside datagrams of {:?}", bad.first().map(Vec::len));
    for (side, ep) in [a, b].into_iter().enumerate() {
        let now = session.now();
        session.pair.ias[side].ep_free(now, ep).unwrap();
    }
    session.pass(Duration::from_millis(5));
    for side in 0..2 {
        let evd = session.sides[side].conn;
        while session.pair.ias[side].evd_dequeue(evd).is_ok() {}
    }
}

#[test]
fn datagrams_of_every_length() {
    Setup::default().run(|session| {
        session.connect();
        let lengths: Vec<usize> =
            (0..=520).chain([600, 1000, 1023, 1024, 1025, 2048, 4000, 4092, 4096]).collect();
        for lengths in lengths.chunks(16) {
            let bad: Vec<Vec<u8>> = lengths
                .iter()
                .filter(|len| **len != 256)
                .map(|&len| {
                    let req = Req::new(1, QUALIFIER as u16, [NOBODY, session.address(1)]);
                    let mut bytes = req.mad().0.to_vec();
                    bytes.resize(len, 0xa5);
                    bytes
                })
                .collect();
            connects_beside(session, &bad);
        }
        assert_eq!([session.state(0), session.state(1)], [EpState::Connected; 2]);
        session.traffic(1);
    });
}

#[test]
fn headers_of_every_version_class_and_method() {
    Setup::default().run(|session| {
        let known = reach(session, State::EstablishedPassive);
        let good = known.genuine(session, Cm::Dreq);
        for at in 0..4 {
            for value in 0..=255_u8 {
                let mut mad = good.clone();
                if mad.0[at] != value {
                    mad.0[at] = value;
                    inject(session, &mad.0);
                }
            }
            session.pass(Duration::from_millis(5));
        }
        assert_eq!(known.unharmed(session), Ok(()));
    });
}

#[test]
fn attributes_of_every_number() {
    Setup::default().run(|session| {
        let known = reach(session, State::EstablishedPassive);
        for attribute in (0..=0xffff_u16).filter(|n| !(0x10..=0x1a).contains(n)).step_by(7) {
            let mut mad = known.genuine(session, Cm::Dreq);
            mad.0[16..18].copy_from_slice(&attribute.to_be_bytes());
            inject(session, &mad.0);
            if attribute % 256 < 7 {
                session.pass(Duration::from_millis(1));
            }
        }
        session.pass(Duration::from_millis(5));
        assert_eq!(known.unharmed(session), Ok(()));
    });
}

#[test]
fn lengths_inside_a_message_reach_no_further_than_it() {
    Setup::default().run(|session| {
        let known = reach(session, State::ReqSent);
        for len in 0..=127_u8 {
            // Additional reject information of every length, from elsewhere.
            let mut mad = known.genuine(session, Cm::Rej).put(9, &[len << 1]);
            known.inject(session, &mad, true);
            mad = known.genuine(session, Cm::Rej).put(9, &[len << 1 | 1]).flip(28, 1);
            known.inject(session, &mad, false);
        }
        session.pass(Duration::from_millis(5));
        assert_eq!(known.unharmed(session), Ok(()));
    });
}

#[test]
fn messages_of_all_ones_and_all_zeros() {
    Setup::default().run(|session| {
        session.connect();
        for kind in Cm::ALL {
            for fill in [0, 0xff, 0x80, 0x7f] {
                let mut mad = Mad::new(kind, u64::MAX);
                mad.0[24..].fill(fill);
                inject(session, &mad.0);
            }
        }
        session.pass(Duration::from_millis(20));
        session.expect_no_event(Duration::from_millis(20));
        session.traffic(1);
    });
}

/// Requests with one nonsensical field each: none reaches the consumer as a connection that
/// cannot be, none disturbs the next one.
#[test]
fn requests_with_impossible_fields() {
    Setup::default().run(|session| {
        let addrs = [session.address(0), session.address(1)];
        let good = Req::new(1, QUALIFIER as u16, addrs).mad();
        let bad = [
            good.clone().put(0, &[0; 4]),
            good.clone().put(8, &[0xff; 8]),
            good.clone().put(32, &[0; 3]),
            good.clone().put(43, &[0xa7]),
            good.clone().put(48, &[0x12, 0x34]),
            good.clone().put(50, &[0x07]),
            good.clone().put(50, &[0xf7]),
            good.clone().put(51, &[0xf1]),
            good.clone().put(56, &[0; 16]),
            good.clone().put(56, &[0xff; 16]),
            good.clone().put(72, &[0xff; 16]),
            good.clone().put(140, &[1, 0x40]),
            good.clone().put(140, &[0, 0x50]),
            good.clone().put(140, &[0, 0x60]),
            good.clone().put(140, &[0xff; 36]),
        ];
        let bad: Vec<Vec<u8>> = bad.iter().map(|mad| mad.0.to_vec()).collect();
        for payload in &bad {
            inject(session, payload);
            session.pass(Duration::from_millis(5));
            let cr = session.sides[1].cr;
            while let Ok(dat_core::Event::ConnectionRequest { cr, .. }) =
                session.pair.ias[1].evd_dequeue(cr)
            {
                let now = session.now();
                session.pair.ias[1].cr_reject(now, cr, b"").unwrap();
            }
        }
        session.connect();
        session.traffic(1);
    });
}

/// Datagrams to QP1 with another Q_Key, from another queue pair, or for QP0 and multicast.
#[test]
fn datagrams_with_other_keys_and_numbers() {
    Setup::default().run(|session| {
        let known = reach(session, State::EstablishedPassive);
        let good = known.genuine(session, Cm::Dreq);
        let addrs = [session.address(0), session.address(1)];
        let packet = Packet::parse(&datagram([EVIL, station(1)], addrs, &good.0)).unwrap();
        let mut bad = Vec::new();
        for qkey in [0, 0x8001_0001, 0x8000_0000, 0x1_0000, u32::MAX, 0x0123_4567] {
            bad.push(Packet { ext: datagram_header(qkey, 1), ..packet.clone() });
        }
        for qp in [2, 3, 0x40, 0xff_ffff] {
            let mut other = packet.clone();
            other.bth.dest_qp = qp;
            bad.push(other);
        }
        let mut pkey = packet.clone();
        pkey.bth.pkey = 0x1234;
        bad.push(pkey);
        for packet in bad {
            session.lines[1].inject(packet.build());
            session.pass(Duration::from_millis(2));
        }
        assert_eq!(known.unharmed(session), Ok(()));
    });
}

fn datagram_header(qkey: u32, src_qp: u32) -> mlx5_model::wire::frame::Extended {
    mlx5_model::wire::frame::Extended { deth: Some(Deth { qkey, src_qp }), ..Default::default() }
}
