//! Personalities: each comes up, and the document says what the table says.

use crate::rig::{Rig, cmd, with};
use mlx5_model::{Card, Config, cards};

fn of(name: &str) -> Rig {
    let config = Card::named(name).unwrap().config();
    let mut rig = Rig::new(config);
    rig.enable();
    rig
}

fn block(rig: &mut Rig, kind: u16, current: bool) -> Vec<u8> {
    rig.ok(&cmd(0x100, kind << 1 | u16::from(current), 16), 4112).out[16..].to_vec()
}

#[test]
fn the_document_is_the_table() {
    let document = include_str!("../../../../docs/cards.md");
    assert_eq!(document, cards::markdown(), "mlx5-model --cards list > docs/cards.md");
}

#[test]
fn every_card_comes_up() {
    for card in cards::CARDS {
        let config = Config { facts: "init-pages=8000".parse().unwrap(), ..card.config() };
        let mut rig = Rig::new(config);
        let mut id = [0; 4];
        rig.hca.config_read(0, &mut id);
        assert_eq!(id[..2], 0x15b3u16.to_le_bytes());
        rig.init();
        rig.uar();
        assert_eq!(rig.hca.complaints(), [""; 0], "{}", card.name);
    }
}

#[test]
fn a_connectx_6dx_says_what_one_said() {
    let mut rig = of("connectx-6dx");
    let general = block(&mut rig, 0, true);
    assert_eq!(general[0x41] >> 4 & 3, 1, "umr_fence");
    assert_eq!(general[0x1f] & 0xf, 7, "log_max_eq");
    let roce = block(&mut rig, 4, true);
    assert_eq!((roce[0x13], roce[0x11] & 0xf, roce[0x1f]), (5, 7, 255));
    assert_eq!(block(&mut rig, 1, true)[2] >> 4 & 3, 2, "no header inline");
    let dtor = rig.ok(&with(cmd(0x805, 1, 80), 8, 0xc00e), 80);
    assert_eq!(dtor.word(16 + 40), 0x2000_000a, "a teardown takes 10 s at most");
}

#[test]
fn a_connectx_6_asks_for_few_pages_and_lets_its_roce_block_be_set() {
    let mut rig = of("connectx-6");
    rig.give(0, 6);
    assert!(rig.query_pages(2).1 <= 8128);
    let (max, now) = (block(&mut rig, 4, false), block(&mut rig, 4, true));
    assert_eq!((max[0] & 8, now[0] & 8), (8, 0));
    let mut set = cmd(0x109, 8, 4112);
    set[16..].copy_from_slice(&max);
    rig.ok(&set, 16);
}

#[test]
fn a_virtual_function_has_neither_address_nor_port() {
    let mut rig = of("vf");
    let mut id = [0; 4];
    rig.hca.config_read(0, &mut id);
    assert_eq!(id[2..], 0x101eu16.to_le_bytes());
    assert_eq!(rig.status(&with(cmd(0x805, 0, 32), 8, 0x7004), 32).0, 5);
}
