//! dat_ep_*(3), but for posting.

use std::net::IpAddr;

use dat_core::{
    CloseFlag, Comm, ConnectFlag, DatReturn, DatSubtype, DatType, Ep, EpAttr, EpCreate, EpModify,
    EpParam, EpState, Error, Evd, Pz, Srq,
};

use super::{call, ia_called, port};
use crate::abi::attr::{ServiceType, Sizes, count, qos};
use crate::abi::number;
use crate::abi::sockaddr::{SockAddr, SockAddrPtr};
use crate::abi::structs::{DatComm, DatEpAttr, DatEpParam};
use crate::abi::{Boolean, Count, DatHandle, In, List, Out, Ret, Timeout, VALUE_UNKNOWN, code};
use crate::adapter::{Adapter, Ask, Open, Reply};
use crate::object::Object;
use crate::sleep::duration;
use crate::variant::Variant;

/// The Q_Key of Endpoints for datagrams: that of the stock providers, because consumers cannot
/// agree on another one.
pub(super) const QKEY: u32 = 0x1d51_1d51;

/// The other handles of a new Endpoint.
struct Made {
    pz: Option<Pz>,
    recv: Option<Evd>,
    request: Option<Evd>,
    connect: Option<Evd>,
}

impl Made {
    fn of<V: Variant>(
        of: &'static Object<V>,
        [pz, recv, request, connect]: [DatHandle; 4],
    ) -> Result<Self, DatReturn> {
        let evd = |handle, subtype| {
            of.sibling_or_none::<Evd>(handle).map_err(|_| code::bad_handle(subtype))
        };
        Ok(Self {
            pz: of.sibling_or_none(pz)?,
            recv: evd(recv, DatSubtype::InvalidHandleEvdRecv)?,
            request: evd(request, DatSubtype::InvalidHandleEvdRequest)?,
            connect: evd(connect, DatSubtype::InvalidHandleEvdConn)?,
        })
    }
}

pub(super) extern "C" fn create<V: Variant>(
    ia: DatHandle,
    pz: DatHandle,
    recv_evd: DatHandle,
    request_evd: DatHandle,
    connect_evd: DatHandle,
    attr: In<DatEpAttr>,
    ep: Out<DatHandle>,
) -> Ret {
    let of = [pz, recv_evd, request_evd, connect_evd];
    call("dat_ep_create", || created::<V>(ia, of, None, attr, ep))
}

pub(super) extern "C" fn create_with_srq<V: Variant>(
    ia: DatHandle,
    pz: DatHandle,
    recv_evd: DatHandle,
    request_evd: DatHandle,
    connect_evd: DatHandle,
    srq: DatHandle,
    attr: In<DatEpAttr>,
    ep: Out<DatHandle>,
) -> Ret {
    let of = [pz, recv_evd, request_evd, connect_evd];
    call("dat_ep_create_with_srq", || created::<V>(ia, of, Some(srq), attr, ep))
}

