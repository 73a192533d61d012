//! The matrix: every test with every pairing, one after the other on one pair of guests, and the
//! table of how they went.

use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};

use super::cells::{self, Ends, How, Ours, Test, Tools};
use super::lab::{Lab, Link};
use super::side::{PAIRINGS, Pairing};
use super::table;
use crate::guest::stage::Stage;
use crate::matrix::outcome::{Outcome, attempt};
use crate::run;

/// Seconds that a server may take to its end after its client's.
const AFTER: u64 = 10;

/// The text of the cells of each row that ran, empty where one was not.
type Table = Vec<(&'static str, Vec<String>)>;

/// All cells.
pub(super) fn whole(stage: &mut Stage<'_>) -> Result<String> {
    let mut lab = Lab::new(stage, Link::Ethernet)?;
    let (table, cells) = run_cells(&mut lab, &PAIRINGS, |_, _| true)?;
    if stage.bless() {
        let version = &stage.stock()?.version;
        let path = run::root().join("docs/interop.md");
        let names = cells::tests().map(|test| test.name);
        let table = if stage.cells().is_none() {
            table::markdown(&PAIRINGS, &table)
        } else {
            table::merged(&PAIRINGS, &std::fs::read_to_string(&path)?, &table, names)
        };
        let text = format!("{}{table}", FRONT.replace("{version}", version));
        std::fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
    }
    cells
}

/// The small selection. Soft-RoCE with mlx5_ib judges the model once more where it already judges
/// our side: the whole matrix has that.
pub(crate) fn quick(stage: &mut Stage<'_>) -> Result<String> {
    let judged = |test: &Test, pairing: Pairing| {
        let ours = PAIRINGS.into_iter().filter(|pairing| pairing.has_ours());
        pairing.judges_model() && ours.map(|ours| test.cannot(ours)).any(|why| why.is_none())
    };
    let mut lab = Lab::new(stage, Link::Ethernet)?;
    run_cells(&mut lab, &PAIRINGS, |test, pairing| test.quick && !judged(test, pairing))?.1
}

/// The front of the documentation's table.
const FRONT: &str = "\
# Who works with whom

Written by `cargo xtask qemu-test --linux matrix --bless`: every tool with every pair of sides, server first. *mlx5_ib* is the
unmodified driver of Linux {version} with rdma-core's provider, on the device model; *rxe* is the same kernel's Soft-RoCE behind
a virtio network device, which knows nothing of the model; *ours* is `dat`, `interop` (rdma-core's
other programs) or `dapltest` over the uDAPL provider, on the host, on the model. All are on one wire. Times are of a guest under emulation, rounded up: they say that it ends, not how fast it is.
On InfiniBand: [generated/interop-ib.md](generated/interop-ib.md).

";

/// The table, and how it went. The lab ends with it.
pub(super) fn run_cells(
    lab: &mut Lab<'_, '_>,
    pairings: &[Pairing],
    chosen: impl Fn(&Test, Pairing) -> bool,
) -> Result<(Table, Result<String>)> {
    let filter = lab.stage.cells().map(str::to_owned);
    let wanted = |test: &Test, pairing: Pairing| {
        let named = filter.as_deref().is_none_or(|parts| {
            let name = format!("{} / {}", test.name, pairing.name());
            parts.split('|').any(|part| name.contains(part))
        });
        named && chosen(test, pairing)
    };
    let version = lab.stage.stock()?.version.clone();
    let mut table = Table::new();
    let mut outcomes = Vec::new();
    let start = Instant::now();
    for test in cells::tests() {
        if !pairings.iter().any(|pairing| wanted(test, *pairing)) {
            continue;
        }
        let mut cells = Vec::new();
        for pairing in pairings.iter().copied() {
            let outcome = wanted(test, pairing).then(|| cell(lab, test, pairing));
            cells.push(outcome.as_ref().map(Outcome::cell).unwrap_or_default());
            outcomes.extend(outcome);
        }
        table.push((test.name, cells));
    }
    let boots = lab.boots();
    lab.end()?;
    print!("{}", table::said(lab.reports()));
    println!("\n{}", table::markdown(pairings, &table));
    let count = |what: fn(&Outcome) -> bool| outcomes.iter().filter(|cell| what(cell)).count();
    let passed = count(|cell| matches!(cell, Outcome::Passed(_)));
    let again = count(|cell| matches!(cell, Outcome::Again(_)));
    let failed = count(Outcome::is_failed);
    let cannot = count(|cell| matches!(cell, Outcome::Cannot(_)));
    let said = format!(
        "{} cells pass ({again} at the second attempt), {failed} fail, {cannot} cannot be; Linux {version}, {boots} boots, {} s",
        passed + again,
        start.elapsed().as_secs()
    );
    let judged = match (failed, passed + again) {
        (0, 1..) => Ok(said),
        (0, 0) => Err(anyhow!("no cell ran")),
        _ => Err(anyhow!("{said}")),
    };
    Ok((table, judged))
}

fn cell(lab: &mut Lab<'_, '_>, test: &Test, pairing: Pairing) -> Outcome {
    if let Some(reason) = test.cannot(pairing) {
        return Outcome::Cannot(reason);
    }
    let name = format!("{} / {}", test.name, pairing.name());
    // A boot is not part of a cell's time.
    if let Err(error) = lab.ready(pairing) {
        println!("    {name}: not ready: {error:#}");
    }
    // A guest stands still at times while its machine has other things to do, and programs like
    // ibv_rc_pingpong give up after half a second.
    attempt(
        &name,
        2,
        |_| true,
        || {
            lab.ready(pairing)?;
            match &test.how {
                How::Tools(tools) => tools_of(lab, tools, pairing),
                How::Own(run, _) => run(lab, pairing),
            }
        },
    )
}

fn tools_of(lab: &mut Lab<'_, '_>, tools: &Tools, pairing: Pairing) -> Result<()> {
    let mut server = (pairing.server, tools.server);
    let mut client = (pairing.client, tools.client);
    let ours = match tools.ours {
        Ours::Can(server, client) => Some((server, client)),
        Ours::Does | Ours::Serves(_) | Ours::Cannot(_) => None,
    };
    if let Some((ours_server, ours_client)) = ours {
        for (side, command, ours) in
            [(&server.0, &mut server.1, ours_server), (&client.0, &mut client.1, ours_client)]
        {
            if side.is_ours() {
                *command = ours;
            }
        }
    }
    let serving = if server.1.is_empty() {
        None
    } else {
        let command = pairing.fill(server.1, server.0, lab.place());
        Some(lab.serve(server.0, tools.port, &command)?)
    };
    if !tools.impairment.is_empty() {
        lab.model(&format!("impair {}", tools.impairment))?;
    }
    let command = pairing.fill(client.1, client.0, lab.place());
    let called = lab.call(client.0, tools.limit, &command);
    if !tools.impairment.is_empty() {
        lab.model("impair")?;
    }
    let reaped = serving.map(|serving| {
        let wait = if tools.endless { 0 } else { AFTER };
        lab.reap(&serving, wait)
    });
    let called = called?;
    let (status, said) = match reaped.transpose()? {
        Some((status, said)) => (status, said),
        None => (Some(0), String::new()),
    };
    let judge = || -> Result<()> {
        let well = called.status == 0;
        ensure!(called.ended().is_some(), "the client does not end");
        ensure!(well == (tools.ends == Ends::Well), "the client ended with {}", called.status);
        ensure!(
            client.0.is_ours() || called.text().contains(tools.says),
            "the client does not say \"{}\"",
            tools.says
        );
        if !tools.endless {
            let status = status.context("the server does not end")?;
            ensure!(status == 0, "the server ended with {status}");
        }
        Ok(())
    };
    judge().with_context(|| {
        let called = called.text();
        format!("\n--- client: {command}\n{called}\n--- server: {}\n{said}\n---\n", server.1)
    })
}
