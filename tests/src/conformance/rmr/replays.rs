//! Contexts that were good once, and the bytes they are made of. (`tests/tests/records/replays.rs`
//! does a million.)

use dat_core::{LmrTriplet, MemPriv, Rmr, RmrTriplet};

use crate::conformance::reach::{Try, pattern};
use crate::conformance::{A, Adapters, B, Side};

/// Contexts stale by rebind, unbind, free and reset open nothing, in whatever order they are tried.
pub fn stale_contexts_open_nothing(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let pz = ends[B].pz;
    let [rebound, unbound, freed] = [0; 3].map(|_| ias.b.rmr_create(pz).unwrap());
    let own = ias.b.rmr_create_for_ep(pz).unwrap();
    let range = mems[B].seg(0, 64);
    let all: [Rmr; 4] = [rebound, unbound, freed, own];
    let stale: Vec<RmrTriplet> =
        all.iter().map(|&rmr| ias.bind(&ends[B], rmr, &range, MemPriv::REMOTE)).collect();
    let good = ias.bind(&ends[B], rebound, &range, MemPriv::REMOTE);
    ias.bind(&ends[B], unbound, &LmrTriplet::default(), MemPriv::empty());
    ias.b.rmr_free(freed).unwrap();
    // The first refusal breaks the connection, and with the reset that follows the Endpoint's own
    // goes.
    for round in 0..3 {
        for (index, &to) in stale.iter().enumerate() {
            if round == 0 && index == 3 {
                assert_eq!(ias.b.rmr_query(own).unwrap().bound, None);
            }
            let what = if round == 1 { Try::Read } else { Try::Write };
            assert!(!ias.allowed(&ends, what, mems[A].seg(0, 64), to), "{index}");
        }
    }
    assert_eq!(ias.bytes(&mems[B], 0, 64), pattern(B, 8192)[..64]);
    assert!(ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), good));
}

/// Every context differs from its predecessor in the low byte, and the steps from one to the next
/// are spread over all there are. (The limit is that of a chi-square test at one in a million; the
/// adapters' entropy decides the draw.)
pub fn low_bytes_are_spread(ias: &mut Adapters<'_, impl Side>) {
    const BINDS: u32 = 2550;
    let (ends, mems) = ias.armed();
    for own in [false, true] {
        let rmr = if own {
            ias.b.rmr_create_for_ep(ends[B].pz).unwrap()
        } else {
            ias.b.rmr_create(ends[B].pz).unwrap()
        };
        let mut last = ias.bind(&ends[B], rmr, &mems[B].seg(0, 64), MemPriv::REMOTE);
        let mut steps = [0_u32; 256];
        for _ in 0..BINDS {
            let new = ias.bind(&ends[B], rmr, &mems[B].seg(0, 64), MemPriv::REMOTE);
            assert_eq!(new.context >> 8, last.context >> 8);
            steps[(new.context.wrapping_sub(last.context) & 0xff) as usize] += 1;
            last = new;
        }
        assert_eq!(steps[0], 0, "a context was followed by itself");
        // 0 counts as 1, so that the step 1 is drawn twice as often.
        let of = |step: usize| f64::from(BINDS) * if step == 1 { 2.0 } else { 1.0 } / 256.0;
        let chi: f64 =
            (1..256).map(|step| (f64::from(steps[step]) - of(step)).powi(2) / of(step)).sum();
        assert!(chi < 380.0, "chi-square {chi} of 254 degrees of freedom");
    }
}
