//! dat_set_consumer_context(3), dat_get_consumer_context(3), dat_get_handle_type(3): calls that
//! serve objects of every kind.

use dat_core::{AnyHandle, CloseFlag, DatSubtype, DatType, EpState, EvdFlags, HandleType, MemPriv};

use crate::conformance::{A, B, Bed, LIMIT, Side, refused};

/// One object of each kind on side A, with its type.
fn one_of_each(bed: &mut Bed<'_, impl Side>) -> Vec<(AnyHandle, HandleType)> {
    let end = bed.end(A);
    let mem = bed.mem(A, end.pz, 64, MemPriv::ALL);
    let rmr = bed.a.rmr_create(end.pz).unwrap();
    let point = bed.listen(A);
    let peer = bed.end(B);
    bed.ask(&peer, point.qualifier, LIMIT, b"");
    let cr = bed.request(&point);
    vec![
        (AnyHandle::Ia, HandleType::Ia),
        (end.pz.into(), HandleType::Pz),
        (end.ep.into(), HandleType::Ep),
        (end.recv.into(), HandleType::Evd),
        (mem.lmr.lmr.into(), HandleType::Lmr),
        (rmr.into(), HandleType::Rmr),
        (point.psp.into(), HandleType::Psp),
        (cr.into(), HandleType::Cr),
    ]
}

/// An object has no context until one is set.
pub fn a_context_is_nothing_at_first(bed: &mut Bed<'_, impl Side>) {
    for (handle, ty) in one_of_each(bed) {
        assert_eq!(bed.a.get_consumer_context(handle), Ok(0), "{ty:?}");
    }
}

/// What was set is what is got, 64 bits of it, for objects of every kind, and each object has its
/// own.
pub fn a_context_comes_back_as_it_was_set(bed: &mut Bed<'_, impl Side>) {
    let objects = one_of_each(bed);
    let word = |i: usize| 0xfedc_ba98_0000_0000 | i as u64;
    for (i, (handle, _)) in objects.iter().enumerate() {
        bed.a.set_consumer_context(*handle, word(i)).unwrap();
    }
    for (i, (handle, ty)) in objects.iter().enumerate() {
        assert_eq!(bed.a.get_consumer_context(*handle), Ok(word(i)), "{ty:?}");
    }
}

/// A context set again replaces the one before; 0 takes it away.
pub fn a_context_is_replaced_by_the_next(bed: &mut Bed<'_, impl Side>) {
    for (handle, ty) in one_of_each(bed) {
        for context in [1, u64::MAX, 0] {
            bed.a.set_consumer_context(handle, context).unwrap();
            assert_eq!(bed.a.get_consumer_context(handle), Ok(context), "{ty:?}");
        }
    }
}

/// A context outlives what happens to its object: connection, transfer, end and reset.
pub fn a_context_outlives_changes_of_state(bed: &mut Bed<'_, impl Side>) {
    let ends = [bed.end(A), bed.end(B)];
    bed.a.set_consumer_context(ends[A].ep.into(), 11).unwrap();
    bed.a.set_consumer_context(ends[A].conn.into(), 12).unwrap();
    bed.connect(&ends[A], &ends[B]);
    bed.disconnect(&ends[A], CloseFlag::Abrupt);
    bed.event(A, ends[A].conn);
    bed.a.ep_reset(ends[A].ep).unwrap();
    assert_eq!(bed.state(&ends[A]), EpState::Unconnected);
    assert_eq!(bed.a.get_consumer_context(ends[A].ep.into()), Ok(11));
    assert_eq!(bed.a.get_consumer_context(ends[A].conn.into()), Ok(12));
}

/// A context goes with its object: the next one in its place has none.
pub fn a_context_goes_with_its_object(bed: &mut Bed<'_, impl Side>) {
    let first = bed.a.pz_create().unwrap();
    bed.a.set_consumer_context(first.into(), 99).unwrap();
    bed.a.pz_free(first).unwrap();
    let next = bed.a.pz_create().unwrap();
    assert_ne!(first, next);
    assert_eq!(bed.a.get_consumer_context(next.into()), Ok(0));
    let evd = bed.a.evd_create(4, EvdFlags::SOFTWARE).unwrap();
    bed.a.set_consumer_context(evd.into(), 98).unwrap();
    bed.a.evd_free(evd).unwrap();
    let evd = bed.a.evd_create(4, EvdFlags::SOFTWARE).unwrap();
    assert_eq!(bed.a.get_consumer_context(evd.into()), Ok(0));
}

