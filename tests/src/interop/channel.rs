//! TCP between ordinary addresses of the two machines, over which the pingpongs tell each other
//! their queue pairs and cmtime keeps step.
//!
//! A queue pair is a line of 52 bytes, `LID:QPN:PSN:GID` in hexadecimal digits and a zero. The
//! client says its own; the server connects and says its own; the client says `done` and a zero. A
//! program that cannot read a line in one go gives up, so every line is written in one.
//!
//! The adapter is driven meanwhile: the peer's kernel looks for this side's address before it
//! answers.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use vfio_host::Host;

use super::engine::Nic;

/// Bytes of a line.
const LINE: usize = 52;
/// Between two looks at the socket the adapter is driven.
const LOOK: Duration = Duration::from_millis(2);

/// A queue pair, as the two sides tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueuePair {
    pub(super) qpn: u32,
    /// The first PSN that it sends.
    pub(super) psn: u32,
    /// Where it is; the GID is this address.
    pub(super) ip: IpAddr,
    /// The LID of its port, on InfiniBand.
    pub(super) lid: u16,
}

impl QueuePair {
    /// Fills the lines of a program that tells more than it has.
    pub(super) const NONE: Self =
        Self { qpn: 0, psn: 0, ip: IpAddr::V6(Ipv6Addr::UNSPECIFIED), lid: 0 };

    fn line(&self) -> [u8; LINE] {
        let gid = match self.ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let (lid, gid) = (self.lid, u128::from(gid));
        let text = format!("{lid:04x}:{:06x}:{:06x}:{gid:032x}", self.qpn, self.psn);
        let mut line = [0; LINE];
        line[..text.len()].copy_from_slice(text.as_bytes());
        line
    }

    fn parse(line: &[u8; LINE]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?.trim_end_matches('\0');
        let fields: Vec<&str> = text.split(':').collect();
        let [lid, qpn, psn, gid] = fields[..] else { return None };
        let number = |digits: &str, len| {
            let hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let number = u128::from_str_radix(digits, 16).ok();
            number.filter(|_| hex && digits.len() == len)
        };
        Some(Self {
            qpn: number(qpn, 6)? as u32,
            psn: number(psn, 6)? as u32,
            ip: Ipv6Addr::from(number(gid, 32)?).to_canonical(),
            lid: number(lid, 4)? as u16,
        })
    }
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Channel {
    stream: TcpStream,
    timeout: Duration,
}

impl Channel {
    /// Calls a server.
    pub(super) fn call(host: &str, port: u16, timeout: Duration) -> Result<Self> {
        let stream = TcpStream::connect((host, port));
        Self::new(stream.with_context(|| format!("TCP port {port} of {host}"))?, timeout)
    }

    /// Takes the first connection within `wait`.
    pub(super) fn accept<H: Host>(
        nic: &mut Nic<'_, '_, H>,
        port: u16,
        wait: Duration,
        timeout: Duration,
    ) -> Result<Self> {
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            .with_context(|| format!("TCP port {port}"))?;
        listener.set_nonblocking(true)?;
        eprintln!("interop: listens on TCP port {port}");
        let until = Instant::now() + wait;
        while Instant::now() < until {
            nic.advance();
            match listener.accept() {
                Ok((stream, _)) => return Self::new(stream, timeout),
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(LOOK),
                Err(error) => return Err(error.into()),
            }
        }
        bail!("nobody called within {} s", wait.as_secs_f64())
    }

    fn new(stream: TcpStream, timeout: Duration) -> Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(timeout))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, timeout })
    }

    /// Says these bytes in one piece.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("the peer on TCP")
    }

    /// Fills `bytes` with what the peer says.
    fn read<H: Host>(&mut self, nic: &mut Nic<'_, '_, H>, bytes: &mut [u8]) -> Result<()> {
        let until = Instant::now() + self.timeout;
        let mut got = 0;
        while got < bytes.len() {
            nic.advance();
            match self.stream.read(&mut bytes[got..]) {
                Ok(0) => bail!("the peer hung up after {got} of {} bytes", bytes.len()),
                Ok(more) => got += more,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    let time = self.timeout.as_secs_f64();
                    ensure!(Instant::now() < until, "the peer said nothing within {time} s");
                }
                Err(error) => return Err(error).context("the peer on TCP"),
            }
        }
        Ok(())
    }

    /// Waits until the peer says these bytes.
    pub(super) fn wait_for<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        wanted: &[u8],
    ) -> Result<()> {
        let mut said = vec![0; wanted.len()];
        self.read(nic, &mut said)?;
        let words = String::from_utf8_lossy(&said);
        ensure!(said == wanted, "the peer said {words:?} instead of {wanted:?}");
        Ok(())
    }

    /// Says these queue pairs.
    pub(super) fn send_pairs(&mut self, pairs: &[QueuePair]) -> Result<()> {
        pairs.iter().try_for_each(|pair| self.send(&pair.line()))
    }

    /// Receives so many queue pairs.
    pub(super) fn receive_pairs<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        count: usize,
    ) -> Result<Vec<QueuePair>> {
        let mut receive = || {
            let mut line = [0; LINE];
            self.read(nic, &mut line)?;
            let words = || format!("{:?} is no LID:QPN:PSN:GID", String::from_utf8_lossy(&line));
            QueuePair::parse(&line).with_context(words)
        };
        (0..count).map(|_| receive()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn padded(text: &str) -> [u8; LINE] {
        let mut line = [0; LINE];
        line[..text.len()].copy_from_slice(text.as_bytes());
        line
    }

    #[test]
    fn lines_are_those_of_the_pingpongs() {
        let v4 = QueuePair { qpn: 0x11, psn: 0xabcdef, ip: "10.9.0.1".parse().unwrap(), lid: 0 };
        assert_eq!(v4.line(), padded("0000:000011:abcdef:00000000000000000000ffff0a090001"));
        let v6 =
            QueuePair { qpn: 0xff_ffff, psn: 0, ip: "fd00::1:2".parse().unwrap(), lid: 0xbfff };
        for pair in [v4, v6, QueuePair::NONE] {
            assert_eq!(QueuePair::parse(&pair.line()), Some(pair));
        }
    }

    #[test]
    fn what_is_no_line_is_none() {
        for bad in [
            "",
            "0000:000011:abcdef",
            "0000:1000011:abcdef:00000000000000000000ffff0a09000",
            "0000:000011:abcdef:00000000000000000000ffff0a09000g",
            "0000:+00011:abcdef:00000000000000000000ffff0a090001",
            "GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n",
        ] {
            assert_eq!(QueuePair::parse(&padded(bad)), None, "{bad}");
        }
        assert_eq!(QueuePair::parse(&[0xff; LINE]), None);
    }
}
