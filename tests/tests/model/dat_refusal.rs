//! Bad input at DAT level over the driver: each call gets its DAT code, and neither the adapter nor
//! the device has moved.
#![expect(
    clippy::unwrap_used,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use dat_core::provider::Region;
use dat_core::{
    CloseFlag, CompletionFlags, DatReturn, DatType, DtoStatus, Ep, EpModify, EpParam, EpStatus,
    Error, EvdFlags, EvdParam, Event, Ia, LmrTriplet, MemPriv, PspFlag, Qos, RmrTriplet,
};
use dat_tests::pair::Driver;
use dat_tests::session::{LIMIT, NONE, QUALIFIER, Session, Setup, seg};

type Adapter<'s> = Ia<'s, Driver<'s>>;

/// State of a side that a refused call must not change.
#[derive(Debug, PartialEq)]
struct Books {
    ep: (EpParam, EpStatus),
    evds: Vec<EvdParam>,
    commands: u64,
    doorbells: u64,
    wqes: u64,
    frames: u64,
    memory: (usize, usize),
}

fn books(session: &mut Session<'_>) -> Books {
    let (ia, own, slot) = (&mut session.pair.ias[0], &session.sides[0], session.pair.slots[0]);
    let evds = [own.recv, own.request, own.conn, own.cr, ia.async_evd()];
    let hca = slot.hca();
    let stats = hca.stats();
    Books {
        ep: (ia.ep_query(own.ep).unwrap(), ia.ep_get_status(own.ep).unwrap()),
        evds: evds.map(|evd| ia.evd_query(evd).unwrap()).to_vec(),
        commands: hca.commands(),
        doorbells: stats.sq_doorbells + stats.command_doorbells,
        wqes: stats.wqes,
        frames: stats.frames_out,
        memory: (slot.in_use(), slot.views().pages_out()),
    }
}

/// The code of either kind of refusal.
trait Code {
    fn code(self) -> DatReturn;
}

impl Code for DatReturn {
    fn code(self) -> DatReturn {
        self
    }
}

impl Code for Error {
    fn code(self) -> DatReturn {
        self.ret()
    }
}

/// Asserts that a call is refused with this code, and changes nothing.
#[track_caller]
fn refused<'s, T: std::fmt::Debug, E: Code + std::fmt::Debug>(
    session: &mut Session<'s>,
    ty: DatType,
    call: impl FnOnce(&mut Adapter<'s>, Ep) -> Result<T, E>,
) {
    let before = books(session);
    let ep = session.sides[0].ep;
    let got = call(&mut session.pair.ias[0], ep).unwrap_err().code();
    assert_eq!(got.ty(), ty, "{got:?}");
    assert_eq!(got.raw() >> 30, 2, "an error's class");
    session.pass(Duration::from_micros(50));
    assert_eq!(books(session), before);
}

