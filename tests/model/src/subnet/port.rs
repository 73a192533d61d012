//! One port of a node: its PortInfo, its tables, the state of its link.

use std::collections::BTreeMap;

use crate::ifc::subnet::port_info as info;
use crate::wire::ib::grh::Gid;
use crate::wire::ib::packet::DEFAULT_PKEY;

/// State of a link (IBTA volume 1, 7.2; PortInfo.PortState).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// No link.
    Down = 1,
    /// Only subnet management passes.
    Init = 2,
    /// Everything is received, only subnet management is sent.
    Armed = 3,
    /// Everything passes.
    Active = 4,
}

/// State of the physical link (PortInfo.PortPhysicalState; volume 2, chapter 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Physical {
    /// Waits for the other end without asking.
    Sleep = 1,
    /// Asks for the other end.
    Polling = 2,
    /// Switched off.
    Disabled = 3,
    /// Trained.
    LinkUp = 5,
}

/// Capabilities of every port here (PortInfo.CapabilityMask): traps, automatic migration, SL
/// mapping, system image GUID, client reregistration.
pub const CAPABILITIES: u32 = 1 << 3 | 1 << 5 | 1 << 6 | 1 << 11 | 1 << 25;
/// Capability bit: a subnet manager runs on this port.
pub const CAPABILITY_SM: u32 = 1 << 1;
/// Capability bit: a communication manager runs on this port.
pub const CAPABILITY_CM: u32 = 1 << 16;

/// GUIDs of a port.
pub const GUIDS: usize = 8;
/// P_Keys of a port.
pub const P_KEYS: usize = 128;
/// Entries of each of the two VL arbitration tables.
pub const VL_ARBITRATION: usize = 8;
/// A code of MTUs: 4096 bytes (PortInfo.MTUCap).
const MTU_4096: u32 = 5;
const MTU_256: u32 = 1;
/// A code of virtual lanes: VL 0 to 3 (PortInfo.VLCap).
const VL_0_TO_3: u32 = 3;
/// Widths 1x and 4x, as a mask (PortInfo.LinkWidthSupported).
const WIDTHS: u32 = 3;
const WIDTH_4X: u32 = 2;
/// Speeds of 2.5, 5 and 10 Gb/s, as a mask (PortInfo.LinkSpeedSupported).
const SPEEDS: u32 = 7;
const SPEED_10G: u32 = 4;
/// The subnet prefix of a port that no manager has set: fe80::/64 (IBTA volume 1, 4.1.1).
const DEFAULT_PREFIX: u64 = 0xfe80_0000_0000_0000;

/// One port.
#[derive(Clone, Debug)]
pub struct Port {
    /// PortInfo as a Get returns it, but for states that follow from the others.
    pub(super) info: [u8; info::BYTES],
    /// GUIDInfo; the first is the port's own.
    pub guids: [u64; GUIDS],
    /// P_KeyTable.
    pub p_keys: [u16; P_KEYS],
    /// SLtoVLMappingTable by input port; channel adapters have one, of input port 0.
    pub(super) sl_to_vl: BTreeMap<u8, [u8; 16]>,
    /// VLArbitrationTable: low and high priority, virtual lane and weight.
    pub(super) vl_arbitration: [[(u8, u8); VL_ARBITRATION]; 2],
    state: State,
    physical: Physical,
    /// When the protection of the M_Key ends.
    pub(super) lease_ends: Option<crate::host::Nanos>,
    /// How often a manager asked clients to register again.
    pub reregistrations: u64,
}

impl Port {
    /// A port without a link. The management port of a switch is always active.
    pub(super) fn new(guid: u64, is_management: bool) -> Self {
        let mut port = Self {
            info: [0; info::BYTES],
            guids: [0; GUIDS],
            p_keys: [0; P_KEYS],
            sl_to_vl: BTreeMap::new(),
            vl_arbitration: [[(0, 0); VL_ARBITRATION]; 2],
            state: if is_management { State::Active } else { State::Down },
            physical: if is_management { Physical::LinkUp } else { Physical::Polling },
            lease_ends: None,
            reregistrations: 0,
        };
        port.guids[0] = guid;
        port.p_keys[0] = DEFAULT_PKEY;
        info::gid_prefix.set64(&mut port.info, DEFAULT_PREFIX);
        for (field, value) in [
            (info::capability_mask, CAPABILITIES),
            (info::link_width_enabled, WIDTHS),
            (info::link_width_supported, WIDTHS),
            (info::link_width_active, WIDTH_4X),
            (info::link_speed_supported, SPEEDS),
            (info::link_speed_active, SPEED_10G),
            (info::link_speed_enabled, SPEEDS),
            (info::link_down_default_state, Physical::Polling as u32),
            (info::neighbor_mtu, MTU_256),
            (info::mtu_cap, MTU_4096),
            (info::vl_cap, VL_0_TO_3),
            (info::operational_vls, VL_0_TO_3),
            (info::vl_arb_high_cap, VL_ARBITRATION as u32),
            (info::vl_arb_low_cap, VL_ARBITRATION as u32),
            (info::guid_cap, GUIDS as u32),
            (info::resp_time_value, 16),
        ] {
            field.set(&mut port.info, value);
        }
        port
    }