/// Creates an Endpoint. With a Shared Receive Queue, that handle and attributes are required.
fn created<V: Variant>(
    ia: DatHandle,
    of: [DatHandle; 4],
    srq: Option<DatHandle>,
    attr: In<DatEpAttr>,
    ep: Out<DatHandle>,
) -> Result<(), Error> {
    // Positions of the last two arguments.
    let [bad_attr, bad_ep] = if srq.is_some() { [7, 8] } else { [6, 7] }.map(code::bad_arg);
    let ia = ia_called::<V>(ia)?;
    let made = Made::of(ia, of)?;
    let srq = srq.map(|srq| ia.sibling::<Srq>(srq)).transpose()?;
    if srq.is_some() && attr.get().is_none() {
        return Err(bad_attr.into());
    }
    if ep.is_null() {
        return Err(bad_ep.into());
    }
    let adapter = ia.adapter()?;
    if srq.is_none() {
        if let Some(attr) = plain(adapter, attr)? {
            let Made { pz, recv: recv_evd, request: request_evd, connect: connect_evd } = made;
            let create = EpCreate { pz, recv_evd, request_evd, connect_evd, attr };
            if let Reply::Ep(handle) = adapter.together(Ask::EpCreate(ia, create))? {
                ep.put(handle);
            }
            return Ok(());
        }
    }
    adapter.with(|open| {
        let nic = open.nic();
        let default = nic.ep_attr_default();
        let sizes = if srq.is_some() { Sizes::Exact } else { Sizes::Raised };
        let mut soft = None;
        let attr = match attr.get() {
            Some(attr) => {
                soft = attr.soft_watermark().ok_or(bad_attr)?;
                Some(attr.read(&default, sizes).ok_or(bad_attr)?)
            }
            None => None,
        };
        let Made { pz, recv, request, connect } = made;
        let name = match (attr, srq) {
            (Some((ServiceType::Rc, attr)), Some(srq)) => {
                nic.ep_create_with_srq(pz, recv, request, connect, srq, &attr)?
            }
            (Some((ServiceType::Ud, _)), Some(_)) => return Err(code::NOT_SUPPORTED.into()),
            (Some((ServiceType::Ud, attr)), None) => {
                let bare = |subtype| Error::new(DatType::InvalidHandle, subtype);
                let pz = pz.ok_or(bare(DatSubtype::InvalidHandlePz))?;
                let recv = recv.ok_or(bare(DatSubtype::InvalidHandleEvdRecv))?;
                let request = request.ok_or(bare(DatSubtype::InvalidHandleEvdRequest))?;
                nic.ep_create_ud(pz, recv, request, connect, Some(&attr), QKEY)?
            }
            (attr, _) => {
                let attr = attr.map(|(_, attr)| attr);
                nic.ep_create(pz, recv, request, connect, attr.as_ref())?
            }
        };
        let handle = open.adopt(ia, name);
        if soft.is_some() {
            open.watch(Object::called(handle), name, [soft, None])?;
            open.drive();
        }
        ep.put(handle);
        Ok(())
    })
}

/// Returns the attributes of an Endpoint that is made together with those of other threads: for
/// connections, and without a watermark. `None` for any other, also with attributes that are refused.
fn plain<V: Variant>(
    adapter: &Adapter<V>,
    attr: In<DatEpAttr>,
) -> Result<Option<Option<EpAttr>>, Error> {
    let Some(attr) = attr.get() else { return Ok(Some(None)) };
    let default = adapter.ep_attr_default()?;
    let read = attr.read(&default, Sizes::Raised).filter(|_| attr.soft_watermark() == Some(None));
    Ok(read.filter(|(kind, _)| *kind == ServiceType::Rc).map(|(_, attr)| Some(attr)))
}

fn service(param: &EpParam) -> ServiceType {
    if param.datagrams { ServiceType::Ud } else { ServiceType::Rc }
}

pub(super) extern "C" fn query<V: Variant>(
    ep: DatHandle,
    mask: u64,
    param: Out<DatEpParam>,
) -> Ret {
    call("dat_ep_query", || {
        let object = Object::<V>::called(ep);
        let name = object.name::<Ep>()?;
        if param.is_null() {
            return Err(code::bad_arg(3).into());
        }
        code::masked(mask, number::DAT_EP_FIELD_ALL)?;
        object.adapter()?.with(|open| {
            let current = open.nic().ep_query(name)?;
            let remote = current.remote.map_or(std::ptr::null(), |remote| {
                object.keep_peer(SockAddr::new(remote, current.remote_port))
            });
            let [soft, _] = object.watermarks();
            let around = &mut open.around(object);
            let found = DatEpParam::new(&current, service(&current), soft, remote, around);
            param.put_named(mask, &found);
            Ok(())
        })
    })
}

/// Fields that `dat_ep_modify` never changes.
const FIXED: u64 = number::DAT_EP_FIELD_IA_HANDLE
    | number::DAT_EP_FIELD_EP_STATE
    | number::DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR
    | number::DAT_EP_FIELD_LOCAL_PORT_QUAL
    | number::DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR
    | number::DAT_EP_FIELD_REMOTE_PORT_QUAL
    | number::DAT_EP_FIELD_SRQ_HANDLE;

