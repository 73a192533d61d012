//! Posting of window binds: the fast path for a range of one LMR on an open Endpoint, and the slow
//! path.

use core::sync::atomic::Ordering;

use crate::data::poster::{BIND, Poster, kick};
use crate::data::shared::lmr::{GENERAL, NO_CONTEXT, Refusal, RmrShared, ZERO_BASED};
use crate::data::shared::request::Request;
use crate::data::shared::window::{give_to, release};
use crate::data::shared::{Near, Shared, lmr};
use crate::data::validate::PARAMETER;
use crate::provider::{Bind, MAX_WINDOW, PostFlags, Provider, Scope, SendQueue, WorkRequest};
use crate::types::completion::Direction;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::ep_state::{BIND_OPEN, EpOp, EpState};
use crate::types::flags::{CompletionFlags, MemPriv, VaType};
use crate::types::handle::{Handle, Rmr};
use crate::types::triplet::LmrTriplet;

/// The range is not in the LMR, or longer than a window can be.
const OUT_OF_RANGE: DatReturn = DatReturn::new(PARAMETER, DatSubtype::InvalidArg3);

/// What a bind is of.
#[derive(Clone, Copy)]
pub(crate) struct Binding {
    pub(crate) rmr: Rmr,
    /// Length 0 unbinds.
    pub(crate) range: LmrTriplet,
    pub(crate) privileges: MemPriv,
    pub(crate) va_type: VaType,
}

impl Binding {
    /// What the LMR must grant: the local right that goes with each remote one.
    #[inline(always)]
    fn need(self) -> MemPriv {
        const {
            assert!(MemPriv::REMOTE_READ.bits() >> 1 == MemPriv::LOCAL_READ.bits());
            assert!(MemPriv::REMOTE_WRITE.bits() >> 1 == MemPriv::LOCAL_WRITE.bits());
        }
        MemPriv::from_bits_retain((self.privileges.bits() & MemPriv::REMOTE.bits()) >> 1)
    }

    /// The RMR's part, if it exists.
    #[inline(always)]
    fn window<'s>(self, shared: &Shared<'s>) -> Option<&'s RmrShared> {
        let window = shared.rmrs.get(self.rmr.0.index() as usize)?;
        window.is(self.rmr).then_some(window)
    }
}

impl<P: Provider> Poster<P> {
    /// Posts a bind, or with length 0 an unbind; see [`crate::objects::rmr`].
    #[inline(always)]
    pub(crate) fn rmr_bind<'s>(
        &mut self,
        shared: &Shared<'s>,
        near: &Near<'s>,
        binding: Binding,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<u32, DatReturn> {
        // One compare for both ends: of a range that is not empty and not longer than a window.
        const { assert!(MAX_WINDOW == i32::MAX.unsigned_abs()) }
        if 0_i32.wrapping_add_unsigned(binding.range.len) > 0 {
            if let Some(sequence) = self.admits::<BIND_OPEN>(near.ep, flags) {
                if let Some((window, lkey)) = self.fast_bind(shared, near, binding) {
                    let (tag, post_flags) = self.build_tag(&BIND, flags, false);
                    let len = binding.rmr.0.index();
                    let request = Request { cookie, len, tag };
                    if self.publish(near.ep, near.requests, sequence, request) {
                        window.add_bind(near.ep.request.handle().raw());
                        let lkey = Some(lkey);
                        let key =
                            self.bind(shared, window, binding, lkey, Scope::Domain, post_flags);
                        self.recheck(shared, near.ep, Direction::Send);
                        return Ok(key);
                    }
                }
            }
        }
        // In pieces, which fit into registers: passed whole, the binding would be stored to memory
        // on the fast path too.
        let Binding { rmr, range, privileges, va_type } = binding;
        let how = (privileges, va_type);
        self.bind_slow(shared, near, rmr, range, how, cookie, flags)
    }

