//! The poster that owns its buffers, and posters in general.

use std::cell::Cell;
use std::ops::Bound;
use std::rc::Rc;

use dat_core::{
    CloseFlag, CompletionFlags, DatSubtype, DatType, DtoEvent, DtoOperation, DtoStatus, Event,
    Lend, LmrTriplet, OwningPoster,
};

use super::super::{A, Adapters, B, Mem, NONE, Side, refused};
use super::{Dto, memory, rig};

/// A piece of memory that counts how many of its kind live.
#[derive(Debug)]
struct Piece {
    segment: LmrTriplet,
    alive: Rc<Cell<u32>>,
}

impl Lend for Piece {
    fn segment(&self) -> LmrTriplet {
        self.segment
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.alive.set(self.alive.get() - 1);
    }
}

fn piece(mem: &Mem, at: usize, alive: &Rc<Cell<u32>>) -> Piece {
    alive.set(alive.get() + 1);
    Piece { segment: mem.seg(at, 64), alive: Rc::clone(alive) }
}

/// Frees the Endpoint; so many buffers come back with it.
#[track_caller]
fn over<'s, S: Side>(
    ias: &mut Adapters<'s, S>,
    side: usize,
    poster: OwningPoster<'s, S::Hca, Piece, 4>,
    buffers: u32,
) {
    let (now, mut back) = (ias.now(), 0);
    let freed = poster.free(now, &mut ias[side].ia, |_| back += 1);
    assert!(freed.is_ok() && back == buffers);
}

/// Each buffer comes back with its own completion, in the order of posts, with what arrived in it.
pub fn a_buffer_comes_back_with_its_completion(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let alive = Rc::default();
    let taken = ias.b.ep_take_poster(ends[B].ep).unwrap();
    let mut poster = OwningPoster::<_, Piece, 4>::new(taken).unwrap();
    for at in [0, 64, 128] {
        poster.post_recv(piece(&mems[B], at, &alive), NONE).unwrap();
    }
    assert_eq!((poster.out(), alive.get()), ((0, 3), 3));
    for (n, at) in [(1, 0), (2, 64)] {
        ias.fill(&mems[A], 0, &[n; 40]);
        ias.send(&ends[A], &mems[A], 0, 40, 9);
        ias.done(&ends[A], DtoOperation::Send, 9);
        let event = ias.event(B, ends[B].recv);
        let done = poster.complete(event).unwrap();
        assert_eq!((done.status, done.len), (DtoStatus::Success, 40));
        assert_eq!(done.buffer.segment, mems[B].seg(at, 64));
        assert_eq!(ias.bytes(&mems[B], at, 40), [n; 40]);
    }
    assert_eq!((poster.out(), alive.get()), ((0, 1), 1));
    // And out again, by all requests.
    ias.recv(&ends[A], &mems[A], 256, 64, 1);
    let far = mems[A].far(512, 64);
    poster.post_send(piece(&mems[B], 192, &alive), .., NONE).unwrap();
    poster.post_rdma_write(piece(&mems[B], 192, &alive), .., &far, NONE).unwrap();
    poster.post_rdma_read(piece(&mems[B], 192, &alive), .., &far, NONE).unwrap();
    for _ in 0..3 {
        let event = ias.event(B, ends[B].request);
        assert_eq!(poster.complete(event).unwrap().len, 64);
    }
    assert_eq!((poster.out(), alive.get()), ((0, 1), 1));
    over(ias, B, poster, 1);
    assert_eq!(alive.get(), 0);
}

