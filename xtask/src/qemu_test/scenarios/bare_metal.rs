//! The image without an operating system serves the `dat` command of a Linux guest.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::qemu_test::stage::{Guest, Stage};

const SERVE: &str = "ip=192.168.7.1/24 serve=3 timeout=120";
const CALL: &str = "
echo @@booted
read go
bind 0000:01:00.0
dat ping 0000:01:00.0 192.168.7.1 --ip 192.168.7.2/24 --count 100
dat perf 0000:01:00.0 192.168.7.1 --ip 192.168.7.2/24 --kind write --count 100
dat perf 0000:01:00.0 192.168.7.1 --ip 192.168.7.2/24 --kind read --count 100
";
/// From the start of QEMU until it can be called.
const BOOT: Duration = Duration::from_secs(2);

pub(super) fn play(stage: &mut Stage<'_>) -> Result<String> {
    let [a, b] = ["a", "b"].map(|name| stage.path(name));
    let server = stage.server("model", &[&a, &b], &[])?;
    // Linux first: it takes seconds, and the image is timed alone.
    let caller = stage.linux("caller", CALL, &[&b])?;
    stage.expect(caller, "@@booted", Duration::from_secs(60))?;
    let start = Instant::now();
    let image = stage.image(
        "image",
        &Guest {
            script: SERVE,
            devices: &[&a],
            memory: 256,
            ..Guest::default()
        },
    )?;
    stage.expect(image, "listening on", Duration::from_secs(20))?;
    let up = start.elapsed();
    stage.say(caller, "go");
    stage.finish(caller, Duration::from_secs(60))?;
    stage.expect(image, "dat-metal: result ok", Duration::from_secs(20))?;
    stage.ended(image, Duration::from_secs(10))?;
    stage.hang_up(server, Duration::from_secs(5))?;
    ensure!(
        up < BOOT,
        "the image took {:.1} s until it listened",
        up.as_secs_f64()
    );
    Ok(format!(
        "listens {:.2} s after QEMU starts; a Linux guest's ping, write and read verified; exit 0",
        up.as_secs_f64()
    ))
}
