//! `dat trace`: what the adapters of a process do, as they do it.

use std::io::{BufRead as _, BufReader, ErrorKind};
use std::time::Duration;

use serde::Serialize;
use vfio_host::status::{self, Datagram};

use super::super::args::Trace;
use super::super::failure::Failure;
use super::super::out::Out;
use super::super::{End, signals};
use super::look;
use super::pcap::Capture;

/// Longest wait for a line, or for an empty one, before Ctrl-C is looked for.
const SLICE: Duration = Duration::from_millis(100);

/// A line as JSON.
#[derive(Debug, Serialize)]
struct Line<'a> {
    /// Since this command listens.
    seconds: f64,
    severity: &'a str,
    text: &'a str,
}

pub(crate) fn run(trace: &Trace, out: &Out) -> Result<End, Failure> {
    signals::watch()?;
    let pid = process(trace)?;
    let failed = |error: std::io::Error| {
        Failure::new(format!("process {pid}: {error}"))
            .remedy("dat top lists the processes of this user that have an adapter open")
    };
    let stream = status::listen(&status::folder(), pid).map_err(failed)?;
    stream.set_read_timeout(Some(SLICE)).map_err(failed)?;
    let (mut lines, mut text, mut left) = (BufReader::new(stream), Vec::new(), trace.count);
    let mut capture = trace.pcap.as_deref().map(Capture::new).transpose()?;
    while left != Some(0) && !signals::asked() {
        match lines.read_until(b'\n', &mut text) {
            Ok(0) => break,
            Ok(_) if text.ends_with(b"\n") => {
                if show(&String::from_utf8_lossy(&text), capture.as_mut(), out)? {
                    left = left.map(|left| left - 1);
                }
                text.clear();
            }
            // The end came within a line.
            Ok(_) => break,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(End::Ok)
}

/// Returns the process that is meant, if there is one only.
fn process(trace: &Trace) -> Result<u32, Failure> {
    let which = trace.which.as_deref();
    // Whether a process is there is seen when its socket is looked for.
    if let Some(pid) = which.and_then(|which| which.parse().ok()) {
        return Ok(pid);
    }
    let (adapters, silent) = look(which);
    let mut pids: Vec<u32> = adapters.iter().map(|adapter| adapter.pid).collect();
    pids.extend(silent.iter().map(|silent| silent.pid));
    pids.dedup();
    match pids.as_slice() {
        [] => Err(Failure::new("no process of this user has such an adapter open")
            .remedy("dat top lists those that have one")),
        [pid] => Ok(*pid),
        several => {
            let several: Vec<String> = several.iter().map(u32::to_string).collect();
            Err(Failure::usage(format!("there are the processes {}", several.join(" ")))
                .remedy("name one of them, or a device"))
        }
    }
}

/// Prints a line of the other side, and captures the datagram that it tells of; `false` for an empty
/// one.
fn show(line: &str, capture: Option<&mut Capture>, out: &Out) -> Result<bool, Failure> {
    let (line, datagram) = Datagram::split(line.trim_end_matches('\n'));
    let mut words = line.splitn(3, ' ');
    let (Some(time), Some(severity), Some(text)) = (words.next(), words.next(), words.next())
    else {
        return Ok(false);
    };
    let seconds = time.parse().unwrap_or(0.0);
    if let (Some(capture), Some(datagram)) = (capture, datagram) {
        capture.add(seconds, &datagram)?;
    }
    out.line(&Line { seconds, severity, text }, &format!("{seconds:12.6} {severity:<7} {text}"))?;
    Ok(true)
}
