//! dat_ia_query(3).

use core::fmt;
use core::net::IpAddr;

use crate::api::cr::accept::MAX_ACCEPT_PRIVATE;
use crate::api::cr::reject::MAX_REJECT_PRIVATE;
use crate::engine::Ia;
use crate::engine::establish::MAX_CONNECT_PRIVATE;
use crate::engine::queue_pair::{max_dtos, max_iov, max_srq_dtos};
use crate::provider::Provider;
use crate::types::flags::CompletionFlags;

/// Version of the InfiniBand extensions, 2.0.9.
const EXTENSION_VERSION: u32 = 209;

/// `DAT_IA_ATTR`. Fields of features that this provider lacks are 0 or false, never unset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IaAttr {
    /// Name of the adapter.
    pub adapter_name: &'static str,
    /// Its vendor.
    pub vendor_name: &'static str,
    /// Hardware revision: major, minor.
    pub hardware_version: (u32, u32),
    /// Firmware revision: major, minor.
    pub firmware_version: (u32, u32),
    /// Own address.
    pub ia_address: IpAddr,
    /// Endpoints.
    pub max_eps: u32,
    /// DTOs outstanding of one direction of an Endpoint.
    pub max_dto_per_ep: u32,
    /// Reads a peer may have outstanding at one Endpoint.
    pub max_rdma_read_per_ep_in: u32,
    /// Reads one Endpoint may have outstanding.
    pub max_rdma_read_per_ep_out: u32,
    /// Event Dispatchers, the async one included.
    pub max_evds: u32,
    /// Events of one Event Dispatcher with a DTO stream.
    pub max_evd_qlen: u32,
    /// Events of one without.
    pub max_software_evd_qlen: u32,
    /// Segments of one DTO.
    pub max_iov_segments_per_dto: u32,
    /// LMRs.
    pub max_lmrs: u32,
    /// Bytes of one LMR.
    pub max_lmr_block_size: u64,
    /// Last address an LMR may reach.
    pub max_lmr_virtual_address: u64,
    /// Protection Zones.
    pub max_pzs: u32,
    /// Bytes of one message.
    pub max_message_size: u64,
    /// Bytes of one RDMA operation.
    pub max_rdma_size: u64,
    /// RMRs.
    pub max_rmrs: u32,
    /// Last address an RMR may reach.
    pub max_rmr_target_address: u64,
    /// Shared receive queues.
    pub max_srqs: u32,
    /// Endpoints of one shared receive queue.
    pub max_ep_per_srq: u32,
    /// Receives of one shared receive queue.
    pub max_recv_per_srq: u32,
    /// Segments of one RDMA read.
    pub max_iov_segments_per_rdma_read: u32,
    /// Segments of one RDMA write.
    pub max_iov_segments_per_rdma_write: u32,
    /// Reads all peers together may have outstanding.
    pub max_rdma_read_in: u32,
    /// Reads all Endpoints together may have outstanding.
    pub max_rdma_read_out: u32,
    /// The limit of incoming reads holds for every Endpoint at once.
    pub max_rdma_read_per_ep_in_guaranteed: bool,
    /// The limit of outgoing reads holds for every Endpoint at once.
    pub max_rdma_read_per_ep_out_guaranteed: bool,
    /// Zero-based addresses.
    pub zb_supported: bool,
    /// `DAT_EXTENSION`: 1, those of InfiniBand; 0, if the device has neither atomics nor
    /// datagrams.
    pub extension_supported: u32,
    /// Version of the extensions: 209 is 2.0.9.
    pub extension_version: u32,
    /// What the transport has to say.
    pub transport_attr: &'static [NamedAttr],
    /// What the vendor has to say.
    pub vendor_attr: &'static [NamedAttr],
}

/// `DAT_NAMED_ATTR`: a name, and a value that reads as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedAttr {
    /// The name.
    pub name: &'static str,
    /// The value; its `Display` is the text that C consumers compare.
    pub value: AttrValue,
}

/// A value of a [`NamedAttr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttrValue {
    /// A word.
    Text(&'static str),
    /// A number.
    Number(u32),
    /// A GUID.
    Guid(u64),
    /// A GID, which on RoCE is an address.
    Gid(IpAddr),
    /// `TRUE` or `FALSE`.
    Flag(bool),
}

impl fmt::Display for AttrValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => fmt::Display::fmt(number, f),
            Self::Guid(guid) => write!(f, "{guid:016x}"),
            Self::Gid(address) => fmt::Display::fmt(address, f),
            Self::Flag(flag) => f.write_str(if *flag { "TRUE" } else { "FALSE" }),
        }
    }
}

/// The names that consumers of other providers look for.
const NAMED: usize = 15;

