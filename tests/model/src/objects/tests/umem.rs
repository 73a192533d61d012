//! User memory: what is taken, what lies in it, and how long it stays.

use super::super::cqe::{Cqe, CqeOpcode};
use super::super::device::Device;
use super::super::mkey::{Access, LR, LW, RR, RW};
use super::{BASE, DATA, Rig, control, put_page};
use crate::cmd::{Refusal, Status};
use crate::config::Config;
use crate::ifc::Field;
use crate::ifc::cq::{cqc, create_cq_in};
use crate::ifc::mkey::{create_mkey_in, mkc};
use crate::ifc::qp::{qp_in, qpc};
use crate::ifc::umem::{create_umem_in, umem};
use crate::ifc::wq::{rmp_in, rmpc, rq_in, rqc, sq_in, sqc, wq, xrc_srq_in};

/// Two pages that do not follow each other.
const FIRST: u64 = BASE + 0x2_0000;
const SECOND: u64 = BASE + 0x4_0000;
const READ: u64 = 1;
const WRITE: u64 = 2;
const BOTH: u64 = READ | WRITE;

fn rig() -> Rig {
    let general_caps = vec![("umem_uid_0", 1)];
    Rig::with(Config { general_caps, ..Config::default() })
}

/// CREATE_UMEM of pages of `1 << log` bytes.
fn input(log: u32, offset: u32, pages: &[u64]) -> Vec<u8> {
    let mut input = vec![0; create_umem_in::BYTES + 8 * pages.len()];
    let at = create_umem_in::umem.byte();
    let given = &mut input[at..];
    umem::log_page_size.set(given, log - 12);
    umem::page_offset.set(given, offset);
    umem::num_of_mtt.set64(given, pages.len() as u64);
    for (nth, page) in pages.iter().enumerate() {
        put_page(&mut given[nth * 8..], umem::mtt, *page);
    }
    input
}

impl Rig {
    fn umem(&mut self, offset: u32, pages: &[u64]) -> u32 {
        self.run(0xa08, &input(12, offset, pages)).unwrap()
    }
}

/// A ring and a record in umems: number and offset of each.
#[derive(Clone, Copy)]
struct In {
    ring: (u32, u64),
    record: (u32, u64),
}

/// The fields that say so: validity, number and offset, of the ring and of the record.
type Fields = [Field; 6];

fn put(
    bytes: &mut [u8],
    place: In,
    [ring, ring_id, ring_at, record, record_id, record_at]: Fields,
) {
    ring.set(bytes, 1);
    ring_id.set(bytes, place.ring.0);
    ring_at.set64(bytes, place.ring.1);
    record.set(bytes, 1);
    record_id.set(bytes, place.record.0);
    record_at.set64(bytes, place.record.1);
}

/// CREATE_CQ of 16 entries.
fn cq_input(rig: &Rig, place: In) -> Vec<u8> {
    let mut input = vec![0; create_cq_in::BYTES];
    let context = create_cq_in::cqc.bytes_mut(&mut input);
    cqc::log_cq_size.set(context, 4);
    cqc::uar_page.set(context, rig.uar);
    cqc::c_eqn_or_apu_element.set(context, rig.eqn);
    let of = |field: Field| field.within(create_cq_in::cqc);
    let fields = [
        create_cq_in::cq_umem_valid,
        create_cq_in::cq_umem_id,
        create_cq_in::cq_umem_offset,
        of(cqc::dbr_umem_valid),
        of(cqc::dbr_umem_id),
        of(cqc::dbr_addr),
    ];
    put(&mut input, place, fields);
    input
}

/// CREATE_QP with rings of 512 bytes.
fn qp_input(rig: &Rig, cqn: u32, place: In) -> Vec<u8> {
    let mut input = rig.qp_input(cqn);
    input.truncate(qp_in::BYTES);
    let of = |field: Field| field.within(qp_in::qpc);
    let fields = [
        qp_in::wq_umem_valid,
        qp_in::wq_umem_id,
        qp_in::wq_umem_offset,
        of(qpc::dbr_umem_valid),
        of(qpc::dbr_umem_id),
        of(qpc::dbr_addr),
    ];
    put(&mut input, place, fields);
    input
}

