//! Open facts of the data path.

use super::super::cqe::{Cqe, CqeOpcode};
use super::super::device::Device;
use super::super::mkey::{ANY_QPN, Access, Denied, LR, LW, Mkey, Mode, Tpt};
use super::super::umem::Uses;
use super::super::umr::{Poster, Refused, Rules, Source, Umr};
use super::umr::segments;
use super::{CQ_PAGE, Rig};
use crate::ifc::mkey::mkc;

const PAGE_SIZE: u64 = 1 << 1;
const ATOMIC_RIGHT: u64 = 1 << 21;

fn table(mode: Mode) -> Tpt {
    let mut tpt = Tpt::default();
    let key = Mkey {
        free: false,
        mode,
        rights: LR | LW,
        umr_en: true,
        qpn: ANY_QPN,
        variant: 0,
        length64: false,
        en_rinval: false,
        relaxed_write: false,
        relaxed_read: false,
        pd: 3,
        created_in: 3,
        start: 0,
        len: 0x2000,
        log_page_size: 12,
        entry_bits: false,
        uses: Uses::default(),
        octwords: 4,
        translation: vec![0xa000, 0xb000],
    };
    tpt.insert(8, key);
    tpt
}

fn edit(tpt: &mut Tpt, rules: Rules, mask: u64, pages: &[u64]) -> Result<(), Refused> {
    let mut behind: Vec<u8> = pages.iter().flat_map(|page| page.to_be_bytes()).collect();
    behind.resize(64, 0);
    let octwords = if pages.is_empty() { 0 } else { 4 };
    let bytes = segments(0x80, octwords, mask, |c| mkc::log_page_size.set(c, 12), &behind);
    let umr = Umr::parse(&bytes)?;
    let translation = match &umr.source {
        Source::Inline(bytes) => bytes.clone(),
        Source::None | Source::Pointer(..) => Vec::new(),
    };
    let poster = Poster { qpn: 0x48, pd: 3, privileged: false, rules };
    umr.apply(tpt, 8, poster, &translation)
}

#[test]
fn a_page_list_says_what_may_be_read_and_written() {
    let access = |rights, va| Access { key: 0x800, va, len: 16, rights, pd: 3, qpn: 0x48 };
    for required in [false, true] {
        let rules = Rules { entry_bits: required, ..Rules::default() };
        let mut tpt = table(Mode::Mtt);
        edit(&mut tpt, rules, 0, &[0xa003, 0xb001]).unwrap();
        assert_eq!(tpt.check(&access(LR | LW, 0)), Ok(()));
        assert_eq!(tpt.check(&access(LR, 0x1000)), Ok(()));
        assert_eq!(tpt.check(&access(LW, 0x1000)).is_err(), required);
        edit(&mut tpt, rules, 0, &[0xa000, 0xb000]).unwrap();
        let bare = tpt.check(&access(LR, 0));
        assert_eq!(bare, if required { Err(Denied::Translation) } else { Ok(()) });
    }
}

#[test]
fn what_a_card_does_not_let_a_umr_change() {
    let free = Rules::default();
    for (rules, mask, mode) in [
        (Rules { entity_size_fixed: true, ..free }, PAGE_SIZE, Mode::Mtt),
        (Rules { atomic_fixed: true, ..free }, ATOMIC_RIGHT, Mode::Mtt),
        (Rules { relaxed_write_fixed: true, ..free }, 1 << 25, Mode::Mtt),
        (Rules { relaxed_read_fixed: true, ..free }, 1 << 47, Mode::Mtt),
        (Rules { no_indirect: true, ..free }, 0, Mode::Klm),
    ] {
        edit(&mut table(mode), free, mask, &[]).unwrap();
        edit(&mut table(mode), rules, mask, &[]).unwrap_err();
    }
}

#[test]
fn late_completions_keep_their_order_within_a_queue() {
    let mut rig = Rig::with_facts("cqe-order=late");
    let cqn = rig.cq(5);
    for index in 0..8 {
        for queue in [0x50, 0x51] {
            let mut cqe = Cqe::new(CqeOpcode::Requester, queue);
            cqe.wqe_counter = index;
            Device::of(&mut rig.hca).complete(queue, cqn, &cqe);
        }
    }
    let owner = |rig: &mut Rig, slot: u64| rig.peek(CQ_PAGE + slot * 64 + 63, 1)[0];
    assert_eq!(owner(&mut rig, 0), 0xf1, "none yet");
    rig.hca.step(1_000_000);
    let mut seen = Vec::new();
    for slot in 0..16 {
        let entry = rig.peek(CQ_PAGE + slot * 64, 64);
        seen.push((entry[59], u16::from_be_bytes([entry[60], entry[61]])));
    }
    for queue in [0x50, 0x51] {
        let of: Vec<_> = seen.iter().filter(|(q, _)| *q == queue).map(|(_, i)| *i).collect();
        assert_eq!(of, (0..8).collect::<Vec<_>>());
    }
    let turns = seen.windows(2).filter(|pair| pair[0].0 != pair[1].0).count();
    assert_ne!(turns, 15, "interleaved otherwise than they ended");
}

#[test]
fn a_completion_without_user_index() {
    for (facts, index) in [("", 0x1234), ("cqe-version=0", 0)] {
        let mut rig = Rig::with_facts(facts);
        assert_eq!(Device::of(&mut rig.hca).user_index_of(0x1234), index);
    }
}

#[test]
fn a_peer_with_a_smaller_mtu_takes_no_longer_frame() {
    for (facts, through) in [("port-mtu=4220", 3), ("port-mtu=4220,peer-mtu=1500", 2)] {
        let mut rig = Rig::with_facts(facts);
        for (packet, tagged) in [(1500, false), (1500, true), (1501, false)] {
            let mut frame = vec![0xff; 6];
            frame.extend_from_slice(&[2, 0, 0, 0, 0, 9]);
            if tagged {
                frame.extend_from_slice(&[0x81, 0, 0, 5]);
            }
            frame.extend_from_slice(&[0x88, 0xb5]);
            frame.resize(frame.len() + packet, 0);
            rig.coming.lock().unwrap().push_back(frame);
        }
        rig.hca.step(0);
        assert_eq!(rig.hca.bus.stats.frames_in, through, "{facts}");
    }
}

#[test]
fn work_queues_that_are_written_back_must_be_writable() {
    for (facts, writes) in [("", false), ("queue-writes=back", true)] {
        assert_eq!(Rig::with_facts(facts).hca.bus.writes_queues, writes);
    }
}
