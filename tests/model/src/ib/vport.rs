//! The vport of an InfiniBand port by command, and management datagrams by command.
//!
//! Where `ib_virt` is 0 software asks the agent by MAD_IFC (Linux `mlx5_use_mad_ifc`). The context
//! can be read even so, but says nothing of subnet management: Linux 6.12 reads it of every
//! InfiniBand port (`mlx5_port_immutable`), and a Connect-IB with its `has_smi` of 0 had no queue
//! pair 0 there (linux-rdma/opensm issue 37).

use super::{IbPort, PORT, pma};
use crate::cmd::{Command, Refusal, Stage, Status};
use crate::config::Personality;
use crate::hca::Hca;
use crate::ifc::caps::cmd_hca_cap;
use crate::ifc::counters::{mad_ifc_in, query_hca_vport_pkey_in};
use crate::ifc::subnet::{port_info, smp as smp_layout};
use crate::ifc::vport::{
    hca_vport_context as ctx, modify_hca_vport_context_in as modify_in, query_hca_vport_context_in,
    query_hca_vport_context_out, query_hca_vport_gid_in, query_hca_vport_gid_out,
};
use crate::subnet::agent::Source;
use crate::subnet::port::{CAPABILITY_CM, CAPABILITY_SM, GUIDS, P_KEYS};
use crate::subnet::smp::{Smp, method};

/// Index that asks for the whole of a table.
const ALL: u32 = 0xffff;
/// What software may change of the capability mask: subnet manager, communication manager, SNMP,
/// device management, vendor class (Linux `mlx5_ib_modify_port`, which looks at
/// `cap_mask1_field_select` before).
pub(crate) const CHANGEABLE: u32 = CAPABILITY_SM | CAPABILITY_CM | 1 << 17 | 1 << 19 | 1 << 20;
/// Fields that a modify selects (Linux `MLX5_HCA_VPORT_SEL_*`).
const SELECT_PORT_GUID: u32 = 1;
const SELECT_NODE_GUID: u32 = 1 << 1;
const SELECT_STATE_POLICY: u32 = 1 << 2;

/// The port, if the command is for it and may be asked.
fn port_of<'a>(hca: &'a mut Hca, input: &[u8]) -> Result<&'a mut IbPort, Refusal> {
    let own = query_hca_vport_context_in::vport_number.get(input) == 0
        && !query_hca_vport_context_in::other_vport.is_set(input)
        && query_hca_vport_context_in::port_num.get(input) <= u32::from(PORT);
    let port = hca.ib.as_mut().ok_or(Status::BadOp.because(0x76_2002))?;
    if own { Ok(port) } else { Err(Status::BadParam.because(0x76_2003)) }
}

/// Refuses what only a port with vports has.
fn needs_virtualization(hca: &Hca) -> Result<(), Refusal> {
    match hca.caps.general(cmd_hca_cap::ib_virt) {
        0 => Err(Status::BadOp.because(0x76_2001)),
        _ => Ok(()),
    }
}

/// QUERY_HCA_VPORT_CONTEXT.
fn query_context(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let has_smi =
        hca.config.personality == Personality::Pf && hca.caps.general(cmd_hca_cap::ib_virt) != 0;
    let ib = port_of(hca, input)?;
    let (port, identity) = (ib.port(), ib.node.identity());
    let to = query_hca_vport_context_out::hca_vport_context.bytes_mut(output);
    for (field, value) in [
        (ctx::sm_virt_aware, 0),
        (ctx::has_smi, u32::from(has_smi)),
        (ctx::port_physical_state, port.physical() as u32),
        (ctx::vport_state_policy, ib.policy),
        (ctx::port_state, port.state() as u32),
        (ctx::vport_state, port.state() as u32),
        (ctx::cap_mask1, port.get(port_info::capability_mask)),
        (ctx::cap_mask1_field_select, CHANGEABLE),
        (ctx::lid, port.lid().into()),
        (ctx::lmc, port.get(port_info::lmc)),
        (ctx::init_type_reply, port.get(port_info::init_type_reply)),
        (ctx::subnet_timeout, port.get(port_info::subnet_time_out)),
        (ctx::sm_lid, port.master_sm_lid().into()),
        (ctx::sm_sl, port.get(port_info::master_sm_sl)),
        (ctx::qkey_violation_counter, port.get(port_info::q_key_violations)),
        (ctx::pkey_violation_counter, port.get(port_info::p_key_violations)),
    ] {
        field.set(to, value);
    }
    ctx::system_image_guid.set64(to, identity.system_guid);
    ctx::port_guid.set64(to, port.guids[0]);
    ctx::node_guid.set64(to, identity.node_guid);
    Ok(())
}

/// MODIFY_HCA_VPORT_CONTEXT. GUIDs and policy are for the owner of the physical function to change,
/// of its virtual functions; of its own vport it may change the capability mask.
fn modify_context(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    if hca.config.personality == Personality::Vf {
        return Err(Status::BadResource.because(0x76_3001));
    }
    needs_virtualization(hca)?;
    let ib = port_of(hca, input)?;
    let from = modify_in::hca_vport_context.bytes(input);
    let selected = ctx::field_select.get(from);
    if selected & (SELECT_PORT_GUID | SELECT_NODE_GUID) != 0 {
        return Err(Status::BadParam.because(0x76_3002));
    }
    let mask = ctx::cap_mask1_field_select.get(from);
    if mask & !CHANGEABLE != 0 {
        return Err(Status::BadParam.because(0x76_3003));
    }
    let policy = ctx::vport_state_policy.get(from);
    if selected & SELECT_STATE_POLICY != 0 {
        if policy > 2 {
            return Err(Status::BadParam.because(0x76_3004));
        }
        ib.policy = policy;
    }
    let bits = ctx::cap_mask1.get(from);
    ib.node.set_capability(PORT, mask & bits, true);
    ib.node.set_capability(PORT, mask & !bits, false);
    hca.pump_ib();
    Ok(())
}

