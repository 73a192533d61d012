//! The side channel of perftest: over TCP between ordinary addresses the two sides tell each other
//! their queue pairs.
//!
//! All of it comes from an unknown peer. Every wait has an end. The adapter is driven meanwhile: the
//! peer's kernel looks for this side's address before it answers.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::str;
use std::time::{Duration, Instant};

use dat_core::provider::lid_address;
use tracing::info;
use vfio_host::{Host, Nic};

use super::super::failure::Failure;
use super::super::out::note;
use super::super::traffic::adapter;
use super::ends::interrupted;

/// Looks at the socket, and in between at the adapter.
const LOOK: Duration = Duration::from_millis(2);
/// What to do about a peer that says something else.
pub(super) const UNKNOWN_PEER: &str =
    "is it the program of that name? a firewall or another program may sit on that port (-p)";

/// A queue pair, as the two sides tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// Its number, 24 bits.
    pub(super) qpn: u32,
    /// The first PSN that it sends, 24 bits.
    pub(super) psn: u32,
    /// The GID of its port: an IPv6 address, or an IPv4 address mapped into one.
    pub(super) gid: Ipv6Addr,
    /// The LID of its port; 0 on Ethernet.
    pub(super) lid: u16,
}

/// Where this side is: the GID of its port and its LID on InfiniBand, its IP address and 0 on
/// Ethernet.
pub(super) fn place<H: Host>(nic: &mut Nic<'_, '_, H>) -> Result<(IpAddr, u16), Failure> {
    let port = nic.provider_mut().ib_port();
    let port = port.map_err(|fault| Failure::new(format!("the state of the port: {fault}")))?;
    Ok(match port {
        Some(port) => (IpAddr::V6(Ipv6Addr::from_bits(port.gid)), port.lid),
        None => (nic.query().0.ia_address, 0),
    })
}

impl Address {
    /// A queue pair at a place.
    pub(super) fn new(qpn: u32, psn: u32, (ip, lid): (IpAddr, u16)) -> Self {
        let gid = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Self { qpn, psn, gid, lid }
    }

    /// Where it is.
    pub(super) fn ip(&self) -> Result<IpAddr, Failure> {
        if self.gid.is_unspecified() && self.lid != 0 {
            return Ok(lid_address(self.lid));
        }
        if self.gid.is_unspecified() {
            return Err(Failure::new("the peer has sent no GID, which RoCE needs").remedy(
                "give it -x N there; ibv_devinfo -v lists GIDs and their numbers, and ::ffff:A.B.C.D is the one of an IPv4 address",
            ));
        }
        Ok(self.gid.to_canonical())
    }
}

/// A line of that length: the text, and zeros behind it.
pub(super) fn padded<const LEN: usize>(text: &str) -> [u8; LEN] {
    let mut line = [0; LEN];
    for (byte, value) in line.iter_mut().zip(text.bytes()) {
        *byte = value;
    }
    line
}

/// The numbers of a line: hexadecimal digits with colons in between, up to the first zero.
pub(super) struct Numbers<'a>(str::Split<'a, char>);

impl<'a> Numbers<'a> {
    /// None if it is no text.
    pub(super) fn of(line: &'a [u8]) -> Option<Self> {
        let text = line.split(|byte| *byte == 0).next()?;
        Some(Self(str::from_utf8(text).ok()?.split(':')))
    }

    /// The next one, if it has one digit to so many.
    pub(super) fn next<T: TryFrom<u128>>(&mut self, digits: usize) -> Option<T> {
        let part = self.0.next()?;
        let hex = part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(part, 16).ok();
        let fits = hex && (1..=digits).contains(&part.len());
        T::try_from(number.filter(|_| fits)?).ok()
    }

    /// What is behind them, between colons.
    pub(super) fn rest(self) -> impl Iterator<Item = &'a str> {
        self.0
    }
}

/// The channel, open.
#[derive(Debug)]
pub(super) struct Channel {
    stream: TcpStream,
    peer: String,
}

/// Waits for connections.
pub(super) fn listen(port: u16, program: &str) -> Result<TcpListener, Failure> {
    let any = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port));
    let listener = any.or_else(|error| {
        if error.kind() == ErrorKind::AddrInUse {
            return Err(error);
        }
        // A machine without IPv6.
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
    });
    let listener = listener
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|error| {
            Failure::new(format!("TCP port {port}: {error}")).remedy("give another with -p")
        })?;
    note(&format!("dat: listens on TCP port {port} for {program}; Ctrl-C ends it"));
    Ok(listener)
}

