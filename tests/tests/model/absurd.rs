//! Cards that say of themselves what no card says: every capability 0 and all ones, one at a time
//! and all at once, and recordings of cards. The driver works, or ends with an error that names the
//! field; it never panics and never waits without end.
#![expect(clippy::unwrap_used, reason = "test code: a panic here is a failed test")]

use dat_core::CloseFlag;
use dat_tests::bringup::{Rig, journey, light, patience};
use dat_tests::pair::Stage;
use dat_tests::session::{Session, Setup};
use mlx5_model::Config as Card;
use mlx5_model::ifc::{Layout, caps};

/// The blocks that the driver reads.
const BLOCKS: [Layout; 5] = [
    caps::cmd_hca_cap::LAYOUT,
    caps::eth_caps::LAYOUT,
    caps::atomic_caps::LAYOUT,
    caps::roce_cap::LAYOUT,
    caps::flow_table_nic_cap::LAYOUT,
];

/// Every field of every block, by name, with its largest value; sizes are those of several bits.
fn fields() -> Vec<(&'static str, u32)> {
    let of = |layout: Layout| {
        let leaves = layout.leaves().into_iter().filter(|(_, field)| field.width <= 32);
        leaves.map(move |(name, field)| {
            let name: &'static str = format!("{}.{name}", layout.name).leak();
            (name, u32::MAX >> (32 - field.width))
        })
    };
    BLOCKS.into_iter().flat_map(of).collect()
}

fn card(caps: &[(&'static str, u32)]) -> Card {
    Card { general_caps: caps.to_vec(), ..light() }
}

/// What an error says of a field: its name, or the setting of the card behind it.
fn short(name: &str) -> &str {
    match name.rsplit('.').next().unwrap() {
        "port_type" => "LINK_TYPE",
        "roce" => "ROCE_CONTROL",
        field => field,
    }
}

/// Connects, moves data, ends.
fn connect_move_end(session: &mut Session<'_>) {
    session.connect();
    session.traffic(1);
    session.disconnect(0, CloseFlag::Graceful);
    session.ended();
}

#[test]
fn each_capability_is_worked_with_or_named() {
    let mut wrong = Vec::new();
    for (name, most) in fields() {
        for value in [0, most] {
            let rig = Rig::new(card(&[(name, value)]));
            if let Err((step, fault)) = journey(&rig.slot, &patience()) {
                if !fault.to_string().contains(short(name)) {
                    wrong.push(format!("{name} = {value}: {step}: {fault}"));
                }
            }
            let pages = rig.slot.hca().pages_owned() as usize;
            let taken = rig.taken();
            if taken != (dat_tests::bringup::Taken { arena: 0, pages }) {
                wrong.push(format!("{name} = {value}: {taken:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn with_each_size_a_connection_works_or_the_size_is_named() {
    let mut wrong = Vec::new();
    for (name, most) in fields().into_iter().filter(|(_, most)| *most > 1) {
        for value in [0, most] {
            // An InfiniBand port, which comes up and waits for a subnet manager.
            if (name, value) == ("cmd_hca_cap.port_type", 0) {
                continue;
            }
            let stage = Stage { cards: [card(&[(name, value)]), light()], ..Stage::default() };
            let (_world, slots) = stage.plug(&mut |_, wire| wire);
            let mut room = Box::new(dat_tests::pair::Room::new());
            match stage.open(&slots[0], &mut room, 0, None).map(drop) {
                Ok(()) => {
                    let setup = Setup { stage, ..Setup::default() };
                    let run = || setup.run(connect_move_end);
                    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
                        wrong.push(format!("{name} = {value}: opens, and does not work"));
                    }
                }
                Err(error) if error.to_string().contains(short(name)) => {}
                Err(error) => wrong.push(format!("{name} = {value}: {error}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn all_capabilities_at_once() {
    let all = fields();
    for ones in [false, true] {
        for blocks in [&BLOCKS[..], &BLOCKS[..1], &BLOCKS[1..]] {
            let of = |name: &str| blocks.iter().any(|block| name.starts_with(block.name));
            let caps = all.iter().filter(|(name, _)| of(name));
            let caps: Vec<_> =
                caps.map(|(name, most)| (*name, if ones { *most } else { 0 })).collect();
            let rig = Rig::new(card(&caps));
            match journey(&rig.slot, &patience()) {
                Ok(()) => {}
                Err((step, fault)) => {
                    let text = fault.to_string();
                    let named = all.iter().any(|(name, _)| text.contains(short(name)));
                    assert!(
                        named || text.contains("RoCE") || text.contains("LINK_TYPE"),
                        "{step}: {text}"
                    );
                }
            }
        }
    }
}
