//! ibv_*_pingpong: Queue Pairs that are set up by hand, over a TCP connection.

use super::{How, Ours, TOOLS, Test, Tools};

/// The two sides of `interop` with some arguments.
macro_rules! can {
    ($args:literal) => {
        Ours::Can(
            concat!("interop ", $args, " --port {port}"),
            concat!("interop ", $args, " {tcp}"),
        )
    };
}

const fn pingpong(
    name: &'static str,
    quick: bool,
    server: &'static str,
    client: &'static str,
    ours: Ours,
) -> Test {
    Test {
        name,
        quick,
        how: How::Tools(Tools { server, client, ours, port: 18515, says: "iters in", ..TOOLS }),
    }
}

macro_rules! pingpong {
    ($name:literal, $quick:literal, $command:literal, $ours:expr) => {
        pingpong($name, $quick, $command, concat!($command, " {tcp}"), $ours)
    };
}

pub(super) const TESTS: &[Test] = &[
    pingpong!(
        "ibv_rc_pingpong",
        true,
        "ibv_rc_pingpong -d {dev} -g {gid} -n 200 -c",
        can!("rc {dat} --messages 200 --size 4096")
    ),
    pingpong!(
        "ibv_rc_pingpong, events",
        false,
        "ibv_rc_pingpong -d {dev} -g {gid} -n 200 -e -c",
        can!("rc {dat} --messages 200 --size 4096")
    ),
    pingpong!(
        "ibv_rc_pingpong, path MTU 256",
        false,
        "ibv_rc_pingpong -d {dev} -g {gid} -n 20 -s 20000 -m 256 -c",
        can!("rc {dat} --messages 20 --size 20000 --mtu 256")
    ),
    pingpong!(
        "ibv_rc_pingpong, path MTU 512",
        false,
        "ibv_rc_pingpong -d {dev} -g {gid} -n 20 -s 20000 -m 512 -c",
        can!("rc {dat} --messages 20 --size 20000 --mtu 512")
    ),
    pingpong!(
        "ibv_rc_pingpong, path MTU 1024",
        false,
        "ibv_rc_pingpong -d {dev} -g {gid} -n 20 -s 20000 -m 1024 -c",
        can!("rc {dat} --messages 20 --size 20000 --mtu 1024")
    ),
    pingpong!(
        "ibv_rc_pingpong, path MTU 2048",
        false,
        "ibv_rc_pingpong -d {dev} -g {gid} -n 20 -s 20000 -m 2048 -c",
        can!("rc {dat} --messages 20 --size 20000 --mtu 2048")
    ),
    pingpong!(
        "ibv_rc_pingpong, path MTU 4096",
        true,
        "ibv_rc_pingpong -d {dev} -g {gid} -n 20 -s 20000 -m 4096 -c",
        can!("rc {dat} --messages 20 --size 20000 --mtu 4096")
    ),
    pingpong!(
        "ibv_uc_pingpong",
        false,
        "ibv_uc_pingpong -d {dev} -g {gid} -n 200 -c",
        Ours::Cannot("DAT has no unreliable connections")
    ),
    pingpong!(
        "ibv_ud_pingpong",
        true,
        "ibv_ud_pingpong -d {dev} -g {gid} -n 200 -s 1024",
        can!("ud {dat} --messages 200 --size 1024")
    ),
    pingpong!(
        "ibv_srq_pingpong",
        true,
        "ibv_srq_pingpong -d {dev} -g {gid} -n 200 -q 4 -c",
        can!("srq {dat} --messages 200 --size 4096 --count 4")
    ),
];