pub(super) extern "C" fn modify<V: Variant>(
    ep: DatHandle,
    mask: u64,
    param: In<DatEpParam>,
) -> Ret {
    call("dat_ep_modify", || {
        let object = Object::<V>::called(ep);
        object.name::<Ep>()?;
        if mask & FIXED != 0 {
            return Err(code::bad_arg(2).into());
        }
        code::masked(mask, number::DAT_EP_FIELD_ALL)?;
        let new = param.get().ok_or_else(|| code::bad_arg(3))?;
        let wanted = |bit, handle| {
            if mask & bit != 0 { handle } else { DatHandle::NULL }
        };
        let made = Made::of(
            object,
            [
                wanted(number::DAT_EP_FIELD_PZ_HANDLE, new.pz_handle),
                wanted(number::DAT_EP_FIELD_RECV_EVD_HANDLE, new.recv_evd_handle),
                wanted(number::DAT_EP_FIELD_REQUEST_EVD_HANDLE, new.request_evd_handle),
                wanted(number::DAT_EP_FIELD_CONNECT_EVD_HANDLE, new.connect_evd_handle),
            ],
        )?;
        object.adapter()?.drive(|open| {
            let ep = object.name::<Ep>()?;
            open.recall_ep(ep)?;
            let old = open.nic().ep_query(ep)?;
            if mask & number::DAT_EP_FIELD_COMM != 0 {
                same_comm(&new.comm, &old)?;
            }
            nothing_taken(mask, &new, &old)?;
            let [soft, hard] = object.watermarks();
            let mut marks = None;
            let attr = if mask & number::DAT_EP_FIELD_EP_ATTR_ALL == 0 {
                None
            } else {
                let attr = DatEpAttr::new(service(&old), &old.attr, soft).with(mask, &new.ep_attr);
                let bad = code::bad_arg(3);
                let default = open.nic().ep_attr_default();
                let (kind, read) = attr.read(&default, Sizes::Exact).ok_or(bad)?;
                let soft = attr.soft_watermark().ok_or(bad)?;
                if kind != service(&old) {
                    return Err(code::NOT_SUPPORTED.into());
                }
                if mask & number::DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW != 0 {
                    marks = Some([soft, u32::try_from(hard).ok()]);
                }
                Some(read)
            };
            let Made { pz, recv, request, connect } = made;
            open.recall_named(recv)?;
            open.recall_named(request)?;
            let change =
                EpModify { pz, recv_evd: recv, request_evd: request, connect_evd: connect, attr };
            open.nic().ep_modify(ep, &change)?;
            match marks {
                Some(marks) => open.watch(object, ep, marks),
                None => Ok(()),
            }
        })
    })
}

/// Accepts the communication parameters that the Endpoint has. `COMM_NOT_SUPPORTED` for others.
fn same_comm(new: &DatComm, old: &EpParam) -> Result<(), DatReturn> {
    let comm = Comm::tcp(old.local.is_ipv6());
    let protocol = new.protocol == comm.protocol || new.protocol == 0;
    if (new.domain, new.r#type) == (comm.domain, comm.kind) && protocol {
        Ok(())
    } else {
        Err(DatReturn::of(DatType::CommNotSupported))
    }
}

/// Refuses a null handle for a zone or an Event Dispatcher that the Endpoint has: it can be
/// replaced, but not removed.
fn nothing_taken(mask: u64, new: &DatEpParam, old: &EpParam) -> Result<(), DatReturn> {
    for (bit, new, has, subtype) in [
        (
            number::DAT_EP_FIELD_PZ_HANDLE,
            new.pz_handle,
            old.pz.is_some(),
            DatSubtype::InvalidHandlePz,
        ),
        (
            number::DAT_EP_FIELD_RECV_EVD_HANDLE,
            new.recv_evd_handle,
            old.recv_evd.is_some(),
            DatSubtype::InvalidHandleEvdRecv,
        ),
        (
            number::DAT_EP_FIELD_REQUEST_EVD_HANDLE,
            new.request_evd_handle,
            old.request_evd.is_some(),
            DatSubtype::InvalidHandleEvdRequest,
        ),
        (
            number::DAT_EP_FIELD_CONNECT_EVD_HANDLE,
            new.connect_evd_handle,
            old.connect_evd.is_some(),
            DatSubtype::InvalidHandleEvdConn,
        ),
    ] {
        if mask & bit != 0 && new.is_null() && has {
            return Err(code::bad_handle(subtype));
        }
    }
    Ok(())
}

