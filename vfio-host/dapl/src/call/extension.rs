//! `handle_extendedop` of the dispatch table: the InfiniBand extensions, and this provider's own.
//! The macros of `dat_ib_extensions.h` and the functions of `dat_dapldat.h` define the arguments of
//! each operation.

use std::ffi::{c_char, c_int};

use dat_core::{
    CounterType, DatReturn, DatSubtype, Ep, EpCounter, Error, Evd, EvdCounter, IaCounter,
    LmrTriplet, RmrTriplet,
};

use super::list::{Reads, Recvs, Sends, Writes, posts};
use super::post::{flags, post};
use super::{call, ia_called};
use crate::abi::number;
use crate::abi::structs::{DatIaAttr, DatIbAddrHandle, DatProviderAttr};
use crate::abi::va_list::VaList;
use crate::abi::{DatHandle, In, List, Out, Ret, SUCCESS, code};
use crate::adapter::Open;
use crate::object::{Kind, Object};
use crate::variant::Variant;

pub(super) extern "C" fn operation<V: Variant>(handle: DatHandle, op: c_int, list: VaList) -> Ret {
    let mut list = list;
    let list = &mut list;
    match 0_u32.wrapping_add_signed(op) {
        number::DAT_DAPLDAT_WRITES_OP => posts::<V, Writes>(handle, list),
        number::DAT_DAPLDAT_DEQUEUE_OP => super::evd::dequeue_burst::<V>(handle, list),
        number::DAT_DAPLDAT_RECVS_OP => posts::<V, Recvs>(handle, list),
        number::DAT_DAPLDAT_SENDS_OP => posts::<V, Sends>(handle, list),
        number::DAT_DAPLDAT_READS_OP => posts::<V, Reads>(handle, list),
        number::DAT_DAPLDAT_RING_OP => super::list::ring::<V>(handle),
        number::DAT_IB_FETCH_AND_ADD_OP => fetch_add::<V>(handle, list),
        number::DAT_IB_CMP_AND_SWAP_OP => cmp_swap::<V>(handle, list),
        number::DAT_IB_RDMA_WRITE_IMMED_OP => write_immed::<V>(handle, list),
        number::DAT_IB_UD_SEND_OP => send_ud::<V>(handle, list),
        number::DAT_IB_QUERY_COUNTERS_OP => query_counters::<V>(handle, list),
        number::DAT_IB_PRINT_COUNTERS_OP => print_counters::<V>(handle, list),
        number::DAT_IB_START_COUNTERS_OP => run_counters::<V>(handle, list, true),
        number::DAT_IB_STOP_COUNTERS_OP => run_counters::<V>(handle, list, false),
        number::DAT_IB_UD_CM_FREE_OP => cm_free::<V>(handle),
        number::DAT_IB_UD_AH_FREE_OP => ah_free::<V>(handle, list),
        number::DAT_IB_OPEN_QUERY_OP => open_query::<V>(handle, list),
        number::DAT_IB_CLOSE_QUERY_OP => super::ia::close::<V>(handle, super::ia::ABRUPT),
        // Collectives belong to another provider; other versions of our own are other numbers.
        _ => code::NOT_IMPLEMENTED.raw(),
    }
}

/// Bytes of an atomic.
const ATOMIC: u32 = 8;

/// Checks the local and remote segment of an atomic, which are both required. An atomic uses the
/// first word of the remote segment: consumers may pass a longer one.
fn both(
    local: In<LmrTriplet>,
    remote: In<RmrTriplet>,
) -> Result<(LmrTriplet, RmrTriplet), DatReturn> {
    let local = local.get().ok_or(code::bad_arg(4))?;
    let remote = remote.get().ok_or(code::bad_arg(6))?;
    let len = remote.len.min(ATOMIC);
    Ok((local, RmrTriplet { len, ..remote }))
}

fn fetch_add<V: Variant>(ep: DatHandle, list: &mut VaList) -> Ret {
    const NAME: &str = "dat_ib_post_fetch_and_add";
    let (add, local, cookie, remote, how) =
        (list.word(), list.input(), list.word(), list.input(), list.word32());
    let checked = both(local, remote).and_then(|both| Ok((both, flags(how, 7)?)));
    match checked {
        Err(why) => super::refused(NAME, &why.into()),
        Ok(((local, remote), how)) => post::<V>(
            NAME,
            ep,
            |poster| poster.post_fetch_add(add, &local, cookie, &remote, how),
            |nic, ep| nic.ep_post_fetch_add(ep, add, &local, cookie, &remote, how),
        ),
    }
}

