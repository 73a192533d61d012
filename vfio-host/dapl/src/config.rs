//! The parameter string of a line of `dat.conf`: device, address and options.
//!
//! ```text
//! hca0 u2.0 nonthreadsafe default /usr/lib/libdapldat.so dapldat.2.0 "vfio-user:/run/hca0 ip=192.168.7.1/24" ""
//! ```
//!
//! Words between blanks. The first is the device: a PCI address, or `vfio-user:` and the path of a
//! socket. The others:
//!
//! | word | meaning | default |
//! |---|---|---|
//! | `ip=ADDRESS/PREFIX` | the adapter's own address and the length of the network prefix | required |
//! | `gateway=ADDRESS` | next hop for everything outside that network | none |
//! | `vlan=NUMBER` | 802.1Q VLAN of all frames | none |
//! | `neigh=ADDRESS,MAC` | a neighbour, or the gateway, with a fixed MAC; may be repeated, up to 32 times | none |
//! | `mtu=BYTES` | greatest payload of a packet: 256, 512, 1024, 2048 or 4096 | what the port has |
//! | `tos=CLASS` | traffic class of all packets: 0 to 255 or 0x00 to 0xff, four times the DSCP | 0 |
//! | `priority=NUMBER` | their 802.1p priority, 0 to 7: in the VLAN tag, and of the egress queue | 0 |
//! | `qos=NAME,CLASS,PRIORITY` | the same for connections that ask for `high-throughput`, `low-latency`, `economy` or `premium`; may be repeated | these are not supported |
//! | `endpoints=NUMBER` | Endpoints, and as many zones and service points: 16 to 65536 | 1024 |
//! | `memory=MIB` | memory for queues | 96, and 48 for each 1024 Endpoints more |
//! | `queues=writable` | the device may write work queues and their records; for a card that ends with a fault of the IOMMU there | it may read them |
//! | `sm=on` | runs the built-in subnet manager: for two InfiniBand ports joined by a cable, on one side | there is another in the subnet |
//! | `completions=compressed` | the card writes successive like completions of receives in compressed form, where it can: fewer bytes over PCI Express, more latency | it writes each by itself |
//! | `receives=inline` | messages of up to 32 bytes come in their completions, where the card can | all go to memory |
//! | `status=on` | `dat top` shows the adapter | it does not |
//! | `log=LEVEL` | `off`, `error`, `warn`, `info` or `debug` | `error` |

use std::net::IpAddr;

use dat_core::provider::{Classes, Mtu, Net};
use vfio_host::{Address, Neighbour, Options, class, neighbour};

use crate::log::Level;

/// Default number of Endpoints.
const ENDPOINTS: u32 = 1024;
/// Largest number of Endpoints: the number of queue pairs of the driver.
pub(crate) const MOST_ENDPOINTS: u32 = 65_536;
/// DTOs of one direction of all Endpoints together. Memory for each is allocated when the adapter
/// opens.
const ALL_DTOS: u32 = 1 << 20;
/// DTOs of one direction of an Endpoint, at most.
const MOST_DTOS: u32 = 1024;
/// Events other than completions: of all Event Dispatchers together, and the least of one.
const ALL_EVENTS: u32 = 10 << 20;
const EVENTS: u32 = 4096;
/// Memory for the queues of [`ENDPOINTS`] in MiB, half of it for completion queues, and for as many
/// Endpoints more of that many DTOs each way.
const MEMORY: usize = 96;
const MORE_MEMORY: usize = 48;
const MORE_DTOS: usize = 64;
/// Least memory for queues in MiB.
const LEAST_MEMORY: usize = 8;

/// The parsed parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// The device.
    pub(crate) device: Address,
    /// Its network configuration.
    pub(crate) net: Net,
    /// Neighbours with a fixed MAC.
    pub(crate) neighbours: Vec<Neighbour>,
    /// Upper limit of the path MTU, if any.
    pub(crate) mtu: Option<Mtu>,
    /// Traffic class and priority of each quality of service.
    pub(crate) classes: Classes,
    /// Endpoints, and as many zones and service points.
    pub(crate) endpoints: u32,
    /// Memory for queues in MiB, if stated.
    memory: Option<usize>,
    /// The device may write work queues.
    writable_queues: bool,
    pub(crate) compress_completions: bool,
    pub(crate) inline_receives: bool,
    /// The built-in subnet manager runs.
    pub(crate) subnet_manager: bool,
    /// `dat top` finds it.
    pub(crate) status: bool,
    /// The log level.
    pub(crate) log: Level,
}

