//! PortInfo: reads, and what a Set may change (IBTA volume 1, 14.2.5.6).

use super::attributes::Data;
use super::m_key::opens;
use super::node::Node;
use super::port::{Physical, Port, State};
use super::smp::{DATA_LEN, status};
use crate::ifc::Field;
use crate::ifc::subnet::port_info as info;
use crate::wire::ib::lid::{self, Kind};

/// Fields that every Set stores as they are.
const STORED: [Field; 8] = [
    info::lmc,
    info::master_sm_sl,
    info::vl_high_limit,
    info::vl_stall_count,
    info::hoq_lifetime,
    info::subnet_time_out,
    info::local_phy_errors,
    info::overrun_errors,
];
/// The same of the ports that have an M_Key and a LID.
const STORED_MANAGEMENT: [Field; 5] = [
    info::lid,
    info::master_sm_lid,
    info::m_key_lease_period,
    info::m_key_protect_bits,
    info::init_type,
];
/// The same of external ports of a switch.
const STORED_EXTERNAL: [Field; 4] = [
    info::partition_enforcement_inbound,
    info::partition_enforcement_outbound,
    info::filter_raw_inbound,
    info::filter_raw_outbound,
];
const VIOLATIONS: [Field; 3] =
    [info::m_key_violations, info::p_key_violations, info::q_key_violations];

impl Node {
    /// The port that a modifier names: by number, or with 0 a channel adapter's port by which the
    /// request came.
    fn named_port(&self, modifier: u32, from: u8) -> Result<u8, u16> {
        let number = match modifier {
            0 if !self.is_switch() => from,
            _ => u8::try_from(modifier).map_err(|_| status::INVALID)?,
        };
        if self.ports.contains_key(&number) { Ok(number) } else { Err(status::INVALID) }
    }

    /// Get(PortInfo).
    pub(super) fn port_info(&self, modifier: u32, from: u8, key: u64) -> Data {
        let number = self.named_port(modifier, from)?;
        let port = self.port(number).ok_or(status::INVALID)?;
        let mut out: [u8; DATA_LEN] = port.info;
        if !opens(port.m_key(), key) && port.get(info::m_key_protect_bits) != 0 {
            info::m_key.set64(&mut out, 0);
        }
        info::local_port_num.set(&mut out, from.into());
        info::port_state.set(&mut out, port.state() as u32);
        info::port_physical_state.set(&mut out, port.physical() as u32);
        Ok(out)
    }

    /// Set(PortInfo).
    pub(super) fn set_port_info(
        &mut self,
        modifier: u32,
        from: u8,
        data: &[u8],
    ) -> Result<(), u16> {
        let number = self.named_port(modifier, from)?;
        let is_switch = self.is_switch();
        // A channel adapter lets a port be set only through itself.
        if !is_switch && number != from {
            return Err(status::INVALID);
        }
        let has_lid = !is_switch || number == 0;
        let has_link = !is_switch || number != 0;
        let port = self.ports.get_mut(&number).ok_or(status::INVALID)?;
        check_values(port, data, has_lid, has_link)?;
        if has_link {
            check_states(port.state(), data)?;
        }
        port.store(data, has_lid, has_link, is_switch);
        if has_link && port.change_state(data) {
            self.retrain.insert(number);
        }
        Ok(())
    }
}

/// Whether each value may stand in its field.
fn check_values(port: &Port, data: &[u8], has_lid: bool, has_link: bool) -> Result<(), u16> {
    let is_unicast = |field: Field| lid::kind(field.get(data) as u16) == Kind::Unicast;
    if has_lid && !(is_unicast(info::lid) && is_unicast(info::master_sm_lid)) {
        return Err(status::INVALID);
    }
    let mask = |enabled: Field, all: u32, supported: Field| {
        let enabled = enabled.get(data);
        enabled == all || enabled & !port.get(supported) == 0
    };
    let mtu = info::neighbor_mtu.get(data);
    let is_valid = mask(info::link_width_enabled, 0xff, info::link_width_supported)
        && mask(info::link_speed_enabled, 0xf, info::link_speed_supported)
        && info::link_down_default_state.get(data) <= Physical::Polling as u32
        && info::operational_vls.get(data) <= port.get(info::vl_cap)
        && (!has_link || mtu != 0 && mtu <= port.get(info::mtu_cap));
    if is_valid { Ok(()) } else { Err(status::INVALID) }
}

/// Whether the link may change as asked: up by one state at a time, down from every one; the
/// physical state only without going up.
fn check_states(state: State, data: &[u8]) -> Result<(), u16> {
    let is_valid = match (info::port_state.get(data), state) {
        (0 | 1, _) => info::port_physical_state.get(data) <= Physical::Disabled as u32,
        (3, State::Init | State::Armed) | (4, State::Armed | State::Active) => {
            info::port_physical_state.get(data) == 0
        }
        _ => false,
    };
    if is_valid { Ok(()) } else { Err(status::INVALID) }
}

impl Port {
    fn store(&mut self, data: &[u8], has_lid: bool, has_link: bool, is_switch: bool) {
        let mut copy = |fields: &[Field]| {
            for field in fields {
                field.set(&mut self.info, field.get(data));
            }
        };
        copy(&STORED);
        if has_lid {
            copy(&STORED_MANAGEMENT);
        }
        if is_switch && has_link {
            copy(&STORED_EXTERNAL);
        }
        if has_link {
            copy(&[info::neighbor_mtu]);
        }
        if has_lid {
            info::m_key.set64(&mut self.info, info::m_key.get64(data));
            info::gid_prefix.set64(&mut self.info, info::gid_prefix.get64(data));
            self.reregistrations += u64::from(info::client_reregister.get(data));
        }
        // Where 0 changes nothing, and all ones mean all that is supported.
        for (enabled, all, supported) in [
            (info::link_width_enabled, 0xff, info::link_width_supported),
            (info::link_speed_enabled, 0xf, info::link_speed_supported),
        ] {
            match enabled.get(data) {
                0 => {}
                value if value == all => {
                    let supported = self.get(supported);
                    enabled.set(&mut self.info, supported);
                }
                value => enabled.set(&mut self.info, value),
            }
        }
        for field in [info::link_down_default_state, info::operational_vls] {
            if field.is_set(data) {
                field.set(&mut self.info, field.get(data));
            }
        }
        // A counter is cleared by a 0 and keeps its value otherwise.
        for field in VIOLATIONS.into_iter().filter(|field| !field.is_set(data)) {
            field.set(&mut self.info, 0);
        }
    }

    /// Changes the states; returns whether the link must train again.
    fn change_state(&mut self, data: &[u8]) -> bool {
        let physical = match info::port_physical_state.get(data) {
            0 if info::port_state.get(data) == State::Down as u32 => {
                self.get(info::link_down_default_state)
            }
            physical => physical,
        };
        match info::port_state.get(data) {
            3 if self.state() == State::Init => self.set_state(State::Armed),
            4 => self.set_state(State::Active),
            _ => {}
        }
        let physical = match physical {
            1 => Physical::Sleep,
            2 => Physical::Polling,
            3 => Physical::Disabled,
            _ => return false,
        };
        self.set_physical(physical);
        true
    }
}
