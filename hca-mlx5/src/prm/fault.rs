//! Texts of the driver's faults: names of commands, meanings of statuses, and advice.
//!
//! A [`Fault`] holds numbers and a reference to constant text; the rest is looked up here when the
//! fault is printed. The constant text of a refusal holds the number and the name of its command
//! too, so [`Opcode::code`] and [`Opcode::name`] read them from there.

use dat_core::provider::{Fault, FaultKind, Part, Vocabulary, Words, nth};

use super::cmd::Opcode;
use super::error::{self, KNOWN_SYNDROMES, status};
use super::init_seg;
use super::object::{self, NAMES, NONE};

/// A [`Fault`] in literal words: kind, operation (empty for the command's name), cause, advice if
/// there is any.
macro_rules! fault {
    (at $address:expr, $($words:tt)*) => {
        dat_core::fault!(at $address, $crate::prm::fault::OWN, $($words)*)
    };
    ($($words:tt)*) => { dat_core::fault!($crate::prm::fault::OWN, $($words)*) };
}
pub(crate) use fault;

fn command(fault: &Fault) -> Option<Opcode> {
    Opcode::from_code(fault.command())
}

/// Words of every fault of this driver that has no others.
pub(crate) static OWN: Vocabulary = Vocabulary::new(read);
/// Of a command that the device refused.
static REFUSED: Vocabulary = Vocabulary::new(refused).with_kind(kind);
/// Of a command that was not delivered; the syndrome is the delivery status.
pub(crate) static DELIVERY: Vocabulary = Vocabulary::new(delivery);
/// Of a health syndrome.
pub(crate) static HEALTH: Vocabulary = Vocabulary::new(health);

/// The device's refusals, by command.
#[expect(clippy::indexing_slicing, reason = "the compiler evaluates it")]
static REFUSALS: [Words; Opcode::ALL.len()] = {
    let mut words = [const { Words::answer(NONE, 0, "", &REFUSED) }; Opcode::ALL.len()];
    let mut at = 0;
    while at < words.len() {
        let (code, object, text) = Opcode::WORDS[at];
        words[at] = Words::answer(object, code, text, &REFUSED);
        at += 1;
    }
    words
};

/// A refusal of this command, with nothing said yet.
pub(crate) fn refusal(op: Opcode) -> Fault {
    let words = REFUSALS.get(op as usize);
    Fault::new(words.unwrap_or(const { &Words::answer(NONE, 0, "", &REFUSED) }))
}

impl Opcode {
    /// The manual's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        refusal(self).operation()
    }

    /// From its number.
    #[must_use]
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|op| op.code() == code)
    }

    /// Its number.
    #[must_use]
    pub fn code(self) -> u16 {
        refusal(self).command()
    }
}

/// The class of a refusal.
fn kind(fault: &Fault) -> FaultKind {
    match fault.status() {
        status::BAD_OP => FaultKind::Unsupported,
        status::LIMITS | status::NO_RESOURCES => FaultKind::Resources,
        // Real cards answer both this and "limits" when they run out of objects.
        status::BAD_RESOURCE if fault.object_kind() == object::NEW => FaultKind::Resources,
        status::BAD_PARAM
        | status::BAD_RESOURCE
        | status::BAD_INDEX
        | status::BAD_PACKET
        | status::BAD_INPUT_LENGTH
        | status::BAD_OUTPUT_LENGTH => FaultKind::BadParameter,
        status::BAD_SYS_STATE
        | status::RESOURCE_BUSY
        | status::NOT_READY
        | status::BAD_RESOURCE_STATE
        | status::BAD_QP_STATE
        | status::TOO_MANY_CQES => FaultKind::BadState,
        _ => FaultKind::Nonsense,
    }
}

fn read(fault: &Fault, part: Part) -> &'static str {
    match part {
        Part::Operation => match (command(fault), fault.host()) {
            (Some(op), _) => op.name(),
            (None, Some(host)) if host.v4().is_some() => "ARP",
            (None, Some(_)) => "neighbour discovery",
            (None, None) => "",
        },
        Part::Object => nth(NAMES, fault.object_kind().0.into()),
        Part::Cause | Part::Advice => "",
    }
}

fn refused(fault: &Fault, part: Part) -> &'static str {
    match part {
        Part::Cause => status::text(fault.status()),
        Part::Advice => {
            command(fault).map_or("", |op| advice(op, fault.status(), fault.syndrome()))
        }
        Part::Operation | Part::Object => read(fault, part),
    }
}

fn delivery(fault: &Fault, part: Part) -> &'static str {
    match part {
        Part::Cause => u8::try_from(fault.syndrome()).map_or("", error::delivery_status),
        Part::Operation | Part::Object | Part::Advice => read(fault, part),
    }
}

fn health(fault: &Fault, part: Part) -> &'static str {
    match part {
        Part::Cause => u8::try_from(fault.syndrome())
            .ok()
            .and_then(init_seg::health_syndrome)
            .unwrap_or("the firmware reports an unknown health syndrome"),
        Part::Operation | Part::Object | Part::Advice => read(fault, part),
    }
}

fn advice(op: Opcode, code: u8, syndrome: u32) -> &'static str {
    if let Some(known) = KNOWN_SYNDROMES.iter().find(|k| k.opcode == op && k.syndrome == syndrome) {
        return known.advice;
    }
    match code {
        status::BAD_OP => "this firmware lacks the command",
        status::NO_RESOURCES => "the firmware is out of pages; enlarge the page budget",
        status::RESOURCE_BUSY | status::BAD_RESOURCE_STATE if op.name().starts_with("DESTROY_") => {
            "something still refers to it; destroy that first"
        }
        _ => "",
    }
}
