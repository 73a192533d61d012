//! dat_evd_enable(3), dat_evd_disable(3), dat_evd_modify_cno(3).

use dat_core::{DatReturn, DatSubtype, DatType};

use super::super::{Bed, Side, refused};
use super::{MOMENT, drained, post, soft, wait};

const NOBODY: DatReturn = DatReturn::QUEUE_EMPTY;

/// Everything else works.
pub fn a_disabled_one_triggers_nothing(bed: &mut Bed<'_, impl Side>) {
    let cno = bed.a.cno_create(None).unwrap();
    let evd = soft(bed, 4);
    bed.a.evd_modify_cno(evd, Some(cno)).unwrap();
    bed.a.evd_disable(evd).unwrap();
    post(bed, evd, 0..2);
    bed.pass(MOMENT);
    assert_eq!(bed.a.cno_trigger(cno), Err(NOBODY));
    assert_eq!(wait(bed, evd, MOMENT, 2), Ok(dat_core::Event::Software(0)));
    assert_eq!(drained(bed, evd), [1]);
    post(bed, evd, 2..3);
    // What came before does not trigger afterwards.
    bed.a.evd_enable(evd).unwrap();
    bed.pass(MOMENT);
    assert_eq!(bed.a.cno_trigger(cno), Err(NOBODY));
    post(bed, evd, 3..4);
    assert_eq!(bed.a.cno_trigger(cno), Ok(evd));
    assert_eq!(drained(bed, evd), [2, 3]);
}

/// Both calls change nothing where there is nothing to change.
pub fn enabling_twice_is_once(bed: &mut Bed<'_, impl Side>) {
    let cno = bed.a.cno_create(None).unwrap();
    let evd = soft(bed, 4);
    bed.a.evd_modify_cno(evd, Some(cno)).unwrap();
    bed.a.evd_enable(evd).unwrap();
    post(bed, evd, 0..1);
    bed.a.evd_enable(evd).unwrap();
    assert_eq!(bed.a.cno_trigger(cno), Ok(evd));
    bed.a.evd_disable(evd).unwrap();
    bed.a.evd_disable(evd).unwrap();
    post(bed, evd, 1..2);
    assert_eq!(bed.a.cno_trigger(cno), Err(NOBODY));
    bed.a.evd_enable(evd).unwrap();
    post(bed, evd, 2..3);
    assert_eq!(bed.a.cno_trigger(cno), Ok(evd));
}

/// To another, to the same, to none.
pub fn modify_cno_moves_what_comes_next(bed: &mut Bed<'_, impl Side>) {
    let [one, two] = [0, 1].map(|_| bed.a.cno_create(None).unwrap());
    let evd = soft(bed, 8);
    bed.a.evd_modify_cno(evd, Some(one)).unwrap();
    post(bed, evd, 0..1);
    bed.a.evd_modify_cno(evd, Some(two)).unwrap();
    assert_eq!(bed.a.cno_trigger(one), Ok(evd));
    assert_eq!(bed.a.cno_trigger(two), Err(NOBODY));
    post(bed, evd, 1..2);
    assert_eq!(bed.a.cno_trigger(one), Err(NOBODY));
    assert_eq!(bed.a.cno_trigger(two), Ok(evd));
    bed.a.evd_modify_cno(evd, Some(two)).unwrap();
    assert_eq!(bed.a.cno_query(two).unwrap().evds, 1);
    bed.a.evd_modify_cno(evd, None).unwrap();
    post(bed, evd, 2..3);
    bed.pass(MOMENT);
    assert_eq!(bed.a.cno_trigger(two), Err(NOBODY));
    assert_eq!(bed.a.evd_query(evd).unwrap().cno, None);
    assert_eq!(drained(bed, evd), [0, 1, 2]);
}

/// A stale CNO changes nothing.
pub fn modify_cno_to_a_stale_one(bed: &mut Bed<'_, impl Side>) {
    let [one, two] = [0, 1].map(|_| bed.a.cno_create(None).unwrap());
    bed.a.cno_free(two).unwrap();
    let evd = soft(bed, 8);
    bed.a.evd_modify_cno(evd, Some(one)).unwrap();
    let moved = bed.a.evd_modify_cno(evd, Some(two));
    refused(moved, DatType::InvalidHandle, DatSubtype::InvalidHandleCno);
    post(bed, evd, 0..1);
    assert_eq!(bed.a.cno_trigger(one), Ok(evd));
}
