//! The queue pair of an Endpoint: made when a Protection Zone and a DTO Event Dispatcher are known,
//! in Init at once, so that receives may be posted before there is a connection.

use core::sync::atomic::Ordering;

use crate::data::finish::complete_suppressed;
use crate::data::poster::{Core, Limits, MAX_SEGMENTS, Poster};
use crate::data::shared::Shared;
use crate::data::shared::ep::{DATAGRAM, EpShared, SHARED};
use crate::data::shared::lmr;
use crate::data::shared::request::Run;
use crate::engine::Ia;
use crate::provider::HcaLimits;
use crate::provider::{NewQp, Provider, Qp, QpInit, QpStep, Service};
use crate::types::completion::Direction;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::ep_attr::EpAttr;
use crate::types::flags::{Access, CompletionFlags, Qos};
use crate::types::handle::{Ep, Evd, Pz, Srq};

pub(crate) const BAD_ATTR: Error = Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg6);

/// What a queue pair is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Makings {
    pub(crate) pz: Option<Pz>,
    pub(crate) recv_evd: Option<Evd>,
    pub(crate) request_evd: Option<Evd>,
    pub(crate) srq: Option<Srq>,
    pub(crate) attr: EpAttr,
    pub(crate) service: Service,
}

/// A queue pair that is wanted: its slot, its number among those of the slot, and the rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    pub(crate) makings: Makings,
}

/// A queue pair that is ready to be installed.
pub(crate) struct Made<P: Provider> {
    pub(crate) qp: Qp,
    pub(crate) poster: Poster<P>,
    index: u32,
}

/// Outstanding DTOs of one direction that adapter and storage allow.
pub(crate) fn max_dtos(limits: &HcaLimits, shared: &Shared<'_>) -> u16 {
    let storage = 1_u32 << shared.dto_shift.min(15);
    u16::try_from(storage.min(limits.max_qp_requests)).unwrap_or(u16::MAX)
}

/// Receives that adapter and storage allow in a Shared Receive Queue.
pub(crate) fn max_srq_dtos(limits: &HcaLimits, shared: &Shared<'_>) -> u16 {
    // The device keeps one slot free.
    let storage = (1_u32 << shared.dto_shift) - 1;
    u16::try_from(storage).unwrap_or(u16::MAX).min(limits.max_shared_receives)
}

/// Segments of one DTO that adapter and dat-core allow.
pub(crate) fn max_iov(limits: &HcaLimits) -> u8 {
    let most = u8::try_from(MAX_SEGMENTS).unwrap_or(u8::MAX);
    limits.max_segments.min(most)
}

