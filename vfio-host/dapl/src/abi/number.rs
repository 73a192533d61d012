//! Masks and enumerations of the headers that `dat_core` has no type for.

/// Returns the number of an operation of `dat_dapldat.h`.
const fn op(n: u32) -> u32 {
    0x5a00_0000 | DAT_DAPLDAT_VERSION << 16 | n
}

numbers! {
    /// `DAT_EVD_ASYNC_EXISTS`: no async Event Dispatcher is made, another one serves.
    EVD_ASYNC_EXISTS: usize = 1;
    /// `DAT_EVD_OUT_OF_SCOPE`: there is none.
    EVD_OUT_OF_SCOPE: usize = 2;
    /// RC.
    DAT_SERVICE_TYPE_RC: u32 = 0;
    /// Datagrams.
    DAT_IB_SERVICE_TYPE_UD: u32 = 1;
    /// A stream of the extensions.
    DAT_IB_EVD_EXTENSION_FLAG: u32 = 0x200;
    /// A CNO without anything.
    DAT_PROXY_TYPE_NONE: u32 = 0;
    /// A CNO with an agent.
    DAT_PROXY_TYPE_AGENT: u32 = 1;
    /// A CNO with a descriptor.
    DAT_PROXY_TYPE_FD: u32 = 2;
    /// Memory by address.
    DAT_MEM_TYPE_VIRTUAL: u32 = 0;
    /// Memory of another LMR.
    DAT_MEM_TYPE_LMR: u32 = 1;
    /// Shared memory.
    DAT_MEM_TYPE_SHARED_VIRTUAL: u32 = 2;
    /// Triplets name addresses.
    DAT_VA_TYPE_VA: u32 = 0;
    /// Triplets name offsets.
    DAT_VA_TYPE_ZB: u32 = 1;
    /// No watermark.
    DAT_WATERMARK_INFINITE: i32 = -1;
    /// All of an Endpoint's attributes.
    DAT_EP_FIELD_EP_ATTR_ALL: u64 = 0x7fff_f000;
    /// What `dat_ep_modify` takes of them.
    DAT_EP_FIELD_IA_HANDLE: u64 = 0x1;
    /// The state.
    DAT_EP_FIELD_EP_STATE: u64 = 0x2;
    /// How it communicates.
    DAT_EP_FIELD_COMM: u64 = 0x4;
    /// Own address.
    DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR: u64 = 0x8;
    /// Own port.
    DAT_EP_FIELD_LOCAL_PORT_QUAL: u64 = 0x10;
    /// The peer's address.
    DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR: u64 = 0x20;
    /// The peer's port.
    DAT_EP_FIELD_REMOTE_PORT_QUAL: u64 = 0x40;
    /// The zone.
    DAT_EP_FIELD_PZ_HANDLE: u64 = 0x80;
    /// Where receives complete.
    DAT_EP_FIELD_RECV_EVD_HANDLE: u64 = 0x100;
    /// Where requests complete.
    DAT_EP_FIELD_REQUEST_EVD_HANDLE: u64 = 0x200;
    /// Where connection events go.
    DAT_EP_FIELD_CONNECT_EVD_HANDLE: u64 = 0x400;
    /// Its Shared Receive Queue.
    DAT_EP_FIELD_SRQ_HANDLE: u64 = 0x800;
    /// Attributes of an Endpoint, one by one.
    DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE: u64 = 0x1000;
    /// As above.
    DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE: u64 = 0x2000;
    /// As above.
    DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE: u64 = 0x4000;
    /// As above.
    DAT_EP_FIELD_EP_ATTR_QOS: u64 = 0x8000;
    /// As above.
    DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS: u64 = 0x1_0000;
    /// As above.
    DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS: u64 = 0x2_0000;
    /// As above.
    DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS: u64 = 0x4_0000;
    /// As above.
    DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS: u64 = 0x8_0000;
    /// As above.
    DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV: u64 = 0x10_0000;
    /// As above.
    DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV: u64 = 0x20_0000;
    /// As above.
    DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN: u64 = 0x40_0000;
    /// As above.
    DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT: u64 = 0x80_0000;
    /// As above.
    DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW: u64 = 0x100_0000;
    /// As above.
    DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV: u64 = 0x200_0000;
    /// As above.
    DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV: u64 = 0x400_0000;
    /// As above.
    DAT_EP_FIELD_EP_ATTR_NUM_TRANSPORT_ATTR: u64 = 0x800_0000;
    /// As above.
    DAT_EP_FIELD_EP_ATTR_NUM_PROVIDER_ATTR: u64 = 0x2000_0000;
    /// All of an Endpoint's parameters.
    DAT_EP_FIELD_ALL: u64 = 0x7fff_ffff;
    /// All of an adapter's attributes.
    DAT_IA_FIELD_ALL: u64 = 0x3f_ffff_ffff;
    /// All of a provider's attributes.
    DAT_PROVIDER_FIELD_ALL: u64 = 0x7fff_ffff;
    /// All of a zone's parameters.
    DAT_PZ_FIELD_ALL: u64 = 0x1;
    /// All of an Event Dispatcher's parameters.
    DAT_EVD_FIELD_ALL: u64 = 0x1f;
    /// The mask for all of a CNO's parameters. The masks of its fields are 1, 2 and 3: they are no bits.
    DAT_CNO_FIELD_ALL: u64 = 0x4;
    /// All of an LMR's parameters.
    DAT_LMR_FIELD_ALL: u64 = 0x7ff;
    /// All of an RMR's parameters.
    DAT_RMR_FIELD_ALL: u64 = 0x7f;
    /// All of an SRQ's parameters.
    DAT_SRQ_FIELD_ALL: u64 = 0xff;
    /// All of a PSP's parameters.
    DAT_PSP_FIELD_ALL: u64 = 0xf;
    /// All of an RSP's parameters.
    DAT_RSP_FIELD_ALL: u64 = 0xf;
    /// All of a CSP's parameters.
    DAT_CSP_FIELD_ALL: u64 = 0xf;
    /// All of a request's parameters.
    DAT_CR_FIELD_ALL: u64 = 0x1f;
    /// Operations of `handle_extendedop`.
    DAT_IB_FETCH_AND_ADD_OP: u32 = 0;
    /// As above.
    DAT_IB_CMP_AND_SWAP_OP: u32 = 1;
    /// As above.
    DAT_IB_RDMA_WRITE_IMMED_OP: u32 = 2;
    /// As above.
    DAT_IB_UD_SEND_OP: u32 = 3;
    /// As above.
    DAT_IB_QUERY_COUNTERS_OP: u32 = 4;
    /// As above.
    DAT_IB_PRINT_COUNTERS_OP: u32 = 5;
    /// As above.
    DAT_IB_START_COUNTERS_OP: u32 = 26;
    /// As above.
    DAT_IB_STOP_COUNTERS_OP: u32 = 27;
    /// As above.
    DAT_IB_UD_CM_FREE_OP: u32 = 28;
    /// As above.
    DAT_IB_UD_AH_FREE_OP: u32 = 29;
    /// As above.
    DAT_IB_OPEN_QUERY_OP: u32 = 0x1000;
    /// As above.
    DAT_IB_CLOSE_QUERY_OP: u32 = 0x2000;
    /// The value of the attribute of the own extension, and a part of each operation's number.
    DAT_DAPLDAT_VERSION: u32 = 1;
    /// The completion flag that `dat.h` does not have.
    DAT_DAPLDAT_DEFER_FLAG: u32 = dat_core::CompletionFlags::DEFER.bits();
    /// Most elements of a list, and events of a burst: as many as the longest queue holds.
    DAT_DAPLDAT_MOST: i32 = 65536;
    /// Rings the doorbell.
    DAT_DAPLDAT_RING_OP: u32 = op(0);
    /// Posts RDMA writes.
    DAT_DAPLDAT_WRITES_OP: u32 = op(1);
    /// Posts RDMA reads.
    DAT_DAPLDAT_READS_OP: u32 = op(2);
    /// Posts sends.
    DAT_DAPLDAT_SENDS_OP: u32 = op(3);
    /// Posts receives.
    DAT_DAPLDAT_RECVS_OP: u32 = op(4);
    /// Dequeues events.
    DAT_DAPLDAT_DEQUEUE_OP: u32 = op(5);
}
