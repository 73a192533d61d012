//! Queue pairs of a provider: made, taken a step on and destroyed, each in two halves, with the wait
//! for the device between them.

use dat_core::fault;
use dat_core::provider::{self as seam, Fault, NewQp, Provider as _, Qp, QpInit, QpStep};

use crate::data::{Rq, Sq};
use crate::device::in_flight::few;
use crate::device::{Begun, note, optional};
use crate::platform::Platform;
use crate::prm::cmd::Opcode;
use crate::prm::cq::Cqn;
use crate::prm::object;
use crate::prm::qp::Qpn;
use crate::provider::{Mlx5, QpEntry, full, no_such_object, twice};
use crate::verbs::qp::{self, Creation, QpSpec, Service};
use crate::verbs::uar::Register;

/// A queue pair that the device is being asked for.
pub(super) struct Making<'p, P: Platform> {
    spec: QpSpec,
    register: Option<Register>,
    creation: Creation<'p, P>,
}

impl<
    'p,
    P: Platform,
    const QPS: usize,
    const CQS: usize,
    const KEYS: usize,
    const NEIGHBOURS: usize,
> Mlx5<'p, P, QPS, CQS, KEYS, NEIGHBOURS>
{
    /// Asks the device for a queue pair; `ahead` others are on their way.
    pub(super) fn begin_pair(
        &mut self,
        init: &QpInit,
        ahead: usize,
    ) -> Result<Making<'p, P>, Fault> {
        self.known_pd(Opcode::CreateQp, init.pd)?;
        for cq in [init.send_cq, init.recv_cq] {
            if !self.cqs.has(cq.0) {
                return Err(no_such_object(Opcode::CreateQp, object::CQ, cq.0));
            }
        }
        // Of none there is, if the program uses none.
        let shared = init.shared.map(|queue| queue.0);
        if let Some(srqn) = shared {
            if !(self.shared.has(srqn)) {
                return Err(no_such_object(Opcode::CreateQp, object::SRQ, srqn));
            }
        }
        if self.qps.room() <= ahead {
            return Err(full(Opcode::CreateQp, object::QUEUE_PAIRS));
        }
        let (uar, doorbell, register) = self.doorbells.take(&mut self.device)?;
        let spec = QpSpec {
            service: match init.service {
                seam::Service::Connected => Service::Connected { index: init.index },
                seam::Service::Datagram { .. } => Service::Datagram { index: init.index },
            },
            pd: init.pd.0,
            send_cq: Cqn(init.send_cq.0),
            recv_cq: Cqn(init.recv_cq.0),
            requests: init.requests,
            receives: init.receives,
            request_segments: init.request_segments,
            receive_segments: init.receive_segments,
            binds: init.binds,
            uar,
            doorbell,
            shared,
            inline: self.has_inline(init),
        };
        match qp::begin_create(&mut self.device, &spec) {
            Ok(creation) => Ok(Making { spec, register, creation }),
            Err(fault) => {
                self.doorbells.give(register);
                Err(fault)
            }
        }
    }

    /// Waits for the device's answer, and enters the queue pair.
    pub(super) fn finish_pair(
        &mut self,
        init: &QpInit,
        making: Making<'p, P>,
    ) -> Result<NewQp<Sq<'p, P>, Rq<'p, P>>, Fault> {
        let Making { spec, register, creation, .. } = making;
        let (object, sq, rq) = match qp::finish_create(&mut self.device, &spec, creation) {
            Ok(made) => made,
            Err(fault) => {
                self.doorbells.give(register);
                return Err(fault);
            }
        };
        let (cqs, shared) = ([init.send_cq.0, init.recv_cq.0], spec.shared);
        let entry = QpEntry { object, register, pd: init.pd, cqs, shared };
        let number = object.qpn.0;
        if self.qps.insert(number, entry) {
            self.pds.hold(init.pd.0);
            cqs.iter().for_each(|cqn| self.cqs.hold(*cqn));
            shared.iter().for_each(|srqn| self.shared.hold(*srqn));
            if spec.inline {
                self.enter_queue(&object, spec.pd, init.index);
            }
            Ok(NewQp { qp: Qp { number }, sq, rq })
        } else {
            Err(twice(Opcode::CreateQp, object::QP, number))
        }
    }

    /// Whether a queue pair may be taken that step on.
    fn may_step(&mut self, qp: Qp, step: &QpStep) -> Result<(), Fault> {
        let Some(entry) = self.qps.get_mut(qp.number) else {
            return Err(fault!(BadParameter, "MODIFY_QP", "there is no such object")
                .of(object::QP, qp.number));
        };
        entry.object.is_reset = false;
        if matches!(step, QpStep::Rtr { .. }) && self.network.is_none() && self.subnet.is_none() {
            return Err(fault!(
                BadState,
                "resolve",
                "the port has no address yet",
                "give the port its address first",
            )
            .of(object::QP, qp.number));
        }
        Ok(())
    }

    pub(super) fn step_pair(&mut self, qp: Qp, step: &QpStep) -> Result<(), Fault> {
        self.may_step(qp, step)?;
        qp::step(&mut self.device, Qpn(qp.number), step)?;
        self.stepped(qp, step);
        Ok(())
    }

    /// A queue pair has taken a step.
    fn stepped(&mut self, qp: Qp, step: &QpStep) {
        if let Some(entry) = self.qps.get_mut(qp.number) {
            entry.object.is_reset = matches!(step, QpStep::Reset);
        }
    }

    /// Asks the device for a step, if it is one command.
    pub(super) fn begin_step(&mut self, qp: Qp, step: &QpStep) -> Result<Option<Begun>, Fault> {
        self.may_step(qp, step)?;
        qp::begin(&mut self.device, Qpn(qp.number), step)
    }

    /// Waits for the device's answer; asks anew if there was no room for the command, or not enough
    /// pages, or it is several commands.
    pub(super) fn finish_step(
        &mut self,
        qp: Qp,
        step: &QpStep,
        begun: Option<Begun>,
    ) -> Result<(), Fault> {
        match begun.and_then(|begun| self.device.complete(&begun)) {
            Some(answer) => {
                answer?;
                self.stepped(qp, step);
                Ok(())
            }
            None => self.step_pair(qp, step),
        }
    }

    /// Asks the device to destroy a queue pair in any state. See [`qp::destroy`]; dat-core has reset
    /// it already.
    pub(super) fn begin_pair_end(&mut self, qp: Qp) -> Result<(QpEntry, Option<Begun>), Fault> {
        let entry = self.qps.get(qp.number).copied();
        let entry = entry.ok_or(no_such_object(Opcode::DestroyQp, object::QP, qp.number))?;
        optional(self.group_leave(qp, None))?;
        if !entry.object.is_reset {
            optional(qp::reset(&mut self.device, entry.object.qpn))?;
        }
        Ok((entry, self.device.begin_end(Opcode::DestroyQp, qp.number)?))
    }

    /// Waits for the device's answer.
    pub(super) fn finish_pair_end(
        &mut self,
        entry: &QpEntry,
        begun: Option<Begun>,
    ) -> Result<(), Fault> {
        self.device.finish_end(Opcode::DestroyQp, entry.object.qpn.0, begun)?;
        self.device.platform().free(entry.object.memory());
        self.forget_pair(entry);
        Ok(())
    }

    /// A queue pair is gone.
    fn forget_pair(&mut self, entry: &QpEntry) {
        let QpEntry { object, register, pd, cqs, shared } = *entry;
        self.doorbells.give(register);
        self.qps.remove(object.qpn.0);
        self.pds.release(pd.0);
        cqs.iter().for_each(|cqn| self.cqs.release(*cqn));
        shared.iter().for_each(|srqn| self.shared.release(*srqn));
    }

    /// Destroys every queue pair there is. What the device does not let go of now, it does at the
    /// teardown.
    pub(super) fn drop_all_pairs(&mut self, first: &mut Result<(), Fault>) {
        let mut entries = self.qps.values();
        loop {
            let objects = few(entries.by_ref().map(|entry| entry.object));
            if objects.is_empty() {
                break;
            }
            let is_reset = |object: &qp::QpObject| object.is_reset.then_some(Ok(()));
            let mut resets = few(objects.iter().map(|object| (object.qpn.0, is_reset(object))));
            self.device.end_each(Opcode::ToRstQp, &mut resets);
            let mut ends = few(resets.iter().map(|(number, reset)| {
                let failed = optional(reset.unwrap_or(Ok(()))).err();
                (*number, failed.map(Err))
            }));
            self.device.end_each(Opcode::DestroyQp, &mut ends);
            for (object, (_, ended)) in objects.iter().zip(&ends) {
                let ended = ended.unwrap_or(Ok(()));
                match ended {
                    Ok(()) => self.device.platform().free(object.memory()),
                    Err(_) => self.device.disown(object.memory()),
                }
                note(first, ended);
            }
        }
        drop(entries);
        self.qps.clear();
    }
}
