//! Running commands, each printed before it runs.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// Returns the folder of the workspace.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap_or_default()
}

/// Returns the folder of what cargo builds.
pub fn target() -> Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root()).no_deps().exec()?;
    Ok(metadata.target_directory.into_std_path_buf())
}

/// Makes a command of the cargo that runs this, in the workspace.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Formats a command as one would type it.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let mut line = String::new();
    for (i, word) in words.enumerate() {
        let word = word.to_string_lossy();
        let word =
            if i == 0 { word.rsplit('/').next().unwrap_or(&word).to_owned() } else { word.into() };
        line.push_str(if i == 0 { "" } else { " " });
        line.push_str(&word);
    }
    line
}

/// Prints a command and runs it, with its output as it comes. `failure` says what it means if it
/// fails.
pub fn plain(mut command: Command, failure: &'static str) -> Result<()> {
    println!("$ {}", shown(&command));
    let status = command.status().with_context(|| shown(&command))?;
    ensure!(status.success(), failure);
    Ok(())
}

/// Prints a command, runs it and returns its output. Prints the output only if it fails.
pub fn capture(command: Command) -> Result<String> {
    println!("$ {}", shown(&command));
    silent(command)
}

/// Runs a command like [`capture`], but does not print it.
pub fn silent(mut command: Command) -> Result<String> {
    let out = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{}`", shown(&command)))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    if !out.status.success() {
        print!("{text}");
        eprint!("{}", String::from_utf8_lossy(&out.stderr));
        bail!("`{}` ended with {}", shown(&command), out.status);
    }
    Ok(text)
}
