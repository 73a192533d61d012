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
    let mut a = Station::new(MAC_A, &net("2001:db8::1", 64), ms(0)).unwrap();
    let own = a.transmit(ms(0)).unwrap();
    a.receive(&own, ms(0));
    assert_eq!(a.counters(), &Counters { ignored: 1, ..Counters::default() }, "no conflict");
    // Nor does one that only names our MAC inside.
    let (mut a, mut b) = v4();
    let _ = b.resolve(host(1), ms(0));
    let mut frame = b.transmit(ms(0)).unwrap();
    frame[22..28].copy_from_slice(&MAC_A);
    a.receive(&frame, ms(0));
    assert_eq!((a.counters().ignored, a.cache.len()), (1, 0));
    assert!(a.transmit(ms(0)).is_none());
}

/// An IPv6 frame from B: to whom, its next header and its payload, of which the checksum is made.
fn packet(to: (Mac, &str), from: &str, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = to.0.to_vec();
    frame.extend(MAC_B);
    frame.extend(hex("86dd 60000000 0000"));
    frame[19] = u8::try_from(payload.len()).unwrap();
    frame.extend([next_header, 255]);
    for addr in [from, to.1] {
        frame.extend(addr.parse::<Ipv6Addr>().unwrap().octets());
    }
    frame.extend(payload);
    if payload.len() >= 4 {
        seal(&mut frame);
    }
    frame
}

/// A message of Neighbor Discovery.
fn message(kind: u8, flags: u8, target: &str, options: &[u8]) -> Vec<u8> {
    let mut message = std::vec![kind, 0, 0, 0, flags, 0, 0, 0];
    message.extend(target.parse::<Ipv6Addr>().unwrap().octets());
    message.extend(options);
    message
}

const OWN: &str = "2001:db8::1";
const PEER: &str = "2001:db8::2";
const US: (Mac, &str) = (MAC_A, OWN);
const GROUP: (Mac, &str) = ([0x33, 0x33, 0xff, 0, 0, 1], "ff02::1:ff00:1");
const ALL: (Mac, &str) = ([0x33, 0x33, 0, 0, 0, 1], "ff02::1");
const MAC_OPTION: [u8; 8] = [1, 1, 2, 0, 0, 0, 0, 0xb];

/// Processes one frame, of which nothing may be learned. Returns the counts and whether it was
/// answered.
fn counted(frame: &[u8]) -> (Counters, bool) {
    let (mut a, _) = v6();
    a.receive(frame, ms(0));
    assert_eq!(a.next_deadline().is_some(), !a.replies.is_empty());
    let answered = a.transmit(ms(0)).is_some();
    assert_eq!(a.cache.len(), 0);
    (*a.counters(), answered)
}

#[test]
fn other_messages_of_ipv6_are_ignored() {
    let ignored = (Counters { ignored: 1, ..Counters::default() }, false);
    let solicit = message(135, 0, OWN, &MAC_OPTION);
    assert_eq!(counted(&packet(US, PEER, 17, &solicit)), ignored, "UDP");
    assert_eq!(counted(&packet(US, PEER, 58, &[])), ignored, "nothing inside");
    let echo = message(128, 0, OWN, &MAC_OPTION);
    assert_eq!(counted(&packet(US, PEER, 58, &echo)), ignored, "an echo request");
    let other = message(135, 0, "2001:db8::9", &MAC_OPTION);
    assert_eq!(counted(&packet(US, PEER, 58, &other)), ignored, "a question for another");
}

#[test]
fn a_message_that_is_too_short_is_malformed_by_no_rule_of_its_own() {
    for len in [4, 8, 23] {
        let frame = packet(US, PEER, 58, &message(135, 0, OWN, &[])[..len]);
        let malformed = Counters { malformed: 1, ..Counters::default() };
        assert_eq!(counted(&frame), (malformed, false), "{len}");
    }
}

#[test]
fn solicitations_that_break_a_rule_are_counted_and_not_answered() {
    let broken = Counters { malformed: 1, ..Counters::default() };
    let source = Counters { source: 1, ..broken };
    let options = Counters { options: 1, ..broken };
    let good = message(135, 0, OWN, &MAC_OPTION);
    let bare = message(135, 0, OWN, &[]);
    let own_mac = message(135, 0, OWN, &[1, 1, 2, 0, 0, 0, 0, 0xa]);
    let tail = message(135, 0, OWN, &[1, 1, 2, 0, 0, 0, 0, 0xb, 9]);
    let cases = [
        ("loopback", packet(US, "::1", 58, &good), source),
        ("no source, with a MAC", packet(GROUP, "::", 58, &good), source),
        ("no source, to us alone", packet(US, "::", 58, &bare), source),
        ("no source, to all", packet(ALL, "::", 58, &bare), source),
        ("our MAC", packet(US, PEER, 58, &own_mac), options),
        ("no MAC, to many", packet(GROUP, PEER, 58, &bare), options),
        ("half an option", packet(US, PEER, 58, &tail), options),
        ("mapped", packet(US, PEER, 58, &message(135, 0, "::ffff:192.168.7.1", &MAC_OPTION)), {
            Counters { target: 1, ..broken }
        }),
    ];
    for (what, frame, counters) in cases {
        assert_eq!(counted(&frame), (counters, false), "{what}");
    }
    let conflict = Counters { conflicts: 1, ..Counters::default() };
    assert_eq!(counted(&packet(US, OWN, 58, &good)), (conflict, false));
    assert!(counted(&packet(GROUP, "::", 58, &bare)).1, "the rule kept");
}

