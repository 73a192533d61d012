//! dat_evd_resize(3).

use dat_core::{DatSubtype, DatType, DtoOperation, EvdFlags, MemPriv};

use super::super::{A, B, Bed, Side, refused};
use super::{MOMENT, NOW, begin, drained, post, soft};

/// 0, and more than there can be.
pub fn resize_to_nothing_or_too_much(bed: &mut Bed<'_, impl Side>) {
    let (ia, _) = bed.a.query();
    let evd = soft(bed, 4);
    let sized = bed.a.evd_resize(evd, 0);
    refused(sized, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    let sized = bed.a.evd_resize(evd, ia.max_software_evd_qlen + 1);
    refused(sized, DatType::InsufficientResources, DatSubtype::ResourceTevd);
    let dto = bed.a.evd_create(4, EvdFlags::DTO).unwrap();
    let sized = bed.a.evd_resize(dto, ia.max_evd_qlen + 1);
    refused(sized, DatType::InsufficientResources, DatSubtype::ResourceTevd);
    assert_eq!(bed.a.evd_query(evd).unwrap().qlen, 4);
}

/// Both ways.
pub fn resize_keeps_what_is_queued(bed: &mut Bed<'_, impl Side>) {
    let evd = soft(bed, 3);
    post(bed, evd, 0..3);
    bed.a.evd_resize(evd, 6).unwrap();
    assert!(bed.a.evd_query(evd).unwrap().qlen >= 6);
    post(bed, evd, 3..6);
    assert_eq!(drained(bed, evd), [0, 1, 2, 3, 4, 5]);
    post(bed, evd, 0..2);
    bed.a.evd_resize(evd, 2).unwrap();
    assert_eq!(drained(bed, evd), [0, 1]);
}

/// Refused, and nothing changes.
pub fn resize_below_what_is_queued(bed: &mut Bed<'_, impl Side>) {
    let evd = soft(bed, 4);
    post(bed, evd, 0..3);
    let sized = bed.a.evd_resize(evd, 2);
    refused(sized, DatType::InvalidState, DatSubtype::None);
    assert_eq!(bed.a.evd_query(evd).unwrap().qlen, 4);
    post(bed, evd, 3..4);
    assert_eq!(drained(bed, evd), [0, 1, 2, 3]);
}

/// Not while somebody waits.
pub fn resize_under_a_waiter(bed: &mut Bed<'_, impl Side>) {
    let evd = soft(bed, 4);
    let mut wait = begin(bed, evd, NOW, 1);
    let (ty, subtype) = (DatType::InvalidState, DatSubtype::InvalidStateEvdWaiter);
    refused(bed.a.evd_resize(evd, 8), ty, subtype);
    bed.a.evd_wait_end(&mut wait);
    let reaper = bed.a.evd_take_reaper(evd).unwrap();
    refused(bed.a.evd_resize(evd, 8), ty, subtype);
    assert!(bed.a.evd_return_reaper(reaper).is_ok());
    bed.a.evd_resize(evd, 8).unwrap();
}

/// As many as it says, in order, as often as one likes.
pub fn fault_35_a_shrunk_queue_is_sound(bed: &mut Bed<'_, impl Side>) {
    let evd = soft(bed, 12);
    for round in 0..5 {
        for qlen in [12, 5, 2, 7] {
            bed.a.evd_resize(evd, qlen).unwrap();
            let first = round * 100;
            post(bed, evd, first..first + u64::from(qlen));
            let full = bed.a.evd_post_se(evd, 0);
            refused(full, DatType::QueueFull, DatSubtype::None);
            let events = drained(bed, evd);
            assert!(events.into_iter().eq(first..first + u64::from(qlen)));
        }
    }
}

/// Completions that wait are carried over, and those that come later arrive: longer, shorter, the
/// same.
pub fn resize_keeps_completions(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.connected();
    let mem = bed.mem(A, from.pz, 64, MemPriv::ALL);
    let there = bed.mem(B, to.pz, 64, MemPriv::ALL);
    let mut cookie = 0;
    for qlen in [8, 100, 6, 64, 4, 5, 32] {
        for n in 0..3 {
            bed.recv(&to, &there, 0, 8, cookie + n);
            bed.send(&from, &mem, 0, 8, cookie + n);
        }
        bed.until(|bed| (bed.a.evd_more(from.request) == Ok(3)).then_some(()));
        bed.a.evd_resize(from.request, qlen).unwrap();
        assert!(bed.a.evd_query(from.request).unwrap().qlen >= qlen);
        assert_eq!(bed.a.evd_more(from.request), Ok(3));
        let sized = bed.a.evd_resize(from.request, 2);
        refused(sized, DatType::InvalidState, DatSubtype::None);
        bed.recv(&to, &there, 0, 8, cookie + 3);
        bed.send(&from, &mem, 0, 8, cookie + 3);
        for n in 0..4 {
            bed.done(&from, DtoOperation::Send, cookie + n);
            bed.done(&to, DtoOperation::Receive, cookie + n);
        }
        cookie += 4;
    }
    bed.quiet(MOMENT, &[(A, from.request), (B, to.recv)]);
}

/// While requests are on their way.
pub fn resize_in_mid_traffic(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.connected();
    let mem = bed.mem(A, from.pz, 64, MemPriv::ALL);
    let there = bed.mem(B, to.pz, 64, MemPriv::ALL);
    let mut done = 0;
    for cookie in 0..64 {
        bed.recv(&to, &there, 0, 8, cookie);
        bed.send(&from, &mem, 0, 8, cookie);
        if cookie % 4 == 0 {
            let qlen = [16, 64, 24, 128][cookie as usize / 4 % 4];
            bed.a.evd_resize(from.request, qlen).unwrap();
            bed.b.evd_resize(to.recv, 144 - qlen.min(128)).unwrap();
        }
        if cookie % 3 == 0 {
            while done < cookie {
                bed.done(&from, DtoOperation::Send, done);
                bed.done(&to, DtoOperation::Receive, done);
                done += 1;
            }
        }
    }
    for cookie in done..64 {
        bed.done(&from, DtoOperation::Send, cookie);
        bed.done(&to, DtoOperation::Receive, cookie);
    }
}