/// A part of a buffer is moved and nothing else; the whole buffer comes back, to be posted again.
pub fn a_part_of_a_buffer_is_posted(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let alive = Rc::default();
    let taken = ias.b.ep_take_poster(ends[B].ep).unwrap();
    let mut poster = OwningPoster::<_, Piece, 4>::new(taken).unwrap();
    ias.fill(&mems[B], 0, &std::array::from_fn::<u8, 64, _>(|n| n as u8));
    ias.recv(&ends[A], &mems[A], 256, 64, 1);
    poster.post_send(piece(&mems[B], 0, &alive), 8..20, NONE).unwrap();
    let done = poster.complete(ias.event(B, ends[B].request)).unwrap();
    assert!(!done.is_receive());
    let (buffer, len) = done.succeeded().unwrap();
    assert_eq!((buffer.segment, len), (mems[B].seg(0, 64), 12));
    assert_eq!(ias.bytes(&mems[A], 256, 12), std::array::from_fn::<u8, 12, _>(|n| n as u8 + 8));
    // The same buffer again, its last bytes.
    let far = mems[A].far(512, 4);
    poster.post_rdma_write(buffer, 60.., &far, NONE).unwrap();
    let (buffer, _) = poster.complete(ias.event(B, ends[B].request)).unwrap().succeeded().unwrap();
    assert_eq!(ias.bytes(&mems[A], 512, 4), [60, 61, 62, 63]);
    // And back into its first bytes, by a read.
    poster.post_rdma_read(buffer, ..=3, &far, NONE).unwrap();
    let done = poster.complete(ias.event(B, ends[B].request)).unwrap();
    assert_eq!((done.len, done.status), (4, DtoStatus::Success));
    assert_eq!(ias.bytes(&mems[B], 0, 6), [60, 61, 62, 63, 4, 5]);
    // As a receive, it has all of its bytes.
    poster.post_recv(done.buffer, NONE).unwrap();
    ias.send(&ends[A], &mems[A], 256, 64, 9);
    let done = poster.complete(ias.event(B, ends[B].recv)).unwrap();
    assert!(done.is_receive() && done.len == 64);
    drop(done);
    over(ias, B, poster, 0);
}

/// A refused buffer comes back unchanged: a bad segment, SUPPRESS, a full queue.
pub fn a_refused_buffer_comes_back_at_once(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let alive = Rc::default();
    let taken = ias.a.ep_take_poster(ends[A].ep).unwrap();
    let mut poster = OwningPoster::<_, Piece, 4>::new(taken).unwrap();
    let beyond = piece(&mems[A], super::BYTES, &alive);
    let back = poster.post_recv(beyond, NONE).unwrap_err();
    assert_eq!(back.ret.ty(), DatType::InvalidParameter);
    assert_eq!(back.buffer.segment, mems[A].seg(super::BYTES, 64));
    let good = piece(&mems[A], 0, &alive);
    let back = poster.post_send(good, .., CompletionFlags::SUPPRESS).unwrap_err();
    assert_eq!(back.ret.ty(), DatType::InvalidParameter);
    let parts =
        [(Bound::Included(0), Bound::Excluded(65)), (Bound::Excluded(63), Bound::Included(64))];
    let backward = (Bound::Included(2), Bound::Excluded(1));
    let mut good = back.buffer;
    for part in parts.into_iter().chain([backward]) {
        let back = poster.post_send(good, part, NONE).unwrap_err();
        refused::<(), _>(Err(back.ret), DatType::InvalidParameter, DatSubtype::InvalidArg2);
        good = back.buffer;
    }
    poster.post_recv(good, NONE).unwrap();
    for _ in 0..3 {
        poster.post_recv(piece(&mems[A], 64, &alive), NONE).unwrap();
    }
    let back = poster.post_recv(piece(&mems[A], 64, &alive), NONE).unwrap_err();
    refused::<(), _>(Err(back.ret), DatType::InsufficientResources, DatSubtype::ResourceCredits);
    assert_eq!(poster.out(), (0, 4));
    let poster = poster.into_poster().unwrap_err();
    assert_eq!(poster.out(), (0, 4));
    over(ias, A, poster, 4);
}

