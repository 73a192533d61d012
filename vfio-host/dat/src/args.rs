//! The arguments and the help texts: every line of `dat --help` is here.
//!
//! Length: a struct for each command, whose fields are its help.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args as Group, Parser, Subcommand, ValueEnum};
use dat_core::Qos;
use dat_core::provider::{Class, Mtu, Net};
use vfio_host::{Address, Interface, Neighbour, class};

use super::compat::Compat;
use super::device;
use super::failure::Failure;
use super::traffic::Kind;
use super::tree::Tree;

/// The default port of `dat listen`.
const PORT: u16 = 4711;

const EXAMPLES: &str = "\
Examples:
  dat list                                       what is in this machine
  dat doctor 0000:3b:00.0                        check its conditions for traffic
  sudo dat bind --check 0000:3b:00.0             what binding it to vfio-pci would do
  sudo dat bind 0000:3b:00.0

  dat listen 0000:3b:00.0 --ip 192.168.7.1/24    on one machine
  dat ping 0000:5e:00.0 192.168.7.1 --ip 192.168.7.2/24
  dat perf 0000:5e:00.0 192.168.7.1 --ip 192.168.7.2/24 --kind write --size 64K

DEVICE is a PCI address (0000:3b:00.0, or 3b:00.0 in domain 0), the kernel's name of the function as
long as it has one (mlx5_0, eno1), or vfio-user:PATH, a device that another process serves on the UNIX
socket PATH. Traffic takes a function that is bound to vfio-pci.

Units: sizes are bytes, or with K and M times 1024 and 1024 * 1024; times are seconds unless the name
says otherwise; rates are in MB/s, millions of payload bytes per second.

Exit status: 0 success; 1 a check or the traffic failed, or the device could not be
used; 2 the arguments are wrong.

Results go to standard output, progress and messages to standard error. Progress is drawn on a
terminal only. A closed pipe ends nothing and is no error. NO_COLOR switches colours off.";

/// RDMA without a kernel driver: manages mlx5 HCAs on VFIO and moves verified data between them
#[derive(Parser, Clone, Debug)]
#[command(name = "dat", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// Results as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Logs more: main steps (-v), each event (-vv), each device command as mlx5_core prints it
    /// (-vvv)
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Says nothing on standard error but errors, and draws no progress
    #[arg(short = 'q', long = "quiet", global = true, conflicts_with = "verbose")]
    pub(crate) errors_only: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands. The documentation of their arguments is the help text.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum Command {
    List(List),
    Info(Info),
    Bind(Bind),
    Unbind(Unbind),
    Doctor(Doctor),
    Listen(Listen),
    Ping(Ping),
    Perf(Perf),
    Top(Top),
    /// Prints the counters of open adapters and their Endpoints that are not 0
    ///
    /// Names and meaning are those of DAT's counters (dat_query_counters): CM is the connection
    /// manager, LNK the link, DIAG the transport.
    Counters(Which),
    /// Lists the Endpoints of open adapters, with their peers
    Connections(Which),
    Trace(Trace),
    Conf(Conf),
    InstallProvider(InstallProvider),
    Run(Run),
    HwTest(HwTest),
    Compat(Compat),
}

/// The root of the files that describe the machine.
#[derive(Group, Clone, Debug)]
pub(crate) struct Root {
    /// Reads a copy of /sys, /proc and /dev below DIR instead of those of this machine
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    root: PathBuf,
}

impl Root {
    /// Returns the tree.
    pub(crate) fn tree(&self) -> Tree {
        Tree::new(&self.root)
    }
}

/// Lists the HCAs of this machine
///
/// PCI address, name, bound driver, IOMMU group, link, NUMA node, firmware (if the kernel driver
/// shows it) and network interfaces. On a machine without an HCA the list is empty, which is no
/// error.
#[derive(Group, Clone, Debug)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) root: Root,
}

/// Shows everything known about a device
///
/// What the kernel knows about it and, if it is bound to vfio-pci or is vfio-user:PATH, what the
/// device reports: the command resets it, brings it up, queries it and closes it.
#[derive(Group, Clone, Debug)]
pub(crate) struct Info {
    /// The device
    #[arg(value_parser = device::parse)]
    pub(crate) device: Address,
    /// Does not open the device
    #[arg(long)]
    pub(crate) closed: bool,
    /// Prints only what differs from a report that this command has written with --json, of this
    /// device or another; exit status 1 if something does
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) iommu: Iommu,
    #[command(flatten)]
    pub(crate) root: Root,
}

