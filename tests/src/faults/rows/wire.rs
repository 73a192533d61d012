//! The wire: each CM message lost, doubled, late; NAKs; PSNs; ICRC; the cable.

use mlx5_model::wire::frame::{Aeth, Packet};
use mlx5_model::wire::impair::Fault as Frame;
use mlx5_model::wire::opcode::Opcode;

use super::Group;
use crate::faults::what::{Loss, MS, Phase, Pick, Row, S, What, all, nth, some};
use crate::session::line::{attribute, attribute_id, mad, packet};

fn is(frame: &[u8], id: u16) -> bool {
    mad(frame).is_some_and(|mad| attribute_id(&mad) == id)
}

fn req(frame: &[u8]) -> bool {
    is(frame, attribute::REQ)
}

fn rep(frame: &[u8]) -> bool {
    is(frame, attribute::REP)
}

fn rtu(frame: &[u8]) -> bool {
    is(frame, attribute::RTU)
}

fn rej(frame: &[u8]) -> bool {
    is(frame, attribute::REJ)
}

fn dreq(frame: &[u8]) -> bool {
    is(frame, attribute::DREQ)
}

fn drep(frame: &[u8]) -> bool {
    is(frame, attribute::DREP)
}

fn arp(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[8, 6])
}

/// Of a connection, not of connection management.
fn data(frame: &[u8]) -> bool {
    packet(frame).is_some_and(|packet| !packet.bth.opcode.is_datagram())
}

fn ack(frame: &[u8]) -> bool {
    packet(frame).is_some_and(|packet| packet.bth.opcode == Opcode::Ack)
}

fn read(frame: &[u8]) -> bool {
    packet(frame).is_some_and(|packet| {
        matches!(packet.bth.opcode, Opcode::ReadFirst | Opcode::ReadMiddle | Opcode::ReadLast)
    })
}

fn any(_: &[u8]) -> bool {
    true
}

/// An acknowledgement with another syndrome, so many times, behind the good one if it stays.
fn acks(frame: &[u8], syndrome: u8, times: usize, keep: bool) -> Vec<Vec<u8>> {
    let Ok(good) = Packet::parse(frame) else { return vec![frame.to_vec()] };
    let mut other = good.clone();
    if let Some(aeth) = good.ext.aeth {
        other.ext.aeth = Some(Aeth { syndrome, ..aeth });
    }
    let mut all = vec![other.build(); times];
    if keep {
        all.insert(0, frame.to_vec());
    }
    all
}

/// The packet with another sequence number, before the good one if that stays.
fn psn(frame: &[u8], by: u32, keep: bool) -> Vec<Vec<u8>> {
    let Ok(good) = Packet::parse(frame) else { return vec![frame.to_vec()] };
    let mut other = good.clone();
    other.bth.psn = good.bth.psn.wrapping_add(by) & 0xff_ffff;
    let mut all = vec![other.build()];
    if keep {
        all.push(frame.to_vec());
    }
    all
}

const NONE_IN_CLOSING: &[(Phase, &str)] =
    &[(Phase::Closing, "nobody accepts a connection in this phase")];
const NONE_BUT_CLOSING: &[(Phase, &str)] = &[
    (Phase::BringUp, "nobody rejects a connection in this phase"),
    (Phase::Connecting, "nobody rejects a connection in this phase"),
    (Phase::Traffic, "nobody rejects a connection in this phase"),
];

const fn frames(
    name: &'static str,
    text: &'static str,
    loses: Loss,
    pick: Pick,
    which: fn(&[u8]) -> bool,
    fault: Frame,
) -> Row {
    Row::new(name, text, loses, What::Frames(pick, None, which, fault))
}

const fn lost(name: &'static str, text: &'static str, which: fn(&[u8]) -> bool) -> Row {
    frames(name, text, Loss::Nothing, nth(0), which, Frame::Drop)
}