#[test]
fn segments_that_cannot_be() {
    Setup::default().connected(|session| {
        let good = session.seg(0, 0, 64);
        let there = session.far(1, 0, 64);
        let whole = session.sides[0].mem.region();
        let unwritten = session.register(0, MemPriv::LOCAL_READ);
        let freed = session.register(0, MemPriv::ALL);
        session.pair.ias[0].lmr_free(freed.lmr).unwrap();
        let out = |addr: u64, len: u32| LmrTriplet { addr, len, ..good };
        for (segment, ty) in [
            (out(whole.addr - 1, 64), DatType::InvalidParameter),
            (out(whole.addr + whole.len - 63, 64), DatType::InvalidParameter),
            (out(whole.addr + whole.len, 1), DatType::InvalidParameter),
            (out(whole.addr, u32::MAX), DatType::InvalidParameter),
            (out(u64::MAX, 1), DatType::InvalidParameter),
            (out(u64::MAX - 63, 64), DatType::InvalidParameter),
            (out(0, 64), DatType::InvalidParameter),
            (LmrTriplet { context: 0, ..good }, DatType::PrivilegesViolation),
            (LmrTriplet { context: u32::MAX, ..good }, DatType::PrivilegesViolation),
            (LmrTriplet { context: good.context ^ 1, ..good }, DatType::PrivilegesViolation),
            (seg(&freed, 0, 64), DatType::PrivilegesViolation),
        ] {
            for list in [vec![segment], vec![good, segment], vec![segment, good]] {
                refused(session, ty, |ia, ep| ia.ep_post_send(ep, &list, 1, NONE));
                refused(session, ty, |ia, ep| ia.ep_post_recv(ep, &list, 1, NONE));
                let wide = RmrTriplet { len: u32::MAX, ..there };
                refused(session, ty, |ia, ep| ia.ep_post_rdma_write(ep, &list, 1, &wide, NONE));
                let none = RmrTriplet { len: 0, ..there };
                refused(session, ty, |ia, ep| ia.ep_post_rdma_read(ep, &list, 1, &none, NONE));
            }
        }
        let list = [seg(&unwritten, 0, 64)];
        refused(session, DatType::PrivilegesViolation, |ia, ep| {
            ia.ep_post_recv(ep, &list, 1, NONE)
        });
        refused(session, DatType::PrivilegesViolation, |ia, ep| {
            ia.ep_post_rdma_read(ep, &list, 1, &there, NONE)
        });
        let many = [LmrTriplet { len: 1, ..good }; 17];
        for count in [5, 17] {
            let list = &many[..count];
            refused(session, DatType::InvalidParameter, |ia, ep| {
                ia.ep_post_send(ep, list, 1, NONE)
            });
            refused(session, DatType::InvalidParameter, |ia, ep| {
                ia.ep_post_recv(ep, list, 1, NONE)
            });
            refused(session, DatType::InvalidParameter, |ia, ep| {
                ia.ep_post_rdma_write(ep, list, 1, &there, NONE)
            });
            refused(session, DatType::InvalidParameter, |ia, ep| {
                ia.ep_post_rdma_read(ep, list, 1, &there, NONE)
            });
        }
        session.traffic(1);
    });
}

#[test]
fn lengths_and_flags_that_cannot_be() {
    Setup {
        tweak: |attr| (attr.max_message_size, attr.max_rdma_size) = (4000, 3000),
        ..Setup::default()
    }
    .connected(|session| {
        let there = session.far(1, 0, 64);
        let own = [session.seg(0, 0, 64)];
        let long = [session.seg(0, 0, 4001)];
        let (short, wide) = (RmrTriplet { len: 63, ..there }, RmrTriplet { len: 5000, ..there });
        refused(session, DatType::LengthError, |ia, ep| ia.ep_post_send(ep, &long, 1, NONE));
        refused(session, DatType::LengthError, |ia, ep| {
            ia.ep_post_rdma_write(ep, &long, 1, &wide, NONE)
        });
        refused(session, DatType::LengthError, |ia, ep| {
            ia.ep_post_rdma_write(ep, &own, 1, &short, NONE)
        });
        refused(session, DatType::LengthError, |ia, ep| {
            ia.ep_post_rdma_read(ep, &own, 1, &wide, NONE)
        });
        for bits in [0x04, 0x10, 0x20, 0x40, 0x80, 0x200, 0x8000_0000] {
            let flags = CompletionFlags::from_bits_retain(bits);
            refused(session, DatType::InvalidParameter, |ia, ep| {
                ia.ep_post_recv(ep, &own, 1, flags)
            });
            // A request may ask to wait for the end of a registration.
            if flags == CompletionFlags::LMR_INVALIDATE_FENCE {
                continue;
            }
            refused(session, DatType::InvalidParameter, |ia, ep| {
                ia.ep_post_send(ep, &own, 1, flags)
            });
            refused(session, DatType::InvalidParameter, |ia, ep| {
                ia.ep_post_rdma_write(ep, &own, 1, &there, flags)
            });
            refused(session, DatType::InvalidParameter, |ia, ep| {
                ia.ep_post_rdma_read(ep, &own, 1, &there, flags)
            });
        }
        let flags = CompletionFlags::SUPPRESS;
        refused(session, DatType::InvalidParameter, |ia, ep| ia.ep_post_recv(ep, &own, 1, flags));
        session.traffic_of(2000);
    });
}

