//! What the counters of an Interface Adapter say of its connection manager: every message by its
//! kind, every end by its cause.

use crate::cm::event::Counters;
use crate::cm::wire::header::{Header, MAD_LEN};
use crate::cm::wire::reason::Reason;
use crate::cm::wire::rej::Rej;
use crate::engine::counters::IaTally;
use crate::types::counters::IaCounter;
use crate::types::ep_state::{EpOp, EpState};

/// What is counted of one kind of message: sent, received, received again, sent again.
struct Kind {
    attribute: u16,
    sent: IaCounter,
    received: IaCounter,
    dup: IaCounter,
    retry: IaCounter,
}

impl Kind {
    /// The row of an attribute.
    fn of(attribute: u16) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.attribute == attribute)
    }
}

/// A row of [`KINDS`].
const fn kind(
    attribute: u16,
    sent: IaCounter,
    received: IaCounter,
    dup: IaCounter,
    retry: IaCounter,
) -> Kind {
    Kind { attribute, sent, received, dup, retry }
}

/// By the attributes of the wire. Rejections, which have two kinds of counters, come apart from
/// these.
static KINDS: [Kind; 7] = [
    kind(
        0x10,
        IaCounter::CmReqTx,
        IaCounter::CmReqRx,
        IaCounter::CmErrReqDup,
        IaCounter::CmErrReqRetry,
    ),
    kind(
        0x13,
        IaCounter::CmRepTx,
        IaCounter::CmRepRx,
        IaCounter::CmErrRepDup,
        IaCounter::CmErrRepRetry,
    ),
    kind(
        0x14,
        IaCounter::CmRtuTx,
        IaCounter::CmRtuRx,
        IaCounter::CmErrRtuDup,
        IaCounter::CmErrRtuRetry,
    ),
    kind(
        0x15,
        IaCounter::CmDreqTx,
        IaCounter::CmDreqRx,
        IaCounter::CmErrDreqDup,
        IaCounter::CmErrDreqRetry,
    ),
    kind(
        0x16,
        IaCounter::CmDrepTx,
        IaCounter::CmDrepRx,
        IaCounter::CmErrDrepDup,
        IaCounter::CmErrDrepRetry,
    ),
    kind(
        0x11,
        IaCounter::CmMraTx,
        IaCounter::CmMraRx,
        IaCounter::CmErrMraDup,
        IaCounter::CmErrMraRetry,
    ),
    // Of a service that is asked for an address, and not for a connection.
    kind(
        0x17,
        IaCounter::CmAhReqTx,
        IaCounter::CmAhReqRx,
        IaCounter::CmErrReqDup,
        IaCounter::CmErrReqRetry,
    ),
];

/// The attribute of a rejection.
const REJ: u16 = 0x12;

/// What the connection manager counts of a datagram that it deals with.
pub(crate) struct Dealt {
    /// Made no sense, or came from somebody else.
    odd: u64,
    no_slot: u64,
    malformed: u64,
    duplicates: u64,
}

impl Dealt {
    pub(crate) fn of(counters: &Counters) -> Self {
        let Counters { no_slot, malformed, duplicates, .. } = *counters;
        let odd = counters.unexpected.wrapping_add(counters.foreign);
        Self { odd, no_slot, malformed, duplicates }
    }
}

impl IaTally {
    /// A datagram goes out, once more if `again`.
    pub(crate) fn sent(&mut self, mad: &[u8; MAD_LEN], again: bool) {
        let Ok(header) = Header::new_checked(mad) else {
            return;
        };
        if header.attribute() == REJ {
            return self.count(if of_consumer(mad) {
                IaCounter::CmUserRejTx
            } else {
                IaCounter::CmErrRejTx
            });
        }
        let Some(kind) = Kind::of(header.attribute()) else { return };
        self.count(kind.sent);
        if again {
            self.count(kind.retry);
        }
    }

    /// A datagram has come in; the connection manager had counted `before`, and `after` it has dealt
    /// with it.
    pub(crate) fn received(&mut self, mad: &[u8; MAD_LEN], before: &Dealt, after: &Dealt) {
        if after.odd != before.odd {
            self.count(IaCounter::CmErrUnexpected);
        }
        if after.no_slot != before.no_slot {
            self.count(IaCounter::CmErrReqFullq);
        }
        if after.malformed != before.malformed {
            self.count(IaCounter::CmErr);
        }
        let Ok(header) = Header::new_checked(mad) else {
            return;
        };
        if header.attribute() == REJ {
            return self.count(if of_consumer(mad) {
                IaCounter::CmUserRejRx
            } else {
                IaCounter::CmErrRejRx
            });
        }
        let Some(kind) = Kind::of(header.attribute()) else { return };
        self.count(kind.received);
        if after.duplicates != before.duplicates {
            self.count(kind.dup);
        }
    }

    /// Something happened to an Endpoint that was in `state`.
    pub(super) fn happened(&mut self, op: EpOp, state: EpState) {
        let counter = if op == EpOp::Established && state == EpState::ActiveConnectionPending {
            IaCounter::CmActiveEst
        } else if op == EpOp::Established {
            IaCounter::CmPassiveEst
        } else if matches!(op, EpOp::AcceptNamed | EpOp::AcceptOwn) {
            IaCounter::SpCrAccepted
        } else if op == EpOp::NonPeerRejected {
            IaCounter::CmErrRefused
        } else if matches!(op, EpOp::TimedOut | EpOp::Unreachable) {
            IaCounter::CmErrTimeout
        } else if op == EpOp::Broken {
            IaCounter::CmErrReset
        } else {
            return;
        };
        self.count(counter);
    }
}

/// Whether it was the consumer that rejected.
fn of_consumer(mad: &[u8; MAD_LEN]) -> bool {
    Reason(Rej::new_unchecked(mad).reason()) == Reason::CONSUMER
}
