//! A million replays of contexts that were good once, on each provider: none may reach a byte.
//!
//! Windows of both scopes are bound, bound anew, unbound and freed at random, and Endpoints are
//! reset, which each refused replay makes necessary; whatever context any of that made stale is
//! kept and tried again later. Connections are made without a connection manager: what is tried
//! here is the table of keys. On the loop provider the whole million runs in every run of
//! the suite; on the model, where each replay is two queue pairs through all their states, a share
//! of it, and the whole where the compiler optimizes (`cargo xtask calls`).
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "test code: a panic here is a failed test"
)]

use dat_core::cm::QpTerms;
use dat_core::provider::{Class, Mtu};
use dat_core::{DtoStatus, EpState, Event, LmrTriplet, MemPriv, Rmr, RmrTriplet};
use dat_tests::conformance::reach::pattern;
use dat_tests::conformance::{A, Adapters, B, End, LIMIT, Mem, NONE, Side, hosted, loopback};
use mlx5_model::LinkLayer;
use std::collections::VecDeque;

/// Bytes of a window.
const RANGE: usize = 16;
/// Stale contexts that are kept.
const KEPT: usize = 4096;

/// SplitMix64 from a fixed seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % most as u64) as usize
    }
}

/// Connects both ends without a connection manager.
fn join<S: Side>(ias: &mut Adapters<'_, S>, ends: &[End; 2], psn: u32) {
    let qpns = [0, 1].map(|side| {
        let end = &ends[side];
        ias[side].ep_query(end.ep).unwrap().qp.unwrap().number
    });
    for end in ends {
        let terms = QpTerms {
            remote_qpn: qpns[1 - end.side],
            rq_psn: psn,
            sq_psn: psn,
            mtu: Mtu::B1024,
            responder_resources: 4,
            initiator_depth: 4,
            ack_timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            class: Class::default(),
        };
        let (now, to) = (ias.now(), ias[1 - end.side].address());
        ias[end.side].ep_connect_direct(now, end.ep, to, &terms, LIMIT).unwrap();
    }
    for end in ends {
        assert_eq!(ias.event(end.side, end.conn), Event::Established(end.ep));
    }
}

struct Replays {
    ends: [End; 2],
    local: Mem,
    target: Mem,
    windows: Vec<(Rmr, bool, Option<u32>)>,
    stale: VecDeque<RmrTriplet>,
    dice: Dice,
    psn: u32,
}

impl Replays {
    fn new<S: Side>(ias: &mut Adapters<'_, S>) -> Self {
        let ends = [ias.end(A), ias.end(B)];
        join(ias, &ends, 1);
        let [local, target] = [0, 1].map(|side| ias.mem(side, ends[side].pz, 4096, MemPriv::ALL));
        ias.fill(&local, 0, &pattern(A, 4096));
        ias.fill(&target, 0, &pattern(B, 4096));
        let pz = ends[B].pz;
        let windows = (0..12)
            .map(|i| {
                let own = i % 3 == 0;
                let rmr = if own {
                    ias.b.rmr_create_for_ep(pz).unwrap()
                } else {
                    ias.b.rmr_create(pz).unwrap()
                };
                (rmr, own, None)
            })
            .collect();
        Self { ends, local, target, windows, stale: VecDeque::new(), dice: Dice(0x5eed), psn: 1 }
    }

    fn outdate(&mut self, context: Option<u32>) {
        if let Some(context) = context {
            if self.stale.len() == KEPT {
                self.stale.pop_front();
            }
            let far = self.target.far(0, RANGE);
            self.stale.push_back(RmrTriplet { context, ..far });
        }
    }

    /// Binds, binds anew, unbinds, or frees and makes anew.
    fn change<S: Side>(&mut self, ias: &mut Adapters<'_, S>) {
        let index = self.dice.below(self.windows.len());
        let (rmr, own, old) = self.windows[index];
        let end = self.ends[B];
        let what = self.dice.below(8);
        if what == 0 {
            ias.b.rmr_free(rmr).unwrap();
            let new = if own {
                ias.b.rmr_create_for_ep(end.pz).unwrap()
            } else {
                ias.b.rmr_create(end.pz).unwrap()
            };
            self.windows[index] = (new, own, None);
        } else {
            let range = if what < 3 { LmrTriplet::default() } else { self.target.seg(0, RANGE) };
            let before = ias.b.rmr_query(rmr).unwrap().rmr_context;
            let far = ias.bind(&end, rmr, &range, MemPriv::REMOTE);
            assert_ne!(far.context & 0xff, before & 0xff, "a low byte was repeated");
            let live = (range.len != 0).then_some(far.context);
            self.windows[index].2 = live;
        }
        self.outdate(old);
        // A byte comes round again after some binds: what is good now is no replay.
        let live: Vec<u32> = self.windows.iter().filter_map(|window| window.2).collect();
        self.stale.retain(|stale| !live.contains(&stale.context));
    }

    /// Tries a stale context; it has to be refused.
    fn replay<S: Side>(&mut self, ias: &mut Adapters<'_, S>) {
        let index = self.dice.below(self.stale.len());
        let (to, [a, b]) = (self.stale[index], self.ends);
        let local = [self.local.seg(0, RANGE)];
        if self.dice.below(2) == 0 {
            ias.a.ep_post_rdma_write(a.ep, &local, 7, &to, NONE).unwrap();
        } else {
            ias.a.ep_post_rdma_read(a.ep, &local, 7, &to, NONE).unwrap();
        }
        let dto = ias.dto(A, a.request);
        assert_eq!(dto.status, DtoStatus::ErrRemoteAccess, "{to:?}");
        ias.until(|ias| {
            let over = |end| ias.state(end) == EpState::Disconnected;
            (over(&a) && over(&b)).then_some(())
        });
        for end in [a, b] {
            while ias.look(end.side, end.conn).is_some() {}
            ias[end.side].ep_reset(end.ep).unwrap();
        }
        for index in 0..self.windows.len() {
            let (rmr, own, live) = self.windows[index];
            if own {
                // The reset has taken it.
                assert_eq!(ias.b.rmr_query(rmr).unwrap().bound, None);
                self.windows[index].2 = None;
                self.outdate(live);
            }
        }
        self.psn = (self.psn + 0x1235) & 0xff_ffff;
        join(ias, &self.ends, self.psn);
    }

    fn unharmed<S: Side>(&self, ias: &Adapters<'_, S>) {
        assert_eq!(ias.bytes(&self.target, 0, 4096), pattern(B, 4096));
        assert_eq!(ias.bytes(&self.local, 0, 4096), pattern(A, 4096));
    }
}

fn replays<S: Side>(ias: &mut Adapters<'_, S>, count: usize) {
    let mut state = Replays::new(ias);
    while state.stale.len() < 64 {
        state.change(ias);
    }
    for round in 0..count {
        if round % 4 == 0 {
            state.change(ias);
        }
        state.replay(ias);
        if round % 64 == 0 {
            state.unharmed(ias);
        }
    }
    state.unharmed(ias);
}

/// Replays on the model.
const ON_THE_MODEL: usize = if cfg!(debug_assertions) { 25_000 } else { 1_000_000 };

#[test]
fn a_million_stale_contexts_reach_nothing_on_the_loop_provider() {
    loopback::run(|ias| replays(ias, 1_000_000));
}

#[test]
fn stale_contexts_reach_nothing_on_the_model() {
    hosted::run(LinkLayer::Ethernet, |ias| replays(ias, ON_THE_MODEL));
}
