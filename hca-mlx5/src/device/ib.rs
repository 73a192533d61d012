//! An InfiniBand port: its state, and what the subnet manager has given it.
//!
//! PRM chapter "Virtual ports". Where the function has a virtual port (`ib_virt`), its context and
//! tables are asked for; else MAD_IFC asks the port's own agent for the attributes, as Linux does
//! (`hw/mlx5/mad.c`). A port carries no traffic before a subnet manager has made it active.

use dat_core::fault;
use dat_core::provider::Fault;
use heapless::Vec;

use crate::device::Device;
use crate::device::config::ROCE_HEADERS;
use crate::platform::Platform;
use crate::prm::cmd::{InputHead, Opcode};
use crate::prm::hca_vport::{
    ANSWER, AttachToMcgIn, CHECK_KEYS, CONTEXT_OUT, HcaVportContext, IGNORE_KEYS, MAD_AT, MAD_IFC,
    MadIfcIn, P_KEY_ENTRY, QueryHcaVportIn,
};
use crate::prm::mad::{BASE_VERSION, MAD_LEN, Mad, MadHeader, class, method};
use crate::prm::reg::{self, Pmtu, Register};
use crate::prm::smp::{self, GuidInfo, NodeInfo, P_KEYS_PER_BLOCK, PortInfo, attribute};
use crate::prm::{At, put, take};

/// P_Keys of a port that are looked at.
pub const P_KEYS: usize = 128;
/// The last of them.
const LAST_P_KEY: u16 = 127;
/// The port of a function with one port.
const PORT: u8 = 1;
/// The MTU of a port that does not say what it can carry: what each one can.
const PLAIN_MTU: u16 = 2048;
/// Bytes of a GID.
const GID: usize = 16;

/// State of a port (IBTA volume 1, 7.2.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortState {
    /// No link.
    #[default]
    Down,
    /// The link is up, and no subnet manager has configured the port.
    Init,
    /// A subnet manager has configured it, and not activated it.
    Armed,
    /// It carries traffic.
    Active,
}

impl PortState {
    const fn of(code: u8) -> Self {
        match code {
            2 => Self::Init,
            3 => Self::Armed,
            4 => Self::Active,
            _ => Self::Down,
        }
    }

    /// The specification's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Down => "Down",
            Self::Init => "Init",
            Self::Armed => "Armed",
            Self::Active => "Active",
        }
    }
}

/// An InfiniBand port as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IbPort {
    /// State.
    pub state: PortState,
    /// LID; 0 before a subnet manager has given one.
    pub lid: u16,
    /// How many low bits of the LID are the port's to choose.
    pub lmc: u8,
    /// LID of the subnet manager.
    pub sm_lid: u16,
    /// Service level to it.
    pub sm_sl: u8,
    /// The first GID: subnet prefix and port GUID.
    pub gid: u128,
    /// The function may use QP0.
    pub has_smi: bool,
    /// P_Keys, 0 where an entry is empty.
    pub pkeys: Vec<u16, P_KEYS>,
}

impl IbPort {
    /// Returns the entry of the P_Key table for a partition; that of a full member rather than that
    /// of a limited one.
    #[must_use]
    pub fn pkey_index(&self, pkey: u16) -> Option<u16> {
        let partition = pkey & !smp::P_KEY_FULL_MEMBER;
        let full = partition | smp::P_KEY_FULL_MEMBER;
        let place = |key: u16| self.pkeys.iter().position(|has| *has == key);
        let index = place(full).or_else(|| place(partition).filter(|_| partition != 0))?;
        u16::try_from(index).ok()
    }

    /// Returns the upper half of the GID.
    #[must_use]
    pub fn prefix(&self) -> u64 {
        u64::try_from(self.gid >> 64).unwrap_or(0)
    }
}