impl<P: Provider> Ia<'_, P> {
    /// What an Endpoint gets if its creator has no wish: 64 DTOs each way and 4 segments, or what
    /// the adapter and the storage have if that is less.
    #[must_use]
    pub fn ep_attr_default(&self) -> EpAttr {
        let limits = self.hca.limits();
        let dtos = max_dtos(self.hca.limits(), &self.data.shared).min(64);
        let iov = limits.max_segments.min(4);
        let reads = limits.max_reads.min(4);
        EpAttr {
            max_message_size: limits.max_message,
            max_rdma_size: limits.max_message,
            qos: Qos::BestEffort,
            recv_completion_flags: CompletionFlags::EVD_THRESHOLD,
            request_completion_flags: CompletionFlags::EVD_THRESHOLD,
            max_recv_dtos: dtos,
            max_request_dtos: dtos,
            max_recv_iov: iov,
            max_request_iov: iov,
            max_rdma_read_in: reads,
            max_rdma_read_out: reads,
            max_rdma_read_iov: iov,
            max_rdma_write_iov: iov,
        }
    }

    /// The attributes as they will hold, or why they cannot.
    pub(crate) fn checked_attr(
        &self,
        attr: Option<&EpAttr>,
        recv: bool,
        request: bool,
    ) -> Result<EpAttr, Error> {
        let default = self.ep_attr_default();
        let Some(attr) = attr else {
            return Ok(EpAttr {
                max_recv_dtos: if recv { default.max_recv_dtos } else { 0 },
                max_request_dtos: if request { default.max_request_dtos } else { 0 },
                ..default
            });
        };
        if self.hca.limits().classes.of(attr.qos).is_none() {
            return Err(Error::new(DatType::ModelNotSupported, DatSubtype::None));
        }
        let limits = self.hca.limits();
        let completion = CompletionFlags::SOLICITED_WAIT
            .union(CompletionFlags::UNSIGNALLED)
            .union(CompletionFlags::EVD_THRESHOLD);
        let iov = max_iov(self.hca.limits());
        let legal = recv == (attr.max_recv_dtos != 0)
            && request == (attr.max_request_dtos != 0)
            && (!recv || attr.max_recv_iov != 0)
            && (!request || attr.max_request_iov != 0)
            && attr.max_recv_dtos <= max_dtos(self.hca.limits(), &self.data.shared)
            && attr.max_request_dtos <= max_dtos(self.hca.limits(), &self.data.shared)
            && attr.max_recv_iov <= iov
            && attr.max_request_iov <= iov
            && attr.max_rdma_read_iov <= iov
            && attr.max_rdma_write_iov <= iov
            && attr.max_rdma_read_in <= limits.max_reads
            && attr.max_rdma_read_out <= limits.max_reads
            && attr.max_message_size <= limits.max_message
            && attr.max_rdma_size <= limits.max_message
            && completion.contains(attr.recv_completion_flags)
            && completion.union(CompletionFlags::SUPPRESS).contains(attr.request_completion_flags);
        if legal { Ok(*attr) } else { Err(BAD_ATTR) }
    }

    /// Makes a queue pair in Init for a slot; `None` while something is missing.
    pub(crate) fn make_qp(&mut self, wanted: Wanted) -> Result<Option<Made<P>>, Error> {
        let Some(init) = qp_init(self, &wanted) else { return Ok(None) };
        let NewQp { qp, sq, rq } = self.hca.qp_create(&init)?;
        if let Err(fault) = self.hca.qp_modify(qp, &first_step(init.service)) {
            // The first failure is the one to tell.
            let _ = self.hca.qp_destroy(qp, sq, rq);
            return Err(fault.into());
        }
        Ok(Some(made(self, &wanted, &init, qp, sq, rq)))
    }

    /// Puts a queue pair into service. What the slot held before is forgotten.
    pub(crate) fn install_qp(&mut self, slot: u32, makings: &Makings, made: Made<P>) {
        let Some(shared) = self.data.shared.ep(slot) else {
            return;
        };
        let (limits, core) = made.poster.limits();
        let first = self.data.shared.first_slot(slot);
        let evd = |evd: Option<Evd>| evd.map_or(u32::MAX, |evd| evd.0.index());
        for (line, mask, evd) in [
            (&shared.request, core.request_mask, evd(makings.request_evd)),
            (&shared.receive, limits.recv_mask, evd(makings.recv_evd)),
        ] {
            line.mask.store(u32::from(mask), Ordering::Relaxed);
            line.first.store(first, Ordering::Relaxed);
            line.evd.store(evd, Ordering::Relaxed);
            line.index.store(made.index, Ordering::Relaxed);
        }
        let solicited =
            makings.attr.recv_completion_flags.contains(CompletionFlags::SOLICITED_WAIT);
        let line = &shared.receive;
        line.solicited.store(solicited.into(), Ordering::Relaxed);
        let kind = match makings.srq {
            Some(srq) => {
                shared.slow.srq.store(srq.0.index(), Ordering::Relaxed);
                line.taken.store(0, Ordering::Relaxed);
                SHARED
            }
            None if limits.datagram => DATAGRAM,
            None => 0,
        };
        line.index.store(made.index | kind, Ordering::Relaxed);
        self.data.rewind_slots(shared);
        if let Some(place) = self.data.posters.get_mut(slot as usize) {
            *place = Some(made.poster);
        }
    }

    /// Drops what is outstanding without completing it: binds are accounted for, flushes forgotten,
    /// completions taken out of their queues.
    pub(crate) fn drop_outstanding(&mut self, slot: u32) {
        let shared = self.data.shared;
        let Some(ep) = shared.ep(slot) else { return };
        let consumed = ep.request.consumed.load(Ordering::Acquire);
        // Those that change keys are accounted for; of others nobody has to know.
        for i in 0..ep.outstanding(Direction::Send) {
            if let Some(request) = shared.request(&ep.request, consumed.wrapping_add(i)) {
                complete_suppressed(&shared, slot, ep, request.read(), false);
            }
        }
        // Not when another queue pair takes over what is posted.
        let slots = ep.receive.mask.load(Ordering::Relaxed).wrapping_add(1);
        shared.forget_silent(ep, 0, slots);
        ep.receive.max_len.store(0, Ordering::Relaxed);
        for line in [&ep.request, &ep.receive] {
            let evd = line.evd.load(Ordering::Relaxed);
            if let Some(evd) = self.events.evds.handle_at(evd) {
                // What is left moves to other positions, all of which are seen by then.
                self.objects.look_through(&mut self.data, Evd(evd));
            }
            if let Some(reaper) = self.data.reapers.get_mut(evd as usize).and_then(Option::as_mut) {
                reaper.sweep(&shared, slot);
                reaper.purge(&shared, slot);
            }
        }
    }

    /// Whether nothing of the Endpoint can be in the hands of a reaper in another thread.
    pub(crate) fn reapers_idle(&self, slot: u32) -> bool {
        let Some(ep) = self.data.shared.ep(slot) else {
            return true;
        };
        [Direction::Send, Direction::Recv].iter().all(|&d| {
            let line = ep.line(d);
            let here = self
                .events
                .evds
                .handle_at(line.evd.load(Ordering::Relaxed))
                .is_none_or(|evd| !self.events.reaper_is_out(&self.data, evd));
            // What a shared queue gave to it has to be taken back out of the completion queue.
            let shared = d == Direction::Recv && ep.srq().is_some();
            here || !shared && (ep.outstanding(d) == 0 && !line.flush.is_on())
        })
    }

    /// Destroys the queue pair of an Endpoint, if it has one.
    pub(crate) fn destroy_qp(&mut self, ep: Ep) -> Result<(), Error> {
        match take_qp(self, ep) {
            Some(NewQp { qp, sq, rq }) => Ok(self.hca.qp_destroy(qp, sq, rq)?),
            None => Ok(()),
        }
    }
}

