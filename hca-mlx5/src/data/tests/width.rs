//! No request is wider than its queue says, and no mix of requests overruns the ring.

use std::collections::VecDeque;
use std::vec::Vec;

use dat_core::provider::{
    Access, Atomic, Bind, Class, Destination, NextHop, Pages, Path, PostFlags, Registration,
    RmrTriplet, Segment, SendQueue as _, WorkRequest,
};
use proptest::prelude::*;

use super::{Record, Ring};
use crate::data::scripted::{ARENA_ADDR, Scripted};
use crate::data::send::{
    Doorbell, INLINE_SEND, MAX_DATAGRAM_SEGMENTS, MAX_SEGMENTS, Sq, Umr, WIDEST, Width,
};
use crate::platform::Blocks;
use crate::prm::wqe;

const RING: usize = 0x1000;
const RECORD: usize = 0x800;
const DATA: usize = 0x400;
const PEER: RmrTriplet = RmrTriplet { addr: 0x1000, len: u32::MAX, context: 5 };
const TO: Destination = Destination {
    path: Path {
        remote: core::net::IpAddr::V4(core::net::Ipv4Addr::new(192, 168, 7, 2)),
        next_hop: NextHop::Mac([2, 0, 0, 0, 0, 2]),
        source_index: 3,
        hop_limit: 64,
        class: Class { traffic_class: 0, priority: 0 },
        flow_label: 0,
    },
    qpn: 0x99,
    qkey: 1,
};

fn sq(platform: &Scripted<false>, width: Width, log_slots: u8) -> Sq<'_, Scripted<false>> {
    let doorbell = Doorbell { register: 0x10800, half: 0, blocks: Blocks::Words };
    let umr = Umr { fence: wqe::FENCE_SMALL, page_size: true, atomics: true };
    let ring = Ring::new(RING, log_slots);
    Sq::new(platform, ring, Record(RECORD), doorbell, width, umr).unwrap()
}

/// Requests of each kind.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Send,
    SendInvalidate,
    Write,
    WriteImmed,
    Read,
    /// One segment.
    FetchAdd,
    CmpSwap,
    /// One segment, which travels inline.
    Inline,
    InlineWrite,
    Datagram,
    DatagramImmed,
    Bind,
    Unbind,
    Register,
}

const CONNECTED: [Kind; 9] = [
    Kind::Send,
    Kind::SendInvalidate,
    Kind::Write,
    Kind::WriteImmed,
    Kind::Read,
    Kind::FetchAdd,
    Kind::CmpSwap,
    Kind::Inline,
    Kind::InlineWrite,
];
const DATAGRAMS: [Kind; 2] = [Kind::Datagram, Kind::DatagramImmed];
const KEYS: [Kind; 3] = [Kind::Bind, Kind::Unbind, Kind::Register];

/// Posts one of so many segments; the blocks that it took.
fn post(sq: &mut Sq<'_, Scripted<false>>, kind: Kind, segments: usize, flags: PostFlags) -> u16 {
    let list = [Segment { addr: 0x5555_0000_1000, len: 64, lkey: 3 }; MAX_SEGMENTS as usize];
    let (list, one) = (&list[..segments], &list[..1]);
    let word = [Segment { addr: ARENA_ADDR + DATA as u64, len: 28, lkey: 3 }];
    let long = [Segment { len: INLINE_SEND, ..word[0] }];
    let bind = Bind { len: 1, ..Bind::default() };
    let pages = Pages { addr: 0x2000, lkey: 1, count: 1, log_page: 12 };
    let registration =
        Registration { old_key: 5, new_key: 6, start: 0, len: 1, access: Access::all(), pages };
    let begin = sq.next_token();
    let token = match kind {
        Kind::Send => sq.post(WorkRequest::Send, list, flags),
        Kind::SendInvalidate => sq.post(WorkRequest::SendInvalidate(1), list, flags),
        Kind::Write => sq.post(WorkRequest::Write(&PEER), list, flags),
        Kind::WriteImmed => sq.post(WorkRequest::WriteImmed(&PEER, 1), list, flags),
        Kind::Read => sq.post(WorkRequest::Read(&PEER), list, flags),
        Kind::FetchAdd => sq.post(WorkRequest::Atomic(Atomic::FetchAdd(1), &PEER), one, flags),
        Kind::CmpSwap => {
            let swap = Atomic::CmpSwap { compare: 1, swap: 2 };
            sq.post(WorkRequest::Atomic(swap, &PEER), one, flags)
        }
        Kind::Inline => sq.post(WorkRequest::Send, &long, flags),
        Kind::InlineWrite => sq.post(WorkRequest::Write(&PEER), &word, flags),
        Kind::Datagram => sq.post(WorkRequest::SendUd(&TO, None), list, flags),
        Kind::DatagramImmed => sq.post(WorkRequest::SendUd(&TO, Some(1)), list, flags),
        Kind::Bind => sq.post(WorkRequest::Bind(&bind), &[], flags),
        Kind::Unbind => sq.post(WorkRequest::Bind(&Bind::default()), &[], flags),
        Kind::Register => sq.post(WorkRequest::Register(&registration), &[], flags),
    };
    assert_eq!(token, begin);
    sq.next_token().wrapping_sub(begin)
}

