//! Rates of links.

use crate::prm::sa::rate;
use crate::prm::smp::{self, PortInfo, capability};

/// Codes by half Gbit/s.
const RATES: [(u16, u8); 23] = [
    (5, rate::GBPS_2_5),
    (10, rate::GBPS_5),
    (20, rate::GBPS_10),
    (28, rate::GBPS_14),
    (40, rate::GBPS_20),
    (50, rate::GBPS_25),
    (56, rate::GBPS_28),
    (60, rate::GBPS_30),
    (80, rate::GBPS_40),
    (100, rate::GBPS_50),
    (112, rate::GBPS_56),
    (120, rate::GBPS_60),
    (160, rate::GBPS_80),
    (200, rate::GBPS_100),
    (224, rate::GBPS_112),
    (240, rate::GBPS_120),
    (336, rate::GBPS_168),
    (400, rate::GBPS_200),
    (600, rate::GBPS_300),
    (800, rate::GBPS_400),
    (1200, rate::GBPS_600),
    (1600, rate::GBPS_800),
    (2400, rate::GBPS_1200),
];

/// The rate of a port's link; that of one slow lane where it says nothing valid.
pub(super) fn of_port(info: &PortInfo<[u8; smp::DATA_LEN]>) -> u8 {
    let lanes = match info.link_width_active() {
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 1,
    };
    let is_extended = info.cap_mask() & capability::EXTENDED_SPEEDS != 0;
    let half_gbps = match (info.link_speed_ext_active(), info.link_speed_active()) {
        (1, _) if is_extended => 28,
        (2, _) if is_extended => 50,
        (4, _) if is_extended => 100,
        (8, _) if is_extended => 200,
        (_, 4) => 20,
        (_, 2) => 10,
        _ => 5,
    };
    let code = |(speed, code): &(u16, u8)| (*speed == lanes * half_gbps).then_some(*code);
    RATES.iter().find_map(code).unwrap_or(rate::GBPS_2_5)
}

/// How fast a rate is, for comparisons; 0 of codes that there are not.
pub(super) fn speed(code: u8) -> u16 {
    RATES.iter().find(|rate| rate.1 == code).map_or(0, |rate| rate.0)
}

/// The slower of two.
pub(super) fn slower(one: u8, other: u8) -> u8 {
    if speed(one) <= speed(other) { one } else { other }
}
