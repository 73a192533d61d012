//! Measured code: each function here is one block of operations, and callgrind counts from its
//! entry to its return.
//!
//! The functions are never inlined, so that they have a beginning and an end; their callees are
//! inlined as in any program. Arguments of posts pass through `black_box`, so that the compiler
//! knows nothing of them; flags are constants, as in any program. Cookie and status of each event
//! are compared with the expected ones, as part of the operation.

use std::hint::black_box;

use dat_core::{
    CompletionFlags, DtoEvent, Event, Ia, LmrTriplet, MemPriv, Message, Piece, Rdma, RmrTriplet,
    Stretch,
};

use hca_mlx5::platform::Blocks;

use super::hostile::Attacked;
use super::limit::Limit;
use super::stage::{Driver, Handles, Lane, blocks};

const NONE: CompletionFlags = CompletionFlags::empty();
/// The first cookie of a block.
pub const COOKIE: u64 = 0x5eed_0000_0000_0000;
/// Operations of a burst.
pub const BURST: u64 = 32;

/// 0 if it is that event's cookie and all went well.
macro_rules! check {
    ($event:expr, $cookie:expr) => {
        match $event {
            Ok(Event::Dto(DtoEvent { cookie, status, .. })) => (cookie ^ $cookie) | status as u64,
            Ok(_) | Err(_) => 1,
        }
    };
}

/// RDMA write of 8 bytes, inline, and its event.
#[inline(never)]
pub fn wr8_rt1(lane: &mut Lane, ops: u64) {
    let word: &[LmrTriplet; 1] = black_box(&lane.word);
    let far: &RmrTriplet = black_box(&lane.far);
    let mut wrong = 0;
    for cookie in COOKIE..COOKIE + ops {
        let posted = lane.poster.post_rdma_write(word, cookie, far, NONE);
        wrong |= u64::from(posted.is_err()) | check!(lane.requests.dequeue(), cookie);
    }
    lane.wrong |= wrong;
}

/// RDMA write of 8 bytes of lent memory, and its event.
#[inline(never)]
pub fn wr8_lent(lane: &mut Lane, ops: u64) {
    let word: &[LmrTriplet; 1] = black_box(&lane.lent);
    let far: &RmrTriplet = black_box(&lane.far);
    let mut wrong = 0;
    for cookie in COOKIE..COOKIE + ops {
        let posted = lane.poster.post_rdma_write(word, cookie, far, NONE);
        wrong |= u64::from(posted.is_err()) | check!(lane.requests.dequeue(), cookie);
    }
    lane.wrong |= wrong;
}

/// RDMA write of 256 bytes by reference, and its event.
#[inline(never)]
pub fn wr256_rt1(lane: &mut Lane, ops: u64) {
    let piece: &[LmrTriplet; 1] = black_box(&lane.piece);
    let far: &RmrTriplet = black_box(&lane.far);
    let mut wrong = 0;
    for cookie in COOKIE..COOKIE + ops {
        let posted = lane.poster.post_rdma_write(piece, cookie, far, NONE);
        wrong |= u64::from(posted.is_err()) | check!(lane.requests.dequeue(), cookie);
    }
    lane.wrong |= wrong;
}

/// Send of 256 bytes by reference, and its event.
#[inline(never)]
pub fn send256_rt1(lane: &mut Lane, ops: u64) {
    let piece: &[LmrTriplet; 1] = black_box(&lane.piece);
    let mut wrong = 0;
    for cookie in COOKIE..COOKIE + ops {
        let posted = lane.poster.post_send(piece, cookie, NONE);
        wrong |= u64::from(posted.is_err()) | check!(lane.requests.dequeue(), cookie);
    }
    lane.wrong |= wrong;
}

