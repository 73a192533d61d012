//! CQE compression: a session of like completions, held back and then written in fewer bytes.
//!
//! A session of N completions takes the N slots that they would have taken alone. The first holds
//! the title, a completion with format 3 and N as its byte count; what all have in common is
//! there. The second holds an array of eight mini CQEs, the first completion's among them, and
//! every eighth slot after the title another array. The other slots are not written, and the last
//! byte of an array is no owner byte: software gives all slots of a session the owner bit of their
//! lap before the next lap. The title is written last.
//!
//! Linux `mlx5e_decompress_cqe`, DPDK `mlx5_rx_poll_len`; Linux `struct mlx5_mini_cqe8`. Only
//! receives of one queue are compressed here, in the basic layout and in entries of 64 bytes.

use super::cqe::{CQE_BYTES, Cqe, CqeOpcode};
use crate::facts::{Facts, OpenFact};
use crate::host::Nanos;
use crate::ifc::cqe::{cqe as l, mini_cqe_csum, mini_cqe_hash};
use rand::Rng;
use rand::rngs::SmallRng;

/// Mini CQEs in a slot.
pub(crate) const ARRAY: usize = 8;
/// Format of a title (`cqe_format`).
const COMPRESSED: u32 = 3;

/// What a mini CQE holds beside the byte count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MiniFormat {
    /// The hash of the packet.
    Hash,
    /// Its checksum.
    Checksum,
}

/// When entries that can be compressed are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    ByChance,
    Always,
    Never,
}

/// The session of one CQ.
#[derive(Debug)]
pub(crate) struct Compression {
    format: MiniFormat,
    when: When,
    /// Completions in a session at most.
    most: usize,
    /// Longest time that one is open.
    timeout: Nanos,
    /// Number of the queue that the open session is of.
    queue: u32,
    session: Vec<Cqe>,
    /// When it ends if nothing else ends it.
    until: Nanos,
}

impl Compression {
    pub(crate) fn new(format: MiniFormat, most: u32, timeout: Nanos, facts: &Facts) -> Self {
        let when = match facts.value(OpenFact::CqeCompression) {
            None => When::ByChance,
            Some(1) => When::Always,
            Some(_) => When::Never,
        };
        let most = most as usize;
        Self { format, when, most, timeout, queue: 0, session: Vec::new(), until: 0 }
    }

    /// When the open session ends, if there is one.
    pub(crate) fn due(&self) -> Option<Nanos> {
        (!self.session.is_empty()).then_some(self.until)
    }

    /// Whether the open session holds as many as it may.
    pub(crate) fn is_full(&self) -> bool {
        self.session.len() >= self.most
    }

    /// Whether a completion may join the open session, if there is one.
    pub(crate) fn takes(&self, queue: u32, cqe: &Cqe) -> bool {
        self.session.last().is_none_or(|last| {
            queue == self.queue
                && cqe.wqe_counter == last.wqe_counter.wrapping_add(1)
                && self.title(cqe) == self.title(last)
        })
    }

    /// Joins the open session, or opens one; false for a completion that is written alone.
    pub(crate) fn hold(&mut self, rng: &mut SmallRng, now: Nanos, queue: u32, cqe: &Cqe) -> bool {
        if self.session.is_empty() {
            let opens = match self.when {
                When::ByChance => rng.random_bool(0.5),
                When::Always => true,
                When::Never => false,
            };
            if !opens || self.most < 2 || !is_receive(cqe) {
                return false;
            }
            self.queue = queue;
            self.until = now + self.timeout;
        }
        self.session.push(*cqe);
        true
    }

    /// Ends the session.
    pub(crate) fn take(&mut self) -> Vec<Cqe> {
        core::mem::take(&mut self.session)
    }

    /// What completions of a session have in common. The field that the format leaves out is lost,
    /// and so is the time.
    fn title(&self, cqe: &Cqe) -> Cqe {
        let mut title =
            Cqe { byte_cnt: 0, wqe_counter: 0, timestamp: 0, check_sum: 0, rss_hash: 0, ..*cqe };
        if self.format == MiniFormat::Checksum {
            title.rss_kind = 0;
        }
        title
    }

    /// The bytes of an array, in a slot of that lap. What holds no mini CQE looks like an entry of
    /// the next lap.
    pub(crate) fn array(&self, cqes: &[Cqe], lap: u8) -> [u8; CQE_BYTES] {
        let mut bytes = [(CqeOpcode::RespSend as u8) << 4 | (lap ^ 1); CQE_BYTES];
        for (mini, cqe) in bytes.chunks_exact_mut(CQE_BYTES / ARRAY).zip(cqes) {
            match self.format {
                MiniFormat::Hash => mini_cqe_hash::rx_hash_result.set(mini, cqe.rss_hash),
                MiniFormat::Checksum => {
                    mini_cqe_csum::checksum.set(mini, u32::from(cqe.check_sum));
                }
            }
            mini_cqe_hash::byte_cnt.set(mini, cqe.byte_cnt);
        }
        bytes
    }
}

/// The bytes of the title of a session, owner bit zero.
pub(crate) fn title(session: &[Cqe], first: &Cqe) -> [u8; CQE_BYTES] {
    let mut bytes = first.encode(false);
    l::byte_cnt.set(&mut bytes, session.len() as u32);
    l::cqe_format.set(&mut bytes, COMPRESSED);
    bytes
}

fn is_receive(cqe: &Cqe) -> bool {
    match cqe.opcode {
        CqeOpcode::RespWriteImm
        | CqeOpcode::RespSend
        | CqeOpcode::RespSendImm
        | CqeOpcode::RespSendInv => cqe.error.is_none() && cqe.in_cqe.is_none(),
        CqeOpcode::Requester
        | CqeOpcode::ResizeCq
        | CqeOpcode::RequesterError
        | CqeOpcode::ResponderError => false,
    }
}
