//! The structures of `dat.h` and `udat.h`. Each field stands behind its place; names are those of
//! the headers.
//!
//! Length: all of them, so that one look compares them with the header.

use core::ffi::{c_char, c_void};

use dat_core::LmrTriplet;

use super::layout::{Fields, Places};
use super::pointer::DatHandle;
use super::sockaddr::SockAddr;
use super::{Boolean, Count};

/// `DAT_AGENT_FUNC`.
pub(crate) type AgentFunc = extern "C" fn(instance: *mut c_void, evd: DatHandle);

layouts! {
    /// What an attribute is called, and its value as text.
    DatNamedAttr = "DAT_NAMED_ATTR" [16] {
        0 name: *const c_char,
        8 value: *const c_char,
    }

    /// Whom a CNO tells.
    DatOsWaitProxyAgent = "DAT_OS_WAIT_PROXY_AGENT" [16] {
        0 instance_data: *mut c_void,
        8 proxy_agent_func: Option<AgentFunc>,
    }

    /// Memory that is shared, and under which name: 40 bytes.
    DatSharedMemory = "DAT_SHARED_MEMORY" [16] {
        0 virtual_address: *mut c_void,
        8 shared_memory_id: super::pointer::In<[u8; 40]>,
    }

    /// By what a Common Service Point is reached.
    DatComm = "DAT_COMM" [12] {
        0 domain: i32,
        4 r#type: i32,
        8 protocol: i32,
    }

    /// What an Endpoint is made for.
    DatEpAttr = "DAT_EP_ATTR" [88] {
        0 service_type: u32,
        4 max_message_size: u32,
        8 max_rdma_size: u32,
        12 qos: u32,
        16 recv_completion_flags: u32,
        20 request_completion_flags: u32,
        24 max_recv_dtos: Count,
        28 max_request_dtos: Count,
        32 max_recv_iov: Count,
        36 max_request_iov: Count,
        40 max_rdma_read_in: Count,
        44 max_rdma_read_out: Count,
        48 srq_soft_hw: Count,
        52 max_rdma_read_iov: Count,
        56 max_rdma_write_iov: Count,
        60 ep_transport_specific_count: Count,
        64 ep_transport_specific: *const DatNamedAttr,
        72 ep_provider_specific_count: Count,
        80 ep_provider_specific: *const DatNamedAttr,
    }

    /// What an Endpoint is.
    DatEpParam = "DAT_EP_PARAM" [184] {
        0 ia_handle: DatHandle,
        8 ep_state: u32,
        12 comm: DatComm,
        24 local_ia_address_ptr: *const SockAddr,
        32 local_port_qual: u64,
        40 remote_ia_address_ptr: *const SockAddr,
        48 remote_port_qual: u64,
        56 pz_handle: DatHandle,
        64 recv_evd_handle: DatHandle,
        72 request_evd_handle: DatHandle,
        80 connect_evd_handle: DatHandle,
        88 srq_handle: DatHandle,
        96 ep_attr: DatEpAttr,
    }

    /// What a Shared Receive Queue is made for.
    DatSrqAttr = "DAT_SRQ_ATTR" [12] {
        0 max_recv_dtos: Count,
        4 max_recv_iov: Count,
        8 low_watermark: Count,
    }

    /// What a Shared Receive Queue is.
    DatSrqParam = "DAT_SRQ_PARAM" [48] {
        0 ia_handle: DatHandle,
        8 srq_state: u32,
        16 pz_handle: DatHandle,
        24 max_recv_dtos: Count,
        28 max_recv_iov: Count,
        32 low_watermark: Count,
        36 available_dto_count: Count,
        40 outstanding_dto_count: Count,
    }

    /// What a Protection Zone is.
    DatPzParam = "DAT_PZ_PARAM" [8] {
        0 ia_handle: DatHandle,
    }

    /// What a Public Service Point is.
    DatPspParam = "DAT_PSP_PARAM" [32] {
        0 ia_handle: DatHandle,
        8 conn_qual: u64,
        16 evd_handle: DatHandle,
        24 psp_flags: u32,
    }

    /// What a Reserved Service Point is.
    DatRspParam = "DAT_RSP_PARAM" [32] {
        0 ia_handle: DatHandle,
        8 conn_qual: u64,
        16 evd_handle: DatHandle,
        24 ep_handle: DatHandle,
    }

    /// What a Common Service Point is.
    DatCspParam = "DAT_CSP_PARAM" [32] {
        0 ia_handle: DatHandle,
        8 comm: *const DatComm,
        16 address_ptr: *const SockAddr,
        24 evd_handle: DatHandle,
    }

    /// What a Connection Request is.
    DatCrParam = "DAT_CR_PARAM" [40] {
        0 remote_ia_address_ptr: *const SockAddr,
        8 remote_port_qual: u64,
        16 private_data_size: Count,
        24 private_data: *const u8,
        32 local_ep_handle: DatHandle,
    }

    /// What an Event Dispatcher is.
    DatEvdParam = "DAT_EVD_PARAM" [32] {
        0 ia_handle: DatHandle,
        8 evd_qlen: Count,
        12 evd_state: u32,
        16 cno_handle: DatHandle,
        24 evd_flags: u32,
    }

    /// What a CNO is. The proxy is an agent, or a descriptor in the first half of the first word.
    DatCnoParam = "DAT_CNO_PARAM" [32] {
        0 ia_handle: DatHandle,
        8 proxy_type: u32,
        16 proxy: DatOsWaitProxyAgent,
    }

    /// What an LMR is.
    DatLmrParam = "DAT_LMR_PARAM" [80] {
        0 ia_handle: DatHandle,
        8 mem_type: u32,
        16 region_desc: DatSharedMemory,
        32 length: u64,
        40 pz_handle: DatHandle,
        48 mem_priv: u32,
        52 va_type: u32,
        56 lmr_context: u32,
        60 rmr_context: u32,
        64 registered_size: u64,
        72 registered_address: u64,
    }

    /// What an RMR is.
    DatRmrParam = "DAT_RMR_PARAM" [48] {
        0 ia_handle: DatHandle,
        8 pz_handle: DatHandle,
        16 lmr_triplet: LmrTriplet,
        32 mem_priv: u32,
        36 rmr_context: u32,
        40 rmr_scope: u32,
        44 va_type: u32,
    }

    /// What a provider is found by.
    DatProviderInfo = "DAT_PROVIDER_INFO" [268] {
        0 ia_name: [c_char; 256],
        256 dapl_version_major: u32,
        260 dapl_version_minor: u32,
        264 is_thread_safe: Boolean,
    }

    /// What an adapter can do.
    DatIaAttr = "DAT_IA_ATTR" [688] {
        0 adapter_name: [c_char; 256],
        256 vendor_name: [c_char; 256],
        512 hardware_version_major: u32,
        516 hardware_version_minor: u32,
        520 firmware_version_major: u32,
        524 firmware_version_minor: u32,
        528 ia_address_ptr: *const SockAddr,
        536 max_eps: Count,
        540 max_dto_per_ep: Count,
        544 max_rdma_read_per_ep_in: Count,
        548 max_rdma_read_per_ep_out: Count,
        552 max_evds: Count,
        556 max_evd_qlen: Count,
        560 max_iov_segments_per_dto: Count,
        564 max_lmrs: Count,
        568 max_lmr_block_size: u32,
        576 max_lmr_virtual_address: u64,
        584 max_pzs: Count,
        588 max_message_size: u32,
        592 max_rdma_size: u32,
        596 max_rmrs: Count,
        600 max_rmr_target_address: u64,
        608 max_srqs: Count,
        612 max_ep_per_srq: Count,
        616 max_recv_per_srq: Count,
        620 max_iov_segments_per_rdma_read: Count,
        624 max_iov_segments_per_rdma_write: Count,
        628 max_rdma_read_in: Count,
        632 max_rdma_read_out: Count,
        636 max_rdma_read_per_ep_in_guaranteed: Boolean,
        640 max_rdma_read_per_ep_out_guaranteed: Boolean,
        644 zb_supported: Boolean,
        648 extension_supported: u32,
        652 extension_version: Count,
        656 num_transport_attr: Count,
        664 transport_attr: *const DatNamedAttr,
        672 num_vendor_attr: Count,
        680 vendor_attr: *const DatNamedAttr,
    }

    /// What a provider can do.
    DatProviderAttr = "DAT_PROVIDER_ATTR" [520] {
        0 provider_name: [c_char; 256],
        256 provider_version_major: u32,
        260 provider_version_minor: u32,
        264 dapl_version_major: u32,
        268 dapl_version_minor: u32,
        272 lmr_mem_types_supported: u32,
        276 iov_ownership_on_return: u32,
        280 dat_qos_supported: u32,
        284 completion_flags_supported: u32,
        288 is_thread_safe: Boolean,
        292 max_private_data_size: Count,
        296 supports_multipath: Boolean,
        300 ep_creator: u32,
        304 pz_support: u32,
        308 optimal_buffer_alignment: u32,
        312 evd_stream_merging_supported: [[Boolean; 6]; 6],
        456 srq_supported: Boolean,
        460 srq_watermarks_supported: Count,
        464 srq_ep_pz_difference_supported: Boolean,
        468 srq_info_supported: Count,
        472 ep_recv_info_supported: Count,
        476 lmr_sync_req: Boolean,
        480 dto_async_return_guaranteed: Boolean,
        484 rdma_write_for_rdma_read_req: Boolean,
        488 rdma_read_lmr_rmr_context_exposure: Boolean,
        492 rmr_scope_supported: u32,
        496 is_signal_safe: Boolean,
        500 ha_supported: Boolean,
        504 ha_loadbalancing: u32,
        508 num_provider_specific_attr: Count,
        512 provider_specific_attr: *const DatNamedAttr,
    }

    /// Where a datagram goes.
    DatIbAddrHandle = "DAT_IB_ADDR_HANDLE" [40] {
        0 ah: *mut c_void,
        8 qpn: u32,
        12 ia_addr: SockAddr,
    }
}

