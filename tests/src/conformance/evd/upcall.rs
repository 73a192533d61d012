//! kDAPL: dat_evd_kcreate(3), dat_evd_modify_upcall(3).

use std::cell::RefCell;

use dat_core::provider::Provider;
use dat_core::{
    DatSubtype, DatType, Error, Evd, EvdFlags, Event, Ia, Upcall, UpcallFlag, UpcallPolicy,
};

use super::super::{A, Adapters, Side, refused};
use super::{MOMENT, drained, post};

/// Instance, pointer, and whether there are more.
type Call = (u64, u64, bool);

thread_local! {
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
}

/// The upcalls made since the last time.
fn calls() -> Vec<Call> {
    CALLS.with(RefCell::take)
}

fn note<P: Provider>(_: &mut Ia<'_, P>, instance: u64, event: Event, more: bool) {
    let Event::Software(pointer) = event else { panic!("{event:?}") };
    CALLS.with(|calls| calls.borrow_mut().push((instance, pointer, more)));
}

/// Passes a software event on to the Event Dispatcher that the instance names, and drives the
/// adapter meanwhile.
fn pass_on<P: Provider>(ia: &mut Ia<'_, P>, instance: u64, event: Event, more: bool) {
    note(ia, instance, event, more);
    let Event::Software(pointer) = event else {
        return;
    };
    ia.advance(dat_core::Instant::ZERO);
    ia.evd_post_se(Evd::from_raw(instance), pointer + 1).unwrap();
}

fn noting<P: Provider>(instance: u64) -> Option<Upcall<P>> {
    Some(Upcall { instance, function: note })
}

fn made<S: Side>(ias: &mut Adapters<'_, S>, policy: UpcallPolicy) -> Evd {
    let evd = ias.a.evd_kcreate(8, policy, noting(5), EvdFlags::SOFTWARE);
    evd.unwrap()
}

/// One for each, with what the consumer gave and whether more are queued.
pub fn upcalls_are_made_for_each_event_in_order(ias: &mut Adapters<'_, impl Side>) {
    for policy in [UpcallPolicy::SingleInstance, UpcallPolicy::Many] {
        let evd = made(ias, policy);
        assert_eq!(ias.a.evd_query(evd).unwrap().policy, Some(policy));
        post(ias, evd, 0..3);
        ias.pass(MOMENT);
        assert_eq!(calls(), [(5, 0, true), (5, 1, true), (5, 2, false)]);
        assert!(drained(ias, evd).is_empty());
    }
    let none = ias.a.evd_kcreate(0, UpcallPolicy::Many, noting(5), EvdFlags::SOFTWARE);
    refused(none, DatType::InvalidParameter, DatSubtype::InvalidArg2);
}

/// Never from within a call of the consumer.
pub fn upcalls_are_made_by_the_drive_alone(ias: &mut Adapters<'_, impl Side>) {
    let evd = made(ias, UpcallPolicy::SingleInstance);
    post(ias, evd, 0..1);
    ias.a.evd_query(evd).unwrap();
    assert!(calls().is_empty());
    ias.pass(MOMENT);
    assert_eq!(calls(), [(5, 0, false)]);
}

/// Events are queued.
pub fn upcalls_that_are_disabled(ias: &mut Adapters<'_, impl Side>) {
    let evd = made(ias, UpcallPolicy::Disable);
    post(ias, evd, 0..2);
    ias.pass(MOMENT);
    assert!(calls().is_empty());
    assert_eq!(drained(ias, evd), [0, 1]);
}

fn modify<S: Side>(
    ias: &mut Adapters<'_, S>,
    evd: Evd,
    policy: UpcallPolicy,
    flag: UpcallFlag,
) -> Result<(), Error> {
    ias.a.evd_modify_upcall(evd, policy, None, flag)
}

/// The flag of a change; without a new upcall the old one is kept.
pub fn upcalls_for_what_is_queued_or_only_for_what_comes(ias: &mut Adapters<'_, impl Side>) {
    let single = UpcallPolicy::SingleInstance;
    let evd = made(ias, UpcallPolicy::Disable);
    post(ias, evd, 0..1);
    modify(ias, evd, single, UpcallFlag::InvocNew).unwrap();
    ias.pass(MOMENT);
    assert!(calls().is_empty());
    post(ias, evd, 1..2);
    ias.pass(MOMENT);
    assert_eq!(calls(), [(5, 0, true), (5, 1, false)]);
    modify(ias, evd, UpcallPolicy::Disable, UpcallFlag::InvocNew).unwrap();
    post(ias, evd, 2..3);
    modify(ias, evd, single, UpcallFlag::InvocAny).unwrap();
    ias.pass(MOMENT);
    assert_eq!(calls(), [(5, 2, false)]);
    let other = ias.a.evd_modify_upcall(evd, single, noting(6), UpcallFlag::InvocAny);
    other.unwrap();
    post(ias, evd, 3..4);
    ias.pass(MOMENT);
    assert_eq!(calls(), [(6, 3, false)]);
}

/// No more of them.
pub fn upcalls_that_are_torn_down(ias: &mut Adapters<'_, impl Side>) {
    let evd = made(ias, UpcallPolicy::Many);
    post(ias, evd, 0..1);
    modify(ias, evd, UpcallPolicy::Teardown, UpcallFlag::InvocAny).unwrap();
    ias.pass(MOMENT);
    assert!(calls().is_empty());
    ias.a.evd_free(evd).unwrap();
}

/// Either the one or the other.
pub fn upcalls_and_cnos_exclude_each_other(ias: &mut Adapters<'_, impl Side>) {
    let evd = made(ias, UpcallPolicy::Many);
    let cno = ias.a.cno_create(None).unwrap();
    let attached = ias.a.evd_modify_cno(evd, Some(cno));
    refused(attached, DatType::ModelNotSupported, DatSubtype::None);
    let plain = super::soft(ias, 4);
    let changed = modify(ias, plain, UpcallPolicy::Many, UpcallFlag::InvocAny);
    refused(changed, DatType::ModelNotSupported, DatSubtype::None);
    assert_eq!(ias.a.cno_query(cno).unwrap().evds, 0);
}

/// It has the adapter, and none is made from within another.
pub fn upcalls_may_use_the_adapter(ias: &mut Adapters<'_, impl Side>) {
    let to = super::soft(ias, 8);
    let upcall = Upcall { instance: to.raw(), function: pass_on };
    let policy = UpcallPolicy::SingleInstance;
    let evd = ias.a.evd_kcreate(8, policy, Some(upcall), EvdFlags::SOFTWARE);
    let evd = evd.unwrap();
    post(ias, evd, 10..13);
    ias.pass(MOMENT);
    let made: Vec<u64> = calls().into_iter().map(|(_, pointer, _)| pointer).collect();
    assert_eq!(made, [10, 11, 12]);
    assert_eq!(drained(ias, to), [11, 12, 13]);
    assert_eq!(ias.look(A, evd), None);
}
