//! The model as a server of its own: see `mlx5-model --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    mlx5_model::program::main()
}