/// `DAT_PROVIDER_ATTR`. Fields of features that this provider lacks are 0 or false, never unset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderAttr {
    /// Name of the provider.
    pub provider_name: &'static str,
    /// Its version: major, minor.
    pub provider_version: (u32, u32),
    /// The DAT version it implements: major, minor.
    pub dapl_version: (u32, u32),
    /// `DAT_MEM_TYPE` bits: virtual.
    pub lmr_mem_types_supported: u32,
    /// Who owns a segment list when a post returns: the consumer.
    pub iov_ownership: u32,
    /// `DAT_QOS` bits: best effort, and those that the adapter was given a class for.
    pub dat_qos_supported: u32,
    /// Flags that posts may carry.
    pub completion_flags_supported: CompletionFlags,
    /// One `Ia` belongs to one thread; its halves may be in others.
    pub is_thread_safe: bool,
    /// Bytes of private data that every call takes; that of `ep_connect`, the least.
    pub max_private_data_size: u32,
    /// Bytes that `cr_accept` takes.
    pub max_accept_private_data_size: u32,
    /// Bytes that `cr_reject` takes.
    pub max_reject_private_data_size: u32,
    /// Several paths.
    pub supports_multipath: bool,
    /// `DAT_EP_CREATOR_FOR_PSP`: 1, if asked.
    pub ep_creator: u32,
    /// `DAT_PZ_SUPPORT`: 0, unique per object.
    pub pz_support: u32,
    /// Best alignment of buffers.
    pub optimal_buffer_alignment: u32,
    /// Which streams share an Event Dispatcher: software, CR, DTO, connection, RMR bind, async.
    /// All with all.
    pub evd_stream_merging_supported: [[bool; 6]; 6],
    /// Shared receive queues.
    pub srq_supported: bool,
    /// Low watermarks of shared receive queues.
    pub srq_watermarks_supported: u32,
    /// A shared receive queue's zone may differ from its Endpoints'.
    pub srq_ep_pz_difference_supported: bool,
    /// What `srq_query` can tell.
    pub srq_info_supported: u32,
    /// What `ep_recv_query` can tell.
    pub ep_recv_info_supported: u32,
    /// `lmr_sync_rdma_*` is needed.
    pub lmr_sync_req: bool,
    /// Returned data of asynchronous DTOs is guaranteed.
    pub dto_async_return_guaranteed: bool,
    /// RDMA reads need the RDMA write privilege locally.
    pub rdma_write_for_rdma_read_req: bool,
    /// The LMR's own `rmr_context` gives access as soon as it is created with a remote privilege.
    pub rdma_read_lmr_rmr_context_exposure: bool,
    /// `DAT_RMR_SCOPE`: 2, Endpoint and PZ.
    pub rmr_scope_supported: u32,
    /// Calls may be made from signal handlers.
    pub is_signal_safe: bool,
    /// High availability.
    pub ha_supported: bool,
    /// `DAT_HA_LB` bits.
    pub ha_loadbalancing: u32,
    /// What the provider has to say: under the names that consumers of other providers look for.
    pub provider_specific_attr: [NamedAttr; NAMED],
}

/// `DAT_SRQ_WATERMARKS`: low, soft high, hard high.
const SRQ_WATERMARKS: u32 = 0x7;
/// `DAT_SRQ_INFO`: receives available, and outstanding.
const SRQ_INFO: u32 = 0x3;
/// `DAT_EP_RECV_INFO`: receives allocated, and their span.
const EP_RECV_INFO: u32 = 0x3;

