//! One port of the fabric as a provider.
//!
//! Length: one implementation of the whole seam, method by method in the seam's order.

use core::net::IpAddr;
use core::task::Poll;

use heapless::{Deque, Vec};

use super::fabric::{CqSlot, Fabric, QpSlot, Receive, Request, Segments, State, Work};
use super::keys::{Key, in_port};
use super::words::{self, READ};
use crate::fault;
use crate::provider::{
    Access, Arrived, Atomic, Bind, Completion, CompletionQueue, Cq, Destination, Direction, Extra,
    Fault, HcaLimits, MadIn, Mr, Mw, Net, NewQp, Notice, Object, Path, Pd, Polled, PostFlags,
    Provider, Qp, QpInit, QpStep, RecvQueue, Region, Remote, Segment, SendQueue, Status,
};
use crate::time::Instant;

/// One of the two HCAs of a [`Fabric`].
#[derive(Debug)]
pub struct LoopHca<'f> {
    fabric: &'f Fabric,
    port: usize,
    limits: HcaLimits,
}

impl<'f> LoopHca<'f> {
    /// Opens port 0 or 1 of `fabric`. A port that is open already is taken over, empty.
    #[must_use]
    pub fn new(fabric: &'f Fabric, port: usize) -> Self {
        let port = port.min(1);
        if let Some(port) = fabric.inner.borrow_mut().ports.get_mut(port) {
            port.open = true;
        }
        let mut limits = fabric.limits();
        limits.node_guid += port as u64;
        Self {
            fabric,
            port,
            limits,
        }
    }

    fn with<T>(&mut self, f: impl FnOnce(&mut super::fabric::Port) -> Option<T>) -> Option<T> {
        self.fabric
            .inner
            .borrow_mut()
            .ports
            .get_mut(self.port)
            .and_then(f)
    }
}

fn none(operation: &'static str, object: Object, number: u32) -> Fault {
    fault!(READ, BadParameter, "", "there is no such object")
        .of(object, number)
        .during(words::command(operation))
}

fn full(operation: &'static str) -> Fault {
    fault!(READ, Resources, "", "the table is full").during(words::command(operation))
}

impl<'f> Provider for LoopHca<'f> {
    type Sq = LoopSq<'f>;
    type Rq = LoopRq<'f>;
    type Cq = LoopCq<'f>;

    fn limits(&self) -> &HcaLimits {
        &self.limits
    }

    fn set_net(&mut self, net: &Net, _now: Instant) -> Result<(), Fault> {
        self.fabric.step("set_net")?;
        self.with(|port| {
            port.addr = Some(net.addr);
            Some(())
        })
        .ok_or_else(|| none("set_net", words::PORT, self.port as u32))
    }

    fn resolve(&mut self, remote: IpAddr, _now: Instant) -> Poll<Result<Path, Fault>> {
        if self.fabric.pending.get() {
            return Poll::Pending;
        }
        let known = self
            .fabric
            .inner
            .borrow()
            .ports
            .iter()
            .any(|p| p.open && p.addr == Some(remote));
        if !known || self.fabric.unreachable.get() == Some(remote) {
            return Poll::Ready(Err(fault!(
                READ,
                Unreachable,
                "resolve",
                "no port of the fabric has that address"
            )));
        }
        Poll::Ready(Ok(Path {
            remote,
            remote_mac: [2, 0, 0, 0, 0, 1],
            source_index: 0,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        }))
    }

    fn pd_create(&mut self) -> Result<Pd, Fault> {
        self.fabric.step("pd_create")?;
        self.with(|port| {
            let free = port.pds.trailing_ones();
            port.pds |= 1_u32.checked_shl(free)?;
            Some(Pd(free))
        })
        .ok_or_else(|| full("pd_create"))
    }

    fn pd_destroy(&mut self, pd: Pd) -> Result<(), Fault> {
        let used = self
            .with(|port| {
                let keys = port.keys.iter().flatten().any(|key| key.pd == pd);
                Some(keys || port.qps.iter().flatten().any(|qp| qp.pd == pd))
            })
            .unwrap_or(false);
        if used {
            return Err(fault!(READ, BadState, "pd_destroy", "still in use").of(words::PD, pd.0));
        }
        self.with(|port| {
            let bit = 1_u32.checked_shl(pd.0)?;
            (port.pds & bit != 0).then(|| port.pds &= !bit)
        })
        .ok_or_else(|| none("pd_destroy", words::PD, pd.0))
    }

