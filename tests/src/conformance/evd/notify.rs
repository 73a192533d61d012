//! dat_evd_enable(3), dat_evd_disable(3), dat_evd_modify_cno(3).

use dat_core::provider::Moderation;
use dat_core::{DatReturn, DatSubtype, DatType, DtoOperation};

use super::super::{A, Adapters, B, Side, refused};
use super::{MOMENT, drained, post, soft, wait};

const NOBODY: DatReturn = DatReturn::QUEUE_EMPTY;

/// Everything else works.
pub fn a_disabled_one_triggers_nothing(ias: &mut Adapters<'_, impl Side>) {
    let cno = ias.a.cno_create(None).unwrap();
    let evd = soft(ias, 4);
    ias.a.evd_modify_cno(evd, Some(cno)).unwrap();
    ias.a.evd_disable(evd).unwrap();
    post(ias, evd, 0..2);
    ias.pass(MOMENT);
    assert_eq!(ias.a.cno_trigger(cno), Err(NOBODY));
    assert_eq!(wait(ias, evd, MOMENT, 2), Ok(dat_core::Event::Software(0)));
    assert_eq!(drained(ias, evd), [1]);
    post(ias, evd, 2..3);
    // Earlier events do not trigger afterwards.
    ias.a.evd_enable(evd).unwrap();
    ias.pass(MOMENT);
    assert_eq!(ias.a.cno_trigger(cno), Err(NOBODY));
    post(ias, evd, 3..4);
    assert_eq!(ias.a.cno_trigger(cno), Ok(evd));
    assert_eq!(drained(ias, evd), [2, 3]);
}

/// Each completion is dequeued, and waits for it end, whatever the moderation; what a device cannot
/// do is refused.
pub fn a_moderated_one_loses_nothing(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let evd = ends[B].recv;
    for moderation in [(16, 50), (2, 4095), (0, 0)] {
        let (completions, period) = moderation;
        let said = ias.b.evd_moderate(evd, Moderation { completions, period });
        if let Err(error) = said {
            assert_eq!(error.ret(), DatReturn::of(DatType::ModelNotSupported));
        }
        for cookie in 0..5 {
            ias.recv(&ends[B], &mems[B], 0, 64, cookie);
            ias.send(&ends[A], &mems[A], 0, 64, cookie);
            assert_eq!(ias.done(&ends[B], DtoOperation::Receive, cookie), 64);
            ias.done(&ends[A], DtoOperation::Send, cookie);
        }
    }
    let long = Moderation { completions: 1, period: Moderation::LONGEST + 1 };
    refused(ias.b.evd_moderate(evd, long), DatType::InvalidParameter, DatSubtype::InvalidArg2);
    let evd = soft(ias, 4);
    let refusal = ias.a.evd_moderate(evd, Moderation::default());
    refused(refusal, DatType::InvalidState, DatSubtype::None);
}

/// Both calls change nothing where there is nothing to change.
pub fn enabling_twice_is_once(ias: &mut Adapters<'_, impl Side>) {
    let cno = ias.a.cno_create(None).unwrap();
    let evd = soft(ias, 4);
    ias.a.evd_modify_cno(evd, Some(cno)).unwrap();
    ias.a.evd_enable(evd).unwrap();
    post(ias, evd, 0..1);
    ias.a.evd_enable(evd).unwrap();
    assert_eq!(ias.a.cno_trigger(cno), Ok(evd));
    ias.a.evd_disable(evd).unwrap();
    ias.a.evd_disable(evd).unwrap();
    post(ias, evd, 1..2);
    assert_eq!(ias.a.cno_trigger(cno), Err(NOBODY));
    ias.a.evd_enable(evd).unwrap();
    post(ias, evd, 2..3);
    assert_eq!(ias.a.cno_trigger(cno), Ok(evd));
}

/// To another, to the same, to none.
pub fn modify_cno_moves_what_comes_next(ias: &mut Adapters<'_, impl Side>) {
    let [one, two] = [0, 1].map(|_| ias.a.cno_create(None).unwrap());
    let evd = soft(ias, 8);
    ias.a.evd_modify_cno(evd, Some(one)).unwrap();
    post(ias, evd, 0..1);
    ias.a.evd_modify_cno(evd, Some(two)).unwrap();
    assert_eq!(ias.a.cno_trigger(one), Ok(evd));
    assert_eq!(ias.a.cno_trigger(two), Err(NOBODY));
    post(ias, evd, 1..2);
    assert_eq!(ias.a.cno_trigger(one), Err(NOBODY));
    assert_eq!(ias.a.cno_trigger(two), Ok(evd));
    ias.a.evd_modify_cno(evd, Some(two)).unwrap();
    assert_eq!(ias.a.cno_query(two).unwrap().evds, 1);
    ias.a.evd_modify_cno(evd, None).unwrap();
    post(ias, evd, 2..3);
    ias.pass(MOMENT);
    assert_eq!(ias.a.cno_trigger(two), Err(NOBODY));
    assert_eq!(ias.a.evd_query(evd).unwrap().cno, None);
    assert_eq!(drained(ias, evd), [0, 1, 2]);
}

/// A stale CNO changes nothing.
pub fn modify_cno_to_a_stale_one(ias: &mut Adapters<'_, impl Side>) {
    let [one, two] = [0, 1].map(|_| ias.a.cno_create(None).unwrap());
    ias.a.cno_free(two).unwrap();
    let evd = soft(ias, 8);
    ias.a.evd_modify_cno(evd, Some(one)).unwrap();
    let moved = ias.a.evd_modify_cno(evd, Some(two));
    refused(moved, DatType::InvalidHandle, DatSubtype::InvalidHandleCno);
    post(ias, evd, 0..1);
    assert_eq!(ias.a.cno_trigger(one), Ok(evd));
}