impl<P: Platform> Device<'_, P> {
    /// Reads the identity of an InfiniBand port. Its link trains by itself.
    pub(crate) fn open_ib_port(&mut self, wanted: u16) -> Result<(), Fault> {
        self.identity.node_guid = if self.caps.general.ib_virt() {
            self.vport()?.node_guid()
        } else {
            let answer = self.own_agent(attribute::NODE_INFO, 0)?;
            NodeInfo::read(&answer, 0).node_guid()
        };
        let mut pmtu = Pmtu::new();
        pmtu.set_local_port(PORT);
        let read = self.register(Register::Pmtu, reg::READ, &mut pmtu.0)?;
        // What it carries now may be less until a subnet manager has configured it.
        let most = if read && pmtu.max_mtu() != 0 { pmtu.max_mtu() } else { PLAIN_MTU };
        // What is wanted is a frame of RoCE; here the payload alone counts.
        let headers = u16::try_from(ROCE_HEADERS).unwrap_or(u16::MAX);
        self.identity.frame_size = most.min(wanted.saturating_sub(headers));
        Ok(())
    }

    /// Asks what the port is now. [`Fault`] on an Ethernet port.
    pub fn ib_port(&mut self) -> Result<IbPort, Fault> {
        if self.caps.general.ib_virt() { self.port_of_vport() } else { self.port_of_agent() }
    }

    fn vport(&mut self) -> Result<HcaVportContext<[u8; 512]>, Fault> {
        let mut output = [0; CONTEXT_OUT];
        let op = Opcode::QueryHcaVportContext;
        self.exec(op, 0, 1, &mut QueryHcaVportIn::new().0, &mut output)?;
        Ok(HcaVportContext::read(&output, ANSWER))
    }

    fn port_of_vport(&mut self) -> Result<IbPort, Fault> {
        let context = self.vport()?;
        let mut output = [0; ANSWER + GID];
        self.exec(Opcode::QueryHcaVportGid, 0, 1, &mut QueryHcaVportIn::new().0, &mut output)?;
        let gid = u128::from_be_bytes(take(&output, ANSWER));
        let mut pkeys = Vec::new();
        // The answer for all of them has the length of the table.
        let whole = pkey_entries(self.caps.general.pkey_table_size()) == P_KEYS;
        let first = if whole { u16::MAX } else { 0 };
        for index in first..=first.max(LAST_P_KEY) {
            let mut input = QueryHcaVportIn::new();
            input.set_index(index);
            let mut output = [0; ANSWER + P_KEY_ENTRY * P_KEYS];
            let len = if whole { output.len() } else { ANSWER + P_KEY_ENTRY };
            let answer = output.get_mut(..len).unwrap_or_default();
            self.exec(Opcode::QueryHcaVportPkey, 0, 1, &mut input.0, answer)?;
            for place in 0..if whole { P_KEYS } else { 1 } {
                let at = ANSWER + P_KEY_ENTRY * place + 2;
                let _ = pkeys.push(u16::from_be_bytes(take(&output, at)));
            }
        }
        Ok(IbPort {
            state: PortState::of(context.vport_state()),
            lid: context.lid(),
            lmc: context.lmc(),
            sm_lid: context.sm_lid(),
            sm_sl: context.sm_sl(),
            gid,
            has_smi: context.has_smi(),
            pkeys,
        })
    }

    fn port_of_agent(&mut self) -> Result<IbPort, Fault> {
        let info = PortInfo::read(&self.own_agent(attribute::PORT_INFO, PORT.into())?, 0);
        let guids = GuidInfo::read(&self.own_agent(attribute::GUID_INFO, 0)?, 0);
        let mut pkeys = Vec::new();
        let mut block = 0;
        while pkeys.len() < P_KEYS {
            let answer = self.own_agent(attribute::P_KEY_TABLE, block)?;
            for index in 0..P_KEYS_PER_BLOCK {
                let _ = pkeys.push(u16::from_be_bytes(take(&answer, 2 * index)));
            }
            block += 1;
        }
        Ok(IbPort {
            state: PortState::of(info.port_state()),
            lid: info.lid(),
            lmc: info.lmc(),
            sm_lid: info.sm_lid(),
            sm_sl: info.master_sm_sl(),
            gid: u128::from(info.gid_prefix()) << 64 | u128::from(guids.guid_0()),
            has_smi: true,
            pkeys,
        })
    }

    /// MODIFY_HCA_VPORT_CONTEXT: whether the port says that a subnet manager runs behind it.
    pub(crate) fn announce_manager(&mut self, runs: bool) -> Result<(), Fault> {
        let mut input = [0; CONTEXT_OUT];
        QueryHcaVportIn(&mut input).set_vport_number(0);
        let mut context = HcaVportContext(At::<_, ANSWER>(&mut input));
        context.set_cap_mask1(if runs { smp::capability::SM } else { 0 });
        context.set_cap_mask1_field_select(smp::capability::SM);
        self.run(Opcode::ModifyHcaVportContext, PORT.into(), &mut input)
    }

    /// MAD_IFC: gives the port's own subnet management agent a datagram, and returns its answer.
    /// `from` is the LID of one that came by the network, whose keys are checked.
    pub(crate) fn own_agent_mad(&mut self, mad: &Mad, from: Option<u16>) -> Result<Mad, Fault> {
        let mut input = [0; MAD_IFC];
        MadIfcIn(&mut input).set_port(PORT);
        MadIfcIn(&mut input).set_remote_lid(from.unwrap_or(0));
        let checks = if from.is_some() { CHECK_KEYS } else { IGNORE_KEYS };
        put(&mut input, MAD_AT, mad);
        let mut output = [0; MAD_IFC];
        self.exec(Opcode::MadIfc, checks, PORT.into(), &mut input, &mut output)?;
        Ok(take(&output, MAD_AT))
    }

    /// MAD_IFC: gets an attribute from the port's own subnet management agent.
    fn own_agent(&mut self, attr_id: u16, attr_mod: u32) -> Result<[u8; smp::DATA_LEN], Fault> {
        let mut question = [0; MAD_LEN];
        let mut mad = MadHeader(&mut question);
        mad.set_base_version(BASE_VERSION);
        mad.set_mgmt_class(class::SUBNET_LID);
        mad.set_class_version(smp::CLASS_VERSION);
        mad.set_method(method::GET);
        mad.set_attr_id(attr_id);
        mad.set_attr_mod(attr_mod);
        let said = self.own_agent_mad(&question, None)?;
        let answer = MadHeader(&said);
        if answer.status() != 0 || answer.attr_id() != attr_id {
            return Err(fault!(
                Nonsense,
                "",
                "the port's agent does not answer for an attribute that every port has",
                "update the firmware"
            )
            .of("attribute", attr_id.into())
            .during(Opcode::MadIfc.name()));
        }
        Ok(take(&said, smp::DATA))
    }

    /// ATTACH_TO_MCG or DETACH_FROM_MCG: whether packets to a group reach a queue pair.
    pub(crate) fn set_member(&mut self, qpn: u32, group: u128, member: bool) -> Result<(), Fault> {
        let mut input = AttachToMcgIn::new();
        AttachToMcgIn(&mut input.0).set_multicast_gid(group);
        InputHead(At::<_, 0>(&mut input.0)).set_number(qpn);
        let op = if member { Opcode::AttachToMcg } else { Opcode::DetachFromMcg };
        self.run(op, qpn, &mut input.0)
    }
}

/// P_Keys in a table of that size as the capability codes it (Linux `mlx5_to_sw_pkey_sz`).
fn pkey_entries(code: u16) -> usize {
    P_KEYS.checked_shl(code.into()).unwrap_or(usize::MAX)
}
