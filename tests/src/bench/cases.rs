//! The cases: what one operation is, and what it may cost.

use super::golden;
use super::hostile::{self, Attacked, Forge};
use super::limit::Limit;
use super::loops;
use super::measure::{BLOCK, time};
use super::puppet::Said;
use super::stage::{Lane, Rig};

const WRITE: Said = Said::Request(0x08, 1);
const SEND: Said = Said::Request(0x0a, 1);
const BIND: Said = Said::Request(0x25, 3);
const MESSAGE: Said = Said::Received(64);

/// The measured operation of a case.
#[derive(Clone, Copy, Debug)]
pub enum Measured {
    /// Something a connected Endpoint does.
    Lane {
        /// The completions written ahead for one block, and whether they are of receives.
        said: Option<(Said, bool)>,
        /// Operations under one completion.
        per: usize,
        /// Runs before the measured part, not counted.
        before: Option<fn(&mut Lane, u64)>,
        /// The measured part.
        block: fn(&mut Lane, u64),
        /// Runs after it, not counted.
        after: Option<fn(&mut Lane, u64)>,
        /// Asserts the bytes of the last block's first request.
        golden: Option<golden::Expected>,
    },
    /// The same as `wr8_rt1`, by handles.
    ByHandle,
    /// A limit loop, and whether its completions come.
    Limit(fn(&mut Limit, u64) -> u64, bool),
    /// Frames of an attacker, and the function that handles a block of them; so many of the block
    /// are datagrams of the connection manager.
    Hostile(Forge, fn(&mut Attacked), usize),
}

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name, which is also its function's in [`loops`].
    pub name: &'static str,
    /// Operations of one block.
    pub ops: usize,
    /// Most instructions an operation may take; 0 where they are only reported.
    pub goal: u32,
    /// The goal is one to work towards: nothing fails while it is missed.
    pub aim: bool,
    /// The same by doorbells of 8 bytes.
    pub words_goal: u32,
    /// Most time it may take, in hundredths of the limit's; 0 where it is only reported.
    pub time_goal: u32,
    /// The case of the peers that does the same, if they have one: its row in
    /// `docs/generated/peers.md`.
    pub peer: &'static str,
    /// The limit that its time is a multiple of: the case of that name, if there is one.
    pub limit: &'static str,
    /// The measured operation.
    pub measured: Measured,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const fn lane(
    said: Option<(Said, bool)>,
    block: fn(&mut Lane, u64),
    golden: Option<golden::Expected>,
) -> Measured {
    Measured::Lane { said, per: 1, before: None, block, after: None, golden }
}

/// Bursts of RDMA writes of which the last alone completes.
const fn silent(block: fn(&mut Lane, u64)) -> Measured {
    Measured::Lane {
        said: Some((WRITE, false)),
        per: loops::BURST as usize,
        before: None,
        block,
        after: None,
        golden: None,
    }
}

/// The limit of a case.
const fn limit_of(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'h', b'o', b's', b't', b'i', b'l', b'e', ..] => "",
        [b'd', b'e', b'q', b'_', b'e', ..] | b"limit_empty" => "limit_empty",
        [b'r', b'e', b'c', b'v', b'_', ..] | b"limit_recv" => "limit_recv",
        [b'r', b'm', b'r', ..] | b"limit_bind" => "limit_bind",
        b"wr8_b32" | b"wr8_piece32" | b"limit_b32" => "limit_b32",
        // Halves of an operation, and lists that complete once.
        [b'p', b'o', b's', b't', ..] | [b'd', b'e', b'q', ..] | [b'u', b'n', b's', ..] => "",
        _ => "limit",
    }
}

const fn case(name: &'static str, ops: usize, goal: u32, measured: Measured) -> Case {
    let limit = limit_of(name);
    Case { name, ops, goal, aim: false, words_goal: 0, time_goal: 0, peer: name, limit, measured }
}

/// Instructions that a hostile frame may take, besides one for each of its bytes.
const HOSTILE: u32 = 3200;
/// Bytes of a datagram's frame, and of the shortest.
const DATAGRAM: u32 = 322;
const SHORTEST: u32 = 60;

const fn hostile(name: &'static str, bytes: u32, forge: Forge, handle: fn(&mut Attacked)) -> Case {
    let mads = if bytes == DATAGRAM { hostile::BLOCK } else { 0 };
    let measured = Measured::Hostile(forge, handle, mads);
    case(name, hostile::BLOCK, HOSTILE + bytes, measured)
}

