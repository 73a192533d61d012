//! `dat run`: starts the ranks of a DAT program, or becomes one inside `mpiexec`, each with a
//! function of its own.
//!
//! The registry file of a function, in a private folder, is also its lock (`flock`): the program
//! inherits the open file, so that the kernel releases the function when the rank's last process
//! ends, however it ends. A launcher starts each rank through this program, which asks the kernel to
//! end it with the launcher and then becomes the program.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getppid, getrlimit, getuid,
    kill_process_group, set_parent_process_death_signal, setrlimit, waitid,
};
use vfio_host::Address;

use super::End;
use super::args::Run;
use super::conf::{self, LIBRARY, Line};
use super::failure::Failure;
use super::needs::Needs;
use super::process::{Process, memlock};
use super::signals;
use super::tree::Tree;

/// The launcher's process, for the process that becomes a rank.
const LAUNCHER: &str = "DAT_RUN_LAUNCHER";
/// The rank and the number of ranks, for the program.
const RANK: &str = "DAT_RUN_RANK";
const SIZE: &str = "DAT_RUN_SIZE";
/// What the registry reads instead of `/etc/dat.conf`.
const OVERRIDE: &str = "DAT_OVERRIDE";
/// Where launchers say the rank, those that count on this machine alone first.
const RANKS: [&str; 4] =
    ["MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "PMI_RANK"];
/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// How often the ranks are looked at.
const POLL: Duration = Duration::from_millis(5);

/// A function, with the lines of its registry file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Function {
    device: Address,
    lines: Vec<Line>,
}

/// A function that belongs to a rank as long as the file is open.
#[derive(Debug)]
struct Claim {
    file: File,
    conf: PathBuf,
}

/// A rank that was started.
struct Rank {
    child: Child,
    pid: Pid,
    status: Option<ExitStatus>,
}

pub(crate) fn run(run: &Run) -> Result<End, Failure> {
    if let Some(launcher) = env::var_os(LAUNCHER) {
        return become_rank(run, &launcher);
    }
    let functions = functions(run)?;
    raise_memlock(&functions, &run.root.tree())?;
    let Some(ranks) = run.ranks else {
        let rank = rank(&functions)?;
        let function = functions.get(rank).ok_or_else(|| too_many(rank + 1, functions.len()))?;
        let claim = claim(function)?;
        inherit(&claim, true)?;
        return exec(run, |command| {
            command.env(OVERRIDE, &claim.conf);
        });
    };
    let ranks = usize::from(ranks);
    let chosen = functions.get(..ranks).ok_or_else(|| too_many(ranks, functions.len()))?;
    let claims = chosen.iter().map(claim).collect::<Result<Vec<_>, _>>()?;
    signals::watch()?;
    signals::keep_ends_of_children()?;
    let mut started = Vec::new();
    let code = start(claims, &mut started).and_then(|()| supervise(&mut started));
    if code.is_err() {
        end(&mut started)?;
    }
    code.map(End::Code)
}

fn too_many(ranks: usize, functions: usize) -> Failure {
    let noun = if functions == 1 { "function is" } else { "functions are" };
    Failure::new(format!("{ranks} ranks, but {functions} {noun} named, and each rank takes one"))
        .remedy("name more devices (--vfs takes the virtual functions of one), or start fewer ranks on this machine")
}

/// Returns the functions in their order.
fn functions(run: &Run) -> Result<Vec<Function>, Failure> {
    if let Some(file) = &run.conf {
        let text = fs::read_to_string(file).map_err(|error| {
            Failure::new(format!("{}: cannot be read: {error}", file.display()))
                .remedy("dat conf prints such a file")
        })?;
        return of_text(file, &text, &run.lines.name);
    }
    let library = run.library.clone().unwrap_or_else(|| {
        let own = env::current_exe().unwrap_or_default();
        let beside = own.with_file_name(LIBRARY);
        if beside.exists() { beside } else { PathBuf::from(LIBRARY) }
    });
    let mut functions = Vec::<Function>::new();
    for line in conf::lines(&run.lines, &run.root.tree(), &library)? {
        let device = device(&line.parameters)
            .ok_or_else(|| Failure::usage(format!("{}: no device", line.parameters)))?;
        if functions.iter().any(|other| other.device == device) {
            return Err(Failure::usage(format!("{device} is named twice, for two ranks"))
                .remedy("name a function of its own for each rank"));
        }
        // The name of each rank's only function has no number.
        let line = Line { name: run.lines.name.clone(), ..line };
        functions.push(Function { device, lines: vec![line] });
    }
    Ok(functions)
}

