//! One end of a wire under a test's control.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use mlx5_model::wire::frame::Packet;
use mlx5_model::wire::impair::{Fault, Impaired, Rates, Struck};
use mlx5_model::wire::{ModelClock, Wire};

use crate::host::inproc::lock;

/// Attribute IDs of connection management.
pub mod attribute {
    /// Connect request.
    pub const REQ: u16 = 0x10;
    /// Message receipt acknowledgement.
    pub const MRA: u16 = 0x11;
    /// Rejection.
    pub const REJ: u16 = 0x12;
    /// Reply.
    pub const REP: u16 = 0x13;
    /// Ready to use.
    pub const RTU: u16 = 0x14;
    /// Disconnect request.
    pub const DREQ: u16 = 0x15;
    /// Disconnect reply.
    pub const DREP: u16 = 0x16;
}

/// A plug of one side. Clones are the same plug: the model holds one, the test another.
#[derive(Clone)]
pub struct Line(Arc<Mutex<Inner>>);

struct Inner {
    wire: Impaired<Box<dyn Wire + Send>>,
    foreign: VecDeque<Vec<u8>>,
    sent: Option<Vec<Vec<u8>>>,
    cut: bool,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

impl Line {
    /// A plug around `wire`.
    pub fn new(wire: Box<dyn Wire + Send>, clock: ModelClock, seed: u64, rates: Rates) -> Self {
        let wire = Impaired::new(wire, clock, seed).rates(rates);
        let inner = Inner { wire, foreign: VecDeque::new(), sent: None, cut: false };
        Self(Arc::new(Mutex::new(inner)))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.0)
    }

    /// Chances of faults for what this side sends, from now on.
    pub fn rates(&self, rates: Rates) {
        self.inner().wire.set_rates(rates);
    }

    /// A fault for chosen frames that this side sends.
    pub fn rule(
        &self,
        nth: u32,
        times: u32,
        fault: Fault,
        fits: impl FnMut(&[u8]) -> bool + Send + 'static,
    ) {
        self.inner().wire.rule(nth, times, fault, fits);
    }

    /// A fault for the CM messages of one kind that this side sends.
    pub fn rule_mad(&self, nth: u32, times: u32, fault: Fault, id: u16) {
        self.rule(nth, times, fault, move |frame| {
            mad(frame).is_some_and(|m| attribute_id(&m) == id)
        });
    }

    /// Pulls the plug, or puts it back: nothing leaves and nothing arrives.
    pub fn cut(&self, cut: bool) {
        self.inner().cut = cut;
    }

    /// Lets a frame arrive at this side that the other one never sent: a third port of the switch.
    pub fn inject(&self, frame: Vec<u8>) {
        self.inner().foreign.push_back(frame);
    }

    /// Keeps a copy of what this side sends from now on.
    pub fn record(&self) {
        self.inner().sent = Some(Vec::new());
    }

    /// Returns the copies, and ends the recording.
    pub fn recorded(&self) -> Vec<Vec<u8>> {
        self.inner().sent.take().unwrap_or_default()
    }

    /// Returns the faults so far.
    pub fn struck(&self) -> Struck {
        self.inner().wire.struck()
    }
}

impl Wire for Line {
    fn send(&mut self, frame: &[u8]) {
        let mut inner = self.inner();
        if let Some(sent) = &mut inner.sent {
            sent.push(frame.to_vec());
        }
        if !inner.cut {
            inner.wire.send(frame);
        }
    }

    fn recv(&mut self) -> Option<Vec<u8>> {
        let mut inner = self.inner();
        if inner.cut {
            while inner.wire.recv().is_some() {}
            return None;
        }
        match inner.foreign.pop_front() {
            Some(frame) => Some(frame),
            None => inner.wire.recv(),
        }
    }

    fn set_carrier(&mut self, is_up: bool) {
        self.inner().wire.set_carrier(is_up);
    }
}

/// The packet of a frame, if it is one of RoCE.
#[must_use]
pub fn packet(frame: &[u8]) -> Option<Packet> {
    Packet::parse(frame).ok()
}

/// The MAD in a frame, if it carries one.
#[must_use]
pub fn mad(frame: &[u8]) -> Option<Vec<u8>> {
    packet(frame).filter(|p| p.bth.dest_qp == 1 && p.payload.len() == 256).map(|p| p.payload)
}

/// Attribute ID of a MAD.
#[must_use]
pub fn attribute_id(mad: &[u8]) -> u16 {
    u16::from_be_bytes([mad[16], mad[17]])
}
