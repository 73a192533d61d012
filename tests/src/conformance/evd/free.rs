//! dat_evd_free(3).

use dat_core::{DatSubtype, DatType};

use super::super::{A, Bed, Side, refused};
use super::{NOW, begin, post, soft};

const IN_USE: (DatType, DatSubtype) = (DatType::InvalidState, DatSubtype::InvalidStateEvdInUse);

/// Each kind of stream holds it.
pub fn free_with_a_stream(bed: &mut Bed<'_, impl Side>) {
    let end = bed.end(A);
    let point = bed.listen(A);
    for evd in [end.recv, end.request, end.conn, point.evd] {
        refused(bed.a.evd_free(evd), IN_USE.0, IN_USE.1);
    }
    let now = bed.now();
    bed.a.ep_free(now, end.ep).unwrap();
    bed.a.psp_free(point.psp).unwrap();
    for evd in [end.recv, end.request, end.conn, point.evd] {
        bed.a.evd_free(evd).unwrap();
    }
}

/// A waiter holds it.
pub fn free_with_a_waiter(bed: &mut Bed<'_, impl Side>) {
    let evd = soft(bed, 4);
    let mut wait = begin(bed, evd, NOW, 1);
    let freed = bed.a.evd_free(evd);
    refused(freed, DatType::InvalidState, DatSubtype::InvalidStateEvdWaiter);
    bed.a.evd_wait_end(&mut wait);
    bed.a.evd_free(evd).unwrap();
}

/// Nothing of it comes out of the next one.
pub fn free_loses_what_is_queued(bed: &mut Bed<'_, impl Side>) {
    let evd = soft(bed, 4);
    post(bed, evd, 0..3);
    bed.a.evd_free(evd).unwrap();
    let next = soft(bed, 4);
    assert_eq!(bed.look(A, next), None);
}

/// It goes with the adapter.
pub fn free_of_the_async_one(bed: &mut Bed<'_, impl Side>) {
    let evd = bed.a.async_evd();
    refused(bed.a.evd_free(evd), IN_USE.0, IN_USE.1);
    assert!(bed.a.evd_query(evd).is_ok());
}