fn cmp_swap<V: Variant>(ep: DatHandle, list: &mut VaList) -> Ret {
    const NAME: &str = "dat_ib_post_cmp_and_swap";
    let (compare, swap, local) = (list.word(), list.word(), list.input());
    let (cookie, remote, how) = (list.word(), list.input(), list.word32());
    let checked = both(local, remote).and_then(|both| Ok((both, flags(how, 8)?)));
    match checked {
        Err(why) => super::refused(NAME, &why.into()),
        Ok(((local, remote), how)) => post::<V>(
            NAME,
            ep,
            |poster| poster.post_cmp_swap(compare, swap, &local, cookie, &remote, how),
            |nic, ep| nic.ep_post_cmp_swap(ep, compare, swap, &local, cookie, &remote, how),
        ),
    }
}

fn write_immed<V: Variant>(ep: DatHandle, list: &mut VaList) -> Ret {
    const NAME: &str = "dat_ib_post_rdma_write_immed";
    let (count, segments): (i32, List<LmrTriplet>) = (list.count(), list.list());
    let (cookie, remote): (u64, In<RmrTriplet>) = (list.word(), list.input());
    // The wire carries the consumer's four bytes in memory order, as the stock provider sends them.
    let (immediate, how) = (list.word32().to_be(), list.word32());
    let checked = || {
        let segments = segments.values(count).ok_or(code::bad_arg(4))?;
        let remote = remote.get().ok_or(code::bad_arg(6))?;
        Ok::<_, DatReturn>((segments, remote, flags(how, 8)?))
    };
    match checked() {
        Err(why) => super::refused(NAME, &why.into()),
        Ok((segments, remote, how)) => post::<V>(
            NAME,
            ep,
            |poster| poster.post_rdma_write_immed(segments, cookie, &remote, immediate, how),
            |nic, ep| nic.ep_post_rdma_write_immed(ep, segments, cookie, &remote, immediate, how),
        ),
    }
}

fn send_ud<V: Variant>(ep: DatHandle, list: &mut VaList) -> Ret {
    const NAME: &str = "dat_ib_post_send_ud";
    let (count, segments): (i32, List<LmrTriplet>) = (list.count(), list.list());
    let to: In<DatIbAddrHandle> = list.input();
    let (cookie, how) = (list.word(), list.word32());
    let checked = || {
        let segments = segments.values(count).ok_or(code::bad_arg(4))?;
        let to = to.get().ok_or(code::bad_arg(5))?;
        let how = flags(how, 7)?;
        let adapter = Object::<V>::called(ep).adapter()?;
        let to = adapter.with(|open| open.addresses.find(&to).ok_or(code::bad_arg(5).into()))?;
        Ok::<_, Error>((segments, to, how))
    };
    match checked() {
        Err(why) => super::refused(NAME, &why),
        Ok((segments, to, how)) => post::<V>(
            NAME,
            ep,
            |poster| poster.post_send_ud(segments, &to, None, cookie, how),
            |nic, ep| nic.ep_post_send_ud(ep, segments, &to, None, cookie, how),
        ),
    }
}

/// Succeeds: the result of a look-up stays until its address handle is freed, and nothing else is
/// kept of it.
fn cm_free<V: Variant>(ep: DatHandle) -> Ret {
    call("dat_ib_ud_cm_free", || {
        Object::<V>::called(ep).name::<Ep>()?;
        Ok(())
    })
}

fn ah_free<V: Variant>(ep: DatHandle, list: &mut VaList) -> Ret {
    let address: In<DatIbAddrHandle> = list.input();
    call("dat_ib_ud_ah_free", || {
        let object = Object::<V>::called(ep);
        object.name::<Ep>()?;
        let address = address.get().ok_or(code::bad_arg(3))?;
        object.adapter()?.with(|open| {
            let freed = open.addresses.free(&address);
            freed.then_some(()).ok_or(code::bad_arg(3).into())
        })
    })
}

/// The kind of object that has counters.
#[derive(Clone, Copy)]
enum Counters {
    Ia,
    Ep,
    Evd,
}

/// The code for a handle of an object without counters.
const STALE: DatReturn = code::bad_handle(DatSubtype::InvalidHandle1);

impl Counters {
    fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Ia => Some(Self::Ia),
            Kind::Ep => Some(Self::Ep),
            Kind::Evd => Some(Self::Evd),
            Kind::Freed
            | Kind::Pz
            | Kind::Cno
            | Kind::Psp
            | Kind::Rsp
            | Kind::Csp
            | Kind::Cr
            | Kind::Lmr
            | Kind::Rmr
            | Kind::Srq => None,
        }
    }

    /// Returns the names of the counters.
    fn names(self) -> Vec<&'static str> {
        match self {
            Self::Ia => IaCounter::ALL.map(IaCounter::name).to_vec(),
            Self::Ep => EpCounter::ALL.map(EpCounter::name).to_vec(),
            Self::Evd => EvdCounter::ALL.map(EvdCounter::name).to_vec(),
        }
    }
}

