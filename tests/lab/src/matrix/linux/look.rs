//! A guest with an HCA of the model and a Soft-RoCE: what it sees of them.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::guest::shell::Shell;
use crate::guest::stage::{Guest, Stage, System};

const LOOK: &str =
    "uname -r; lspci -nn; ip -br link; ip -br addr; rdma link; ibv_devinfo; dmesg | grep -i mlx5";

pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let start = Instant::now();
    let socket = stage.path("a");
    let server = stage.server("model", &[&socket], &[])?;
    let guest = Guest {
        system: System::Stock,
        script: "HOST=1 HCA=9 HCA_VLAN=11\n",
        devices: &[&socket],
        memory: 768,
        ..Guest::default()
    };
    let id = stage.guest("linux", &guest)?;
    let (mut shell, set_up) = Shell::new(stage, id)?;
    println!("{}", set_up.text());
    let up = start.elapsed().as_secs_f64();
    let seen = shell.must(stage, 60, LOOK)?;
    println!("{seen}");
    stage.say(id, "0 5 poweroff -f");
    stage.ended(id, Duration::from_secs(20))?;
    stage.hang_up(server, Duration::from_secs(5))?;
    Ok(format!("Linux {} up after {up:.1} s", stage.stock()?.version))
}
