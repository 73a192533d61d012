//! Datagrams: each arrives as it was sent, or not at all.

use std::task::Poll;

use dat_core::{CompletionFlags, DtoStatus, Event, GRH_LEN, IbOperation};
use mlx5_model::OpenFact;

use crate::oracle::{Check, Datagram, violation};
use crate::world::{GAP, QKEY, SHARED_LEN, Sim};

/// No flags.
const NONE: CompletionFlags = CompletionFlags::empty();
/// Datagrams that are remembered.
const REMEMBERED: usize = 4096;

impl Sim<'_> {
    pub(crate) fn datagram(
        &mut self,
        from: usize,
        to: usize,
        len: usize,
        immediate: bool,
    ) -> Check {
        let Some(peer) = &self.hosts[to].adapter else { return Ok(()) };
        let qpn = peer.datagrams.qpn;
        let (now, remote) = (self.instant(), self.address(to));
        let base = self.hosts[from].base[1];
        self.cookie += 1;
        let cookie = self.cookie;
        let mut bytes = cookie.to_le_bytes().to_vec();
        bytes.extend(self.contents(cookie, len));
        let Some(adapter) = self.adapter(from) else { return Ok(()) };
        let address = match adapter.ia.ud_address(now, remote, qpn, QKEY) {
            Poll::Ready(Ok(address)) => address,
            Poll::Ready(Err(_)) | Poll::Pending => return Ok(()),
        };
        let Some(slot) = adapter.datagrams.pieces[0].take() else { return Ok(()) };
        let at = base + slot * (SHARED_LEN + GAP);
        Self::store(adapter, at, &bytes);
        let segment = Self::segment(adapter, at, bytes.len());
        let immediate = immediate.then_some(cookie as u32);
        let ep = adapter.datagrams.ep;
        let done = adapter.ia.ep_post_send_ud(ep, &[segment], &address, immediate, cookie, NONE);
        adapter.datagrams.sends.push_back((cookie, slot));
        self.say(from, format_args!("datagram {cookie} to h{to}, {} bytes", bytes.len()));
        if self.call(from, "ep_post_send_ud", done)?.is_none() {
            if let Some(adapter) = self.data(from) {
                adapter.datagrams.sends.pop_back();
                adapter.datagrams.pieces[0].give(slot);
            }
            return Ok(());
        }
        if self.sent.len() == REMEMBERED {
            self.sent.pop_front();
        }
        self.sent.push_back(Datagram { id: cookie, from, to, bytes, immediate, arrived: 0 });
        Ok(())
    }

    /// Posts one receive for datagrams.
    pub fn post_datagram_receive(&mut self, host: usize) -> Check {
        self.cookie += 1;
        let (cookie, base) = (self.cookie, self.hosts[host].base[2]);
        let Some(adapter) = self.data(host) else { return Ok(()) };
        let Some(slot) = adapter.datagrams.pieces[1].take() else { return Ok(()) };
        let segment = Self::segment(adapter, base + slot * (SHARED_LEN + GAP), SHARED_LEN);
        let ep = adapter.datagrams.ep;
        let done = adapter.ia.ep_post_recv(ep, &[segment], cookie, NONE);
        adapter.datagrams.receives.push_back((cookie, slot));
        self.call(host, "ep_post_recv of datagrams", done).map(drop)
    }

    /// An event of the Endpoint for datagrams.
    pub(crate) fn datagram_event(&mut self, host: usize, event: Event) -> Check {
        let facts = &self.shape.facts[host];
        let plain = [OpenFact::GrhChecksum, OpenFact::GrhUpper]
            .iter()
            .all(|fact| facts.setting(*fact) == fact.settings()[0]);
        let base = self.hosts[host].base[2];
        let (doubled, ill) = (self.doubled, self.ill(host));
        let Some(adapter) = &mut self.hosts[host].adapter else { return Ok(()) };
        let known = &mut adapter.datagrams;
        let done = match event {
            Event::IbDto(done) => done,
            Event::Dto(dto) if dto.status == DtoStatus::ErrFlushed && ill => return Ok(()),
            other => return violation("event", format!("h{host}: datagrams: {other:?}")),
        };
        let what = format!("h{host}: datagram {} {:?}", done.cookie, done.operation);
        if done.operation == IbOperation::SendUd {
            let Some((cookie, slot)) = known.sends.pop_front() else {
                return violation("unknown-completion", what);
            };
            known.pieces[0].give(slot);
            if cookie != done.cookie || (done.status() != DtoStatus::Success && !ill) {
                return violation("completion-order", format!("{what} {:?}", done.status()));
            }
            return Ok(());
        }
        let Some((cookie, slot)) = known.receives.pop_front() else {
            return violation("unknown-completion", what);
        };
        known.pieces[1].give(slot);
        let (at, len) = (base + slot * (SHARED_LEN + GAP), done.len as usize);
        if cookie != done.cookie {
            return violation("completion-order", format!("{what}: {cookie} is due"));
        }
        if done.status() != DtoStatus::Success {
            let text = format!("{what} {:?}", done.status());
            return if ill { Ok(()) } else { violation("datagram", text) };
        }
        let extra = adapter.ia.evd_extension(adapter.datagrams.evds[0]).unwrap_or_default();
        let mut bytes = vec![0; len];
        adapter.mem.copy_out(at, &mut bytes);
        adapter.image[at..at + len].copy_from_slice(&bytes);
        let Some((header, payload)) = bytes.split_first_chunk::<GRH_LEN>() else {
            return violation("datagram", format!("{what}: {len} bytes"));
        };
        let id = payload.first_chunk().map_or(0, |id| u64::from_le_bytes(*id));
        let first = self.sent.front().map_or(0, |sent| sent.id);
        let Some(n) = self.sent.iter().position(|sent| sent.id == id) else {
            let old = id < first && id != 0;
            self.say(host, format_args!("datagram {id}"));
            self.post_datagram_receive(host)?;
            return if old { Ok(()) } else { violation("datagram", format!("{what}: nobody's")) };
        };
        let address = self.address(self.sent[n].from);
        let sent = &mut self.sent[n];
        sent.arrived += 1;
        let immediate = sent.immediate.unwrap_or(0);
        if sent.to != host || sent.bytes != payload || extra.immediate != immediate {
            return violation("datagram", format!("{what}: it was {sent:?}"));
        }
        if sent.arrived > 1 && !doubled {
            return violation("datagram", format!("{what}: twice: {sent:?}"));
        }
        let from = extra.network.sender(header);
        if plain && from != Some(address) {
            return violation("datagram", format!("{what}: from {from:?}"));
        }
        self.say(host, format_args!("datagram {id}, {} bytes", len - GRH_LEN));
        self.post_datagram_receive(host)
    }
}
