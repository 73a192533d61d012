//! Key edits of a queue: rules of the card, fence, translation, and the edit itself.

use super::device::{Device, Owner};
use super::mkey::Mode;
use super::umr::{Poster, Refused, Rules, Source, Umr};
use crate::bus::Bus;
use crate::facts::OpenFact;
use crate::transport::host::{DataSegment, Syndrome, UmrWqe};

impl Device<'_> {
    /// Carries out a UMR for a queue.
    pub(crate) fn umr_for(
        &mut self,
        owner: Owner,
        privileged: bool,
        wqe: &UmrWqe,
    ) -> Result<(), Syndrome> {
        if !self.umr && !privileged {
            return Err(Syndrome::LocalQpOperation);
        }
        let refused = |bus: &mut Bus, why: Refused| {
            let (qpn, key) = (owner.qpn, wqe.mkey);
            bus.complain(format!("queue {qpn:#x}: edit of key {key:#x} refused: {why}"));
            Syndrome::MwBind
        };
        let umr = Umr::parse(&wqe.segments).map_err(|why| refused(self.bus, why))?;
        let translation = match &umr.source {
            Source::None => Vec::new(),
            Source::Inline(bytes) => bytes.clone(),
            Source::Pointer(len, lkey, addr) => {
                let mut bytes = vec![0; *len as usize];
                let from = [DataSegment { len: *len, lkey: *lkey, addr: *addr }];
                self.gather_for(owner, &from, 0, &mut bytes)?;
                bytes
            }
        };
        let on = |fact| self.facts.value(fact) == Some(1);
        let rules = Rules {
            entity_size_fixed: on(OpenFact::UmrEntitySize),
            atomic_fixed: on(OpenFact::UmrAtomic),
            no_indirect: on(OpenFact::UmrIndirect),
            relaxed_write_fixed: !self.relaxed_umr.0,
            relaxed_read_fixed: !self.relaxed_umr.1,
            entry_bits: on(OpenFact::UmrEntryBits),
        };
        let poster = Poster { qpn: owner.qpn, pd: owner.pd, privileged, rules };
        let pages = self.objects.tpt.get(wqe.mkey >> 8).is_some_and(|key| key.mode == Mode::Mtt);
        if pages && !privileged && !self.fenced(wqe.fence) {
            let (qpn, fence) = (owner.qpn, wqe.fence);
            self.bus.complain(format!(
                "queue {qpn:#x}: a registration with fence mode {fence}, umr_fence asks for more"
            ));
        }
        umr.apply(&mut self.objects.tpt, wqe.mkey >> 8, poster, &translation)
            .map_err(|why| refused(self.bus, why))
    }

    /// Whether a fence mode is what `umr_fence` asks for: strong, small or none.
    fn fenced(&self, mode: u8) -> bool {
        match self.facts.value(OpenFact::UmrFence) {
            Some(0) => mode == 3,
            Some(1) => matches!(mode, 1 | 3 | 4),
            _ => true,
        }
    }
}
