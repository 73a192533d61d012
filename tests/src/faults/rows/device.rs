//! Commands: refused, not delivered, lost, late, answered with what makes no sense; pages.

use mlx5_model::{Event, Status, Verdict, Wrote, event};

use super::Group;
use crate::faults::what::{Loss, MS, Phase, Pick, Row, S, What, all, nth, some};

const fn refused(status: u8) -> Verdict {
    Verdict::Refuse { status, syndrome: 0x00de_ad00 }
}

/// A command of the phase that is refused, the fourth.
const fn status(name: &'static str, is: &'static str, status: Status) -> Row {
    let what = What::Commands(nth(3), None, refused(status as u8));
    Row::new(name, is, Loss::Connection, what)
}

const fn command(name: &'static str, is: &'static str, pick: Pick, verdict: Verdict) -> Row {
    Row::new(name, is, Loss::Adapter, What::Commands(pick, None, verdict))
}

const fn slow(name: &'static str, is: &'static str, pick: Pick, verdict: Verdict) -> Row {
    Row::new(name, is, Loss::Nothing, What::Commands(pick, None, verdict))
}

/// The head of an answer, or what the device writes behind it, is otherwise.
const fn answer(
    name: &'static str,
    is: &'static str,
    loses: Loss,
    change: fn(&mut Vec<u8>),
) -> Row {
    // Each answer is two writes, the status byte last.
    Row::new(name, is, loses, What::Writes(nth(4), Wrote::CommandEntry, change))
}

const fn mailbox(name: &'static str, is: &'static str, change: fn(&mut Vec<u8>)) -> Row {
    let what = What::Writes(nth(0), Wrote::Mailbox, change);
    Row::new(name, is, Loss::Adapter, what)
        .never(&[(Phase::Connecting, "no answer of this phase has a mailbox")])
}

/// As the entry goes on behind the output: mailbox pointer, length, token, signature, reserved.
fn entry(bytes: &mut Vec<u8>, behind: &[u8]) {
    if bytes.len() == 16 {
        bytes.extend_from_slice(behind);
    }
}

