//! The parameter string of a line of `dat.conf`: which device, which address, which options.
//!
//! ```text
//! hca0 u2.0 nonthreadsafe default /usr/lib/libdapldat.so dapldat.2.0 "vfio-user:/run/hca0 ip=192.168.7.1/24" ""
//! ```
//!
//! Words between blanks. The first is the device: a PCI address, or `vfio-user:` and the path of a socket. The others:
//!
//! | word | says | if it is left out |
//! |---|---|---|
//! | `ip=ADDRESS/PREFIX` | the adapter's own address, and how much of it is the network's | has to be there |
//! | `gateway=ADDRESS` | next hop for everything outside that network | there is none |
//! | `vlan=NUMBER` | 802.1Q VLAN of all frames | none |
//! | `mtu=BYTES` | greatest payload of a packet: 256, 512, 1024, 2048 or 4096 | what the port has |
//! | `memory=MIB` | memory for queues | 96 |
//! | `log=LEVEL` | `off`, `error`, `warn`, `info` or `debug` | `error` |

use std::net::IpAddr;

use dat_core::provider::{Mtu, Net};
use vfio_host::{Address, Options};

use crate::log::Level;

/// Memory for queues, in MiB.
const MEMORY: usize = 96;

/// What such a string says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// The device.
    pub(crate) device: Address,
    /// Its address.
    pub(crate) net: Net,
    /// Greatest payload of a packet, if it is limited.
    pub(crate) mtu: Option<Mtu>,
    /// MiB of memory for queues.
    pub(crate) memory: usize,
    /// How much is said.
    pub(crate) log: Level,
}

impl Config {
    /// Reads one.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let device = words
            .next()
            .ok_or("it is empty: a device and ip= have to be there")?;
        let device = device
            .parse::<Address>()
            .map_err(|error| error.to_string())?;
        let mut config = Self {
            device,
            net: Net {
                addr: IpAddr::from([0; 4]),
                prefix: 0,
                gateway: None,
                vlan: None,
            },
            mtu: None,
            memory: MEMORY,
            log: Level::default(),
        };
        for word in words {
            let (name, value) = word
                .split_once('=')
                .ok_or_else(|| format!("{word} is no word of the form name=value"))?;
            config.take(name, value)?;
        }
        let Net {
            addr,
            gateway,
            prefix,
            ..
        } = config.net;
        if prefix == 0 {
            return Err("ip= is missing, as in ip=192.168.7.1/24".into());
        }
        match gateway {
            Some(gateway) if gateway.is_ipv4() != addr.is_ipv4() => Err(format!(
                "gateway={gateway} and ip={addr} are of different kinds"
            )),
            Some(_) | None => Ok(config),
        }
    }

    /// Whether two lines mean the same adapter.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let loud = Self {
            log: self.log,
            ..other.clone()
        };
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
            "mtu" => {
                let bytes = value.parse().ok();
                let mtu = (1..=5)
                    .filter_map(Mtu::from_code)
                    .find(|mtu| Some(mtu.bytes()) == bytes);
                self.mtu = Some(mtu.ok_or_else(|| bad("it is 256, 512, 1024, 2048 or 4096"))?);
            }
            "memory" => {
                let mib = value.parse().ok().filter(|mib| (8..=1 << 16).contains(mib));
                self.memory = mib.ok_or_else(|| bad("it is 8 to 65536"))?;
            }
            "log" => {
                let level = Level::of(value);
                self.log = level.ok_or_else(|| bad("it is off, error, warn, info or debug"))?;
            }
            _ => {
                return Err(format!(
                    "{name}= is unknown: there are ip, gateway, vlan, mtu, memory, log"
                ));
            }
        }
        Ok(())
    }

    /// How much memory the device gets.
    pub(crate) fn options(&self) -> Options {
        let arena = self.memory << 20;
        Options {
            arena,
            // Work queues of Endpoints are the greater part of it.
            read_only: arena / 2,
            ..Options::default()
        }
    }
}

fn network(text: &str) -> Result<(IpAddr, u8), String> {
    let (address, prefix) = text
        .split_once('/')
        .ok_or("the length of the network's prefix is missing, as in 192.168.7.1/24")?;
    let address: IpAddr = address
        .parse()
        .map_err(|_| format!("{address} is no address"))?;
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
        assert_eq!(
            (read.net.vlan, read.mtu.map(Mtu::bytes)),
            (Some(7), Some(1024))
        );
        assert_eq!((read.log, read.options().arena), (Level::Debug, 32 << 20));
        let six = Config::read("3b:00.1 ip=fd00::1/64 gateway=fd00::9").unwrap();
        assert!(six.net.addr.is_ipv6() && six.net.gateway.is_some());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("", "empty"),
            ("vfio-user:/x", "ip="),
            ("nonsense ip=10.0.0.1/8", "nonsense"),
            ("3b:00.0 ip=10.0.0.1", "prefix"),
            ("3b:00.0 ip=10.0.0.1/33", "32"),
            ("3b:00.0 ip=10.0.0.1/8 mtu=1000", "mtu=1000"),
            ("3b:00.0 ip=10.0.0.1/8 vlan=4095", "4094"),
            ("3b:00.0 ip=10.0.0.1/8 gateway=fd00::1", "kinds"),
            ("3b:00.0 ip=10.0.0.1/8 colour=red", "colour"),
            ("3b:00.0 ip=10.0.0.1/8 fast", "fast"),
        ] {
            let error = Config::read(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
