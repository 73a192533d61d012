//! Counters of the device: a set for all queue pairs of this driver, and those of its port.
//!
//! PRM "ALLOC_Q_COUNTER", "QUERY_Q_COUNTER", "QUERY_VPORT_COUNTER". The set is taken at bring-up
//! and named in every queue pair's context. A function that is refused one does without: its queue
//! pairs count into set 0, which is nobody's, and the driver says 0. They are never cleared:
//! a caller that wants a new start subtracts.

use dat_core::provider::{Fault, FaultKind, HcaCounters};

use crate::device::Device;
use crate::platform::Platform;
use crate::prm::cmd::Opcode;
use crate::prm::counters::{
    QUEUE_OUT, QueryQCounterIn, QueryQCounterOut, RECEIVED_ERRORS, TRANSMIT_ERRORS, TrafficCounter,
    VPORT_OUT,
};

/// Bytes of QUERY_VPORT_COUNTER's input.
const VPORT_IN: usize = 32;

impl<P: Platform> Device<'_, P> {
    /// ALLOC_Q_COUNTER. A refusal leaves the driver without counters.
    pub(crate) fn alloc_counters(&mut self) -> Result<(), Fault> {
        self.counter_set = match self.allocate(Opcode::AllocQCounter) {
            Ok(set) => u8::try_from(set).ok(),
            Err(fault) if matches!(fault.kind, FaultKind::Timeout | FaultKind::Gone) => {
                return Err(fault);
            }
            Err(_) => None,
        };
        Ok(())
    }

    /// DEALLOC_Q_COUNTER, when no queue pair names the set any more.
    pub(crate) fn dealloc_counters(&mut self) -> Result<(), Fault> {
        match self.counter_set.take() {
            Some(set) => self.end(Opcode::DeallocQCounter, set.into()),
            None => Ok(()),
        }
    }

    /// Returns the number of the set for a queue pair's context.
    pub(crate) fn counter_set(&self) -> u8 {
        self.counter_set.unwrap_or_default()
    }

    /// Returns the counts, in dat-core's order.
    pub(crate) fn counters(&mut self) -> Result<HcaCounters, Fault> {
        let mut counters = HcaCounters::default();
        if let Some(set) = self.counter_set {
            let mut input = QueryQCounterIn::new();
            input.set_counter_set_id(set);
            let mut output = [0; QUEUE_OUT];
            let op = Opcode::QueryQCounter;
            self.exec(op, 0, set.into(), &mut input.0, &mut output)?;
            let queues = QueryQCounterOut::read(&output, 0);
            counters.diag = [
                queues.resp_remote_access_errors(),
                queues.out_of_sequence(),
                queues.resp_remote_invalid_request(),
                queues.out_of_buffer(),
                queues.req_remote_access_errors(),
                queues.packet_seq_err(),
                queues.req_remote_invalid_request(),
                queues.req_rnr_retries_exceeded(),
                queues.req_transport_retries_exceeded(),
            ]
            .map(u64::from);
        }
        if self.caps.general.vport_counters() {
            let mut output = [0; VPORT_OUT];
            let mut input = [0; VPORT_IN];
            self.exec(Opcode::QueryVportCounter, 0, 0, &mut input, &mut output)?;
            let packets = |at| TrafficCounter::read(&output, at).packets();
            let [received, _, _, discarded, ..] = &mut counters.link;
            *received = packets(RECEIVED_ERRORS);
            *discarded = packets(TRANSMIT_ERRORS);
        }
        Ok(counters)
    }
}
