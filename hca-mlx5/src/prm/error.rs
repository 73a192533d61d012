//! Status codes and the firmware syndromes whose cause is known.
//!
//! PRM chapter "Command interface, return status"; Linux `mlx5_cmd_stat_err`,
//! `deliv_status_to_str`. The 32-bit syndrome is the firmware's own and unpublished; the table
//! below holds the few whose cause the vendor or somebody else has published. It only
//! ever adds advice: nothing in the driver depends on it.

use dat_core::provider::FaultKind;

use super::cmd::Opcode;

/// Delivery status of a command (how the queue entry was taken) in words.
#[must_use]
pub fn delivery_status(code: u8) -> &'static str {
    match code {
        0 => "delivered",
        0x01 => "not delivered: signature error",
        0x02 => "not delivered: token error",
        0x03 => "not delivered: bad block number",
        0x04 => "not delivered: output mailbox misaligned",
        0x05 => "not delivered: input mailbox misaligned",
        0x06 => "not delivered: firmware internal error",
        0x07 => "not delivered: wrong input length",
        0x08 => "not delivered: wrong output length",
        0x09 => "not delivered: reserved fields not clear",
        0x10 => "not delivered: bad descriptor type",
        _ => "not delivered: unknown delivery status",
    }
}

/// Status of a command.
pub mod status {
    /// It was done.
    pub const OK: u8 = 0x00;
    /// Internal error of the firmware.
    pub const INTERNAL: u8 = 0x01;
    /// The opcode is not known.
    pub const BAD_OP: u8 = 0x02;
    /// A parameter is wrong.
    pub const BAD_PARAM: u8 = 0x03;
    /// The device is in the wrong state as a whole.
    pub const BAD_SYS_STATE: u8 = 0x04;
    /// A named object does not exist; on creation also: none is left.
    pub const BAD_RESOURCE: u8 = 0x05;
    /// A named object is in use.
    pub const RESOURCE_BUSY: u8 = 0x06;
    /// Come again.
    pub const NOT_READY: u8 = 0x07;
    /// A limit of the device is exceeded.
    pub const LIMITS: u8 = 0x08;
    /// A named object is in a state that does not allow it.
    pub const BAD_RESOURCE_STATE: u8 = 0x09;
    /// An index is out of range.
    pub const BAD_INDEX: u8 = 0x0a;
    /// The device has no memory left for it: it wants pages.
    pub const NO_RESOURCES: u8 = 0x0f;
    /// The queue pair is in a state that does not allow the transition.
    pub const BAD_QP_STATE: u8 = 0x10;
    /// A packet in the message is malformed.
    pub const BAD_PACKET: u8 = 0x30;
    /// More completions are outstanding than the new size holds.
    pub const TOO_MANY_CQES: u8 = 0x40;
    /// The input message is too short.
    pub const BAD_INPUT_LENGTH: u8 = 0x50;
    /// The output message is too short.
    pub const BAD_OUTPUT_LENGTH: u8 = 0x51;

    /// In words.
    #[must_use]
    pub const fn text(code: u8) -> &'static str {
        match code {
            OK => "done",
            INTERNAL => "internal error",
            BAD_OP => "bad operation",
            BAD_PARAM => "bad parameter",
            BAD_SYS_STATE => "bad system state",
            BAD_RESOURCE => "bad resource",
            RESOURCE_BUSY => "resource busy",
            NOT_READY => "not ready",
            LIMITS => "limits exceeded",
            BAD_RESOURCE_STATE => "bad resource state",
            BAD_INDEX => "bad index",
            NO_RESOURCES => "no resources",
            BAD_QP_STATE => "bad QP state",
            BAD_PACKET => "bad packet",
            TOO_MANY_CQES => "too many outstanding CQEs",
            BAD_INPUT_LENGTH => "bad input length",
            BAD_OUTPUT_LENGTH => "bad output length",
            _ => "unknown status",
        }
    }
}

/// Returns class, cause and advice for a command that the device refused.
#[must_use]
pub fn explain(opcode: Opcode, code: u8, syndrome: u32) -> (FaultKind, &'static str, &'static str) {
    let known = KNOWN_SYNDROMES.iter().find(|k| k.opcode == opcode && k.syndrome == syndrome);
    let name = opcode.name();
    let (kind, advice) = match code {
        status::BAD_OP => (FaultKind::Unsupported, "this firmware lacks the command"),
        status::LIMITS => (FaultKind::Resources, ""),
        status::NO_RESOURCES => {
            (FaultKind::Resources, "the firmware is out of pages; enlarge the page budget")
        }
        // Real cards answer both this and "limits" when they run out of objects.
        status::BAD_RESOURCE if name.starts_with("CREATE_") || name.starts_with("ALLOC_") => {
            (FaultKind::Resources, "")
        }
        status::BAD_PARAM
        | status::BAD_RESOURCE
        | status::BAD_INDEX
        | status::BAD_PACKET
        | status::BAD_INPUT_LENGTH
        | status::BAD_OUTPUT_LENGTH => (FaultKind::BadParameter, ""),
        status::RESOURCE_BUSY | status::BAD_RESOURCE_STATE if name.starts_with("DESTROY_") => {
            (FaultKind::BadState, "something still refers to it; destroy that first")
        }
        status::BAD_SYS_STATE
        | status::RESOURCE_BUSY
        | status::NOT_READY
        | status::BAD_RESOURCE_STATE
        | status::BAD_QP_STATE
        | status::TOO_MANY_CQES => (FaultKind::BadState, ""),
        _ => (FaultKind::Nonsense, ""),
    };
    (kind, status::text(code), known.map_or(advice, |known| known.advice))
}

