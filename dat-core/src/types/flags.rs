//! The flag words of DAT, with the numbers of `dat.h`.

bitflags::bitflags! {
    /// `DAT_COMPLETION_FLAGS`: how one DTO is posted, or how an Endpoint completes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CompletionFlags: u32 {
        /// No event if it succeeds; an error is always reported. Requests only.
        const SUPPRESS = 0x01;
        /// Send: the peer's solicited notification fires.
        const SOLICITED_WAIT = 0x02;
        /// The completion is queued but wakes nobody. Only if the Endpoint was created with it.
        const UNSIGNALLED = 0x04;
        /// Start only after all earlier RDMA reads have finished.
        const BARRIER_FENCE = 0x08;
        /// Endpoint attribute: waiting is by threshold.
        const EVD_THRESHOLD = 0x10;
        /// kDAPL: start only after all earlier `lmr_invalidate` have finished. Here every request does so.
        const LMR_INVALIDATE_FENCE = 0x20;
        /// Extension: build the request, leave the doorbell to a later post or to `ring`.
        const DEFER = 0x100;
    }

    /// `DAT_EVD_FLAGS`: which streams an Event Dispatcher takes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct EvdFlags: u32 {
        /// Events of `evd_post_se`.
        const SOFTWARE = 0x001;
        /// Connection requests of a PSP.
        const CR = 0x010;
        /// Completions of DTOs.
        const DTO = 0x020;
        /// Connection events of an Endpoint.
        const CONNECTION = 0x040;
        /// Completions of RMR binds. An Endpoint whose requests complete where this is missing
        /// refuses requests that change keys, and its send ring is smaller for it.
        const RMR_BIND = 0x080;
        /// Asynchronous errors of the Interface Adapter.
        const ASYNC = 0x100;
        /// `DAT_EVD_DEFAULT_FLAG`: all but software events.
        const DEFAULT = 0x1f0;
    }

    /// `DAT_EVD_STATE`: three substates, of each of which one value holds.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct EvdState: u32 {
        /// An event triggers its CNO.
        const ENABLED = 0x01;
        /// No event triggers its CNO.
        const DISABLED = 0x02;
        /// It can be waited for.
        const WAITABLE = 0x04;
        /// It cannot.
        const UNWAITABLE = 0x08;
        /// The consumer says at each request whether its completion notifies.
        const CONFIG_NOTIFY = 0x10;
        /// The peer says at each send whether its completion notifies.
        const CONFIG_SOLICITED = 0x20;
        /// Every event notifies; waits are by threshold. (The number is that of the header: both bits.)
        const CONFIG_THRESHOLD = 0x30;
    }

    /// `DAT_MEM_PRIV_FLAGS`: what may be done through a memory region.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MemPriv: u32 {
        /// Local DTOs may gather from it.
        const LOCAL_READ = 0x01;
        /// Peers may read it.
        const REMOTE_READ = 0x02;
        /// Local DTOs may scatter into it.
        const LOCAL_WRITE = 0x10;
        /// Peers may write it.
        const REMOTE_WRITE = 0x20;
        /// InfiniBand extension: peers may do atomics on it. No window grants it, and [`MemPriv::ALL`] does not include it.
        const REMOTE_ATOMIC = 0x40;
        /// Extension, no right: the bytes of a transfer may reach or leave the memory in any order,
        /// which is faster on hosts that keep a device's writes in order at a price. The completion
        /// still comes after all of them; to poll the last byte in its place is no longer enough. No
        /// effect on adapters without it and on fast registrations, and not in [`MemPriv::ALL`].
        const RELAXED_ORDERING = 0x80;
        /// `DAT_MEM_PRIV_ALL_FLAG`.
        const ALL = 0x33;
    }
}

impl MemPriv {
    /// Both rights of local requests.
    pub const LOCAL: Self = Self::LOCAL_READ.union(Self::LOCAL_WRITE);
    /// Both rights of peers.
    pub const REMOTE: Self = Self::REMOTE_READ.union(Self::REMOTE_WRITE);

