//! dat_evd_*(3).

use std::sync::atomic::Ordering;

use dat_core::{Cno, DatReturn, DatSubtype, DatType, Error, Evd, EvdFlags, EvdWait, Event, Extra};

use super::list::length;
use super::{call, ia_called};
use crate::abi::event::{DatEvent, DtoHead, event as in_c, software};
use crate::abi::number::{DAT_EVD_FIELD_ALL, DAT_IB_EVD_EXTENSION_FLAG};
use crate::abi::pointer::OutList;
use crate::abi::structs::DatEvdParam;
use crate::abi::va_list::VaList;
use crate::abi::{Count, DatHandle, In, Out, Ret, SUCCESS, Timeout, code};
use crate::adapter::Open;
use crate::log::{Level, say, says};
use crate::object::{Kind, Note, Object};
use crate::sleep::{Limit, TIMEOUT, in_turns, wait};
use crate::variant::{DataQueue, Variant};

pub(super) extern "C" fn create<V: Variant>(
    ia: DatHandle,
    min_qlen: Count,
    cno: DatHandle,
    flags: u32,
    evd: Out<DatHandle>,
) -> Ret {
    call("dat_evd_create", || {
        let ia = ia_called::<V>(ia)?;
        let qlen = u32::try_from(min_qlen).ok().filter(|qlen| *qlen != 0);
        let qlen = qlen.ok_or_else(|| code::bad_arg(2))?;
        let cno = ia.sibling_or_none::<Cno>(cno)?;
        // Events of the extensions use the streams of the operations that they concern.
        let more = flags & DAT_IB_EVD_EXTENSION_FLAG;
        let flags = EvdFlags::from_bits(flags & !DAT_IB_EVD_EXTENSION_FLAG);
        let flags = flags.ok_or_else(|| code::bad_arg(4))?;
        if evd.is_null() {
            return Err(code::bad_arg(5).into());
        }
        ia.adapter()?.with(|open| {
            let made = open.nic().evd_create_with_cno(qlen, cno, flags)?;
            let handle = open.adopt(ia, made);
            let object = Object::<V>::called(handle);
            object.nothing.store(nothing(flags), Ordering::Relaxed);
            object.more_flags.store(more, Ordering::Relaxed);
            evd.put(handle);
            Ok(())
        })
    })
}

/// Returns the code for a dequeue of an empty queue. An Event Dispatcher with completions omits the
/// error class, as the stock provider does: some programs compare the whole word.
fn nothing(flags: EvdFlags) -> Ret {
    let empty = DatReturn::QUEUE_EMPTY.raw();
    if flags.intersects(EvdFlags::DTO | EvdFlags::RMR_BIND) {
        empty & !DatReturn::CLASS_ERROR
    } else {
        empty
    }
}

pub(super) extern "C" fn query<V: Variant>(
    evd: DatHandle,
    mask: u32,
    param: Out<DatEvdParam>,
) -> Ret {
    call("dat_evd_query", || {
        let object = Object::<V>::called(evd);
        let evd = object.name::<Evd>()?;
        if param.is_null() {
            return Err(code::bad_arg(3).into());
        }
        let mask = u64::from(mask);
        code::masked(mask, DAT_EVD_FIELD_ALL)?;
        object.adapter()?.with(|open| {
            let found = open.nic().evd_query(evd)?;
            let more = object.more_flags.load(Ordering::Relaxed);
            let found = DatEvdParam::new(&found, more, &mut open.around(object));
            param.put_named(mask, &found);
            Ok(())
        })
    })
}

