//! Converts parameters of objects to C. `Out::put_named` stores those that the mask of a query
//! selects.

use core::ffi::c_int;

use dat_core::{
    AnyHandle, CnoParam, Ep, EpParam, Evd, EvdParam, LmrParam, Proxy, PspParam, RmrParam, RspParam,
    SrqParam,
};

use super::attr::{ServiceType, count};
use super::event::Surroundings;
use super::pointer::DatHandle;
use super::sockaddr::SockAddr;
use super::structs::{
    DatCnoParam, DatComm, DatCrParam, DatCspParam, DatEpAttr, DatEpParam, DatEvdParam, DatLmrParam,
    DatOsWaitProxyAgent, DatPspParam, DatPzParam, DatRegionDescription, DatRmrParam, DatRspParam,
    DatSrqParam,
};
use super::{Count, VALUE_UNKNOWN, number};

/// Returns the handle of an optional object.
fn maybe<H: Into<AnyHandle>>(handle: Option<H>, around: &mut impl Surroundings) -> DatHandle {
    handle.map_or(DatHandle::NULL, |handle| around.handle(handle.into()))
}

impl DatPzParam {
    /// Of a zone.
    pub(crate) fn new(around: &mut impl Surroundings) -> Self {
        Self { ia_handle: around.handle(AnyHandle::Ia) }
    }
}

