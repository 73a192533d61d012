//! Raw Ethernet through commands, rings and wire.

use super::super::ethernet::Headers;
use super::flow::udp;
use super::{CQ_PAGE, DATA, RQ_DBR, RQ_PAGE, Rig, SQ_DBR, SQ_PAGE, control, pointer};
use crate::function::RESERVED_LKEY;
use crate::ifc::flow::{
    create_flow_group_in as group_in, create_flow_table_in as table_in, dest_format_struct as dest,
    flow_context, flow_object_in, fte_match_set_lyr_2_4 as lyr, set_flow_table_root_in as root_in,
    set_fte_in, set_l2_table_entry_in as l2,
};
use crate::ifc::wq::{tir_in, tirc, tis_in, tisc};

/// Everything a driver builds to send and receive frames for its MAC and broadcasts.
pub(super) struct Port {
    pub(super) rig: Rig,
    pub(super) cqn: u32,
    pub(super) tis: u32,
    pub(super) sqn: u32,
    pub(super) rqn: u32,
    pub(super) tirn: u32,
    pub(super) table: u32,
    pub(super) group: u32,
}

pub(super) fn port() -> Port {
    let mut rig = Rig::new();
    let cqn = rig.cq(5);
    let mut input = vec![0; 192];
    tisc::transport_domain.set(tis_in::tisc.bytes_mut(&mut input), rig.td);
    let tis = rig.run(0x912, &input).unwrap();
    let sqn = rig.sq(cqn, Some(tis));
    let rqn = rig.rq(cqn);
    rig.ready(0x905, sqn, 0, 1).unwrap();
    rig.ready(0x909, rqn, 0, 1).unwrap();
    let mut input = vec![0; 272];
    let context = tir_in::tirc.bytes_mut(&mut input);
    tirc::transport_domain.set(context, rig.td);
    tirc::inline_rqn.set(context, rqn);
    let tirn = rig.run(0x900, &input).unwrap();
    let mut input = vec![0; 64];
    let context = table_in::flow_table_context.bytes_mut(&mut input);
    crate::ifc::flow::flow_table_context::log_size.set(context, 2);
    let table = rig.run(0x930, &input).unwrap();
    let mut input = vec![0; 1024];
    group_in::table_id.set(&mut input, table);
    group_in::end_flow_index.set(&mut input, 3);
    group_in::match_criteria_enable.set(&mut input, 1);
    let mask = group_in::match_criteria.bytes_mut(&mut input);
    lyr::dmac_47_16.set(mask, u32::MAX);
    lyr::dmac_15_0.set(mask, 0xffff);
    let group = rig.run(0x933, &input).unwrap();
    let mut port = Port { rig, cqn, tis, sqn, rqn, tirn, table, group };
    let own = port.rig.hca.vport.mac;
    port.entry(0, [0xff; 6], 4, 2, tirn).unwrap();
    port.entry(1, own, 4, 2, tirn).unwrap();
    let mut input = vec![0; 64];
    root_in::table_id.set(&mut input, table);
    port.rig.run(0x92f, &input).unwrap();
    port
}

impl Port {
    pub(super) fn entry(
        &mut self,
        index: u32,
        mac: [u8; 6],
        action: u32,
        kind: u32,
        to: u32,
    ) -> Result<u32, crate::cmd::Refusal> {
        let input = self.entry_input(index, mac, action, kind, to);
        self.rig.run(0x936, &input)
    }

    /// An entry to a TIR that counts in a flow counter.
    pub(super) fn counted_entry(
        &mut self,
        index: u32,
        mac: [u8; 6],
        tirn: u32,
        counter: u32,
    ) -> Result<u32, crate::cmd::Refusal> {
        let mut input = self.entry_input(index, mac, 4 | 8, 2, tirn);
        let context = set_fte_in::flow_context.bytes_mut(&mut input);
        flow_context::flow_counter_list_size.set(context, 1);
        input.extend(counter.to_be_bytes());
        input.extend([0; 4]);
        self.rig.run(0x936, &input)
    }

