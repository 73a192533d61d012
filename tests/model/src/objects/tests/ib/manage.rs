//! Bring-up, commands and events of the port.

use super::*;
use crate::ifc::caps::cmd_hca_cap;
use crate::ifc::regs::{access_register_in, ptys_reg, pvlc_reg};
use crate::ifc::subnet::{gmp, node_info, port_counters as pc, port_counters_ext as pce};
use crate::ifc::vport::{hca_vport_context as ctx, query_hca_vport_gid_out as gid_out};
use crate::subnet::smp::status;

fn context(link: &mut Link, n: usize) -> Vec<u8> {
    let mut output = vec![0; 528];
    link.ends[n].rig.query(0x762, &[0; 16], &mut output).unwrap();
    output[16..].to_vec()
}

fn register(link: &mut Link, id: u32, word: u32) -> Vec<u8> {
    let mut input = vec![0; 80];
    access_register_in::op_mod.set(&mut input, 1);
    access_register_in::register_id.set(&mut input, id);
    input[16..20].copy_from_slice(&word.to_be_bytes());
    let mut output = vec![0; 80];
    link.ends[0].rig.query(0x805, &input, &mut output).unwrap();
    output[16..].to_vec()
}

#[test]
fn a_manager_brings_both_ports_up() {
    let mut link = Link::new();
    assert_eq!([link.state(0), link.state(1)], [State::Init; 2]);
    assert!(!link.ends[0].rig.hca.link_up());
    let answer = link.ask(Smp::request(method::GET, attribute::NODE_INFO, 0, 0), &[1]).unwrap();
    assert_eq!(node_info::node_guid.get64(answer.data()), 0x00c9_03ff_fe00_0002);
    link.bring_up(&[&[], &[1]]);
    assert_eq!([link.state(0), link.state(1)], [State::Active; 2]);
    assert!(link.ends[1].rig.hca.link_up());
    assert_eq!(link.changes(1), [6, 4], "LID, active");
    let context = context(&mut link, 1);
    let fields = [
        ctx::vport_state,
        ctx::port_state,
        ctx::port_physical_state,
        ctx::lid,
        ctx::sm_lid,
        ctx::has_smi,
        ctx::lmc,
    ];
    assert_eq!(fields.map(|field| field.get(&context)), [4, 4, 5, 2, 1, 1, 0]);
    assert_eq!(ctx::port_guid.get64(&context), 0x00c9_03ff_fe00_0002);
    // Each frame of subnet management was on its lane, with its checksums.
    for frame in &link.frames {
        let packet = crate::wire::ib::Packet::parse(frame).unwrap();
        assert_eq!((packet.lrh.vl, frame.len()), (15, 290));
    }
}

#[test]
fn gids_and_p_keys_are_read_by_index_and_whole() {
    let mut link = Link::active();
    let mut input = vec![0; 16];
    let mut output = vec![0; 32];
    link.ends[0].rig.query(0x764, &input, &mut output).unwrap();
    assert_eq!(gid_out::gids_num.get(&output), 1);
    let gid = 0xfe80_0000_0000_0000_00c9_03ff_fe00_0001_u128;
    assert_eq!(output[16..32], gid.to_be_bytes());
    input[14..16].fill(0xff);
    let mut output = vec![0; 16 + 8 * 16];
    link.ends[0].rig.query(0x764, &input, &mut output).unwrap();
    assert_eq!((gid_out::gids_num.get(&output), &output[32..36]), (8, &[0; 4][..]));
    assert!(link.ends[0].rig.query(0x764, &input, &mut [0; 32]).is_err(), "no room");
    let mut output = vec![0; 16 + 128 * 4];
    link.ends[0].rig.query(0x765, &input, &mut output).unwrap();
    assert_eq!(output[16..24], [0, 0, 0xff, 0xff, 0, 0, 0, 0]);
    input[14..16].copy_from_slice(&128_u16.to_be_bytes());
    assert!(link.ends[0].rig.query(0x765, &input, &mut output).is_err());
}

#[test]
fn registers_and_capabilities_are_of_infiniband() {
    let mut link = Link::active();
    let ptys = register(&mut link, 0x5004, 1 << 16 | 1);
    assert_eq!((ptys_reg::proto_mask.get(&ptys), ptys_reg::eth_proto_oper.get(&ptys)), (1, 0));
    assert_eq!(ptys_reg::ib_link_width_oper.get(&ptys), 4);
    assert_eq!(ptys_reg::ib_proto_oper.get(&ptys), 4);
    let mtu = register(&mut link, 0x5003, 1 << 16);
    assert_eq!(mtu[4..6], [0x10, 0]);
    assert_eq!(mtu[12..14], [8, 0], "2048, as the manager says");
    assert_eq!(pvlc_reg::vl_hw_cap.get(&register(&mut link, 0x500f, 1 << 16)), 4);
    let caps = &link.ends[0].rig.hca.caps;
    for (field, value) in [
        (cmd_hca_cap::port_type, 0),
        (cmd_hca_cap::ib_virt, 1),
        (cmd_hca_cap::roce, 0),
        (cmd_hca_cap::eth_net_offloads, 0),
    ] {
        assert_eq!(caps.general(field), value);
    }
    let mut class = [0; 4];
    link.ends[0].rig.hca.config_read(8, &mut class);
    assert_eq!(class[1..], [0, 7, 2]);
}

