//! `dat compat pingpong ud`: one side of ibv_ud_pingpong.
//!
//! As with its sisters in [`pingpong`](super::pingpong), but nothing is connected and nothing is
//! repeated: one datagram goes to and fro, behind which the 40 bytes of its packet's header stand
//! in the receive.

use dat_core::provider::Destination;
use dat_core::{GRH_LEN, LmrTriplet, MemPriv};
use vfio_host::Host;

use super::super::failure::Failure;
use super::super::traffic::adapter;
use super::super::traffic::contents;
use super::super::traffic::memory::Memory;
use super::args::Pingpong;
use super::datagram::{Came, Datagrams, Heard};
use super::ends::Makings;
use super::oob::{self, Address, Channel, matching};
use super::pingpong::PAGE;
use crate::Nic;

/// What that program gives its queue pair.
const QKEY: u32 = 0x1111_1111;
/// Receives: one datagram is under way and one is being looked at.
const RECVS: usize = 2;
const NAME: &str = "ibv_ud_pingpong";

/// The Endpoint and its memory.
pub(super) struct Ball<'p, H: Host> {
    all: Datagrams,
    size: usize,
    inward: Memory<'p, H>,
    outward: Memory<'p, H>,
    wanted: Option<Vec<u8>>,
    to: Option<Destination>,
}

impl<'p, H: Host> Ball<'p, H> {
    pub(super) fn new(nic: &mut Nic<'_, 'p, H>, pingpong: &Pingpong) -> Result<Self, Failure> {
        let mtu = adapter::path_mtu(nic);
        if pingpong.size() > u32::from(mtu) {
            return Err(Failure::new(format!("a datagram has at most {mtu} bytes here"))
                .remedy("give a smaller -s on both sides, or a greater --mtu"));
        }
        let makings = Makings { count: 1, requests: 2, receives: 2 };
        let all = Datagrams::new(nic, makings, QKEY, &pingpong.patience, NAME)?;
        let size = pingpong.size() as usize;
        let both = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
        let inward = Memory::new(nic, all.pz, (size + GRH_LEN) * RECVS, both)?;
        let outward = Memory::new(nic, all.pz, size, MemPriv::LOCAL_READ)?;
        let mut ball = Self { all, size, inward, outward, wanted: None, to: None };
        if pingpong.client.is_some() {
            let mut bytes = vec![0; size];
            contents::fill(adapter::seed(nic), 0, &mut bytes);
            for page in bytes.chunks_mut(PAGE) {
                if let Some(first) = page.first_mut() {
                    *first = 0;
                }
            }
            ball.outward.store(0, &bytes);
            ball.wanted = Some(bytes);
        }
        for (piece, cookie) in (0..RECVS).zip(0..) {
            ball.all.recv(nic, 0, ball.piece(piece), cookie)?;
        }
        Ok(ball)
    }

    fn piece(&self, piece: usize) -> LmrTriplet {
        let len = self.size + GRH_LEN;
        self.inward.local(piece * len, len)
    }

    /// Finds the peer over TCP. Who it is.
    pub(super) fn meet(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        pingpong: &Pingpong,
    ) -> Result<String, Failure> {
        let timeout = pingpong.patience.timeout;
        let ip = nic.query().0.ia_address;
        // Datagrams have no order, and nobody looks at the number of the first.
        let own = [Address::new(self.all.qpn(nic, 0)?, 0, ip)];
        let channel = if let Some(host) = &pingpong.client {
            let mut channel = Channel::call(host, pingpong.port, timeout, NAME)?;
            channel.say(&own)?;
            let far = channel.hear(nic, 1)?;
            channel.done()?;
            self.aim(nic, &far)?;
            channel
        } else {
            let listener = oob::listen(pingpong.port, NAME)?;
            let wait = pingpong.patience.wait;
            let mut channel = Channel::accept(nic, &listener, wait, timeout, NAME)?;
            let far = channel.hear(nic, 1)?;
            self.aim(nic, &far)?;
            channel.say(&own)?;
            channel.hear_done(nic)?;
            channel
        };
        Ok(channel.peer().to_owned())
    }

    fn aim(&mut self, nic: &mut Nic<'_, 'p, H>, far: &[Address]) -> Result<(), Failure> {
        let Some(far) = far.first() else {
            return Err(Failure::new("the peer has told no queue pair"));
        };
        let remote = far.ip()?;
        matching(nic.query().0.ia_address, remote)?;
        self.all.peer = remote.to_string();
        self.to = Some(self.all.address(nic, remote, far.qpn)?);
        Ok(())
    }

    /// To and fro, until both counts are full.
    pub(super) fn play(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        pingpong: &Pingpong,
        tell: impl Fn(u64),
    ) -> Result<(), Failure> {
        let iters = pingpong.iters;
        let client = pingpong.client.is_some();
        let (mut sent, mut received) = (0, 0);
        let (mut sending, mut receiving) = (client, true);
        if client {
            self.send(nic)?;
        }
        while sent < iters || received < iters {
            match self.all.heard(nic, None, "the next datagram")? {
                Heard::Came(_, came) => {
                    self.came(nic, pingpong, came)?;
                    received += 1;
                    receiving = false;
                    tell(received);
                }
                Heard::Sent(_) => {
                    sent += 1;
                    sending = false;
                }
                Heard::Asked(_) | Heard::Found(_) => {}
            }
            if sent < iters && !sending && !receiving {
                (sending, receiving) = (true, true);
                self.send(nic)?;
            }
        }
        Ok(())
    }

    fn send(&self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        let to = self.to.ok_or_else(|| Failure::new("nobody has said where to send"))?;
        let piece = self.outward.local(0, self.size);
        self.all.send(nic, 0, piece, &to, None)
    }

    /// A datagram is there: verified, taken over for the answer, and its place free again.
    fn came(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        pingpong: &Pingpong,
        came: Came,
    ) -> Result<(), Failure> {
        let Some(to) = self.to.filter(|to| to.qpn == came.qpn) else {
            return Err(Failure::new(format!(
                "a datagram came from queue pair {:#x}, which is not {}'s",
                came.qpn, self.all.peer
            )));
        };
        if came.len as usize != self.size {
            return Err(Failure::new(format!(
                "{} sent {} bytes instead of {}",
                to.path.remote, came.len, self.size
            ))
            .remedy("give the same -s on both sides"));
        }
        let piece = usize::try_from(came.cookie).unwrap_or(0);
        if pingpong.chk || pingpong.client.is_none() {
            let mut bytes = vec![0; self.size];
            self.inward.load(piece * (self.size + GRH_LEN) + GRH_LEN, &mut bytes);
            if pingpong.client.is_none() {
                self.outward.store(0, &bytes);
            }
            if pingpong.chk {
                let wanted = self.wanted.get_or_insert_with(|| bytes.clone());
                if let Some(at) = wanted.iter().zip(&bytes).position(|(a, b)| a != b) {
                    return Err(Failure::new(format!(
                        "a datagram from {} is wrong from byte {at} on",
                        self.all.peer
                    ))
                    .remedy("it has to return what it receives; is it the program of that name?"));
                }
            }
        }
        self.all.recv(nic, 0, self.piece(piece), came.cookie)
    }

    pub(super) fn free(self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        self.all.free(nic, [self.inward, self.outward])
    }
}
