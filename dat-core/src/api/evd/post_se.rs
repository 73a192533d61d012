//! dat_evd_post_se(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::event::{AsyncEvent, Event};
use crate::types::flags::EvdFlags;
use crate::types::handle::Evd;

impl<P: Provider> Ia<'_, P> {
    /// Queues a software event. `INVALID_PARAMETER` unless the Event Dispatcher takes software
    /// events; `QUEUE_FULL` when it is full, which is no overflow. Its arrival notifies as that
    /// of any other event.
    #[doc(alias = "dat_evd_post_se")]
    pub fn evd_post_se(&mut self, evd: Evd, pointer: u64) -> Result<(), Error> {
        let control = self.events.evd(evd, DatSubtype::InvalidHandle1)?;
        if !control.flags.contains(EvdFlags::SOFTWARE) {
            return Err(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg1));
        }
        if self.events.put(evd, Event::Software(pointer).encode()) {
            self.events.arrived(evd);
            Ok(())
        } else {
            Err(Error::new(DatType::QueueFull, DatSubtype::None))
        }
    }

    /// Queues an asynchronous error that came to the adapter's own async Event Dispatcher: for a
    /// host whose consumers share one adapter, and have an Event Dispatcher each. One that does
    /// not take that stream, or has no room, loses it.
    pub fn evd_pass_on(&mut self, evd: Evd, what: AsyncEvent) {
        let takes = EvdFlags::ASYNC;
        let willing =
            self.events.evds.get(evd.0).is_some_and(|control| control.flags.contains(takes));
        if willing && self.events.put(evd, Event::Async(what).encode()) {
            self.events.worked = true;
            self.events.arrived(evd);
        }
    }
}