pub(super) const GROUP: Group = Group {
    name: "Commands",
    is: "The firmware refuses, loses, delays or garbles commands of the driver.",
    rows: &[
        status("status-internal", "a command fails by an internal error", Status::Internal),
        status("status-bad-op", "a command is not known", Status::BadOp),
        status("status-bad-param", "a command has a bad parameter", Status::BadParam),
        status("status-bad-sys-state", "a command comes in a wrong state", Status::BadSysState),
        status("status-bad-resource", "a command names no object", Status::BadResource),
        status("status-busy", "a command finds its object busy", Status::Busy),
        status("status-not-ready", "a command comes too early", Status::NotReady),
        status("status-exceed-limit", "a command exceeds a limit", Status::ExceedLimit),
        status(
            "status-bad-resource-state",
            "a command finds its object in a wrong state",
            Status::BadResourceState,
        ),
        status("status-bad-index", "a command has an index out of range", Status::BadIndex),
        status("status-no-resources", "a command finds no resources", Status::NoResources),
        status("status-bad-qp-state", "a command finds a wrong state of a QP", Status::BadQpState),
        status("status-too-many-cqes", "a command finds too many entries", Status::TooManyCqes),
        status("status-bad-input-length", "a command is too short", Status::BadInputLength),
        status("status-bad-output-length", "an answer is too short", Status::BadOutputLength),
        Row::new(
            "status-unknown",
            "a command is refused with a status that has no name",
            Loss::Connection,
            What::Commands(nth(2), None, refused(0x77)),
        ),
        Row::new(
            "refused-first",
            "the first command of the phase is refused",
            Loss::Connection,
            What::Commands(nth(0), None, refused(1)),
        ),
        Row::new(
            "refused-fifth",
            "the fifth command of the phase is refused",
            Loss::Connection,
            What::Commands(nth(4), None, refused(1)),
        ),
        Row::new(
            "refused-all",
            "every command of the phase is refused",
            Loss::Adapter,
            What::Commands(all(), None, refused(1)),
        ),
        Row::new(
            "undelivered-signature",
            "the transport finds a wrong signature",
            Loss::Connection,
            What::Commands(nth(2), None, Verdict::Undelivered(1)),
        ),
        Row::new(
            "undelivered-token",
            "the transport finds a wrong token",
            Loss::Connection,
            What::Commands(nth(2), None, Verdict::Undelivered(2)),
        ),
        Row::new(
            "undelivered-block",
            "the transport finds a wrong block number",
            Loss::Connection,
            What::Commands(nth(2), None, Verdict::Undelivered(3)),
        ),
        Row::new(
            "undelivered-pointer",
            "the transport finds a wrong mailbox pointer",
            Loss::Connection,
            What::Commands(nth(2), None, Verdict::Undelivered(4)),
        ),
        Row::new(
            "undelivered-unknown",
            "the transport fails with a status that has no name",
            Loss::Connection,
            What::Commands(nth(2), None, Verdict::Undelivered(0x55)),
        ),
        command("mute-first", "the first command is never answered", nth(0), Verdict::Mute),
        command("mute-fourth", "the fourth command is never answered", nth(3), Verdict::Mute),
        command("mute-all", "no command is answered", all(), Verdict::Mute),
        slow("late-10ms", "every command takes 10 ms", all(), Verdict::Late(10 * MS)),
        slow("late-4s", "the third command takes 4 s", nth(2), Verdict::Late(4 * S)),
        command(
            "late-6s",
            "the third command takes longer than its limit",
            nth(2),
            Verdict::Late(6 * S),
        ),
        slow("no-event", "no command has an event", all(), Verdict::NoEvent),
        Row::new(
            "event-doubled",
            "command events come again and for commands that nobody sent",
            Loss::Nothing,
            What::Events(|_| {
                let slots = [1, 1, u32::MAX, 1 << 31, 0];
                slots.map(|slots| (None, Event::new(event::COMMAND, 0).with(0, slots))).into()
            }),
        ),
        Row::new(
            "doorbell-lost",
            "the write of a command's doorbell does not arrive",
            Loss::Adapter,
            What::Stores(nth(1)),
        ),
        answer(
            "answer-token",
            "an answer has another command's token",
            Loss::Connection,
            |bytes| {
                // Pointer, length, and a token that no command has.
                entry(bytes, &[0; 13]);
            },
        ),
        answer("answer-length", "an answer says another length", Loss::Connection, |bytes| {
            entry(bytes, &[0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xf0]);
        }),
        answer(
            "answer-chain",
            "an answer has another mailbox pointer",
            Loss::Connection,
            |bytes| {
                entry(bytes, &[0xff; 8]);
            },
        ),
        answer("answer-ones", "an answer is all ones", Loss::Connection, |bytes| bytes.fill(0xff)),
        answer("answer-number", "an answer has the largest number", Loss::Connection, |bytes| {
            if let Some(number) = bytes.get_mut(8..12) {
                number.copy_from_slice(&[0, 0xff, 0xff, 0xff]);
            }
        }),
        answer(
            "answer-lost",
            "the output of an answer does not arrive",
            Loss::Connection,
            Vec::clear,
        ),
        mailbox("mailbox-ones", "a mailbox of an answer is all ones", |bytes| bytes.fill(0xff)),
        mailbox("mailbox-lost", "a mailbox of an answer does not arrive", Vec::clear),
        mailbox(
            "mailbox-overrun",
            "the device writes over pointer, number, token and signatures of a mailbox",
            |bytes| bytes.resize(576, 0xee),
        ),
        Row::new(
            "pages-storm",
            "the firmware asks for pages 40 times in a row",
            Loss::Nothing,
            What::Step(30, |hca| (0..40).for_each(|_| hca.request_pages(3))),
        ),
        Row::new(
            "pages-too-many",
            "the firmware asks for more pages than the host has",
            Loss::Nothing,
            What::Step(30, |hca| hca.request_pages(1_000_000)),
        ),
        Row::new(
            "pages-back",
            "the firmware gives pages back, and asks for them again",
            Loss::Nothing,
            What::Step(30, |hca| {
                hca.request_pages(-8);
                hca.request_pages(8);
            }),
        ),
        Row::new(
            "pages-absurd",
            "page requests name other functions and absurd numbers",
            Loss::Nothing,
            What::Events(|_| {
                let asked = [(7, 5), (0x8000_0000, 5), (0, 0x8000_0000), (0xffff, u32::MAX)];
                asked
                    .map(|(function, count)| {
                        let request = Event::new(event::PAGE_REQUEST, 0);
                        (None, request.with(0, function).with(4, count))
                    })
                    .into()
            }),
        ),
        Row::new(
            "pages-not-given",
            "the firmware keeps pages that it offered",
            Loss::Nothing,
            What::Events(|_| {
                vec![(None, Event::new(event::PAGE_REQUEST, 0).with(4, 100_u32.wrapping_neg()))]
            }),
        ),
        Row::new(
            "no-pages-after-refusal",
            "three commands in a row find no resources",
            Loss::Connection,
            What::Commands(some(1, 3), None, refused(Status::NoResources as u8)),
        ),
    ],
};
