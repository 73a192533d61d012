//! The posts of `dat_dapldat.h`: lists, and the doorbell. A list enters the gate once.

use std::cell::Cell;

use dat_core::provider::Provider;
use dat_core::{CompletionFlags, DatReturn, Ep, EpPoster, Refused};

use super::post::{flags as flags_of, post};
use crate::abi::number::DAT_DAPLDAT_MOST;
use crate::abi::own::{Element, Message, Rdma};
use crate::abi::pointer::Plain;
use crate::abi::va_list::VaList;
use crate::abi::{Count, DatHandle, List, Out, Ret, SUCCESS, code};
use crate::adapter::Driver;
use crate::variant::Variant;

/// Posts to one Endpoint.
pub(super) trait Queue {
    fn writes(&mut self, run: &[Rdma], flags: CompletionFlags) -> Result<(), Refused>;
    fn reads(&mut self, run: &[Rdma], flags: CompletionFlags) -> Result<(), Refused>;
    fn sends(&mut self, run: &[Message], flags: CompletionFlags) -> Result<(), Refused>;
    fn recvs(&mut self, run: &[Message], flags: CompletionFlags) -> Result<(), Refused>;
    /// Rings the doorbell.
    fn ring(&mut self);
}

impl<P: Provider> Queue for EpPoster<'_, P> {
    #[inline(always)]
    fn writes(&mut self, run: &[Rdma], flags: CompletionFlags) -> Result<(), Refused> {
        self.post_rdma_writes(run, flags)
    }
    #[inline(always)]
    fn reads(&mut self, run: &[Rdma], flags: CompletionFlags) -> Result<(), Refused> {
        self.post_rdma_reads(run, flags)
    }
    #[inline(always)]
    fn sends(&mut self, run: &[Message], flags: CompletionFlags) -> Result<(), Refused> {
        self.post_sends(run, flags)
    }
    #[inline(always)]
    fn recvs(&mut self, run: &[Message], flags: CompletionFlags) -> Result<(), Refused> {
        self.post_recvs(run, flags)
    }
    #[inline(always)]
    fn ring(&mut self) {
        EpPoster::ring(self);
    }
}

/// The Endpoint under the adapter's lock.
struct Locked<'a, V: Variant>(&'a mut Driver<V>, Ep);

impl<V: Variant> Queue for Locked<'_, V> {
    fn writes(&mut self, run: &[Rdma], flags: CompletionFlags) -> Result<(), Refused> {
        self.0.ep_post_rdma_writes(self.1, run, flags)
    }
    fn reads(&mut self, run: &[Rdma], flags: CompletionFlags) -> Result<(), Refused> {
        self.0.ep_post_rdma_reads(self.1, run, flags)
    }
    fn sends(&mut self, run: &[Message], flags: CompletionFlags) -> Result<(), Refused> {
        self.0.ep_post_sends(self.1, run, flags)
    }
    fn recvs(&mut self, run: &[Message], flags: CompletionFlags) -> Result<(), Refused> {
        self.0.ep_post_recvs(self.1, run, flags)
    }
    fn ring(&mut self) {
        // Its only error is an Endpoint that there is not, which the post has returned.
        let _ = self.0.ep_ring(self.1);
    }
}

/// What the elements of a list are.
pub(super) trait Work {
    const NAME: &'static str;
    type Element: Plain;
    /// Posts a list.
    fn post(queue: &mut impl Queue, list: &[Self::Element]) -> Result<(), Refused>;
}

pub(super) struct Writes;
pub(super) struct Reads;
pub(super) struct Sends;
pub(super) struct Recvs;

impl Work for Writes {
    const NAME: &'static str = "dat_dapldat_post_rdma_writes";
    type Element = Rdma;
    #[inline(always)]
    fn post(queue: &mut impl Queue, list: &[Rdma]) -> Result<(), Refused> {
        post_requests(queue, list, 6, |queue, run, flags| queue.writes(run, flags))
    }
}

impl Work for Reads {
    const NAME: &'static str = "dat_dapldat_post_rdma_reads";
    type Element = Rdma;
    fn post(queue: &mut impl Queue, list: &[Rdma]) -> Result<(), Refused> {
        post_requests(queue, list, 6, |queue, run, flags| queue.reads(run, flags))
    }
}