impl<V: Variant> Open<V> {
    /// Sets the soft and the hard high watermark of an Endpoint, whose queues have been recalled,
    /// and stores them for queries.
    fn watch(
        &mut self,
        object: &Object<V>,
        ep: Ep,
        [soft, hard]: [Option<u32>; 2],
    ) -> Result<(), Error> {
        let now = self.nic().now();
        self.nic().ep_set_watermark(now, ep, soft, hard)?;
        let in_c = |mark: Option<u32>| mark.map_or(number::DAT_WATERMARK_INFINITE, count);
        object.set_watermarks([soft, hard].map(in_c));
        Ok(())
    }
}

/// Returns the private data of a call: the argument at `place`, with its length in the one before.
fn private_data(data: &List<u8>, size: Count, place: u16) -> Result<&[u8], DatReturn> {
    data.values(size).ok_or_else(|| code::bad_arg(place))
}

pub(super) extern "C" fn connect<V: Variant>(
    ep: DatHandle,
    remote: SockAddrPtr,
    conn_qual: u64,
    timeout: Timeout,
    size: Count,
    data: List<u8>,
    quality: u32,
    flags: u32,
) -> Ret {
    call("dat_ep_connect", || {
        let object = Object::<V>::called(ep);
        object.name::<Ep>()?;
        let remote = address(remote)?;
        let port = port(conn_qual);
        let data = private_data(&data, size, 6)?;
        let quality = qos(quality).ok_or_else(|| code::bad_arg(7))?;
        let flag = match flags {
            0 => ConnectFlag::Default,
            1 | 2 => ConnectFlag::Multipath,
            _ => return Err(code::bad_arg(8).into()),
        };
        object.adapter()?.drive(|open| {
            let ep = object.name()?;
            let (nic, timeout) = (open.nic(), duration(timeout));
            let now = nic.now();
            nic.ep_connect_flag(now, ep, remote, port, timeout, data, quality, flag)
        })
    })
}

fn address(remote: SockAddrPtr) -> Result<IpAddr, DatReturn> {
    let malformed = DatReturn::new(DatType::InvalidAddress, DatSubtype::AddressMalformed);
    remote.get().map(|remote| remote.ip()).ok_or(malformed)
}

pub(super) extern "C" fn dup_connect<V: Variant>(
    ep: DatHandle,
    dup: DatHandle,
    timeout: Timeout,
    size: Count,
    data: List<u8>,
    quality: u32,
) -> Ret {
    call("dat_ep_dup_connect", || {
        let object = Object::<V>::called(ep);
        object.name::<Ep>()?;
        let dup = object.sibling::<Ep>(dup)?;
        let data = private_data(&data, size, 5)?;
        let quality = qos(quality).ok_or_else(|| code::bad_arg(6))?;
        object.adapter()?.drive(|open| {
            let ep = object.name()?;
            let (nic, timeout) = (open.nic(), duration(timeout));
            let now = nic.now();
            nic.ep_dup_connect(now, ep, dup, timeout, data, quality)
        })
    })
}

pub(super) extern "C" fn common_connect<V: Variant>(
    ep: DatHandle,
    remote: SockAddrPtr,
    timeout: Timeout,
    size: Count,
    data: List<u8>,
) -> Ret {
    call("dat_ep_common_connect", || {
        let object = Object::<V>::called(ep);
        object.name::<Ep>()?;
        let malformed = DatReturn::new(DatType::InvalidAddress, DatSubtype::AddressMalformed);
        let remote = remote.get().ok_or(malformed)?;
        let data = private_data(&data, size, 5)?;
        object.adapter()?.drive(|open| {
            let ep = object.name()?;
            let (nic, timeout) = (open.nic(), duration(timeout));
            let now = nic.now();
            nic.ep_common_connect(now, ep, remote, timeout, data)
        })
    })
}

