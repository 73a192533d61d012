//! Health of the firmware.

use mlx5_model::Hca;

use super::Group;
use crate::faults::what::{Loss, Phase, Row, What, all, nth, some};

const COUNTER: usize = 0x1010;
const SEVERITY: usize = 0x238;
const WORD: usize = 0x23c;
const INITIALIZING: usize = 0x1fc;
const QUEUE: usize = 0x14;

const fn dies(name: &'static str, is: &'static str, act: fn(&mut Hca)) -> Row {
    Row::new(name, is, Loss::Adapter, What::Step(6, act))
}

const fn reads(
    name: &'static str,
    is: &'static str,
    loses: Loss,
    change: fn(usize, u32) -> u32,
) -> Row {
    Row::new(name, is, loses, What::Registers(all(), change))
}

/// Health is looked at every second.
const TOO_SHORT: &[(Phase, &str)] =
    &[(Phase::Closing, "the phase ends before the next look at health")];

pub(super) const GROUP: Group = Group {
    name: "Health",
    is: "The firmware stops, says that it failed, or seems to.",
    rows: &[
        dies("syndrome-internal", "the firmware meets an internal error (0x1)", |hca| hca.die(0x1)),
        dies("syndrome-core", "a core of the firmware does not respond (0x7)", |hca| hca.die(0x7)),
        dies("syndrome-hardware", "the hardware fails fatally (0x8)", |hca| hca.die(0x8)),
        dies("syndrome-image", "the firmware's image fails its checksum (0x9)", |hca| hca.die(0x9)),
        dies("syndrome-fetch", "the device cannot fetch its pages (0xa)", |hca| hca.die(0xa)),
        dies("syndrome-page", "a page of the firmware's is unusable (0xb)", |hca| hca.die(0xb)),
        dies("syndrome-async-eq", "the asynchronous event queue overruns (0xc)", |hca| {
            hca.die(0xc)
        }),
        dies("syndrome-eq-error", "an event queue is in error (0xd)", |hca| hca.die(0xd)),
        dies("syndrome-eq-invalid", "an event queue is invalid (0xe)", |hca| hca.die(0xe)),
        dies("syndrome-ffser", "the hardware fails without recovery (0xf)", |hca| hca.die(0xf)),
        dies("syndrome-heat", "the device is too hot (0x10)", |hca| hca.die(0x10)),
        dies("syndrome-poison", "a page of the firmware's is poisoned (0x12)", |hca| hca.die(0x12)),
        dies(
            "syndrome-unknown",
            "the firmware fails with a syndrome without a name (0x77)",
            |hca| hca.die(0x77),
        ),
        Row::new(
            "dies-at-once",
            "the firmware fails before the phase's first register write",
            Loss::Adapter,
            What::Step(0, |hca| hca.die(1)),
        ),
        Row::new(
            "dies-late",
            "the firmware fails before the 20th register write",
            Loss::Adapter,
            What::Step(19, |hca| hca.die(1)),
        ),
        reads("counter-stalls", "the health counter stands still", Loss::Nothing, |at, value| {
            if at == COUNTER { value & 0xff00_0000 | 42 } else { value }
        })
        .never(TOO_SHORT),
        reads(
            "warning",
            "the health buffer has a syndrome without the reset bit",
            Loss::Nothing,
            |at, value| match at {
                SEVERITY => 0x0b00_0000,
                WORD => 1 << 16,
                _ => value,
            },
        )
        .never(TOO_SHORT),
        reads("heat", "the health buffer warns of heat", Loss::Nothing, |at, value| {
            if at == WORD { value | 0x10 << 16 } else { value }
        })
        .never(TOO_SHORT),
        Row::new(
            "syndrome-glimpse",
            "a syndrome with the reset bit is read once, and gone at the next look",
            Loss::Adapter,
            What::Registers(some(0, 3), |at, value| match at {
                COUNTER => value | 8 << 24,
                SEVERITY => 0x8b00_0000,
                WORD => 8 << 16,
                _ => value,
            }),
        )
        .never(TOO_SHORT),
        reads(
            "never-ready",
            "the firmware says that it starts, without end",
            Loss::Adapter,
            |at, value| {
                if at == INITIALIZING { value | 1 << 31 } else { value }
            },
        )
        .never(&[
            (Phase::Connecting, "the driver reads that only at bring-up"),
            (Phase::Traffic, "the driver reads that only at bring-up"),
            (Phase::Closing, "the driver reads that only at bring-up"),
        ]),
        Row::new(
            "interface-disabled",
            "the firmware disables its interface",
            Loss::Adapter,
            What::Registers(
                all(),
                |at, value| if at == QUEUE { value & !0x700 | 0x100 } else { value },
            ),
        )
        .never(TOO_SHORT),
        Row::new(
            "interface-reset",
            "somebody else resets the firmware: its interface says so",
            Loss::Adapter,
            What::Registers(
                all(),
                |at, value| if at == QUEUE { value & !0x700 | 0x700 } else { value },
            ),
        )
        .never(TOO_SHORT),
        Row::new(
            "queue-moved-glimpse",
            "the address of the command queue reads otherwise once",
            Loss::Nothing,
            What::Registers(
                nth(2),
                |at, value| if at == QUEUE { value ^ 0x10_0000 } else { value },
            ),
        )
        .never(TOO_SHORT),
        Row::new(
            "queue-moved",
            "the address of the command queue reads otherwise",
            Loss::Adapter,
            What::Registers(all(), |at, value| if at == QUEUE { value ^ 0x10_0000 } else { value }),
        )
        .never(TOO_SHORT),
    ],
};
