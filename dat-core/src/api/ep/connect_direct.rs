//! Connecting without a connection manager: what two of them would have exchanged is given by
//! hand.
//!
//! No manual page has it. Programs that speak verbs only (`ibv_rc_pingpong`) carry queue pair
//! numbers and PSNs over a channel of their own; this is the call for such a peer, and it lies
//! right below the connection manager: the queue pair takes the same steps with the same terms.

use core::net::IpAddr;
use core::time::Duration;

use crate::cm::params::QpTerms;
use crate::engine::Ia;
use crate::engine::establish::check_remote;
use crate::objects::ep::{NOT_READY, Phase};
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::ep_state::EpOp;
use crate::types::handle::Ep;
use crate::types::time::Instant;

/// Greatest QPN and PSN.
const MOST_24: u32 = 0xff_ffff;

impl<P: Provider> Ia<'_, P> {
    /// Starts to connect an UNCONNECTED Endpoint to the queue pair that `terms` names, at `remote`,
    /// which learns of it by other means and connects to this one. This Endpoint's own QPN is
    /// in [`Ia::ep_query`]; the PSNs are the two sides' choice.
    ///
    /// The outcome is an event: `Established` when this side may send, `Unreachable`,
    /// `NonPeerRejected` if the device refuses, or `TimedOut`. Nobody says that the peer is
    /// ready, or that it has gone: its end shows only in operations that fail, and a disconnect
    /// tells nobody. Errors are those of [`Ia::ep_connect`], and `INVALID_PARAMETER` for terms that
    /// no queue pair of this adapter can have.
    pub fn ep_connect_direct(
        &mut self,
        now: Instant,
        ep: Ep,
        remote: IpAddr,
        terms: &QpTerms,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.objects.admit(ep, EpOp::Connect)?;
        check_remote(&self.net, self.hca.limits().link, remote)?;
        let bad = |subtype| Error::new(DatType::InvalidParameter, subtype);
        let limits = self.hca.limits();
        let possible = terms.mtu <= limits.mtu
            && terms.responder_resources <= limits.max_reads
            && terms.initiator_depth <= limits.max_reads
            && terms.retry_count <= 7
            && terms.rnr_retry <= 7
            && terms.ack_timeout <= 31
            && terms.class.priority <= 7
            && [terms.remote_qpn, terms.rq_psn, terms.sq_psn]
                .iter()
                .all(|number| *number <= MOST_24);
        if !possible {
            return Err(bad(DatSubtype::InvalidArg3));
        }
        if timeout.is_zero() {
            return Err(bad(DatSubtype::InvalidArg4));
        }
        if self.objects.eps.live(ep)?.connect_evd.is_none() {
            return Err(NOT_READY.into());
        }
        self.objects.reserve_events(ep)?;
        self.drain_stale_events(now, ep);
        let control = self.objects.eps.live_mut(ep)?;
        control.remote = Some(remote);
        control.phase = Phase::Direct(*terms);
        self.apply(ep, EpOp::Connect);
        self.objects.set_deadline(ep, now + timeout);
        self.objects.watch(ep);
        self.establish_step(now, ep);
        Ok(())
    }
}
