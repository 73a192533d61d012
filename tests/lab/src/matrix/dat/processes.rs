//! What is not seen in what programs print: that sixteen thousand connections leave nothing behind,
//! that memcheck has nothing to say of a hundred, that many threads at once and signals break
//! nothing, and that nothing is left of a provider that was unloaded and loaded again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::corners::{both, checked, compile};
use super::environment::{Own, Place, Port, begin};
use super::kit::Kit;
use super::rows::PORT;
use super::tiers;
use crate::guest::stage::Stage;
use crate::matrix::judge;
use crate::matrix::outcome::{Outcome, failed};
use crate::matrix::program::Ready;

/// Connections that leave nothing behind.
const MANY: u32 = 16_000;
/// As many as a provider has Endpoints for, less those of others: minutes, so only when it is named.
const MOST: u32 = 65_000;
/// Connections under memcheck.
const FEW: u32 = 100;
/// Loads the provider, opens its adapter and closes it, again and again.
const REOPEN: &str = "tests/dapl/reopen.c";
/// How often.
const OPENS: u32 = 100;
/// Many connections, threads and signals, over the provider that is safe for threads.
const THREADS: &str = "tests/dapl/threads.c";
/// Bytes that a process may grow by for each connection while it connects and disconnects: of its
/// Endpoints, made before, pages are touched for the first time.
const GROWTH: u64 = 1024;
/// Files and mappings that may come, once, whatever the number of connections: the first wait makes
/// the eventfd that later ones use again, and tables that have grown long get mappings of their
/// own.
const ONCE: u64 = 4;
/// What dtestcm says as a client when all its Endpoints are made.
const CONNECTS: &str = "Connecting...";
/// How often a process is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Memcheck, which says nothing unless it has something to say.
const MEMCHECK: &[&str] = &[
    "-q",
    // The program asks for events in a loop: without this, the provider's thread may wait for
    // seconds behind it, and nobody answers a peer that asks for the server's address.
    "--fair-sched=yes",
    "--error-exitcode=9",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
    "--show-leak-kinds=definite",
    "--keep-debuginfo=yes",
    "--num-callers=30",
    // The driver is made on a large stack.
    "--max-stackframe=67108864",
    concat!("--suppressions=", env!("CARGO_MANIFEST_DIR"), "/src/matrix/dat/memcheck.supp"),
];

/// A process as its kernel shows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    /// Bytes of memory.
    resident: u64,
    /// Open files.
    files: u64,
    /// Threads.
    threads: u64,
    /// Mappings.
    mappings: u64,
}

impl Seen {
    /// `None`: it has ended.
    fn of(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let number = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
        Some(Self {
            resident: number("VmRSS:")? << 10,
            files: u64::try_from(files).ok()?,
            threads: number("Threads:")?,
            mappings: u64::try_from(maps.lines().count()).ok()?,
        })
    }
}

/// The course of a process: how it was when its connections began, the most it had of anything
/// since, and how it was last.
#[derive(Debug, Default)]
struct Course {
    first: Option<Seen>,
    most: Seen,
    last: Seen,
}

impl Course {
    fn look(&mut self, pid: u32) {
        let Some(seen) = Seen::of(pid) else { return };
        self.first.get_or_insert(seen);
        self.most = Seen {
            resident: self.most.resident.max(seen.resident),
            files: self.most.files.max(seen.files),
            threads: self.most.threads.max(seen.threads),
            mappings: self.most.mappings.max(seen.mappings),
        };
        self.last = seen;
    }

    fn judged(&self, who: &str, connections: u32) -> Result<String> {
        let first = self.first.with_context(|| format!("{who} was never seen"))?;
        let grown = self.most.resident.saturating_sub(first.resident);
        let each = grown / u64::from(connections);
        for (what, most, first) in [
            ("open files", self.most.files, first.files + ONCE),
            ("threads", self.most.threads, first.threads),
            ("mappings", self.most.mappings, first.mappings + ONCE),
        ] {
            ensure!(most <= first, "{who}: {most} {what} where {first} may be");
        }
        ensure!(
            each <= GROWTH,
            "{who}: {each} bytes more for each connection, {} MiB to {} MiB",
            first.resident >> 20,
            self.most.resident >> 20
        );
        Ok(format!(
            "{who}: {} MiB, {each} bytes more for each connection, {} open files, {} mappings",
            self.most.resident >> 20,
            self.most.files,
            self.most.mappings
        ))
    }
}

