//! Every enumeration and flag word of `dat_core` that claims numbers of the headers, with the
//! header's name of each value.

use dat_core::{
    AsyncEvent, CloseFlag, CompletionFlags, ConnectFlag, CounterType, DtoOperation, DtoStatus, Ep,
    EpCounter, EpState, Evd, EvdCounter, EvdFlags, EvdState, Event, HaRelationship, HandleType,
    IaCounter, IbOperation, MemPriv, MemType, PspFlag, Qos, RmrScope, Srq, SrqState, VaType,
};

/// The numbers, under their names in C.
pub(super) fn all() -> Vec<(String, u64)> {
    let mut all = Vec::new();
    let mut put = |name: &str, value: u32| all.push((name.to_owned(), u64::from(value)));
    macro_rules! enumeration {
        ($($ty:ident: $($variant:ident $name:literal),+;)*) => {
            $($(put($name, $ty::$variant as u32);)+)*
        };
    }
    macro_rules! flags {
        ($($ty:ident: $($flag:ident $name:literal),+;)*) => {
            $($(put($name, $ty::$flag.bits());)+)*
        };
    }
    flags! {
        CompletionFlags:
            SUPPRESS "DAT_COMPLETION_SUPPRESS_FLAG",
            SOLICITED_WAIT "DAT_COMPLETION_SOLICITED_WAIT_FLAG",
            UNSIGNALLED "DAT_COMPLETION_UNSIGNALLED_FLAG",
            BARRIER_FENCE "DAT_COMPLETION_BARRIER_FENCE_FLAG",
            EVD_THRESHOLD "DAT_COMPLETION_EVD_THRESHOLD_FLAG",
            LMR_INVALIDATE_FENCE "DAT_COMPLETION_LMR_INVALIDATE_FENCE_FLAG";
        EvdFlags:
            SOFTWARE "DAT_EVD_SOFTWARE_FLAG",
            CR "DAT_EVD_CR_FLAG",
            DTO "DAT_EVD_DTO_FLAG",
            CONNECTION "DAT_EVD_CONNECTION_FLAG",
            RMR_BIND "DAT_EVD_RMR_BIND_FLAG",
            ASYNC "DAT_EVD_ASYNC_FLAG",
            DEFAULT "DAT_EVD_DEFAULT_FLAG";
        EvdState:
            ENABLED "DAT_EVD_STATE_ENABLED",
            DISABLED "DAT_EVD_STATE_DISABLED",
            WAITABLE "DAT_EVD_STATE_WAITABLE",
            UNWAITABLE "DAT_EVD_STATE_UNWAITABLE",
            CONFIG_NOTIFY "DAT_EVD_STATE_CONFIG_NOTIFY",
            CONFIG_SOLICITED "DAT_EVD_STATE_CONFIG_SOLICITED",
            CONFIG_THRESHOLD "DAT_EVD_STATE_CONFIG_THRESHOLD";
        MemPriv:
            LOCAL_READ "DAT_MEM_PRIV_LOCAL_READ_FLAG",
            REMOTE_READ "DAT_MEM_PRIV_REMOTE_READ_FLAG",
            LOCAL_WRITE "DAT_MEM_PRIV_LOCAL_WRITE_FLAG",
            REMOTE_WRITE "DAT_MEM_PRIV_REMOTE_WRITE_FLAG",
            REMOTE_ATOMIC "DAT_IB_MEM_PRIV_REMOTE_ATOMIC",
            RELAXED_ORDERING "DAT_DAPLDAT_MEM_RELAXED_ORDERING",
            ALL "DAT_MEM_PRIV_ALL_FLAG";
    }
    enumeration! {
        CloseFlag: Abrupt "DAT_CLOSE_ABRUPT_FLAG", Graceful "DAT_CLOSE_GRACEFUL_FLAG";
        ConnectFlag:
            Default "DAT_CONNECT_DEFAULT_FLAG",
            Multipath "DAT_CONNECT_MULTIPATH_REQUESTED_FLAG";
        PspFlag: Consumer "DAT_PSP_CONSUMER_FLAG", Provider "DAT_PSP_PROVIDER_FLAG";
        Qos:
            BestEffort "DAT_QOS_BEST_EFFORT",
            HighThroughput "DAT_QOS_HIGH_THROUGHPUT",
            LowLatency "DAT_QOS_LOW_LATENCY",
            Economy "DAT_QOS_ECONOMY",
            Premium "DAT_QOS_PREMIUM";
        MemType:
            Virtual "DAT_MEM_TYPE_VIRTUAL",
            Lmr "DAT_MEM_TYPE_LMR",
            SharedVirtual "DAT_MEM_TYPE_SHARED_VIRTUAL";
        VaType: Va "DAT_VA_TYPE_VA", Zb "DAT_VA_TYPE_ZB";
        RmrScope: Ep "DAT_RMR_SCOPE_EP", Pz "DAT_RMR_SCOPE_PZ";
        SrqState: Error "DAT_SRQ_STATE_ERROR", Operational "DAT_SRQ_STATE_OPERATIONAL";
        HaRelationship:
            False "DAT_HA_FALSE",
            True "DAT_HA_TRUE",
            Unknown "DAT_HA_UNKNOWN",
            Conflicting "DAT_HA_CONFLICTING";
        HandleType:
            Cr "DAT_HANDLE_TYPE_CR",
            Ep "DAT_HANDLE_TYPE_EP",
            Evd "DAT_HANDLE_TYPE_EVD",
            Ia "DAT_HANDLE_TYPE_IA",
            Lmr "DAT_HANDLE_TYPE_LMR",
            Psp "DAT_HANDLE_TYPE_PSP",
            Pz "DAT_HANDLE_TYPE_PZ",
            Rmr "DAT_HANDLE_TYPE_RMR",
            Rsp "DAT_HANDLE_TYPE_RSP",
            Cno "DAT_HANDLE_TYPE_CNO",
            Srq "DAT_HANDLE_TYPE_SRQ",
            Csp "DAT_HANDLE_TYPE_CSP";
        EpState:
            Unconnected "DAT_EP_STATE_UNCONNECTED",
            UnconfiguredUnconnected "DAT_EP_STATE_UNCONFIGURED_UNCONNECTED",
            Reserved "DAT_EP_STATE_RESERVED",
            UnconfiguredReserved "DAT_EP_STATE_UNCONFIGURED_RESERVED",
            PassiveConnectionPending "DAT_EP_STATE_PASSIVE_CONNECTION_PENDING",
            UnconfiguredPassive "DAT_EP_STATE_UNCONFIGURED_PASSIVE",
            ActiveConnectionPending "DAT_EP_STATE_ACTIVE_CONNECTION_PENDING",
            TentativeConnectionPending "DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING",
            UnconfiguredTentative "DAT_EP_STATE_UNCONFIGURED_TENTATIVE",
            Connected "DAT_EP_STATE_CONNECTED",
            DisconnectPending "DAT_EP_STATE_DISCONNECT_PENDING",
            Disconnected "DAT_EP_STATE_DISCONNECTED",
            CompletionPending "DAT_EP_STATE_COMPLETION_PENDING",
            ConnectedSinglePath "DAT_EP_STATE_CONNECTED_SINGLE_PATH",
            ConnectedMultiPath "DAT_EP_STATE_CONNECTED_MULTI_PATH";
        DtoOperation:
            Send "DAT_DTO_SEND",
            RdmaWrite "DAT_DTO_RDMA_WRITE",
            RdmaRead "DAT_DTO_RDMA_READ",
            Receive "DAT_DTO_RECEIVE",
            ReceiveWithInvalidate "DAT_DTO_RECEIVE_WITH_INVALIDATE",
            BindMw "DAT_DTO_BIND_MW",
            LmrFmr "DAT_DTO_LMR_FMR",
            LmrInvalidate "DAT_DTO_LMR_INVALIDATE";
        IbOperation:
            RdmaWriteImmed "DAT_IB_DTO_RDMA_WRITE_IMMED",
            RecvRdmaWriteImmed "DAT_IB_DTO_RECV_IMMED",
            FetchAdd "DAT_IB_DTO_FETCH_ADD",
            CmpSwap "DAT_IB_DTO_CMP_SWAP",
            RecvMsgImmed "DAT_IB_DTO_RECV_MSG_IMMED",
            SendUd "DAT_IB_DTO_SEND_UD",
            RecvMsgUd "DAT_IB_DTO_RECV_UD",
            RecvMsgUdImmed "DAT_IB_DTO_RECV_UD_IMMED";
        DtoStatus:
            Success "DAT_DTO_SUCCESS",
            ErrFlushed "DAT_DTO_ERR_FLUSHED",
            ErrLocalLength "DAT_DTO_ERR_LOCAL_LENGTH",
            ErrLocalEp "DAT_DTO_ERR_LOCAL_EP",
            ErrLocalProtection "DAT_DTO_ERR_LOCAL_PROTECTION",
            ErrBadResponse "DAT_DTO_ERR_BAD_RESPONSE",
            ErrRemoteAccess "DAT_DTO_ERR_REMOTE_ACCESS",
            ErrRemoteResponder "DAT_DTO_ERR_REMOTE_RESPONDER",
            ErrTransport "DAT_DTO_ERR_TRANSPORT",
            ErrReceiverNotReady "DAT_DTO_ERR_RECEIVER_NOT_READY",
            ErrPartialPacket "DAT_DTO_ERR_PARTIAL_PACKET",
            RmrOperationFailed "DAT_RMR_OPERATION_FAILED",
            ErrLocalMmError "DAT_DTO_ERR_LOCAL_MM_ERROR";
        CounterType: Cm "DCNT_IA_CM", Link "DCNT_IA_LNK", Diag "DCNT_IA_DIAG";
    }
    let (evd, ep, srq) = (Evd::from_raw(1), Ep::from_raw(1), Srq::from_raw(1));
    for (name, number, reason, what) in [
        ("DAT_ASYNC_ERROR_EVD_OVERFLOW", "DAT_EVD_OVERFLOW_ERROR", AsyncEvent::EvdOverflow(evd)),
        (
            "DAT_ASYNC_ERROR_IA_CATASTROPHIC",
            "DAT_IA_CATASTROPHIC_ERROR",
            AsyncEvent::IaCatastrophic,
        ),
        ("DAT_ASYNC_ERROR_EP_BROKEN", "DAT_EP_TRANSFER_TO_ERROR", AsyncEvent::EpBroken(ep)),
        (
            "DAT_ASYNC_ERROR_EP_BROKEN",
            "DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT",
            AsyncEvent::EpSoftHighWatermark(ep),
        ),
        ("DAT_ASYNC_ERROR_TIMED_OUT", "DAT_IA_OTHER_ERROR", AsyncEvent::TimedOut),
        (
            "DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR",
            "DAT_IA_OTHER_ERROR",
            AsyncEvent::ProviderInternalError,
        ),
        (
            "DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR",
            "DAT_SRQ_LOW_WATERMARK_EVENT",
            AsyncEvent::SrqLowWatermark(srq),
        ),
        (
            "DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR",
            "DAT_SRQ_TRANSFER_TO_ERROR",
            AsyncEvent::SrqBroken(srq),
        ),
    ]
    .map(|(name, reason, what)| (name, Event::Async(what).number(), reason, what.reason()))
    {
        put(name, number);
        put(reason, what);
    }
    let event = |event: Event| event.number();
    for (name, number) in [
        ("DAT_CONNECTION_EVENT_ESTABLISHED", event(Event::Established(ep))),
        ("DAT_CONNECTION_EVENT_PEER_REJECTED", event(Event::PeerRejected(ep))),
        ("DAT_CONNECTION_EVENT_NON_PEER_REJECTED", event(Event::NonPeerRejected(ep))),
        ("DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR", event(Event::AcceptCompletionError(ep))),
        ("DAT_CONNECTION_EVENT_DISCONNECTED", event(Event::Disconnected(ep))),
        ("DAT_CONNECTION_EVENT_BROKEN", event(Event::Broken(ep))),
        ("DAT_CONNECTION_EVENT_TIMED_OUT", event(Event::TimedOut(ep))),
        ("DAT_CONNECTION_EVENT_UNREACHABLE", event(Event::Unreachable(ep))),
        ("DAT_SOFTWARE_EVENT", event(Event::Software(0))),
        ("DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED", event(Event::UdAccepted(ep))),
        ("DAT_IB_UD_CONNECTION_ERROR_EVENT", event(Event::UdError(ep))),
    ] {
        put(name, number);
    }
    let counters = IaCounter::ALL.iter().map(|one| ("IA", one.name(), *one as u32));
    let counters = counters.chain(EpCounter::ALL.iter().map(|one| ("EP", one.name(), *one as u32)));
    let counters =
        counters.chain(EvdCounter::ALL.iter().map(|one| ("EVD", one.name(), *one as u32)));
    for (of, name, number) in counters {
        put(&format!("DCNT_{of}_{name}"), number);
    }
    all
}
