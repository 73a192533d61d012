//! Port and system registers, reached by ACCESS_REG.
//!
//! State is stored; values that a port would measure follow from the link. Registers not listed do
//! not exist here and answer "bad parameter", which drivers tolerate where a register is optional.

use crate::cmd::{Command, Refusal, Stage, Status};
use crate::config::{Config, Personality};
use crate::facts::OpenFact;
use crate::hca::Hca;
use crate::ib::{CHANGEABLE, PORT};
use crate::ifc::caps::cmd_hca_cap;
use crate::ifc::regs::{access_register_in as access, paos_reg, pcap_reg, pmlp_reg, pmtu_reg};
use crate::ifc::regs::{ppcnt_reg, ptys_reg, pvlc_reg};
use crate::ifc::subnet::port_info;
use crate::{module, ppcnt};

pub(crate) mod id {
    pub(crate) const PCAP: u32 = 0x5001;
    pub(crate) const PMLP: u32 = 0x5002;
    pub(crate) const PMTU: u32 = 0x5003;
    pub(crate) const PTYS: u32 = 0x5004;
    pub(crate) const PAOS: u32 = 0x5006;
    pub(crate) const PFCC: u32 = 0x5007;
    pub(crate) const PPCNT: u32 = 0x5008;
    pub(crate) const PVLC: u32 = 0x500f;
    pub(crate) const MCIA: u32 = 0x9014;
    pub(crate) const NODE_DESC: u32 = 0x6001;
    pub(crate) const HOST_ENDIANNESS: u32 = 0x7004;
    pub(crate) const DTOR: u32 = 0xc00e;
}

/// Largest frame of the port.
const MAX_MTU: u16 = 10_000;
/// 100GBASE-CR4, 50GBASE-CR2, 40GBASE-CR4, 25GBASE-CR, 10GBASE-CR.
const SPEEDS: u32 = 1 << 20 | 1 << 30 | 1 << 6 | 1 << 27 | 1 << 12;

/// PTYS asks for InfiniBand.
const PROTO_IB: u32 = 1;
/// Widths of an InfiniBand port, 1x and 4x (Linux `mlx5_ptys_width`), and 4x.
const IB_WIDTHS: u32 = 5;
const IB_4X: u32 = 4;
/// Its speeds, SDR to QDR, as PortInfo has them, and QDR.
const IB_SPEEDS: u32 = 7;
const IB_QDR: u32 = 4;
/// Its largest payload.
const IB_MTU: u16 = 4096;

/// State of the registers.
#[derive(Debug)]
pub(crate) struct PortRegisters {
    admin: u32,
    speeds: u32,
    /// Speeds that it can be set to.
    capable: u32,
    /// Largest frame that it can be set to.
    most: u16,
    /// Auto-negotiation is switched off.
    forced: bool,
    /// Widths and speeds of InfiniBand that it may train to.
    ib_admin: (u32, u32),
    /// Port MTU, headers and FCS included.
    pub(crate) mtu: u16,
    pause: [u8; 32],
    node_description: [u8; 64],
    /// The host's byte order has been declared.
    pub(crate) endianness: bool,
}

impl PortRegisters {
    pub(crate) fn new(config: &Config) -> Self {
        let mut node_description = [0; 64];
        node_description[..16].copy_from_slice(b"mlx5 device mode");
        let said = |register, field| config.recording.as_ref()?.register(register, field);
        let capable = said(id::PTYS, ptys_reg::eth_proto_capability).unwrap_or(SPEEDS);
        let most = said(id::PMTU, pmtu_reg::max_mtu).map_or(MAX_MTU, |most| most as u16);
        Self {
            admin: match said(id::PAOS, paos_reg::admin_status) {
                _ if config.facts.on(OpenFact::PortAdmin) => 2,
                said => said.unwrap_or(1),
            },
            speeds: said(id::PTYS, ptys_reg::eth_proto_admin).unwrap_or(capable),
            capable,
            most,
            forced: false,
            ib_admin: (IB_WIDTHS, IB_SPEEDS),
            // As at power-on; the owner of a virtual function's port has opened it wide.
            mtu: match (config.facts.value(OpenFact::PortMtu), config.personality) {
                (Some(mtu), _) => mtu as u16,
                (None, kind) => match (said(id::PMTU, pmtu_reg::admin_mtu), kind) {
                    (Some(mtu), _) => mtu as u16,
                    (None, Personality::Pf) => 1522,
                    (None, Personality::Vf) => MAX_MTU,
                },
            },
            endianness: false,
            pause: [0; 32],
            node_description,
        }
    }

