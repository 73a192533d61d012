//! Counters: dat_query_counters, dat_print_counters, dat_start_counters and dat_stop_counters of
//! the InfiniBand extension.
//!
//! They are always on, at three levels, with the names and in the order of `dat_ib_extensions.h`:
//! 85 of an Interface Adapter ([`IaCounter`]), 24 of an Endpoint ([`EpCounter`]), 10 of an Event
//! Dispatcher ([`EvdCounter`]). What can be is derived when somebody asks: objects from their
//! tables, completions from the consumer index of the queue, link and transport from the
//! device. What has to be counted where it happens is one word that its only writer has at hand.
//!
//! A call that resets returns what was counted up to then; later calls start from 0.
//!
//! Not here: collectives have no counters, and memory that the provider allocates (`MEM_ALLOC` and
//! its two siblings) is always 0, because it allocates none.

use crate::types::fault::nth;

macro_rules! counters {
    ($(#[$meta:meta])* $name:ident[$count:literal]; $($variant:ident = $text:literal,)+) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name {
            $(#[doc = concat!("`", $text, "`.")] $variant,)+
        }

        impl $name {
            /// How many there are.
            pub const COUNT: usize = $count;
            /// All of them, in the order of the header.
            pub const ALL: [Self; $count] = [$(Self::$variant),+];

            /// The name in the header, without what all have in front.
            #[must_use]
            pub fn name(self) -> &'static str {
                nth(concat!($($text, "\0"),+), self as usize)
            }
        }
    };
}

counters! {
    /// `DAT_IA_COUNTERS`. `CM` is the connection manager, `LNK` the link, `DIAG` the transport: `RQ` as responder, `SQ` as
    /// requester; `RAE` are remote access errors, `OOS` packets out of sequence, `RIRE` invalid requests, `UDSDPRD` datagrams
    /// dropped for want of a receive, `RREE` and `TREE` retries exceeded.
    IaCounter[85];
    PzCreate = "PZ_CREATE",
    PzFree = "PZ_FREE",
    LmrCreate = "LMR_CREATE",
    LmrFree = "LMR_FREE",
    RmrCreate = "RMR_CREATE",
    RmrFree = "RMR_FREE",
    PspCreate = "PSP_CREATE",
    PspCreateAny = "PSP_CREATE_ANY",
    PspFree = "PSP_FREE",
    RspCreate = "RSP_CREATE",
    RspFree = "RSP_FREE",
    EvdCreate = "EVD_CREATE",
    EvdFree = "EVD_FREE",
    EpCreate = "EP_CREATE",
    EpFree = "EP_FREE",
    SrqCreate = "SRQ_CREATE",
    SrqFree = "SRQ_FREE",
    SpCr = "SP_CR",
    SpCrAccepted = "SP_CR_ACCEPTED",
    SpCrRejected = "SP_CR_REJECTED",
    MemAlloc = "MEM_ALLOC",
    MemAllocData = "MEM_ALLOC_DATA",
    MemFree = "MEM_FREE",
    AsyncError = "ASYNC_ERROR",
    AsyncQpError = "ASYNC_QP_ERROR",
    AsyncCqError = "ASYNC_CQ_ERROR",
    CmListen = "CM_LISTEN",
    CmReqTx = "CM_REQ_TX",
    CmReqRx = "CM_REQ_RX",
    CmRepTx = "CM_REP_TX",
    CmRepRx = "CM_REP_RX",
    CmRtuTx = "CM_RTU_TX",
    CmRtuRx = "CM_RTU_RX",
    CmUserRejTx = "CM_USER_REJ_TX",
    CmUserRejRx = "CM_USER_REJ_RX",
    CmActiveEst = "CM_ACTIVE_EST",
    CmPassiveEst = "CM_PASSIVE_EST",
    CmAhReqTx = "CM_AH_REQ_TX",
    CmAhReqRx = "CM_AH_REQ_RX",
    CmAhResolved = "CM_AH_RESOLVED",
    CmDreqTx = "CM_DREQ_TX",
    CmDreqRx = "CM_DREQ_RX",
    CmDrepTx = "CM_DREP_TX",
    CmDrepRx = "CM_DREP_RX",
    CmMraTx = "CM_MRA_TX",
    CmMraRx = "CM_MRA_RX",
    CmReqFullqPoll = "CM_REQ_FULLQ_POLL",
    CmErr = "CM_ERR",
    CmErrReqFullq = "CM_ERR_REQ_FULLQ",
    CmErrReqDup = "CM_ERR_REQ_DUP",
    CmErrReqRetry = "CM_ERR_REQ_RETRY",
    CmErrRepDup = "CM_ERR_REP_DUP",
    CmErrRepRetry = "CM_ERR_REP_RETRY",
    CmErrRtuDup = "CM_ERR_RTU_DUP",
    CmErrRtuRetry = "CM_ERR_RTU_RETRY",
    CmErrRefused = "CM_ERR_REFUSED",
    CmErrReset = "CM_ERR_RESET",
    CmErrTimeout = "CM_ERR_TIMEOUT",
    CmErrRejTx = "CM_ERR_REJ_TX",
    CmErrRejRx = "CM_ERR_REJ_RX",
    CmErrDreqDup = "CM_ERR_DREQ_DUP",
    CmErrDreqRetry = "CM_ERR_DREQ_RETRY",
    CmErrDrepDup = "CM_ERR_DREP_DUP",
    CmErrDrepRetry = "CM_ERR_DREP_RETRY",
    CmErrMraDup = "CM_ERR_MRA_DUP",
    CmErrMraRetry = "CM_ERR_MRA_RETRY",
    CmErrUnexpected = "CM_ERR_UNEXPECTED",
    LnkErrRcv = "LNK_ERR_RCV",
    LnkErrRcvRemPhys = "LNK_ERR_RCV_REM_PHYS",
    LnkErrRcvConstraint = "LNK_ERR_RCV_CONSTRAINT",
    LnkErrXmtDiscards = "LNK_ERR_XMT_DISCARDS",
    LnkErrXmtConstraint = "LNK_ERR_XMT_CONTRAINT",
    LnkErrIntegrity = "LNK_ERR_INTEGRITY",
    LnkErrExcBufOverrun = "LNK_ERR_EXC_BUF_OVERRUN",
    LnkWarnRcvSwRelay = "LNK_WARN_RCV_SW_RELAY",
    LnkWarnXmtWait = "LNK_WARN_XMT_WAIT",
    DiagErrRqRae = "DIAG_ERR_RQ_RAE",
    DiagErrRqOos = "DIAG_ERR_RQ_OOS",
    DiagErrRqRire = "DIAG_ERR_RQ_RIRE",
    DiagErrRqUdsdprd = "DIAG_ERR_RQ_UDSDPRD",
    DiagErrSqRae = "DIAG_ERR_SQ_RAE",
    DiagErrSqOos = "DIAG_ERR_SQ_OOS",
    DiagErrSqRire = "DIAG_ERR_SQ_RIRE",
    DiagErrSqRree = "DIAG_ERR_SQ_RREE",
    DiagErrSqTree = "DIAG_ERR_SQ_TREE",
}

