//! Posts: dat_ep_post_*(3), by handle and by posting half.

pub(crate) mod by_handle;
pub(crate) mod cmp_swap;
pub(crate) mod fetch_add;
pub(crate) mod owning;
pub(crate) mod rdma_read;
pub(crate) mod rdma_read_to_rmr;
pub(crate) mod rdma_write;
pub(crate) mod rdma_write_immed;
pub(crate) mod send;
pub(crate) mod send_ud;
pub(crate) mod send_with_invalidate;
pub(crate) mod split;
