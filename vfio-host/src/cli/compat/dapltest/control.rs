//! The control connection: who the client is, what it wants, and where the server awaits it.
//!
//! A client connects without private data, sends who it is and its command, and has a receive for
//! the answer. The server has receives for both, answers when all ports of the test are open, and
//! ends the connection a moment later; a client lets it be until its test is over, and a moment
//! longer. Then the server's Endpoint is reset, and waits for the next client.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dat_core::{CompletionFlags, Cr, Ep, MemPriv};
use tracing::debug;

use super::super::super::failure::Failure;
use super::super::super::traffic::adapter::dat;
use super::super::super::traffic::memory::Memory;
use super::hub::Hub;
use super::wire::{CONTROL, ClientInfo, ServerInfo};
use crate::Host;

/// Messages of the connection: a client's two and a server's one.
const MESSAGES: usize = 3;
/// Attempts to connect that the server may take for ghosts of an earlier connection.
const ATTEMPTS: usize = 4;

/// How long the other side has for an end of its own.
const LINGER: Duration = Duration::from_millis(300);

/// The connection.
#[derive(Debug)]
pub(super) struct Control<'p, H: Host> {
    ep: Ep,
    memory: Memory<'p, H>,
    pub(super) peer: String,
}

impl<'p, H: Host> Control<'p, H> {
    pub(super) fn new(hub: &Hub<'_, '_, 'p, H>) -> Result<Self, Failure> {
        let both = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
        let memory = hub.memory(CONTROL * MESSAGES, both)?;
        Ok(Self { ep: hub.ep_create(2, 2, 1)?, memory, peer: "the client".into() })
    }

    /// Ends it and gives everything back.
    pub(super) async fn free(self, hub: &Hub<'_, '_, 'p, H>) -> Result<(), Failure> {
        self.end(hub).await;
        let freed = hub.ep_free(self.ep);
        freed.and(hub.nic(|nic| self.memory.free(nic)))
    }

    fn recv(&self, hub: &Hub<'_, '_, 'p, H>, place: usize) -> Result<(), Failure> {
        let piece = self.memory.local(place * CONTROL, CONTROL);
        let none = CompletionFlags::empty();
        hub.nic(|nic| nic.ep_post_recv(self.ep, &[piece], place as u64, none))
            .map_err(|ret| dat("dat_ep_post_recv", ret))
    }

    async fn say(
        &self,
        hub: &Hub<'_, '_, 'p, H>,
        place: usize,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        debug!("to {}: {}", self.peer, hex(bytes));
        self.memory.store(place * CONTROL, bytes);
        let piece = self.memory.local(place * CONTROL, CONTROL);
        let none = CompletionFlags::empty();
        hub.nic(|nic| nic.ep_post_send(self.ep, &[piece], place as u64, none))
            .map_err(|ret| dat("dat_ep_post_send", ret))?;
        let what = "the end of a message of the control connection";
        hub.done(self.ep, &self.peer, what).await.map(drop)
    }

    async fn hear(
        &self,
        hub: &Hub<'_, '_, 'p, H>,
        place: usize,
        what: &str,
    ) -> Result<Vec<u8>, Failure> {
        let dto = hub.came(self.ep, &self.peer, what).await?;
        if dto.len as usize != CONTROL {
            return Err(Failure::new(format!(
                "{} sent {} bytes instead of {what}, which has {CONTROL}",
                self.peer, dto.len
            ))
            .remedy("is it dapltest?"));
        }
        let mut bytes = vec![0; CONTROL];
        self.memory.load(place * CONTROL, &mut bytes);
        debug!("from {}: {}", self.peer, hex(&bytes));
        Ok(bytes)
    }

    /// A client's side: says what it wants. What the server answers.
    pub(super) async fn call(
        &mut self,
        hub: &Hub<'_, '_, 'p, H>,
        server: SocketAddr,
        info: ClientInfo,
        command: &[u8],
    ) -> Result<ServerInfo, Failure> {
        self.peer = server.to_string();
        self.recv(hub, 0)?;
        for attempt in 0.. {
            hub.nic(|nic| nic.ep_connect(self.ep, server, hub.timeout, &[]))
                .map_err(|e| dat("dat_ep_connect", e))?;
            if hub.up(self.ep, server).await? {
                break;
            }
            if attempt + 1 == ATTEMPTS {
                return Err(Failure::new(format!("{server} rejects every attempt"))
                    .remedy("the output of dapltest there says more"));
            }
            hub.ep_reset(self.ep)?;
            self.recv(hub, 0)?;
        }
        self.say(hub, 1, &info.bytes()).await?;
        self.say(hub, 2, command).await?;
        let answer = self.hear(hub, 0, "the server's answer").await?;
        let answer = ServerInfo::read(&answer)?;
        debug!("{} answers {answer:?}", self.peer);
        Ok(answer)
    }

    /// A server's side, before a client comes.
    pub(super) fn post(&self, hub: &Hub<'_, '_, 'p, H>) -> Result<(), Failure> {
        self.recv(hub, 0)?;
        self.recv(hub, 1)
    }

    /// Takes a client: who it is, and its command. `None`: it has to ask again.
    pub(super) async fn take(
        &mut self,
        hub: &Hub<'_, '_, 'p, H>,
        cr: Cr,
        peer: IpAddr,
    ) -> Result<Option<(ClientInfo, Vec<u8>)>, Failure> {
        self.peer = peer.to_string();
        hub.nic(|nic| nic.cr_accept(cr, Some(self.ep), &[]))
            .map_err(|e| dat("dat_cr_accept", e))?;
        if !hub.up(self.ep, SocketAddr::new(peer, 0)).await? {
            return Ok(None);
        }
        let info = self.hear(hub, 0, "who the client is").await?;
        let info = ClientInfo::read(&info)?;
        let command = self.hear(hub, 1, "the client's command").await?;
        debug!("{} is {info:?}", self.peer);
        Ok(Some((info, command)))
    }

    /// Answers it.
    pub(super) async fn answer(
        &self,
        hub: &Hub<'_, '_, 'p, H>,
        answer: ServerInfo,
    ) -> Result<(), Failure> {
        self.say(hub, 2, &answer.bytes()).await
    }

    /// Ends the connection, for another.
    pub(super) async fn renew(&self, hub: &Hub<'_, '_, 'p, H>) -> Result<(), Failure> {
        self.end(hub).await;
        hub.ep_reset(self.ep)
    }

    /// Ends the connection, after a while in which the other side may do so.
    ///
    /// The other side's last message has arrived, but over there it may be under way still, and
    /// would be flushed: its acknowledgement may be lost, or Soft-RoCE may hear of the end
    /// first.
    async fn end(&self, hub: &Hub<'_, '_, 'p, H>) {
        hub.left(self.ep, LINGER).await;
        hub.part(&[self.ep]).await;
    }
}

/// What is in a message, up to its last byte that is not zero.
fn hex(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    let used = bytes.iter().take(end);
    used.map(|byte| format!("{byte:02x}")).collect()
}