fn put_wq(rig: &Rig, inner: &mut [u8], place: In) {
    wq::pd.set(inner, rig.pd);
    wq::uar_page.set(inner, rig.uar);
    wq::wq_type.set(inner, 1);
    wq::log_wq_stride.set(inner, 6);
    wq::log_wq_sz.set(inner, 2);
    let fields = [
        wq::wq_umem_valid,
        wq::wq_umem_id,
        wq::wq_umem_offset,
        wq::dbr_umem_valid,
        wq::dbr_umem_id,
        wq::dbr_addr,
    ];
    put(inner, place, fields);
}

/// CREATE_SQ, CREATE_RQ, CREATE_RMP of four entries of 64 bytes.
fn wq_inputs(rig: &Rig, cqn: u32, place: In) -> [(u16, Vec<u8>); 3] {
    let [mut sq, mut rq, mut rmp] = [vec![0; 272], vec![0; 272], vec![0; 272]];
    let context = sq_in::sqc.bytes_mut(&mut sq);
    sqc::cqn.set(context, cqn);
    put_wq(rig, sqc::wq.bytes_mut(context), place);
    let context = rq_in::rqc.bytes_mut(&mut rq);
    rqc::cqn.set(context, cqn);
    put_wq(rig, rqc::wq.bytes_mut(context), place);
    let context = rmp_in::rmpc.bytes_mut(&mut rmp);
    rmpc::state.set(context, 1);
    put_wq(rig, rmpc::wq.bytes_mut(context), place);
    [(0x904, sq), (0x908, rq), (0x90c, rmp)]
}

/// CREATE_MKEY of 0x1000 bytes that begin `at` bytes into a page, for all rights.
fn mkey_input(rig: &Rig, at: u64, (number, offset): (u32, u64)) -> Vec<u8> {
    let mut input = vec![0; create_mkey_in::BYTES];
    create_mkey_in::mkey_umem_valid.set(&mut input, 1);
    create_mkey_in::mkey_umem_id.set(&mut input, number);
    create_mkey_in::mkey_umem_offset.set64(&mut input, offset);
    create_mkey_in::translations_octword_actual_size.set(&mut input, 1);
    let context = create_mkey_in::memory_key_mkey_entry.bytes_mut(&mut input);
    for (field, value) in [
        (mkc::access_mode_1_0, 1),
        (mkc::lr, 1),
        (mkc::lw, 1),
        (mkc::rr, 1),
        (mkc::rw, 1),
        (mkc::qpn, 0xff_ffff),
        (mkc::pd, rig.pd),
        (mkc::translations_octword_size, 1),
        (mkc::log_page_size, 12),
    ] {
        field.set(context, value);
    }
    mkc::start_addr.set64(context, 0x7_0000 + at);
    mkc::len.set64(context, 0x1000);
    input
}

fn refused<T: core::fmt::Debug>(status: Status, result: Result<T, Refusal>) {
    assert_eq!(result.unwrap_err().status, status as u8);
}

#[test]
fn completions_go_across_the_pages_of_a_umem_at_its_offset() {
    let mut rig = rig();
    let ring = rig.umem(0xc00, &[FIRST | WRITE, SECOND | WRITE]);
    let record = rig.umem(0x18, &[DATA | READ]);
    let place = In { ring: (ring, 0x180), record: (record, 0x10) };
    let cqn = rig.run(0x400, &cq_input(&rig, place)).unwrap();
    assert_eq!(rig.hca.objects.cqs.get(&cqn).unwrap().dbr, DATA + 0x28);
    for counter in 0..16 {
        let cqe = Cqe { wqe_counter: counter, ..Cqe::new(CqeOpcode::Requester, 0x48) };
        Device::of(&mut rig.hca).complete(0, cqn, &cqe);
    }
    for counter in 0..16_u64 {
        let at = 0xd80 + counter * 64;
        let page = if at < 0x1000 { FIRST } else { SECOND };
        let counted = rig.peek(page + at % 0x1000 + 0x3c, 2);
        assert_eq!(counted, (counter as u16).to_be_bytes(), "entry {counter}");
    }
    // The record says that three were taken: as many fit in again.
    rig.poke32(DATA + 0x28, 3);
    for counter in 16..20 {
        let cqe = Cqe { wqe_counter: counter, ..Cqe::new(CqeOpcode::Requester, 0x48) };
        Device::of(&mut rig.hca).complete(0, cqn, &cqe);
    }
    assert_eq!(rig.peek(FIRST + 0xd80 + 0x3c, 2), 16_u16.to_be_bytes());
    assert_eq!(rig.events().iter().filter(|kind| **kind == 4).count(), 1, "one overrun");
}

