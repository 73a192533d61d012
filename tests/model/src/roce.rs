//! The RoCE address table: source GID, MAC and VLAN by index.

use crate::caps::kind;
use crate::cmd::{Command, Refusal, Stage, Status};
use crate::hca::Hca;
use crate::ifc::caps::roce_cap;
use crate::ifc::vport::{
    query_roce_address_in, query_roce_address_out, roce_addr_layout as layout, set_roce_address_in,
};
use crate::table::{Counts, Table};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One source address: what SET_ROCE_ADDRESS stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoceAddress {
    /// The GID; IPv4 in the last four bytes (the other twelve as the driver wrote them).
    pub(crate) gid: [u8; 16],
    /// Source MAC of frames.
    pub(crate) mac: [u8; 6],
    /// VLAN to tag with.
    pub(crate) vlan: Option<u16>,
    /// IPv4 rather than IPv6 (RoCEv2).
    pub(crate) ipv4: bool,
    /// RoCEv2 rather than v1.
    pub(crate) v2: bool,
}

impl RoceAddress {
    /// The IP address.
    pub(crate) fn ip(&self) -> IpAddr {
        if self.ipv4 {
            let [.., a, b, c, d] = self.gid;
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        } else {
            IpAddr::V6(Ipv6Addr::from(self.gid)).to_canonical()
        }
    }
}

/// All entries that are set.
#[derive(Debug, Default)]
pub(crate) struct RoceTable {
    entries: Table<u32, RoceAddress>,
    macs: Counts<[u8; 6]>,
    /// Addresses, and whether they are of RoCEv2.
    addresses: Counts<(IpAddr, bool)>,
}

impl RoceTable {
    /// The entry, if one was set.
    pub(crate) fn get(&self, index: u32) -> Option<&RoceAddress> {
        self.entries.get(&index)
    }

    fn set(&mut self, index: u32, entry: RoceAddress) {
        self.clear(index);
        self.entries.insert(index, entry);
        self.macs.add(entry.mac);
        self.addresses.add((entry.ip(), entry.v2));
    }

    fn clear(&mut self, index: u32) {
        if let Some(entry) = self.entries.remove(&index) {
            self.macs.remove(entry.mac);
            self.addresses.remove((entry.ip(), entry.v2));
        }
    }

    /// Whether an entry has that MAC.
    pub(crate) fn has_mac(&self, mac: &[u8; 6]) -> bool {
        self.macs.has(*mac)
    }

    /// Whether an entry of RoCEv2, or of v1, has that address.
    pub(crate) fn has_address(&self, ip: IpAddr, v2: bool) -> bool {
        self.addresses.has((ip, v2))
    }
}

fn index_of(hca: &Hca, index: u32) -> Result<u32, Refusal> {
    if index >= hca.caps.current(kind::ROCE, roce_cap::roce_address_table_size) {
        return Err(Status::BadIndex.because(0x76_0001));
    }
    Ok(index)
}

fn set(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let index = index_of(hca, set_roce_address_in::roce_address_index.get(input))?;
    if set_roce_address_in::vhca_port_num.get(input) > 1 {
        return Err(Status::BadParam.because(0x76_1001));
    }
    let from = set_roce_address_in::roce_address.bytes(input);
    let version = layout::roce_version.get(from);
    let supported = hca.caps.current(kind::ROCE, roce_cap::roce_version);
    // v1 is bit 0 and v2 is bit 2 of the mask; asked even of an entry that is only cleared.
    let bit = match version {
        0 => 0,
        2 => 2,
        _ => return Err(Status::BadParam.because(0x12_822d)),
    };
    if supported >> bit & 1 == 0 {
        return Err(Status::BadParam.because(0x12_822d));
    }
    let l3_type = layout::roce_l3_type.get(from);
    if l3_type > 1 {
        return Err(Status::BadParam.because(0x76_1002));
    }
    let mac = layout::source_mac_47_32.get64(from) << 32 | layout::source_mac_31_0.get64(from);
    let [_, _, mac @ ..] = mac.to_be_bytes();
    if mac[0] & 1 != 0 {
        return Err(Status::BadParam.because(0x6_3c66));
    }
    let mut gid = [0; 16];
    gid.copy_from_slice(layout::source_l3_address.bytes(from));
    if gid == [0; 16] {
        hca.roce.clear(index);
        return Ok(());
    }
    if !hca.vport.roce_enabled {
        return Err(Status::BadSysState.because(0x76_1003));
    }
    if mac == [0; 6] {
        hca.bus.complain(format!("SET_ROCE_ADDRESS {index}: source MAC is zero"));
    }
    let vlan = layout::vlan_valid.is_set(from).then(|| layout::vlan_id.get(from) as u16);
    let ipv4 = version != 0 && l3_type == 0;
    let entry = RoceAddress { gid, mac, vlan, ipv4, v2: version != 0 };
    hca.roce.set(index, entry);
    Ok(())
}

fn query(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let index = index_of(hca, query_roce_address_in::roce_address_index.get(input))?;
    let Some(entry) = hca.roce.entries.get(&index) else {
        return Ok(());
    };
    let to = query_roce_address_out::roce_address.bytes_mut(output);
    layout::source_l3_address.bytes_mut(to).copy_from_slice(&entry.gid);
    let mac = entry.mac.iter().fold(0, |acc, byte| acc << 8 | u64::from(*byte));
    layout::source_mac_47_32.set64(to, mac >> 32);
    layout::source_mac_31_0.set64(to, mac & 0xffff_ffff);
    layout::vlan_valid.set(to, u32::from(entry.vlan.is_some()));
    layout::vlan_id.set(to, u32::from(entry.vlan.unwrap_or(0)));
    layout::roce_l3_type.set(to, u32::from(!entry.ipv4 && entry.v2));
    layout::roce_version.set(to, if entry.v2 { 2 } else { 0 });
    Ok(())
}

/// The commands handled here.
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        opcode: 0x760,
        name: "QUERY_ROCE_ADDRESS",
        input: 12,
        output: 48,
        stage: Stage::Running,
        run: query,
    },
    Command {
        opcode: 0x761,
        name: "SET_ROCE_ADDRESS",
        input: 48,
        output: 8,
        stage: Stage::Running,
        run: set,
    },
];
