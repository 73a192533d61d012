//! Attributes of adapters, providers, Endpoints and Shared Receive Queues, from and to `dat_core`.

use core::ffi::{CStr, c_char};

use dat_core::{CompletionFlags, EpAttr, IaAttr, ProviderAttr, Qos, SrqAttr};

use super::named::Named;
use super::sockaddr::SockAddr;
use super::structs::{DatEpAttr, DatIaAttr, DatProviderAttr, DatSrqAttr};
use super::{Boolean, Count, number};

/// Converts a number to a `DAT_COUNT`, at most its maximum.
pub(crate) fn count(number: impl TryInto<Count>) -> Count {
    number.try_into().unwrap_or(Count::MAX)
}

/// Converts a length to a `DAT_SEG_LENGTH`, at most its maximum.
fn length(bytes: u64) -> u32 {
    bytes.try_into().unwrap_or(u32::MAX)
}

/// Converts a text to an array of fixed length, truncated if too long.
pub(crate) fn name(text: &str) -> [c_char; 256] {
    let mut place = [0; 256];
    // The last byte stays 0.
    for (to, from) in place.iter_mut().take(255).zip(text.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    place
}

/// The service that an Endpoint is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceType {
    /// Reliable connections.
    Rc,
    /// Datagrams.
    Ud,
}

/// How to treat the maximal RDMA size that a consumer states.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sizes {
    /// Use it, as dat_ep_create_with_srq(3) requires.
    Exact,
    /// Raise it to the adapter's: stock dtest states 64 KiB, but writes 4 MiB at a time.
    Raised,
}

/// Converts a quality of service; `None` for an unknown number.
pub(crate) fn qos(number: u32) -> Option<Qos> {
    Some(match number {
        0 => Qos::BestEffort,
        1 => Qos::HighThroughput,
        2 => Qos::LowLatency,
        4 => Qos::Economy,
        8 => Qos::Premium,
        _ => return None,
    })
}

impl DatEpAttr {
    /// Returns what `dat_core` judges of attributes that may be anything; `None` for what it has no
    /// value for, and for attributes of the transport or the provider, of which there are none.
    ///
    /// A size of 0 becomes that of `default`, and segments of RDMA that are 0 become those of a
    /// send: a query shows them.
    pub(crate) fn read(&self, default: &EpAttr, sizes: Sizes) -> Option<(ServiceType, EpAttr)> {
        if self.ep_transport_specific_count != 0 || self.ep_provider_specific_count != 0 {
            return None;
        }
        let size = |stated: u32, default: u32| if stated == 0 { default } else { stated };
        let least = match sizes {
            Sizes::Exact => 0,
            Sizes::Raised => default.max_rdma_size,
        };
        let service = match self.service_type {
            number::DAT_SERVICE_TYPE_RC => ServiceType::Rc,
            number::DAT_IB_SERVICE_TYPE_UD => ServiceType::Ud,
            _ => return None,
        };
        // Consumers of 1.x know one number for all requests.
        let segments = |most: Count| -> Option<u8> {
            let most = if most == 0 { self.max_request_iov } else { most };
            most.try_into().ok()
        };
        let attr = EpAttr {
            max_message_size: match service {
                ServiceType::Rc => size(self.max_message_size, default.max_message_size),
                // dat_core knows the MTU, and takes 0 as it.
                ServiceType::Ud => self.max_message_size,
            },
            max_rdma_size: size(self.max_rdma_size, default.max_rdma_size).max(least),
            qos: qos(self.qos)?,
            recv_completion_flags: CompletionFlags::from_bits(self.recv_completion_flags)?,
            request_completion_flags: CompletionFlags::from_bits(self.request_completion_flags)?,
            max_recv_dtos: self.max_recv_dtos.try_into().ok()?,
            max_request_dtos: self.max_request_dtos.try_into().ok()?,
            max_recv_iov: self.max_recv_iov.try_into().ok()?,
            max_request_iov: self.max_request_iov.try_into().ok()?,
            max_rdma_read_in: self.max_rdma_read_in.try_into().ok()?,
            max_rdma_read_out: self.max_rdma_read_out.try_into().ok()?,
            max_rdma_read_iov: segments(self.max_rdma_read_iov)?,
            max_rdma_write_iov: segments(self.max_rdma_write_iov)?,
        };
        Some((service, attr))
    }