/// Returns all counters of an object or one of them.
fn counted<V: Variant>(
    open: &mut Open<V>,
    object: &'static Object<V>,
    which: i32,
    reset: bool,
) -> Result<Vec<u64>, Error> {
    if reset {
        // A reset must not race with a thread that counts inside a gate.
        match object.name::<Ep>() {
            Ok(ep) => open.recall_ep(ep)?,
            Err(_) => open.recall(object)?,
        }
    }
    let which = usize::try_from(which).map_err(|_| code::bad_arg(3))?;
    let nic = open.nic();
    let counters = Counters::of(object.kind()).ok_or(STALE)?;
    if which > counters.names().len() {
        return Err(code::bad_arg(3).into());
    }
    let one = |counter: u64| vec![counter];
    Ok(match counters {
        Counters::Ia => match IaCounter::ALL.get(which) {
            Some(counter) => one(nic.ia_query_counter(*counter, reset)?),
            None => nic.ia_query_counters(reset)?.to_vec(),
        },
        Counters::Ep => {
            let ep: Ep = object.name()?;
            match EpCounter::ALL.get(which) {
                Some(counter) => one(nic.ep_query_counter(ep, *counter, reset)?),
                None => nic.ep_query_counters(ep, reset)?.to_vec(),
            }
        }
        Counters::Evd => {
            let evd: Evd = object.name()?;
            match EvdCounter::ALL.get(which) {
                Some(counter) => one(nic.evd_query_counter(evd, *counter, reset)?),
                None => nic.evd_query_counters(evd, reset)?.to_vec(),
            }
        }
    })
}

fn query_counters<V: Variant>(handle: DatHandle, list: &mut VaList) -> Ret {
    let (which, out, reset): (i32, Out<u64>, i32) = (list.count(), list.output(), list.count());
    call("dat_ib_query_counters", || {
        let object = Object::<V>::called(handle);
        if out.is_null() {
            return Err(code::bad_arg(4).into());
        }
        object.adapter()?.with(|open| {
            out.put_all(&counted(open, object, which, reset != 0)?);
            Ok(())
        })
    })
}

fn print_counters<V: Variant>(handle: DatHandle, list: &mut VaList) -> Ret {
    let (which, reset) = (list.count(), list.count());
    call("dat_ib_print_counters", || {
        let object = Object::<V>::called(handle);
        let text = object.adapter()?.with(|open| {
            let counts = counted(open, object, which, reset != 0)?;
            let counters = Counters::of(object.kind()).ok_or(STALE)?;
            Ok(lines(counters, which, &counts))
        })?;
        // Errors of standard output are ignored.
        let _ = std::io::Write::write_all(&mut std::io::stdout().lock(), text.as_bytes());
        Ok(())
    })
}

/// Formats a line for the requested counter, or for each that is not 0.
fn lines(counters: Counters, which: i32, counts: &[u64]) -> String {
    let names = counters.names();
    let first = if counts.len() == 1 { usize::try_from(which).unwrap_or(0) } else { 0 };
    let of_all = counts.len() != 1;
    let names = names.iter().skip(first);
    let shown = names.zip(counts).filter(|(_, count)| !of_all || **count != 0);
    shown.map(|(name, count)| format!("{name:24}{count:>20}\n")).collect()
}

fn run_counters<V: Variant>(handle: DatHandle, list: &mut VaList, run: bool) -> Ret {
    let of = list.word32();
    call("dat_ib_start_counters", || {
        let ia = ia_called::<V>(handle)?;
        let of = match of {
            0 => CounterType::Cm,
            1 => CounterType::Link,
            2 => CounterType::Diag,
            _ => return Err(code::bad_arg(3).into()),
        };
        ia.adapter()?.with(|open| {
            if run { open.nic().ia_start_counters(of) } else { open.nic().ia_stop_counters(of) }
        })
    })
}

/// Opens and queries an adapter. The handle is the name of the adapter here. It opens the
/// provider's own handle, for which the registry has no index.
fn open_query<V: Variant>(name: DatHandle, list: &mut VaList) -> Ret {
    let ia: Out<DatHandle> = list.output();
    let (ia_mask, ia_attr): (u64, Out<DatIaAttr>) = (list.word(), list.output());
    let (mask, attr): (u64, Out<DatProviderAttr>) = (list.word(), list.output());
    if ia.is_null() {
        return code::bad_arg(4).raw();
    }
    let mut async_evd = DatHandle(std::ptr::without_provenance_mut(number::EVD_ASYNC_EXISTS));
    let mut opened = DatHandle::NULL;
    let name: In<c_char> = In(name.0.cast());
    let got = super::ia::open::<V>(name, 0, Out(&raw mut async_evd), Out(&raw mut opened));
    if got != SUCCESS {
        return got;
    }
    let none = Out(std::ptr::null_mut());
    let got = super::ia::query::<V>(opened, none, ia_mask, ia_attr, mask, attr);
    if got == SUCCESS {
        ia.put(opened);
    } else {
        // The error of the query is returned.
        let _ = super::ia::close::<V>(opened, super::ia::ABRUPT);
    }
    got
}
