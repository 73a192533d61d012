//! Buffers are dropped as promised.

use std::cell::Cell;

use crate::pair::*;
use dat_core::{CompletionFlags, DtoStatus, Lend, LmrTriplet, OwningPoster};

thread_local! {
    /// Buffers dropped.
    static DROPPED: Cell<u32> = const { Cell::new(0) };
}

#[derive(Debug)]
struct Piece(LmrTriplet);

impl Lend for Piece {
    fn segment(&self) -> LmrTriplet {
        self.0
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        DROPPED.set(DROPPED.get() + 1);
    }
}

#[test]
fn a_dropped_poster_leaks_what_the_device_uses() {
    let mut p = Pair::connected();
    let taken = p.a.ia.ep_take_poster(p.a.ep).unwrap();
    let mut poster = OwningPoster::<_, Piece, 4>::new(taken).unwrap();
    let segments = [p.a.seg(0, 8), p.a.seg(8, 8)];
    for segment in segments {
        assert!(poster.post_recv(Piece(segment), FLAGS).is_ok());
    }
    drop(poster);
    assert_eq!(DROPPED.get(), 0);
    drop(Piece(segments[0]));
    assert_eq!(DROPPED.get(), 1);
}

#[test]
fn a_poster_with_something_outstanding_owns_nothing_yet() {
    let mut p = Pair::connected();
    p.a.post_recv(1).unwrap();
    let taken = p.a.ia.ep_take_poster(p.a.ep).unwrap();
    let taken = OwningPoster::<_, Piece, 4>::new(taken).unwrap_err();
    assert_eq!(taken.ret.ty(), dat_core::DatType::InvalidState);
    p.a.ia.ep_return_poster(taken.buffer).unwrap();
}

#[test]
fn deferred_buffers_go_out_with_the_doorbell() {
    let mut p = Pair::connected();
    p.b.post_recv(1).unwrap();
    let piece = Piece(p.a.seg(0, 8));
    let taken = p.a.ia.ep_take_poster(p.a.ep).unwrap();
    let mut poster = OwningPoster::<_, Piece, 4>::new(taken).unwrap();
    poster.post_send(piece, .., CompletionFlags::DEFER).unwrap();
    assert_eq!(p.b.dtos(p.b.recv), []);
    poster.ring();
    assert_eq!(p.b.dtos(p.b.recv), [(1, DtoStatus::Success)]);
    let event = p.a.next(p.a.request).unwrap();
    assert!(poster.complete(event).is_ok());
}
