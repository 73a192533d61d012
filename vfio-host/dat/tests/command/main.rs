//! Tests of the `dat` command as a program, over machines that are folders of files.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod bind;
mod conditions;
mod conf;
mod golden;
mod hw_test;
mod list_doctor;
mod machine;
mod run;
mod vfs;
mod words;