/// Takes the queue pair from an Endpoint, to be destroyed; `None` if it has none, or its posting
/// half is out.
pub(crate) fn take_qp<P: Provider>(ia: &mut Ia<'_, P>, ep: Ep) -> Option<NewQp<P::Sq, P::Rq>> {
    let qp = ia.objects.eps.live(ep).ok()?.qp;
    ia.objects.set_qp(ep, None);
    ia.data.retire_index(ep.0.index());
    let poster = ia.data.posters.get_mut(ep.0.index() as usize).and_then(Option::take);
    let Poster { sq, rq, .. } = poster?;
    Some(NewQp { qp: qp?, sq, rq })
}

/// The poster over a new queue pair.
pub(crate) fn made<P: Provider>(
    ia: &Ia<'_, P>,
    wanted: &Wanted,
    init: &QpInit,
    qp: Qp,
    sq: P::Sq,
    rq: P::Rq,
) -> Made<P> {
    let Wanted { slot, ref makings, .. } = *wanted;
    let attr = &makings.attr;
    let QpInit { requests, receives, index, shared, binds, .. } = *init;
    let mut straight = CompletionFlags::SUPPRESS
        .union(CompletionFlags::SOLICITED_WAIT)
        .union(CompletionFlags::LMR_INVALIDATE_FENCE)
        .union(CompletionFlags::DEFER);
    let datagram = makings.service != Service::Connected;
    let adapter = ia.hca.limits();
    // A datagram is never deferred or fenced.
    let (max_message, max_rdma) = if datagram {
        straight -= CompletionFlags::DEFER;
        (adapter.max_message, attr.max_message_size)
    } else {
        (attr.max_message_size, attr.max_rdma_size)
    };
    let unsignalled = |flags: CompletionFlags| flags.contains(CompletionFlags::UNSIGNALLED);
    let core = Core {
        zone: lmr::zone(makings.pz.map_or(0, |pz| pz.0.index())),
        // All others, also those that nobody knows.
        aside: CompletionFlags::from_bits_retain(!straight.bits()),
        max_rdma,
        max_message,
        requests,
        request_mask: mask_of(requests),
    };
    let limits = Limits {
        receives,
        silent: Run::of((requests / 2).min(Run::MOST)),
        recv_mask: mask_of(receives),
        request_segments: attr.max_request_iov,
        recv_segments: attr.max_recv_iov,
        read_segments: attr.max_rdma_read_iov,
        write_segments: attr.max_rdma_write_iov,
        max_receive: adapter.max_message,
        unsignalled_request: unsignalled(attr.request_completion_flags),
        unsignalled_recv: unsignalled(attr.recv_completion_flags),
        datagram,
        binds,
        atomics: adapter.atomics,
        shared: shared.is_some(),
    };
    let poster = Poster::new(slot, sq, rq, core, limits);
    Made { qp, poster, index }
}

