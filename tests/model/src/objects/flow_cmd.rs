//! Flow steering by command: tables, groups, entries, roots; and the L2 table of the PF.

use super::flow::{Destination, Entry, Group, MATCH_BYTES, Table, action};
use crate::cmd::{Refusal, Status};
use crate::config::Personality;
use crate::hca::Hca;
use crate::ifc::cmd::{head_in, head_out};
use crate::ifc::flow::{
    create_flow_group_in, create_flow_table_in, dest_format_struct, flow_context,
    flow_counter_list, flow_object_in, flow_table_context, set_flow_table_root_in, set_fte_in,
    set_l2_table_entry_in,
};

/// Table types offered: NIC receive and transmit, sniffers, RDMA receive and transmit.
const KINDS: [u32; 6] = [0, 1, 5, 6, 7, 8];
/// Syndromes of real firmware: groups left in a table, entries left in a group, no action.
const SYNDROME_TABLE: u32 = 0x66_d6c3;
const SYNDROME_GROUP: u32 = 0x56_3e2f;
const SYNDROME_NO_ACTION: u32 = 0x14_4b7a;

/// CREATE_FLOW_TABLE.
pub(crate) fn create_table(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let kind = create_flow_table_in::table_type.get(input);
    let context = create_flow_table_in::flow_table_context.bytes(input);
    let log_size = flow_table_context::log_size.get(context);
    if !KINDS.contains(&kind) || log_size > 24 {
        return Err(Status::BadParam.because(0x93_0001));
    }
    let level = flow_table_context::level.get(context);
    let miss = miss_of(hca, context, kind, level)?;
    let table = Table::new(kind, level, log_size, miss);
    head_out::number.set(output, hca.objects.steering.add_table(table));
    Ok(())
}

fn miss_of(hca: &Hca, context: &[u8], kind: u32, level: u32) -> Result<Option<u32>, Refusal> {
    match flow_table_context::table_miss_action.get(context) {
        0 => Ok(None),
        1 => {
            let id = flow_table_context::table_miss_id.get(context);
            let next = hca.objects.steering.table(id);
            if next.is_none_or(|t| t.kind != kind || t.level <= level) {
                return Err(Status::BadParam.because(0x93_0002));
            }
            Ok(Some(id))
        }
        _ => Err(Status::BadParam.because(0x93_0003)),
    }
}

/// MODIFY_FLOW_TABLE: the miss table.
pub(crate) fn modify_table(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let id = flow_object_in::table_id.get(input);
    let table = hca.objects.steering.table(id).ok_or(Status::BadResource.because(0x93_c001))?;
    let context = create_flow_table_in::flow_table_context.bytes(input);
    let miss = miss_of(hca, context, table.kind, table.level)?;
    hca.objects.steering.set_miss(id, miss);
    Ok(())
}

/// DESTROY_FLOW_TABLE: refused while it has groups or is led to.
pub(crate) fn destroy_table(
    hca: &mut Hca,
    input: &[u8],
    _output: &mut [u8],
) -> Result<(), Refusal> {
    let id = flow_object_in::table_id.get(input);
    let steering = &mut hca.objects.steering;
    let table = steering.table(id).ok_or(Status::BadResource.because(0x93_1001))?;
    if !table.is_empty() {
        return Err(Status::BadParam.because(SYNDROME_TABLE));
    }
    // The root goes with its table: drivers destroy the last root without replacing it.
    let root = steering.roots.get(&table.kind) == Some(&id);
    let kind = table.kind;
    if root {
        steering.roots.remove(&kind);
    }
    if steering.table_in_use(id) {
        if root {
            steering.roots.insert(kind, id);
        }
        return Err(Status::BadResourceState.because(0x93_1002));
    }
    steering.remove_table(id);
    Ok(())
}

/// SET_FLOW_TABLE_ROOT; op_mod 1 takes the root away.
pub(crate) fn set_root(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let kind = set_flow_table_root_in::table_type.get(input);
    let id = set_flow_table_root_in::table_id.get(input);
    let steering = &mut hca.objects.steering;
    if head_in::op_mod.get(input) == 1 {
        steering.roots.remove(&kind);
        return Ok(());
    }
    if steering.table(id).is_none_or(|t| t.kind != kind) {
        return Err(Status::BadResource.because(0x92_f001));
    }
    steering.roots.insert(kind, id);
    Ok(())
}

/// CREATE_FLOW_GROUP: index ranges of one table must not overlap.
pub(crate) fn create_group(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let id = create_flow_group_in::table_id.get(input);
    let start = create_flow_group_in::start_flow_index.get(input);
    let end = create_flow_group_in::end_flow_index.get(input);
    let steering = &mut hca.objects.steering;
    let table = steering.table(id).ok_or(Status::BadResource.because(0x93_3001))?;
    if start > end || end >= 1 << table.log_size {
        return Err(Status::BadParam.because(0x93_3002));
    }
    if table.overlaps(start, end) {
        return Err(Status::BadParam.because(0x93_3003));
    }
    let enable = create_flow_group_in::match_criteria_enable.get(input);
    let mask = create_flow_group_in::match_criteria.bytes(input).to_vec();
    let number = steering.add_group(id, Group::new(start, end, enable, mask));
    head_out::number.set(output, number);
    Ok(())
}

/// DESTROY_FLOW_GROUP: refused while it has entries.
pub(crate) fn destroy_group(
    hca: &mut Hca,
    input: &[u8],
    _output: &mut [u8],
) -> Result<(), Refusal> {
    let id = flow_object_in::table_id.get(input);
    let number = flow_object_in::group_id.get(input);
    let steering = &mut hca.objects.steering;
    let table = steering.table(id).ok_or(Status::BadResource.because(0x93_4001))?;
    let group = table.group(number).ok_or(Status::BadResource.because(0x93_4002))?;
    if group.is_used() {
        return Err(Status::BadResourceState.because(SYNDROME_GROUP));
    }
    steering.remove_group(id, number);
    Ok(())
}

