//! The table's checks, one by one and together.

use super::super::mkey::{ANY_QPN, ATOMIC, Access, Denied, LR, LW, Mkey, Mode, RR, RW, Run, Tpt};
use super::super::umem::Uses;
use super::Rig;
use crate::ifc::mkey::{mkc, query_mkey_out};

fn key() -> Mkey {
    Mkey {
        entry_bits: false,
        uses: Uses::default(),
        free: false,
        mode: Mode::Mtt,
        rights: LR | LW | RR | RW | ATOMIC,
        umr_en: true,
        qpn: ANY_QPN,
        variant: 7,
        length64: false,
        en_rinval: false,
        relaxed_write: false,
        relaxed_read: false,
        pd: 3,
        created_in: 3,
        start: 0x10_0f00,
        len: 0x1800,
        log_page_size: 12,
        octwords: 2,
        translation: vec![0x9000, 0x4000, 0x7000],
    }
}

fn access() -> Access {
    Access { key: 0x507, va: 0x10_0f00, len: 0x1800, rights: LR, pd: 3, qpn: 9 }
}

fn table(key: Mkey) -> Tpt {
    let mut tpt = Tpt::default();
    tpt.insert(5, key);
    tpt
}

#[test]
fn pages_are_walked_in_order() {
    let runs = table(key()).resolve(&access()).unwrap();
    let want = [(0x9f00, 0x100), (0x4000, 0x1000), (0x7000, 0x700)];
    assert_eq!(runs, want.map(|(iova, len)| Run { iova, len, relaxed: false }));
}

#[test]
fn adjacent_pages_make_one_run() {
    let tpt = table(Mkey { translation: vec![0x9000, 0xa000, 0xb000], ..key() });
    assert_eq!(
        tpt.resolve(&access()).unwrap(),
        [Run { iova: 0x9f00, len: 0x1800, relaxed: false }]
    );
}

#[test]
fn large_pages_keep_the_low_bits() {
    let tpt = table(Mkey { log_page_size: 21, translation: vec![0x4000_0000], ..key() });
    assert_eq!(
        tpt.resolve(&access()).unwrap(),
        [Run { iova: 0x4010_0f00, len: 0x1800, relaxed: false }]
    );
}

#[test]
fn rights_matrix() {
    for has in 0..32u8 {
        for wants in 1..32u8 {
            let tpt = table(Mkey { rights: has, ..key() });
            let got = tpt.check(&Access { rights: wants, ..access() });
            assert_eq!(got.is_ok(), has & wants == wants, "has {has:#x} wants {wants:#x}");
        }
    }
}

#[test]
fn all_32_bits_of_the_key_count() {
    let tpt = table(key());
    for bit in 0..32 {
        let got = tpt.check(&Access { key: 0x507 ^ (1 << bit), ..access() });
        assert_eq!(got, Err(if bit < 8 { Denied::Variant } else { Denied::NoKey }), "bit {bit}");
    }
}

#[test]
fn the_domain_counts() {
    assert_eq!(table(key()).check(&Access { pd: 4, ..access() }), Err(Denied::Pd));
}

#[test]
fn a_bound_key_is_for_one_queue_pair() {
    let tpt = table(Mkey { qpn: 9, ..key() });
    assert_eq!(tpt.check(&access()), Ok(()));
    assert_eq!(tpt.check(&Access { qpn: 10, ..access() }), Err(Denied::Qpn));
}

#[test]
fn a_free_key_is_dead() {
    assert_eq!(table(Mkey { free: true, ..key() }).check(&access()), Err(Denied::Free));
}

#[test]
fn range_edges() {
    let tpt = table(key());
    let at = |va, len| tpt.check(&Access { va, len, ..access() });
    assert_eq!(at(0x10_0eff, 1), Err(Denied::Range));
    assert_eq!(at(0x10_0f00, 1), Ok(()));
    assert_eq!(at(0x10_26ff, 1), Ok(()));
    assert_eq!(at(0x10_2700, 1), Err(Denied::Range));
    assert_eq!(at(0x10_2700, 0), Ok(()));
    assert_eq!(at(0x10_26ff, 2), Err(Denied::Range));
    assert_eq!(at(u64::MAX, 2), Err(Denied::Range));
    assert_eq!(at(0x10_0f00, u64::MAX), Err(Denied::Range));
}

#[test]
fn a_list_that_ends_early_denies() {
    let tpt = table(Mkey { translation: vec![0x9000], ..key() });
    assert_eq!(tpt.check(&access()), Err(Denied::Translation));
}

#[test]
fn physical_keys_honour_their_range() {
    let tpt = table(Mkey { mode: Mode::Physical, ..key() });
    assert_eq!(
        tpt.resolve(&access()).unwrap(),
        [Run { iova: 0x10_0f00, len: 0x1800, relaxed: false }]
    );
    assert_eq!(tpt.check(&Access { len: 0x1801, ..access() }), Err(Denied::Range));
    let all = table(Mkey { mode: Mode::Physical, length64: true, ..key() });
    assert_eq!(all.check(&Access { va: 0, len: 1 << 40, ..access() }), Ok(()));
}

fn window(rights: u8, below_rights: u8) -> Tpt {
    let mut tpt = table(Mkey { rights: below_rights, ..key() });
    let klm = vec![(0x200 << 32) | 0x507, 0x10_1000, (0x100 << 32) | 0x507, 0x10_2000];
    tpt.insert(
        6,
        Mkey {
            mode: Mode::Klm,
            rights,
            variant: 1,
            start: 0x5000,
            len: 0x300,
            translation: klm,
            ..key()
        },
    );
    tpt
}

