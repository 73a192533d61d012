//! Two Endpoints of one adapter, connected to each other over the port's own address.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use dat_core::cm::QpTerms;
use dat_core::provider::Mtu;
use dat_core::{
    CompletionFlags, DtoStatus, Ep, EpAttr, Evd, EvdFlags, Event, LmrTriplet, MemPriv, Pz,
    RmrTriplet, Srq,
};
use vfio_host::{Host, Nic};

use super::super::traffic::adapter::next;
use super::super::traffic::memory::Memory;
use super::report::{Stop, fail};

/// Longest wait for an event.
const LIMIT: Duration = Duration::from_secs(10);
/// Events are awaited so long after the last one.
const SILENCE: Duration = Duration::from_millis(200);
/// No flags.
pub(super) const PLAIN: CompletionFlags = CompletionFlags::empty();
/// First packet sequence number.
const PSN: u32 = 0x12_3456;
/// Retries, as every program has them.
const RETRIES: u8 = 7;

/// What an Endpoint is connected to otherwise than usual.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// Of transport and of RNR.
    pub(super) retries: [u8; 2],
    pub(super) ack_timeout: u8,
    /// Added to the peer's queue pair number.
    pub(super) misses: u32,
}

impl Default for Terms {
    fn default() -> Self {
        Self { retries: [RETRIES; 2], ack_timeout: 14, misses: 0 }
    }
}

/// The pair and its memory.
pub(super) struct Pair<'p, H: Host> {
    pub(super) pz: Pz,
    pub(super) evds: [Evd; 2],
    pub(super) eps: [Ep; 2],
    srq: Option<Srq>,
    /// What either side sends and receives.
    pub(super) memory: Memory<'p, H>,
}

