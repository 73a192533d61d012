//! dat_psp_create_any(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::counters::IaCounter;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::flags::PspFlag;
use crate::types::handle::{Evd, Psp};

/// The qualifiers given out: the ports that no service registers.
const FIRST: u16 = 0xc000;
const COUNT: u16 = 0x3fff;

impl<P: Provider> Ia<'_, P> {
    /// Listens on a free qualifier, and says which. Errors as for
    /// [`Ia::psp_create`](Self::psp_create), and `CONN_QUAL_UNAVAILABLE`.
    #[doc(alias = "dat_psp_create_any")]
    pub fn psp_create_any(&mut self, evd: Evd, flag: PspFlag) -> Result<(Psp, u64), Error> {
        let start = u16::try_from(self.random.next_u32() & 0x3fff).unwrap_or(0);
        let free = (0..=COUNT)
            .map(|i| FIRST | (start.wrapping_add(i) & COUNT))
            .find(|&port| self.objects.listener(port).is_none())
            .ok_or(Error::new(DatType::ConnQualUnavailable, DatSubtype::None))?;
        let conn_qual = u64::from(free);
        let psp = self.psp_create(conn_qual, evd, flag)?;
        self.counters.count(IaCounter::PspCreateAny);
        Ok((psp, conn_qual))
    }
}
