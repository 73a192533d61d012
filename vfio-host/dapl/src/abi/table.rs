//! `DAT_PROVIDER`: the uDAPL 2.0 dispatch table. Every object begins with its address.
//!
//! The registry calls entries without a check, so none may be null.

use core::ffi::{c_char, c_int, c_void};

use dat_core::{LmrTriplet, RmrTriplet};

use super::event::DatEvent;
use super::pointer::{DatHandle, In, List, Out};
use super::sockaddr::SockAddrPtr;
use super::structs::{
    DatCnoParam, DatComm, DatCrParam, DatCspParam, DatEpAttr, DatEpParam, DatEvdParam, DatIaAttr,
    DatLmrParam, DatOsWaitProxyAgent, DatProviderAttr, DatPspParam, DatPzParam,
    DatRegionDescription, DatRmrParam, DatRspParam, DatSrqAttr, DatSrqParam,
};
use super::va_list::VaList;
use super::{Boolean, Count, Ret, Timeout};

/// A call in which a thread may be cancelled.
macro_rules! wait {
    ($($arg:ty),* $(,)?) => { extern "C-unwind" fn($($arg),*) -> Ret };
}

/// A call: arguments as in C, a `DAT_RETURN`.
macro_rules! call {
    ($($arg:ty),* $(,)?) => { extern "C" fn($($arg),*) -> Ret };
}

type H = DatHandle;
/// A post of segments: Endpoint, segments, cookie, flags.
type Post = call!(H, Count, List<LmrTriplet>, u64, u32);
/// A post with a remote segment.
type PostRdma = call!(H, Count, List<LmrTriplet>, u64, In<RmrTriplet>, u32);
/// A call without further arguments.
type Plainly = call!(H);