/// Binds devices to vfio-pci
///
/// Sets driver_override, unbinds the present driver and lets the kernel probe again. Needs root.
/// Refuses, unless --force is given, a device whose network interface carries addresses or routes,
/// and one with virtual functions, which would vanish. All devices of an IOMMU group have to be
/// bound before one can be used.
#[derive(Group, Clone, Debug)]
pub(crate) struct Bind {
    /// PCI addresses, or names
    #[arg(required = true, value_name = "DEVICE", value_parser = device::parse)]
    pub(crate) devices: Vec<Address>,
    /// Only says what it would do; changes nothing, needs no root
    #[arg(long)]
    pub(crate) check: bool,
    /// Binds even if this machine loses network connections or virtual functions
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) root: Root,
}

/// Returns devices to their kernel driver
///
/// Clears driver_override, unbinds vfio-pci and lets the kernel probe again. Needs root.
#[derive(Group, Clone, Debug)]
pub(crate) struct Unbind {
    /// PCI addresses, or names
    #[arg(required = true, value_name = "DEVICE", value_parser = device::parse)]
    pub(crate) devices: Vec<Address>,
    /// Only says what it would do; changes nothing, needs no root
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) root: Root,
}

/// Checks all conditions for RDMA traffic and names remedies
///
/// IOMMU, VFIO modules, lockdown, locked memory, DMA entries, huge pages; of each HCA its driver and
/// what binds it at boot, what would be lost with it, its IOMMU group, the rights to its files, its
/// PCI link. With DEVICE only that one. If no check failed,
/// DEVICE is opened, which resets it, and its firmware, link type, GUID and MTU are read. Exit
/// status 1 if a check failed.
#[derive(Group, Clone, Debug)]
pub(crate) struct Doctor {
    /// The device [default: all HCAs of the machine]
    #[arg(value_parser = device::parse)]
    pub(crate) device: Option<Address>,
    /// Does not open the device
    #[arg(long)]
    pub(crate) closed: bool,
    #[command(flatten)]
    pub(crate) link: Link,
    #[command(flatten)]
    pub(crate) iommu: Iommu,
    #[command(flatten)]
    pub(crate) root: Root,
}

/// A device and its address in a network.
#[derive(Group, Clone, Debug)]
pub(crate) struct Adapter {
    /// The device
    #[arg(value_parser = device::parse)]
    pub(crate) device: Address,
    /// Its own address and the length of the network's prefix, as 192.168.7.1/24 or fd00::1/64
    #[arg(long, value_name = "ADDRESS/PREFIX", value_parser = network)]
    ip: (IpAddr, u8),
    /// Next hop to all other networks
    #[arg(long, value_name = "ADDRESS")]
    gateway: Option<IpAddr>,
    /// 802.1Q VLAN, 1 to 4094
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=4094))]
    vlan: Option<u16>,
    /// A neighbour, or the gateway, with its MAC, as 192.168.7.2,02:00:00:00:00:0b: it is not asked
    /// for, and nobody can claim its address; once for each
    #[arg(long, value_name = "ADDRESS,MAC", value_parser = vfio_host::neighbour::parse)]
    pub(crate) neigh: Vec<Neighbour>,
    /// Path MTU: 256, 512, 1024, 2048 or 4096; a client's must not exceed its listener's
    #[arg(long, value_name = "BYTES", value_parser = mtu)]
    pub(crate) mtu: Option<Mtu>,
    /// Traffic class of all packets, 0 to 255 or 0x00 to 0xff: four times the DSCP
    #[arg(
        long,
        visible_alias = "tclass",
        value_name = "CLASS",
        value_parser = class::traffic_class,
        default_value = "0"
    )]
    tos: u8,
    /// 802.1p priority of all packets, 0 to 7: in the VLAN tag, and of the egress queue
    #[arg(long, visible_alias = "sl", value_parser = class::priority, default_value = "0")]
    priority: u8,
    /// Runs the built-in subnet manager: for two InfiniBand ports joined by a cable, on one side; it
    /// yields to any other subnet manager
    #[arg(long = "sm")]
    pub(crate) subnet_manager: bool,
    /// Lets the device write work queues and their records, which by its documents it only reads;
    /// for a card that ends with a fault of the IOMMU there
    #[arg(long)]
    pub(crate) writable_queues: bool,
    #[command(flatten)]
    pub(crate) completions: Completions,
    #[command(flatten)]
    pub(crate) link: Link,
    #[command(flatten)]
    pub(crate) iommu: Iommu,
}

