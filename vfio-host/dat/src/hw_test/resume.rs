//! Reads a report again, to be continued. Its text may have been changed in any way.

use std::io::{BufRead, BufReader, Read};

use serde_json::Value;

use super::report::{FORMAT, State};

/// Longest line.
const LONGEST: u64 = 1 << 20;

/// Reads what a report has so far: the length of its whole lines, and the checks without an end.
pub(super) fn read(state: &mut State) -> Result<(u64, Vec<(String, u8)>), String> {
    let file = state.file.try_clone().map_err(|error| error.to_string())?;
    let mut lines = BufReader::new(file);
    let (mut whole, mut first, mut hung) = (0, true, Vec::new());
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut lines).take(LONGEST);
        let len = limited.read_until(b'\n', &mut line).map_err(|error| error.to_string())?;
        if len == 0 || line.last() != Some(&b'\n') {
            // What follows a whole line is a line that was cut.
            if first || len as u64 == LONGEST {
                return Err("it is no report of dat hw-test".into());
            }
            return Ok((whole, hung));
        }
        let Ok(value) = serde_json::from_slice::<Value>(&line) else {
            return Err(format!("line at byte {whole} is not JSON"));
        };
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let kind = text("kind");
        if std::mem::take(&mut first) {
            if kind != Some("head") || value.get("format").and_then(Value::as_u64) != Some(FORMAT) {
                return Err(format!("it is no report of dat hw-test in format {FORMAT}"));
            }
            if value.get("anonymous").and_then(Value::as_bool) != Some(state.names.hides()) {
                return Err("it has names and this run has none, or the reverse: --names".into());
            }
            state.device = text("device").map(str::to_owned);
        }
        whole += len as u64;
        let step = value.get("step").and_then(Value::as_u64).and_then(|n| u8::try_from(n).ok());
        match (kind, text("check"), step.filter(|step| *step < super::STEPS)) {
            (Some("begin"), Some(check), Some(step)) => {
                state.reached = state.reached.max(step);
                hung.retain(|(open, _)| open != check);
                hung.push((check.to_owned(), step));
            }
            (Some("end"), Some(check), Some(_)) => {
                hung.retain(|(open, _)| open != check);
                // Without its beginning it says nothing, and twice it counts once.
                if state.before.insert(check.to_owned()) {
                    state.tally.count(text("result").unwrap_or_default());
                }
            }
            _ => {}
        }
        if kind == Some("fact") {
            if let (Some(fact), Some(setting)) = (text("fact"), text("setting")) {
                state.facts.insert((fact.to_owned(), setting.to_owned()));
            }
        }
    }
}
