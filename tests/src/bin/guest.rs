//! The program that `cargo xtask qemu-test` runs in its guests.

use std::process::ExitCode;

fn main() -> ExitCode {
    dat_tests::guest::main()
}
