//! From power-on to an event queue and back, by raw mailboxes.

use crate::rig::{CMD, PAGE, PORT, Rig, cmd, quick, with};
use mlx5_model::{Config, Personality};

#[test]
fn whole_way_up_to_an_event_queue_and_down() {
    let mut rig = Rig::new(Config::default());
    rig.init();
    assert_eq!(rig.hca.pages_owned(), 6 + 2998 + (8636u32 << 14) / 114_688);
    let uar = rig.uar();
    assert_eq!(uar, 0x10, "the first UAR a real card gave");
    let eqn = rig.eq(uar, 7, CMD | PAGE | PORT);
    rig.arm(uar, eqn, 0);
    rig.ok(&cmd(0x80d, 0, 16), 16);
    rig.step();
    assert_eq!(rig.hca.interrupts(), [3]);
    rig.ok(&with(cmd(0x302, 0, 16), 8, eqn), 16);
    rig.ok(&with(cmd(0x803, 0, 16), 8, uar), 16);
    rig.ok(&cmd(0x103, 0, 16), 16);
    while rig.hca.pages_owned() != 0 {
        let n = rig.ok(&with(cmd(0x108, 2, 16), 12, 768), 16 + 768 * 8).word(8);
        assert!(n != 0, "nothing hardware-like asked for");
    }
    rig.ok(&cmd(0x105, 0, 16), 12);
    assert_eq!(rig.hca.complaints(), [""; 0]);
    let stats = rig.hca.stats();
    assert_eq!(stats.commands[&0x104], 1);
    assert_eq!(stats.eqes, 1, "of NOP; the event of DESTROY_EQ has no queue left");
}

#[test]
fn nothing_before_enable() {
    let mut rig = Rig::quick();
    rig.set_page();
    for opcode in [0x10a, 0x107, 0x100, 0x102, 0x80d, 0x802] {
        assert_eq!(rig.status(&cmd(opcode, 0, 16), 16).0, 4, "{opcode:#x}");
    }
}

#[test]
fn enable_once() {
    let mut rig = Rig::quick();
    rig.enable();
    assert_eq!(rig.status(&cmd(0x104, 0, 16), 16).0, 4);
    assert_eq!(rig.status(&with(cmd(0x104, 0, 16), 8, 1), 16).0, 3, "no such function");
}

#[test]
fn objects_only_after_init() {
    let mut rig = Rig::quick();
    rig.enable();
    for opcode in [0x800, 0x802, 0x816, 0x750, 0x760] {
        assert_eq!(rig.status(&cmd(opcode, 0, 16), 32).0, 4, "{opcode:#x}");
    }
}

#[test]
fn init_waits_for_every_page() {
    let mut rig = Rig::quick();
    rig.enable();
    assert_eq!(rig.status(&cmd(0x102, 0, 32), 16).0, 4);
    rig.give(0, 6);
    assert_eq!(rig.status(&cmd(0x102, 0, 32), 16).0, 4);
    rig.give(0, 9);
    assert_eq!(rig.status(&cmd(0x102, 0, 32), 16).0, 4);
    rig.give(0, 1);
    rig.ok(&cmd(0x102, 0, 16), 16);
    assert_eq!(rig.status(&cmd(0x102, 0, 32), 16).0, 4, "twice");
}

#[test]
fn issi_one_is_offered_and_two_refused() {
    let mut rig = Rig::quick();
    rig.enable();
    let answer = rig.ok(&cmd(0x10a, 0, 16), 112);
    assert_eq!((answer.word(8), answer.word(0x6c)), (0, 2));
    rig.ok(&with(cmd(0x10b, 0, 16), 8, 1), 16);
    assert_eq!(rig.ok(&cmd(0x10a, 0, 16), 112).word(8), 1);
    assert_eq!(rig.status(&with(cmd(0x10b, 0, 16), 8, 2), 16).0, 3);
}

#[test]
fn teardown_without_capability_says_it_did_not() {
    let mut rig = Rig::new(Config { init_pages: Some(10), ..Config::small() });
    rig.init();
    // Force, as the recorded card answered it: status 0, state 1.
    assert_eq!(rig.ok(&with(cmd(0x103, 0, 16), 8, 1), 16).word(12), 1);
    rig.uar();
    assert_eq!(rig.ok(&cmd(0x103, 0, 16), 16).word(12), 0);
    assert_eq!(rig.status(&cmd(0x802, 0, 16), 16).0, 4, "down");
    rig.ok(&cmd(0x102, 0, 32), 16);
}

