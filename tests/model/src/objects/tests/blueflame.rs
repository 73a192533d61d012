//! WQEs that come through BlueFlame: executed from there, or fetched from the ring.

use super::orders::{pair, raddr};
use super::{DATA, QP_DBR, QP_PAGE, Rig, SQ_DBR, SQ_PAGE, control, send_doorbell};

/// Buffers of the first register, and one of the second.
const FIRST: usize = 0x800;
const OTHER: usize = 0x900;
const SECOND: usize = 0xa00;
/// Blocks of the rings.
const RING: u64 = 4;

/// An RDMA write of `text`, inline, to `DATA`: whole blocks.
fn write(qpn: u32, index: u16, key: u32, text: &str) -> Vec<u8> {
    let mut inline = (1 << 31 | text.len() as u32).to_be_bytes().to_vec();
    inline.extend(text.bytes());
    inline.resize(inline.len().next_multiple_of(16), 0);
    let mut wqe = control(8, index, qpn, 2 + (inline.len() / 16) as u8, 0);
    wqe.extend(raddr(DATA, key));
    wqe.extend(inline);
    wqe.resize(wqe.len().next_multiple_of(64), 0);
    wqe
}

struct Post {
    rig: Rig,
    qpn: u32,
    key: u32,
}

impl Post {
    fn new(facts: &str) -> Self {
        let (mut rig, qpn, _) = pair();
        rig.hca.config.facts = facts.parse().unwrap();
        let key = rig.key(|_| {}).unwrap();
        Self { rig, qpn, key }
    }

    /// Puts a WQE into the ring and its record; returns its bytes.
    fn post(&mut self, index: u16, text: &str) -> Vec<u8> {
        let wqe = write(self.qpn, index, self.key, text);
        for (block, at) in wqe.chunks(64).zip(u64::from(index)..) {
            self.rig.poke(QP_PAGE + 256 + at % RING * 64, block);
        }
        let blocks = (wqe.len() / 64) as u32;
        self.rig.poke32(QP_DBR + 4, u32::from(index) + blocks);
        wqe
    }

    fn store(&mut self, at: usize, bytes: &[u8]) {
        send_doorbell(&mut self.rig.hca, self.rig.uar, at, bytes);
    }

    /// Stores in blocks, one after the other.
    fn blocks(&mut self, at: usize, bytes: &[u8]) {
        for (block, at) in bytes.chunks(64).zip((at..).step_by(64)) {
            self.store(at, block);
        }
    }

    /// WQEs executed, those of them from a buffer, and DMA reads.
    fn counts(&self) -> [u64; 3] {
        let stats = self.rig.hca.stats();
        [stats.wqes, stats.bf_wqes, stats.dma_reads]
    }

    /// Asserts what was written, by WQEs of which so many came from a buffer.
    fn wrote(&mut self, text: &str, from_buffer: u64) {
        self.rig.hca.step(0);
        assert_eq!(self.rig.peek(DATA, text.len()), text.as_bytes());
        assert_eq!(self.rig.hca.stats().bf_wqes, from_buffer);
    }

    fn is_clean(&self) {
        assert_eq!(self.rig.hca.complaints(), [""; 0]);
    }
}

/// Text for a WQE of so many blocks.
fn long(blocks: usize) -> String {
    ('a'..='z').cycle().take(blocks * 64 - 40).collect()
}

#[test]
fn a_wqe_is_executed_from_the_buffer_without_a_fetch() {
    // The record is read; a fetch reads the control segment, then all.
    for (facts, from_buffer, reads) in [("", 1, 1), ("bf-data=ignored", 0, 3)] {
        let mut post = Post::new(facts);
        let wqe = post.post(0, "sixteen bytes ok");
        let [wqes, _, before] = post.counts();
        post.store(FIRST, &wqe);
        assert_eq!(post.counts(), [wqes + 1, from_buffer, before + reads], "{facts}");
        post.wrote("sixteen bytes ok", from_buffer);
        assert_eq!((post.rig.cqe(0)[0x3f] >> 4, post.rig.cqe(0)[0x3d]), (0, 0));
        post.is_clean();
    }
}

