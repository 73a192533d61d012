//! What of DAT a program uses, said where its provider is made: the rest is not in the program.
//!
//! A linker drops calls that nobody makes. It cannot drop what only a peer or the device might ask
//! for: a look-up of a service point that nobody has, a completion of a kind that nobody posts. So
//! the author of a small image says in one constant ([`Provider::USES`], of mlx5 `Platform::USES`)
//! what he uses. It is plain Rust: the code asks `P::USES`, every branch is type-checked, and the
//! compiler drops those that are never taken. A call of a part that is left out is refused as on an
//! adapter that has no such thing, and `ia_query` says that there is none.

use super::Provider;

/// Parts of DAT that a program may leave out. [`Uses::ALL`] unless it says otherwise; a small one
/// begins with [`Uses::LEAST`] and adds what it needs: `Uses::LEAST.connects().ipv6()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uses {
    /// The active side of connections: `ep_connect` and what goes with it. Without it a program
    /// serves: it listens and accepts. (What Endpoints for datagrams look up is of
    /// [`Uses::datagrams`].)
    pub connects: bool,
    /// Peers with IPv6 addresses, and Neighbor Discovery. It is the driver that does without;
    /// dat-core refuses no such address.
    pub ipv6: bool,
    /// A port on a VLAN. Without it tagged frames are passed over, of priority as well. It is the
    /// driver that does without.
    pub vlan: bool,
    /// Endpoints for datagrams (UD), and look-ups of service points, one's own and those of peers.
    pub datagrams: bool,
    /// Shared Receive Queues.
    pub shared_receives: bool,
    /// Memory whose keys are changed by posts: Remote Memory Regions, which are bound, and LMRs
    /// that are registered and invalidated so (`lmr_allocate`). Peers reach LMRs that are
    /// created with a remote privilege all the same.
    pub windows: bool,
    /// The InfiniBand extensions of DTOs: atomics and immediates. Without it what comes with an
    /// immediate is a receive like any other.
    pub extensions: bool,
    /// Reserved and Common Service Points, and Endpoints that the provider makes for a Public one.
    pub service_points: bool,
    /// Counters of the adapter. (Those of Endpoints and Event Dispatchers cost next to nothing.)
    pub counters: bool,
}

impl Uses {
    /// All of DAT.
    pub const ALL: Self = Self::LEAST
        .connects()
        .ipv6()
        .vlan()
        .datagrams()
        .shared_receives()
        .windows()
        .extensions()
        .service_points()
        .counters();

    /// What cannot be left out: connections of peers over IPv4, with their messages and RDMA,
    /// memory and Event Dispatchers.
    pub const LEAST: Self = Self {
        connects: false,
        ipv6: false,
        vlan: false,
        datagrams: false,
        shared_receives: false,
        windows: false,
        extensions: false,
        service_points: false,
        counters: false,
    };

    /// With [`Uses::connects`].
    #[must_use]
    pub const fn connects(mut self) -> Self {
        self.connects = true;
        self
    }

    /// With [`Uses::ipv6`].
    #[must_use]
    pub const fn ipv6(mut self) -> Self {
        self.ipv6 = true;
        self
    }

    /// With [`Uses::vlan`].
    #[must_use]
    pub const fn vlan(mut self) -> Self {
        self.vlan = true;
        self
    }

    /// With [`Uses::datagrams`].
    #[must_use]
    pub const fn datagrams(mut self) -> Self {
        self.datagrams = true;
        self
    }

    /// With [`Uses::shared_receives`].
    #[must_use]
    pub const fn shared_receives(mut self) -> Self {
        self.shared_receives = true;
        self
    }

    /// With [`Uses::windows`].
    #[must_use]
    pub const fn windows(mut self) -> Self {
        self.windows = true;
        self
    }

    /// With [`Uses::extensions`].
    #[must_use]
    pub const fn extensions(mut self) -> Self {
        self.extensions = true;
        self
    }

    /// With [`Uses::service_points`].
    #[must_use]
    pub const fn service_points(mut self) -> Self {
        self.service_points = true;
        self
    }

    /// With [`Uses::counters`].
    #[must_use]
    pub const fn counters(mut self) -> Self {
        self.counters = true;
        self
    }
}

/// What knows what its program uses: every provider.
pub trait Using {
    /// See [`Provider::USES`].
    const USES: Uses;
}

impl<P: Provider> Using for P {
    const USES: Uses = <P as Provider>::USES;
}

/// Uses all: for a part that stands alone, without a provider.
#[derive(Clone, Copy, Debug)]
pub enum Everything {}

impl Using for Everything {
    const USES: Uses = Uses::ALL;
}