impl Config {
    /// Parses a parameter string.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let device = words.next().ok_or("it is empty: a device and ip= are required")?;
        let device = device.parse::<Address>().map_err(|error| error.to_string())?;
        let mut config = Self {
            device,
            net: Net::new(IpAddr::from([0; 4]), 0),
            neighbours: Vec::new(),
            mtu: None,
            classes: Classes::default(),
            endpoints: ENDPOINTS,
            memory: None,
            writable_queues: false,
            compress_completions: false,
            inline_receives: false,
            subnet_manager: false,
            status: false,
            log: Level::default(),
        };
        for word in words {
            let (name, value) = word
                .split_once('=')
                .ok_or_else(|| format!("{word} is no word of the form name=value"))?;
            config.take(name, value)?;
        }
        let Net { addr, gateway, prefix, .. } = config.net;
        if prefix == 0 {
            return Err("ip= is missing, as in ip=192.168.7.1/24".into());
        }
        match gateway {
            Some(gateway) if gateway.is_ipv4() != addr.is_ipv4() => {
                Err(format!("gateway={gateway} and ip={addr} are of different kinds"))
            }
            Some(_) | None => Ok(config),
        }
    }

    /// Returns whether two lines mean the same adapter.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let loud = Self { log: self.log, ..other.clone() };
        loud == *self
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        let bad = |what: &str| format!("{name}={value}: {what}");
        match name {
            "ip" => {
                (self.net.addr, self.net.prefix) = network(value).map_err(|what| bad(&what))?;
            }
            "gateway" => {
                let gateway = value.parse().map_err(|_| bad("this is no address"))?;
                self.net.gateway = Some(gateway);
            }
            "vlan" => {
                let vlan = value.parse().ok().filter(|vlan| (1..=4094).contains(vlan));
                self.net.vlan = Some(vlan.ok_or_else(|| bad("a VLAN is 1 to 4094"))?);
            }
            "neigh" if self.neighbours.len() < neighbour::MOST => {
                self.neighbours.push(neighbour::parse(value).map_err(|what| bad(&what))?);
            }
            "neigh" => return Err(bad("32 neighbours can be fixed")),
            "mtu" => {
                let bytes = value.parse().ok();
                let mtu = (1..=5).filter_map(Mtu::from_code).find(|mtu| Some(mtu.bytes()) == bytes);
                self.mtu = Some(mtu.ok_or_else(|| bad("it is 256, 512, 1024, 2048 or 4096"))?);
            }
            "tos" => {
                let class = class::traffic_class(value).map_err(|what| bad(&what))?;
                self.classes.best_effort.traffic_class = class;
            }
            "priority" => {
                let priority = class::priority(value).map_err(|what| bad(&what))?;
                self.classes.best_effort.priority = priority;
            }
            "qos" => {
                let (qos, class) = class::quality(value).map_err(|what| bad(&what))?;
                self.classes.set(qos, class);
            }
            "memory" => {
                let mib = value.parse().ok().filter(|mib| (LEAST_MEMORY..=1 << 16).contains(mib));
                self.memory = Some(mib.ok_or_else(|| bad("it is 8 to 65536"))?);
            }
            "queues" => {
                self.writable_queues = value == "writable";
                if !self.writable_queues {
                    return Err(bad("it is writable"));
                }
            }
            "completions" => {
                self.compress_completions = value == "compressed";
                if !self.compress_completions {
                    return Err(bad("it is compressed"));
                }
            }
            "receives" => {
                self.inline_receives = value == "inline";
                if !self.inline_receives {
                    return Err(bad("it is inline"));
                }
            }
            "sm" => {
                self.subnet_manager = value == "on";
                if !self.subnet_manager {
                    return Err(bad("it is on"));
                }
            }
            "status" => {
                self.status = value == "on";
                if !self.status {
                    return Err(bad("it is on"));
                }
            }
            "endpoints" => {
                let most = 16..=MOST_ENDPOINTS;
                let number = value.parse().ok().filter(|number| most.contains(number));
                self.endpoints = number.ok_or_else(|| bad("it is 16 to 65536"))?;
            }
            "log" => {
                let level = Level::of(value);
                self.log = level.ok_or_else(|| bad("it is off, error, warn, info or debug"))?;
            }
            _ => {
                return Err(format!(
                    "{name}= is unknown: there are ip, gateway, vlan, neigh, mtu, tos, priority, qos, endpoints, memory, queues, completions, receives, sm, status, log"
                ));
            }
        }
        Ok(())
    }

    /// Returns the DTOs of one direction of an Endpoint: fewer with more Endpoints, so that their
    /// memory stays constant.
    pub(crate) const fn dtos(&self) -> u32 {
        let each = ALL_DTOS / self.endpoints;
        let each = if each < MOST_DTOS { each } else { MOST_DTOS };
        1 << each.ilog2()
    }

    /// Returns the events other than completions of an Event Dispatcher: beginning and end of the
    /// connections of all Endpoints.
    pub(crate) const fn events(&self) -> u32 {
        let each = (2 * self.endpoints).next_power_of_two();
        if each > EVENTS { each } else { EVENTS }
    }

    /// Returns the number of Event Dispatchers, and of CNOs: fewer if each holds more events.
    pub(crate) const fn evds(&self) -> u32 {
        ALL_EVENTS / self.events()
    }

    /// Returns the memory sizes of the host.
    pub(crate) fn options(&self) -> Options {
        let more = self.endpoints.saturating_sub(ENDPOINTS).div_ceil(ENDPOINTS);
        let dtos = MORE_DTOS.min(self.dtos() as usize);
        let all = MEMORY + MORE_MEMORY * dtos / MORE_DTOS * more as usize;
        let arena = self.memory.unwrap_or(all);
        // The device writes completion queues only. Unlike work queues, they do not grow with the
        // number of Endpoints.
        let written = (arena * (MEMORY / 2)).div_ceil(all).max(LEAST_MEMORY / 2);
        let read_only = if self.writable_queues { 0 } else { (arena - written) << 20 };
        Options { arena: arena << 20, read_only, ..Options::default() }
    }
}

