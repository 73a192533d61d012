//! Offloads of the raw queues: large sends, sums, hashes, counters, and the reasons why a frame
//! does not pass.

use super::ethernet::{PEER, Port, port};
use super::flow::udp;
use super::{DATA, Rig, SQ_DBR, SQ_PAGE, control, pointer};
use crate::function::RESERVED_LKEY;
use crate::ifc::wq::{rqt_in, rqtc, tir_in, tirc};
use crate::objects::ethernet::{Headers, sum};

const FIN: u8 = 1;
const PSH: u8 = 8;
const ACK: u8 = 0x10;
const CWR: u8 = 0x80;

/// Headers of a TCP segment, Ethernet to TCP, with `len` bytes to follow.
fn tcp(dmac: [u8; 6], ipv6: bool, flags: u8, len: u16) -> Vec<u8> {
    let mut f = dmac.to_vec();
    f.extend([2, 0, 0, 0, 0, 0x77]);
    if ipv6 {
        f.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        f.extend((20 + len).to_be_bytes());
        f.extend([6, 64]);
        f.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        f.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    } else {
        f.extend([8, 0, 0x45, 0]);
        f.extend((40 + len).to_be_bytes());
        f.extend([0xff, 0xff, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    }
    f.extend([0x11, 0x11, 0x14, 0x51]);
    f.extend(0xffff_ff00u32.to_be_bytes());
    f.extend([0, 0, 0, 9, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    f
}

impl Port {
    /// Sends `head` and `payload` as a large send.
    fn send_large(&mut self, head: &[u8], payload: &[u8], mss: u16) {
        let mut wqe = control(0x0e, 0, self.sqn, 0, 0);
        let mut segment = vec![0; 14];
        segment[4] = 0xc0;
        segment[6..8].copy_from_slice(&mss.to_be_bytes());
        segment[0x0c..0x0e].copy_from_slice(&(head.len() as u16).to_be_bytes());
        segment.extend(head);
        segment.resize(segment.len().next_multiple_of(16), 0);
        wqe.extend(segment);
        self.rig.poke(DATA, payload);
        wqe.extend(pointer(payload.len() as u32, RESERVED_LKEY, DATA));
        wqe[7] = (wqe.len() / 16) as u8;
        let blocks = wqe.len().div_ceil(64) as u32;
        self.rig.poke(SQ_PAGE, &wqe);
        self.rig.poke32(SQ_DBR + 4, blocks);
        let sqn = self.sqn;
        self.rig.ring(sqn);
        self.rig.hca.step(0);
    }

    /// Runs a query and returns its output.
    fn answer(&mut self, opcode: u16, input: &[u8], length: usize) -> Vec<u8> {
        let mut output = vec![0; length];
        self.rig.query(opcode, input, &mut output).unwrap();
        output
    }

    fn sent(&mut self) -> Vec<Vec<u8>> {
        self.rig.sent.lock().unwrap().drain(..).collect()
    }
}

#[test]
fn a_large_send_is_cut_into_segments() {
    for ipv6 in [false, true] {
        let mut port = port();
        let head = tcp(PEER, ipv6, FIN | PSH | ACK | CWR, 0);
        let payload: Vec<u8> = (0..2500u32).map(|n| n as u8).collect();
        port.send_large(&head, &payload, 1000);
        let frames = port.sent();
        let l4 = head.len() - 20;
        let mut whole = Vec::<u8>::new();
        for (nth, frame) in frames.iter().enumerate() {
            let headers = Headers::of(frame).unwrap();
            assert_eq!(headers.end, frame.len(), "the length is that of the frame");
            assert_eq!(headers.verdict(frame), 7, "both checksums");
            let number = u32::from_be_bytes(frame[l4 + 4..l4 + 8].try_into().unwrap());
            assert_eq!(number, 0xffff_ff00u32.wrapping_add(nth as u32 * 1000));
            if !ipv6 {
                let id = u16::from_be_bytes([frame[18], frame[19]]);
                assert_eq!(id, 0xffffu16.wrapping_add(nth as u16));
            }
            whole.extend(&frame[head.len()..]);
        }
        let flags: Vec<u8> = frames.iter().map(|frame| frame[l4 + 13]).collect();
        assert_eq!(flags, [ACK | CWR, ACK, FIN | PSH | ACK]);
        assert_eq!(whole, payload);
        let cqe = port.rig.cqe(0);
        assert_eq!((cqe[0x3f] >> 4, cqe[0x38]), (0, 0x0e), "one completion");
    }
}

#[test]
fn a_large_datagram_is_cut_into_datagrams() {
    let mut port = port();
    let head = &udp(PEER, 7, None)[..42];
    port.send_large(head, &[7; 100], 60);
    let frames = port.sent();
    assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [102, 82]);
    for (frame, length) in frames.iter().zip([68u16, 48]) {
        assert_eq!(Headers::of(frame).unwrap().verdict(frame), 7);
        assert_eq!(frame[38..40], length.to_be_bytes());
    }
}

#[test]
fn a_large_send_of_what_has_no_layer_4_fails() {
    let mut port = port();
    let mut head = udp(PEER, 7, None)[..42].to_vec();
    head[12] = 0x12;
    port.send_large(&head, &[7; 100], 60);
    let cqe = port.rig.cqe(0);
    assert_eq!((cqe[0x3f] >> 4, cqe[0x37]), (13, 2));
}

#[test]
fn frames_are_padded_on_the_wire() {
    let mut port = port();
    let frame = udp(PEER, 7, None);
    port.send(0, &frame, 18, 0);
    port.rig.hca.step(0);
    let sent = &port.sent()[0];
    assert_eq!(sent.len(), 60);
    assert_eq!(sent[..frame.len()], frame);
    assert_eq!(sent[frame.len()..], vec![0; 60 - frame.len()]);
}

#[test]
fn the_sum_covers_the_ip_packet_alone() {
    let plain = udp([0xff; 6], 7, None);
    let want = sum(&plain[14..]).to_be_bytes();
    let mut padded = plain.clone();
    padded.resize(60, 0xaa);
    for frame in [plain, padded, udp([0xff; 6], 7, Some(5))] {
        let mut port = port();
        port.buffers(0, 1);
        port.arrive(&frame);
        assert_eq!(port.rig.cqe(0)[0x14..0x16], want);
    }
}

#[test]
fn kinds_of_layer_4() {
    for (flags, len, kind) in [(2, 0, 1), (ACK, 0, 3), (ACK, 8, 4)] {
        let mut port = port();
        port.buffers(0, 1);
        let mut frame = tcp([0xff; 6], false, flags, len);
        frame.resize(frame.len() + usize::from(len), 0x55);
        port.arrive(&frame);
        let cqe = port.rig.cqe(0);
        assert_eq!((cqe[0x1d] >> 4 & 7, cqe[0x1d] >> 2 & 3), (kind, 2));
    }
}

/// Puts broadcasts through a TIR that hashes UDP over IPv4 into two queues' table of four.
fn spread(port: &mut Port, function: u32) -> u32 {
    let cqn = port.cqn;
    let other = port.rig.rq(cqn);
    let mut input = vec![0; 272 + 16];
    let context = rqt_in::rqtc.bytes_mut(&mut input);
    rqtc::rqt_max_size.set(context, 4);
    rqtc::rqt_actual_size.set(context, 4);
    for (k, rqn) in [port.rqn, other, port.rqn, other].into_iter().enumerate() {
        input[0x110 + k * 4..0x114 + k * 4].copy_from_slice(&rqn.to_be_bytes());
    }
    let table = port.rig.run(0x916, &input).unwrap();
    let mut input = vec![0; 272];
    let context = tir_in::tirc.bytes_mut(&mut input);
    tirc::transport_domain.set(context, port.rig.td);
    tirc::disp_type.set(context, 1);
    tirc::indirect_table.set(context, table);
    tirc::rx_hash_fn.set(context, function);
    tirc::rx_hash_field_selector_outer.set(context, 1 << 30 | 0xf);
    tirc::rx_hash_toeplitz_key.bytes_mut(context).copy_from_slice(&[0x6d; 40]);
    port.rig.run(0x900, &input).unwrap()
}

#[test]
fn a_hash_spreads_and_is_reported() {
    let mut port = port();
    let tirn = spread(&mut port, 2);
    port.entry(0, [0xff; 6], 4, 2, tirn).unwrap();
    let mut hashes = Vec::new();
    for port_number in 0..8 {
        port.buffers(0, 8);
        port.arrive(&udp([0xff; 6], port_number, None));
        let done = port.rig.hca.bus.stats.cqes;
        if hashes.len() as u64 == done {
            // The other queue is not ready.
            continue;
        }
        let cqe = port.rig.cqe(done - 1);
        let hash = u32::from_be_bytes(cqe[0x0c..0x10].try_into().unwrap());
        assert_eq!(hash & 1, 0, "the first queue has the even indices");
        assert_eq!(cqe[0x10], 1 << 2 | 2 << 6, "UDP over IPv4");
        hashes.push(hash);
    }
    assert!((1..8).contains(&hashes.len()), "some here, some there");
    assert!(fourth_function_is_refused(&mut port));
}

fn fourth_function_is_refused(port: &mut Port) -> bool {
    let mut input = vec![0; 272];
    let context = tir_in::tirc.bytes_mut(&mut input);
    tirc::transport_domain.set(context, port.rig.td);
    tirc::inline_rqn.set(context, port.rqn);
    tirc::rx_hash_fn.set(context, 3);
    port.rig.run(0x900, &input).is_err()
}

#[test]
fn own_frames_come_back_where_they_are_wanted() {
    let mut port = port();
    port.buffers(0, 4);
    let own = port.rig.hca.vport.mac;
    port.send(0, &udp(own, 7, None), 18, 0);
    port.rig.hca.step(0);
    assert_eq!(port.rig.hca.bus.stats.cqes, 1, "the send alone");
    let tirn = port.tirn;
    port.take_own(tirn);
    port.send(1, &udp(own, 7, None), 18, 0);
    port.rig.hca.step(0);
    assert_eq!(port.rig.hca.bus.stats.cqes, 3);
    port.arrive(&udp(own, 7, None));
    assert_eq!(port.rig.hca.bus.stats.cqes, 4, "from the wire it is taken anyway");
}

#[test]
fn flow_counters_count_what_matches() {
    let mut port = port();
    let id = port.rig.run(0x939, &[0; 16]).unwrap();
    let tirn = port.tirn;
    port.counted_entry(0, [0xff; 6], tirn, id).unwrap();
    port.buffers(0, 4);
    let frame = udp([0xff; 6], 7, None);
    port.arrive(&frame);
    port.arrive(&frame);
    let mut query = vec![0; 32];
    query[0x1c..0x20].copy_from_slice(&id.to_be_bytes());
    query[0x18] = 0x80;
    let answer = port.answer(0x93b, &query, 32);
    let counted =
        |answer: &[u8], at: usize| u64::from_be_bytes(answer[at..at + 8].try_into().unwrap());
    assert_eq!((counted(&answer, 0x10), counted(&answer, 0x18)), (2, 2 * frame.len() as u64));
    let answer = port.answer(0x93b, &query, 32);
    assert_eq!(counted(&answer, 0x10), 0, "cleared");
    assert_eq!(port.rig.short(0x93a, id).unwrap_err().status, 9, "in use");
    port.entry(0, [0xff; 6], 4, 2, tirn).unwrap();
    port.rig.short(0x93a, id).unwrap();
    assert!(port.counted_entry(0, [0xff; 6], tirn, id).is_err());
}

#[test]
fn a_queue_without_buffers_counts() {
    let mut port = port();
    let set = port.rig.run(0x771, &[0; 16]).unwrap();
    let mut input = vec![0; 272];
    input[8..12].copy_from_slice(&(1 << 28 | port.rqn).to_be_bytes());
    crate::ifc::wq::rq_in::modify_bitmask.set64(&mut input, 8);
    let context = crate::ifc::wq::rq_in::rqc.bytes_mut(&mut input);
    crate::ifc::wq::rqc::state.set(context, 1);
    crate::ifc::wq::rqc::counter_set_id.set(context, set);
    port.rig.run(0x909, &input).unwrap();
    port.arrive(&udp([0xff; 6], 7, None));
    let mut query = vec![0; 32];
    query[0x1f] = set as u8;
    let answer = port.answer(0x773, &query, 256);
    use crate::ifc::counters::query_q_counter_out as out;
    assert_eq!(out::out_of_buffer.get(&answer), 1);
}

#[test]
fn nothing_passes_a_dead_link_or_a_narrow_port() {
    let mut port = port();
    port.buffers(0, 4);
    let frame = udp([0xff; 6], 7, None);
    let own = port.rig.hca.vport.mac;
    port.rig.hca.set_link(false);
    port.send(0, &udp(PEER, 7, None), 18, 0);
    port.arrive(&frame);
    assert!(port.sent().is_empty());
    port.send(1, &udp(own, 7, None), 18, 0);
    port.rig.hca.step(0);
    let received = |port: &Port| port.rig.hca.bus.stats.frames_in;
    assert_eq!(received(&port), 1, "round inside the device it goes");
    port.rig.hca.set_link(true);
    let mut long = frame.clone();
    long.resize(1519, 0);
    port.arrive(&long);
    assert_eq!(received(&port), 1, "1522 bytes with its check sequence, no more");
    long.truncate(1518);
    port.arrive(&long);
    assert_eq!(received(&port), 2);
    assert_eq!(port.rig.hca.traffic.port_in.too_long, 1);
    assert_eq!(port.rig.hca.traffic.link_down, 1);
}

#[test]
fn counters_of_port_and_vport() {
    let mut port = port();
    port.buffers(0, 8);
    let own = port.rig.hca.vport.mac;
    port.send(0, &udp(PEER, 7, Some(0x6001)), 18, 0);
    port.send(1, &udp(own, 7, None), 18, 0);
    port.rig.hca.step(0);
    port.arrive(&udp([0xff; 6], 7, None));
    port.arrive(&udp([1, 0, 0x5e, 0, 0, 1], 7, None));
    let group = |rig: &mut Rig, group: u8, priority: u8| {
        let mut input = vec![0; 16 + 256];
        input[7] = 1;
        input[10..12].copy_from_slice(&[0x50, 0x08]);
        input[17] = 1;
        input[19] = group;
        input[23] = priority;
        let mut answer = vec![0; 16 + 256];
        rig.query(0x805, &input, &mut answer).unwrap();
        let counters = answer[24..].chunks_exact(8);
        counters.map(|c| u64::from_be_bytes(c.try_into().unwrap())).collect::<Vec<_>>()
    };
    let ieee = group(&mut port.rig, 0, 0);
    assert_eq!(ieee[..2], [1, 2], "frames out, frames in");
    assert_eq!(ieee[4..6], [64, 2 * 50], "octets out, octets in");
    assert_eq!(ieee[6..10], [0, 0, 1, 1], "multicasts and broadcasts");
    let rmon = group(&mut port.rig, 2, 0);
    assert_eq!(rmon[11], 2, "of up to 64 bytes");
    let priority = group(&mut port.rig, 0x10, 3);
    assert_eq!((priority[5], priority[9]), (64, 1));
    let query = vec![0; 32];
    let answer = port.answer(0x770, &query, 528);
    use crate::ifc::counters::query_vport_counter_out as out;
    let packets = |field: crate::ifc::Field| {
        let at = field.byte();
        u64::from_be_bytes(answer[at..at + 8].try_into().unwrap())
    };
    assert_eq!(packets(out::transmitted_eth_unicast), 2, "the own one too");
    assert_eq!(packets(out::received_eth_unicast), 1);
    assert_eq!(packets(out::received_eth_broadcast), 1);
    assert_eq!(
        packets(out::received_eth_multicast),
        1,
        "a physical function takes all, its flow tables sort them out"
    );
}
