//! A machine that is in the way, and a device that is gone: each ends soon, with the message that
//! helps.

use std::fmt::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::guest::control::Control;
use crate::guest::stage::{Guest, Id, Stage, device};

/// The third device shares its slot, and so its group, with a function that the kernel drives.
const SCRIPT: &str = "
bind 0000:01:00.0 0000:02:00.0 0000:03:00.0
try() {
    name=$1
    shift
    if \"$@\" 2> /tmp/said; then echo \"@@$name went well\"; else echo \"@@$name $(busybox cat /tmp/said)\"; fi
}

busybox chmod 666 /dev/vfio/*
( ulimit -l 64; try memlock guest as 1000 /bin/guest open 0000:01:00.0 )

limit=/sys/module/vfio_iommu_type1/parameters/dma_entry_limit
usual=$(busybox cat $limit)
echo 8 > $limit
try few guest open 0000:01:00.0
echo 1 > $limit
try entries guest open 0000:01:00.0
echo $usual > $limit

try group guest open 0000:03:00.0
try well guest open 0000:01:00.0

while guest trouble 0000:01:00.0 0000:02:00.0; do
    echo @@gone
    read back
done
";

/// How often the device leaves the bus, and how often where that is shortened.
const POINTS: u64 = 50;
const FEW: u64 = 3;

/// From the fault to the message.
const SOON: Duration = Duration::from_secs(20);

/// What a user must read: all of these words.
///
/// A limit of 8 entries is no hindrance: the arena takes two mappings, and the firmware's pages
/// come in large pieces.
const MESSAGES: [(&str, &[&str]); 5] = [
    ("@@memlock ", &["locked memory", "64 KiB", "memlock"]),
    ("@@few ", &["went well"]),
    ("@@entries ", &["mappings", "dma_entry_limit"]),
    ("@@group ", &["0000:03:00.1", "virtio-pci", "group"]),
    ("@@well ", &["went well"]),
];

pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let mut said = String::new();
    in_a_guest(stage, &mut said)?;
    without_a_guest(stage, &mut said)?;
    Ok(said)
}

fn in_a_guest(stage: &mut Stage<'_>, said: &mut String) -> Result<()> {
    let [a, b, c, control] = ["a", "b", "c", "control"].map(|name| stage.path(name));
    let path = control.to_str().context("a path that is no text")?.to_owned();
    let server = stage.server("model", &[&a, &b, &c], &["--control", &path])?;
    let mut control = Control::new(&control)?;
    let shared = [
        "-device".to_owned(),
        "pcie-root-port,id=shared,chassis=9,slot=9".to_owned(),
        "-device".to_owned(),
        device(&c, "shared", "0.0", true)?,
        "-device".to_owned(),
        "virtio-rng-pci,bus=shared,addr=0.1".to_owned(),
    ];
    let guest = stage.guest(
        "guest",
        &Guest { script: SCRIPT, devices: &[&a, &b], options: &shared, ..Guest::default() },
    )?;
    for (mark, words) in MESSAGES {
        let line = stage.expect(guest, mark, Duration::from_secs(60))?;
        if let Some(word) = words.iter().find(|word| !line.contains(**word)) {
            return Err(stage.failed(guest, &format!("the message lacks \"{word}\": {line}")));
        }
    }
    said.push_str("memlock, entry limit and shared group reported with their remedies");

    let points = if stage.is_short() { FEW } else { POINTS };
    let mut longest = 0_f64;
    for point in 0..points {
        stage.expect(guest, "@@traffic", Duration::from_secs(60))?;
        // Each time after some more or less traffic.
        std::thread::sleep(Duration::from_micros(point * 61_803 % 200_000));
        control.tell("gone 0")?;
        longest = longest.max(trouble(stage, guest, &["all ones"])?);
        // The guest's kernel waits a minute for a device that does not come out of its reset.
        control.tell("back 0")?;
        stage.expect(guest, "@@gone", SOON)?;
        stage.say(guest, "back");
    }
    write!(said, "; device gone {points} times: {longest:.1} s at most")?;

    // QEMU has no way back from a lost server: it aborts, or the guest sees a device of all ones.
    stage.expect(guest, "@@traffic", Duration::from_secs(60))?;
    let start = Instant::now();
    stage.kill(server);
    let how = match stage.peek(guest, "@@trouble", SOON) {
        Some(_) => "the guest tells of a lost device",
        None if stage.is_over(guest) => "QEMU gives up",
        None => return Err(stage.failed(guest, "nobody tells of the lost server")),
    };
    stage.kill(guest);
    write!(said, "; server killed: {how} after {:.1} s", start.elapsed().as_secs_f64())?;
    Ok(())
}

/// The next trouble that the guest tells, which has these words; seconds until it came.
fn trouble(stage: &mut Stage<'_>, id: Id, words: &[&str]) -> Result<f64> {
    let start = Instant::now();
    let line = stage.expect(id, "@@trouble", SOON)?;
    match words.iter().find(|word| !line.contains(**word)) {
        Some(word) => Err(stage.failed(id, &format!("the message lacks \"{word}\": {line}"))),
        None => Ok(start.elapsed().as_secs_f64()),
    }
}

/// The same program on the host, on sockets of a server that is killed.
fn without_a_guest(stage: &mut Stage<'_>, said: &mut String) -> Result<()> {
    let [a, b] = ["e", "f"].map(|name| stage.path(name));
    let server = stage.server("model-2", &[&a, &b], &[])?;
    let names = [&a, &b].map(|path| format!("vfio-user:{}", path.display()));
    let program = stage.program("guest", &["trouble", &names[0], &names[1]])?;
    stage.expect(program, "@@traffic", Duration::from_secs(20))?;
    let start = Instant::now();
    stage.kill(server);
    stage.expect(program, "@@trouble", SOON)?;
    stage.ended(program, SOON)?;
    write!(said, "; without a guest {:.1} s", start.elapsed().as_secs_f64())?;
    Ok(())
}
