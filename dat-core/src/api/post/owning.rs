//! Extension: posting by ownership. A buffer moves in, and comes back with its completion.
//!
//! A post of DAT names memory, and trusts the consumer to keep his hands off it until the
//! completion. An [`OwningPoster`] takes the buffer itself instead, so the compiler sees to it:
//! what is posted can be neither read, written, posted again nor freed. It needs no heap: what is
//! out stands in two queues of fixed length, one for requests and one for receives, as it does in
//! the device.
//!
//! Nothing that a consumer says brings a buffer back. Completions come in posting order, and how
//! many have been dequeued the Endpoint knows; so the oldest buffer of a direction is given back
//! when its event is presented *and* the Endpoint counts it as done with. An event that was made
//! up, kept from an earlier connection or presented twice brings nothing. A program that loses an
//! event gets the buffer back with the next reset.
//!
//! A wait is not tied to a buffer: it may be given up, its future dropped, and the buffer stays
//! here. A reset or the end of the Endpoint brings back what is out. Should the poster itself be
//! dropped while buffers are out, they are leaked, on purpose: the device still uses them.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Bound, RangeBounds};
use core::sync::atomic::Ordering;

use heapless::Deque;

use crate::data::poster::EpPoster;
use crate::data::validate::FULL;
use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::completion::Direction;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType, Error};
use crate::types::event::{DtoOperation, DtoStatus, Event, IbOperation};
use crate::types::flags::CompletionFlags;
use crate::types::handle::Ep;
use crate::types::time::Instant;
use crate::types::triplet::{LmrTriplet, RmrTriplet};

/// A buffer that can be posted.
///
/// The value owns its bytes: while it exists, no other DTO names them. Dropping it frees them.
pub trait Lend {
    /// All of its bytes, in a registered region.
    fn segment(&self) -> LmrTriplet;
}

/// A refused call and what it was to take: the buffer of a post, the posting half of
/// [`OwningPoster::new`].
///
/// It becomes an [`Error`] by `?`, which drops the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned<B> {
    /// Why.
    pub ret: DatReturn,
    /// What was to be taken.
    pub buffer: B,
}

impl<B> fmt::Display for Returned<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ret.fmt(f)
    }
}

impl<B: fmt::Debug> core::error::Error for Returned<B> {}

impl<B> From<Returned<B>> for DatReturn {
    fn from(returned: Returned<B>) -> Self {
        returned.ret
    }
}

impl<B> From<Returned<B>> for Error {
    fn from(returned: Returned<B>) -> Self {
        returned.ret.into()
    }
}

/// A completion, and the buffer it brings back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed<B> {
    /// What was posted.
    pub buffer: B,
    /// How it ended.
    pub status: DtoStatus,
    /// Bytes moved, if it succeeded. No more than the buffer has.
    pub len: u32,
    /// The event itself: what it was, and the number of the post as its cookie.
    pub event: Event,
}

impl<B> Completed<B> {
    /// Whether the buffer was posted to receive.
    #[must_use]
    pub fn is_receive(&self) -> bool {
        let direction = if let Event::Dto(dto) = self.event {
            direction_of(dto.operation)
        } else if let Event::IbDto(dto) = self.event {
            extended(dto.operation)
        } else {
            return false;
        };
        direction == Direction::Recv
    }

    /// The buffer and the bytes moved, for the next post. The error is the status of a failure,
    /// and drops the buffer.
    pub fn succeeded(self) -> Result<(B, u32), DtoStatus> {
        if self.status == DtoStatus::Success {
            Ok((self.buffer, self.len))
        } else {
            Err(self.status)
        }
    }
}

/// What is out in one direction, the oldest first.
struct Out<B, const N: usize> {
    buffers: Deque<B, N>,
    /// Completions that have brought their buffer back, as the Endpoint counts.
    returned: u32,
}

impl<B, const N: usize> Out<B, N> {
    const fn new(returned: u32) -> Self {
        Self { buffers: Deque::new(), returned }
    }
}

