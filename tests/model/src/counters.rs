//! Counters and the few InfiniBand questions stock software asks even of an Ethernet port.
//!
//! The queue counters are those of the transport and of failed completions, by set. A partition
//! table of one full-membership key, and a subnet agent that supports no attribute.

use crate::cmd::{Command, Refusal, Stage, Status};
use crate::hca::Hca;
use crate::ifc::Field;
use crate::ifc::counters::{
    mad_ifc_in, query_hca_vport_pkey_in, query_q_counter_in, query_q_counter_out as q,
    query_vport_counter_in, query_vport_counter_out as vport_out, traffic_counter,
};
use crate::traffic_counters::VportSide;
use crate::transport::host::{QpEvent, Syndrome, Tally};

/// The default partition key, full membership.
const DEFAULT_PKEY: u32 = 0xffff;
/// Index that asks for the whole table.
const ALL: u32 = 0xffff;
/// Entries of the table, as `pkey_table_size` 0 says.
const PKEYS: usize = 128;

fn query_queue(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let set = query_q_counter_in::counter_set_id.get(input);
    if !hca.ids.counter.contains(set) {
        return Err(Status::BadResource.because(0x77_3001));
    }
    for (counter, count) in hca.objects.tallies(set) {
        counter.set(output, count);
    }
    if query_q_counter_in::clear.is_set(input) {
        hca.objects.forget_tallies(set);
    }
    Ok(())
}

/// The queue counter of something the transport counts.
pub(crate) fn of_transport(what: Tally) -> Field {
    match what {
        Tally::RxWriteRequests => q::rx_write_requests,
        Tally::RxReadRequests => q::rx_read_requests,
        Tally::RxAtomicRequests => q::rx_atomic_requests,
        Tally::OutOfBuffer => q::out_of_buffer,
        Tally::OutOfSequence => q::out_of_sequence,
        Tally::DuplicateRequest => q::duplicate_request,
        Tally::RnrNakRetryErr => q::rnr_nak_retry_err,
        Tally::PacketSeqErr => q::packet_seq_err,
        Tally::ImpliedNakSeqErr => q::implied_nak_seq_err,
        Tally::LocalAckTimeoutErr => q::local_ack_timeout_err,
    }
}

/// The queue counters that a failed send-queue entry moves, besides the one of all failures.
pub(crate) fn of_requester(syndrome: Syndrome) -> Option<Field> {
    match syndrome {
        Syndrome::LocalLength => Some(q::req_local_length_error),
        Syndrome::LocalQpOperation => Some(q::local_operation_error),
        Syndrome::LocalProtection => Some(q::req_local_protection),
        Syndrome::Flushed => Some(q::req_cqe_flush_error),
        Syndrome::MwBind => Some(q::req_mw_binding),
        Syndrome::BadResponse => Some(q::req_bad_response),
        Syndrome::RemoteInvalidRequest => Some(q::req_remote_invalid_request),
        Syndrome::RemoteAccess => Some(q::req_remote_access_errors),
        Syndrome::RemoteOperation => Some(q::req_remote_operation_errors),
        Syndrome::TransportRetryExceeded => Some(q::req_transport_retries_exceeded),
        Syndrome::RnrRetryExceeded => Some(q::req_rnr_retries_exceeded),
        Syndrome::LocalAccess | Syndrome::Aborted => None,
    }
}

/// The same of a failed receive.
pub(crate) fn of_responder(syndrome: Syndrome) -> Option<Field> {
    match syndrome {
        Syndrome::LocalLength => Some(q::resp_local_length_error),
        Syndrome::LocalQpOperation => Some(q::resp_local_qp_error),
        Syndrome::LocalProtection => Some(q::resp_local_protection),
        Syndrome::Flushed => Some(q::resp_cqe_flush_error),
        Syndrome::RemoteInvalidRequest
        | Syndrome::RemoteAccess
        | Syndrome::LocalAccess
        | Syndrome::MwBind
        | Syndrome::BadResponse
        | Syndrome::RemoteOperation
        | Syndrome::TransportRetryExceeded
        | Syndrome::RnrRetryExceeded
        | Syndrome::Aborted => None,
    }
}

