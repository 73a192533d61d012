//! Answering and announcing.

use super::*;

#[test]
fn a_flood_of_questions_is_answered_up_to_a_bound() {
    let (mut a, _) = v4();
    let tag = Tag::new(None).unwrap();
    for last in 100..120 {
        let asker = Ipv4Addr::new(192, 168, 7, last);
        let question =
            arp::request(tag, [2, 0, 0, 0, 9, last], asker, Ipv4Addr::new(192, 168, 7, 1), None);
        a.receive(&question.unwrap(), ms(0));
    }
    assert_eq!((a.counters().answered, a.counters().dropped), (8, 12));
    let mut replies = 0;
    while a.transmit(ms(0)).is_some() {
        replies += 1;
    }
    assert_eq!(replies, 8);
}

#[test]
fn the_same_question_twice_is_answered_once() {
    let (mut a, mut b) = v4();
    let _ = b.resolve(ip("192.168.7.1"), ms(0));
    let question = b.transmit(ms(0)).unwrap();
    a.receive(&question, ms(0));
    a.receive(&question, ms(0));
    assert!(a.transmit(ms(0)).is_some());
    assert!(a.transmit(ms(0)).is_none());
}

#[test]
fn an_arp_probe_is_answered_and_teaches_nothing() {
    let (mut a, _) = v4();
    let own = Ipv4Addr::new(192, 168, 7, 1);
    let probe =
        arp::request(Tag::new(None).unwrap(), MAC_X, Ipv4Addr::UNSPECIFIED, own, None).unwrap();
    a.receive(&probe, ms(0));
    let reply = a.transmit(ms(0)).unwrap();
    assert_eq!(reply[..6], MAC_X);
    assert_eq!(reply[21], 2);
    assert_eq!(a.cache.len(), 0);
}

#[test]
fn ipv4_is_announced_twice_at_start_and_again_on_request() {
    let mut a = Station::new(MAC_A, &net("192.168.7.1", 24), ms(0)).unwrap();
    assert_eq!(a.next_deadline(), Some(ms(0)));
    let first = a.transmit(ms(0)).unwrap();
    #[rustfmt::skip]
    let golden = hex(
        "ffffffffffff 02000000000a 0806
         0001 0800 06 04 0001  02000000000a c0a80701  000000000000 c0a80701
         0000 00000000 00000000 00000000 00000000");
    assert_eq!(first.as_slice(), golden);
    assert!(a.transmit(ms(0)).is_none());
    assert_eq!(a.next_deadline(), Some(ms(2000)));
    assert_eq!(a.transmit(ms(2000)).unwrap(), first);
    assert_eq!(a.next_deadline(), None);
    a.announce(ms(9000));
    assert_eq!(a.transmit(ms(9000)).unwrap(), first);
}

#[test]
fn ipv6_announces_both_addresses_to_all_nodes() {
    let mut a = Station::new(MAC_A, &net("2001:db8::1", 64), ms(0)).unwrap();
    let (first, second) = (a.transmit(ms(0)).unwrap(), a.transmit(ms(0)).unwrap());
    assert!(a.transmit(ms(0)).is_none());
    for (frame, target) in [(&first, "2001:db8::1"), (&second, "fe80::ff:fe00:a")] {
        let target: Ipv6Addr = target.parse().unwrap();
        assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 1]);
        assert_eq!(frame[22..38], target.octets(), "source");
        assert_eq!(frame[54], 136);
        assert_eq!(frame[58], 0x20, "override, not solicited");
        assert_eq!(frame[62..78], target.octets(), "target");
    }
}

#[test]
fn an_announcement_ends_a_pending_search_and_changes_nothing_else() {
    let (mut a, _) = v4();
    let peer = ip("192.168.7.2");
    let mut b = Station::new(MAC_B, &net("192.168.7.2", 24), ms(0)).unwrap();
    let gratuitous = b.transmit(ms(0)).unwrap();
    a.receive(&gratuitous, ms(0));
    assert_eq!((a.cache.len(), a.counters().unsolicited), (0, 1));
    let _ = a.resolve(peer, ms(1));
    a.receive(&gratuitous, ms(1));
    assert_eq!(known(a.resolve(peer, ms(1))), MAC_B);
    let mut x = Station::new(MAC_X, &net("192.168.7.2", 24), ms(0)).unwrap();
    a.receive(&x.transmit(ms(0)).unwrap(), ms(2));
    assert_eq!(known(a.resolve(peer, ms(2))), MAC_B);
    assert_eq!(a.counters().unsolicited, 2);
}

#[test]
fn duplicate_address_detection_of_our_address_is_answered_to_all_nodes() {
    let (mut a, _) = v6();
    let target: Ipv6Addr = "2001:db8::1".parse().unwrap();
    let group = nd::solicited_node(target);
    // A solicitation from ::, without option: 24 bytes of ICMPv6.
    let mut frame = hex("3333ff000001 020000000066 86dd 60000000 0018 3aff");
    frame.extend(Ipv6Addr::UNSPECIFIED.octets());
    frame.extend(group.octets());
    frame.extend(hex("87000000 00000000"));
    frame.extend(target.octets());
    seal(&mut frame);
    a.receive(&frame, ms(0));
    assert_eq!(a.counters().accepted, 1, "{:?}", a.counters());
    let reply = a.transmit(ms(0)).unwrap();
    assert_eq!(reply[..6], [0x33, 0x33, 0, 0, 0, 1]);
    assert_eq!(reply[38..54], Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets());
    assert_eq!(reply[58], 0x20);
}
