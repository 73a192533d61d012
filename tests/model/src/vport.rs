//! The NIC vport context, and the state of the vport; `link.rs` has the link behind it.

use crate::cmd::{Command, Refusal, Stage, Status};
use crate::config::{Config, Personality};
use crate::facts::OpenFact;
use crate::hca::Hca;
use crate::ifc::caps::cmd_hca_cap;
use crate::ifc::vport::{
    modify_nic_vport_context_in as modify_in, modify_nic_vport_field_select as select,
    modify_vport_state_in, nic_vport_context as ctx, query_nic_vport_context_in,
    query_nic_vport_context_out, query_vport_state_in, query_vport_state_out,
};
use std::collections::BTreeSet;

/// State of the vport and the cable.
#[derive(Debug)]
pub(crate) struct Vport {
    /// Current MAC.
    pub(crate) mac: [u8; 6],
    /// Frame size limit, all headers and FCS included.
    pub(crate) mtu: u16,
    /// RoCE switched on by MODIFY_NIC_VPORT_CONTEXT.
    pub(crate) roce_enabled: bool,
    /// It is the physical function's.
    physical: bool,
    /// Something is at the other end of the cable.
    pub(crate) cable: bool,
    /// Administrative state asked for by MODIFY_VPORT_STATE: 0 down, 1 up, 2 follow.
    pub(crate) admin: u32,
    /// Administrative state of the uplink, where it is one of its own: 2 follows the port.
    pub(crate) uplink: u32,
    context: Vec<u8>,
    /// Unicast and multicast lists.
    macs: [Vec<[u8; 6]>; 2],
    /// The same, to look in.
    known_macs: [BTreeSet<[u8; 6]>; 2],
    vlans: Vec<u16>,
}

impl Vport {
    pub(crate) fn new(config: &Config) -> Self {
        let mut context = vec![0; ctx::BYTES];
        // Layer 2 headers must be inline, as on a ConnectX-4 Lx.
        let inline = match config.facts.value(OpenFact::InlineMode) {
            Some(0x11) => 2,
            Some(2) => 0,
            _ => 1,
        };
        ctx::min_wqe_inline_mode.set(&mut context, inline);
        let recorded = config.recording.as_ref().and_then(|recording| recording.vport.as_ref());
        if let Some(recorded) = recorded {
            let inline =
                (!config.facts.on(OpenFact::InlineMode)).then_some(ctx::min_wqe_inline_mode);
            let loops = [ctx::disable_mc_local_lb, ctx::disable_uc_local_lb];
            for field in loops.into_iter().chain(inline) {
                field.set(&mut context, field.get(recorded));
            }
        }
        let mtu = recorded.map_or(0, |recorded| ctx::mtu.get(recorded) as u16);
        let mut vport = Self {
            mac: [0; 6],
            mtu: if mtu == 0 { 1522 } else { mtu },
            roce_enabled: false,
            physical: config.personality == Personality::Pf,
            cable: config.link_up,
            admin: 2,
            uplink: if config.facts.value(OpenFact::UplinkFollow) == Some(1) { 0 } else { 2 },
            context,
            macs: [Vec::new(), Vec::new()],
            known_macs: [BTreeSet::new(), BTreeSet::new()],
            vlans: Vec::new(),
        };
        if config.addressed && !config.facts.on(OpenFact::Mac) {
            vport.give_address(config.mac);
        }
        vport
    }

    /// Gives a virtual function its address, as the owner of the physical function does; a physical
    /// function does so itself.
    pub(crate) fn give_address(&mut self, mac: [u8; 6]) {
        let guid = guid_of(mac);
        self.mac = mac;
        for field in [&ctx::system_image_guid, &ctx::port_guid, &ctx::node_guid] {
            field.set64(&mut self.context, guid);
        }
    }

    /// Multicast frames of its own are not to come back to it.
    pub(crate) fn blocks_own_multicast(&self) -> bool {
        ctx::disable_mc_local_lb.is_set(&self.context)
    }

