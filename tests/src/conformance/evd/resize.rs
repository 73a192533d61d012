//! dat_evd_resize(3).

use dat_core::{DatSubtype, DatType, DtoOperation, EvdFlags, MemPriv};

use super::super::{A, Adapters, B, Side, refused};
use super::{MOMENT, NOW, begin, drained, post, soft};

/// 0, and more than there can be.
pub fn resize_to_nothing_or_too_much(ias: &mut Adapters<'_, impl Side>) {
    let (ia, _) = ias.a.query();
    let evd = soft(ias, 4);
    let sized = ias.a.evd_resize(evd, 0);
    refused(sized, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    let sized = ias.a.evd_resize(evd, ia.max_software_evd_qlen + 1);
    refused(sized, DatType::InsufficientResources, DatSubtype::ResourceTevd);
    let dto = ias.a.evd_create(4, EvdFlags::DTO).unwrap();
    let sized = ias.a.evd_resize(dto, ia.max_evd_qlen + 1);
    refused(sized, DatType::InsufficientResources, DatSubtype::ResourceTevd);
    assert_eq!(ias.a.evd_query(evd).unwrap().qlen, 4);
}

/// Both ways.
pub fn resize_keeps_what_is_queued(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 3);
    post(ias, evd, 0..3);
    ias.a.evd_resize(evd, 6).unwrap();
    assert!(ias.a.evd_query(evd).unwrap().qlen >= 6);
    post(ias, evd, 3..6);
    assert_eq!(drained(ias, evd), [0, 1, 2, 3, 4, 5]);
    post(ias, evd, 0..2);
    ias.a.evd_resize(evd, 2).unwrap();
    assert_eq!(drained(ias, evd), [0, 1]);
}

/// Refused, and nothing changes.
pub fn resize_below_what_is_queued(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    post(ias, evd, 0..3);
    let sized = ias.a.evd_resize(evd, 2);
    refused(sized, DatType::InvalidState, DatSubtype::None);
    assert_eq!(ias.a.evd_query(evd).unwrap().qlen, 4);
    post(ias, evd, 3..4);
    assert_eq!(drained(ias, evd), [0, 1, 2, 3]);
}

/// Not while somebody waits.
pub fn resize_under_a_waiter(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    let mut wait = begin(ias, evd, NOW, 1);
    let (ty, subtype) = (DatType::InvalidState, DatSubtype::InvalidStateEvdWaiter);
    refused(ias.a.evd_resize(evd, 8), ty, subtype);
    ias.a.evd_wait_end(&mut wait);
    let reaper = ias.a.evd_take_reaper(evd).unwrap();
    refused(ias.a.evd_resize(evd, 8), ty, subtype);
    assert!(ias.a.evd_return_reaper(reaper).is_ok());
    ias.a.evd_resize(evd, 8).unwrap();
}

/// As many as it says, in order, as often as one likes.
pub fn fault_35_a_shrunk_queue_is_sound(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 12);
    for round in 0..5 {
        for qlen in [12, 5, 2, 7] {
            ias.a.evd_resize(evd, qlen).unwrap();
            let first = round * 100;
            post(ias, evd, first..first + u64::from(qlen));
            let full = ias.a.evd_post_se(evd, 0);
            refused(full, DatType::QueueFull, DatSubtype::None);
            let events = drained(ias, evd);
            assert!(events.into_iter().eq(first..first + u64::from(qlen)));
        }
    }
}

/// Completions that wait are carried over, and those that come later arrive: longer, shorter, the
/// same.
pub fn resize_keeps_completions(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    let mem = ias.mem(A, from.pz, 64, MemPriv::ALL);
    let there = ias.mem(B, to.pz, 64, MemPriv::ALL);
    let mut cookie = 0;
    for qlen in [8, 100, 6, 64, 4, 5, 32] {
        for n in 0..3 {
            ias.recv(&to, &there, 0, 8, cookie + n);
            ias.send(&from, &mem, 0, 8, cookie + n);
        }
        ias.until(|ias| (ias.a.evd_more(from.request) == Ok(3)).then_some(()));
        ias.a.evd_resize(from.request, qlen).unwrap();
        assert!(ias.a.evd_query(from.request).unwrap().qlen >= qlen);
        assert_eq!(ias.a.evd_more(from.request), Ok(3));
        let sized = ias.a.evd_resize(from.request, 2);
        refused(sized, DatType::InvalidState, DatSubtype::None);
        ias.recv(&to, &there, 0, 8, cookie + 3);
        ias.send(&from, &mem, 0, 8, cookie + 3);
        for n in 0..4 {
            ias.done(&from, DtoOperation::Send, cookie + n);
            ias.done(&to, DtoOperation::Receive, cookie + n);
        }
        cookie += 4;
    }
    ias.expect_no_event(MOMENT, &[(A, from.request), (B, to.recv)]);
}

/// While requests are on their way.
pub fn resize_in_mid_traffic(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    let mem = ias.mem(A, from.pz, 64, MemPriv::ALL);
    let there = ias.mem(B, to.pz, 64, MemPriv::ALL);
    let mut done = 0;
    for cookie in 0..64 {
        ias.recv(&to, &there, 0, 8, cookie);
        ias.send(&from, &mem, 0, 8, cookie);
        if cookie % 4 == 0 {
            let qlen = [16, 64, 24, 128][cookie as usize / 4 % 4];
            ias.a.evd_resize(from.request, qlen).unwrap();
            ias.b.evd_resize(to.recv, 144 - qlen.min(128)).unwrap();
        }
        if cookie % 3 == 0 {
            while done < cookie {
                ias.done(&from, DtoOperation::Send, done);
                ias.done(&to, DtoOperation::Receive, done);
                done += 1;
            }
        }
    }
    for cookie in done..64 {
        ias.done(&from, DtoOperation::Send, cookie);
        ias.done(&to, DtoOperation::Receive, cookie);
    }
}
