//! What the device can reach: the driver's ledger, and not a byte more.
//!
//! The guest holds a device and tells its ledger. The device, driven by its control socket, tries
//! what it must not.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::guest::control::{Control, Range};
use crate::guest::stage::{Id, Stage};

const SCRIPT: &str = "
huge 8
bind 0000:01:00.0
guest hold 0000:01:00.0
echo @@let-go
read end
";
/// Bytes of a page, for a step and for an address.
const STEP: usize = 4096;
const PAGE: u64 = 4096;
/// Bytes of a probe that straddles a border.
const HALF: u64 = 4;

/// What has been tried.
#[derive(Default)]
struct Tally {
    refused: u32,
    allowed: u32,
}

struct Device {
    control: Control,
    tally: Tally,
}

impl Device {
    /// An access that must fail.
    fn refused(&mut self, what: &str, at: u64, len: u64) -> Result<()> {
        let done = self.control.tried(&format!("{what} 0 {at:#x} {len}"))?;
        ensure!(!done, "the device could {what} {len} bytes at {at:#x}");
        self.tally.refused += 1;
        Ok(())
    }

    fn neither(&mut self, at: u64, len: u64) -> Result<()> {
        self.refused("read", at, len)?;
        self.refused("write", at, len)
    }

    /// Every page of these ranges can be read, and is written only where that is allowed; what lies
    /// around them is out of reach.
    fn probe(&mut self, ranges: &[Range]) -> Result<()> {
        for (i, range) in ranges.iter().enumerate() {
            let below = i.checked_sub(1).and_then(|i| ranges.get(i));
            let above = ranges.get(i + 1);
            if below.is_none_or(|below| below.end < range.start) {
                self.neither(range.start - 1, 1)?;
                self.neither(range.start - HALF, 2 * HALF)?;
            }
            if above.is_none_or(|above| above.start > range.end) {
                self.neither(range.end, 1)?;
                self.neither(range.end - HALF, 2 * HALF)?;
            }
            if let Some(above) = above.filter(|above| above.start > range.end) {
                self.neither(range.end + (above.start - range.end) / 2, 1)?;
            }
            for page in (range.start..range.end).step_by(STEP) {
                let read = self.control.tried(&format!("read 0 {page:#x} 8"))?;
                ensure!(read, "the device cannot read its own page at {page:#x}");
                self.tally.allowed += 1;
                if !range.write {
                    self.refused("write", page, 1)?;
                    self.refused("write", page + PAGE - 8, 8)?;
                }
            }
        }
        Ok(())
    }

    /// Not a page of these ranges can be reached, unless it is also in `still`.
    fn unmapped(&mut self, ranges: &[Range], still: &[Range]) -> Result<()> {
        for range in ranges {
            for page in (range.start..range.end).step_by(STEP) {
                if !still.iter().any(|r| (r.start..r.end).contains(&page)) {
                    self.neither(page, 8)?;
                }
            }
        }
        Ok(())
    }
}

/// The ledger that the guest tells, and that the device has the same.
fn ledger(stage: &mut Stage<'_>, guest: Id, device: &mut Device) -> Result<Vec<Range>> {
    let mut ledger = Vec::new();
    loop {
        let line = stage.expect(guest, "@@", Duration::from_secs(60))?;
        match line.strip_prefix("@@map ") {
            Some(map) => ledger.push(Range::parse(map)?),
            None => break,
        }
    }
    let ledger = Range::joined(ledger);
    let maps = Range::joined(device.control.maps(0)?);
    ensure!(ledger == maps, "the driver's ledger is {ledger:x?}, and what is mapped is {maps:x?}");
    Ok(ledger)
}

pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let [socket, control] = ["a", "control"].map(|name| stage.path(name));
    let path = control.to_str().context("a path that is no text")?.to_owned();
    let server = stage.server("model", &[&socket], &["--control", &path])?;
    let mut device = Device { control: Control::new(&control)?, tally: Tally::default() };
    let guest = stage.linux("guest", SCRIPT, &[&socket])?;
    let all = ledger(stage, guest, &mut device)?;
    ensure!(all.iter().any(|r| !r.write), "nothing is mapped read-only");
    device.probe(&all)?;

    stage.say(guest, "close");
    let arena = ledger(stage, guest, &mut device)?;
    device.unmapped(&all, &arena)?;
    device.probe(&arena)?;

    stage.say(guest, "end");
    stage.expect(guest, "@@let-go", Duration::from_secs(20))?;
    let left = device.control.maps(0)?;
    ensure!(left.is_empty(), "{left:x?} is still mapped");
    device.unmapped(&arena, &[])?;
    stage.say(guest, "end");
    stage.finish(guest, Duration::from_secs(20))?;
    stage.hang_up(server, Duration::from_secs(5))?;
    let Tally { refused, allowed } = device.tally;
    Ok(format!(
        "ledger and maps equal in {} ranges; {allowed} pages read, {refused} accesses refused",
        all.len()
    ))
}