#[test]
fn a_queue_pair_reads_its_ring_and_record_from_umems() {
    let mut rig = rig();
    let cqn = rig.cq(4);
    let ring = rig.umem(0, &[FIRST | READ, SECOND | READ]);
    let record = rig.umem(0, &[DATA | READ]);
    // 256 bytes of receives end the first page, the sends begin the second.
    let place = In { ring: (ring, 0xf00), record: (record, 0x40) };
    let qpn = rig.run(0x500, &qp_input(&rig, cqn, place)).unwrap();
    super::qp::to_rts(&mut rig, qpn);
    rig.poke(SECOND, &control(0, 0, qpn, 1, 0));
    rig.poke32(DATA + 0x44, 1);
    rig.ring(qpn);
    assert_eq!(rig.cqe(0)[0x3f] >> 4, 0, "the NOP completes");
    assert_eq!(rig.hca.complaints(), [] as [&str; 0]);
}

#[test]
fn a_page_size_larger_than_a_page_of_the_host_is_one_piece() {
    let mut rig = rig();
    let ring = rig.run(0xa08, &input(16, 0x800, &[(BASE + 0x2_1000) | BOTH])).unwrap_err();
    assert_eq!(ring.status, Status::BadParam as u8, "64 KiB are aligned to 64 KiB");
    let page = BASE + 0x2_0000;
    let ring = rig.run(0xa08, &input(16, 0x800, &[page | BOTH])).unwrap();
    let place = In { ring: (ring, 0x1000), record: (ring, 0) };
    let cqn = rig.run(0x400, &cq_input(&rig, place)).unwrap();
    Device::of(&mut rig.hca).complete(0, cqn, &Cqe::new(CqeOpcode::Requester, 0x48));
    assert_eq!(rig.peek(page + 0x1838, 4), [0, 0, 0, 0x48]);
}

#[test]
fn a_umem_stays_until_its_last_user_is_gone() {
    let mut rig = rig();
    let ring = rig.umem(0, &[FIRST | BOTH]);
    let record = rig.umem(0, &[DATA | READ]);
    let cqn = rig.cq(4);
    let place = In { ring: (ring, 0), record: (record, 0) };
    let mut users =
        vec![(0x400, 0x401, cq_input(&rig, place)), (0x500, 0x501, qp_input(&rig, cqn, place))];
    for (create, input) in wq_inputs(&rig, cqn, place) {
        users.push((create, create + 2, input));
    }
    for (create, destroy, input) in users {
        let number = rig.run(create, &input).unwrap();
        for umem in [ring, record] {
            refused(Status::BadResourceState, rig.short(0xa0a, umem));
        }
        rig.short(destroy, number).unwrap();
    }
    let input = mkey_input(&rig, 0, (ring, 0));
    let index = rig.run(0x200, &input).unwrap();
    refused(Status::BadResourceState, rig.short(0xa0a, ring));
    rig.short(0x202, index).unwrap();
    for umem in [ring, record] {
        rig.short(0xa0a, umem).unwrap();
        refused(Status::BadResource, rig.short(0xa0a, umem));
    }
    refused(Status::BadResource, rig.run(0x400, &cq_input(&rig, place)));
}

