//! Stock Linux on InfiniBand: a switch of the model, two guests, and the driver of this workspace
//! on the host. Debian's OpenSM in the first guest manages the subnet.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::cells::{self, How, Test};
use super::lab::{Lab, Link};
use super::matrix;
use super::probe;
use super::restart;
use super::side::{IN_SUBNET, Side};
use super::table;
use crate::guest::stage::Stage;
use crate::run;

/// What is run in the first guest, what it must say, and its limit in seconds.
struct Step {
    name: &'static str,
    run: &'static str,
    says: &'static [&'static str],
    limit: u64,
}

/// The table of a whole run.
const PAGE: &str = "docs/generated/interop-ib.md";
/// Its front.
const FRONT: &str = "\
# Who works with whom on InfiniBand

Made by `cargo xtask qemu-test ib --bless`. Do not edit. Sides are as in [interop.md](../interop.md), on a switch of the model whose
subnet Debian's OpenSM manages in the first guest; *ours* with itself is two processes, each with an HCA. IP is IP over
InfiniBand. Times are of a guest under emulation.

## The subnet manager comes back with other LIDs

OpenSM is killed while a pair of rping runs, which goes on without it. Its file gets another LID for every port, and it is started again. Connections keep
the LIDs that they were made with, so the old one cannot go on: a side runs out of retries, and ours gets its event. Times count from the
active port on. New connections are of a guest to a process of ours that has listened since before, and of ours to the guest; between
two of ours they are made after the old one has ended, by the same HCAs.

| server - client | new connections work after | the old one has broken after |
|---|---|---|
";
/// LID of the second guest's port, asked for by its first.
const SECOND: &str = "$(cat /tmp/second)";

const STEPS: &[Step] = &[
    Step {
        name: "ibstat",
        run: "ibstat; ibv_devinfo -v",
        says: &["State: Active", "Physical state: LinkUp", "Link layer: InfiniBand", "PORT_ACTIVE"],
        limit: 20,
    },
    Step { name: "sminfo", run: "sminfo", says: &["SMINFO_MASTER"], limit: 20 },
    Step {
        name: "ibnetdiscover",
        run: "ibnetdiscover",
        says: &["Switch\t", "Ca\t", "mlx5 device model"],
        limit: 30,
    },
    Step {
        name: "smpquery",
        run: "smpquery nodeinfo $(cat /tmp/second); smpquery -D portinfo 0,1 1; smpquery -D switchinfo 0,1",
        says: &["NodeType:", "LinkState:", "LinearFdbCap:"],
        limit: 20,
    },
    Step {
        name: "saquery",
        run: "saquery; saquery -g; saquery -p",
        says: &["NodeRecord dump", "MCMemberRecord group dump", "PathRecord dump"],
        limit: 30,
    },
    Step { name: "perfquery", run: "perfquery", says: &["PortXmitData:"], limit: 20 },
];

/// Whether a test is one of Ethernet, or of what a link of InfiniBand has not.
fn is_of_ethernet(test: &Test) -> bool {
    match &test.how {
        How::Tools(tools) => {
            let commands = [tools.server, tools.client];
            commands.iter().any(|command| command.contains("{vip}") || command.contains("{vpeer}"))
                // OpenSM in an emulated guest answers not so many questions for paths at a time.
                || test.name == "cmtime, 1000 connections"
                // A group of 2048 bytes carries no more.
                || tools.client.contains("-s 4000 -M do")
                || tools.impairment.contains("roce")
        }
        How::Own(..) => test.name.starts_with("ethtool") || test.name.contains("P_Key"),
    }
}

pub(crate) fn infiniband(stage: &mut Stage<'_>) -> Result<String> {
    let start = Instant::now();
    let is_short = stage.is_short();
    let mut lab = Lab::new(stage, Link::InfiniBand)?;
    let stock = IN_SUBNET[0];
    lab.ready(stock)?;
    println!("    subnet up after {:.1} s", start.elapsed().as_secs_f64());
    let lid = lab.must(Side::Second, 10, "cat /sys/class/infiniband/mlx5_0/ports/1/lid")?;
    lab.must(Side::First, 10, &format!("echo {} > /tmp/second", lid.trim()))?;
    for step in STEPS {
        let text = lab.must(Side::First, step.limit, step.run).context(step.name)?;
        for part in step.says {
            ensure!(text.contains(part), "{}: \"{part}\" is not in\n{text}", step.name);
        }
        println!("    {}", step.name);
    }
    lab.must(Side::Second, 10, "begin ibping ibping -S")?;
    let pings = format!("sleep 1; ibping -c 5 {SECOND}");
    let said = lab.must(Side::First, 30, &pings)?;
    ensure!(said.contains(" 0% packet loss"), "ibping:\n{said}");
    lab.must(Side::Second, 10, "stop ibping")?;
    println!("    ibping");
    for side in [Side::First, Side::Second] {
        probe::log(&mut lab, side, "InfiniBand")?;
    }
    let mut page = FRONT.to_owned();
    for pairing in IN_SUBNET.into_iter().filter(|pairing| pairing.has_ours()) {
        let name = pairing.name();
        let took = restart::run(&mut lab, pairing)
            .with_context(|| format!("the manager came back with other LIDs, {name}"))?;
        let new = format!("new connections after {:.1} s", took.new);
        let old = format!("the old one broke after {:.1} s", took.broken);
        println!("    the manager came back with other LIDs, {name}: {new}, {old}");
        page += &format!("| {} | {:.1} s | {:.1} s |\n", pairing.shown(), took.new, took.broken);
    }
    let chosen = |test: &Test, _| !is_of_ethernet(test) && (test.quick || !is_short);
    let bless = !is_short && lab.stage.bless();
    let whole = lab.stage.cells().is_none();
    let (table, said) = matrix::run_cells(&mut lab, &IN_SUBNET, chosen)?;
    if bless {
        let path = run::root().join(PAGE);
        let table = if whole {
            table::markdown(&IN_SUBNET, &table)
        } else {
            let names = cells::tests().map(|test| test.name);
            table::merged(&IN_SUBNET, &std::fs::read_to_string(&path)?, &table, names)
        };
        let page = format!("{page}\n{table}");
        std::fs::write(&path, page).with_context(|| format!("{}", path.display()))?;
    }
    said
}
