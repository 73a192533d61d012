//! A run of a program under an MPI library, and what it has to say.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::{needed, source};
use crate::guest::stage::{Id, Stage};
use crate::images::mpi::Intel;
use crate::matrix::dat;
use crate::run;

/// The name of each rank's Interface Adapter.
const NAME: &str = "hca";
/// Environment of Intel MPI: uDAPL and nothing else, local ranks without ssh.
pub(super) const INTEL: [(&str, &str); 6] = [
    ("I_MPI_FABRICS", "dapl"),
    ("I_MPI_FALLBACK", "0"),
    ("I_MPI_HYDRA_BOOTSTRAP", "fork"),
    ("I_MPI_DAPL_PROVIDER", NAME),
    ("I_MPI_PIN", "0"),
    // More ranks than processors.
    ("I_MPI_SPIN_COUNT", "1"),
];
/// The parts of `verify.c`, but for those that have to be named.
pub(super) const PARTS: [&str; 8] =
    ["ring", "pingpong", "nonblocking", "collectives", "onesided", "probed", "fresh", "forks"];
/// Longer than any run takes.
const LIMIT: Duration = Duration::from_secs(150);
/// How long the model may take to end.
const ENDS: Duration = Duration::from_secs(10);

/// A library, by where it is.
#[derive(Debug, Clone)]
pub(super) enum Library {
    /// Intel MPI.
    Intel(Intel),
    /// An installation of Open MPI.
    Open(PathBuf),
    /// An installation of MVAPICH2.
    Mvapich(PathBuf),
}

/// A program: its name, and what the compiler gets before and behind the library.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) words: Vec<OsString>,
    pub(super) libraries: Vec<OsString>,
}

impl Program {
    /// One of ours, of a single file.
    pub(super) fn own(name: &'static str) -> Self {
        let mut words: Vec<OsString> =
            ["-pthread", "-Wall", "-Wextra", "-Wno-stringop-overflow"].map(OsString::from).into();
        words.push(source(&format!("{name}.c")).into());
        Self { name, words, libraries: Vec::new() }
    }
}

/// What runs: ranks, what their environment has more, the program's arguments, and the parts that
/// it has to say it did.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job<'j> {
    pub(super) ranks: usize,
    pub(super) environment: &'j [(&'j str, &'j str)],
    pub(super) words: &'j [&'j str],
    pub(super) parts: &'j [&'j str],
}

/// A library with the program for it.
pub(super) struct Rig {
    library: Library,
    /// The program.
    pub(super) program: PathBuf,
    /// What answers for the limit of locked memory, where it cannot be raised.
    memlock: Option<PathBuf>,
    provider: PathBuf,
    registry: PathBuf,
    dat: PathBuf,
}

/// The model and its functions.
pub(super) struct Functions {
    pub(super) server: Id,
    devices: Vec<String>,
}

