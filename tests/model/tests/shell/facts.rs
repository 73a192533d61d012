//! Open facts: what a driver sees with each switch set.

use crate::rig::{CMD, PAGE, PORT, Rig, cmd, quick, with};
use mlx5_model::{Config, Facts, OpenFact};

const S: u64 = 1_000_000_000;

fn with_facts(facts: &str) -> Config {
    Config { facts: facts.parse().unwrap(), ..quick() }
}

fn running(facts: &str) -> Rig {
    let mut rig = Rig::new(with_facts(facts));
    rig.init();
    rig
}

/// CREATE_MKEY of physical mode in protection domain `pd`.
fn mkey(pd: u32) -> Vec<u8> {
    let input = with(cmd(0x200, 0, 272), 0x10, 0xc00);
    with(with(input, 0x14, 0xff_ff_ff_00), 0x1c, 1 << 31 | pd)
}

fn pd(rig: &mut Rig) -> u32 {
    rig.ok(&cmd(0x800, 0, 16), 16).word(8)
}

fn cap(rig: &mut Rig, block: u16, byte: usize) -> u8 {
    rig.ok(&cmd(0x100, block << 1 | 1, 16), 4112).out[16 + byte]
}

#[test]
fn every_setting_of_every_fact_brings_a_device_up_or_refuses_by_a_status() {
    for fact in OpenFact::ALL {
        for setting in fact.settings() {
            let mut facts = Facts::default();
            facts.set(*fact, setting.name).unwrap();
            let mut rig = Rig::new(Config { facts, ..quick() });
            rig.now = 10 * S;
            rig.step();
            rig.set_page();
            // A DPU's function enables itself by its own bit; both are tried.
            let plain = rig.exec(&cmd(0x104, 0, 16), 12).status();
            let own = rig.exec(&with(cmd(0x104, 0, 16), 8, 1 << 31), 12).status();
            assert!(plain == 0 || own == 0, "{}={}", fact.name(), setting.name);
        }
    }
}

#[test]
fn gen_eqe_to_an_idle_queue_is_lost_and_to_an_armed_one_is_not() {
    let mut rig = running("gen-eqe-unarmed=lost");
    let uar = rig.uar();
    let eqn = rig.eq(uar, 4, 0);
    let generate = with(with(cmd(0x304, 0, 80), 8, eqn), 16, 0x0001_0000);
    rig.ok(&generate, 16);
    assert_eq!(rig.eqe(0)[0x3f], 1, "still the device's");
    rig.arm(uar, eqn, 0);
    rig.ok(&generate, 16);
    assert_eq!(rig.eqe(0)[0x3f], 0);
}

#[test]
fn a_command_stalls_until_its_pages_come() {
    let mut rig = running("shortage=stall");
    let uar = rig.uar();
    rig.eq(uar, 4, PAGE);
    let pd = pd(&mut rig);
    rig.post(0, &mkey(pd), 16);
    rig.ring(1);
    assert!(!rig.wait(0, 60 * S), "it waits for ever");
    let eqe = rig.eqe(0);
    assert_eq!((eqe[1], eqe[0x27]), (0x0b, 16), "and asks for 16 pages");
    let pages: Vec<u64> = (0..16).map(|k| rig.next_page + k * 4096).collect();
    rig.next_page += 16 * 4096;
    rig.post(31, &Rig::give_command(0, &pages), 16);
    rig.ring(1 << 31);
    assert!(rig.wait(31, S) && rig.wait(0, S));
    assert_eq!(rig.answer(0, 16).status(), 0);
}

#[test]
fn a_stalled_command_fails_when_the_driver_has_no_pages() {
    let mut rig = running("shortage=stall");
    let uar = rig.uar();
    rig.eq(uar, 4, PAGE);
    let pd = pd(&mut rig);
    rig.post(0, &mkey(pd), 16);
    rig.ring(1);
    rig.step();
    rig.post(31, &cmd(0x108, 0, 16), 16);
    rig.ring(1 << 31);
    assert!(rig.wait(31, S) && rig.wait(0, S));
    assert_eq!(rig.answer(0, 16).status(), 0x0f);
}

#[test]
fn a_shortage_refuses_and_is_polled() {
    let mut rig = running("shortage=refuse,page-event=polled");
    let pd = pd(&mut rig);
    assert_eq!(rig.status(&mkey(pd), 16).0, 0x0f);
    assert_eq!(rig.query_pages(3), (0, 16));
    rig.give(0, 16);
    assert_eq!(rig.query_pages(3), (0, 0));
    rig.ok(&mkey(pd), 16);
}

