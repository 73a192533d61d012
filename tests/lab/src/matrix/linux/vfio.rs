//! rdma-core's own driver in user space: libmlx5 over VFIO, with no driver in the kernel. Its tests
//! run in a guest of stock Linux on a function that belongs to VFIO, beside one of mlx5_core at
//! whose port Debian's OpenSM manages the subnet.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{probe, pyverbs, table};
use crate::guest::shell::Shell;
use crate::guest::stage::{Guest, Stage, System};
use crate::images::scapy;

/// A card whose queues may lie in user memory, which that driver insists on. Its port trains for
/// a while, as ports do: one of the tests waits for the event.
const CARD: &[&str] = &["--link", "ib", "--card", "connectx-7-ib", "--fact", "link=after-2s"];
/// Gives the guest's second function to VFIO.
const TO_VFIO: &str = "echo 0000:02:00.0 > /sys/bus/pci/drivers/mlx5_core/unbind && \
    echo vfio-pci > /sys/bus/pci/devices/0000:02:00.0/driver_override && \
    echo 0000:02:00.0 > /sys/bus/pci/drivers_probe && \
    test -e /sys/bus/pci/drivers/vfio-pci/0000:02:00.0";
/// The tests.
const TESTS: &str = "cd / && PYTHON_COLORS=0 python3 /tests/one.py test_mlx5_vfio --dev mlx5_0 \
    --pci-dev 0000:02:00.0 -v";
/// What the model has to say of them: they ask for half a block of capabilities, which is all that
/// they read.
const COMPLAINT: &str = "complaint: QUERY_HCA_CAP: output of 2064 bytes declared";
/// Seconds that they may take: most goes into Python's start under emulation.
const LIMIT: u64 = 240;

pub(crate) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let python = stage.path("python.cpio");
    // Archives that follow one another are one.
    std::fs::write(&python, [stage.stock()?.python()?, scapy::archive()?].concat())?;
    let sockets = ["a", "b"].map(|name| stage.path(name));
    let sockets = sockets.each_ref().map(|path| path as &Path);
    let server = stage.server("model", &sockets, CARD)?;
    let guest = Guest {
        system: System::Stock,
        script: "HOST=1 IB=9 SM=1\n",
        devices: &sockets,
        memory: 1536,
        more: Some(&python),
        ..Guest::default()
    };
    let id = stage.guest("linux", &guest)?;
    let (mut shell, set_up) = Shell::new(stage, id)?;
    ensure!(set_up.status == 0, "the guest's set-up failed:\n{}", set_up.text());
    shell.must(stage, 30, pyverbs::PREPARE)?;
    shell.must(stage, 60, TO_VFIO)?;
    let answer = shell.run(stage, LIMIT, TESTS)?;
    let report = pyverbs::read(&answer)?;
    let is_well = report.failed.is_empty() && report.skipped == 0 && report.run > 0;
    ensure!(is_well, "{}", answer.text());
    let log = shell.must(stage, 20, "dmesg -r")?;
    let strange = probe::complaints(&log);
    ensure!(strange.is_empty(), "the kernel complains:\n{}", strange.join("\n"));
    // Like a machine that loses its power: how a guest switches itself off is for other scenarios.
    stage.kill(id);
    stage.hang_up(server, Duration::from_secs(10))?;
    let mut reports = stage.complaints(server);
    reports.retain(|line| !line.trim().starts_with(COMPLAINT));
    let said = table::said(&reports);
    ensure!(said.is_empty(), "the model complains:\n{said}");
    Ok(format!("{} tests of rdma-core's driver over VFIO passed", report.run))
}
