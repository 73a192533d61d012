//! iPXE on InfiniBand: a driver for these cards that is kin to no other one here brings its port up,
//! joins IPoIB, and fetches a script from a guest of stock Linux, which it then runs.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::guest::shell::Shell;
use crate::guest::stage::{Guest, Stage, System};
use crate::images::packages;

/// What it is to do: the port that it finds first, an address, and where to go on.
const SCRIPT: &str = "#!ipxe
ifstat
ifopen net0
set net0/ip 192.168.9.7
set net0/netmask 255.255.255.0
ifstat
chain http://192.168.9.1/next
echo nothing came
shell
";
/// What it fetches.
const NEXT: &str = "mkdir -p /www && printf '#!ipxe\\necho fetched over ${net0/chip}\\nifstat\\npoweroff\\n' > /www/next && \
    busybox httpd -h /www";
/// Until it has fetched the script.
const LIMIT: Duration = Duration::from_secs(120);

pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let folder = crate::folder()?;
    let tree = packages::tree(&folder, &packages::IPXE)?;
    let places = ["boot/ipxe.lkrn", "usr/lib/ipxe/ipxe.lkrn"];
    let found = places.map(|place| tree.root().join(place)).into_iter().find(|path| path.exists());
    let image = found.context("the package has no ipxe.lkrn")?;
    let sockets = ["a", "b"].map(|name| stage.path(name));
    let [linux, firmware] = sockets.each_ref().map(std::path::PathBuf::as_path);
    let server = stage.server("model", &[linux, firmware], &["--link", "ib"])?;
    let guest = Guest {
        system: System::Stock,
        script: "HOST=1 IB=9 SM=1\n",
        devices: &[linux],
        memory: 768,
        ..Guest::default()
    };
    let id = stage.guest("linux", &guest)?;
    let (mut shell, set_up) = Shell::new(stage, id)?;
    ensure!(set_up.status == 0, "the guest's set-up failed:\n{}", set_up.text());
    shell.must(stage, 20, NEXT)?;
    let start = Instant::now();
    let guest = Guest { script: SCRIPT, devices: &[firmware], ..Guest::default() };
    let booted = stage.firmware("ipxe", &image, &guest)?;
    let said = stage.expect(booted, "fetched over", LIMIT)?;
    stage.kill(booted);
    stage.say(id, "0 5 poweroff -f");
    stage.ended(id, Duration::from_secs(20))?;
    stage.hang_up(server, Duration::from_secs(10))?;
    Ok(format!("{} after {:.1} s", said.trim(), start.elapsed().as_secs_f64()))
}
