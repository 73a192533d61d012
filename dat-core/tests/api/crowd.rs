//! How much one drive sends when many have something to say.

use core::time::Duration;

use crate::pair::*;
use dat_core::provider::Net;
use dat_core::testing::{Fabric, LoopHca};
use dat_core::*;

/// Look-ups that one Endpoint may have under way in an adapter with so many places for Endpoints.
const QUESTIONS: usize = 300;
/// Datagrams that wait for room in the device outside of the connection manager.
const WAITING: u64 = 1;
/// Datagrams that one drive sends.
const DRIVE: u64 = 256;

#[test]
fn one_drive_sends_256_datagrams_and_the_next_the_others() {
    let fabric: &'static Fabric = Box::leak(Box::new(Fabric::new()));
    let _peer = Side::new(fabric, 1, Merge::Apart, None);
    let storage: &'static mut Storage<_, QUESTIONS, 8, 8, 32, 64> =
        Box::leak(Box::new(Storage::new()));
    let net = Net::new(addr(0), 24);
    let now = Instant::from_nanos(1);
    let hca: LoopHca<'static> = LoopHca::using(fabric, 0);
    let mut ia = Ia::open(hca, storage.parts(), net, now, [1; 32]).unwrap();
    let pz = ia.pz_create().unwrap();
    let evd = ia.evd_create(32, EvdFlags::DTO).unwrap();
    let conn = ia.evd_create(8, EvdFlags::CONNECTION).unwrap();
    let ep = ia.ep_create_ud(pz, evd, evd, Some(conn), None, 7).unwrap();
    fabric.crowd(true);
    for _ in 0..QUESTIONS {
        let second = Duration::from_secs(1);
        ia.ep_connect(now, ep, addr(1), PORT, second, b"", Qos::BestEffort).unwrap();
    }
    assert_eq!(ia.cm_counters().sent, WAITING);
    fabric.crowd(false);
    assert!(ia.advance(now).work);
    assert_eq!(ia.cm_counters().sent, DRIVE);
    assert!(ia.advance(now).work);
    assert_eq!(ia.cm_counters().sent, QUESTIONS as u64);
    assert!(!ia.advance(now).work);
}