    fn entry_input(&self, index: u32, mac: [u8; 6], action: u32, kind: u32, to: u32) -> Vec<u8> {
        let mut input = vec![0; 840];
        set_fte_in::table_id.set(&mut input, self.table);
        set_fte_in::flow_index.set(&mut input, index);
        let context = set_fte_in::flow_context.bytes_mut(&mut input);
        flow_context::group_id.set(context, self.group);
        flow_context::action.set(context, action);
        flow_context::destination_list_size.set(context, 1);
        let value = flow_context::match_value.bytes_mut(context);
        lyr::dmac_47_16.set(value, u32::from_be_bytes([mac[0], mac[1], mac[2], mac[3]]));
        lyr::dmac_15_0.set(value, u32::from(u16::from_be_bytes([mac[4], mac[5]])));
        dest::destination_type.set(&mut input[832..], kind);
        dest::destination_id.set(&mut input[832..], to);
        input
    }

    /// Posts receives of 2 KiB by the reserved key.
    pub(super) fn buffers(&mut self, from: u32, count: u32) {
        for n in from..from + count {
            let at = DATA + 0x1_0000 + u64::from(n % 8) * 2048;
            let entry = pointer(2048, RESERVED_LKEY, at);
            self.rig.poke(RQ_PAGE + u64::from(n % 8) * 16, &entry);
        }
        self.rig.poke32(RQ_DBR, from + count);
    }

    /// Sends a frame of which 18 bytes ride in the work request, at most.
    pub(super) fn send(&mut self, index: u16, frame: &[u8], inline: usize, flags: u8) {
        let mut wqe = control(0x0a, index, self.sqn, 0, 0);
        let mut segment = vec![0; 14];
        segment[4] = flags;
        segment[0x0c..0x0e].copy_from_slice(&(inline as u16).to_be_bytes());
        segment.extend(&frame[..inline]);
        segment.resize(segment.len().max(16).next_multiple_of(16), 0);
        wqe.extend(segment);
        self.rig.poke(DATA, &frame[inline..]);
        wqe.extend(pointer((frame.len() - inline) as u32, RESERVED_LKEY, DATA));
        wqe[7] = (wqe.len() / 16) as u8;
        self.rig.poke(SQ_PAGE + u64::from(index % 4) * 64, &wqe);
        self.rig.poke32(SQ_DBR + 4, u32::from(index) + 1);
        let sqn = self.sqn;
        self.rig.ring(sqn);
    }

    /// Lets a TIR have unicasts of its own transport domain.
    pub(super) fn take_own(&mut self, tirn: u32) {
        let mut input = vec![0; 272];
        input[8..12].copy_from_slice(&tirn.to_be_bytes());
        tir_in::modify_bitmask.set64(&mut input, 1 << 4);
        tirc::self_lb_block.set(tir_in::tirc.bytes_mut(&mut input), 1);
        self.rig.run(0x901, &input).unwrap();
    }

    /// Returns the next frame on the wire without its padding.
    fn wired(&self) -> Vec<u8> {
        let sent = self.rig.sent.lock().unwrap().pop_front();
        let mut sent = sent.unwrap_or_default();
        let end = Headers::of(&sent).map_or(0, |headers| headers.end);
        sent.truncate(end);
        sent
    }

    pub(super) fn arrive(&mut self, frame: &[u8]) {
        self.rig.coming.lock().unwrap().push_back(frame.to_vec());
        self.rig.hca.step(0);
    }
}

pub(super) const PEER: [u8; 6] = [2, 9, 9, 9, 9, 9];

#[test]
fn a_frame_goes_out_whole() {
    let mut port = port();
    let frame = udp(PEER, 7, None);
    port.send(0, &frame, 18, 0);
    port.rig.hca.step(0);
    assert_eq!(port.wired(), frame);
    let cqe = port.rig.cqe(0);
    assert_eq!((cqe[0x3f] >> 4, cqe[0x38]), (0, 0x0a));
}

#[test]
fn checksums_are_filled_in_when_asked() {
    let mut port = port();
    let frame = udp(PEER, 7, None);
    let mut blank = frame.clone();
    blank[24..26].fill(0);
    blank[40..42].fill(0);
    port.send(0, &blank, 18, 0xc0);
    port.rig.hca.step(0);
    assert_eq!(port.wired(), frame);
}

