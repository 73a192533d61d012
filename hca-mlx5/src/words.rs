//! The words of this driver's failures: names of its objects and commands, what statuses mean, and
//! advice.
//!
//! A [`Fault`] holds numbers and a reference to what never changes; the rest is looked up here when
//! somebody prints it.

use dat_core::provider::{Fault, Object, Part, Vocabulary, Words, nth};

use crate::cmd::status::kind;
use crate::prm::cmd::Opcode;
use crate::prm::error::{self, KNOWN_SYNDROMES, status};
use crate::prm::init_seg;

/// A [`Fault`] in literal words: kind, operation (empty for the command's name), cause, advice if
/// there is any.
macro_rules! fault {
    (at $address:expr, $($words:tt)*) => {
        dat_core::fault!(at $address, $crate::words::OWN, $($words)*)
    };
    ($($words:tt)*) => { dat_core::fault!($crate::words::OWN, $($words)*) };
}
pub(crate) use fault;

macro_rules! objects {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        $(
            #[doc = concat!("`", $text, "`.")]
            pub(crate) const $name: Object = Object($number);
        )*

        /// Their names in the same order; number 0 is none.
        const OBJECTS: &str = concat!("\0", $($text, "\0"),*);
        const _: () = {
            let mut count = 0;
            $(
                count += 1;
                assert!(count == $number, "the numbers are places");
            )*
        };
    };
}

objects! {
    QP = 1, "QP";
    SQ = 2, "SQ";
    RQ = 3, "RQ";
    CQ = 4, "CQ";
    EQ = 5, "EQ";
    MKEY = 6, "MKEY";
    PD = 7, "PD";
    UAR = 8, "UAR";
    TIR = 9, "TIR";
    TIS = 10, "TIS";
    FLOW_TABLE = 11, "flow table";
    FLOW_GROUP = 12, "flow group";
    FLOW_ENTRY = 13, "flow entry";
    TRANSPORT_DOMAIN = 14, "transport domain";
    PORT = 15, "port";
    VPORT = 16, "vport";
    CAPABILITY = 17, "capability";
    ROCE_ADDRESS = 18, "RoCE address";
    PAGES = 19, "pages";
    GEOMETRY_WORD = 20, "geometry word";
    REVISION = 21, "revision";
    MEMORY_KEYS = 22, "memory keys";
    PROTECTION_DOMAINS = 23, "protection domains";
    COMPLETION_QUEUES = 24, "completion queues";
    QUEUE_PAIRS = 25, "queue pairs";
    L2_ENTRY = 26, "L2 entry";
    REGISTER = 27, "register";
    COUNTERS = 28, "counter set";
    SRQ = 29, "SRQ";
    SHARED_QUEUES = 30, "shared receive queues";
}

/// No object in particular.
pub(crate) const NONE: Object = Object::NONE;
/// One that is yet to be made: it has neither number nor name.
pub(crate) const NEW: Object = Object(u8::MAX);

fn command(fault: &Fault) -> Option<Opcode> {
    Opcode::from_code(fault.command())
}

/// What every fault of this driver falls back on.
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

fn read(fault: &Fault, part: Part) -> &'static str {
    match part {
        Part::Operation => match (command(fault), fault.host()) {
            (Some(op), _) => op.name(),
            (None, Some(host)) if host.v4().is_some() => "ARP",
            (None, Some(_)) => "neighbour discovery",
            (None, None) => "",
        },
        Part::Object => nth(OBJECTS, fault.object_kind().0.into()),
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
