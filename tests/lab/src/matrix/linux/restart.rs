//! The subnet manager is killed in mid-traffic, and started again with another LID for every port.
//!
//! Queue pairs keep the LIDs that they were connected with, so a connection cannot go on: the side
//! whose request is not answered runs out of retries. One that only waits for a message cannot
//! know. Paths that are looked up from then on have the new LIDs.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::cells::trouble;
use super::lab::{Begun, Lab, Role};
use super::side::{Pairing, Side};

/// Seconds in which a side whose request stays without answer ends: eight times the longest time
/// until a retry, and what a guest under emulation takes.
const BROKEN: u64 = 60;
/// Seconds in which a new connection works, from the manager's return.
const NEW: f64 = 10.0;
/// Seconds in which OpenSM starts in a guest, and sweeps.
const SWEPT: u64 = 60;
/// What a side of ours says that ran out of retries.
const UNANSWERED: &str = "no acknowledgement came";
/// Arguments for a side of ours that is to wait for a broken connection longer than that takes.
const PATIENT: &str = " --timeout 120";
/// Port of the second server in a guest.
const PORT: u16 = 7175;
/// Ends OpenSM, and writes other LIDs into its file, whose lines are `GUID FIRST LAST`.
const MOVE: &str = "stop opensm; while read guid first last; do \
     test -z \"$guid\" || printf '%s 0x%04x 0x%04x\\n\\n' $guid $((first + 16)) $((last + 16)); \
     done < /var/cache/opensm/guid2lid > /tmp/moved; cat /tmp/moved; test -s /tmp/moved && \
     cp /tmp/moved /var/cache/opensm/guid2lid";

/// How it went: seconds from the manager's return.
#[derive(Debug, Clone, Copy)]
pub(super) struct Took {
    /// Until new connections had carried pings, in both directions.
    pub(super) new: f64,
    /// Until a side of the old one ended.
    pub(super) broken: f64,
}

/// Does it to a pair of rping.
pub(super) fn run(lab: &mut Lab<'_, '_>, pairing: Pairing) -> Result<Took> {
    // Listens since before, on an HCA whose driver has to notice that it has another LID.
    let waits = if pairing.has(Side::Twin) {
        None
    } else {
        let pairing = Pairing { server: Side::Twin, client: Side::First };
        let command = pairing.fill("compat rping {dat} -V --wait 240", Side::Twin, lab.place());
        Some((pairing, lab.serve(Side::Twin, 7174, &command)?))
    };
    let mut took = Took { new: 0.0, broken: 0.0 };
    let result = trouble::with(lab, pairing, PATIENT, |lab, begun| {
        let back = moved(lab, pairing, begun)?;
        if let Some((pairing, waiting)) = &waits {
            meet(lab, *pairing, waiting, free_role(begun), back)?;
            took.new = back.elapsed().as_secs_f64();
            ensure!(took.new < NEW, "new connections took {:.1} s", took.new);
        }
        took.broken = ends(lab, begun, back)?;
        Ok(())
    });
    if let Some((_, waiting)) = &waits {
        lab.stop(waiting)?;
    }
    result?;
    if waits.is_none() {
        let start = Instant::now();
        trouble::with(lab, pairing, PATIENT, |_, _| Ok(()))?;
        took.new = start.elapsed().as_secs_f64();
        ensure!(took.new < NEW, "a new connection took {:.1} s", took.new);
    }
    Ok(took)
}

/// Kills the manager, has it come back with other LIDs, and says when it was there.
fn moved(lab: &mut Lab<'_, '_>, pairing: Pairing, begun: &(Begun, Begun)) -> Result<Instant> {
    let lid = "cat /sys/class/infiniband/mlx5_0/ports/1/lid";
    let before = lab.must(Side::First, 10, lid)?;
    lab.must(Side::First, 20, MOVE)?;
    // Connections do not need a manager.
    let stands = trouble::progress(lab, begun)?;
    trouble::goes_on(lab, begun, stands)
        .with_context(|| format!("{} without a manager", pairing.name()))?;
    lab.must(Side::First, 10, "subnet_manager")?;
    let other = format!(
        "for try in $(seq {}); do test $({lid}) != {} && port_state 5 ACTIVE && exit; sleep 0.2; \
         done; tail -n 20 /tmp/opensm.log; exit 1",
        SWEPT * 5,
        before.trim()
    );
    lab.must(Side::First, SWEPT + 10, &other).context("the port keeps its LID")?;
    Ok(Instant::now())
}

