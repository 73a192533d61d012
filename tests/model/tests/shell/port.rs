//! vport, RoCE addresses, port registers, link.

use crate::rig::{PORT, Rig, cmd, with};
use mlx5_model::Config;

fn running() -> Rig {
    let mut rig = Rig::quick();
    rig.init();
    rig
}

fn reg(rig: &mut Rig, id: u32, write: bool, data: &[u32]) -> Result<Vec<u8>, (u8, u32)> {
    let mut input = with(cmd(0x805, u16::from(!write), 16 + 256), 8, id);
    for (k, value) in data.iter().enumerate() {
        input = with(input, 16 + k * 4, *value);
    }
    let answer = rig.exec(&input, 16 + 256);
    match answer.status() {
        0 => Ok(answer.out[16..].to_vec()),
        status => Err((status, answer.syndrome())),
    }
}

fn modify(select: u32, at: usize, value: u32) -> Vec<u8> {
    with(with(cmd(0x755, 0, 512), 12, select), 0x100 + at, value)
}

fn roce_on(rig: &mut Rig) {
    rig.ok(&modify(1 << 1, 0, 1), 16);
}

fn address(index: u32, gid: [u8; 16], mac0: u8, version: u32, l3: u32) -> Vec<u8> {
    let mut input = with(cmd(0x761, 0, 48), 8, index << 16);
    input[0x10..0x20].copy_from_slice(&gid);
    input[0x22..0x28].copy_from_slice(&[mac0, 1, 2, 3, 4, 5]);
    with(input, 0x28, l3 << 8 | version)
}

#[test]
fn vport_state_follows_cable_and_administration() {
    let mut rig = running();
    let state = |rig: &mut Rig| rig.ok(&cmd(0x750, 0, 16), 16).word(12) & 0xf;
    assert_eq!(state(&mut rig), 1);
    rig.hca.set_link(false);
    assert_eq!(state(&mut rig), 0);
    rig.hca.set_link(true);
    rig.ok(&with(cmd(0x751, 0, 16), 12, 0), 16);
    assert_eq!(state(&mut rig), 0);
    rig.ok(&with(cmd(0x751, 0, 16), 12, 1 << 4), 16);
    assert_eq!(rig.ok(&cmd(0x750, 2, 16), 16).word(12), 0x11);
    assert_eq!(rig.status(&with(cmd(0x751, 0, 16), 12, 3 << 4), 16).0, 3);
    assert_eq!(rig.status(&cmd(0x750, 1, 16), 16).0, 3, "no eswitch");
    assert_eq!(rig.status(&with(cmd(0x750, 0, 16), 8, 1 << 31 | 1), 16).0, 3, "not ours");
}

#[test]
fn link_events_only_on_change() {
    let mut rig = running();
    let uar = rig.uar();
    rig.eq(uar, 4, PORT);
    rig.hca.set_link(true);
    rig.hca.set_link(false);
    rig.hca.set_link(false);
    rig.hca.set_link(true);
    assert_eq!(rig.hca.stats().eqes, 2);
    let (down, up) = (rig.eqe(0), rig.eqe(1));
    assert_eq!((down[1], down[3], down[0x28]), (9, 1, 0x10));
    assert_eq!((up[1], up[3], up[0x28]), (9, 4, 0x10));
}

#[test]
fn paos_needs_its_enable_bit() {
    let mut rig = running();
    let oper = |rig: &mut Rig| reg(rig, 0x5006, false, &[1 << 16]).unwrap()[3] & 0xf;
    reg(&mut rig, 0x5006, true, &[1 << 16 | 2 << 8, 0]).unwrap();
    assert_eq!(oper(&mut rig), 1, "not applied");
    let answer = reg(&mut rig, 0x5006, true, &[1 << 16, 0]).unwrap();
    assert_eq!(answer[2..4], [1, 1], "the answer is the register");
    assert_eq!(reg(&mut rig, 0x5006, true, &[1 << 16, 1 << 31]).unwrap_err().0, 3, "no state");
    reg(&mut rig, 0x5006, true, &[1 << 16 | 2 << 8, 1 << 31]).unwrap();
    assert_eq!(oper(&mut rig), 2);
    assert!(!rig.hca.link_up());
}

#[test]
fn port_numbers_other_than_one() {
    let mut rig = running();
    for id in [0x5003, 0x5004, 0x5006, 0x5008] {
        assert_eq!(reg(&mut rig, id, false, &[2 << 16]), Err((3, 0x1e_5585)), "{id:#x}");
    }
    assert_eq!(reg(&mut rig, 0x507f, false, &[1 << 16]).unwrap_err().0, 3, "unknown register");
}

