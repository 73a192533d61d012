//! A bad wire, a pulled cable, peers that are not there or go away.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::super::lab::{Begun, Lab, Role};
use super::super::side::{Pairing, Side};
use super::{How, Ours, Test};

pub(super) const TESTS: &[Test] = &[
    Test {
        name: "rping, wrong P_Key for a while",
        quick: false,
        how: How::Own(wrong_pkey, Ours::Does),
    },
    Test {
        name: "rping, cable pulled and put back",
        quick: true,
        how: How::Own(cable, Ours::Does),
    },
    Test { name: "rping, server killed", quick: false, how: How::Own(killed_server, Ours::Does) },
    Test { name: "rping, client killed", quick: false, how: How::Own(killed_client, Ours::Does) },
];

/// Seconds in which a connection is to come up, to go on, or to be found dead.
const SOON: u64 = 20;
const AT_LAST: u64 = 40;

/// Requests of our client that count as a ping.
const REQUESTS: u64 = 16;

/// Does something to a pair of rping that goes on for ever: server and client. `more` are arguments
/// of a side of ours.
pub(in crate::matrix::linux) fn with(
    lab: &mut Lab<'_, '_>,
    pairing: Pairing,
    more: &str,
    act: impl FnOnce(&mut Lab<'_, '_>, &(Begun, Begun)) -> Result<()>,
) -> Result<()> {
    let place = lab.place().clone();
    let command = |side, ours: &str, tool: &str| {
        let command = if Side::is_ours(side) { format!("{ours}{more}") } else { tool.to_owned() };
        pairing.fill(&command, side, &place)
    };
    let server = command(pairing.server, "compat rping {dat}", "rping -s -a {ip} -v");
    let client =
        command(pairing.client, "compat rping {dat} --client {peer} -C 0", "rping -c -a {peer} -v");
    let server = lab.serve(pairing.server, 7174, &server)?;
    let client = lab.begin(pairing.client, Role::Client, &client)?;
    let begun = (server, client);
    let result = goes_on(lab, &begun, 0).and_then(|()| act(lab, &begun));
    // Whatever has come of it, nothing of it is left.
    let (_, client) = lab.reap(&begun.1, 0)?;
    let (_, server) = lab.reap(&begun.0, 0)?;
    result.with_context(|| format!("\n--- client:\n{client}\n--- server:\n{server}\n---\n"))
}

/// How far it has come: the lines of a side that says each ping. Ours does not: the requests that
/// its HCA has completed stand for them, few of which belong to addresses and paths.
pub(in crate::matrix::linux) fn progress(
    lab: &mut Lab<'_, '_>,
    (server, client): &(Begun, Begun),
) -> Result<u64> {
    let one = if client.side.is_ours() { server } else { client };
    if one.side.is_ours() {
        let hca = Lab::hca(client.side).context("no HCA")?;
        let said = lab.model(&format!("stats {hca}"))?.join(" ");
        return Ok(number(&said, "wqes")? / REQUESTS);
    }
    let lines = lab.must(one.side, 10, &format!("progress {}", one.role.name()))?;
    Ok(lines.trim().parse()?)
}

/// Waits until it has come further.
pub(in crate::matrix::linux) fn goes_on(
    lab: &mut Lab<'_, '_>,
    begun: &(Begun, Begun),
    from: u64,
) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(SOON);
    while progress(lab, begun)? <= from + 10 {
        if Instant::now() > until {
            bail!("it does not go on");
        }
    }
    Ok(())
}

fn cable(lab: &mut Lab<'_, '_>, pairing: Pairing) -> Result<()> {
    with(lab, pairing, "", |lab, begun| {
        // Soft-RoCE hangs on no cable of the model's.
        let sides = [pairing.client, pairing.server];
        let pulled = sides.into_iter().find_map(|side| Some((side, Lab::hca(side)?)));
        let (side, hca) = pulled.context("no HCA")?;
        let pull = |lab: &mut Lab<'_, '_>, up: bool| -> Result<()> {
            lab.model(&format!("link {hca} {}", if up { "up" } else { "down" }))?;
            if !side.is_ours() {
                lab.must(side, 20, &format!("carrier {}", u8::from(up)))?;
            }
            Ok(())
        };
        pull(lab, false)?;
        std::thread::sleep(Duration::from_millis(500));
        let stood = progress(lab, begun)?;
        std::thread::sleep(Duration::from_secs(1));
        let stands = progress(lab, begun)?;
        pull(lab, true)?;
        ensure!(stood == stands, "pings go through a cable that is pulled");
        goes_on(lab, begun, stands)
    })
}

