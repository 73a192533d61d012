//! Counters of an Interface Adapter: dat_query_counters(3), of the extensions.

use crate::engine::Ia;
use crate::engine::counters::{All, CounterType, LINK};
use crate::objects::table::Table;
use crate::provider::{HcaCounters, Provider};
use crate::types::counters::IaCounter;
use crate::types::dat_return::Error;

/// How many of them were made, and how many of these are gone.
fn made_and_freed<T>(table: &Table<'_, T>) -> (u64, u64) {
    let made = table.made();
    (made, made.saturating_sub(table.len().into()))
}

impl<P: Provider> Ia<'_, P> {
    /// All counters of the Interface Adapter, in the order of [`IaCounter`]; with `reset` they
    /// start over.
    ///
    /// Asks the device, whose refusal is the error.
    #[doc(alias = "dat_query_counters")]
    pub fn ia_query_counters(&mut self, reset: bool) -> Result<[u64; IaCounter::COUNT], Error> {
        let counted = self.counted()?;
        let shown = self.counters.shown(&counted);
        if reset {
            self.counters.restart(0..IaCounter::COUNT, &counted);
        }
        Ok(shown)
    }

    /// One counter of the Interface Adapter; with `reset` it starts over.
    #[doc(alias = "dat_query_counters")]
    pub fn ia_query_counter(&mut self, counter: IaCounter, reset: bool) -> Result<u64, Error> {
        let (at, counted) = (counter as usize, self.counted()?);
        let shown = self.counters.shown(&counted).get(at).copied();
        if reset {
            self.counters.restart(at..at + 1, &counted);
        }
        Ok(shown.unwrap_or_default())
    }

    /// Counters of that type count from now on, from 0.
    #[doc(alias = "dat_ib_start_counters")]
    pub fn ia_start_counters(&mut self, of: CounterType) -> Result<(), Error> {
        let counted = self.counted()?;
        self.set_stopped(of, false);
        self.counters.restart(of.range(), &counted);
        Ok(())
    }

    /// Counters of that type stand still from now on. No effect on those that do already.
    #[doc(alias = "dat_ib_stop_counters")]
    pub fn ia_stop_counters(&mut self, of: CounterType) -> Result<(), Error> {
        let counted = self.counted()?;
        let shown = self.counters.shown(&counted);
        self.set_stopped(of, true);
        for at in of.range() {
            if let (Some(base), Some(shown)) = (self.counters.base.get_mut(at), shown.get(at)) {
                *base = *shown;
            }
        }
        Ok(())
    }

    fn set_stopped(&mut self, of: CounterType, stopped: bool) {
        if let Some(place) = self.counters.stopped.get_mut(of as usize) {
            *place = stopped;
        }
    }

    /// Everything since the adapter was opened.
    pub(crate) fn counted(&mut self) -> Result<All, Error> {
        let HcaCounters { link, diag } = self.hca.counters()?;
        let mut all = self.counters.own;
        let mut put = |counter: IaCounter, count: u64| {
            if let Some(place) = all.get_mut(counter as usize) {
                *place = count;
            }
        };
        for (create, free, (made, gone)) in [
            (IaCounter::PzCreate, IaCounter::PzFree, made_and_freed(&self.objects.pzs)),
            (IaCounter::LmrCreate, IaCounter::LmrFree, made_and_freed(&self.objects.lmrs)),
            (IaCounter::RmrCreate, IaCounter::RmrFree, made_and_freed(&self.objects.rmrs)),
            (IaCounter::EvdCreate, IaCounter::EvdFree, made_and_freed(&self.events.evds)),
            (IaCounter::EpCreate, IaCounter::EpFree, made_and_freed(&self.objects.eps)),
            (IaCounter::RspCreate, IaCounter::RspFree, made_and_freed(&self.objects.rsps)),
            (IaCounter::SrqCreate, IaCounter::SrqFree, made_and_freed(&self.objects.srqs)),
        ] {
            put(create, made);
            put(free, gone);
        }
        let (listening, silent) = made_and_freed(&self.objects.psps);
        let any = self.counters.own.get(IaCounter::PspCreateAny as usize);
        put(IaCounter::PspCreate, listening.wrapping_sub(any.copied().unwrap_or_default()));
        put(IaCounter::PspFree, silent);
        let others =
            made_and_freed(&self.objects.rsps).0.wrapping_add(made_and_freed(&self.objects.csps).0);
        put(IaCounter::CmListen, listening.wrapping_add(others));
        put(IaCounter::SpCr, made_and_freed(&self.objects.crs).0);
        for (place, count) in all.iter_mut().skip(LINK).zip(link.into_iter().chain(diag)) {
            *place = count;
        }
        Ok(all)
    }
}