#[test]
fn port_mtu() {
    let mut rig = running();
    let read = reg(&mut rig, 0x5003, false, &[1 << 16]).unwrap();
    assert_eq!(read[4..6], 10_000u16.to_be_bytes());
    reg(&mut rig, 0x5003, true, &[1 << 16, 0, 4200 << 16]).unwrap();
    let read = reg(&mut rig, 0x5003, false, &[1 << 16]).unwrap();
    assert_eq!(read[12..14], 4200u16.to_be_bytes());
    assert!(reg(&mut rig, 0x5003, true, &[1 << 16, 0, 10_001 << 16]).is_err());
}

#[test]
fn speed_is_zero_only_while_down() {
    let mut rig = running();
    let oper = |rig: &mut Rig| {
        let ptys = reg(rig, 0x5004, false, &[1 << 16 | 4]).unwrap();
        u32::from_be_bytes(ptys[0x24..0x28].try_into().unwrap())
    };
    assert_eq!(oper(&mut rig), 1 << 20, "100GBASE-CR4");
    rig.hca.set_link(false);
    assert_eq!(oper(&mut rig), 0);
    assert!(reg(&mut rig, 0x5004, true, &[1 << 16 | 4, 0, 0, 0, 0, 0, 1]).is_err(), "SGMII");
}

#[test]
fn negotiation_can_be_switched_off() {
    let mut rig = running();
    let flags = |rig: &mut Rig| {
        let ptys = reg(rig, 0x5004, false, &[1 << 16 | 4]).unwrap();
        (ptys[0] >> 5 & 3, ptys[4] >> 4)
    };
    assert_eq!(flags(&mut rig), (1, 1), "possible, on and complete");
    let only_25 = [1 << 30 | 1 << 16 | 4, 0, 0, 0, 0, 0, 1 << 27];
    reg(&mut rig, 0x5004, true, &only_25).unwrap();
    assert_eq!(flags(&mut rig), (3, 0));
    let ptys = reg(&mut rig, 0x5004, false, &[1 << 16 | 4]).unwrap();
    assert_eq!(ptys[0x24..0x28], (1u32 << 27).to_be_bytes(), "25 Gb/s");
}

#[test]
fn the_module_can_be_read() {
    let mut rig = running();
    let ask = |rig: &mut Rig, i2c: u32, at: u32, size: u32| {
        reg(rig, 0x9014, false, &[0, i2c << 24 | at, size])
    };
    let first = ask(&mut rig, 0x50, 0, 2).unwrap();
    assert_eq!((first[3], first[0x10]), (0, 0x11), "QSFP28");
    let upper = |rig: &mut Rig, at| ask(rig, 0x50, at, 48).unwrap()[0x10..0x40].to_vec();
    let page = [upper(&mut rig, 128), upper(&mut rig, 176), upper(&mut rig, 208)].concat();
    assert_eq!(&page[20..25], b"Model");
    let sum = |bytes: &[u8]| bytes.iter().fold(0u8, |acc, byte| acc.wrapping_add(*byte));
    assert_eq!(page[63], sum(&page[..63]), "check code of the base");
    assert_eq!(page[95], sum(&page[64..95]), "and of the extension");
    assert_eq!(ask(&mut rig, 0x51, 0, 2).unwrap()[3], 3, "nobody there");
    assert!(ask(&mut rig, 0x50, 0, 49).is_err(), "48 bytes at a time");
}

#[test]
fn node_description_and_endianness() {
    let mut rig = running();
    reg(&mut rig, 0x6001, true, &[0x6865_6c6c, 0x6f00_0000]).unwrap();
    assert_eq!(&reg(&mut rig, 0x6001, false, &[]).unwrap()[..6], b"hello\0");
    reg(&mut rig, 0x7004, true, &[0]).unwrap();
    assert!(reg(&mut rig, 0x7004, true, &[0x8000_0000]).is_err());
}

