//! Bugs planted in the model's layouts, for stock Linux to find.
//!
//! `tests/data/seeds.txt` lists ten bugs and who catches each. Those that Linux is said to catch
//! are planted one after the other: two guests must then fail to come up, to reach each other by
//! ping, or to move data that both verify. First they must manage all that without a bug.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::guest::shell::Shell;
use crate::guest::stage::{Guest, Stage, System};
use crate::run;

/// What the guest does that serves; what it says goes nowhere.
const SERVE: &str = "(ibv_rc_pingpong -c -n 20 -g $(gid mlx5_0 192.168.9.1) < /dev/null > /dev/null 2>&1 &); sleep 1";
/// What the other does.
const ASK: &str = "ping -c 2 -W 2 192.168.9.1 && \
    ibv_rc_pingpong -c -n 20 -g $(gid mlx5_0 192.168.9.2) 192.168.9.1";

/// Number and name of the bugs that Linux is said to catch.
fn listed() -> Result<Vec<(u32, String)>> {
    let path = run::root().join("tests/data/seeds.txt");
    let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    let mut bugs = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some((bug, referees)) = line.split_once(": ") {
            if referees.split(' ').any(|name| name == "linux") {
                if let Some((number, name)) = bug.split_once(' ') {
                    bugs.push((number.parse()?, name.to_owned()));
                }
            }
        }
    }
    Ok(bugs)
}

pub(super) fn run_bugs(stage: &mut Stage<'_>) -> Result<String> {
    let bugs = listed()?;
    ensure!(!bugs.is_empty(), "no bug is listed for Linux");
    healthy(stage, 0).context("without a bug")?;
    let mut caught = Vec::new();
    for (number, name) in bugs {
        match healthy(stage, number) {
            Ok(()) => anyhow::bail!("bug {number} ({name}) is not noticed"),
            Err(error) => {
                let error = format!("{error:#}");
                let first = error.lines().next().unwrap_or_default().to_owned();
                println!("  bug {number:2} {name}: {first}");
                caught.push(name);
            }
        }
    }
    Ok(format!("{} bugs caught: {}", caught.len(), caught.join(", ")))
}

/// Two guests on a model with a bug planted, or with none: an error is whatever they fail at.
fn healthy(stage: &mut Stage<'_>, bug: u32) -> Result<()> {
    let sockets = [stage.path(&format!("a{bug}")), stage.path(&format!("b{bug}"))];
    let number = bug.to_string();
    let args: &[&str] = if bug == 0 { &[] } else { &["--plant", &number] };
    let server = stage.server(&format!("model{bug}"), &[&sockets[0], &sockets[1]], args)?;
    let mut ids = vec![server];
    let result = (|| {
        let mut shells = Vec::new();
        for (host, socket) in (1..).zip(&sockets) {
            let guest = Guest {
                system: System::Stock,
                script: &format!("HOST={host} HCA=9 HCA_VLAN=11\n"),
                devices: &[socket],
                memory: 768,
                ..Guest::default()
            };
            let id = stage.guest(&format!("linux{bug}-{host}"), &guest)?;
            ids.push(id);
            shells.push(id);
        }
        let mut up = Vec::new();
        for id in shells {
            let (shell, set_up) = Shell::new(stage, id)?;
            ensure!(set_up.status == 0, "a guest does not come up");
            up.push(shell);
        }
        let [first, second] = up.as_mut_slice() else {
            return Ok(());
        };
        first.must(stage, 20, SERVE)?;
        second.must(stage, 30, ASK).map(drop)
    })();
    for id in ids.into_iter().rev() {
        stage.kill(id);
        // However it ends, it must be gone before the next begins.
        stage.outcome(id, Duration::from_secs(10));
    }
    result
}
