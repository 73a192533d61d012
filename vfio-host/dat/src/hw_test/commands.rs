//! Step 3: every command of a bring-up, then all that the firmware says of itself.

use hca_mlx5::device::survey::QUESTIONS;
use vfio_host::{Host, Nic};

use super::super::failure::Failure;
use super::report::Report;
use super::segment;

pub(super) fn run<H: Host>(nic: &mut Nic<'_, '_, H>, report: &Report) -> Result<(), Failure> {
    report.check(3, "command-queue-address", || {
        segment::command_address(report, nic.host());
        Ok(String::new())
    })?;
    for question in QUESTIONS {
        report.check(3, question.name, || {
            let known = nic.provider_mut().device_mut().ask(question)?;
            Ok(if known { "" } else { "the device does not say" }.into())
        })?;
    }
    Ok(())
}
