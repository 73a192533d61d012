//! The Debian package where a user has it: a guest of Debian with systemd and udev, two functions.
//! It is installed, its rule gives the functions to a group, its unit serves a test of a user
//! without rights, and it is removed.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::guest::stage::{Guest, Stage, System};
use crate::images::archive::Archive;
use crate::images::packages::codename;
use crate::images::roots::Root;
use crate::run::target;

/// What a machine has that the smallest Debian lacks.
const PACKAGES: &[&str] = &["systemd-sysv", "udev", "kmod", "adduser"];
/// Folders that stay empty: other file systems, and what no program here reads.
const WITHOUT: &[&str] =
    &["dev", "proc", "sys", "run", "tmp", "boot", "var/cache", "var/lib/apt", "usr/share/locale"];
const SCRIPT: &[u8] = include_bytes!("package.sh");
/// Runs the script once everything is up.
const UNIT: &[u8] = b"[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/package.sh
";
/// The console is for the script.
const MANAGER: &[u8] = b"[Manager]
ShowStatus=no
LogLevel=warning
";
/// Memory for the system, which stands in it, in MiB.
const MEMORY: u32 = 1536;
/// Under emulation systemd takes most of a minute to be up.
const BOOT: Duration = Duration::from_secs(240);
const STEP: Duration = Duration::from_secs(120);

pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let suite = codename()?;
    let root = Root::kept(&target()?, "systemd", &suite, PACKAGES)?;
    let mut archive = Archive::default();
    archive.tree(root.folder(), WITHOUT)?;
    archive.device("dev/console", 5, 1)?;
    archive.link("init", "sbin/init")?;
    archive.file("package.deb", &fs::read(stage.package()?)?)?;
    archive.file("package.sh", SCRIPT)?;
    let units = "etc/systemd/system";
    archive.file(&format!("{units}/package.service"), UNIT)?;
    archive
        .link(&format!("{units}/multi-user.target.wants/package.service"), "../package.service")?;
    archive.link(&format!("{units}/serial-getty@ttyS0.service"), "/dev/null")?;
    archive.file("etc/systemd/system.conf.d/console.conf", MANAGER)?;
    for (i, (name, bytes)) in stage.modules().iter().enumerate() {
        archive.file(&format!("modules/{i:02}-{name}.ko"), bytes)?;
    }
    let file = stage.path("system.cpio");
    fs::write(&file, archive.finish()?)?;

    let [a, b] = ["a", "b"].map(|name| stage.path(name));
    let server = stage.server("model", &[&a, &b], &[])?;
    let guest = Guest {
        system: System::Installed,
        devices: &[&a, &b],
        memory: MEMORY,
        more: Some(&file),
        ..Guest::default()
    };
    let guest = stage.guest("debian", &guest)?;
    stage.expect(guest, "@@installed", BOOT)?;
    stage.expect(guest, "@@started", STEP)?;
    stage.expect(guest, "100 round trips", STEP)?;
    let listener = stage.expect(guest, "192.168.7.1", STEP)?;
    ensure!(listener.contains("dat"), "dat top does not show the service: {listener}");
    stage.expect(guest, "@@removed", STEP)?;
    stage.finish(guest, STEP)?;
    stage.hang_up(server, Duration::from_secs(5))?;
    let said = stage.output(guest);
    let files: Vec<_> = said.iter().filter(|line| line.starts_with("@@file ")).collect();
    ensure!(
        files.len() == 2 && files.iter().all(|line| line.contains("rdma 660")),
        "the rule does not give the functions to the group: {files:?}"
    );
    let result = said.iter().find(|line| line.contains("Result=")).context("no result")?;
    ensure!(result.contains("success"), "the service ended badly: {result}");
    Ok(format!("{suite}: rule, service, a user's ping, removed without a trace"))
}