/// The role that no program of the guest has at present.
fn free_role((server, _): &(Begun, Begun)) -> Role {
    if server.side.is_ours() { Role::Server } else { Role::Client }
}

/// New connections: of the guest to a side of ours that has waited since before, and back.
///
/// rping gives up an address after two seconds, in which the other side may not be back in the group
/// yet: it tries again while it may.
fn meet(
    lab: &mut Lab<'_, '_>,
    pairing: Pairing,
    waiting: &Begun,
    free: Role,
    back: Instant,
) -> Result<()> {
    let command = pairing.fill("rping -c -a {peer} -C 10 -V", Side::First, lab.place());
    let mut called = lab.call(Side::First, 30, &command)?;
    while called.status != 0 && back.elapsed().as_secs_f64() < NEW {
        called = lab.call(Side::First, 30, &command)?;
    }
    let (status, said) = lab.reap(waiting, 10)?;
    ensure!(
        called.status == 0 && status == Some(0),
        "the guest's client ended with {}, the server that has waited for it with {status:?}:\n{}\n{said}",
        called.status,
        called.text()
    );
    let back = Pairing { server: Side::First, client: Side::Twin };
    let server =
        back.fill(&format!("rping -s -a {{ip}} -p {PORT} -C 10 -V"), Side::First, lab.place());
    let serving = lab.begin(Side::First, free, &server)?;
    let listens = format!(
        "for try in $(seq 50); do rdma resource show cm_id | grep LISTEN | grep -q ':{PORT} ' && exit; \
         sleep 0.1; done; exit 1"
    );
    lab.must(Side::First, 20, &listens).context("the guest's server")?;
    let client = format!("compat rping {{dat}} --client {{peer}} -p {PORT} -C 10 -V");
    let client = back.fill(&client, Side::Twin, lab.place());
    let called = lab.call(Side::Twin, 30, &client)?;
    let (status, said) = lab.reap(&serving, 10)?;
    ensure!(
        called.status == 0 && status == Some(0),
        "our client ended with {}, the guest's server with {status:?}:\n{}\n{said}",
        called.status,
        called.text()
    );
    Ok(())
}

/// Waits for the end of the connection to the old LIDs: seconds since `back`.
fn ends(lab: &mut Lab<'_, '_>, (server, client): &(Begun, Begun), back: Instant) -> Result<f64> {
    let until = Instant::now() + Duration::from_secs(BROKEN);
    let both_ours = server.side.is_ours() && client.side.is_ours();
    let mut took = 0.0;
    loop {
        let over = [lab.is_over(client)?, lab.is_over(server)?];
        if over.contains(&true) && took == 0.0 {
            took = back.elapsed().as_secs_f64();
        }
        // Who waits for a message of the other side learns of the end if that can still say so.
        if over == [true; 2] || took > 0.0 && !both_ours {
            break;
        }
        ensure!(Instant::now() < until, "a connection to LIDs of the past has no end");
        std::thread::sleep(Duration::from_millis(200));
    }
    let mut all = String::new();
    for one in [client, server] {
        // rping itself ends with 0 whatever ended its connection.
        if one.side.is_ours() && lab.is_over(one)? {
            let (status, said) = lab.reap(one, 0)?;
            let says = [UNANSWERED, "ended the connection"].iter().any(|why| said.contains(why));
            // In good order: the other side's DREQ came, whose path was looked up anew.
            let ended = status == Some(0) || status == Some(1) && says;
            ensure!(ended, "ours ended with {status:?}:\n{said}");
            all += &said;
        }
    }
    ensure!(!both_ours || all.contains(UNANSWERED), "neither side ran out of retries:\n{all}");
    Ok(took)
}