#[test]
fn a_cable_that_is_pulled_takes_the_port_down() {
    let mut link = Link::active();
    link.changes(0);
    link.ends[0].rig.hca.set_link(false);
    assert_eq!((link.state(0), link.changes(0)), (State::Down, vec![1]));
    link.ends[0].rig.hca.set_link(true);
    assert_eq!((link.state(0), link.changes(0)), (State::Init, vec![5]));
    assert_eq!(ctx::lid.get(&context(&mut link, 0)), 1, "kept");
    link.ends[1].rig.hca.set_link(false);
    link.ends[1].rig.hca.set_link(true);
    link.bring_up(&[&[], &[1]]);
    assert_eq!((link.state(0), link.changes(0)), (State::Active, vec![4]));
}

#[test]
fn each_change_has_its_event() {
    let mut link = Link::active();
    link.changes(1);
    let lid = [(port_info::lid, 7), (port_info::client_reregister, 1)];
    assert_eq!(link.set_port(&[1], 0, &lid), Some(0));
    assert_eq!(link.changes(1), [6, 9]);
    let mut smp = Smp::request(method::SET, attribute::P_KEY_TABLE, 0, 0);
    smp.data_mut()[..4].copy_from_slice(&[0xff, 0xff, 0x80, 0x11]);
    assert_eq!(link.ask(smp, &[1]).unwrap().status(), 0);
    assert_eq!(link.changes(1), [7]);
    let mut smp = Smp::request(method::SET, attribute::GUID_INFO, 0, 0);
    smp.data_mut()[15] = 9;
    assert_eq!(link.ask(smp, &[1]).unwrap().status(), 0);
    assert_eq!(link.changes(1), [8]);
    assert_eq!(link.set_port(&[1], 0, &[(port_info::port_state, 1)]), Some(0));
    assert_eq!((link.state(1), link.changes(1)), (State::Init, vec![1, 5]));
}

#[test]
fn an_m_key_guards_the_port_from_the_wire_and_from_the_command() {
    let mut link = Link::active();
    let get = Smp::request(method::GET, attribute::PORT_INFO, 0, 0);
    let mut smp = Smp::request(method::SET, attribute::PORT_INFO, 0, 0);
    smp.data_mut().copy_from_slice(link.ask(get, &[1]).unwrap().data());
    port_info::m_key.set64(smp.data_mut(), 42);
    for (field, value) in [
        (port_info::m_key_protect_bits, 2),
        (port_info::port_state, 0),
        (port_info::port_physical_state, 0),
    ] {
        field.set(smp.data_mut(), value);
    }
    assert_eq!(link.ask(smp, &[1]).unwrap().status(), 0);
    assert!(link.ask(get, &[1]).is_none());
    assert_eq!(link.dropped(1, Cause::NotAnswered), 1);
    let station = &mut link.ends[1];
    assert!(station.mad_ifc(&get.0, 0).is_err());
    let read = Smp(station.mad_ifc(&get.0, 1).unwrap());
    assert_eq!((read.status(), port_info::m_key.get64(read.data())), (0, 42));
    let mut keyed = get;
    layout::m_key.set64(&mut keyed.0, 42);
    assert!(station.mad_ifc(&keyed.0, 0).is_ok());
    assert_eq!(station.port().get(port_info::m_key_violations), 2);
}

#[test]
fn without_vport_contexts_the_agent_says_everything() {
    let facts = "ib-virt=no".parse().unwrap();
    let config = Config { facts, ..Config::infiniband() };
    let mut link = Link::with([config.clone(), config], false);
    assert_eq!(ctx::has_smi.get(&context(&mut link, 0)), 0);
    assert!(link.ends[0].rig.query(0x764, &[0; 16], &mut [0; 32]).is_err());
    // The capability mask is a register's.
    let mut input = vec![0; 16 + 20];
    access_register_in::register_id.set(&mut input, 0x5001);
    input[17] = 1;
    input[23] = 2;
    link.ends[0].rig.run(0x805, &input).unwrap();
    assert_eq!(register(&mut link, 0x5001, 1 << 16)[7] & 0x0a, 0x0a);
    for attribute in [
        attribute::NODE_INFO,
        attribute::NODE_DESCRIPTION,
        attribute::PORT_INFO,
        attribute::GUID_INFO,
        attribute::P_KEY_TABLE,
    ] {
        let smp = Smp::request(method::GET, attribute, 0, 0);
        assert_eq!(Smp(link.ends[0].mad_ifc(&smp.0, 3).unwrap()).status(), 0);
    }
    // Extended port information of the vendor is not there.
    let smp = Smp::request(method::GET, 0xff90, 1, 0);
    assert_eq!(Smp(link.ends[0].mad_ifc(&smp.0, 3).unwrap()).status(), status::ATTRIBUTE);
}

