//! Key edits: the rows of masks and flags that stock software sends, and the refusals.

use super::super::mkey::{ANY_QPN, ATOMIC, Access, LR, LW, Mkey, Mode, RR, RW, Tpt};
use super::super::umem::Uses;
use super::super::umr::{Poster, Refused, Rules, Source, Umr};
use super::{DATA, QP_DBR, QP_PAGE, Rig, control};
use crate::ifc::mkey::{mkc, umr_ctrl};

const BIND: u64 = 0x203c_2041;
const BIND_QPN: u64 = 0x203c_6041;
const UNBIND: u64 = 0x2000_6000;
const RULES: Rules = Rules {
    entity_size_fixed: false,
    atomic_fixed: false,
    no_indirect: false,
    relaxed_write_fixed: false,
    relaxed_read_fixed: false,
    entry_bits: false,
};
const POSTER: Poster = Poster { qpn: 0x48, pd: 3, privileged: false, rules: RULES };

fn base() -> Mkey {
    Mkey {
        entry_bits: false,
        uses: Uses::default(),
        free: false,
        mode: Mode::Mtt,
        rights: LR | LW,
        umr_en: true,
        qpn: ANY_QPN,
        variant: 0x77,
        length64: false,
        en_rinval: false,
        relaxed_write: false,
        relaxed_read: false,
        pd: 3,
        created_in: 3,
        start: 0x1000,
        len: 0x4000,
        log_page_size: 12,
        octwords: 2,
        translation: vec![0xa000, 0xb000, 0xc000, 0xd000],
    }
}

/// A window at index 8 and the key it will be bound to, 0x477.
fn table() -> Tpt {
    let mut tpt = Tpt::default();
    tpt.insert(4, base());
    let window = Mkey {
        free: true,
        mode: Mode::Klm,
        rights: LR,
        octwords: 4,
        len: 0,
        start: 0,
        variant: 0x10,
        en_rinval: true,
        translation: Vec::new(),
        ..base()
    };
    tpt.insert(8, window);
    tpt
}

/// The segments of an edit.
pub(super) fn segments(
    flags: u32,
    octwords: u32,
    mask: u64,
    edit: impl FnOnce(&mut [u8]),
    behind: &[u8],
) -> Vec<u8> {
    let mut out = vec![0; umr_ctrl::BYTES + mkc::BYTES];
    umr_ctrl::flags.set(&mut out, flags);
    umr_ctrl::translation_octwords.set(&mut out, octwords);
    umr_ctrl::mkey_mask.set64(&mut out, mask);
    edit(&mut out[umr_ctrl::BYTES..]);
    out.extend_from_slice(behind);
    out
}

fn klm(len: u32, key: u32, va: u64) -> Vec<u8> {
    let mut out = vec![0; 64];
    out[..4].copy_from_slice(&len.to_be_bytes());
    out[4..8].copy_from_slice(&key.to_be_bytes());
    out[8..16].copy_from_slice(&va.to_be_bytes());
    out
}

fn window_context(context: &mut [u8]) {
    mkc::mkey_7_0.set(context, 0x11);
    mkc::qpn.set(context, 0x48);
    mkc::start_addr.set64(context, 0x2000);
    mkc::len.set64(context, 0x100);
    mkc::rr.set(context, 1);
    mkc::rw.set(context, 1);
    mkc::lw.set(context, 1);
}

fn run(tpt: &mut Tpt, segments: &[u8]) -> Result<(), Refused> {
    let umr = Umr::parse(segments)?;
    let translation = match &umr.source {
        Source::Inline(bytes) => bytes.clone(),
        Source::None | Source::Pointer(..) => Vec::new(),
    };
    umr.apply(tpt, 8, POSTER, &translation)
}

fn bind(flags: u32, mask: u64) -> Vec<u8> {
    segments(flags, 4, mask, window_context, &klm(0x100, 0x477, 0x2000))
}

fn through(key: u32, qpn: u32) -> Access {
    Access { key, va: 0x2000, len: 0x100, rights: RW, pd: 3, qpn }
}

#[test]
fn bind_type_1_is_for_the_domain() {
    let mut tpt = table();
    run(&mut tpt, &bind(0x90, BIND)).unwrap();
    assert_eq!(tpt.get(8).unwrap().qpn, ANY_QPN);
    assert_eq!(tpt.check(&through(0x811, 0x99)), Ok(()));
    assert!(tpt.check(&through(0x810, 0x99)).is_err(), "the old key is dead");
}

#[test]
fn rebind_type_1_needs_no_unbind() {
    let mut tpt = table();
    run(&mut tpt, &bind(0x90, BIND)).unwrap();
    let again = segments(
        0x90,
        4,
        BIND,
        |c| {
            window_context(c);
            mkc::mkey_7_0.set(c, 0x12);
        },
        &klm(0x100, 0x477, 0x2000),
    );
    run(&mut tpt, &again).unwrap();
    assert_eq!(tpt.check(&through(0x812, 1)), Ok(()));
    assert!(tpt.check(&through(0x811, 1)).is_err());
}

