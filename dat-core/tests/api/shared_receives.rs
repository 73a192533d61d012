//! Receives that an Endpoint holds of a Shared Receive Queue: those taken and not dequeued, however
//! they were looked at meanwhile and dequeued then.

#![expect(clippy::unwrap_used, reason = "a test")]

use crate::pair::*;
use dat_core::*;

/// Two connected sides; the second takes its receives from a queue of eight that are posted.
fn shared(merge: Merge) -> (Pair, Srq) {
    let mut p = Pair::unconnected(merge, None);
    let attr = SrqAttr { max_recv_dtos: 16, max_recv_iov: 1, low_watermark: 0 };
    let srq = p.b.ia.srq_create(p.b.pz, &attr).unwrap();
    let (recv, request, conn) = (p.b.recv, p.b.request, p.b.conn);
    let ep_attr = p.b.ia.ep_attr_default();
    p.b.ep =
        p.b.ia
            .ep_create_with_srq(Some(p.b.pz), Some(recv), Some(request), Some(conn), srq, &ep_attr)
            .unwrap();
    p.connect();
    let seg = p.b.seg(0, 8);
    for cookie in 0..8 {
        p.b.ia.srq_post_recv(srq, &[seg], cookie).unwrap();
    }
    (p, srq)
}

fn held(p: &mut Pair, srq: Srq) -> u32 {
    let srq = p.b.ia.srq_query(srq).unwrap();
    srq.outstanding - srq.available.unwrap()
}

/// A message, and a write that tells of itself: the device reports the two in different ways.
fn deliver(p: &mut Pair, with_immediate: bool) {
    if with_immediate {
        let (iov, far) = ([p.a.seg(0, 4)], p.b.far(0, 4));
        p.a.ia.ep_post_rdma_write_immed(p.a.ep, &iov, 1, &far, 5, FLAGS).unwrap();
    } else {
        p.a.send(1, FLAGS).unwrap();
    }
    p.a.ia.advance(p.now);
}

#[test]
fn a_receive_seen_early_is_not_held_once_it_is_dequeued() {
    for listened in [false, true] {
        for with_immediate in [false, true] {
            for merge in [Merge::Apart, Merge::All] {
                let (mut p, srq) = shared(merge);
                let recv = p.b.recv;
                if listened {
                    let cno = p.b.ia.cno_create(None).unwrap();
                    p.b.ia.evd_modify_cno(recv, Some(cno)).unwrap();
                }
                for _ in 0..3 {
                    deliver(&mut p, with_immediate);
                    p.run_until_idle();
                    assert_eq!(held(&mut p, srq), 1);
                    assert!(p.b.next(recv).is_some());
                    assert_eq!(held(&mut p, srq), 0, "{listened} {with_immediate}");
                }
                // One that nobody has seen before it is dequeued.
                deliver(&mut p, with_immediate);
                assert!(p.b.next(recv).is_some());
                assert_eq!(held(&mut p, srq), 0, "{listened} {with_immediate}");
            }
        }
    }
}

/// A reset gives back what it drops.
#[test]
fn a_reset_gives_back_what_was_not_dequeued() {
    for listened in [false, true] {
        let (mut p, srq) = shared(Merge::Apart);
        if listened {
            let cno = p.b.ia.cno_create(None).unwrap();
            p.b.ia.evd_modify_cno(p.b.recv, Some(cno)).unwrap();
        }
        for _ in 0..3 {
            deliver(&mut p, false);
        }
        p.run_until_idle();
        assert_eq!(held(&mut p, srq), 3);
        // Every slot has an Endpoint of the queue, and none of the others takes anything.
        let evds = [p.b.recv, p.b.request].map(Some);
        let attr = p.b.ia.ep_attr_default();
        for _ in 2..8 {
            let ep = p.b.ia.ep_create_with_srq(Some(p.b.pz), evds[0], evds[1], None, srq, &attr);
            ep.unwrap();
        }
        let ep = p.b.ep;
        p.b.ia.ep_disconnect(p.now, ep, CloseFlag::Abrupt).unwrap();
        p.run_until_idle();
        p.b.ia.ep_reset(ep).unwrap();
        assert_eq!(held(&mut p, srq), 0);
        assert_eq!(p.b.drain(p.b.recv), []);
        assert_eq!(held(&mut p, srq), 0, "listened: {listened}");
        // All places are there again: eleven more fit beside the five that are left.
        let seg = p.b.seg(0, 8);
        let posted =
            (0..99).take_while(|&cookie| p.b.ia.srq_post_recv(srq, &[seg], cookie).is_ok());
        assert_eq!(posted.count(), 11, "listened: {listened}");
    }
}
