//! `cargo xtask pictures`: the pictures of the documents, as SVG for light and dark pages.
//!
//! `architecture.svg` and `post.svg` are drawn from what stands here, and `cargo xtask tidy` compares
//! them. `demo.svg` is a run of the demo: its lines appear when they came.

mod demo;
mod draw;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use svg::Document;

use draw::{Anchor, Drawing};

const FOLDER: &str = "docs/pictures";

/// Writes all pictures.
pub(crate) fn pictures() -> Result<()> {
    let folder = dat_lab::run::root().join(FOLDER);
    fs::create_dir_all(&folder)?;
    for (name, picture) in drawn() {
        fs::write(folder.join(name), text(&picture))?;
    }
    fs::write(folder.join("demo.svg"), text(&demo::record()?))?;
    println!("{FOLDER}: architecture.svg, post.svg, demo.svg");
    Ok(())
}

/// Returns what is not up to date.
pub(crate) fn faults(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for (name, picture) in drawn() {
        let file = Path::new(FOLDER).join(name);
        let found = fs::read_to_string(root.join(&file)).unwrap_or_default();
        if found != text(&picture) {
            let file = file.display();
            faults.push(format!("{file} is not up to date: `cargo xtask pictures` writes it"));
        }
    }
    let demo = root.join(FOLDER).join("demo.svg");
    let text = fs::read_to_string(&demo).with_context(|| demo.display().to_string())?;
    if !text.contains("all contents verified on both sides") {
        faults.push(format!("{}: this is no run of the demo that succeeded", demo.display()));
    }
    Ok(faults)
}

fn text(picture: &Document) -> String {
    format!("{picture}\n")
}

fn drawn() -> [(&'static str, Document); 2] {
    [("architecture.svg", architecture()), ("post.svg", post())]
}

/// Who stands on whom.
fn architecture() -> Document {
    let mut page = Drawing::new(880, 500, "Crates and seams");
    let users = [
        ("a Rust program", "vfio_host::Nic"),
        ("dat", "vfio-host/dat"),
        ("DAT programs in C", "vfio-host/dapl"),
        ("firmware, unikernel", "its own loop"),
    ];
    for (nth, (title, below)) in (0..).zip(users) {
        page.card(20 + 215 * nth, 20, 195, 60, title, below);
    }
    page.card(
        20,
        110,
        840,
        80,
        "dat-core",
        "DAT objects, Endpoint states, events, connection manager: no_std, no heap, no unsafe",
    );
    page.seam(215, "provider seam: queue pairs, keys, datagrams of the connection manager");
    page.card(
        20,
        240,
        625,
        80,
        "hca-mlx5",
        "commands, event queues, work queues, keys, QP1, ARP and ND: no_std, no heap",
    );
    page.card(665, 240, 195, 80, "loop provider", "two HCAs of memory, for tests");
    page.seam(345, "platform seam: Bar, Dma, Clock");
    let hosts = [
        ("VFIO", "vfio-host"),
        ("vfio-user", "vfio-host"),
        ("in process", "tests/src/host"),
        ("bare metal", "tests/unikernel"),
    ];
    for (nth, (title, below)) in (0..).zip(hosts) {
        page.card(20 + 215 * nth, 370, 195, 50, title, below);
    }
    page.card(20, 440, 195, 50, "a ConnectX or BlueField", "PCI Express");
    page.card(
        235,
        440,
        625,
        50,
        "mlx5-model",
        "the device model: a process, a library, a device of QEMU",
    );
    page.arrow((117, 420), (117, 438));
    page.arrow((332, 420), (332, 438));
    page.arrow((547, 420), (547, 438));
    page.arrow((762, 420), (762, 438));
    page.end()
}

/// What passes between thread, memory and HCA for one request.
fn post() -> Document {
    let mut page = Drawing::new(880, 430, "A post and its completion");
    page.card(20, 20, 180, 390, "thread", "");
    page.card(350, 20, 180, 390, "memory", "");
    page.card(680, 20, 180, 390, "HCA", "");
    let (thread, left, right, hca) = (200, 350, 530, 680);
    page.note(110, 70, Anchor::Middle, "EpPoster::post_send");
    page.note(440, 78, Anchor::Middle, "request slot");
    page.note(440, 112, Anchor::Middle, "send ring");
    page.note(440, 146, Anchor::Middle, "doorbell record");
    page.note(770, 180, Anchor::Middle, "doorbell register");
    page.note(440, 214, Anchor::Middle, "send ring, payload");
    page.note(770, 248, Anchor::Middle, "6 packets");
    page.note(440, 282, Anchor::Middle, "completion ring");
    page.note(110, 300, Anchor::Middle, "EvdReaper::dequeue");
    page.note(440, 350, Anchor::Middle, "request slot");
    page.note(440, 384, Anchor::Middle, "consumer index");
    for (y, from, to, words) in [
        (74, thread, left, "1 request"),
        (108, thread, left, "2 WQE"),
        (142, thread, left, "3 fence, index"),
        (176, thread, hca, "4 fence, doorbell, or the WQE itself"),
        (210, right, hca, "5 reads"),
        (278, hca, right, "7 CQE, interrupt"),
        (312, left, thread, "8 owner bit, fence"),
        (346, left, thread, "9 event"),
        (380, thread, left, "10 index"),
    ] {
        page.step(y, from, to, words);
    }
    page.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_xml_and_each_word_is_inside() -> Result<()> {
        for (name, picture) in drawn() {
            let text = text(&picture);
            let page = roxmltree::Document::parse(&text)?;
            let root = page.root_element();
            assert_eq!(root.tag_name().name(), "svg", "{name}");
            let view: Vec<f64> = root
                .attribute("viewBox")
                .unwrap_or_default()
                .split(' ')
                .flat_map(str::parse)
                .collect();
            for word in page.descendants().filter(|node| node.has_tag_name("text")) {
                let place = |of| word.attribute(of).unwrap_or_default().parse::<f64>();
                let (x, y) = (place("x")?, place("y")?);
                assert!((0.0..=view[2]).contains(&x) && (0.0..=view[3]).contains(&y), "{name}");
            }
        }
        Ok(())
    }
}