/// The posting half of an Endpoint that owns what it posts: up to `N` requests and `N` receives.
///
/// Made of an [`EpPoster`], which is the only way to post to the Endpoint while it is out: so
/// nobody else can post a buffer that is lent here, or mix up the order.
///
/// ```
/// use dat_core::prelude::*;
/// use dat_core::provider::Provider;
///
/// /// Sends a message back from where it was received, and posts its buffer again after that.
/// fn echo<P: Provider, B: Lend>(
///     poster: &mut OwningPoster<'_, P, B, 8>,
///     done: Completed<B>,
/// ) -> Result<(), DatReturn> {
///     let len = done.len;
///     if done.is_receive() {
///         poster.post_send(done.buffer, ..len, CompletionFlags::empty())?;
///     } else {
///         poster.post_recv(done.buffer, CompletionFlags::empty())?;
///     }
///     Ok(())
/// }
/// ```
pub struct OwningPoster<'s, P: Provider, B: Lend, const N: usize> {
    /// There but while it is being reset or taken apart.
    poster: Option<EpPoster<'s, P>>,
    ep: Ep,
    requests: Out<B, N>,
    receives: Out<B, N>,
}

impl<P: Provider, B: Lend, const N: usize> fmt::Debug for OwningPoster<'_, P, B, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwningPoster")
            .field("ep", &self.ep)
            .field("requests", &self.requests.buffers.len())
            .field("receives", &self.receives.buffers.len())
            .finish_non_exhaustive()
    }
}