#[test]
fn too_little_inline_fails_and_flushes() {
    let mut port = port();
    let frame = udp(PEER, 7, None);
    port.send(0, &frame, 0, 0);
    let cqe = port.rig.cqe(0);
    assert_eq!((cqe[0x3f] >> 4, cqe[0x37]), (13, 1));
    port.send(1, &frame, 18, 0);
    let cqe = port.rig.cqe(1);
    assert_eq!((cqe[0x3f] >> 4, cqe[0x37], cqe[0x3d]), (13, 5, 1));
    assert!(port.rig.complained("inline"));
}

#[test]
fn a_frame_to_the_own_mac_turns_round() {
    let mut port = port();
    port.buffers(0, 1);
    let (tirn, own) = (port.tirn, port.rig.hca.vport.mac);
    port.take_own(tirn);
    let frame = udp(own, 7, None);
    port.send(0, &frame, 18, 0);
    port.rig.hca.step(0);
    assert!(port.rig.sent.lock().unwrap().is_empty());
    assert_eq!(port.rig.peek(DATA + 0x1_0000, frame.len()), frame);
}

#[test]
fn a_received_frame_and_its_completion() {
    let mut port = port();
    port.buffers(0, 2);
    let frame = udp([0xff; 6], 7, None);
    port.arrive(&frame);
    assert_eq!(port.rig.peek(DATA + 0x1_0000, frame.len()), frame);
    let cqe = port.rig.cqe(0);
    assert_eq!(cqe[0x3f] >> 4, 2);
    assert_eq!(cqe[0x2c..0x30], (frame.len() as u32).to_be_bytes());
    assert_eq!((cqe[0x1c], cqe[0x1d]), (7, 0x28));
    let want = super::super::ethernet::sum(&frame[14..]);
    assert_eq!(cqe[0x14..0x16], want.to_be_bytes());
    assert_eq!(cqe[0x39..0x3c], [0; 3], "the flow's tag, not the queue");
}

#[test]
fn tags_are_stripped() {
    let mut port = port();
    port.buffers(0, 1);
    port.arrive(&udp([0xff; 6], 7, Some(0x2005)));
    let plain = udp([0xff; 6], 7, None);
    assert_eq!(port.rig.peek(DATA + 0x1_0000, plain.len()), plain);
    let cqe = port.rig.cqe(0);
    assert_eq!((cqe[0x1d] & 1, &cqe[0x1e..0x20]), (1, &[0x20, 0x05][..]));
}

#[test]
fn foreign_macs_and_missing_buffers_drop() {
    let mut port = port();
    port.arrive(&udp([0xff; 6], 7, None));
    port.buffers(0, 1);
    port.arrive(&udp(PEER, 7, None));
    assert_eq!(port.rig.hca.bus.stats.cqes, 0);
    // With the peer's MAC in the L2 table the frame passes the filter and meets no flow entry;
    // with an entry it arrives.
    let mut input = vec![0; 64];
    l2::mac_address.bytes_mut(&mut input)[2..].copy_from_slice(&PEER);
    port.rig.run(0x829, &input).unwrap();
    port.arrive(&udp(PEER, 7, None));
    assert_eq!(port.rig.hca.bus.stats.cqes, 0);
    let tirn = port.tirn;
    port.entry(2, PEER, 4, 2, tirn).unwrap();
    port.arrive(&udp(PEER, 7, None));
    assert_eq!(port.rig.hca.bus.stats.cqes, 1);
}

#[test]
fn a_frame_longer_than_its_buffer_stops_the_queue() {
    let mut port = port();
    port.rig.poke(RQ_PAGE, &pointer(20, RESERVED_LKEY, DATA));
    port.rig.poke32(RQ_DBR, 2);
    port.arrive(&udp([0xff; 6], 7, None));
    let (first, second) = (port.rig.cqe(0), port.rig.cqe(1));
    assert_eq!((first[0x3f] >> 4, first[0x37]), (14, 1));
    assert_eq!((second[0x3f] >> 4, second[0x37]), (14, 5));
    assert_eq!(port.rig.events(), [5]);
}

