//! The provider's library as programs in C see it, over two HCAs of the model behind sockets: programs
//! with a registry of their own ask every field of every query, and use every operation of the
//! provider's own extension.
//!
//! The headers are those of the machine, or stand below the folder that `DAT_HEADERS` names; `cargo
//! xtask test` unpacks the package and names it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mlx5_model::Config as Card;
use mlx5_model::server::{Server, Settings};
use mlx5_model::wire::frame::Packet;

/// Longer than the program takes.
const LIMIT: Duration = Duration::from_secs(120);

/// Returns the folder above `dat2`.
fn headers() -> PathBuf {
    let folder = std::env::var_os("DAT_HEADERS").map_or("/usr/include".into(), PathBuf::from);
    assert!(
        folder.join("dat2/udat.h").is_file(),
        "there is no dat2/udat.h below {}: install libdapl-dev, name another folder in DAT_HEADERS, or run `cargo xtask test`",
        folder.display()
    );
    folder
}

/// Returns the library, which stands beside the test's own program.
fn library() -> PathBuf {
    // A name of its crate has cargo build it.
    let _ = &raw const dapldat::dapl_extensions;
    let own = std::env::current_exe().unwrap();
    let library = own.with_file_name("libdapldat.so");
    assert!(library.is_file(), "there is no {}", library.display());
    library
}

/// Compiles a program of `tests/dapl`.
fn compile(folder: &Path, name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let program = folder.join(name);
    let made = Command::new(std::env::var_os("CC").unwrap_or("cc".into()))
        .args(["-O1", "-g", "-Wall", "-rdynamic", "-pthread", "-DALONE", "-I"])
        .arg(headers())
        .arg("-I")
        .arg(tests.join("../vfio-host/dapl/include"))
        .arg("-o")
        .arg(&program)
        .arg(tests.join(format!("dapl/{name}.c")))
        .arg("-ldl")
        .output()
        .expect("a C compiler: Rust links with one as well");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success() && said.is_empty(), "{said}");
    program
}

/// Runs a program over two HCAs of the model; each of its lines has to be of a good check. Returns
/// how many there were, and what was on the wire. `words` are more parameters of the first HCA.
fn run(name: &str, words: &str) -> (usize, Vec<u8>) {
    let Ran { good, frames, .. } = run_on(&Card::default(), name, words, 1);
    (good, frames)
}

/// What a program leaves.
struct Ran {
    /// Good checks.
    good: usize,
    /// What was on the wire.
    frames: Vec<u8>,
    /// Commands of the first HCA, and those of them that began while another was under way.
    commands: [u64; 2],
}

/// The same on these cards; the program gets a number of threads.
fn run_on(card: &Card, name: &str, words: &str, threads: usize) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), name);
    let sockets = ["a", "b"].map(|name| folder.path().join(name));
    let pcap = folder.path().join("pcap");
    let settings =
        Settings { pcap: Some(pcap.clone()), ..Settings::with_device(card, sockets.clone()) };
    let server = Server::start(settings).unwrap();
    let [first, second] = &sockets;
    let [a, b] = [(first, 1), (second, 2)]
        .map(|(socket, side)| format!("vfio-user:{} ip=192.168.7.{side}/24", socket.display()));
    let said = folder.path().join("said");
    let output = std::fs::File::create(&said).unwrap();
    let mut child = Command::new(program)
        .arg(library())
        .args([a + words, b])
        .env("THREADS", threads.to_string())
        .stdin(Stdio::null())
        .stdout(output)
        .spawn()
        .unwrap();
    let until = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > until {
            child.kill().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let said = std::fs::read_to_string(&said).unwrap();
    let good = said.lines().filter(|line| line.starts_with("ok ")).count();
    let bad: Vec<_> = said.lines().filter(|line| !line.starts_with("ok ")).collect();
    let last = said.lines().last();
    assert!(
        bad.is_empty() && status.is_some_and(|status| status.success()),
        "{} of {} checks failed, {status:?}, the last line is {last:?}\n{}",
        bad.len(),
        bad.len() + good,
        bad.join("\n")
    );
    let commands = server.with(0, |function| {
        let stats = function.hca().stats();
        [&stats.commands, &stats.commands_beside].map(|all| all.values().sum())
    });
    drop(server);
    Ran { good, frames: std::fs::read(pcap).unwrap(), commands: commands.unwrap() }
}

