//! Replays the corpus of every target. What the fuzzer has found once stands there, too.

use std::fs;
use std::path::Path;

use dat_fuzz::TARGETS;

/// The corpus is kept small: it is in the repository, and replayed by every run of the tests.
const MOST_BYTES: u64 = 3 << 20;

fn corpus() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"))
}

#[test]
fn every_target_has_a_corpus_and_takes_it() {
    let mut bytes = 0;
    for target in TARGETS {
        let folder = corpus().join(target.name);
        let mut files: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{}: no input", folder.display());
        for file in files {
            let input = fs::read(&file).unwrap();
            bytes += input.len() as u64;
            // Names the input of a panic.
            eprintln!("{}", file.display());
            (target.run)(&input);
        }
    }
    assert!(bytes < MOST_BYTES, "{bytes} bytes: `cargo xtask fuzz --minimize`");
}

#[test]
fn every_folder_of_the_corpus_is_of_a_target() {
    for entry in fs::read_dir(corpus()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(TARGETS.iter().any(|target| target.name == name), "{name}");
    }
}

/// No input, the shortest ones, and long ones of one byte.
#[test]
fn every_target_takes_plain_inputs() {
    for target in TARGETS {
        for len in [0, 1, 2, 3, 16, 64, 300] {
            for byte in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                (target.run)(&vec![byte; len]);
            }
        }
    }
}