    /// Whether a frame to this MAC is for the function.
    pub(crate) fn accepts(&self, to: &[u8; 6]) -> bool {
        let promiscuous = |field: crate::ifc::Field| field.is_set(&self.context);
        if promiscuous(ctx::promisc_all) || *to == [0xff; 6] || *to == self.mac {
            return true;
        }
        match to[0] & 1 {
            0 => promiscuous(ctx::promisc_uc) || self.known_macs[0].contains(to),
            // Of a physical function, without an eswitch in between, flow tables alone sort out
            // multicast.
            _ => self.physical || promiscuous(ctx::promisc_mc) || self.known_macs[1].contains(to),
        }
    }

    /// Inline mode that the context asks for.
    pub(crate) fn min_inline(&self) -> u32 {
        ctx::min_wqe_inline_mode.get(&self.context)
    }

    fn list(&self, which: u32) -> Option<Vec<u64>> {
        match which {
            0 | 1 => Some(self.macs[which as usize].iter().map(|mac| number(*mac)).collect()),
            2 => Some(self.vlans.iter().map(|vlan| u64::from(*vlan)).collect()),
            _ => None,
        }
    }
}

/// EUI-64 of a MAC.
pub(crate) fn guid_of(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

fn number(mac: [u8; 6]) -> u64 {
    mac.iter().fold(0, |acc, byte| acc << 8 | u64::from(*byte))
}

fn mac_of(number: u64) -> [u8; 6] {
    let [_, _, mac @ ..] = number.to_be_bytes();
    mac
}

/// Refuses another function's vport: that takes an eswitch manager.
fn own_only(input: &[u8]) -> Result<(), Refusal> {
    let vport = query_nic_vport_context_in::vport_number.get(input);
    if query_nic_vport_context_in::other_vport.is_set(input) || vport != 0 {
        return Err(Status::BadParam.because(0x75_0001));
    }
    Ok(())
}

fn query_state(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    own_only(input)?;
    let physical = hca.config.personality == Personality::Pf;
    match query_vport_state_in::op_mod.get(input) {
        0 => {}
        // The uplink belongs to the physical function.
        2 if physical => {}
        _ => return Err(Status::BadParam.because(0x75_0002)),
    }
    let follows = hca.caps.general(cmd_hca_cap::uplink_follow) != 0;
    let uplink = follows && query_vport_state_in::op_mod.get(input) == 2;
    let admin = if uplink { hca.vport.uplink } else { hca.vport.admin };
    query_vport_state_out::admin_state.set(output, admin);
    query_vport_state_out::state.set(output, u32::from(hca.link_up()));
    Ok(())
}

fn modify_state(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    own_only(input)?;
    let admin = modify_vport_state_in::admin_state.get(input);
    let follows = hca.caps.general(cmd_hca_cap::uplink_follow) != 0;
    let uplink = match modify_vport_state_in::op_mod.get(input) {
        0 => false,
        2 if follows => true,
        _ => return Err(Status::BadParam.because(0x75_1001)),
    };
    if admin > 2 {
        return Err(Status::BadParam.because(0x75_1001));
    }
    let before = hca.link_up();
    *(if uplink { &mut hca.vport.uplink } else { &mut hca.vport.admin }) = admin;
    hca.announce_link(before);
    Ok(())
}

fn query_context(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    own_only(input)?;
    let which = query_nic_vport_context_in::allowed_list_type.get(input);
    let list = hca.vport.list(which).ok_or(Status::BadParam.because(0x75_4001))?;
    let at = query_nic_vport_context_out::nic_vport_context.byte();
    let context = &mut output[at..];
    context[..ctx::BYTES].copy_from_slice(&hca.vport.context);
    ctx::roce_en.set(context, u32::from(hca.vport.roce_enabled));
    ctx::mtu.set(context, u32::from(hca.vport.mtu));
    ctx::permanent_address.set64(context, number(hca.vport.mac));
    ctx::allowed_list_type.set(context, which);
    // As many as the answer has room for; the size says how many there are.
    ctx::allowed_list_size.set(context, list.len() as u32);
    for (to, entry) in context[ctx::BYTES..].chunks_exact_mut(8).zip(list) {
        to.copy_from_slice(&entry.to_be_bytes());
    }
    Ok(())
}

fn modify_context(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    own_only(input)?;
    let chosen = modify_in::field_select.bytes(input);
    let from = modify_in::nic_vport_context.tail(input);
    let roce = ctx::roce_en.is_set(from);
    let mtu = ctx::mtu.get(from) as u16;
    if select::roce_en.is_set(chosen) && roce && hca.caps.general(cmd_hca_cap::roce) == 0 {
        return Err(Status::BadParam.because(0xc1_f678));
    }
    if select::mtu.is_set(chosen) && !(68..=hca.port.max_mtu()).contains(&mtu) {
        return Err(Status::BadParam.because(0x75_5001));
    }
    let address = ctx::permanent_address.get64(from);
    if select::permanent_address.is_set(chosen) && address >> 40 & 1 != 0 {
        return Err(Status::BadParam.because(0x75_5002));
    }
    if select::addresses_list.is_set(chosen) {
        set_list(hca, from)?;
    }
    let vport = &mut hca.vport;
    if select::roce_en.is_set(chosen) {
        vport.roce_enabled = roce;
    }
    if select::mtu.is_set(chosen) {
        vport.mtu = mtu;
    }
    if select::permanent_address.is_set(chosen) {
        vport.mac = mac_of(address);
    }
    for (wanted, fields) in [
        (select::promisc, &[ctx::promisc_uc, ctx::promisc_mc, ctx::promisc_all][..]),
        (select::min_inline, &[ctx::min_wqe_inline_mode]),
        (select::port_guid, &[ctx::port_guid]),
        (select::node_guid, &[ctx::node_guid]),
        (select::disable_mc_local_lb, &[ctx::disable_mc_local_lb]),
        (select::disable_uc_local_lb, &[ctx::disable_uc_local_lb]),
        (
            select::change_event,
            &[
                ctx::arm_change_event,
                ctx::event_on_mtu,
                ctx::event_on_promisc_change,
                ctx::event_on_vlan_change,
                ctx::event_on_mc_address_change,
                ctx::event_on_uc_address_change,
            ],
        ),
    ] {
        if wanted.is_set(chosen) {
            for field in fields {
                field.set64(&mut vport.context, field.get64(from));
            }
        }
    }
    Ok(())
}

/// Replaces one of the allowed lists.
fn set_list(hca: &mut Hca, from: &[u8]) -> Result<(), Refusal> {
    let which = ctx::allowed_list_type.get(from);
    let size = ctx::allowed_list_size.get(from) as usize;
    let limit = match which {
        0 => cmd_hca_cap::log_max_current_uc_list,
        1 => cmd_hca_cap::log_max_current_mc_list,
        2 => cmd_hca_cap::log_max_vlan_list,
        _ => return Err(Status::BadParam.because(0x75_5003)),
    };
    if size > 1 << hca.caps.general(limit) {
        return Err(Status::ExceedLimit.because(0x75_5004));
    }
    let entries = from.get(ctx::BYTES..).unwrap_or(&[]).chunks_exact(8);
    if entries.len() < size {
        return Err(Status::BadInputLength.because(0x75_5005));
    }
    let entries = entries
        .filter_map(<[_]>::first_chunk::<8>)
        .take(size)
        .map(|entry| u64::from_be_bytes(*entry));
    match which {
        2 => hca.vport.vlans = entries.map(|entry| entry as u16 & 0xfff).collect(),
        which => {
            let macs: Vec<_> = entries.map(mac_of).collect();
            hca.vport.known_macs[which as usize] = macs.iter().copied().collect();
            hca.vport.macs[which as usize] = macs;
        }
    }
    Ok(())
}

/// The commands handled here.
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        opcode: 0x750,
        name: "QUERY_VPORT_STATE",
        input: 8,
        output: 16,
        stage: Stage::Running,
        run: query_state,
    },
    Command {
        opcode: 0x751,
        name: "MODIFY_VPORT_STATE",
        input: 16,
        output: 8,
        stage: Stage::Running,
        run: modify_state,
    },
    Command {
        opcode: 0x754,
        name: "QUERY_NIC_VPORT_CONTEXT",
        input: 8,
        output: 272,
        stage: Stage::Running,
        run: query_context,
    },
    Command {
        opcode: 0x755,
        name: "MODIFY_NIC_VPORT_CONTEXT",
        input: 512,
        output: 8,
        stage: Stage::Running,
        run: modify_context,
    },
];
