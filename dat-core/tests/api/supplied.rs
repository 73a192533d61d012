//! An adapter whose sizes are known when the program runs: how much memory it asks for, and that it
//! works with it.

#![expect(clippy::unwrap_used, reason = "a test")]

use core::any::type_name;

use crate::pair::*;
use dat_core::provider::Net;
use dat_core::testing::{Fabric, LoopHca};
use dat_core::*;

/// Memory of the heap, and what was asked for: the type and the number of values.
#[derive(Default)]
struct Heap(Vec<(&'static str, usize)>);

impl Supply<'static> for Heap {
    fn slice<T>(&mut self, len: usize, new: fn() -> T) -> &'static mut [T] {
        self.0.push((type_name::<T>(), len));
        Box::leak((0..len).map(|_| new()).collect())
    }
}

const SIZES: Sizes = Sizes { eps: 3, evds: 8, lmrs: 8, dtos: 32, events: 64, srqs: 1 };

fn supplied(fabric: &'static Fabric, port: u8, heap: &mut Heap) -> LoopIa {
    let net = Net::new(addr(port), 24);
    let hca: LoopHca<'static> = LoopHca::using(fabric, usize::from(port));
    let parts = Parts::supplied(heap, &SIZES).unwrap();
    Ia::open(hca, parts, net, Instant::ZERO, [77 + port; 32]).unwrap()
}

#[test]
fn supplied_memory_is_enough_and_not_more() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let mut heap = Heap::default();
    p.a = Side::on(supplied(p.fabric, 0, &mut heap), p.fabric, 0, Merge::Apart, None);
    let asked = |name: &str| {
        let of = |(of, _): &&(&str, usize)| of.ends_with(name);
        heap.0.iter().filter(of).map(|(_, len)| len).sum::<usize>()
    };
    // A connection for each Endpoint, and one that is over.
    assert_eq!((asked("cm::slot::Slot"), asked("::Owner")), (6, 6));
    // One more stands for none.
    assert_eq!((asked("EpShared"), asked("EvdShared")), (4, 8));
    assert_eq!((asked("RequestSlot"), asked("EventSlot")), (96, 512));
    p.connect();
    for cookie in 0..40 {
        p.b.post_recv(cookie).unwrap();
        p.a.send(cookie, FLAGS).unwrap();
        assert_eq!(p.a.drain(p.a.request).len(), 1);
        assert_eq!(p.b.drain(p.b.recv).len(), 1);
    }
    // Windows are found by their keys.
    for _ in 0..8 {
        let rmr = p.a.ia.rmr_create(p.a.pz).unwrap();
        let lmr = p.a.seg(0, 64);
        p.a.ia.rmr_bind(rmr, &lmr, MemPriv::REMOTE, p.a.ep, 5, FLAGS).unwrap();
        assert_eq!(p.a.drain(p.a.request).len(), 1);
    }
}