/// Message of 256 bytes, and its event.
#[inline(never)]
pub fn recv_rt1(lane: &mut Lane, ops: u64) {
    let piece: &[LmrTriplet; 1] = black_box(&lane.piece);
    let mut wrong = 0;
    for cookie in COOKIE..COOKIE + ops {
        let posted = lane.poster.post_recv(piece, cookie, NONE);
        wrong |= u64::from(posted.is_err()) | check!(lane.receives.dequeue(), cookie);
    }
    lane.wrong |= wrong;
}

/// The posting half of [`wr8_rt1`].
#[inline(never)]
pub fn post_wr8(lane: &mut Lane, ops: u64) {
    let word: &[LmrTriplet; 1] = black_box(&lane.word);
    let far: &RmrTriplet = black_box(&lane.far);
    let mut wrong = 0;
    for cookie in COOKIE..COOKIE + ops {
        let posted = lane.poster.post_rdma_write(word, cookie, far, NONE);
        wrong |= u64::from(posted.is_err());
    }
    lane.wrong |= wrong;
}

/// The reaping half of [`wr8_rt1`].
#[inline(never)]
pub fn deq_wr8(lane: &mut Lane, ops: u64) {
    let mut wrong = 0;
    for cookie in COOKIE..COOKIE + ops {
        wrong |= check!(lane.requests.dequeue(), cookie);
    }
    lane.wrong |= wrong;
}

/// The posting half of [`recv_rt1`].
#[inline(never)]
pub fn post_recv(lane: &mut Lane, ops: u64) {
    let piece: &[LmrTriplet; 1] = black_box(&lane.piece);
    let mut wrong = 0;
    for cookie in COOKIE..COOKIE + ops {
        let posted = lane.poster.post_recv(piece, cookie, NONE);
        wrong |= u64::from(posted.is_err());
    }
    lane.wrong |= wrong;
}

/// The reaping half of [`recv_rt1`].
#[inline(never)]
pub fn deq_recv(lane: &mut Lane, ops: u64) {
    let mut wrong = 0;
    for cookie in COOKIE..COOKIE + ops {
        wrong |= check!(lane.receives.dequeue(), cookie);
    }
    lane.wrong |= wrong;
}

/// Lists of RDMA writes of 8 bytes under one doorbell, then their events.
#[inline(never)]
pub fn wr8_b32(lane: &mut Lane, ops: u64) {
    let mut list = [Rdma { cookie: 0, local: lane.word[0], remote: lane.far }; BURST as usize];
    for (write, cookie) in list.iter_mut().zip(COOKIE..) {
        write.cookie = cookie;
    }
    let mut wrong = 0;
    for _ in 0..ops / BURST {
        let posted = lane.poster.post_rdma_writes(black_box(&list), NONE);
        wrong |= u64::from(posted.is_err());
        let mut next = COOKIE;
        let each = |event| {
            wrong |= check!(Ok::<_, ()>(event), next);
            next += 1;
        };
        lane.requests.dequeue_each(list.len(), each);
        wrong |= next ^ (COOKIE + BURST);
    }
    lane.wrong |= wrong;
}

/// The same, each list a stretch.
#[inline(never)]
pub fn wr8_piece32(lane: &mut Lane, ops: u64) {
    let (local, remote) = black_box((lane.word[0], lane.far));
    let stretch = Stretch { local, remote, len: local.len };
    let list: [Piece; BURST as usize] =
        core::array::from_fn(|n| Piece { cookie: COOKIE + n as u64, from: 0, to: 0 });
    let mut wrong = 0;
    for _ in 0..ops / BURST {
        let posted = lane.poster.post_rdma_pieces(&stretch, black_box(&list), NONE);
        wrong |= u64::from(posted.is_err());
        let mut next = COOKIE;
        let each = |event| {
            wrong |= check!(Ok::<_, ()>(event), next);
            next += 1;
        };
        lane.requests.dequeue_each(list.len(), each);
        wrong |= next ^ (COOKIE + BURST);
    }
    lane.wrong |= wrong;
}