/// The widest of some kinds of request, of up to so many segments.
fn widest(kinds: &[Kind], segments: usize) -> u32 {
    let p = Scripted::<false>::new();
    let mut sq = sq(&p, Width(WIDEST), 4);
    let all = kinds.iter().flat_map(|kind| (0..=segments).map(move |count| (*kind, count)));
    let flags = [PostFlags::SIGNALED, PostFlags::GATHER | PostFlags::DEFER];
    let blocks = all.flat_map(|one| flags.map(|flags| (one, flags)));
    blocks.map(|((kind, count), flags)| u32::from(post(&mut sq, kind, count, flags))).max().unwrap()
}

#[test]
fn a_width_is_that_of_the_widest_request() {
    for segments in 1..=MAX_SEGMENTS {
        let most = widest(&CONNECTED, segments.into());
        assert_eq!(Width::connected(segments), Width(most), "{segments}");
    }
    for segments in 1..=MAX_DATAGRAM_SEGMENTS {
        let most = widest(&DATAGRAMS, segments.into());
        assert_eq!(Width::datagram(segments), Width(most), "{segments}");
    }
    assert_eq!(widest(&KEYS, 0), WIDEST);
    // Atomics, payload that travels inline and datagrams of the connection manager have a segment
    // whatever the attributes say.
    assert_eq!(Width::connected(0), Width(1));
    // More segments than a datagram takes are cut off.
    assert_eq!(Width::datagram(MAX_SEGMENTS), Width(WIDEST));
    assert_eq!(widest(&DATAGRAMS, MAX_SEGMENTS.into()), WIDEST);
}

/// What the poster of an Endpoint and the device do.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The kind, by its number, and the segments; without a completion of its own if it may.
    Post(usize, usize, bool),
    /// The device completes up to so many requests that have completions.
    Complete(usize),
    /// Something asks whether all suppressed requests have ended.
    Ask,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..14_usize, 0..=10_usize, any::<bool>()).prop_map(|(a, b, c)| Step::Post(a, b, c)),
        // Only the widest, and all of them suppressed as far as that goes.
        6 => (0..1_usize).prop_map(|a| Step::Post(a, 10, true)),
        2 => (1..40_usize).prop_map(Step::Complete),
        3 => Just(Step::Ask),
    ]
}

/// A posted request: its blocks, and whether it has a completion; what takes no slot is dat-core's.
struct Posted {
    blocks: u16,
    signalled: bool,
    slot: bool,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    /// As dat-core posts, so many requests of any kinds that the queue has been made for, and the
    /// request of no bytes where there is room for it: never is a block written that the device may
    /// still read.
    #[test]
    fn no_mix_of_requests_overruns_the_ring(
        requests in prop_oneof![1..=9_u16, Just(16), Just(32), Just(64)],
        segments in 1..=MAX_SEGMENTS,
        binds in any::<bool>(),
        datagrams in any::<bool>(),
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let (width, segments) = match (binds, datagrams) {
            (true, _) => (Width(WIDEST), segments),
            (_, true) => {
                let segments = segments.min(MAX_DATAGRAM_SEGMENTS);
                (Width::datagram(segments), segments)
            }
            _ => (Width::connected(segments), segments),
        };
        let kinds: Vec<Kind> = match (binds, datagrams) {
            (true, _) => CONNECTED.into_iter().chain(KEYS).collect(),
            (_, true) => DATAGRAMS.to_vec(),
            _ => CONNECTED.to_vec(),
        };
        let slots = width.blocks_of(requests);
        let p = Scripted::<false>::new();
        let log_slots = u8::try_from(slots.trailing_zeros()).unwrap();
        let mut sq = sq(&p, width, log_slots);
        // What the device has not completed, and the suppressed ones at its end.
        let mut posted = VecDeque::<Posted>::new();
        let (mut run, mut followed) = (0_u16, false);
        for step in steps {
            match step {
                Step::Post(kind, count, suppress) => {
                    if posted.iter().filter(|one| one.slot).count() == usize::from(requests) {
                        continue;
                    }
                    let kind = kinds[kind % kinds.len()];
                    let fast = matches!(kind, Kind::Send | Kind::Write | Kind::Read);
                    let suppress = suppress && fast && run < requests / 2;
                    let flags = if suppress { PostFlags::empty() } else { PostFlags::SIGNALED };
                    let blocks = post(&mut sq, kind, count.min(segments.into()), flags);
                    run = if suppress { run + 1 } else { 0 };
                    posted.push_back(Posted { blocks, signalled: !suppress, slot: true });
                }
                Step::Complete(count) => {
                    for _ in 0..count {
                        let Some(first) = posted.iter().position(|one| one.signalled) else { break };
                        for done in posted.drain(..=first) {
                            followed &= done.slot;
                        }
                    }
                }
                Step::Ask => {
                    if run == 0 || followed {
                        continue;
                    }
                    let tail = posted.iter().rev().take(run.into());
                    let (since, narrow) = tail.fold((sq.next_token(), false), |(at, narrow), one| {
                        let at = at.wrapping_sub(one.blocks);
                        (at, narrow || u32::from(one.blocks) < width.0)
                    });
                    let room = sq.has_room(since, requests - run);
                    prop_assert!(room || !narrow && width.0 > 1, "there is room");
                    if room {
                        let blocks = post(&mut sq, Kind::Write, 0, PostFlags::SIGNALED);
                        posted.push_back(Posted { blocks, signalled: true, slot: false });
                        (run, followed) = (0, true);
                    }
                }
            }
            let blocks: u32 = posted.iter().map(|one| u32::from(one.blocks)).sum();
            prop_assert!(blocks <= slots, "{blocks} blocks in {slots}");
        }
    }
}
