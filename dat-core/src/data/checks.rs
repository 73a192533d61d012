//! What each kind of DTO is held to, a row for each, and the checks that all of them pass beside
//! the straight way.

use crate::data::general::{LENGTH, NOT_SERVED, PARAMETER, Segments};
use crate::data::poster::{Limits, Poster};
use crate::data::shared::ep::EpShared;
use crate::data::shared::lmr::Refusal;
use crate::data::shared::request::Op;
use crate::data::shared::{Near, Shared, lmr};
use crate::provider::{Provider, Segment};
use crate::types::counters::EpCounter;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::ep_state::{EpOp, EpState, Outcome, outcome};
use crate::types::flags::{CompletionFlags, MemPriv};
use crate::types::triplet::LmrTriplet;

/// A kind of DTO.
pub(crate) struct Kind {
    pub(crate) op: Op,
    pub(crate) counter: EpCounter,
    /// What the local memory must grant, and the subtypes of its two refusals.
    need: MemPriv,
    privileges: DatSubtype,
    protection: DatSubtype,
    /// Subtypes of bad flags and of a bad far end: their places among the arguments.
    flags: DatSubtype,
    pub(crate) far: DatSubtype,
    /// Whether the queue pair serves it at all.
    served: fn(&Limits) -> bool,
    /// Most segments, and most bytes.
    segments: fn(&Limits) -> u8,
    longest: fn(&Limits) -> u32,
}

pub(crate) const SEND: Kind = Kind {
    op: Op::Send,
    counter: EpCounter::PostSend,
    need: MemPriv::LOCAL_READ,
    privileges: DatSubtype::PrivilegesRead,
    protection: DatSubtype::ProtectionRead,
    flags: DatSubtype::InvalidArg5,
    far: DatSubtype::None,
    served: |limits| !limits.datagram,
    segments: |limits| limits.request_segments,
    longest: |limits| limits.max_message,
};

pub(crate) const SEND_INVALIDATE: Kind = Kind { far: DatSubtype::InvalidArg7, ..SEND };

pub(crate) const SEND_UD: Kind = Kind {
    op: Op::SendUd,
    counter: EpCounter::PostSendUd,
    flags: DatSubtype::InvalidArg6,
    far: DatSubtype::InvalidArg3,
    served: |limits| limits.datagram,
    longest: |limits| limits.max_rdma,
    ..SEND
};

pub(crate) const WRITE: Kind = Kind {
    op: Op::RdmaWrite,
    counter: EpCounter::PostWrite,
    privileges: DatSubtype::PrivilegesRdmaWrite,
    protection: DatSubtype::ProtectionRdmaWrite,
    flags: DatSubtype::InvalidArg6,
    segments: |limits| limits.write_segments,
    longest: |limits| limits.max_rdma,
    ..SEND
};

pub(crate) const WRITE_IMMED: Kind = Kind {
    op: Op::WriteImmed,
    counter: EpCounter::PostWriteImm,
    far: DatSubtype::InvalidArg4,
    ..WRITE
};

pub(crate) const READ: Kind = Kind {
    op: Op::RdmaRead,
    counter: EpCounter::PostRead,
    need: MemPriv::LOCAL_WRITE,
    privileges: DatSubtype::PrivilegesRdmaRead,
    protection: DatSubtype::ProtectionRdmaRead,
    flags: DatSubtype::InvalidArg6,
    segments: |limits| limits.read_segments,
    longest: |limits| limits.max_rdma,
    ..SEND
};

pub(crate) const FETCH_ADD: Kind = Kind {
    op: Op::FetchAdd,
    counter: EpCounter::PostFetchAdd,
    far: DatSubtype::InvalidArg5,
    served: |limits| limits.atomics && !limits.datagram,
    segments: |_| 1,
    ..READ
};

pub(crate) const CMP_SWAP: Kind = Kind {
    op: Op::CmpSwap,
    counter: EpCounter::PostCmpSwap,
    flags: DatSubtype::InvalidArg7,
    far: DatSubtype::InvalidArg6,
    ..FETCH_ADD
};

