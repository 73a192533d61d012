//! The driver from probe to removal: it probes, finds what it looks for, goes and comes again, is reset under its
//! own feet, and recovers from firmware that has died. Nothing of it may leave a warning in the
//! kernel's log that is not known and explained.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::lab::{Lab, Link};
use super::side::{PAIRINGS, Side};
use crate::guest::stage::Stage;

/// What the kernel may say, with reasons.
const KNOWN: &str = include_str!("dmesg.tsv");
/// Speed of the model's port, in Mb/s, as `ethtool` has it.
const SPEED: &str = "100000";

/// A step of the driver.
struct Step {
    name: &'static str,
    /// What is said to the model first.
    model: &'static str,
    /// What is run in the guest; it must end well.
    run: &'static str,
    /// What must be among what it prints.
    says: &'static [&'static str],
    /// Seconds.
    limit: u64,
    /// The kernel has to complain of it.
    loud: bool,
}

const DEFAULT: Step = Step { name: "", model: "", run: "", says: &[], limit: 30, loud: false };

const STEPS: &[Step] = &[
    Step {
        name: "network device",
        run: "cat /sys/class/net/hca/speed /sys/class/net/hca/carrier /sys/class/net/hca/operstate; ethtool hca; ethtool -i hca",
        says: &[SPEED, "\n1\nup", "Link detected: yes", "driver: mlx5_core"],
        ..DEFAULT
    },
    Step {
        name: "RDMA device",
        run: "rdma link; rdma resource; ibv_devinfo -v",
        says: &[
            "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev hca",
            "PORT_ACTIVE",
            "max_mtu:\t\t4096",
            "GID[",
        ],
        ..DEFAULT
    },
    Step {
        name: "twenty reloads",
        run: "for round in $(seq 20); do reload || exit; test -e /sys/class/infiniband/mlx5_0 || exit; done; network mlx5_core hca '9 10' '11 12'; carrier 1",
        limit: 300,
        ..DEFAULT
    },
    Step {
        name: "devlink reload",
        run: "devlink dev reload pci/0000:01:00.0 && network mlx5_core hca '9 10' '11 12'; carrier 1",
        limit: 60,
        ..DEFAULT
    },
    Step {
        name: "FLR of an unbound function",
        run: "echo 0000:01:00.0 > /sys/bus/pci/drivers/mlx5_core/unbind && cat /sys/bus/pci/devices/0000:01:00.0/reset_method && \
              echo flr > /sys/bus/pci/devices/0000:01:00.0/reset_method && echo 1 > /sys/bus/pci/devices/0000:01:00.0/reset && \
              echo 0000:01:00.0 > /sys/bus/pci/drivers/mlx5_core/bind && network mlx5_core hca '9 10' '11 12'; carrier 1",
        says: &["flr"],
        limit: 60,
        ..DEFAULT
    },
    Step {
        name: "health",
        run: "sleep 3; devlink health show pci/0000:01:00.0",
        says: &["reporter fw", "state healthy error 0"],
        ..DEFAULT
    },
    Step {
        name: "firmware dies and is recovered",
        model: "die 0",
        run: "recovered 1",
        says: &["state healthy error 1 recover 1"],
        limit: 120,
        loud: true,
    },
    Step {
        name: "FLR under the driver, which recovers",
        // devlink recovers nothing by itself so soon after the last time.
        run: "devlink health set pci/0000:01:00.0 reporter fw_fatal grace_period 1000 && \
              echo flr > /sys/bus/pci/devices/0000:01:00.0/reset_method && \
              echo 1 > /sys/bus/pci/devices/0000:01:00.0/reset && recovered 2",
        says: &["state healthy error 2 recover 2"],
        limit: 180,
        loud: true,
        model: "",
    },
];

pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let mut lab = Lab::new(stage, Link::Ethernet)?;
    let side = Side::First;
    lab.ready(*PAIRINGS.iter().find(|pairing| pairing.client == side).context("no pairing")?)?;
    log(&mut lab, side, "probe")?;
    // Whoever looks for warnings has to find one.
    let planted = "mlx5_core 0000:01:00.0: planted";
    lab.must(side, 10, &format!("echo '<4>{planted}' > /dev/kmsg"))?;
    match log(&mut lab, side, "planted") {
        Err(error) if format!("{error:#}").contains(planted) => {}
        other => bail!("a warning in the kernel's log is not found: {other:?}"),
    }
    let mut times = Vec::new();
    for step in STEPS {
        let start = Instant::now();
        if !step.model.is_empty() {
            lab.model(step.model)?;
        }
        let text = lab.must(side, step.limit, step.run).with_context(|| step.name)?;
        for part in step.says {
            ensure!(text.contains(part), "{}: \"{part}\" is not in\n{text}", step.name);
        }
        if step.loud {
            lab.must(side, 10, "dmesg -c > /dev/null")?;
        } else {
            log(&mut lab, side, step.name)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        println!("    {}: {seconds:.1} s", step.name);
        times.push(seconds);
    }
    lab.must(side, 20, "ping -c 3 -i 0.2 192.168.9.2").context("after all of it")?;
    let version = lab.stage.stock()?.version.clone();
    lab.end()?;
    print!("{}", super::table::said(lab.reports()));
    Ok(format!("Linux {version}: {} steps, the kernel's log is clean", times.len()))
}

/// Looks at what the kernel has said since the last look.
pub(super) fn log(lab: &mut Lab<'_, '_>, side: Side, when: &str) -> Result<()> {
    let said = lab.must(side, 20, "dmesg -r; dmesg -c > /dev/null")?;
    let strange = complaints(&said);
    if !strange.is_empty() {
        bail!("{when}: the kernel complains:\n{}", strange.join("\n"));
    }
    Ok(())
}

/// Lines of the kernel's log, as of `dmesg -r`, that are bad and not known.
pub(super) fn complaints(said: &str) -> Vec<&str> {
    let known: Vec<&str> = KNOWN
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.split_once('\t')?.0))
        .collect();
    let strange = |line: &&str| is_bad(line) && !known.iter().any(|part| line.contains(part));
    said.lines().filter(strange).collect()
}

/// A line of the drivers in question at level warning or worse, or of anybody's calamity.
fn is_bad(line: &str) -> bool {
    let level = line.strip_prefix('<').and_then(|rest| rest.split_once('>')?.0.parse::<u32>().ok());
    let drivers = ["mlx5", "infiniband", "hca", "ib_"];
    let calamities = ["WARNING:", "BUG:", "Call Trace", "Oops", "hung_task", "DMAR:"];
    level.is_some_and(|level| level & 7 <= 4)
        && (drivers.iter().any(|name| line.contains(name))
            || calamities.iter().any(|word| line.contains(word)))
}

#[cfg(test)]
mod tests {
    use super::{KNOWN, is_bad};

    #[test]
    fn warnings_of_the_drivers_differ_from_the_rest() {
        assert!(is_bad("<4>[    5.7] mlx5_core 0000:01:00.0: something"));
        assert!(is_bad("<3>[    5.7] DMAR: [DMA Write NO_PASID]"));
        assert!(!is_bad("<6>[    5.7] mlx5_core 0000:01:00.0: firmware version"));
        assert!(!is_bad("<4>[    0.1] pci 0000:00:00.0: quirk"));
    }

    #[test]
    fn whatever_is_known_has_a_reason() {
        for line in KNOWN.lines().filter(|line| !line.starts_with('#')) {
            let (part, reason) = line.split_once('\t').expect(line);
            assert!(part.len() > 8 && reason.len() > 8, "{line}");
        }
    }
}
