//! The model's control socket: what a device is asked to try, and its counters.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Longest silence of the model.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection.
pub(crate) struct Control(BufReader<UnixStream>);

/// A range of addresses with its rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// First address.
    pub(crate) start: u64,
    /// First address behind it.
    pub(crate) end: u64,
    /// The device may write there.
    pub(crate) write: bool,
}

impl Range {
    /// Reads `IOVA LEN RIGHTS`, the first words of a line.
    pub(crate) fn parse(line: &str) -> Result<Self> {
        let mut words = line.split_whitespace();
        let mut number = || {
            let digits = words.next()?.strip_prefix("0x")?;
            u64::from_str_radix(digits, 16).ok()
        };
        let (start, len) = (number(), number());
        let rights = words.next();
        match (start, len, rights) {
            (Some(start), Some(len), Some(rights)) => {
                Ok(Self { start, end: start + len, write: rights.contains('w') })
            }
            _ => bail!("{line:?} is no mapping"),
        }
    }

    /// Ranges that touch and have the same rights, as one.
    pub(crate) fn joined(mut ranges: Vec<Self>) -> Vec<Self> {
        ranges.sort_by_key(|range| range.start);
        let mut joined: Vec<Self> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(last) if last.end == range.start && last.write == range.write => {
                    last.end = range.end;
                }
                _ => joined.push(range),
            }
        }
        joined
    }
}

impl Control {
    /// Connects.
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let stream = UnixStream::connect(path).with_context(|| format!("{}", path.display()))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Says a line; the lines of the answer, the last of which is the verdict.
    fn exchange(&mut self, line: &str) -> Result<Vec<String>> {
        writeln!(self.0.get_mut(), "{line}")?;
        let mut lines = Vec::new();
        loop {
            let mut said = String::new();
            if self.0.read_line(&mut said)? == 0 {
                bail!("the model hung up on `{line}`");
            }
            let said = said.trim_end().to_owned();
            let last = said.starts_with("ok") || said.starts_with("error:");
            lines.push(said);
            if last {
                return Ok(lines);
            }
        }
    }

    /// Says a line that must be done; the lines before the verdict.
    pub(crate) fn tell(&mut self, line: &str) -> Result<Vec<String>> {
        let mut lines = self.exchange(line)?;
        match lines.pop() {
            Some(verdict) if verdict.starts_with("ok") => Ok(lines),
            verdict => bail!("the model answered `{line}` with {verdict:?}"),
        }
    }

    /// Says a line; whether it was done.
    pub(crate) fn tried(&mut self, line: &str) -> Result<bool> {
        let verdict = self.exchange(line)?.pop().unwrap_or_default();
        Ok(verdict.starts_with("ok"))
    }

    /// What is mapped for a device.
    pub(crate) fn maps(&mut self, hca: usize) -> Result<Vec<Range>> {
        self.tell(&format!("maps {hca}"))?.iter().map(|line| Range::parse(line)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Range;

    #[test]
    fn pages_are_joined_into_ranges() {
        let lines = ["0x3000 0x1000 rw", "0x1000 0x1000 rw", "0x2000 0x1000 rw", "0x4000 0x1000 r"];
        let ranges = lines.iter().map(|line| Range::parse(line).unwrap());
        let joined = Range::joined(ranges.collect());
        let wanted = [(0x1000, 0x4000, true), (0x4000, 0x5000, false)];
        let wanted = wanted.map(|(start, end, write)| Range { start, end, write });
        assert_eq!(joined, wanted);
        assert!(Range::parse("ok 3").is_err());
    }
}
