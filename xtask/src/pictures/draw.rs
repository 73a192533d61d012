//! Boxes, arrows and words.

use svg::Document;
use svg::node::element::{Line, Marker, Path, Rectangle, Style, Text, Title};

/// Colours of a light page, and of a dark one.
const STYLE: &str = "
text { font: 14px system-ui, sans-serif; fill: #1f2328 }
.small { font-size: 12px; fill: #59636e }
.box { fill: #f6f8fa; stroke: #d1d9e0 }
.line { stroke: #0969da; stroke-width: 1.5 }
.head { fill: #0969da }
.seam { stroke: #59636e; stroke-dasharray: 6 4 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc }
.small { fill: #9198a1 }
.box { fill: #151b23; stroke: #3d444d }
.line { stroke: #4493f8 }
.head { fill: #4493f8 }
.seam { stroke: #9198a1 }
}
";

/// Which part of a text stands at its place.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
}

impl Anchor {
    fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
        }
    }
}

/// A picture in the making. Places are in pixels, from the upper left corner.
pub(super) struct Drawing(Document);

impl Drawing {
    pub(super) fn new(width: i32, height: i32, title: &str) -> Self {
        let head = Path::new().set("d", "M0 0 L8 4 L0 8 Z").set("class", "head");
        let marker = Marker::new()
            .set("id", "head")
            .set("markerWidth", 8)
            .set("markerHeight", 8)
            .set("refX", 7)
            .set("refY", 4)
            .set("orient", "auto")
            .add(head);
        let page = Document::new()
            .set("viewBox", format!("0 0 {width} {height}"))
            .set("width", width)
            .set("height", height)
            .set("role", "img")
            .add(Title::new(title))
            .add(Style::new(STYLE))
            .add(marker);
        Self(page)
    }

    fn add(&mut self, node: impl svg::Node) {
        let page = std::mem::replace(&mut self.0, Document::new());
        self.0 = page.add(node);
    }

    /// A box with a title, and smaller words below it.
    pub(super) fn card(
        &mut self,
        x: i32,
        y: i32,
        width: i32,
        height: i32,
        title: &str,
        below: &str,
    ) {
        let frame = Rectangle::new()
            .set("x", x)
            .set("y", y)
            .set("width", width)
            .set("height", height)
            .set("rx", 6)
            .set("class", "box");
        self.add(frame);
        let middle = if height < 100 { y + height / 2 } else { y + 22 };
        let lift = if below.is_empty() { -5 } else { 4 };
        self.words(x + width / 2, middle - lift, Anchor::Middle, title, "title");
        if !below.is_empty() {
            self.note(x + width / 2, middle + 14, Anchor::Middle, below);
        }
    }

    fn words(&mut self, x: i32, y: i32, anchor: Anchor, words: &str, class: &str) {
        let words = Text::new(words)
            .set("x", x)
            .set("y", y)
            .set("text-anchor", anchor.word())
            .set("class", class);
        self.add(words);
    }

    /// Small words.
    pub(super) fn note(&mut self, x: i32, y: i32, anchor: Anchor, words: &str) {
        self.words(x, y, anchor, words, "small");
    }

    /// A seam across the page.
    pub(super) fn seam(&mut self, y: i32, words: &str) {
        self.add(
            Line::new().set("x1", 20).set("y1", y).set("x2", 860).set("y2", y).set("class", "seam"),
        );
        self.note(24, y - 5, Anchor::Start, words);
    }

    pub(super) fn arrow(&mut self, from: (i32, i32), to: (i32, i32)) {
        let line = Line::new()
            .set("x1", from.0)
            .set("y1", from.1)
            .set("x2", to.0)
            .set("y2", to.1)
            .set("class", "line")
            .set("marker-end", "url(#head)");
        self.add(line);
    }

    /// A level arrow with words above it.
    pub(super) fn step(&mut self, y: i32, from: i32, to: i32, words: &str) {
        self.arrow((from, y), (to, y));
        self.note(from.min(to) + 6, y - 5, Anchor::Start, words);
    }

    pub(super) fn end(self) -> Document {
        self.0
    }
}