const fn doubled(name: &'static str, text: &'static str, which: fn(&[u8]) -> bool) -> Row {
    frames(name, text, Loss::Nothing, nth(0), which, Frame::Duplicate)
}

const fn late(name: &'static str, text: &'static str, which: fn(&[u8]) -> bool) -> Row {
    frames(name, text, Loss::Nothing, nth(0), which, Frame::Delay(3 * S))
}

const fn instead(
    name: &'static str,
    text: &'static str,
    loses: Loss,
    pick: Pick,
    which: fn(&[u8]) -> bool,
    make: fn(&[u8]) -> Vec<Vec<u8>>,
) -> Row {
    Row::new(name, text, loses, What::Instead(pick, None, which, make))
}

pub(super) const GROUP: Group = Group {
    name: "Wire",
    is: "Frames are lost, doubled, late or forged. A fault of one message strikes the first of the \
         phase, whichever side sent it.",
    rows: &[
        lost("req-lost", "a REQ is lost", req),
        doubled("req-doubled", "a REQ comes twice", req),
        late("req-late", "a REQ comes 3 s late", req),
        lost("rep-lost", "a REP is lost", rep).never(NONE_IN_CLOSING),
        doubled("rep-doubled", "a REP comes twice", rep).never(NONE_IN_CLOSING),
        late("rep-late", "a REP comes 3 s late", rep).never(NONE_IN_CLOSING),
        lost("rtu-lost", "an RTU is lost", rtu).never(NONE_IN_CLOSING),
        doubled("rtu-doubled", "an RTU comes twice", rtu).never(NONE_IN_CLOSING),
        late("rtu-late", "an RTU comes 3 s late", rtu).never(NONE_IN_CLOSING),
        lost("rej-lost", "a REJ is lost", rej).never(NONE_BUT_CLOSING),
        doubled("rej-doubled", "a REJ comes twice", rej).never(NONE_BUT_CLOSING),
        lost("dreq-lost", "a DREQ is lost", dreq),
        doubled("dreq-doubled", "a DREQ comes twice", dreq),
        late("dreq-late", "a DREQ comes 3 s late", dreq),
        lost("drep-lost", "a DREP is lost", drep),
        doubled("drep-doubled", "a DREP comes twice", drep),
        late("drep-late", "a DREP comes 3 s late", drep),
        frames(
            "cm-all-lost",
            "no message of connection management arrives",
            Loss::Connection,
            all(),
            |frame| mad(frame).is_some(),
            Frame::Drop,
        ),
        frames(
            "cm-all-doubled",
            "every message of connection management comes twice",
            Loss::Nothing,
            all(),
            |frame| mad(frame).is_some(),
            Frame::Duplicate,
        ),
        frames(
            "arp-lost",
            "two questions for an address are lost",
            Loss::Nothing,
            some(0, 2),
            arp,
            Frame::Drop,
        )
        .never(&[
            (Phase::Connecting, "the addresses are known from bring-up"),
            (Phase::Traffic, "the addresses are known from bring-up"),
            (Phase::Closing, "the addresses are known from bring-up"),
        ]),
        frames(
            "data-lost",
            "three packets of a connection are lost",
            Loss::Nothing,
            some(1, 3),
            data,
            Frame::Drop,
        ),
        frames(
            "data-doubled",
            "ten packets of a connection come twice",
            Loss::Nothing,
            some(1, 10),
            data,
            Frame::Duplicate,
        ),
        frames(
            "data-reordered",
            "a packet of a connection is overtaken by three",
            Loss::Nothing,
            nth(1),
            data,
            Frame::Overtaken(3),
        ),
        frames(
            "data-late",
            "a packet of a connection comes 200 ms late",
            Loss::Nothing,
            nth(1),
            data,
            Frame::Delay(200 * MS),
        ),
        frames(
            "data-all-lost",
            "no packet of a connection arrives",
            Loss::Connection,
            all(),
            data,
            Frame::Drop,
        ),
        frames(
            "icrc",
            "a bit of three packets of a connection flips: their ICRC is wrong",
            Loss::Nothing,
            some(1, 3),
            data,
            Frame::Corrupt,
        ),
        frames(
            "icrc-all",
            "a bit of every packet of a connection flips",
            Loss::Connection,
            all(),
            data,
            Frame::Corrupt,
        ),
        frames(
            "pkey",
            "three packets have another P_Key",
            Loss::Nothing,
            some(1, 3),
            data,
            Frame::Pkey,
        ),
        frames(
            "frames-flipped",
            "a bit of five frames of any kind flips",
            Loss::Nothing,
            some(0, 5),
            any,
            Frame::Corrupt,
        ),
        frames(
            "frames-doubled",
            "every frame comes twice",
            Loss::Nothing,
            all(),
            any,
            Frame::Duplicate,
        ),
        frames(
            "ack-lost",
            "three acknowledgements are lost",
            Loss::Nothing,
            some(0, 3),
            ack,
            Frame::Drop,
        ),
        frames(
            "read-response-lost",
            "two packets of read responses are lost",
            Loss::Nothing,
            some(0, 2),
            read,
            Frame::Drop,
        ),
        instead(
            "nak-sequence",
            "an acknowledgement becomes a NAK of the sequence",
            Loss::Nothing,
            nth(0),
            ack,
            |frame| acks(frame, 0x60, 1, false),
        ),
        instead(
            "nak-sequence-storm",
            "200 NAKs of the sequence follow an acknowledgement",
            Loss::Nothing,
            nth(0),
            ack,
            |frame| acks(frame, 0x60, 200, true),
        ),
        instead(
            "nak-invalid",
            "an acknowledgement becomes a NAK of an invalid request",
            Loss::Connection,
            nth(0),
            ack,
            |frame| acks(frame, 0x61, 1, false),
        ),
        instead(
            "nak-access",
            "an acknowledgement becomes a NAK of remote access",
            Loss::Connection,
            nth(0),
            ack,
            |frame| acks(frame, 0x62, 1, false),
        ),
        instead(
            "nak-operational",
            "an acknowledgement becomes a NAK of a remote operation",
            Loss::Connection,
            nth(0),
            ack,
            |frame| acks(frame, 0x63, 1, false),
        ),
        instead(
            "rnr",
            "an acknowledgement becomes \"receiver not ready\"",
            Loss::Nothing,
            nth(0),
            ack,
            |frame| acks(frame, 0x2c, 1, false),
        ),
        instead(
            "rnr-storm",
            "every acknowledgement becomes \"receiver not ready\"",
            Loss::Connection,
            all(),
            ack,
            |frame| acks(frame, 0x2c, 1, false),
        ),
        instead(
            "psn-ahead",
            "a packet with a sequence number far ahead comes before the good one",
            Loss::Nothing,
            nth(1),
            data,
            |frame| psn(frame, 1000, true),
        ),
        instead(
            "psn-behind",
            "a packet with a sequence number far behind comes before the good one",
            Loss::Nothing,
            nth(1),
            data,
            |frame| psn(frame, 0u32.wrapping_sub(1000), true),
        ),
        instead(
            "psn-jump",
            "every packet has a sequence number that jumps",
            Loss::Connection,
            all(),
            data,
            |frame| psn(frame, 0x40_0000, false),
        ),
        Row::new(
            "cable-100us",
            "the cable is out for 100 us",
            Loss::Nothing,
            What::Unplugged(100_000, false),
        ),
        Row::new(
            "cable-50ms",
            "the cable is out for 50 ms, and the port says so",
            Loss::Nothing,
            What::Unplugged(50 * MS, true),
        ),
        Row::new(
            "cable-8s",
            "the cable is out for 8 s, and the port says so",
            Loss::Connection,
            What::Unplugged(8 * S, true),
        ),
        Row::new(
            "cable-60s",
            "the cable is out for 60 s",
            Loss::Connection,
            What::Unplugged(60 * S, false),
        ),
    ],
};