    fn mr_create(&mut self, pd: Pd, region: Region, access: Access) -> Result<Mr, Fault> {
        self.fabric.step("mr_create")?;
        if !in_port(self.port, region) {
            return Err(fault!(
                READ,
                BadParameter,
                "mr_create",
                "the memory is not this port's"
            ));
        }
        let key = Key {
            variant: 0,
            pd,
            region,
            access,
            window: false,
            bound: None,
        };
        self.with(|port| port.add_key(key))
            .map(|key| Mr {
                lkey: key,
                rkey: key,
            })
            .ok_or_else(|| full("mr_create"))
    }

    fn mr_destroy(&mut self, mr: Mr) -> Result<(), Fault> {
        self.with(|port| port.drop_key(mr.lkey).then_some(()))
            .ok_or_else(|| none("mr_destroy", words::MKEY, mr.lkey))
    }

    fn mw_create(&mut self, pd: Pd) -> Result<Mw, Fault> {
        self.fabric.step("mw_create")?;
        if !self.limits.windows {
            return Err(fault!(
                READ,
                Unsupported,
                "mw_create",
                "this port has no memory windows"
            ));
        }
        let key = Key {
            variant: 0,
            pd,
            region: Region::default(),
            access: Access::empty(),
            window: true,
            bound: None,
        };
        self.with(|port| port.add_key(key))
            .map(|rkey| Mw { rkey })
            .ok_or_else(|| full("mw_create"))
    }

    fn mw_destroy(&mut self, mw: Mw) -> Result<(), Fault> {
        self.with(|port| port.drop_key(mw.rkey).then_some(()))
            .ok_or_else(|| none("mw_destroy", words::MKEY, mw.rkey))
    }

    fn cq_create(&mut self, entries: u32) -> Result<(Cq, LoopCq<'f>), Fault> {
        self.fabric.step("cq_create")?;
        let depth = entries as usize;
        if depth > super::CQES {
            return Err(fault!(READ, Resources, "cq_create", "too many entries"));
        }
        let number = self
            .with(|port| {
                let free = port.cqs.iter().position(Option::is_none)?;
                *port.cqs.get_mut(free)? = Some(CqSlot {
                    depth,
                    ..CqSlot::default()
                });
                Some(free)
            })
            .ok_or_else(|| full("cq_create"))?;
        Ok((
            Cq(number as u32),
            LoopCq {
                fabric: self.fabric,
                port: self.port,
                number,
                extra: Extra::default(),
            },
        ))
    }

    fn cq_destroy(&mut self, cq: Cq, _end: LoopCq<'f>) -> Result<(), Fault> {
        let number = cq.0 as usize;
        let used = |qp: &QpSlot| qp.send_cq == number || qp.recv_cq == number;
        if self
            .with(|port| port.qps.iter().flatten().any(used).then_some(()))
            .is_some()
        {
            return Err(fault!(READ, BadState, "cq_destroy", "still in use").of(words::CQ, cq.0));
        }
        self.with(|port| port.cqs.get_mut(number)?.take().map(|_| ()))
            .ok_or_else(|| none("cq_destroy", words::CQ, cq.0))
    }

    fn qp_create(&mut self, init: &QpInit) -> Result<NewQp<LoopSq<'f>, LoopRq<'f>>, Fault> {
        self.fabric.step("qp_create")?;
        let slot = QpSlot {
            pd: init.pd,
            send_cq: init.send_cq.0 as usize,
            recv_cq: init.recv_cq.0 as usize,
            index: init.index,
            state: State::Reset,
            access: Access::empty(),
            qkey: None,
            peer: None,
            sends: Deque::new(),
            recvs: Deque::new(),
            deferred: 0,
            heard: false,
        };
        let number = self
            .with(|port| {
                let free = port.qps.iter().position(Option::is_none)?;
                *port.qps.get_mut(free)? = Some(slot);
                Some(free)
            })
            .ok_or_else(|| full("qp_create"))?;
        let end = End {
            fabric: self.fabric,
            port: self.port,
            number,
            token: 0,
        };
        Ok(NewQp {
            qp: Qp {
                number: super::FIRST_QPN | number as u32,
            },
            sq: LoopSq(end.clone()),
            rq: LoopRq(end),
        })
    }