#[test]
fn what_is_not_inside_is_refused_and_takes_no_reference() {
    let mut rig = rig();
    let cqn = rig.cq(4);
    let ring = rig.umem(0x800, &[FIRST | BOTH]);
    let record = rig.umem(0xff0, &[DATA | READ]);
    let fits = In { ring: (ring, 0x400), record: (record, 8) };
    let misfits = [
        In { ring: (ring, 0x7c0), ..fits },
        In { ring: (ring, u64::MAX - 0x3f), ..fits },
        // Where entries cannot begin.
        In { ring: (ring, 0x20), ..fits },
        In { record: (record, 0x10), ..fits },
        In { record: (record, u64::MAX - 7), ..fits },
        // Half of a word.
        In { record: (record, 2), ..fits },
    ];
    let inputs = |rig: &Rig, place| {
        let mut inputs = vec![(0x400, cq_input(rig, place)), (0x500, qp_input(rig, cqn, place))];
        inputs.extend(wq_inputs(rig, cqn, place));
        inputs
    };
    for (nth, place) in misfits.into_iter().enumerate() {
        for (create, input) in inputs(&rig, place) {
            let result = rig.run(create, &input);
            assert!(result.is_err(), "{create:#x} at misfit {nth}");
            refused(Status::BadParam, result);
        }
    }
    let unknown = In { ring: (ring + 9, 0), ..fits };
    for (create, input) in inputs(&rig, unknown) {
        refused(Status::BadResource, rig.run(create, &input));
    }
    for umem in [ring, record] {
        rig.short(0xa0a, umem).unwrap();
    }
}

#[test]
fn the_context_says_nothing_else_of_the_place() {
    let mut rig = rig();
    let umem = rig.umem(0, &[FIRST | BOTH]);
    let place = In { ring: (umem, 0), record: (umem, 0x800) };
    for (field, value) in [(cqc::page_offset, 1), (cqc::log_page_size, 1)] {
        let mut input = cq_input(&rig, place);
        field.set(create_cq_in::cqc.bytes_mut(&mut input), value);
        refused(Status::BadParam, rig.run(0x400, &input));
    }
}

#[test]
fn completions_are_written_and_requests_read() {
    let mut rig = rig();
    let cqn = rig.cq(4);
    let record = rig.umem(0, &[DATA | READ]);
    for (right, writes) in [(READ, false), (WRITE, true)] {
        let ring = rig.umem(0, &[FIRST | BOTH, SECOND | right]);
        let place = In { ring: (ring, 0xe00), record: (record, 0) };
        assert_eq!(rig.run(0x400, &cq_input(&rig, place)).is_ok(), writes);
        let place = In { ring: (ring, 0xf00), record: (record, 0) };
        assert_eq!(rig.run(0x500, &qp_input(&rig, cqn, place)).is_ok(), !writes);
        let place = In { ring: (ring, 0xf80), record: (record, 0) };
        for (create, input) in wq_inputs(&rig, cqn, place) {
            assert_eq!(rig.run(create, &input).is_ok(), !writes, "{create:#x}");
        }
        let place = In { ring: (ring, 0), record: (ring, 0x1000) };
        assert_eq!(rig.run(0x400, &cq_input(&rig, place)).is_ok(), !writes, "a record is read");
    }
}

#[test]
fn a_resized_cq_moves_from_one_umem_to_another() {
    let mut rig = rig();
    let [old, new] = [FIRST, SECOND].map(|page| rig.umem(0, &[page | BOTH]));
    let place = In { ring: (old, 0), record: (old, 0x800) };
    let cqn = rig.run(0x400, &cq_input(&rig, place)).unwrap();
    let mut input = cq_input(&rig, In { ring: (new, 0), record: (old, 0x800) });
    input[6..8].copy_from_slice(&[0, 1]);
    create_cq_in::number.set(&mut input, cqn);
    create_cq_in::field_select.set(&mut input, 1);
    rig.run(0x403, &input).unwrap();
    for umem in [old, new] {
        refused(Status::BadResourceState, rig.short(0xa0a, umem));
    }
    Device::of(&mut rig.hca).complete(0, cqn, &Cqe::new(CqeOpcode::Requester, 0x48));
    assert_eq!(rig.peek(SECOND + 0x40 + 0x38, 4), [0, 0, 0, 0x48]);
    rig.short(0x401, cqn).unwrap();
    for umem in [old, new] {
        rig.short(0xa0a, umem).unwrap();
    }
}

