//! Valgrind, which counts instructions and looks for errors of memory: the machine's own, or an
//! unpacked one.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::folder;
use crate::images::packages::{Apt, LIBRARIES, alone, codename, unpack};
use crate::run;

/// The program where it is installed.
const NAME: &str = "valgrind";
/// What an unpacked one has: the program (beside it is a script that wants to be installed), its
/// tools, symbols as their package has them, and the folder below which it looks for them where
/// they are not installed: as far from it as the library is from the root.
const PROGRAM: &str = "usr/bin/valgrind.bin";
const TOOLS: &str = "usr/libexec/valgrind";
const PACKED: &str = "usr/lib/debug/.build-id";
const SYMBOLS: &str = "symbols";

/// A command that runs what its further words say under valgrind.
pub fn command() -> Result<Command> {
    if installed() {
        return Ok(Command::new(NAME));
    }
    let root = tree().context("no valgrind: install it, with the symbols of the C library (on Debian, `apt-get install valgrind`)")?;
    let mut command = Command::new(root.join(PROGRAM));
    let mut option = OsString::from("--extra-debuginfo-path=");
    option.push(root.join(SYMBOLS));
    command.env("VALGRIND_LIB", root.join(TOOLS)).arg(option);
    Ok(command)
}

fn installed() -> bool {
    let asked = Command::new(NAME).arg("--version").stdout(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// Unpacks it. Memcheck takes the place of functions of the loader, whose names are in a package of
/// their own: that of the very C library that the machine has.
fn tree() -> Result<PathBuf> {
    let mut ask = Command::new("dpkg-query");
    ask.args(["--show", "--showformat=${Version}", "libc6:amd64"]);
    let symbols = format!("libc6-dbg={}", run::silent(ask)?.trim());
    let folder = folder()?;
    let _alone = alone();
    let (root, mark) = (folder.join(NAME), folder.join(NAME).join(".made"));
    if !fs::read_to_string(&mark).is_ok_and(|made| made == symbols) {
        let release = codename()?;
        let apt = Apt::new(&folder, &[&release])?;
        apt.update()?;
        unpack(&apt.download(&release, &[NAME, &symbols])?, &root)?;
        let found = root.join(SYMBOLS).join(LIBRARIES);
        fs::create_dir_all(&found)?;
        for folder in fs::read_dir(root.join(PACKED))? {
            for file in fs::read_dir(folder?.path())? {
                let file = file?;
                fs::rename(file.path(), found.join(file.file_name()))?;
            }
        }
        fs::write(&mark, symbols)?;
    }
    Ok(root)
}
