//! The objects that an episode begins with.

use std::collections::VecDeque;

use dat_core::{CompletionFlags, EvdFlags, MemPriv, PspFlag, SrqAttr};

use super::state::{Consumer, End, MEMORY, Program, Queue, RING, Shared};
use crate::conformance::{A, B, Side};

/// Which streams of which Endpoints share an Event Dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merge {
    /// One for everything of every Endpoint.
    One,
    /// One for each Endpoint.
    Each,
    /// All receives on one, all requests on one, all connections on one.
    Streams,
    /// All completions on one, connections on one for each Endpoint.
    Completions,
    /// Any of a few for each stream.
    Any,
}

impl<S: Side> Program<'_, '_, S> {
    /// Makes the objects of both sides.
    pub(super) fn set_up(&mut self, ends: usize) {
        let merges = [Merge::One, Merge::Each, Merge::Streams, Merge::Completions, Merge::Any];
        for side in [A, B] {
            let merge = self.rng.of(&merges);
            self.set_up_side(side, ends, merge);
        }
    }

    /// Makes the objects of one side.
    pub(super) fn set_up_side(&mut self, side: usize, ends: usize, merge: Merge) {
        let qualifier = self.ias.free_qualifier();
        let appetite = self.rng.of(&[0, 2, 10, 30]);
        let unsignalled = self.rng.percent(12);
        let party = &mut self.ias[side];
        let pz = party.ia.pz_create().unwrap();
        let region = party.side.memory(MEMORY);
        let lmr = party.ia.lmr_create(pz, region, MemPriv::ALL).unwrap();
        let cno = self.rng.percent(15);
        let cno = cno.then(|| self.ias[side].cno_create(None).unwrap());
        let mut queues = Vec::new();
        let completions = EvdFlags::DTO | EvdFlags::RMR_BIND;
        let all = completions | EvdFlags::CONNECTION;
        let shapes: Vec<EvdFlags> = match merge {
            Merge::One => vec![all],
            Merge::Each => vec![all; ends],
            Merge::Streams => vec![completions, completions, EvdFlags::CONNECTION],
            Merge::Completions => {
                let mut shapes = vec![EvdFlags::CONNECTION; ends];
                shapes.insert(0, completions);
                shapes
            }
            Merge::Any => {
                let count = 1 + self.rng.below(5);
                vec![all; count]
            }
        };
        for mut flags in shapes {
            if self.rng.percent(20) && !unsignalled {
                flags |= EvdFlags::SOFTWARE;
            }
            queues.push(self.make_queue(side, flags, cno));
        }
        let listen = if self.rng.percent(15) && !unsignalled && queues[0].qlen >= 8 {
            // Connection requests come to a queue that has other streams.
            let made = self.make_queue(side, queues[0].flags | EvdFlags::CR, cno);
            let old = std::mem::replace(&mut queues[0], made);
            self.ias[side].evd_free(old.evd).unwrap();
            0
        } else {
            let made = self.make_queue(side, EvdFlags::CR, None);
            queues.push(made);
            queues.len() - 1
        };
        self.ias[side].psp_create(qualifier, queues[listen].evd, PspFlag::Consumer).unwrap();
        let mut shared = Vec::new();
        if self.rng.percent(25) {
            let attr = SrqAttr {
                max_recv_dtos: self.rng.of(&[2, 8, 31]),
                max_recv_iov: 1,
                low_watermark: 0,
            };
            let srq = self.ias[side].srq_create(pz, &attr).unwrap();
            shared.push(Shared { srq, posted: Vec::new() });
        }
        self.sides.push(Consumer {
            pz,
            lmr,
            queues,
            ends: Vec::new(),
            connections: Vec::new(),
            shared,
            rmrs: Vec::new(),
            requests: Vec::new(),
            qualifier,
            listen,
            cno,
            appetite,
            unsignalled,
        });
        for index in 0..ends {
            let (recv, request, conn) = match merge {
                Merge::One => (0, 0, 0),
                Merge::Each => (index, index, index),
                Merge::Streams => (0, 1, 2),
                Merge::Completions => (0, 0, 1 + index),
                Merge::Any => {
                    let most = if listen == 0 { self.sides[side].queues.len() } else { listen };
                    let rng = &mut self.rng;
                    (rng.below(most), rng.below(most), rng.below(most))
                }
            };
            self.make_end(side, recv, request, conn);
        }
        for _ in 0..self.rng.below(3) {
            let made = if self.rng.percent(50) {
                self.ias[side].rmr_create(pz)
            } else {
                self.ias[side].rmr_create_for_ep(pz)
            };
            self.sides[side].rmrs.push(made.unwrap());
        }
    }

