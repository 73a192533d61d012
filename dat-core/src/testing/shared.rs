//! Shared receive queues of a port.

use crate::provider::Notice;
use crate::provider::Pd;
use crate::provider::Segment;
use crate::provider::SharedRecvQueue;
use crate::provider::SharedRq;
use crate::testing::SHARED_RECEIVES;
use crate::testing::fabric::Fabric;
use crate::testing::fabric::Memory;
use crate::testing::fabric::Receive;

const _: () = {
    // A token is a bit of `LoopShared::free`.
    assert!(SHARED_RECEIVES <= 64);
};

impl Memory {
    /// Whether a message to that queue pair would find a receive.
    pub(super) fn has_receive(&mut self, port: usize, number: usize) -> bool {
        let Some(qp) = self.qp(port, number) else {
            return false;
        };
        let Some(shared) = qp.shared else {
            return !qp.recvs.is_empty();
        };
        self.ports
            .get(port)
            .and_then(|port| port.shared.get(shared)?.as_ref())
            .is_some_and(|queue| !queue.receives.is_empty())
    }

    /// The next receive of that queue pair, and the protection domain of its memory.
    pub(super) fn take_receive(&mut self, port: usize, number: usize) -> Option<(Receive, Pd)> {
        let qp = self.qp(port, number)?;
        let Some(shared) = qp.shared else {
            let pd = qp.pd;
            return Some((qp.recvs.pop_front()?, pd));
        };
        let queue = self.ports.get_mut(port)?.shared.get_mut(shared)?.as_mut()?;
        let receive = queue.receives.pop_front()?;
        let pd = queue.pd;
        if queue.receives.len() < queue.limit {
            queue.limit = 0;
            self.notify(port, Notice::SharedLimit(SharedRq(shared as u32)));
        }
        Some((receive, pd))
    }
}

/// A loop shared receive queue.
#[derive(Debug)]
pub struct LoopShared<'f> {
    fabric: &'f Fabric,
    port: usize,
    number: usize,
    /// A bit for each token that names no receive.
    free: u64,
}

impl<'f> LoopShared<'f> {
    pub(super) fn new(fabric: &'f Fabric, port: usize, number: usize) -> Self {
        Self { fabric, port, number, free: u64::MAX >> (64 - SHARED_RECEIVES) }
    }
}

impl SharedRecvQueue for LoopShared<'_> {
    fn next_token(&self) -> u16 {
        self.free.trailing_zeros() as u16
    }

    fn recv(&mut self, segments: &[Segment]) -> u16 {
        let token = self.next_token();
        self.free &= self.free.wrapping_sub(1);
        {
            let mut inner = self.fabric.inner.borrow_mut();
            let queue = inner
                .ports
                .get_mut(self.port)
                .and_then(|port| port.shared.get_mut(self.number)?.as_mut());
            if let Some(queue) = queue {
                // dat-core's credit keeps the queue from ever being full.
                let _ = queue.receives.push_back(Receive {
                    token,
                    segments: heapless::Vec::from_slice(segments).unwrap_or_default(),
                });
            }
        }
        self.fabric.run();
        token
    }

    fn release(&mut self, token: u16) {
        self.free |= 1_u64.checked_shl(token.into()).unwrap_or(0);
    }
}
