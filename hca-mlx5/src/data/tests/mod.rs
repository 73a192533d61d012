//! The data path against recorded stores, the bytes of the open stacks, and the raw entries of real
//! cards.

mod compressed;
mod cq;
mod inline;
mod recv;
mod send;
mod shared;
mod width;

use super::ring::{Record, Ring};
use crate::platform::Platform;

/// The ends may go to other threads whenever the platform may be shared by them.
#[expect(dead_code, reason = "checked by the compiler, never run")]
fn ends_are_send<'p, P: Platform + Sync + 'p>()
where
    P::Probe: Sync,
{
    fn is_send<T: Send>() {}
    is_send::<super::Sq<'p, P>>();
    is_send::<super::Rq<'p, P>>();
    is_send::<super::Cq<'p, P>>();
    is_send::<super::Shared<'p, P>>();
}

#[test]
fn slots_wrap_and_laps_alternate() {
    let ring = Ring::new(0x1000, 2);
    assert_eq!(ring.slots(), 4);
    assert_eq!(ring.slot(0, 6), 0x1000);
    assert_eq!(ring.slot(3, 6), 0x10c0);
    assert_eq!(ring.slot(4, 6), 0x1000);
    assert_eq!(ring.slot(u32::MAX, 6), 0x10c0);
    assert_eq!([3, 4, 7, 8].map(|i| ring.lap(i)), [false, true, true, false]);
    assert!(ring.lap(u32::MAX));
}

#[test]
fn a_ring_of_one_slot_changes_lap_each_time() {
    let ring = Ring::new(0, 0);
    assert_eq!((ring.slots(), ring.slot(5, 6)), (1, 0));
    assert_eq!([0, 1, 2].map(|i| ring.lap(i)), [false, true, false]);
}

#[test]
fn the_record_is_two_dwords() {
    for at in [0x80, 0x88] {
        let record = Record(at);
        assert_eq!((record.first(), record.second()), (at, at + 4));
    }
}
