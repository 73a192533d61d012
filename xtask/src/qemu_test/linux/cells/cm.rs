//! Connections made by the connection manager, with the programs of librdmacm.

use super::{Ends, How, Ours, TOOLS, Test, Tools};

const RPING: u16 = 7174;
const CMATOSE: u16 = 7471;

const fn rping(
    name: &'static str,
    quick: bool,
    server: &'static str,
    client: &'static str,
    ours: Ours,
) -> Test {
    Test { name, quick, how: How::Tools(Tools { server, client, ours, port: RPING, ..TOOLS }) }
}

pub(super) const TESTS: &[Test] = &[
    rping(
        "rping",
        false,
        "rping -s -a {ip} -C 10",
        "rping -c -a {peer} -C 10",
        Ours::Can("compat rping {dat}", "compat rping {dat} --client {peer} -C 10"),
    ),
    rping(
        "rping -V, 2500 bytes",
        true,
        "rping -s -a {ip} -C 10 -V -S 2500",
        "rping -c -a {peer} -C 10 -V -S 2500",
        Ours::Can("compat rping {dat} -V", "compat rping {dat} --client {peer} -C 10 -V -S 2500"),
    ),
    rping(
        "rping -V, 60000 bytes",
        false,
        "rping -s -a {ip} -C 5 -V -S 60000",
        "rping -c -a {peer} -C 5 -V -S 60000",
        Ours::Can("compat rping {dat} -V", "compat rping {dat} --client {peer} -C 5 -V -S 60000"),
    ),
    rping(
        "rping -V, IPv6",
        true,
        "rping -s -a {ip6} -C 10 -V -S 2500",
        "rping -c -a {peer6} -C 10 -V -S 2500",
        Ours::Can(
            "compat rping {dat6} -V",
            "compat rping {dat6} --client {peer6} -C 10 -V -S 2500",
        ),
    ),
    rping(
        "rping -V, VLAN",
        true,
        "rping -s -a {vip} -C 10 -V -S 2500",
        "rping -c -a {vpeer} -C 10 -V -S 2500",
        Ours::Can(
            "compat rping {vdat} -V",
            "compat rping {vdat} --client {vpeer} -C 10 -V -S 2500",
        ),
    ),
    Test {
        name: "rping to a port where nobody listens",
        quick: true,
        how: How::Tools(Tools {
            client: "rping -c -a {peer} -p 4999 -C 1",
            ours: Ours::Can("listen {dat}", "compat rping {dat} --client {peer} -p 4999 -C 1"),
            ends: Ends::Badly,
            says: "REJECTED",
            endless: true,
            ..TOOLS
        }),
    },
    Test {
        name: "ucmatose, 10 connections",
        quick: true,
        how: How::Tools(Tools {
            server: "ucmatose -b {ip} -c 10 -C 20 -S 200",
            client: "ucmatose -b {ip} -s {peer} -c 10 -C 20 -S 200",
            ours: Ours::Can(
                "interop ucmatose {dat} --count 10 --messages 20 --size 200",
                "interop ucmatose {dat} --client {peer} --count 10 --messages 20 --size 200",
            ),
            port: CMATOSE,
            says: "return status 0",
            ..TOOLS
        }),
    },
    Test {
        name: "udaddy",
        quick: true,
        how: How::Tools(Tools {
            server: "udaddy -b {ip} -c 1 -C 5 -S 200",
            client: "udaddy -b {ip} -s {peer} -c 1 -C 5 -S 200",
            ours: Ours::Can(
                "interop udaddy {dat} --messages 5 --size 200",
                "interop udaddy {dat} --client {peer} --messages 5 --size 200",
            ),
            port: 7174,
            says: "return status 0",
            ..TOOLS
        }),
    },
    // Its two sides keep step over TCP, at the address and port that they connect to: no server of
    // theirs is told one address, as the host reaches them by another, and what a client says
    // to our side goes past the wire.
    Test {
        name: "cmtime, 40 connections at a time",
        quick: true,
        how: How::Tools(Tools {
            server: "cmtime -p 18515 -c 40",
            client: "cmtime -s {peer} -p {way} -c 40",
            ours: Ours::Can(
                "interop cmtime {dat} --count 40 --port {port} --tcp-port {port}",
                "interop cmtime {dat} --client {peer} --count 40 --port 18515 --tcp 127.0.0.1 --tcp-port {oob}",
            ),
            port: 18515,
            endless: true,
            limit: 60,
            ..TOOLS
        }),
    },
    Test {
        name: "cmtime, 1000 connections",
        quick: false,
        how: How::Tools(Tools {
            server: "cmtime -p 18515 -c 1000",
            client: "cmtime -s {peer} -p {way} -c 1000",
            ours: Ours::Can(
                "interop cmtime {dat} --count 1000 --port {port} --tcp-port {port}",
                "interop cmtime {dat} --client {peer} --count 1000 --port 18515 --tcp 127.0.0.1 --tcp-port {oob}",
            ),
            port: 18515,
            endless: true,
            limit: 120,
            ..TOOLS
        }),
    },
];