impl Rig {
    /// Compiles the program.
    pub(super) fn new(stage: &Stage<'_>, library: Library, what: &Program) -> Result<Self> {
        let [provider, registry] = dat::provider()?;
        let program = stage.path(what.name);
        let mut cc = match &library {
            Library::Intel(intel) => {
                let mut cc = compiler();
                cc.arg("-I").arg(needed(&intel.include)?);
                cc
            }
            Library::Open(prefix) | Library::Mvapich(prefix) => {
                Command::new(needed(&prefix.join("bin/mpicc"))?)
            }
        };
        cc.args(["-O2", "-g", "-o"]).arg(&program).args(&what.words);
        if let Library::Intel(intel) = &library {
            cc.arg(needed(&intel.root.join("intel64/lib/libmpi.so.12"))?);
        }
        cc.args(&what.libraries);
        run::capture(cc)?;
        let mut memlock = None;
        if matches!(library, Library::Intel(_)) && !raises() {
            let to = stage.path("memlock.so");
            let mut cc = compiler();
            cc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&to).arg(source("memlock.c"));
            run::capture(cc)?;
            memlock = Some(to);
        }
        Ok(Self { library, program, memlock, provider, registry, dat: stage.built("dat") })
    }

    /// What a reader of the table has to know.
    pub(super) fn note(&self) -> String {
        match self.memlock {
            Some(_) => "RLIMIT_MEMLOCK: cannot be raised on this machine; each rank loads tests/mpi/memlock.c, \
                        without which Intel MPI refuses to start"
                .to_owned(),
            None => "RLIMIT_MEMLOCK: raised, nothing is loaded before the program".to_owned(),
        }
    }

    /// Starts a model with a function for each rank.
    pub(super) fn functions(&self, stage: &mut Stage<'_>, ranks: usize) -> Result<Functions> {
        let sockets: Vec<PathBuf> = (0..ranks).map(|nth| stage.path(&format!("s{nth}"))).collect();
        let named: Vec<&Path> = sockets.iter().map(PathBuf::as_path).collect();
        let server = stage.server("model", &named, &[])?;
        let device = |socket: &PathBuf| format!("vfio-user:{}", socket.display());
        Ok(Functions { server, devices: sockets.iter().map(device).collect() })
    }

    /// The command of a run.
    pub(super) fn command(
        &self,
        stage: &Stage<'_>,
        functions: &Functions,
        job: &Job<'_>,
    ) -> Command {
        let ranks = job.ranks.to_string();
        let mut command = match &self.library {
            Library::Intel(intel) => {
                let lib = intel.root.join("intel64/lib");
                let mut mpiexec = Command::new(intel.root.join("intel64/bin/mpiexec.hydra"));
                mpiexec.env("I_MPI_ROOT", &intel.root).env("LD_LIBRARY_PATH", self.libraries(&lib));
                mpiexec.envs(INTEL);
                mpiexec.env("I_MPI_DAT_LIBRARY", self.registry.join("libdat2.so.2"));
                mpiexec.args(["-n", &ranks]);
                mpiexec
            }
            Library::Open(prefix) => {
                let mut mpirun = Command::new(prefix.join("bin/mpirun"));
                mpirun.env("LD_LIBRARY_PATH", self.libraries(&prefix.join("lib")));
                mpirun.env("OPAL_PREFIX", prefix).env("OMPI_ALLOW_RUN_AS_ROOT", "1");
                mpirun.args(["--mca", "btl", "udapl,self", "--mca", "mpi_yield_when_idle", "1"]);
                mpirun.args(["-np", &ranks]);
                mpirun
            }
            Library::Mvapich(prefix) => {
                let mut mpiexec = Command::new(prefix.join("bin/mpiexec.hydra"));
                mpiexec.env("LD_LIBRARY_PATH", self.libraries(&prefix.join("lib")));
                mpiexec.env("MV2_DAPL_PROVIDER", NAME).env("MV2_ENABLE_AFFINITY", "0");
                mpiexec.args(["-launcher", "fork", "-n", &ranks]);
                mpiexec
            }
        };
        command.envs(job.environment.iter().copied()).env("TMPDIR", stage.path(""));
        command.current_dir(stage.path(""));
        command.arg(&self.dat).args(["run", "--name", NAME, "--library"]).arg(&self.provider);
        for (nth, device) in functions.devices.iter().enumerate() {
            command.arg(device).args(["--ip", &format!("192.168.7.{}/24", nth + 1)]);
        }
        command.arg("--");
        if let Some(library) = &self.memlock {
            command.arg("env").arg(format!("LD_PRELOAD={}", library.display()));
        }
        command.arg(&self.program).args(job.words);
        command
    }

    /// The path of libraries: those of the MPI library, and the registry.
    fn libraries(&self, lib: &Path) -> String {
        format!("{}:{}", lib.display(), self.registry.display())
    }

    /// Runs the program on functions of its own, and returns what it said; fails if contents were
    /// wrong, or the model has something to say.
    pub(super) fn verified(&self, stage: &mut Stage<'_>, job: &Job<'_>) -> Result<Vec<String>> {
        let functions = self.functions(stage, job.ranks)?;
        let ended = self.once(stage, &functions, job);
        // Whatever failed, the functions are free for the next row.
        let report = report(stage, functions.server, None);
        let said = ended?;
        used(&report?)?;
        Ok(said)
    }

    /// Runs the program, which has to end well, and returns what it said.
    pub(super) fn once(
        &self,
        stage: &mut Stage<'_>,
        functions: &Functions,
        job: &Job<'_>,
    ) -> Result<Vec<String>> {
        let id = stage.start("mpiexec", self.command(stage, functions, job))?;
        let end = stage.outcome(id, LIMIT);
        if end.is_none() {
            end_ranks(&self.program)?;
        }
        // Reads what it still had to say.
        stage.kill(id);
        let [said, _] = stage.outputs(id);
        let tail = stage.tail(id);
        if let Some(line) = said.iter().find(|line| line.contains("WRONG")) {
            bail!("{line}\n{tail}");
        }
        match end {
            None => bail!("does not end within {} s{tail}", LIMIT.as_secs()),
            Some(status) if !status.success() => bail!("ended with {status}{tail}"),
            Some(_) => {}
        }
        for part in job.parts {
            let good = format!("ok {part} ");
            ensure!(said.iter().any(|line| line.starts_with(&good)), "no \"{good}\"{tail}");
        }
        Ok(said)
    }
}

/// Ends the model. Returns its report, in which nothing may be left; lines with `expected` are no
/// faults.
pub(super) fn report(
    stage: &mut Stage<'_>,
    server: Id,
    expected: Option<&str>,
) -> Result<Vec<String>> {
    stage.hang_up(server, ENDS)?;
    let report = stage.complaints(server);
    for line in &report {
        let line = line.trim();
        let bad = ["complaint: ", "refused ", "note: "].iter().any(|word| line.starts_with(word));
        let fault = bad && !expected.is_some_and(|part| line.contains(part));
        ensure!(!fault, "the model says: {line}");
        if line.contains(" clients, ") {
            let clean = line.contains(" 0 refused, ") && line.ends_with(", 0 mappings left");
            ensure!(clean, "the model has something left: {line}");
        }
    }
    ensure!(report.iter().any(|line| line.contains(" clients, ")), "the model reports nothing");
    Ok(report)
}

/// Fails if a function of a report was not used.
pub(super) fn used(report: &[String]) -> Result<()> {
    for line in report.iter().filter(|line| line.contains(" clients, ")) {
        ensure!(!line.contains(" 0 work requests"), "a rank did not use its function: {line}");
    }
    Ok(())
}

/// Processes that run a program.
pub(super) fn running(program: &Path) -> Result<Vec<u32>> {
    let program = std::fs::canonicalize(program)?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        if std::fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Ends the processes that run a program.
fn end_ranks(program: &Path) -> Result<()> {
    for pid in running(program)? {
        kill(pid)?;
    }
    Ok(())
}

/// Ends a process at once.
pub(super) fn kill(pid: u32) -> Result<()> {
    let status = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    status.context("kill").map(drop)
}

fn compiler() -> Command {
    Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

/// Whether this machine lets the limit of locked memory be raised.
fn raises() -> bool {
    let ulimit = Command::new("sh").args(["-c", "ulimit -l unlimited 2> /dev/null"]).status();
    ulimit.is_ok_and(|status| status.success())
}
