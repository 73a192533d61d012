//! dat_ep_post_rdma_write(3).

use super::general::Work;
use super::{EpPoster, Poster};
use crate::Ia;
use crate::dat_return::DatReturn;
use crate::flags::{CompletionFlags, MemPriv};
use crate::handle::Ep;
use crate::provider::{Direction, PostFlags, Provider, Remote, SendQueue};
use crate::shared::ep::{Op, REQUEST_OPEN};
use crate::shared::{Near, Shared};
use crate::triplet::{LmrTriplet, RmrTriplet};

impl<P: Provider> Poster<P> {
    #[inline(always)]
    pub(crate) fn post_rdma_write(
        &mut self,
        shared: &Shared<'_>,
        near: &Near<'_>,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let (most, need) = (self.limits.max_rdma, MemPriv::LOCAL_READ);
        if let Some(segment) = self.straight(near, segments, flags, most, need)
            && remote.len >= segment.len
        {
            let suppressed = flags.contains(CompletionFlags::SUPPRESS);
            let post_flags = self.post_flags(flags).difference(PostFlags::SOLICITED);
            if self.publish(near, cookie, Op::RdmaWrite, segment.len, suppressed) {
                let far = Remote {
                    addr: remote.addr,
                    rkey: remote.context,
                };
                self.sq.rdma_write(&[segment], far, post_flags);
                self.recheck(shared, near, REQUEST_OPEN, Direction::Send);
                return Ok(());
            }
        }
        self.general(shared, near, Work::Write(remote), segments, cookie, flags)
    }
}

impl<P: Provider> EpPoster<'_, P> {
    /// Posts an RDMA write of the segments to `remote`, which must have room for them.
    ///
    /// Endpoint and errors as for [`EpPoster::post_send`].
    #[doc(alias = "dat_ep_post_rdma_write")]
    #[inline(always)]
    pub fn post_rdma_write(
        &mut self,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.poster
            .post_rdma_write(&self.shared, &self.near, segments, cookie, remote, flags)
    }
}

impl<P: Provider> Ia<'_, P> {
    /// As [`EpPoster::post_rdma_write`], by handle.
    #[doc(alias = "dat_ep_post_rdma_write")]
    #[inline(never)]
    pub fn ep_post_rdma_write(
        &mut self,
        ep: Ep,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let (poster, shared, near) = self.posting(ep)?;
        poster.post_rdma_write(&shared, &near, segments, cookie, remote, flags)
    }
}