/// All of them, the limits first.
pub const CASES: &[Case] = &[
    case("limit", BLOCK, 0, Measured::Limit(loops::limit, true)),
    case("limit_b32", BLOCK, 0, Measured::Limit(loops::limit_b32, true)),
    case("limit_recv", BLOCK, 0, Measured::Limit(loops::limit_recv, true)),
    case("limit_empty", BLOCK, 0, Measured::Limit(loops::limit_empty, false)),
    case("limit_bind", BLOCK, 0, Measured::Limit(loops::limit_bind, true)),
    Case {
        words_goal: 175,
        time_goal: 130,
        ..case(
            "wr8_rt1",
            BLOCK,
            184,
            lane(Some((WRITE, false)), loops::wr8_rt1, Some(golden::write8)),
        )
    },
    Case {
        words_goal: 174,
        peer: "wr8_rt1",
        ..case(
            "wr8_lent",
            BLOCK,
            183,
            lane(Some((WRITE, false)), loops::wr8_lent, Some(golden::lent8)),
        )
    },
    Case {
        words_goal: 168,
        ..case(
            "wr256_rt1",
            BLOCK,
            177,
            lane(Some((WRITE, false)), loops::wr256_rt1, Some(golden::write256)),
        )
    },
    Case {
        words_goal: 155,
        ..case(
            "send256_rt1",
            BLOCK,
            164,
            lane(Some((SEND, false)), loops::send256_rt1, Some(golden::send256)),
        )
    },
    case("recv_rt1", BLOCK, 142, lane(Some((MESSAGE, true)), loops::recv_rt1, None)),
    case("recv_b32", BLOCK, 85, lane(Some((MESSAGE, true)), loops::recv_b32, None)),
    Case {
        words_goal: 102,
        ..case(
            "wr8_b32",
            BLOCK,
            102,
            lane(Some((WRITE, false)), loops::wr8_b32, Some(golden::write8)),
        )
    },
    Case {
        words_goal: 89,
        ..case(
            "wr8_piece32",
            BLOCK,
            89,
            lane(Some((WRITE, false)), loops::wr8_piece32, Some(golden::write8)),
        )
    },
    case("unsig_b32", BLOCK, 81, silent(loops::unsig_b32)),
    Case { aim: true, ..case("unsig_1of32", BLOCK, 115, silent(loops::unsig_1of32)) },
    Case {
        aim: true,
        ..case(
            "post_wr8",
            64,
            115,
            Measured::Lane {
                said: Some((WRITE, false)),
                per: 1,
                before: None,
                block: loops::post_wr8,
                after: Some(loops::deq_wr8),
                golden: Some(golden::write8),
            },
        )
    },
    case(
        "deq_wr8",
        64,
        80,
        Measured::Lane {
            said: Some((WRITE, false)),
            per: 1,
            before: Some(loops::post_wr8),
            block: loops::deq_wr8,
            after: None,
            golden: None,
        },
    ),
    case(
        "post_recv",
        64,
        0,
        Measured::Lane {
            said: Some((MESSAGE, true)),
            per: 1,
            before: None,
            block: loops::post_recv,
            after: Some(loops::deq_recv),
            golden: None,
        },
    ),
    case(
        "deq_recv",
        64,
        0,
        Measured::Lane {
            said: Some((MESSAGE, true)),
            per: 1,
            before: Some(loops::post_recv),
            block: loops::deq_recv,
            after: None,
            golden: None,
        },
    ),
    case("deq_empty", BLOCK, 28, lane(None, loops::deq_empty, None)),
    Case {
        words_goal: 281,
        ..case(
            "rmr_bind",
            BLOCK,
            392,
            lane(Some((BIND, false)), loops::rmr_bind, Some(golden::bind)),
        )
    },
    Case { words_goal: 293, peer: "wr8_rt1", ..case("wr8_handle", BLOCK, 302, Measured::ByHandle) },
    hostile("hostile_req", DATAGRAM, hostile::req, loops::hostile_req),
    hostile("hostile_req_service", DATAGRAM, hostile::req_service, loops::hostile_req_service),
    hostile("hostile_req_port", DATAGRAM, hostile::req_port, loops::hostile_req_port),
    hostile("hostile_req_peer", DATAGRAM, hostile::req_peer, loops::hostile_req_peer),
    hostile("hostile_mra", DATAGRAM, hostile::mra, loops::hostile_mra),
    hostile("hostile_rej", DATAGRAM, hostile::rej, loops::hostile_rej),
    hostile("hostile_rej_timeout", DATAGRAM, hostile::rej_timeout, loops::hostile_rej_timeout),
    hostile("hostile_rep", DATAGRAM, hostile::rep, loops::hostile_rep),
    hostile("hostile_rtu", DATAGRAM, hostile::rtu, loops::hostile_rtu),
    hostile("hostile_dreq", DATAGRAM, hostile::dreq, loops::hostile_dreq),
    hostile("hostile_drep", DATAGRAM, hostile::drep, loops::hostile_drep),
    hostile("hostile_sidr_req", DATAGRAM, hostile::sidr_req, loops::hostile_sidr_req),
    hostile("hostile_sidr_rep", DATAGRAM, hostile::sidr_rep, loops::hostile_sidr_rep),
    hostile("hostile_class", DATAGRAM, hostile::class, loops::hostile_class),
    hostile("hostile_short", 166, hostile::short, loops::hostile_short),
    hostile("hostile_arp_request", SHORTEST, hostile::arp_request, loops::hostile_arp_request),
    hostile("hostile_arp_claim", SHORTEST, hostile::arp_claim, loops::hostile_arp_claim),
    hostile("hostile_arp_reply", SHORTEST, hostile::arp_reply, loops::hostile_arp_reply),
    hostile("hostile_bytes", 200, hostile::bytes, loops::hostile_bytes),
];

