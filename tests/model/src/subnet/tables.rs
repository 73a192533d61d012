//! Tables of a port: GUIDInfo, P_KeyTable, SLtoVLMappingTable, VLArbitrationTable.

use super::attributes::Data;
use super::node::Node;
use super::port::{GUIDS, P_KEYS, Port, VL_ARBITRATION};
use super::smp::{DATA_LEN, status};

/// Keys in a block of the P_KeyTable (IBTA volume 1, 14.2.5.7).
const KEYS_PER_BLOCK: usize = 32;

impl Node {
    /// A port of a switch by number, or the own port of a channel adapter.
    fn table_port(&self, number: u32, from: u8) -> Result<u8, u16> {
        let number = if self.is_switch() { number } else { from.into() };
        let number = u8::try_from(number).map_err(|_| status::INVALID)?;
        if self.ports.contains_key(&number) { Ok(number) } else { Err(status::INVALID) }
    }

    fn at(&self, number: u8) -> Result<&Port, u16> {
        self.port(number).ok_or(status::INVALID)
    }

    fn at_mut(&mut self, number: u8) -> Result<&mut Port, u16> {
        self.ports.get_mut(&number).ok_or(status::INVALID)
    }

    /// Get(GUIDInfo): block 0 is all there is.
    pub(super) fn guid_info(&self, modifier: u32, from: u8) -> Data {
        if modifier != 0 {
            return Err(status::INVALID);
        }
        let mut out = [0; DATA_LEN];
        let guids = self.at(self.management_port(from))?.guids;
        for (place, guid) in out.chunks_exact_mut(8).zip(guids) {
            place.copy_from_slice(&guid.to_be_bytes());
        }
        Ok(out)
    }

    /// Set(GUIDInfo): the first GUID is read only (IBTA volume 1, 14.2.5.5).
    pub(super) fn set_guid_info(
        &mut self,
        modifier: u32,
        from: u8,
        data: &[u8],
    ) -> Result<(), u16> {
        if modifier != 0 {
            return Err(status::INVALID);
        }
        let port = self.at_mut(self.management_port(from))?;
        let words = data.chunks_exact(8).filter_map(<[_]>::first_chunk::<8>);
        for (guid, word) in port.guids.iter_mut().zip(words).take(GUIDS).skip(1) {
            *guid = u64::from_be_bytes(*word);
        }
        Ok(())
    }

    /// Port and first key of a block: the port in the high half of the modifier.
    fn key_block(&self, modifier: u32, from: u8) -> Result<(u8, usize), u16> {
        let first = (modifier & 0xffff) as usize * KEYS_PER_BLOCK;
        let number = self.table_port(modifier >> 16, from)?;
        if first < P_KEYS { Ok((number, first)) } else { Err(status::INVALID) }
    }

    /// Get(P_KeyTable).
    pub(super) fn p_key_table(&self, modifier: u32, from: u8) -> Data {
        let (number, first) = self.key_block(modifier, from)?;
        let mut out = [0; DATA_LEN];
        let keys = self.at(number)?.p_keys.iter().skip(first);
        for (place, key) in out.chunks_exact_mut(2).zip(keys) {
            place.copy_from_slice(&key.to_be_bytes());
        }
        Ok(out)
    }

    /// Set(P_KeyTable).
    pub(super) fn set_p_key_table(
        &mut self,
        modifier: u32,
        from: u8,
        data: &[u8],
    ) -> Result<(), u16> {
        let (number, first) = self.key_block(modifier, from)?;
        let words = data.chunks_exact(2).filter_map(<[_]>::first_chunk::<2>);
        for (key, word) in self.at_mut(number)?.p_keys.iter_mut().skip(first).zip(words) {
            *key = u16::from_be_bytes(*word);
        }
        Ok(())
    }

    /// Input and output port of an SLtoVLMappingTable (IBTA volume 1, 14.2.5.8); a channel adapter
    /// has no input ports.
    fn lane_ports(&self, modifier: u32, from: u8) -> Result<(u8, u8), u16> {
        if modifier >> 16 != 0 {
            return Err(status::INVALID);
        }
        let output = self.table_port(modifier & 0xff, from)?;
        let input = if self.is_switch() { self.table_port(modifier >> 8, from)? } else { 0 };
        Ok((input, output))
    }

    /// Get(SLtoVLMappingTable): a nibble for each service level.
    pub(super) fn sl_to_vl(&self, modifier: u32, from: u8) -> Data {
        let (input, output) = self.lane_ports(modifier, from)?;
        let port = self.at(output)?;
        let mut out = [0; DATA_LEN];
        for (place, sl) in out.iter_mut().zip((0..16).step_by(2)) {
            *place = port.lane(input, sl) << 4 | port.lane(input, sl + 1);
        }
        Ok(out)
    }

    /// Set(SLtoVLMappingTable).
    pub(super) fn set_sl_to_vl(&mut self, modifier: u32, from: u8, data: &[u8]) -> Result<(), u16> {
        let (input, output) = self.lane_ports(modifier, from)?;
        let mut map = [0; 16];
        for (pair, byte) in map.chunks_exact_mut(2).zip(data) {
            pair.copy_from_slice(&[byte >> 4, byte & 15]);
        }
        self.at_mut(output)?.sl_to_vl.insert(input, map);
        Ok(())
    }

    /// Port and table of a VL arbitration block (IBTA volume 1, 14.2.5.9): block 1 is the low
    /// priority table, 3 the high one; 2 and 4 would be their entries from 32 on.
    fn arbitration(&self, modifier: u32, from: u8) -> Result<(u8, usize), u16> {
        let number = self.table_port(modifier & 0xffff, from)?;
        match modifier >> 16 {
            1 => Ok((number, 0)),
            3 => Ok((number, 1)),
            _ => Err(status::INVALID),
        }
    }

    /// Get(VLArbitrationTable).
    pub(super) fn vl_arbitration(&self, modifier: u32, from: u8) -> Data {
        let (number, table) = self.arbitration(modifier, from)?;
        let mut out = [0; DATA_LEN];
        let entries = self.at(number)?.vl_arbitration[table];
        for (place, (vl, weight)) in out.chunks_exact_mut(2).zip(entries) {
            place.copy_from_slice(&[vl, weight]);
        }
        Ok(out)
    }

    /// Set(VLArbitrationTable).
    pub(super) fn set_vl_arbitration(
        &mut self,
        modifier: u32,
        from: u8,
        data: &[u8],
    ) -> Result<(), u16> {
        let (number, table) = self.arbitration(modifier, from)?;
        let pairs = data.chunks_exact(2).filter_map(<[_]>::first_chunk::<2>);
        let entries = self.at_mut(number)?.vl_arbitration[table].iter_mut();
        for (entry, [vl, weight]) in entries.zip(pairs).take(VL_ARBITRATION) {
            *entry = (vl & 15, *weight);
        }
        Ok(())
    }
}
