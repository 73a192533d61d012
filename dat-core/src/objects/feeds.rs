//! Which streams feed each Event Dispatcher.

use crate::objects::Events;
use crate::objects::streams::{Stream, Streams};
use crate::types::flags::CompletionFlags;
use crate::types::handle::Evd;

impl Events<'_> {
    /// Who decides which completions on it notify: of the Endpoints that use it.
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
