//! The page protocol.

use crate::rig::{PAGE, PAGES, Rig, cmd, quick, with};
use mlx5_model::Config;

fn take(rig: &mut Rig, count: u32) -> Vec<u64> {
    let answer = rig.ok(&with(cmd(0x108, 2, 16), 12, count), 16 + count as usize * 8);
    let pages = answer.out[16..].chunks_exact(8).map(|b| u64::from_be_bytes(b.try_into().unwrap()));
    pages.take(answer.word(8) as usize).collect()
}

#[test]
fn counts_follow_the_capabilities_set() {
    let mut rig = Rig::new(Config::default());
    rig.enable();
    assert_eq!(rig.query_pages(1), (0, 6));
    rig.give(0, 6);
    assert_eq!(rig.query_pages(2).1, 4231, "a ConnectX-4 at log_max_qp 14, about");
    let mut set = cmd(0x109, 0, 4112);
    set[16..].copy_from_slice(&rig.ok(&cmd(0x100, 1, 16), 4112).out[16..]);
    set[16 + 0x13] = set[16 + 0x13] & !0x1f | 17;
    rig.ok(&set, 16);
    assert_eq!(rig.query_pages(2).1, 12_867, "and at 17");
    set[16 + 0x13] = set[16 + 0x13] & !0x1f | 1;
    rig.ok(&set, 16);
    assert!(rig.query_pages(2).1 < 3000, "a small driver asks for little");
}

#[test]
fn giving_may_be_split() {
    let mut rig = Rig::quick();
    rig.enable();
    for left in (0..6).rev() {
        rig.give(0, 1);
        assert_eq!(rig.query_pages(1).1, left);
    }
}

#[test]
fn bad_pages_are_refused_whole() {
    let mut rig = Rig::quick();
    rig.enable();
    for bad in [PAGES + 8, PAGES] {
        let give = Rig::give_command(0, &[PAGES, bad]);
        assert_eq!(rig.status(&give, 16).0, 3, "{bad:#x}");
        assert_eq!(rig.hca.pages_owned(), 0);
    }
    rig.ok(&Rig::give_command(0, &[PAGES]), 16);
    assert_eq!(rig.status(&Rig::give_command(0, &[PAGES]), 16).0, 3, "again");
    assert_eq!(rig.status(&Rig::give_command(1, &[PAGES + 4096]), 16).0, 3, "other function");
    let short = with(Rig::give_command(0, &[PAGES + 4096]), 12, 2);
    assert_eq!(rig.status(&short, 16).0, 0x50, "list shorter than it says");
    assert_eq!(rig.status(&cmd(0x108, 3, 16), 16).0, 3);
    assert_eq!(rig.status(&cmd(0x107, 4, 16), 16).0, 3);
}

#[test]
fn a_running_function_gives_back_only_what_is_spare() {
    let mut rig = Rig::quick();
    rig.init();
    assert_eq!(take(&mut rig, 8), [0u64; 0]);
    rig.give(0, 3);
    assert_eq!(take(&mut rig, 8).len(), 3);
}

#[test]
fn every_page_comes_back_once() {
    let mut rig = Rig::quick();
    rig.init();
    rig.ok(&cmd(0x103, 0, 16), 16);
    let mut back = take(&mut rig, 10);
    back.extend(take(&mut rig, 10));
    back.sort_unstable();
    assert_eq!(back, (0..16).map(|k| PAGES + k * 4096).collect::<Vec<_>>());
    assert_eq!(rig.hca.complaints(), [""; 0]);
}

#[test]
fn a_driver_that_writes_into_firmware_pages_is_found_out() {
    let mut rig = Rig::quick();
    rig.init();
    rig.ram.put(PAGES + 4096, &[0; 8]);
    rig.ok(&cmd(0x103, 0, 16), 16);
    take(&mut rig, 16);
    assert!(rig.complained_of("page 0x40001000 was written"));
    assert_eq!(rig.hca.complaints().len(), 1);
}

#[test]
fn hardware_like_take_back_is_slow_but_ends() {
    let mut rig =
        Rig::new(Config { hardware_like: true, seed: 9, init_pages: Some(200), ..quick() });
    rig.init();
    rig.ok(&cmd(0x103, 0, 16), 16);
    let mut zeroes = 0;
    let mut calls = 0;
    while rig.hca.pages_owned() != 0 {
        calls += 1;
        zeroes += u32::from(take(&mut rig, 64).is_empty());
        assert!(calls < 1000);
    }
    assert!(zeroes > 0 && calls > 4);
}

#[test]
fn regular_pages_may_be_negative() {
    let mut rig = Rig::new(Config { regular_pages: -5, ..quick() });
    rig.init();
    assert_eq!(rig.query_pages(3).1, -5);
}

#[test]
fn requests_at_run_time() {
    let mut rig = Rig::quick();
    rig.init();
    let uar = rig.uar();
    rig.eq(uar, 4, PAGE);
    rig.hca.request_pages(8);
    let eqe = rig.eqe(0);
    assert_eq!(eqe[1], 0x0b);
    assert_eq!(eqe[0x20..0x28], [0, 0, 0, 0, 0, 0, 0, 8]);
    rig.give(0, 5);
    assert_eq!(rig.hca.pages_outstanding(), 3);
    rig.ok(&cmd(0x108, 0, 16), 16);
    assert!(rig.hca.pages_refused());
    assert_eq!(rig.hca.pages_outstanding(), 0);
    rig.hca.request_pages(-5);
    assert_eq!(rig.eqe(1)[0x24..0x28], (-5i32).to_be_bytes());
    assert_eq!(take(&mut rig, 5).len(), 5);
    assert_eq!(rig.hca.pages_outstanding(), 0);
    rig.hca.request_pages(i32::MIN);
    rig.hca.request_pages(i32::MAX);
}
