//! The three places where the list runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::environment::{self, Own, Place, Port};
use super::kit::{self, Kit};
use super::rows::{self, Row, Tier};
use super::runner::{Names, Runner};
use crate::guest::shell::Shell;
use crate::guest::stage::{Guest, Id, Stage};
use crate::matrix::linux::{Lab, Link, Pairing, Side};
use crate::matrix::outcome::Outcome;
use crate::matrix::program::Environment;
use crate::run;

/// What is chosen of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// All of it.
    Whole,
    /// All rows of the host and a selection of the others, once each and shortened.
    Quick,
}

/// The guest of the lab that has Soft-RoCE.
const SOFT: usize = 1;

/// How the rows of a tier went.
pub(super) type Outcomes = Vec<(String, Outcome)>;

/// Rows that are to run there, of which there is one at least.
fn chosen(stage: &Stage<'_>, tier: Tier, choice: Choice) -> Result<Vec<Row>> {
    let rows = wanted(stage, tier, choice)?;
    ensure!(!rows.is_empty(), "no row is chosen");
    Ok(rows)
}

/// Rows that are to run there.
fn wanted(stage: &Stage<'_>, tier: Tier, choice: Choice) -> Result<Vec<Row>> {
    let wanted = |row: &Row| {
        let named = stage.cells().is_none_or(|parts| {
            let parts: Vec<&str> = parts.split('|').collect();
            // Whoever names rows gets them, of the selection or not.
            parts.iter().any(|part| row.name.contains(part))
        });
        row.is_of(tier) && named && (choice == Choice::Whole || row.quick(tier))
    };
    let mut rows = rows::rows()?;
    rows.retain(wanted);
    Ok(rows)
}

fn rows_of<'m, G: Environment<'m>>(
    mut runner: Runner<'_, '_, G>,
    rows: &[Row],
    choice: Choice,
) -> Result<Outcomes> {
    let mut outcomes = Outcomes::new();
    for row in rows {
        let loops = if choice == Choice::Whole { row.loops } else { 1 };
        outcomes.push((row.name.clone(), runner.row(row, loops)));
    }
    runner.end()?;
    Ok(outcomes)
}

/// Has `dat conf` write a registration of one device, the way that a user would.
pub(super) fn conf(
    stage: &Stage<'_>,
    file: &str,
    device: &str,
    ip: &str,
    library: &Path,
) -> Result<PathBuf> {
    conf_of(stage, file, &[device], &[ip], library, &[])
}

/// The same of several, whose names are numbered.
pub(super) fn conf_of(
    stage: &Stage<'_>,
    file: &str,
    devices: &[&str],
    ips: &[&str],
    library: &Path,
    words: &[&str],
) -> Result<PathBuf> {
    let path = stage.path(file);
    fs::write(&path, lines(stage, "hca", devices, ips, library, words)?)?;
    Ok(path)
}

/// The lines of a registration.
pub(super) fn lines(
    stage: &Stage<'_>,
    name: &str,
    devices: &[&str],
    ips: &[&str],
    library: &Path,
    words: &[&str],
) -> Result<String> {
    let mut dat = Command::new(stage.built("dat"));
    dat.arg("conf").args(devices);
    for ip in ips {
        dat.args(["--ip", ip]);
    }
    dat.args(["--name", name, "--library"]).arg(library);
    dat.args(words);
    run::silent(dat)
}

/// Both sides on the host, without a guest.
pub(super) fn host(stage: &mut Stage<'_>, kit: &Kit, choice: Choice) -> Result<Outcomes> {
    let rows = chosen(stage, Tier::Host, choice)?;
    beside(stage, kit, Tier::Host, &rows, choice)
}

/// On InfiniBand: both sides on the host, with a cable and the built-in subnet manager between
/// them; then one of them and the stock provider over mlx5_ib in a guest, whose OpenSM manages the
/// subnet, with the server here and with the server there. A selection is the same everywhere.
pub(super) fn subnet(stage: &mut Stage<'_>, kit: &Kit, choice: Choice) -> Result<[Outcomes; 3]> {
    let mixed = chosen(stage, Tier::Subnet, choice)?;
    let all = match choice {
        Choice::Whole => chosen(stage, Tier::Host, choice)?,
        Choice::Quick => mixed.clone(),
    };
    let host = beside(stage, kit, Tier::Subnet, &all, choice)?;
    let [one, other] = with_guest(stage, kit, Link::InfiniBand, &mixed)?;
    Ok([host, one, other])
}

