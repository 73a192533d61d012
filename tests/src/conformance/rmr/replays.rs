//! Contexts that were good once, and the bytes they are made of. (`tests/tests/replays.rs` does a
//! million.)

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

/// A context comes back after 255 others and never before, and the steps from one to the next are
/// spread over all there are. (The limit is that of a chi-square test at one in a million; the
/// adapters' entropy decides the draw.)
pub fn low_bytes_are_spread(ias: &mut Adapters<'_, impl Side>) {
    const ALL: usize = 256;
    let (ends, mems) = ias.armed();
    for own in [false, true] {
        let rmr = if own {
            ias.b.rmr_create_for_ep(ends[B].pz).unwrap()
        } else {
            ias.b.rmr_create(ends[B].pz).unwrap()
        };
        let contexts: Vec<u32> = (0..=3 * ALL)
            .map(|_| ias.bind(&ends[B], rmr, &mems[B].seg(0, 64), MemPriv::REMOTE).context)
            .collect();
        for run in contexts.windows(ALL) {
            let mut bytes = run.to_vec();
            bytes.sort_unstable();
            bytes.dedup();
            assert_eq!(bytes.len(), ALL, "a context came back too soon");
            assert_eq!(run[0] >> 8, run[ALL - 1] >> 8);
        }
        let mut steps = [0_u32; ALL];
        for pair in contexts[..=ALL].windows(2) {
            steps[(pair[1].wrapping_sub(pair[0]) & 0xff) as usize] += 1;
        }
        assert_eq!(steps[0], 0, "a context was followed by itself");
        let each = 256.0 / 255.0;
        let chi: f64 = steps[1..].iter().map(|&n| (f64::from(n) - each).powi(2) / each).sum();
        assert!(chi < 380.0, "chi-square {chi} of 254 degrees of freedom");
    }
}
