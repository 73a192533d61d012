//! A guest that runs the commands of its console, one at a time.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::guest::stage::{Id, Stage};

/// Seconds beyond a command's own limit after which the guest is taken for dead.
const GRACE: u64 = 15;
/// The status of a command whose time was over.
pub(crate) const TIMED_OUT: i32 = 143;
/// Seconds of a boot, drivers and all, on a machine that has other things to do.
const BOOT: u64 = 150;

/// How a command went.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    /// Its exit status, or [`TIMED_OUT`].
    pub(crate) status: i32,
    /// What it printed.
    pub(crate) lines: Vec<String>,
}

impl Answer {
    /// Its exit status; `None` if its time was over.
    pub(crate) fn ended(&self) -> Option<i32> {
        (self.status != TIMED_OUT).then_some(self.status)
    }

    /// The lines as a text.
    pub(crate) fn text(&self) -> String {
        self.lines.join("\n")
    }
}

/// The console of a guest.
#[derive(Debug)]
pub(crate) struct Shell {
    /// The guest.
    pub(crate) id: Id,
    sent: u32,
}

impl Shell {
    /// Waits until the guest is up; and how its set-up went.
    pub(crate) fn new(stage: &mut Stage<'_>, id: Id) -> Result<(Self, Answer)> {
        let shell = Self { id, sent: 0 };
        let up = shell.until(stage, "@@ready ", BOOT)?;
        Ok((shell, up))
    }

    /// Runs a command with a limit in seconds. An error means that the guest is of no more use.
    pub(crate) fn run(
        &mut self,
        stage: &mut Stage<'_>,
        limit: u64,
        command: &str,
    ) -> Result<Answer> {
        self.tell(stage, limit, command);
        self.answer(stage, limit)
    }

    /// Begins a command, whose answer must be fetched before the next.
    pub(crate) fn tell(&mut self, stage: &mut Stage<'_>, limit: u64, command: &str) {
        self.sent += 1;
        stage.forget(self.id);
        stage.say(self.id, &format!("{} {limit} {command}", self.sent));
    }

    /// The answer to the last command.
    pub(crate) fn answer(&mut self, stage: &mut Stage<'_>, limit: u64) -> Result<Answer> {
        self.until(stage, &format!("@@done {} ", self.sent), limit + GRACE)
    }

    /// Runs a command that must go well; what it printed.
    pub(crate) fn must(
        &mut self,
        stage: &mut Stage<'_>,
        limit: u64,
        command: &str,
    ) -> Result<String> {
        let answer = self.run(stage, limit, command)?;
        if answer.status != 0 {
            bail!("`{command}` ended with {}:\n{}", answer.status, answer.text());
        }
        Ok(answer.text())
    }

    fn until(&self, stage: &mut Stage<'_>, mark: &str, within: u64) -> Result<Answer> {
        let until = Instant::now() + Duration::from_secs(within);
        let mut answer = Answer::default();
        loop {
            let gone = stage.is_over(self.id);
            while let Some(line) = stage.next_line(self.id) {
                // What was printed last may lack an end of its line.
                if let Some((before, status)) = line.split_once(mark) {
                    if !before.is_empty() {
                        answer.lines.push(before.to_owned());
                    }
                    answer.status = status.trim().parse().unwrap_or(-1);
                    return Ok(answer);
                }
                answer.lines.push(line);
            }
            if gone {
                bail!("the guest is gone:\n{}", answer.text());
            }
            if Instant::now() > until {
                bail!("the guest does not answer within {within} s:\n{}", answer.text());
            }
        }
    }
}
