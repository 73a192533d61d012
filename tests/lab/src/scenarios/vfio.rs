//! The driver on two HCAs behind `/dev/vfio`: everything the demo does, memory of the program,
//! interrupts, a reset in mid-traffic, a hundred opens.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::guest::stage::Stage;

/// Both devices.
const SCRIPT: &str = "
bind 0000:01:00.0 0000:02:00.0
guest demo 0000:01:00.0 0000:02:00.0
guest lent 0000:01:00.0 0000:02:00.0
guest idle 0000:01:00.0 0000:02:00.0
guest flr 0000:01:00.0 0000:02:00.0
huge 24
guest reopen 0000:01:00.0
";

pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let sockets = [stage.path("a"), stage.path("b")];
    let sockets = sockets.each_ref().map(|path| path.as_path());
    let server = stage.server("model", &sockets, &[])?;
    let guest = stage.linux("guest", SCRIPT, &sockets)?;
    let mut said = Vec::new();
    for (mark, limit) in
        [("@@demo ", 60), ("@@lent ", 60), ("@@idle ", 30), ("@@flr ", 60), ("@@reopen ", 150)]
    {
        let line = stage.expect(guest, mark, Duration::from_secs(limit))?;
        said.push(line.strip_prefix(mark).context("no text")?.to_owned());
    }
    stage.finish(guest, Duration::from_secs(10))?;
    stage.hang_up(server, Duration::from_secs(5))?;
    Ok(said.join("; "))
}