/// Returns the functions of a `dat.conf`. Lines of other providers do not count.
fn of_text(file: &Path, text: &str, name: &str) -> Result<Vec<Function>, Failure> {
    let mut functions = Vec::<Function>::new();
    for (nth, text) in text.lines().enumerate() {
        let Some(line) = registered(text) else { continue };
        let failed = |cause: &str, remedy: &str| {
            let object = format!("{}: line {}", file.display(), nth + 1);
            Err(Failure::new(format!("{object} {cause}: {}", text.trim())).remedy(remedy))
        };
        let Some(device) = device(&line.parameters) else {
            return failed("names no device", "its parameters begin with the device; see dat conf");
        };
        if !line.parameters.split_whitespace().any(|word| word.starts_with("ip=")) {
            return failed(
                "has no ip=",
                "add ip=ADDRESS/PREFIX to its parameters, or use dat conf",
            );
        }
        let at = functions.iter().position(|other| other.device == device);
        let at = at.unwrap_or_else(|| {
            functions.push(Function { device, lines: Vec::new() });
            functions.len() - 1
        });
        if let Some(function) = functions.get_mut(at) {
            let common = Line { name: name.to_owned(), ..line.clone() };
            for line in [common, line] {
                let same = |it: &Line| (&it.name, it.threadsafe) == (&line.name, line.threadsafe);
                if !function.lines.iter().any(same) {
                    function.lines.push(line);
                }
            }
        }
    }
    if functions.is_empty() {
        return Err(Failure::new(format!("{}: no line is of {LIBRARY}", file.display()))
            .remedy("dat conf prints such lines"));
    }
    Ok(functions)
}

/// Reads a line of `dat.conf`; `None` if it is not of this provider.
fn registered(text: &str) -> Option<Line> {
    let mut parts = text.split('"');
    let words: Vec<&str> = parts.next()?.split_whitespace().collect();
    let [name, _, threads, _, library, ..] = words[..] else { return None };
    let ours = Path::new(library).file_name() == Some(OsStr::new(LIBRARY));
    if !ours || name.starts_with('#') {
        return None;
    }
    Some(Line {
        name: name.to_owned(),
        threadsafe: threads == "threadsafe",
        library: library.to_owned(),
        parameters: parts.next().unwrap_or_default().to_owned(),
    })
}

/// Returns the device of parameters, with a socket's path in full: two ranks may name it otherwise.
fn device(parameters: &str) -> Option<Address> {
    let device = parameters.split_whitespace().next()?.parse().ok()?;
    Some(match device {
        Address::User(path) => Address::User(fs::canonicalize(&path).unwrap_or(path)),
        Address::Pci(_) => device,
    })
}

/// Raises the limit of locked memory as far as it goes, for this process and its children: MPI
/// libraries look at it whatever the device. Refuses one under which VFIO could map nothing.
fn raise_memlock(functions: &[Function], tree: &Tree) -> Result<(), Failure> {
    let hard = getrlimit(Resource::Memlock).maximum;
    for limit in [None, hard] {
        if setrlimit(Resource::Memlock, Rlimit { current: limit, maximum: limit }).is_ok() {
            break;
        }
    }
    let Some(limit) = memlock(tree).and_then(|limit| limit.soft) else { return Ok(()) };
    if Process::new(tree).locks_freely() {
        return Ok(());
    }
    let Needs { arena, firmware, .. } = Needs::default();
    let need = arena + firmware;
    for function in functions {
        if matches!(function.device, Address::Pci(_)) && limit < need {
            return Err(Failure::new(format!(
                "{}: VFIO locks about {} MiB for it, but RLIMIT_MEMLOCK is {} KiB and may not be raised here",
                function.device,
                need >> 20,
                limit >> 10
            ))
            .remedy("set memlock to unlimited in /etc/security/limits.conf (a service: LimitMEMLOCK=infinity) and log in again"));
        }
    }
    Ok(())
}

