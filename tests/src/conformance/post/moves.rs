//! Bytes that move, in which order, and their completions.

use dat_core::{DtoOperation, DtoStatus, RmrTriplet};

use super::super::{A, Adapters, B, NONE, Side};
use super::{BYTES, Dto, crosses, memory, posted, rig};

/// Bytes that differ.
pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 % 251) as u8).collect()
}

/// Segments are read in order into one message, and filled in order, the last but one that has
/// bytes wholly.
pub fn segments_are_gathered_and_filled_in_order(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let bytes = pattern(600);
    ias.fill(&mems[A], 0, &bytes);
    // 100 + 300 + 200 go, in another order than they lie there.
    let from = [mems[A].seg(300, 100), mems[A].seg(0, 300), mems[A].seg(400, 200)];
    let expected = [&bytes[300..400], &bytes[..300], &bytes[400..600]].concat();
    let to = [mems[B].seg(4000, 250), mems[B].seg(0, 250), mems[B].seg(2000, 250)];
    let gathered = |ias: &Adapters<'_, _>| {
        [(4000, 250), (0, 250), (2000, 100)].map(|(at, len)| ias.bytes(&mems[B], at, len)).concat()
    };
    ias.b.ep_post_recv(ends[B].ep, &to, 1, NONE).unwrap();
    ias.a.ep_post_send(ends[A].ep, &from, 2, NONE).unwrap();
    assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 1), 600);
    assert_eq!(ias.done(&ends[A], DtoOperation::Send, 2), 600);
    assert_eq!(gathered(ias), expected);
    assert_eq!(ias.bytes(&mems[B], 2100, 150), [0; 150]);

    let far = mems[B].far(5000, 600);
    posted(Dto::Write, ias, &ends[A], &from, 3, &far);
    assert_eq!(ias.done(&ends[A], DtoOperation::RdmaWrite, 3), 600);
    assert_eq!(ias.bytes(&mems[B], 5000, 600), expected);
    let back = [mems[A].seg(3000, 200), mems[A].seg(2000, 400)];
    posted(Dto::Read, ias, &ends[A], &back, 4, &far);
    assert_eq!(ias.done(&ends[A], DtoOperation::RdmaRead, 4), 600);
    assert_eq!(ias.bytes(&mems[A], 3000, 200), expected[..200]);
    assert_eq!(ias.bytes(&mems[A], 2000, 400), expected[200..]);
}

/// A message shorter than its receive: the length says so, and the bytes behind it are as they
/// were.
pub fn a_short_message_leaves_the_rest_alone(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    ias.fill(&mems[A], 0, &[1; 64]);
    ias.fill(&mems[B], 0, &[2; 256]);
    ias.recv(&ends[B], &mems[B], 0, 256, 1);
    ias.send(&ends[A], &mems[A], 0, 64, 2);
    assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 1), 64);
    assert_eq!(ias.done(&ends[A], DtoOperation::Send, 2), 64);
    assert_eq!(ias.bytes(&mems[B], 0, 64), [1; 64]);
    assert_eq!(ias.bytes(&mems[B], 64, 192), [2; 192]);
}

/// No segments are a message of no bytes: it takes a receive, with segments or without.
pub fn a_message_of_no_bytes_takes_a_receive(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    ias.recv(&ends[B], &mems[B], 0, 64, 1);
    ias.b.ep_post_recv(ends[B].ep, &[], 2, NONE).unwrap();
    for cookie in [3, 4] {
        ias.a.ep_post_send(ends[A].ep, &[], cookie, NONE).unwrap();
    }
    for cookie in [1, 2] {
        assert_eq!(ias.done(&ends[B], DtoOperation::Receive, cookie), 0);
    }
    for cookie in [3, 4] {
        assert_eq!(ias.done(&ends[A], DtoOperation::Send, cookie), 0);
    }
}

/// Writes and reads of no bytes succeed, whatever they name at the far end.
pub fn rdma_of_no_bytes_looks_at_no_memory(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let nowhere = RmrTriplet { addr: 0, len: 0, context: 0x1234_5678 };
    for (dto, operation) in
        [(Dto::Write, DtoOperation::RdmaWrite), (Dto::Read, DtoOperation::RdmaRead)]
    {
        posted(dto, ias, &ends[A], &[], 5, &nowhere);
        assert_eq!(ias.done(&ends[A], operation, 5), 0);
    }
    crosses(ias, &ends, &mems);
}