fn network(text: &str) -> Result<(IpAddr, u8), String> {
    let (address, prefix) = text
        .split_once('/')
        .ok_or("the length of the network's prefix is missing, as in 192.168.7.1/24")?;
    let address: IpAddr = address.parse().map_err(|_| format!("{address} is no address"))?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    match prefix.parse() {
        Ok(prefix @ 1..) if prefix <= most => Ok((address, prefix)),
        Ok(_) | Err(_) => Err(format!("a prefix has 1 to {most} bits")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_an_address_and_options_are_read() {
        let read =
            Config::read("vfio-user:/run/hca0  ip=10.0.0.1/8 mtu=1024 vlan=7 log=debug memory=32");
        let read = read.unwrap();
        assert_eq!(read.device.to_string(), "vfio-user:/run/hca0");
        assert_eq!((read.net.addr, read.net.prefix), ([10, 0, 0, 1].into(), 8));
        assert_eq!((read.net.vlan, read.mtu.map(Mtu::bytes)), (Some(7), Some(1024)));
        let options = read.options();
        assert_eq!((options.arena, options.read_only), (32 << 20, 16 << 20));
        assert_eq!(read.log, Level::Debug);
        assert_eq!((read.endpoints, read.dtos()), (1024, 1024));
        assert_eq!((read.evds(), read.events()), (2560, 4096));
        let many = Config::read("3b:00.1 ip=10.0.0.1/8 endpoints=10000").unwrap();
        assert_eq!((many.endpoints, many.dtos()), (10_000, 64));
        assert_eq!((many.evds(), many.events()), (320, 32_768));
        let options = many.options();
        assert_eq!((options.arena, options.read_only), (528 << 20, 480 << 20));
        let most = Config::read("3b:00.1 ip=10.0.0.1/8 endpoints=65536").unwrap();
        assert_eq!((most.dtos(), most.evds()), (16, 80));
        assert_eq!(most.options().arena, (96 + 63 * 12) << 20);
        let few = Config::read("3b:00.1 ip=10.0.0.1/8 endpoints=16").unwrap();
        assert_eq!((few.dtos(), few.options().arena), (1024, 96 << 20));
        let six = Config::read("3b:00.1 ip=fd00::1/64 gateway=fd00::9").unwrap();
        assert!(six.net.addr.is_ipv6() && six.net.gateway.is_some());
    }

    #[test]
    fn neighbours_are_read_in_order_up_to_a_bound() {
        let words = |count: usize| {
            (0..count).map(|n| format!(" neigh=10.0.1.{n},02:00:00:00:00:0b")).collect::<String>()
        };
        let most = Config::read(&format!("3b:00.0 ip=10.0.0.1/8{}", words(32))).unwrap();
        assert_eq!(most.neighbours.len(), 32);
        assert_eq!(most.neighbours[3], ([10, 0, 1, 3].into(), [2, 0, 0, 0, 0, 0x0b]));
        let error = Config::read(&format!("3b:00.0 ip=10.0.0.1/8{}", words(33))).unwrap_err();
        assert!(error.contains("32 neighbours"), "{error}");
    }

    #[test]
    fn classes_are_read() {
        let config = Config::read("3b:00.0 ip=10.0.0.1/8 tos=0x68 priority=3 qos=premium,184,5");
        let classes = config.unwrap().classes;
        let best = classes.best_effort;
        assert_eq!((best.traffic_class, best.priority, classes.supported()), (0x68, 3, 8));
        let premium = classes.premium.unwrap();
        assert_eq!((premium.traffic_class, premium.priority), (184, 5));
    }

    #[test]
    fn work_queues_can_be_writable() {
        let config = Config::read("3b:00.0 ip=10.0.0.1/8 queues=writable").unwrap();
        assert_eq!((config.options().arena, config.options().read_only), (96 << 20, 0));
    }

    #[test]
    fn what_the_device_may_do_with_completions_is_asked_for() {
        let asked = |words| {
            let config = Config::read(&format!("3b:00.0 ip=10.0.0.1/8{words}")).unwrap();
            (config.compress_completions, config.inline_receives)
        };
        assert_eq!(asked(""), (false, false));
        assert_eq!(asked(" completions=compressed"), (true, false));
        assert_eq!(asked(" receives=inline"), (false, true));
    }

    #[test]
    fn errors_name_the_wrong_word() {
        for (text, named) in [
            ("", "empty"),
            ("vfio-user:/x", "ip="),
            ("nonsense ip=10.0.0.1/8", "nonsense"),
            ("3b:00.0 ip=10.0.0.1", "prefix"),
            ("3b:00.0 ip=10.0.0.1/33", "32"),
            ("3b:00.0 ip=10.0.0.1/8 mtu=1000", "mtu=1000"),
            ("3b:00.0 ip=10.0.0.1/8 vlan=4095", "4094"),
            ("3b:00.0 ip=10.0.0.1/8 gateway=fd00::1", "kinds"),
            ("3b:00.0 ip=10.0.0.1/8 neigh=10.0.0.2", "neigh=10.0.0.2"),
            ("3b:00.0 ip=10.0.0.1/8 tos=256", "tos=256: a traffic class is 0 to 255"),
            ("3b:00.0 ip=10.0.0.1/8 priority=8", "priority=8: a priority is 0 to 7"),
            ("3b:00.0 ip=10.0.0.1/8 queues=read-only", "queues=read-only: it is writable"),
            ("3b:00.0 ip=10.0.0.1/8 completions=all", "completions=all: it is compressed"),
            ("3b:00.0 ip=10.0.0.1/8 receives=outline", "receives=outline: it is inline"),
            ("3b:00.0 ip=10.0.0.1/8 status=off", "status=off: it is on"),
            ("3b:00.0 ip=10.0.0.1/8 qos=best,0,0", "none of high-throughput"),
            ("3b:00.0 ip=10.0.0.1/8 endpoints=15", "65536"),
            ("3b:00.0 ip=10.0.0.1/8 endpoints=65537", "65536"),
            ("3b:00.0 ip=10.0.0.1/8 colour=red", "colour"),
            ("3b:00.0 ip=10.0.0.1/8 fast", "fast"),
        ] {
            let error = Config::read(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
