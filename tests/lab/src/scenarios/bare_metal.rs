//! The image without an operating system serves the `dat` command of a Linux guest, then one that
//! calls without one as well.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::guest::stage::{Guest, Stage};

const SERVE: &str = "ip=192.168.7.1/24 serve=6 timeout=120";
const CALL_ALONE: &str = "ip=192.168.7.3/24 peer=192.168.7.1 test=all count=100 timeout=60";
/// The last words of an image on which all went well.
const WELL: &str = "dat-metal: result ok";
const CALL: &str = "
echo @@booted
read go
bind 0000:01:00.0
dat ping 0000:01:00.0 192.168.7.1 --ip 192.168.7.2/24 --count 100
dat perf 0000:01:00.0 192.168.7.1 --ip 192.168.7.2/24 --kind write --duration 1
dat perf 0000:01:00.0 192.168.7.1 --ip 192.168.7.2/24 --kind read --duration 1
";
/// From the start of QEMU until it can be called.
const BOOT: Duration = Duration::from_secs(2);

pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let [a, b] = ["a", "b"].map(|name| stage.path(name));
    let server = stage.server("model", &[&a, &b], &[])?;
    // Linux first: it takes seconds, and the image is timed alone.
    let caller = stage.linux("caller", CALL, &[&b])?;
    stage.expect(caller, "@@booted", Duration::from_secs(60))?;
    let start = Instant::now();
    let image = stage.image("image", &bare(SERVE, &[&a]))?;
    stage.expect(image, "listening on", Duration::from_secs(20))?;
    let up = start.elapsed();
    stage.say(caller, "go");
    stage.finish(caller, Duration::from_secs(60))?;
    let alone = stage.image("image-calls", &bare(CALL_ALONE, &[&b]))?;
    for image in [alone, image] {
        stage.expect(image, WELL, Duration::from_secs(60))?;
        stage.ended(image, Duration::from_secs(10))?;
    }
    stage.hang_up(server, Duration::from_secs(5))?;
    ensure!(up < BOOT, "the image took {:.1} s until it listened", up.as_secs_f64());
    Ok(format!(
        "listens {:.2} s after QEMU starts; ping, write and read of a Linux guest and of an image that calls verified; exit 0",
        up.as_secs_f64()
    ))
}

/// What a guest is that needs no Linux.
fn bare<'g>(script: &'g str, devices: &'g [&'g Path]) -> Guest<'g> {
    Guest { script, devices, memory: 256, ..Guest::default() }
}
