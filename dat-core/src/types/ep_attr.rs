//! `DAT_EP_ATTR`.

use crate::types::flags::{CompletionFlags, Qos};

/// What an Endpoint is made for. [`Ia::ep_attr_default`](crate::Ia::ep_attr_default) gives what
/// this adapter suggests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpAttr {
    /// Bytes of one send or receive.
    pub max_message_size: u32,
    /// Bytes of one RDMA operation.
    pub max_rdma_size: u32,
    /// Quality of service.
    pub qos: Qos,
    /// How receives complete; never `SUPPRESS`.
    pub recv_completion_flags: CompletionFlags,
    /// How requests complete.
    pub request_completion_flags: CompletionFlags,
    /// Receives outstanding; 0 exactly if there is no receive EVD.
    pub max_recv_dtos: u16,
    /// Requests outstanding; 0 exactly if there is no request EVD.
    pub max_request_dtos: u16,
    /// Segments of a receive.
    pub max_recv_iov: u8,
    /// Segments of a send.
    pub max_request_iov: u8,
    /// Reads a peer may have outstanding here.
    pub max_rdma_read_in: u8,
    /// Reads this side may have outstanding.
    pub max_rdma_read_out: u8,
    /// Segments of an RDMA read.
    pub max_rdma_read_iov: u8,
    /// Segments of an RDMA write.
    pub max_rdma_write_iov: u8,
}
