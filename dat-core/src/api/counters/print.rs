//! dat_print_counters: counters as lines of text, to wherever the consumer writes.

use core::fmt::Write;

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::counters::{EpCounter, EvdCounter, IaCounter};
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::handle::{Ep, Evd};

/// The consumer's sink took no more.
const CUT: Error = Error::new(DatType::InsufficientResources, DatSubtype::ResourceMemory);

/// A line for each counter that is not 0.
fn lines<'a>(
    out: &mut dyn Write,
    counters: impl Iterator<Item = (&'static str, &'a u64)>,
) -> Result<(), Error> {
    for (name, count) in counters {
        if *count != 0 {
            writeln!(out, "{name:24}{count:>20}").map_err(|_| CUT)?;
        }
    }
    Ok(())
}

impl<P: Provider> Ia<'_, P> {
    /// Writes the counters of the Interface Adapter that are not 0, a line each. Errors as for
    /// [`Ia::ia_query_counters`], and `INSUFFICIENT_RESOURCES` if `out` takes no more.
    #[doc(alias = "dat_print_counters")]
    pub fn ia_print_counters(&mut self, out: &mut dyn Write, reset: bool) -> Result<(), Error> {
        let counted = self.ia_query_counters(reset)?;
        lines(out, IaCounter::ALL.map(IaCounter::name).into_iter().zip(&counted))
    }

    /// The same of an Endpoint.
    #[doc(alias = "dat_print_counters")]
    pub fn ep_print_counters(
        &mut self,
        ep: Ep,
        out: &mut dyn Write,
        reset: bool,
    ) -> Result<(), Error> {
        let counted = self.ep_query_counters(ep, reset)?;
        lines(out, EpCounter::ALL.map(EpCounter::name).into_iter().zip(&counted))
    }

    /// The same of an Event Dispatcher.
    #[doc(alias = "dat_print_counters")]
    pub fn evd_print_counters(
        &mut self,
        evd: Evd,
        out: &mut dyn Write,
        reset: bool,
    ) -> Result<(), Error> {
        let counted = self.evd_query_counters(evd, reset)?;
        lines(out, EvdCounter::ALL.map(EvdCounter::name).into_iter().zip(&counted))
    }
}
