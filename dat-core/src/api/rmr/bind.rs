//! dat_rmr_bind(3).

use crate::data::bind::Binding;
use crate::data::poster::EpPoster;
use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::DatReturn;
use crate::types::flags::{CompletionFlags, MemPriv, VaType};
use crate::types::handle::{Ep, Rmr};
use crate::types::triplet::LmrTriplet;

impl<P: Provider> EpPoster<'_, P> {
    /// Posts a bind of `rmr` to the range `lmr`, and returns the new `rmr_context`; length 0
    /// unbinds.
    ///
    /// The old context is dead when the bind completes, and comes back after 255 other binds at the
    /// soonest; requests posted behind it start after it.
    /// Of the privileges only the remote ones count: REMOTE_READ needs LOCAL_READ of the LMR,
    /// REMOTE_WRITE needs LOCAL_WRITE. Endpoint: CONNECTED, or DISCONNECTED, where it is
    /// flushed. Errors as for [`EpPoster::post_send`], and `INVALID_HANDLE` for the RMR;
    /// `MODEL_NOT_SUPPORTED` if the Endpoint's request Event Dispatcher was made without
    /// [`EvdFlags::RMR_BIND`](crate::EvdFlags::RMR_BIND);
    /// `INVALID_PARAMETER` for a range outside the LMR, or of 2^31 bytes or more
    /// ([`MAX_WINDOW`](crate::provider::MAX_WINDOW)): bind several RMRs instead, or let the peer use
    /// the LMR's own `rmr_context`;
    /// `RESERVED_LMR` over the reserved LMR; `INVALID_STATE` for an RMR that belongs to another
    /// Endpoint, until it is unbound there, or, if that one is not connected any more, until it
    /// is reset or freed.
    #[doc(alias = "dat_rmr_bind")]
    #[inline]
    pub fn rmr_bind(
        &mut self,
        rmr: Rmr,
        lmr: &LmrTriplet,
        privileges: MemPriv,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<u32, DatReturn> {
        let binding = Binding { rmr, range: *lmr, privileges, va_type: VaType::Va };
        self.poster.rmr_bind(&self.shared, &self.near, binding, cookie, flags)
    }
}

impl<P: Provider> Ia<'_, P> {
    /// As [`EpPoster::rmr_bind`], by handle.
    #[doc(alias = "dat_rmr_bind")]
    pub fn rmr_bind(
        &mut self,
        rmr: Rmr,
        lmr: &LmrTriplet,
        privileges: MemPriv,
        ep: Ep,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<u32, DatReturn> {
        self.rmr_bind_as(rmr, lmr, privileges, VaType::Va, ep, cookie, flags)
    }

    /// As [`Ia::rmr_bind`]; peers name the first byte of the range by its address, or by 0 if the
    /// RMR is to be zero-based.
    #[doc(alias = "dat_rmr_bind")]
    #[expect(clippy::too_many_arguments, reason = "those of the call")]
    pub fn rmr_bind_as(
        &mut self,
        rmr: Rmr,
        lmr: &LmrTriplet,
        privileges: MemPriv,
        va_type: VaType,
        ep: Ep,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<u32, DatReturn> {
        let (poster, shared, near) = self.posting(ep)?;
        let how = (privileges, va_type);
        poster.bind_slow(shared, &near, rmr, *lmr, how, cookie, flags)
    }
}
