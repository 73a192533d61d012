//! dat_evd_free(3).

use dat_core::{DatSubtype, DatType};

use super::super::{A, Adapters, Side, refused};
use super::{NOW, begin, post, soft};

const IN_USE: (DatType, DatSubtype) = (DatType::InvalidState, DatSubtype::InvalidStateEvdInUse);

/// Each kind of stream holds it.
pub fn free_with_a_stream(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let point = ias.listen(A);
    for evd in [end.recv, end.request, end.conn, point.evd] {
        refused(ias.a.evd_free(evd), IN_USE.0, IN_USE.1);
    }
    let now = ias.now();
    ias.a.ep_free(now, end.ep).unwrap();
    ias.a.psp_free(point.psp).unwrap();
    for evd in [end.recv, end.request, end.conn, point.evd] {
        ias.a.evd_free(evd).unwrap();
    }
}

/// A waiter holds it.
pub fn free_with_a_waiter(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    let mut wait = begin(ias, evd, NOW, 1);
    let freed = ias.a.evd_free(evd);
    refused(freed, DatType::InvalidState, DatSubtype::InvalidStateEvdWaiter);
    ias.a.evd_wait_end(&mut wait);
    ias.a.evd_free(evd).unwrap();
}

/// Nothing of it comes out of the next one.
pub fn free_loses_what_is_queued(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    post(ias, evd, 0..3);
    ias.a.evd_free(evd).unwrap();
    let next = soft(ias, 4);
    assert_eq!(ias.look(A, next), None);
}

/// It goes with the adapter.
pub fn free_of_the_async_one(ias: &mut Adapters<'_, impl Side>) {
    let evd = ias.a.async_evd();
    refused(ias.a.evd_free(evd), IN_USE.0, IN_USE.1);
    assert!(ias.a.evd_query(evd).is_ok());
}
