//! Which attribute a request is for.

use super::node::Node;
use super::smp::{DATA_LEN, Smp, attribute, status};
use crate::ifc::subnet::node_info as info;

/// An attribute's bytes, or the status of the answer.
pub(super) type Data = Result<[u8; DATA_LEN], u16>;

impl Node {
    /// Reads an attribute for a request that came by port `from`.
    pub(super) fn get_attribute(&self, smp: &Smp, from: u8) -> Data {
        let modifier = smp.modifier();
        match smp.attribute() {
            attribute::NODE_DESCRIPTION => plain(modifier, self.description()),
            attribute::NODE_INFO => plain(modifier, self.node_info(from)),
            attribute::SWITCH_INFO => {
                let switch = self.switch.as_ref().ok_or(status::ATTRIBUTE)?;
                plain(modifier, switch.info())
            }
            attribute::PORT_INFO => self.port_info(modifier, from, smp.m_key()),
            attribute::GUID_INFO => self.guid_info(modifier, from),
            attribute::P_KEY_TABLE => self.p_key_table(modifier, from),
            attribute::SL_TO_VL => self.sl_to_vl(modifier, from),
            attribute::VL_ARBITRATION => self.vl_arbitration(modifier, from),
            attribute::LINEAR_FORWARDING => {
                self.switch.as_ref().ok_or(status::ATTRIBUTE)?.linear_block(modifier)
            }
            attribute::MULTICAST_FORWARDING => {
                let ports = self.external_ports();
                self.switch.as_ref().ok_or(status::ATTRIBUTE)?.multicast_block(modifier, ports)
            }
            _ => Err(status::ATTRIBUTE),
        }
    }

    /// Changes an attribute. What is not valid changes nothing.
    pub(super) fn set_attribute(&mut self, smp: &Smp, from: u8) -> Result<(), u16> {
        let (modifier, data) = (smp.modifier(), smp.data());
        let ports = self.external_ports();
        match smp.attribute() {
            attribute::SWITCH_INFO => {
                let switch = self.switch.as_mut().ok_or(status::ATTRIBUTE)?;
                plain(modifier, [0; DATA_LEN])?;
                switch.set_info(data)
            }
            attribute::PORT_INFO => self.set_port_info(modifier, from, data),
            attribute::GUID_INFO => self.set_guid_info(modifier, from, data),
            attribute::P_KEY_TABLE => self.set_p_key_table(modifier, from, data),
            attribute::SL_TO_VL => self.set_sl_to_vl(modifier, from, data),
            attribute::VL_ARBITRATION => self.set_vl_arbitration(modifier, from, data),
            attribute::LINEAR_FORWARDING => {
                let switch = self.switch.as_mut().ok_or(status::ATTRIBUTE)?;
                switch.set_linear_block(modifier, data)
            }
            attribute::MULTICAST_FORWARDING => {
                let switch = self.switch.as_mut().ok_or(status::ATTRIBUTE)?;
                switch.set_multicast_block(modifier, ports, data)
            }
            // NodeInfo and NodeDescription are read only (IBTA volume 1, 14.2.5).
            _ => Err(status::ATTRIBUTE),
        }
    }

    /// NodeDescription: text, filled up with zeros.
    fn description(&self) -> [u8; DATA_LEN] {
        let mut out = [0; DATA_LEN];
        for (place, byte) in out.iter_mut().zip(self.identity.description.bytes()) {
            *place = byte;
        }
        out
    }

    /// NodeInfo (IBTA volume 1, 14.2.5.3).
    fn node_info(&self, from: u8) -> [u8; DATA_LEN] {
        let own = &self.identity;
        let mut out = [0; DATA_LEN];
        let guid = self.port(self.management_port(from)).map_or(0, |port| port.guids[0]);
        info::system_image_guid.set64(&mut out, own.system_guid);
        info::node_guid.set64(&mut out, own.node_guid);
        info::port_guid.set64(&mut out, guid);
        for (field, value) in [
            (info::base_version, 1),
            (info::class_version, 1),
            (info::node_type, if self.is_switch() { 2 } else { 1 }),
            (info::num_ports, self.external_ports().into()),
            (info::partition_cap, super::port::P_KEYS as u32),
            (info::device_id, own.device_id.into()),
            (info::local_port_num, from.into()),
            (info::vendor_id, own.vendor_id),
        ] {
            field.set(&mut out, value);
        }
        out
    }
}

/// An attribute without a modifier.
fn plain(modifier: u32, data: [u8; DATA_LEN]) -> Data {
    if modifier == 0 { Ok(data) } else { Err(status::INVALID) }
}
