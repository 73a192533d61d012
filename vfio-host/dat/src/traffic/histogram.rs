//! A histogram of times: the width of its buckets grows with the time, 32 buckets to each doubling,
//! so that any number of times fits into a few kilobytes and a percentile is right to 3 in 100.
//! Least and greatest are exact.

use std::time::Duration;

use serde::Serialize;

/// Log2 of the number of buckets of one doubling.
const FINE: u32 = 5;
/// Number of buckets for all times of 64 bits.
const BUCKETS: usize = (65 - FINE as usize) << FINE;
/// Length of the longest bar.
const COLUMNS: u64 = 50;

/// Times in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum: u128,
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

fn bucket(nanos: u64) -> usize {
    let log = (nanos | 1).ilog2();
    let place = if log < FINE {
        nanos
    } else {
        let doubling = u64::from(log - FINE + 1);
        (doubling << FINE) + (nanos >> (log - FINE)) - (1 << FINE)
    };
    usize::try_from(place).unwrap_or(BUCKETS - 1).min(BUCKETS - 1)
}

/// Returns the least time of a bucket.
fn start(bucket: usize) -> u64 {
    let doubling = u32::try_from(bucket >> FINE).unwrap_or(0);
    let place = (bucket & ((1 << FINE) - 1)) as u64;
    if doubling == 0 {
        return place;
    }
    (place | 1 << FINE).checked_shl(doubling - 1).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn us(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

impl Histogram {
    /// Makes an empty histogram.
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, sum: 0, least: u64::MAX, most: 0 }
    }

    /// Adds a time.
    pub(crate) fn add(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket(nanos)) {
            *count += 1;
        }
        self.total += 1;
        self.sum += u128::from(nanos);
        self.least = self.least.min(nanos);
        self.most = self.most.max(nanos);
    }

    /// Returns the time that `parts` of 1000 do not exceed.
    fn quantile(&self, parts: u64) -> u64 {
        let rank = (u128::from(self.total) * u128::from(parts)).div_ceil(1000);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u128::from(*count);
            if *count > 0 && seen >= rank {
                // The greatest time of the bucket, but not above the greatest that was added.
                return start(bucket + 1).saturating_sub(1).clamp(self.least, self.most);
            }
        }
        self.most
    }

    /// Returns the statistics; `None` without times.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub(crate) fn latency(&self) -> Option<Latency> {
        (self.total > 0).then(|| Latency {
            min: us(self.least),
            median: us(self.quantile(500)),
            mean: self.sum as f64 / self.total as f64 / 1e3,
            p90: us(self.quantile(900)),
            p99: us(self.quantile(990)),
            p999: us(self.quantile(999)),
            max: us(self.most),
        })
    }

    /// Returns the chart: a row for each doubling from the least to the greatest time.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let rows = self.counts.chunks(1 << FINE).enumerate();
        let mut rows: Vec<Row> = rows
            .map(|(doubling, counts)| Row {
                from_us: us(start(doubling << FINE)),
                to_us: us(start((doubling + 1) << FINE)),
                count: counts.iter().sum(),
            })
            .skip_while(|row| row.count == 0)
            .collect();
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
        fn quantiles_are_right_to_three_in_a_hundred(mut times in prop::collection::vec(0u64..1 << 40, 1..200)) {
            let histogram = of(&times);
            times.sort_unstable();
            for parts in [1, 500, 990, 1000] {
                let rank = (times.len() as u64 * parts).div_ceil(1000).max(1) - 1;
                let exact = times[usize::try_from(rank).unwrap()];
                let found = histogram.quantile(parts);
                prop_assert!(found >= exact && found - exact <= exact / 32 + 1, "{parts}: {found} of {exact}");
            }
        }

        #[test]
        fn a_time_falls_into_the_bucket_that_starts_before_it(nanos: u64) {
            let bucket = bucket(nanos);
            prop_assert!(start(bucket) <= nanos);
            prop_assert!(bucket + 1 == BUCKETS || start(bucket + 1) > nanos);
        }
    }
}
