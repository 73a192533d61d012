//! Which received frames reach the port: one flow table, one group that matches the destination
//! MAC, one entry a MAC; and the vport's address lists, by which an embedded switch knows what this
//! function wants.
//!
//! PRM "Flow steering", "NIC vport context"; Linux `fs_cmd.c`, `vport.c`, `lib/mpfs.c`. The table
//! is the root of the NIC receive tables: this driver owns the function, nobody else steers on it.
//! A virtual function may be refused its lists, and only the owner of the embedded switch has the
//! MAC table: those refusals are tolerated, since the frames may well come without; if they do not,
//! nobody answers, and that is reported.

use dat_core::provider::Fault;
use heapless::Vec;

use super::config::{Config, GROUPS_MAX};
use crate::device::{Device, note, optional};
use crate::net::neigh::Mac;
use crate::platform::Platform;
use crate::prm::At;
use crate::prm::cmd::Opcode;
use crate::prm::flow::{
    CREATE_FLOW_GROUP_IN, CreateFlowGroupIn, CreateFlowTableIn, DeleteFlowEntryIn, Destination,
    DestroyFlowIn, FLOW_CONTEXT, FLOW_DESTINATIONS, FLOW_MATCH, FORWARD, FlowContext,
    L2TableEntryIn, ListKind, MATCH, MATCH_OUTER, MatchL2, NIC_RX, SET_FTE_IN, SetFlowTableRootIn,
    SetFteIn, TO_TIR,
};
use crate::prm::vport::{MODIFIED_CONTEXT, MODIFY_IN, ModifyNicVportIn, NicVportContext};

/// log2 of the entries of the table.
const LOG_ENTRIES: u8 = 3;
/// Entry of the embedded switch's MAC table that holds our MAC.
const L2_INDEX: u32 = 0;

/// Objects that have been set up so far, for undoing it.
#[derive(Debug, Default)]
pub(super) struct Steering {
    table: Option<u32>,
    group: Option<u32>,
    entries: u32,
    lists: Vec<ListKind, 3>,
    l2: bool,
}

impl Steering {
    /// Sends what is for `config`'s MACs to `tir`.
    pub(super) fn start<P: Platform>(
        &mut self,
        device: &mut Device<'_, P>,
        config: &Config<'_>,
        tir: u32,
    ) -> Result<(), Fault> {
        let mut table = CreateFlowTableIn::new();
        const { assert!(NIC_RX == 0) }
        table.set_log_size(LOG_ENTRIES);
        let table = device.make(Opcode::CreateFlowTable, &mut table.0)?;
        self.table = Some(table);

        // Its own first.
        let own = device.identity().mac;
        let mut macs = Vec::<u64, { GROUPS_MAX + 1 }>::new();
        for mac in core::iter::once(&own).chain(config.groups) {
            let _ = macs.push(mac_number(mac));
        }

        let mut input = [0; CREATE_FLOW_GROUP_IN];
        let mut head = CreateFlowGroupIn(&mut input);
        head.set_table_id(table);
        head.set_end_flow_index((1 << LOG_ENTRIES) - 1);
        head.set_match_criteria_enable(MATCH_OUTER);
        MatchL2(At::<_, MATCH>(&mut input)).set_destination(u64::MAX);
        let group = device.make(Opcode::CreateFlowGroup, &mut input)?;
        self.group = Some(group);

        for mac in &macs {
            self.add(device, table, group, *mac, tir)?;
        }
        let mut root = SetFlowTableRootIn::new();
        root.set_table_id(table);
        device.run(Opcode::SetFlowTableRoot, table, &mut root.0)?;

        let (own, groups) = macs.split_at_checked(1).unwrap_or((&macs, &[]));
        self.list(device, ListKind::Unicast, own)?;
        self.list(device, ListKind::Multicast, groups)?;
        if let Some(vlan) = config.vlan {
            // The identifier stands in the low bits of the entry's first dword.
            self.list(device, ListKind::Vlan, &[u64::from(vlan) << 32])?;
        }
        if device.caps().general.eswitch_manager() {
            let mut entry = L2TableEntryIn::new();
            const { assert!(L2_INDEX == 0) }
            entry.set_mac_address(own.first().copied().unwrap_or(0));
            let result = device.run(Opcode::SetL2TableEntry, L2_INDEX, &mut entry.0);
            self.l2 = optional(result)?;
        }
        Ok(())
    }