    /// The same rights in the fabric's words.
    #[must_use]
    pub fn access(self) -> Access {
        Access::from_bits_truncate(u8::try_from(self.bits() & 0xf3).unwrap_or(0))
    }
}

/// `DAT_QOS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Qos {
    /// Always supported.
    #[default]
    BestEffort = 0,
    /// High throughput.
    HighThroughput = 1,
    /// Low latency.
    LowLatency = 2,
    /// Economy.
    Economy = 4,
    /// Premium.
    Premium = 8,
}

impl Qos {
    /// Every one.
    pub const ALL: [Self; 5] =
        [Self::BestEffort, Self::HighThroughput, Self::LowLatency, Self::Economy, Self::Premium];
}

/// `DAT_CONNECT_FLAGS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum ConnectFlag {
    /// The only one supported.
    #[default]
    Default = 0,
    /// Over several paths.
    Multipath = 1,
}

/// `DAT_PSP_FLAGS`: who makes the Endpoint of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum PspFlag {
    /// The consumer passes one to `cr_accept`.
    #[default]
    Consumer = 0,
    /// The provider makes one with each request, in TENTATIVE_CONNECTION_PENDING.
    Provider = 1,
}

/// `DAT_COMM`: by what a Common Service Point is reached, as numbers of the sockets interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comm {
    /// Address family: [`Comm::INET`] or [`Comm::INET6`].
    pub domain: i32,
    /// Kind of socket: [`Comm::STREAM`].
    pub kind: i32,
    /// Protocol: [`Comm::TCP`], or 0 for what the kind implies.
    pub protocol: i32,
}

impl Comm {
    /// `AF_INET`.
    pub const INET: i32 = 2;
    /// `AF_INET6`.
    pub const INET6: i32 = 10;
    /// `SOCK_STREAM`.
    pub const STREAM: i32 = 1;
    /// `IPPROTO_TCP`.
    pub const TCP: i32 = 6;

    /// What this provider speaks with peers of that family: the port space of TCP.
    #[must_use]
    pub const fn tcp(v6: bool) -> Self {
        Self {
            domain: if v6 { Self::INET6 } else { Self::INET },
            kind: Self::STREAM,
            protocol: Self::TCP,
        }
    }
}

/// `DAT_CLOSE_FLAGS`, for `ia_close` and `ep_disconnect`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CloseFlag {
    /// At once.
    Abrupt = 0,
    /// `ia_close`: only if nothing is left. `ep_disconnect`: after the posted requests have
    /// finished.
    Graceful = 1,
}

/// `DAT_VA_TYPE`: by what triplets name the first byte of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum VaType {
    /// By its address.
    #[default]
    Va = 0,
    /// By 0.
    Zb = 1,
}

impl VaType {
    /// What names the byte at `addr`, the first.
    #[inline(always)]
    pub(crate) const fn start(self, addr: u64) -> u64 {
        match self {
            Self::Va => addr,
            Self::Zb => 0,
        }
    }
}

bitflags::bitflags! {
    /// Access rights of a memory key or a queue pair, as the fabric means them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Access: u8 {
        /// The HCA may gather from it for a local request.
        const LOCAL_READ = 0x01;
        /// A peer may read it.
        const REMOTE_READ = 0x02;
        /// The HCA may scatter into it for a local request.
        const LOCAL_WRITE = 0x10;
        /// A peer may write it.
        const REMOTE_WRITE = 0x20;
        /// A peer may do atomics on it.
        const REMOTE_ATOMIC = 0x40;
        /// No right: transfers may be done in any order, each before its completion.
        const RELAXED_ORDERING = 0x80;
    }
}

/// `DAT_UPCALL_POLICY`: when upcalls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum UpcallPolicy {
    /// Never: events are queued.
    Disable = 0,
    /// One at a time.
    SingleInstance = 1,
    /// Several at a time, as far as there are threads. An adapter belongs to one thread, so it is
    /// one at a time.
    Many = 100,
    /// No more, and what is under way has returned.
    Teardown = -1,
}
