//! Flow steering: tables, groups, entries, and the walk a received frame takes through them.
//!
//! Root table of the type, then groups in index order, then entries in index order; an entry
//! matches when the packet equals its value under the group's mask. Whatever matches nothing takes
//! the table's miss path, and without one it is dropped. Only exact match under mask exists.

use crate::cmd::{Refusal, Status};
use crate::ifc::flow::fte_match_param;
use crate::table::{self, Counts, Set};
use crate::traffic_counters::Tally;
use std::collections::BTreeMap;

/// Bytes of a match set.
pub(crate) const MATCH_BYTES: usize = fte_match_param::BYTES;
/// Bytes of the outer headers in it.
const OUTER: core::ops::Range<usize> = 0..0x40;
/// Most tables one packet may visit.
const MAX_TABLES: u32 = 64;

/// Action bits of an entry.
pub(crate) mod action {
    pub(crate) const ALLOW: u32 = 1;
    pub(crate) const DROP: u32 = 2;
    pub(crate) const FORWARD: u32 = 4;
    pub(crate) const COUNT: u32 = 8;
}

/// Where an entry sends its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// Another table.
    Table(u32),
    /// A receive interface.
    Tir(u32),
}

/// One entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Group it belongs to.
    pub(crate) group: u32,
    /// Value to match.
    pub(crate) value: Vec<u8>,
    /// Action bits.
    pub(crate) action: u32,
    /// Destinations.
    pub(crate) to: Vec<Destination>,
    /// Tag for the completion.
    pub(crate) tag: u32,
    /// Flow counters that count what matches.
    pub(crate) counters: Vec<u32>,
}

/// Flow counters by number, each with the entries that count in it.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    live: table::Table<u32, (Tally, u32)>,
    last: u32,
}

impl Counters {
    /// Most counters.
    const MOST: usize = 1 << 16;

    /// One more, at zero.
    pub(crate) fn add(&mut self) -> Result<u32, Refusal> {
        if self.live.len() >= Self::MOST {
            return Err(Status::ExceedLimit.because(0x93_9002));
        }
        loop {
            self.last = (self.last + 1) & 0xff_ffff;
            if self.last != 0 && !self.live.contains_key(&self.last) {
                self.live.insert(self.last, (Tally::default(), 0));
                return Ok(self.last);
            }
        }
    }

    /// Takes one back, unless an entry counts in it.
    pub(crate) fn remove(&mut self, id: u32) -> Result<(), Refusal> {
        match self.live.get(&id) {
            None => Err(Status::BadResource.because(0x93_a001)),
            Some((_, 0)) => {
                self.live.remove(&id);
                Ok(())
            }
            Some(_) => Err(Status::BadResourceState.because(0x93_a002)),
        }
    }

    /// Returns the counts of one counter.
    pub(crate) fn get(&mut self, id: u32) -> Option<&mut Tally> {
        self.live.get_mut(&id).map(|(tally, _)| tally)
    }

    /// A packet matched an entry that counts in these.
    fn count(&mut self, ids: &[u32], octets: u64) {
        for id in ids {
            if let Some(tally) = self.get(*id) {
                tally.packets += 1;
                tally.octets += octets;
            }
        }
    }

    /// An entry begins to count in these.
    pub(crate) fn hold(&mut self, ids: &[u32]) {
        for id in ids {
            if let Some((_, holders)) = self.live.get_mut(id) {
                *holders += 1;
            }
        }
    }

    /// An entry is gone.
    pub(crate) fn release(&mut self, ids: &[u32]) {
        for id in ids {
            if let Some((_, holders)) = self.live.get_mut(id) {
                *holders = holders.saturating_sub(1);
            }
        }
    }
}

/// One group: an index range with a mask.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// First index.
    pub(crate) start: u32,
    /// Last index.
    pub(crate) end: u32,
    /// Which parts of the mask count (bit 0 outer, 1 misc, 2 inner, 3 misc 2).
    pub(crate) enable: u32,
    /// The mask.
    pub(crate) mask: Vec<u8>,
    /// Indices of the entries, by the bytes of their values that the mask selects.
    by_value: BTreeMap<Vec<u8>, Set<u32>>,
}

/// One table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// Table type; 0 is NIC receive.
    pub(crate) kind: u32,
    /// Level: a packet moves only to higher ones.
    pub(crate) level: u32,
    /// log2 of the indices.
    pub(crate) log_size: u32,
    /// Table to go to on a miss.
    pub(crate) miss: Option<u32>,
    /// Groups by number.
    groups: table::Table<u32, Group>,
    /// Their numbers by first index.
    order: table::Table<u32, u32>,
    /// Entries by index.
    entries: table::Table<u32, Entry>,
}