/// The same over the provider that is safe for threads, for programs that ask for it.
pub(super) fn safe(stage: &mut Stage<'_>, kit: &Kit, choice: Choice) -> Result<Outcomes> {
    let rows = wanted(stage, Tier::Safe, choice)?;
    if rows.is_empty() {
        return Ok(Outcomes::new());
    }
    beside(stage, kit, Tier::Safe, &rows, choice)
}

/// Rows of two processes of the host.
fn beside(
    stage: &mut Stage<'_>,
    kit: &Kit,
    tier: Tier,
    rows: &[Row],
    choice: Choice,
) -> Result<Outcomes> {
    let words: &[&str] = if tier == Tier::Safe { &["--threadsafe"] } else { &[] };
    let _port = Port::take()?;
    let [a, b] = ["a", "b"].map(|name| stage.path(&format!("{}-{name}", tier.name())));
    let link = tier == Tier::Subnet;
    let args: &[&str] = if link { &["--link", "ib", "--wire", "cable"] } else { &[] };
    let server = stage.server("model", &[&a, &b], args)?;
    let registered = |file: &str, socket: &Path, ip: &str| {
        let device = format!("vfio-user:{}", socket.display());
        conf_of(stage, file, &[&device], &[ip], &kit.library, words)
    };
    let first = registered("first.conf", &a, "192.168.7.1/24")?;
    let second = registered("second.conf", &b, "192.168.7.2/24")?;
    if link {
        managed(&first)?;
    }
    let names = Names {
        peer: "192.168.7.1".into(),
        tcp: "127.0.0.1".into(),
        lead: None,
        fewer: if choice == Choice::Whole { 1 } else { 16 },
    };
    let mut own = Own { stage, shell: None };
    let runner =
        Runner::new(&mut own, Some(kit), Place::Host(first, &[]), Place::Host(second, &[]), names);
    let mut outcomes = rows_of(runner, rows, choice)?;
    outcomes.extend(judged(own.stage, server)?);
    Ok(outcomes)
}

/// Has the side of a registration run the built-in subnet manager.
fn managed(conf: &Path) -> Result<()> {
    let line = fs::read_to_string(conf)?;
    let (before, after) = line.rsplit_once("\" \"").context("no parameters")?;
    fs::write(conf, format!("{before} sm=on\" \"{after}"))?;
    Ok(())
}

/// Ends the model. What it complains of is one failure more: both sides were ours.
fn judged(stage: &mut Stage<'_>, model: Id) -> Result<Option<(String, Outcome)>> {
    stage.hang_up(model, Duration::from_secs(10))?;
    let report = stage.complaints(model);
    let said = |line: &&String| line.trim().starts_with("complaint: ");
    for line in report.iter().filter(said) {
        println!("    the model: {}", line.trim());
    }
    let first = report.iter().find(said);
    Ok(first.map(|line| {
        ("the model has no complaint".to_owned(), Outcome::Failed(line.trim().to_owned()))
    }))
}

/// The guest's script: a console, as that of stock Linux is.
const CONSOLE: &str = "
# What is reported may fail.
set +e
ulimit -l unlimited
busybox stty -echo -onlcr
busybox ifconfig lo up
bind 0000:01:00.0 0000:02:00.0
huge 64
. /dat/lab.sh
echo \"@@ready 0\"
while read -r number limit command; do
    busybox timeout -k 5 \"$limit\" busybox sh -c \". /dat/lab.sh; $command\" < /dev/null 2>&1
    echo \"@@done $number $?\"
done
";

