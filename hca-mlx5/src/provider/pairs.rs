//! Queue pairs of a provider, made, taken a step on and destroyed: several at the same time, with up
//! to [`FLIGHTS`] commands on their way. Each entry has a result of its own; one that fails changes
//! nothing of the others.

use dat_core::fault;
use dat_core::provider::{self as seam, Fault, MadeQp, NewQp, Qp, QpInit, QpStep};
use heapless::Vec;

use crate::data::inline::{Fields, Object};
use crate::data::{Rq, Sq};
use crate::device::{FLIGHTS, note, optional};
use crate::platform::Platform;
use crate::prm::cmd::Opcode;
use crate::prm::cq::Cqn;
use crate::prm::object;
use crate::prm::qp::Qpn;
use crate::provider::{Mlx5, QpEntry, full, no_such_object, twice};
use crate::verbs::qp::{self, Creation, QpSpec, Service};
use crate::verbs::uar::Register;

/// A queue pair that the device is being asked for.
struct Making<'p, P: Platform> {
    index: usize,
    spec: QpSpec,
    register: Option<Register>,
    creation: Creation<'p, P>,
}

/// A queue pair that the device is asked to destroy.
struct Leaving {
    index: usize,
    entry: QpEntry,
    fields: Option<Fields>,
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
    pub(super) fn create_pairs(&mut self, all: &mut [(QpInit, MadeQp<Self>)]) {
        for some in all.chunks_mut(FLIGHTS) {
            let mut makings = Vec::<_, FLIGHTS>::new();
            for (index, (init, made)) in some.iter_mut().enumerate() {
                match self.begin_pair(index, init, makings.len()) {
                    Ok(making) => drop(makings.push(making)),
                    Err(fault) => *made = Some(Err(fault)),
                }
            }
            for making in makings {
                if let Some((init, made)) = some.get_mut(making.index) {
                    *made = Some(self.finish_pair(init, making));
                }
            }
        }
    }

    /// Asks the device for a queue pair; `ahead` others are on their way.
    fn begin_pair(
        &mut self,
        index: usize,
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
        if let Some(srqn) = shared
            && !(self.shared.has(srqn))
        {
            return Err(no_such_object(Opcode::CreateQp, object::SRQ, srqn));
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
            uar,
            doorbell,
            shared,
            inline: self.has_inline(init),
        };
        match qp::begin_create(&mut self.device, &spec) {
            Ok(creation) => Ok(Making { index, spec, register, creation }),
            Err(fault) => {
                self.doorbells.give(register);
                Err(fault)
            }
        }
    }

    /// Waits for the device's answer, and enters the queue pair.
    fn finish_pair(
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
        if matches!(step, QpStep::Rtr { .. }) && self.network.is_none() {
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

    pub(super) fn step_pairs(&mut self, steps: &mut [(Qp, QpStep, Result<(), Fault>)]) {
        for some in steps.chunks_mut(FLIGHTS) {
            let mut flights = Vec::<_, FLIGHTS>::new();
            for (index, (qp, step, done)) in some.iter_mut().enumerate() {
                let begun = self
                    .may_step(*qp, step)
                    .and_then(|()| qp::begin(&mut self.device, Qpn(qp.number), step));
                match begun {
                    Ok(Some(flight)) => drop(flights.push((index, flight))),
                    Ok(None) => *done = self.step_pair(*qp, step),
                    Err(fault) => *done = Err(fault),
                }
            }
            for (index, flight) in &flights {
                let answered = self.device.complete(flight);
                if let Some((qp, step, done)) = some.get_mut(*index) {
                    *done = match answered {
                        Some(Ok(_)) => {
                            self.stepped(*qp, step);
                            Ok(())
                        }
                        Some(Err(fault)) => Err(fault),
                        None => self.step_pair(*qp, step),
                    };
                }
            }
        }
    }

    /// Destroys queue pairs in any state.
    pub(super) fn destroy_pairs<E>(&mut self, all: &mut [(Qp, E, Result<(), Fault>)]) {
        for some in all.chunks_mut(FLIGHTS) {
            let mut leaving = Vec::<Leaving, FLIGHTS>::new();
            for (index, (qp, _, done)) in some.iter_mut().enumerate() {
                match self.qps.get(qp.number).copied() {
                    Some(entry) => {
                        let fields = self.take_out(Object::Queue(qp.number));
                        let _ = leaving.push(Leaving { index, entry, fields });
                    }
                    None => {
                        *done = Err(no_such_object(Opcode::DestroyQp, object::QP, qp.number));
                    }
                }
            }
            let copied = self.copies_over(leaving.iter().any(|one| one.fields.is_some()));
            let mut ends = Vec::<_, FLIGHTS>::new();
            for Leaving { entry, fields, .. } in &leaving {
                // Only those that had an entry may have been copied to.
                let waited = if fields.is_some() { copied } else { Ok(()) };
                let ready = waited.and_then(|()| self.reset_before_end(&entry.object));
                let _ = ends.push((entry.object.qpn.0, ready.err().map(Err)));
            }
            self.device.end_each(Opcode::DestroyQp, &mut ends);
            for (Leaving { index, entry, fields }, (number, ended)) in leaving.iter().zip(ends) {
                let ended = ended.unwrap_or(Ok(()));
                if ended.is_ok() {
                    self.device.platform().free(entry.object.memory);
                    self.forget_pair(entry);
                } else {
                    self.put_back(Object::Queue(number), *fields);
                }
                if let Some((.., done)) = some.get_mut(*index) {
                    *done = ended;
                }
            }
        }
    }

    /// See [`qp::destroy`]; dat-core has reset them already.
    fn reset_before_end(&mut self, object: &qp::QpObject) -> Result<(), Fault> {
        if !object.is_reset {
            optional(qp::reset(&mut self.device, object.qpn))?;
        }
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
            let objects: Vec<_, FLIGHTS> =
                entries.by_ref().take(FLIGHTS).map(|entry| entry.object).collect();
            if objects.is_empty() {
                break;
            }
            let mut resets: Vec<_, FLIGHTS> = objects
                .iter()
                .map(|object| (object.qpn.0, object.is_reset.then_some(Ok(()))))
                .collect();
            self.device.end_each(Opcode::ToRstQp, &mut resets);
            let mut ends: Vec<_, FLIGHTS> = resets
                .iter()
                .map(|(number, reset)| {
                    let failed = optional(reset.unwrap_or(Ok(()))).err();
                    (*number, failed.map(Err))
                })
                .collect();
            self.device.end_each(Opcode::DestroyQp, &mut ends);
            for (object, (_, ended)) in objects.iter().zip(ends) {
                let ended = ended.unwrap_or(Ok(()));
                match ended {
                    Ok(()) => self.device.platform().free(object.memory),
                    Err(_) => self.device.disown(object.memory),
                }
                note(first, ended);
            }
        }
        drop(entries);
        self.qps.clear();
    }
}