impl DatEpParam {
    /// Of an Endpoint. `remote` is where its peer's address stands, if it has one.
    pub(crate) fn new(
        param: &EpParam,
        service: ServiceType,
        soft_watermark: Count,
        remote: *const SockAddr,
        around: &mut impl Surroundings,
    ) -> Self {
        let comm = dat_core::Comm::tcp(param.local.is_ipv6());
        Self {
            ia_handle: around.handle(AnyHandle::Ia),
            ep_state: param.state as u32,
            comm: DatComm { domain: comm.domain, r#type: comm.kind, protocol: comm.protocol },
            local_ia_address_ptr: around.local_address(),
            local_port_qual: param.local_port.into(),
            remote_ia_address_ptr: remote,
            remote_port_qual: param.remote_port.into(),
            pz_handle: maybe(param.pz, around),
            recv_evd_handle: maybe(param.recv_evd, around),
            request_evd_handle: maybe(param.request_evd, around),
            connect_evd_handle: maybe(param.connect_evd, around),
            srq_handle: maybe(param.srq, around),
            ep_attr: DatEpAttr::new(service, &param.attr, soft_watermark),
        }
    }
}

impl DatEvdParam {
    /// Of an Event Dispatcher. `more` are flags that it was made with and that `dat_core` has no
    /// streams for.
    pub(crate) fn new(param: &EvdParam, more: u32, around: &mut impl Surroundings) -> Self {
        Self {
            ia_handle: around.handle(AnyHandle::Ia),
            evd_qlen: count(param.qlen),
            evd_state: param.state.bits(),
            cno_handle: maybe(param.cno, around),
            evd_flags: param.flags.bits() | more,
        }
    }
}

impl DatCnoParam {
    /// Of a CNO, with the agent or the descriptor that it has, if it has one.
    pub(crate) fn new(
        param: &CnoParam,
        agent: Option<DatOsWaitProxyAgent>,
        fd: Option<c_int>,
        around: &mut impl Surroundings,
    ) -> Self {
        let none =
            DatOsWaitProxyAgent { instance_data: core::ptr::null_mut(), proxy_agent_func: None };
        let (proxy_type, proxy) = match (param.proxy, agent, fd) {
            (Proxy::Agent, Some(agent), _) => (number::DAT_PROXY_TYPE_AGENT, agent),
            (Proxy::Fd, _, Some(fd)) => {
                // The first member of a union that has the instance's address as another; it is a
                // small number.
                let fd = usize::try_from(fd).unwrap_or(usize::MAX);
                let instance_data = core::ptr::without_provenance_mut(fd);
                (number::DAT_PROXY_TYPE_FD, DatOsWaitProxyAgent { instance_data, ..none })
            }
            (Proxy::None | Proxy::Agent | Proxy::Fd, _, _) => (number::DAT_PROXY_TYPE_NONE, none),
        };
        Self { ia_handle: around.handle(AnyHandle::Ia), proxy_type, proxy }
    }
}

impl DatSrqParam {
    /// Of a Shared Receive Queue.
    pub(crate) fn new(param: &SrqParam, around: &mut impl Surroundings) -> Self {
        Self {
            ia_handle: around.handle(AnyHandle::Ia),
            srq_state: param.state as u32,
            pz_handle: around.handle(param.pz.into()),
            max_recv_dtos: param.attr.max_recv_dtos.into(),
            max_recv_iov: param.attr.max_recv_iov.into(),
            low_watermark: param.attr.low_watermark.into(),
            available_dto_count: param.available.map_or(VALUE_UNKNOWN, count),
            outstanding_dto_count: count(param.outstanding),
        }
    }
}

impl DatLmrParam {
    /// Of an LMR, with the type and the description that the consumer gave.
    pub(crate) fn new(
        param: &LmrParam,
        (mem_type, region): (u32, DatRegionDescription),
        around: &mut impl Surroundings,
    ) -> Self {
        Self {
            ia_handle: around.handle(AnyHandle::Ia),
            mem_type,
            region_desc: region,
            length: param.region.len,
            pz_handle: around.handle(param.pz.into()),
            mem_priv: param.privileges.bits(),
            va_type: param.va_type as u32,
            lmr_context: param.lmr_context,
            rmr_context: param.rmr_context,
            registered_size: param.region.len,
            registered_address: param.base(),
        }
    }
}

impl DatRmrParam {
    /// Of an RMR.
    pub(crate) fn new(param: &RmrParam, around: &mut impl Surroundings) -> Self {
        Self {
            ia_handle: around.handle(AnyHandle::Ia),
            pz_handle: around.handle(param.pz.into()),
            lmr_triplet: param.bound.unwrap_or_default(),
            mem_priv: param.privileges.bits(),
            rmr_context: param.rmr_context,
            rmr_scope: param.scope as u32,
            va_type: param.va_type as u32,
        }
    }
}

impl DatPspParam {
    /// Of a Public Service Point.
    pub(crate) fn new(param: &PspParam, around: &mut impl Surroundings) -> Self {
        Self {
            ia_handle: around.handle(AnyHandle::Ia),
            conn_qual: around.qualifier(param.conn_qual),
            evd_handle: around.handle(param.evd.into()),
            psp_flags: param.flag as u32,
        }
    }
}

impl DatRspParam {
    /// Of a Reserved Service Point.
    pub(crate) fn new(param: &RspParam, around: &mut impl Surroundings) -> Self {
        Self {
            ia_handle: around.handle(AnyHandle::Ia),
            conn_qual: around.qualifier(param.conn_qual),
            evd_handle: around.handle(param.evd.into()),
            ep_handle: around.handle(param.ep.into()),
        }
    }
}

impl DatCrParam {
    /// Of a request, whose peer's address and private data stand where they last until it is
    /// answered.
    pub(crate) fn new(
        remote: *const SockAddr,
        remote_port: u16,
        (private_data, size): (*const u8, usize),
        local_ep: Option<Ep>,
        around: &mut impl Surroundings,
    ) -> Self {
        Self {
            remote_ia_address_ptr: remote,
            remote_port_qual: remote_port.into(),
            private_data_size: count(size),
            private_data,
            local_ep_handle: maybe(local_ep, around),
        }
    }
}

impl DatCspParam {
    /// Of a Common Service Point; what it was made with stands where it lasts as long as that.
    pub(crate) fn new(
        comm: *const DatComm,
        address: *const SockAddr,
        evd: Evd,
        around: &mut impl Surroundings,
    ) -> Self {
        Self {
            ia_handle: around.handle(AnyHandle::Ia),
            comm,
            address_ptr: address,
            evd_handle: around.handle(evd.into()),
        }
    }
}
