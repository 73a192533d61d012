//! Stations that claim the address of another: nothing that is in use changes before the known MAC
//! stayed without answer.

use super::*;

/// Both IP versions: a station, its peer at MAC_B, another that claims the peer's address, and that
/// address.
fn cases() -> [(Station, Station, Station, IpAddr); 2] {
    [("192.168.7.1", "192.168.7.2", 24), ("2001:db8::1", "2001:db8::2", 64)].map(
        |(own, peer, prefix)| {
            let (a, b) = pair(&net(own, prefix), &net(peer, prefix));
            (a, b, announced(MAC_X, &net(peer, prefix)), ip(peer))
        },
    )
}

/// The question of `from` for the first address of `to`.
fn question(from: &mut Station, to: &Station, now: Instant) -> Frame {
    from.cache = Cache::new();
    let _ = from.resolve(to.own()[0], now);
    from.transmit(now).unwrap()
}

/// Resolves the peer.
fn know(a: &mut Station, b: &mut Station, peer: IpAddr, now: Instant) {
    let _ = a.resolve(peer, now);
    exchange(a, b, now, &mut never);
    assert_eq!(known(a.resolve(peer, now)), MAC_B);
}

#[test]
fn a_question_in_the_name_of_a_known_peer_changes_nothing() {
    for (mut a, mut b, mut x, peer) in cases() {
        know(&mut a, &mut b, peer, ms(0));
        let claim = question(&mut x, &a, ms(10));
        a.receive(&claim, ms(10));
        assert_eq!(known(a.resolve(peer, ms(10))), MAC_B);
        assert_eq!((a.counters().contradicted, a.counters().answered), (1, 1));
        // The one who knows is asked, and him alone.
        assert_eq!(a.transmit(ms(10)).unwrap()[..6], MAC_X, "the answer to the question");
        assert_eq!(a.next_deadline(), Some(ms(1000)));
        let probe = a.transmit(ms(1000)).unwrap();
        assert_eq!(probe[..6], MAC_B);
        assert!(a.resolve(peer, ms(1000)).is_pending());
        // An answer from elsewhere is none.
        x.receive(&probe, ms(1000));
        let mut blind = probe.clone();
        blind[..6].copy_from_slice(&MAC_X);
        x.receive(&blind, ms(1000));
        while let Some(answer) = x.transmit(ms(1000)) {
            a.receive(&answer, ms(1000));
        }
        assert!(a.resolve(peer, ms(1000)).is_pending());
        b.receive(&probe, ms(1001));
        a.receive(&b.transmit(ms(1001)).unwrap(), ms(1001));
        assert_eq!(known(a.resolve(peer, ms(1001))), MAC_B);
        while a.transmit(ms(1001)).is_some() {}
        assert_eq!(a.next_deadline(), None);
    }
}

#[test]
fn a_peer_that_changes_its_mac_gets_through_after_the_probe_failed() {
    for (mut a, mut b, mut moved, peer) in cases() {
        know(&mut a, &mut b, peer, ms(0));
        let claim = question(&mut moved, &a, ms(5000));
        a.receive(&claim, ms(5000));
        let mut asked = Vec::new();
        let mut now = ms(5000);
        let mac = loop {
            while let Some(frame) = a.transmit(now) {
                asked.push((now, frame[0] & 1 == 0));
                moved.receive(&frame, now);
            }
            while let Some(frame) = moved.transmit(now) {
                a.receive(&frame, now);
            }
            match a.resolve(peer, now) {
                Poll::Ready(mac) => break mac.unwrap(),
                Poll::Pending => now = a.next_deadline().unwrap().max(now),
            }
        };
        assert_eq!(mac, MAC_X);
        let whole: Duration = PROBES.iter().sum();
        assert_eq!((now, whole), (ms(5600), Duration::from_millis(600)));
        let probes = [(ms(5000), true), (ms(5200), true), (ms(5400), true), (ms(5600), false)];
        assert_eq!(asked[1..], probes, "the answer, three unicast questions, one to all");
    }
}

#[test]
fn claims_without_end_cause_one_probe_per_gap() {
    for (mut a, mut b, mut x, peer) in cases() {
        know(&mut a, &mut b, peer, ms(0));
        let claim = question(&mut x, &a, ms(0));
        let asked = a.counters().asked;
        for now in (0..10_000).map(ms) {
            a.receive(&claim, now);
            exchange(&mut a, &mut b, now, &mut never);
            assert_eq!(known(a.resolve(peer, now)), MAC_B);
        }
        assert_eq!(a.counters().asked - asked, 9);
        assert_eq!(a.counters().contradicted, 10_000);
    }
}