impl<P: Provider> Ia<'_, P> {
    /// What the adapter and the provider can do.
    #[doc(alias = "dat_ia_query")]
    #[must_use]
    pub fn query(&self) -> (IaAttr, ProviderAttr) {
        let limits = self.hca.limits();
        let reads = u32::from(limits.max_reads);
        let iov = u32::from(max_iov(self.hca.limits()));
        let eps = self.objects.eps.capacity().min(limits.max_qp);
        let srqs = self.objects.srqs.capacity().min(limits.max_shared);
        let rmrs =
            if limits.windows { self.objects.rmrs.capacity().min(limits.max_mkey) } else { 0 };
        let (major, minor, _) = limits.firmware;
        let atomics = limits.atomics;
        let extended = atomics || limits.max_datagram_segments != 0;
        let ia = IaAttr {
            adapter_name: limits.name,
            vendor_name: limits.vendor,
            hardware_version: limits.hardware,
            firmware_version: (u32::from(major), u32::from(minor)),
            ia_address: self.net.addr,
            max_eps: eps,
            max_dto_per_ep: u32::from(max_dtos(self.hca.limits(), &self.data.shared)),
            max_rdma_read_per_ep_in: reads,
            max_rdma_read_per_ep_out: reads,
            max_evds: self.events.evds.capacity(),
            max_evd_qlen: limits.max_cqe,
            max_software_evd_qlen: 1 << self.data.shared.event_shift,
            max_iov_segments_per_dto: iov,
            max_lmrs: self.objects.lmrs.capacity().min(limits.max_mkey),
            max_lmr_block_size: limits.max_region,
            max_lmr_virtual_address: u64::MAX,
            max_pzs: self.objects.pzs.capacity().min(limits.max_pd),
            max_message_size: u64::from(limits.max_message),
            max_rdma_size: u64::from(limits.max_message),
            max_rmrs: rmrs,
            max_rmr_target_address: if rmrs == 0 { 0 } else { u64::MAX },
            max_srqs: srqs,
            max_ep_per_srq: if srqs == 0 { 0 } else { eps },
            max_recv_per_srq: if srqs == 0 {
                0
            } else {
                u32::from(max_srq_dtos(self.hca.limits(), &self.data.shared))
            },
            max_iov_segments_per_rdma_read: iov,
            max_iov_segments_per_rdma_write: iov,
            max_rdma_read_in: reads.saturating_mul(eps),
            max_rdma_read_out: reads.saturating_mul(eps),
            max_rdma_read_per_ep_in_guaranteed: true,
            max_rdma_read_per_ep_out_guaranteed: true,
            zb_supported: true,
            extension_supported: u32::from(extended),
            extension_version: if extended { EXTENSION_VERSION } else { 0 },
            transport_attr: &[],
            vendor_attr: &[],
        };
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let provider = ProviderAttr {
            provider_name: limits.name,
            provider_version: (0, 1),
            dapl_version: (2, 0),
            lmr_mem_types_supported: 0x53,
            iov_ownership: 0,
            dat_qos_supported: limits.classes.supported(),
            completion_flags_supported: CompletionFlags::SUPPRESS
                .union(CompletionFlags::SOLICITED_WAIT)
                .union(CompletionFlags::UNSIGNALLED)
                .union(CompletionFlags::BARRIER_FENCE),
            is_thread_safe: false,
            max_private_data_size: count(MAX_CONNECT_PRIVATE),
            max_accept_private_data_size: count(MAX_ACCEPT_PRIVATE),
            max_reject_private_data_size: count(MAX_REJECT_PRIVATE),
            supports_multipath: false,
            ep_creator: true.into(),
            pz_support: 0,
            optimal_buffer_alignment: 64,
            evd_stream_merging_supported: [[true; 6]; 6],
            srq_supported: srqs != 0,
            srq_watermarks_supported: if srqs == 0 { 0 } else { SRQ_WATERMARKS },
            srq_ep_pz_difference_supported: srqs != 0,
            srq_info_supported: if srqs == 0 { 0 } else { SRQ_INFO },
            ep_recv_info_supported: EP_RECV_INFO,
            lmr_sync_req: false,
            dto_async_return_guaranteed: true,
            rdma_write_for_rdma_read_req: false,
            rdma_read_lmr_rmr_context_exposure: false,
            rmr_scope_supported: if rmrs == 0 { 0 } else { 2 },
            is_signal_safe: false,
            ha_supported: false,
            ha_loadbalancing: 0,
            provider_specific_attr: self.named(),
        };
        (ia, provider)
    }

    fn named(&self) -> [NamedAttr; NAMED] {
        use AttrValue::Flag;
        use AttrValue::Gid;
        use AttrValue::Guid;
        use AttrValue::Number;
        use AttrValue::Text;
        let limits = self.hca.limits();
        let atomics = limits.atomics;
        [
            ("DAT_IB_PROVIDER_NAME", Text(limits.name)),
            ("DAT_IB_DEVICE_NAME", Text(limits.name)),
            ("DAT_IB_CONNECTIVITY_MODE", Text("DIRECT")),
            ("DAT_IB_RDMA_READ", Flag(true)),
            ("DAT_IB_NODE_GUID", Guid(limits.node_guid)),
            ("DAT_IB_GID", Gid(self.net.addr)),
            ("DAT_IB_TRANSPORT_MTU", Number(limits.mtu.bytes())),
            (
                "DAT_IB_PORT_STATUS",
                Text(if self.lifecycle.lost.is_none() { "PORT_ACTIVE" } else { "PORT_DOWN" }),
            ),
            ("DAT_IB_PORT_NUMBER", Number(1)),
            ("DAT_EXTENSION_INTERFACE", Flag(true)),
            ("DAT_IB_FETCH_AND_ADD", Flag(atomics)),
            ("DAT_IB_CMP_AND_SWAP", Flag(atomics)),
            ("DAT_IB_IMMED_DATA", Flag(true)),
            ("DAT_IB_UD", Flag(limits.max_datagram_segments != 0)),
            ("DAT_COUNTERS", Flag(true)),
        ]
        .map(|(name, value)| NamedAttr { name, value })
    }
}