pub(crate) const RECV: Kind = Kind {
    counter: EpCounter::PostRecv,
    need: MemPriv::LOCAL_WRITE,
    privileges: DatSubtype::PrivilegesWrite,
    protection: DatSubtype::ProtectionWrite,
    served: |limits| !limits.shared,
    segments: |limits| limits.recv_segments,
    longest: |limits| limits.max_receive,
    ..SEND
};

impl Kind {
    /// What it is to the table of the Endpoint's states.
    fn stimulus(&self) -> EpOp {
        if self.counter == EpCounter::PostRecv { EpOp::PostRecv } else { EpOp::PostRequest }
    }

    /// Flags that it may not carry.
    fn barred(&self, limits: &Limits) -> CompletionFlags {
        if self.counter == EpCounter::PostRecv {
            limits.barred_recv()
        } else {
            limits.barred_request()
        }
    }
}

impl<P: Provider> Poster<P> {
    /// Whether a DTO of that kind may be posted at all: the state, its bytes, and whether the host
    /// could read all of them itself.
    pub(super) fn checked(
        &self,
        shared: &Shared<'_>,
        near: &Near<'_>,
        kind: &Kind,
        segments: &[LmrTriplet],
        flags: CompletionFlags,
        list: &mut Segments,
    ) -> Result<(EpState, u32, bool), DatReturn> {
        let limits = &self.limits;
        let state = admit(near.ep, kind.stimulus())?;
        if !(kind.served)(limits) {
            return Err(NOT_SERVED);
        }
        if flags.intersects(kind.barred(limits)) {
            return Err(DatReturn::new(PARAMETER, kind.flags));
        }
        if segments.len() > usize::from((kind.segments)(limits)) {
            return Err(DatReturn::new(PARAMETER, DatSubtype::InvalidArg2));
        }
        let (total, own) = check(shared, limits.zone, kind, segments, list)?;
        match u32::try_from(total) {
            Ok(len) if len <= (kind.longest)(limits) => Ok((state, len, own)),
            Ok(_) | Err(_) => Err(LENGTH),
        }
    }
}

/// Every segment against its LMR, for who is of `owner`'s zone; empty ones drop out. How many bytes
/// they are, and whether the host could read all itself.
pub(crate) fn check(
    shared: &Shared<'_>,
    owner: u64,
    kind: &Kind,
    segments: &[LmrTriplet],
    list: &mut Segments,
) -> Result<(u64, bool), DatReturn> {
    let (mut total, mut own) = (0_u64, true);
    for triplet in segments.iter().filter(|triplet| triplet.len != 0) {
        let unknown = DatReturn::new(DatType::PrivilegesViolation, kind.privileges);
        let lmr = lmr::find(shared.lmrs, triplet.context).ok_or(unknown)?;
        let (lkey, of_host) =
            lmr.any(triplet, owner, kind.need).map_err(|refusal| match refusal {
                Refusal::Context | Refusal::Privilege => unknown,
                Refusal::Zone => DatReturn::new(DatType::ProtectionViolation, kind.protection),
                Refusal::Range => DatReturn::new(PARAMETER, DatSubtype::InvalidArg3),
            })?;
        own &= of_host;
        total += u64::from(triplet.len);
        let segment = Segment { addr: triplet.addr, len: triplet.len, lkey };
        if list.push(segment).is_err() {
            return Err(DatReturn::new(PARAMETER, DatSubtype::InvalidArg2));
        }
    }
    Ok((total, own))
}

/// The state, if it admits the post at all.
pub(crate) fn admit(ep: &EpShared, op: EpOp) -> Result<EpState, DatReturn> {
    let state = ep.state();
    match outcome(state, op) {
        Outcome::Refuse(ret) => Err(ret),
        Outcome::Stay | Outcome::Ignore | Outcome::Gone | Outcome::Go { .. } => Ok(state),
    }
}