impl<'s, P: Provider, B: Lend, const N: usize> OwningPoster<'s, P, B, N> {
    /// Makes one of a posting half. `INVALID_STATE` with the half if something that it posted is
    /// outstanding.
    #[expect(
        clippy::result_large_err,
        reason = "the half itself comes back, there is no heap for it"
    )]
    pub fn new(poster: EpPoster<'s, P>) -> Result<Self, Returned<EpPoster<'s, P>>> {
        let shared = poster.near.ep;
        if [Direction::Send, Direction::Recv].map(|d| shared.outstanding(d)) != [0, 0] {
            return Err(Returned { ret: DatReturn::of(DatType::InvalidState), buffer: poster });
        }
        let consumed = |d| shared.line(d).consumed.load(Ordering::Acquire);
        Ok(Self {
            ep: poster.ep,
            requests: Out::new(consumed(Direction::Send)),
            receives: Out::new(consumed(Direction::Recv)),
            poster: Some(poster),
        })
    }

    /// The Endpoint it posts to.
    #[must_use]
    pub fn ep(&self) -> Ep {
        self.ep
    }

    /// Requests and receives whose buffers are out.
    #[must_use]
    pub fn out(&self) -> (usize, usize) {
        (self.requests.buffers.len(), self.receives.buffers.len())
    }

    /// Posts a receive into `buffer`. As [`EpPoster::post_recv`].
    #[doc(alias = "dat_ep_post_recv")]
    pub fn post_recv(&mut self, buffer: B, flags: CompletionFlags) -> Result<(), Returned<B>> {
        post(&mut self.poster, &mut self.receives, (buffer, ..), flags, |half, segment, cookie| {
            half.post_recv(segment, cookie, flags)
        })
    }

    /// Sends the bytes `part` of `buffer`, `..` for all. As [`EpPoster::post_send`], without
    /// `SUPPRESS`: what has no completion would not come back. `INVALID_PARAMETER` for a part that
    /// exceeds the buffer.
    #[doc(alias = "dat_ep_post_send")]
    pub fn post_send(
        &mut self,
        buffer: B,
        part: impl RangeBounds<u32>,
        flags: CompletionFlags,
    ) -> Result<(), Returned<B>> {
        post(
            &mut self.poster,
            &mut self.requests,
            (buffer, part),
            flags,
            |half, segment, cookie| half.post_send(segment, cookie, flags),
        )
    }

    /// Writes the bytes `part` of `buffer` to `remote`. As [`EpPoster::post_rdma_write`]; otherwise
    /// as [`OwningPoster::post_send`].
    #[doc(alias = "dat_ep_post_rdma_write")]
    pub fn post_rdma_write(
        &mut self,
        buffer: B,
        part: impl RangeBounds<u32>,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), Returned<B>> {
        post(
            &mut self.poster,
            &mut self.requests,
            (buffer, part),
            flags,
            |half, segment, cookie| half.post_rdma_write(segment, cookie, remote, flags),
        )
    }

    /// Reads `remote` into the bytes `part` of `buffer`. As [`EpPoster::post_rdma_read`]; otherwise
    /// as [`OwningPoster::post_send`].
    #[doc(alias = "dat_ep_post_rdma_read")]
    pub fn post_rdma_read(
        &mut self,
        buffer: B,
        part: impl RangeBounds<u32>,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), Returned<B>> {
        post(
            &mut self.poster,
            &mut self.requests,
            (buffer, part),
            flags,
            |half, segment, cookie| half.post_rdma_read(segment, cookie, remote, flags),
        )
    }

    /// Rings the doorbell for requests posted with [`CompletionFlags::DEFER`].
    pub fn ring(&mut self) {
        if let Some(half) = &mut self.poster {
            half.ring();
        }
    }

    /// Gives back the buffer that `event` is the completion of. Any other event comes back as the
    /// error.
    pub fn complete(&mut self, event: Event) -> Result<Completed<B>, Event> {
        let (ep, status, len, direction) = if let Event::Dto(dto) = event {
            (dto.ep, dto.status, dto.len, direction_of(dto.operation))
        } else if let Event::IbDto(dto) = event {
            (dto.ep, dto.status(), dto.len, extended(dto.operation))
        } else {
            return Err(event);
        };
        if ep != self.ep {
            return Err(event);
        }
        match self.take_back(direction) {
            Some(buffer) => {
                Ok(Completed { len: len.min(buffer.segment().len), buffer, status, event })
            }
            None => Err(event),
        }
    }

    /// The oldest buffer of that direction, if the Endpoint is done with it.
    fn take_back(&mut self, direction: Direction) -> Option<B> {
        let line = self.poster.as_ref()?.near.ep.line(direction);
        let consumed = line.consumed.load(Ordering::Acquire);
        let out = match direction {
            Direction::Send => &mut self.requests,
            Direction::Recv => &mut self.receives,
        };
        if consumed == out.returned {
            return None;
        }
        let buffer = out.buffers.pop_front()?;
        out.returned = out.returned.wrapping_add(1);
        Some(buffer)
    }

    /// [`Ia::ep_reset`](crate::Ia::ep_reset) of its Endpoint, after which no completion will come:
    /// gives every buffer that is still out to `take`.
    ///
    /// None, if the Endpoint was UNCONNECTED already: then receives stay posted. Errors as for a
    /// reset; they change nothing.
    #[doc(alias = "dat_ep_reset")]
    pub fn reset(&mut self, ia: &mut Ia<'s, P>, take: impl FnMut(B)) -> Result<(), Error> {
        self.at_home(ia, Ia::ep_reset)?;
        self.give_back(take);
        Ok(())
    }

    /// [`Ia::ep_free`](crate::Ia::ep_free) of its Endpoint, after which no completion will come:
    /// gives every buffer that is still out to `take`. The poster comes back as the error where
    /// the Endpoint cannot be freed.
    #[doc(alias = "dat_ep_free")]
    #[expect(
        clippy::result_large_err,
        reason = "the half itself comes back, there is no heap for it"
    )]
    pub fn free(
        mut self,
        now: Instant,
        ia: &mut Ia<'s, P>,
        mut take: impl FnMut(B),
    ) -> Result<(), (Error, Self)> {
        match self.at_home(ia, |ia, ep| ia.ep_free(now, ep)) {
            Ok(()) => {
                for out in [&mut self.requests, &mut self.receives] {
                    while let Some(buffer) = out.buffers.pop_front() {
                        take(buffer);
                    }
                }
                Ok(())
            }
            Err(error) => Err((error, self)),
        }
    }

    /// Does something that wants the posting half to be at home.
    fn at_home<T>(
        &mut self,
        ia: &mut Ia<'s, P>,
        act: impl FnOnce(&mut Ia<'s, P>, Ep) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let invalid = Error::new(DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
        let half = self.poster.take().ok_or(invalid)?;
        if let Err(half) = ia.ep_return_poster(half) {
            self.poster = Some(half);
            return Err(invalid);
        }
        let done = act(ia, self.ep);
        // The half that was put back a moment ago is there, unless the Endpoint is gone.
        self.poster = ia.ep_take_poster(self.ep).ok();
        done
    }

    /// All buffers, if nothing is outstanding.
    fn give_back(&mut self, mut take: impl FnMut(B)) {
        let Some(shared) = self.poster.as_ref().map(|half| half.near.ep) else {
            return;
        };
        for (direction, out) in
            [(Direction::Send, &mut self.requests), (Direction::Recv, &mut self.receives)]
        {
            if shared.outstanding(direction) == 0 {
                out.returned = shared.line(direction).consumed.load(Ordering::Acquire);
                while let Some(buffer) = out.buffers.pop_front() {
                    take(buffer);
                }
            }
        }
    }

    /// Ends the ownership: gives the half back to post with as DAT does. It stays as it is if
    /// buffers are out.
    #[expect(
        clippy::result_large_err,
        reason = "the half itself comes back, there is no heap for it"
    )]
    pub fn into_poster(mut self) -> Result<EpPoster<'s, P>, Self> {
        match self.poster.take() {
            Some(half) if self.out() == (0, 0) => Ok(half),
            half => {
                self.poster = half;
                Err(self)
            }
        }
    }
}