#[test]
fn vport_context_read_and_written() {
    let mut rig = running();
    let read = |rig: &mut Rig| rig.ok(&cmd(0x754, 0, 16), 272).out[16..].to_vec();
    let context = read(&mut rig);
    assert_eq!(context[0xf6..0xfc], [0x02, 0xc9, 3, 0, 0, 1]);
    assert_eq!(context[0x38..0x40], [0, 0xc9, 3, 0xff, 0xfe, 0, 0, 1], "EUI-64");
    rig.ok(&modify(1 << 6, 0x24, 4200), 16);
    assert_eq!(read(&mut rig)[0x26..0x28], 4200u16.to_be_bytes());
    assert_eq!(rig.status(&modify(1 << 6, 0x24, 20_000), 16).0, 3);
    roce_on(&mut rig);
    assert_eq!(read(&mut rig)[3] & 1, 1);
    // Fields not selected are not taken.
    rig.ok(&modify(0, 0x24, 1500), 16);
    assert_eq!(read(&mut rig)[0x26..0x28], 4200u16.to_be_bytes());
    rig.ok(&modify(1 << 4, 0xf0, 1 << 29), 16);
    assert_eq!(read(&mut rig)[0xf0], 0x20, "promiscuous");
}

#[test]
fn address_lists() {
    let mut rig = running();
    let mut input = modify(1 << 2, 0xf0, 1 << 24 | 2);
    for mac in [[0x01, 0, 0x5e, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1]] {
        input.extend_from_slice(&[0, 0]);
        input.extend_from_slice(&mac);
    }
    rig.ok(&input, 16);
    let out = rig.ok(&with(cmd(0x754, 0, 16), 12, 1 << 24), 272 + 16).out;
    assert_eq!(out[16 + 0xf0..16 + 0xf4], [1, 0, 0, 2]);
    assert_eq!(out[272 + 2..272 + 8], [0x01, 0, 0x5e, 0, 0, 1]);
    let many = with(modify(1 << 2, 0xf0, 0), 0x1f0, 2 << 24 | 0xfff);
    assert_eq!(rig.status(&many, 16).0, 0x50, "list shorter than it says");
}

#[test]
fn roce_must_be_on_before_an_address() {
    let mut rig = running();
    let gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(rig.status(&address(0, gid, 2, 2, 1), 16).0, 4);
    roce_on(&mut rig);
    rig.ok(&address(0, gid, 2, 2, 1), 16);
    let out = rig.ok(&cmd(0x760, 0, 16), 48).out;
    assert_eq!(out[0x10..0x20], gid);
    assert_eq!(out[0x22..0x2c], [2, 1, 2, 3, 4, 5, 0, 0, 1, 2]);
    rig.ok(&address(0, [0; 16], 0, 2, 0), 16);
    assert_eq!(rig.ok(&cmd(0x760, 0, 16), 48).out[0x10..], [0; 32], "cleared");
}

#[test]
fn refusals_of_addresses() {
    let mut rig = running();
    roce_on(&mut rig);
    let gid = [1; 16];
    assert_eq!(rig.status(&address(0, gid, 1, 2, 0), 16), (3, 0x6_3c66), "multicast MAC");
    assert_eq!(rig.status(&address(0, gid, 2, 1, 0), 16), (3, 0x12_822d), "version");
    assert_eq!(rig.status(&address(256, gid, 2, 2, 0), 16).0, 0xa, "index");
    assert_eq!(rig.status(&address(0, gid, 2, 2, 2), 16).0, 3, "layer 3 type");
}

#[test]
fn roce_en_without_the_capability() {
    let mut rig = Rig::new(Config { init_pages: Some(10), ..Config::default() });
    rig.enable();
    let mut set = cmd(0x109, 0, 4112);
    set[16..].copy_from_slice(&rig.ok(&cmd(0x100, 1, 16), 4112).out[16..]);
    set[16 + 0x43] &= !4;
    rig.ok(&set, 16);
    rig.give(0, 16);
    rig.ok(&cmd(0x102, 0, 32), 16);
    assert_eq!(rig.status(&modify(1 << 1, 0, 1), 16), (3, 0xc1_f678));
}

#[test]
fn questions_stock_software_asks_of_an_ethernet_port() {
    let mut rig = running();
    let set = rig.ok(&cmd(0x771, 0, 16), 16).word(8);
    rig.ok(&with(cmd(0x773, 0, 32), 28, set), 256);
    assert_eq!(rig.status(&with(cmd(0x773, 0, 32), 28, 77), 256).0, 5);
    rig.ok(&cmd(0x770, 0, 32), 528);
    assert_eq!(rig.ok(&cmd(0x765, 0, 16), 20).word(16), 0xffff);
    assert_eq!(rig.ok(&with(cmd(0x765, 0, 16), 12, 1), 20).word(16), 0);
    assert_eq!(rig.status(&with(cmd(0x765, 0, 16), 12, 128), 20).0, 0xa);
    let mad = with(cmd(0x50d, 3, 272), 16, 0x0104_0101);
    let answer = rig.ok(&mad, 272).out;
    assert_eq!(answer[16..22], [1, 4, 1, 0x81, 0, 0x0c]);
}