#[test]
fn bind_type_2_is_for_one_queue_pair() {
    let mut tpt = table();
    run(&mut tpt, &bind(0xb0, BIND_QPN)).unwrap();
    assert_eq!(tpt.check(&through(0x811, 0x48)), Ok(()));
    assert!(tpt.check(&through(0x811, 0x49)).is_err());
}

#[test]
fn bind_type_2_needs_a_free_window() {
    let mut tpt = table();
    run(&mut tpt, &bind(0xb0, BIND_QPN)).unwrap();
    let before = tpt.get(8).cloned();
    assert_eq!(run(&mut tpt, &bind(0xb0, BIND_QPN)), Err(Refused::NotFree));
    assert_eq!(tpt.get(8).cloned(), before, "a refused edit changes nothing");
}

#[test]
fn the_not_free_flag() {
    let mut tpt = table();
    assert_eq!(run(&mut tpt, &bind(0xd0, BIND)), Err(Refused::Free));
    run(&mut tpt, &bind(0x90, BIND)).unwrap();
    run(&mut tpt, &bind(0xd0, BIND)).unwrap();
}

#[test]
fn local_invalidate_frees_and_may_be_bound_again() {
    let mut tpt = table();
    run(&mut tpt, &bind(0xb0, BIND_QPN)).unwrap();
    let free = |c: &mut [u8]| {
        mkc::free.set(c, 1);
        mkc::qpn.set(c, ANY_QPN);
    };
    run(&mut tpt, &segments(0x98, 0, UNBIND, free, &[])).unwrap();
    let key = tpt.get(8).unwrap();
    assert!(key.free && key.qpn == ANY_QPN && key.variant == 0);
    run(&mut tpt, &bind(0xb0, BIND_QPN)).unwrap();
}

#[test]
fn invalidate_of_a_foreign_window_is_refused() {
    let mut tpt = table();
    run(&mut tpt, &bind(0x90, BIND)).unwrap();
    let free = |c: &mut [u8]| mkc::free.set(c, 1);
    assert_eq!(run(&mut tpt, &segments(0x98, 0, UNBIND, free, &[])), Err(Refused::Qpn));
}

#[test]
fn unbind_type_1() {
    let mut tpt = table();
    run(&mut tpt, &bind(0x90, BIND)).unwrap();
    run(&mut tpt, &segments(0x90, 0, BIND, |c| mkc::free.set(c, 1), &[])).unwrap();
    assert!(tpt.get(8).unwrap().free);
}

#[test]
fn only_masked_fields_change() {
    let mut tpt = table();
    let all = |c: &mut [u8]| {
        c.fill(0xff);
    };
    run(&mut tpt, &segments(0x80, 0, 1 << 29, all, &[])).unwrap();
    let mut want = table().get(8).cloned().unwrap();
    want.free = true;
    assert_eq!(tpt.get(8), Some(&want));
}

#[test]
fn each_mask_bit_changes_its_field() {
    type Read = fn(&Mkey) -> u64;
    let fields: [(u32, Read); 13] = [
        (0, |k| k.len),
        (1, |k| u64::from(k.log_page_size)),
        (6, |k| k.start),
        (8, |k| u64::from(k.en_rinval)),
        (13, |k| u64::from(k.variant)),
        (17, |k| u64::from(k.rights & LR)),
        (18, |k| u64::from(k.rights & LW)),
        (19, |k| u64::from(k.rights & RR)),
        (20, |k| u64::from(k.rights & RW)),
        (21, |k| u64::from(k.rights & ATOMIC)),
        (25, |k| u64::from(k.relaxed_write)),
        (29, |k| u64::from(k.free)),
        (47, |k| u64::from(k.relaxed_read)),
    ];
    for (bit, read) in fields {
        let mut tpt = table();
        if let Some(key) = tpt.get_mut(8) {
            key.rights = LR;
        }
        let before = tpt.get(8).cloned().unwrap();
        let flip = |c: &mut [u8]| {
            for (field, old) in [
                (mkc::lr, before.rights & LR),
                (mkc::lw, before.rights & LW),
                (mkc::rr, before.rights & RR),
                (mkc::rw, before.rights & RW),
                (mkc::a, before.rights & ATOMIC),
            ] {
                field.set(c, u32::from(old == 0));
            }
            mkc::len.set64(c, 0x44);
            mkc::start_addr.set64(c, 0x55);
            mkc::log_page_size.set(c, 9);
            mkc::mkey_7_0.set(c, 0x99);
            mkc::pd.set(c, 3);
            mkc::relaxed_ordering_write.set(c, 1);
            mkc::relaxed_ordering_read.set(c, 1);
        };
        run(&mut tpt, &segments(0x80, 0, 1 << bit, flip, &[])).unwrap();
        let after = tpt.get(8).unwrap();
        assert_ne!(read(&before), read(after), "bit {bit}");
        for (other, read) in fields {
            if other != bit {
                assert_eq!(read(&before), read(after), "bit {bit} also changed {other}");
            }
        }
    }
}