/// What is out belongs to the device.
impl<P: Provider, B: Lend, const N: usize> Drop for OwningPoster<'_, P, B, N> {
    fn drop(&mut self) {
        for out in [&mut self.requests, &mut self.receives] {
            while let Some(buffer) = out.buffers.pop_front() {
                // Not dropped: the device still uses its bytes.
                let _ = ManuallyDrop::new(buffer);
            }
        }
    }
}

/// Posts a part of `buffer` by `call`, which gets its segment and a cookie.
fn post<'s, P: Provider, B: Lend, const N: usize>(
    half: &mut Option<EpPoster<'s, P>>,
    out: &mut Out<B, N>,
    (buffer, part): (B, impl RangeBounds<u32>),
    flags: CompletionFlags,
    call: impl FnOnce(&mut EpPoster<'s, P>, &[LmrTriplet], u64) -> Result<(), DatReturn>,
) -> Result<(), Returned<B>> {
    let silent = DatReturn::new(DatType::InvalidParameter, DatSubtype::InvalidArg3);
    let posted = match half {
        _ if flags.contains(CompletionFlags::SUPPRESS) => Err(silent),
        Some(half) if !out.buffers.is_full() => match cut(buffer.segment(), &part) {
            Some(segment) => {
                let number = out.returned.wrapping_add(count(&out.buffers));
                call(half, &[segment], number.into())
            }
            None => Err(BEYOND),
        },
        Some(_) | None => Err(FULL),
    };
    match posted {
        Ok(()) => {
            // There is room: it was looked for.
            let _ = out.buffers.push_back(buffer);
            Ok(())
        }
        Err(ret) => Err(Returned { ret, buffer }),
    }
}

/// The part does not lie in the buffer.
const BEYOND: DatReturn = DatReturn::new(DatType::InvalidParameter, DatSubtype::InvalidArg2);

/// A part of a segment; `None` if it is not inside.
fn cut(segment: LmrTriplet, part: &impl RangeBounds<u32>) -> Option<LmrTriplet> {
    let start = match part.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let end = match part.end_bound() {
        Bound::Included(last) => last.checked_add(1)?,
        Bound::Excluded(end) => *end,
        Bound::Unbounded => segment.len,
    };
    let len = end.checked_sub(start)?;
    let addr = segment.addr.checked_add(start.into())?;
    (end <= segment.len).then_some(LmrTriplet { addr, len, ..segment })
}

fn count<B, const N: usize>(buffers: &Deque<B, N>) -> u32 {
    u32::try_from(buffers.len()).unwrap_or(u32::MAX)
}

const fn direction_of(operation: DtoOperation) -> Direction {
    match operation {
        DtoOperation::Receive | DtoOperation::ReceiveWithInvalidate => Direction::Recv,
        DtoOperation::Send
        | DtoOperation::RdmaWrite
        | DtoOperation::RdmaRead
        | DtoOperation::BindMw
        | DtoOperation::LmrFmr
        | DtoOperation::LmrInvalidate => Direction::Send,
    }
}

const fn extended(operation: IbOperation) -> Direction {
    match operation {
        IbOperation::RecvRdmaWriteImmed
        | IbOperation::RecvMsgImmed
        | IbOperation::RecvMsgUd
        | IbOperation::RecvMsgUdImmed => Direction::Recv,
        IbOperation::RdmaWriteImmed
        | IbOperation::FetchAdd
        | IbOperation::CmpSwap
        | IbOperation::SendUd => Direction::Send,
    }
}
