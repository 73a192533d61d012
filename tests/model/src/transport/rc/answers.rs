//! The requester's receiving half: acknowledgements, NAKs, READ responses, atomic results.
//!
//! An answer is first judged by its PSN: what was never sent and what is long answered is
//! ignored. An answer beyond an open READ or atomic means that response was lost ("implied
//! NAK"): the requester goes back to it. Reference: IBTA volume 1, 9.7.5 and 9.7.7.

use super::super::host::{Host, Operation, QpAttr, Syndrome, Tally};
use super::super::packet::Packet;
use super::super::timing::rnr_wait;
use super::super::{Fatal, psn};
use super::flight::{Flight, Shape};
use super::replies::{NAK_ACCESS, NAK_INVALID_REQUEST, NAK_OPERATION, NAK_SEQUENCE};
use super::requester::Requester;
use crate::wire::opcode::Opcode;

/// The kinds of AETH syndromes (bits 6 and 5).
enum Verdict {
    Ack,
    RnrNak(u8),
    SequenceNak,
    FatalNak(Syndrome),
    /// Reserved values: nothing a requester may act upon.
    Unknown,
}

fn verdict(syndrome: u8) -> Verdict {
    match (syndrome >> 5, syndrome) {
        (0, _) => Verdict::Ack,
        (1, _) => Verdict::RnrNak(syndrome & 0x1f),
        (_, NAK_SEQUENCE) => Verdict::SequenceNak,
        (_, NAK_INVALID_REQUEST) => Verdict::FatalNak(Syndrome::RemoteInvalidRequest),
        (_, NAK_ACCESS) => Verdict::FatalNak(Syndrome::RemoteAccess),
        (_, NAK_OPERATION) => Verdict::FatalNak(Syndrome::RemoteOperation),
        _ => Verdict::Unknown,
    }
}

impl Requester {
    /// An answer arrived.
    pub(crate) fn on_response(
        &mut self,
        attr: &QpAttr,
        host: &mut dyn Host,
        packet: &Packet,
    ) -> Result<(), Fatal> {
        let psn = packet.bth.psn;
        if psn::distance(self.una, psn) < psn::distance(self.una, self.high) {
            let op = packet.bth.opcode;
            if op == Opcode::Ack {
                self.on_ack(psn, packet, attr, host);
            } else if op == Opcode::AtomicAck {
                self.on_atomic_ack(psn, packet, attr, host);
            } else {
                // Only responses are handed over here; the rest are those of READs.
                self.on_read_response(psn, packet, attr, host);
            }
        }
        self.retire(attr, host)
    }

    fn on_ack(&mut self, psn: u32, packet: &Packet, attr: &QpAttr, host: &mut dyn Host) {
        let Some(aeth) = packet.ext.aeth else { return };
        match verdict(aeth.syndrome) {
            Verdict::Ack => {
                self.acknowledge(psn::add(psn, 1), attr, host);
            }
            Verdict::RnrNak(code) => {
                if self.acknowledge(psn, attr, host) && self.rnr_until.is_none() {
                    self.wait_for_receiver(psn, code, attr, host);
                }
            }
            Verdict::SequenceNak => {
                // While the peer is known to be not ready, it may complain of what followed.
                if self.acknowledge(psn, attr, host) && !self.recovering && self.rnr_until.is_none()
                {
                    host.count(attr.qpn, Tally::PacketSeqErr);
                    self.go_back(psn, attr, host);
                }
            }
            Verdict::FatalNak(syndrome) => {
                if self.acknowledge(psn, attr, host) {
                    self.fail_at(psn, syndrome);
                }
            }
            Verdict::Unknown => {}
        }
    }

    /// All before `to` has arrived. False if that cannot be, because a response is missing
    /// on the way: then the requester has gone back to it.
    fn acknowledge(&mut self, to: u32, attr: &QpAttr, host: &mut dyn Host) -> bool {
        let base = self.una;
        let goal = psn::distance(base, to);
        let mut reached = base;
        let mut missing = None;
        for flight in self.flights.iter_mut().filter(|f| !f.done && f.packets > 0) {
            let (next, _) = flight.next_span();
            if flight.shape == Shape::Pull {
                let whole = psn::distance(base, flight.end_psn()) <= goal;
                if whole {
                    missing = Some(next);
                } else if psn::distance(base, next) <= goal {
                    reached = next;
                }
                break;
            }
            let end = flight.end_psn();
            if psn::distance(base, end) <= goal {
                flight.sent = flight.packets;
                flight.done = true;
                reached = end;
            } else {
                // Part of it: what a late acknowledgement covers need not go out again.
                if goal > 0 && flight.holds(psn::add(to, psn::MASK)) {
                    flight.sent = flight.sent.max(psn::distance(flight.first_psn, to));
                    reached = to;
                }
                break;
            }
        }
        if reached != base {
            self.progress(reached, attr, host);
        }
        if let Some(next) = missing {
            // The rest of the missing response begins here.
            self.implied_nak(next, attr, host);
            return false;
        }
        true
    }