#[test]
fn a_window_leads_through_its_key() {
    let tpt = window(RR, LR);
    let through = Access { key: 0x601, va: 0x5100, len: 0x180, rights: RR, ..access() };
    let want = [
        Run { iova: 0x4100, len: 0x100, relaxed: false },
        Run { iova: 0x7000, len: 0x80, relaxed: false },
    ];
    assert_eq!(tpt.resolve(&through).unwrap(), want);
}

#[test]
fn an_entry_of_a_key_holds_two_gibibytes_at_most() {
    for (size, opens) in [(1_u64 << 31, true), ((1 << 31) + 1, false), (u64::from(u32::MAX), false)]
    {
        let mut tpt = window(RR, LR);
        let over = tpt.get_mut(6).unwrap();
        over.translation[0] = size << 32 | 0x507;
        (over.start, over.len) = (0x5000, size);
        let through = Access { key: 0x601, va: 0x5000, len: 8, rights: RR, ..access() };
        let denied = if opens { Ok(()) } else { Err(Denied::Translation) };
        assert_eq!(tpt.check(&through), denied, "{size:#x}");
    }
}

#[test]
fn below_a_window_local_rights_count() {
    for (wants, needs) in [(RR, LR), (RW, LW), (ATOMIC, LR | LW), (LR, LR), (LW, LW)] {
        let through = Access { key: 0x601, va: 0x5000, len: 8, rights: wants, ..access() };
        assert_eq!(window(wants, needs).check(&through), Ok(()), "{wants:#x}");
        for bit in [LR, LW] {
            if needs & bit != 0 {
                let tpt = window(wants, (LR | LW | RR | RW | ATOMIC) & !bit);
                assert_eq!(tpt.check(&through), Err(Denied::Rights), "{wants:#x} without {bit:#x}");
            }
        }
    }
}

#[test]
fn a_window_dies_with_its_key() {
    let mut tpt = window(RR, LR);
    tpt.remove(5);
    let through = Access { key: 0x601, va: 0x5000, len: 8, rights: RR, ..access() };
    assert_eq!(tpt.check(&through), Err(Denied::NoKey));
}

#[test]
fn fixed_size_entries() {
    let mut tpt = table(Mkey { start: 0, len: 0x3000, ..key() });
    let ksm = vec![0x507, 0x1000, 0x507, 0x0];
    let above =
        Mkey { mode: Mode::Ksm, variant: 1, start: 0, len: 0x2000, translation: ksm, ..key() };
    tpt.insert(6, above);
    let through = Access { key: 0x601, va: 0xff0, len: 0x20, ..access() };
    let want = [
        Run { iova: 0x4ff0, len: 0x10, relaxed: false },
        Run { iova: 0x9000, len: 0x10, relaxed: false },
    ];
    assert_eq!(tpt.resolve(&through).unwrap(), want);
}

#[test]
fn keys_that_name_themselves_end() {
    let mut tpt = Tpt::default();
    let klm: Vec<u64> = (0..4096).flat_map(|_| [(1 << 32) | 0x507, 0]).collect();
    tpt.insert(5, Mkey { mode: Mode::Klm, start: 0, len: 4096, translation: klm, ..key() });
    let got = tpt.check(&Access { va: 0, len: 4096, ..access() });
    assert_eq!(got, Err(Denied::Depth));
}

#[test]
fn create_query_destroy() {
    let mut rig = Rig::new();
    let key = rig.key(|_| {}).unwrap();
    let mut output = vec![0; 304];
    let mut input = vec![0; 16];
    input[8..12].copy_from_slice(&(key >> 8).to_be_bytes());
    rig.query(0x201, &input, &mut output).unwrap();
    let context = query_mkey_out::memory_key_mkey_entry.bytes(&output);
    assert_eq!(mkc::mkey_7_0.get(context), 0x5a);
    assert_eq!(mkc::len.get64(context), 0x1000);
    assert_eq!(mkc::pd.get(context), rig.pd);
    assert_eq!(rig.short(0x801, rig.pd).unwrap_err().status, 9);
    rig.short(0x202, key >> 8).unwrap();
    assert_eq!(rig.short(0x202, key >> 8).unwrap_err().status, 5);
    rig.short(0x801, rig.pd).unwrap();
}

#[test]
fn keys_that_cannot_be_are_refused() {
    let mut rig = Rig::new();
    assert_eq!(rig.key(|c| mkc::pd.set(c, 0x777)).unwrap_err().status, 5);
    assert_eq!(rig.key(|c| mkc::len.set64(c, u64::MAX)).unwrap_err().status, 3);
    assert_eq!(rig.key(|c| mkc::len.set64(c, 0x3001)).unwrap_err().status, 3);
    assert_eq!(rig.key(|c| mkc::translations_octword_size.set(c, 0)).unwrap_err().status, 3);
    assert_eq!(rig.key(|c| mkc::log_page_size.set(c, 5)).unwrap_err().status, 3);
    // Without umr_log_entity_size_5 the sixth bit is none.
    assert_eq!(rig.key(|c| mkc::log_page_size.set(c, 32)).unwrap_err().status, 3);
    rig.key(|c| mkc::log_page_size.set(c, 31)).unwrap();
    // log_max_klm_list_size bounds the lists of keys, not those of pages.
    for mode in [1, 2, 3] {
        let made = rig.key(|c| {
            mkc::access_mode_1_0.set(c, mode);
            mkc::translations_octword_size.set(c, (1 << 16) + 1);
        });
        assert_eq!(made.is_ok(), mode == 1);
    }
    assert_eq!(rig.key(|c| mkc::access_mode_4_2.set(c, 1)).unwrap_err().status, 3);
}