impl Work for Sends {
    const NAME: &'static str = "dat_dapldat_post_sends";
    type Element = Message;
    fn post(queue: &mut impl Queue, list: &[Message]) -> Result<(), Refused> {
        post_requests(queue, list, 5, |queue, run, flags| queue.sends(run, flags))
    }
}

impl Work for Recvs {
    const NAME: &'static str = "dat_dapldat_post_recvs";
    type Element = Message;
    fn post(queue: &mut impl Queue, list: &[Message]) -> Result<(), Refused> {
        post_runs(list, 5, |run, flags| queue.recvs(run, flags))
    }
}

/// Posts a list of requests, and rings the doorbell once, unless all that was posted waits for a
/// later one. `place` is the position of the flags in a single post.
#[inline(always)]
fn post_requests<Q: Queue, T>(
    queue: &mut Q,
    list: &[Element<T>],
    place: u16,
    mut post: impl FnMut(&mut Q, &[Element<T>], CompletionFlags) -> Result<(), Refused>,
) -> Result<(), Refused> {
    let mut rings = false;
    let ended = post_runs(list, place, |run, flags| {
        rings |= !flags.contains(CompletionFlags::DEFER);
        post(queue, run, flags.union(CompletionFlags::DEFER))
    });
    if rings {
        queue.ring();
    }
    ended
}

/// Posts one after another the runs of a list that have the same flags.
#[inline(always)]
fn post_runs<T>(
    list: &[Element<T>],
    place: u16,
    mut post: impl FnMut(&[Element<T>], CompletionFlags) -> Result<(), Refused>,
) -> Result<(), Refused> {
    let (mut rest, mut posted) = (list, 0);
    while let [first, ..] = rest {
        let word = first.flags;
        let others = rest.iter().position(|element| element.flags != word);
        let (run, behind) = rest.split_at(others.unwrap_or(rest.len()));
        let flags = u32::try_from(word).map_err(|_| code::bad_arg(place));
        flags
            .and_then(|word| flags_of(word, place))
            .map_err(|ret| Refused { posted: 0, ret })
            .and_then(|flags| post(run, flags))
            .map_err(|refused| Refused { posted: posted + refused.posted, ..refused })?;
        posted += run.len();
        rest = behind;
    }
    Ok(())
}

/// Checks the length of a list or burst, the third argument.
pub(super) fn length(count: Count) -> Result<usize, DatReturn> {
    let bounded = usize::try_from(count).ok().filter(|_| count <= DAT_DAPLDAT_MOST);
    bounded.ok_or(code::bad_arg(3))
}

#[inline(never)]
pub(super) fn posts<V: Variant, W: Work>(ep: DatHandle, list: &mut VaList) -> Ret {
    let (count, list, posted): (Count, List<W::Element>, Out<Count>) =
        (list.count(), list.list(), list.output());
    posted.put(0);
    let checked = length(count).and_then(|_| list.values(count).ok_or(code::bad_arg(4)));
    let list = match checked {
        Ok(list) => list,
        Err(why) => return super::refused(W::NAME, &why.into()),
    };
    // A refusal ends the list, not the call: what was posted before it may have to be flushed.
    let ended = Cell::new(Ok(()));
    let ret = post::<V>(
        W::NAME,
        ep,
        |poster| {
            ended.set(W::post(poster, list));
            Ok(())
        },
        |nic, ep| {
            ended.set(W::post(&mut Locked::<V>(nic, ep), list));
            Ok(())
        },
    );
    if ret != SUCCESS {
        return ret;
    }
    match ended.get() {
        Ok(()) => {
            posted.put(count);
            SUCCESS
        }
        Err(refused) => {
            // Not more than the count.
            posted.put(Count::try_from(refused.posted).unwrap_or(count));
            super::refused(W::NAME, &refused.ret.into())
        }
    }
}

pub(super) fn ring<V: Variant>(ep: DatHandle) -> Ret {
    post::<V>(
        "dat_dapldat_ring",
        ep,
        |poster| {
            poster.ring();
            Ok(())
        },
        |nic, ep| nic.ep_ring(ep),
    )
}