    /// Undoes what is there. Tells the first failure, but goes on to the end.
    pub(super) fn stop<P: Platform>(&mut self, device: &mut Device<'_, P>) -> Result<(), Fault> {
        let mut first = Ok(());
        if core::mem::take(&mut self.l2) {
            let mut entry = L2TableEntryIn::new();
            first = device.run(Opcode::DeleteL2TableEntry, L2_INDEX, &mut entry.0);
        }
        while let Some(kind) = self.lists.pop() {
            note(&mut first, set_list(device, kind, &[]));
        }
        let Some(table) = self.table.take() else {
            return first;
        };
        while let Some(last) = self.entries.checked_sub(1) {
            self.entries = last;
            let mut input = DeleteFlowEntryIn::new();
            input.set_table_id(table);
            input.set_flow_index(last);
            let number = last;
            note(&mut first, device.run(Opcode::DeleteFlowTableEntry, number, &mut input.0));
        }
        let mut input = DestroyFlowIn::new();
        input.set_table_id(table);
        if let Some(group) = self.group.take() {
            input.set_group_id(group);
            let number = group;
            note(&mut first, device.run(Opcode::DestroyFlowGroup, number, &mut input.0));
            input.set_group_id(0);
        }
        let number = table;
        first.and(device.run(Opcode::DestroyFlowTable, number, &mut input.0))
    }

    fn add<P: Platform>(
        &mut self,
        device: &mut Device<'_, P>,
        table: u32,
        group: u32,
        mac: u64,
        tir: u32,
    ) -> Result<(), Fault> {
        let mut input = [0; SET_FTE_IN];
        let mut head = SetFteIn(&mut input);
        head.set_table_id(table);
        head.set_flow_index(self.entries);
        let mut flow = FlowContext(At::<_, FLOW_CONTEXT>(&mut input));
        flow.set_group_id(group);
        flow.set_action(FORWARD);
        flow.set_destination_list_size(1);
        MatchL2(At::<_, FLOW_MATCH>(&mut input)).set_destination(mac);
        let mut destination = Destination(At::<_, FLOW_DESTINATIONS>(&mut input));
        destination.set_destination_type(TO_TIR);
        destination.set_destination_id(tir);
        let number = self.entries;
        device.run(Opcode::SetFlowTableEntry, number, &mut input)?;
        self.entries = self.entries.saturating_add(1);
        Ok(())
    }

    fn list<P: Platform>(
        &mut self,
        device: &mut Device<'_, P>,
        kind: ListKind,
        entries: &[u64],
    ) -> Result<(), Fault> {
        if optional(set_list(device, kind, entries))? {
            let _ = self.lists.push(kind);
        }
        Ok(())
    }
}

/// A MAC as the low 48 bits of a number.
fn mac_number(mac: &Mac) -> u64 {
    let mut bytes = [0; 8];
    crate::prm::put(&mut bytes, 2, mac);
    u64::from_be_bytes(bytes)
}

/// Writes one of the vport's address lists.
fn set_list<P: Platform>(
    device: &mut Device<'_, P>,
    kind: ListKind,
    entries: &[u64],
) -> Result<(), Fault> {
    let mut input = [0; MODIFY_IN + 8 * (GROUPS_MAX + 1)];
    ModifyNicVportIn(&mut input).set_select_addresses_list(true);
    let mut context = NicVportContext(At::<_, MODIFIED_CONTEXT>(&mut input));
    context.set_allowed_list_type(kind as u8);
    context.set_allowed_list_size(u16::try_from(entries.len()).unwrap_or(0));
    // The list follows the context.
    let mut end = MODIFY_IN;
    for entry in entries {
        crate::prm::put(&mut input, end, &entry.to_be_bytes());
        end += 8;
    }
    let (message, _) = input.split_at_mut_checked(end).unwrap_or_default();
    device.run(Opcode::ModifyNicVportContext, 0, message)
}
