//! What one side of a test saw: how much was done, how long it took, what it cost.
//!
//! The server says its own in each message `Verified`, so that the client's report has both.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::hello::{Message, Saying};

/// What a side saw of a test until a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// Operations done and verified.
    pub(super) done: u64,
    /// Time.
    pub(super) time: Duration,
    /// CPU time of the process meanwhile, all threads: that of a driver in user space is its own.
    pub(super) cpu: Duration,
}

impl View {
    /// Returns what came after `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            done: self.done.saturating_sub(earlier.done),
            time: self.time.saturating_sub(earlier.time),
            cpu: self.cpu.saturating_sub(earlier.cpu),
        }
    }

    /// Encodes it: the time in place of an address, the CPU time in place of key and length.
    pub(super) fn message(self) -> Message {
        let [context, len] = halves(nanos(self.cpu));
        Message {
            saying: Saying::Verified,
            number: self.done,
            addr: nanos(self.time),
            context,
            len,
        }
    }

    /// Decodes that of a message.
    pub(super) fn of(message: &Message) -> Self {
        let cpu = (u64::from(message.context) << 32) | u64::from(message.len);
        let [time, cpu] = [message.addr, cpu].map(Duration::from_nanos);
        Self { done: message.number, time, cpu }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn halves(value: u64) -> [u32; 2] {
    let low = u32::try_from(value & u64::from(u32::MAX)).unwrap_or(u32::MAX);
    [u32::try_from(value >> 32).unwrap_or(u32::MAX), low]
}

/// Takes the time of a test and of this process.
#[derive(Debug)]
pub(super) struct Watch {
    began: Instant,
    /// CPU time of the process then.
    before: Duration,
    /// The latest look at the clocks.
    latest: View,
}

impl Watch {
    /// How old a look may be: the kernel is asked for CPU time, which costs more than a small
    /// operation.
    const FRESH: Duration = Duration::from_millis(1);

    pub(super) fn start() -> Self {
        Self { began: Instant::now(), before: cpu_time(), latest: View::default() }
    }

    /// Returns the view after `done` operations, of a millisecond ago at the most.
    pub(super) fn view(&mut self, done: u64) -> View {
        let age = self.began.elapsed().saturating_sub(self.latest.time);
        if self.latest.time.is_zero() || age >= Self::FRESH {
            self.latest = self.now(done);
        }
        View { done, ..self.latest }
    }

    /// Returns the view of this moment.
    pub(super) fn now(&self, done: u64) -> View {
        View { done, time: self.began.elapsed(), cpu: cpu_time().saturating_sub(self.before) }
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_whole_view() {
        let view = View {
            done: 1 << 40,
            time: Duration::from_secs(5),
            cpu: Duration::from_nanos(0x1234_5678_9abc_def0),
        };
        let message = Message::read(&view.message().bytes()).unwrap();
        assert_eq!(View::of(&message), view);
        assert_eq!(view.since(view), View::default());
        assert_eq!(View::default().since(view), View::default());
    }
}