/// Returns the rank that a launcher gave this process.
fn rank(functions: &[Function]) -> Result<usize, Failure> {
    for name in RANKS {
        if let Ok(text) = env::var(name) {
            return text.parse().map_err(|_| {
                Failure::usage(format!("{name}={text} is no rank")).remedy("start it by mpiexec")
            });
        }
    }
    if functions.len() == 1 {
        return Ok(0);
    }
    let names = RANKS.join(", ");
    Err(Failure::usage(format!("none of {names} says which rank this is"))
        .remedy("give -n RANKS to start the ranks, or start it by mpiexec"))
}

/// Returns the private folder.
fn folder() -> Result<PathBuf, Failure> {
    let uid = getuid().as_raw();
    let folder = env::temp_dir().join(format!("dat-run-{uid}"));
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Failure::new(format!("{}: cannot be made: {error}", folder.display()))
                .remedy("set TMPDIR to a folder that this user may write"));
        }
        Ok(()) | Err(_) => {}
    }
    let private = fs::symlink_metadata(&folder)
        .is_ok_and(|it| it.is_dir() && it.uid() == uid && it.mode() & 0o077 == 0);
    if private {
        return Ok(folder);
    }
    Err(Failure::new(format!("{}: not a folder of this user's alone", folder.display()))
        .remedy("remove it, or set TMPDIR to another folder"))
}

/// Claims a function and writes its registry file.
fn claim(function: &Function) -> Result<Claim, Failure> {
    let name = function.device.to_string().replace('%', "%25").replace('/', "%2F");
    let conf = folder()?.join(format!("{name}.conf"));
    let failed = |error: io::Error| Failure::new(format!("{}: {error}", conf.display()));
    // The file of another rank is not touched before the lock is held.
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let mut file = file.custom_flags(no_follow).open(&conf).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            return Err(Failure::new(format!(
                "{}: another rank uses this function",
                function.device
            ))
            .remedy(
                "name a function of its own for each rank, or wait until that rank has ended",
            ));
        }
        Err(error) => return Err(failed(error.into())),
    }
    let text = conf::text(&function.lines);
    file.set_len(0).and_then(|()| file.write_all(text.as_bytes())).map_err(failed)?;
    Ok(Claim { file, conf })
}

/// Sets whether programs that this process starts or becomes inherit a claim.
fn inherit(claim: &Claim, inherits: bool) -> Result<(), Failure> {
    let flags = if inherits { FdFlags::empty() } else { FdFlags::CLOEXEC };
    fcntl_setfd(&claim.file, flags)
        .map_err(|error| Failure::new(format!("{}: {error}", claim.conf.display())))
}

/// Becomes the program; returns only if that fails.
fn exec(run: &Run, prepare: impl FnOnce(&mut Command)) -> Result<End, Failure> {
    let Some((program, args)) = run.program.split_first() else {
        return Err(Failure::usage("no program"));
    };
    let mut command = Command::new(program);
    command.args(args).env_remove(LAUNCHER);
    prepare(&mut command);
    let error = command.exec();
    Err(Failure::new(format!("{}: cannot be run: {error}", Path::new(program).display()))
        .remedy("name an executable file, or one that PATH finds"))
}