    fn make_queue(&mut self, side: usize, flags: EvdFlags, cno: Option<dat_core::Cno>) -> Queue {
        let lengths: &[usize] = if flags.contains(EvdFlags::DTO) {
            &[2, 4, 8, 16, 16, 32, 64, 128]
        } else {
            &[1, 4, 8, 16]
        };
        let mut qlen = self.rng.of(lengths);
        if flags.intersects(EvdFlags::SOFTWARE) || !flags.contains(EvdFlags::DTO) {
            qlen = qlen.min(RING);
        }
        if flags == EvdFlags::CR {
            qlen = 8;
        }
        let cno = cno.filter(|_| self.rng.percent(50));
        let evd = self.ias[side].evd_create_with_cno(qlen as u32, cno, flags);
        self.steps += 1;
        let evd = evd.unwrap_or_else(|error| panic!("evd_create({qlen}, {flags:?}): {error}"));
        self.note(|| format!("{side}: {evd:?} length {qlen} {flags:?}"));
        Queue {
            evd,
            qlen,
            flags,
            charged: 0,
            dropped: 0,
            software: VecDeque::new(),
            stale: 0,
            crowded: false,
        }
    }

    /// Makes an Endpoint on those queues; whether it was accepted.
    pub(super) fn make_end(
        &mut self,
        side: usize,
        recv: usize,
        request: usize,
        conn: usize,
    ) -> bool {
        let room = |queue: &Queue| queue.qlen.min(32) as u16;
        let consumer = &self.sides[side];
        // The length of a queue that takes two streams is shared.
        let half = if recv == request { 2 } else { 1 };
        let most_recv = (room(&consumer.queues[recv]) / half).max(1);
        let most_request = (room(&consumer.queues[request]) / half).max(1);
        let evds = [recv, request, conn].map(|queue| consumer.queues[queue].evd);
        let (pz, unsignalled) = (consumer.pz, consumer.unsignalled);
        let srq = (!consumer.shared.is_empty() && self.rng.percent(50)).then_some(0);
        let srq = srq.filter(|_| {
            let consumer = &self.sides[side];
            let waiting = consumer.shared[0].posted.len();
            let queue = &consumer.queues[recv];
            waiting + queue.charged < queue.qlen
        });
        let mut attr = self.ias[side].ep_attr_default();
        attr.max_recv_dtos = most_recv;
        attr.max_request_dtos = most_request;
        if unsignalled {
            attr.request_completion_flags = CompletionFlags::UNSIGNALLED;
            attr.recv_completion_flags = CompletionFlags::UNSIGNALLED;
        }
        self.steps += 1;
        let [recv_evd, request_evd, conn_evd] = evds.map(Some);
        let ia = &mut self.ias[side].ia;
        let shared = srq.map(|index: usize| self.sides[side].shared[index].srq);
        let mut unsignalled = unsignalled;
        let mut make = |attr: &dat_core::EpAttr| match shared {
            Some(srq) => {
                ia.ep_create_with_srq(Some(pz), recv_evd, request_evd, conn_evd, srq, attr)
            }
            None => ia.ep_create(Some(pz), recv_evd, request_evd, conn_evd, Some(attr)),
        };
        let mut made = make(&attr);
        if made.is_err() && unsignalled {
            unsignalled = false;
            attr.request_completion_flags = CompletionFlags::EVD_THRESHOLD;
            attr.recv_completion_flags = CompletionFlags::EVD_THRESHOLD;
            made = make(&attr);
        }
        if made.is_err() {
            // An Event Dispatcher that is too small for its Endpoints may be refused.
            attr.max_recv_dtos = 1;
            attr.max_request_dtos = 1;
            made = make(&attr);
        }
        let Ok(ep) = made else {
            self.note(|| format!("{side}: ep_create refused: {made:?}"));
            return false;
        };
        let index = self.sides[side].ends.len();
        self.note(|| {
            format!("{side}: end {index} is {ep:?} on {evds:?} srq {srq:?} dtos {most_recv}")
        });
        self.sides[side].ends.push(End {
            ep,
            recv,
            request,
            conn,
            srq,
            requests: VecDeque::new(),
            receives: VecDeque::new(),
            open: VecDeque::new(),
            connections: 0,
            current: None,
            freed: false,
            unsignalled,
        });
        self.note_crowd(side, conn);
        true
    }
}
