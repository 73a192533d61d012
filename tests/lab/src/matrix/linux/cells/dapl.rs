//! dapl's own programs: in guests over its stock provider on rdma_cm, on our side over the provider
//! of this workspace.

use anyhow::{Context, Result, ensure};

use super::{How, Ours, TOOLS, Test, Tools};
use crate::matrix::judge::{self, Ended};
use crate::matrix::linux::lab::Lab;
use crate::matrix::linux::side::{Pairing, Side};

/// dapltest's port.
const PORT: u16 = 62000;
/// Where dtest and its relatives meet, over TCP.
const MEETING: u16 = 15828;
/// Seconds that a client may take, and a server to its end after the last.
const CLIENT: u64 = 60;
const SERVER: u64 = 20;

/// Arguments of a client of dapltest: the kind of test, and all other arguments.
type Command = (&'static str, &'static str);

/// The OFA's commands of November 2007, in their order, with as many iterations as an emulated
/// guest has time for.
const ELEVEN: &[Command] = &[
    ("T", "-i 1000 -R BE client SR 256 1 server SR 256 1"),
    ("T", "-i 100 -R BE -V -P client SR 1024 3 -f server SR 1536 2 -f"),
    ("T", "-i 100 -R BE -V -P client SR 1024 1 server SR 1024 1"),
    ("T", "-i 30 -w 10 -R BE -V -P client SR 1024 3 server SR 1536 2"),
    ("T", "-i 100 -R BE -V -P client SR 256 1 server RW 4096 1 server SR 256 1"),
    ("T", "-i 100 -R BE -V -P client SR 256 1 server RR 4096 1 server SR 256 1"),
    (
        "T",
        "-i 10 -t 4 -w 8 -R BE -V -P client SR 256 1 server RR 4096 1 server SR 256 1 \
         client SR 256 1 server RR 4096 1 server SR 256 1",
    ),
    ("P", "-i 1024 -p 64 -m p RW 8192 2"),
    ("P", "-i 1024 -p 64 -m p RW 4096 2"),
    ("P", "-i 1024 -p 64 -m p RW 4096 1"),
    ("T", "-i 30 -w 10 -R BE -V -P client SR 1024 3 server SR 1536 2"),
];

/// A choice of the list of dapl's script cl.sh.
const SCRIPT: &[Command] = &[
    (
        "T",
        "-P -t 1 -w 1 -i 20 client RW 4096 1 server RW 2048 4 server RR 1024 1 client RR 2048 1 \
         client SR 1024 3 -f server SR 256 3 -f",
    ),
    ("T", "-i 10 -t 2 -w 2 client SR 8192 3 server SR 8192 3"),
    ("P", "-i 128 -m b RW 4096 2"),
    ("P", "-i 64 RR 32768 1"),
    ("P", "-i 64 RW 32768 4"),
    ("P", "-i 64 -p 16 -m b RW 65536 2"),
    ("P", "-i 100 -p 1 -m b RW 4 1"),
];

/// What both sides do beyond these: reserved service points, all kinds of operations verified, 32
/// KiB in 4 segments.
const BEYOND: &[Command] = &[
    ("T", "-i 20 -r -w 2 client SR 256 server SR 256"),
    (
        "T",
        "-V -t 2 -w 4 -i 10 client RW 4096 1 server RW 2048 4 client SR 1024 4 server SR 4096 2 \
         client SR 1024 3 -f server SR 2048 1 -f",
    ),
    (
        "T",
        "-V -P -i 5 client RW 32768 4 server RW 32768 4 server RR 32768 1 client RR 32768 1 \
         client SR 16384 4 -f server SR 16384 4 -f",
    ),
];

/// More connections at a time than the adapters of most programs have Endpoints.
const HUNDRED: &[Command] = &[("T", "-i 10 -t 4 -w 25 -V client SR 256 server SR 256")];

const fn dapltest(
    name: &'static str,
    quick: bool,
    run: fn(&mut Lab<'_, '_>, Pairing) -> Result<()>,
) -> Test {
    Test { name, quick, how: How::Own(run, Ours::Does) }
}

/// A test program of a pair of processes that end together.
macro_rules! dtest {
    ($name:literal, $server:literal, $client:literal, $says:literal) => {
        Test {
            name: $name,
            quick: false,
            how: How::Tools(Tools {
                server: concat!("env LD_PRELOAD=/usr/libexec/coreutils/libstdbuf.so _STDBUF_O=L ", $server, " -P {ia}"),
                client: concat!($client, " -P {ia} -h {peer}"),
                ours: Ours::Cannot(
                    "`dat` has no side of dtest and its relatives: those programs run over this workspace's provider themselves",
                ),
                port: MEETING,
                says: $says,
                limit: 90,
                ..TOOLS
            }),
        }
    };
}

