//! Times of operations: an HDR histogram, right to one in a thousand, with exact least and greatest
//! time, and a chart of it.

use std::time::Duration;

use hdrhistogram::Histogram as Hdr;
use serde::Serialize;

/// Decimal digits that a time is right to.
const DIGITS: u8 = 3;
/// Length of the longest bar.
const COLUMNS: u64 = 50;

/// Times in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    /// `None` if there is no memory for it; then nothing is counted.
    times: Option<Hdr<u64>>,
    least: u64,
    most: u64,
}

/// Statistics of the times, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Latency {
    /// Least.
    pub(crate) min: f64,
    /// Median.
    pub(crate) median: f64,
    /// Mean.
    pub(crate) mean: f64,
    /// 90th percentile.
    pub(crate) p90: f64,
    /// 99th percentile.
    pub(crate) p99: f64,
    /// 99.9th percentile.
    pub(crate) p999: f64,
    /// Greatest.
    pub(crate) max: f64,
}

/// A row of the chart: times of one doubling.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    /// Lower bound in microseconds.
    pub(crate) from_us: f64,
    /// Upper bound in microseconds, excluded.
    pub(crate) to_us: f64,
    /// Number of times in between.
    pub(crate) count: u64,
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn us(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

impl Histogram {
    /// Makes an empty histogram.
    pub(crate) fn new() -> Self {
        let mut times = Hdr::new(DIGITS).ok();
        if let Some(times) = &mut times {
            times.auto(true);
        }
        Self { times, least: u64::MAX, most: 0 }
    }

    /// Adds a time.
    pub(crate) fn add(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if let Some(times) = &mut self.times {
            // It grows to hold any time.
            let _ = times.record(nanos);
        }
        self.least = self.least.min(nanos);
        self.most = self.most.max(nanos);
    }

    /// Adds all times of another one.
    pub(crate) fn join(&mut self, other: &Self) {
        if let (Some(times), Some(others)) = (&mut self.times, &other.times) {
            // Fails where one cannot grow: ours do.
            let _ = times.add(others);
        }
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
    }

    /// Returns the statistics; `None` without times.
    pub(crate) fn latency(&self) -> Option<Latency> {
        let times = self.times.as_ref().filter(|times| !times.is_empty())?;
        let of = |part| us(times.value_at_quantile(part).clamp(self.least, self.most));
        Some(Latency {
            min: us(self.least),
            median: of(0.5),
            mean: times.mean() / 1e3,
            p90: of(0.9),
            p99: of(0.99),
            p999: of(0.999),
            max: us(self.most),
        })
    }

    /// Returns the chart: a row for each doubling from the least to the greatest time.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let Some(times) = self.times.as_ref().filter(|times| !times.is_empty()) else {
            return Vec::new();
        };
        let mut counts = [0; u64::BITS as usize];
        for step in times.iter_recorded() {
            let doubling = usize::try_from((step.value_iterated_to() | 1).ilog2()).unwrap_or(0);
            if let Some(count) = counts.get_mut(doubling) {
                *count += step.count_since_last_iteration();
            }
        }
        let rows = (0..u64::BITS).zip(counts).map(|(doubling, count)| Row {
            from_us: if doubling == 0 { 0.0 } else { us(1 << doubling) },
            to_us: 2.0 * us(1 << doubling),
            count,
        });
        let mut rows: Vec<Row> = rows.skip_while(|row| row.count == 0).collect();
        while rows.last().is_some_and(|row| row.count == 0) {
            rows.pop();
        }
        rows
    }

    /// Returns the chart as text.
    pub(crate) fn picture(&self) -> String {
        let rows = self.rows();
        let widest = rows.iter().map(|row| row.count).max().unwrap_or(1).max(1);
        let mut text = String::new();
        for Row { from_us, to_us, count } in rows {
            // A row with any time has a bar of at least one character.
            let bar = (u128::from(count) * u128::from(COLUMNS)).div_ceil(u128::from(widest));
            let bar = "#".repeat(usize::try_from(bar).unwrap_or(0));
            text.push_str(
                format!("{from_us:>10.1} to {to_us:>10.1} us {count:>9}  {bar}").trim_end(),
            );
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(nanos: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        nanos.iter().for_each(|n| histogram.add(Duration::from_nanos(*n)));
        histogram
    }

    #[test]
    fn an_empty_histogram_has_no_statistics() {
        let none = Histogram::new();
        assert_eq!((none.latency(), none.rows().len(), none.picture().as_str()), (None, 0, ""));
    }

    #[test]
    fn a_chart_has_a_row_for_each_doubling() {
        let picture = of(&[1500, 1600, 1700, 6000]).picture();
        let lines: Vec<&str> = picture.lines().collect();
        assert_eq!(lines.len(), 3, "{picture}");
        assert!(lines[0].contains("1.0 to        2.0 us         3  ####"), "{picture}");
        assert!(lines[1].ends_with("0"), "{picture}");
        assert!(lines[2].contains("4.1 to        8.2 us         1  ####"), "{picture}");
    }

    #[test]
    fn extremes_are_exact_and_fit() {
        let extremes = of(&[0, u64::MAX]);
        let latency = extremes.latency().unwrap();
        assert_eq!((latency.min, latency.max), (0.0, us(u64::MAX)));
        assert_eq!(extremes.rows().iter().map(|row| row.count).sum::<u64>(), 2);
    }

    proptest! {
        #[test]
        fn quantiles_are_right_to_one_in_a_thousand(
            one in prop::collection::vec(0u64..1 << 40, 1..200),
            other in prop::collection::vec(0u64..1 << 40, 0..200),
        ) {
            let mut histogram = of(&one);
            histogram.join(&of(&other));
            let mut times = [one, other].concat();
            times.sort_unstable();
            let found = histogram.latency().unwrap();
            prop_assert_eq!((found.min, found.max), (us(times[0]), us(times[times.len() - 1])));
            for (per_mille, found) in [(500, found.median), (900, found.p90), (990, found.p99)] {
                let rank = (times.len() * per_mille).div_ceil(1000).max(1) - 1;
                let exact = us(times[rank]);
                prop_assert!((found - exact).abs() <= exact / 1000.0 + 0.001, "{found} of {exact}");
            }
            let counted: u64 = histogram.rows().iter().map(|row| row.count).sum();
            prop_assert_eq!(counted, times.len() as u64);
        }
    }
}
