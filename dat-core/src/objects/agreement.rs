//! Which streams may share an Event Dispatcher: dat_ep_create(3), "Usage".
//!
//! Any may be merged, but who decides which completions notify (everybody does by default) is one
//! for all of an Event Dispatcher; and if it is not the default, nothing but DTO and RMR bind
//! streams may feed it.

use crate::objects::Objects;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::ep_attr::EpAttr;
use crate::types::flags::CompletionFlags;
use crate::types::handle::{Ep, Evd};

/// Of completion flags what decides who decides: nothing by default.
fn kind(flags: CompletionFlags) -> CompletionFlags {
    if flags.contains(CompletionFlags::UNSIGNALLED) {
        CompletionFlags::UNSIGNALLED
    } else {
        flags & CompletionFlags::SOLICITED_WAIT
    }
}

const DISAGREE: Error = Error::new(DatType::InvalidParameter, DatSubtype::None);

impl Objects<'_> {
    /// Whether an Endpoint's streams (`ep`'s, if it exists already) agree with each other and with
    /// all that feed the same Event Dispatchers: else `INVALID_PARAMETER`.
    pub(crate) fn streams_agree(
        &self,
        ep: Option<Ep>,
        [recv, request, connect]: [Option<Evd>; 3],
        attr: &EpAttr,
    ) -> Result<(), Error> {
        let streams = [
            (recv, kind(attr.recv_completion_flags)),
            (request, kind(attr.request_completion_flags)),
        ];
        for (index, &(evd, kind_here)) in streams.iter().enumerate() {
            let Some(evd) = evd else { continue };
            let own = streams.get(1 - index);
            let clash = own.is_some_and(|(other, kind)| *other == Some(evd) && *kind != kind_here)
                || (!kind_here.is_empty() && connect == Some(evd))
                || self.clashes(ep, evd, kind_here);
            if clash {
                return Err(DISAGREE);
            }
        }
        match connect {
            Some(evd) if self.dto_kind(ep, evd).is_some_and(|kind| !kind.is_empty()) => {
                Err(DISAGREE)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether something else that feeds `evd` does not go with a stream of that kind.
    fn clashes(&self, ep: Option<Ep>, evd: Evd, kind: CompletionFlags) -> bool {
        let others = || {
            self.eps
                .iter()
                .any(|(handle, other)| Some(Ep(handle)) != ep && other.connect_evd == Some(evd))
                || self.psps.iter().any(|(_, psp)| psp.evd == evd)
                || self.rsps.iter().any(|(_, rsp)| rsp.evd == evd)
                || self.csps.iter().any(|(_, csp)| csp.evd == evd)
        };
        self.dto_kind(ep, evd).is_some_and(|other| other != kind) || (!kind.is_empty() && others())
    }

    /// The kind of the DTO streams of other Endpoints that feed `evd`, if there are any.
    fn dto_kind(&self, ep: Option<Ep>, evd: Evd) -> Option<CompletionFlags> {
        self.eps.iter().find_map(|(handle, other)| {
            if Some(Ep(handle)) == ep {
                None
            } else if other.recv_evd == Some(evd) {
                Some(kind(other.attr.recv_completion_flags))
            } else {
                (other.request_evd == Some(evd)).then(|| kind(other.attr.request_completion_flags))
            }
        })
    }

    /// Who decides which completions on it notify: of the Endpoints that use it, which agree.
    pub(crate) fn completion_type(&self, evd: Evd) -> CompletionFlags {
        let of = |flags: CompletionFlags, used: Option<Evd>| {
            let kind = kind(flags);
            (used == Some(evd) && !kind.is_empty()).then_some(kind)
        };
        let found = self.eps.iter().find_map(|(_, ep)| {
            of(ep.attr.recv_completion_flags, ep.recv_evd)
                .or_else(|| of(ep.attr.request_completion_flags, ep.request_evd))
        });
        found.unwrap_or_default()
    }
}
