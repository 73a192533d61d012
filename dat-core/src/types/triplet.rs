//! The two triplets that name memory in a DTO.

/// `DAT_LMR_TRIPLET`: a local segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LmrTriplet {
    /// First byte.
    pub addr: u64,
    /// Bytes; with 0 the other two mean nothing.
    pub len: u32,
    /// `lmr_context` of the LMR it lies in.
    pub context: u32,
}

/// `DAT_RMR_TRIPLET`: the far end of an RDMA operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RmrTriplet {
    /// First byte, in the peer's terms.
    pub addr: u64,
    /// Bytes there.
    pub len: u32,
    /// `rmr_context` that the peer gave.
    pub context: u32,
}