/// What the device may do with completions, where it can.
#[derive(Group, Clone, Copy, Debug)]
pub(crate) struct Completions {
    /// Lets the device write successive like completions of receives in compressed form: fewer bytes
    /// over PCI Express, more latency; without effect where it cannot
    #[arg(long)]
    pub(crate) compress_completions: bool,
    /// Lets the device put messages of up to 32 bytes into their completions; without effect where
    /// it cannot
    #[arg(long)]
    pub(crate) inline_receives: bool,
}

/// The interface to the IOMMU.
#[derive(Group, Clone, Copy, Debug)]
pub(crate) struct Iommu {
    /// The kernel's interface to the IOMMU, of a device on vfio-pci: type1 (a container of the
    /// group), iommufd (the device's own file), or auto: iommufd where this user may use it; none
    /// says why it takes an IOMMU
    #[arg(long = "iommu", value_name = "INTERFACE", default_value = "auto", value_parser = interface)]
    pub(crate) interface: Interface,
}

/// How long the link may be down.
#[derive(Group, Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Longest wait for the link: what a port and its switch take to agree on a speed, and more
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) link_wait: u64,
}

impl Adapter {
    /// Sets the MTU, unless the user has given one.
    pub(crate) fn with_mtu(self, mtu: Option<Mtu>) -> Self {
        Self { mtu: self.mtu.or(mtu), ..self }
    }

    /// Returns traffic class and priority.
    pub(crate) fn class(&self) -> Class {
        Class { traffic_class: self.tos, priority: self.priority }
    }

    /// Returns the network configuration.
    pub(crate) fn net(&self) -> Result<Net, Failure> {
        let (addr, prefix) = self.ip;
        if let Some(gateway) = self.gateway {
            if gateway.is_ipv4() != addr.is_ipv4() {
                return Err(Failure::usage(format!(
                    "--gateway {gateway} and --ip {addr} are of different kinds"
                )));
            }
        }
        Ok(Net { addr, prefix, gateway: self.gateway, vlan: self.vlan })
    }
}

/// The address and port of the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    ip: IpAddr,
    port: u16,
}

impl Peer {
    /// Makes it of an address and a port.
    pub(crate) fn new(ip: IpAddr, port: u16) -> Self {
        Self { ip, port }
    }

    /// Checks the address against that of this adapter and returns it.
    pub(crate) fn address(&self, adapter: &Adapter) -> Result<SocketAddr, Failure> {
        self.differs(adapter.ip.0)
    }

    fn differs(&self, own: IpAddr) -> Result<SocketAddr, Failure> {
        let Self { ip, port } = *self;
        if ip.is_ipv4() != own.is_ipv4() {
            return Err(Failure::usage(format!(
                "the peer {ip} and --ip {own} are of different kinds"
            )));
        }
        if ip == own {
            return Err(Failure::usage(format!("the peer {ip} is this adapter's own address")));
        }
        if ip.is_unspecified() || ip.is_multicast() {
            return Err(Failure::usage(format!("{ip} is not the address of a host")));
        }
        Ok(SocketAddr::new(ip, port))
    }
}

/// Serves the tests of dat ping and dat perf
///
/// Serves any number of tests, up to eight at a time, verifies each on this side too and prints a
/// line at its end. Ends on Ctrl-C, or after --count tests. Exit status 1 if a test had wrong
/// contents or its connection broke.
#[derive(Group, Clone, Debug)]
pub(crate) struct Listen {
    #[command(flatten)]
    pub(crate) adapter: Adapter,
    /// Port to listen on
    #[arg(long, default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// Ends after so many tests
    #[arg(long, value_name = "TESTS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Polls while a test is running instead of sleeping until the device interrupts
    #[arg(long)]
    pub(crate) poll: bool,
}

