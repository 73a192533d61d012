//! Stock Linux on InfiniBand: a switch of the model, two guests, and the driver of this workspace
//! on the host. Debian's OpenSM in the first guest manages the subnet.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::cells::{How, Test};
use super::lab::{Lab, Link};
use super::matrix;
use super::probe;
use super::side::{PAIRINGS, Pairing, Side};
use crate::guest::stage::Stage;

/// What is run in the first guest, what it must say, and its limit in seconds.
struct Step {
    name: &'static str,
    run: &'static str,
    says: &'static [&'static str],
    limit: u64,
}

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

pub(crate) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let start = Instant::now();
    let is_short = stage.is_short();
    let mut lab = Lab::new(stage, Link::InfiniBand)?;
    let stock = PAIRINGS[0];
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
    let chosen = |test: &Test, pairing: Pairing| {
        !pairing.has(Side::Soft) && !is_of_ethernet(test) && (test.quick || !is_short)
    };
    matrix::run_cells(&mut lab, chosen)?.1
}