/// No tool can be made to send with another P_Key: a port of RoCE has one, 0xffff. So the wire
/// changes it in every frame of RoCE, together with the ICRC, or that would be what is wrong.
fn wrong_pkey(lab: &mut Lab<'_, '_>, pairing: Pairing) -> Result<()> {
    with(lab, pairing, "", |lab, begun| {
        let sides = [pairing.client, pairing.server];
        let count = |lab: &mut Lab<'_, '_>| -> Result<Vec<Dropped>> {
            sides.into_iter().map(|side| Dropped::by(lab, side)).collect()
        };
        let before = count(lab)?;
        lab.model("impair roce pkey=1000")?;
        let meanwhile = (|lab: &mut Lab<'_, '_>| -> Result<(u64, u64)> {
            std::thread::sleep(Duration::from_millis(500));
            let stood = progress(lab, begun)?;
            std::thread::sleep(Duration::from_secs(1));
            Ok((stood, progress(lab, begun)?))
        })(lab);
        lab.model("impair")?;
        let (stood, stands) = meanwhile?;
        let after = count(lab)?;
        ensure!(stood == stands, "pings go through with another P_Key");
        let mut dropped = 0;
        for ((before, after), side) in before.iter().zip(&after).zip(sides) {
            let (pkey, other) = (after.pkey - before.pkey, after.other - before.other);
            ensure!(other == 0, "{} drops {other} frames for another reason", side.name());
            dropped += pkey;
        }
        ensure!(dropped > 0, "nobody says that the P_Key was why: {before:?}, {after:?}");
        goes_on(lab, begun, stands)
    })
}

/// Frames that a side has dropped, since it is there.
#[derive(Debug)]
struct Dropped {
    /// For their P_Key.
    pkey: u64,
    /// For something else that is wrong with them.
    other: u64,
}

impl Dropped {
    /// As the model tells of its HCAs, and Soft-RoCE of itself.
    fn by(lab: &mut Lab<'_, '_>, side: Side) -> Result<Self> {
        let Some(hca) = Lab::hca(side) else {
            let said = lab.must(side, 10, "ibv_devinfo -v -d rxe0 | grep bad_pkey_cntr")?;
            let number = said.split_whitespace().last().unwrap_or_default();
            let digits = number.trim_start_matches("0x");
            let pkey = u64::from_str_radix(digits, 16).with_context(|| said.clone())?;
            return Ok(Self { pkey, other: 0 });
        };
        let said = lab.model(&format!("stats {hca}"))?.join(" ");
        let all = number(&said, "frames_malformed")?;
        let pkey = number(&said, "frames_wrong_pkey")?;
        let other = all - pkey;
        Ok(Self { pkey, other })
    }
}

/// A counter of what the model says of an HCA.
fn number(said: &str, name: &str) -> Result<u64> {
    let (_, rest) =
        said.split_once(&format!("\"{name}\":")).with_context(|| format!("no {name} in {said}"))?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Ok(digits.parse()?)
}

fn killed_server(lab: &mut Lab<'_, '_>, pairing: Pairing) -> Result<()> {
    with(lab, pairing, "", |lab, (server, client)| killed(lab, server, client))?;
    with(lab, pairing, "", |_, _| Ok(()))
}

fn killed_client(lab: &mut Lab<'_, '_>, pairing: Pairing) -> Result<()> {
    with(lab, pairing, "", |lab, (server, client)| killed(lab, client, server))?;
    with(lab, pairing, "", |_, _| Ok(()))
}

/// Who is left finds out, and ends.
///
/// A kernel tells for a process that is killed. Our side dies as a whole, as a machine would: who
/// waits for its message then, and has none of his own under way, can never know. That the next
/// connection comes up is all that can be asked of him.
fn killed(lab: &mut Lab<'_, '_>, one: &Begun, left: &Begun) -> Result<()> {
    lab.stop(one)?;
    let (status, said) = lab.reap(left, AT_LAST)?;
    ensure!(
        status.is_some() || one.side.is_ours(),
        "the other side goes on as if nothing had happened:\n{said}"
    );
    Ok(())
}
