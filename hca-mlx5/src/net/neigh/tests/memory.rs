//! Which entries the cache keeps, and which it drops.

use super::*;
use dat_core::provider::FaultKind;

#[test]
fn learned_entries_age() {
    let (mut a, mut b) = v4();
    let peer = ip("192.168.7.2");
    let _ = a.resolve(peer, ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    let end = Instant::ZERO + LIFETIME;
    assert_eq!(known(a.resolve(peer, Instant::from_nanos(end.as_nanos() - 1))), MAC_B);
    assert!(a.resolve(peer, end).is_pending());
    exchange(&mut a, &mut b, end, &mut never);
    assert_eq!(known(a.resolve(peer, end)), MAC_B);
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
    let mut a = Neighbours::<8>::new(MAC_A, &net("192.168.7.1", 24), ms(0)).unwrap();
    for last in 10..14 {
        assert!(a.resolve(host(last), ms(0)).is_pending());
    }
    let fault = refused(a.resolve(host(14), ms(0)));
    assert_eq!(fault.kind, FaultKind::Resources);
    assert_eq!(fault.host, Some(host(14)));
    let tag = Tag::new(None).unwrap();
    let (own, to) = (Ipv4Addr::new(192, 168, 7, 10), Ipv4Addr::new(192, 168, 7, 1));
    a.receive(&arp::reply(tag, MAC_B, own, MAC_A, to).unwrap(), ms(1));
    assert!(a.resolve(host(14), ms(1)).is_pending());
}

#[test]
fn unknown_hosts_that_ask_replace_each_other_and_not_our_peers() {
    let (mut a, mut b) = v4();
    for last in [2, 3, 4] {
        let _ = a.resolve(host(last), ms(1));
        while a.transmit(ms(1)).is_some() {}
        answer_from(&mut a, last, ms(1));
    }
    for last in 100..200 {
        b.own[0] = host(last).into();
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
