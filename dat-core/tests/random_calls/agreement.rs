//! Agreement of Endpoints that share an Event Dispatcher on which completions notify.

use dat_core::*;

use crate::model::SideM;
use crate::verdict::Verdict;

/// Returns the flag that decides which completions notify.
fn decider(flags: CompletionFlags) -> u32 {
    [CompletionFlags::UNSIGNALLED, CompletionFlags::SOLICITED_WAIT]
        .iter()
        .position(|flag| flags.contains(*flag))
        .map_or(0, |at| at as u32 + 1)
}

impl SideM {
    /// All DTO streams of an EVD have one decider, and if that is not the default one, it has no
    /// other streams.
    pub(crate) fn agreement(
        &self,
        verdict: Verdict,
        own: Option<Ep>,
        [recv, request, connect]: [Option<Evd>; 3],
        attr: &EpAttr,
    ) -> Verdict {
        let mine = [
            (recv, decider(attr.recv_completion_flags)),
            (request, decider(attr.request_completion_flags)),
        ];
        let others = self.eps.iter().filter(|m| Some(m.ep) != own);
        let deciders = |evd: Evd| {
            let theirs = others.clone().flat_map(|m| {
                [
                    (m.recv, decider(m.attr.recv_completion_flags)),
                    (m.request, decider(m.attr.request_completion_flags)),
                ]
            });
            let all = theirs.chain(mine);
            all.filter(move |(at, _)| *at == Some(evd)).map(|(_, decider)| decider)
        };
        let fed_besides = |evd: Evd| {
            connect == Some(evd)
                || others.clone().any(|m| m.connect == Some(evd))
                || self.points.iter().any(|m| m.evd == evd)
        };
        let torn = [recv, request].into_iter().flatten().any(|evd| {
            let first = deciders(evd).next().unwrap_or(0);
            deciders(evd).any(|d| d != first) || first != 0 && fed_besides(evd)
        });
        let misplaced = connect.is_some_and(|evd| deciders(evd).any(|d| d != 0));
        verdict.no(torn || misplaced, DatType::InvalidParameter)
    }
}