    /// State of the link.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// State of the physical link.
    #[must_use]
    pub fn physical(&self) -> Physical {
        self.physical
    }

    pub(super) fn set_state(&mut self, state: State) {
        self.state = state;
    }

    pub(super) fn set_physical(&mut self, physical: Physical) {
        self.physical = physical;
    }

    /// A field of PortInfo.
    #[must_use]
    pub fn get(&self, field: crate::ifc::Field) -> u32 {
        field.get(&self.info)
    }

    /// The base LID, 0 before a manager sets one.
    #[must_use]
    pub fn lid(&self) -> u16 {
        self.get(info::lid) as u16
    }

    /// How many low bits of the LID are free.
    #[must_use]
    pub fn lmc(&self) -> u32 {
        self.get(info::lmc)
    }

    /// The LID of the master subnet manager, 0 before it sets one.
    #[must_use]
    pub fn master_sm_lid(&self) -> u16 {
        self.get(info::master_sm_lid) as u16
    }

    /// The M_Key.
    #[must_use]
    pub fn m_key(&self) -> u64 {
        info::m_key.get64(&self.info)
    }

    /// The subnet prefix.
    #[must_use]
    pub fn gid_prefix(&self) -> u64 {
        info::gid_prefix.get64(&self.info)
    }

    /// The GID at `index`: prefix and GUID, nothing where there is no GUID.
    #[must_use]
    pub fn gid(&self, index: usize) -> Gid {
        let guid = self.guids.get(index).copied().unwrap_or(0);
        let prefix = if guid == 0 { 0 } else { self.gid_prefix() };
        (u128::from(prefix) << 64 | u128::from(guid)).to_be_bytes()
    }

    /// Whether a GID is one of this port's, with its own prefix or the default one.
    #[must_use]
    pub fn has_gid(&self, gid: &Gid) -> bool {
        let gid = u128::from_be_bytes(*gid);
        let (prefix, guid) = ((gid >> 64) as u64, gid as u64);
        guid != 0
            && self.guids.contains(&guid)
            && (prefix == self.gid_prefix() || prefix == DEFAULT_PREFIX)
    }

    /// Whether `lid` is one of this port's: the base LID and, with an LMC, those that differ from it
    /// in its low bits (IBTA volume 1, 4.1.3).
    #[must_use]
    pub fn has_lid(&self, lid: u16) -> bool {
        let mask = !0 << self.get(info::lmc);
        self.lid() != 0 && lid & mask == self.lid() & mask
    }

    /// The largest payload that the other end takes, in bytes.
    #[must_use]
    pub fn neighbor_mtu(&self) -> usize {
        128 << self.get(info::neighbor_mtu)
    }

    /// Number of data virtual lanes in use (PortInfo.OperationalVLs: 1, 2, 4, 8 or 15).
    #[must_use]
    pub fn lanes(&self) -> u8 {
        (1 << self.get(info::operational_vls).saturating_sub(1).min(4)).min(15)
    }

    /// Whether a key is of a partition of this port: the low 15 bits are equal and one of the two is
    /// a full member (IBTA volume 1, 10.9).
    #[must_use]
    pub fn is_member(&self, p_key: u16) -> bool {
        p_key & 0x7fff != 0
            && self
                .p_keys
                .iter()
                .any(|own| (own ^ p_key) & 0x7fff == 0 && (own | p_key) & 0x8000 != 0)
    }

    /// Counts up a field of 16 bits that stays at its largest value (IBTA volume 1, 14.2.5.6).
    pub(super) fn count(&mut self, field: crate::ifc::Field) {
        let count = self.get(field);
        field.set(&mut self.info, (count + 1).min(0xffff));
    }

    /// Virtual lane of a service level for frames that came by port `from` (IBTA volume 1,
    /// 7.6); the same number where nothing was set, modulo the lanes in use.
    #[must_use]
    pub fn lane(&self, from: u8, sl: u8) -> u8 {
        match self.sl_to_vl.get(&from) {
            Some(map) => map[usize::from(sl & 15)],
            None => sl % self.lanes(),
        }
    }

    /// Whether the port trains when there is a cable.
    pub(super) fn wants_link(&self) -> bool {
        !matches!(self.physical, Physical::Disabled | Physical::Sleep)
    }
}
