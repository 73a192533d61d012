//! `cargo xtask qemu-test --linux`: stock Linux as the referee. Its unmodified drivers run the
//! model as if it were silicon, and its tools talk to each other, to Soft-RoCE and to the driver of
//! this workspace over the model's wire.

mod cards;
mod cells;
mod infiniband;
mod ipxe;
mod lab;
mod look;
mod matrix;
mod probe;
mod pyverbs;
mod restart;
mod seeded;
mod side;
mod table;
mod vfio;

pub(crate) use infiniband::infiniband;
pub(crate) use ipxe::run as ipxe;
pub(crate) use lab::{Lab, Link};
pub(crate) use matrix::quick;
pub(crate) use side::{PAIRINGS, Pairing, Side};
pub(crate) use vfio::run as vfio;

use crate::scenarios::Scenario;

/// The cells of the matrix that can be run: `TEST / SERVER-CLIENT`.
pub(crate) fn cells() -> impl Iterator<Item = String> {
    let pairs = cells::tests().flat_map(|test| PAIRINGS.map(|pairing| (test, pairing)));
    let possible = pairs.filter(|(test, pairing)| test.cannot(*pairing).is_none());
    possible.map(|(test, pairing)| format!("{} / {}", test.name, pairing.name()))
}

/// The scenarios, in the order they run.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "look",
        about: "stock Linux boots on the model with its drivers and its tools, and says what it sees",
        run: look::run,
        stock: true,
    },
    Scenario {
        name: "probe",
        about: "the driver comes, goes, is reset, reloaded and recovered, and the kernel's log stays clean",
        run: probe::run,
        stock: true,
    },
    Scenario { name: "quick", about: "a selection of the matrix", run: quick, stock: true },
    Scenario {
        name: "cards",
        about: "every kind of card, in one guest, and connected with the driver of this workspace",
        run: cards::run,
        stock: true,
    },
    Scenario {
        name: "seeded",
        about: "bugs planted in the model's layouts, which stock Linux must notice",
        run: seeded::run_bugs,
        stock: true,
    },
    Scenario {
        name: "pyverbs",
        about: "rdma-core's own Python tests, against mlx5_ib on the model",
        run: pyverbs::run,
        stock: true,
    },
    Scenario {
        name: "matrix",
        about: "every tool with every pair of mlx5_ib, Soft-RoCE and the driver of this workspace",
        run: matrix::whole,
        stock: true,
    },
];