/// Measures the time of message round trips, one after the other
///
/// Both sides verify every byte. Ctrl-C ends it early, with the times so far.
#[derive(Group, Clone, Debug)]
pub(crate) struct Ping {
    #[command(flatten)]
    pub(crate) adapter: Adapter,
    /// Where dat listen is: ADDRESS, ADDRESS:PORT, for IPv6 `[ADDRESS]:PORT`
    #[arg(value_parser = peer)]
    pub(crate) peer: Peer,
    /// Round trips; 0 to go on until Ctrl-C
    #[arg(long, default_value_t = 1000)]
    pub(crate) count: u64,
    /// Bytes of a message, 1 to 1M
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = size)]
    pub(crate) size: u32,
    /// Seconds between two round trips, 10 at the most
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Longest silence of the peer, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = timeout)]
    pub(crate) timeout: Duration,
    /// Spins instead of sleeping until the device interrupts
    #[arg(long)]
    pub(crate) poll: bool,
}

/// Measures bandwidth and rate of operations
///
/// Both sides verify every byte, within the measured time: the result counts operations that
/// arrived with correct contents. A bind gives the peer access to a piece of memory; the peer reads
/// through the last window of each batch.
#[derive(Group, Clone, Debug)]
pub(crate) struct Perf {
    #[command(flatten)]
    pub(crate) adapter: Adapter,
    /// Where dat listen is: ADDRESS, ADDRESS:PORT, for IPv6 `[ADDRESS]:PORT`
    #[arg(value_parser = peer)]
    pub(crate) peer: Peer,
    /// Kind of operation
    #[arg(long, value_enum, default_value_t = Kind::Write)]
    pub(crate) kind: Kind,
    /// Number of operations of each connection
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,
    /// Runs for so long instead of --count operations
    #[arg(long, value_name = "SECONDS", value_parser = timeout, conflicts_with = "count")]
    pub(crate) duration: Option<Duration>,
    /// Runs for so long before, without measuring
    #[arg(long, value_name = "SECONDS", value_parser = timeout, requires = "duration")]
    pub(crate) warmup: Option<Duration>,
    /// Posts so many operations in a second, of all connections, instead of each as soon as there is
    /// room; latency is then from when an operation ought to have been posted. Several, one after the
    /// other, as for --sizes: a list, or a range that doubles
    #[arg(long, value_name = "OPERATIONS", value_parser = rates)]
    pub(crate) rate: Option<Sweep>,
    /// Connections, each with a queue pair and --depth operations in flight
    #[arg(
        long,
        visible_alias = "qps",
        value_name = "NUMBER",
        default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=8)
    )]
    pub(crate) connections: u8,
    /// Threads that share the connections, and poll; with one, the thread of the adapter drives them all
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=8)
    )]
    pub(crate) threads: u8,
    /// Moves data the other way too, on as many connections: by reads, or by writes for --kind read
    #[arg(long)]
    pub(crate) bidirectional: bool,
    /// Bytes of one operation, 1 to 1M
    #[arg(long, value_name = "BYTES", default_value = "4K", value_parser = size)]
    pub(crate) size: u32,
    /// Several sizes, one after the other: a list, as 64,4K,1M, or a range that doubles, as 8..1M
    #[arg(long, value_name = "LIST", value_parser = sizes, conflicts_with = "size")]
    pub(crate) sizes: Option<Sweep>,
    /// Prints the rate so far at this interval
    #[arg(long, value_name = "SECONDS", value_parser = timeout)]
    pub(crate) interval: Option<Duration>,
    /// Result as comma-separated values, a line for each size
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
    /// Draws bandwidth and latency against size into an SVG file, or with several --rate latency
    /// against load
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Operations in flight, 1 to 48; size times depth is 4M at the most
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=48))]
    pub(crate) depth: u16,
    /// Longest silence of the peer, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = timeout)]
    pub(crate) timeout: Duration,
    /// Spins instead of sleeping until the device interrupts
    #[arg(long)]
    pub(crate) poll: bool,
}

/// Shows what open adapters are doing: rates, queues, connections, errors
///
/// Each process that drives an adapter tells about it on a socket of its user: dat itself, programs
/// that ask for it (Nic::serve_status), DAT programs whose dat.conf says status=on. Rates are those
/// between two looks. On a terminal the view stays until Ctrl-C.
#[derive(Group, Clone, Debug)]
pub(crate) struct Top {
    /// A process number, or a device as this command prints it [default: all]
    #[arg(value_name = "WHICH")]
    pub(crate) which: Option<String>,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = timeout)]
    pub(crate) interval: Duration,
    /// Ends after the first interval
    #[arg(long)]
    pub(crate) once: bool,
}