#[test]
fn a_wqe_of_several_blocks_waits_for_the_last() {
    for blocks in 2..=4 {
        let mut post = Post::new("");
        let first = post.post(0, &long(3));
        post.store(OTHER, &first[..8]);
        // This one goes round the ring's end.
        let text = long(blocks).to_uppercase();
        let wqe = post.post(3, &text);
        let before = post.counts();
        let (head, last) = wqe.split_at(wqe.len() - 64);
        post.blocks(FIRST, head);
        assert_eq!(post.counts(), before, "nothing of a part");
        post.store(FIRST + head.len(), last);
        assert_eq!(post.counts(), [before[0] + 1, 1, before[2] + 1]);
        post.wrote(&text, 1);
        post.is_clean();
    }
}

#[test]
fn a_wqe_longer_than_the_buffer_is_fetched() {
    let mut post = Post::new("log-bf-reg-size=8");
    post.rig.hca.caps = crate::caps::Caps::new(&post.rig.hca.config);
    let wqe = post.post(0, &long(3));
    post.store(FIRST, &wqe[..128]);
    post.wrote(&long(3), 0);
    post.is_clean();
}

#[test]
fn a_copy_that_differs_is_executed_and_reported() {
    // Torn: the second block is of an older WQE. Stale: the buffer has what the ring had before.
    for (text, at) in [(long(2), 96), ("to be replaced".into(), 36)] {
        let mut post = Post::new("");
        let mut wqe = post.post(0, &text);
        wqe[at] = b'#';
        post.blocks(FIRST, &wqe);
        let mut came = text.into_bytes();
        came[at - 36] = b'#';
        post.wrote(core::str::from_utf8(&came).unwrap(), 1);
        assert_eq!(post.rig.hca.stats().bf_differs, 1);
        let what =
            format!("QP {:#x}: WQE 0x0 came through BlueFlame with 0x23 in byte {at}", post.qpn);
        assert!(post.rig.complained(&what), "{:?}", post.rig.hca.complaints());
    }
}

#[test]
fn bytes_behind_the_wqe_do_not_count() {
    let mut post = Post::new("");
    let mut wqe = post.post(0, "short");
    wqe[48..].fill(0xee);
    post.store(FIRST, &wqe);
    post.wrote("short", 1);
    post.is_clean();
}

#[test]
fn stores_split_into_words_are_a_doorbell() {
    for size in [8, 16, 32] {
        let mut post = Post::new("");
        let wqe = post.post(0, &long(2));
        for (part, at) in wqe.chunks(size).zip((FIRST..).step_by(size)) {
            post.store(at, part);
        }
        post.wrote(&long(2), 0);
        post.is_clean();
    }
}

#[test]
fn a_wqe_that_is_not_the_next_or_not_alone_is_fetched() {
    let mut post = Post::new("");
    let first = post.post(0, "first");
    let second = post.post(1, "second");
    // The record is ahead by two: the first brings both, and the second comes too late.
    post.store(FIRST, &first);
    assert_eq!(post.counts()[..2], [2, 0]);
    post.store(OTHER, &second);
    post.wrote("second", 0);
    post.post(2, "third");
    let wrong = write(post.qpn, 3, post.key, "wrong");
    post.store(FIRST, &wrong);
    post.wrote("third", 0);
    assert_eq!(post.counts()[0], 3);
    post.is_clean();
}

#[test]
fn what_comes_between_the_blocks_of_a_wqe() {
    /// The second block comes too late or not at all after that.
    type Between = fn(&mut Post, &[u8]);
    let same_queue: Between = |post, wqe| post.store(SECOND, &wqe[..8]);
    let same_buffer: Between = |post, wqe| post.store(FIRST + 64, &wqe[64..72]);
    let other_place: Between = |post, wqe| post.store(FIRST + 128, &wqe[64..]);
    let time: Between = |post, _| assert!(post.rig.hca.step(1).is_none());
    for between in [same_queue, same_buffer, other_place, time] {
        let mut post = Post::new("");
        let wqe = post.post(0, &long(2));
        post.store(FIRST, &wqe[..64]);
        assert_eq!(post.counts()[0], 0);
        between(&mut post, &wqe);
        assert_eq!(post.counts()[0], 1, "fetched");
        let before = post.counts();
        post.store(FIRST + 64, &wqe[64..]);
        assert_eq!(post.counts(), before, "not even a doorbell");
        post.wrote(&long(2), 0);
        post.is_clean();
    }
}