#[test]
fn a_page_request_is_held_back_behind_a_command() {
    let mut rig =
        Rig::new(Config { command_latency: 1000, ..with_facts("page-event=after-command") });
    rig.init();
    let uar = rig.uar();
    rig.eq(uar, 4, PAGE);
    rig.post(0, &cmd(0x80d, 0, 16), 16);
    rig.ring(1);
    rig.step();
    rig.hca.request_pages(8);
    assert_eq!(rig.eqe(0)[0x3f], 1, "not while the command is in flight");
    assert!(rig.wait(0, S));
    rig.step();
    assert_eq!(rig.eqe(0)[1], 0x0b);
}

#[test]
fn a_stale_assert_kills_nothing() {
    for (setting, severity, byte) in [("stale", 0x0b, 0), ("stale-counter-byte", 0x0b, 1)] {
        let mut rig = running(&format!("health={setting}"));
        assert_eq!(rig.read(0x23c) >> 16 & 0xff, 1);
        assert_eq!(rig.read(0x238) >> 24, severity, "no reset bit");
        let before = rig.read(0x1010);
        assert_eq!(before >> 24, byte);
        rig.now += S;
        rig.step();
        assert_ne!(rig.read(0x1010), before, "the counter runs");
        rig.ok(&cmd(0x80d, 0, 16), 16);
    }
}

#[test]
fn time_formats_are_refused_at_creation() {
    // Each creation fails for want of its objects, but by another status.
    for (fact, opcode, at) in [
        ("qp-ts-format", 0x500, 0x20),
        ("sq-ts-format", 0x904, 0x20),
        ("rq-ts-format", 0x908, 0x20),
    ] {
        let shift = if opcode == 0x500 { 6 } else { 4 };
        for (cap, good) in
            [("0", [true, false, false]), ("1", [false, true, true]), ("2", [true; 3])]
        {
            let mut rig = running(&format!("{fact}={cap}"));
            for (format, good) in (0u32..).zip(good) {
                let word = format << shift;
                let (status, syndrome) = rig.status(&with(cmd(opcode, 0, 304), at, word), 16);
                assert_eq!(syndrome != 0x50_001a, good, "{fact} {cap} {format}: {status}");
            }
        }
    }
}

#[test]
fn a_vport_without_mac() {
    let mut rig = running("mac=zero");
    let context = rig.ok(&cmd(0x754, 0, 16), 272);
    assert_eq!(context.out[16 + 0xf0..16 + 0xf8], [0; 8]);
}

#[test]
fn the_link_trains_and_announces_itself() {
    let mut rig = running("link=after-20s");
    let uar = rig.uar();
    rig.eq(uar, 4, PORT);
    assert!(!rig.hca.link_up());
    rig.now = 20 * S;
    rig.step();
    assert!(rig.hca.link_up());
    assert_eq!(rig.eqe(0)[1], 0x09);
    let paos = |admin: u32| {
        with(with(with(cmd(0x805, 0, 272), 8, 0x5006), 16, 1 << 16 | admin << 8), 20, 1 << 31)
    };
    rig.ok(&paos(2), 272);
    rig.ok(&paos(1), 272);
    assert!(!rig.hca.link_up(), "it trains anew");
    rig.now = 40 * S;
    rig.step();
    assert!(rig.hca.link_up());
}

#[test]
fn a_flapping_link_ends_up() {
    let mut rig = running("link=flapping");
    let mut seen = Vec::new();
    for tenth in 0..80 {
        rig.now = tenth * S / 10;
        rig.step();
        if seen.last() != Some(&rig.hca.link_up()) {
            seen.push(rig.hca.link_up());
        }
    }
    assert_eq!(seen, [false, true, false, true, false, true]);
}

#[test]
fn an_uplink_that_has_to_follow() {
    let mut rig = running("uplink-follow=1");
    assert!(!rig.hca.link_up());
    rig.ok(&with(cmd(0x751, 2, 16), 12, 2 << 4), 16);
    assert!(rig.hca.link_up());
}

#[test]
fn the_command_queue_address_reads_as_zero() {
    let mut rig = running("command-address=zero");
    assert_eq!((rig.read(0x10), rig.read(0x14) >> 12), (0, 0));
}

#[test]
fn the_host_byte_order_is_required_or_unknown() {
    let write = with(cmd(0x805, 0, 32), 8, 0x7004);
    let mut rig = Rig::new(with_facts("host-endianness=unknown"));
    rig.enable();
    assert_eq!(rig.status(&write, 32).0, 3);
    let mut rig = Rig::new(with_facts("host-endianness=required"));
    rig.enable();
    rig.give(0, 16);
    assert_eq!(rig.status(&cmd(0x102, 0, 32), 16).0, 4);
    rig.ok(&write, 32);
    rig.ok(&cmd(0x102, 0, 32), 16);
}