/// Becomes a rank of the launcher that started this process, and ends with it.
fn become_rank(run: &Run, launcher: &OsStr) -> Result<End, Failure> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| {
        Failure::new(format!("the end of the launcher cannot be noticed: {error}"))
    })?;
    // It may have ended before that call.
    let parent = getppid().map(|pid| pid.as_raw_nonzero().to_string());
    if parent.as_deref().map(OsStr::new) != Some(launcher) {
        return Err(Failure::new("the launcher has ended"));
    }
    exec(run, |_| {})
}

/// Starts a rank for each claim.
fn start(claims: Vec<Claim>, started: &mut Vec<Rank>) -> Result<(), Failure> {
    let own = env::current_exe().map_err(|error| {
        Failure::new(format!("the path of this program cannot be read: {error}"))
    })?;
    let size = claims.len();
    for (rank, claim) in claims.into_iter().enumerate() {
        // Only this rank inherits it, and only this rank keeps it.
        inherit(&claim, true)?;
        let mut command = Command::new(&own);
        command
            .args(env::args_os().skip(1))
            .env(LAUNCHER, std::process::id().to_string())
            .env(RANK, rank.to_string())
            .env(SIZE, size.to_string())
            .env(OVERRIDE, &claim.conf)
            .stdin(Stdio::null())
            // What the rank starts ends with it.
            .process_group(0);
        let child = command.spawn().map_err(|error| {
            Failure::new(format!("rank {rank} cannot be started: {error}"))
                .remedy("if dat was installed anew or removed meanwhile, start it again")
        })?;
        started.push(Rank { pid: Pid::from_child(&child), child, status: None });
    }
    Ok(())
}

impl Rank {
    /// Returns whether it has ended; what it left in its process group is ended with it.
    fn look(&mut self) -> Result<bool, Failure> {
        if self.status.is_some() {
            return Ok(true);
        }
        let failed = |error: io::Error| Failure::new(format!("a rank is lost: {error}"));
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if waitid(WaitId::Pid(self.pid), options).map_err(|error| failed(error.into()))?.is_none() {
            return Ok(false);
        }
        // Until it is waited for, no other group has its number.
        self.signal(Signal::KILL);
        self.status = Some(self.child.wait().map_err(failed)?);
        Ok(true)
    }

    /// Sends a signal to all of its processes, of which none may be left.
    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.pid, signal);
    }

    /// Returns its exit code, as a shell would.
    fn code(&self) -> u8 {
        let code = self.status.map_or(1, |status| {
            status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
        });
        u8::try_from(code).unwrap_or(1)
    }
}

/// Waits for the ranks; when one fails, or a signal asks for it, ends all. Returns the exit code.
fn supervise(ranks: &mut [Rank]) -> Result<u8, Failure> {
    loop {
        let mut running = false;
        for rank in &mut *ranks {
            running |= !rank.look()?;
        }
        let failed = ranks.iter().position(|rank| rank.status.is_some() && rank.code() != 0);
        if let Some(nth) = failed {
            let code = ranks.get(nth).map_or(1, Rank::code);
            let how = ranks.get(nth).and_then(|rank| rank.status);
            let how = how.map_or_else(String::new, |status| status.to_string());
            super::out::note(&format!("dat: rank {nth} ended: {how}"));
            end(ranks)?;
            return Ok(code);
        }
        if signals::asked() {
            end(ranks)?;
            return Ok(signals::ENDED);
        }
        if !running {
            return Ok(0);
        }
        thread::sleep(POLL);
    }
}

/// Ends the ranks that still run.
fn end(ranks: &mut [Rank]) -> Result<(), Failure> {
    for (signal, within) in [(Signal::TERM, GRACE), (Signal::KILL, GRACE * 5)] {
        let until = Instant::now() + within;
        for rank in &mut *ranks {
            if !rank.look()? {
                rank.signal(signal);
            }
        }
        loop {
            let mut running = false;
            for rank in &mut *ranks {
                running |= !rank.look()?;
            }
            if !running {
                return Ok(());
            }
            if Instant::now() > until {
                break;
            }
            thread::sleep(POLL);
        }
    }
    Err(Failure::new("a rank does not end on SIGKILL").remedy("dmesg may say what it waits for"))
}