/// All tables.
#[derive(Debug)]
pub(crate) struct Steering {
    /// Tables by number.
    tables: table::Table<u32, Table>,
    /// Tables that others lead to, by an entry or by a miss.
    led_to: Counts<u32>,
    /// Root table by type.
    pub(crate) roots: BTreeMap<u32, u32>,
    next_table: u32,
    next_group: u32,
}

impl Default for Steering {
    fn default() -> Self {
        Self {
            tables: table::Table::default(),
            led_to: Counts::default(),
            roots: BTreeMap::new(),
            next_table: 1,
            next_group: 1,
        }
    }
}

/// Where the walk ended: receive interfaces, each with the tag of the entry that led there.
pub(crate) type Verdict = Vec<(u32, u32)>;

impl Steering {
    /// Adds a table and names it.
    pub(crate) fn add_table(&mut self, table: Table) -> u32 {
        let id = self.next_table;
        self.next_table += 1;
        table.miss.into_iter().for_each(|to| self.led_to.add(to));
        for (_, entry) in table.entries.range(..) {
            entry.tables().for_each(|to| self.led_to.add(to));
        }
        self.tables.insert(id, table);
        id
    }

    /// A table.
    pub(crate) fn table(&self, id: u32) -> Option<&Table> {
        self.tables.get(&id)
    }

    /// Takes a table away that has no groups.
    pub(crate) fn remove_table(&mut self, id: u32) {
        if let Some(table) = self.tables.remove(&id) {
            table.miss.into_iter().for_each(|to| self.led_to.remove(to));
        }
    }

    /// Sets where packets go that match nothing in a table.
    pub(crate) fn set_miss(&mut self, id: u32, miss: Option<u32>) {
        if let Some(table) = self.tables.get_mut(&id) {
            miss.into_iter().for_each(|to| self.led_to.add(to));
            let old = core::mem::replace(&mut table.miss, miss);
            old.into_iter().for_each(|to| self.led_to.remove(to));
        }
    }

    /// Adds a group to a table and names it.
    pub(crate) fn add_group(&mut self, id: u32, group: Group) -> u32 {
        let number = self.next_group;
        self.next_group += 1;
        if let Some(table) = self.tables.get_mut(&id) {
            table.add_group(number, group);
        }
        number
    }

    /// Takes a group away that has no entries.
    pub(crate) fn remove_group(&mut self, id: u32, number: u32) {
        if let Some(table) = self.tables.get_mut(&id) {
            if let Some(group) = table.groups.remove(&number) {
                table.order.remove(&group.start);
            }
        }
    }

    /// Sets an entry of a table; returns the one before.
    pub(crate) fn set_entry(&mut self, id: u32, index: u32, entry: Entry) -> Option<Entry> {
        entry.tables().for_each(|to| self.led_to.add(to));
        let old = self.tables.get_mut(&id)?.set_entry(index, entry)?;
        old.tables().for_each(|to| self.led_to.remove(to));
        Some(old)
    }

    /// Takes an entry of a table away.
    pub(crate) fn remove_entry(&mut self, id: u32, index: u32) -> Option<Entry> {
        let old = self.tables.get_mut(&id)?.remove_entry(index)?;
        old.tables().for_each(|to| self.led_to.remove(to));
        Some(old)
    }

    /// Whether a table is a root, a miss table or a destination.
    pub(crate) fn table_in_use(&self, id: u32) -> bool {
        self.roots.values().any(|&root| root == id) || self.led_to.has(id)
    }

    /// Walks a packet's match set through the tables of a type; `counters` count its `octets`.
    pub(crate) fn walk(
        &self,
        kind: u32,
        packet: &[u8],
        counters: &mut Counters,
        octets: u64,
    ) -> Verdict {
        let mut verdict = Vec::new();
        let mut next: Vec<u32> = self.roots.get(&kind).copied().into_iter().collect();
        let mut visits = 0;
        while let Some(id) = next.pop() {
            visits += 1;
            let Some(table) = self.tables.get(&id) else {
                continue;
            };
            if visits > MAX_TABLES {
                break;
            }
            match table.lookup(packet) {
                None => next.extend(table.miss),
                Some(entry) => {
                    counters.count(&entry.counters, octets);
                    if entry.action & action::DROP != 0 {
                        continue;
                    }
                    for to in &entry.to {
                        match to {
                            Destination::Table(id) => next.push(*id),
                            Destination::Tir(tirn) => verdict.push((*tirn, entry.tag)),
                        }
                    }
                }
            }
        }
        verdict
    }
}

