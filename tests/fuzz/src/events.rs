//! Entries of event queues: events of every kind, about objects that exist and that do not, and any
//! bytes, in all queues of the driver.
//!
//! Each call returns after bounded work, and reports no more events than there were.

use arbitrary::{Arbitrary, Unstructured};
use dat_core::provider::Provider;
use dat_tests::bringup::{Driver, net, patience, small_queue_pair};
use dat_tests::host::inproc::Slot;
use dat_tests::host::watched::Watched;
use mlx5_model::{Event, Wrote};

use crate::input::{Patch, patch, steps};
use crate::world::rig;

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Step {
    /// An event of some kind with a number where most kinds have one.
    Known {
        queue: u8,
        kind: u8,
        sub: u8,
        number: u8,
        place: u8,
    },
    /// Any data.
    Any {
        queue: u8,
        kind: u8,
        sub: u8,
        data: [u8; 28],
    },
    /// The next entries that the device writes are changed so.
    Garble {
        patches: [Option<Patch>; 3],
    },
    /// Many of one kind.
    Flood {
        queue: u8,
        kind: u8,
        count: u8,
    },
    Service,
    Pass {
        millis: u8,
    },
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let rig = rig();
    let host = Watched::new(&rig.slot);
    let Ok(mut driver) = Driver::open(&host, &patience()) else { panic!("the card does not open") };
    driver.set_net(&net(), rig.now()).unwrap();
    let pd = driver.pd_create().unwrap();
    let (cq, _cq_end) = driver.cq_create(64).unwrap();
    let _made = driver.qp_create(&small_queue_pair(pd, cq)).unwrap();
    let mut raised = 0_usize;
    for step in steps(&mut Unstructured::new(data), 64) {
        match step {
            Step::Known { queue, kind, sub, number, place } => {
                let event = Event::new(kind % 0x28, sub);
                let event = event.with((usize::from(place) % 28) & !3, number.into());
                raise(&rig.slot, queue, &event);
            }
            Step::Any { queue, kind, sub, data } => {
                raise(&rig.slot, queue, &Event { kind, sub, data });
            }
            Step::Garble { patches } => garble(&rig.slot, patches),
            Step::Flood { queue, kind, count } => {
                (0..count).for_each(|_| raise(&rig.slot, queue, &Event::new(kind, 0)));
            }
            Step::Service => driver.service(rig.now()),
            Step::Pass { millis } => rig.pass(std::time::Duration::from_millis(millis.into())),
        }
        raised += 256;
        let mut taken = 0;
        while driver.notice().is_some() {
            taken += 1;
            assert!(taken <= raised, "more events than there were");
        }
    }
    let _ = driver.close();
    assert_eq!(rig.slot.views().strays(), 0, "the driver stored where nobody has memory");
}

fn raise(slot: &Slot, queue: u8, event: &Event) {
    slot.hca().inject_event(Some(queue % 8), event);
    // Its entries are there when the host looks.
    slot.world().turn_by(1_000);
}

fn garble(slot: &Slot, patches: [Option<Patch>; 3]) {
    slot.hca().set_mangle(Some(Box::new(move |kind, _, bytes| {
        if kind == Wrote::Eqe {
            patch(bytes, &patches);
        }
        true
    })));
}
