//! Our side of programs of rdma-core, for the matrix against stock Linux.

use std::process::ExitCode;

fn main() -> ExitCode {
    dat_tests::interop::main()
}
