//! How long a connection manager waits for a peer and remembers what it said.

use core::time::Duration;

use dat_core::Instant;
use dat_core::cm::wire::Req;
use dat_core::cm::{Cm, CmEvent, Config, Reason, Slot, code_time};

use crate::pair::*;

/// The REQ of a peer that says within what time it answers.
fn answers_within(code: u8) -> [u8; 256] {
    let mut pair = Pair::new();
    pair.connect(QPN_A);
    pair.turn();
    let mut mad = pair.log[0].mad;
    Req::new_unchecked(&mut mad).set_local_response_timeout(code);
    mad
}

#[test]
fn a_millisecond_is_granted_at_least() {
    // The peer claims the shortest time, or more than the configuration grants.
    for (longest_response, code) in [(0, 0), (8, 0), (21, 0), (0, 31), (8, 9)] {
        let mut slots = vec![Slot::new(); 1];
        let config = Config { longest_response, ..Config::new(GUIDS[B]) };
        let mut cm: Cm<'_> = Cm::new(&mut slots, config, random(1));
        let now = Instant::from_nanos(1);
        cm.input(now, v4(1), &answers_within(code));
        let Some(CmEvent::Request(request)) = cm.poll_event() else { panic!() };
        cm.accept(now, request.conn, &Pair::accept_params()).unwrap();
        assert!(cm.poll_transmit(now).is_some());
        assert_eq!(cm.next_deadline(), Some(now + code_time(8)));
        cm.advance(now + code_time(8));
        assert!(cm.poll_transmit(now + code_time(8)).is_some());
    }
}

#[test]
fn a_rej_is_remembered_for_two_intervals() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    pair.connect(QPN_A);
    pair.exchange();
    let (now, b) = (pair.now, pair.request().conn);
    let cm = &mut pair.nodes[B].cm;
    cm.reject(now, b, Reason::CONSUMER, &[], b"").unwrap();
    let span = Config::new(0).request_interval() * 2;
    assert_eq!(cm.next_deadline(), Some(now + span));
    assert!(cm.poll_transmit(now).is_some());
    cm.advance(now + (span - Duration::from_nanos(1)));
    assert_eq!(cm.vacant_slots(), 7);
    cm.advance(now + span);
    assert_eq!(cm.vacant_slots(), 8);
}
