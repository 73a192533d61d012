//! What the two sides of a perftest say to each other over TCP.
//!
//! Everything is said by both: first by the client, then by the server. It begins with the version
//! of the exchange (16 bytes), the stretch of memory in which small messages wander and the length
//! of a cache line (4 bytes each, the greater counts), and the code of the path MTU (2 bytes of
//! text, the smaller counts). Then come keys: lines of 108 bytes, `LID:READS:QPN:PSN:RKEY:ADDRESS:`
//! and the 16 bytes of the GID, each with a colon, `SRQN:` and a zero, all in hexadecimal digits. A
//! key that is said again means nothing but "I have come this far". At the end of a bandwidth test
//! that a server does not see, the two swap figures: five of 8 bytes.
//!
//! A program that cannot read a line in one go gives up, so every line is written in one. Versions
//! from 6.28 on agree on more, but only with their like, which this is not.

use std::net::{IpAddr, Ipv6Addr};
use std::str;
use std::time::Duration;

use dat_core::provider::Mtu;
use tracing::debug;
use vfio_host::{Host, Nic};

use super::super::super::failure::Failure;
use super::super::args::Perftest;
use super::super::link::Links;
use super::super::oob::{self, Address, Channel, Numbers, UNKNOWN_PEER};
use super::Agreed;

/// Bytes of a version, and the one that this is.
const VERSION: usize = 16;
const SPOKEN: &str = "6.24";
/// Older ones say other things.
const OLDEST: f64 = 5.70;
/// Bytes of a key.
const KEY: usize = 108;
/// The same without a GID, on InfiniBand.
const KEY_OF_LID: usize = 59;
/// Least and greatest stretch of memory that small messages wander in: one page over there.
const CYCLE: [u32; 2] = [4096, 1 << 20];
/// The same of a cache line.
const LINE: [u32; 2] = [64, 1024];
/// The other side may take so long to end.
const PARTING: Duration = Duration::from_secs(2);

/// A connection as its two sides tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Queue pair, first PSN and GID.
    pub(super) address: Address,
    /// Reads that the other side may have outstanding here.
    pub(super) reads: u16,
    /// Memory that is open to the other side: its key, and where it begins.
    pub(super) rkey: u32,
    pub(super) addr: u64,
}

impl Key {
    /// Where the other side is, if it can be reached from `local` at all.
    pub(super) fn ip(&self, local: IpAddr) -> Result<IpAddr, Failure> {
        let remote = self.address.ip()?;
        oob::matching(local, remote)?;
        Ok(remote)
    }

    fn line<const LEN: usize>(&self) -> [u8; LEN] {
        let Self { address, reads, rkey, addr } = self;
        let Address { qpn, psn, gid, lid } = address;
        let mut text = format!("{lid:04x}:{reads:04x}:{qpn:06x}:{psn:06x}:{rkey:08x}:{addr:016x}:");
        if LEN == KEY {
            for byte in gid.octets() {
                text.push_str(&format!("{byte:02x}:"));
            }
        }
        text.push_str(if LEN == KEY { "00000000:" } else { "00000000" });
        oob::padded(&text)
    }

    fn parse<const LEN: usize>(line: &[u8; LEN]) -> Option<Self> {
        let mut numbers = Numbers::of(line)?;
        let lid = numbers.next(4)?;
        let reads = numbers.next(4)?;
        let (qpn, psn) = (numbers.next(6)?, numbers.next(6)?);
        let (rkey, addr) = (numbers.next(8)?, numbers.next(16)?);
        let mut gid = [0; 16];
        if LEN == KEY {
            for byte in &mut gid {
                *byte = numbers.next(2)?;
            }
        }
        let gid = Ipv6Addr::from(gid);
        let _srqn: u32 = numbers.next(8)?;
        // The last colon, where there is one, is followed by nothing.
        let end: &[&str] = if LEN == KEY { &[""] } else { &[] };
        numbers.rest().eq(end.iter().copied()).then_some(Self {
            address: Address { qpn, psn, gid, lid },
            reads,
            rkey,
            addr,
        })
    }
}

/// What a client measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Report {
    /// Bytes of an operation.
    pub(super) size: u64,
    /// Operations over all connections.
    pub(super) operations: u64,
    /// Mean rate, in units of 2^20 bytes a second.
    pub(super) mean: f64,
    /// Millions of operations a second.
    pub(super) rate: f64,
}

/// Somebody to talk to.
#[derive(Debug)]
pub(super) struct Talk {
    channel: Channel,
    client: bool,
    timeout: Duration,
}