/// Prints what a process does with its adapters: commands, connections, their messages, faults
///
/// A line for each, with the seconds since this command listens, until Ctrl-C or the end of the
/// process. Requests and completions are not among them: nothing is counted or sent on their path.
#[derive(Group, Clone, Debug)]
pub(crate) struct Trace {
    /// A process number, or a device as dat top prints it [default: the only one]
    #[arg(value_name = "WHICH")]
    pub(crate) which: Option<String>,
    /// Ends after so many lines
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Writes the connection manager's datagrams into a file as well, for Wireshark, as RoCEv2
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
}

/// An open adapter.
#[derive(Group, Clone, Debug)]
pub(crate) struct Which {
    /// A process number, or a device as dat top prints it [default: all]
    #[arg(value_name = "WHICH")]
    pub(crate) which: Option<String>,
}

/// Arguments for lines of dat.conf.
#[derive(Group, Clone, Debug)]
pub(crate) struct Registrations {
    /// Devices [default: all HCAs that are bound to vfio-pci]
    #[arg(value_name = "DEVICE", value_parser = device::parse)]
    pub(crate) devices: Vec<Address>,
    /// Takes the virtual functions of each DEVICE, a physical function, in the order of their
    /// numbers; they have to be bound to vfio-pci
    #[arg(long, requires = "devices")]
    pub(crate) vfs: bool,
    /// A device's own address and the length of the network's prefix; once for each device, in
    /// their order. With --vfs the address of its first virtual function, from which the others
    /// count up
    #[arg(long, value_name = "ADDRESS/PREFIX", value_parser = network)]
    pub(crate) ip: Vec<(IpAddr, u8)>,
    /// The name that consumers open; with several devices, its beginning: dat0, dat1
    #[arg(long, default_value = "dat")]
    pub(crate) name: String,
    /// For consumers that ask for a thread-safe provider, which most do not
    #[arg(long)]
    pub(crate) threadsafe: bool,
    /// Next hop to all other networks
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) gateway: Option<IpAddr>,
    /// 802.1Q VLAN, 1 to 4094
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=4094))]
    pub(crate) vlan: Option<u16>,
    /// A neighbour, or the gateway, with its MAC, for every device here; once for each
    #[arg(long, value_name = "ADDRESS,MAC", value_parser = vfio_host::neighbour::parse)]
    pub(crate) neigh: Vec<Neighbour>,
    /// Path MTU: 256, 512, 1024, 2048 or 4096
    #[arg(long, value_name = "BYTES", value_parser = mtu)]
    pub(crate) mtu: Option<Mtu>,
    /// Traffic class of all packets, 0 to 255 or 0x00 to 0xff: four times the DSCP
    #[arg(long, visible_alias = "tclass", value_name = "CLASS", value_parser = class::traffic_class)]
    pub(crate) tos: Option<u8>,
    /// 802.1p priority of all packets, 0 to 7: in the VLAN tag, and of the egress queue
    #[arg(long, visible_alias = "sl", value_parser = class::priority)]
    pub(crate) priority: Option<u8>,
    /// The same for connections with this quality of service (high-throughput, low-latency, economy
    /// or premium), as premium,0x68,3; once for each
    #[arg(long, value_name = "NAME,CLASS,PRIORITY", value_parser = class::quality)]
    pub(crate) qos: Vec<(Qos, Class)>,
    /// Largest number of Endpoints [default: 1024]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(16..=65536))]
    pub(crate) endpoints: Option<u32>,
    /// Memory for queues [default: 96, and 48 for each 1024 Endpoints more]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(8..=65536))]
    pub(crate) memory: Option<u32>,
    /// Lets the device write work queues and their records, which by its documents it only reads
    #[arg(long)]
    pub(crate) writable_queues: bool,
    #[command(flatten)]
    pub(crate) completions: Completions,
    /// Runs the built-in subnet manager: for two InfiniBand ports joined by a cable, on one side
    #[arg(long = "sm")]
    pub(crate) subnet_manager: bool,
    /// Has dat top show the adapters
    #[arg(long)]
    pub(crate) status: bool,
    /// What the provider logs on standard error [default: error]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) log: Option<Log>,
}

/// The log level of a provider.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Log {
    /// Nothing
    Off,
    /// Errors that keep an adapter from working
    Error,
    /// Also calls refused for a reason that their return code does not state
    Warn,
    /// Also adapters that open and close
    Info,
    /// Also every call that returns an error
    Debug,
}

