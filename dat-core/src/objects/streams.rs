//! What feeds Event Dispatchers: how many streams of each kind.
//!
//! Any may be together. dat_ep_create(3), "Usage", advises consumers to let one Event Dispatcher
//! have completions of one kind only, and other providers refuse nothing; so where kinds differ,
//! each completion notifies as its own stream says, or more often.

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

    /// Who decides which completions notify. The peer does only if it does for all of them: the
    /// device announces those of others at once.
    pub(super) fn completion_type(&self) -> CompletionFlags {
        match self.0 {
            [0, 0, solicited, _] if solicited != 0 => CompletionFlags::SOLICITED_WAIT,
            [_, 0, ..] => CompletionFlags::empty(),
            _ => CompletionFlags::UNSIGNALLED,
        }
    }
}
