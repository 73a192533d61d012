//! The `dat` command in two guests: one listens, the other calls. Each has a model of its own, with
//! a wire of datagrams between the two servers.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::guest::stage::Stage;

const LISTEN: &str = "
bind 0000:01:00.0
dat listen 0000:01:00.0 --ip 192.168.7.1/24 --count 5
";
const CALL: &str = "
bind 0000:01:00.0
dat ping 0000:01:00.0 192.168.7.1 --ip 192.168.7.2/24 --count 200
for kind in send write read bind; do
    dat perf 0000:01:00.0 192.168.7.1 --ip 192.168.7.2/24 --kind $kind --count 200 --size 4K
done
";

pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let [a, b, left, right] = ["a", "b", "left", "right"].map(|name| stage.path(name));
    let wire = |from: &std::path::Path, to: &std::path::Path| {
        format!("dgram:{},{}", from.display(), to.display())
    };
    let one = stage.server("model-1", &[&a], &["--seed", "1", "--wire", &wire(&left, &right)])?;
    let two = stage.server("model-2", &[&b], &["--seed", "2", "--wire", &wire(&right, &left)])?;
    let listener = stage.linux("listener", LISTEN, &[&a])?;
    stage.expect(listener, "listens on", Duration::from_secs(60))?;
    let caller = stage.linux("caller", CALL, &[&b])?;
    stage.finish(caller, Duration::from_secs(90))?;
    stage.finish(listener, Duration::from_secs(20))?;
    stage.hang_up(one, Duration::from_secs(5))?;
    stage.hang_up(two, Duration::from_secs(5))?;
    let said = stage.output(caller);
    let median =
        said.iter().find(|line| line.contains("median")).context("dat ping reported no median")?;
    Ok(format!("ping and four kinds of perf, verified; {}", median.trim()))
}
