//! What a switch has beside its ports: SwitchInfo and the forwarding tables.

use std::collections::BTreeMap;

use super::attributes::Data;
use super::smp::{DATA_LEN, status};
use crate::ifc::subnet::switch_info as info;

/// Entries of the linear forwarding table: all unicast LIDs.
pub const LINEAR_CAP: u16 = 0xc000;
/// Entries of the multicast forwarding table.
pub const MULTICAST_CAP: u16 = 1024;
/// Entry of the linear table: no port (IBTA volume 1, 14.2.5.10).
pub const NO_PORT: u8 = 255;

/// LIDs in a block of the linear table.
const LIDS_PER_BLOCK: usize = 64;
/// LIDs in a block of the multicast table (IBTA volume 1, 14.2.5.12).
const GROUPS_PER_BLOCK: u32 = 32;

/// Forwarding state of a switch.
#[derive(Clone, Debug)]
pub struct Switch {
    linear: Vec<u8>,
    /// Masks of 16 ports by group and position; groups count from 0.
    multicast: BTreeMap<(u16, u8), u16>,
    linear_top: u16,
    default_port: u8,
    /// Port for groups beyond the table, and the port for those that come by it.
    pub(super) default_multicast: (u8, u8),
    lifetime: u8,
    pub(super) port_state_change: bool,
}

impl Default for Switch {
    fn default() -> Self {
        Self {
            linear: vec![NO_PORT; LINEAR_CAP.into()],
            multicast: BTreeMap::new(),
            linear_top: 0,
            default_port: 0,
            default_multicast: (0, 0),
            lifetime: 0,
            port_state_change: false,
        }
    }
}

impl Switch {
    /// The port of a unicast LID.
    #[must_use]
    pub fn port_of(&self, lid: u16) -> Option<u8> {
        let port = self.linear.get(usize::from(lid)).copied().filter(|port| *port != NO_PORT)?;
        (lid <= self.linear_top).then_some(port)
    }

    /// Whether a port is in a group, which is counted from the first multicast LID.
    #[must_use]
    pub fn has_port(&self, group: u16, port: u8) -> bool {
        let mask = self.multicast.get(&(group, port / 16)).copied().unwrap_or(0);
        mask >> (port % 16) & 1 != 0
    }

    /// SwitchInfo (IBTA volume 1, 14.2.5.4).
    pub(super) fn info(&self) -> [u8; DATA_LEN] {
        let mut out = [0; DATA_LEN];
        for (field, value) in [
            (info::linear_fdb_cap, LINEAR_CAP.into()),
            (info::multicast_fdb_cap, MULTICAST_CAP.into()),
            (info::linear_fdb_top, self.linear_top.into()),
            (info::default_port, self.default_port.into()),
            (info::default_multicast_primary_port, self.default_multicast.0.into()),
            (info::default_multicast_not_primary_port, self.default_multicast.1.into()),
            (info::lifetime_value, self.lifetime.into()),
            (info::port_state_change, self.port_state_change.into()),
            (info::partition_enforcement_cap, super::port::P_KEYS as u32),
            (info::inbound_enforcement_cap, 1),
            (info::outbound_enforcement_cap, 1),
        ] {
            field.set(&mut out, value);
        }
        out
    }

    /// Set(SwitchInfo). A 1 in PortStateChange clears it.
    pub(super) fn set_info(&mut self, data: &[u8]) -> Result<(), u16> {
        let top = info::linear_fdb_top.get(data) as u16;
        if top >= LINEAR_CAP {
            return Err(status::INVALID);
        }
        self.linear_top = top;
        self.default_port = info::default_port.get(data) as u8;
        self.default_multicast = (
            info::default_multicast_primary_port.get(data) as u8,
            info::default_multicast_not_primary_port.get(data) as u8,
        );
        self.lifetime = info::lifetime_value.get(data) as u8;
        self.port_state_change &= !info::port_state_change.is_set(data);
        Ok(())
    }

    /// Get(LinearForwardingTable).
    pub(super) fn linear_block(&self, block: u32) -> Data {
        let first = block as usize * LIDS_PER_BLOCK;
        let entries = self.linear.get(first..first + LIDS_PER_BLOCK);
        entries.and_then(|entries| entries.try_into().ok()).ok_or(status::INVALID)
    }

    /// Set(LinearForwardingTable).
    pub(super) fn set_linear_block(&mut self, block: u32, data: &[u8]) -> Result<(), u16> {
        let first = block as usize * LIDS_PER_BLOCK;
        let entries = self.linear.get_mut(first..first + LIDS_PER_BLOCK).ok_or(status::INVALID)?;
        for (entry, port) in entries.iter_mut().zip(data) {
            *entry = *port;
        }
        Ok(())
    }

    /// First group and position of a multicast block: the block in the low 9 bits of the modifier,
    /// the position in the high 4.
    fn groups(modifier: u32, ports: u8) -> Result<(u16, u8), u16> {
        let (block, position) = (modifier & 0x1ff, (modifier >> 28) as u8);
        let first = (block * GROUPS_PER_BLOCK) as u16;
        let is_valid =
            modifier & 0x0fff_fe00 == 0 && first < MULTICAST_CAP && position <= ports / 16;
        if is_valid { Ok((first, position)) } else { Err(status::INVALID) }
    }

    /// Get(MulticastForwardingTable).
    pub(super) fn multicast_block(&self, modifier: u32, ports: u8) -> Data {
        let (first, position) = Self::groups(modifier, ports)?;
        let mut out = [0; DATA_LEN];
        for (place, group) in out.chunks_exact_mut(2).zip(first..) {
            let mask = self.multicast.get(&(group, position)).copied().unwrap_or(0);
            place.copy_from_slice(&mask.to_be_bytes());
        }
        Ok(out)
    }

    /// Set(MulticastForwardingTable).
    pub(super) fn set_multicast_block(
        &mut self,
        modifier: u32,
        ports: u8,
        data: &[u8],
    ) -> Result<(), u16> {
        let (first, position) = Self::groups(modifier, ports)?;
        let masks = data.chunks_exact(2).filter_map(<[_]>::first_chunk::<2>);
        for (mask, group) in masks.zip(first..) {
            self.multicast.insert((group, position), u16::from_be_bytes(*mask));
        }
        Ok(())
    }
}
