//! iPXE on InfiniBand: boot firmware whose driver for these cards is kin to no other one here brings
//! its port up, joins IP over InfiniBand, and fetches a script from a guest of stock Linux, which it
//! then runs.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::guest::shell::Shell;
use crate::guest::stage::{Guest, Stage, System};
use crate::images::packages;

/// What it is to do: its port, an address, and where to go on.
const COMMANDS: &str = "ifstat && ifopen net0 && iflinkwait -t 60000 net0 && \
    set net0/ip 192.168.9.7 && set net0/netmask 255.255.255.0 && \
    chain http://192.168.9.1/next || echo @@refused";
/// Serves what it fetches. Only a script that came whole says its last line.
const SERVE: &str = "mkdir -p /www && { printf '#!ipxe\\n'; for line in $(seq 400); do \
    printf 'isset ${net0/ip} && set lines %s\\n' $line; done; \
    printf 'ifstat\\necho @@fetched ${lines} lines over ${net0/chip}\\n'; } > /www/next && \
    busybox httpd -h /www";
/// What its last line says.
const FETCHED: &str = "@@fetched 400 lines over ";
/// Until it has fetched the script.
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let tree = packages::tree(&crate::folder()?, &packages::IPXE)?;
    let image = tree.root().join("usr/lib/ipxe/ipxe.lkrn");
    ensure!(image.exists(), "the package has no {}", image.display());
    let sockets = ["linux", "firmware"].map(|name| stage.path(name));
    let [linux, firmware] = sockets.each_ref().map(PathBuf::as_path);
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
    let served = shell.run(stage, 20, SERVE)?;
    ensure!(served.status == 0, "the guest does not serve:\n{}", served.text());
    let start = Instant::now();
    let guest = Guest { script: COMMANDS, devices: &[firmware], ..Guest::default() };
    let booted = stage.firmware("ipxe", &image, &guest)?;
    let said = stage.expect(booted, "@@", LIMIT)?;
    let took = start.elapsed().as_secs_f64();
    let Some((_, chip)) = said.split_once(FETCHED) else {
        return Err(stage.failed(booted, "it could not fetch its script"));
    };
    let chip = chip.trim().to_owned();
    // What the guest's own network knows of it.
    let neighbour = shell.run(stage, 20, "ip neigh show 192.168.9.7 dev hca")?;
    let known = neighbour.text();
    ensure!(known.contains("lladdr"), "the guest does not know who fetched: {known}");
    stage.kill(booted);
    stage.kill(id);
    stage.hang_up(server, Duration::from_secs(10))?;
    Ok(format!(
        "iPXE's driver of the {chip} has fetched and run a script {took:.1} s after its start"
    ))
}