    fn qp_modify(&mut self, qp: Qp, step: &QpStep) -> Result<(), Fault> {
        self.fabric.step("qp_modify")?;
        let port = self.port;
        let number = (qp.number & 0xff) as usize;
        let mut inner = self.fabric.inner.borrow_mut();
        let peer_of = |remote: IpAddr, inner: &super::fabric::Memory| {
            inner
                .ports
                .iter()
                .position(|port| port.addr == Some(remote))
        };
        let peer = match step {
            QpStep::Rtr {
                path, remote_qpn, ..
            } => peer_of(path.remote, &inner).map(|far| (far, *remote_qpn)),
            QpStep::Datagram { .. }
            | QpStep::Init { .. }
            | QpStep::Rts { .. }
            | QpStep::Error
            | QpStep::Reset => None,
        };
        let Some(slot) = inner.qp(port, number) else {
            return Err(none("qp_modify", words::QP, qp.number));
        };
        let next = match (step, slot.state) {
            (QpStep::Datagram { qkey }, State::Reset) => {
                slot.qkey = Some(*qkey);
                State::Rts
            }
            (QpStep::Init { access }, State::Reset) => {
                slot.access = *access;
                State::Init
            }
            (QpStep::Rtr { .. }, State::Init) => {
                slot.peer = peer;
                State::Rtr
            }
            (QpStep::Rts { .. }, State::Rtr) => State::Rts,
            (QpStep::Error, _) => State::Error,
            (QpStep::Reset, _) => State::Reset,
            (
                QpStep::Datagram { .. }
                | QpStep::Init { .. }
                | QpStep::Rtr { .. }
                | QpStep::Rts { .. },
                _,
            ) => {
                return Err(fault!(
                    READ,
                    BadState,
                    "qp_modify",
                    "that step does not follow from its state"
                )
                .of(words::QP, qp.number));
            }
        };
        slot.state = next;
        if next == State::Reset {
            slot.sends.clear();
            slot.recvs.clear();
            slot.deferred = 0;
            slot.heard = false;
            slot.peer = None;
        }
        if next == State::Error {
            inner.flush(port, number);
        }
        drop(inner);
        self.fabric.run();
        Ok(())
    }

    fn qp_restart(&mut self, _qp: Qp, sq: &mut LoopSq<'f>, rq: &mut LoopRq<'f>) {
        sq.0.token = 0;
        rq.0.token = 0;
    }

    fn qp_destroy(&mut self, qp: Qp, _sq: LoopSq<'f>, _rq: LoopRq<'f>) -> Result<(), Fault> {
        self.with(|port| {
            port.qps
                .get_mut((qp.number & 0xff) as usize)?
                .take()
                .map(|_| ())
        })
        .ok_or_else(|| none("qp_destroy", words::QP, qp.number))
    }

    fn mad_send(&mut self, path: &Path, mad: &[u8; 256]) -> Result<(), Fault> {
        if self.fabric.crowded.get() {
            return Err(full("mad_send"));
        }
        self.fabric.carry(self.port, path.remote, mad);
        Ok(())
    }

    fn mad_recv(&mut self) -> Option<MadIn> {
        self.with(|port| port.mads.pop_front())
    }

    fn service(&mut self, _now: Instant) {
        self.fabric.run();
    }

    fn notice(&mut self) -> Option<Notice> {
        self.with(|port| port.notices.pop_front())
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn close(&mut self) -> Result<(), Fault> {
        self.with(|port| {
            port.left = port.alive();
            port.addr = None;
            port.pds = 0;
            port.keys = [const { None }; super::KEYS];
            port.cqs = [const { None }; super::CQS];
            port.qps = [const { None }; super::QPS];
            port.mads.clear();
            port.notices.clear();
            port.open = false;
            Some(())
        })
        .ok_or_else(|| none("close", words::PORT, self.port as u32))
    }
}

/// What the two posting ends have in common.
#[derive(Clone, Debug)]
struct End<'f> {
    fabric: &'f Fabric,
    port: usize,
    number: usize,
    token: u16,
}

impl End<'_> {
    fn next(&mut self) -> u16 {
        let token = self.token;
        self.token = token.wrapping_add(1);
        token
    }
}

fn list(segments: &[Segment]) -> Segments {
    Vec::from_slice(segments).unwrap_or_default()
}

/// The send queue of a loop queue pair.
#[derive(Debug)]
pub struct LoopSq<'f>(End<'f>);

impl LoopSq<'_> {
    fn post(&mut self, work: Work, flags: PostFlags) -> u16 {
        let token = self.0.next();
        {
            let mut inner = self.0.fabric.inner.borrow_mut();
            if let Some(qp) = inner.qp(self.0.port, self.0.number) {
                let signaled = flags.contains(PostFlags::SIGNALED);
                // dat-core's credit keeps the queue from ever being full.
                let _ = qp.sends.push_back(Request {
                    token,
                    signaled,
                    work,
                });
                qp.deferred = if flags.contains(PostFlags::DEFER) {
                    qp.deferred + 1
                } else {
                    0
                };
            }
        }
        self.0.fabric.run();
        token
    }
}

