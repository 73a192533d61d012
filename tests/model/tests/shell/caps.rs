//! Capability query and set.

use crate::rig::{Rig, cmd};
use mlx5_model::{Config, Profile};

fn block(rig: &mut Rig, kind: u16, current: bool) -> Vec<u8> {
    rig.ok(&cmd(0x100, kind << 1 | u16::from(current), 16), 4112)
        .out[16..]
        .to_vec()
}

fn set(rig: &mut Rig, kind: u16, bytes: &[u8]) -> (u8, u32) {
    let mut input = cmd(0x109, kind << 1, 4112);
    input[16..].copy_from_slice(bytes);
    rig.status(&input, 16)
}

fn enabled(config: Config) -> Rig {
    let mut rig = Rig::new(config);
    rig.enable();
    rig
}

/// Bytes of the general block where the recorded card had its values.
#[test]
fn big_profile_says_what_the_recorded_card_said() {
    let mut rig = enabled(Config::default());
    let max = block(&mut rig, 0, false);
    assert_eq!(max[0x13] & 0x1f, 23, "log_max_qp");
    assert_eq!(max[0x11], 15, "log_max_qp_sz");
    assert_eq!(max[0x1b] & 0x1f, 24, "log_max_cq");
    assert_eq!(
        (max[0x1c], max[0x1f] & 0xf),
        (22, 8),
        "log_max_eq_sz, log_max_eq"
    );
    assert_eq!(max[0x36] & 3, 1, "Ethernet port");
    assert_eq!(max[0x37], 1, "one port");
    assert_eq!(max[0x40 + 2] >> 6, 3, "cmdif_checksum");
    assert_eq!(max[0x43] & 6, 6, "roce, atomic");
    assert_eq!(max[0x49] & 0x3f, 5, "uar_sz");
    assert_eq!(max[0x4d] & 0x1f, 9, "log_bf_reg_size");
    assert_eq!(max[0x50..0x54], [0, 0, 4, 0], "max_wqe_sz_sq 1024");
    assert_eq!(max[0x46] & 0x40, 0x40, "imaicl, of the umr switch");
    let current = block(&mut rig, 0, true);
    assert_eq!(current[0x13] & 0x1f, 14, "log_max_qp before it is set");
    assert_eq!(current[0x42] >> 6, 0, "checksums off");
}

#[test]
fn windows_are_a_switch() {
    let mut rig = enabled(Config {
        umr: false,
        ..Config::default()
    });
    assert_eq!(block(&mut rig, 0, true)[0x46] & 0x40, 0);
}

#[test]
fn roce_block() {
    for (profile, size) in [(Profile::Big, [1, 0]), (Profile::Small, [0, 32])] {
        let mut rig = enabled(Config {
            profile,
            ..Config::default()
        });
        let roce = block(&mut rig, 4, true);
        assert_eq!(roce[0x16..0x18], 4791u16.to_be_bytes());
        assert_eq!(roce[0x18..0x1c], [0xff, 0xff, 0xc0, 0]);
        assert_eq!(roce[0x1e..0x20], size);
    }
}

#[test]
fn unannounced_types_answer_bad_parameter() {
    let mut rig = enabled(Config::default());
    assert_eq!(rig.status(&cmd(0x100, 0x40, 16), 4112), (3, 0x5a_dd95));
}

#[test]
fn what_is_set_is_read_back() {
    let mut rig = enabled(Config::default());
    let mut current = block(&mut rig, 0, true);
    current[0x13] = current[0x13] & !0x1f | 12;
    assert_eq!(set(&mut rig, 0, &current).0, 0);
    assert_eq!(block(&mut rig, 0, true), current);
    assert_eq!(
        block(&mut rig, 0, false)[0x13] & 0x1f,
        23,
        "maximum untouched"
    );
    assert_eq!(rig.hca.complaints(), [""; 0]);
}

#[test]
fn refusals_of_set() {
    let mut rig = enabled(Config::default());
    let current = block(&mut rig, 0, true);
    let max = block(&mut rig, 0, false);
    assert_eq!(set(&mut rig, 0, &max), (3, 0), "built from the maximum");
    let mut more = current.clone();
    more[0x13] = more[0x13] & !0x1f | 24;
    assert_eq!(set(&mut rig, 0, &more).0, 3, "above the maximum");
    let mut bit = current.clone();
    bit[0x34] |= 0x20;
    assert_eq!(
        set(&mut rig, 0, &bit),
        (3, 0x53_7801),
        "ib_virt, which is not there"
    );
    assert_eq!(set(&mut rig, 9, &current).0, 3, "a type that is not there");
    assert_eq!(block(&mut rig, 0, true), current, "nothing of it stuck");
}

#[test]
fn a_read_only_field_is_kept_and_complained_of() {
    let mut rig = enabled(Config::default());
    let mut current = block(&mut rig, 0, true);
    current[0x43] &= !0x02;
    assert_eq!(set(&mut rig, 0, &current).0, 0);
    assert_eq!(block(&mut rig, 0, true)[0x43] & 2, 2);
    assert!(rig.complained_of("read-only fields: atomic"));
}

#[test]
fn not_after_init() {
    let mut rig = Rig::quick();
    rig.init();
    let current = block(&mut rig, 0, true);
    assert_eq!(set(&mut rig, 0, &current).0, 4);
}
