//! The performance management agent: what class it is, and the two sets of counters of the port.
//! MAD_IFC reaches it, and so do requests on queue pair 1: firmware answers those before software
//! sees them. No text says so, but Linux 6.12 (`process_pma_cmd`) would answer with an empty header,
//! and `perfquery` of hosts with such cards works.
//!
//! IBTA volume 1, 16.1; Linux `struct ib_pma_portcounters`, `ib_pma_portcounters_ext`,
//! `ib_class_port_info`.

use super::{IbPort, PORT};
use crate::ifc::Field;
use crate::ifc::subnet::{class_port_info, gmp, port_counters as pc, port_counters_ext as pce};
use crate::subnet::Cause;
use crate::subnet::smp::{method, status};

/// Management class of performance management.
pub(super) const CLASS: u32 = 0x04;
const CLASS_PORT_INFO: u32 = 0x0001;
const PORT_COUNTERS: u32 = 0x0012;
const PORT_COUNTERS_EXTENDED: u32 = 0x001d;
/// All ports, where a request names a port.
const ALL_PORTS: u32 = 0xff;
/// CapabilityMask of the class: counters of 64 bits, those for unicast and multicast among them.
const EXTENDED_WIDTH: u32 = 1 << 9;

/// Whether a datagram on queue pair 1 is a request to this agent.
pub(crate) fn is_request(mad: &[u8]) -> bool {
    mad.len() == gmp::BYTES
        && gmp::mgmt_class.get(mad) == CLASS
        && matches!(gmp::method.get(mad) as u8, method::GET | method::SET)
}

/// Answers a request in place.
pub(crate) fn answer(ib: &mut IbPort, link_down: u32, mad: &mut [u8]) {
    let outcome = match (gmp::method.get(mad) as u8, gmp::attr_id.get(mad)) {
        (method::GET, CLASS_PORT_INFO) => {
            let data = gmp::data.bytes_mut(mad);
            data.fill(0);
            class_port_info::base_version.set(data, 1);
            class_port_info::class_version.set(data, 1);
            class_port_info::capability_mask.set(data, EXTENDED_WIDTH);
            class_port_info::resp_time_value.set(data, 16);
            Ok(())
        }
        (method @ (method::GET | method::SET), attribute) => {
            counters(ib, link_down, attribute, method == method::SET, gmp::data.bytes_mut(mad))
        }
        _ => Err(status::METHOD),
    };
    gmp::method.set(mad, method::GET_RESP.into());
    gmp::status.set(mad, outcome.err().unwrap_or(0).into());
}

fn counters(
    ib: &mut IbPort,
    link_down: u32,
    attribute: u32,
    is_set: bool,
    data: &mut [u8],
) -> Result<(), u16> {
    let (port_select, width): (Field, u32) = match attribute {
        PORT_COUNTERS => (pc::port_select, 32),
        PORT_COUNTERS_EXTENDED => (pce::port_select, 64),
        _ => return Err(status::ATTRIBUTE),
    };
    if !matches!(port_select.get(data), n if n == u32::from(PORT) || n == ALL_PORTS) {
        return Err(status::INVALID);
    }
    // A Set is there to clear: the counters come and go together.
    if is_set && pc::counter_select.is_set(data) {
        ib.counts = super::Counts::default();
        ib.node.clear_drops();
    }
    ib.fill_counters(link_down, width == 64, data);
    Ok(())
}

impl IbPort {
    /// Writes the counters of PortCounters, or of PortCountersExtended, each up to its largest value.
    pub(crate) fn fill_counters(&self, link_down: u32, is_extended: bool, to: &mut [u8]) {
        for (field, value) in if is_extended { large(self) } else { small(self, link_down) } {
            let most = if field.width >= 64 { u64::MAX } else { (1 << field.width) - 1 };
            field.set64(to, value.min(most));
        }
    }
}

fn small(ib: &IbPort, link_down: u32) -> Vec<(Field, u64)> {
    let counts = &ib.counts;
    let count = |is_of: fn(Cause) -> bool| -> u64 {
        ib.node.drops().filter(|(_, why, _)| is_of(*why)).map(|(_, _, count)| count).sum()
    };
    let errors = count(|why| matches!(why, Cause::Link(_) | Cause::Malformed(_)));
    let discards = count(|why| {
        matches!(why, Cause::NeighborMtu | Cause::Inactive | Cause::Lifetime | Cause::VlMapping)
    });
    let lost = count(|why| why == Cause::InboxFull);
    vec![
        (pc::link_downed_counter, link_down.into()),
        (pc::port_rcv_errors, errors),
        (pc::port_xmit_discards, discards),
        (pc::vl15_dropped, lost),
        (pc::port_xmit_data, counts.sent.words),
        (pc::port_rcv_data, counts.received.words),
        (pc::port_xmit_packets, counts.sent.packets),
        (pc::port_rcv_packets, counts.received.packets),
    ]
}

fn large(ib: &IbPort) -> Vec<(Field, u64)> {
    let (sent, received) = (&ib.counts.sent, &ib.counts.received);
    vec![
        (pce::port_xmit_data, sent.words),
        (pce::port_rcv_data, received.words),
        (pce::port_xmit_packets, sent.packets),
        (pce::port_rcv_packets, received.packets),
        (pce::port_unicast_xmit_packets, sent.unicast),
        (pce::port_unicast_rcv_packets, received.unicast),
        (pce::port_multicast_xmit_packets, sent.multicast),
        (pce::port_multicast_rcv_packets, received.multicast),
    ]
}