impl Talk {
    /// Finds the other side.
    pub(super) fn meet<H: Host>(
        nic: &mut Nic<'_, '_, H>,
        perftest: &Perftest,
    ) -> Result<Self, Failure> {
        let (port, program) = (perftest.port, perftest.test.program());
        let (timeout, wait) = (perftest.patience.timeout, perftest.patience.wait);
        let channel = match &perftest.client {
            Some(host) => Channel::call(host, port, timeout, program)?,
            None => {
                let listener = oob::listen(port, program)?;
                Channel::accept(nic, &listener, wait, timeout, program)?
            }
        };
        Ok(Self { channel, client: perftest.client.is_some(), timeout })
    }

    /// Says something, and receives the same thing of the other side within `limit`.
    fn swap<const N: usize, H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        links: &mut Links,
        own: [u8; N],
        limit: Duration,
        what: &str,
    ) -> Result<[u8; N], Failure> {
        let mut far = [0; N];
        if self.client {
            self.channel.write(&own)?;
        }
        let watch = |nic: &mut Nic<'_, '_, H>| links.watch(nic);
        self.channel.read_while(nic, &mut far, limit, what, watch)?;
        if !self.client {
            self.channel.write(&own)?;
        }
        Ok(far)
    }

    fn unknown_peer(&self, said: &[u8], what: &str) -> Failure {
        let said = String::from_utf8_lossy(said);
        let said = said.trim_end_matches('\0');
        Failure::new(format!("{} said {said:?}, {what}", self.channel.peer())).remedy(UNKNOWN_PEER)
    }

    /// Agrees on what both need to know first.
    pub(super) fn agree<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        links: &mut Links,
        mtu: Mtu,
    ) -> Result<Agreed, Failure> {
        let limit = self.timeout;
        let own = oob::padded::<VERSION>(SPOKEN);
        let said = self.swap(nic, links, own, limit, "its version")?;
        match version(&said) {
            Some(version) if version >= OLDEST => debug!("version {version}"),
            Some(version) => {
                return Err(Failure::new(format!(
                    "{} speaks version {version} of perftest's exchange",
                    self.channel.peer()
                ))
                .remedy(format!(
                    "{OLDEST:.2} is the oldest that is understood: install a newer perftest there"
                )));
            }
            None => return Err(self.unknown_peer(&said, "which is no version of perftest")),
        }
        let cycle = self.greater(nic, links, CYCLE, "its page size")?;
        let line = self.greater(nic, links, LINE, "the length of its cache lines")?;
        let said = self.swap(nic, links, [b'0' + mtu.code(), 0], limit, "its MTU")?;
        let digit = said.first().map(|digit| digit.wrapping_sub(b'0'));
        let far = digit.and_then(Mtu::from_code).filter(|_| said.last() == Some(&0));
        let far = far.ok_or_else(|| self.unknown_peer(&said, "which is no code of an MTU"))?;
        Ok(Agreed { cycle, line, mtu: far.min(mtu) })
    }

    /// Agrees on the greater of two powers of two, of which this side has the least.
    fn greater<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        links: &mut Links,
        [least, most]: [u32; 2],
        what: &str,
    ) -> Result<usize, Failure> {
        let said = self.swap(nic, links, least.to_be_bytes(), self.timeout, what)?;
        let far = u32::from_be_bytes(said);
        if far > most || !far.is_power_of_two() {
            return Err(Failure::new(format!(
                "{} said that {what} is {far}; up to {most} is understood",
                self.channel.peer()
            ))
            .remedy(UNKNOWN_PEER));
        }
        Ok(usize::try_from(far.max(least)).unwrap_or(0))
    }

    /// Swaps keys, one for each connection.
    pub(super) fn keys<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        links: &mut Links,
        own: &[Key],
    ) -> Result<Vec<Key>, Failure> {
        let mut far: Vec<Key> = Vec::with_capacity(own.len());
        for own in own {
            let key = self.key(nic, links, own, self.timeout, "its queue pairs")?;
            debug!("{own:x?} here, {key:x?} there");
            if far.iter().any(|other| other.address.qpn == key.address.qpn) {
                return Err(
                    self.apart("has fewer connections than this side, or runs another test")
                );
            }
            far.push(key);
        }
        Ok(far)
    }

    fn key<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        links: &mut Links,
        own: &Key,
        limit: Duration,
        what: &str,
    ) -> Result<Key, Failure> {
        const WRONG: &str = "which is no key of perftest";
        if own.address.lid != 0 {
            let said = self.swap(nic, links, own.line::<KEY_OF_LID>(), limit, what)?;
            return Key::parse(&said).ok_or_else(|| self.unknown_peer(&said, WRONG));
        }
        let said = self.swap(nic, links, own.line::<KEY>(), limit, what)?;
        Key::parse(&said).ok_or_else(|| self.unknown_peer(&said, WRONG))
    }

    /// Waits until the other side has come this far as well. What it says is its key once more; the
    /// first time, it is new.
    pub(super) fn step<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        links: &mut Links,
        own: &Key,
        far: Option<&Key>,
        limit: Duration,
        what: &str,
    ) -> Result<Key, Failure> {
        let key = self.key(nic, links, own, limit, what)?;
        match far {
            Some(far) if far.address.qpn != key.address.qpn => {
                Err(self.apart("has more connections than this side, or runs another test"))
            }
            Some(_) | None => Ok(key),
        }
    }

    fn apart(&self, what: &str) -> Failure {
        Failure::new(format!("{} {what}", self.channel.peer()))
            .remedy("give the same -q on both sides, and run the same test")
    }

    /// The longest that one thing may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Swaps figures; those of the client count.
    pub(super) fn report<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        links: &mut Links,
        own: &Report,
    ) -> Result<Report, Failure> {
        let limit = self.timeout;
        let mut word = |own: [u8; 8]| self.swap(nic, links, own, limit, "its figures");
        let size = word(own.size.to_be_bytes())?;
        let operations = word(own.operations.to_be_bytes())?;
        // The peak: nobody here looks for one.
        word(own.mean.to_be_bytes())?;
        let mean = word(own.mean.to_be_bytes())?;
        let rate = word(own.rate.to_be_bytes())?;
        Ok(Report {
            size: u64::from_be_bytes(size),
            operations: u64::from_be_bytes(operations),
            mean: f64::from_be_bytes(mean),
            rate: f64::from_be_bytes(rate),
        })
    }

    /// Waits a moment for the other side to end: until it has, its device may want to learn of what
    /// it wrote last.
    pub(super) fn linger<H: Host>(&mut self, nic: &mut Nic<'_, '_, H>) -> Result<(), Failure> {
        self.channel.gone(nic, PARTING)
    }
}