    /// PAOS says up.
    pub(crate) fn admin_up(&self) -> bool {
        self.admin == 1
    }

    /// Largest frame the port can be set to.
    pub(crate) fn max_mtu(&self) -> u16 {
        self.most
    }
}

fn run(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let register = access::register_id.get(input);
    let writes = match access::op_mod.get(input) {
        0 => true,
        1 => false,
        _ => return Err(Status::BadParam.because(0x80_5001)),
    };
    let answer = exchange(hca, register, writes, access::register_data.tail(input))?;
    for (to, from) in output.iter_mut().skip(access::register_data.byte()).zip(answer) {
        *to = from;
    }
    Ok(())
}

/// Writes a register, or not, and reads it.
pub(crate) fn exchange(
    hca: &mut Hca,
    register: u32,
    writes: bool,
    data: &[u8],
) -> Result<Vec<u8>, Refusal> {
    // Data of the length the caller brought or wants, padded so that short ones read as zero.
    let mut data = data.to_vec();
    data.resize(data.len().max(256), 0);
    if writes {
        write(hca, register, &data)?;
    }
    let mut answer = vec![0; 256];
    read(hca, register, &data, &mut answer)?;
    Ok(answer)
}

/// There is one port and its number is 1.
fn port(data: &[u8]) -> Result<(), Refusal> {
    match ppcnt_reg::local_port.get(data) {
        1 => Ok(()),
        _ => Err(Status::BadParam.because(0x1e_5585)),
    }
}

fn write(hca: &mut Hca, register: u32, data: &[u8]) -> Result<(), Refusal> {
    let before = hca.link_up();
    if hca.config.personality == Personality::Vf {
        // The port is the physical function's. Stock Linux writes both of these as a virtual
        // function too, and its log of real ones has no refusal: they are taken and left.
        return match register {
            id::PMTU | id::PAOS => port(data),
            _ => Err(Status::BadResource.because(0xb0_6e1f)),
        };
    }
    match register {
        // What software may say of itself; the rest of the mask is the port's.
        id::PCAP if hca.ib.is_some() => {
            port(data)?;
            let bits = pcap_reg::port_capability_mask.get(data);
            if let Some(ib) = &mut hca.ib {
                ib.node.set_capability(PORT, CHANGEABLE & bits, true);
                ib.node.set_capability(PORT, CHANGEABLE & !bits, false);
            }
            hca.pump_ib();
        }
        id::PTYS if hca.ib.is_some() => {
            port(data)?;
            // Width and speed of InfiniBand; 0 is none.
            let (width, speed) =
                (ptys_reg::ib_link_width_admin.get(data), ptys_reg::ib_proto_admin.get(data));
            if ptys_reg::proto_mask.get(data) != PROTO_IB
                || width & !IB_WIDTHS != 0
                || speed & !IB_SPEEDS != 0
                || width == 0
                || speed == 0
            {
                return Err(Status::BadParam.because(0x80_5002));
            }
            hca.port.ib_admin = (width, speed);
        }
        id::PTYS => {
            port(data)?;
            let wanted = ptys_reg::eth_proto_admin.get(data);
            if wanted & !hca.port.capable != 0 {
                return Err(Status::BadParam.because(0x80_5002));
            }
            hca.port.speeds = wanted;
            hca.port.forced = ptys_reg::an_disable_admin.is_set(data);
        }
        id::PMTU => {
            port(data)?;
            let wanted = pmtu_reg::admin_mtu.get(data) as u16;
            if hca.ib.is_some() {
                // The payload of InfiniBand, which the subnet manager sets.
                let is_mtu = wanted.is_power_of_two() && (256..=IB_MTU).contains(&wanted);
                hca.port.mtu = if is_mtu { wanted } else { hca.port.mtu };
                return if is_mtu { Ok(()) } else { Err(Status::BadParam.because(0x80_5003)) };
            }
            if !(68..=hca.port.most).contains(&wanted) {
                return Err(Status::BadParam.because(0x80_5003));
            }
            hca.port.mtu = wanted;
        }
        id::PAOS => {
            port(data)?;
            // Without its enable bit the administrative state is not looked at: rdma-core's tests
            // write none and take the answer, to read the register.
            if paos_reg::ase.is_set(data) {
                let admin = paos_reg::admin_status.get(data);
                if !(1..=4).contains(&admin) {
                    return Err(Status::BadParam.because(0x80_5004));
                }
                let trains = admin == 1 && hca.port.admin != 1;
                hca.port.admin = admin;
                if trains {
                    hca.train_link();
                }
                hca.announce_link(before);
            }
        }
        id::PFCC => {
            port(data)?;
            let length = hca.port.pause.len();
            hca.port.pause.copy_from_slice(&data[..length]);
        }
        id::NODE_DESC => {
            hca.port.node_description.copy_from_slice(&data[..64]);
            if let Some(ib) = &mut hca.ib {
                let text = data[..64].split(|byte| *byte == 0).next().unwrap_or_default();
                ib.node.set_description(String::from_utf8_lossy(text).into_owned());
            }
        }
        id::HOST_ENDIANNESS if unknown_endianness(hca) => {
            return Err(Status::BadParam.because(0x80_5006));
        }
        id::HOST_ENDIANNESS if data[0] == 0 => hca.port.endianness = true,
        id::HOST_ENDIANNESS => return Err(Status::BadParam.because(0x80_5005)),
        // A write that selects nothing; the answer is a read.
        id::PPCNT => port(data)?,
        _ => return Err(Status::BadParam.because(0x80_5006)),
    }
    Ok(())
}

