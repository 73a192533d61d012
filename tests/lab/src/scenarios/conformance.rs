//! The conformance suite through `/dev/vfio`, on two HCAs that stay up: every case, or in a short
//! run every third, as all of them run in process too.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::guest::stage::Stage;

/// What the program says at the end.
const MARK: &str = "@@conformance ";
/// All cases take less.
const LIMIT: Duration = Duration::from_secs(400);

pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let sockets = [stage.path("a"), stage.path("b")];
    let sockets = sockets.each_ref().map(|path| path.as_path());
    let server = stage.server("model", &sockets, &[])?;
    let every = if stage.is_short() { 3 } else { 1 };
    let devices = "0000:01:00.0 0000:02:00.0";
    let script = format!("\nbind {devices}\nguest conformance --every {every} {devices}\n");
    let guest = stage.linux("guest", &script, &sockets)?;
    let line = stage.expect(guest, MARK, LIMIT)?;
    stage.finish(guest, Duration::from_secs(10))?;
    stage.hang_up(server, Duration::from_secs(5))?;
    let said = line.strip_prefix(MARK).context("no text")?;
    Ok(said.to_owned())
}