/// Runs a call that changes an Event Dispatcher, after recalling its reaper.
fn change<V: Variant>(
    name: &str,
    evd: DatHandle,
    how: impl FnOnce(&mut Open<V>, &'static Object<V>, Evd) -> Result<(), Error>,
) -> Ret {
    call(name, || {
        let object = Object::<V>::called(evd);
        object.adapter()?.drive(|open| {
            let evd = object.name()?;
            open.recall(object)?;
            how(open, object, evd)?;
            open.rouse(object);
            Ok(())
        })
    })
}

pub(super) extern "C" fn modify_cno<V: Variant>(evd: DatHandle, cno: DatHandle) -> Ret {
    change::<V>("dat_evd_modify_cno", evd, |open, object, evd| {
        let cno = object.sibling_or_none::<Cno>(cno)?;
        open.nic().evd_modify_cno(evd, cno)
    })
}

pub(super) extern "C" fn enable<V: Variant>(evd: DatHandle) -> Ret {
    change::<V>("dat_evd_enable", evd, |open, _, evd| open.nic().evd_enable(evd))
}

pub(super) extern "C" fn disable<V: Variant>(evd: DatHandle) -> Ret {
    change::<V>("dat_evd_disable", evd, |open, _, evd| open.nic().evd_disable(evd))
}

pub(super) extern "C" fn set_unwaitable<V: Variant>(evd: DatHandle) -> Ret {
    change::<V>("dat_evd_set_unwaitable", evd, |open, _, evd| open.nic().evd_set_unwaitable(evd))
}

pub(super) extern "C" fn clear_unwaitable<V: Variant>(evd: DatHandle) -> Ret {
    change::<V>("dat_evd_clear_unwaitable", evd, |open, _, evd| {
        open.nic().evd_clear_unwaitable(evd)
    })
}

pub(super) extern "C" fn resize<V: Variant>(evd: DatHandle, min_qlen: Count) -> Ret {
    change::<V>("dat_evd_resize", evd, |open, _, evd| {
        let qlen = u32::try_from(min_qlen).map_err(|_| code::bad_arg(2))?;
        open.nic().evd_resize(evd, qlen)
    })
}

pub(super) extern "C" fn post_se<V: Variant>(evd: DatHandle, event: In<DatEvent>) -> Ret {
    call("dat_evd_post_se", || {
        let object = Object::<V>::called(evd);
        object.name::<Evd>()?;
        let pointer = software(event).ok_or_else(|| code::bad_arg(2))?;
        object.adapter()?.drive(|open| {
            let evd = object.name()?;
            open.nic().evd_post_se(evd, pointer)
        })
    })
}

/// Logs why a connection failed or broke, which the event does not contain.
fn failed<V: Variant>(open: &mut Open<V>, event: &Event) {
    let (Event::PeerRejected(ep)
    | Event::NonPeerRejected(ep)
    | Event::AcceptCompletionError(ep)
    | Event::TimedOut(ep)
    | Event::Unreachable(ep)
    | Event::Broken(ep)) = event
    else {
        return;
    };
    let nic = open.nic();
    let cause = nic.ep_cause(*ep).ok().flatten();
    let reason = nic.ep_reject_reason(*ep).ok().flatten();
    let text = match (cause, reason) {
        (Some(cause), _) => cause.to_string(),
        (None, Some(reason)) => reason.to_string(),
        (None, None) => String::from("the peer does not answer"),
    };
    say(Level::Warn, format_args!("{event:?}: {text}"));
}

/// Converts an event to its C structure.
fn event_in_c<V: Variant>(
    open: &mut Open<V>,
    object: &'static Object<V>,
    event: &Event,
    extra: &Extra,
) -> DatEvent {
    if says(Level::Warn) {
        failed(open, event);
    }
    in_c(event, object.handle(), extra, &mut open.around(object))
}

pub(super) extern "C-unwind" fn wait_for<V: Variant>(
    evd: DatHandle,
    timeout: Timeout,
    threshold: Count,
    event: Out<DatEvent>,
    nmore: Out<Count>,
) -> Ret {
    in_turns(timeout, &mut |limit| wait_a_turn::<V>(evd, limit, threshold, event, nmore))
}

fn wait_a_turn<V: Variant>(
    evd: DatHandle,
    limit: &mut Limit,
    threshold: Count,
    event: Out<DatEvent>,
    nmore: Out<Count>,
) -> Ret {
    call("dat_evd_wait", || {
        let object = Object::<V>::called(evd);
        object.name::<Evd>()?;
        let threshold = u32::try_from(threshold).map_err(|_| code::bad_arg(3))?;
        if event.is_null() {
            return Err(code::bad_arg(4).into());
        }
        if nmore.is_null() {
            return Err(code::bad_arg(5).into());
        }
        let begin = |open: &mut Open<V>, span| {
            let evd = object.name()?;
            open.recall(object)?;
            let now = open.nic().now();
            open.ia().evd_wait(now, evd, span, threshold)
        };
        wait::<V, EvdWait, ()>(object, limit, begin, |open, found| {
            let Ok(evd) = object.name() else {
                return found.map(drop).map_err(Error::from);
            };
            if matches!(found, Ok(_) | Err(TIMEOUT)) {
                let more = open.nic().evd_more(evd).unwrap_or(0);
                nmore.put(Count::try_from(more).unwrap_or(Count::MAX));
            }
            let extra = open.nic().evd_extension(evd).unwrap_or_default();
            event.put(event_in_c(open, object, &found?, &extra));
            Ok(())
        })
    })
}

/// The result of a dequeue by the fast path.
enum Quick {
    /// An ordinary completion was stored.
    Done,
    /// Another event, with extra data.
    Other(Event, Extra),
    /// The queue is empty, or an error.
    Refused(DatReturn),
}

pub(super) extern "C" fn dequeue<V: Variant>(evd: DatHandle, event: Out<DatEvent>) -> Ret {
    let object = Object::<V>::called(evd);
    if event.is_null() {
        return dequeued(object, None, event);
    }
    let quick = object.queue.enter(V::LOCKED, |queue| {
        let DataQueue::Evd(reaper) = queue else {
            return Quick::Refused(Kind::Evd.invalid());
        };
        match reaper.dequeue() {
            Ok(Event::Dto(dto)) if Event::Dto(dto).is_plain() => {
                // Stored here, while it is still in registers.
                let ep =
                    object.adapter().map_or(DatHandle::NULL, |adapter| adapter.handle_of(dto.ep));
                event.put_head(DtoHead::new(evd, ep, &dto));
                Quick::Done
            }
            Ok(event) => Quick::Other(event, reaper.extension()),
            Err(why) => Quick::Refused(why),
        }
    });
    match quick {
        Some(Quick::Done) => SUCCESS,
        Some(Quick::Other(found, extra)) => dequeued(object, Some((found, extra)), event),
        Some(Quick::Refused(DatReturn::QUEUE_EMPTY)) => object.nothing.load(Ordering::Relaxed),
        Some(Quick::Refused(why)) => why.raw(),
        None => dequeued(object, None, event),
    }
}

/// The slow path of a dequeue: for an event other than an ordinary completion, or with the gate
/// shut.
#[cold]
#[inline(never)]
fn dequeued<V: Variant>(
    object: &'static Object<V>,
    found: Option<(Event, Extra)>,
    event: Out<DatEvent>,
) -> Ret {
    let body = || {
        object.name::<Evd>()?;
        if event.is_null() {
            return Err(Error::from(code::bad_arg(2)));
        }
        object.adapter()?.with(|open| {
            let evd = object.name::<Evd>()?;
            let (found, extra) = match found {
                Some(found) => found,
                None => {
                    let found = open.nic().evd_dequeue(evd);
                    let extra = open.nic().evd_extension(evd).unwrap_or_default();
                    open.open_gate(object);
                    (found?, extra)
                }
            };
            event.put(event_in_c(open, object, &found, &extra));
            Ok(())
        })
    };
    match body() {
        Ok(()) => SUCCESS,
        Err(error) if error.ret() == DatReturn::QUEUE_EMPTY => {
            object.nothing.load(Ordering::Relaxed)
        }
        Err(error) => super::refused("dat_evd_dequeue", &error),
    }
}

/// `dat_dapldat_evd_dequeue`: several dequeues, which enter the gate once for ordinary completions
/// that follow one another.
#[inline(never)]
pub(super) fn dequeue_burst<V: Variant>(evd: DatHandle, list: &mut VaList) -> Ret {
    const NAME: &str = "dat_dapldat_evd_dequeue";
    let (most, events, count): (Count, Out<DatEvent>, Out<Count>) =
        (list.count(), list.output(), list.output());
    count.put(0);
    let checked = || {
        let most = length(most).ok().filter(|most| *most != 0).ok_or(code::bad_arg(3))?;
        Ok::<_, DatReturn>((most, events.list().ok_or(code::bad_arg(4))?))
    };
    let (most, events) = match checked() {
        Ok(checked) => checked,
        Err(why) => return super::refused(NAME, &why.into()),
    };
    let object = Object::<V>::called(evd);
    let mut stored = 0;
    let ended = loop {
        let found = match completions(object, events, stored, most) {
            Some((now, None)) => {
                stored = now;
                break object.nothing.load(Ordering::Relaxed);
            }
            Some((now, Some(other))) => {
                stored = now;
                Some(other)
            }
            None => None,
        };
        match dequeued(object, found, events.at(stored)) {
            SUCCESS => stored += 1,
            ended => break ended,
        }
        if stored == most {
            break SUCCESS;
        }
    };
    // Not more than `most`.
    count.put(Count::try_from(stored).unwrap_or(Count::MAX));
    if stored == 0 { ended } else { SUCCESS }
}

/// Stores ordinary completions by the fast path, from element `first` to before `most`, up to the
/// first other event, which is returned with its extra data. Returns also where it ended; `None` if
/// the gate is shut or of another object.
#[inline(always)]
fn completions<V: Variant>(
    object: &'static Object<V>,
    events: OutList<DatEvent>,
    first: usize,
    most: usize,
) -> Option<(usize, Option<(Event, Extra)>)> {
    object.queue.enter(V::LOCKED, |queue| {
        let DataQueue::Evd(reaper) = queue else {
            return None;
        };
        let evd = object.handle();
        let (mut next, mut other) = (first, None);
        // Completions of one Endpoint come in rows.
        let mut last = (None, DatHandle::NULL);
        let taken = reaper.dequeue_plain(most - first, |event| {
            if let (true, Event::Dto(dto)) = (event.is_plain(), &event) {
                if last.0 != Some(dto.ep) {
                    let handle = object.adapter().map(|adapter| adapter.handle_of(dto.ep));
                    last = (Some(dto.ep), handle.unwrap_or(DatHandle::NULL));
                }
                events.put_head(next, DtoHead::new(evd, last.1, dto));
                next += 1;
            } else {
                other = Some(event);
            }
        });
        let end = first + taken - usize::from(other.is_some());
        Some((end, other.map(|event| (event, reaper.extension()))))
    })?
}

pub(super) extern "C" fn free<V: Variant>(evd: DatHandle) -> Ret {
    call("dat_evd_free", || {
        let object = Object::<V>::called(evd);
        object.adapter()?.drive(|open| {
            let evd = object.name::<Evd>()?;
            if let Note::Ia { async_evd, own: true, .. } = &*object.ia().note() {
                if *async_evd == object.handle() {
                    return Err(Error::new(
                        DatType::InvalidState,
                        DatSubtype::InvalidStateEvdInUse,
                    ));
                }
            }
            open.recall(object)?;
            open.nic().evd_free(evd)?;
            open.disown(object, evd);
            Ok(())
        })
    })
}