/// What each test of whole processes found, by name.
pub(super) type Found = BTreeMap<&'static str, (Outcome, String)>;

/// Runs all of them on the host.
pub(super) fn run(stage: &mut Stage<'_>, kit: &Kit) -> Result<Found> {
    let wanted = |stage: &Stage<'_>, name: &str| {
        stage.cells().is_none_or(|parts| parts.split('|').any(|part| name.contains(part)))
    };
    let _port = Port::take()?;
    let [a, b] = ["a", "b"].map(|name| stage.path(name));
    let model = stage.server("model", &[&a, &b], &[])?;
    let device = |socket: &Path| format!("vfio-user:{}", socket.display());
    let first = tiers::conf(stage, "first.conf", &device(&a), "192.168.7.1/24", &kit.library)?;
    let second = tiers::conf(stage, "second.conf", &device(&b), "192.168.7.2/24", &kit.library)?;
    let plain: &'static [&'static str] = &[];
    let mut found = Found::new();
    for (name, connections, tools) in [
        ("sixteen thousand connections", MANY, [plain, plain]),
        ("sixty-five thousand connections", MOST, [plain, plain]),
        ("memcheck of the server", FEW, [MEMCHECK, plain]),
        ("memcheck of the client", FEW, [plain, MEMCHECK]),
    ] {
        if !wanted(stage, name) || connections == MOST && stage.cells().is_none() {
            continue;
        }
        let counted = tools == [plain, plain];
        // dtestcm makes all its Endpoints first.
        let (here, there) = if counted {
            let many = connections.to_string();
            let words = ["--endpoints", many.as_str()];
            let wide = |file, socket, ip| {
                tiers::conf_of(stage, file, &[&device(socket)], &[ip], &kit.library, &words)
            };
            (
                wide("wide-first.conf", &a, "192.168.7.1/24")?,
                wide("wide-second.conf", &b, "192.168.7.2/24")?,
            )
        } else {
            (first.clone(), second.clone())
        };
        let places = [Place::Host(here, tools[0]), Place::Host(there, tools[1])];
        let start = Instant::now();
        let mut own = Own { stage, shell: None };
        let result = connect(&mut own, kit, &places, connections, counted);
        let seconds = start.elapsed().as_secs_f64();
        note(&mut found, name, seconds, result);
    }
    let name = "threads and signals";
    if wanted(stage, name) {
        let start = Instant::now();
        let result = threads(stage, kit, [&a, &b]);
        note(&mut found, name, start.elapsed().as_secs_f64(), result);
    }
    let name = "a hundred opens";
    if wanted(stage, name) {
        let start = Instant::now();
        let result = reopen(stage, kit, &first);
        note(&mut found, name, start.elapsed().as_secs_f64(), result);
    }
    ensure!(!found.is_empty(), "nothing of this name");
    stage.hang_up(model, Duration::from_secs(10))?;
    Ok(found)
}

/// Notes how one went.
fn note(found: &mut Found, name: &'static str, seconds: f64, result: Result<String>) {
    let outcome = match result {
        Ok(text) => {
            println!("    {name}: {seconds:.1} s; {text}");
            (Outcome::Passed(seconds), text)
        }
        Err(error) => {
            println!("    {name}: FAILED after {seconds:.1} s: {error:#}");
            (failed(&error), String::new())
        }
    };
    found.insert(name, outcome);
}

/// Opens and closes an adapter, each time with a provider that the registry loads anew: what came
/// to the process by it.
fn reopen(stage: &mut Stage<'_>, kit: &Kit, conf: &Path) -> Result<String> {
    let program = compile(kit, REOPEN, &stage.path("reopen"), &[])?;
    let mut command = kit.under(&[], &program, conf)?;
    command.args(["hca", &OPENS.to_string()]);
    let id = stage.start("reopen", command)?;
    let end = stage.outcome(id, Duration::from_secs(300));
    let [said, _] = stage.outputs(id);
    let last = said.last().cloned().unwrap_or_default();
    ensure!(
        end.is_some_and(|status| status.success()),
        "it ended with {end:?}: {last}{}",
        stage.tail(id)
    );
    Ok(last)
}

