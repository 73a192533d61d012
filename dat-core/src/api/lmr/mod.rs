//! Local Memory Regions: dat_lmr_*(3).

pub(crate) mod allocate;
pub(crate) mod create;
pub(crate) mod fmr;
pub(crate) mod free;
pub(crate) mod invalidate;
pub(crate) mod kcreate;
pub(crate) mod memtype_hint;
pub(crate) mod query;
pub(crate) mod reserved;
pub(crate) mod sync_rdma_read;
pub(crate) mod sync_rdma_write;