/// Both sides in a guest, through `/dev/vfio`.
pub(super) fn guest(stage: &mut Stage<'_>, kit: &Kit, choice: Choice) -> Result<Outcomes> {
    let rows = chosen(stage, Tier::Guest, choice)?;
    let sockets = [stage.path("guest-a"), stage.path("guest-b")];
    let sockets = sockets.each_ref().map(PathBuf::as_path);
    let library = kit::guest_library();
    let device = |nth: usize, ip: &str| {
        let device = format!("0000:0{nth}:00.0");
        lines(stage, "hca", &[&device], &[ip], Path::new(&library), &[])
    };
    let first = device(1, "192.168.7.1/24")?;
    let second = device(2, "192.168.7.2/24")?;
    // There is no file that says what such a guest has of networks.
    let lab = include_str!("../../guest/lab.sh").replace(". /conf", "");
    let confs =
        [("first.conf", first.as_str()), ("second.conf", second.as_str()), ("lab.sh", &lab)];
    let archive = stage.path("dat.cpio");
    fs::write(&archive, kit.archive(&[], &confs)?)?;
    let server = stage.server("model", &sockets, &[])?;
    let guest = Guest {
        script: CONSOLE,
        devices: &sockets,
        // One of the programs registers a GiB.
        memory: 3072,
        more: Some(&archive),
        ..Guest::default()
    };
    let id = stage.guest("guest", &guest)?;
    let (shell, _) = Shell::new(stage, id)?;
    let names =
        Names { peer: "192.168.7.1".into(), tcp: "127.0.0.1".into(), lead: None, fewer: 32 };
    let mut own = Own { stage, shell: Some(shell) };
    let places = [environment::first, environment::second].map(|under| Place::Guest(0, under));
    let [first, second] = places;
    let mut outcomes =
        rows_of(Runner::new(&mut own, Some(kit), first, second, names), &rows, Choice::Quick)?;
    own.stage.kill(id);
    outcomes.extend(judged(own.stage, server)?);
    Ok(outcomes)
}

/// One side on the host, the other in a guest of stock Linux with the stock provider over
/// Soft-RoCE, on the same wire; first with the server here, then there.
pub(super) fn wire(stage: &mut Stage<'_>, kit: &Kit, choice: Choice) -> Result<[Outcomes; 2]> {
    let rows = chosen(stage, Tier::Wire, choice)?;
    with_guest(stage, kit, Link::Ethernet, &rows)
}

/// Rows of one side on the host and the other in a guest; first with the server here, then there.
fn with_guest(stage: &mut Stage<'_>, kit: &Kit, link: Link, rows: &[Row]) -> Result<[Outcomes; 2]> {
    let _port = Port::take()?;
    let (guest, under, net, other): (_, fn(&str) -> String, _, _) = match link {
        Link::Ethernet => (SOFT, kit::stock_command, 10, Side::Soft),
        Link::InfiniBand => (0, kit::subnet_command, 9, Side::First),
    };
    let mut lab = lab(stage, link)?;
    lab.ready(Pairing { server: Side::Ours, client: other })?;
    let own = |host: usize| format!("192.168.{net}.{host}");
    let device = format!("vfio-user:{}", lab.place().socket.display());
    let here = conf(lab.stage, "here.conf", &device, &format!("{}/24", own(3)), &kit.library)?;
    let here = Place::Host(here, &[]);
    let there = Place::Guest(guest, under);
    let names = |peer: String, tcp: String, lead| Names { peer, tcp, lead, fewer: 32 };
    // To the guest, a side of ours has an address for TCP in the same network.
    let serving = names(own(3), own(3), None);
    let runner = Runner::new(&mut lab, Some(kit), here.clone(), there.clone(), serving);
    let one = rows_of(runner, rows, Choice::Quick)?;
    let calling = names(own(guest + 1), "127.0.0.1".into(), Some(lab.place().meeting));
    let runner = Runner::new(&mut lab, Some(kit), there, here, calling);
    let other = rows_of(runner, rows, Choice::Quick)?;
    lab.end()?;
    Ok([one, other])
}

/// Both sides in a guest of stock Linux, with the stock provider over Soft-RoCE: what the list and
/// its judge are worth.
pub(super) fn stock(stage: &mut Stage<'_>) -> Result<Outcomes> {
    let rows = chosen(stage, Tier::Guest, Choice::Whole)?;
    let mut lab = lab(stage, Link::Ethernet)?;
    lab.ready(Pairing { server: Side::Ours, client: Side::Soft })?;
    let names =
        Names { peer: "192.168.10.2".into(), tcp: "127.0.0.1".into(), lead: None, fewer: 128 };
    let place = Place::Guest(SOFT, kit::stock_command);
    let runner = Runner::new(&mut lab, None, place.clone(), place, names);
    let outcomes = rows_of(runner, &rows, Choice::Quick)?;
    lab.end()?;
    Ok(outcomes)
}

/// The lab, with the stock programs and the stock provider in its guests.
fn lab<'s, 'm>(stage: &'s mut Stage<'m>, link: Link) -> Result<Lab<'s, 'm>> {
    let archive = stage.path("stock.cpio");
    fs::write(&archive, kit::stock_archive(&crate::folder()?)?)?;
    let mut lab = Lab::new(stage, link)?;
    lab.give(archive);
    Ok(lab)
}
