//! What a user meets between the first boot and the first `dat ping`: virtual functions without a
//! MAC, a link that comes late, and a switch on the way with the usual Ethernet MTU.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::guest::control::Control;
use crate::guest::stage::{Id, Stage};

/// Longest frame that the switch passes: an Ethernet MTU of 1500, header and VLAN tag.
const LONGEST: usize = 1500 + 14 + 4;
/// How long the link stays down after the first command waits for it.
const DOWN: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_secs(5);
/// Longest wait for a line of the guest.
const LIMIT: Duration = Duration::from_secs(90);

/// One direction of a switch with an MTU of 1500 between two models. It ends when it is dropped.
struct Switch {
    over: Arc<AtomicBool>,
    dropped: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Switch {
    fn new(from: &Path, to: PathBuf) -> Result<Self> {
        let socket = UnixDatagram::bind(from).with_context(|| format!("{}", from.display()))?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let (over, dropped) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (ends, counts) = (Arc::clone(&over), Arc::clone(&dropped));
        let thread = thread::spawn(move || {
            let mut frame = vec![0; 1 << 16];
            while !ends.load(Ordering::Relaxed) {
                let Ok(len) = socket.recv(&mut frame) else {
                    continue;
                };
                if len > LONGEST {
                    counts.fetch_add(1, Ordering::Relaxed);
                } else {
                    // A model that is not there yet, or no more, loses frames.
                    let _ = socket.send_to(&frame[..len], &to);
                }
            }
        });
        Ok(Self { over, dropped, thread: Some(thread) })
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A round: the listener's interface to the IOMMU, and the caller's. The listener takes any path
/// MTU; the caller's is 1024 by default, and 4096 is too much for the switch.
fn round(listen: &str, call: &str) -> String {
    let caller = format!("0000:02:00.0 192.168.7.1 --ip 192.168.7.2/24 --iommu {call}");
    format!(
        "
dat info 0000:01:00.0 --iommu {listen}
dat info 0000:02:00.0 --iommu {call}
echo @@looked
dat listen 0000:01:00.0 --ip 192.168.7.1/24 --iommu {listen} --mtu 4096 &
listener=$!
dat ping {caller} --size 16K --count 20
echo @@default
dat ping {caller} --mtu 4096 --size 64 --count 20
echo @@small
if dat ping {caller} --mtu 4096 --size 16K --count 20; then
    echo @@ 4096 bytes passed a switch with an MTU of 1500
    exit 1
fi
echo @@large
kill $listener
wait $listener || true
"
    )
}

/// Waits for a line of the guest, and shows what for.
fn wait(stage: &mut Stage<'_>, guest: Id, what: &str, mark: &str) -> Result<String> {
    let start = Instant::now();
    let line = stage.expect(guest, mark, LIMIT)?;
    println!("    first-boot: waited {:4.1} s for {what}", start.elapsed().as_secs_f64());
    Ok(line)
}

/// Type 1 on both sides, which every kernel has.
pub(super) fn type1(stage: &mut Stage<'_>) -> Result<String> {
    run(stage, &[("type1", "type1")])
}

/// Either interface on either side.
pub(super) fn both(stage: &mut Stage<'_>) -> Result<String> {
    run(stage, &[("type1", "iommufd"), ("iommufd", "type1")])
}

fn run(stage: &mut Stage<'_>, rounds: &[(&str, &str)]) -> Result<String> {
    let [a, b, left, right, to_right, to_left] =
        ["a", "b", "left", "right", "to-right", "to-left"].map(|name| stage.path(name));
    let switches = [Switch::new(&to_right, right.clone())?, Switch::new(&to_left, left.clone())?];
    let control = stage.path("control");
    let wire = |own: &Path, other: &Path| format!("dgram:{},{}", own.display(), other.display());
    let path = control.to_str().context("a path that is no text")?;
    let one = [&*wire(&left, &to_right), "--seed", "1"];
    let two = [&*wire(&right, &to_left), "--seed", "2", "--control", path];
    let one = stage.server("model-1", &[&a], &[&["--vf", "--wire"], &one[..]].concat())?;
    let two = stage.server("model-2", &[&b], &[&["--vf", "--wire"], &two[..]].concat())?;
    let mut control = Control::new(&control)?;
    let mut script = "\nbind 0000:01:00.0 0000:02:00.0\n".to_owned();
    script.extend(rounds.iter().map(|(listen, call)| round(listen, call)));
    control.tell("link 0 down")?;
    let guest = stage.linux("guest", &script, &[&a, &b])?;
    let down = if stage.is_short() { SHORT } else { DOWN };
    for (i, (listen, call)) in rounds.iter().enumerate() {
        for interface in [listen, call] {
            let line = wait(stage, guest, "dat info", "IOMMU interface")?;
            ensure!(line.ends_with(interface), "{line}: {interface} was asked for");
            wait(stage, guest, "a MAC that the driver makes up", "made up")?;
        }
        wait(stage, guest, "the boot, and both functions", "@@looked")?;
        if i == 0 {
            let mark = "the link is down; waiting for it";
            wait(stage, guest, "dat ping to find the link down", mark)?;
            println!("    first-boot: plugs the cable in {} s", down.as_secs());
            thread::sleep(down);
            control.tell("link 0 up")?;
            wait(stage, guest, "dat ping to find the link up", "the link is up after")?;
        }
        wait(stage, guest, "16 KiB messages with the default path MTU", "@@default")?;
        wait(stage, guest, "64-byte messages with a path MTU of 4096", "@@small")?;
        wait(stage, guest, "16 KiB messages with 4096 to fail", "nothing came from")?;
        wait(stage, guest, "the remedy", "--mtu 1024 is safe")?;
        wait(stage, guest, "the end of that ping", "@@large")?;
    }
    stage.finish(guest, Duration::from_secs(30))?;
    for server in [one, two] {
        stage.hang_up(server, Duration::from_secs(5))?;
    }
    let lost: usize = switches.iter().map(|switch| switch.dropped.load(Ordering::Relaxed)).sum();
    ensure!(lost > 0, "the switch dropped no frame");
    let by: Vec<String> = rounds.iter().map(|(a, b)| format!("{b} to {a}")).collect();
    Ok(format!(
        "{}: the link came after {} s, the default path MTU passes an Ethernet MTU of 1500, 4096 ends in words ({lost} frames dropped), MACs made up",
        by.join(", "),
        down.as_secs()
    ))
}