/// The case of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.name == name)
}

impl Case {
    /// It rings a doorbell, so that the way there makes a difference.
    #[must_use]
    pub fn rings(&self) -> bool {
        match self.measured {
            Measured::Limit(..) => !["limit_recv", "limit_empty"].contains(&self.name),
            Measured::ByHandle => true,
            Measured::Lane { said: Some((_, receives)), before, .. } => {
                !receives && before.is_none()
            }
            Measured::Lane { said: None, .. } | Measured::Hostile(..) => false,
        }
    }

    /// Runs `blocks` blocks and the same again as a warm-up of a tenth; times the measured part.
    ///
    /// # Panics
    /// If an event was not the expected one, or a WQE not of the expected bytes: then nothing was
    /// measured.
    #[must_use]
    pub fn run(&self, blocks: usize) -> f64 {
        let ops = self.ops as u64;
        match self.measured {
            Measured::Limit(block, completes) => {
                let mut state = (Limit::default(), 0);
                let time = time(
                    &mut state,
                    blocks,
                    self.ops,
                    |s| {
                        if completes {
                            s.0.complete_ahead(self.ops);
                        }
                    },
                    |s| s.1 |= block(&mut s.0, ops),
                    |_| (),
                );
                assert_eq!(state.1, 0, "{}: a wrong completion", self.name);
                time
            }
            Measured::ByHandle => {
                let (mut rig, lane) = Rig::detached();
                let handles = rig.give_back(lane);
                let mut state = (rig, handles);
                let time = time(
                    &mut state,
                    blocks,
                    self.ops,
                    |s| s.1.sent.say(WRITE, self.ops),
                    |s| {
                        loops::wr8_handle(&mut s.0.ias[0], &mut s.1, ops);
                    },
                    |_| (),
                );
                assert_eq!(state.1.wrong, 0, "{}: a wrong event", self.name);
                time
            }
            Measured::Hostile(forge, handle, mads) => {
                let mut attacked = Attacked::default();
                time(
                    &mut attacked,
                    blocks,
                    self.ops,
                    |attacked| attacked.prepare(forge),
                    handle,
                    |attacked| {
                        let handled = attacked.handled();
                        // An answer that goes nowhere counts too.
                        let enough = handled + hostile::WAITING >= mads as u64;
                        assert!(enough, "{}: {handled} of {mads} datagrams", self.name);
                    },
                )
            }
            Measured::Lane { said, per, before, block, after, golden } => {
                let (_rig, mut lane) = Rig::detached();
                let time = time(
                    &mut lane,
                    blocks,
                    self.ops,
                    |lane| {
                        match said {
                            Some((said, false)) if per == 1 => lane.sent.say(said, self.ops),
                            Some((said, false)) => lane.sent.say_every(said, per, self.ops / per),
                            Some((said, true)) => lane.got.say(said, self.ops),
                            None => {}
                        }
                        if let Some(before) = before {
                            before(lane, ops);
                        }
                    },
                    |lane| block(lane, ops),
                    |lane| {
                        if let Some(after) = after {
                            after(lane, ops);
                        }
                    },
                );
                assert_eq!(lane.wrong, 0, "{}: a wrong event", self.name);
                if let Some(expected) = golden {
                    golden::check(self.name, &lane, expected);
                }
                time
            }
        }
    }
}