#[test]
fn a_key_has_the_pages_of_a_umem_and_no_more_rights() {
    let mut rig = rig();
    let umem = rig.umem(0x100, &[FIRST | BOTH, SECOND | READ]);
    let index = rig.run(0x200, &mkey_input(&rig, 0x300, (umem, 0x200))).unwrap();
    let pd = rig.pd;
    let at = |va, rights| Access { key: index << 8, va, len: 16, rights, pd, qpn: 9 };
    let tpt = &rig.hca.objects.tpt;
    for rights in [LR | RR, LW | RW] {
        let runs = tpt.resolve(&at(0x7_0300, rights)).unwrap();
        assert_eq!(runs[0].iova, FIRST + 0x300);
    }
    assert_eq!(tpt.resolve(&at(0x7_1000, LR | RR)).unwrap()[0].iova, SECOND);
    for rights in [LW, RW] {
        assert!(tpt.resolve(&at(0x7_1000, rights)).is_err(), "the page is not written");
    }
}

#[test]
fn a_key_that_does_not_fit_its_umem_is_refused() {
    let mut rig = rig();
    let umem = rig.umem(0x100, &[FIRST | BOTH, SECOND | BOTH]);
    refused(Status::BadParam, rig.run(0x200, &mkey_input(&rig, 0x300, (umem, 0x300))));
    refused(Status::BadParam, rig.run(0x200, &mkey_input(&rig, 0x100, (umem, 0x1000))));
    refused(Status::BadResource, rig.run(0x200, &mkey_input(&rig, 0x300, (umem + 1, 0x200))));
    for (field, value) in
        [(mkc::access_mode_1_0, 2), (mkc::free, 1), (mkc::length64, 1), (mkc::log_page_size, 13)]
    {
        let mut input = mkey_input(&rig, 0x300, (umem, 0x200));
        field.set(create_mkey_in::memory_key_mkey_entry.bytes_mut(&mut input), value);
        refused(Status::BadParam, rig.run(0x200, &input));
    }
    rig.short(0xa0a, umem).unwrap();
}

#[test]
fn a_key_of_pages_without_end_is_refused() {
    let mut rig = rig();
    // 8 TiB.
    let umem = rig.run(0xa08, &input(43, 0, &[BOTH])).unwrap();
    let mut input = mkey_input(&rig, 0, (umem, 0));
    create_mkey_in::translations_octword_actual_size.set(&mut input, 1 << 30);
    let context = create_mkey_in::memory_key_mkey_entry.bytes_mut(&mut input);
    mkc::translations_octword_size.set(context, 1 << 30);
    mkc::len.set64(context, 1 << 33);
    refused(Status::NoResources, rig.run(0x200, &input));
}

#[test]
fn a_umem_that_is_none_is_refused() {
    let mut rig = rig();
    let sound = || input(12, 0, &[FIRST | BOTH]);
    rig.run(0xa08, &sound()).unwrap();
    for (name, input) in [
        ("no rights", input(12, 0, &[FIRST])),
        ("an unknown right", input(12, 0, &[FIRST | BOTH | 4])),
        ("an address between pages", input(12, 0, &[FIRST | BOTH | 0x100])),
        ("an offset beyond the page", input(12, 0x1000, &[FIRST | BOTH])),
        ("no pages", input(12, 0, &[])),
        ("half a page size", input(13, 0, &[(FIRST | 0x1000) | BOTH])),
    ] {
        let result = rig.run(0xa08, &input);
        assert!(result.is_err(), "{name}");
        refused(Status::BadParam, result);
    }
    let mut translated = sound();
    umem::ats.set(&mut translated[create_umem_in::umem.byte()..], 1);
    refused(Status::BadParam, rig.run(0xa08, &translated));
    for count in [2, u64::MAX] {
        let mut short = sound();
        umem::num_of_mtt.set64(&mut short[create_umem_in::umem.byte()..], count);
        refused(Status::BadInputLength, rig.run(0xa08, &short));
    }
}

#[test]
fn a_device_without_the_capability_has_none() {
    let mut rig = Rig::new();
    refused(Status::BadOp, rig.run(0xa08, &input(12, 0, &[FIRST | BOTH])));
    let mut srq = vec![0; 280];
    xrc_srq_in::xrc_srq_umem_valid.set(&mut srq, 1);
    refused(Status::BadParam, rig.run(0x705, &srq));
}
