//! Congestion control of RoCE as firmware tells it: on for every priority, with the values that
//! mlxconfig's manual gives as defaults. Nothing slows down here: the wire has no queues.

use crate::caps::kind;
use crate::cmd::{Command, Refusal, Stage, Status};
use crate::hca::Hca;
use crate::ifc::caps::cmd_hca_cap;
use crate::ifc::congestion::{
    cong_control_r_roce_ecn_np as np, cong_control_r_roce_ecn_rp as rp, query_cong_params_in,
    query_cong_params_out, query_cong_status_in, query_cong_status_out,
};

/// Reaction point and notification point of RoCEv2.
const REACTS: u32 = 1;
const NOTIFIES: u32 = 2;

fn allowed(hca: &Hca) -> Result<(), Refusal> {
    if hca.caps.current(kind::GENERAL, cmd_hca_cap::cc_query_allowed) == 0 {
        return Err(Status::BadOp.because(0x82_0001));
    }
    Ok(())
}

fn query_status(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    allowed(hca)?;
    let priority = query_cong_status_in::priority.get(input);
    let on = match query_cong_status_in::cong_protocol.get(input) {
        REACTS => hca.congestion.reacts,
        NOTIFIES => hca.congestion.notifies,
        _ => return Err(Status::BadParam.because(0x82_2001)),
    };
    if priority > 7 {
        return Err(Status::BadParam.because(0x82_2002));
    }
    query_cong_status_out::enable.set(output, u32::from(on) >> priority & 1);
    Ok(())
}

fn query_params(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    allowed(hca)?;
    let to = query_cong_params_out::congestion_parameters.bytes_mut(output);
    match query_cong_params_in::cong_protocol.get(input) {
        REACTS => {
            rp::rpg_time_reset.set(to, 300);
            rp::rpg_byte_reset.set(to, 32_767);
            rp::rpg_threshold.set(to, 1);
            rp::rpg_ai_rate.set(to, 5);
            rp::rpg_hai_rate.set(to, 50);
            rp::rpg_gd.set(to, 11);
            rp::rpg_min_dec_fac.set(to, 50);
            rp::rpg_min_rate.set(to, 1);
            rp::dce_tcp_g.set(to, 1019);
            rp::dce_tcp_rtt.set(to, 1);
            rp::rate_reduce_monitor_period.set(to, 4);
            rp::initial_alpha_value.set(to, 1023);
        }
        NOTIFIES => {
            np::min_time_between_cnps.set(to, 4);
            np::cnp_dscp.set(to, 48);
            np::cnp_802p_prio.set(to, 6);
        }
        _ => return Err(Status::BadParam.because(0x82_4001)),
    }
    Ok(())
}

/// All counters are 0: no packet is marked on the wire, so nothing slows down.
fn query_statistics(hca: &mut Hca, _: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    allowed(hca)
}

/// What an operator may have set: priorities, one bit each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Congestion {
    /// Of which the device slows down when it is notified.
    pub(crate) reacts: u8,
    /// Of which it notifies a sender of marked packets.
    pub(crate) notifies: u8,
}

impl Default for Congestion {
    fn default() -> Self {
        Self { reacts: 0xff, notifies: 0xff }
    }
}

impl Hca {
    /// Sets for which priorities, one bit each, both points are on.
    pub fn set_congestion_control(&mut self, reacts: u8, notifies: u8) {
        self.congestion = Congestion { reacts, notifies };
    }
}

/// The commands handled here.
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        opcode: 0x822,
        name: "QUERY_CONG_STATUS",
        input: 16,
        output: 16,
        stage: Stage::Running,
        run: query_status,
    },
    Command {
        opcode: 0x824,
        name: "QUERY_CONG_PARAMS",
        input: 16,
        output: 272,
        stage: Stage::Running,
        run: query_params,
    },
    Command {
        opcode: 0x826,
        name: "QUERY_CONG_STATISTICS",
        input: 16,
        output: 272,
        stage: Stage::Running,
        run: query_statistics,
    },
];
