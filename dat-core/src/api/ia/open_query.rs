//! `dat_ib_open_query` and `dat_ib_close_query` of the InfiniBand extension: an adapter opened for
//! its attributes alone.
//!
//! Who chooses among several adapters wants to know what each can do, and use none but one. So
//! nothing is made on the device and the port gets no address: the network does not see it. What
//! comes of it can be asked and closed, nothing else; in C that is a handle of which most calls
//! would fail.

use crate::api::ia::query::{IaAttr, ProviderAttr};
use crate::engine::Ia;
use crate::engine::storage::Parts;
use crate::provider::{Net, Provider};
use crate::types::dat_return::Error;
use crate::types::random::Random;
use crate::types::time::Instant;

/// An adapter that can be asked and closed.
pub struct IaQuery<'s, P: Provider>(Ia<'s, P>);

impl<P: Provider> core::fmt::Debug for IaQuery<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("IaQuery").field(&self.0).finish()
    }
}

impl<'s, P: Provider> IaQuery<'s, P> {
    /// Opens an adapter for its attributes: those that [`Ia::open`] with the same arguments would
    /// have.
    #[doc(alias = "dat_ib_open_query")]
    pub fn open_query(provider: P, parts: Parts<'s, P>, net: Net) -> Self {
        // Nothing will be made of these numbers.
        Self(Ia::new(provider, parts, net, Instant::ZERO, Random::new(<_>::default())))
    }

    /// What the adapter and the provider can do.
    #[must_use]
    pub fn query(&self) -> (IaAttr, ProviderAttr) {
        self.0.query()
    }

    /// Closes it and the device beneath, whose failure is the error.
    #[doc(alias = "dat_ib_close_query")]
    pub fn close_query(mut self) -> Result<(), Error> {
        Ok(self.0.hca.close()?)
    }

    /// Ends it, but the device stays up: to open an adapter on it.
    #[must_use]
    pub fn leave(self) -> P {
        self.0.hca
    }
}
