//! Completion and event queues: entries flipped, lost, replayed, of queues that nobody has; overruns.

use mlx5_model::{Event, Wrote, event};

use super::Group;
use crate::faults::what::{Loss, Numbers, Pick, Row, What, all, nth, some};

/// The device's queue of asynchronous events, in the order in which the driver makes them.
const ASYNC: Option<u8> = Some(0x11);
/// And that of completions.
const COMPLETIONS: Option<u8> = Some(0x13);

const fn cqe(name: &'static str, is: &'static str, pick: Pick, change: fn(&mut Vec<u8>)) -> Row {
    Row::new(name, is, Loss::Adapter, What::Writes(pick, Wrote::Cqe, change))
}

const fn eqe(
    name: &'static str,
    is: &'static str,
    loses: Loss,
    pick: Pick,
    change: fn(&mut Vec<u8>),
) -> Row {
    Row::new(name, is, loses, What::Writes(pick, Wrote::Eqe, change))
}

const fn events(
    name: &'static str,
    is: &'static str,
    loses: Loss,
    make: fn(Numbers) -> Vec<(Option<u8>, Event)>,
) -> Row {
    Row::new(name, is, loses, What::Events(make))
}

fn of_queue(kind: u8, numbers: Numbers) -> Vec<(Option<u8>, Event)> {
    vec![(None, Event::queue(kind, 0, numbers.qpn.unwrap_or(0xab_cdef)))]
}

/// A byte of an entry, otherwise; the last one has the owner bit, which stays.
fn put(bytes: &mut [u8], at: usize, value: u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte = value;
    }
}

fn flip(bytes: &mut [u8], at: usize, bits: u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= bits;
    }
}

fn opcode(bytes: &mut [u8], opcode: u8) {
    if let Some(last) = bytes.last_mut() {
        *last = opcode << 4 | (*last & 0xf);
    }
}

