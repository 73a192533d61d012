//! Step 8: a stock Linux machine at the other end of the cable.

use std::process::Command;

use super::super::failure::Failure;
use super::Run;
use super::report::{Finding, fail, skip};
use vfio_host::Address;

/// What runs against which program of the peer's.
const VERBS: [(&str, &[&str], &str); 4] = [
    ("rping", &["rping"], "rping -s -a PEER -V"),
    ("write-bw.1024", &["perftest", "write_bw", "--mtu", "1024"], "ib_write_bw -m 1024"),
    ("write-bw.2048", &["perftest", "write_bw", "--mtu", "2048"], "ib_write_bw -m 2048"),
    ("write-bw.4096", &["perftest", "write_bw", "--mtu", "4096"], "ib_write_bw -m 4096"),
];

/// Runs `dat compat` against the peer, where the user has started its programs.
pub(super) fn run(run: &Run<'_>, device: &Address) -> Result<(), Failure> {
    for (name, verb, theirs) in VERBS {
        run.report.check(8, &format!("peer.{name}"), || one(run, device, verb, theirs))?;
    }
    Ok(())
}

fn one(run: &Run<'_>, device: &Address, verb: &[&str], theirs: &str) -> Finding {
    let Some(peer) = run.args.peer else {
        return skip("no --peer");
    };
    // perftest meets over TCP first, which this port does not carry.
    let host = run.args.peer_host.clone().filter(|_| verb != ["rping"]);
    let client = host.unwrap_or_else(|| peer.to_string());
    let own = format!("{}/{}", run.net.addr, run.net.prefix);
    let mut command = match std::env::current_exe() {
        Ok(own) => Command::new(own),
        Err(error) => return skip(format!("no second program can be started: {error}")),
    };
    command.arg("compat").args(verb).arg(device.to_string());
    command.args(["--ip", &own, "--client", &client, "-V"]);
    if verb == ["rping"] {
        command.args(["-C", "10"]);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return skip(format!("no second program can be started: {error}")),
    };
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().replace('\n', "; ");
    if output.status.success() {
        return Ok(said(&output.stdout));
    }
    fail(format!("{}; is `{theirs}` running there?", said(&output.stderr)))
}
