//! The initialization segment: registers that read otherwise than they should, from some read on,
//! for some reads.

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use dat_tests::bringup::{journey, patience};
use dat_tests::host::watched::Watched;

use crate::input::steps;
use crate::world::rig;

#[derive(Clone, Copy, Debug, Arbitrary)]
struct Lie {
    /// Register, as a word of the segment or of the health buffer behind it.
    word: u8,
    value: u32,
    /// Only these bits of it.
    mask: u32,
    after: u8,
    times: u16,
}

/// Bytes of the segment with its health buffer and the counter behind it.
const SEGMENT: usize = 0x1010;

impl Lie {
    /// The words that the segment has, at its beginning and from the health buffer on.
    fn offset(&self) -> usize {
        let word = usize::from(self.word) % 0x60 * 4;
        if word < 0x40 { word } else { word - 0x40 + 0x1f0 }
    }
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let lies: Vec<Lie> = steps(&mut Unstructured::new(data), 16).collect();
    let rig = rig();
    let host = Watched::new(&rig.slot);
    let mut reads = [0_u32; SEGMENT / 4];
    host.look(move |offset, value| {
        let Some(count) = reads.get_mut(offset / 4) else { return value };
        *count += 1;
        let mut seen = value;
        for lie in lies.iter().filter(|lie| lie.offset() == offset) {
            let range = u32::from(lie.after)..u32::from(lie.after) + u32::from(lie.times);
            if range.contains(count) {
                seen = seen & !lie.mask | lie.value & lie.mask;
            }
        }
        seen
    });
    let start = rig.now();
    let _ = journey(&host, &patience());
    assert!(rig.now() - start < Duration::from_secs(60), "{:?}", rig.now() - start);
    assert_eq!(rig.slot.views().strays(), 0, "the driver stored where nobody has memory");
}