trait Small {
    fn traffic_of(&mut self, len: usize);
}

impl Small for Session<'_> {
    fn traffic_of(&mut self, len: usize) {
        self.fill(0, 0, len, 1);
        self.write(0, 0, len, 1);
        assert_eq!(self.requests(0, 1), [(1, DtoStatus::Success)]);
        self.check(1, 0, len, 1);
    }
}

#[test]
fn handles_that_are_stale_or_another_adapter_s() {
    Setup::default().connected(|session| {
        let (pz, now, to) = (session.sides[0].pz, session.now(), session.address(1));
        let region = session.sides[0].mem.region();
        let ia = &mut session.pair.ias[0];
        let old_pz = ia.pz_create().unwrap();
        ia.pz_free(old_pz).unwrap();
        let old_evd = ia.evd_create(4, EvdFlags::DEFAULT).unwrap();
        ia.evd_free(old_evd).unwrap();
        let old_lmr = ia.lmr_create(pz, region, MemPriv::ALL).unwrap().lmr;
        ia.lmr_free(old_lmr).unwrap();
        let old_rmr = ia.rmr_create(pz).unwrap();
        ia.rmr_free(old_rmr).unwrap();
        let old_ep = session.endpoint(0);
        session.pair.ias[0].ep_free(now, old_ep).unwrap();
        let spare = session.sides[0].cr;
        let old_psp = session.pair.ias[0].psp_create(77, spare, PspFlag::Consumer).unwrap();
        session.pair.ias[0].psp_free(old_psp).unwrap();

        let theirs = &session.sides[1];
        let (their_ep, their_pz, their_evd, their_lmr) =
            (theirs.ep, theirs.pz, theirs.request, theirs.lmr.lmr);
        let their_psp = theirs.psp.unwrap();
        let (own, there) = ([session.seg(0, 0, 8)], session.far(1, 0, 8));
        let bad = DatType::InvalidHandle;
        for ep in [old_ep, their_ep] {
            refused(session, bad, |ia, _| ia.ep_post_send(ep, &own, 1, NONE));
            refused(session, bad, |ia, _| ia.ep_post_recv(ep, &own, 1, NONE));
            refused(session, bad, |ia, _| ia.ep_post_rdma_write(ep, &own, 1, &there, NONE));
            refused(session, bad, |ia, _| ia.ep_post_rdma_read(ep, &own, 1, &there, NONE));
            refused(session, bad, |ia, _| ia.ep_ring(ep));
            refused(session, bad, |ia, _| {
                ia.ep_connect(now, ep, to, 1, LIMIT, b"", Qos::BestEffort)
            });
            refused(session, bad, |ia, _| ia.ep_disconnect(now, ep, CloseFlag::Abrupt));
            refused(session, bad, |ia, _| ia.ep_reset(ep));
            refused(session, bad, |ia, _| ia.ep_free(now, ep));
            refused(session, bad, |ia, _| ia.ep_query(ep));
            refused(session, bad, |ia, _| ia.ep_get_status(ep));
            refused(session, bad, |ia, _| ia.ep_cause(ep));
            refused(session, bad, |ia, _| ia.ep_modify(ep, &EpModify::default()));
            refused(session, bad, |ia, _| ia.ep_take_poster(ep));
        }
        for evd in [old_evd, their_evd] {
            refused(session, bad, |ia, _| ia.evd_dequeue(evd));
            refused(session, bad, |ia, _| ia.evd_query(evd));
            refused(session, bad, |ia, _| ia.evd_free(evd));
            refused(session, bad, |ia, _| ia.evd_post_se(evd, 1));
            refused(session, bad, |ia, _| ia.evd_arm(evd, false));
            refused(session, bad, |ia, _| ia.evd_take_reaper(evd));
            refused(session, bad, |ia, _| ia.psp_create(78, evd, PspFlag::Consumer));
            refused(session, bad, |ia, _| ia.ep_create(Some(pz), Some(evd), None, None, None));
            refused(session, bad, |ia, _| ia.ep_create(Some(pz), None, Some(evd), None, None));
            refused(session, bad, |ia, _| ia.ep_create(Some(pz), None, None, Some(evd), None));
        }
        for pz in [old_pz, their_pz] {
            refused(session, bad, |ia, _| ia.pz_free(pz));
            refused(session, bad, |ia, _| ia.pz_query(pz));
            refused(session, bad, |ia, _| ia.lmr_create(pz, region, MemPriv::ALL));
            refused(session, bad, |ia, _| ia.rmr_create(pz));
            refused(session, bad, |ia, _| ia.ep_create(Some(pz), None, None, None, None));
        }
        for lmr in [old_lmr, their_lmr] {
            refused(session, bad, |ia, _| ia.lmr_free(lmr));
            refused(session, bad, |ia, _| ia.lmr_query(lmr));
        }
        for psp in [old_psp, their_psp] {
            refused(session, bad, |ia, _| ia.psp_free(psp));
            refused(session, bad, |ia, _| ia.psp_query(psp));
        }
        refused(session, bad, |ia, _| ia.rmr_free(old_rmr));
        refused(session, bad, |ia, _| ia.rmr_query(old_rmr));
        refused(session, bad, |ia, ep| ia.rmr_bind(old_rmr, &own[0], MemPriv::REMOTE, ep, 1, NONE));
        session.traffic(1);
    });
}

