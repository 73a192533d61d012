//! A guest with two devices and no program: what all others stand on.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::guest::stage::Stage;

const SCRIPT: &str = "
test -e /sys/class/iommu/dmar0
bind 0000:01:00.0 0000:02:00.0
test -c /dev/vfio/vfio
groups=$(busybox ls /dev/vfio | busybox grep -c '^[0-9]')
test $groups = 2
echo @@ Linux $(busybox uname -r)
";

pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let start = Instant::now();
    let sockets = [stage.path("a"), stage.path("b")];
    let sockets = sockets.each_ref().map(|path| path.as_path());
    let server = stage.server("model", &sockets, &[])?;
    let guest = stage.linux("guest", SCRIPT, &sockets)?;
    let line = stage.expect(guest, "@@ ", Duration::from_secs(60))?;
    let up = start.elapsed().as_secs_f64();
    stage.finish(guest, Duration::from_secs(10))?;
    stage.hang_up(server, Duration::from_secs(5))?;
    let kernel = line.trim_start_matches("@@ ");
    Ok(format!("{kernel}, two functions on vfio-pci in groups of their own after {up:.1} s"))
}