/// Whether the register is none that this card has.
fn unknown_endianness(hca: &Hca) -> bool {
    hca.config.facts.value(OpenFact::HostEndianness) == Some(1)
}

fn read(hca: &mut Hca, register: u32, asked: &[u8], to: &mut [u8]) -> Result<(), Refusal> {
    let (up, trained) = (hca.link_up(), hca.is_trained());
    hca.refused_before(0x805, 1, register as u16)?;
    // What the card said stays, but for what follows from the state.
    let said = hca.recording().and_then(|recording| recording.answer(register, asked));
    let recorded = said.is_some();
    for (to, from) in to.iter_mut().zip(said.unwrap_or_default()) {
        *to = *from;
    }
    match register {
        id::PCAP if hca.ib.is_some() => {
            port(asked)?;
            let mask = hca.ib.as_ref().map_or(0, |ib| ib.port().get(port_info::capability_mask));
            pcap_reg::local_port.set(to, 1);
            pcap_reg::port_capability_mask.set(to, mask);
        }
        id::PMLP if recorded => port(asked)?,
        id::PMLP => {
            port(asked)?;
            pmlp_reg::local_port.set(to, 1);
            pmlp_reg::width.set(to, 4);
            for (lane, field) in [
                pmlp_reg::lane0_module_mapping,
                pmlp_reg::lane1_module_mapping,
                pmlp_reg::lane2_module_mapping,
                pmlp_reg::lane3_module_mapping,
            ]
            .into_iter()
            .enumerate()
            {
                field.set(to, (lane as u32) << 16);
            }
        }
        id::PTYS => {
            port(asked)?;
            ptys_reg::local_port.set(to, 1);
            if hca.ib.is_some() {
                let (width, speed) = hca.port.ib_admin;
                ptys_reg::proto_mask.set(to, PROTO_IB);
                for (field, value) in [
                    (ptys_reg::ib_link_width_capability, IB_WIDTHS),
                    (ptys_reg::ib_proto_capability, IB_SPEEDS),
                    (ptys_reg::ib_link_width_admin, width),
                    (ptys_reg::ib_proto_admin, speed),
                    (ptys_reg::ib_link_width_oper, if trained { IB_4X } else { 0 }),
                    (ptys_reg::ib_proto_oper, if trained { IB_QDR } else { 0 }),
                    (ptys_reg::connector_type, 2),
                ] {
                    field.set(to, value);
                }
                return Ok(());
            }
            ptys_reg::proto_mask.set(to, 4);
            if ptys_reg::proto_mask.get(asked) == 4 {
                ptys_reg::eth_proto_capability.set(to, hca.port.capable);
                ptys_reg::eth_proto_admin.set(to, hca.port.speeds);
                let fastest =
                    [20, 30, 6, 27, 12].into_iter().find(|b| hca.port.speeds >> b & 1 != 0);
                let speed = fastest.filter(|_| up).map_or(0, |bit| 1 << bit);
                if !up {
                    ptys_reg::ext_eth_proto_oper.set(to, 0);
                }
                if !recorded || !up {
                    ptys_reg::eth_proto_oper.set(to, speed);
                }
                // Auto-negotiation can be switched off; 0 there is none, 1 it is complete, 4 no
                // link.
                ptys_reg::an_disable_cap.set(to, 1);
                ptys_reg::an_disable_admin.set(to, u32::from(hca.port.forced));
                let negotiated = match (hca.port.forced, up) {
                    (true, _) => 0,
                    (false, true) => 1,
                    (false, false) => 4,
                };
                ptys_reg::an_status.set(to, negotiated);
                // Passive copper.
                ptys_reg::connector_type.set(to, 2);
            }
        }
        id::PMTU => {
            port(asked)?;
            pmtu_reg::local_port.set(to, 1);
            if let Some(ib) = &hca.ib {
                pmtu_reg::max_mtu.set(to, u32::from(IB_MTU));
                pmtu_reg::admin_mtu.set(to, u32::from(IB_MTU));
                pmtu_reg::oper_mtu.set(to, ib.port().neighbor_mtu() as u32);
                return Ok(());
            }
            pmtu_reg::max_mtu.set(to, u32::from(hca.port.most));
            pmtu_reg::admin_mtu.set(to, u32::from(hca.port.mtu));
            pmtu_reg::oper_mtu.set(to, u32::from(hca.port.mtu));
        }
        id::PAOS => {
            port(asked)?;
            paos_reg::local_port.set(to, 1);
            paos_reg::admin_status.set(to, hca.port.admin);
            paos_reg::oper_status.set(to, if trained { 1 } else { 2 });
        }
        id::PFCC => {
            port(asked)?;
            to[..hca.port.pause.len()].copy_from_slice(&hca.port.pause);
        }
        id::PPCNT => {
            port(asked)?;
            ppcnt::read(hca, asked, to)?;
        }
        id::MCIA => module::read(asked, to)?,
        id::PVLC => {
            port(asked)?;
            pvlc_reg::local_port.set(to, 1);
            // Ethernet has one; of InfiniBand the number, not PortInfo's code.
            let lanes = hca.ib.as_ref().map_or((1, 1), |ib| (4, ib.port().lanes().into()));
            pvlc_reg::vl_hw_cap.set(to, lanes.0);
            pvlc_reg::vl_admin.set(to, lanes.0);
            pvlc_reg::vl_operational.set(to, lanes.1);
        }
        id::NODE_DESC => to[..64].copy_from_slice(&hca.port.node_description),
        id::DTOR if recorded => {}
        id::DTOR if hca.caps.general(cmd_hca_cap::dtor) != 0 => {
            let limits = hca.config.card.map_or(&[][..], |card| card.time_limits.0);
            for (word, limit) in to.chunks_exact_mut(4).zip(limits) {
                word.copy_from_slice(&limit.to_be_bytes());
            }
        }
        id::HOST_ENDIANNESS if !unknown_endianness(hca) => {}
        _ if recorded => {}
        _ => return Err(Status::BadParam.because(0x80_5007)),
    }
    Ok(())
}

/// The commands handled here.
pub(crate) const COMMANDS: &[Command] = &[Command {
    opcode: 0x805,
    name: "ACCESS_REG",
    input: 16,
    output: 16,
    stage: Stage::Enabled,
    run,
}];