impl Log {
    /// Returns the word of the parameter string.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// Prints lines of dat.conf, with which DAT programs in C find HCAs
///
/// A registry (libdat2) reads /etc/dat.conf, or the file that DAT_OVERRIDE names; each line there
/// is an Interface Adapter. The last field but one has the parameters of the provider, which
/// docs/udapl.md describes.
#[derive(Group, Clone, Debug)]
pub(crate) struct Conf {
    #[command(flatten)]
    pub(crate) lines: Registrations,
    /// The provider: a path, or a name that the loader finds
    #[arg(long, value_name = "FILE", default_value = super::conf::LIBRARY)]
    pub(crate) library: PathBuf,
    #[command(flatten)]
    pub(crate) root: Root,
}

/// Installs the uDAPL provider, and its lines of dat.conf
///
/// Copies the provider to DIR/lib and adds the lines to DIR/etc/dat.conf, where lines of other
/// providers stay unchanged. Running it again changes only what differs.
#[derive(Group, Clone, Debug)]
pub(crate) struct InstallProvider {
    #[command(flatten)]
    pub(crate) lines: Registrations,
    /// The folder
    #[arg(long, value_name = "DIR")]
    pub(crate) prefix: PathBuf,
    /// The provider's file [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    pub(crate) library: Option<PathBuf>,
    /// The file for the lines, instead of DIR/etc/dat.conf
    #[arg(long, value_name = "FILE")]
    pub(crate) conf: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) root: Root,
}

/// Starts a DAT program, or the ranks of one, each with a function of its own
///
/// With -n starts that many local ranks; ends all of them when one fails, with its exit code. Without
/// -n it is the wrapper for mpiexec, which takes its rank from MPI_LOCALRANKID,
/// OMPI_COMM_WORLD_LOCAL_RANK, MV2_COMM_WORLD_LOCAL_RANK or PMI_RANK and becomes the program. Each
/// rank finds its function, and no other, in the registry file that DAT_OVERRIDE names. A function
/// stays claimed until its rank has ended.
///
/// dat run -n 2 3b:00.0 3b:00.1 --ip 10.0.0.1/24 --ip 10.0.0.2/24 -- program
///
/// dat run -n 8 --vfs 3b:00.0 --ip 10.0.0.1/24 -- program
///
/// mpiexec -n 2 dat run --conf /etc/dat.conf -- program
#[derive(Group, Clone, Debug)]
pub(crate) struct Run {
    /// Number of ranks, which get DAT_RUN_RANK and DAT_RUN_SIZE
    #[arg(short = 'n', value_name = "RANKS", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) ranks: Option<u16>,
    /// Takes the functions from the lines of this dat.conf, in their order; each line is also
    /// there under the name of --name
    #[arg(long, value_name = "FILE", conflicts_with_all = ["devices", "ip"])]
    pub(crate) conf: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) lines: Registrations,
    /// The provider [default: the file beside this program, or the one that the loader finds]
    #[arg(long, value_name = "FILE")]
    pub(crate) library: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) root: Root,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// Tests a card step by step and keeps a report of all it does, to be sent to the authors
///
/// Steps: 0 guards, 1 machine, 2 initialization segment, 3 commands, 4 events, 5 queue pairs, 6 keys,
/// 7 link, 8 peer, 9 pages, 10 ends, 11 numbers. Takes some minutes. Refuses a function that carries
/// the default route, an SSH session or the root file system. Takes the function from its driver and
/// says how to give it back. Each check is announced in the report before it runs: if the machine
/// stops, the last line names why, and --resume goes on behind it. MACs, GUIDs, serial numbers and
/// IP addresses are replaced.
#[derive(Group, Clone, Debug)]
pub(crate) struct HwTest {
    /// The device
    #[arg(required_unless_present = "replay", value_parser = device::parse)]
    pub(crate) device: Option<Address>,
    /// The report, a new file
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Does it: the device is reset, and gone for the kernel
    #[arg(long)]
    pub(crate) yes: bool,
    /// Keeps MACs, GUIDs, serial numbers and IP addresses
    #[arg(long)]
    pub(crate) names: bool,
    /// Goes on behind the last check that the report has; FILE is that of --report if not given
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub(crate) resume: Option<Option<PathBuf>>,
    /// Only these steps, as 3 or 2-5
    #[arg(long, value_name = "STEPS", value_parser = steps)]
    pub(crate) steps: Option<(u8, u8)>,
    /// A Linux machine in the port's network, for step 8
    #[arg(long, value_name = "ADDRESS", requires = "ip")]
    pub(crate) peer: Option<IpAddr>,
    /// That machine by a name or address outside that network, where ib_write_bw waits on TCP
    #[arg(long, value_name = "HOST", requires = "peer")]
    pub(crate) peer_host: Option<String>,
    /// The port's own address [default: a link-local one]
    #[arg(long, value_name = "ADDRESS/PREFIX", value_parser = network)]
    pub(crate) ip: Option<(IpAddr, u8)>,
    /// Runs on a device that behaves as this report says: starts mlx5-model
    #[arg(long, value_name = "FILE", conflicts_with_all = ["device", "resume", "peer"])]
    pub(crate) replay: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) link: Link,
    #[command(flatten)]
    pub(crate) root: Root,
}