/// Events bring a buffer only when the Endpoint says that it is done with: not one that is made up,
/// presented twice, or of another Endpoint.
pub fn a_made_up_event_brings_no_buffer(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let alive = Rc::default();
    let taken = ias.b.ep_take_poster(ends[B].ep).unwrap();
    let mut poster = OwningPoster::<_, Piece, 4>::new(taken).unwrap();
    for at in [0, 64] {
        poster.post_recv(piece(&mems[B], at, &alive), NONE).unwrap();
    }
    let made_up = |cookie| {
        Event::Dto(DtoEvent {
            ep: ends[B].ep,
            cookie,
            status: DtoStatus::Success,
            len: 64,
            operation: DtoOperation::Receive,
        })
    };
    for cookie in 0..3 {
        assert_eq!(poster.complete(made_up(cookie)).unwrap_err(), made_up(cookie));
    }
    ias.send(&ends[A], &mems[A], 0, 8, 1);
    let event = ias.event(B, ends[B].recv);
    assert!(poster.complete(event).is_ok());
    assert_eq!(poster.complete(event).unwrap_err(), event);
    let other = Event::Established(ends[B].ep);
    assert_eq!(poster.complete(other).unwrap_err(), other);
    assert_eq!((poster.out(), alive.get()), ((0, 1), 1));
    over(ias, B, poster, 1);
}

/// A reset ends what was posted, so it brings all buffers back; the poster posts on afterwards.
pub fn a_reset_brings_back_what_is_out(ias: &mut Adapters<'_, impl Side>) {
    let ends = [ias.end(A), ias.end(B)];
    let mems = memory(ias, &ends);
    let alive = Rc::default();
    let taken = ias.b.ep_take_poster(ends[B].ep).unwrap();
    let mut poster = OwningPoster::<_, Piece, 4>::new(taken).unwrap();
    for at in [0, 64] {
        poster.post_recv(piece(&mems[B], at, &alive), NONE).unwrap();
    }
    // UNCONNECTED: no effect, and they stay posted.
    poster.reset(&mut ias.b.ia, |piece| panic!("{piece:?}")).unwrap();
    ias.connect(&ends[A], &ends[B]);
    // CONNECTED: refused, and nothing changes.
    let ret = poster.reset(&mut ias.b.ia, |piece| panic!("{piece:?}"));
    assert_eq!(ret.unwrap_err().ret().ty(), DatType::InvalidState);
    ias.disconnect(&ends[A], CloseFlag::Abrupt);
    assert_eq!(ias.event(B, ends[B].conn), Event::Disconnected(ends[B].ep));
    let mut back = Vec::new();
    poster.reset(&mut ias.b.ia, |piece| back.push(piece)).unwrap();
    let segments: Vec<_> = back.iter().map(|piece| piece.segment).collect();
    assert_eq!(segments, [mems[B].seg(0, 64), mems[B].seg(64, 64)]);
    assert_eq!(poster.out(), (0, 0));
    for piece in back {
        poster.post_recv(piece, NONE).unwrap();
    }
    assert_eq!(ias.event(A, ends[A].conn), Event::Disconnected(ends[A].ep));
    ias.a.ep_reset(ends[A].ep).unwrap();
    ias.connect(&ends[A], &ends[B]);
    ias.send(&ends[A], &mems[A], 0, 8, 1);
    let event = ias.event(B, ends[B].recv);
    assert_eq!(poster.complete(event).unwrap().len, 8);
    over(ias, B, poster, 1);
}

/// While the poster is out, posts by handle, a reset and a free are refused: the Endpoint belongs
/// to it.
pub fn a_poster_excludes_the_handle(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let taken = ias.a.ep_take_poster(ends[A].ep).unwrap();
    let controlled = DatSubtype::InvalidStateEpProviderControl;
    for dto in Dto::ALL {
        let ret = dto.post(ias, &ends[A], &[mems[A].seg(0, 8)], 1, &mems[B].far(0, 8), NONE);
        refused(ret, DatType::InvalidState, controlled);
    }
    let twice = ias.a.ep_take_poster(ends[A].ep);
    assert_eq!(twice.unwrap_err().ret().ty(), DatType::InvalidState);
    let now = ias.now();
    let freed = ias.a.ep_free(now, ends[A].ep).map_err(|error| error.ret());
    refused(freed, DatType::InvalidState, controlled);
    ias.a.ep_return_poster(taken).unwrap();
    super::crosses(ias, &ends, &mems);
}
