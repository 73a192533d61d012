//! The command line: words of the form `name=value`.

use core::net::IpAddr;
use core::time::Duration;

use crate::hello::{Kind, MOST_SIZE};

/// The options of the image.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    /// Index of the HCA, in the order of the buses.
    pub(crate) hca: usize,
    /// Own address.
    pub(crate) ip: IpAddr,
    /// Length of the network's prefix.
    pub(crate) prefix: u8,
    /// Next hop to other networks.
    pub(crate) gateway: Option<IpAddr>,
    /// 802.1Q VLAN.
    pub(crate) vlan: Option<u16>,
    /// Address of the peer; without one the image listens.
    pub(crate) peer: Option<IpAddr>,
    /// Connection qualifier, own or the peer's.
    pub(crate) port: u64,
    /// Tests to serve.
    pub(crate) serve: u32,
    /// The test to run; all, one after the other, if `None`.
    pub(crate) test: Option<Kind>,
    /// Operations of a test.
    pub(crate) count: u64,
    /// Operations in flight, except for a ping.
    pub(crate) depth: u16,
    /// Bytes of an operation.
    pub(crate) size: u32,
    /// Sleep until MSI-X interrupts come instead of polling.
    pub(crate) interrupts: bool,
    /// Move BAR 0 even if firmware has assigned it above 4 GiB.
    pub(crate) move_bar: bool,
    /// Time after which the image ends in any case.
    pub(crate) timeout: Duration,
}

/// An invalid word, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wrong<'a>(pub(crate) &'a str, pub(crate) &'static str);

/// Most operations in flight, limited by the adapter's storage, which also holds messages about the
/// test.
const DEEPEST: u16 = 16;

impl Options {
    /// Reads a command line.
    pub(crate) fn parse(line: &str) -> Result<Self, Wrong<'_>> {
        let mut options = Self {
            hca: 0,
            ip: IpAddr::from([192, 168, 7, 2]),
            prefix: 24,
            gateway: None,
            vlan: None,
            peer: None,
            port: 4711,
            serve: 1,
            test: None,
            count: 16,
            depth: 4,
            size: 4096,
            interrupts: true,
            move_bar: false,
            timeout: Duration::from_secs(60),
        };
        for word in line.split_ascii_whitespace() {
            let Some((name, value)) = word.split_once('=') else {
                return Err(Wrong(word, "not of the form name=value"));
            };
            let why = match name {
                "hca" => put(&mut options.hca, value.parse().ok(), "a number from 0"),
                "ip" => {
                    let (ip, prefix) = value.split_once('/').unwrap_or((value, ""));
                    let ip = ip.parse().ok();
                    let most = if ip.is_some_and(|ip: IpAddr| ip.is_ipv6()) { 128 } else { 32 };
                    let usual = if most == 128 { 64 } else { 24 };
                    let prefix = if prefix.is_empty() { Some(usual) } else { prefix.parse().ok() };
                    put(&mut options.prefix, prefix.filter(|p| *p <= most), "an address/prefix")
                        .or(put(&mut options.ip, ip, "an address/prefix"))
                }
                "gateway" => put(&mut options.gateway, value.parse().ok().map(Some), "an address"),
                "vlan" => {
                    let vlan = value.parse().ok().filter(|v| (1..4095).contains(v));
                    put(&mut options.vlan, vlan.map(Some), "1 to 4094")
                }
                "peer" => put(&mut options.peer, value.parse().ok().map(Some), "an address"),
                "port" => {
                    let port = value.parse().ok().filter(|p| (1..=65535).contains(p));
                    put(&mut options.port, port, "1 to 65535")
                }
                "serve" => put(&mut options.serve, value.parse().ok(), "a number"),
                "test" => {
                    let known = Kind::ALL.into_iter().find(|kind| kind.name() == value);
                    let all = value == "all";
                    let test = if all { Some(None) } else { known.map(Some) };
                    put(&mut options.test, test, "ping, write, read or all")
                }
                "count" => {
                    let count = value.parse().ok().filter(|count| *count > 0);
                    put(&mut options.count, count, "a number from 1")
                }
                "depth" => {
                    let depth = value.parse().ok().filter(|d| (1..=DEEPEST).contains(d));
                    put(&mut options.depth, depth, "1 to 16")
                }
                "size" => {
                    let size = value.parse().ok().filter(|s| (1..=MOST_SIZE).contains(s));
                    put(&mut options.size, size, "1 to 1048576")
                }
                "irq" => {
                    let interrupts = [("msix", true), ("poll", false)];
                    let known = interrupts.into_iter().find(|(name, _)| *name == value);
                    put(&mut options.interrupts, known.map(|(_, on)| on), "msix or poll")
                }
                "bar" => {
                    let place = [("keep", false), ("move", true)];
                    let known = place.into_iter().find(|(name, _)| *name == value);
                    put(&mut options.move_bar, known.map(|(_, on)| on), "keep or move")
                }
                "timeout" => {
                    let seconds = value.parse().ok().map(Duration::from_secs);
                    put(&mut options.timeout, seconds, "a number of seconds")
                }
                _ => Some(
                    "the words are hca ip gateway vlan peer port serve test count depth size irq bar timeout",
                ),
            };
            if let Some(why) = why {
                return Err(Wrong(word, why));
            }
        }
        Ok(options)
    }
}

/// Stores a value, or returns what was expected.
fn put<T>(place: &mut T, value: Option<T>, wanted: &'static str) -> Option<&'static str> {
    match value {
        Some(value) => {
            *place = value;
            None
        }
        None => Some(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_parsed() {
        let options = Options::parse(
            "hca=1 ip=10.1.2.3/16 gateway=10.1.0.1 vlan=5 peer=10.1.2.4 port=99 serve=3 test=read count=7 depth=16 size=100 irq=poll bar=move timeout=9",
        )
        .unwrap();
        assert_eq!(
            options,
            Options {
                hca: 1,
                ip: [10, 1, 2, 3].into(),
                prefix: 16,
                gateway: Some([10, 1, 0, 1].into()),
                vlan: Some(5),
                peer: Some([10, 1, 2, 4].into()),
                port: 99,
                serve: 3,
                test: Some(Kind::Read),
                count: 7,
                depth: 16,
                size: 100,
                interrupts: false,
                move_bar: true,
                timeout: Duration::from_secs(9),
            }
        );
        let six = Options::parse("ip=fd00::2").unwrap();
        assert_eq!((six.prefix, six.peer, six.interrupts), (64, None, true));
    }

    #[test]
    fn every_wrong_word_is_named() {
        for word in [
            "ip",
            "ip=1.2.3",
            "ip=1.2.3.4/33",
            "vlan=4095",
            "port=0",
            "size=0",
            "size=1048577",
            "irq=maybe",
            "bar=",
            "count=0",
            "depth=17",
            "test=none",
            "color=red",
            "peer=",
            "timeout=x",
        ] {
            let line = std::format!("port=1 {word} hca=0");
            assert_eq!(Options::parse(&line).unwrap_err().0, word);
        }
    }
}