#[test]
fn refusals() {
    type Edit = fn(&mut Mkey);
    let cases: [(&str, Edit, Vec<u8>, Refused); 6] = [
        ("no umr_en", |k| k.umr_en = false, bind(0x90, BIND), Refused::NotEnabled),
        ("other domain", |k| k.pd = 4, bind(0x90, BIND), Refused::Pd),
        ("too small", |k| k.octwords = 0, bind(0x90, BIND), Refused::TooSmall),
        ("unknown mask bit", |_| {}, bind(0x90, BIND | 1 << 12), Refused::Mask),
        (
            "no such key below",
            |_| {},
            segments(0x90, 4, BIND, window_context, &klm(0x100, 0x478, 0x2000)),
            Refused::Underlying,
        ),
        (
            "foreign queue pair",
            |_| {},
            segments(
                0xb0,
                4,
                BIND_QPN,
                |c| {
                    window_context(c);
                    mkc::qpn.set(c, 0x49);
                },
                &klm(0x100, 0x477, 0x2000),
            ),
            Refused::ForeignQpn,
        ),
    ];
    for (what, edit, segments, want) in cases {
        let mut tpt = table();
        edit(tpt.get_mut(8).unwrap());
        assert_eq!(run(&mut tpt, &segments), Err(want), "{what}");
    }
}

#[test]
fn a_key_changes_its_domain_only_for_the_kernel_queue() {
    let other = |c: &mut [u8]| mkc::pd.set(c, 9);
    let edit = segments(0x80, 0, 1 << 7, other, &[]);
    assert_eq!(run(&mut table(), &edit), Err(Refused::Mask));
    let mut tpt = table();
    let kernel = Poster { privileged: true, pd: 1, qpn: 2, ..POSTER };
    Umr::parse(&edit).unwrap().apply(&mut tpt, 8, kernel, &[]).unwrap();
    assert_eq!(tpt.get(8).unwrap().pd, 9);
}

#[test]
fn short_segments_are_refused() {
    let whole = bind(0x90, BIND);
    for cut in 0..whole.len() {
        assert_eq!(Umr::parse(&whole[..cut]), Err(Refused::Short), "{cut} bytes");
    }
    assert!(Umr::parse(&whole).is_ok());
}

#[test]
fn the_offset_places_the_translation() {
    let mut tpt = table();
    let mut edit =
        segments(0x90, 1, 1 << 29, |c| mkc::free.set(c, 1), &klm(0x40, 0x477, 0x2000)[..16]);
    umr_ctrl::translation_offset_15_0.set(&mut edit, 3);
    run(&mut tpt, &edit).unwrap();
    assert_eq!(tpt.get(8).unwrap().translation[6..], [(0x40 << 32) | 0x477, 0x2000]);
    umr_ctrl::translation_offset_15_0.set(&mut edit, 4);
    assert_eq!(run(&mut tpt, &edit), Err(Refused::TooSmall));
}

/// Posts a bind of a window over a queue pair of the rig.
fn post_bind(rig: &mut Rig, qpn: u32, window: u32, below: u32, index: u16) {
    let body = segments(
        0xb0,
        4,
        BIND_QPN,
        |c| {
            window_context(c);
            mkc::qpn.set(c, qpn);
            mkc::start_addr.set64(c, DATA);
        },
        &klm(0x100, below, DATA),
    );
    let mut wqe = control(0x25, index, qpn, 12, window);
    wqe.extend(body);
    // The ring has four blocks: a second bind of three blocks wraps.
    let ring = QP_PAGE + 256;
    for (k, block) in wqe.chunks(64).enumerate() {
        let slot = (u64::from(index) + k as u64) % 4;
        rig.poke(ring + slot * 64, block);
    }
    rig.poke32(QP_DBR + 4, u32::from(index) + 3);
    rig.ring(qpn);
}

#[test]
fn a_bind_posted_on_a_queue_completes() {
    let mut rig = Rig::new();
    let cqn = rig.cq(4);
    let qpn = rig.qp(cqn);
    super::qp::to_rts(&mut rig, qpn);
    let below = rig.key(|_| {}).unwrap();
    let window = rig
        .key(|c| {
            mkc::access_mode_1_0.set(c, 2);
            mkc::free.set(c, 1);
            mkc::translations_octword_size.set(c, 4);
            mkc::len.set64(c, 0);
        })
        .unwrap();
    post_bind(&mut rig, qpn, window, below, 0);
    let cqe = rig.cqe(0);
    assert_eq!(cqe[0x3f], 0, "{cqe:02x?} {:?}", rig.hca.complaints());
    assert_eq!(rig.hca.objects.tpt.get(window >> 8).unwrap().qpn, qpn);
    // The same again is a bind of a bound window: syndrome 6, and the ring wrapped on the way.
    post_bind(&mut rig, qpn, window, below, 3);
    let cqe = rig.cqe(1);
    assert_eq!((cqe[0x3f] >> 4, cqe[0x37], cqe[0x38]), (13, 6, 0x25), "{cqe:02x?}");
    assert_ne!(cqe[0x36], 0);
}

#[test]
fn translations_have_room_in_granules_of_64_bytes() {
    let mut tpt = table();
    tpt.get_mut(8).unwrap().octwords = 3;
    assert_eq!(run(&mut tpt, &bind(0x90, BIND)), Ok(()));
}
