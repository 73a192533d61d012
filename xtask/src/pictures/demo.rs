//! A run of the demo as a terminal shows it.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use dat_lab::run;
use svg::Document;
use svg::node::element::{Rectangle, Style, Text, Title};

const COMMAND: &str = "$ cargo xtask demo";
/// Columns that are shown: what stands behind them is in words, and long.
const COLUMNS: usize = 98;
/// Size of a character, and of a line.
const WIDE: f64 = 7.25;
const HIGH: usize = 18;

/// Terminals are dark on either page.
const STYLE: &str = "
.page { fill: #0d1117 }
text { font: 12px ui-monospace, monospace; fill: #e6edf3; white-space: pre }
.late { opacity: 0; animation: come 0.01s forwards }
@keyframes come { to { opacity: 1 } }
@media (prefers-reduced-motion: reduce) { .late { animation-delay: 0s !important } }
";

/// Runs the demo and returns its picture.
pub(super) fn record() -> Result<Document> {
    let mut build = run::cargo();
    build.args(["build", "--release", "-p", "dat-tests", "--bin", "demo"]);
    run::plain(build, "the demo does not build")?;
    let mut demo = run::cargo();
    demo.args(["run", "--quiet", "--release", "-p", "dat-tests", "--bin", "demo"]);
    let mut child = demo.stdout(Stdio::piped()).spawn()?;
    let start = Instant::now();
    let out = child.stdout.take().context("no output")?;
    let mut lines = vec![(0.0, COMMAND.to_owned())];
    for line in BufReader::new(out).lines() {
        let line: String = line?.chars().take(COLUMNS).collect();
        lines.push((start.elapsed().as_secs_f64(), line.trim_end().to_owned()));
    }
    ensure!(child.wait()?.success(), "the demo failed");
    Ok(draw(&lines))
}

#[expect(clippy::cast_possible_truncation, reason = "some hundreds")]
fn draw(lines: &[(f64, String)]) -> Document {
    let (width, height) = ((COLUMNS as f64 * WIDE) as usize + 24, lines.len() * HIGH + 24);
    let frame = Rectangle::new().set("width", width).set("height", height).set("rx", 6);
    let mut page = Document::new()
        .set("viewBox", format!("0 0 {width} {height}"))
        .set("width", width)
        .set("height", height)
        .set("role", "img")
        .add(Title::new("A run of cargo xtask demo"))
        .add(Style::new(STYLE))
        .add(frame.set("class", "page"));
    for (nth, (time, line)) in lines.iter().enumerate() {
        let words = Text::new(line.as_str())
            .set("x", 12)
            .set("y", 12 + (nth + 1) * HIGH - 5)
            .set("xml:space", "preserve")
            .set("class", "late")
            .set("style", format!("animation-delay: {:.2}s", time + 0.5));
        page = page.add(words);
    }
    page
}