#[test]
fn another_queue_s_doorbell_comes_between() {
    let (rig, qpn, other) = pair();
    let mut post = Post { rig, qpn, key: 0 };
    post.key = post.rig.key(|_| {}).unwrap();
    let wqe = post.post(0, &long(2));
    let mut doorbell = [0; 8];
    doorbell[4..].copy_from_slice(&(other << 8).to_be_bytes());
    // On another register: no matter.
    post.store(FIRST, &wqe[..64]);
    post.store(SECOND, &doorbell);
    post.store(FIRST + 64, &wqe[64..]);
    post.wrote(&long(2), 1);
    // On the same buffer: what begun there is lost, and the rest is no WQE.
    let wqe = post.post(2, &long(2).to_uppercase());
    post.store(OTHER, &wqe[..64]);
    post.store(OTHER, &doorbell);
    post.store(OTHER + 64, &wqe[64..]);
    post.wrote(&long(2).to_uppercase(), 1);
    post.is_clean();
}

#[test]
fn the_buffers_of_a_register_are_used_in_turn() {
    let complains = |buffers: &[(usize, usize)]| {
        let mut post = Post::new("");
        for (index, (buffer, bytes)) in (0..).zip(buffers) {
            let wqe = post.post(index, "turn");
            post.store(*buffer, &wqe[..*bytes]);
            post.rig.hca.step(0);
        }
        assert_eq!(post.counts()[0], buffers.len() as u64);
        post.rig.complained("two WQEs in a row through the BlueFlame buffer")
    };
    assert!(!complains(&[(FIRST, 64), (OTHER, 64), (FIRST, 64)]));
    assert!(complains(&[(FIRST, 64), (OTHER, 64), (OTHER, 64)]));
    // Plain doorbells need no turns, and are one.
    assert!(!complains(&[(FIRST, 8), (FIRST, 8), (FIRST, 64)]));
    assert!(!complains(&[(FIRST, 64), (FIRST, 8), (FIRST, 64)]));
    assert!(!complains(&[(FIRST, 64), (OTHER, 8), (FIRST, 64)]));
}

#[test]
fn two_queues_may_share_a_register_in_turn() {
    // The other one brings a WQE, or only rings.
    for size in [64, 8] {
        let (rig, qpn, other) = pair();
        let mut post = Post { rig, qpn, key: 0 };
        post.key = post.rig.key(|_| {}).unwrap();
        let mut nothing = control(0, 0, other, 1, 0);
        nothing.resize(64, 0);
        for index in 0..2 {
            let wqe = post.post(index, "turn");
            post.store(FIRST, &wqe);
            nothing[2] = index as u8;
            post.store(OTHER, &nothing[..size]);
            post.rig.hca.step(0);
        }
        post.is_clean();
    }
}

/// Linux tells by this whether write combining works: only the copy asks for a completion.
#[test]
fn a_raw_queue_executes_from_the_buffer() {
    for (facts, completions) in [("", 1), ("bf-data=ignored", 0)] {
        let mut rig = Rig::with_facts(facts);
        let cqn = rig.cq(5);
        let sqn = rig.sq(cqn, None);
        rig.ready(0x905, sqn, 0, 1).unwrap();
        let mut wqe = control(0, 0, sqn, 1, 0);
        wqe.resize(64, 0);
        wqe[11] = 0;
        rig.poke(SQ_PAGE, &wqe);
        rig.poke32(SQ_DBR + 4, 1);
        wqe[11] = 8;
        let reads = rig.hca.stats().dma_reads;
        send_doorbell(&mut rig.hca, rig.uar, FIRST, &wqe);
        let stats = rig.hca.stats();
        assert_eq!(
            (stats.cqes, stats.bf_wqes, stats.bf_differs),
            (completions, completions, completions)
        );
        assert_eq!(stats.dma_reads - reads, if completions == 1 { 1 } else { 3 });
        let what = format!("SQ {sqn:#x}: WQE 0x0 came through BlueFlame with 0x08 in byte 11");
        assert_eq!(rig.complained(&what), completions == 1);
    }
}

#[test]
fn a_store_of_many_blocks_is_as_many_stores() {
    let mut post = Post::new("");
    let wqe = post.post(0, &long(3));
    post.store(FIRST, &wqe);
    post.wrote(&long(3), 1);
    assert_eq!(post.rig.hca.stats().bf_bytes, 3 * 64 - 8);
    assert_eq!(post.rig.hca.stats().sq_doorbells, 1);
}
