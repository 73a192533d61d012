//! Requests: how each is made of a step, and what must come of it.

use dat_core::{CompletionFlags, DatType, EpState, LmrTriplet, RmrTriplet};

use crate::oracle::{Check, Effect, Grant, Kind, Message, Phase, Posted, Violation, violation};
use crate::script::{PIECES, Request, Via};
use crate::world::{GAP, SHARED_LEN, Sim};

/// No flags.
const NONE: CompletionFlags = CompletionFlags::empty();
/// In the flags of a step: it waits for the reads before it.
const FENCED: u8 = 4;

/// Makes a request out of its parts: a local segment, a remote one, flags.
struct Parts {
    kind: Kind,
    /// Bytes at this side.
    len: usize,
    /// Contents to send.
    bytes: Vec<u8>,
    /// Where in the peer's memory, and by which grant.
    at: usize,
    grant: Option<usize>,
    remote: RmrTriplet,
    immediate: u32,
    /// Of an atomic: what is added or compared, and what is swapped in.
    words: [u64; 2],
    /// The message is in the piece of the read before it.
    echoes: Option<usize>,
    doomed: bool,
}

impl Sim<'_> {
    /// Posts a request, or two that belong together; whether more may follow.
    pub(crate) fn post(
        &mut self,
        l: usize,
        side: usize,
        request: &Request,
        flags: u8,
        defer: bool,
    ) -> Result<bool, Violation> {
        let (Request::Echo { at, len } | Request::Replace { at, len }) = *request else {
            return self.post_one(l, side, request, flags, defer);
        };
        let read = Request::Read { at, len, via: Via::Whole };
        Ok(self.post_one(l, side, &read, flags & !FENCED, true)?
            && self.post_one(l, side, request, flags | FENCED, defer)?)
    }

    fn post_one(
        &mut self,
        l: usize,
        side: usize,
        request: &Request,
        flags: u8,
        defer: bool,
    ) -> Result<bool, Violation> {
        let (near, far) = (&self.links[l].ends[side], &self.links[l].ends[1 - side]);
        let (host, peer) = (near.host, far.host);
        let depth = self.shape.links[l].depth;
        let (Some(ep), Phase::Up) = (near.ep, near.phase) else { return Ok(false) };
        if near.requests.len() >= depth {
            return self.beyond(l, side).map(|()| false);
        }
        if self.hosts[peer].adapter.is_none() {
            return Ok(false);
        }
        let late = match self.state(l, side) {
            Some(EpState::Connected) => false,
            Some(EpState::Disconnected) if flags == 7 => true,
            _ => return Ok(false),
        };
        self.cookie += 1;
        let cookie = self.cookie;
        let Some(parts) = self.parts(l, side, request, cookie) else { return Ok(false) };
        let slot = parts.echoes.or_else(|| self.links[l].ends[side].sources.take());
        let Some(slot) = slot else { return Ok(false) };
        let end = &self.links[l].ends[side];
        let brings =
            matches!(parts.kind, Kind::Read | Kind::Add | Kind::Swap) || parts.echoes.is_some();
        let at = end.base[if brings { 2 } else { 0 }] + slot * end.stride;
        let outstanding = end.requests.len();
        let mut with = NONE;
        if flags & 1 != 0 && outstanding + 2 < depth && !parts.doomed {
            with |= CompletionFlags::SUPPRESS;
        }
        if flags & 2 != 0 && parts.kind == Kind::Send {
            with |= CompletionFlags::SOLICITED_WAIT;
        }
        if flags & FENCED != 0 {
            with |= CompletionFlags::BARRIER_FENCE;
        }
        if defer {
            with |= CompletionFlags::DEFER;
        }
        let Some(adapter) = self.data(host) else { return Ok(false) };
        if !brings {
            Self::store(adapter, at, &parts.bytes);
        }
        let whole = flags & 2 == 0 || matches!(parts.kind, Kind::Add | Kind::Swap);
        let cut = if whole { parts.len } else { parts.len / 2 };
        let pieces: [LmrTriplet; 2] =
            [Self::segment(adapter, at, cut), Self::segment(adapter, at + cut, parts.len - cut)];
        let pieces = if cut == parts.len { &pieces[..1] } else { &pieces[..] };
        let (ia, remote) = (&mut adapter.ia, &parts.remote);
        let [first, second] = parts.words;
        let done = match parts.kind {
            Kind::Send => ia.ep_post_send(ep, pieces, cookie, with),
            Kind::Immediate => {
                let immediate = parts.immediate;
                ia.ep_post_rdma_write_immed(ep, pieces, cookie, remote, immediate, with)
            }
            Kind::Write => ia.ep_post_rdma_write(ep, pieces, cookie, remote, with),
            Kind::Read => ia.ep_post_rdma_read(ep, pieces, cookie, remote, with),
            Kind::Add => ia.ep_post_fetch_add(ep, first, &pieces[0], cookie, remote, with),
            Kind::Swap => ia.ep_post_cmp_swap(ep, first, second, &pieces[0], cookie, remote, with),
            Kind::Bind(_) | Kind::Receive => Ok(()),
        };
        self.say(
            host,
            format_args!(
                "link {l}: {:?} {cookie}, {} bytes at {}, flags {:#x}{}{}",
                parts.kind,
                parts.len,
                parts.at,
                with.bits(),
                if parts.doomed { ", doomed" } else { "" },
                if late { ", late" } else { "" },
            ),
        );
        let mut posted = Posted {
            cookie,
            kind: parts.kind,
            slot: Some(slot),
            len: parts.len,
            suppressed: with.contains(CompletionFlags::SUPPRESS),
            doomed: parts.doomed,
            late,
            at: parts.at,
            grant: parts.grant,
            brings: Vec::new(),
        };
        if self.call(host, "post", done)?.is_none() {
            self.give_back(l, side, &posted);
            return Ok(false);
        }
        if parts.doomed {
            self.excuse(l, side, "a request that is refused");
            if let Some(conn) = self.links[l].ends[side].conn {
                self.links[l].conns[conn].doomed |= !late;
            }
        }
        if !late {
            let fenced = with.contains(CompletionFlags::BARRIER_FENCE);
            self.expect(l, side, &parts, &mut posted, fenced);
        }
        self.links[l].ends[side].requests.push_back(posted);
        Ok(true)
    }

    /// As many requests are outstanding as the Endpoint was made for: it takes no more.
    fn beyond(&mut self, l: usize, side: usize) -> Check {
        let end = &self.links[l].ends[side];
        let (host, Some(ep)) = (end.host, end.ep) else { return Ok(()) };
        if self.state(l, side) != Some(EpState::Connected)
            || end.requests.iter().any(|item| item.suppressed)
        {
            return Ok(());
        }
        let at = end.base[0];
        let Some(adapter) = self.data(host) else { return Ok(()) };
        let segment = Self::segment(adapter, at, 1);
        let done = adapter.ia.ep_post_send(ep, &[segment], 0, NONE);
        self.calls += 1;
        match done {
            Err(error) if error.ty() == DatType::InsufficientResources => Ok(()),
            other => violation("credits", format!("h{host} link {l}: one too many: {other:?}")),
        }
    }

    /// What comes of a request, if it is carried out.
    fn expect(&mut self, l: usize, side: usize, parts: &Parts, posted: &mut Posted, fenced: bool) {
        let link = &mut self.links[l];
        let (cookie, at) = (posted.cookie, parts.at);
        let Some(conn) = link.ends[side].conn else { return };
        let target = &mut link.ends[1 - side].target;
        let effect = |bytes: Vec<u8>| Effect { cookie, at, bytes, grant: parts.grant, fenced };
        let word = |target: &crate::oracle::Target| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&target.after[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        match parts.kind {
            Kind::Send => {
                // What follows it cannot overtake the reads before it.
                target.posted(effect(Vec::new()));
                link.conns[conn].messages[side].push_back(Message {
                    cookie,
                    bytes: parts.bytes.clone(),
                    immediate: None,
                    acknowledged: false,
                    too_long: parts.doomed,
                });
            }
            _ if parts.doomed => {}
            Kind::Immediate => {
                target.posted(effect(parts.bytes.clone()));
                link.conns[conn].messages[side].push_back(Message {
                    cookie,
                    bytes: Vec::new(),
                    immediate: Some((parts.immediate, parts.len)),
                    acknowledged: false,
                    too_long: false,
                });
            }
            Kind::Write => target.posted(effect(parts.bytes.clone())),
            Kind::Read => posted.brings = target.after[at..at + parts.len].to_vec(),
            Kind::Add => {
                let before = word(target);
                posted.brings = before.to_ne_bytes().to_vec();
                let sum = before.wrapping_add(parts.words[0]);
                target.posted(effect(sum.to_ne_bytes().to_vec()));
            }
            Kind::Swap => {
                let before = word(target);
                posted.brings = before.to_ne_bytes().to_vec();
                if before == parts.words[0] {
                    target.posted(effect(parts.words[1].to_ne_bytes().to_vec()));
                }
            }
            Kind::Bind(_) | Kind::Receive => {}
        }
    }

    /// The parts of a request as it is now; `None` if it makes no sense now.
    fn parts(&mut self, l: usize, side: usize, request: &Request, cookie: u64) -> Option<Parts> {
        let longest = self.shape.links[l].longest;
        let far = &self.links[l].ends[1 - side];
        let whole = far.whole?;
        let (base, context) = (whole.region.addr, whole.rmr_context);
        let by = |at: usize, len: usize, context: u32| RmrTriplet {
            addr: base + at as u64,
            len: len as u32,
            context,
        };
        // Where a grant is shorter, the request is.
        let through = |at: usize, len: usize, via: Via| match via {
            Via::Whole => Some((at, len, None, by(at, len, context))),
            Via::Grant(slot) => {
                let usable = |grant: &&Grant| grant.ready || grant.shown;
                let grant = far.grants[slot].as_ref().filter(usable)?;
                let len = len.min(grant.len);
                let at = grant.at + at % (grant.len - len + 1);
                Some((at, len, Some(slot), by(at, len, grant.context)))
            }
        };
        let none = RmrTriplet::default();
        let mut parts = Parts {
            kind: Kind::Send,
            len: 0,
            bytes: Vec::new(),
            at: 0,
            grant: None,
            remote: none,
            immediate: cookie as u32,
            words: [0; 2],
            echoes: None,
            doomed: false,
        };
        let words = PIECES * longest;
        match *request {
            Request::Send { len } => parts.len = len,
            Request::TooLong => {
                if self.shape.links[l].shared[1 - side] && longest + GAP <= SHARED_LEN {
                    return None;
                }
                (parts.len, parts.doomed) = (longest + GAP, true);
            }
            Request::Immediate { at, len } => {
                parts.kind = Kind::Immediate;
                (parts.at, parts.len, parts.grant, parts.remote) = through(at, len, Via::Whole)?;
            }
            Request::Echo { .. } => {
                let read = self.links[l].ends[side].requests.back()?;
                (parts.len, parts.bytes) = (read.len, read.brings.clone());
                parts.echoes = read.slot;
                return Some(parts);
            }
            Request::Replace { at, len } => {
                parts.kind = Kind::Write;
                (parts.at, parts.len, parts.grant, parts.remote) = through(at, len, Via::Whole)?;
            }
            Request::Write { at, len, via } => {
                parts.kind = Kind::Write;
                (parts.at, parts.len, parts.grant, parts.remote) = through(at, len, via)?;
            }
            Request::Read { at, len, via } => {
                parts.kind = Kind::Read;
                (parts.at, parts.len, parts.grant, parts.remote) = through(at, len, via)?;
            }
            Request::Add { word, by: add } => {
                (parts.kind, parts.at, parts.len) = (Kind::Add, words + 8 * word, 8);
                parts.remote = by(parts.at, 8, context);
                parts.words[0] = add;
            }
            Request::Swap { word, holds } => {
                (parts.kind, parts.at, parts.len) = (Kind::Swap, words + 8 * word, 8);
                parts.remote = by(parts.at, 8, context);
                let mut now = [0; 8];
                now.copy_from_slice(&far.target.after[parts.at..parts.at + 8]);
                let now = u64::from_ne_bytes(now);
                parts.words = [if holds { now } else { now ^ 1 }, cookie];
            }
            Request::Outside { len } => {
                parts.kind = Kind::Write;
                (parts.len, parts.doomed) = (len, true);
                parts.remote = by(far.target.certain.len() - len + 1, len, context);
            }
            Request::Forged { bits, stale } => {
                // Where a key was good for once, only the key can be what is wrong.
                let stale = far.stale.iter().cycle().nth(bits.into()).filter(|_| stale);
                let forged = (context ^ u32::from(bits).max(1), 0, 8);
                let (key, at, len) = stale.copied().unwrap_or(forged);
                let mut ends = self.hosts[far.host].ends.iter();
                if ends.any(|&(l, side)| self.links[l].ends[side].opens(key)) {
                    return None;
                }
                parts.kind = if bits & 1 == 0 { Kind::Write } else { Kind::Read };
                (parts.len, parts.doomed) = (len.min(8), true);
                parts.remote = by(at, parts.len, key);
            }
        }
        if !matches!(parts.kind, Kind::Read | Kind::Add | Kind::Swap) {
            parts.bytes = self.contents(cookie, parts.len);
        }
        Some(parts)
    }
}