#[test]
fn connection_calls_that_cannot_be() {
    Setup::default().run(|session| {
        // An adapter announces its address; that is over first.
        session.pass(Duration::from_millis(5));
        let (now, to) = (session.now(), session.address(1));
        let v4 = |a, b, c, d| IpAddr::V4(Ipv4Addr::new(a, b, c, d));
        let ask = |ia: &mut Adapter<'_>, ep, to, port, patience| {
            ia.ep_connect(now, ep, to, port, patience, b"", Qos::BestEffort)
        };
        for to in [v4(0, 0, 0, 0), v4(224, 0, 0, 1), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            refused(session, DatType::InvalidAddress, |ia, ep| ask(ia, ep, to, QUALIFIER, LIMIT));
        }
        for port in [0, 65536, u64::MAX] {
            refused(session, DatType::InvalidParameter, |ia, ep| ask(ia, ep, to, port, LIMIT));
        }
        refused(session, DatType::InvalidParameter, |ia, ep| {
            ask(ia, ep, to, QUALIFIER, Duration::ZERO)
        });
        refused(session, DatType::ModelNotSupported, |ia, ep| {
            ia.ep_connect(now, ep, to, QUALIFIER, LIMIT, b"", Qos::Premium)
        });
        let own = [session.seg(0, 0, 8)];
        refused(session, DatType::InvalidState, |ia, ep| ia.ep_post_send(ep, &own, 1, NONE));
        refused(session, DatType::InvalidState, |ia, ep| {
            ia.ep_disconnect(now, ep, CloseFlag::Abrupt)
        });
        session.connect();
        refused(session, DatType::InvalidState, |ia, ep| ask(ia, ep, to, QUALIFIER, LIMIT));
        refused(session, DatType::InvalidState, |ia, ep| ia.ep_reset(ep));
        refused(session, DatType::InvalidState, |ia, ep| ia.ep_modify(ep, &EpModify::default()));
        let (cr, conn) = (session.sides[0].cr, session.sides[0].conn);
        refused(session, DatType::ConnQualInUse, |ia, _| {
            ia.psp_create(QUALIFIER, cr, PspFlag::Consumer)
        });
        refused(session, DatType::InvalidParameter, |ia, _| {
            ia.psp_create(0, cr, PspFlag::Consumer)
        });
        refused(session, DatType::InvalidParameter, |ia, _| {
            ia.psp_create(65536, cr, PspFlag::Consumer)
        });
        refused(session, DatType::InvalidHandle, |ia, _| ia.psp_create(5, conn, PspFlag::Consumer));
        session.traffic(1);
        session.disconnect(0, CloseFlag::Abrupt);
        session.ended();
        refused(session, DatType::InvalidState, |ia, ep| ask(ia, ep, to, QUALIFIER, LIMIT));
        // An answered request is stale.
        session.pair.ias[0].ep_reset(session.sides[0].ep).unwrap();
        session.pair.ias[1].ep_reset(session.sides[1].ep).unwrap();
        let (a, b) = (session.sides[0].ep, session.sides[1].ep);
        session.ask(a, b"", LIMIT);
        let cr = session.request();
        let now = session.now();
        session.pair.ias[1].cr_accept(now, cr, Some(b), b"").unwrap();
        let again = session.pair.ias[1].cr_accept(now, cr, Some(b), b"").unwrap_err().ret();
        assert_eq!(again.ty(), DatType::InvalidHandle);
        assert_eq!(session.connection(0), Event::Established(a));
    });
}

