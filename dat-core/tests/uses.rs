//! A program that says to do without parts of DAT: those are refused, all else is as ever.
#![expect(clippy::unwrap_used, reason = "tests")]

mod pair;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

use dat_core::cm::QpTerms;
use dat_core::provider::{Everything, Mtu, Uses, Using};
use dat_core::testing::{Fabric, LoopHca};
use dat_core::*;
use pair::{FLAGS, PORT, addr, open};

/// As little as possible.
#[derive(Debug)]
enum Least {}

impl Using for Least {
    const USES: Uses = Uses::LEAST;
}

/// Of a queue pair that this side is told of.
const TERMS: QpTerms = QpTerms {
    remote_qpn: 2,
    rq_psn: 0,
    sq_psn: 0,
    mtu: Mtu::B256,
    responder_resources: 0,
    initiator_depth: 0,
    retry_count: 7,
    rnr_retry: 7,
    ack_timeout: 18,
};

type Small = Ia<'static, LoopHca<'static, Least>>;

fn fabric() -> &'static Fabric {
    Box::leak(Box::new(Fabric::new()))
}

fn refused<T: Debug>(result: Result<T, Error>) {
    let error = result.unwrap_err();
    assert_eq!(error.ret().ty(), DatType::ModelNotSupported, "{error}");
}

#[test]
fn calls_of_what_is_left_out_are_refused() {
    let mut ia: Small = open(fabric(), 0);
    let pz = ia.pz_create().unwrap();
    let evd = ia.evd_create(8, EvdFlags::DEFAULT).unwrap();
    refused(ia.ep_create_ud(pz, evd, evd, Some(evd), None, 1));
    let attr = SrqAttr { max_recv_dtos: 4, max_recv_iov: 1, low_watermark: 0 };
    refused(ia.srq_create(pz, &attr));
    refused(ia.rsp_create(PORT, None, evd));
    let place = SocketAddr::new(addr(0), 4711);
    refused(ia.csp_create(Comm::tcp(false), place, evd));
    refused(ia.psp_create(PORT, evd, PspFlag::Provider));
    refused(ia.rmr_create(pz));
    refused(ia.rmr_create_for_ep(pz));
    refused(ia.lmr_allocate(pz, 1));
    refused(ia.ia_query_counters(false));
    let streams = Some(evd);
    let ep = ia.ep_create(Some(pz), streams, streams, streams, None).unwrap();
    let (now, second, best) = (Instant::ZERO, Duration::from_secs(1), Qos::BestEffort);
    refused(ia.ep_connect(now, ep, addr(1), PORT, second, b"", best));
    refused(ia.ep_connect_direct(now, ep, addr(1), &TERMS, second));
    let far = RmrTriplet { addr: 0, len: 0, context: 1 };
    let posted = ia.ep_post_rdma_write_immed(ep, &[], 0, &far, 7, FLAGS);
    refused(posted.map_err(Error::from));
    assert_eq!(ia.ep_query(ep).unwrap().state, EpState::Unconnected);
    // And nothing of them was taken.
    ia.psp_create(PORT, evd, PspFlag::Consumer).unwrap();
    let (ia_attr, provider) = ia.query();
    assert_eq!((ia_attr.extension_supported, ia_attr.max_srqs), (0, 0));
    assert_eq!(ia_attr.max_rmrs, 0);
    assert_eq!((provider.srq_supported, provider.ep_creator), (false, 0));
}

#[test]
fn a_peer_with_everything_connects_and_sends() {
    let fabric = fabric();
    let mut small: Small = open(fabric, 0);
    let mut peer = open::<Everything>(fabric, 1);
    let pz = small.pz_create().unwrap();
    let evd = small.evd_create(32, EvdFlags::DEFAULT).unwrap();
    let ep = small.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None).unwrap();
    let region = fabric.region(0);
    let rights = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
    let lmr = small.lmr_create(pz, region, rights).unwrap();
    small.psp_create(PORT, evd, PspFlag::Consumer).unwrap();
    let place = [LmrTriplet { addr: region.addr, len: 64, context: lmr.lmr_context }];
    small.ep_post_recv(ep, &place, 5, FLAGS).unwrap();

    let peer_pz = peer.pz_create().unwrap();
    let peer_evd = peer.evd_create(32, EvdFlags::DEFAULT).unwrap();
    let streams = Some(peer_evd);
    let peer_ep = peer.ep_create(Some(peer_pz), streams, streams, streams, None).unwrap();
    let mut now = Instant::ZERO;
    let second = Duration::from_secs(1);
    peer.ep_connect(now, peer_ep, addr(0), PORT, second, b"hello", Qos::BestEffort).unwrap();
    let mut heard = Vec::new();
    for _ in 0..16 {
        now = now + Duration::from_millis(1);
        small.advance(now);
        peer.advance(now);
        while let Ok(event) = small.evd_dequeue(evd) {
            if let Event::ConnectionRequest { cr, .. } = event {
                assert_eq!(&small.cr_query(cr).unwrap().private_data[..5], b"hello");
                small.cr_accept(now, cr, Some(ep), b"").unwrap();
            }
            heard.push(event);
        }
    }
    assert!(heard.contains(&Event::Established(ep)), "{heard:?}");
    peer.ep_post_send(peer_ep, &[], 6, FLAGS).unwrap();
    match small.evd_dequeue(evd) {
        Ok(Event::Dto(done)) => assert_eq!((done.cookie, done.len), (5, 0)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn nobody_answers_a_look_up() {
    let fabric = fabric();
    let mut small: Small = open(fabric, 0);
    let mut peer = open::<Everything>(fabric, 1);
    let evd = small.evd_create(8, EvdFlags::DEFAULT).unwrap();
    small.psp_create(PORT, evd, PspFlag::Consumer).unwrap();
    let pz = peer.pz_create().unwrap();
    let peer_evd = peer.evd_create(8, EvdFlags::DEFAULT).unwrap();
    let ep = peer.ep_create_ud(pz, peer_evd, peer_evd, Some(peer_evd), None, 1).unwrap();
    let (mut now, second) = (Instant::ZERO, Duration::from_secs(1));
    peer.ep_connect(now, ep, addr(0), PORT, second, b"", Qos::BestEffort).unwrap();
    for _ in 0..20 {
        now = now + Duration::from_millis(100);
        peer.advance(now);
        small.advance(now);
    }
    assert!(small.evd_dequeue(evd).is_err());
    assert!(small.cm_counters().malformed > 0);
    assert_eq!(peer.evd_dequeue(peer_evd), Ok(Event::UdError(ep)));
}