#[test]
fn what_aged_is_asked_at_its_own_mac_first() {
    for (mut a, mut b, mut x, peer) in cases() {
        know(&mut a, &mut b, peer, ms(0));
        let late = Instant::ZERO + LIFETIME + LIFETIME;
        let claim = question(&mut x, &a, late);
        a.receive(&claim, late);
        let _ = a.transmit(late);
        assert!(a.resolve(peer, late).is_pending());
        assert_eq!(a.transmit(late).unwrap()[..6], MAC_B);
    }
}

#[test]
fn a_lost_probe_is_repeated_before_others_are_asked() {
    for (mut a, mut b, mut x, peer) in cases() {
        know(&mut a, &mut b, peer, ms(0));
        let claim = question(&mut x, &a, ms(2000));
        a.receive(&claim, ms(2000));
        exchange(&mut a, &mut b, ms(2000), &mut || true);
        exchange(&mut a, &mut b, ms(2200), &mut || true);
        exchange(&mut a, &mut b, ms(2400), &mut never);
        assert_eq!(known(a.resolve(peer, ms(2400))), MAC_B);
    }
}

#[test]
fn strange_questions_displace_no_neighbour_in_use() {
    let (mut a, mut b) = v4();
    for last in 10..14 {
        let _ = a.resolve(host(last), ms(1));
        answer_from(&mut a, last, ms(1));
    }
    for last in 100..200 {
        b.own[0] = host(last).into();
        let question = question(&mut b, &a, ms(2));
        a.receive(&question, ms(2));
        while a.transmit(ms(2)).is_some() {}
    }
    for last in 10..14 {
        assert!(a.cache.peek(host(last)).is_some(), "{last}");
    }
    assert_eq!((a.cache.len(), a.counters().answered), (4, 100));
}

#[test]
fn searches_take_half_of_the_cache_and_leave_neighbours_in_use() {
    let mut a = Neighbours::<8>::new(MAC_A, &net("192.168.7.1", 24), ms(0)).unwrap();
    let reply = |last| {
        let tag = Tag::new(None).unwrap();
        let own = Ipv4Addr::new(192, 168, 7, last);
        arp::reply(tag, MAC_B, own, MAC_A, Ipv4Addr::new(192, 168, 7, 1)).unwrap()
    };
    for last in 10..18 {
        let _ = a.resolve(host(last), ms(1));
        a.receive(&reply(last), ms(1));
    }
    let mut refusals = 0;
    for round in 0..20 {
        let now = ms(2 + 4000 * round);
        for last in 100..200 {
            if let Poll::Ready(Err(fault)) = a.resolve(host(last), now) {
                refusals += u32::from(fault.kind == FaultKind::Resources);
            }
        }
        for wait in [0, 200, 1200, 2200, 3200] {
            while a.transmit(now + Duration::from_millis(wait)).is_some() {}
        }
    }
    assert!(refusals > 1000, "{refusals}");
    assert_eq!((10..18).filter(|last| a.cache.peek(host(*last)).is_some()).count(), 4);
}

#[test]
fn a_failed_address_that_asks_is_searched_at_once_and_not_believed() {
    let (mut a, mut b) = v4();
    let peer = ip("192.168.7.2");
    let _ = a.resolve(peer, ms(0));
    for now in [0, 200, 1200, 2200, 3200] {
        while a.transmit(ms(now)).is_some() {}
    }
    let _ = refused(a.resolve(peer, ms(3200)));
    let claim = question(&mut b, &a, ms(3300));
    a.receive(&claim, ms(3300));
    assert!(a.resolve(peer, ms(3300)).is_pending());
    exchange(&mut a, &mut b, ms(3300), &mut never);
    assert_eq!(known(a.resolve(peer, ms(3300))), MAC_B);
}

#[test]
fn fixed_neighbours_are_neither_asked_for_nor_changed() {
    for (mut a, _, mut x, peer) in cases() {
        a.fix(peer, MAC_B).unwrap();
        for now in [0, 1000, 2000].map(ms) {
            let claim = question(&mut x, &a, now);
            a.receive(&claim, now);
            let _ = a.transmit(now).unwrap();
            assert_eq!(known(a.resolve(peer, now)), MAC_B);
            assert!(a.transmit(now).is_none() && a.next_deadline().is_none());
        }
        let far = Instant::ZERO + LIFETIME + LIFETIME;
        assert_eq!(known(a.resolve(peer, far)), MAC_B);
        assert_eq!((a.counters().asked, a.counters().contradicted), (0, 3));
    }
}

