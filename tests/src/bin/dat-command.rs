//! The `dat` command, as a program of this package: a test is told the path of no other package's
//! programs.

use std::process::ExitCode;

fn main() -> ExitCode {
    dat::main()
}