macro_rules! fields {
    ($($name:ident)*) => {
        $(impl Fields for $name {})*
    };
}

fields! {
    DatCrParam DatCspParam DatEvdParam DatLmrParam DatPspParam DatPzParam DatRmrParam DatRspParam DatSrqParam
}

impl Fields for DatIaAttr {
    const LISTS: u64 = 0x28_0000_0000;
}

impl Fields for DatProviderAttr {
    const LISTS: u64 = 0x4000_0000;
}

impl Fields for DatEpParam {
    const LISTS: u64 = 0x5000_0000;

    /// Bits after those of its own fields name those of its attributes, which are the last field.
    fn named(bit: usize) -> Option<(usize, usize)> {
        const ATTR: usize = core::mem::offset_of!(DatEpParam, ep_attr);
        match Self::PLACES.get(bit).copied() {
            Some(place) if place.0 != ATTR => Some(place),
            _ => {
                let inner = bit.checked_sub(Self::PLACES.len() - 1)?;
                let (at, len) = DatEpAttr::PLACES.get(inner).copied()?;
                Some((ATTR + at, len))
            }
        }
    }
}

/// `DAT_REGION_DESCRIPTION` is a union: an address or a handle in the first word, or both words of
/// a shared memory. By value it travels as this does.
pub(crate) type DatRegionDescription = DatSharedMemory;

impl DatIbAddrHandle {
    /// Where there is none.
    pub(crate) const NONE: Self =
        Self { ah: core::ptr::null_mut(), qpn: 0, ia_addr: SockAddr::NONE };
}
