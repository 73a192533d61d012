//! Searches for hosts that asked us: few, the oldest gives way, and none replaces what is in use.

use super::*;
use dat_core::provider::FaultKind;

/// A station with room for `N` neighbours.
fn station<const N: usize>() -> Neighbours<N> {
    let mut station = Neighbours::new(MAC_A, &net("192.168.7.1", 24), ms(0)).unwrap();
    station.announcement = None;
    station
}

/// Whether the search for that host is under way: its answer is believed.
fn is_searched<const N: usize>(a: &mut Neighbours<N>, last: u8, now: Instant) -> bool {
    let before = a.counters().accepted;
    answer(a, last, now);
    a.counters().accepted > before
}

fn answer<const N: usize>(a: &mut Neighbours<N>, last: u8, now: Instant) {
    let own = Ipv4Addr::new(192, 168, 7, last);
    let to = Ipv4Addr::new(192, 168, 7, 1);
    let mac = [2, 0, 0, 0, 1, last];
    a.receive(&arp::reply(Tag::new(None).unwrap(), mac, own, MAC_A, to).unwrap(), now);
}

/// Looks it up for this side and lets it answer.
fn know<const N: usize>(a: &mut Neighbours<N>, last: u8, now: Instant) {
    assert!(a.resolve(host(last), now).is_pending(), "{last}");
    answer(a, last, now);
    assert!(a.resolve(host(last), now).is_ready(), "{last}");
}

fn asked<const N: usize>(a: &mut Neighbours<N>, last: u8, now: Instant) -> bool {
    a.resolve_asker(host(last), now).is_pending()
}

#[test]
fn a_quarter_of_the_cache_is_for_askers_and_the_oldest_gives_way() {
    let mut a = station::<8>();
    for (last, at) in [(2, 0), (3, 1)] {
        assert!(asked(&mut a, last, ms(at)));
    }
    assert_eq!(a.cache.len(), 2);
    // Another call about the oldest does not make it younger.
    assert!(asked(&mut a, 2, ms(2)));
    assert!(asked(&mut a, 4, ms(3)));
    assert_eq!(a.cache.len(), 2);
    let searched = [2, 3, 4].map(|last| is_searched(&mut a, last, ms(4)));
    assert_eq!(searched, [false, true, true]);
}

#[test]
fn a_search_that_this_side_wants_too_gives_way_to_no_asker() {
    let mut a = station::<8>();
    for last in [2, 3] {
        assert!(asked(&mut a, last, ms(0)));
    }
    assert!(a.resolve(host(2), ms(1)).is_pending());
    for last in 4..9 {
        assert!(asked(&mut a, last, ms(2)));
    }
    assert!(is_searched(&mut a, 2, ms(3)));
    assert!(!is_searched(&mut a, 3, ms(3)));
}

#[test]
fn searches_of_this_side_and_of_askers_do_not_count_for_each_other() {
    let mut a = station::<4>();
    assert!(a.resolve(host(2), ms(0)).is_pending());
    assert!(asked(&mut a, 3, ms(1)));
    assert!(a.resolve(host(4), ms(2)).is_pending(), "half of the cache");
    let fault = refused(a.resolve(host(5), ms(2)));
    assert_eq!(fault.kind, FaultKind::Resources);
    // The next asker takes the place of the first, though there is room and there are older ones.
    assert!(asked(&mut a, 6, ms(3)));
    assert_eq!(a.cache.len(), 3);
    let searched = [2, 3, 4, 6].map(|last| is_searched(&mut a, last, ms(4)));
    assert_eq!(searched, [true, false, true, true]);
}

#[test]
fn an_asker_that_was_found_is_no_search_any_more() {
    let mut a = station::<4>();
    assert!(asked(&mut a, 2, ms(0)));
    answer(&mut a, 2, ms(0));
    assert!(asked(&mut a, 3, ms(1)), "room for the next");
    assert_eq!(a.cache.peek(host(2)), Some([2, 0, 0, 0, 1, 2]));
    // Not even while its known MAC is asked again.
    let late = ms(1) + LIFETIME;
    assert!(asked(&mut a, 2, late));
    assert!(asked(&mut a, 4, late));
    assert_eq!(a.cache.peek(host(2)), Some([2, 0, 0, 0, 1, 2]));
    assert!(is_searched(&mut a, 4, late));
    assert!(!is_searched(&mut a, 3, late));
}

#[test]
fn in_a_full_cache_an_asker_waits_until_a_neighbour_is_out_of_use() {
    let mut a = station::<4>();
    for (last, at) in [(3, 1), (2, 0), (4, 2), (5, 3)] {
        know(&mut a, last, ms(at));
    }
    for now in [4, 999] {
        let fault = refused(a.resolve_asker(host(9), ms(now)));
        assert_eq!((fault.kind, fault.host), (FaultKind::Resources, Some(host(9))));
    }
    assert!(asked(&mut a, 9, ms(1000)), "a second after the first was asked for");
    assert_eq!(a.cache.peek(host(2)), None);
    // Its search is the one that gives way, though others are out of use by now.
    assert!(asked(&mut a, 10, ms(5000)));
    for last in [3, 4, 5] {
        assert!(a.cache.peek(host(last)).is_some(), "{last}");
    }
}

#[test]
fn an_asker_replaces_a_failure_first_and_no_search_of_this_side() {
    let mut a = station::<4>();
    know(&mut a, 2, ms(0));
    know(&mut a, 3, ms(0));
    for last in [4, 5] {
        assert!(a.resolve(host(last), ms(0)).is_pending());
    }
    // Two are in use, two are searched.
    assert!(refused(a.resolve_asker(host(9), ms(1))).kind == FaultKind::Resources);
    // One search ends in vain.
    let mut now = ms(1);
    answer(&mut a, 5, now);
    for wait in WAITS {
        while a.transmit(now).is_some() {}
        now = now + wait;
    }
    assert!(a.transmit(now).is_none());
    assert_eq!(a.counters().failed, 1);
    assert!(asked(&mut a, 9, now));
    for last in [2, 3, 5] {
        assert!(a.cache.peek(host(last)).is_some(), "{last}");
    }
    assert!(is_searched(&mut a, 9, now));
}

#[test]
fn an_asker_keeps_a_neighbour_in_use() {
    let mut a = station::<4>();
    for last in [2, 3, 4, 5] {
        know(&mut a, last, ms(0));
    }
    // Two have a connection to accept from.
    for last in [2, 3] {
        assert!(a.resolve_asker(host(last), ms(1500)).is_ready());
    }
    assert!(asked(&mut a, 9, ms(1600)));
    for last in [2, 3] {
        assert!(a.cache.peek(host(last)).is_some(), "{last}");
    }
}

#[test]
fn a_failure_that_is_asked_for_anew_costs_no_other_neighbour() {
    let mut a = station::<8>();
    know(&mut a, 2, ms(0));
    assert!(a.resolve(host(3), ms(0)).is_pending());
    let mut now = ms(0);
    for wait in WAITS {
        while a.transmit(now).is_some() {}
        now = now + wait;
    }
    assert!(a.transmit(now).is_none());
    assert_eq!(refused(a.resolve(host(3), now)).kind, FaultKind::Unreachable);
    let later = now + Duration::from_secs(1);
    assert!(a.resolve(host(3), later).is_pending());
    assert!(a.cache.peek(host(2)).is_some());
    assert_eq!(a.cache.len(), 2);
}
