//! The bus: all ones, resets, removal, bus mastering, interrupts.

use super::Group;
use crate::faults::what::{Interrupts, Loss, MS, Phase, Row, S, What, all, nth, some};
use mlx5_model::Hca;

const fn step(name: &'static str, is: &'static str, at: u64, act: fn(&mut Hca)) -> Row {
    Row::new(name, is, Loss::Adapter, What::Step(at, act))
}

/// The function is reset before this register write of the phase.
#[must_use]
pub const fn reset_before(write: u64) -> Row {
    step("flr", "the function is reset before a register write", write, reset)
}

/// A reset from outside; whoever resets a function restores its configuration.
fn reset(hca: &mut Hca) {
    hca.flr();
    crate::host::inproc::enable(hca);
}

fn unmastered(hca: &mut Hca) {
    hca.config_write(4, &[0x02, 0x00]);
}

fn undecoded(hca: &mut Hca) {
    hca.config_write(4, &[0x00, 0x00]);
}

/// Commands come back at once.
const UNREAD: &[(Phase, &str)] = &[(Phase::Closing, "the driver reads no register there")];

pub(super) const GROUP: Group = Group {
    name: "PCI",
    is: "The function is reset or removed, loses its right to reach memory, or its interrupts.",
    rows: &[
        step(
            "flr-at-once",
            "the function is reset before the phase's first register write",
            0,
            reset,
        ),
        step("flr-third", "the function is reset before the third register write", 2, reset),
        step("flr-sixth", "the function is reset before the sixth register write", 5, reset),
        step("flr-twelfth", "the function is reset before the twelfth register write", 11, reset),
        step("flr-20th", "the function is reset before the 20th register write", 19, reset),
        step("flr-25th", "the function is reset before the 25th register write", 24, reset),
        step(
            "flr-unconfigured",
            "the function is reset, and nobody restores its configuration",
            5,
            |hca| hca.flr(),
        ),
        Row::new(
            "all-ones-once",
            "one register reads as all ones",
            Loss::Adapter,
            What::Registers(nth(2), |_, _| u32::MAX),
        )
        .never(UNREAD),
        Row::new(
            "all-ones",
            "all registers read as all ones: the function is off the bus",
            Loss::Adapter,
            What::Registers(all(), |_, _| u32::MAX),
        )
        .never(UNREAD),
        Row::new(
            "all-zeros",
            "all registers read as zero",
            Loss::Adapter,
            What::Registers(all(), |_, _| 0),
        )
        .never(UNREAD),
        step(
            "unplugged",
            "the card is pulled out: registers are ones, no write arrives",
            5,
            undecoded,
        ),
        step("unplugged-at-once", "the card is pulled out at the begin of the phase", 0, undecoded),
        step("bus-master-off", "the function may not reach memory any more", 5, unmastered),
        step(
            "bus-master-off-at-once",
            "the function may not reach memory from the begin",
            0,
            unmastered,
        ),
        Row::new(
            "stores-lost",
            "register writes do not arrive",
            Loss::Adapter,
            What::Stores(all()),
        ),
        Row::new(
            "msix-lost",
            "three interrupts do not arrive",
            Loss::Nothing,
            What::Vectors(some(0, 3), Interrupts::Lost),
        ),
        Row::new(
            "msix-all-lost",
            "no interrupt arrives",
            Loss::Nothing,
            What::Vectors(all(), Interrupts::Lost),
        ),
        Row::new(
            "msix-late",
            "every interrupt arrives 5 ms late",
            Loss::Nothing,
            What::Vectors(all(), Interrupts::Late(5 * MS)),
        ),
        Row::new(
            "msix-spurious",
            "ten interrupts come for nothing",
            Loss::Nothing,
            What::Vectors(some(0, 10), Interrupts::Spurious),
        ),
        Row::new(
            "msix-storm",
            "interrupts come without end",
            Loss::Nothing,
            What::Vectors(all(), Interrupts::Spurious),
        ),
        Row::new(
            "dma-reads-refused",
            "the IOMMU refuses the function's reads for 10 ms",
            Loss::Adapter,
            What::Refused(true, 10 * MS),
        ),
        Row::new(
            "dma-writes-refused",
            "the IOMMU refuses the function's writes for 10 ms",
            Loss::Adapter,
            What::Refused(false, 10 * MS),
        ),
        Row::new(
            "slow-reset",
            "the host is suspended for 2 s, and the function comes back reset",
            Loss::Adapter,
            What::Suspend(2 * S),
        ),
    ],
};
