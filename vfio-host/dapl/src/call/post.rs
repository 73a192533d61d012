//! dat_ep_post_*(3): the fast path through the gate of the handle, and the slow path under the
//! adapter's lock while the gate is shut.

use dat_core::{CompletionFlags, DatReturn, Ep, EpPoster, Error, LmrTriplet, RmrTriplet};

use crate::abi::number::DAT_DAPLDAT_DEFER_FLAG;
use crate::abi::{Boolean, Count, DatHandle, In, List, Ret, SUCCESS, code};
use crate::adapter::Driver;
use crate::object::Object;
use crate::variant::{DataQueue, Hca, Variant};

/// The flags that a post may carry: those of `dat.h`, and DEFER of `dat_dapldat.h`.
const FLAGS: u32 = 0x3f | DAT_DAPLDAT_DEFER_FLAG;

/// `DAT_COMPLETION_DEFAULT_FLAG`.
const USUAL: CompletionFlags = CompletionFlags::empty();

/// Returns the segment of a post that has one valid segment and no flags.
#[inline(always)]
fn usual(list: &List<LmrTriplet>, count: Count, how: u32) -> Option<&[LmrTriplet]> {
    if count == 1 && how == USUAL.bits() { list.one().map(<[_; 1]>::as_slice) } else { None }
}

type Poster<V> = EpPoster<'static, Hca<V>>;

/// Posts by the fast path, or by the slow path if the gate is shut.
#[inline(always)]
pub(super) fn post<V: Variant>(
    name: &str,
    ep: DatHandle,
    quick: impl FnOnce(&mut Poster<V>) -> Result<(), DatReturn>,
    slow: impl FnOnce(&mut Driver<V>, Ep) -> Result<(), DatReturn>,
) -> Ret {
    match posted::<V>(name, ep, quick) {
        Some(ret) => ret,
        None => post_locked(name, Object::<V>::called(ep), slow),
    }
}

/// Posts by the fast path; `None` if the gate is shut.
#[inline(always)]
fn posted<V: Variant>(
    name: &str,
    ep: DatHandle,
    quick: impl FnOnce(&mut Poster<V>) -> Result<(), DatReturn>,
) -> Option<Ret> {
    let object = Object::<V>::called(ep);
    let posted = object.queue.enter(V::LOCKED, |queue| match queue {
        DataQueue::Ep(poster) => quick(poster).map(|()| poster.is_flushing()),
        DataQueue::Evd(_) | DataQueue::Srq(_) => Err(crate::object::Kind::Ep.invalid()),
    });
    match posted {
        Some(Ok(false)) => Some(SUCCESS),
        Some(Ok(true)) => Some(flushed(object)),
        Some(Err(why)) => Some(super::refused(name, &why.into())),
        None => None,
    }
}

/// Drives the adapter after a post that was flushed at once, to wake waiters for its completion.
#[cold]
#[inline(never)]
fn flushed<V: Variant>(object: &'static Object<V>) -> Ret {
    // Errors are ignored: the post itself has succeeded.
    let _ = object.adapter().map_err(Error::from).and_then(|adapter| adapter.drive(|_| Ok(())));
    SUCCESS
}

#[cold]
#[inline(never)]
fn post_locked<V: Variant>(
    name: &str,
    object: &'static Object<V>,
    slow: impl FnOnce(&mut Driver<V>, Ep) -> Result<(), DatReturn>,
) -> Ret {
    super::call(name, || {
        object.adapter()?.drive(|open| {
            let ep = object.name()?;
            slow(open.nic(), ep)?;
            open.open_gate(object);
            Ok(())
        })
    })
}

#[inline(always)]
pub(super) fn flags(flags: u32, place: u16) -> Result<CompletionFlags, DatReturn> {
    if flags & !FLAGS == 0 {
        Ok(CompletionFlags::from_bits_retain(flags))
    } else {
        Err(code::bad_arg(place))
    }
}

/// Checks segments and flags of a post; returns from the call if they are invalid.
macro_rules! arguments {
    ($name:expr, $list:ident[$count:ident], $flags:ident @ $place:literal) => {
        let Some($list) = $list.values($count) else {
            return super::refused($name, &code::bad_arg(2).into());
        };
        let $flags = match flags($flags, $place) {
            Ok(flags) => flags,
            Err(why) => return super::refused($name, &why.into()),
        };
    };
}

