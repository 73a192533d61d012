//! Counters and the few InfiniBand questions stock software asks even of an Ethernet port.
//!
//! Queue counters exist and stand at zero; the vport's frame counters are those of the port. A
//! partition table of one full-membership key, and a subnet agent that supports no attribute.

use crate::cmd::{Command, Refusal, Stage, Status};
use crate::hca::Hca;
use crate::ifc::counters::{
    mad_ifc_in, query_hca_vport_pkey_in, query_q_counter_in, query_vport_counter_out,
    traffic_counter,
};

/// The default partition key, full membership.
const DEFAULT_PKEY: u32 = 0xffff;
/// Index that asks for the whole table.
const ALL: u32 = 0xffff;
/// Entries of the table, as `pkey_table_size` 0 says.
const PKEYS: usize = 128;

fn query_queue(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let set = query_q_counter_in::counter_set_id.get(input);
    if !hca.ids.counter.contains(set) {
        return Err(Status::BadResource.because(0x77_3001));
    }
    Ok(())
}

fn query_vport(hca: &mut Hca, _input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let stats = &hca.bus.stats;
    for (counter, packets) in [
        (
            query_vport_counter_out::received_eth_unicast,
            stats.frames_in,
        ),
        (
            query_vport_counter_out::transmitted_eth_unicast,
            stats.frames_out,
        ),
    ] {
        traffic_counter::packets.set64(counter.bytes_mut(output), packets);
    }
    Ok(())
}

fn query_pkey(_hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
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
fn mad_ifc(_hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
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
    Command {
        opcode,
        name,
        input: lengths.0,
        output: lengths.1,
        stage: Stage::Running,
        run,
    }
}

/// The commands handled here.
pub(crate) const COMMANDS: &[Command] = &[
    row(0x50d, "MAD_IFC", (272, 272), mad_ifc),
    row(0x765, "QUERY_HCA_VPORT_PKEY", (16, 20), query_pkey),
    row(0x770, "QUERY_VPORT_COUNTER", (16, 528), query_vport),
    row(0x773, "QUERY_Q_COUNTER", (32, 256), query_queue),
];