/// Connections one after another, of many threads at once, and waits that signals interrupt: of one
/// process, on both sides.
fn threads(stage: &mut Stage<'_>, kit: &Kit, sockets: [&Path; 2]) -> Result<String> {
    const LIMIT: Duration = Duration::from_secs(600);
    let program = compile(kit, THREADS, &stage.path("threads"), &[])?;
    let conf = both(stage, kit, sockets, &["--threadsafe"])?;
    let mut command = kit.under(&[], &program, &conf)?;
    command.args(["hca0", "hca1", "1000", "8"]);
    let good = checked(stage, "threads", command, LIMIT)?;
    Ok(format!("{} checks", good.len()))
}

/// So many connections of one process with another, in bursts of a hundred at most; what became of
/// the processes.
fn connect<'m>(
    own: &mut Own<'_, 'm>,
    kit: &Kit,
    places: &[Place; 2],
    connections: u32,
    counted: bool,
) -> Result<String> {
    const LIMIT: Duration = Duration::from_secs(900);
    let burst = 100.min(connections / 5);
    let command = format!("dtestcm -P hca -c {connections} -b {burst}");
    let says = Some((1, "Connection Test Complete".to_owned()));
    let [here, there] = places;
    let mut server = begin(own, Some(kit), here, "server", &command)?;
    if let Err(error) = server.ready_within(own, Ready::Port(PORT), LIMIT.as_secs() / 3) {
        let ended = server.reap(own, 0)?;
        bail!("{error:#}\n{}", ended.tail());
    }
    let mut client = begin(own, Some(kit), there, "client", &format!("{command} -h 127.0.0.1"))?;
    // It agrees with the server before it makes anything; the server has made all that it makes by
    // then.
    if let Err(error) = client.ready_within(own, Ready::Says(CONNECTS), LIMIT.as_secs() / 3) {
        server.reap(own, 0)?;
        bail!("the client: {error:#}");
    }
    let (of_server, of_client) = (server.pid(own)?, client.pid(own)?);
    let mut courses = [Course::default(), Course::default()];
    let until = Instant::now() + LIMIT;
    while !client.is_over(own)? && Instant::now() < until {
        courses[0].look(of_server);
        courses[1].look(of_client);
        thread::sleep(LOOK);
    }
    let called = client.reap(own, 0)?;
    let served = server.reap(own, if called.status == Some(0) { 60 } else { 1 })?;
    let judged = judge::ended("the client", "dtestcm", &called, says.as_ref())
        .and_then(|()| judge::ended("the server", "dtestcm", &served, says.as_ref()));
    judged.map_err(|error| {
        anyhow::anyhow!(
            "{error:#}\n--- client\n{}\n--- server\n{}\n---",
            called.tail(),
            served.tail()
        )
    })?;
    if !counted {
        return Ok("no error, nothing lost".to_owned());
    }
    let [server, client] = courses;
    Ok(format!(
        "{}; {}",
        server.judged("server", connections)?,
        client.judged("client", connections)?
    ))
}

/// The table of what was found.
pub(super) fn table(found: &Found) -> String {
    let mut text = String::from("| what | result | |\n|---|---|---|\n");
    for (name, (outcome, more)) in found {
        text.push_str(&format!("| {name} | {} | {more} |\n", outcome.cell()));
    }
    text
}

/// A line for the table of scenarios, or why it failed.
pub(super) fn sum(found: &Found) -> Result<String> {
    let bad: Vec<&str> = found
        .iter()
        .filter(|(_, (outcome, _))| outcome.is_failed())
        .map(|(name, _)| *name)
        .collect();
    ensure!(bad.is_empty(), "{} fail", bad.join(", "));
    Ok(found.keys().copied().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::{Course, Seen};

    fn seen(resident: u64, files: u64) -> Seen {
        Seen { resident, files, threads: 2, mappings: 60 }
    }

    #[test]
    fn a_process_is_seen() {
        let own = Seen::of(std::process::id()).unwrap();
        assert!(own.resident > 1 << 16 && own.files >= 3 && own.threads >= 1 && own.mappings > 3);
    }

    #[test]
    fn growth_of_any_kind_is_a_failure() {
        let course = |most: Seen| Course { first: Some(seen(1 << 20, 9)), most, last: most };
        assert!(course(seen(1 << 20, 9)).judged("x", 100).is_ok());
        assert!(course(seen(1 << 20, 14)).judged("x", 100).is_err());
        let mapped = Seen { mappings: 65, ..seen(1 << 20, 9) };
        assert!(course(mapped).judged("x", 100).is_err());
        assert!(course(seen(2 << 20, 9)).judged("x", 100).is_err());
        assert!(Course::default().judged("x", 100).is_err());
    }
}