/// Bursts of receives of 256 bytes, posted as a list and dequeued in one call.
#[inline(never)]
pub fn recv_b32(lane: &mut Lane, ops: u64) {
    let list: [Message; BURST as usize] =
        core::array::from_fn(|n| Message { cookie: COOKIE + n as u64, local: lane.piece[0] });
    let mut wrong = 0;
    for _ in 0..ops / BURST {
        let posted = lane.poster.post_recvs(black_box(&list), NONE);
        wrong |= u64::from(posted.is_err());
        let mut next = COOKIE;
        let each = |event| {
            wrong |= check!(Ok::<_, ()>(event), next);
            next += 1;
        };
        lane.receives.dequeue_each(list.len(), each);
        wrong |= next ^ (COOKIE + BURST);
    }
    lane.wrong |= wrong;
}

/// Bursts of RDMA writes of 8 bytes, all but the last without a completion; one event a burst.
#[inline(never)]
pub fn unsig_1of32(lane: &mut Lane, ops: u64) {
    let word: &[LmrTriplet; 1] = black_box(&lane.word);
    let far: &RmrTriplet = black_box(&lane.far);
    let mut wrong = 0;
    for burst in 0..ops / BURST {
        let flags = CompletionFlags::DEFER.union(CompletionFlags::SUPPRESS);
        for n in 1..BURST {
            let posted = lane.poster.post_rdma_write(word, n, far, flags);
            wrong |= u64::from(posted.is_err());
        }
        let cookie = COOKIE + burst;
        let posted = lane.poster.post_rdma_write(word, cookie, far, NONE);
        wrong |= u64::from(posted.is_err()) | check!(lane.requests.dequeue(), cookie);
    }
    lane.wrong |= wrong;
}

/// Bursts of RDMA writes of 8 bytes, posted as a list that suppresses all completions, and one more
/// that completes.
#[inline(never)]
pub fn unsig_b32(lane: &mut Lane, ops: u64) {
    let list: [Rdma; BURST as usize - 1] =
        core::array::from_fn(|n| Rdma { cookie: n as u64, local: lane.word[0], remote: lane.far });
    let word: &[LmrTriplet; 1] = black_box(&lane.word);
    let far: &RmrTriplet = black_box(&lane.far);
    let mut wrong = 0;
    for burst in 0..ops / BURST {
        let flags = CompletionFlags::DEFER.union(CompletionFlags::SUPPRESS);
        let posted = lane.poster.post_rdma_writes(black_box(&list), flags);
        wrong |= u64::from(posted.is_err());
        let cookie = COOKIE + burst;
        let posted = lane.poster.post_rdma_write(word, cookie, far, NONE);
        wrong |= u64::from(posted.is_err()) | check!(lane.requests.dequeue(), cookie);
    }
    lane.wrong |= wrong;
}

/// Dequeue of an empty Event Dispatcher.
#[inline(never)]
pub fn deq_empty(lane: &mut Lane, ops: u64) {
    let mut wrong = 0;
    for _ in 0..ops {
        wrong |= u64::from(lane.requests.dequeue().is_ok());
    }
    lane.wrong |= wrong;
}

/// Bind of a window to 256 bytes, and its event.
#[inline(never)]
pub fn rmr_bind(lane: &mut Lane, ops: u64) {
    let piece: &[LmrTriplet; 1] = black_box(&lane.piece);
    let mut wrong = 0;
    for cookie in COOKIE..COOKIE + ops {
        let bound = lane.poster.rmr_bind(lane.rmr, &piece[0], MemPriv::REMOTE_WRITE, cookie, NONE);
        wrong |= u64::from(bound.is_err());
        wrong |= match lane.requests.dequeue() {
            Ok(Event::RmrBind { cookie: c, status, .. }) => (c ^ cookie) | status as u64,
            Ok(_) | Err(_) => 1,
        };
    }
    lane.wrong |= wrong;
}