impl Steering {
    /// Whether the tables of a type for sending let a packet through: what no entry drops passes.
    pub(crate) fn passes(
        &self,
        kind: u32,
        packet: &[u8],
        counters: &mut Counters,
        octets: u64,
    ) -> bool {
        let mut next = self.roots.get(&kind).copied();
        for _ in 0..MAX_TABLES {
            let Some(table) = next.and_then(|id| self.tables.get(&id)) else {
                return true;
            };
            next = match table.lookup(packet) {
                None => table.miss,
                Some(entry) => {
                    counters.count(&entry.counters, octets);
                    if entry.action & action::DROP != 0 {
                        return false;
                    }
                    entry.to.iter().find_map(|to| match to {
                        Destination::Table(id) => Some(*id),
                        Destination::Tir(_) => None,
                    })
                }
            };
        }
        false
    }
}

impl Table {
    /// A table without groups.
    pub(crate) fn new(kind: u32, level: u32, log_size: u32, miss: Option<u32>) -> Self {
        Self { kind, level, log_size, miss, ..Self::default() }
    }

    /// The first entry that matches: groups in index order, entries in index order.
    pub(crate) fn lookup(&self, packet: &[u8]) -> Option<&Entry> {
        let groups = self.order.range(..).filter_map(|(_, number)| self.groups.get(number));
        let index = { groups }.find_map(|group| group.first_match(packet))?;
        self.entries.get(&index)
    }

    /// A group.
    pub(crate) fn group(&self, number: u32) -> Option<&Group> {
        self.groups.get(&number)
    }

    /// Whether there are no groups.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether a group has one of these indices. No two groups share any.
    pub(crate) fn overlaps(&self, start: u32, end: u32) -> bool {
        let last = self.order.range(..=end).next_back();
        last.and_then(|(_, number)| self.groups.get(number)).is_some_and(|last| start <= last.end)
    }

    /// Adds a group.
    pub(crate) fn add_group(&mut self, number: u32, group: Group) {
        self.order.insert(group.start, number);
        self.groups.insert(number, group);
    }

    /// Sets an entry; returns the one before.
    pub(crate) fn set_entry(&mut self, index: u32, entry: Entry) -> Option<Entry> {
        let old = self.remove_entry(index);
        if let Some(group) = self.groups.get_mut(&entry.group) {
            let value = group.selected(&entry.value);
            group.by_value.entry(value).or_default().insert(index);
        }
        self.entries.insert(index, entry);
        old
    }

    fn remove_entry(&mut self, index: u32) -> Option<Entry> {
        let old = self.entries.remove(&index)?;
        if let Some(group) = self.groups.get_mut(&old.group) {
            let value = group.selected(&old.value);
            if let Some(indices) = group.by_value.get_mut(&value) {
                indices.remove(&index);
                if indices.is_empty() {
                    group.by_value.remove(&value);
                }
            }
        }
        Some(old)
    }
}

impl Entry {
    /// The tables that it leads to.
    fn tables(&self) -> impl Iterator<Item = u32> {
        self.to.iter().filter_map(|to| match to {
            Destination::Table(id) => Some(*id),
            Destination::Tir(_) => None,
        })
    }
}

impl Group {
    /// A group without entries.
    pub(crate) fn new(start: u32, end: u32, enable: u32, mask: Vec<u8>) -> Self {
        Self { start, end, enable, mask, by_value: BTreeMap::new() }
    }

    /// Whether it has entries.
    pub(crate) fn is_used(&self) -> bool {
        !self.by_value.is_empty()
    }

    /// The first entry whose value a packet equals under the mask.
    fn first_match(&self, packet: &[u8]) -> Option<u32> {
        self.by_value.get(&self.selected(packet))?.first()
    }

    /// What the mask selects of a value or of a packet. What a packet does not have (misc
    /// parameters, inner headers) is zero.
    fn selected(&self, bytes: &[u8]) -> Vec<u8> {
        let masked = |(i, mask): (usize, &u8)| bytes.get(i).copied().unwrap_or(0) & mask;
        let all = self.mask.iter().enumerate().take(MATCH_BYTES);
        all.filter(|&(i, mask)| *mask != 0 && self.enabled(i)).map(masked).collect()
    }

    fn enabled(&self, i: usize) -> bool {
        let part = if OUTER.contains(&i) { 0 } else { i / 0x40 };
        part < 8 && self.enable & (1 << part) != 0
    }
}
