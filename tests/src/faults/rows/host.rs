//! The host: memory, mappings, pages, clocks, sleep.

use super::Group;
use crate::faults::what::{Loss, MS, Phase, Row, S, What, all, nth};
use crate::host::watched::Ask;

const fn none(
    name: &'static str,
    is: &'static str,
    pick: crate::faults::what::Pick,
    ask: Ask,
) -> Row {
    Row::new(name, is, Loss::Connection, What::Grants(pick, ask))
}

const NONE_IN_CLOSING: &[(Phase, &str)] = &[(Phase::Closing, "nothing is allocated in this phase")];
const NO_SECOND: &[(Phase, &str)] = &[
    (Phase::Traffic, "one piece is allocated in this phase"),
    (Phase::Closing, "nothing is allocated in this phase"),
];
const NO_THIRD: &[(Phase, &str)] = &[
    (Phase::Connecting, "two pieces are allocated in this phase"),
    (Phase::Traffic, "one piece is allocated in this phase"),
    (Phase::Closing, "nothing is allocated in this phase"),
];
const BRING_UP_ONLY: &[(Phase, &str)] = &[
    (Phase::Connecting, "the firmware asks for none in this phase"),
    (Phase::Traffic, "the firmware asks for none in this phase"),
    (Phase::Closing, "the firmware asks for none in this phase"),
];

pub(super) const GROUP: Group = Group {
    name: "Host",
    is: "The host has no memory or no mapping, its clocks jump, its process does not run.",
    rows: &[
        none(
            "alloc-first",
            "the first piece of memory of the phase is refused",
            nth(0),
            Ask::Alloc,
        )
        .never(NONE_IN_CLOSING),
        none("alloc-second", "the second piece of memory is refused", nth(1), Ask::Alloc)
            .never(NO_SECOND),
        none("alloc-third", "the third piece of memory is refused", nth(2), Ask::Alloc)
            .never(NO_THIRD),
        none("alloc-all", "there is no memory", all(), Ask::Alloc).never(NONE_IN_CLOSING),
        none(
            "map-first",
            "the first address that the device should use is not mapped",
            nth(0),
            Ask::Map,
        ),
        none("map-third", "the third address is not mapped", nth(2), Ask::Map),
        none("map-all", "no address is mapped", all(), Ask::Map),
        Row::new(
            "pages-first",
            "the firmware gets no pages at its first request",
            Loss::Connection,
            What::Grants(nth(0), Ask::Pages),
        )
        .never(BRING_UP_ONLY),
        Row::new("jump-10ms", "all clocks jump by 10 ms", Loss::Nothing, What::Jump(10 * MS)),
        Row::new("jump-3s", "all clocks jump by 3 s", Loss::Nothing, What::Jump(3 * S)),
        Row::new("jump-60s", "all clocks jump by a minute", Loss::Connection, What::Jump(60 * S)),
        Row::new(
            "pause-10ms",
            "the process does not run for 10 ms",
            Loss::Nothing,
            What::Pause(10 * MS),
        ),
        Row::new("pause-1s", "the process does not run for 1 s", Loss::Nothing, What::Pause(S)),
        Row::new(
            "pause-40s",
            "the process does not run for 40 s",
            Loss::Connection,
            What::Pause(40 * S),
        ),
    ],
};
