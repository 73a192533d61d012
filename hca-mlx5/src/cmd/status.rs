//! From what the device said to a [`Fault`] a person can act on.

use dat_core::provider::{Fault, FaultKind};

use crate::prm::cmd::Opcode;
use crate::prm::error::{self, KNOWN_SYNDROMES, status};

/// What a command was about: a word like `"QP"` and a number, or `("", 0)`.
pub(crate) type Object = (&'static str, u32);

/// The fault of an answer with a status other than 0.
#[must_use]
pub(crate) fn refused(op: Opcode, object: Object, code: u8, syndrome: u32) -> Fault {
    Fault {
        kind: kind(op, code),
        operation: op.name(),
        object: object.0,
        number: object.1,
        address: None,
        status: code,
        syndrome,
        cause: status::text(code),
        advice: advice(op, code, syndrome),
    }
}

/// The fault of a command that was not delivered.
#[must_use]
pub(crate) fn not_delivered(op: Opcode, object: Object, delivery: u8) -> Fault {
    Fault::new(
        FaultKind::Nonsense,
        op.name(),
        error::delivery_status(delivery),
    )
    .of(object.0, object.1)
    .advise("the driver and this firmware disagree about the message; report both versions")
}

fn kind(op: Opcode, code: u8) -> FaultKind {
    match code {
        status::BAD_OP => FaultKind::Unsupported,
        status::LIMITS | status::NO_RESOURCES => FaultKind::Resources,
        // Real cards answer both this and "limits" when they run out of objects.
        status::BAD_RESOURCE if creates(op) => FaultKind::Resources,
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

fn creates(op: Opcode) -> bool {
    op.name().starts_with("CREATE_") || op.name().starts_with("ALLOC_")
}

fn advice(op: Opcode, code: u8, syndrome: u32) -> &'static str {
    if let Some(known) = KNOWN_SYNDROMES
        .iter()
        .find(|k| k.opcode == op && k.syndrome == syndrome)
    {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn every_status_has_a_class_and_a_text() {
        let table = [
            (status::INTERNAL, FaultKind::Nonsense),
            (status::BAD_OP, FaultKind::Unsupported),
            (status::BAD_PARAM, FaultKind::BadParameter),
            (status::BAD_SYS_STATE, FaultKind::BadState),
            (status::BAD_RESOURCE, FaultKind::BadParameter),
            (status::RESOURCE_BUSY, FaultKind::BadState),
            (status::NOT_READY, FaultKind::BadState),
            (status::LIMITS, FaultKind::Resources),
            (status::BAD_RESOURCE_STATE, FaultKind::BadState),
            (status::BAD_INDEX, FaultKind::BadParameter),
            (status::NO_RESOURCES, FaultKind::Resources),
            (status::BAD_QP_STATE, FaultKind::BadState),
            (status::BAD_PACKET, FaultKind::BadParameter),
            (status::TOO_MANY_CQES, FaultKind::BadState),
            (status::BAD_INPUT_LENGTH, FaultKind::BadParameter),
            (status::BAD_OUTPUT_LENGTH, FaultKind::BadParameter),
        ];
        for (code, kind) in table {
            let fault = refused(Opcode::ToErrQp, ("QP", 1), code, 0);
            assert_eq!((fault.kind, fault.status), (kind, code));
            assert_ne!(fault.cause, "unknown status");
        }
        assert_eq!(
            refused(Opcode::ToErrQp, ("", 0), 0x77, 0).cause,
            "unknown status"
        );
    }

    #[test]
    fn running_out_of_objects_is_resources_by_either_status() {
        for code in [status::BAD_RESOURCE, status::LIMITS, status::NO_RESOURCES] {
            assert_eq!(
                refused(Opcode::CreateQp, ("", 0), code, 0).kind,
                FaultKind::Resources
            );
        }
    }

    #[test]
    fn a_known_syndrome_brings_its_advice_only_with_its_opcode() {
        let fault = refused(
            Opcode::SetRoceAddress,
            ("GID", 0),
            status::BAD_PARAM,
            0x6_3c66,
        );
        assert!(fault.advice.contains("multicast"), "{fault}");
        assert_eq!(
            refused(Opcode::CreateCq, ("", 0), status::BAD_PARAM, 0x6_3c66).advice,
            ""
        );
    }

    #[test]
    fn a_refusal_reads_like_a_sentence() {
        let fault = refused(
            Opcode::Rtr2RtsQp,
            ("QP", 0x4d),
            status::BAD_PARAM,
            0x4b_b88f,
        );
        let text = fault.to_string();
        assert!(
            text.starts_with("QP 0x4d: RTR2RTS_QP: bad parameter (status 3, syndrome 0x4bb88f); "),
            "{text}"
        );
    }

    #[test]
    fn the_table_is_sorted_and_has_no_doubles() {
        for pair in KNOWN_SYNDROMES.windows(2) {
            let [a, b] = pair else { unreachable!() };
            assert!(a.opcode.code() <= b.opcode.code(), "{a:?} {b:?}");
            assert_ne!((a.opcode, a.syndrome), (b.opcode, b.syndrome));
        }
    }
}
