//! dat_cno_trigger(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::DatReturn;
use crate::types::handle::{Cno, Evd};

impl<P: Provider> Ia<'_, P> {
    /// The Event Dispatcher that triggered the CNO, which is untriggered again; `QUEUE_EMPTY` if
    /// none did. For a program that the descriptor woke, and that does not want to wait.
    #[doc(alias = "dat_cno_trigger")]
    pub fn cno_trigger(&mut self, cno: Cno) -> Result<Evd, DatReturn> {
        self.events.take_hint(cno)?.ok_or(DatReturn::QUEUE_EMPTY)
    }
}
