//! `dat install-provider`: installs the uDAPL provider, the header of its extension and its lines
//! of `dat.conf` below a folder.
//!
//! Running it again changes only what differs. Files are replaced by renaming, so that a consumer
//! that starts meanwhile finds either the old or the new file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::End;
use super::args::InstallProvider;
use super::conf::{self, LIBRARY, Line};
use super::failure::Failure;
use super::out::Out;

/// The header of the provider's own extension, beside the stock headers.
const HEADER: (&str, &[u8]) =
    ("include/dat2/dat_dapldat.h", include_bytes!("../include/dat_dapldat.h"));

/// The default file of registries.
const USUAL: &str = "/etc/dat.conf";

/// The result of the command.
#[derive(Debug, Serialize)]
struct Done {
    library: PathBuf,
    header: PathBuf,
    conf: PathBuf,
    lines: Vec<Line>,
    changed: bool,
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::new(format!("{}: cannot be {what}: {error}", path.display()));
    if error.kind() == io::ErrorKind::PermissionDenied {
        return failure.remedy("run it with sudo, or give --prefix a folder of your own");
    }
    failure
}

/// Returns the provider's file: the named one, or the one beside this program.
fn source(install: &InstallProvider) -> Result<PathBuf, Failure> {
    if let Some(named) = &install.library {
        return Ok(named.clone());
    }
    let own = std::env::current_exe().map_err(|error| {
        Failure::new(format!("the path of this program cannot be read: {error}"))
    })?;
    let beside = own.parent().unwrap_or(Path::new("/")).join(LIBRARY);
    if beside.exists() {
        return Ok(beside);
    }
    Err(
        Failure::new(format!("{}: there is no such file", beside.display())).remedy(
            "build it (cargo build --profile provider -p dapldat) and name it: --library target/provider/libdapldat.so",
        ),
    )
}

/// Replaces the contents of a file if they differ. Returns whether it was changed.
fn put(path: &Path, contents: &[u8]) -> Result<bool, Failure> {
    if fs::read(path).is_ok_and(|old| old == contents) {
        return Ok(false);
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(|error| failed("made", folder, &error))?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    fs::write(&beside, contents).map_err(|error| failed("written", &beside, &error))?;
    fs::rename(&beside, path).map_err(|error| failed("replaced", path, &error))?;
    Ok(true)
}

/// Merges lines into the text of a file: replaces our lines of the same names and keeps all others.
fn merged(old: &str, lines: &[Line], at: &Path) -> Result<String, Failure> {
    let ours = |words: &[&str]| {
        let library = words.get(4).map(Path::new).and_then(Path::file_name);
        library.is_some_and(|name| name == LIBRARY)
    };
    let mut left: Vec<&Line> = lines.iter().collect();
    let mut text = String::new();
    for (nth, before) in old.lines().enumerate() {
        let words: Vec<&str> = before.split_whitespace().collect();
        let same = |line: &Line| {
            words.first() == Some(&line.name.as_str())
                && (words.get(2) == Some(&"threadsafe")) == line.threadsafe
        };
        if let Some(line) = lines.iter().find(|line| same(line)) {
            if !ours(&words) {
                return Err(Failure::new(format!(
                    "{}: line {} has the name {} already, with another provider: {}",
                    at.display(),
                    nth + 1,
                    line.name,
                    words.get(4).unwrap_or(&"")
                ))
                .remedy("choose another name with --name, or take that line out"));
            }
            // The registry would use a second line of the same name too.
            if let Some(place) = left.iter().position(|it| it.name == line.name) {
                left.remove(place);
                text.push_str(&format!("{line}\n"));
            }
            continue;
        }
        text.push_str(before);
        text.push('\n');
    }
    text.push_str(&conf::text(&left.into_iter().cloned().collect::<Vec<_>>()));
    Ok(text)
}

pub(crate) fn run(install: &InstallProvider, out: &Out) -> Result<End, Failure> {
    let prefix = std::path::absolute(&install.prefix)
        .map_err(|error| failed("found", &install.prefix, &error))?;
    let library = prefix.join("lib").join(LIBRARY);
    let header = prefix.join(HEADER.0);
    let file = match &install.conf {
        Some(named) => std::path::absolute(named).map_err(|e| failed("found", named, &e))?,
        None => prefix.join("etc/dat.conf"),
    };
    // Check all arguments before the first change.
    let lines = conf::lines(&install.lines, &install.root.tree(), &library)?;
    let source = source(install)?;
    let provider = fs::read(&source).map_err(|error| failed("read", &source, &error))?;
    if !provider.starts_with(b"\x7fELF") {
        return Err(Failure::new(format!("{}: not a library", source.display()))
            .remedy("--library names libdapldat.so"));
    }
    let old = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed("read", &file, &error)),
    };
    let new = merged(&old, &lines, &file)?;

    let changed = [put(&library, &provider)?, put(&header, HEADER.1)?, put(&file, new.as_bytes())?];
    let word = |changed: bool| if changed { "written" } else { "unchanged" };
    let mut text = format!(
        "{}: {}\n{}: {}\n{}: {}\n{}",
        library.display(),
        word(changed[0]),
        header.display(),
        word(changed[1]),
        file.display(),
        word(changed[2]),
        conf::text(&lines)
    );
    if file != Path::new(USUAL) {
        text.push_str(&format!("consumers find it with DAT_OVERRIDE={}\n", file.display()));
    }
    let done = Done { library, header, conf: file, lines, changed: changed.contains(&true) };
    out.result(&done, &text)?;
    Ok(End::Ok)
}