impl SendQueue for LoopSq<'_> {
    fn next_token(&self) -> u16 {
        self.0.token
    }

    fn send(&mut self, segments: &[Segment], flags: PostFlags) -> u16 {
        self.post(Work::Send(list(segments)), flags)
    }

    fn rdma_write(&mut self, segments: &[Segment], remote: Remote, flags: PostFlags) -> u16 {
        self.post(Work::Write(list(segments), remote), flags)
    }

    fn rdma_read(&mut self, segments: &[Segment], remote: Remote, flags: PostFlags) -> u16 {
        self.post(Work::Read(list(segments), remote), flags)
    }

    fn atomic(&mut self, into: Segment, remote: Remote, atomic: Atomic, flags: PostFlags) -> u16 {
        self.post(Work::Atomic(list(&[into]), remote, atomic), flags)
    }

    fn rdma_write_immed(
        &mut self,
        segments: &[Segment],
        remote: Remote,
        immediate: u32,
        flags: PostFlags,
    ) -> u16 {
        self.post(Work::WriteImmed(list(segments), remote, immediate), flags)
    }

    fn send_ud(
        &mut self,
        segments: &[Segment],
        to: &Destination,
        immediate: Option<u32>,
        flags: PostFlags,
    ) -> u16 {
        self.post(Work::Datagram(list(segments), *to, immediate), flags)
    }

    fn bind(&mut self, bind: &Bind, flags: PostFlags) -> u16 {
        self.post(Work::Bind(*bind), flags)
    }

    fn ring(&mut self) {
        {
            let mut inner = self.0.fabric.inner.borrow_mut();
            if let Some(qp) = inner.qp(self.0.port, self.0.number) {
                qp.deferred = 0;
            }
        }
        self.0.fabric.run();
    }
}

/// The receive queue of a loop queue pair.
#[derive(Debug)]
pub struct LoopRq<'f>(End<'f>);

impl RecvQueue for LoopRq<'_> {
    fn recv(&mut self, segments: &[Segment]) -> u16 {
        let token = self.0.next();
        {
            let mut inner = self.0.fabric.inner.borrow_mut();
            if let Some(qp) = inner.qp(self.0.port, self.0.number) {
                let _ = qp.recvs.push_back(Receive {
                    token,
                    segments: list(segments),
                });
            }
        }
        self.0.fabric.run();
        token
    }
}

/// A loop completion queue.
#[derive(Debug)]
pub struct LoopCq<'f> {
    fabric: &'f Fabric,
    port: usize,
    number: usize,
    /// Of the completion taken last.
    extra: Extra,
}

impl LoopCq<'_> {
    /// The oldest completion, left where it is.
    fn front(&self) -> Option<Completion> {
        let inner = self.fabric.inner.borrow();
        let cq = inner
            .ports
            .get(self.port)
            .and_then(|port| port.cqs.get(self.number));
        cq.and_then(|cq| cq.as_ref()?.entries.front().copied())
    }
}

impl CompletionQueue for LoopCq<'_> {
    fn poll_plain(&mut self) -> Polled {
        let Some(next) = self.front() else {
            return Polled::Empty;
        };
        if next.status != Status::Success || next.extra.arrived != Arrived::Message {
            return Polled::Other;
        }
        self.poll();
        match next.direction {
            Direction::Send => Polled::Sent(next.index, next.token),
            Direction::Recv => Polled::Received(next.index, next.token, next.len),
        }
    }

    fn poll_sent(&mut self, mut take: impl FnMut(u32, u16) -> bool) {
        while let Some(next) = self.front()
            && next.status == Status::Success
            && next.direction == Direction::Send
            && take(next.index, next.token)
        {
            self.poll();
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        let mut inner = self.fabric.inner.borrow_mut();
        let taken = inner
            .ports
            .get_mut(self.port)?
            .cqs
            .get_mut(self.number)?
            .as_mut()?
            .entries
            .pop_front()?;
        self.extra = taken.extra;
        Some(taken)
    }

    fn extra(&self) -> Extra {
        self.extra
    }

    fn arm(&mut self, _solicited_only: bool) {
        let mut inner = self.fabric.inner.borrow_mut();
        let Some(port) = inner.ports.get_mut(self.port) else {
            return;
        };
        let Some(Some(cq)) = port.cqs.get_mut(self.number) else {
            return;
        };
        if cq.entries.is_empty() {
            cq.armed = true;
        } else {
            let _ = port
                .notices
                .push_back(Notice::Completion(Cq(self.number as u32)));
        }
    }
}