#[test]
fn objects_that_cannot_be_made_or_freed() {
    Setup::default().connected(|session| {
        let (pz, own) = (session.sides[0].pz, &session.sides[0]);
        let (recv, request, conn, cr, lmr) = (own.recv, own.request, own.conn, own.cr, own.lmr.lmr);
        let region = own.mem.region();
        let now = session.now();
        refused(session, DatType::InvalidParameter, |ia, _| ia.evd_create(0, EvdFlags::DTO));
        refused(session, DatType::InvalidParameter, |ia, _| ia.evd_create(4, EvdFlags::empty()));
        refused(session, DatType::InvalidParameter, |ia, _| {
            ia.evd_create(4, EvdFlags::from_bits_retain(0x200))
        });
        for most in [u32::MAX, 1 << 30] {
            refused(session, DatType::InsufficientResources, |ia, _| {
                ia.evd_create(most, EvdFlags::DTO)
            });
            refused(session, DatType::InsufficientResources, |ia, _| {
                ia.evd_create(most, EvdFlags::SOFTWARE)
            });
        }
        for evd in [recv, request, conn, cr] {
            refused(session, DatType::InvalidState, |ia, _| ia.evd_free(evd));
        }
        refused(session, DatType::InvalidState, |ia, _| ia.evd_free(ia.async_evd()));
        refused(session, DatType::InvalidState, |ia, _| ia.pz_free(pz));
        refused(session, DatType::InvalidState, |ia, _| ia.close(now, CloseFlag::Graceful));
        refused(session, DatType::InvalidParameter, |ia, _| ia.evd_post_se(request, 5));
        refused(session, DatType::LengthError, |ia, _| {
            ia.lmr_create(pz, Region { len: 0, ..region }, MemPriv::ALL)
        });
        refused(session, DatType::InvalidParameter, |ia, _| {
            ia.lmr_create(pz, region, MemPriv::from_bits_retain(0x100))
        });
        refused(session, DatType::PrivilegesViolation, |ia, _| {
            ia.lmr_create(pz, region, MemPriv::REMOTE_ATOMIC)
        });
        refused(session, DatType::PrivilegesViolation, |ia, _| {
            ia.lmr_create(pz, region, MemPriv::REMOTE_WRITE | MemPriv::LOCAL_READ)
        });
        let good = session.pair.ias[0].ep_attr_default();
        let mut bad = vec![good; 8];
        bad[0].max_request_dtos = 257;
        bad[1].max_recv_dtos = u16::MAX;
        bad[2].max_request_iov = 17;
        bad[3].max_recv_iov = u8::MAX;
        bad[4].max_rdma_read_out = u8::MAX;
        bad[5].max_message_size = u32::MAX;
        bad[6].recv_completion_flags = CompletionFlags::SUPPRESS;
        bad[7].max_request_dtos = 0;
        for attr in &bad {
            refused(session, DatType::InvalidParameter, |ia, _| {
                ia.ep_create(Some(pz), Some(recv), Some(request), Some(conn), Some(attr))
            });
        }
        refused(session, DatType::InvalidHandle, |ia, _| {
            ia.ep_create(Some(pz), Some(conn), Some(request), Some(conn), None)
        });
        refused(session, DatType::InvalidHandle, |ia, _| {
            ia.ep_create(Some(pz), Some(recv), Some(request), Some(recv), None)
        });
        let ep = session.sides[0].ep;
        let rmr = session.pair.ias[0].rmr_create(pz).unwrap();
        let range = session.seg(0, 0, 64);
        session.pair.ias[0].rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 1, NONE).unwrap();
        session.event(0, request);
        refused(session, DatType::InvalidState, |ia, _| ia.lmr_free(lmr));
        let poster = session.pair.ias[0].ep_take_poster(ep).unwrap();
        refused(session, DatType::InvalidState, |ia, ep| ia.ep_take_poster(ep));
        refused(session, DatType::InvalidState, |ia, ep| ia.ep_post_send(ep, &[range], 1, NONE));
        refused(session, DatType::InvalidState, |ia, ep| ia.ep_free(now, ep));
        session.pair.ias[0].ep_return_poster(poster).unwrap();
        let reaper = session.pair.ias[0].evd_take_reaper(cr).unwrap();
        refused(session, DatType::InvalidState, |ia, _| ia.evd_take_reaper(cr));
        refused(session, DatType::InvalidState, |ia, _| ia.evd_dequeue(cr));
        session.pair.ias[0].evd_return_reaper(reaper).unwrap();
        session.traffic(1);
    });
}