impl HwTest {
    /// Returns the report, and whether it is continued.
    pub(crate) fn file(&self) -> Result<(PathBuf, bool), Failure> {
        let resumed = self.resume.as_ref();
        let file = resumed.and_then(Option::as_ref).or(self.report.as_ref());
        let file = file.ok_or_else(|| Failure::usage("--report FILE is missing"))?;
        Ok((file.clone(), resumed.is_some()))
    }

    /// Returns the network configuration.
    pub(crate) fn net(&self, own: (Ipv4Addr, u8)) -> Result<Net, Failure> {
        let (addr, prefix) = self.ip.unwrap_or((IpAddr::V4(own.0), own.1));
        if let Some(peer) = self.peer {
            Peer::new(peer, PORT).differs(addr)?;
        }
        Ok(Net { addr, prefix, gateway: None, vlan: None })
    }

    /// Returns whether a step is among those wanted.
    pub(crate) fn wants(&self, step: u8) -> bool {
        self.steps.is_none_or(|(first, last)| (first..=last).contains(&step))
    }
}

fn steps(text: &str) -> Result<(u8, u8), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last && last < super::hw_test::STEPS => Ok((first, last)),
        _ => Err("a step is 0 to 11, and 2-5 are several".into()),
    }
}

fn network(text: &str) -> Result<(IpAddr, u8), String> {
    let Some((address, prefix)) = text.split_once('/') else {
        return Err("the length of the network's prefix is missing, as in 192.168.7.1/24".into());
    };
    let address: IpAddr = address.parse().map_err(|_| format!("{address} is no address"))?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    match prefix.parse() {
        Ok(prefix @ 1..) if prefix <= most => Ok((address, prefix)),
        Ok(_) | Err(_) => Err(format!("a prefix has 1 to {most} bits")),
    }
}

fn peer(text: &str) -> Result<Peer, String> {
    if let Ok(ip) = text.parse() {
        return Ok(Peer { ip, port: PORT });
    }
    match text.parse::<SocketAddr>() {
        Ok(peer) if peer.port() != 0 => Ok(Peer { ip: peer.ip(), port: peer.port() }),
        Ok(_) => Err("a port is 1 to 65535".into()),
        Err(_) => {
            Err("a peer is an address, as 192.168.7.1, 192.168.7.1:4711 or [fd00::1]:4711".into())
        }
    }
}

fn mtu(text: &str) -> Result<Mtu, String> {
    let bytes = text.parse::<u32>().ok();
    (1..=5)
        .filter_map(Mtu::from_code)
        .find(|mtu| Some(mtu.bytes()) == bytes)
        .ok_or_else(|| "a path MTU is 256, 512, 1024, 2048 or 4096".into())
}

pub(crate) fn size(text: &str) -> Result<u32, String> {
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1 << 10),
        None => match text.strip_suffix(['M', 'm']) {
            Some(digits) => (digits, 1 << 20),
            None => (text, 1),
        },
    };
    let bytes = digits.parse::<u32>().ok();
    match bytes.and_then(|bytes| bytes.checked_mul(unit)) {
        Some(bytes @ 1..=0x10_0000) => Ok(bytes),
        Some(_) | None => Err("a size is 1 to 1M, in bytes or with K or M".into()),
    }
}

/// Values that are tried one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sweep(pub(crate) Vec<u32>);

