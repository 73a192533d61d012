//! Event queues: ownership, arming, overrun, masks.

use crate::rig::{CMD, PAGE, PORT, Rig, cmd, quick, with};
use mlx5_model::{Config, Event, event};

fn running() -> (Rig, u32) {
    let mut rig = Rig::quick();
    rig.init();
    let uar = rig.uar();
    (rig, uar)
}

fn port_event(rig: &mut Rig) {
    let up = rig.hca.link_up();
    rig.hca.set_link(!up);
}

#[test]
fn owner_bit_turns_every_lap() {
    let (mut rig, uar) = running();
    let eqn = rig.eq(uar, 1, PORT);
    for lap in 0..4u32 {
        for k in 0..2u32 {
            port_event(&mut rig);
            let eqe = rig.eqe(u64::from(k));
            assert_eq!(u32::from(eqe[0x3f]), lap & 1);
            rig.write(u64::from(uar) << 12 | 0x48, eqn << 24 | (lap * 2 + k + 1));
        }
    }
}

#[test]
fn one_interrupt_per_arm() {
    let (mut rig, uar) = running();
    let eqn = rig.eq(uar, 4, PORT);
    port_event(&mut rig);
    assert!(rig.hca.interrupts().is_empty(), "not armed yet");
    rig.arm(uar, eqn, 0);
    assert_eq!(rig.hca.interrupts(), [3], "an entry was waiting");
    port_event(&mut rig);
    assert!(rig.hca.interrupts().is_empty(), "silent until armed again");
    rig.arm(uar, eqn, 2);
    assert!(rig.hca.interrupts().is_empty(), "nothing new");
    port_event(&mut rig);
    assert_eq!(rig.hca.interrupts(), [3]);
}

#[test]
fn created_armed_when_so_configured() {
    let mut rig = Rig::new(Config { facts: "eq-created=armed".parse().unwrap(), ..quick() });
    rig.init();
    let uar = rig.uar();
    rig.eq(uar, 4, PORT);
    port_event(&mut rig);
    assert_eq!(rig.hca.interrupts(), [3]);
}

#[test]
fn update_without_arming_does_not_arm() {
    let (mut rig, uar) = running();
    let eqn = rig.eq(uar, 4, PORT);
    rig.write(u64::from(uar) << 12 | 0x48, eqn << 24);
    port_event(&mut rig);
    assert!(rig.hca.interrupts().is_empty());
}

#[test]
fn overrun_is_a_write_failure() {
    let (mut rig, uar) = running();
    let eqn = rig.eq(uar, 1, PORT);
    for _ in 0..3 {
        port_event(&mut rig);
    }
    let context = rig.ok(&with(cmd(0x303, 0, 16), 8, eqn), 272).out;
    assert_eq!(context[0x10] >> 4, 0xa);
    assert!(rig.complained_of("overrun"));
}

#[test]
fn overrun_ignored_goes_round() {
    let (mut rig, uar) = running();
    let eqn = rig.ok(&Rig::eq_command(uar, 1, 0, PORT, true), 16).word(8);
    for _ in 0..5 {
        port_event(&mut rig);
    }
    let context = rig.ok(&with(cmd(0x303, 0, 16), 8, eqn), 272).out;
    assert_eq!((context[0x10] >> 4, context[0x10 + 0x2f]), (0, 5), "status, producer");
}

#[test]
fn query_shows_state_and_indices() {
    let (mut rig, uar) = running();
    let eqn = rig.eq(uar, 4, PORT);
    let st = |rig: &mut Rig| rig.ok(&with(cmd(0x303, 0, 16), 8, eqn), 272).out[0x12] & 0xf;
    assert_eq!(st(&mut rig), 0);
    rig.arm(uar, eqn, 0);
    assert_eq!(st(&mut rig), 9);
    port_event(&mut rig);
    assert_eq!(st(&mut rig), 0xa);
}

#[test]
fn doorbells_to_the_wrong_place() {
    let (mut rig, uar) = running();
    let other = rig.uar();
    let eqn = rig.eq(uar, 4, PORT);
    rig.arm(other, eqn, 0);
    rig.arm(uar, 0x77, 0);
    rig.arm(uar, eqn, 9);
    assert!(rig.complained_of("created with"));
    assert!(rig.complained_of("no EQ 0x77"));
    assert!(rig.complained_of("not behind producer"));
}

#[test]
fn refusals_of_create() {
    let (mut rig, uar) = running();
    let status = |rig: &mut Rig, input: &[u8]| rig.status(input, 16).0;
    assert_eq!(status(&mut rig, &Rig::eq_command(uar + 1, 4, 0, 0, false)), 5, "UAR");
    assert_eq!(status(&mut rig, &Rig::eq_command(uar, 4, 32, 0, false)), 3, "vector");
    let short = &Rig::eq_command(uar, 8, 0, 0, false)[..288];
    assert_eq!(status(&mut rig, short), 0x50, "page list");
    let mut huge = Rig::eq_command(uar, 4, 0, 0, false);
    huge[0x1c] = 31;
    assert_eq!(status(&mut rig, &huge), 3, "size");
}