/// A syndrome whose cause is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownSyndrome {
    /// The command that returned it.
    pub opcode: Opcode,
    /// The number.
    pub syndrome: u32,
    /// The remedy.
    pub advice: &'static str,
}

const fn known(opcode: Opcode, syndrome: u32, advice: &'static str) -> KnownSyndrome {
    KnownSyndrome { opcode, syndrome, advice }
}

/// All of them, ascending by opcode.
pub const KNOWN_SYNDROMES: &[KnownSyndrome] = &[
    known(
        Opcode::QueryHcaCap,
        0x5a_dd95,
        "this firmware does not know that capability type; ask only for announced ones",
    ),
    known(
        Opcode::EnableHca,
        0x65_8908,
        "the parent function is still resetting; try again when it is up",
    ),
    known(
        Opcode::SetHcaCap,
        0x53_7801,
        "log_max_current_uc_list was set although its maximum is 0 (InfiniBand port)",
    ),
    known(Opcode::CreateMkey, 0x35_e6ec, "signature keys are refused by this firmware; update it"),
    known(
        Opcode::CreateMkey,
        0x59_c8a4,
        "memory keys are used up; destroy some, or reset the device if their owners died",
    ),
    known(
        Opcode::CreateMkey,
        0x1_8af6,
        "memory keys are used up; destroy some, or reset the device if their owners died",
    ),
    known(
        Opcode::CreateMkey,
        0x3_bf6f,
        "the region is so large that its translation size overflows; register it in pieces",
    ),
    known(Opcode::CreateMkey, 0x76_555f, "the uid is not registered with this firmware instance"),
    known(Opcode::CreateEq, 0x8fef, "sizes out of range: the capabilities were read wrongly"),
    known(
        Opcode::DestroyCq,
        0x18_70ad,
        "a queue pair still uses it, or the function was reset meanwhile",
    ),
    known(
        Opcode::CreateQp,
        0x19_c6d6,
        "queue pairs are used up; the device holds fewer than its capability says",
    ),
    known(
        Opcode::CreateQp,
        0x65_b500,
        "queue pairs are used up; the device holds fewer than its capability says",
    ),
    known(Opcode::DestroyQp, 0x25_b161, "no such queue pair; was the function reset meanwhile?"),
    known(
        Opcode::Rtr2RtsQp,
        0x4b_b88f,
        "an attribute does not fit; compare path MTU, timeout and depths with the peer's",
    ),
    known(Opcode::ToErrQp, 0x7e_a02d, "no such queue pair; was the function reset meanwhile?"),
    known(Opcode::ToRstQp, 0x7e_a02d, "no such queue pair; was the function reset meanwhile?"),
    known(
        Opcode::ModifyNicVportContext,
        0xc1_f678,
        "RoCE is not enabled in this function's capabilities; enable it in the NIC's configuration",
    ),
    known(
        Opcode::SetRoceAddress,
        0x6_3c66,
        "the source MAC is a multicast address; give the port a unicast one",
    ),
    known(Opcode::SetRoceAddress, 0x12_822d, "this function does not support that RoCE version"),
    known(Opcode::DeallocPd, 0x31_b635, "a memory key still refers to the PD"),
    known(Opcode::DeallocPd, 0xef_0c8a, "a crypto key still refers to the PD"),
    known(Opcode::AccessReg, 0x1e_5585, "use local_port 1 on a function with one port"),
    known(Opcode::AccessReg, 0x30_5684, "this register is closed to restricted functions"),
    known(Opcode::AccessReg, 0x9a_6171, "this register is closed to restricted functions"),
    known(Opcode::AccessReg, 0xb0_6e1f, "this register is closed to restricted functions"),
    known(
        Opcode::CreateRq,
        0x43_d98f,
        "real-time timestamps are not available; use the default format",
    ),
    known(Opcode::CreateFlowTable, 0xa4_3321, "packets would be encapsulated twice"),
    known(Opcode::DestroyFlowTable, 0x66_d6c3, "the table still has groups"),
    known(Opcode::DestroyFlowGroup, 0x56_3e2f, "the group still has entries"),
    known(
        Opcode::SetFlowTableEntry,
        0x14_4b7a,
        "the entry has neither a forward nor a drop action",
    ),
    known(Opcode::SetFlowTableEntry, 0xcd_b051, "forwarding from uplink to uplink is refused"),
];
