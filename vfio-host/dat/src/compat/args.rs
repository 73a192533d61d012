//! The arguments of `dat compat`, named as the programs on the other side name theirs.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::{Args as Group, Subcommand, ValueEnum};
use dat_core::provider::Mtu;
use serde::Serialize;

use super::super::args::{Adapter, Peer, size, timeout};
use super::super::failure::Failure;

const EXAMPLES: &str = "\
Examples, with the program on the other side:
  rping -s -a 192.168.7.2 -V                dat compat rping DEVICE --ip 192.168.7.1/24 --client 192.168.7.2 -V
  rping -c -a 192.168.7.1 -C 10 -V          dat compat rping DEVICE --ip 192.168.7.1/24 -V
  ib_write_bw -x 1 HOST                     dat compat perftest write_bw DEVICE --ip 192.168.7.1/24

Without --client it is the server. A client offers packets of 1024 bytes unless --mtu says otherwise.";

/// Speaks with programs of rdma-core and perftest, to check a network against a known tool
///
/// Each verb is one side of the program of that name and wants the unmodified program, or another
/// dat, on the other side.
#[derive(Group, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Compat {
    #[command(subcommand)]
    pub(super) program: Program,
}

/// Which program.
#[derive(Subcommand, Clone, Debug)]
pub(super) enum Program {
    Rping(Rping),
    Perftest(Perftest),
}

/// How patient a side is.
#[derive(Group, Clone, Debug)]
pub(super) struct Patience {
    /// Longest silence of the peer, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = timeout)]
    pub(super) timeout: Duration,
    /// How long a server waits for its client, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = timeout)]
    pub(super) wait: Duration,
    /// Spins instead of sleeping until the device interrupts
    #[arg(long)]
    pub(super) poll: bool,
}

/// Which side of a program that connects over the connection manager.
#[derive(Group, Clone, Debug)]
pub(super) struct Side {
    /// Be the client of the server at this address
    #[arg(long, value_name = "ADDRESS")]
    client: Option<IpAddr>,
    /// Be the server, which is so without --client
    #[arg(long, conflicts_with = "client")]
    server: bool,
}

impl Side {
    /// The server, if this is the client.
    pub(super) fn peer(&self, adapter: &Adapter, port: u16) -> Result<Option<SocketAddr>, Failure> {
        self.client.map(|ip| Peer::new(ip, port).address(adapter)).transpose()
    }

    /// The adapter of this side. What a client offers, its server's port must have: so it offers
    /// what every port has that takes frames of 1500 bytes.
    pub(super) fn adapter(&self, adapter: &Adapter) -> Adapter {
        adapter.clone().with_mtu(self.client.map(|_| Mtu::B1024))
    }
}

/// rping: the server reads from the client's memory and writes it back
///
/// The contents are rping's: "rdma-ping-N: " and letters. A server serves one client, and ends with
/// it. The server needs no --size: it takes what the client announces.
#[derive(Group, Clone, Debug)]
pub(super) struct Rping {
    #[command(flatten)]
    pub(super) adapter: Adapter,
    #[command(flatten)]
    pub(super) side: Side,
    #[command(flatten)]
    pub(super) patience: Patience,
    /// Pings of a client; 0 to go on until Ctrl-C
    #[arg(short = 'C', long, default_value_t = 10)]
    pub(super) count: u64,
    /// Bytes of a client's ping, 26 to 65535
    #[arg(short = 'S', long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(26..=65535))]
    pub(super) size: u32,
    /// Verifies the contents: a client what comes back, a server what it reads
    #[arg(short = 'V', long)]
    pub(super) verify: bool,
    /// Port
    #[arg(short, long, default_value_t = 7174, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) port: u16,
}

/// Which program of perftest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(super) enum PerfTest {
    /// ib_send_bw: messages, one way
    SendBw,
    /// ib_send_lat: messages to and fro
    SendLat,
    /// ib_write_bw: RDMA writes by the client
    WriteBw,
    /// ib_write_lat: RDMA writes to and fro, each side looks at its memory
    WriteLat,
    /// ib_read_bw: RDMA reads by the client
    ReadBw,
    /// ib_read_lat: the same, one after the other
    ReadLat,
    /// ib_atomic_bw: atomics by the client
    AtomicBw,
}

/// Which atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum AtomicKind {
    /// Adds 1
    FetchAndAdd,
    /// Over there it compares and swaps zeros; here it counts up
    CmpAndSwap,
}

/// perftest: throughput and latency, over reliable connections that no connection manager makes
///
/// The two tell each other their queue pairs over TCP, between ordinary addresses of the two
/// machines: HOST and the port are those. Over there -x N has to name the address of the RDMA
/// network (ibv_devinfo -v lists them), unless it has only one, and -n, -s and -q have to be the
/// same on both sides; the path MTU is the smaller of the two. Options over there that change what
/// goes over the wire (-b, -D, -a, -R, -c, -I on one side) are not understood. Number and length of
/// all messages are verified, what atomics find too.
#[derive(Group, Clone, Debug)]
pub(super) struct Perftest {
    /// Which of them
    #[arg(value_enum)]
    pub(super) test: PerfTest,
    #[command(flatten)]
    pub(super) adapter: Adapter,
    /// Be the client of the server on this machine: a name or an address
    #[arg(long, value_name = "HOST")]
    pub(super) client: Option<String>,
    /// Be the server, which is so without --client
    #[arg(long, conflicts_with = "client")]
    server: bool,
    #[command(flatten)]
    pub(super) patience: Patience,
    /// Operations on each connection; 1000, of write_bw 5000
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..=0xffff_ffff))]
    pub(super) iters: Option<u64>,
    /// Bytes of an operation, 1 to 1M; 64K, of a latency test 2, of an atomic 8
    #[arg(short, long, value_name = "BYTES", value_parser = size)]
    pub(super) size: Option<u32>,
    /// Says nothing on standard error but errors, and draws no progress; -q is perftest's own
    #[arg(long = "quiet", conflicts_with = "verbose")]
    errors_only: bool,
    /// Connections of a bandwidth test, 1 to 16
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(super) qp: u8,
    /// Operations of a client under way on each connection, 1 to 128
    #[arg(short, long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=128))]
    pub(super) tx_depth: u16,
    /// Receives ready on each connection, 1 to 128; with fewer than the peer sends, it has to send
    /// again
    #[arg(short, long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=128))]
    pub(super) rx_depth: u16,
    /// Reads or atomics that a peer may have under way at once; as many as the device can, unless
    /// given otherwise
    #[arg(short, long, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(super) outs: Option<u8>,
    /// Waits 4 us times 2 to the power of this for an acknowledgement, up to 31
    #[arg(short = 'u', long, default_value_t = 14, value_parser = clap::value_parser!(u8).range(1..=31))]
    pub(super) qp_timeout: u8,
    /// Which atomic
    #[arg(short = 'A', long, value_enum, default_value_t = AtomicKind::FetchAndAdd)]
    pub(super) atomic_type: AtomicKind,
    /// Verifies contents as well: that they are the same every time, where they lie, that what is
    /// added adds up
    #[arg(short = 'V', long)]
    pub(super) verify: bool,
    /// TCP port
    #[arg(short, long, default_value_t = 18515, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) port: u16,
}
