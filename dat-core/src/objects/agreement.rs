//! Which streams may share an Event Dispatcher: dat_ep_create(3), "Usage".
//!
//! Any may be merged, but who decides which completions notify (everybody does by default) is one
//! for all of an Event Dispatcher; and if it is not the default, nothing but DTO and RMR bind
//! streams may feed it.

use crate::objects::Events;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::ep_attr::EpAttr;
use crate::types::flags::CompletionFlags;
use crate::types::handle::Evd;

/// What an Event Dispatcher is fed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Completions that all notify.
    Dto,
    /// Completions whose requests say whether they notify.
    Unsignalled,
    /// Completions of which the peer says whether they notify.
    Solicited,
    /// Connection events, or connection requests.
    Connection,
}

impl Stream {
    /// Of completions with those flags.
    fn of(flags: CompletionFlags) -> Self {
        if flags.contains(CompletionFlags::UNSIGNALLED) {
            Self::Unsignalled
        } else if flags.contains(CompletionFlags::SOLICITED_WAIT) {
            Self::Solicited
        } else {
            Self::Dto
        }
    }
}

/// The streams of one Endpoint.
pub(crate) type EpStreams = [(Option<Evd>, Stream); 3];

/// The streams of an Endpoint with these Event Dispatchers: of receives, of requests, of its
/// connection.
pub(crate) fn ep_streams([recv, request, connect]: [Option<Evd>; 3], attr: &EpAttr) -> EpStreams {
    [
        (recv, Stream::of(attr.recv_completion_flags)),
        (request, Stream::of(attr.request_completion_flags)),
        (connect, Stream::Connection),
    ]
}

/// Those of an Endpoint that does not exist yet.
pub(crate) const NO_STREAMS: EpStreams = [(None, Stream::Connection); 3];

/// How many streams of each kind feed an Event Dispatcher.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Streams([u32; 4]);

impl Streams {
    pub(crate) fn add(&mut self, stream: Stream) {
        if let Some(count) = self.0.get_mut(stream as usize) {
            *count = count.saturating_add(1);
        }
    }

    pub(crate) fn drop(&mut self, stream: Stream) {
        if let Some(count) = self.0.get_mut(stream as usize) {
            *count = count.saturating_sub(1);
        }
    }

    /// Nothing feeds it.
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// All of them may feed the same one.
    fn agree(&self) -> bool {
        let [dto, unsignalled, solicited, connection] = self.0.map(|count| count != 0);
        match (unsignalled, solicited) {
            (false, false) => true,
            (true, true) => false,
            (true, false) | (false, true) => !dto && !connection,
        }
    }

    /// Who decides which completions notify; nothing by default.
    fn completion_type(&self) -> CompletionFlags {
        match self.0 {
            [_, 0, 0, _] => CompletionFlags::empty(),
            [_, 0, ..] => CompletionFlags::SOLICITED_WAIT,
            _ => CompletionFlags::UNSIGNALLED,
        }
    }
}

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