#[test]
fn disable_with_pages_left_is_complained_of() {
    let mut rig = Rig::quick();
    rig.init();
    assert_eq!(rig.status(&cmd(0x105, 0, 16), 16).0, 4, "running");
    rig.ok(&cmd(0x103, 0, 16), 16);
    rig.ok(&cmd(0x105, 0, 16), 16);
    assert!(rig.complained_of("still owns 16 pages"));
}

#[test]
fn number_spaces_hand_out_and_take_back() {
    let mut rig = Rig::quick();
    rig.init();
    for (alloc, free) in [(0x800, 0x801), (0x802, 0x803), (0x816, 0x817), (0x80e, 0x80f)] {
        let a = rig.ok(&cmd(alloc, 0, 16), 16).word(8);
        let b = rig.ok(&cmd(alloc, 0, 16), 16).word(8);
        assert_ne!(a, b);
        rig.ok(&with(cmd(free, 0, 16), 8, a), 16);
        assert_eq!(rig.status(&with(cmd(free, 0, 16), 8, a), 16).0, 5, "freed twice");
        assert_ne!(rig.ok(&cmd(alloc, 0, 16), 16).word(8), a, "not given out again at once");
    }
}

#[test]
fn special_keys_differ() {
    let mut rig = Rig::quick();
    rig.init();
    let answer = rig.ok(&cmd(0x203, 0, 16), 32);
    let (reserved, terminate) = (answer.word(12), answer.word(20));
    assert!(reserved != 0 && terminate != 0 && reserved != terminate);
    assert_eq!(answer.word(16), 0, "a null key is not claimed");
}

#[test]
fn a_vf_has_its_own_id_and_no_address() {
    let mut rig = Rig::new(Config { init_pages: Some(10), ..Config::vf() });
    let mut id = [0; 4];
    rig.hca.config_read(0, &mut id);
    assert_eq!(id, [0xb3, 0x15, 0x14, 0x10]);
    rig.init();
    let context = rig.ok(&cmd(0x754, 0, 16), 272).out;
    assert_eq!(context[0x10 + 0xf4..0x10 + 0xfc], [0; 8], "MAC");
    assert_eq!(context[0x10 + 0x28..0x10 + 0x40], [0; 24], "GUIDs");
    // The port belongs to the physical function, as does the uplink: what stock Linux writes of it
    // all the same is taken and left, other registers are refused.
    let paos = |admin: u32| {
        let input = with(cmd(0x805, 0, 32), 8, 0x5006);
        with(with(input, 0x10, 1 << 16 | admin << 8), 0x14, 1 << 31)
    };
    rig.ok(&paos(2), 32);
    let read = with(with(cmd(0x805, 1, 32), 8, 0x5006), 0x10, 1 << 16);
    assert_eq!(rig.ok(&read, 32).word(0x10) >> 8 & 0xf, 1, "still up");
    let pause = with(with(cmd(0x805, 0, 48), 8, 0x5007), 0x10, 1 << 16);
    assert_eq!(rig.status(&pause, 48).0, 5);
    assert_eq!(rig.status(&cmd(0x750, 2, 16), 16).0, 3);
    rig.ok(&cmd(0x750, 0, 16), 16);
}

#[test]
fn a_vf_must_echo_its_function_number() {
    let mut rig = Rig::new(Config { personality: Personality::Vf, ..quick() });
    rig.enable();
    let (function, boot) = rig.query_pages(1);
    assert_ne!(function, 0);
    assert_eq!(rig.status(&Rig::give_command(0, &[crate::rig::PAGES]), 16).0, 3);
    rig.give(function, 0_u32.wrapping_add_signed(boot));
}

#[test]
fn hardware_like_bring_up_takes_its_time_and_succeeds() {
    for seed in 0..8 {
        let mut rig = Rig::new(Config { seed, hardware_like: true, ..quick() });
        rig.init();
        assert!(rig.now > 100_000_000, "INIT_HCA alone takes longer");
    }
}

#[test]
fn the_same_seed_gives_the_same_device() {
    let run = |seed| {
        let mut rig = Rig::new(Config { seed, hardware_like: true, ..quick() });
        rig.init();
        rig.now
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}
