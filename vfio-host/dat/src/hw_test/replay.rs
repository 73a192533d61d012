//! `dat hw-test --replay`: the test on a device that behaves as a report says.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use vfio_host::Address;

use super::super::End;
use super::super::args::HwTest;
use super::super::failure::Failure;
use super::super::out::Out;

/// The program that is the device.
const MODEL: &str = "mlx5-model";

/// The device, ended with the value.
struct Model(Child);

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder of its own, removed with the value.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the program: beside this one, or wherever the search path has it.
fn program() -> Result<PathBuf, Failure> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(MODEL));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(MODEL));
    beside.into_iter().chain(found).find(|file| file.is_file()).ok_or_else(|| {
        Failure::new(format!("{MODEL} is neither beside this program nor in PATH"))
            .remedy("cargo build --release -p mlx5-model --features mlx5-model/vfio-user")
    })
}

fn start(file: &Path, socket: &Path) -> Result<Model, Failure> {
    let program = program()?;
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", program.display()));
    let mut command = Command::new(&program);
    command.arg("--replay").arg(file).arg("--socket").arg(socket);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut model = Model(child.map_err(|error| failed(&error))?);
    let mut line = String::new();
    if let Some(out) = model.0.stdout.take() {
        BufReader::new(out).read_line(&mut line).map_err(|error| failed(&error))?;
    }
    if line.trim() != "ready" {
        return Err(failed(&"it did not get ready; what it said is above")
            .remedy(format!("is {} a report of dat hw-test?", file.display())));
    }
    Ok(model)
}

/// Starts the device and runs the test on it.
pub(super) fn run(args: &HwTest, file: &Path, out: &Out) -> Result<End, Failure> {
    let name = format!("dat-hw-test-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let failed = |error| Failure::new(format!("{}: {error}", folder.display()));
    std::fs::create_dir(&folder).map_err(failed)?;
    let folder = Folder(folder);
    let socket = folder.0.join("hca");
    let _model = start(file, &socket)?;
    let report = args.report.clone().unwrap_or_else(|| file.with_extension("replayed"));
    let args = HwTest {
        device: Some(Address::User(socket)),
        report: Some(report),
        replay: None,
        ..args.clone()
    };
    super::run(&args, out)
}