    /// Returns the soft high watermark, `None` inside for none: consumers clear the attributes that
    /// they do not use, so 0 is none as well as `DAT_HW_DEFAULT`. `None` for a number that is
    /// no watermark.
    pub(crate) fn soft_watermark(&self) -> Option<Option<u32>> {
        match self.srq_soft_hw {
            0 | number::DAT_WATERMARK_INFINITE => Some(None),
            mark => u32::try_from(mark).ok().map(Some),
        }
    }

    /// The attributes as C has them.
    pub(crate) fn new(service: ServiceType, attr: &EpAttr, soft_watermark: Count) -> Self {
        Self {
            service_type: match service {
                ServiceType::Rc => number::DAT_SERVICE_TYPE_RC,
                ServiceType::Ud => number::DAT_IB_SERVICE_TYPE_UD,
            },
            max_message_size: attr.max_message_size,
            max_rdma_size: attr.max_rdma_size,
            qos: attr.qos as u32,
            recv_completion_flags: attr.recv_completion_flags.bits(),
            request_completion_flags: attr.request_completion_flags.bits(),
            max_recv_dtos: attr.max_recv_dtos.into(),
            max_request_dtos: attr.max_request_dtos.into(),
            max_recv_iov: attr.max_recv_iov.into(),
            max_request_iov: attr.max_request_iov.into(),
            max_rdma_read_in: attr.max_rdma_read_in.into(),
            max_rdma_read_out: attr.max_rdma_read_out.into(),
            srq_soft_hw: soft_watermark,
            max_rdma_read_iov: attr.max_rdma_read_iov.into(),
            max_rdma_write_iov: attr.max_rdma_write_iov.into(),
            ep_transport_specific_count: 0,
            ep_transport_specific: core::ptr::null(),
            ep_provider_specific_count: 0,
            ep_provider_specific: core::ptr::null(),
        }
    }

    /// Those of `new` that the mask of `dat_ep_modify` names, the others as they are here.
    pub(crate) fn with(&self, mask: u64, new: &Self) -> Self {
        let mut attr = *self;
        macro_rules! take {
            ($($bit:ident $field:ident,)*) => {
                $(if mask & number::$bit != 0 {
                    attr.$field = new.$field;
                })*
            };
        }
        take! {
            DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE service_type,
            DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE max_message_size,
            DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE max_rdma_size,
            DAT_EP_FIELD_EP_ATTR_QOS qos,
            DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS recv_completion_flags,
            DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS request_completion_flags,
            DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS max_recv_dtos,
            DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS max_request_dtos,
            DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV max_recv_iov,
            DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV max_request_iov,
            DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN max_rdma_read_in,
            DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT max_rdma_read_out,
            DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW srq_soft_hw,
            DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV max_rdma_read_iov,
            DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV max_rdma_write_iov,
            DAT_EP_FIELD_EP_ATTR_NUM_TRANSPORT_ATTR ep_transport_specific_count,
            DAT_EP_FIELD_EP_ATTR_NUM_PROVIDER_ATTR ep_provider_specific_count,
        }
        attr
    }
}

impl DatSrqAttr {
    /// Converts attributes for `dat_core`; `None` for values that it has no type for.
    pub(crate) fn read(&self) -> Option<SrqAttr> {
        Some(SrqAttr {
            max_recv_dtos: self.max_recv_dtos.try_into().ok()?,
            max_recv_iov: self.max_recv_iov.try_into().ok()?,
            low_watermark: self.low_watermark.try_into().ok()?,
        })
    }
}

