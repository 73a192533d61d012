//! Tests of the small crate.

use specimen::Queue;

#[test]
fn a_queue_takes_three() {
    let mut queue = Queue::default();
    assert!(queue.push() && !queue.is_full());
    assert!(queue.push() && queue.push());
    assert!(queue.is_full());
    assert!(!queue.push() && queue.is_full());
}

#[test]
fn a_drained_queue_is_empty() {
    let mut queue = Queue::default();
    assert!(queue.push());
    assert_eq!([queue.drain(), queue.drain()], [1, 0]);
}