    /// The RMR of a bind that opens a range and the lkey of its LMR; `None` sends the post to the
    /// slow path.
    #[inline(always)]
    fn fast_bind<'s>(
        &self,
        shared: &Shared<'s>,
        near: &Near<'s>,
        binding: Binding,
    ) -> Option<(&'s RmrShared, u32)> {
        let window = binding.window(shared)?;
        if lmr::zone(window.pz.load(Ordering::Relaxed)) != self.core.zone {
            return None;
        }
        let range = near.range(shared, binding.range.context, self.core.zone, binding.need())?;
        Some((window, range.lkey_for(&binding.range)?))
    }

    /// Notes what the window is bound to from now on, and posts the bind; its new key.
    #[inline(always)]
    fn bind(
        &mut self,
        shared: &Shared<'_>,
        window: &RmrShared,
        binding: Binding,
        lkey: Option<u32>,
        scope: Scope,
        flags: PostFlags,
    ) -> u32 {
        let (range, privileges) = (binding.range, binding.privileges);
        let addr = if lkey.is_some() { range.addr } else { 0 };
        let (mut lkey, mut context) = lkey.map_or((0, NO_CONTEXT), |lkey| (lkey, range.context));
        // The window's hold on the LMR it was bound to passes to the LMR it is bound to now; most
        // often it is the same.
        if window.lmr_context.load(Ordering::Relaxed) != context {
            let region = lmr::find(shared.lmrs, context);
            if region.is_some_and(|region| !region.hold(context)) {
                // Freed since it was looked up: the device refuses a bind without a key beneath.
                (lkey, context) = (0, NO_CONTEXT);
            }
            release(shared, window.lmr_context.swap(context, Ordering::Relaxed));
        }
        let (old_rkey, new_rkey) = window.keys(shared.order);
        window.rkey.store(new_rkey, Ordering::Relaxed);
        window.addr.store(range.addr, Ordering::Relaxed);
        window.len.store(range.len, Ordering::Relaxed);
        let based = match binding.va_type {
            VaType::Va => 0,
            VaType::Zb => ZERO_BASED,
        };
        window.privileges.store(privileges.bits() | based, Ordering::Relaxed);
        let bind = Bind {
            old_rkey,
            new_rkey,
            lkey,
            addr,
            start: binding.va_type.start(range.addr),
            len: u64::from(range.len),
            access: (privileges & MemPriv::REMOTE).access(),
            scope,
        };
        self.sq.post(WorkRequest::Bind(&bind), &[], flags);
        new_rkey
    }

    /// Posts any bind, or says why not.
    #[cold]
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "a binding, in pieces")]
    pub(crate) fn bind_slow(
        &mut self,
        shared: &Shared<'_>,
        near: &Near<'_>,
        rmr: Rmr,
        range: LmrTriplet,
        (privileges, va_type): (MemPriv, VaType),
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<u32, DatReturn> {
        let binding = Binding { rmr, range, privileges, va_type };
        let stale = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleRmr);
        let window = binding.window(shared).ok_or(stale)?;
        let ep = near.ep;
        let state = self.admit(ep, EpOp::PostRequest, &BIND, flags)?;
        if lmr::zone(window.pz.load(Ordering::Relaxed)) & !GENERAL != self.core.zone {
            return Err(DatReturn::of(DatType::ProtectionViolation));
        }
        let own = near.ep.request.handle().raw();
        let scope = if window.is_for_ep() {
            let bound = window.bound().is_some();
            let busy = bound || window.binds.load(Ordering::SeqCst) != 0;
            let holder = window.holder();
            if holder != own && (busy || holder != 0 && !is_whole(shared, holder)) {
                return Err(DatReturn::of(DatType::InvalidState));
            }
            Scope::QueuePair { bound }
        } else {
            Scope::Domain
        };
        let lkey = if range.len == 0 {
            None
        } else {
            let need = binding.need();
            let missing = if need.contains(MemPriv::LOCAL_WRITE) {
                DatSubtype::PrivilegesRdmaWrite
            } else {
                DatSubtype::PrivilegesRdmaRead
            };
            let privilege = DatReturn::new(DatType::PrivilegesViolation, missing);
            let region = lmr::find(shared.lmrs, range.context).ok_or(privilege)?;
            let found = region.any(&range, self.core.zone, need);
            let (lkey, _) = found.map_err(|refusal| match refusal {
                Refusal::Context | Refusal::Privilege => privilege,
                Refusal::Zone => DatReturn::of(DatType::ProtectionViolation),
                Refusal::Range => OUT_OF_RANGE,
            })?;
            if region.is_everything() {
                return Err(DatReturn::of(DatType::ReservedLmr));
            }
            if range.len > MAX_WINDOW {
                return Err(OUT_OF_RANGE);
            }
            Some(lkey)
        };
        self.take_credit(ep)?;
        let post_flags = self.enqueue(near, &BIND, (cookie, rmr.0.index()), flags, false)?;
        window.add_bind(near.ep.request.handle().raw());
        if state.is_disconnected() {
            kick(shared, self.ep, ep, Direction::Send);
            return Ok(window.keys(shared.order).1);
        }
        if scope != Scope::Domain {
            give_to(shared, window, own);
        }
        let key = self.bind(shared, window, binding, lkey, scope, post_flags);
        self.recheck(shared, near.ep, Direction::Send);
        Ok(key)
    }
}

/// Whether the Endpoint of that handle is connected and nothing of it has failed: what it unbound
/// is unbound. If it is not, its last unbind may have been flushed, and the device may still have
/// the window bound there until the Endpoint is reset.
fn is_whole(shared: &Shared<'_>, ep: u64) -> bool {
    shared.ep(Handle::from_raw(ep).index()).is_some_and(|line| {
        line.request.handle().raw() == ep
            && line.state() == EpState::Connected
            && line.poster.trouble.load(Ordering::Acquire) == 0
    })
}
