//! Frames that break rules or mean harm.

use super::*;

#[test]
fn a_reply_nobody_asked_for_teaches_nothing() {
    let (mut a, _) = v4();
    answer_from(&mut a, 2, ms(0));
    assert_eq!((a.cache.len(), a.counters().unsolicited), (0, 1));
}

#[test]
fn a_second_answer_with_another_mac_changes_nothing() {
    let (mut a, mut b) = v4();
    let peer = ip("192.168.7.2");
    let _ = a.resolve(peer, ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    answer_from(&mut a, 2, ms(1));
    assert_eq!(known(a.resolve(peer, ms(2))), MAC_B);
    assert_eq!(a.counters().unsolicited, 1);
}

#[test]
fn a_claim_to_our_address_is_counted_and_not_believed() {
    let (mut a, _) = v4();
    let mut x = Station::new(MAC_X, &net("192.168.7.1", 24), ms(0)).unwrap();
    a.receive(&x.transmit(ms(0)).unwrap(), ms(0));
    assert_eq!((a.counters().conflicts, a.cache.len()), (1, 0));
    let (mut a, _) = v6();
    let mut x = Station::new(MAC_X, &net("2001:db8::1", 64), ms(0)).unwrap();
    a.receive(&x.transmit(ms(0)).unwrap(), ms(0));
    assert_eq!((a.counters().conflicts, a.cache.len()), (1, 0));
}

#[test]
fn our_own_frames_coming_back_are_ignored() {
    let mut a = Station::new(MAC_A, &net("192.168.7.1", 24), ms(0)).unwrap();
    let own = a.transmit(ms(0)).unwrap();
    a.receive(&own, ms(0));
    assert_eq!(a.counters(), &Counters { ignored: 1, ..Counters::default() });
}

#[test]
fn hosts_off_the_link_are_answered_and_not_learned() {
    let (mut a, _) = v4();
    let own = Ipv4Addr::new(192, 168, 7, 1);
    let question =
        arp::request(Tag::new(None).unwrap(), MAC_X, Ipv4Addr::new(10, 9, 8, 7), own, None)
            .unwrap();
    a.receive(&question, ms(0));
    assert!(a.transmit(ms(0)).is_some());
    assert_eq!(a.cache.len(), 0);
}

#[test]
fn questions_for_others_are_ignored() {
    let (mut a, mut b) = v4();
    let _ = b.resolve(ip("192.168.7.77"), ms(0));
    a.receive(&b.transmit(ms(0)).unwrap(), ms(0));
    assert_eq!((a.counters().ignored, a.cache.len()), (1, 0));
    assert!(a.transmit(ms(0)).is_none());
}

/// A good advertisement from B to A, pending there.
fn advertisement() -> (Station, Vec<u8>) {
    let (mut a, mut b) = v6();
    let _ = a.resolve(ip("2001:db8::2"), ms(0));
    b.receive(&a.transmit(ms(0)).unwrap(), ms(0));
    let frame = b.transmit(ms(0)).unwrap();
    (a, frame.as_slice().to_vec())
}

#[test]
fn options_of_other_types_are_skipped() {
    let (mut a, mut frame) = advertisement();
    // A nonce behind the link-layer address.
    frame.truncate(86);
    frame.extend([14, 1, 2, 0, 0, 0, 0, 0x66]);
    frame[19] += 8;
    seal(&mut frame);
    a.receive(&frame, ms(0));
    assert_eq!(known(a.resolve(ip("2001:db8::2"), ms(0))), MAC_B);
}

#[test]
fn advertisements_that_break_a_rule_are_malformed() {
    type Spoil = fn(&mut Vec<u8>);
    let spoilt: &[(&str, Spoil)] = &[
        ("hop limit", |f| f[21] = 254),
        ("checksum", |f| f[57] ^= 1),
        ("code", |f| {
            f[55] = 1;
            seal(f);
        }),
        ("multicast target", |f| {
            f[62] = 0xff;
            seal(f);
        }),
        ("option of length 0", |f| {
            f[79] = 0;
            seal(f);
        }),
        ("option longer than the message", |f| {
            f[79] = 2;
            seal(f);
        }),
        ("multicast MAC", |f| {
            f[80] = 3;
            seal(f);
        }),
        ("zero MAC", |f| {
            f[80..86].fill(0);
            seal(f);
        }),
        ("version", |f| f[14] = 0x40),
        ("payload length beyond the frame", |f| f[19] = 0x40),
        ("cut short", |f| f.truncate(70)),
        ("no option", |f| {
            f[19] = 24;
            f.truncate(78);
            seal(f);
        }),
    ];
    for (what, spoil) in spoilt {
        let (mut a, mut frame) = advertisement();
        spoil(&mut frame);
        a.receive(&frame, ms(0));
        assert_eq!(a.counters().malformed, 1, "{what}");
        assert!(a.resolve(ip("2001:db8::2"), ms(0)).is_pending(), "{what}");
    }
    let (mut a, frame) = advertisement();
    a.receive(&frame, ms(0));
    assert_eq!(known(a.resolve(ip("2001:db8::2"), ms(0))), MAC_B);
}

#[test]
fn arp_packets_that_break_a_rule_are_malformed() {
    let good = hex("ffffffffffff 02000000000b 0806
         0001 0800 06 04 0001  02000000000b c0a80702  000000000000 c0a80701");
    type Spoil = fn(&mut Vec<u8>);
    let spoilt: &[(&str, Spoil)] = &[
        ("hardware type", |f| f[15] = 2),
        ("protocol type", |f| f[17] = 1),
        ("hardware length", |f| f[18] = 8),
        ("protocol length", |f| f[19] = 16),
        ("operation", |f| f[21] = 9),
        ("sender is a group", |f| f[22] = 3),
        ("sender is zero", |f| f[22..28].fill(0)),
        ("cut short", |f| f.truncate(41)),
        ("source is a group", |f| f[6] = 3),
    ];
    for (what, spoil) in spoilt {
        let (mut a, _) = v4();
        let mut frame = good.clone();
        spoil(&mut frame);
        a.receive(&frame, ms(0));
        assert_eq!(a.counters().malformed, 1, "{what}");
        assert_eq!(a.cache.len(), 0, "{what}");
        assert!(a.transmit(ms(0)).is_none(), "{what}");
    }
}

#[test]
fn frames_cut_at_any_byte_never_teach() {
    let (_, frame) = advertisement();
    let config = net("2001:db8::1", 64);
    for len in 0..frame.len() {
        let mut a = announced(MAC_A, &config);
        let _ = a.resolve(ip("2001:db8::2"), ms(0));
        a.receive(&frame[..len], ms(0));
        assert!(a.resolve(ip("2001:db8::2"), ms(0)).is_pending(), "{len}");
    }
}

#[test]
fn a_solicitation_without_option_is_answered_only_if_sent_to_us_alone() {
    let own: Ipv6Addr = "2001:db8::1".parse().unwrap();
    for (to_mac, to, answered) in
        [(MAC_A, own, true), ([0x33, 0x33, 0xff, 0, 0, 1], nd::solicited_node(own), false)]
    {
        let (mut a, _) = v6();
        let mut frame = to_mac.to_vec();
        frame.extend(hex("02000000000b 86dd 60000000 0018 3aff"));
        frame.extend("2001:db8::2".parse::<Ipv6Addr>().unwrap().octets());
        frame.extend(to.octets());
        frame.extend(hex("87000000 00000000"));
        frame.extend(own.octets());
        seal(&mut frame);
        a.receive(&frame, ms(0));
        assert_eq!(a.transmit(ms(0)).is_some(), answered);
        assert_eq!(a.counters().malformed, u32::from(!answered));
        assert_eq!(a.cache.len(), 0, "only the option teaches");
    }
}

#[test]
fn other_protocols_and_foreign_groups_are_ignored() {
    let (mut a, _) = v6();
    for text in [
        "02000000000a 02000000000b 0800 45000000",
        "3333ff123456 02000000000b 86dd 60000000",
        "02000000000a 02000000000b 0806 0001",
    ] {
        a.receive(&hex(text), ms(0));
    }
    assert_eq!(a.counters(), &Counters { ignored: 3, ..Counters::default() });
    let (mut a, _) = v4();
    a.receive(&hex("02000000000a 02000000000b 86dd 60000000"), ms(0));
    assert_eq!(a.counters().ignored, 1);
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let noise = proptest::collection::vec(any::<u8>(), 0..200);
    let arp = proptest::collection::vec(any::<u8>(), 0..40).prop_map(|tail| {
        let mut frame = hex("02000000000a 02000000000b 0806 0001 0800 0604 00");
        frame.extend(tail);
        frame
    });
    // Neighbor Discovery with a good checksum over whatever follows, so that the options are
    // reached.
    let nd =
        (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..80)).prop_map(|(ns, tail)| {
            let mut frame = hex("02000000000a 02000000000b 86dd 60000000 0000 3aff");
            frame[19] = u8::try_from(24 + tail.len()).unwrap();
            frame.extend("2001:db8::2".parse::<Ipv6Addr>().unwrap().octets());
            frame.extend("2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
            frame.extend([if ns { 135 } else { 136 }, 0, 0, 0, 0, 0, 0, 0]);
            frame.extend("2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
            frame.extend(tail);
            seal(&mut frame);
            frame
        });
    prop_oneof![noise, arp, nd]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_bytes_are_survived_and_counted_once(frame in any_frame(), six in any::<bool>()) {
        let (mut a, _) = if six { v6() } else { v4() };
        a.receive(&frame, ms(0));
        let c = *a.counters();
        prop_assert_eq!(c.accepted + c.ignored + c.malformed + c.unsolicited + c.conflicts, 1);
        let mut sent = 0;
        while a.transmit(ms(0)).is_some() {
            sent += 1;
            prop_assert!(sent <= 1);
        }
        prop_assert!(a.cache.len() <= 1);
    }
}
