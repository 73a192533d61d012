//! `dat run`: ranks, their functions, and their ends.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

use crate::machine::{Machine, Run};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);
/// Two functions, which nothing here opens.
const TWO: &str = "vfio-user:/run/a vfio-user:/run/b --ip 10.0.0.1/24 --ip 10.0.0.2/24";
/// A rank that prints what it was given.
const SHOWS: &str = "echo \"rank $DAT_RUN_RANK of $DAT_RUN_SIZE: $(cat $DAT_OVERRIDE)\"";

/// A user with a private folder of temporary files.
struct User(TempDir);

impl User {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    /// `dat run ARGS -- sh -c SCRIPT`, outside any launcher.
    fn command(&self, args: &str, script: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
        command.arg("run").args(args.split_whitespace()).args(["--", "sh", "-c", script]);
        command.env("TMPDIR", self.0.path()).env("HERE", self.0.path()).stdin(Stdio::null());
        for name in ["MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK"] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, args: &str, script: &str) -> Run {
        Run::of(self.command(args, script).output().unwrap())
    }

    /// Starts it and waits until its ranks have written these files.
    fn start(&self, args: &str, script: &str, files: &[&str]) -> Child {
        let child = self.command(args, script).stderr(Stdio::null()).spawn().unwrap();
        for file in files {
            wait("a rank starts", || {
                fs::read_to_string(self.path(file)).is_ok_and(|it| it.ends_with('\n'))
            });
        }
        child
    }

    /// The process whose number a rank wrote to a file.
    fn pid(&self, file: &str) -> Pid {
        let text = fs::read_to_string(self.path(file)).unwrap();
        Pid::from_raw(text.trim().parse().unwrap()).unwrap()
    }
}

