//! Random schedules of loss, duplication and delay.

use core::time::Duration;

use dat_core::cm::{CmEvent, ConnId, Reason};
use proptest::prelude::*;

use crate::pair::*;

/// Fate of the nth datagram: at most a quarter is lost, less than any message has retries.
fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Deliver),
        2 => Just(Fate::Lose),
        1 => (0_u64..9000).prop_map(|ms| Fate::Twice(Duration::from_millis(ms))),
        1 => (0_u64..3000).prop_map(|ms| Fate::Late(Duration::from_millis(ms))),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Plan {
    /// One side ends it, or both at once.
    Disconnect(bool, bool),
    /// The consumer of B rejects.
    Reject,
    /// A gives up after so many milliseconds.
    Abort(u64),
}

fn plan() -> impl Strategy<Value = Plan> {
    prop_oneof![
        3 => Just(Plan::Disconnect(true, false)),
        2 => Just(Plan::Disconnect(false, true)),
        2 => Just(Plan::Disconnect(true, true)),
        2 => Just(Plan::Reject),
        2 => (0_u64..12_000).prop_map(Plan::Abort),
    ]
}

fn count(events: &[CmEvent], what: fn(&CmEvent) -> bool) -> usize {
    events.iter().filter(|event| what(event)).count()
}

fn is_end(event: &CmEvent) -> bool {
    matches!(
        event,
        CmEvent::Rejected { .. } | CmEvent::Unreachable { .. } | CmEvent::Disconnected { .. }
    )
}

fn is_established(event: &CmEvent) -> bool {
    matches!(event, CmEvent::Established { .. })
}

fn is_disconnected(event: &CmEvent) -> bool {
    matches!(event, CmEvent::Disconnected { .. })
}

/// One connection through `plan` over a link that treats its first datagrams as `fates` say.
fn run(plan: Plan, fates: Vec<Fate>, slots: usize) -> Result<(), TestCaseError> {
    let mut pair = Pair::with(slots, slots, [v4(1), v4(2)]);
    let mut fates = fates.into_iter();
    pair.link(move |_| fates.next().unwrap_or(Fate::Deliver));
    if matches!(plan, Plan::Reject) {
        pair.nodes[B].consumer = Consumer::Unwilling(Reason::CONSUMER);
    }
    let a = pair.connect(QPN_A);
    // Both sides of the connection, once B knows of it.
    let find_b = |pair: &Pair| pair.nodes[B].events.iter().map(CmEvent::conn).next();
    match plan {
        Plan::Abort(after) => {
            pair.run(Duration::from_millis(after));
            pair.nodes[A].cm.abort(pair.now, a);
        }
        Plan::Disconnect(by_a, by_b) => {
            pair.run(Duration::from_secs(100));
            let b = find_b(&pair);
            prop_assert_eq!(&pair.nodes[A].ready, &[a]);
            let b = b.unwrap();
            prop_assert_eq!(count(&pair.events_of(B, b), is_established), 1);
            if by_a {
                pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
            }
            if by_b {
                pair.nodes[B].cm.disconnect(pair.now, b).unwrap();
            }
        }
        Plan::Reject => {}
    }
    pair.run(Duration::from_secs(300));
    verdicts(&pair, plan, a)?;
    pair.no_leaks(slots);
    Ok(())
}

fn verdicts(pair: &Pair, plan: Plan, a: ConnId) -> Result<(), TestCaseError> {
    for who in [A, B] {
        for conn in pair.nodes[who].events.iter().map(CmEvent::conn) {
            let events = pair.events_of(who, conn);
            prop_assert!(count(&events, is_established) <= 1, "{:?}", events);
            prop_assert!(count(&events, is_end) <= 1, "{:?}", events);
            prop_assert!(!events.iter().rev().skip(1).any(is_end), "{:?}", events);
        }
    }
    let of_a = pair.events_of(A, a);
    match plan {
        Plan::Disconnect(..) => {
            prop_assert_eq!(count(&of_a, is_disconnected), 1);
            let ends = pair.nodes[B].events.iter().filter(|event| is_disconnected(event)).count();
            prop_assert_eq!(ends, 1);
        }
        Plan::Reject => {
            prop_assert_eq!(of_a, [CmEvent::Rejected { conn: a, reason: Reason::CONSUMER }]);
            prop_assert!(pair.nodes[A].ready.is_empty());
            prop_assert!(!pair.nodes[B].events.iter().any(is_established));
        }
        Plan::Abort(_) => {
            // A got no event after it. If B got the request, it got the end.
            prop_assert_eq!(count(&of_a, is_end), 0);
            for conn in pair.nodes[B].events.iter().map(CmEvent::conn) {
                prop_assert_eq!(
                    count(&pair.events_of(B, conn), is_end),
                    1,
                    "{:?}",
                    pair.events_of(B, conn)
                );
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn both_sides_come_to_the_same_verdict(
        plan in plan(),
        fates in proptest::collection::vec(fate(), 0..14),
        slots in 1_usize..4,
    ) {
        run(plan, fates, slots)?;
    }

    #[test]
    fn many_connections_share_a_bad_link(
        fates in proptest::collection::vec(fate(), 0..60),
        stagger in 0_u64..3000,
    ) {
        let mut pair = Pair::with(16, 16, [v4(1), v4(2)]);
        let mut fates = fates.into_iter();
        pair.link(move |_| fates.next().unwrap_or(Fate::Deliver));
        for n in 0..8 {
            pair.connect(100 + n);
            pair.run(Duration::from_millis(stagger));
        }
        pair.run(Duration::from_secs(200));
        prop_assert_eq!(pair.nodes[A].ready.len(), 8);
        for conn in pair.nodes[A].ready.clone() {
            pair.nodes[A].cm.disconnect(pair.now, conn).unwrap();
        }
        pair.run(Duration::from_secs(300));
        for who in [A, B] {
            let ends = pair.nodes[who].events.iter().filter(|event| is_disconnected(event)).count();
            prop_assert_eq!(ends, 8);
        }
        pair.no_leaks(16);
    }
}
