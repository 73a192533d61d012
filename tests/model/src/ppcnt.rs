//! PPCNT, the port's counters as the groups of the register show them.
//!
//! Every counter is 64 bits wide and has its place in the group by order. What this port cannot
//! have (symbol errors, collisions, pause frames) stands at zero; so do Ethernet's groups of an
//! InfiniBand port.

use crate::cmd::{Refusal, Status};
use crate::hca::Hca;
use crate::ib::IbPort;
use crate::ifc::regs::ppcnt_reg;
use crate::ifc::subnet::port_counters;

mod group {
    pub(super) const IEEE_802_3: u32 = 0x00;
    pub(super) const RFC_2863: u32 = 0x01;
    pub(super) const RFC_2819: u32 = 0x02;
    pub(super) const RFC_3635: u32 = 0x03;
    pub(super) const EXTENDED: u32 = 0x05;
    pub(super) const PER_PRIORITY: u32 = 0x10;
    pub(super) const PER_TRAFFIC_CLASS: u32 = 0x11;
    pub(super) const PHYSICAL: u32 = 0x12;
    pub(super) const CONGESTION: u32 = 0x13;
    pub(super) const STATISTICAL: u32 = 0x16;
    pub(super) const INFINIBAND: u32 = 0x20;
    pub(super) const INFINIBAND_EXTENDED: u32 = 0x21;
}

/// Where `link_down_events`, which has only 32 bits, lies in the physical group.
const LINK_DOWN_EVENTS: usize = 0xc0;

/// Fills in the group asked for.
pub(crate) fn read(hca: &Hca, asked: &[u8], to: &mut [u8]) -> Result<(), Refusal> {
    let wanted = ppcnt_reg::grp.get(asked);
    let priority = ppcnt_reg::prio_tc.get(asked);
    ppcnt_reg::local_port.set(to, 1);
    ppcnt_reg::grp.set(to, wanted);
    ppcnt_reg::prio_tc.set(to, priority);
    let counters: Vec<u64> = match wanted {
        group::IEEE_802_3 => ieee_802_3(hca),
        group::RFC_2863 => rfc_2863(hca),
        group::RFC_2819 => rfc_2819(hca),
        group::PER_PRIORITY => per_priority(hca, priority as usize),
        group::PHYSICAL => {
            let at = ppcnt_reg::counter_set.byte() + LINK_DOWN_EVENTS;
            let events = hca.traffic.link_down.to_be_bytes();
            to[at..at + 4].copy_from_slice(&events);
            Vec::new()
        }
        // As the performance agent has them, without what selects port and counters.
        group::INFINIBAND => {
            let mut counters = [0; port_counters::BYTES];
            if let Some(ib) = &hca.ib {
                ib.fill_counters(hca.traffic.link_down, false, &mut counters);
            }
            let counters = &counters[port_counters::symbol_error_counter.byte()..];
            to[ppcnt_reg::counter_set.byte()..][..counters.len()].copy_from_slice(counters);
            Vec::new()
        }
        group::INFINIBAND_EXTENDED => hca.ib.as_ref().map_or_else(Vec::new, infiniband_extended),
        group::RFC_3635
        | group::EXTENDED
        | group::PER_TRAFFIC_CLASS
        | group::CONGESTION
        | group::STATISTICAL => Vec::new(),
        _ => return Err(Status::BadParam.because(0x80_5008)),
    };
    let set = &mut to[ppcnt_reg::counter_set.byte()..];
    for (place, value) in
        set.chunks_exact_mut(8).filter_map(<[_]>::first_chunk_mut::<8>).zip(counters)
    {
        *place = value.to_be_bytes();
    }
    Ok(())
}

/// Linux `mlx5_ifc_ib_ext_port_cntrs_grp_data_layout_bits`: what precedes are counters of errors.
fn infiniband_extended(ib: &IbPort) -> Vec<u64> {
    let (out, into) = (&ib.counts.sent, &ib.counts.received);
    let mut counters = vec![0; 12];
    counters.extend([out.words, into.words, out.packets, into.packets, 0, 0]);
    counters.extend([out.unicast, out.multicast, into.unicast, into.multicast]);
    counters
}

fn ieee_802_3(hca: &Hca) -> Vec<u64> {
    let (into, out) = (&hca.traffic.port_in, &hca.traffic.port_out);
    vec![
        out.casts.all().packets,
        into.casts.all().packets,
        0,
        0,
        out.casts.all().octets,
        into.casts.all().octets,
        out.casts.multicast.packets,
        out.casts.broadcast.packets,
        into.casts.multicast.packets,
        into.casts.broadcast.packets,
        0,
        0,
        into.too_long,
    ]
}

fn rfc_2863(hca: &Hca) -> Vec<u64> {
    let (into, out) = (&hca.traffic.port_in, &hca.traffic.port_out);
    vec![
        into.casts.all().octets,
        into.casts.unicast.packets,
        0,
        into.too_long,
        0,
        out.casts.all().octets,
        out.casts.unicast.packets,
        0,
        0,
        into.casts.multicast.packets,
        into.casts.broadcast.packets,
        out.casts.multicast.packets,
        out.casts.broadcast.packets,
    ]
}

fn rfc_2819(hca: &Hca) -> Vec<u64> {
    let into = &hca.traffic.port_in;
    let mut counters = vec![
        0,
        into.casts.all().octets,
        into.casts.all().packets,
        into.casts.broadcast.packets,
        into.casts.multicast.packets,
        0,
        0,
        into.too_long,
        0,
        0,
        0,
    ];
    counters.extend(into.sizes);
    counters
}

fn per_priority(hca: &Hca, priority: usize) -> Vec<u64> {
    let (into, out) = (&hca.traffic.port_in, &hca.traffic.port_out);
    let (into, out) = (into.priorities[priority & 7], out.priorities[priority & 7]);
    vec![into.octets, 0, 0, 0, into.packets, out.octets, 0, 0, 0, out.packets]
}
