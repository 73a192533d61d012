//! Flow counters by command: allocate, free, read and clear.

use crate::cmd::{Refusal, Status};
use crate::hca::Hca;
use crate::ifc::counters::traffic_counter;
use crate::ifc::flow::{
    alloc_flow_counter_in, alloc_flow_counter_out, dealloc_flow_counter_in, query_flow_counter_in,
    query_flow_counter_out,
};

/// ALLOC_FLOW_COUNTER: one; bulks are not offered.
pub(crate) fn alloc(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    if alloc_flow_counter_in::flow_counter_bulk.is_set(input) {
        return Err(Status::BadParam.because(0x93_9001));
    }
    let id = hca.objects.flow_counters.add()?;
    alloc_flow_counter_out::flow_counter_id.set(output, id);
    Ok(())
}

/// DEALLOC_FLOW_COUNTER: refused while an entry counts in it.
pub(crate) fn dealloc(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let id = dealloc_flow_counter_in::flow_counter_id.get(input);
    hca.objects.flow_counters.remove(id)
}

/// QUERY_FLOW_COUNTER: as many in a row as asked for; a number without a counter reads as zero.
pub(crate) fn query(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let first = query_flow_counter_in::flow_counter_id.get(input);
    let count = query_flow_counter_in::num_of_counters.get(input).max(1);
    let clear = query_flow_counter_in::clear.is_set(input);
    if count == 1 && hca.objects.flow_counters.get(first).is_none() {
        return Err(Status::BadResource.because(0x93_b001));
    }
    let at = query_flow_counter_out::flow_statistics.byte();
    let places = output[at..].chunks_exact_mut(traffic_counter::BYTES);
    for (place, id) in places.zip(first..first.saturating_add(count)) {
        let Some(tally) = hca.objects.flow_counters.get(id) else {
            continue;
        };
        traffic_counter::packets.set64(place, tally.packets);
        traffic_counter::octets.set64(place, tally.octets);
        if clear {
            *tally = crate::traffic_counters::Tally::default();
        }
    }
    Ok(())
}
