//! `cargo xtask layouts`: the layouts of the model and of the driver against the newest notations of
//! others.

use anyhow::Result;

use dat_lab::images::notations;
use dat_lab::run;

/// Fetches the notations and compares. Without a network nothing is compared.
pub(crate) fn layouts() -> Result<()> {
    let notations = match notations::fetch() {
        Ok(notations) => notations,
        Err(error) => {
            println!("layouts SKIPPED: the notations cannot be had: {error:#}");
            return Ok(());
        }
    };
    println!("  {}", notations.versions);
    let mut command = run::cargo();
    command
        .args(["test", "--quiet", "-p", "dat-suite", "--test", "notations", "--", "--nocapture"])
        .env("LAYOUTS_IFC", notations.headers.join("mlx5_ifc.h"))
        .env("LAYOUTS_DEVICE", notations.headers.join("device.h"))
        .env("LAYOUTS_QP", notations.headers.join("qp.h"))
        .env("LAYOUTS_REGISTERS", &notations.registers);
    run::plain(command, "layouts differ otherwise than listed")
}