/// What a queue pair is made of; `None` while something is missing.
pub(crate) fn qp_init<P: Provider>(ia: &Ia<'_, P>, wanted: &Wanted) -> Option<QpInit> {
    let Wanted { slot, generation, ref makings } = *wanted;
    let pz = makings.pz?;
    let cq_of = |evd: Option<Evd>| {
        evd.and_then(|evd| ia.events.evds.get(evd.0)).and_then(|control| control.cq)
    };
    let (request_cq, recv_cq) = (cq_of(makings.request_evd), cq_of(makings.recv_evd));
    let send_cq = request_cq.or(recv_cq)?;
    let shared =
        makings.srq.and_then(|srq| ia.objects.srqs.get(srq.0)).map(|control| control.queue);
    if shared.is_some() && recv_cq.is_none() {
        // What it takes from the queue would never come back.
        return None;
    }
    let attr = &makings.attr;
    let segments = attr.max_request_iov.max(attr.max_rdma_read_iov).max(attr.max_rdma_write_iov);
    Some(QpInit {
        service: makings.service,
        pd: ia.objects.pzs.get(pz.0)?.pd,
        send_cq,
        recv_cq: recv_cq.unwrap_or(send_cq),
        requests: attr.max_request_dtos,
        receives: if shared.is_some() { 0 } else { attr.max_recv_dtos },
        request_segments: segments,
        receive_segments: attr.max_recv_iov,
        binds: ia.events.takes_binds(makings.request_evd),
        index: (slot | generation << ia.data.shared.ep_mask.trailing_ones()) & 0xff_ffff,
        shared,
    })
}

/// Takes the queue pair of an Endpoint to Reset: it completes nothing more. By way of Error where
/// the device has to say what became of something ([`unsure`]).
///
/// A device that refuses is lost; the consumer gets everything back flushed all the same.
pub(crate) fn stop(hca: &mut impl Provider, qp: Qp, line: &EpShared) {
    if unsure(line) {
        let _ = hca.qp_modify(qp, &QpStep::Error);
    }
    let _ = hca.qp_modify(qp, &QpStep::Reset);
}

/// Whether the device has to say what became of something: a receive of a Shared Receive Queue that
/// half a message has taken comes back, and the first request that fails tells which suppressed ones
/// have succeeded. Reset alone forgets both.
pub(crate) fn unsure(line: &EpShared) -> bool {
    line.srq().is_some() || line.outstanding(Direction::Send) != 0
}

/// The first step of a new queue pair. Peers get every right the queue pair can give; the keys
/// decide what they may touch.
pub(crate) const fn first_step(service: Service) -> QpStep {
    match service {
        Service::Connected => QpStep::Init {
            access: Access::REMOTE_READ.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC),
        },
        Service::Datagram { qkey } => QpStep::Datagram { qkey },
    }
}

/// Slots for `count` DTOs, less one.
fn mask_of(count: u16) -> u16 {
    let mask = u32::from(count.max(1)).next_power_of_two() - 1;
    u16::try_from(mask).unwrap_or(u16::MAX)
}