/// A write moves as many bytes as its segments have, into a target that may be longer.
pub fn a_shorter_write_moves_what_there_is(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    ias.fill(&mems[A], 0, &[3; 40]);
    posted(Dto::Write, ias, &ends[A], &[mems[A].seg(0, 40)], 1, &mems[B].far(0, 64));
    assert_eq!(ias.done(&ends[A], DtoOperation::RdmaWrite, 1), 40);
    assert_eq!(ias.bytes(&mems[B], 0, 40), [3; 40]);
    assert_eq!(ias.bytes(&mems[B], 40, 24), [0; 24]);
}

/// A read moves as many bytes as the remote triplet names, into segments that may be longer.
pub fn a_longer_buffer_takes_what_the_read_names(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    ias.fill(&mems[B], 0, &[4; 64]);
    let iov = [mems[A].seg(0, 24), mems[A].seg(100, 24), mems[A].seg(200, 24)];
    posted(Dto::Read, ias, &ends[A], &iov, 1, &mems[B].far(0, 40));
    assert_eq!(ias.done(&ends[A], DtoOperation::RdmaRead, 1), 40);
    assert_eq!(ias.bytes(&mems[A], 0, 24), [4; 24]);
    assert_eq!(ias.bytes(&mems[A], 100, 16), [4; 16]);
    assert_eq!(ias.bytes(&mems[A], 116, 8), [0; 8]);
    assert_eq!(ias.bytes(&mems[A], 200, 24), [0; 24]);
}

/// A message, a write and a read of all the memory there is.
pub fn the_longest_message_crosses(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let bytes = pattern(BYTES);
    ias.fill(&mems[A], 0, &bytes);
    ias.recv(&ends[B], &mems[B], 0, BYTES, 1);
    ias.send(&ends[A], &mems[A], 0, BYTES, 2);
    assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 1) as usize, BYTES);
    assert_eq!(ias.done(&ends[A], DtoOperation::Send, 2) as usize, BYTES);
    assert!(ias.bytes(&mems[B], 0, BYTES) == bytes);
    let (whole, far) = (mems[A].seg(0, BYTES), mems[B].far(0, BYTES));
    ias.fill(&mems[B], 0, &[9; BYTES]);
    posted(Dto::Read, ias, &ends[A], &[whole], 3, &far);
    assert_eq!(ias.done(&ends[A], DtoOperation::RdmaRead, 3) as usize, BYTES);
    assert!(ias.bytes(&mems[A], 0, BYTES) == [9; BYTES]);
    ias.fill(&mems[A], 0, &bytes);
    posted(Dto::Write, ias, &ends[A], &[whole], 4, &far);
    assert_eq!(ias.done(&ends[A], DtoOperation::RdmaWrite, 4) as usize, BYTES);
    assert!(ias.bytes(&mems[B], 0, BYTES) == bytes);
}

/// The list of segments may be used for something else as soon as the post returns: IOV_CONSUMER.
pub fn the_list_is_the_consumers_when_the_post_returns(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    assert_eq!(ias.a.query().1.iov_ownership, 0);
    ias.fill(&mems[A], 0, b"one");
    ias.fill(&mems[A], 3, b"two");
    let mut iov = [mems[B].seg(0, 3)];
    for n in 0..2_usize {
        iov[0] = mems[B].seg(16 * n, 3);
        ias.b.ep_post_recv(ends[B].ep, &iov, 1, NONE).unwrap();
    }
    iov[0] = mems[A].seg(0, 3);
    ias.a.ep_post_send(ends[A].ep, &iov, 2, NONE).unwrap();
    iov[0] = mems[A].seg(3, 3);
    ias.a.ep_post_send(ends[A].ep, &iov, 2, NONE).unwrap();
    iov[0] = mems[A].seg(8, 1);
    for _ in 0..2 {
        ias.done(&ends[B], DtoOperation::Receive, 1);
        ias.done(&ends[A], DtoOperation::Send, 2);
    }
    assert_eq!(ias.bytes(&mems[B], 0, 3), b"one");
    assert_eq!(ias.bytes(&mems[B], 16, 3), b"two");
    let _ = iov;
}