layouts! {
    /// The table.
    DatProvider = "DAT_PROVIDER" [648] {
        0 device_name: *const c_char,
        8 extension: *mut c_void,
        16 ia_open_func: call!(In<c_char>, Count, Out<DatHandle>, Out<DatHandle>),
        24 ia_query_func: call!(H, Out<DatHandle>, u64, Out<DatIaAttr>, u64, Out<DatProviderAttr>),
        32 ia_close_func: call!(H, u32),
        40 set_consumer_context_func: call!(H, u64),
        48 get_consumer_context_func: call!(H, Out<u64>),
        56 get_handle_type_func: call!(H, Out<u32>),
        64 cno_create_func: call!(H, DatOsWaitProxyAgent, Out<DatHandle>),
        72 cno_modify_agent_func: call!(H, DatOsWaitProxyAgent),
        80 cno_query_func: call!(H, u32, Out<DatCnoParam>),
        88 cno_free_func: Plainly,
        96 cno_wait_func: wait!(H, Timeout, Out<DatHandle>),
        104 cr_query_func: call!(H, u32, Out<DatCrParam>),
        112 cr_accept_func: call!(H, DatHandle, Count, List<u8>),
        120 cr_reject_func: call!(H, Count, List<u8>),
        128 cr_handoff_func: call!(H, u64),
        136 evd_create_func: call!(H, Count, DatHandle, u32, Out<DatHandle>),
        144 evd_query_func: call!(H, u32, Out<DatEvdParam>),
        152 evd_modify_cno_func: call!(H, DatHandle),
        160 evd_enable_func: Plainly,
        168 evd_disable_func: Plainly,
        176 evd_wait_func: wait!(H, Timeout, Count, Out<DatEvent>, Out<Count>),
        184 evd_resize_func: call!(H, Count),
        192 evd_post_se_func: call!(H, In<DatEvent>),
        200 evd_dequeue_func: call!(H, Out<DatEvent>),
        208 evd_free_func: Plainly,
        216 ep_create_func: call!(H, DatHandle, DatHandle, DatHandle, DatHandle, In<DatEpAttr>, Out<DatHandle>),
        224 ep_query_func: call!(H, u64, Out<DatEpParam>),
        232 ep_modify_func: call!(H, u64, In<DatEpParam>),
        240 ep_connect_func: call!(H, SockAddrPtr, u64, Timeout, Count, List<u8>, u32, u32),
        248 ep_dup_connect_func: call!(H, DatHandle, Timeout, Count, List<u8>, u32),
        256 ep_disconnect_func: call!(H, u32),
        264 ep_post_send_func: Post,
        272 ep_post_recv_func: Post,
        280 ep_post_rdma_read_func: PostRdma,
        288 ep_post_rdma_write_func: PostRdma,
        296 ep_get_status_func: call!(H, Out<u32>, Out<Boolean>, Out<Boolean>),
        304 ep_free_func: Plainly,
        312 lmr_create_func: call!(
            H, u32, DatRegionDescription, u64, DatHandle, u32, u32,
            Out<DatHandle>, Out<u32>, Out<u32>, Out<u64>, Out<u64>,
        ),
        320 lmr_query_func: call!(H, u32, Out<DatLmrParam>),
        328 lmr_free_func: Plainly,
        336 rmr_create_func: call!(H, Out<DatHandle>),
        344 rmr_query_func: call!(H, u32, Out<DatRmrParam>),
        352 rmr_bind_func: call!(H, DatHandle, In<LmrTriplet>, u32, u32, DatHandle, u64, u32, Out<u32>),
        360 rmr_free_func: Plainly,
        368 psp_create_func: call!(H, u64, DatHandle, u32, Out<DatHandle>),
        376 psp_query_func: call!(H, u32, Out<DatPspParam>),
        384 psp_free_func: Plainly,
        392 rsp_create_func: call!(H, u64, DatHandle, DatHandle, Out<DatHandle>),
        400 rsp_query_func: call!(H, u32, Out<DatRspParam>),
        408 rsp_free_func: Plainly,
        416 pz_create_func: call!(H, Out<DatHandle>),
        424 pz_query_func: call!(H, u32, Out<DatPzParam>),
        432 pz_free_func: Plainly,
        440 psp_create_any_func: call!(H, Out<u64>, DatHandle, u32, Out<DatHandle>),
        448 ep_reset_func: Plainly,
        456 evd_set_unwaitable_func: Plainly,
        464 evd_clear_unwaitable_func: Plainly,
        472 lmr_sync_rdma_read_func: call!(H, List<LmrTriplet>, u64),
        480 lmr_sync_rdma_write_func: call!(H, List<LmrTriplet>, u64),
        488 ep_create_with_srq_func: call!(
            H, DatHandle, DatHandle, DatHandle, DatHandle, DatHandle, In<DatEpAttr>, Out<DatHandle>,
        ),
        496 ep_recv_query_func: call!(H, Out<Count>, Out<Count>),
        504 ep_set_watermark_func: call!(H, Count, Count),
        512 srq_create_func: call!(H, DatHandle, In<DatSrqAttr>, Out<DatHandle>),
        520 srq_free_func: Plainly,
        528 srq_post_recv_func: call!(H, Count, List<LmrTriplet>, u64),
        536 srq_query_func: call!(H, u32, Out<DatSrqParam>),
        544 srq_resize_func: call!(H, Count),
        552 srq_set_lw_func: call!(H, Count),
        560 csp_create_func: call!(H, In<DatComm>, SockAddrPtr, DatHandle, Out<DatHandle>),
        568 csp_query_func: call!(H, u32, Out<DatCspParam>),
        576 csp_free_func: Plainly,
        584 ep_common_connect_func: call!(H, SockAddrPtr, Timeout, Count, List<u8>),
        592 rmr_create_for_ep_func: call!(H, Out<DatHandle>),
        600 ep_post_send_with_invalidate_func: call!(H, Count, List<LmrTriplet>, u64, u32, Boolean, u32),
        608 ep_post_rdma_read_to_rmr_func: call!(H, In<RmrTriplet>, u64, In<RmrTriplet>, u32),
        616 cno_fd_create_func: call!(H, Out<c_int>, Out<DatHandle>),
        624 cno_trigger_func: call!(H, Out<DatHandle>),
        632 ia_ha_related_func: call!(H, In<c_char>, Out<Boolean>),
        640 handle_extendedop_func: call!(H, c_int, VaList),
    }
}