#[test]
fn a_virtual_function_manages_no_subnet() {
    let vf = Config { link: crate::LinkLayer::InfiniBand, ..Config::vf() };
    let mut link = Link::with([vf, Config::infiniband()], false);
    assert_eq!(ctx::has_smi.get(&context(&mut link, 0)), 0);
    assert!(link.ends[0].create(7).is_err());
    let smp = Smp::request(method::GET, attribute::NODE_INFO, 0, 0);
    assert_eq!(Smp(link.ends[0].mad_ifc(&smp.0, 3).unwrap()).status(), status::ATTRIBUTE);
    // Nor does an Ethernet port.
    let mut link = Link::with([Config::default(), Config::default()], false);
    assert!(link.ends[0].create(7).is_err());
    assert!(link.ends[0].rig.query(0x762, &[0; 16], &mut [0; 528]).is_err());
}

#[test]
fn the_performance_agent_counts_what_passes() {
    let mut link = Link::active();
    let ask = |link: &mut Link, method: u32, attribute: u32| {
        let mut mad = [0; 256];
        for (field, value) in [
            (gmp::base_version, 1),
            (gmp::mgmt_class, 4),
            (gmp::class_version, 1),
            (gmp::method, method),
            (gmp::attr_id, attribute),
        ] {
            field.set(&mut mad, value);
        }
        let data = gmp::data.bytes_mut(&mut mad);
        pc::port_select.set(data, 1);
        pc::counter_select.set(data, 0xffff);
        let answer = link.ends[1].mad_ifc(&mad, 0).unwrap();
        assert_eq!((gmp::method.get(&answer), gmp::status.get(&answer)), (0x81, 0));
        gmp::data.bytes(&answer).to_vec()
    };
    let frames = link.frames.len() as u64 / 2;
    let data = ask(&mut link, 1, 0x1d);
    assert_eq!(pce::port_rcv_packets.get64(&data), frames);
    assert_eq!(pce::port_xmit_data.get64(&data), frames * 72);
    let data = ask(&mut link, 1, 0x12);
    assert_eq!(u64::from(pc::port_xmit_packets.get(&data)), frames);
    link.ends[1].rig.coming.lock().unwrap().push_back(vec![0; 40]);
    link.run();
    assert_eq!(pc::port_rcv_errors.get(&ask(&mut link, 1, 0x12)), 1);
    let data = ask(&mut link, 2, 0x12);
    assert_eq!([pc::port_rcv_errors, pc::port_rcv_packets].map(|f| f.get(&data)), [0, 0]);
    assert_eq!(ask(&mut link, 1, 1)[0], 1);
    // The registers say the same, at other places.
    let frames = link.ends[0].rig.hca.ib.as_ref().unwrap().counts.sent;
    let group = |link: &mut Link, group: u32| {
        let mut input = vec![0; 16 + 256];
        access_register_in::op_mod.set(&mut input, 1);
        access_register_in::register_id.set(&mut input, 0x5008);
        input[16..20].copy_from_slice(&(1 << 16 | group).to_be_bytes());
        let mut output = vec![0; 16 + 256];
        link.ends[0].rig.query(0x805, &input, &mut output).unwrap();
        output[24..].to_vec()
    };
    assert_eq!(group(&mut link, 0x21)[0x60..0x68], frames.words.to_be_bytes());
    assert_eq!(group(&mut link, 0x21)[0x90..0x98], frames.unicast.to_be_bytes());
    assert_eq!(group(&mut link, 0x20)[0x1c..0x20], (frames.packets as u32).to_be_bytes());
}

