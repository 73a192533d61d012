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

/// Those who asked us and are not there leave room for one more, and for what this side wants.
#[test]
fn of_askers_where_nobody_is_the_oldest_gives_way() {
    let mut a = Neighbours::<8>::new(MAC_A, &net("192.168.7.1", 24), ms(0)).unwrap();
    let mut asked = |at, last| {
        assert!(a.resolve_asker(host(last), ms(at)).is_pending());
        a.cache.len()
    };
    assert_eq!([asked(0, 10), asked(1, 11), asked(2, 12), asked(3, 13)], [1, 2, 2, 2]);
    // Both failed: 12 and 13. Then 14 and 15 ask, and 12 once more.
    for at in 0..10 {
        while a.transmit(ms(1000 * at)).is_some() {}
    }
    for last in [12, 13] {
        assert_eq!(refused(a.resolve_asker(host(last), ms(9_000))).host, Some(host(last)));
    }
    for last in [14, 15, 12] {
        assert!(a.resolve_asker(host(last), ms(20_000)).is_pending(), "{last}");
    }
    // 14 gave way to 12: it is no failure, and begins anew.
    assert_eq!(a.cache.peek(host(14)), None);
    assert!(a.resolve_asker(host(14), ms(20_001)).is_pending());
    for last in 20..24 {
        assert!(a.resolve(host(last), ms(20_002)).is_pending(), "{last}");
    }
}

/// What was learned of hosts that nobody asked for takes half of the room at most.
#[test]
fn of_hints_the_oldest_gives_way() {
    let mut a = Neighbours::<8>::new(MAC_A, &net("192.168.7.1", 24), ms(0)).unwrap();
    let own = Ipv4Addr::new(192, 168, 7, 1);
    for last in 10..20 {
        let from = Ipv4Addr::new(192, 168, 7, last);
        let question = arp::request(Tag::new(None).unwrap(), MAC_X, from, own, None).unwrap();
        a.receive(&question, ms(u64::from(last)));
        while a.transmit(ms(u64::from(last))).is_some() {}
    }
    assert_eq!(a.cache.len(), 4);
    let kept = (10..20).filter(|last| a.cache.peek(host(*last)).is_some());
    assert_eq!(kept.collect::<Vec<_>>(), [16, 17, 18, 19]);
    // One that is asked for is a neighbour from then on, and stays.
    assert_eq!(known(a.resolve(host(16), ms(30))), MAC_X);
    for last in 30..40 {
        let from = Ipv4Addr::new(192, 168, 7, last);
        a.receive(&arp::request(Tag::new(None).unwrap(), MAC_X, from, own, None).unwrap(), ms(31));
    }
    assert_eq!(a.cache.peek(host(16)), Some(MAC_X));
    assert_eq!(a.cache.len(), 5);
}