#[test]
fn what_cannot_be_fixed_is_refused() {
    let (mut a, _) = v4();
    for (addr, mac) in [
        ("192.168.7.1", MAC_B),
        ("192.168.8.2", MAC_B),
        ("192.168.7.255", MAC_B),
        ("2001:db8::2", MAC_B),
        ("192.168.7.2", MAC_A),
        ("192.168.7.2", [0xff; 6]),
        ("192.168.7.2", [0; 6]),
    ] {
        let fault = a.fix(ip(addr), mac).unwrap_err();
        assert_eq!((fault.kind, fault.host), (FaultKind::BadParameter, Some(ip(addr))));
    }
    a.fix(host(2), MAC_B).unwrap();
    assert!(a.fix(host(2), MAC_X).is_err(), "twice");
    a.fix(host(3), MAC_B).unwrap();
    assert!(a.fix(host(4), MAC_B).is_err(), "half of four");
}

#[test]
fn each_broken_rule_of_neighbor_discovery_is_counted_by_itself() {
    type Spoil = fn(&mut Vec<u8>);
    type Count = fn(&Counters) -> u32;
    let spoilt: &[(&str, Spoil, Count)] = &[
        ("hop limit", |f| f[21] = 64, |c| c.hop_limit),
        ("checksum", |f| f[57] ^= 1, |c| c.checksum),
        ("multicast source", |f| f[22] = 0xff, |c| c.source),
        ("no source", |f| f[22..38].fill(0), |c| c.source),
        ("our source", |f| f.copy_within(38..54, 22), |c| c.source),
        (
            "loopback target",
            |f| f[62..78].copy_from_slice(&Ipv6Addr::LOCALHOST.octets()),
            |c| c.target,
        ),
        ("no target", |f| f[62..78].fill(0), |c| c.target),
        (
            "mapped target",
            |f| f[62..74].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255]),
            |c| c.target,
        ),
        ("option of length 0", |f| f[79] = 0, |c| c.options),
        ("our MAC", |f| f[80..86].copy_from_slice(&MAC_A), |c| c.options),
        (
            "two options",
            |f| {
                f.extend([2, 1, 2, 0, 0, 0, 0, 0x66]);
                f[19] += 8;
            },
            |c| c.options,
        ),
        (
            "a long option",
            |f| {
                f.extend([0; 8]);
                f[19] += 8;
                f[79] = 2;
            },
            |c| c.options,
        ),
    ];
    for (what, spoil, count) in spoilt {
        let (mut a, mut b) = v6();
        let _ = a.resolve(ip("2001:db8::2"), ms(0));
        b.receive(&a.transmit(ms(0)).unwrap(), ms(0));
        let mut frame = b.transmit(ms(0)).unwrap().as_slice().to_vec();
        spoil(&mut frame);
        if *what != "checksum" {
            seal(&mut frame);
        }
        a.receive(&frame, ms(0));
        assert_eq!((a.counters().malformed, count(a.counters())), (1, 1), "{what}");
        assert!(a.resolve(ip("2001:db8::2"), ms(0)).is_pending(), "{what}");
    }
}

#[test]
fn an_answer_to_a_probe_needs_no_option() {
    let (mut a, mut b) = v6();
    let peer = ip("2001:db8::2");
    know(&mut a, &mut b, peer, ms(0));
    let late = Instant::ZERO + LIFETIME;
    assert!(a.resolve(peer, late).is_pending());
    b.receive(&a.transmit(late).unwrap(), late);
    // As Linux answers a unicast question: 24 bytes of ICMPv6.
    let mut frame = b.transmit(late).unwrap().as_slice().to_vec();
    frame[19] = 24;
    frame.truncate(78);
    seal(&mut frame);
    let mut forged = frame.clone();
    forged[6..12].copy_from_slice(&MAC_X);
    a.receive(&forged, late);
    assert!(a.resolve(peer, late).is_pending());
    a.receive(&frame, late);
    assert_eq!(known(a.resolve(peer, late)), MAC_B);
}

#[test]
fn a_packet_to_others_in_a_frame_to_us_is_ignored() {
    let (mut a, mut b) = v6();
    let _ = a.resolve(ip("2001:db8::2"), ms(0));
    b.receive(&a.transmit(ms(0)).unwrap(), ms(0));
    let mut frame = b.transmit(ms(0)).unwrap().as_slice().to_vec();
    frame[53] = 9;
    seal(&mut frame);
    a.receive(&frame, ms(0));
    assert_eq!((a.counters().ignored, a.counters().accepted), (1, 0));
    let (mut a, _) = v4();
    let _ = a.resolve(host(2), ms(0));
    let tag = Tag::new(None).unwrap();
    let own = Ipv4Addr::new(192, 168, 7, 2);
    let other = arp::reply(tag, MAC_X, own, MAC_A, Ipv4Addr::new(192, 168, 7, 9)).unwrap();
    a.receive(&other, ms(0));
    assert!(a.resolve(host(2), ms(0)).is_pending());
    assert_eq!(a.counters().ignored, 1);
}
