//! Traces of commands: compared field by field, made compact, turned into notes of fields.
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use clap::{Parser, Subcommand};
use mlx5_model::watch::trace::{Command, compact, read};
use mlx5_model::watch::{Fields, diff};

/// Commands of a bring-up as text: in the form in which mlx5_core dumps them, or in the compact one
/// of `tests/data`.
#[derive(Parser)]
#[command(name = "cargo xtask trace")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Compare two traces, aligned by command
    Diff {
        /// The first
        first: PathBuf,
        /// The second
        second: PathBuf,
        /// Only what the drivers sent
        #[arg(long)]
        sent: bool,
        /// Addresses, object numbers and random values too
        #[arg(long)]
        all: bool,
    },
    /// Print a trace in the compact form
    Compact {
        /// In either form
        trace: PathBuf,
    },
    /// Print the notes of the fields that are set in a trace
    Fields {
        /// In either form
        trace: PathBuf,
    },
}

fn load(path: &Path) -> Result<Vec<Command>> {
    let text = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    let commands = read(&text).map_err(|error| anyhow!("{}: {error}", path.display()))?;
    match commands.is_empty() {
        true => Err(anyhow!("{}: no command in it", path.display())),
        false => Ok(commands),
    }
}

fn run() -> Result<String> {
    Ok(match Cli::parse().verb {
        Verb::Diff { first, second, sent, all } => {
            let (a, b) = (load(&first)?, load(&second)?);
            let mut text = format!(
                "- {} ({} commands)\n+ {} ({} commands)\n",
                first.display(),
                a.len(),
                second.display(),
                b.len()
            );
            for line in diff::compare(&a, &b, all) {
                if !(sent && line.is_answer()) {
                    text.push_str(&format!("{line}\n"));
                }
            }
            text
        }
        Verb::Compact { trace } => compact(&load(&trace)?),
        Verb::Fields { trace } => {
            let fields = Fields::default();
            for command in load(&trace)? {
                fields.command(command.opcode, &command.input, &command.output);
            }
            fields.to_string()
        }
    })
}

fn main() -> Result<()> {
    let text = run()?;
    match io::stdout().write_all(text.as_bytes()) {
        // The reader may have seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}