#[test]
fn local_keys_are_checked_on_raw_queues() {
    let mut port = port();
    let key = port.rig.key(|c| crate::ifc::mkey::mkc::lw.set(c, 0)).unwrap();
    port.rig.poke(RQ_PAGE, &pointer(2048, key, DATA));
    port.rig.poke32(RQ_DBR, 1);
    port.arrive(&udp([0xff; 6], 7, None));
    let cqe = port.rig.cqe(0);
    assert_eq!((cqe[0x3f] >> 4, cqe[0x37], cqe[0x36]), (14, 4, 0x51));
}

#[test]
fn states_of_raw_queues() {
    let mut port = port();
    let (sqn, rqn) = (port.sqn, port.rqn);
    assert_eq!(port.rig.ready(0x905, sqn, 0, 1).unwrap_err().status, 9, "it is ready already");
    port.rig.ready(0x905, sqn, 1, 3).unwrap();
    assert_eq!(port.rig.ready(0x905, sqn, 3, 1).unwrap_err().status, 9);
    port.rig.ready(0x905, sqn, 3, 0).unwrap();
    port.buffers(0, 3);
    port.rig.ready(0x909, rqn, 1, 3).unwrap();
    let flushed: Vec<u8> = (0..3).map(|n| port.rig.cqe(n)[0x3d]).collect();
    assert_eq!(flushed, [0, 1, 2], "receives are flushed in order");
    let last = port.rig.peek(CQ_PAGE + 2 * 64, 64);
    assert_eq!((last[0x3f] >> 4, last[0x37]), (14, 5));
}

#[test]
fn steering_objects_go_from_the_bottom_up() {
    let mut port = port();
    let (table, group, tirn, rqn) = (port.table, port.group, port.tirn, port.rqn);
    let object = |index: u32| {
        let mut input = vec![0; 64];
        flow_object_in::table_id.set(&mut input, table);
        flow_object_in::group_id.set(&mut input, group);
        flow_object_in::flow_index.set(&mut input, index);
        input
    };
    assert_eq!(port.rig.run(0x934, &object(0)).unwrap_err().status, 9);
    assert_eq!(port.rig.run(0x931, &object(0)).unwrap_err().status, 3);
    assert_eq!(port.rig.short(0x902, tirn).unwrap_err().status, 9);
    assert_eq!(port.rig.short(0x90a, rqn).unwrap_err().status, 9);
    for index in [0, 1] {
        port.rig.run(0x938, &object(index)).unwrap();
    }
    assert!(port.rig.run(0x938, &object(0)).is_err());
    port.rig.run(0x934, &object(0)).unwrap();
    port.rig.run(0x931, &object(0)).unwrap();
    port.rig.short(0x902, tirn).unwrap();
    port.rig.short(0x90a, rqn).unwrap();
}

#[test]
fn entries_that_cannot_be() {
    let mut port = port();
    let (tirn, table) = (port.tirn, port.table);
    assert_eq!(port.entry(9, PEER, 4, 2, tirn).unwrap_err().status, 0xa);
    let refusal = port.entry(2, PEER, 8, 2, tirn).unwrap_err();
    assert_eq!((refusal.status, refusal.syndrome), (3, 0x14_4b7a));
    assert_eq!(port.entry(2, PEER, 4, 2, 0x999).unwrap_err().status, 5);
    assert_eq!(port.entry(2, PEER, 4, 1, table).unwrap_err().status, 3, "not to the same level");
}

#[test]
fn an_ipv6_header_that_promises_too_much_is_matched_but_not_called_good() {
    use crate::objects::ethernet::Headers;
    let mut frame = vec![0; 14 + 40 + 8];
    frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
    frame[18..21].copy_from_slice(&[0, 48, 17]);
    let headers = Headers::of(&frame).unwrap();
    assert_eq!((headers.ip_version, headers.protocol, headers.l4), (6, 17, Some(54)));
    assert_eq!(headers.verdict(&frame), 1, "layer 2 only");
}
