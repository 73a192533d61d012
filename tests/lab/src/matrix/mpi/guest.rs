//! Two ranks in one guest, each with a virtual function behind `/dev/vfio`: registration pins
//! memory there, and the kernel counts it.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::job::{INTEL, PARTS, Program, report, used};
use super::{MIXED, UD, intel};
use crate::guest::control::Control;
use crate::guest::stage::{Guest, Stage};
use crate::images::archive::Archive;
use crate::images::mpi::{Intel, PACKAGE};
use crate::matrix::dat;

/// Settings, one after the other on the same functions.
const SETTINGS: [(&str, &[(&str, &str)]); 5] = [
    ("RC", &[]),
    ("RC, translation cache", &[("I_MPI_DAPL_TRANSLATION_CACHE", "1")]),
    ("RC, no translation cache", &[("I_MPI_DAPL_TRANSLATION_CACHE", "0")]),
    ("UD", &[UD]),
    ("UD with RDMA", &[UD, MIXED]),
];
/// What comes before them. Root may raise the limit of locked memory, so nothing answers for it.
const BEGIN: &str = r#"
bind 0000:01:00.0 0000:02:00.0
ulimit -l unlimited
busybox ifconfig lo up
busybox hostname guest
busybox mkdir -p /etc /impi/intel64/bin
echo "127.0.0.1 localhost guest" > /etc/hosts
for program in mpiexec.hydra pmi_proxy; do
    busybox ln -s /dat/$program /impi/intel64/bin/$program
done
export PATH=/bin:/impi/intel64/bin LD_LIBRARY_PATH=/dat TMPDIR=/tmp
export I_MPI_ROOT=/impi I_MPI_DAT_LIBRARY=/dat/libdat2.so.2
# What drivers have pinned so far, and what of that they still have: of all processors, not as of a
# second ago.
pins() {
    test ! -e /proc/sys/vm/stat_refresh || echo 1 > /proc/sys/vm/stat_refresh
    busybox awk '$1 == "nr_foll_pin_acquired" { a = $2 } $1 == "nr_foll_pin_released" { b = $2 }
        END { print a, a - b }' /proc/vmstat
}
left() {
    for program in verify pmi_proxy mpiexec.hydra; do
        if busybox pidof $program; then return 1; fi
    done
}
ranks() {
    env $1 mpiexec.hydra -n 2 dat run --name hca --library /dat/libdapldat.so 0000:01:00.0 0000:02:00.0 \
        --ip 192.168.7.1/24 --ip 192.168.7.2/24 -- /dat/verify 0 $2
}
"#;
/// A rank is killed in mid-traffic.
const KILL: &str = r#"
ranks "" endless > /tmp/said &
job=$!
until busybox grep -q "endless traffic" /tmp/said; do busybox sleep 0.2; done
busybox sleep 1
set -- $(busybox pidof verify)
test $# = 2
kill -KILL $1
if wait $job; then false; fi
left
echo "@@pinned after a kill: $(pins)"
"#;
/// What the model refuses of a virtual function, as a card does: HOST_ENDIANNESS, which the driver
/// goes without.
const REFUSED: &str = "register 0x7004,";
/// Longest time of a setting, under emulation.
const LIMIT: Duration = Duration::from_secs(400);
/// MiB: the arenas of both functions, and what the program moves.
const MEMORY: u32 = 1024;

/// Two ranks.
pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let found = match Intel::fetch() {
        Ok(found) => found,
        Err(error) => return Ok(format!("SKIPPED: {PACKAGE} cannot be had: {error:#}")),
    };
    let rig = intel(stage, &found, &Program::own("verify"))?;
    let intel64 = found.root.join("intel64");
    let more = ["lib/libmpi.so.12", "bin/mpiexec.hydra", "bin/pmi_proxy"];
    let more = more.map(|name| intel64.join(name));
    let [library, mpiexec, proxy] = more.each_ref().map(PathBuf::as_path);
    let mut bytes = dat::guest_archive(&[library, mpiexec, proxy])?;
    // Its only library beside the others' is one of them.
    let mut program = Archive::default();
    program.file("dat/verify", &fs::read(&rig.program)?)?;
    bytes.extend(program.finish()?);
    let archive = stage.path("mpi.cpio");
    fs::write(&archive, bytes)?;

    let sockets = [stage.path("a"), stage.path("b")];
    let control = stage.path("control");
    let path = control.to_str().context("a path that is no text")?.to_owned();
    let sockets = sockets.each_ref().map(PathBuf::as_path);
    let server = stage.server("model", &sockets, &["--vf", "--control", &path])?;
    // As the owner of the physical function does.
    let mut control = Control::new(&control)?;
    for function in 0..2 {
        control.tell(&format!("address {function}"))?;
    }
    let guest = Guest {
        script: &script(),
        devices: &sockets,
        memory: MEMORY,
        more: Some(&archive),
        ..Guest::default()
    };
    let id = stage.guest("guest", &guest)?;
    let mut pinned = 0;
    let ran = SETTINGS.map(|(name, _)| name);
    let first = ran.iter().take(1);
    for name in ran.iter().chain(["after a kill"].iter()).chain(first) {
        let mark = format!("@@pinned {name}: ");
        let line = stage.expect(id, &mark, LIMIT).with_context(|| (*name).to_owned())?;
        let mut numbers = line.trim_start_matches(&mark).split_whitespace();
        let mut number = || numbers.next()?.parse::<u64>().ok();
        let (Some(all), Some(left)) = (number(), number()) else { bail!("no numbers: {line}") };
        ensure!(all > pinned, "{name}: no page was pinned");
        ensure!(left == 0, "{name}: {left} pages are still pinned");
        pinned = all;
    }
    stage.finish(id, Duration::from_secs(20))?;
    let said = stage.output(id);
    if let Some(line) = said.iter().find(|line| line.contains("WRONG")) {
        bail!("{line}");
    }
    for part in PARTS {
        let good = format!("ok {part} ");
        let count = said.iter().filter(|line| line.starts_with(&good)).count();
        ensure!(count == ran.len() + 1, "{count} of {} times \"{good}\"", ran.len() + 1);
    }
    used(&report(stage, server, Some(REFUSED))?)?;
    Ok(format!(
        "{}; a kill, and the first again: verified on two virtual functions; {pinned} pages pinned, none left",
        ran.join("; ")
    ))
}

/// What the guest does.
fn script() -> String {
    let words = |environment: &[(&str, &str)]| {
        environment.iter().map(|(name, value)| format!("{name}={value} ")).collect::<String>()
    };
    let row = |(name, environment): (&str, &[_])| {
        format!("ranks \"{}\"\nleft\necho \"@@pinned {name}: $(pins)\"\n", words(environment))
    };
    let rows: String = SETTINGS.map(row).concat();
    let again = row(SETTINGS[0]);
    format!("{BEGIN}export {}\n{rows}{KILL}{again}", words(&INTEL))
}