pub(super) const TESTS: &[Test] = &[
    dapltest("dapltest, one connection", true, |lab, pairing| {
        run(lab, pairing, &[("T", "-i 1 -t 1 -w 1 client SR 4096 server SR 4096")])
    }),
    dapltest("dapltest, the OFA's eleven commands", false, |lab, pairing| {
        run(lab, pairing, ELEVEN)
    }),
    dapltest("dapltest, of cl.sh's commands", false, |lab, pairing| run(lab, pairing, SCRIPT)),
    dapltest("dapltest -V: RSPs, threads, large segments", false, |lab, pairing| {
        run(lab, pairing, BEYOND)
    }),
    Test {
        name: "dapltest, a hundred Endpoints",
        quick: false,
        how: How::Own(
            |lab, pairing| run(lab, pairing, HUNDRED),
            Ours::Serves(
                "the server's dapl waits 250 ms for the end of a connection that the other side ends, and fails to free its service \
                 point if it took longer; under emulation a hundred at once take up to 500 ms",
            ),
        ),
    },
    dapltest("dapltest -V notices what was not moved", false, notices),
    dtest!("dtest", "dtest -b 4096 -B 50", "dtest -b 4096 -B 50", "PASSED"),
    dtest!("dtest -D -W", "dtest -b 4096 -B 10 -D -W", "dtest -b 4096 -B 10 -D -W", "PASSED"),
    dtest!("dtestcm, 100 connections", "dtestcm -c 100 -b 20", "dtestcm -c 100 -b 20", "Complete"),
];

/// The tool lays segments 256 bytes apart, and names the first to the other side: what that one
/// reads or writes of segments of 100 bytes lies elsewhere. So a side finds what was never written.
const GAPS: &str = "-V -i 1 client RR 100 2 server RW 100 2 client SR 64 server SR 64";

/// A test that must fail, at the client.
fn notices(lab: &mut Lab<'_, '_>, pairing: Pairing) -> Result<()> {
    let server = lab.serve(pairing.server, PORT, &line(lab, pairing, pairing.server, SERVE))?;
    let command = line(lab, pairing, pairing.client, ("T", GAPS));
    let called = lab.call(pairing.client, CLIENT, &command);
    lab.stop(&server)?;
    let text = called?.text();
    let says = "Validation Error";
    ensure!(text.contains(says), "the client does not say \"{says}\":\n{text}");
    Ok(())
}

/// A server.
const SERVE: Command = ("S", "");

/// A command of dapltest, as a side has to say it.
fn line(lab: &Lab<'_, '_>, pairing: Pairing, side: Side, (kind, args): Command) -> String {
    let server = if kind == "S" { "" } else { "-s {peer} " };
    let command = format!("dapltest -T {kind} {server}-D {{ia}} {args}");
    // A server is ended at times, and what it has said would be lost. The host sees to that itself.
    let lines = "env LD_PRELOAD=/usr/libexec/coreutils/libstdbuf.so _STDBUF_O=L";
    let command = if side.is_ours() { command } else { format!("{lines} {command}") };
    pairing.fill(&command, side, lab.place())
}

/// A server, clients one after the other, and the one that ends it.
fn run(lab: &mut Lab<'_, '_>, pairing: Pairing, commands: &[Command]) -> Result<()> {
    let server = lab.serve(pairing.server, PORT, &line(lab, pairing, pairing.server, SERVE))?;
    let quit = ("Q", "");
    let mut ended = Ok(());
    for wish in commands.iter().chain([&quit]) {
        let command = line(lab, pairing, pairing.client, *wish);
        let called = lab.call(pairing.client, CLIENT, &command)?;
        let text = called.text();
        // Of the server's kind of quit only its end is to be seen.
        let says = match wish.0 {
            "Q" => "",
            "P" => "raw: ",
            _ => "----- Stats ----",
        };
        // A test that is over at once has no time to be divided by.
        let brief = text.contains("not\n----- enough time");
        ended = judged(called.ended(), &text, if brief { "" } else { says })
            .with_context(|| format!("\n--- client: {command}\n{text}\n---\n"));
        if ended.is_err() {
            break;
        }
    }
    let wait = if ended.is_ok() { SERVER } else { 1 };
    let (status, said) = lab.reap(&server, wait)?;
    let server = || format!("\n--- server: {}\n{said}\n---\n", pairing.server.name());
    ended.with_context(server)?;
    judged(status, &said, "").with_context(server)
}

fn judged(status: Option<i32>, text: &str, says: &str) -> Result<()> {
    let lines = text.lines().map(str::to_owned).collect();
    judge::ended("it", "dapltest", &Ended { status, lines }, None)?;
    ensure!(text.contains(says), "it does not say \"{says}\"");
    Ok(())
}
