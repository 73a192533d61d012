//! Sessions of compressed entries, written out in the ring.
//!
//! PRM "CQE compression"; Linux `mlx5e_decompress_cqe`, DPDK `mlx5_rx_poll_len`. A session of N
//! completions takes the N slots that they would have taken one by one. Its first slot holds the
//! title: an entry with what all have in common, and N as its byte count. What each has of its own
//! stands in arrays of eight mini CQEs: the first behind the title, the others eight slots from
//! each other. The device writes the title last, and leaves the other slots as they were.
//!
//! The fast path takes no entry of that format. Every other reader that finds a title writes the
//! session out as plain entries first, in place; so all of them see plain entries only. Each slot gets
//! the owner bit of its lap with that, without which what stood there before would look new in the
//! next lap.

use super::cq::Cq;
use crate::platform::{Fence, Platform};
use crate::prm::cqe::{self, Mini, Owner};

impl<P: Platform> Cq<'_, P> {
    /// The entry of that index, which the device has written and says that it is `title`: if it is
    /// a title, its session is written out. The first entry of it then. A title that cannot be
    /// stays as it is, and is skipped as nonsense.
    #[inline(never)]
    #[expect(clippy::cast_possible_truncation, reason = "counters have 16 bits")]
    pub(super) fn unfold(&self, at: u32, title: Owner) -> Owner {
        if title.format() != cqe::COMPRESSED || title.opcode() > cqe::RESPONDER_SEND_INVALIDATE {
            return title;
        }
        let words = self.entries.load_words::<8, 0>(at).map(u64::from_be);
        let [.., counted, _, source] = words;
        let count = Mini::from_word(counted).byte_cnt();
        // Of the slots from here on only these are not behind the consumer index.
        let most = self.slots.saturating_sub(at.wrapping_sub(self.at()));
        if !(2..=most).contains(&count) {
            return title;
        }
        let sent = title.opcode() == cqe::REQUESTER;
        let mut first = title.unfolded(0);
        for array in (0..count).step_by(cqe::MINIS as usize) {
            // Read before it is written over.
            let minis = self.entries.load_words::<8, 0>(at.wrapping_add(array.max(1)));
            for (nth, mini) in (array..count).zip(minis) {
                let mini = Mini::from_word(u64::from_be(mini));
                let index = at.wrapping_add(nth);
                let (sop, counter) = if sent {
                    (u64::from(mini.sop()), mini.wqe_counter())
                } else {
                    // Receives of one queue complete in order.
                    (source >> 56, title.wqe_counter().wrapping_add(nth as u16))
                };
                let owner = title.unfolded(counter);
                let word = owner.on_lap(index & self.slots != 0);
                let mut entry = words;
                let [.., length, _, last] = &mut entry;
                *length = *length & !u64::from(u32::MAX) | u64::from(mini.byte_cnt());
                *last = sop << 56 | source & 0x00ff_ffff_0000_0000 | u64::from(word);
                self.entries.store_words::<8, 0>(index, &entry.map(u64::to_be));
                if nth == 0 {
                    first = Owner::from_word(word);
                }
            }
        }
        // ORDER: these stores precede that of the consumer index by which the device may write the
        // slots again, and which has no fence of its own.
        self.platform.fence(Fence::BeforeRecord);
        first
    }
}