impl Channel {
    /// Takes the first connection within `wait`.
    pub(super) fn accept<H: Host>(
        nic: &mut Nic<'_, '_, H>,
        listener: &TcpListener,
        wait: Duration,
        timeout: Duration,
        program: &str,
    ) -> Result<Self, Failure> {
        let until = Instant::now() + wait;
        loop {
            look(nic, "a client")?;
            match listener.accept() {
                Ok((stream, peer)) => {
                    info!("{peer} called");
                    return Self::new(stream, peer.to_string(), timeout);
                }
                Err(error) if transient(error.kind()) => {}
                Err(error) => return Err(Failure::new(format!("accepting a client: {error}"))),
            }
            if Instant::now() >= until {
                return Err(Failure::new(format!(
                    "no {program} called within {} s",
                    wait.as_secs_f64()
                ))
                .remedy(
                    "start it there, with this machine as its HOST; --wait gives it more time",
                ));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Calls a server.
    pub(super) fn call(
        host: &str,
        port: u16,
        timeout: Duration,
        program: &str,
    ) -> Result<Self, Failure> {
        let failed = |why: String| {
            Failure::new(format!("TCP port {port} of {host}: {why}"))
                .remedy(format!("does {program} run there, without a HOST?"))
        };
        let addresses =
            (host, port).to_socket_addrs().map_err(|error| failed(error.to_string()))?;
        let mut last = failed("no such host".into());
        for address in addresses {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => return Self::new(stream, address.to_string(), timeout),
                Err(error) => last = failed(error.to_string()),
            }
        }
        Err(last)
    }

    fn new(stream: TcpStream, peer: String, timeout: Duration) -> Result<Self, Failure> {
        let ready = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_read_timeout(Some(LOOK)))
            .and_then(|()| stream.set_write_timeout(Some(timeout)))
            .and_then(|()| stream.set_nodelay(true));
        ready.map_err(|error| Failure::new(format!("{peer}: {error}")))?;
        Ok(Self { stream, peer })
    }

    /// Who is at the other end.
    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    /// Says these bytes, in one piece.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(bytes).map_err(|error| {
            if over(error.kind()) { self.hung_up("") } else { self.failed(&error.to_string()) }
        })
    }

    /// Receives these bytes within `limit`; meanwhile `idle` is called again and again.
    pub(super) fn read_while<'s, 'p, H: Host>(
        &mut self,
        nic: &mut Nic<'s, 'p, H>,
        bytes: &mut [u8],
        limit: Duration,
        what: &str,
        mut idle: impl FnMut(&mut Nic<'s, 'p, H>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let until = Instant::now() + limit;
        let mut got = 0;
        while let Some(rest) = bytes.get_mut(got..).filter(|rest| !rest.is_empty()) {
            look(nic, "the peer")?;
            idle(nic)?;
            match self.stream.read(rest) {
                Ok(0) => return Err(self.hung_up(&format!(" before it said {what}"))),
                Err(error) if over(error.kind()) => {
                    return Err(self.hung_up(&format!(" before it said {what}")));
                }
                Ok(more) => got += more,
                Err(error) if transient(error.kind()) => {
                    if Instant::now() >= until {
                        let time = limit.as_secs_f64();
                        return Err(self.failed(&format!("it did not say {what} within {time} s")));
                    }
                }
                Err(error) => return Err(self.failed(&error.to_string())),
            }
        }
        Ok(())
    }

    /// Waits until the peer hangs up, within `limit`; how it does is its own affair.
    pub(super) fn gone<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        limit: Duration,
    ) -> Result<(), Failure> {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            look(nic, "the peer's end")?;
            match self.stream.read(&mut [0]) {
                Err(error) if transient(error.kind()) => {}
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
        Ok(())
    }

    fn hung_up(&self, when: &str) -> Failure {
        self.failed(&format!("it hung up{when}")).remedy(
            "its output says why; over there -x N has to name its address in this network (ibv_devinfo -v lists them)",
        )
    }

    fn failed(&self, why: &str) -> Failure {
        Failure::new(format!("{} on TCP: {why}", self.peer)).remedy(UNKNOWN_PEER)
    }
}

/// Whether a peer can be reached from here at all.
pub(super) fn matching(local: IpAddr, remote: IpAddr) -> Result<(), Failure> {
    let other = |kind: &str| {
        Err(Failure::new(format!(
            "the peer's GID is {remote}, and --ip here is {local}"
        ))
        .remedy(format!(
            "give it the number of {kind} GID in this network with -x; ibv_devinfo -v lists them"
        )))
    };
    match (local, remote) {
        (IpAddr::V4(_), IpAddr::V6(_)) => other("an IPv4"),
        (IpAddr::V6(_), IpAddr::V4(_)) => other("an IPv6"),
        (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => Ok(()),
    }
}

/// Drives the adapter; fails if somebody asked for the end or the device is lost.
fn look<H: Host>(nic: &mut Nic<'_, '_, H>, what: &str) -> Result<(), Failure> {
    nic.advance();
    interrupted(what)?;
    adapter::trouble(nic).map_or(Ok(()), Err)
}

/// Nothing any more.
fn over(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}

/// Nothing yet.
fn transient(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
