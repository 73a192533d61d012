//! Which streams may share an Event Dispatcher: dat_ep_create(3), "Usage".
//!
//! Any may be merged, but who decides which completions notify (everybody does by default) is one
//! for all of an Event Dispatcher; and if it is not the default, nothing but DTO and RMR bind
//! streams may feed it.

use crate::objects::Events;
use crate::objects::streams::{EpStreams, Stream, Streams};
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::flags::CompletionFlags;
use crate::types::handle::Evd;

impl Events<'_> {
    /// Whether an Endpoint's streams, instead of those that it has, agree with each other and with
    /// all that feed the same Event Dispatchers: else `INVALID_PARAMETER`.
    pub(crate) fn streams_agree(&self, new: &EpStreams, old: &EpStreams) -> Result<(), Error> {
        for evd in new.iter().filter_map(|(evd, _)| *evd) {
            let of = |streams: &EpStreams| {
                streams.map(|(feeds, stream)| (feeds == Some(evd)).then_some(stream))
            };
            let mut all = self.evds.get(evd.0).map(|control| control.streams).unwrap_or_default();
            of(old).into_iter().flatten().for_each(|stream| all.drop(stream));
            of(new).into_iter().flatten().for_each(|stream| all.add(stream));
            if !all.agree() {
                return Err(Error::new(DatType::InvalidParameter, DatSubtype::None));
            }
        }
        Ok(())
    }

    /// Who decides which completions on it notify: of the Endpoints that use it, which agree.
    pub(crate) fn completion_type(&self, evd: Evd) -> CompletionFlags {
        let control = self.evds.get(evd.0);
        control.map(|control| control.streams.completion_type()).unwrap_or_default()
    }

    pub(crate) fn attach(&mut self, streams: &[(Option<Evd>, Stream)]) {
        self.each_stream(streams, Streams::add);
    }

    pub(crate) fn detach(&mut self, streams: &[(Option<Evd>, Stream)]) {
        self.each_stream(streams, Streams::drop);
    }

    fn each_stream(&mut self, streams: &[(Option<Evd>, Stream)], count: fn(&mut Streams, Stream)) {
        for (evd, stream) in streams {
            let Some(evd) = *evd else { continue };
            if let Some(control) = self.evds.get_mut(evd.0) {
                count(&mut control.streams, *stream);
            }
            // Which completions the device announces depends on them.
            self.look_at(evd);
        }
    }
}
