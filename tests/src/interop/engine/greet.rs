//! How the two sides find each other and connect: by the connection manager, or by lines over TCP.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dat_core::PspFlag;
use dat_core::cm::QpTerms;
use dat_core::provider::{Destination, Provider, lid_address};
use vfio_host::Host;

use super::super::channel::{Channel, QueuePair};
use super::super::protocol::Greeting;
use super::{Engine, State};

/// What the pingpongs give a queue pair: acknowledgement timeout, retries, retries without receive.
const RETRIES: (u8, u8, u8) = (14, 7, 7);

impl<H: Host> Engine<'_, '_, '_, H> {
    /// Finds the peer and connects all Endpoints.
    pub(in crate::interop) fn greet(&mut self) -> Result<()> {
        if let Greeting::Lines(lines) = self.protocol.greeting {
            return self.greet_by_lines(lines);
        }
        if let Some(server) = self.args.server()? {
            for link in 0..self.links.len() {
                self.connect(link, server)?;
                self.until("the connection", |it| it.links[link].state == State::Up)?;
            }
            return Ok(());
        }
        self.listen()?;
        let all = |it: &Self| it.links.iter().all(|link| link.state == State::Up);
        self.serve_until("the next connection", all)?;
        self.stop_listening()
    }

    /// Asks the server for a connection, or for its queue pair.
    pub(in crate::interop) fn connect(&mut self, link: usize, server: SocketAddr) -> Result<()> {
        self.post_recvs(link)?;
        self.links[link].state = State::Pending;
        self.nic.ep_connect(self.links[link].ep, server, self.args.timeout(), &[])?;
        Ok(())
    }

    /// Lets peers ask for the port.
    pub(in crate::interop) fn listen(&mut self) -> Result<()> {
        let port = self.args.port();
        self.psp = Some(self.nic.psp_create(port.into(), self.evd, PspFlag::Consumer)?);
        eprintln!("interop: listens on port {port}");
        Ok(())
    }

    pub(super) fn stop_listening(&mut self) -> Result<()> {
        self.psp.take().map_or(Ok(()), |psp| Ok(self.nic.psp_free(psp)?))
    }

    /// Accepts requests until something holds. One that finds no Endpoint is rejected.
    pub(in crate::interop) fn serve_until(
        &mut self,
        what: &str,
        holds: impl Fn(&Self) -> bool,
    ) -> Result<()> {
        while !holds(self) {
            let first = self.ups == 0 && self.links.iter().all(|link| link.state == State::Idle);
            let limit = if first { self.args.wait() } else { self.args.timeout() };
            self.turn(what, limit)?;
            while let Some(cr) = self.requests.pop_front() {
                let idle = self.links.iter().position(|link| link.state == State::Idle);
                let Some(link) = idle else {
                    self.nic.cr_reject(cr, &[])?;
                    continue;
                };
                self.post_recvs(link)?;
                self.nic.cr_accept(cr, Some(self.links[link].ep), &[])?;
                // Who sends datagrams is known from the first of them.
                let datagrams = self.protocol.qkey.is_some();
                self.links[link].state = if datagrams { State::Up } else { State::Pending };
            }
        }
        Ok(())
    }

    /// Connects queue pairs that both sides have named over TCP.
    fn greet_by_lines(&mut self, lines: usize) -> Result<()> {
        // On InfiniBand a LID is enough, and a peer that gets a GID sends a global header.
        let (ip, lid) = match self.nic.provider_mut().ib_port()? {
            Some(port) => (IpAddr::V6(Ipv6Addr::UNSPECIFIED), port.lid),
            None => (self.args.ip.0, 0),
        };
        let count = self.links.len();
        let mut own = Vec::new();
        for link in 0..count {
            self.post_recvs(link)?;
            let qp = self.nic.ep_query(self.links[link].ep)?.qp.context("no queue pair")?;
            // Nobody looks at the PSN of a datagram's queue pair.
            let psn = self.nic.host().entropy()?[0].into();
            own.push(QueuePair { qpn: qp.number, psn, ip, lid });
        }
        own.resize(lines.max(count), QueuePair::NONE);
        let (port, timeout) = (self.args.port(), self.args.timeout());
        if let Some(host) = &self.args.client {
            let mut channel = Channel::call(host, port, timeout)?;
            channel.send_pairs(&own)?;
            let far = channel.receive_pairs(self.nic, own.len())?;
            channel.send(b"done\0")?;
            return self.connect_pairs(&own, &far);
        }
        let mut channel = Channel::accept(self.nic, port, self.args.wait(), timeout)?;
        let far = channel.receive_pairs(self.nic, own.len())?;
        self.connect_pairs(&own, &far)?;
        channel.send_pairs(&own)?;
        channel.wait_for(self.nic, b"done\0")
    }

    fn connect_pairs(&mut self, own: &[QueuePair], far: &[QueuePair]) -> Result<()> {
        let (ack_timeout, retry_count, rnr_retry) = RETRIES;
        for (link, (own, far)) in own.iter().zip(far).enumerate().take(self.links.len()) {
            ensure!(far.qpn != 0, "the peer has {link} connections");
            let far = match far.ip.is_unspecified() {
                true if own.lid != 0 => QueuePair { ip: lid_address(far.lid), ..*far },
                _ => *far,
            };
            ensure!(!far.ip.is_unspecified(), "the peer has sent no GID");
            ensure!(far.ip.is_ipv4() == own.ip.is_ipv4(), "the peer's GID is {}", far.ip);
            if self.protocol.qkey.is_some() {
                self.links[link].to = Some(self.address(far.ip, far.qpn)?);
                self.links[link].state = State::Up;
                continue;
            }
            let terms = QpTerms {
                remote_qpn: far.qpn,
                rq_psn: far.psn,
                sq_psn: own.psn,
                mtu: self.nic.provider().limits().mtu,
                responder_resources: 1,
                initiator_depth: 1,
                retry_count,
                rnr_retry,
                ack_timeout,
                class: self.nic.provider().limits().classes.best_effort,
            };
            let ep = self.links[link].ep;
            self.nic.ep_connect_direct(ep, far.ip, &terms, self.args.timeout())?;
            self.until("the way to the peer", |it| it.links[link].state == State::Up)?;
        }
        Ok(())
    }

    /// The address handle of a queue pair for datagrams.
    pub(super) fn address(&mut self, remote: IpAddr, qpn: u32) -> Result<Destination> {
        let qkey = self.protocol.qkey.context("no Q_Key")?;
        let until = Instant::now() + self.args.timeout();
        loop {
            let now = self.nic.now();
            match self.nic.ud_address(now, remote, qpn, qkey) {
                Poll::Ready(to) => return to.with_context(|| format!("no way to {remote}")),
                Poll::Pending => ensure!(Instant::now() < until, "{remote} does not answer"),
            }
            self.nic.advance();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