/// The same of a responder that gave up its queue pair, whether a receive failed with it or not.
pub(crate) fn of_event(event: QpEvent) -> Option<Field> {
    match event {
        QpEvent::AccessError => Some(q::resp_remote_access_errors),
        QpEvent::InvalidRequest => Some(q::resp_remote_invalid_request),
        QpEvent::CommunicationEstablished | QpEvent::LastWqeReached | QpEvent::Catastrophic => None,
    }
}

/// The vport's own: whose, a function without an eswitch does not choose.
fn query_vport(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    if query_vport_counter_in::other_vport.is_set(input) {
        return Err(Status::BadParam.because(0x77_0001));
    }
    let (into, out) = (&hca.traffic.vport_in, &hca.traffic.vport_out);
    for (counter, tally) in [
        (vport_out::received_ib_unicast, into.rdma.unicast),
        (vport_out::transmitted_ib_unicast, out.rdma.unicast),
        (vport_out::received_ib_multicast, into.rdma.multicast),
        (vport_out::transmitted_ib_multicast, out.rdma.multicast),
        (vport_out::received_eth_broadcast, into.ethernet.broadcast),
        (vport_out::transmitted_eth_broadcast, out.ethernet.broadcast),
        (vport_out::received_eth_unicast, into.ethernet.unicast),
        (vport_out::transmitted_eth_unicast, out.ethernet.unicast),
        (vport_out::received_eth_multicast, into.ethernet.multicast),
        (vport_out::transmitted_eth_multicast, out.ethernet.multicast),
    ] {
        let to = counter.bytes_mut(output);
        traffic_counter::packets.set64(to, tally.packets);
        traffic_counter::octets.set64(to, tally.octets);
    }
    if query_vport_counter_in::clear.is_set(input) {
        hca.traffic.vport_in = VportSide::default();
        hca.traffic.vport_out = VportSide::default();
    }
    Ok(())
}

fn query_pkey(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    if let Some(ib) = &hca.ib {
        return crate::ib::pkeys(ib, input, output);
    }
    let index = query_hca_vport_pkey_in::pkey_index.get(input);
    if index != ALL && index as usize >= PKEYS {
        return Err(Status::BadIndex.because(0x76_5001));
    }
    if matches!(index, 0 | ALL) {
        output[16..20].copy_from_slice(&DEFAULT_PKEY.to_be_bytes());
    }
    Ok(())
}

/// The MAD comes back as a response that says "method/attribute not supported".
fn mad_ifc(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    if hca.ib.is_some() {
        return crate::ib::mad_ifc(hca, input, output);
    }
    let mad = mad_ifc_in::mad.bytes(input);
    let answer = &mut output[mad_ifc_in::mad.byte()..];
    answer[..mad.len()].copy_from_slice(mad);
    answer[3] |= 0x80;
    answer[4..6].copy_from_slice(&[0, 0x0c]);
    Ok(())
}

const fn row(
    opcode: u16,
    name: &'static str,
    lengths: (usize, usize),
    run: crate::cmd::Handler,
) -> Command {
    Command { opcode, name, input: lengths.0, output: lengths.1, stage: Stage::Running, run }
}

/// The commands handled here.
pub(crate) const COMMANDS: &[Command] = &[
    row(0x50d, "MAD_IFC", (272, 272), mad_ifc),
    row(0x765, "QUERY_HCA_VPORT_PKEY", (16, 20), query_pkey),
    row(0x770, "QUERY_VPORT_COUNTER", (32, 528), query_vport),
    row(0x773, "QUERY_Q_COUNTER", (32, 256), query_queue),
];
