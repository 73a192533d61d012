//! Running commands, each printed before it runs.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The folder of the workspace.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap_or_default()
}

/// The cargo that runs this, in the workspace.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// The command as one would type it.
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

/// Runs a command to its end; what it printed is shown only if it fails.
pub fn quiet(command: Command) -> Result<String> {
    println!("$ {}", shown(&command));
    silent(command)
}

/// As [`quiet`], for commands that nobody would want to type.
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