#[test]
fn every_field_of_every_query_is_as_the_headers_have_it() {
    let (good, file) = run("fields", " qos=premium,0xb8,5 qos=economy,0x20,1");
    assert!(good > 500, "only {good} checks");
    let mut reader = pcap_file::pcap::PcapReader::new(file.as_slice()).unwrap();
    let mut classes = BTreeSet::new();
    while let Some(frame) = reader.next_packet() {
        classes.extend(Packet::parse(&frame.unwrap().data).map(|packet| packet.net.tclass));
    }
    // CM datagrams, which a switch may mark: best effort, and premium.
    assert_eq!(classes, BTreeSet::from([2, 0xb8 | 2]));
}

/// `dat_dapldat.h`: lists, bursts and deferred doorbells, and what is refused of them.
#[test]
fn lists_and_bursts_are_as_the_own_header_has_them() {
    let (good, _) = run("lists", "");
    assert!(good > 70, "only {good} checks");
}

/// Threads that share an Endpoint: no write is lost, none completes twice.
#[test]
fn threads_may_share_what_a_thread_safe_provider_gives() {
    let (good, _) = run("callers", "");
    assert_eq!(good, 6);
}

/// What MPI libraries ask for beyond what other programs do.
#[test]
fn what_mpi_libraries_ask_for_is_there() {
    let (good, _) = run("gaps", "");
    assert_eq!(good, 28);
}

/// Threads that are cancelled while they wait leave no waiter behind.
#[test]
fn a_cancelled_thread_waits_no_more() {
    let (good, _) = run("cancel", "");
    assert_eq!(good, 14);
}

/// Commands of a thread of `makers`: 12 times 2 to make an Endpoint, 2 to free it, 2 for an LMR.
const OWN: u64 = 12 * 6;

/// Threads that make and free Endpoints and LMRs at the same time do not wait for the commands of
/// one another: most commands of eight threads begin beside others. A wait is as long as a command
/// takes, so the commands that begin alone, and with others behind them, are the time that passes.
#[test]
fn threads_do_not_wait_for_one_another_s_commands() {
    let card = Card { command_latency: 500_000, ..Card::default() };
    let waits = [1, 2, 8].map(|threads| {
        let Ran { good, commands: [all, beside], .. } = run_on(&card, "makers", "", threads);
        assert_eq!(good, 4);
        println!("{threads} threads: {all} commands, {beside} of them beside others");
        all - beside
    });
    let [one, two, eight] = waits;
    // Those of bring-up and of the end are in each of them.
    let rest = one - OWN;
    assert!(
        two - rest < 2 * OWN && eight - rest < 4 * OWN,
        "{waits:?} waits, {rest} not of threads"
    );
}

/// A replacement of `malloc` and `free` that frees LMRs, as caches of registrations do, is called
/// with no lock held.
#[test]
fn lmrs_may_be_freed_from_replacements_of_malloc_and_free() {
    let (good, _) = run("hooked", "");
    assert_eq!(good, 6);
}

/// Children of a fork have the registered memory of their parent as copies, on its stack too, and
/// disturb neither its device nor its traffic; nor do other programs, nor signals.
#[test]
fn programs_fork_and_take_signals_beside_traffic() {
    let (good, _) = run("child", "");
    assert_eq!(good, 16);
}

/// Eight threads at once on Endpoints of their own, and on Event Dispatchers of their own or of all.
#[test]
fn eight_threads_write_and_poll_at_once() {
    let (good, _) = run("many", "");
    assert_eq!(good, 6);
}
