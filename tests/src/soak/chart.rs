//! The samples as a drawing: a panel for each value, in plain SVG.

use std::fmt::Write as _;

use super::Report;
use super::sample::NAMES;

const WIDTH: f64 = 720.0;
const PANEL: f64 = 64.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 100.0;
const TOP: f64 = 40.0;

/// The text of the file.
#[must_use]
pub fn svg(report: &Report) -> String {
    let height = TOP + PANEL * NAMES.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <!-- Made by `cargo xtask soak --bless`. Do not edit. -->\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"10\" y=\"22\" font-size=\"14\">{} connections, {} faults, {} s</text>\n",
        report.connections,
        report.faults,
        report.time.as_secs()
    );
    let end = report.time.as_secs_f64().max(1.0);
    for (n, name) in NAMES.iter().enumerate() {
        let values = || report.samples.iter().map(|sample| sample.values[n]);
        let (least, most) = (values().min().unwrap_or(0), values().max().unwrap_or(0));
        let base = TOP + PANEL * (n as f64 + 1.0) - 14.0;
        // From 0, so that what is flat looks flat.
        let scale = (PANEL - 26.0) / (most as f64).max(1.0);
        let mut points = String::new();
        for sample in &report.samples {
            let x = LEFT + (WIDTH - LEFT - RIGHT) * sample.at.as_secs_f64() / end;
            let _ = write!(points, "{x:.1},{:.1} ", base - sample.values[n] as f64 * scale);
        }
        let range = if least == most { most.to_string() } else { format!("{least} to {most}") };
        let _ = write!(
            out,
            "<text x=\"10\" y=\"{base:.0}\">{name}</text>\n\
             <path d=\"M{LEFT} {base:.0}H{:.0}\" stroke=\"#bbbbbb\"/>\n\
             <polyline points=\"{}\" fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"1.5\"/>\n\
             <text x=\"{:.0}\" y=\"{base:.0}\">{range}</text>\n",
            WIDTH - RIGHT,
            points.trim_end(),
            WIDTH - RIGHT + 8.0
        );
    }
    out.push_str("</svg>\n");
    out
}
