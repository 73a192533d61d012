//! How busy this machine's processors are: /proc/stat, as proc(5) has it.

/// Ticks since the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Processor {
    all: u64,
    idle: u64,
}

impl Processor {
    /// Until now. `None` where the kernel does not say.
    pub(super) fn now() -> Option<Self> {
        Self::read(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line: user, nice, system, idle, and what came later.
    fn read(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks = line.split_whitespace().map(|tick| tick.parse().ok());
        let ticks: Vec<u64> = ticks.take(4).collect::<Option<_>>()?;
        let [user, nice, system, idle] = *ticks.first_chunk()?;
        Some(Self { all: user + nice + system + idle, idle })
    }

    /// Per cent of the time between two that was not idle.
    pub(super) fn busy(before: Option<Self>, after: Option<Self>) -> Option<f64> {
        let (before, after) = before.zip(after)?;
        let all = after.all.checked_sub(before.all).filter(|all| *all > 0)?;
        let idle = after.idle.saturating_sub(before.idle);
        #[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
        let share = idle as f64 / all as f64;
        Some((1.0 - share) * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Processor;

    #[test]
    fn what_was_not_idle_was_busy() {
        let before = Processor::read("cpu  10 0 10 80 7 0\ncpu0 1\n");
        let after = Processor::read("cpu  20 0 30 150 9 0\n");
        let busy = Processor::busy(before, after).unwrap();
        assert!((busy - 30.0).abs() < 1e-9, "{busy}");
        assert_eq!(Processor::busy(before, before), None);
        for text in ["", "cpu 1 2 3", "cpu a b c d", "intr 1 2 3 4"] {
            assert!(Processor::read(text).is_none(), "{text}");
        }
    }
}