pub(super) const GROUP: Group = Group {
    name: "Completion and event queues",
    is: "The device writes entries of completion and event queues that are wrong, or writes none.",
    rows: &[
        cqe("cqe-index", "a completion names another Endpoint", nth(6), |bytes| {
            bytes.get_mut(0x19..0x1c).into_iter().for_each(|index| index.fill(0x77));
        }),
        cqe("cqe-qpn", "a completion names a queue pair that nobody has", nth(6), |bytes| {
            bytes.get_mut(0x39..0x3c).into_iter().for_each(|qpn| qpn.fill(0x77));
        }),
        cqe("cqe-counter", "a completion names another request", nth(6), |bytes| {
            put(bytes, 0x3c, 0x5a);
            put(bytes, 0x3d, 0xa5);
        }),
        cqe("cqe-replayed", "the completion of a request comes again", nth(6), |bytes| {
            if let Some(counter) = bytes.get_mut(0x3c..0x3e).and_then(|at| at.first_chunk_mut()) {
                *counter = u16::from_be_bytes(*counter).wrapping_sub(1).to_be_bytes();
            }
        }),
        cqe("cqe-length", "a completion has a length beyond the buffer", nth(6), |bytes| {
            bytes.get_mut(0x2c..0x30).into_iter().for_each(|length| length.fill(0x7f));
        }),
        cqe("cqe-opcode-unknown", "a completion is of no known kind", nth(6), |bytes| {
            opcode(bytes, 9);
        }),
        cqe("cqe-opcode-receive", "a completion says that it is of a receive", nth(6), |bytes| {
            opcode(bytes, 2);
        }),
        cqe("cqe-request-error", "a completion says that a request failed", nth(6), |bytes| {
            put(bytes, 0x37, 0x02);
            opcode(bytes, 13);
        }),
        cqe("cqe-receive-error", "a completion says that a receive failed", nth(6), |bytes| {
            put(bytes, 0x37, 0x04);
            opcode(bytes, 14);
        }),
        cqe("cqe-syndrome", "a completion fails with a syndrome without a name", nth(6), |bytes| {
            put(bytes, 0x37, 0xee);
            opcode(bytes, 13);
        }),
        cqe("cqe-ones", "a completion is all ones but its owner bit", nth(6), |bytes| {
            let last = bytes.last().copied().unwrap_or(0);
            bytes.fill(0xff);
            put(bytes, 63, 0xf0 | (last & 0xf));
        }),
        cqe("cqe-zeros", "a completion is all zeros but its owner bit", nth(6), |bytes| {
            let last = bytes.last().copied().unwrap_or(0);
            bytes.fill(0);
            put(bytes, 63, last & 0xf);
        }),
        cqe("cqe-owner", "a completion has the wrong owner bit", nth(6), |bytes| {
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
            }
        }),
        cqe("cqe-lost", "a completion is not written", nth(6), Vec::clear),
        cqe("cqe-all-flipped", "every completion of the phase has a flipped bit", all(), |bytes| {
            flip(bytes, 0x3d, 0x10);
        }),
        eqe("eqe-owner", "an event has the wrong owner bit", Loss::Nothing, nth(3), |bytes| {
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
            }
        }),
        eqe("eqe-lost", "an event is not written", Loss::Nothing, nth(3), Vec::clear),
        eqe(
            "eqe-number",
            "an event names a queue that nobody has",
            Loss::Nothing,
            nth(3),
            |bytes| {
                bytes.get_mut(0x38..0x3c).into_iter().for_each(|number| number.fill(0x5a));
            },
        ),
        eqe("eqe-kind", "an event is of a kind without a name", Loss::Nothing, nth(3), |bytes| {
            put(bytes, 1, 0xee);
        }),
        eqe(
            "eqe-flipped",
            "all events have a flipped bit in their kind",
            Loss::Nothing,
            all(),
            |bytes| {
                flip(bytes, 1, 0x40);
            },
        ),
        eqe("eqe-all-lost", "forty events are not written", Loss::Nothing, some(0, 40), Vec::clear),
        events(
            "event-every-kind",
            "events of all kinds come that nobody caused",
            Loss::Nothing,
            |_| {
                let kinds = (0x15..=u8::MAX).map(|kind| (ASYNC, Event::new(kind, kind ^ 0x55)));
                kinds.take(60).collect()
            },
        ),
        events(
            "event-foreign-qp",
            "errors of queue pairs come that nobody has",
            Loss::Nothing,
            |_| {
                let kinds =
                    [event::WQ_CATASTROPHIC, event::WQ_ACCESS_ERROR, event::WQ_INVALID_REQUEST];
                kinds.map(|kind| (None, Event::queue(kind, 0, 0xab_cdef))).into()
            },
        ),
        events(
            "event-foreign-cq",
            "events of completion queues come that nobody has",
            Loss::Nothing,
            |_| {
                vec![
                    (COMPLETIONS, Event::completion(0xab_cdef)),
                    (None, Event::cq_error(0xab_cdef, 1)),
                    (None, Event::cq_error(0xff_ffff, 2)),
                ]
            },
        ),
        events("event-replayed", "completion events come again and again", Loss::Nothing, |_| {
            (0..50).map(|n| (COMPLETIONS, Event::completion(0x400 + n % 4))).collect()
        }),
        events("event-wrong-queue", "events come in the queues of others", Loss::Nothing, |_| {
            vec![
                (COMPLETIONS, Event::new(event::PAGE_REQUEST, 0).with(4, 5)),
                (Some(0x12), Event::queue(event::WQ_CATASTROPHIC, 0, 0xab_cdef)),
                (Some(0x10), Event::completion(0x400)),
            ]
        }),
        events(
            "event-overrun",
            "more events come at once than their queue holds",
            Loss::Nothing,
            |_| {
                (0..300)
                    .map(|n| (None, Event::queue(event::COMM_ESTABLISHED, 0, 0x80_0000 + n)))
                    .collect()
            },
        ),
        events(
            "event-internal",
            "an internal error is announced that no register shows",
            Loss::Nothing,
            |_| vec![(ASYNC, Event::new(event::INTERNAL_ERROR, 0))],
        ),
        events(
            "event-port",
            "the port is said to go down and up without end",
            Loss::Nothing,
            |_| (0..100).map(|n| (None, Event::new(event::PORT_CHANGE, 1 + 3 * (n % 2)))).collect(),
        ),
        events(
            "event-established",
            "a queue pair is said to have communication",
            Loss::Nothing,
            |numbers| of_queue(event::COMM_ESTABLISHED, numbers),
        ),
        events("event-drained", "a send queue is said to be drained", Loss::Nothing, |numbers| {
            of_queue(event::SQ_DRAINED, numbers)
        }),
        events(
            "event-last-wqe",
            "the last receive is said to be reached",
            Loss::Nothing,
            |numbers| of_queue(event::LAST_WQE_REACHED, numbers),
        ),
        events(
            "event-qp-catastrophic",
            "a queue pair is said to be broken",
            Loss::Connection,
            |numbers| of_queue(event::WQ_CATASTROPHIC, numbers),
        ),
        events(
            "event-qp-access",
            "a queue pair is said to have violated access",
            Loss::Connection,
            |numbers| of_queue(event::WQ_ACCESS_ERROR, numbers),
        ),
        events(
            "event-qp-request",
            "a queue pair is said to have had an invalid request",
            Loss::Connection,
            |numbers| of_queue(event::WQ_INVALID_REQUEST, numbers),
        ),
        events(
            "event-cq-overrun",
            "the completion queues are said to overrun",
            Loss::Connection,
            |_| (0x400..0x408).map(|cqn| (None, Event::cq_error(cqn, 1))).collect(),
        ),
        Row::new(
            "doorbells-lost",
            "three register writes in a row do not arrive",
            Loss::Adapter,
            What::Stores(some(4, 3)),
        ),
    ],
};