pub(super) extern "C" fn disconnect<V: Variant>(ep: DatHandle, flags: u32) -> Ret {
    call("dat_ep_disconnect", || {
        let object = Object::<V>::called(ep);
        object.name::<Ep>()?;
        let flag = match flags {
            0 => CloseFlag::Abrupt,
            1 => CloseFlag::Graceful,
            _ => return Err(code::bad_arg(2).into()),
        };
        object.adapter()?.drive(|open| {
            let ep = object.name::<Ep>()?;
            if flag == CloseFlag::Graceful {
                // Draining needs its poster and reapers in the `Ia`.
                open.recall_ep(ep)?;
            }
            open.nic().ep_disconnect(ep, flag)?;
            if open.nic().ep_query(ep)?.state == EpState::DisconnectPending {
                open.drains(ep);
            }
            Ok(())
        })
    })
}

pub(super) extern "C" fn reset<V: Variant>(ep: DatHandle) -> Ret {
    call("dat_ep_reset", || {
        let object = Object::<V>::called(ep);
        object.adapter()?.drive(|open| {
            let ep = object.name()?;
            open.recall_ep(ep)?;
            open.nic().ep_reset(ep)
        })
    })
}

pub(super) extern "C" fn free<V: Variant>(ep: DatHandle) -> Ret {
    call("dat_ep_free", || {
        let object = Object::<V>::called(ep);
        object.adapter()?.together(Ask::EpFree(object)).map(drop)
    })
}

pub(super) extern "C" fn get_status<V: Variant>(
    ep: DatHandle,
    state: Out<u32>,
    recv_idle: Out<Boolean>,
    request_idle: Out<Boolean>,
) -> Ret {
    call("dat_ep_get_status", || {
        let object = Object::<V>::called(ep);
        object.adapter()?.with(|open| {
            let ep = object.name()?;
            let mut status = open.nic().ep_get_status(ep)?;
            if !(status.recv_idle && status.request_idle) {
                // Completions that were not dequeued are visible only after the recall.
                open.recall_ep(ep)?;
                status = open.nic().ep_get_status(ep)?;
            }
            state.put(status.state as u32);
            recv_idle.put(status.recv_idle.into());
            request_idle.put(status.request_idle.into());
            Ok(())
        })
    })
}

pub(super) extern "C" fn recv_query<V: Variant>(
    ep: DatHandle,
    buffers: Out<Count>,
    span: Out<Count>,
) -> Ret {
    call("dat_ep_recv_query", || {
        let object = Object::<V>::called(ep);
        object.adapter()?.with(|open| {
            let ep = object.name()?;
            open.recall_ep(ep)?;
            let found = open.nic().ep_recv_query(ep)?;
            buffers.put(found.nbufs_allocated.map_or(VALUE_UNKNOWN, count));
            span.put(found.bufs_alloc_span.map_or(VALUE_UNKNOWN, count));
            Ok(())
        })
    })
}

pub(super) extern "C" fn set_watermark<V: Variant>(ep: DatHandle, soft: Count, hard: Count) -> Ret {
    call("dat_ep_set_watermark", || {
        let object = Object::<V>::called(ep);
        object.name::<Ep>()?;
        let mark = |mark: Count, place| match mark {
            number::DAT_WATERMARK_INFINITE => Ok(None),
            _ => u32::try_from(mark).map(Some).map_err(|_| code::bad_arg(place)),
        };
        let (soft, hard) = (mark(soft, 2)?, mark(hard, 3)?);
        object.adapter()?.drive(|open| {
            let ep = object.name()?;
            open.recall_ep(ep)?;
            open.watch(object, ep, [soft, hard])
        })
    })
}
