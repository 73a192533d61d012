//! Asking again, and giving up.

use super::*;
use dat_core::provider::FaultKind;

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
fn what_aged_is_asked_alone_three_times_and_then_everywhere_four() {
    let (mut a, mut b) = v4();
    let _ = a.resolve(host(2), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    let mut now = ms(0) + LIFETIME;
    assert!(a.resolve(host(2), now).is_pending());
    let mut asked = Vec::new();
    for wait in PROBES.into_iter().chain(WAITS) {
        let frame = a.transmit(now).unwrap();
        asked.push(frame[0] == 0xff);
        assert!(a.transmit(now).is_none());
        now = now + wait;
    }
    assert_eq!(asked, [false, false, false, true, true, true, true]);
    assert!(a.transmit(now).is_none());
    assert_eq!(refused(a.resolve(host(2), now)).kind, FaultKind::Unreachable);
}

#[test]
fn a_silent_gateway_is_named_as_such() {
    let config = Net { gateway: Some(ip("2001:db8::fe")), ..net("2001:db8::1", 64) };
    let mut a = announced(MAC_A, &config);
    let remote = ip("2001:db8:9::1");
    let _ = a.resolve(remote, ms(0));
    for now in [0, 200, 1200, 2200, 3200] {
        while a.transmit(ms(now)).is_some() {}
    }
    let fault = refused(a.resolve(remote, ms(3200)));
    let words = "2001:db8::fe: neighbour discovery: the gateway did not";
    assert!(fault.to_string().starts_with(words), "{fault}");
}

#[test]
fn resolving_fails_at_the_last_deadline_itself() {
    let (mut a, _) = v4();
    let peer = ip("192.168.7.2");
    let _ = a.resolve(peer, ms(0));
    for now in [0, 200, 1200, 2200] {
        assert!(a.transmit(ms(now)).is_some());
    }
    assert!(a.resolve(peer, ms(3199)).is_pending());
    assert_eq!(refused(a.resolve(peer, ms(3200))).kind, FaultKind::Unreachable);
}

#[test]
fn a_failure_is_reported_late_and_to_several_and_then_forgotten() {
    let (mut a, _) = v4();
    let peer = ip("192.168.7.2");
    let _ = a.resolve(peer, ms(0));
    for now in [0, 200, 1200, 2200, 3200] {
        while a.transmit(ms(now)).is_some() {}
    }
    assert_eq!(a.next_deadline(), None);
    for now in [60_000, 60_000, 60_999] {
        assert_eq!(refused(a.resolve(peer, ms(now))).kind, FaultKind::Unreachable);
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
    assert_eq!(refused(a.resolve(peer, ms(4000))).kind, FaultKind::Unreachable);
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

/// While the link was down nobody could answer.
#[test]
fn a_link_that_comes_back_begins_searches_anew() {
    let (mut a, mut b) = v4();
    let mut now = ms(0);
    assert!(a.resolve(host(2), now).is_pending());
    assert!(a.resolve(host(3), now).is_pending());
    // One fails and has been reported; the other was asked for four times.
    while let Some(deadline) = a.next_deadline() {
        now = deadline.max(now);
        while a.transmit(now).is_some() {}
    }
    assert_eq!(refused(a.resolve(host(2), now)).host, Some(host(2)));
    a.link_up(now);
    assert!(a.resolve(host(2), now).is_pending());
    exchange(&mut a, &mut b, now, &mut never);
    assert_eq!(known(a.resolve(host(2), now)), MAC_B);
    assert!(a.resolve(host(3), now).is_pending(), "its failure, of which nobody knows, is past");
}
