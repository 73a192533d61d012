//! perftest: throughput and latency of each operation. Only that they come to their end is judged: the clock of an emulated
//! guest says nothing of speed.

use super::{How, Ours, TOOLS, Test, Tools};

const NO_PERFTEST: Ours = Ours::Cannot(
    "perftest exchanges its addresses over TCP in a format of its own, which our side does not speak",
);

const fn perf(name: &'static str, quick: bool, server: &'static str, client: &'static str) -> Test {
    Test {
        name,
        quick,
        how: How::Tools(Tools {
            server,
            client,
            ours: NO_PERFTEST,
            port: 18515,
            says: "#bytes",
            limit: 40,
            ..TOOLS
        }),
    }
}

macro_rules! perf {
    ($name:literal, $quick:literal, $command:literal) => {
        perf(
            $name,
            $quick,
            concat!($command, " -d {dev} -x {gid} -F -u 18"),
            concat!($command, " -d {dev} -x {gid} -F -u 18 {peer}"),
        )
    };
}

// An emulated guest may stand still for longer than a card's peer ever would: `-u 18` is a second for an acknowledgement.
// Soft-RoCE takes more reads at a time than an HCA; the programs agree on nothing, so both are told (`-o`).
pub(super) const TESTS: &[Test] = &[
    perf!("ib_send_bw", true, "ib_send_bw -n 200 -s 16384"),
    perf!("ib_send_bw, UD", false, "ib_send_bw -c UD -n 200 -s 1024"),
    perf!(
        "ib_send_bw, receiver short of buffers",
        false,
        "ib_send_bw -n 200 -s 1024 -r 1 -t 16"
    ),
    perf!("ib_send_lat", false, "ib_send_lat -n 200"),
    perf!("ib_write_bw", true, "ib_write_bw -n 200 -s 16384"),
    perf!(
        "ib_write_bw, 4 queue pairs",
        false,
        "ib_write_bw -n 100 -s 16384 -q 4"
    ),
    perf!("ib_write_lat", false, "ib_write_lat -n 200"),
    perf!("ib_read_bw", true, "ib_read_bw -o 16 -n 200 -s 16384"),
    perf!("ib_read_lat", false, "ib_read_lat -o 16 -n 200"),
    perf!(
        "ib_atomic_bw, fetch and add",
        true,
        "ib_atomic_bw -o 16 -n 200 -A FETCH_AND_ADD"
    ),
    perf!(
        "ib_atomic_bw, compare and swap",
        false,
        "ib_atomic_bw -o 16 -n 200 -A CMP_AND_SWAP"
    ),
    perf!(
        "ib_write_bw, connected by the manager",
        false,
        "ib_write_bw -n 200 -s 16384 -R"
    ),
];