#[test]
fn what_is_for_a_manager_reaches_queue_pair_zero() {
    let mut link = Link::active();
    let get = Smp::request(method::GET, attribute::SM_INFO, 0, 0);
    assert_eq!(link.ask(get, &[1]).unwrap().status(), status::ATTRIBUTE, "no manager there");
    // A manager says so in the capability mask, and gets what is for it.
    let mut input = vec![0; 528];
    let to = crate::ifc::vport::modify_hca_vport_context_in::hca_vport_context;
    for (field, value) in [(ctx::cap_mask1, 2), (ctx::cap_mask1_field_select, 2)] {
        field.set(to.bytes_mut(&mut input), value);
    }
    link.ends[1].rig.run(0x763, &input).unwrap();
    assert_eq!(ctx::cap_mask1.get(&context(&mut link, 1)) & 2, 2);
    let qp0 = link.ends[1].qp0();
    link.ends[1].receive(qp0);
    assert!(link.ask(get, &[1]).is_none());
    let got = link.ends[1].take_received(qp0).unwrap();
    let smp = Smp(got.bytes[40..][..256].try_into().unwrap());
    assert_eq!((smp.attribute(), smp.get(layout::hop_pointer)), (attribute::SM_INFO, 2));
    assert_eq!((got.src_qp, got.len), (0, 296));
    // A bit that is not software's is refused; a reset takes the manager away.
    ctx::cap_mask1_field_select.set(to.bytes_mut(&mut input), 1 << 3);
    assert!(link.ends[1].rig.run(0x763, &input).is_err());
    link.ends[1].rig.hca.flr();
    assert_eq!(link.ends[1].port().get(port_info::capability_mask) & 2, 0);
    assert_eq!(link.state(1), State::Active, "the subnet's part stays");
}

#[test]
fn the_own_agent_answers_by_lid_inside_the_device() {
    let mut link = Link::active();
    let smp = Smp::request(method::GET, attribute::NODE_INFO, 0, 5);
    let station = &mut link.ends[0];
    let qp0 = station.qp0();
    station.receive(qp0);
    link.frames.clear();
    link.ends[0].send_datagram(qp0, &[(av::rlid, 1), (av::dqpn, 0)], &smp.0);
    link.run();
    let got = link.ends[0].take_received(qp0).unwrap();
    assert_eq!((got.bytes[43], got.slid, link.frames.len()), (0x81, 1, 0));
}

#[test]
fn a_manager_switches_a_port_off() {
    let mut link = Link::active();
    let downs = link.ends[1].rig.hca.link_downs();
    let off = [(port_info::port_state, 1), (port_info::port_physical_state, 3)];
    assert_eq!(link.set_port(&[1], 0, &off), Some(0), "answered before the link goes down");
    assert_eq!(link.state(1), State::Down);
    assert!(!link.ends[1].rig.hca.holds_link());
    assert_eq!(link.ends[1].rig.hca.link_downs(), downs + 1);
    // The own agent can be asked still, by the command.
    let mut smp = Smp::request(method::SET, attribute::PORT_INFO, 0, 0);
    let read = Smp::request(method::GET, attribute::PORT_INFO, 0, 0);
    let read = Smp(link.ends[1].mad_ifc(&read.0, 3).unwrap());
    smp.data_mut().copy_from_slice(read.data());
    port_info::port_state.set(smp.data_mut(), 1);
    port_info::port_physical_state.set(smp.data_mut(), 2);
    assert_eq!(Smp(link.ends[1].mad_ifc(&smp.0, 3).unwrap()).status(), 0);
    assert_eq!(link.state(1), State::Init);
}

#[test]
fn firmware_answers_for_performance_on_queue_pair_one() {
    let mut link = Link::active();
    let qps = [0, 1].map(|n| link.ends[n].datagrams(8, 0x8001_0000, 0));
    let mut mad = [0; 256];
    mad[..4].copy_from_slice(&[1, 4, 1, 1]);
    mad[17] = 0x12;
    mad[65] = 1;
    for lid in [2, 1] {
        link.ends[0].receive(qps[0]);
        let address = [(av::rlid, lid), (av::dqpn, 1), (av::qkey, 0x8001_0000)];
        link.ends[0].send_datagram(qps[0], &address, &mad);
        link.run();
        let got = link.ends[0].take_received(qps[0]).unwrap();
        assert_eq!((got.src_qp, got.slid, got.len), (1, lid, 296));
        assert_eq!(got.bytes[40..44], [1, 4, 1, 0x81]);
    }
    assert!(link.ends[1].take_received(qps[1]).is_none());
}

#[test]
fn a_driver_may_answer_for_the_agent() {
    let mut configs = [1, 2].map(|n| Config { mac: [2, 0xc9, 3, 0, 0, n], ..Config::infiniband() });
    configs[1].facts = "subnet-agent=driver".parse().unwrap();
    let mut link = Link::with(configs, false);
    let get = Smp::request(method::GET, attribute::NODE_INFO, 0, 0);
    assert!(link.ask(get, &[1]).is_some(), "without queue pair 0 firmware answers");
    let qp0 = link.ends[1].qp0();
    link.ends[1].receive(qp0);
    assert!(link.ask(get, &[1]).is_none());
    let got = link.ends[1].take_received(qp0).unwrap();
    let smp = Smp(got.bytes[40..][..256].try_into().unwrap());
    assert_eq!((smp.get(layout::hop_pointer), got.slid), (1, 0xffff));
    assert!(link.ends[1].mad_ifc(&smp.0, 0).is_ok());
}