    fn implied_nak(&mut self, next: u32, attr: &QpAttr, host: &mut dyn Host) {
        if self.una != next {
            self.progress(next, attr, host);
        }
        if !self.recovering && self.rnr_until.is_none() {
            host.count(attr.qpn, Tally::ImpliedNakSeqErr);
            self.go_back(next, attr, host);
        }
    }

    fn wait_for_receiver(&mut self, psn: u32, code: u8, attr: &QpAttr, host: &mut dyn Host) {
        if attr.rnr_retry & 7 != 7 {
            if self.rnr_retries == 0 {
                host.count(attr.qpn, Tally::RnrNakRetryErr);
                self.fail_at(psn, Syndrome::RnrRetryExceeded);
                return;
            }
            self.rnr_retries -= 1;
        }
        self.rewind(psn);
        self.rnr_until = Some(host.now().saturating_add(rnr_wait(code)));
        self.recovering = false;
        self.arm(attr, host);
    }

    /// The open READ or atomic that `psn` answers, once all before it is acknowledged.
    fn pull_at(&mut self, psn: u32, attr: &QpAttr, host: &mut dyn Host) -> Option<usize> {
        let at = self.flights.iter().position(|f| f.is_open_pull() && f.holds(psn))?;
        let first = self.flights.get(at)?.first_psn;
        if psn::distance(self.una, first) < psn::distance(self.una, self.high)
            && !self.acknowledge(first, attr, host)
        {
            return None;
        }
        Some(at)
    }

    fn on_read_response(&mut self, psn: u32, packet: &Packet, attr: &QpAttr, host: &mut dyn Host) {
        let Some(at) = self.pull_at(psn, attr, host) else {
            return;
        };
        let Some(flight) = self.flights.get_mut(at) else {
            return;
        };
        if !matches!(flight.wqe.operation, Operation::Read { .. }) {
            flight.failed = Some(Syndrome::BadResponse);
            return;
        }
        let next = psn::add(flight.first_psn, flight.received);
        if psn != next {
            if psn::place(psn, next) == psn::Place::Ahead {
                self.implied_nak(next, attr, host);
            }
            return;
        }
        if let Err(syndrome) = take_read_data(flight, packet, attr, host) {
            flight.failed = Some(syndrome);
            return;
        }
        flight.received += 1;
        flight.done = flight.received >= flight.packets;
        self.progress(psn::add(psn, 1), attr, host);
    }

    fn on_atomic_ack(&mut self, psn: u32, packet: &Packet, attr: &QpAttr, host: &mut dyn Host) {
        let Some(at) = self.pull_at(psn, attr, host) else {
            return;
        };
        let Some(flight) = self.flights.get_mut(at) else {
            return;
        };
        let (Operation::CompareSwap { into, .. } | Operation::FetchAdd { into, .. }) =
            &flight.wqe.operation
        else {
            flight.failed = Some(Syndrome::BadResponse);
            return;
        };
        let Some(old) = packet.ext.atomic_ack else {
            return;
        };
        let bytes = if attr.atomic_little_endian { old.to_le_bytes() } else { old.to_be_bytes() };
        let into = into.clone();
        if !flight.keep(&bytes, attr.in_cqe_answer) {
            if let Err(syndrome) = host.scatter(attr.qpn, &into, 0, &bytes) {
                flight.failed = Some(syndrome);
                return;
            }
        }
        flight.received = 1;
        flight.done = true;
        self.progress(psn::add(psn, 1), attr, host);
    }
}

/// Checks the next response packet of a READ against what must come, and stores its data.
///
/// A first packet is accepted for a middle one and the reverse: responders differ in how they
/// resume a READ in its middle.
fn take_read_data(
    flight: &mut Flight,
    packet: &Packet,
    attr: &QpAttr,
    host: &mut dyn Host,
) -> Result<(), Syndrome> {
    let Operation::Read { into, .. } = &flight.wqe.operation else {
        return Err(Syndrome::BadResponse);
    };
    let last = flight.received + 1 == flight.packets;
    let ends = matches!(packet.bth.opcode, Opcode::ReadLast | Opcode::ReadOnly);
    let offset = flight.received.saturating_mul(attr.mtu);
    let expected = flight.len.saturating_sub(offset).min(attr.mtu) as usize;
    if last != ends || packet.payload.len() != expected {
        return Err(Syndrome::BadResponse);
    }
    if expected == 0 {
        return Ok(());
    }
    let into = into.clone();
    if flight.packets == 1 && flight.keep(&packet.payload, attr.in_cqe_answer) {
        return Ok(());
    }
    host.scatter(attr.qpn, &into, offset, &packet.payload)
}