#[test]
fn destroy_and_references() {
    let (mut rig, uar) = running();
    let eqn = rig.eq(uar, 4, CMD | PAGE);
    assert_eq!(rig.status(&with(cmd(0x803, 0, 16), 8, uar), 16).0, 9, "UAR in use");
    rig.ok(&with(cmd(0x302, 0, 16), 8, eqn), 16);
    assert_eq!(rig.status(&with(cmd(0x302, 0, 16), 8, eqn), 16).0, 5);
    rig.ok(&with(cmd(0x803, 0, 16), 8, uar), 16);
}

#[test]
fn numbers_run_out() {
    let mut rig = Rig::new(Config { init_pages: Some(10), ..Config::small() });
    rig.init();
    let uar = rig.uar();
    let mut last = 0;
    for _ in 0..112 {
        last = rig.ok(&Rig::eq_command(uar, 0, 0, 0, false), 16).word(8);
    }
    assert_eq!(last, 127);
    assert_eq!(rig.status(&Rig::eq_command(uar, 0, 0, 0, false), 16).0, 8);
}

#[test]
fn software_can_ask_for_an_entry() {
    let (mut rig, uar) = running();
    let eqn = rig.eq(uar, 4, 0);
    rig.arm(uar, eqn, 0);
    let mut input = with(cmd(0x304, 0, 80), 8, eqn);
    input[0x11] = 0x22;
    input[0x13] = 0x01;
    input[0x30..0x34].copy_from_slice(&[1, 2, 3, 4]);
    rig.ok(&input, 16);
    let eqe = rig.eqe(0);
    assert_eq!((eqe[1], eqe[3], &eqe[0x20..0x24]), (0x22, 1, &[1, 2, 3, 4][..]));
    assert_eq!(rig.hca.interrupts(), [3]);
}

#[test]
fn only_subscribed_kinds_arrive() {
    let (mut rig, uar) = running();
    rig.eq(uar, 4, PORT);
    rig.hca.request_pages(4);
    rig.hca.inject_event(None, &Event::new(event::GENERAL, 0));
    assert_eq!(rig.hca.stats().eqes, 0);
    rig.hca.inject_event(Some(0x10), &Event::new(0x7f, 0));
    assert_eq!(rig.eqe(0)[1], 0x7f, "unless put there");
}

#[test]
fn a_ring_inside_a_large_page_begins_at_its_offset() {
    let (mut rig, uar) = running();
    let mut input = Rig::eq_command(uar, 4, 0, PORT, false);
    // 32 KiB pages, offset 3/64 of one: 1,536 bytes.
    input[0x28] = 3;
    input = with(input, 0x18, 3 << 6);
    rig.ok(&input, 16);
    port_event(&mut rig);
    assert_eq!(rig.eqe(1536 / 64)[1], 0x09);
}

#[test]
fn masked_vectors_stay_pending_in_the_bar_form() {
    let mut rig = Rig::new(Config { msix_in_bar: true, ..quick() });
    rig.init();
    let uar = rig.uar();
    let eqn = rig.eq(uar, 4, PORT);
    rig.arm(uar, eqn, 0);
    rig.hca.config_write(0x9e, &[0, 0x80]);
    port_event(&mut rig);
    assert!(rig.hca.interrupts().is_empty(), "masked as after reset");
    let mut pending = [0];
    rig.hca.bar_read(0x3000, &mut pending);
    assert_eq!(pending, [1 << 3]);
    rig.hca.bar_write(0x2000 + 3 * 16 + 12, &[0; 4]);
    assert_eq!(rig.hca.interrupts(), [3]);
    rig.hca.bar_read(0x3000, &mut pending);
    assert_eq!(pending, [0]);
}

#[test]
fn a_ring_the_iommu_refuses_fails_the_queue() {
    let (mut rig, uar) = running();
    let mut input = Rig::eq_command(uar, 4, 0, PORT, false);
    input[0x110..0x118].copy_from_slice(&0x5000u64.to_be_bytes());
    let eqn = rig.ok(&input, 16).word(8);
    port_event(&mut rig);
    let context = rig.ok(&with(cmd(0x303, 0, 16), 8, eqn), 272).out;
    assert_eq!(context[0x10] >> 4, 0xa);
}

#[test]
fn a_ring_in_a_firmware_page_is_complained_of() {
    let (mut rig, uar) = running();
    let mut input = Rig::eq_command(uar, 4, 0, PORT, false);
    input[0x110..0x118].copy_from_slice(&crate::rig::PAGES.to_be_bytes());
    rig.ok(&input, 16);
    assert!(rig.complained_of("CREATE_EQ: 0x40000000 was given to the firmware"));
}
