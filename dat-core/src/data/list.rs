//! Extension: lists of requests under one doorbell, one post after another. Writes and receives
//! have ways of their own, [`write_list`](super::write_list) and [`recv_list`](super::recv_list).

use core::borrow::Borrow;
use core::slice;

use crate::data::bind::Binding;
use crate::data::poster::{EpPoster, Poster};
use crate::data::shared::{Near, Shared};
use crate::provider::{Provider, WorkRequest};
use crate::types::completion::Direction;
use crate::types::dat_return::DatReturn;
use crate::types::flags::{CompletionFlags, MemPriv, VaType};
use crate::types::handle::Rmr;
use crate::types::triplet::{LmrTriplet, RmrTriplet};

/// One RDMA write or read of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Rdma {
    /// What its event carries.
    pub cookie: u64,
    /// The bytes to write, or where those that are read go.
    pub local: LmrTriplet,
    /// Where to, or from.
    pub remote: RmrTriplet,
}

/// One send or receive of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Message {
    /// What its event carries.
    pub cookie: u64,
    /// The bytes to send, or where those that are received go.
    pub local: LmrTriplet,
}

/// One bind of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmrBind {
    /// What its event carries.
    pub cookie: u64,
    /// The RMR.
    pub rmr: Rmr,
    /// What it opens; with length 0 it is unbound.
    pub range: LmrTriplet,
    /// To whom: the remote ones count.
    pub privileges: MemPriv,
    /// The new `rmr_context`, once it is posted.
    pub context: u32,
}

/// A list was posted only in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// How many of the list were posted: all those before the one that was refused.
    pub posted: usize,
    /// Why that one was refused.
    pub ret: DatReturn,
}

impl<P: Provider> Poster<P> {
    /// Posts the elements of a list by `post`, which leaves the doorbell, and rings once.
    #[inline(always)]
    pub(crate) fn post_each<T>(
        &mut self,
        shared: &Shared<'_>,
        near: &Near<'_>,
        list: impl Iterator<Item = T>,
        flags: CompletionFlags,
        mut post: impl FnMut(&mut Self, T, CompletionFlags) -> Result<(), DatReturn>,
    ) -> Result<(), Refused> {
        let deferred = flags.union(CompletionFlags::DEFER);
        let mut each = list.enumerate();
        let result = each.try_for_each(|(posted, one)| {
            post(self, one, deferred).map_err(|ret| Refused { posted, ret })
        });
        if !flags.contains(CompletionFlags::DEFER) {
            self.ring(near);
        }
        self.recheck(shared, near.ep, Direction::Send);
        result
    }

    #[inline(always)]
    pub(crate) fn post_sends<'s>(
        &mut self,
        shared: &Shared<'s>,
        near: &Near<'s>,
        list: &[impl Borrow<Message>],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let list = list.iter().map(Borrow::borrow);
        self.post_each(shared, near, list, flags, |poster, one: &Message, flags| {
            let local = slice::from_ref(&one.local);
            poster.post(shared, near, || WorkRequest::Send, local, one.cookie, flags)
        })
    }

    #[inline(always)]
    pub(crate) fn post_rdma_reads<'s>(
        &mut self,
        shared: &Shared<'s>,
        near: &Near<'s>,
        list: &[impl Borrow<Rdma>],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let list = list.iter().map(Borrow::borrow);
        self.post_each(shared, near, list, flags, |poster, one: &Rdma, flags| {
            let (work, local) = (|| WorkRequest::Read(&one.remote), slice::from_ref(&one.local));
            poster.post(shared, near, work, local, one.cookie, flags)
        })
    }

    #[inline(always)]
    pub(crate) fn rmr_binds<'s>(
        &mut self,
        shared: &Shared<'s>,
        near: &Near<'s>,
        list: &mut [RmrBind],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        self.post_each(shared, near, list.iter_mut(), flags, |poster, one, flags| {
            let &mut RmrBind { cookie, rmr, range, privileges, .. } = one;
            let binding = Binding { rmr, range, privileges, va_type: VaType::Va };
            one.context = poster.rmr_bind(shared, near, binding, cookie, flags)?;
            Ok(())
        })
    }
}

impl<P: Provider> EpPoster<'_, P> {
    /// Posts sends in order, under one doorbell; the flags are those of each. Extension.
    ///
    /// The first that is refused ends it: those before it are posted, it and those behind it are
    /// not. Endpoint and errors as for [`EpPoster::post_send`]. An element of the list may carry
    /// more than the send: whatever lends one. With [`CompletionFlags::DEFER`] the doorbell is left
    /// to a later post.
    #[inline]
    pub fn post_sends(
        &mut self,
        list: &[impl Borrow<Message>],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        self.poster.post_sends(&self.shared, &self.near, list, flags)
    }

    /// As [`EpPoster::post_sends`], RDMA reads, with the errors of [`EpPoster::post_rdma_read`].
    #[inline]
    pub fn post_rdma_reads(
        &mut self,
        list: &[impl Borrow<Rdma>],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        self.poster.post_rdma_reads(&self.shared, &self.near, list, flags)
    }

    /// As [`EpPoster::post_sends`], binds, with the errors of [`EpPoster::rmr_bind`]. Each element
    /// that is posted has its new context in it.
    #[inline]
    pub fn rmr_binds(
        &mut self,
        list: &mut [RmrBind],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        self.poster.rmr_binds(&self.shared, &self.near, list, flags)
    }
}
