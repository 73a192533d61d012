//! The model as a virtual function: without an address the driver makes one up; with one that its
//! owner gave it is the same code as ever.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::guest::control::Control;
use crate::guest::stage::Stage;

const SCRIPT: &str = r#"
bind 0000:01:00.0 0000:02:00.0
guest demo 0000:01:00.0 0000:02:00.0
read go
guest demo 0000:01:00.0 0000:02:00.0
"#;
const LIMIT: Duration = Duration::from_secs(90);

pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let sockets = [stage.path("a"), stage.path("b")];
    let control = stage.path("control");
    let path = control.to_str().context("a path that is no text")?.to_owned();
    let sockets = sockets.each_ref().map(|path| path.as_path());
    let server = stage.server("model", &sockets, &["--vf", "--control", &path])?;
    let mut control = Control::new(&control)?;
    let guest = stage.linux("guest", SCRIPT, &sockets)?;
    stage.expect(guest, "@@demo ", LIMIT)?;
    for function in 0..2 {
        control.tell(&format!("address {function}"))?;
    }
    stage.say(guest, "go");
    let line = stage.expect(guest, "@@demo ", LIMIT)?;
    stage.finish(guest, Duration::from_secs(10))?;
    stage.hang_up(server, Duration::from_secs(5))?;
    let demo = line.strip_prefix("@@demo ").context("no text")?;
    Ok(format!("without an address it makes one up; with one {demo}"))
}
