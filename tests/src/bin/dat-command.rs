//! The `dat` command, as a program of this package: Cargo gives a test only the paths of its own
//! package's programs.

use std::process::ExitCode;

fn main() -> ExitCode {
    dat::main()
}
