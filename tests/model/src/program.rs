//! The program `mlx5-model`: HCAs on vfio-user sockets, until a signal ends it.
#![expect(clippy::print_stdout, reason = "prints `ready`, for which the starter waits, and lists")]

use crate::replay::Replay;
use crate::server::{CONTROL, Link, Report, Rude, Server, Settings};
use crate::watch::Fields;
use crate::{Card, Config, Facts, LinkLayer, Profile, cards, facts};
use clap::{CommandFactory, Parser, ValueEnum};
use rustix::event::{PollFd, PollFlags};
use std::error::Error;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

/// HCAs of ConnectX-4 kind on vfio-user sockets, for QEMU (`--qemu`) or a driver that speaks the
/// protocol.
///
/// Prints `ready` when every socket listens. Ends on SIGTERM and SIGINT, on `quit` on the control
/// socket and, with --until-eof, at the end of its standard input; then it says on stderr, or in
/// the file given, what it has seen.
#[derive(Parser, Debug)]
#[command(name = "mlx5-model", version, after_long_help = CONTROL)]
struct Cli {
    /// A socket to serve; each is an HCA of its own
    #[arg(long, required_unless_present_any = ["facts", "cards", "replay"], value_name = "PATH")]
    socket: Vec<PathBuf>,
    /// Capabilities: what a ConnectX-4 said of itself, or the least that stock Linux brings up
    #[arg(long, value_enum, default_value_t = Capabilities::Big)]
    profile: Capabilities,
    /// Be a virtual function: other device id, no address of its own, commands of the physical
    /// function refused
    #[arg(long)]
    vf: bool,
    /// Latencies, orders and delays as of a real card
    #[arg(long)]
    hardware_like: bool,
    /// What silicon may do either way: a fact and its setting; may be repeated
    #[arg(long, value_name = "NAME=SETTING")]
    fact: Vec<Facts>,
    /// Kind of card, with its capabilities and facts; `--cards list` prints them
    #[arg(long, value_name = "NAME", value_parser = card, conflicts_with_all = ["profile", "vf"])]
    card: Option<&'static Card>,
    /// Be the card that a file was recorded of: a report of `dat hw-test`, or a bring-up by Linux.
    /// Says on stderr which answers the file lacks and what is given instead; without a socket,
    /// only that, on stdout
    #[arg(long, value_name = "FILE", conflicts_with_all = ["profile", "vf", "card"])]
    replay: Option<PathBuf>,
    /// Print every card, field by field, with its evidence
    #[arg(long, value_enum)]
    cards: Option<List>,
    /// Print every open fact with its settings and its source
    #[arg(long, value_enum)]
    facts: Option<List>,
    /// MSI-X vectors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    vectors: Option<u16>,
    /// Link layer of the ports, and of the switch between them
    #[arg(long, value_enum, default_value_t = Layer::Eth, value_name = "LAYER")]
    link: Layer,
    /// Wire between the HCAs: `switch`, `cable` between two of them, or `dgram:LOCAL,REMOTE` for the switch and a socket as of
    /// `-netdev dgram`
    #[arg(long, default_value = "switch", value_parser = link)]
    wire: Link,
    /// Capture every frame
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Listen here for probes and faults; the lines are below
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Seed of every random choice, and of the MACs: servers on one wire need different ones
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A fault: gone-after=N, die-after=N, mute-after=N or quit-after=N commands, or dma-limit=N
    /// mappings
    #[arg(long, value_name = "KIND=N")]
    rude: Vec<Rude>,
    /// Note every field that a driver sets and that is written to it; adds to the notes that the
    /// file has
    #[arg(long, value_name = "FILE")]
    fields: Option<PathBuf>,
    /// Plant one of the ten bugs of the layouts, from 1
    #[cfg(feature = "seeded")]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=10))]
    plant: Option<u8>,
    /// Only of these HCAs, counted from 0 in the order of the sockets
    #[arg(long, value_name = "HCA", requires = "fields")]
    fields_of: Vec<usize>,
    /// Write every command in mlx5_core's own hexdump form
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print the QEMU command line of a machine with these HCAs, which a kernel or a disk is to be
    /// added to, and end
    #[arg(long)]
    qemu: bool,
    /// End when standard input ends
    #[arg(long)]
    until_eof: bool,
    /// Write the report to this file as JSON, instead of to stderr
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Capabilities {
    Big,
    Small,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Layer {
    /// Ethernet, and RoCE v2 over it
    Eth,
    /// InfiniBand; a subnet manager has to run on one of the ports
    Ib,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum List {
    List,
}

fn card(name: &str) -> Result<&'static Card, String> {
    Card::named(name).ok_or_else(|| {
        let names: Vec<_> = cards::CARDS.iter().map(|card| card.name).collect();
        format!("no card is named {name}: there are {}", names.join(", "))
    })
}

fn link(text: &str) -> Result<Link, String> {
    if text == "switch" {
        return Ok(Link::Switch);
    }
    if text == "cable" {
        return Ok(Link::Cable);
    }
    let paths = text.strip_prefix("dgram:");
    let (local, remote) = paths
        .and_then(|paths| paths.split_once(','))
        .filter(|(local, remote)| !local.is_empty() && !remote.is_empty())
        .ok_or("expected switch, cable or dgram:LOCAL,REMOTE")?;
    Ok(Link::Datagram { local: local.into(), remote: remote.into() })
}

impl Cli {
    fn settings(self, notes: Option<Fields>, replay: Option<&Replay>) -> Settings {
        let mut device = if self.vf { Config::vf() } else { Config::default() };
        device.profile = match self.profile {
            Capabilities::Big => Profile::Big,
            Capabilities::Small => Profile::Small,
        };
        let chosen = self.card.map(Card::config).or_else(|| replay.map(Replay::config));
        device = chosen.unwrap_or(device);
        device.facts.extend(self.fact);
        if let Layer::Ib = self.link {
            device.link = LinkLayer::InfiniBand;
        }
        device.hardware_like = self.hardware_like;
        device.vectors = self.vectors.unwrap_or(device.vectors);
        device.seed = self.seed;
        let [.., high, low] = self.seed.to_be_bytes();
        device.mac[3] = high;
        device.mac[4] = low;
        Settings {
            trace: self.trace,
            fields: notes,
            fields_of: self.fields_of,
            link: self.wire,
            pcap: self.pcap,
            control: self.control,
            rude: self.rude,
            ..Settings::with_device(&device, self.socket)
        }
    }
}

/// The command line, for a shell. Memory is shared, because the server reads and writes it.
fn qemu(sockets: &[PathBuf]) -> Result<String, Box<dyn Error>> {
    let mut line = String::from(
        "qemu-system-x86_64 -machine q35,memory-backend=ram -m 2G \
         -object memory-backend-memfd,id=ram,size=2G,share=on",
    );
    for socket in sockets {
        let path = std::path::absolute(socket)?;
        let path = path.to_str().ok_or("QEMU takes no path that is not UTF-8")?;
        let device = serde_json::json!({
            "driver": "vfio-user-pci",
            "socket": { "type": "unix", "path": path },
        });
        line.push_str(&format!(" -device '{}'", device.to_string().replace('\'', r"'\''")));
    }
    Ok(line)
}

fn serve(cli: Cli) -> Result<(), Box<dyn Error>> {
    let replay = match &cli.replay {
        Some(path) => {
            Some(Replay::open(path).map_err(|error| format!("{}: {error}", path.display()))?)
        }
        None => None,
    };
    match &replay {
        Some(replay) if cli.socket.is_empty() => {
            print!("{}", replay.describe());
            return Ok(());
        }
        Some(replay) => eprint!("{}", replay.describe()),
        None => {}
    }
    let (signals, sender) = UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
    }
    let (until_eof, file) = (cli.until_eof, cli.report.clone());
    #[cfg(feature = "seeded")]
    {
        crate::ifc::seeds::plant(cli.plant.unwrap_or(0).into());
        crate::ifc::seeds::note();
    }
    let fields = cli.fields.clone().map(|path| (Fields::default(), path));
    let notes = fields.as_ref().map(|(notes, _)| notes.clone());
    let server = Server::start(cli.settings(notes, replay.as_ref()))?;
    println!("ready");
    std::io::stdout().flush()?;
    let input = std::io::stdin();
    loop {
        let mut fds = vec![
            PollFd::new(&signals, PollFlags::IN),
            PollFd::from_borrowed_fd(server.ended(), PollFlags::IN),
        ];
        if until_eof {
            fds.push(PollFd::new(&input, PollFlags::IN));
        }
        match rustix::event::poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        let woken = |nth: usize| fds.get(nth).is_some_and(|fd| !fd.revents().is_empty());
        if woken(0) || woken(1) {
            break;
        }
        // The input itself does not matter, only its end.
        if woken(2) && rustix::io::read(&input, &mut [0; 512])? == 0 {
            break;
        }
    }
    let report = server.stop();
    if let Some((notes, path)) = fields {
        #[cfg(feature = "seeded")]
        notes.heeded(crate::ifc::seeds::heeded());
        notes.add_to(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    say(&report, file)
}

fn say(report: &Report, file: Option<PathBuf>) -> Result<(), Box<dyn Error>> {
    match file {
        Some(path) => std::fs::write(&path, format!("{:#}\n", report.json()))
            .map_err(|error| format!("{}: {error}", path.display()))?,
        None => eprint!("{report}"),
    }
    Ok(())
}

/// Returns the options of `mlx5-model`, as man pages and completions are made of.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs `mlx5-model` with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.facts.is_some() {
        print!("{}", facts::list());
        return ExitCode::SUCCESS;
    }
    if cli.cards.is_some() {
        print!("{}", cards::markdown());
        return ExitCode::SUCCESS;
    }
    let done = if cli.qemu { qemu(&cli.socket).map(|line| println!("{line}")) } else { serve(cli) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
