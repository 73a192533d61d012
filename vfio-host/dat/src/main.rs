//! The `dat` command: see `dat --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    dat::main()
}