/// QUERY_HCA_VPORT_GID.
fn query_gid(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    needs_virtualization(hca)?;
    let index = query_hca_vport_gid_in::gid_index.get(input);
    let ib = port_of(hca, input)?;
    let wanted = match index {
        ALL => 0..GUIDS,
        index if (index as usize) < GUIDS => index as usize..index as usize + 1,
        _ => return Err(Status::BadIndex.because(0x76_4001)),
    };
    query_hca_vport_gid_out::gids_num.set(output, wanted.len() as u32);
    let places = output[query_hca_vport_gid_out::gid.byte()..].chunks_exact_mut(16);
    if places.len() < wanted.len() {
        return Err(Status::BadOutputLength.because(0x76_4002));
    }
    for (place, index) in places.zip(wanted) {
        place.copy_from_slice(&ib.port().gid(index));
    }
    Ok(())
}

/// QUERY_HCA_VPORT_PKEY of an InfiniBand port.
pub(crate) fn pkeys(ib: &IbPort, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let index = query_hca_vport_pkey_in::pkey_index.get(input);
    let wanted = match index {
        ALL => 0..P_KEYS,
        index if (index as usize) < P_KEYS => index as usize..index as usize + 1,
        _ => return Err(Status::BadIndex.because(0x76_5001)),
    };
    let places = output[16..].chunks_exact_mut(4);
    if places.len() < wanted.len() {
        return Err(Status::BadOutputLength.because(0x76_5002));
    }
    for (place, key) in places.zip(&ib.port().p_keys[wanted]) {
        place.copy_from_slice(&u32::from(*key).to_be_bytes());
    }
    Ok(())
}

/// MAD_IFC on an InfiniBand port: the agents of subnet and performance management. Of a virtual
/// function only the latter answers.
pub(crate) fn mad_ifc(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    if mad_ifc_in::port.get(input) > u32::from(PORT) {
        return Err(Status::BadParam.because(0x50_d001));
    }
    let is_physical = hca.config.personality == Personality::Pf;
    let link_down = hca.traffic.link_down;
    let ib = hca.ib.as_mut().ok_or(Status::BadOp.because(0x50_d002))?;
    let answer = &mut output[mad_ifc_in::mad.byte()..][..smp_layout::BYTES];
    answer.copy_from_slice(mad_ifc_in::mad.bytes(input));
    if smp_layout::mgmt_class.get(answer) == pma::CLASS {
        pma::answer(ib, link_down, answer);
        return Ok(());
    }
    let mut smp = Smp([0; smp_layout::BYTES]);
    smp.0.copy_from_slice(answer);
    if !smp.is_of_class() || !is_physical || ib.node.is_for_manager(&smp, PORT) {
        // No such class, not for this function, or nothing that an agent answers.
        answer[3] |= 0x80;
        answer[4..6].copy_from_slice(&[0, 0x0c]);
        return Ok(());
    }
    let ignores_m_key = mad_ifc_in::op_mod.get(input) & 1 != 0;
    let own_key = ib.port().m_key();
    if ignores_m_key {
        smp_layout::m_key.set64(&mut smp.0, own_key);
    }
    let slid = mad_ifc_in::remote_lid.get(input) as u16;
    let reply = ib.node.answer(&smp, Source { port: PORT, slid });
    match reply {
        Some(mut reply) => {
            if ignores_m_key {
                smp_layout::m_key.set64(&mut reply.0, smp_layout::m_key.get64(answer));
            }
            if smp.is_directed() {
                // The firmware moves the pointer on, and the direction bit is software's to set.
                let pointer = smp.get(smp_layout::hop_pointer);
                let at_end = pointer == smp.get(smp_layout::hop_count) && pointer != 0;
                reply.set(smp_layout::hop_pointer, pointer + u32::from(at_end));
            }
            answer.copy_from_slice(&reply.0);
        }
        // Repressed traps have no answer; a wrong M_Key fails the command.
        None if smp.method() == method::TRAP_REPRESS => {}
        None => return Err(Status::BadParam.because(0x50_d003)),
    }
    hca.pump_ib();
    Ok(())
}

/// The commands handled here.
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        opcode: 0x762,
        name: "QUERY_HCA_VPORT_CONTEXT",
        input: 16,
        output: 528,
        stage: Stage::Running,
        run: query_context,
    },
    Command {
        opcode: 0x763,
        name: "MODIFY_HCA_VPORT_CONTEXT",
        input: 528,
        output: 8,
        stage: Stage::Running,
        run: modify_context,
    },
    Command {
        opcode: 0x764,
        name: "QUERY_HCA_VPORT_GID",
        input: 16,
        output: 32,
        stage: Stage::Running,
        run: query_gid,
    },
];
