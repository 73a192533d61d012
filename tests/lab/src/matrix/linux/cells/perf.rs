//! perftest: throughput and latency of each operation. That they come to their end is judged, and
//! on our side what they moved: the clock of an emulated guest says nothing of speed.

use super::{How, Ours, TOOLS, Test, Tools};

/// The two sides of `dat compat perftest` with some arguments.
macro_rules! can {
    ($args:literal) => {
        Ours::Can(
            concat!("compat perftest ", $args, " -u 18 --timeout 20 --port {port}"),
            concat!("compat perftest ", $args, " -u 18 --timeout 20 {tcp}"),
        )
    };
}

const fn perf(
    name: &'static str,
    quick: bool,
    server: &'static str,
    client: &'static str,
    ours: Ours,
) -> Test {
    Test {
        name,
        quick,
        how: How::Tools(Tools {
            server,
            client,
            ours,
            port: 18515,
            says: "#bytes",
            limit: 40,
            ..TOOLS
        }),
    }
}

macro_rules! perf {
    ($name:literal, $quick:literal, $command:literal, $ours:expr) => {
        perf(
            $name,
            $quick,
            concat!($command, " -d {dev} -x {gid} -F -u 18"),
            concat!($command, " -d {dev} -x {gid} -F -u 18 {tcp}"),
            $ours,
        )
    };
}

// An emulated guest may stand still for longer than a card's peer ever would: `-u 18` is a second
// for an acknowledgement. Soft-RoCE takes more reads at a time than an HCA; the programs agree on
// nothing, so both are told (`-o`).
pub(super) const TESTS: &[Test] = &[
    perf!(
        "ib_send_bw",
        true,
        "ib_send_bw -n 200 -s 16384",
        can!("send_bw {dat} -n 200 -s 16384 -V")
    ),
    perf!(
        "ib_send_bw, UD",
        false,
        "ib_send_bw -c UD -n 200 -s 1024",
        Ours::Cannot(
            "`dat compat perftest` speaks over reliable connections only, not over datagrams"
        )
    ),
    perf!(
        "ib_send_bw, receiver short of buffers",
        false,
        "ib_send_bw -n 200 -s 1024 -r 1 -t 16",
        can!("send_bw {dat} -n 200 -s 1024 -r 1 -t 16 -V")
    ),
    perf!("ib_send_lat", false, "ib_send_lat -n 200", can!("send_lat {dat} -n 200 -V")),
    perf!(
        "ib_write_bw",
        true,
        "ib_write_bw -n 200 -s 16384",
        can!("write_bw {dat} -n 200 -s 16384 -V")
    ),
    perf!(
        "ib_write_bw, 4 queue pairs",
        false,
        "ib_write_bw -n 100 -s 16384 -q 4",
        can!("write_bw {dat} -n 100 -s 16384 -q 4 -V")
    ),
    perf!("ib_write_lat", false, "ib_write_lat -n 200", can!("write_lat {dat} -n 200 -V")),
    perf!(
        "ib_read_bw",
        true,
        "ib_read_bw -o 16 -n 200 -s 16384",
        can!("read_bw {dat} -n 200 -s 16384 -V")
    ),
    perf!("ib_read_lat", false, "ib_read_lat -o 16 -n 200", can!("read_lat {dat} -n 200 -V")),
    perf!(
        "ib_atomic_bw, fetch and add",
        true,
        "ib_atomic_bw -o 16 -n 200 -A FETCH_AND_ADD",
        can!("atomic_bw {dat} -n 200 -A FETCH_AND_ADD -V")
    ),
    perf!(
        "ib_atomic_bw, compare and swap",
        false,
        "ib_atomic_bw -o 16 -n 200 -A CMP_AND_SWAP",
        can!("atomic_bw {dat} -n 200 -A CMP_AND_SWAP -V")
    ),
    perf!(
        "ib_write_bw, connected by the manager",
        false,
        "ib_write_bw -n 200 -s 16384 -R",
        Ours::Cannot(
            "with -R perftest says over a connection of its own what it otherwise says over TCP; `dat compat perftest` has TCP only"
        )
    ),
];