/// [`wr8_rt1`] by handle.
#[inline(never)]
pub fn wr8_handle(ia: &mut Ia<'static, Driver>, lane: &mut Handles, ops: u64) {
    let word: &[LmrTriplet; 1] = black_box(&lane.word);
    let far: &RmrTriplet = black_box(&lane.far);
    let mut wrong = 0;
    for cookie in COOKIE..COOKIE + ops {
        let (ep, evd) = black_box((lane.ep, lane.evd));
        let posted = ia.ep_post_rdma_write(ep, word, cookie, far, NONE);
        wrong |= u64::from(posted.is_err()) | check!(ia.evd_dequeue(evd), cookie);
    }
    lane.wrong |= wrong;
}

/// The limit of a write.
#[inline(never)]
pub fn limit(limit: &mut Limit, ops: u64) -> u64 {
    match blocks() {
        Blocks::Combined => limit_writes(limit, ops, Blocks::Combined),
        how => limit_writes(limit, ops, how),
    }
}

#[inline(always)]
fn limit_writes(limit: &mut Limit, ops: u64, how: Blocks) -> u64 {
    let mut wrong = 0;
    for cookie in COOKIE..COOKIE + ops {
        limit.post(black_box(0x1000), black_box(7), black_box(cookie), cookie, how);
        wrong |= limit.poll().map_or(1, |c| c ^ cookie);
    }
    wrong
}

/// The limit of writes in lists under one doorbell.
#[inline(never)]
pub fn limit_b32(limit: &mut Limit, ops: u64) -> u64 {
    let list: [[u64; 2]; BURST as usize] = core::array::from_fn(|n| [COOKIE + n as u64, 1]);
    let mut wrong = 0;
    for _ in 0..ops / BURST {
        limit.post_list(black_box(0x1000), black_box(7), black_box(&list), blocks());
        for cookie in COOKIE..COOKIE + BURST {
            wrong |= limit.poll().map_or(1, |c| c ^ cookie);
        }
    }
    wrong
}

/// The limit of a receive.
#[inline(never)]
pub fn limit_recv(limit: &mut Limit, ops: u64) -> u64 {
    let mut wrong = 0;
    for cookie in COOKIE..COOKIE + ops {
        limit.receive(black_box(0x1000), black_box(256), black_box(7), cookie);
        wrong |= limit.poll_received().map_or(1, |(c, len)| c ^ cookie | u64::from(len));
    }
    wrong
}

/// The limit of a look at an empty queue.
#[inline(never)]
pub fn limit_empty(limit: &mut Limit, ops: u64) -> u64 {
    let mut wrong = 0;
    for _ in 0..ops {
        wrong |= u64::from(limit.poll().is_some());
    }
    wrong
}

/// The limit of a bind.
#[inline(never)]
pub fn limit_bind(limit: &mut Limit, ops: u64) -> u64 {
    let mut wrong = 0;
    for cookie in COOKIE..COOKIE + ops {
        let keys = black_box([7, 8, 9]);
        limit.bind(black_box(0x1000), black_box(256), keys, cookie, blocks());
        wrong |= limit.poll().map_or(1, |c| c ^ cookie);
    }
    wrong
}

/// Functions that handle a block of hostile frames: one of each kind, so that each has a name to
/// count by.
macro_rules! hostile {
    ($($name:ident = $number:literal,)*) => {
        $(#[doc = concat!("Handles frames of kind ", stringify!($name), ".")]
        #[inline(never)]
        pub fn $name(attacked: &mut Attacked) {
            // Else they are one function under one name.
            let _ = black_box($number);
            attacked.handle();
        })*
    };
}

hostile! {
    hostile_req = 1, hostile_req_port = 2, hostile_req_peer = 3, hostile_mra = 4, hostile_rej = 5,
    hostile_rej_timeout = 6, hostile_rep = 7, hostile_rtu = 8, hostile_dreq = 9, hostile_drep = 10,
    hostile_sidr_req = 11, hostile_sidr_rep = 12, hostile_class = 13, hostile_short = 14,
    hostile_arp_request = 15, hostile_arp_claim = 16, hostile_arp_reply = 17, hostile_bytes = 18,
    hostile_req_service = 19,
}
