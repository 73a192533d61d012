//! Stock Linux on every kind of card that the model can be: one guest with all of them, each
//! connected with the driver of this workspace on another card of the same kind, both ways.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::probe::complaints;
use crate::guest::control::Control;
use crate::guest::shell::Shell;
use crate::guest::stage::{Guest, Id, Stage, System};

/// The guest's configuration. Its function sets up the card at bus `$1` in network `$2`.
const GUEST: &str = r#"
HOST=1
card() {
    pci=/sys/bus/pci/devices/0000:$1:00.0
    net=$(ls $pci/net) && rdma=$(ls $pci/infiniband) || return
    ip link set $net mtu 4200 up && ip addr add 192.168.$2.1/24 dev $net || return
    for try in $(seq 150); do
        test "$(cat /sys/class/net/$net/carrier)" = 1 && break
        sleep 0.2
    done
    ibv_devinfo -d $rdma
}
"#;
/// Seconds of a program's end.
const LIMIT: u64 = 60;
const BEGIN: Duration = Duration::from_secs(30);
/// The kind without a MAC and a GUID until somebody gives it these: librdmacm finds a device by its
/// GUID.
const NAMELESS: &str = "vf";
/// First network.
const NETWORK: usize = 20;

pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let cards = cards(stage)?;
    let mut servers = Vec::new();
    let sockets: Vec<[PathBuf; 2]> = cards
        .iter()
        .map(|card| ["linux", "ours"].map(|side| stage.path(&format!("{card}-{side}"))))
        .collect();
    for (card, sockets) in cards.iter().zip(&sockets) {
        let sockets = sockets.each_ref().map(PathBuf::as_path);
        let control = stage.path(&format!("{card}-control"));
        let path = control.to_str().context("a path that is no text")?;
        servers.push(stage.server(card, &sockets, &["--card", card, "--control", path])?);
        if card == NAMELESS {
            let mut control = Control::new(&control)?;
            for function in 0..2 {
                control.tell(&format!("address {function}"))?;
            }
        }
    }
    let devices: Vec<_> = sockets.iter().map(|[linux, _]| linux.as_path()).collect();
    let guest = Guest {
        system: System::Stock,
        script: GUEST,
        devices: &devices,
        memory: 2048,
        ..Guest::default()
    };
    let id = stage.guest("linux", &guest)?;
    let (mut shell, set_up) = Shell::new(stage, id)?;
    ensure!(set_up.status == 0, "the guest's set-up failed:\n{}", set_up.text());
    for (nth, (card, [_, socket])) in cards.iter().zip(&sockets).enumerate() {
        let (bus, network) = (nth + 1, NETWORK + nth);
        let answer = shell.run(stage, LIMIT, &format!("card {bus:02x} {network}"))?;
        let seen = answer.text();
        if answer.status != 0 {
            let log = shell.must(stage, 20, "dmesg | grep -i mlx5 | tail -n 60")?;
            bail!("{card}: no RDMA device:\n{seen}\n{log}");
        }
        ensure!(seen.contains("PORT_ACTIVE"), "{card}: no active port:\n{seen}");
        if let Err(error) = both_ways(stage, &mut shell, socket, network) {
            let look = "ip addr; ip neigh; rdma link; cat /sys/class/infiniband/*/ports/1/gids/[0-5]; dmesg | grep -i mlx5 | tail -n 20";
            bail!("{card}: {error:#}\n{}", shell.must(stage, 20, look)?);
        }
        println!("    {card}: active, and connected both ways");
    }
    let said = shell.must(stage, 20, "dmesg -r")?;
    let complaints = complaints(&said);
    if !complaints.is_empty() {
        bail!("the kernel complains:\n{}", complaints.join("\n"));
    }
    stage.say(id, "0 5 poweroff -f");
    stage.ended(id, Duration::from_secs(LIMIT))?;
    for server in servers {
        stage.hang_up(server, Duration::from_secs(5))?;
    }
    let version = &stage.stock()?.version;
    Ok(format!("Linux {version} on {}", cards.join(", ")))
}

/// Linux calls our driver, then our driver calls Linux.
fn both_ways(
    stage: &mut Stage<'_>,
    shell: &mut Shell,
    socket: &std::path::Path,
    network: usize,
) -> Result<()> {
    let device = format!("vfio-user:{}", socket.display());
    let ip = format!("192.168.{network}.3/24");
    let ours = ["compat", "rping", &device, "--ip", &ip, "-V"];
    let server = stage.program("dat", &ours)?;
    serves(stage, server)?;
    shell.must(stage, LIMIT, &format!("rping -c -a 192.168.{network}.3 -C 5 -V -S 2500"))?;
    stage.ended(server, Duration::from_secs(LIMIT))?;
    shell.must(
        stage,
        25,
        &format!("begin server rping -s -a 192.168.{network}.1 -C 5 -V -S 2500"),
    )?;
    shell.must(stage, 25, "listening 7174")?;
    let peer = format!("192.168.{network}.1");
    let call = ["--client", &peer, "-C", "5", "-S", "2500"];
    let client = stage.program("dat", &[&ours[..], &call[..]].concat())?;
    stage.ended(client, Duration::from_secs(LIMIT))?;
    shell.must(stage, LIMIT, "reap server 10")?;
    Ok(())
}

/// Waits until `dat` says that it listens, which is no result of its.
fn serves(stage: &Stage<'_>, server: Id) -> Result<()> {
    let until = Instant::now() + BEGIN;
    while !stage.outputs(server).concat().iter().any(|line| line.contains("listens on")) {
        ensure!(Instant::now() < until, "our side does not listen:{}", stage.tails());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The kinds of cards with an Ethernet port, as the model names them.
fn cards(stage: &Stage<'_>) -> Result<Vec<String>> {
    let mut list = Command::new(stage.built("mlx5-model"));
    list.args(["--cards", "list"]);
    let text = crate::run::capture(list)?;
    let wanted = |card: &&str| {
        stage.cells().is_none_or(|part| part.split('|').any(|part| card.contains(part)))
    };
    let all = text.lines().filter_map(|line| line.strip_prefix("## "));
    let all = all.filter(|card| !card.ends_with("-ib"));
    Ok(all.filter(wanted).map(Into::into).collect())
}
