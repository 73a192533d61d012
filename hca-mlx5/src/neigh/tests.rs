//! Two ends against each other over a link that loses frames; golden frames; frames that mean harm.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::task::Poll;
use core::time::Duration;
use std::string::ToString;
use std::vec::Vec;

use dat_core::Instant;
use dat_core::provider::{Fault, FaultKind, Net};
use proptest::prelude::*;

use super::*;

const MAC_A: Mac = [0x02, 0, 0, 0, 0, 0x0a];
const MAC_B: Mac = [0x02, 0, 0, 0, 0, 0x0b];
const MAC_X: Mac = [0x02, 0, 0, 0, 0, 0x66];

type Station = Neighbours<4>;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(addr: &str, prefix: u8) -> Net {
    Net {
        addr: ip(addr),
        prefix,
        gateway: None,
        vlan: None,
    }
}

fn ms(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// A station whose announcements are over.
fn quiet(mac: Mac, net: &Net) -> Station {
    let mut station = Station::new(mac, net, Instant::ZERO).unwrap();
    station.announcement = None;
    station
}

fn pair(a: &Net, b: &Net) -> (Station, Station) {
    (quiet(MAC_A, a), quiet(MAC_B, b))
}

/// Carries frames both ways until there are none; each is lost if `lost` says so. Returns how many were carried.
fn exchange(
    a: &mut Station,
    b: &mut Station,
    now: Instant,
    lost: &mut dyn FnMut() -> bool,
) -> usize {
    let mut carried = 0;
    loop {
        let (from_a, from_b) = (a.transmit(now), b.transmit(now));
        if from_a.is_none() && from_b.is_none() {
            return carried;
        }
        for (frame, to) in [(from_a, &mut *b), (from_b, &mut *a)] {
            if let Some(frame) = frame.filter(|_| !lost()) {
                to.receive(&frame, now);
                carried += 1;
            }
        }
    }
}

fn never() -> bool {
    false
}

fn known(answer: Poll<Result<Mac, Fault>>) -> Mac {
    match answer {
        Poll::Ready(Ok(mac)) => mac,
        other => panic!("{other:?}"),
    }
}

fn refused(answer: Poll<Result<Mac, Fault>>) -> Fault {
    match answer {
        Poll::Ready(Err(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|d| u8::try_from(d).unwrap())
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

fn v4() -> (Station, Station) {
    pair(&net("192.168.7.1", 24), &net("192.168.7.2", 24))
}

fn v6() -> (Station, Station) {
    pair(&net("2001:db8::1", 64), &net("2001:db8::2", 64))
}

// ---- resolving ----

#[test]
fn arp_resolves_in_one_exchange() {
    let (mut a, mut b) = v4();
    assert!(a.resolve(ip("192.168.7.2"), ms(0)).is_pending());
    assert_eq!(exchange(&mut a, &mut b, ms(0), &mut never), 2);
    assert_eq!(known(a.resolve(ip("192.168.7.2"), ms(1))), MAC_B);
    assert_eq!((a.counters().asked, b.counters().answered), (1, 1));
}

#[test]
fn the_one_who_answered_knows_the_asker() {
    let (mut a, mut b) = v4();
    let _ = a.resolve(ip("192.168.7.2"), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert_eq!(known(b.resolve(ip("192.168.7.1"), ms(1))), MAC_A);
    assert_eq!(b.counters().asked, 0);
}

#[test]
fn neighbor_discovery_resolves_in_one_exchange() {
    let (mut a, mut b) = v6();
    assert!(a.resolve(ip("2001:db8::2"), ms(0)).is_pending());
    assert_eq!(exchange(&mut a, &mut b, ms(0), &mut never), 2);
    assert_eq!(known(a.resolve(ip("2001:db8::2"), ms(1))), MAC_B);
    assert_eq!(known(b.resolve(ip("2001:db8::1"), ms(1))), MAC_A);
}

#[test]
fn link_local_addresses_resolve_from_the_link_local_address() {
    let (mut a, mut b) = v6();
    let peer = IpAddr::V6(nd::link_local(MAC_B));
    assert_eq!(peer, ip("fe80::ff:fe00:b"));
    assert!(a.resolve(peer, ms(0)).is_pending());
    let question = a.transmit(ms(0)).unwrap();
    assert_eq!(question[22..38], nd::link_local(MAC_A).octets());
    b.receive(&question, ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert_eq!(known(a.resolve(peer, ms(1))), MAC_B);
}

#[test]
fn a_port_configured_with_a_link_local_address_has_only_that() {
    let (mut a, mut b) = pair(&net("fe80::1", 64), &net("fe80::2", 64));
    assert_eq!(a.own(), [ip("fe80::1")]);
    let _ = a.resolve(ip("fe80::2"), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert_eq!(known(a.resolve(ip("fe80::2"), ms(0))), MAC_B);
}

#[test]
fn ipv4_link_local_needs_no_gateway() {
    let (mut a, mut b) = pair(&net("169.254.1.1", 16), &net("169.254.200.7", 16));
    let _ = a.resolve(ip("169.254.200.7"), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert_eq!(known(a.resolve(ip("169.254.200.7"), ms(0))), MAC_B);
}

#[test]
fn own_addresses_resolve_to_the_own_mac() {
    let (mut a, _) = v6();
    assert_eq!(known(a.resolve(ip("2001:db8::1"), ms(0))), MAC_A);
    assert_eq!(
        known(a.resolve(IpAddr::V6(nd::link_local(MAC_A)), ms(0))),
        MAC_A
    );
    assert!(a.transmit(ms(0)).is_none());
}

#[test]
fn an_ipv4_address_in_ipv6_form_is_resolved_as_ipv4() {
    let (mut a, mut b) = v4();
    let _ = a.resolve(ip("::ffff:192.168.7.2"), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert_eq!(known(a.resolve(ip("::ffff:192.168.7.2"), ms(0))), MAC_B);
}

#[test]
fn off_the_link_the_gateway_is_asked() {
    let config = Net {
        gateway: Some(ip("192.168.7.2")),
        ..net("192.168.7.1", 24)
    };
    let (mut a, mut b) = pair(&config, &net("192.168.7.2", 24));
    for remote in ["10.0.0.1", "8.8.8.8"] {
        let _ = a.resolve(ip(remote), ms(0));
    }
    exchange(&mut a, &mut b, ms(0), &mut never);
    for remote in ["10.0.0.1", "8.8.8.8", "192.168.7.2"] {
        assert_eq!(known(a.resolve(ip(remote), ms(1))), MAC_B);
    }
    assert_eq!(a.counters().asked, 1);
}

#[test]
fn an_ipv6_gateway_may_be_link_local() {
    let gateway = IpAddr::V6(nd::link_local(MAC_B));
    let config = Net {
        gateway: Some(gateway),
        ..net("2001:db8::1", 64)
    };
    let (mut a, mut b) = pair(&config, &net("2001:db8:1::1", 64));
    let _ = a.resolve(ip("2001:db8:2::9"), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert_eq!(known(a.resolve(ip("2001:db8:2::9"), ms(1))), MAC_B);
}

#[test]
fn off_the_link_without_gateway_is_unreachable() {
    let (mut a, _) = v4();
    let fault = refused(a.resolve(ip("10.0.0.1"), ms(0)));
    assert_eq!(fault.kind, FaultKind::Unreachable);
    assert!(
        fault.to_string().contains("10.0.0.1: ARP: off the link"),
        "{fault}"
    );
    assert!(a.transmit(ms(0)).is_none());
}

#[test]
fn the_other_ip_version_is_unreachable() {
    let (mut a, _) = v4();
    let fault = refused(a.resolve(ip("2001:db8::2"), ms(0)));
    assert_eq!(fault.kind, FaultKind::Unreachable);
    assert!(fault.to_string().contains("IP version"), "{fault}");
}

#[test]
fn addresses_of_no_host_are_refused() {
    let (mut a, _) = v4();
    for remote in [
        "255.255.255.255",
        "192.168.7.255",
        "192.168.7.0",
        "224.0.0.1",
        "127.0.0.1",
        "0.0.0.0",
    ] {
        let fault = refused(a.resolve(ip(remote), ms(0)));
        assert_eq!(fault.kind, FaultKind::BadParameter, "{remote}");
    }
    let (mut a, _) = v6();
    for remote in ["::", "::1", "ff02::1"] {
        let fault = refused(a.resolve(ip(remote), ms(0)));
        assert_eq!(fault.kind, FaultKind::BadParameter, "{remote}");
    }
}

#[test]
fn both_ends_of_a_31_bit_prefix_are_hosts() {
    let (mut a, mut b) = pair(&net("10.0.0.0", 31), &net("10.0.0.1", 31));
    let _ = a.resolve(ip("10.0.0.1"), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert_eq!(known(a.resolve(ip("10.0.0.1"), ms(0))), MAC_B);
}

#[test]
fn a_prefix_of_nothing_has_everybody_on_the_link() {
    let (mut a, mut b) = pair(&net("10.0.0.1", 0), &net("77.1.2.3", 0));
    let _ = a.resolve(ip("77.1.2.3"), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert_eq!(known(a.resolve(ip("77.1.2.3"), ms(0))), MAC_B);
}

// ---- asking again, giving up ----

#[test]
fn questions_are_repeated_on_schedule_and_then_given_up() {
    let (mut a, _) = v4();
    let peer = ip("192.168.7.2");
    let mut sent = Vec::new();
    let mut now = ms(0);
    assert!(a.resolve(peer, now).is_pending());
    while let Some(deadline) = a.next_deadline() {
        now = deadline.max(now);
        while a.transmit(now).is_some() {
            sent.push(now);
        }
    }
    assert_eq!(sent, [ms(0), ms(200), ms(1200), ms(2200)]);
    assert_eq!(now, ms(3200));
    let fault = refused(a.resolve(peer, now));
    assert_eq!(fault.kind, FaultKind::Unreachable);
    assert_eq!(
        fault.to_string(),
        "192.168.7.2: ARP: nobody answered for this address; \
         check that the host is up and on this link and VLAN"
    );
    assert_eq!(a.counters().failed, 1);
}

#[test]
fn a_silent_gateway_is_named_as_such() {
    let config = Net {
        gateway: Some(ip("2001:db8::fe")),
        ..net("2001:db8::1", 64)
    };
    let mut a = quiet(MAC_A, &config);
    let remote = ip("2001:db8:9::1");
    let _ = a.resolve(remote, ms(0));
    for now in [0, 200, 1200, 2200, 3200] {
        while a.transmit(ms(now)).is_some() {}
    }
    let fault = refused(a.resolve(remote, ms(3200)));
    assert!(
        fault
            .to_string()
            .starts_with("2001:db8::fe: neighbour discovery: the gateway did not"),
        "{fault}"
    );
}

#[test]
fn a_failure_is_told_late_and_to_several_and_then_forgotten() {
    let (mut a, _) = v4();
    let peer = ip("192.168.7.2");
    let _ = a.resolve(peer, ms(0));
    for now in [0, 200, 1200, 2200, 3200] {
        while a.transmit(ms(now)).is_some() {}
    }
    assert_eq!(a.next_deadline(), None);
    for now in [60_000, 60_000, 60_999] {
        assert_eq!(
            refused(a.resolve(peer, ms(now))).kind,
            FaultKind::Unreachable
        );
    }
    assert!(a.resolve(peer, ms(61_000)).is_pending());
    assert!(a.transmit(ms(61_000)).is_some());
}

#[test]
fn without_transmit_resolving_still_waits_for_every_question() {
    let (mut a, _) = v4();
    let peer = ip("192.168.7.2");
    assert!(a.resolve(peer, ms(0)).is_pending());
    assert!(a.resolve(peer, ms(50_000)).is_pending());
    assert!(a.transmit(ms(50_000)).is_some());
    assert!(a.transmit(ms(50_000)).is_none());
}

#[test]
fn an_answer_after_the_failure_is_not_believed_unasked() {
    let (mut a, mut b) = v4();
    let peer = ip("192.168.7.2");
    let _ = a.resolve(peer, ms(0));
    let question = a.transmit(ms(0)).unwrap();
    for now in [200, 1200, 2200, 3200] {
        while a.transmit(ms(now)).is_some() {}
    }
    b.receive(&question, ms(4000));
    a.receive(&b.transmit(ms(4000)).unwrap(), ms(4000));
    assert_eq!(a.counters().unsolicited, 1);
    assert_eq!(
        refused(a.resolve(peer, ms(4000))).kind,
        FaultKind::Unreachable
    );
}

#[test]
fn a_lost_question_costs_one_wait() {
    for (mut a, mut b, peer) in [
        {
            let (a, b) = v4();
            (a, b, ip("192.168.7.2"))
        },
        {
            let (a, b) = v6();
            (a, b, ip("2001:db8::2"))
        },
    ] {
        let _ = a.resolve(peer, ms(0));
        exchange(&mut a, &mut b, ms(0), &mut || true);
        assert!(a.resolve(peer, ms(100)).is_pending());
        assert_eq!(a.next_deadline(), Some(ms(200)));
        exchange(&mut a, &mut b, ms(200), &mut never);
        assert_eq!(known(a.resolve(peer, ms(200))), MAC_B);
    }
}

proptest! {
    #[test]
    fn any_loss_ends_in_the_mac_or_in_a_failure(losses in proptest::collection::vec(any::<bool>(), 32)) {
        let (mut a, mut b) = v6();
        let peer = ip("2001:db8::2");
        let mut losses = losses.into_iter();
        let mut lost = || losses.next().unwrap_or(false);
        let mut now = ms(0);
        let mut rounds = 0;
        let answer = loop {
            if let Poll::Ready(answer) = a.resolve(peer, now) {
                break answer;
            }
            exchange(&mut a, &mut b, now, &mut lost);
            if let Poll::Ready(answer) = a.resolve(peer, now) {
                break answer;
            }
            now = a.next_deadline().expect("pending has a deadline").max(now);
            rounds += 1;
            prop_assert!(rounds < 8);
        };
        prop_assert!(now <= ms(3200));
        match answer {
            Ok(mac) => prop_assert_eq!(mac, MAC_B),
            Err(fault) => prop_assert_eq!(fault.kind, FaultKind::Unreachable),
        }
    }
}

// ---- the cache ----

#[test]
fn what_was_learned_ages() {
    let (mut a, mut b) = v4();
    let peer = ip("192.168.7.2");
    let _ = a.resolve(peer, ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    let end = Instant::ZERO + LIFETIME;
    assert_eq!(
        known(a.resolve(peer, Instant::from_nanos(end.as_nanos() - 1))),
        MAC_B
    );
    assert!(a.resolve(peer, end).is_pending());
    exchange(&mut a, &mut b, end, &mut never);
    assert_eq!(known(a.resolve(peer, end)), MAC_B);
}

fn answer_from(station: &mut Station, last: u8, now: Instant) {
    let own = Ipv4Addr::new(192, 168, 7, last);
    let reply = arp::reply(
        Tag::new(None).unwrap(),
        [2, 0, 0, 0, 1, last],
        own,
        MAC_A,
        Ipv4Addr::new(192, 168, 7, 1),
    );
    station.receive(&reply.unwrap(), now);
}

fn host(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 168, 7, last))
}

#[test]
fn a_full_cache_forgets_the_one_not_asked_for_longest() {
    let (mut a, _) = v4();
    for last in 10..14 {
        let _ = a.resolve(host(last), ms(u64::from(last)));
        answer_from(&mut a, last, ms(u64::from(last)));
    }
    let _ = a.resolve(host(10), ms(20));
    let _ = a.resolve(host(14), ms(21));
    assert_eq!(a.cache.len(), 4);
    assert_eq!(a.cache.peek(host(11)), None);
    for last in [10, 12, 13] {
        assert!(a.cache.peek(host(last)).is_some(), "{last}");
    }
}

#[test]
fn pending_searches_are_never_evicted() {
    let (mut a, _) = v4();
    for last in 10..14 {
        assert!(a.resolve(host(last), ms(0)).is_pending());
    }
    let fault = refused(a.resolve(host(14), ms(0)));
    assert_eq!(fault.kind, FaultKind::Resources);
    assert_eq!(fault.address, Some(host(14)));
    answer_from(&mut a, 10, ms(1));
    assert!(a.resolve(host(14), ms(1)).is_pending());
}

#[test]
fn strangers_that_ask_push_out_each_other_and_not_our_peers() {
    let (mut a, mut b) = v4();
    for last in [2, 3, 4] {
        let _ = a.resolve(host(last), ms(1));
    }
    while a.transmit(ms(1)).is_some() {}
    for last in [2, 3, 4] {
        answer_from(&mut a, last, ms(1));
    }
    for last in 100..200 {
        b.own[0] = host(last);
        let _ = b.resolve(host(1), ms(2));
        b.cache = Cache::new();
        let _ = b.resolve(host(1), ms(2));
        a.receive(&b.transmit(ms(2)).unwrap(), ms(2));
        while a.transmit(ms(2)).is_some() {}
    }
    for last in [2, 3, 4] {
        assert!(a.cache.peek(host(last)).is_some(), "{last}");
    }
    assert_eq!(a.cache.peek(host(199)), Some(MAC_B));
    assert_eq!(a.cache.len(), 4);
}

// ---- answering, announcing ----

#[test]
fn a_flood_of_questions_is_answered_up_to_a_bound() {
    let (mut a, _) = v4();
    let tag = Tag::new(None).unwrap();
    for last in 100..120 {
        let asker = Ipv4Addr::new(192, 168, 7, last);
        let question = arp::request(
            tag,
            [2, 0, 0, 0, 9, last],
            asker,
            Ipv4Addr::new(192, 168, 7, 1),
        );
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
    let probe = arp::request(Tag::new(None).unwrap(), MAC_X, Ipv4Addr::UNSPECIFIED, own).unwrap();
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
    assert_eq!(
        reply[38..54],
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets()
    );
    assert_eq!(reply[58], 0x20);
}

/// Writes the ICMPv6 checksum of an untagged frame, computed here.
fn seal(frame: &mut [u8]) {
    frame[56..58].fill(0);
    let mut sum = 58 + (frame.len() as u32 - 54);
    for pair in frame[22..].chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let sum = !u16::try_from(sum).unwrap();
    frame[56..58].copy_from_slice(&sum.to_be_bytes());
}

// ---- golden frames ----

#[test]
fn golden_arp_reply() {
    let (mut a, _) = v4();
    let question = hex("ffffffffffff 02000000000b 0806
         0001 0800 06 04 0001  02000000000b c0a80702  000000000000 c0a80701");
    a.receive(&question, ms(0));
    #[rustfmt::skip]
    let golden = hex(
        "02000000000b 02000000000a 0806
         0001 0800 06 04 0002  02000000000a c0a80701  02000000000b c0a80702
         0000 00000000 00000000 00000000 00000000");
    assert_eq!(a.transmit(ms(0)).unwrap().as_slice(), golden);
}

#[test]
fn golden_solicitation_and_advertisement() {
    let (mut a, mut b) = v6();
    let _ = a.resolve(ip("2001:db8::2"), ms(0));
    let question = a.transmit(ms(0)).unwrap();
    let mut golden = hex("3333ff000002 02000000000a 86dd
         60000000 0020 3a ff
         20010db8000000000000000000000001 ff0200000000000000000001ff000002
         87 00 0000 00000000 20010db8000000000000000000000002
         01 01 02000000000a");
    seal(&mut golden);
    assert_eq!(question.as_slice(), golden);
    b.receive(&question, ms(0));
    let answer = b.transmit(ms(0)).unwrap();
    let mut golden = hex("02000000000a 02000000000b 86dd
         60000000 0020 3a ff
         20010db8000000000000000000000002 20010db8000000000000000000000001
         88 00 0000 60000000 20010db8000000000000000000000002
         02 01 02000000000b");
    seal(&mut golden);
    assert_eq!(answer.as_slice(), golden);
}

#[test]
fn golden_vlan_tag() {
    let config = Net {
        vlan: Some(5),
        ..net("192.168.7.1", 24)
    };
    let mut a = quiet(MAC_A, &config);
    let _ = a.resolve(ip("192.168.7.2"), ms(0));
    let question = a.transmit(ms(0)).unwrap();
    let start = hex("ffffffffffff 02000000000a 8100 0005 0806 0001 0800 0604 0001");
    assert_eq!(question[..start.len()], start);
    assert_eq!(question.len(), 64);
}

#[test]
fn no_frame_is_longer_than_the_bound_and_the_bound_is_reached() {
    let config = Net {
        vlan: Some(4094),
        ..net("2001:db8::1", 64)
    };
    let mut a = Station::new(MAC_A, &config, ms(0)).unwrap();
    assert_eq!(a.transmit(ms(0)).unwrap().len(), FRAME);
}

// ---- VLANs ----

#[test]
fn only_the_own_vlan_is_heard() {
    let on = |vlan| Net {
        vlan,
        ..net("192.168.7.1", 24)
    };
    let peer = |vlan| Net {
        vlan,
        ..net("192.168.7.2", 24)
    };
    for (ours, theirs, heard) in [
        (Some(5), Some(5), true),
        (Some(5), Some(6), false),
        (Some(5), None, false),
        (None, Some(5), false),
        (None, None, true),
    ] {
        let (mut a, mut b) = pair(&on(ours), &peer(theirs));
        let _ = a.resolve(ip("192.168.7.2"), ms(0));
        exchange(&mut a, &mut b, ms(0), &mut never);
        assert_eq!(
            a.resolve(ip("192.168.7.2"), ms(0)).is_ready(),
            heard,
            "{ours:?} {theirs:?}"
        );
        assert_eq!(b.counters().ignored, u32::from(!heard));
    }
}

#[test]
fn a_priority_tag_is_no_vlan_and_priority_bits_do_not_hide_one() {
    let tagged = |tci: [u8; 2]| {
        let mut frame = hex("ffffffffffff 02000000000b 8100 0000 0806
             0001 0800 06 04 0001  02000000000b c0a80702  000000000000 c0a80701");
        frame[14..16].copy_from_slice(&tci);
        frame
    };
    let (mut a, _) = v4();
    a.receive(&tagged([0xe0, 0]), ms(0));
    assert_eq!(a.counters().answered, 1);
    let mut a = quiet(
        MAC_A,
        &Net {
            vlan: Some(0x123),
            ..net("192.168.7.1", 24)
        },
    );
    a.receive(&tagged([0xb1, 0x23]), ms(0));
    assert_eq!(a.counters().answered, 1);
    let reply = a.transmit(ms(0)).unwrap();
    assert_eq!(reply[12..16], [0x81, 0, 0x01, 0x23]);
}

#[test]
fn ipv6_works_on_a_vlan() {
    let vlan = Some(100);
    let (mut a, mut b) = pair(
        &Net {
            vlan,
            ..net("2001:db8::1", 64)
        },
        &Net {
            vlan,
            ..net("2001:db8::2", 64)
        },
    );
    let _ = a.resolve(ip("2001:db8::2"), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert_eq!(known(a.resolve(ip("2001:db8::2"), ms(0))), MAC_B);
}

// ---- what means harm ----

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
    assert_eq!(
        a.counters(),
        &Counters {
            ignored: 1,
            ..Counters::default()
        }
    );
}

#[test]
fn strangers_off_the_link_are_answered_and_not_learned() {
    let (mut a, _) = v4();
    let own = Ipv4Addr::new(192, 168, 7, 1);
    let question = arp::request(
        Tag::new(None).unwrap(),
        MAC_X,
        Ipv4Addr::new(10, 9, 8, 7),
        own,
    )
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
    let (a, frame) = advertisement();
    let config = net("2001:db8::1", 64);
    for len in 0..frame.len() {
        let mut a = Station {
            cache: Cache::new(),
            ..quiet(MAC_A, &config)
        };
        let _ = a.resolve(ip("2001:db8::2"), ms(0));
        a.receive(&frame[..len], ms(0));
        assert!(a.resolve(ip("2001:db8::2"), ms(0)).is_pending(), "{len}");
    }
    drop(a);
}

#[test]
fn a_solicitation_without_option_is_answered_only_if_sent_to_us_alone() {
    let own: Ipv6Addr = "2001:db8::1".parse().unwrap();
    for (to_mac, to, answered) in [
        (MAC_A, own, true),
        ([0x33, 0x33, 0xff, 0, 0, 1], nd::solicited_node(own), false),
    ] {
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
    assert_eq!(
        a.counters(),
        &Counters {
            ignored: 3,
            ..Counters::default()
        }
    );
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
    // Neighbor Discovery with a good checksum over whatever follows, so that the options are reached.
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

// ---- setting up ----

#[test]
fn settings_that_cannot_work_are_refused() {
    let good = net("192.168.7.1", 24);
    let cases = [
        ([1, 0, 0, 0, 0, 1], good),
        ([0; 6], good),
        (MAC_A, net("192.168.7.1", 33)),
        (MAC_A, net("2001:db8::1", 129)),
        (MAC_A, net("192.168.7.255", 24)),
        (MAC_A, net("224.0.0.5", 24)),
        (MAC_A, net("ff02::1", 64)),
        (MAC_A, net("::", 64)),
        (MAC_A, net("::ffff:192.168.7.1", 120)),
        (
            MAC_A,
            Net {
                vlan: Some(0),
                ..good
            },
        ),
        (
            MAC_A,
            Net {
                vlan: Some(4095),
                ..good
            },
        ),
        (
            MAC_A,
            Net {
                gateway: Some(ip("10.0.0.1")),
                ..good
            },
        ),
        (
            MAC_A,
            Net {
                gateway: Some(ip("192.168.7.1")),
                ..good
            },
        ),
        (
            MAC_A,
            Net {
                gateway: Some(ip("fe80::1")),
                ..good
            },
        ),
        (
            MAC_A,
            Net {
                gateway: Some(ip("192.168.7.255")),
                ..good
            },
        ),
    ];
    for (mac, net) in cases {
        let fault = Station::new(mac, &net, ms(0)).unwrap_err();
        assert_eq!(fault.kind, FaultKind::BadParameter, "{net:?}");
        assert_eq!(fault.address, Some(net.addr));
    }
    assert!(Station::new(MAC_A, &good, ms(0)).is_ok());
}

#[test]
fn the_port_is_told_which_groups_to_receive() {
    let (a, _) = v4();
    assert_eq!(a.groups(), [[0xff; 6]]);
    let (a, _) = v6();
    assert_eq!(
        a.groups(),
        [
            [0x33, 0x33, 0, 0, 0, 1],
            [0x33, 0x33, 0xff, 0, 0, 0x01],
            [0x33, 0x33, 0xff, 0, 0, 0x0a],
        ]
    );
    let shared = quiet(MAC_A, &net("2001:db8::ff:fe00:a", 64));
    assert_eq!(shared.groups().len(), 2, "both addresses end alike");
}

#[test]
fn the_schedule_ends_within_the_connect_timeouts_in_use() {
    let whole: Duration = WAITS.iter().sum();
    assert_eq!(whole, Duration::from_millis(3200));
}
