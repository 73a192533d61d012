//! From what the device said to a [`Fault`] a person can act on.

use dat_core::fault;
use dat_core::provider::Fault;

use crate::prm::cmd::Opcode;
use crate::prm::error::{delivery_status, explain};

/// The fault of an answer with a status other than 0, about the object of that number.
#[cold]
#[must_use]
pub(crate) fn refused(op: Opcode, number: u32, code: u8, syndrome: u32) -> Fault {
    let (kind, cause, advice) = explain(op, code, syndrome);
    about(Fault::new(kind, "", cause, advice).with_answer(code, syndrome), op, number)
}

/// The fault of a command that was not delivered.
#[cold]
#[must_use]
pub(crate) fn not_delivered(op: Opcode, number: u32, delivery: u8) -> Fault {
    let fault = fault!(
        Nonsense,
        "",
        delivery_status(delivery),
        "the driver and this firmware disagree about the message; report both versions",
    );
    about(fault.with_answer(0, delivery.into()), op, number)
}

/// The same fault, of this command about the object of that number.
#[cold]
pub(crate) fn about(fault: Fault, op: Opcode, number: u32) -> Fault {
    fault.of(op.object(), number).during(op.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prm::error::{KNOWN_SYNDROMES, status};
    use dat_core::provider::FaultKind;
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
            let fault = refused(Opcode::ToErrQp, 1, code, 0);
            assert_eq!((fault.kind, fault.status), (kind, code));
            assert_ne!(fault.cause, "unknown status");
        }
        assert_eq!(refused(Opcode::ToErrQp, 0, 0x77, 0).cause, "unknown status");
    }

    #[test]
    fn running_out_of_objects_is_resources_by_either_status() {
        for code in [status::BAD_RESOURCE, status::LIMITS, status::NO_RESOURCES] {
            assert_eq!(refused(Opcode::CreateQp, 0, code, 0).kind, FaultKind::Resources);
        }
    }

    #[test]
    fn a_known_syndrome_brings_its_advice_only_with_its_opcode() {
        let fault = refused(Opcode::SetRoceAddress, 0, status::BAD_PARAM, 0x6_3c66);
        assert!(fault.advice.contains("multicast"), "{fault}");
        assert_eq!(refused(Opcode::CreateCq, 0, status::BAD_PARAM, 0x6_3c66).advice, "");
    }

    #[test]
    fn every_known_syndrome_brings_its_own_advice() {
        for row in KNOWN_SYNDROMES {
            let fault = refused(row.opcode, 0, status::BAD_PARAM, row.syndrome);
            assert_eq!((fault.advice, fault.syndrome), (row.advice, row.syndrome), "{row:?}");
            assert!(fault.to_string().contains(row.advice), "{fault}");
        }
    }

    #[test]
    fn a_refusal_reads_like_a_sentence() {
        let fault = refused(Opcode::Rtr2RtsQp, 0x4d, status::BAD_PARAM, 0x4b_b88f);
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