fn wait(what: &str, until: impl Fn() -> bool) {
    let start = Instant::now();
    while !until() {
        assert!(start.elapsed() < LONG, "{what}: not within {LONG:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process is gone, or only its exit status is left.
fn is_gone(pid: Pid) -> bool {
    let stat = Path::new("/proc").join(pid.as_raw_nonzero().to_string()).join("stat");
    test_kill_process(pid).is_err()
        || fs::read_to_string(stat).is_ok_and(|it| it.rsplit(')').next().unwrap().starts_with(" Z"))
}

#[track_caller]
fn refused(run: &Run, code: i32, words: &[&str]) {
    assert_eq!(run.code, code, "{}", run.err);
    for words in words {
        assert!(run.err.contains(words), "{words:?}: {}", run.err);
    }
}

#[test]
fn each_rank_has_a_function_of_its_own() {
    let run = User::new().run(&format!("-n 2 {TWO}"), SHOWS);
    assert_eq!(run.code, 0, "{}", run.err);
    let mut lines: Vec<&str> = run.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, rank, device) in [(lines[0], 0, "a"), (lines[1], 1, "b")] {
        assert!(line.starts_with(&format!("rank {rank} of 2: dat u2.0 ")), "{line}");
        let parameters = format!("\"vfio-user:/run/{device} ip=10.0.0.{}/24\"", rank + 1);
        assert!(line.contains(&parameters), "{line}");
    }
}

#[test]
fn lines_of_a_conf_are_functions_in_their_order() {
    let user = User::new();
    let text = "# mine\n\
        ofa u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"ib0 0\" \"\"\n\
        a u2.0 nonthreadsafe default /lib/libdapldat.so dapldat.2.0 \"3b:00.0 ip=10.0.0.1/8\" \"\"\n\
        a u2.0 threadsafe default /lib/libdapldat.so dapldat.2.0 \"0000:3b:00.0 ip=10.0.0.1/8\" \"\"\n\
        b u2.0 nonthreadsafe default /lib/libdapldat.so dapldat.2.0 \"3b:00.1 ip=10.0.0.2/8\" \"\"\n";
    fs::write(user.path("conf"), text).unwrap();
    let conf = user.path("conf");
    let machine = Machine::ready();
    let args = format!("--conf {} --name hca --root {}", conf.display(), machine.at("").display());
    let run = user.run(&format!("-n 2 {args}"), "sed \"s/^/$DAT_RUN_RANK /\" $DAT_OVERRIDE");
    assert_eq!(run.code, 0, "{}", run.err);
    let count = |words: &str| run.out.lines().filter(|line| line.contains(words)).count();
    for words in
        ["0 hca u2.0 nonthreadsafe", "0 a u2.0 threadsafe", "1 hca u2.0 nonthreadsafe", "1 b "]
    {
        assert_eq!(count(words), 1, "{words}: {}", run.out);
    }
    assert_eq!((run.out.lines().count(), count("ofa")), (6, 0), "{}", run.out);
    refused(&user.run(&format!("-n 3 {args}"), "true"), 1, &["3 ranks, but 2 functions", "help: "]);

    fs::write(&conf, text.replace(" ip=10.0.0.2/8", "")).unwrap();
    let run = user.run(&format!("-n 2 {args}"), "true");
    refused(&run, 1, &["conf: line 5 has no ip=", "add ip=ADDRESS/PREFIX"]);
    fs::write(&conf, "# nothing\n").unwrap();
    refused(&user.run(&format!("-n 1 {args}"), "true"), 1, &["no line is of libdapldat.so"]);
}

#[test]
fn mpiexec_says_which_rank_it_is() {
    let user = User::new();
    let mut command = user.command(TWO, SHOWS);
    let run = Run::of(command.env("PMI_RANK", "1").output().unwrap());
    assert!(run.code == 0 && run.out.contains("vfio-user:/run/b "), "{} {}", run.out, run.err);
    // On a second machine ranks do not begin with 0.
    let command = command.env("PMI_RANK", "5").env("MPI_LOCALRANKID", "0");
    let run = Run::of(command.output().unwrap());
    assert!(run.code == 0 && run.out.contains("vfio-user:/run/a "), "{} {}", run.out, run.err);
    let run = Run::of(command.env_remove("MPI_LOCALRANKID").output().unwrap());
    refused(&run, 1, &["6 ranks, but 2 functions are named"]);
    refused(&user.run(TWO, "true"), 2, &["PMI_RANK", "which rank this is", "-n RANKS"]);
    let run = Run::of(user.command(TWO, "exit 5").env("PMI_RANK", "0").output().unwrap());
    assert_eq!(run.code, 5);
}

#[test]
fn no_two_ranks_share_a_function() {
    let user = User::new();
    let run = user.run("-n 2 3b:00.0 0000:3b:00.0 --ip 10.0.0.1/8 --ip 10.0.0.2/8", "true");
    refused(&run, 2, &["0000:3b:00.0 is named twice", "help: "]);

    let mut first = user.start(
        &format!("-n 2 {TWO}"),
        "echo $$ > $HERE/pid$DAT_RUN_RANK; exec sleep 100",
        &["pid0", "pid1"],
    );
    let again = || {
        let run =
            user.command("vfio-user:/run/b --ip 10.0.0.9/24", "true").env("PMI_RANK", "0").output();
        Run::of(run.unwrap())
    };
    refused(&again(), 1, &["vfio-user:/run/b: another rank uses this function", "has ended"]);
    // However the launcher ends, its ranks end with it, and their functions are free.
    first.kill().unwrap();
    first.wait().unwrap();
    let pids = ["pid0", "pid1"].map(|file| user.pid(file));
    wait("the ranks end", || pids.iter().all(|pid| is_gone(*pid)));
    wait("the function is free", || again().code == 0);
}

#[test]
fn one_rank_that_fails_ends_all_and_its_code_is_the_code() {
    let user = User::new();
    for (failure, code) in [("exit 7", 7), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)] {
        let script = format!(
            "test $DAT_RUN_RANK = 1 && {{ sleep 0.2; {failure}; }}; sleep 100 & echo $! > $HERE/other; wait"
        );
        let start = Instant::now();
        let run = user.run(&format!("-n 2 {TWO}"), &script);
        refused(&run, code, &["dat: rank 1 ended: "]);
        assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
        let other = user.pid("other");
        wait("what the other rank started ends", || is_gone(other));
    }
    // A rank that takes no notice of SIGTERM.
    let script = "test $DAT_RUN_RANK = 1 && exit 3; trap '' TERM; while :; do sleep 1; done";
    refused(&user.run(&format!("-n 2 {TWO}"), script), 3, &["rank 1 ended"]);
    let run = user.run(&format!("-n 2 {TWO}"), "exec /nonexistent/program");
    assert_eq!(run.code, 127, "{}", run.err);
}

#[test]
fn ctrl_c_ends_all_ranks() {
    let user = User::new();
    let mut launcher = user.start(
        &format!("-n 2 {TWO}"),
        "echo $$ > $HERE/pid$DAT_RUN_RANK; exec sleep 100",
        &["pid0", "pid1"],
    );
    kill_process(Pid::from_child(&launcher), Signal::INT).unwrap();
    assert_eq!(launcher.wait().unwrap().code(), Some(130));
    assert!(["pid0", "pid1"].iter().all(|file| is_gone(user.pid(file))));
}

#[test]
fn a_low_limit_of_locked_memory_is_refused_before_anything_starts() {
    let user = User::new();
    let machine = Machine::bare();
    let root = machine.at("").display().to_string();
    let run = user.run(&format!("-n 1 3b:00.0 --ip 10.0.0.1/8 --root {root}"), "echo started");
    refused(&run, 1, &["0000:3b:00.0: VFIO locks", "RLIMIT_MEMLOCK is 8192 KiB", "limits.conf"]);
    assert_eq!(run.out, "");
    // A socket needs none.
    let run = user.run(&format!("-n 1 vfio-user:/run/a --ip 10.0.0.1/8 --root {root}"), "true");
    assert_eq!(run.code, 0, "{}", run.err);
}

#[test]
fn a_folder_of_others_is_not_used() {
    let user = User::new();
    let name = format!("dat-run-{}", rustix::process::getuid().as_raw());
    std::os::unix::fs::symlink("/tmp", user.path(&name)).unwrap();
    let run = user.run(&format!("-n 1 {TWO}"), "true");
    refused(&run, 1, &["not a folder of this user's alone", "TMPDIR"]);
}

#[test]
fn what_cannot_be_started_is_named_with_its_cause() {
    let user = User::new();
    let conf = user.path("conf");
    let line =
        "a u2.0 nonthreadsafe default libdapldat.so dapldat.2.0 \"nonsense ip=10.0.0.1/8\" \"\"\n";
    fs::write(&conf, line).unwrap();
    let conf = format!("-n 1 --conf {}", conf.display());
    let one = "vfio-user:/run/a --ip 10.0.0.1/24";
    for (args, (name, value), code, words) in [
        (
            "-n 1 --conf /nowhere/dat.conf",
            ("LANG", "C"),
            1,
            ["/nowhere/dat.conf: cannot be read: No such file", "dat conf prints such a file"],
        ),
        (&conf, ("LANG", "C"), 1, ["conf: line 1 names no device", "begin with the device"]),
        (TWO, ("PMI_RANK", "first"), 2, ["PMI_RANK=first is no rank", "start it by mpiexec"]),
        (
            one,
            ("TMPDIR", "/nowhere"),
            1,
            ["/nowhere/dat-run-", "set TMPDIR to a folder that this user may write"],
        ),
        // The launcher's number is that of another process than the one that started it.
        (one, ("DAT_RUN_LAUNCHER", "1"), 1, ["the launcher has ended"; 2]),
    ] {
        let run = Run::of(user.command(args, "echo started").env(name, value).output().unwrap());
        refused(&run, code, &words);
        assert_eq!(run.out, "", "{args}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
    command.arg("run").args(one.split_whitespace()).args(["--", "/nowhere/program"]);
    let run = Run::of(command.env("TMPDIR", user.0.path()).output().unwrap());
    refused(&run, 1, &["/nowhere/program: cannot be run: No such", "or one that PATH finds"]);
}

/// `sh -c SCRIPT dat run ARGS -- true`, for a launcher that its parent starts in an odd way.
fn started_by(user: &User, script: &str, args: &str) -> Run {
    let dat = user.command(args, "echo started");
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(dat.get_program()).args(dat.get_args());
    for (name, value) in dat.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    Run::of(shell.stdin(Stdio::null()).output().unwrap())
}

#[test]
fn a_launcher_whose_parent_ignores_the_ends_of_children_sees_those_of_its_ranks() {
    let user = User::new();
    let run =
        started_by(&user, "exec env --ignore-signal=CHLD \"$0\" \"$@\"", &format!("-n 2 {TWO}"));
    assert_eq!((run.code, run.out.as_str()), (0, "started\nstarted\n"), "{}", run.err);
}

#[test]
fn a_launcher_whose_file_was_removed_says_which_rank_it_cannot_start() {
    let user = User::new();
    let script =
        "cp \"$0\" $HERE/dat && exec 3<$HERE/dat && rm $HERE/dat && exec /proc/self/fd/3 \"$@\"";
    let run = started_by(&user, script, &format!("-n 2 {TWO}"));
    refused(&run, 1, &["rank 0 cannot be started: No such file", "start it again"]);
    assert_eq!(run.out, "");
}
