//! A short soak, and what judges it. A program of its own: it counts what the whole process holds.

use std::time::Duration;

use dat_tests::soak::judge::{faults, line};
use dat_tests::soak::{Plan, Report, Sample, chart, run};

/// One test, because a second one in this process would be counted too.
#[test]
fn twenty_seconds_leave_nothing_behind() {
    growth_is_found();
    let report = run(&Plan { time: Duration::from_secs(20), seed: 1 });
    eprintln!("{report}");
    assert_eq!(faults(&report), [""; 0], "{report}");
    assert!(chart::svg(&report).ends_with("</svg>\n"));
}

/// A process that holds `grown(n)` of each value at sample `n`.
fn report(grown: fn(usize, u64) -> u64) -> Report {
    let sample = |n: u64| Sample {
        at: Duration::from_secs(n),
        connections: 100 * n,
        values: std::array::from_fn(|value| grown(value, n)),
    };
    Report { samples: (0..40).map(sample).collect(), ..Report::default() }
}

fn growth_is_found() {
    // Up and down, and up while it warms up, is not growth.
    let flat = |value: usize, n: u64| match value {
        0 => 50_000 + 400 * (n % 3) + if n < 8 { 0 } else { 5_000 },
        2 => 200 + n % 4,
        _ => 64,
    };
    assert_eq!(faults(&report(flat)), [""; 0]);
    // 5 % in the whole time, a descriptor, one key.
    let slow = |value: usize, n: u64| match value {
        0 => 50_000 + 80 * n,
        1 => 12 + n / 20,
        7 => 64 + n / 39,
        _ => 64,
    };
    let found = faults(&report(slow));
    let names: Vec<&str> = found.iter().filter_map(|fault| fault.split(':').next()).collect();
    assert_eq!(names, ["resident KiB", "descriptors", "keys"], "{found:?}");
    assert!(!faults(&Report::default()).is_empty(), "nothing was seen");
    let (mean, rise) = line(&[1.0, 2.0, 3.0, 4.0]);
    assert!((mean - 2.5).abs() < 1e-9 && (rise - 3.0).abs() < 1e-9);
}