/// The number that a version begins with.
fn version(said: &[u8; VERSION]) -> Option<f64> {
    let text = said.split(|byte| *byte == 0).next()?;
    let plain = text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    str::from_utf8(text).ok().filter(|_| plain)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::super::oob::padded;
    use super::*;

    #[test]
    fn keys_are_those_of_perftest() {
        let key = Key {
            address: Address::new(0x11, 0xab_cdef, ("10.9.0.1".parse().unwrap(), 0)),
            reads: 16,
            rkey: 0x1234,
            addr: 0x7fff_0000_1000,
        };
        let text = "0000:0010:000011:abcdef:00001234:00007fff00001000:\
                    00:00:00:00:00:00:00:00:00:00:ff:ff:0a:09:00:01:00000000:";
        assert_eq!(text.len() + 1, KEY);
        assert_eq!(key.line::<KEY>(), padded(text));
        assert_eq!(Key::parse(&key.line::<KEY>()), Some(key));
        let gid = Ipv6Addr::UNSPECIFIED;
        let key_of_lid = Key { address: Address { gid, lid: 0x104, ..key.address }, ..key };
        let text = "0104:0010:000011:abcdef:00001234:00007fff00001000:00000000";
        assert_eq!(text.len() + 1, KEY_OF_LID);
        assert_eq!(key_of_lid.line::<KEY_OF_LID>(), padded(text));
        assert_eq!(Key::parse(&key_of_lid.line::<KEY_OF_LID>()), Some(key_of_lid));
        let local = "10.9.0.2".parse().unwrap();
        assert_eq!(key.ip(local).ok(), Some("10.9.0.1".parse().unwrap()));
        assert!(key.ip("fd00::1".parse().unwrap()).is_err());
    }

    #[test]
    fn what_is_no_key_is_none() {
        for bad in [
            "",
            "0000:0010:000011",
            "0000:0010:000011:abcdef:00001234:00007fff00001000:00:00:00:00:00:00:00:00:00:00:ff:ff:0a:09:00:01:00000000",
            "0000:0010:000011:abcdef:00001234:00007fff00001000:00:00:00:00:00:00:00:00:00:00:ff:ff:0a:09:00:1ff:0000000:",
            "0000:0010:1000011:abcdef:0001234:00007fff00001000:00:00:00:00:00:00:00:00:00:00:ff:ff:0a:09:00:01:00000000:",
            "0000:0010:+00011:abcdef:00001234:00007fff00001000:00:00:00:00:00:00:00:00:00:00:ff:ff:0a:09:00:01:00000000:",
            "GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n",
        ] {
            assert_eq!(Key::parse::<KEY>(&padded(bad)), None, "{bad}");
        }
        assert_eq!(Key::parse(&[0xff; KEY]), None);
    }

    #[test]
    fn versions_are_numbers() {
        let of = |text: &str| version(&padded(text));
        assert_eq!((of("6.24"), of("5.93"), of("6")), (Some(6.24), Some(5.93), Some(6.0)));
        for bad in ["", "GET / HTTP/1.1", "inf", "-1", "6.2.4", "1e9"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
