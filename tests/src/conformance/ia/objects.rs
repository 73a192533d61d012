//! dat_set_consumer_context(3), dat_get_consumer_context(3), dat_get_handle_type(3): calls that
//! serve objects of every kind.

use dat_core::{AnyHandle, CloseFlag, DatSubtype, DatType, EpState, EvdFlags, HandleType, MemPriv};

use crate::conformance::{A, Adapters, B, LIMIT, Side, refused};

/// One object of each kind on side A, with its type.
fn one_of_each(ias: &mut Adapters<'_, impl Side>) -> Vec<(AnyHandle, HandleType)> {
    let end = ias.end(A);
    let mem = ias.mem(A, end.pz, 64, MemPriv::ALL);
    let rmr = ias.a.rmr_create(end.pz).unwrap();
    let point = ias.listen(A);
    let peer = ias.end(B);
    ias.ask(&peer, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
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
pub fn a_context_is_nothing_at_first(ias: &mut Adapters<'_, impl Side>) {
    for (handle, ty) in one_of_each(ias) {
        assert_eq!(ias.a.get_consumer_context(handle), Ok(0), "{ty:?}");
    }
}

/// A word of 64 bits that was set comes back, for objects of every kind, and each object has its
/// own.
pub fn a_context_comes_back_as_it_was_set(ias: &mut Adapters<'_, impl Side>) {
    let objects = one_of_each(ias);
    let word = |i: usize| 0xfedc_ba98_0000_0000 | i as u64;
    for (i, (handle, _)) in objects.iter().enumerate() {
        ias.a.set_consumer_context(*handle, word(i)).unwrap();
    }
    for (i, (handle, ty)) in objects.iter().enumerate() {
        assert_eq!(ias.a.get_consumer_context(*handle), Ok(word(i)), "{ty:?}");
    }
}

/// A context set again replaces the one before; 0 takes it away.
pub fn a_context_is_replaced_by_the_next(ias: &mut Adapters<'_, impl Side>) {
    for (handle, ty) in one_of_each(ias) {
        for context in [1, u64::MAX, 0] {
            ias.a.set_consumer_context(handle, context).unwrap();
            assert_eq!(ias.a.get_consumer_context(handle), Ok(context), "{ty:?}");
        }
    }
}

/// A context outlives what happens to its object: connection, transfer, end and reset.
pub fn a_context_outlives_changes_of_state(ias: &mut Adapters<'_, impl Side>) {
    let ends = [ias.end(A), ias.end(B)];
    ias.a.set_consumer_context(ends[A].ep.into(), 11).unwrap();
    ias.a.set_consumer_context(ends[A].conn.into(), 12).unwrap();
    ias.connect(&ends[A], &ends[B]);
    ias.disconnect(&ends[A], CloseFlag::Abrupt);
    ias.event(A, ends[A].conn);
    ias.a.ep_reset(ends[A].ep).unwrap();
    assert_eq!(ias.state(&ends[A]), EpState::Unconnected);
    assert_eq!(ias.a.get_consumer_context(ends[A].ep.into()), Ok(11));
    assert_eq!(ias.a.get_consumer_context(ends[A].conn.into()), Ok(12));
}

/// A context goes with its object: the next one in its place has none.
pub fn a_context_goes_with_its_object(ias: &mut Adapters<'_, impl Side>) {
    let first = ias.a.pz_create().unwrap();
    ias.a.set_consumer_context(first.into(), 99).unwrap();
    ias.a.pz_free(first).unwrap();
    let next = ias.a.pz_create().unwrap();
    assert_ne!(first, next);
    assert_eq!(ias.a.get_consumer_context(next.into()), Ok(0));
    let evd = ias.a.evd_create(4, EvdFlags::SOFTWARE).unwrap();
    ias.a.set_consumer_context(evd.into(), 98).unwrap();
    ias.a.evd_free(evd).unwrap();
    let evd = ias.a.evd_create(4, EvdFlags::SOFTWARE).unwrap();
    assert_eq!(ias.a.get_consumer_context(evd.into()), Ok(0));
}

/// The context of an adapter goes with it.
pub fn the_context_of_an_adapter_goes_with_it(ias: &mut Adapters<'_, impl Side>) {
    ias.a.set_consumer_context(AnyHandle::Ia, 5).unwrap();
    ias.b.set_consumer_context(AnyHandle::Ia, 6).unwrap();
    assert_eq!(ias.a.get_consumer_context(AnyHandle::Ia), Ok(5));
    ias.a.close(CloseFlag::Graceful).unwrap();
    let (ty, of) = (DatType::InvalidHandle, DatSubtype::InvalidHandleIa);
    refused(ias.a.get_consumer_context(AnyHandle::Ia), ty, of);
    refused(ias.a.set_consumer_context(AnyHandle::Ia, 1), ty, of);
    ias.a.reopen();
    assert_eq!(ias.a.get_consumer_context(AnyHandle::Ia), Ok(0));
    assert_eq!(ias.b.get_consumer_context(AnyHandle::Ia), Ok(6));
}

/// Frees one object of each kind on side A; the stale handles with the subtype that each is refused
/// with.
fn stale_of_each(ias: &mut Adapters<'_, impl Side>) -> Vec<(AnyHandle, DatSubtype)> {
    let objects = one_of_each(ias);
    ias.a.close(CloseFlag::Abrupt).unwrap();
    ias.a.reopen();
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
pub fn a_context_of_a_freed_object_is_refused(ias: &mut Adapters<'_, impl Side>) {
    let stale = stale_of_each(ias);
    let living = one_of_each(ias);
    for (handle, subtype) in stale {
        let set = ias.a.set_consumer_context(handle, 3);
        refused(set, DatType::InvalidHandle, subtype);
        let got = ias.a.get_consumer_context(handle);
        refused(got, DatType::InvalidHandle, subtype);
    }
    for (handle, _) in living {
        assert_eq!(ias.a.get_consumer_context(handle), Ok(0));
    }
}

/// A handle says what it names.
pub fn a_handle_tells_its_type(ias: &mut Adapters<'_, impl Side>) {
    for (handle, ty) in one_of_each(ias) {
        assert_eq!(ias.a.get_handle_type(handle), Ok(ty));
    }
    let async_evd = ias.a.async_evd().into();
    assert_eq!(ias.a.get_handle_type(async_evd), Ok(HandleType::Evd));
}

/// The types have the numbers of dat.h.
pub fn handle_types_have_the_numbers_of_the_header(_: &mut Adapters<'_, impl Side>) {
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
pub fn the_type_of_a_freed_object_is_refused(ias: &mut Adapters<'_, impl Side>) {
    for (handle, subtype) in stale_of_each(ias) {
        refused(ias.a.get_handle_type(handle), DatType::InvalidHandle, subtype);
    }
}

/// A word that was never a handle is as good as a stale one; the adapter as another kind of object
/// is refused too.
pub fn fault_43_a_word_that_is_no_handle_is_refused(ias: &mut Adapters<'_, impl Side>) {
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
            let ty = ias.a.get_handle_type(handle).map_err(|ret| ret.ty());
            assert_eq!(ty, Err(DatType::InvalidHandle), "{raw:#x} as {handle:?}");
        }
        let evd = dat_core::Evd::from_raw(raw);
        refused(ias.a.evd_dequeue(evd), DatType::InvalidHandle, DatSubtype::InvalidHandle1);
    }
    let end = ias.end(A);
    // An Endpoint's word as that of an Event Dispatcher: their counts begin at different random
    // numbers.
    let disguised = dat_core::Evd::from_raw(end.ep.raw());
    assert!(ias.a.evd_query(disguised).is_err());
}