/// SET_FLOW_TABLE_ENTRY: op_mod 0 sets, 1 modifies what the mask names.
pub(crate) fn set_entry(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let id = set_fte_in::table_id.get(input);
    let index = set_fte_in::flow_index.get(input);
    let context = set_fte_in::flow_context.bytes(input);
    let number = flow_context::group_id.get(context);
    let table = hca.objects.steering.table(id).ok_or(Status::BadResource.because(0x93_6001))?;
    let group = table.group(number).ok_or(Status::BadResource.because(0x93_6002))?;
    if index < group.start || index > group.end {
        return Err(Status::BadIndex.because(0x93_6003));
    }
    let bits = flow_context::action.get(context);
    if bits & (action::ALLOW | action::DROP | action::FORWARD) == 0 {
        return Err(Status::BadParam.because(SYNDROME_NO_ACTION));
    }
    // Rewriting headers, tunnels and VLAN tags by steering are not offered.
    if bits & !(action::ALLOW | action::DROP | action::FORWARD | action::COUNT) != 0 {
        return Err(Status::BadParam.because(0x93_6004));
    }
    let count = flow_context::destination_list_size.get(context) as usize;
    let list = set_fte_in::flow_context.tail(input).get(flow_context::BYTES..).unwrap_or(&[]);
    let mut to = Vec::new();
    for k in 0..count.min(list.len().div_ceil(8)) {
        // One driver sends the last destination four bytes short and is accepted.
        let mut one = [0; dest_format_struct::BYTES];
        let piece = &list[k * 8..(k * 8 + 8).min(list.len())];
        one[..piece.len()].copy_from_slice(piece);
        let target = dest_format_struct::destination_id.get(&one);
        to.push(match dest_format_struct::destination_type.get(&one) {
            1 => {
                let next = hca.objects.steering.table(target);
                let ignore = set_fte_in::ignore_flow_level.is_set(input);
                if next.is_none_or(|t| !ignore && t.level <= table.level) {
                    return Err(Status::BadParam.because(0x93_6005));
                }
                Destination::Table(target)
            }
            2 if hca.objects.tirs.contains_key(&target) => Destination::Tir(target),
            _ => return Err(Status::BadResource.because(0x93_6006)),
        });
    }
    if to.len() < count || (bits & action::FORWARD != 0 && to.is_empty()) {
        return Err(Status::BadParam.because(0x93_6007));
    }
    let counting = bits & action::COUNT != 0;
    let wanted = flow_context::flow_counter_list_size.get(context) as usize;
    let counters: Vec<u32> = list
        .get(count * dest_format_struct::BYTES..)
        .unwrap_or(&[])
        .chunks_exact(flow_counter_list::BYTES)
        .take(if counting { wanted } else { 0 })
        .map(|one| flow_counter_list::flow_counter_id.get(one))
        .collect();
    if counting && (counters.len() != wanted || counters.is_empty()) {
        return Err(Status::BadParam.because(0x93_6008));
    }
    let mut known = counters.iter();
    if known.any(|id| hca.objects.flow_counters.get(*id).is_none()) {
        return Err(Status::BadResource.because(0x93_6009));
    }
    let value = flow_context::match_value.bytes(context);
    let value = value.get(..MATCH_BYTES).unwrap_or(value).to_vec();
    let tag = flow_context::flow_tag.get(context);
    let entry = Entry { group: number, value, action: bits, to, tag, counters };
    for one in &entry.to {
        if let Destination::Tir(tirn) = one {
            hca.objects.tir_numbers.hold(*tirn)?;
        }
    }
    hca.objects.flow_counters.hold(&entry.counters);
    if let Some(old) = hca.objects.steering.set_entry(id, index, entry) {
        release(hca, &old);
    }
    Ok(())
}

/// Releases the objects that an entry refers to.
fn release(hca: &mut Hca, entry: &Entry) {
    hca.objects.flow_counters.release(&entry.counters);
    for one in &entry.to {
        if let Destination::Tir(tirn) = one {
            hca.objects.tir_numbers.release(*tirn);
        }
    }
}

/// DELETE_FLOW_TABLE_ENTRY.
pub(crate) fn delete_entry(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let id = flow_object_in::table_id.get(input);
    let index = flow_object_in::flow_index.get(input);
    let entry = hca.objects.steering.remove_entry(id, index);
    let entry = entry.ok_or(Status::BadResource.because(0x93_8001))?;
    release(hca, &entry);
    Ok(())
}

/// SET_L2_TABLE_ENTRY: a MAC the physical function lets through.
pub(crate) fn set_l2(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    if hca.config.personality != Personality::Pf {
        return Err(Status::BadOp.because(0x82_9001));
    }
    let index = set_l2_table_entry_in::table_index.get(input);
    let bytes = set_l2_table_entry_in::mac_address.bytes(input);
    let mut mac = [0; 6];
    mac.copy_from_slice(bytes.get(2..8).ok_or(Status::BadInputLength.because(0x82_9002))?);
    hca.objects.l2.set(index, mac);
    Ok(())
}

/// DELETE_L2_TABLE_ENTRY.
pub(crate) fn delete_l2(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    if hca.config.personality != Personality::Pf {
        return Err(Status::BadOp.because(0x82_b001));
    }
    let index = set_l2_table_entry_in::table_index.get(input);
    hca.objects.l2.delete(index).ok_or(Status::BadIndex.because(0x82_b002))?;
    Ok(())
}
