//! Hooks for the `log` and the `defmt` crate: docs/book, chapter 7.

use dat_core::prelude::*;
use dat_core::testing::{Fabric, LoopHca};
use dat_core::{Activity, Severity};

// ANCHOR: log
/// Passes what driver and adapter do to the logger of the `log` crate.
pub fn to_log(activity: &Activity) {
    let level = match activity.severity() {
        Severity::Error => log::Level::Error,
        Severity::Warning => log::Level::Warn,
        Severity::Info => log::Level::Info,
        Severity::Debug => log::Level::Debug,
    };
    log::log!(target: "dat", level, "{activity}");
}
// ANCHOR_END: log

// ANCHOR: defmt
/// Passes what driver and adapter do to the logger of the `defmt` crate. Checked
/// by the compiler only: a logger of `defmt` needs a target's linker script.
pub fn to_defmt(activity: &Activity) {
    let line = defmt::Display2Format(activity);
    match activity.severity() {
        Severity::Error => defmt::error!("{}", line),
        Severity::Warning => defmt::warn!("{}", line),
        Severity::Info => defmt::info!("{}", line),
        Severity::Debug => defmt::debug!("{}", line),
    }
}
// ANCHOR_END: defmt

/// Opens an adapter of the loop provider with the hook. With a driver it is `Config::hook`.
pub fn run() -> Result<(), Error> {
    let fabric = Fabric::new();
    let mut storage = Box::new(Storage::<_, 4, 4, 4, 8>::new());
    let hca = LoopHca::new(&fabric, 0).with_hook(&to_log);
    let net = Net::new([10, 0, 0, 1].into(), 24);
    let mut ia = Ia::open(hca, storage.parts(), net, Instant::ZERO, [1; 32])?;
    ia.close(Instant::ZERO, CloseFlag::Abrupt)
}

fn main() -> Result<(), Error> {
    run()
}