#[test]
fn full_queues() {
    Setup {
        tweak: |attr| (attr.max_request_dtos, attr.max_recv_dtos) = (8, 4),
        ..Setup::default()
    }
    .connected(|session| {
        session.lines[0].cut(true);
        let (own, there) = ([session.seg(0, 0, 8)], session.far(1, 0, 8));
        let rmr = session.pair.ias[0].rmr_create(session.sides[0].pz).unwrap();
        (0..8).for_each(|n| session.write(0, 0, 8, n));
        (0..4).for_each(|n| session.recv(0, 0, 8, n));
        session.pass(Duration::from_micros(500));
        // While the wire is cut, a request changes only the count of retries in the device, which
        // the comparison leaves out.
        let full = DatType::InsufficientResources;
        let before = books(session);
        let (ia, ep) = (&mut session.pair.ias[0], session.sides[0].ep);
        for got in [
            ia.ep_post_send(ep, &own, 9, NONE),
            ia.ep_post_rdma_write(ep, &own, 9, &there, NONE),
            ia.ep_post_rdma_read(ep, &own, 9, &there, NONE),
            ia.ep_post_recv(ep, &own, 9, NONE),
            ia.rmr_bind(rmr, &own[0], MemPriv::REMOTE, ep, 9, NONE).map(drop),
        ] {
            assert_eq!(got.unwrap_err().ty(), full);
        }
        assert_eq!(books(session), before);
        session.lines[0].cut(false);
        assert_eq!(
            session.requests(0, 8),
            (0..8).map(|n| (n, DtoStatus::Success)).collect::<Vec<_>>()
        );
        session.send(1, 0, 8, 1);
        assert_eq!(session.receives(0, 1), [(0, DtoStatus::Success)]);
        session.recv(0, 0, 8, 4);
        session.write(0, 0, 8, 8);
        assert_eq!(session.requests(0, 1), [(8, DtoStatus::Success)]);
    });
}

#[test]
fn software_events_fill_their_dispatcher_and_no_more() {
    Setup::default().run(|session| {
        let ia = &mut session.pair.ias[0];
        let evd = ia.evd_create(4, EvdFlags::SOFTWARE).unwrap();
        for round in 0..20 {
            for n in 0..4 {
                ia.evd_post_se(evd, round * 10 + n).unwrap();
            }
            assert_eq!(ia.evd_post_se(evd, 99).unwrap_err().ret().ty(), DatType::QueueFull);
            for n in 0..4 {
                assert_eq!(ia.evd_dequeue(evd), Ok(Event::Software(round * 10 + n)));
            }
            assert_eq!(ia.evd_dequeue(evd), Err(DatReturn::QUEUE_EMPTY));
        }
        assert!(ia.evd_dequeue(ia.async_evd()).is_err(), "a full software queue is no overflow");
    });
}
