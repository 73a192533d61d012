//! Our side of programs of rdma-core that the matrix against stock Linux runs, one program a run:
//! ucmatose, udaddy, cmtime and the pingpongs, of rdma-core 44 to 56.
//!
//! [`protocol`] says how the programs differ: how the two sides find each other, who sends first,
//! who ends. [`engine`] has the Endpoints and does what all of them do: connect, post, exchange,
//! verify, part. [`channel`] is TCP beside the network, over which some of them agree. [`cmtime`]
//! makes connections and moves nothing.
#![expect(clippy::print_stdout, reason = "a program that tells what it did")]

mod channel;
mod cmtime;
mod engine;
mod protocol;

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use dat_core::provider::{Mtu, Net};
use dat_core::{CloseFlag, Parts, Sizes, Supply};
use hca_mlx5::Config;
use vfio_host::{Address, Host, Opened, Options};

use engine::{Engine, Nic};
use protocol::Program;

/// Endpoints for a thousand connections of cmtime, and events of all at once.
const SIZES: Sizes = Sizes { eps: 1024, evds: 4, lmrs: 16, dtos: 128, events: 4096, srqs: 4 };
/// Memory for messages, besides what the library suggests: in all, and of it what the device only
/// reads.
const BUFFERS: usize = 24 << 20;
const SEND_BUFFERS: usize = 8 << 20;

/// One side of a program of rdma-core
#[derive(Parser, Clone, Debug)]
struct Args {
    /// The program
    #[arg(value_enum)]
    program: Program,
    /// The device
    device: Address,
    /// Its own address and the length of the network's prefix
    #[arg(long, value_name = "ADDRESS/PREFIX", value_parser = network)]
    ip: (IpAddr, u8),
    /// 802.1Q VLAN
    #[arg(long)]
    vlan: Option<u16>,
    /// Greatest payload of a packet
    #[arg(long, value_parser = mtu)]
    mtu: Option<Mtu>,
    /// Be the client of this server: of the pingpongs a host of TCP, of the others an address
    #[arg(long)]
    client: Option<String>,
    /// The server's port; the program's own if left out
    #[arg(long)]
    port: Option<u16>,
    /// Connections, or Endpoints for datagrams
    #[arg(long, default_value_t = 1)]
    count: usize,
    /// Messages each way: on each connection, of the pingpongs in all
    #[arg(long, default_value_t = 10)]
    messages: u64,
    /// Bytes of a message
    #[arg(long, default_value_t = 100)]
    size: usize,
    /// Of cmtime, where the server is on TCP
    #[arg(long, requires = "client")]
    tcp: Option<String>,
    /// Of cmtime, its port there; without it the two sides do not keep step
    #[arg(long)]
    tcp_port: Option<u16>,
    /// Longest silence of the peer, in seconds
    #[arg(long, default_value_t = 10.0)]
    timeout: f64,
    /// How long a server waits for its client, in seconds
    #[arg(long, default_value_t = 60.0)]
    wait: f64,
}

impl Args {
    fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.timeout)
    }

    fn wait(&self) -> Duration {
        Duration::from_secs_f64(self.wait)
    }

    /// Messages each way. Empty ones ucmatose and udaddy do not send.
    fn messages(&self) -> u64 {
        let none = self.program == Program::Cmtime || self.size == 0;
        if none { 0 } else { self.messages }
    }

    fn port(&self) -> u16 {
        self.port.unwrap_or(self.program.protocol().port)
    }

    /// The server that a client of the connection manager calls.
    fn server(&self) -> Result<Option<SocketAddr>> {
        let Some(host) = self.client.as_ref().filter(|_| !self.program.protocol().by_tcp()) else {
            return Ok(None);
        };
        let ip: IpAddr = host.parse().with_context(|| format!("{host} is no address"))?;
        ensure!(
            ip.is_ipv4() == self.ip.0.is_ipv4(),
            "{ip} and {} are of different kinds",
            self.ip.0
        );
        Ok(Some(SocketAddr::new(ip, self.port())))
    }

    fn config<'p>(&self) -> Config<'p> {
        // What a client offers, its server's port must have; the two sides of a pingpong must agree.
        let small = self.client.is_some() || self.program.protocol().by_tcp();
        let mtu = self.mtu.or(small.then_some(Mtu::B1024));
        mtu.map_or_else(Config::default, |mtu| Config::default().with_path_mtu(mtu))
    }
}

fn network(text: &str) -> Result<(IpAddr, u8), String> {
    let parts = text.split_once('/').ok_or("no length of a prefix")?;
    let address = parts.0.parse().map_err(|error| format!("{error}"))?;
    Ok((address, parts.1.parse().map_err(|error| format!("{error}"))?))
}

fn mtu(text: &str) -> Result<Mtu, String> {
    let of = |code| Mtu::from_code(code).filter(|mtu| mtu.bytes().to_string() == text);
    (1..=5).find_map(of).ok_or_else(|| "a path MTU is 256, 512, 1024, 2048 or 4096".into())
}

/// The program.
#[must_use]
pub fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let usual = Options::default();
    let options = Options {
        arena: usual.arena + BUFFERS,
        read_only: usual.read_only + SEND_BUFFERS,
        ..usual
    };
    match vfio_host::open(&args.device, &options).map_err(|error| anyhow!("{error}"))? {
        Opened::Vfio(host) => on(&host, args),
        Opened::User(host) => on(&host, args),
    }
}

/// Memory that stays until the process ends.
struct Leak;

impl<'s> Supply<'s> for Leak {
    fn slice<T>(&mut self, len: usize, new: fn() -> T) -> &'s mut [T] {
        let values = (0..len).map(|_| new()).collect::<Vec<_>>();
        Box::leak(values.into_boxed_slice())
    }
}

fn on<'p, H: Host>(host: &'p H, args: &Args) -> Result<()> {
    let (addr, prefix) = args.ip;
    let net = Net { addr, prefix, gateway: None, vlan: args.vlan };
    let parts = Parts::supplied(&mut Leak, &SIZES)?;
    let mut nic: Nic<'_, 'p, H> =
        Nic::open(host, parts, net, &args.config()).map_err(|error| anyhow!("{error}"))?;
    let done = run_program(&mut nic, args);
    let flag = if done.is_ok() { CloseFlag::Graceful } else { CloseFlag::Abrupt };
    let closed = nic.close(flag);
    println!("{}", done?);
    closed.context("closing the adapter")
}

/// Runs the program; returns a summary.
fn run_program<'p, H: Host>(nic: &mut Nic<'_, 'p, H>, args: &Args) -> Result<String> {
    let mut engine = Engine::new(nic, args)?;
    let summary = if args.program == Program::Cmtime {
        cmtime::run(&mut engine)?
    } else {
        engine.greet()?;
        engine.exchange()?;
        engine.part()?;
        let what = if engine.verifies() { "verified messages" } else { "messages" };
        format!("{} {what} of {} bytes each way", args.messages(), args.size)
    };
    engine.free()?;
    let role = if args.client.is_some() { "client" } else { "server" };
    Ok(format!("{:?} {role}: {} connections, {summary}", args.program, args.count))
}