impl DatIaAttr {
    /// The attributes as C has them; address and named attributes are in memory of the adapter's.
    /// The adapter's name is the one that it was opened by, as dat_ia_query(3) has it.
    pub(crate) fn new(
        opened: &CStr,
        attr: &IaAttr,
        address: *const SockAddr,
        transport: &Named,
        vendor: &Named,
    ) -> Self {
        Self {
            adapter_name: name(&opened.to_string_lossy()),
            vendor_name: name(attr.vendor_name),
            hardware_version_major: attr.hardware_version.0,
            hardware_version_minor: attr.hardware_version.1,
            firmware_version_major: attr.firmware_version.0,
            firmware_version_minor: attr.firmware_version.1,
            ia_address_ptr: address,
            max_eps: count(attr.max_eps),
            max_dto_per_ep: count(attr.max_dto_per_ep),
            max_rdma_read_per_ep_in: count(attr.max_rdma_read_per_ep_in),
            max_rdma_read_per_ep_out: count(attr.max_rdma_read_per_ep_out),
            max_evds: count(attr.max_evds),
            max_evd_qlen: count(attr.max_evd_qlen),
            max_iov_segments_per_dto: count(attr.max_iov_segments_per_dto),
            max_lmrs: count(attr.max_lmrs),
            max_lmr_block_size: length(attr.max_lmr_block_size),
            max_lmr_virtual_address: attr.max_lmr_virtual_address,
            max_pzs: count(attr.max_pzs),
            max_message_size: length(attr.max_message_size),
            max_rdma_size: length(attr.max_rdma_size),
            max_rmrs: count(attr.max_rmrs),
            max_rmr_target_address: attr.max_rmr_target_address,
            max_srqs: count(attr.max_srqs),
            max_ep_per_srq: count(attr.max_ep_per_srq),
            max_recv_per_srq: count(attr.max_recv_per_srq),
            max_iov_segments_per_rdma_read: count(attr.max_iov_segments_per_rdma_read),
            max_iov_segments_per_rdma_write: count(attr.max_iov_segments_per_rdma_write),
            max_rdma_read_in: count(attr.max_rdma_read_in),
            max_rdma_read_out: count(attr.max_rdma_read_out),
            max_rdma_read_per_ep_in_guaranteed: attr.max_rdma_read_per_ep_in_guaranteed.into(),
            max_rdma_read_per_ep_out_guaranteed: attr.max_rdma_read_per_ep_out_guaranteed.into(),
            zb_supported: attr.zb_supported.into(),
            extension_supported: attr.extension_supported,
            extension_version: count(attr.extension_version),
            num_transport_attr: transport.count(),
            transport_attr: transport.list(),
            num_vendor_attr: vendor.count(),
            vendor_attr: vendor.list(),
        }
    }
}

/// `DAT_MEM_TYPE_LMR` is of every memory that LMRs can be of; the sum of the three is what `udat.h`
/// has numbers for.
const MEM_TYPES: u32 =
    number::DAT_MEM_TYPE_VIRTUAL | number::DAT_MEM_TYPE_LMR | number::DAT_MEM_TYPE_SHARED_VIRTUAL;

impl DatProviderAttr {
    /// The attributes as C has them. `thread_safe` is what the configuration promised of this
    /// provider.
    pub(crate) fn new(attr: &ProviderAttr, thread_safe: bool, specific: &Named) -> Self {
        Self {
            provider_name: name(attr.provider_name),
            provider_version_major: attr.provider_version.0,
            provider_version_minor: attr.provider_version.1,
            dapl_version_major: attr.dapl_version.0,
            dapl_version_minor: attr.dapl_version.1,
            lmr_mem_types_supported: MEM_TYPES,
            iov_ownership_on_return: attr.iov_ownership,
            dat_qos_supported: attr.dat_qos_supported,
            completion_flags_supported: attr.completion_flags_supported.bits(),
            is_thread_safe: thread_safe.into(),
            max_private_data_size: count(attr.max_private_data_size),
            supports_multipath: attr.supports_multipath.into(),
            ep_creator: attr.ep_creator,
            pz_support: attr.pz_support,
            optimal_buffer_alignment: attr.optimal_buffer_alignment,
            evd_stream_merging_supported: attr
                .evd_stream_merging_supported
                .map(|row| row.map(Boolean::from)),
            srq_supported: attr.srq_supported.into(),
            srq_watermarks_supported: count(attr.srq_watermarks_supported),
            srq_ep_pz_difference_supported: attr.srq_ep_pz_difference_supported.into(),
            srq_info_supported: count(attr.srq_info_supported),
            ep_recv_info_supported: count(attr.ep_recv_info_supported),
            lmr_sync_req: attr.lmr_sync_req.into(),
            dto_async_return_guaranteed: attr.dto_async_return_guaranteed.into(),
            rdma_write_for_rdma_read_req: attr.rdma_write_for_rdma_read_req.into(),
            rdma_read_lmr_rmr_context_exposure: attr.rdma_read_lmr_rmr_context_exposure.into(),
            rmr_scope_supported: attr.rmr_scope_supported,
            is_signal_safe: attr.is_signal_safe.into(),
            ha_supported: attr.ha_supported.into(),
            ha_loadbalancing: attr.ha_loadbalancing,
            num_provider_specific_attr: specific.count(),
            provider_specific_attr: specific.list(),
        }
    }
}