/// The context of an adapter goes with it.
pub fn the_context_of_an_adapter_goes_with_it(bed: &mut Bed<'_, impl Side>) {
    bed.a.set_consumer_context(AnyHandle::Ia, 5).unwrap();
    bed.b.set_consumer_context(AnyHandle::Ia, 6).unwrap();
    assert_eq!(bed.a.get_consumer_context(AnyHandle::Ia), Ok(5));
    bed.a.close(CloseFlag::Graceful).unwrap();
    let (ty, of) = (DatType::InvalidHandle, DatSubtype::InvalidHandleIa);
    refused(bed.a.get_consumer_context(AnyHandle::Ia), ty, of);
    refused(bed.a.set_consumer_context(AnyHandle::Ia, 1), ty, of);
    bed.a.reopen();
    assert_eq!(bed.a.get_consumer_context(AnyHandle::Ia), Ok(0));
    assert_eq!(bed.b.get_consumer_context(AnyHandle::Ia), Ok(6));
}

/// Frees one object of each kind on side A; the stale handles with the subtype that each is refused
/// with.
fn stale_of_each(bed: &mut Bed<'_, impl Side>) -> Vec<(AnyHandle, DatSubtype)> {
    let objects = one_of_each(bed);
    bed.a.close(CloseFlag::Abrupt).unwrap();
    bed.a.reopen();
    let subtype = |ty| match ty {
        HandleType::Ep => DatSubtype::InvalidHandleEp,
        HandleType::Pz => DatSubtype::InvalidHandlePz,
        HandleType::Lmr => DatSubtype::InvalidHandleLmr,
        HandleType::Rmr => DatSubtype::InvalidHandleRmr,
        HandleType::Psp => DatSubtype::InvalidHandlePsp,
        HandleType::Cr => DatSubtype::InvalidHandleCr,
        _ => DatSubtype::InvalidHandle1,
    };
    let objects = objects.into_iter().filter(|(_, ty)| *ty != HandleType::Ia);
    objects.map(|(handle, ty)| (handle, subtype(ty))).collect()
}

/// A context of what has been freed is refused, and changes nobody else's.
pub fn a_context_of_a_freed_object_is_refused(bed: &mut Bed<'_, impl Side>) {
    let stale = stale_of_each(bed);
    let living = one_of_each(bed);
    for (handle, subtype) in stale {
        let set = bed.a.set_consumer_context(handle, 3);
        refused(set, DatType::InvalidHandle, subtype);
        let got = bed.a.get_consumer_context(handle);
        refused(got, DatType::InvalidHandle, subtype);
    }
    for (handle, _) in living {
        assert_eq!(bed.a.get_consumer_context(handle), Ok(0));
    }
}

/// A handle says what it names.
pub fn a_handle_tells_its_type(bed: &mut Bed<'_, impl Side>) {
    for (handle, ty) in one_of_each(bed) {
        assert_eq!(bed.a.get_handle_type(handle), Ok(ty));
    }
    let async_evd = bed.a.async_evd().into();
    assert_eq!(bed.a.get_handle_type(async_evd), Ok(HandleType::Evd));
}

/// The types have the numbers of dat.h.
pub fn handle_types_have_the_numbers_of_the_header(_: &mut Bed<'_, impl Side>) {
    let numbers = [
        (HandleType::Cr, 0),
        (HandleType::Ep, 1),
        (HandleType::Evd, 2),
        (HandleType::Ia, 3),
        (HandleType::Lmr, 4),
        (HandleType::Psp, 5),
        (HandleType::Pz, 6),
        (HandleType::Rmr, 7),
    ];
    for (ty, number) in numbers {
        assert_eq!(ty as u32, number);
    }
}

/// The type of what has been freed is refused.
pub fn the_type_of_a_freed_object_is_refused(bed: &mut Bed<'_, impl Side>) {
    for (handle, subtype) in stale_of_each(bed) {
        refused(bed.a.get_handle_type(handle), DatType::InvalidHandle, subtype);
    }
}

/// A word that was never a handle is as good as a stale one; the adapter as another kind of object
/// is refused too.
pub fn fault_43_a_word_that_is_no_handle_is_refused(bed: &mut Bed<'_, impl Side>) {
    for raw in [0, 1, 2, u64::MAX, 1 << 30, 0x1234_5678_9abc_def0] {
        let handles = [
            AnyHandle::Pz(dat_core::Pz::from_raw(raw)),
            dat_core::Ep::from_raw(raw).into(),
            dat_core::Evd::from_raw(raw).into(),
            dat_core::Lmr::from_raw(raw).into(),
            dat_core::Rmr::from_raw(raw).into(),
            dat_core::Psp::from_raw(raw).into(),
            dat_core::Cr::from_raw(raw).into(),
        ];
        for handle in handles {
            let ty = bed.a.get_handle_type(handle).map_err(|ret| ret.ty());
            assert_eq!(ty, Err(DatType::InvalidHandle), "{raw:#x} as {handle:?}");
        }
        let evd = dat_core::Evd::from_raw(raw);
        refused(bed.a.evd_dequeue(evd), DatType::InvalidHandle, DatSubtype::InvalidHandle1);
    }
    let end = bed.end(A);
    // An Endpoint's word as that of an Event Dispatcher: their counts begin at different random
    // numbers.
    let disguised = dat_core::Evd::from_raw(end.ep.raw());
    assert!(bed.a.evd_query(disguised).is_err());
}