/// Receives of an UNCONNECTED Endpoint wait for its connection.
pub fn receives_posted_before_the_connection_serve_it(ias: &mut Adapters<'_, impl Side>) {
    let ends = [ias.end(A), ias.end(B)];
    let mems = memory(ias, &ends);
    for cookie in 0..4 {
        ias.recv(&ends[B], &mems[B], 16 * cookie as usize, 16, cookie);
    }
    assert_eq!(ias.look(B, ends[B].recv), None);
    ias.connect(&ends[A], &ends[B]);
    for cookie in 0..4 {
        ias.send(&ends[A], &mems[A], 0, 8, cookie);
    }
    for cookie in 0..4 {
        assert_eq!(ias.done(&ends[B], DtoOperation::Receive, cookie), 8);
    }
}

/// Of one Endpoint and one direction completions come as the posts did, whatever they were.
pub fn completions_come_in_the_order_of_posts(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    for cookie in 0..8 {
        ias.recv(&ends[B], &mems[B], 0, 64, cookie);
    }
    let mut expected = Vec::new();
    for cookie in 0..24 {
        let (dto, operation) = [
            (Dto::Read, DtoOperation::RdmaRead),
            (Dto::Write, DtoOperation::RdmaWrite),
            (Dto::Send, DtoOperation::Send),
        ][cookie as usize % 3];
        posted(dto, ias, &ends[A], &[mems[A].seg(64, 64)], cookie, &mems[B].far(64, 64));
        expected.push((operation, cookie));
    }
    for (operation, cookie) in expected {
        ias.done(&ends[A], operation, cookie);
    }
    for cookie in 0..8 {
        ias.done(&ends[B], DtoOperation::Receive, cookie);
    }
}

/// All 64 bits of a cookie, also of one that several posts have.
pub fn cookies_come_back_whole(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    for cookie in [0, u64::MAX, 0x0123_4567_89ab_cdef, 0x0123_4567_89ab_cdef] {
        ias.recv(&ends[B], &mems[B], 0, 8, cookie);
        ias.send(&ends[A], &mems[A], 0, 8, cookie);
        ias.done(&ends[B], DtoOperation::Receive, cookie);
        ias.done(&ends[A], DtoOperation::Send, cookie);
    }
}

/// Endpoint, operation, cookie, status and length of each of the four, of successes and of flushes.
pub fn fault_21_every_completion_says_what_it_was(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let (iov, far) = ([mems[A].seg(0, 24)], mems[B].far(64, 24));
    ias.recv(&ends[B], &mems[B], 0, 100, 10);
    for (dto, operation, cookie) in [
        (Dto::Send, DtoOperation::Send, 11),
        (Dto::Write, DtoOperation::RdmaWrite, 12),
        (Dto::Read, DtoOperation::RdmaRead, 13),
    ] {
        posted(dto, ias, &ends[A], &iov, cookie, &far);
        let event = ias.dto(A, ends[A].request);
        assert_eq!((event.ep, event.operation), (ends[A].ep, operation));
        assert_eq!((event.cookie, event.status, event.len), (cookie, DtoStatus::Success, 24));
    }
    let event = ias.dto(B, ends[B].recv);
    assert_eq!((event.ep, event.operation), (ends[B].ep, DtoOperation::Receive));
    assert_eq!((event.cookie, event.status, event.len), (10, DtoStatus::Success, 24));
    ias.disconnect(&ends[A], dat_core::CloseFlag::Abrupt);
    ias.event(A, ends[A].conn);
    for (dto, operation, cookie) in [
        (Dto::Recv, DtoOperation::Receive, 20),
        (Dto::Send, DtoOperation::Send, 21),
        (Dto::Write, DtoOperation::RdmaWrite, 22),
        (Dto::Read, DtoOperation::RdmaRead, 23),
    ] {
        posted(dto, ias, &ends[A], &iov, cookie, &far);
        let evd = if dto == Dto::Recv { ends[A].recv } else { ends[A].request };
        let event = ias.dto(A, evd);
        assert_eq!((event.ep, event.operation), (ends[A].ep, operation));
        assert_eq!((event.cookie, event.status), (cookie, DtoStatus::ErrFlushed));
    }
}
