//! dat_ep_post_rdma_read(3).

use super::general::Work;
use super::{EpPoster, Poster};
use crate::Ia;
use crate::dat_return::DatReturn;
use crate::flags::{CompletionFlags, MemPriv};
use crate::handle::Ep;
use crate::provider::{PostFlags, Provider, Remote, SendQueue};
use crate::shared::Shared;
use crate::shared::ep::{Info, Op};
use crate::triplet::{LmrTriplet, RmrTriplet};

impl<P: Provider> Poster<P> {
    #[inline]
    pub(crate) fn post_rdma_read(
        &mut self,
        shared: &Shared<'_>,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let most = self.limits.max_rdma;
        if let Some((ep, segment)) =
            self.straight(shared, segments, flags, most, MemPriv::LOCAL_WRITE)
            && remote.len == segment.len
        {
            let suppressed = flags.contains(CompletionFlags::SUPPRESS);
            let info = Info::new(Op::RdmaRead, segment.len, suppressed);
            let post_flags = self.post_flags(flags).difference(PostFlags::SOLICITED);
            if let Some(filling) = self.begin(shared, ep, cookie, info) {
                let far = Remote {
                    addr: remote.addr,
                    rkey: remote.context,
                };
                let token = self.sq.rdma_read(&[segment], far, post_flags);
                self.commit(shared, ep, &filling, token);
                return Ok(());
            }
        }
        self.general(shared, Work::Read(remote), segments, cookie, flags)
    }
}

impl<P: Provider> EpPoster<'_, P> {
    /// Posts an RDMA read of `remote` into the segments, which must have room for it.
    ///
    /// Endpoint and errors as for [`EpPoster::post_send`].
    #[doc(alias = "dat_ep_post_rdma_read")]
    #[inline]
    pub fn post_rdma_read(
        &mut self,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.poster
            .post_rdma_read(&self.shared, segments, cookie, remote, flags)
    }
}

impl<P: Provider> Ia<'_, P> {
    /// As [`EpPoster::post_rdma_read`], by handle.
    #[doc(alias = "dat_ep_post_rdma_read")]
    #[inline]
    pub fn ep_post_rdma_read(
        &mut self,
        ep: Ep,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let shared = self.shared;
        self.poster(ep)?
            .post_rdma_read(&shared, segments, cookie, remote, flags)
    }
}