impl Sweep {
    /// A list, or a range that doubles, of values that `one` reads.
    fn of(text: &str, one: fn(&str) -> Result<u32, String>) -> Result<Self, String> {
        if let Some((from, to)) = text.split_once("..") {
            let (from, to) = (one(from)?, one(to)?);
            if from > to {
                return Err("a range begins with the smaller one".into());
            }
            // The last one too, where doubling passes it by.
            let doubled = std::iter::successors(Some(from), |value| value.checked_mul(2));
            let mut values: Vec<u32> = doubled.take_while(|value| *value < to).collect();
            values.push(to);
            return Ok(Self(values));
        }
        text.split(',').map(one).collect::<Result<_, _>>().map(Self)
    }
}

fn sizes(text: &str) -> Result<Sweep, String> {
    Sweep::of(text, size)
}

fn rates(text: &str) -> Result<Sweep, String> {
    let rate = |text: &str| match text.parse() {
        Ok(rate @ 1..) => Ok(rate),
        Ok(0) | Err(_) => Err("a rate is 1 or more operations in a second".into()),
    };
    Sweep::of(text, rate)
}

fn interface(text: &str) -> Result<Interface, String> {
    let found = Interface::ALL.into_iter().find(|interface| interface.word() == text);
    found.ok_or_else(|| "it is auto, type1, iommufd or none".into())
}

fn seconds(text: &str, least: f64, most: f64) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (least..=most).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) | Err(_) => Err(format!("give {least} to {most} seconds")),
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    seconds(text, 0.0, 10.0)
}

pub(crate) fn timeout(text: &str) -> Result<Duration, String> {
    seconds(text, 0.1, 3600.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_fit_together() {
        Args::command().debug_assert();
    }

    /// Perftest's `-q` is a number of queue pairs.
    #[test]
    fn q_says_errors_only_but_for_perftest() {
        let parsed = |line: &str| Args::try_parse_from(line.split(' ')).unwrap().errors_only;
        let perftest = "compat perftest write_bw 3b:00.0 --ip 10.0.0.1/8";
        for line in ["dat list -q", "dat -q list", &format!("dat -q {perftest}")] {
            assert!(parsed(line), "{line}");
        }
        assert!(parsed(&format!("dat {perftest} --quiet -q 2")));
        assert!(!parsed(&format!("dat {perftest} -q 2")) && !parsed("dat list"));
    }

    #[test]
    fn values_have_units_and_limits() {
        assert_eq!(size("64K"), Ok(65536));
        assert_eq!(size("1m"), Ok(1 << 20));
        for bad in ["0", "", "K", "2M", "-1", "1G", "4294967296", "4194304K", "1\u{e4}"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert_eq!(sizes("64,4K"), Ok(Sweep(vec![64, 4096])));
        assert_eq!(sizes("8..40"), Ok(Sweep(vec![8, 16, 32, 40])));
        assert_eq!(sizes("1M..1M"), Ok(Sweep(vec![1 << 20])));
        assert_eq!(rates("1000..3000"), Ok(Sweep(vec![1000, 2000, 3000])));
        assert_eq!(rates("7"), Ok(Sweep(vec![7])));
        assert!(rates("1,0").is_err());
        assert_eq!(sizes("8..1M").map(|sizes| sizes.0.len()), Ok(18));
        for bad in ["", ",", "8..", "..8", "64..8", "8..2M", "8,,9"] {
            assert!(sizes(bad).is_err(), "{bad}");
        }
        assert_eq!(mtu("1024"), Ok(Mtu::B1024));
        assert!(mtu("1500").is_err() && mtu("").is_err());
        assert!(interval("0").is_ok() && interval("11").is_err() && interval("NaN").is_err());
        assert!(timeout("0").is_err() && timeout("inf").is_err() && timeout("0.5").is_ok());
        assert_eq!(network("10.0.0.1/8"), Ok(("10.0.0.1".parse().unwrap(), 8)));
        for bad in ["10.0.0.1", "10.0.0.1/33", "10.0.0.1/0", "fd00::1/129", "x/24", "10.0.0.1/"] {
            assert!(network(bad).is_err(), "{bad}");
        }
        assert!(peer("fd00::1").is_ok_and(|peer| peer.port == PORT));
        assert!(peer("[fd00::1]:5000").is_ok_and(|peer| peer.port == 5000));
        assert!(peer("10.0.0.1:0").is_err() && peer("host").is_err());
    }
}