#[test]
fn an_answer_to_many_is_malformed() {
    let target = [2, 1, 2, 0, 0, 0, 0, 0xb];
    for (to, flags, malformed) in [(ALL, 0x60, 1), (ALL, 0x20, 0), (US, 0x60, 0)] {
        let (counters, _) = counted(&packet(to, PEER, 58, &message(136, flags, PEER, &target)));
        assert_eq!((counters.malformed, counters.unsolicited), (malformed, 1 - malformed));
    }
}

/// Only an answer ends a probe, and only an answer may leave its MAC out.
#[test]
fn announcements_during_a_probe_confirm_nothing() {
    let (mut a, mut b) = v6();
    let _ = a.resolve(ip(PEER), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    let late = ms(1) + LIFETIME;
    assert!(a.resolve(ip(PEER), late).is_pending());
    let target = [2, 1, 2, 0, 0, 0, 0, 0xb];
    a.receive(&packet(US, PEER, 58, &message(136, 0x20, PEER, &target)), late);
    a.receive(&packet(US, PEER, 58, &message(136, 0x20, PEER, &[])), late);
    assert_eq!(a.counters().options, 1);
    assert!(a.resolve(ip(PEER), late).is_pending());
    let (mut a, mut b) = v4();
    let _ = a.resolve(host(2), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert!(a.resolve(host(2), late).is_pending());
    b.announce(late);
    a.receive(&b.transmit(late).unwrap(), late);
    assert!(a.resolve(host(2), late).is_pending());
    assert_eq!(a.counters().contradicted, 0);
}

#[test]
fn what_is_known_already_starts_no_probe() {
    let (mut a, mut b) = v4();
    let _ = a.resolve(host(2), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    let accepted = a.counters().accepted;
    b.announce(ms(1));
    a.receive(&b.transmit(ms(1)).unwrap(), ms(1));
    assert_eq!((a.counters().accepted, a.counters().contradicted), (accepted + 1, 0));
    assert!(a.transmit(ms(5000)).is_none());
}

#[test]
fn a_neighbour_nobody_asked_for_changes_its_mac_at_will() {
    let (mut a, mut b) = v4();
    let mut x = announced(MAC_X, &net("192.168.7.2", 24));
    for (from, mac) in [(&mut x, MAC_X), (&mut b, MAC_B)] {
        let _ = from.resolve(host(1), ms(0));
        a.receive(&from.transmit(ms(0)).unwrap(), ms(0));
        assert_eq!(a.cache.peek(host(2)), Some(mac));
    }
    assert_eq!(a.counters().contradicted, 0);
}

#[test]
fn a_frame_to_others_is_ignored_whatever_is_inside() {
    let (mut a, mut b) = v4();
    let _ = b.resolve(host(1), ms(0));
    let mut frame = b.transmit(ms(0)).unwrap();
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0x77]);
    a.receive(&frame, ms(0));
    assert_eq!((a.counters().ignored, a.cache.len()), (1, 0));
    // An answer to all is none to us.
    let (mut a, _) = v4();
    let _ = a.resolve(host(2), ms(0));
    let (own, to) = (Ipv4Addr::new(192, 168, 7, 2), Ipv4Addr::new(192, 168, 7, 1));
    let mut reply = arp::reply(Tag::new(None).unwrap(), MAC_B, own, MAC_A, to).unwrap();
    reply[..6].fill(0xff);
    a.receive(&reply, ms(0));
    assert_eq!(a.counters().ignored, 1);
    assert!(a.resolve(host(2), ms(0)).is_pending());
}

/// Senders that can be no neighbour here are answered and not learned.
#[test]
fn addresses_of_no_host_are_not_learned() {
    let tag = Tag::new(None).unwrap();
    let own = Ipv4Addr::new(192, 168, 7, 1);
    for sender in ["192.168.7.255", "192.168.7.0", "0.0.0.0"] {
        let (mut a, _) = v4();
        let sender = sender.parse().unwrap();
        a.receive(&arp::request(tag, MAC_X, sender, own, None).unwrap(), ms(0));
        assert_eq!(a.next_deadline(), Some(Instant::ZERO), "the answer is due");
        assert!(a.transmit(ms(0)).is_some());
        assert_eq!((a.cache.len(), a.next_deadline()), (0, None));
    }
    // Nor are announcements from beyond the link more than unsolicited.
    let (mut a, _) = v4();
    let far = Ipv4Addr::new(10, 9, 8, 7);
    a.receive(&arp::request(tag, MAC_X, far, far, None).unwrap(), ms(0));
    assert_eq!((a.counters().unsolicited, a.counters().ignored), (1, 0));
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
