//! dat_ep_*(3), but for posting.

use std::net::IpAddr;

use dat_core::{
    CloseFlag, ConnectFlag, DatReturn, DatSubtype, DatType, Ep, EpModify, EpState, Error, Evd, Pz,
    Srq,
};

use super::{call, ia_called, port};
use crate::abi::attr::{ServiceType, count, qos};
use crate::abi::number;
use crate::abi::sockaddr::{SockAddr, SockAddrPtr};
use crate::abi::structs::{DatEpAttr, DatEpParam};
use crate::abi::{Boolean, Count, DatHandle, In, List, Out, Ret, Timeout, VALUE_UNKNOWN, code};
use crate::adapter::Open;
use crate::object::Object;
use crate::sleep::duration;
use crate::variant::Variant;

/// The Q_Key of Endpoints for datagrams: that of the stock providers, whose consumers have no way to agree on another.
const QKEY: u32 = 0x1d51_1d51;

/// The other handles that an Endpoint is made of.
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
            of.sibling_or_none::<Evd>(handle)
                .map_err(|_| code::bad_handle(subtype))
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
    call("dat_ep_create_with_srq", || {
        created::<V>(ia, of, Some(srq), attr, ep)
    })
}

/// Both of them: with a Shared Receive Queue, there has to be one, and attributes as well.
fn created<V: Variant>(
    ia: DatHandle,
    of: [DatHandle; 4],
    srq: Option<DatHandle>,
    attr: In<DatEpAttr>,
    ep: Out<DatHandle>,
) -> Result<(), Error> {
    // Places of the last two arguments.
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
    ia.adapter()?.with(|open| {
        let nic = open.nic();
        let default = nic.ep_attr_default();
        let attr = attr
            .get()
            .map(|attr| attr.read(&default).ok_or(bad_attr))
            .transpose()?;
        let Made {
            pz,
            recv,
            request,
            connect,
        } = made;
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
        ep.put(open.adopt(ia, name));
        Ok(())
    })
}

fn service(param: &dat_core::EpParam) -> ServiceType {
    if param.datagrams {
        ServiceType::Ud
    } else {
        ServiceType::Rc
    }
}

pub(super) extern "C" fn query<V: Variant>(
    ep: DatHandle,
    _mask: u64,
    param: Out<DatEpParam>,
) -> Ret {
    call("dat_ep_query", || {
        let object = Object::<V>::called(ep);
        let name = object.name::<Ep>()?;
        if param.is_null() {
            return Err(code::bad_arg(3).into());
        }
        object.adapter()?.with(|open| {
            let told = open.nic().ep_query(name)?;
            let remote = told.remote.map_or(std::ptr::null(), |remote| {
                object.keep_peer(SockAddr::new(remote, told.remote_port))
            });
            param.put(DatEpParam::new(
                &told,
                service(&told),
                remote,
                &mut open.around(object),
            ));
            Ok(())
        })
    })
}

/// What `dat_ep_modify` never changes.
const FIXED: u64 = number::DAT_EP_FIELD_IA_HANDLE
    | number::DAT_EP_FIELD_EP_STATE
    | number::DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR
    | number::DAT_EP_FIELD_LOCAL_PORT_QUAL
    | number::DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR
    | number::DAT_EP_FIELD_REMOTE_PORT_QUAL;

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
        let new = param.get().ok_or_else(|| code::bad_arg(3))?;
        let wanted = |bit, handle| {
            if mask & bit != 0 {
                handle
            } else {
                DatHandle::NULL
            }
        };
        let made = Made::of(
            object,
            [
                wanted(number::DAT_EP_FIELD_PZ_HANDLE, new.pz_handle),
                wanted(number::DAT_EP_FIELD_RECV_EVD_HANDLE, new.recv_evd_handle),
                wanted(
                    number::DAT_EP_FIELD_REQUEST_EVD_HANDLE,
                    new.request_evd_handle,
                ),
                wanted(
                    number::DAT_EP_FIELD_CONNECT_EVD_HANDLE,
                    new.connect_evd_handle,
                ),
            ],
        )?;
        object.adapter()?.drive(|open| {
            let ep = object.name::<Ep>()?;
            open.home_ep(ep)?;
            let old = open.nic().ep_query(ep)?;
            let attr = if mask & number::DAT_EP_FIELD_EP_ATTR_ALL == 0 {
                None
            } else {
                let attr = DatEpAttr::new(service(&old), &old.attr).with(mask, &new.ep_attr);
                let default = open.nic().ep_attr_default();
                let (kind, attr) = attr.read(&default).ok_or_else(|| code::bad_arg(3))?;
                if kind != service(&old) {
                    return Err(code::NOT_SUPPORTED.into());
                }
                Some(attr)
            };
            let Made {
                pz,
                recv,
                request,
                connect,
            } = made;
            open.home_named(recv)?;
            open.home_named(request)?;
            let change = EpModify {
                pz,
                recv_evd: recv,
                request_evd: request,
                connect_evd: connect,
                attr,
            };
            open.nic().ep_modify(ep, &change)
        })
    })
}

/// The private data of a call, which is the argument at `place` and its length the one before.
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
            nic.ep_connect_flag(
                now,
                ep,
                remote,
                port(conn_qual),
                timeout,
                data,
                quality,
                flag,
            )
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
                // What drains is followed with its halves at home.
                open.home_ep(ep)?;
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
            open.home_ep(ep)?;
            open.nic().ep_reset(ep)
        })
    })
}

pub(super) extern "C" fn free<V: Variant>(ep: DatHandle) -> Ret {
    call("dat_ep_free", || {
        let object = Object::<V>::called(ep);
        object.adapter()?.drive(|open| {
            let ep = object.name()?;
            open.free_ep(object, ep)
        })
    })
}

impl<V: Variant> Open<V> {
    /// Frees an Endpoint.
    pub(crate) fn free_ep(&mut self, object: &'static Object<V>, ep: Ep) -> Result<(), Error> {
        self.home_ep(ep)?;
        self.nic().ep_free(ep)?;
        self.addresses.forget(ep);
        self.disown(object, ep);
        Ok(())
    }
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
            let status = open.nic().ep_get_status(object.name()?)?;
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
            open.home_ep(ep)?;
            let told = open.nic().ep_recv_query(ep)?;
            buffers.put(told.nbufs_allocated.map_or(VALUE_UNKNOWN, count));
            span.put(told.bufs_alloc_span.map_or(VALUE_UNKNOWN, count));
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
            _ => u32::try_from(mark)
                .map(Some)
                .map_err(|_| code::bad_arg(place)),
        };
        let (soft, hard) = (mark(soft, 2)?, mark(hard, 3)?);
        object.adapter()?.drive(|open| {
            let ep = object.name()?;
            open.home_ep(ep)?;
            let now = open.nic().now();
            open.nic().ep_set_watermark(now, ep, soft, hard)
        })
    })
}
