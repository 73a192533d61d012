//! QP transitions: from which state, which fields, to which state.
//!
//! The context in a transition command is not cumulative. Each transition takes over the fields it
//! *requires* whatever the mask says, and of its *optional* ones those the mask names; everything
//! else in the command is ignored. A mask of 0 is legal everywhere. PRM: QP state transitions.

use super::qp::path;
use crate::ifc::Field;
use crate::ifc::qp::{ads, qpc};
use crate::transport::host::QpState;

/// A bit of `opt_param_mask` and the fields behind it.
pub(crate) type Optional = (u32, &'static [Field]);

const ALT_ADDR_PATH: Optional = (1 << 0, &[qpc::secondary_address_path]);
const RRE: Optional = (1 << 1, &[qpc::rre]);
const RAE: Optional = (1 << 2, &[qpc::rae, qpc::atomic_mode]);
const RWE: Optional = (1 << 3, &[qpc::rwe]);
const PKEY_INDEX: Optional = (1 << 4, &[path(ads::pkey_index)]);
const Q_KEY: Optional = (1 << 5, &[qpc::q_key]);
const RNR_TIMEOUT: Optional = (1 << 6, &[qpc::min_rnr_nak]);
const PRIMARY_ADDR_PATH: Optional = (1 << 7, PRIMARY_PATH);
const PM_STATE: Optional = (1 << 10, &[qpc::pm_state]);
const LAG_TX_AFF: Optional = (1 << 15, &[qpc::lag_tx_port_affinity]);
const PRI_PORT: Optional = (1 << 16, &[path(ads::vhca_port_num)]);
const SRQN: Optional = (1 << 18, &[qpc::srqn_rmpn_xrqn]);
const COUNTER_SET_ID: Optional = (1 << 25, &[qpc::counter_set_id]);

/// The address of the peer: what INIT2RTR needs of the primary path.
const PRIMARY_PATH: &[Field] = &[
    path(ads::fl),
    path(ads::grh),
    path(ads::mlid),
    path(ads::rlid),
    path(ads::src_addr_index),
    path(ads::stat_rate),
    path(ads::hop_limit),
    path(ads::tclass),
    path(ads::flow_label),
    path(ads::rgid_rip),
    path(ads::f_dscp),
    path(ads::f_ecn),
    path(ads::f_eth_prio),
    path(ads::ecn),
    path(ads::dscp),
    path(ads::udp_sport),
    path(ads::dei_cfi),
    path(ads::eth_prio),
    path(ads::sl),
    path(ads::rmac_47_32),
    path(ads::rmac_31_0),
];

/// One transition command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transition {
    /// Opcode.
    pub(crate) opcode: u32,
    /// States it starts from; empty for any.
    pub(crate) from: &'static [QpState],
    /// State it leads to.
    pub(crate) to: QpState,
    /// Field groups always taken over.
    pub(crate) required: &'static [&'static [Field]],
    /// Fields the mask may name.
    pub(crate) optional: &'static [Optional],
}

const TRANSITIONS: &[Transition] = &[
    Transition {
        opcode: 0x502,
        from: &[QpState::Reset],
        to: QpState::Init,
        required: &[&[
            qpc::pm_state,
            path(ads::pkey_index),
            path(ads::vhca_port_num),
            qpc::rre,
            qpc::rwe,
            qpc::rae,
            qpc::atomic_mode,
            qpc::q_key,
            qpc::counter_set_id,
            qpc::mtu,
            qpc::log_msg_max,
        ]],
        optional: &[RRE, RAE, RWE, PKEY_INDEX, Q_KEY, PRI_PORT, LAG_TX_AFF, COUNTER_SET_ID],
    },
    Transition {
        opcode: 0x50e,
        from: &[QpState::Init],
        to: QpState::Init,
        required: &[],
        optional: &[RRE, RAE, RWE, PKEY_INDEX, PRI_PORT, LAG_TX_AFF, Q_KEY, COUNTER_SET_ID],
    },
    Transition {
        opcode: 0x503,
        from: &[QpState::Init],
        to: QpState::Rtr,
        required: &[
            PRIMARY_PATH,
            &[
                qpc::mtu,
                qpc::log_msg_max,
                qpc::remote_qpn,
                qpc::next_rcv_psn,
                qpc::log_rra_max,
                qpc::min_rnr_nak,
            ],
        ],
        optional: &[
            ALT_ADDR_PATH,
            RRE,
            RAE,
            RWE,
            PKEY_INDEX,
            Q_KEY,
            RNR_TIMEOUT,
            LAG_TX_AFF,
            COUNTER_SET_ID,
        ],
    },
    Transition {
        opcode: 0x504,
        from: &[QpState::Rtr],
        to: QpState::Rts,
        required: &[&[
            qpc::next_send_psn,
            qpc::log_sra_max,
            qpc::retry_count,
            qpc::rnr_retry,
            qpc::log_ack_req_freq,
            path(ads::ack_timeout),
        ]],
        optional: &[ALT_ADDR_PATH, RRE, RAE, RWE, PM_STATE, RNR_TIMEOUT, Q_KEY, LAG_TX_AFF],
    },
    Transition {
        opcode: 0x505,
        from: &[QpState::Rts],
        to: QpState::Rts,
        required: &[],
        optional: &[
            RRE,
            RAE,
            RWE,
            RNR_TIMEOUT,
            PM_STATE,
            ALT_ADDR_PATH,
            PRIMARY_ADDR_PATH,
            Q_KEY,
            SRQN,
            LAG_TX_AFF,
            COUNTER_SET_ID,
        ],
    },
    Transition {
        opcode: 0x506,
        from: &[QpState::Sqer],
        to: QpState::Rts,
        required: &[],
        optional: &[RNR_TIMEOUT, RWE, RAE, RRE, Q_KEY],
    },
    Transition { opcode: 0x507, from: &[], to: QpState::Err, required: &[], optional: &[] },
    Transition { opcode: 0x50a, from: &[], to: QpState::Reset, required: &[], optional: &[] },
];

/// The transition of an opcode.
pub(crate) fn find(opcode: u32) -> Option<&'static Transition> {
    TRANSITIONS.iter().find(|t| t.opcode == opcode)
}

impl Transition {
    /// Bits the mask may have.
    pub(crate) fn mask(&self) -> u32 {
        self.optional.iter().fold(0, |sum, (bit, _)| sum | bit)
    }

    /// Takes the transition's fields over from a command's context.
    pub(crate) fn merge(&self, mask: u32, from: &[u8], to: &mut [u8]) {
        let optional = self.optional.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, f)| *f);
        for field in self.required.iter().copied().chain(optional).flatten() {
            copy(*field, from, to);
        }
    }
}

fn copy(field: Field, from: &[u8], to: &mut [u8]) {
    if field.width <= 64 {
        field.set64(to, field.get64(from));
    } else {
        let bytes = field.bytes(from).to_vec();
        let into = field.bytes_mut(to);
        if into.len() == bytes.len() {
            into.copy_from_slice(&bytes);
        }
    }
}

/// The number of a state in the context.
pub(crate) const fn code(state: QpState) -> u32 {
    match state {
        QpState::Reset => 0,
        QpState::Init => 1,
        QpState::Rtr => 2,
        QpState::Rts => 3,
        QpState::Sqer => 4,
        QpState::Err => 6,
    }
}