impl<'p, H: Host> Pair<'p, H> {
    /// Makes it with `bytes` of memory. With `shared` receives come from a shared queue.
    pub(super) fn new(nic: &mut Nic<'_, 'p, H>, bytes: usize, shared: bool) -> Result<Self, Stop> {
        let pz = nic.pz_create()?;
        // Everything a peer or this side may do.
        let atomics = dat_core::provider::Provider::limits(nic.provider()).atomics;
        let atomic = if atomics { MemPriv::REMOTE_ATOMIC } else { MemPriv::empty() };
        let memory = Memory::new(nic, pz, bytes, MemPriv::ALL.union(atomic))?;
        let streams = EvdFlags::DTO | EvdFlags::RMR_BIND | EvdFlags::CONNECTION;
        let evds = [nic.evd_create(256, streams)?, nic.evd_create(256, streams)?];
        let suggested = nic.ep_attr_default();
        let attr = EpAttr {
            max_recv_dtos: 64,
            max_request_dtos: 64,
            max_request_iov: suggested.max_request_iov.max(4),
            max_rdma_write_iov: suggested.max_rdma_write_iov.max(4),
            ..suggested
        };
        let attr =
            if attr.max_request_iov > 4 { attr } else { EpAttr { max_request_iov: 4, ..attr } };
        let srq = match shared {
            true => {
                let attr =
                    dat_core::SrqAttr { max_recv_dtos: 32, max_recv_iov: 1, low_watermark: 0 };
                Some(nic.srq_create(pz, &attr)?)
            }
            false => None,
        };
        let make = |nic: &mut Nic<'_, 'p, H>, evd| match srq {
            Some(srq) => {
                nic.ep_create_with_srq(Some(pz), Some(evd), Some(evd), Some(evd), srq, &attr)
            }
            None => nic.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), Some(&attr)),
        };
        let eps = [make(nic, evds[0])?, make(nic, evds[1])?];
        Ok(Self { pz, evds, eps, srq, memory })
    }

    /// Makes it and connects it.
    pub(super) fn connected(
        nic: &mut Nic<'_, 'p, H>,
        own: IpAddr,
        bytes: usize,
        terms: Terms,
    ) -> Result<Self, Stop> {
        let pair = Self::new(nic, bytes, false)?;
        pair.connect(nic, own, terms)?;
        Ok(pair)
    }

    /// The Endpoint and the dispatcher of a side.
    fn side(&self, side: usize) -> (Ep, Evd) {
        let ([a, b], [first, second]) = (self.eps, self.evds);
        if side == 0 { (a, first) } else { (b, second) }
    }

    /// Connects both to each other, the first one by these terms.
    pub(super) fn connect(
        &self,
        nic: &mut Nic<'_, 'p, H>,
        own: IpAddr,
        terms: Terms,
    ) -> Result<(), Stop> {
        let limits = dat_core::provider::Provider::limits(nic.provider());
        let (most, class) = (limits.mtu, limits.classes.best_effort);
        let number = |nic: &Nic<'_, 'p, H>, side: usize| -> Result<u32, Stop> {
            let qp = nic.ep_query(self.side(side).0)?.qp;
            qp.map(|qp| qp.number).ok_or(Stop::Fail("an Endpoint without a queue pair".into()))
        };
        for side in [0, 1] {
            let own_terms = if side == 0 { terms } else { Terms::default() };
            let [retry_count, rnr_retry] = own_terms.retries;
            let terms = QpTerms {
                remote_qpn: (number(nic, 1 - side)? + own_terms.misses) & 0xff_ffff,
                rq_psn: if side == 0 { PSN + 1 } else { PSN },
                sq_psn: if side == 0 { PSN } else { PSN + 1 },
                mtu: most.min(Mtu::B1024),
                responder_resources: 4,
                initiator_depth: 4,
                retry_count,
                rnr_retry,
                ack_timeout: own_terms.ack_timeout,
                class,
            };
            nic.ep_connect_direct(self.side(side).0, own, &terms, LIMIT)?;
        }
        for side in [0, 1] {
            let event = self.event(nic, side)?;
            if event != Event::Established(self.side(side).0) {
                return fail(format!("connecting: {event:?}"));
            }
        }
        Ok(())
    }

    /// A local piece of the memory.
    pub(super) fn local(&self, at: usize, len: usize) -> LmrTriplet {
        self.memory.local(at, len)
    }

    /// The same as a peer names it.
    pub(super) fn far(&self, at: usize, len: usize) -> RmrTriplet {
        let (addr, _, context) = self.memory.far();
        RmrTriplet { addr: addr + at as u64, len: u32::try_from(len).unwrap_or(u32::MAX), context }
    }

    /// Posts a receive on a side.
    pub(super) fn recv(
        &self,
        nic: &mut Nic<'_, 'p, H>,
        side: usize,
        at: usize,
        len: usize,
    ) -> Result<(), Stop> {
        match self.srq {
            Some(srq) => nic.srq_post_recv(srq, &[self.local(at, len)], RECEIVE)?,
            None => nic.ep_post_recv(self.side(side).0, &[self.local(at, len)], RECEIVE, PLAIN)?,
        }
        Ok(())
    }

    /// The next event of a side.
    pub(super) fn event(&self, nic: &mut Nic<'_, 'p, H>, side: usize) -> Result<Event, Stop> {
        let event = next(nic, self.side(side).1, LIMIT, false)?;
        event.ok_or_else(|| Stop::Fail(format!("no event came within {} s", LIMIT.as_secs())))
    }

    /// Waits for the successful completion of one operation of a side; returns its length.
    pub(super) fn done(&self, nic: &mut Nic<'_, 'p, H>, side: usize) -> Result<u32, Stop> {
        let event = self.event(nic, side)?;
        match ending(&event) {
            Some((DtoStatus::Success, len)) => Ok(len),
            Some((status, _)) => fail(format!("it completed with {status:?}")),
            None => {
                let cause = nic.ep_cause(self.side(side).0).ok().flatten();
                fail(format!("{event:?}{}", cause.map_or(String::new(), |c| format!(": {c}"))))
            }
        }
    }

    /// All that happens until nothing does; the statuses of completions, by side.
    pub(super) fn endings(
        &self,
        nic: &mut Nic<'_, 'p, H>,
        limit: Duration,
    ) -> Result<[Vec<DtoStatus>; 2], Stop> {
        let mut found = [Vec::new(), Vec::new()];
        let (start, mut last) = (Instant::now(), None::<Instant>);
        // Until something has happened it may take as long as the retries do.
        while last.map_or(start.elapsed() < limit, |last| last.elapsed() < SILENCE) {
            for (side, found) in found.iter_mut().enumerate() {
                let evd = self.side(side).1;
                while let Some(event) = next(nic, evd, Duration::from_millis(5), false)? {
                    last = Some(Instant::now());
                    found.extend(ending(&event).map(|(status, _)| status));
                }
            }
        }
        Ok(found)
    }

    /// Frees all of it.
    pub(super) fn free(self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Stop> {
        for ep in self.eps {
            nic.ep_free(ep)?;
        }
        if let Some(srq) = self.srq {
            nic.srq_free(srq)?;
        }
        self.memory.free(nic)?;
        for evd in self.evds {
            nic.evd_free(evd)?;
        }
        nic.pz_free(self.pz)?;
        Ok(())
    }
}

/// The cookie of receives.
const RECEIVE: u64 = 0xecec;

/// How an operation ended, and its length.
pub(super) fn ending(event: &Event) -> Option<(DtoStatus, u32)> {
    if let Event::Dto(dto) = event {
        Some((dto.status, dto.len))
    } else if let Event::IbDto(dto) = event {
        Some((dto.status(), dto.len))
    } else if let Event::RmrBind { status, .. } = event {
        Some((*status, 0))
    } else {
        None
    }
}

/// Bytes of the contents numbered `number`.
pub(super) fn contents(number: usize, len: usize) -> Vec<u8> {
    let byte = |at: usize| {
        let [low, ..] = (at.wrapping_mul(31) ^ number.wrapping_mul(167)).to_le_bytes();
        low
    };
    (0..len).map(byte).collect()
}
