//! The arguments of `dat compat dapltest`, named as the tool names its own.

use std::net::{IpAddr, SocketAddr};

use clap::{Args as Group, ValueEnum};

use super::super::super::args::{Adapter, Peer};
use super::super::super::failure::Failure;
use super::super::args::Patience;
use super::ops;
use super::wire::{Labels, Performance, Transaction};

/// Iterations, unless told otherwise.
const ITERATIONS: u32 = 1000;

/// What to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(super) enum Test {
    /// The server, of any number of tests, until a client ends it
    S,
    /// The client of a transaction test
    T,
    /// The client of a performance test
    P,
    /// The client that ends a server
    Q,
    /// Not here: it has no peer
    #[value(hide = true)]
    L,
    /// Not here: it has no peer
    #[value(hide = true)]
    F,
}

/// How the client of a performance test waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    /// It sleeps until the device interrupts
    B,
    /// It spins
    P,
}

/// dapltest: the test program of the DAT Collaborative's reference implementation
///
/// Operations of a transaction test stand behind all other arguments: client|server SR|RR|RW
/// `[BYTES [SEGMENTS]]` [-f], one after the other, at least one SR of each; of a performance test
/// RR|RW `[BYTES [SEGMENTS]]`. 4096 bytes and one segment if not told. The threads of -t are those
/// of the tool to its peer; here one thread runs all of them. All connections together, and one
/// more, need an Endpoint each, of which the adapter has 1,024. A server ends by -T Q or a Ctrl-C,
/// with exit status 1 if a test failed.
#[derive(Group, Clone, Debug)]
pub(in super::super) struct Dapltest {
    #[command(flatten)]
    pub(super) adapter: Adapter,
    #[command(flatten)]
    pub(super) patience: Patience,
    /// What to be: S, T, P or Q
    #[arg(short = 'T', value_name = "TEST", value_enum, ignore_case = false)]
    pub(super) test: Test,
    /// Where the server is
    #[arg(short = 's', value_name = "ADDRESS")]
    server: Option<IpAddr>,
    /// The server's port; tests take the 1,024 behind it
    #[arg(short = 'n', value_name = "PORT", default_value_t = 62000, value_parser = clap::value_parser!(u16).range(1..=65000))]
    pub(super) port: u16,
    /// Name of the adapter as the other side may show it; DEVICE says which it is
    #[arg(short = 'D', value_name = "NAME")]
    name: Option<String>,
    /// T and P: how often; 1000
    #[arg(short = 'i', value_name = "ITERATIONS", value_parser = clap::value_parser!(u32).range(1..))]
    iterations: Option<u32>,
    /// T: threads on either side; 1
    #[arg(short = 't', value_name = "THREADS", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// T: connections of each thread; 1
    #[arg(short = 'w', value_name = "EPS", value_parser = clap::value_parser!(u32).range(1..))]
    eps: Option<u32>,
    /// T: verifies contents on both sides
    #[arg(short = 'V')]
    validate: bool,
    /// T: both sides poll
    #[arg(short = 'P')]
    polling: bool,
    /// T: the server makes an RSP for each connection
    #[arg(short = 'r')]
    rsp: bool,
    /// P: how the client waits; b
    #[arg(short = 'm', value_enum, value_name = "b|p")]
    mode: Option<Mode>,
    /// P: operations at a time; as many as the device can
    #[arg(short = 'p', value_name = "PIPELINE", value_parser = clap::value_parser!(u32).range(1..))]
    pipeline: Option<u32>,
    /// The other side says more, if it is the tool
    #[arg(short = 'd')]
    pub(super) debug: bool,
    /// Quality of service: BE is what there is
    #[arg(short = 'R', value_name = "QOS")]
    qos: Option<String>,
    /// Not here: a shell reads files as well
    #[arg(short = 'f', value_name = "FILE", hide = true)]
    script: Option<String>,
    /// Operations
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OP")]
    ops: Vec<String>,
}

/// What a client asks for.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    Transaction(Transaction),
    Performance(Performance),
    Quit,
}

impl Dapltest {
    /// The server, and what is asked of it; nothing if this is the server.
    pub(super) fn wish(&self) -> Result<Option<(SocketAddr, Wish)>, Failure> {
        if let Test::L | Test::F = self.test {
            return Err(Failure::usage(
                "-T L and -T F try the DAT library of their own process, and have no peer",
            )
            .remedy("run dapltest itself, with dat's library in dat.conf"));
        }
        if let Some(script) = &self.script {
            return Err(Failure::usage(format!(
                "-f {script}: arguments are not read from a file here"
            ))
            .remedy(format!("xargs dat compat dapltest DEVICE --ip ... < {script}")));
        }
        if let Some(qos) = self.qos.as_deref().filter(|qos| *qos != "BE") {
            return Err(Failure::usage(format!(
                "-R {qos}: RoCE connections have best effort (BE) here, and no other quality of service"
            ))
            .remedy("leave -R out"));
        }
        self.fits()?;
        let wish = match self.test {
            Test::S | Test::L | Test::F => return Ok(None),
            Test::Q => Wish::Quit,
            Test::T => Wish::Transaction(Transaction {
                iterations: self.iterations.unwrap_or(ITERATIONS),
                threads: self.threads.unwrap_or(1),
                eps: self.eps.unwrap_or(1),
                rsp: self.rsp,
                debug: self.debug,
                validate: self.validate,
                poll: self.polling,
                ops: ops::transaction(&self.ops, self.validate)?,
            }),
            Test::P => {
                let (transfer, size, segments) = ops::performance(&self.ops)?;
                Wish::Performance(Performance {
                    debug: self.debug,
                    poll: self.mode == Some(Mode::P),
                    iterations: self.iterations.unwrap_or(ITERATIONS),
                    pipeline: self.pipeline.unwrap_or(u32::MAX),
                    transfer,
                    size,
                    segments,
                })
            }
        };
        let server = self.server.ok_or_else(|| {
            Failure::usage("a client has to be told its server").remedy("give -s ADDRESS")
        })?;
        let server = Peer::new(server, self.port).address(&self.adapter)?;
        Ok(Some((server, wish)))
    }

    /// Whether all that is said belongs to the test.
    fn fits(&self) -> Result<(), Failure> {
        let (t, p) = (self.test == Test::T, self.test == Test::P);
        let said = [
            ("-s", self.server.is_some(), self.test != Test::S),
            ("-i", self.iterations.is_some(), t || p),
            ("-t", self.threads.is_some(), t),
            ("-w", self.eps.is_some(), t),
            ("-V", self.validate, t),
            ("-P", self.polling, t),
            ("-r", self.rsp, t),
            ("-m", self.mode.is_some(), p),
            ("-p", self.pipeline.is_some(), p),
            ("operations", !self.ops.is_empty(), t || p),
        ];
        let wrong = said.iter().find(|(_, given, fits)| *given && !fits);
        wrong.map_or(Ok(()), |(name, ..)| {
            Err(Failure::usage(format!("-T {:?} has no {name}", self.test))
                .remedy("dat compat dapltest --help says what goes with which"))
        })
    }

    /// What is told besides.
    pub(super) fn labels<'a>(&'a self, server: &'a str, adapter: &'a str) -> Labels<'a> {
        Labels { server, adapter: self.name.as_deref().unwrap_or(adapter), port: self.port }
    }
}