counters! {
    /// `DAT_EP_COUNTERS`. Those of `POST` count what was accepted, and with `DATA` its bytes; those of `RECV` what arrived well.
    EpCounter[24];
    Connect = "CONNECT",
    Disconnect = "DISCONNECT",
    PostSend = "POST_SEND",
    PostSendData = "POST_SEND_DATA",
    PostSendUd = "POST_SEND_UD",
    PostSendUdData = "POST_SEND_UD_DATA",
    PostRecv = "POST_RECV",
    PostRecvData = "POST_RECV_DATA",
    PostWrite = "POST_WRITE",
    PostWriteData = "POST_WRITE_DATA",
    PostWriteImm = "POST_WRITE_IMM",
    PostWriteImmData = "POST_WRITE_IMM_DATA",
    PostRead = "POST_READ",
    PostReadData = "POST_READ_DATA",
    PostCmpSwap = "POST_CMP_SWAP",
    PostFetchAdd = "POST_FETCH_ADD",
    Recv = "RECV",
    RecvData = "RECV_DATA",
    RecvUd = "RECV_UD",
    RecvUdData = "RECV_UD_DATA",
    RecvImm = "RECV_IMM",
    RecvImmData = "RECV_IMM_DATA",
    RecvRdmaImm = "RECV_RDMA_IMM",
    RecvRdmaImmData = "RECV_RDMA_IMM_DATA",
}

counters! {
    /// `DAT_EVD_COUNTERS`. What a reaping half does not find, as its thread polls, is not counted; `POLL` counts looks at the
    /// completion queue, `NOTIFY` requests to be woken, `CALLBACK` what the device or the connection manager announced.
    EvdCounter[10];
    Wait = "WAIT",
    WaitBlocked = "WAIT_BLOCKED",
    WaitNotify = "WAIT_NOTIFY",
    Dequeue = "DEQUEUE",
    DequeueFound = "DEQUEUE_FOUND",
    DequeueNotFound = "DEQUEUE_NOT_FOUND",
    DequeuePoll = "DEQUEUE_POLL",
    DequeuePollFound = "DEQUEUE_POLL_FOUND",
    ConnCallback = "CONN_CALLBACK",
    DtoCallback = "DTO_CALLBACK",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_places_are_those_of_the_header() {
        for (counter, place, name) in [
            (IaCounter::PzCreate, 0, "PZ_CREATE"),
            (IaCounter::SpCr, 17, "SP_CR"),
            (IaCounter::CmListen, 26, "CM_LISTEN"),
            (IaCounter::CmErr, 47, "CM_ERR"),
            (IaCounter::CmErrUnexpected, 66, "CM_ERR_UNEXPECTED"),
            (IaCounter::LnkErrRcv, 67, "LNK_ERR_RCV"),
            (IaCounter::DiagErrRqRae, 76, "DIAG_ERR_RQ_RAE"),
            (IaCounter::DiagErrSqTree, 84, "DIAG_ERR_SQ_TREE"),
        ] {
            assert_eq!((counter as usize, counter.name()), (place, name));
        }
        assert_eq!(EpCounter::RecvRdmaImmData as usize, 23);
        assert_eq!(EpCounter::Recv.name(), "RECV");
        assert_eq!(EvdCounter::DtoCallback as usize, 9);
        assert_eq!(EvdCounter::DtoCallback.name(), "DTO_CALLBACK");
        let places = IaCounter::ALL.iter().map(|counter| *counter as usize);
        assert!(places.eq(0..85));
    }
}