/// Checks the remote segment of a post; returns from the call if it is invalid.
macro_rules! far {
    ($name:expr, $remote:ident @ $place:literal) => {
        let Some($remote) = $remote.get() else {
            return super::refused($name, &code::bad_arg($place).into());
        };
    };
}

/// Defines posts of a segment list, some with a remote segment. The common shape, one segment and
/// no flags, has its own code: checks for other shapes are a third of the instructions of a post.
macro_rules! posts {
    ($($call:ident: $aside:ident, $text:literal, $quick:ident, $slow:ident(how @ $how:literal $(, $remote:ident @ $far:literal)?);)*) => {
        $(
            pub(super) extern "C" fn $call<V: Variant>(
                ep: DatHandle,
                count: Count,
                list: List<LmrTriplet>,
                cookie: u64,
                $($remote: In<RmrTriplet>,)?
                how: u32,
            ) -> Ret {
                'usual: {
                    let Some(one) = usual(&list, count, how) else { break 'usual };
                    $(
                        let Some(far) = $remote.get() else { break 'usual };
                        // Passed by address; values captured by move stay in registers.
                        let $remote = &far;
                    )?
                    let quick = posted::<V>($text, ep, move |poster| {
                        poster.$quick(one, cookie, $($remote,)? USUAL)
                    });
                    if let Some(ret) = quick {
                        return ret;
                    }
                }
                $aside::<V>(ep, count, list, cookie, $($remote,)? how)
            }

            #[inline(never)]
            fn $aside<V: Variant>(
                ep: DatHandle,
                count: Count,
                list: List<LmrTriplet>,
                cookie: u64,
                $($remote: In<RmrTriplet>,)?
                how: u32,
            ) -> Ret {
                arguments!($text, list[count], how @ $how);
                $(
                    far!($text, $remote @ $far);
                    let $remote = &$remote;
                )?
                post::<V>(
                    $text,
                    ep,
                    move |poster| poster.$quick(list, cookie, $($remote,)? how),
                    move |nic, ep| nic.$slow(ep, list, cookie, $($remote,)? how),
                )
            }
        )*
    };
}

posts! {
    send: send_aside, "dat_ep_post_send", post_send, ep_post_send(how @ 5);
    recv: recv_aside, "dat_ep_post_recv", post_recv, ep_post_recv(how @ 5);
    rdma_read: rdma_read_aside, "dat_ep_post_rdma_read", post_rdma_read, ep_post_rdma_read(how @ 6, remote @ 5);
    rdma_write: rdma_write_aside, "dat_ep_post_rdma_write", post_rdma_write, ep_post_rdma_write(how @ 6, remote @ 5);
}

pub(super) extern "C" fn send_with_invalidate<V: Variant>(
    ep: DatHandle,
    count: Count,
    list: List<LmrTriplet>,
    cookie: u64,
    how: u32,
    invalidate: Boolean,
    rmr_context: u32,
) -> Ret {
    arguments!("dat_ep_post_send_with_invalidate", list[count], how @ 5);
    let context = (invalidate != 0).then_some(rmr_context);
    post::<V>(
        "dat_ep_post_send_with_invalidate",
        ep,
        |poster| poster.post_send_with_invalidate(list, cookie, how, context),
        |nic, ep| nic.ep_post_send_with_invalidate(ep, list, cookie, how, context),
    )
}

pub(super) extern "C" fn rdma_read_to_rmr<V: Variant>(
    ep: DatHandle,
    local: In<RmrTriplet>,
    cookie: u64,
    remote: In<RmrTriplet>,
    how: u32,
) -> Ret {
    far!("dat_ep_post_rdma_read_to_rmr", local @ 2);
    far!("dat_ep_post_rdma_read_to_rmr", remote @ 4);
    let how = match flags(how, 5) {
        Ok(flags) => flags,
        Err(why) => return super::refused("dat_ep_post_rdma_read_to_rmr", &why.into()),
    };
    post::<V>(
        "dat_ep_post_rdma_read_to_rmr",
        ep,
        |poster| poster.post_rdma_read_to_rmr(&local, cookie, &remote, how),
        |nic, ep| nic.ep_post_rdma_read_to_rmr(ep, &local, cookie, &remote, how),
    )
}
