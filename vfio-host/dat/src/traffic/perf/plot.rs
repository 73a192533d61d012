//! A measurement as a picture: bandwidth and latency against size, or latency against load.

use std::error::Error;
use std::path::Path;

use plotters::prelude::{
    ChartBuilder, IntoDrawingArea as _, IntoLogRange as _, LineSeries, RGBColor, SVGBackend, WHITE,
};

use super::super::super::failure::Failure;
use super::report::{Measured, Report};

/// Width and height of the picture, in pixels.
const SIZE: (u32, u32) = (800, 720);
/// Dark enough on white, and apart for those who see no red and green.
const BLUE: RGBColor = RGBColor(0, 90, 181);
const ORANGE: RGBColor = RGBColor(220, 50, 32);

/// Points of a line: size and value.
type Points = Vec<(f64, f64)>;

pub(super) fn write(file: &Path, report: &Report) -> Result<(), Failure> {
    let mut text = String::new();
    draw(&mut text, report)
        .map_err(|error| Failure::new(format!("the plot cannot be drawn: {error}")))?;
    std::fs::write(file, text).map_err(|error| {
        Failure::new(format!("{}: {error}", file.display()))
            .remedy("give --plot a file that can be written")
    })
}

fn draw(text: &mut String, report: &Report) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let [upper, lower] = root.split_evenly((2, 1)).try_into().map_err(|_| "no two halves")?;
    // Where rates are tried, what was reached counts, not what was wanted.
    let by_rate = report.is_of_rates();
    let (unit, load) = if by_rate {
        ("operations/s", "latency against load")
    } else {
        ("bytes of an operation", "latency")
    };
    let points = |value: fn(&Measured) -> Option<f64>| -> Points {
        let at = |run: &Measured| {
            if by_rate { run.operations_per_second } else { f64::from(run.size) }
        };
        report.runs.iter().filter_map(|run| Some((at(run), value(run)?))).collect()
    };
    let name = format!("{} with {}, {}", report.test.name(), report.peer, report.flight());
    let bandwidth = points(|run| run.megabytes_per_second);
    if bandwidth.is_empty() {
        let rate = points(|run| Some(run.operations_per_second));
        chart(&upper, &name, [unit, "operations/s"], &[(rate, BLUE)])?;
    } else {
        chart(&upper, &name, [unit, "MB/s"], &[(bandwidth, BLUE)])?;
    }
    let median = points(|run| run.latency_us.map(|latency| latency.median));
    let p99 = points(|run| run.latency_us.map(|latency| latency.p99));
    let title = format!("{load}: p50 blue, p99 orange");
    chart(&lower, &title, [unit, "us"], &[(median, BLUE), (p99, ORANGE)])?;
    root.present()?;
    Ok(())
}

/// Draws lines over sizes or rates, both axes logarithmic and with their units.
fn chart(
    area: &plotters::drawing::DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    name: &str,
    [below, beside]: [&str; 2],
    lines: &[(Points, RGBColor)],
) -> Result<(), Box<dyn Error>> {
    let all = || lines.iter().flat_map(|(points, _)| points.iter().copied());
    let range = |value: fn((f64, f64)) -> f64| {
        let values = || all().map(value).filter(|value| value.is_finite() && *value > 0.0);
        let least = values().fold(f64::INFINITY, f64::min);
        let most = values().fold(0.0, f64::max);
        // One point alone, or none, has a range too.
        if least.is_finite() { (least / 1.2, most * 1.2) } else { (1.0, 10.0) }
    };
    let ((left, right), (low, high)) = (range(|point| point.0), range(|point| point.1));
    let mut chart = ChartBuilder::on(area)
        .caption(name, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d((left..right).log_scale(), (low..high).log_scale())?;
    chart.configure_mesh().x_desc(below).y_desc(beside).draw()?;
    for (points, color) in lines {
        chart.draw_series(LineSeries::new(points.iter().copied(), color).point_size(3))?;
    }
    Ok(())
}