#[test]
fn enabling_a_live_function() {
    let mut rig = running("enable-hca-live=taken");
    rig.ok(&cmd(0x104, 0, 16), 12);
    assert_eq!(rig.query_pages(2).1, 0, "the pages of before are still there");
    rig.ok(&cmd(0x102, 0, 32), 16);
}

#[test]
fn a_dpu_names_its_own_function() {
    let mut rig = Rig::new(with_facts("embedded-cpu=dpu"));
    rig.set_page();
    assert_eq!(rig.read(0x1fc) >> 23 & 1, 1);
    rig.ok(&cmd(0x104, 0, 16), 12);
    assert_eq!(rig.status(&cmd(0x10a, 0, 16), 112).0, 4, "that was the host's function");
    rig.ok(&with(cmd(0x104, 0, 16), 8, 1 << 31), 12);
    assert_eq!(rig.status(&cmd(0x107, 1, 16), 16).0, 3);
    let answer = rig.ok(&with(cmd(0x107, 1, 16), 8, 1 << 31), 16);
    assert_eq!((answer.word(8), answer.word(12)), (1 << 31, 6));
}

#[test]
fn capabilities_that_are_facts() {
    for (facts, block, byte, mask, value) in [
        ("umr-fence=1", 0, 0x41, 0x30, 0x10),
        ("cqe-version=0", 0, 0x3f, 0x0f, 0),
        ("wqe-inline-mode=not-required", 1, 2, 0x30, 0x20),
        ("log-bf-reg-size=10", 0, 0x4d, 0x1f, 10),
        ("log-bf-reg-size=none", 0, 0x4c, 0x80, 0),
        ("roce-version=4", 4, 0x13, 0xff, 4),
        ("l3-type=1", 4, 0x11, 0x0f, 1),
        ("roce-address-table=8", 4, 0x1f, 0xff, 8),
        ("local-ca-ack-delay=0", 0, 0x35, 0x1f, 0),
        ("port-type=infiniband", 0, 0x36, 0x03, 0),
    ] {
        let mut rig = Rig::new(with_facts(facts));
        rig.enable();
        assert_eq!(cap(&mut rig, block, byte) & mask, value, "{facts}");
    }
}

#[test]
fn the_roce_block_can_be_set() {
    let mut rig = Rig::new(with_facts("sw-r-roce-src-udp-port=settable"));
    rig.enable();
    assert_eq!(cap(&mut rig, 4, 0) & 8, 0);
    let block = rig.ok(&cmd(0x100, 8 | 1, 16), 4112).out[16..].to_vec();
    let mut set = cmd(0x109, 8, 4112);
    set[16..].copy_from_slice(&block);
    set[16] |= 8;
    rig.ok(&set, 16);
    assert_eq!(cap(&mut rig, 4, 0) & 8, 8);
}

#[test]
fn slow_teardown_and_reclaim() {
    let mut rig = running("teardown=10s,reclaim=5s");
    rig.ok(&cmd(0x103, 0, 16), 16);
    assert!(rig.now >= 10 * S);
    let before = rig.now;
    rig.ok(&with(cmd(0x108, 2, 16), 12, 16), 144);
    assert!(rig.now >= before + 5 * S);
}

#[test]
fn events_come_in_bursts_and_in_order() {
    for order in ["bursts", "reordered"] {
        let mut rig = running(&format!("eqe-order={order}"));
        let uar = rig.uar();
        rig.eq(uar, 4, CMD | PAGE);
        rig.hca.request_pages(1);
        rig.hca.request_pages(2);
        assert_eq!(rig.eqe(0)[0x3f], 1, "on its way");
        rig.now += 3_000_000;
        rig.step();
        assert_eq!((rig.eqe(0)[0x27], rig.eqe(1)[0x27]), (1, 2));
    }
}

#[test]
fn commands_of_different_slots_overtake_each_other() {
    let mut rig = running("command-order=random");
    let mut overtaken = false;
    for _ in 0..20 {
        rig.post(0, &cmd(0x80d, 0, 16), 16);
        rig.post(1, &cmd(0x80d, 0, 16), 16);
        rig.ring(3);
        assert!(rig.wait(1, S));
        overtaken |= rig.owned(0);
        assert!(rig.wait(0, S));
    }
    assert!(overtaken);
}
