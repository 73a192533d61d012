//! Flow steering: tables, groups, entries, and the walk a received frame takes through them.
//!
//! Root table of the type, then groups in index order, then entries in index order; an entry
//! matches when the packet equals its value under the group's mask. Whatever matches nothing takes
//! the table's miss path, and without one it is dropped. Only exact match under mask exists.

use crate::cmd::{Refusal, Status};
use crate::ifc::flow::fte_match_param;
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
    live: BTreeMap<u32, (Tally, u32)>,
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
    pub(crate) groups: BTreeMap<u32, Group>,
    /// Entries by index.
    pub(crate) entries: BTreeMap<u32, Entry>,
}

/// All tables.
#[derive(Debug)]
pub(crate) struct Steering {
    /// Tables by number.
    pub(crate) tables: BTreeMap<u32, Table>,
    /// Root table by type.
    pub(crate) roots: BTreeMap<u32, u32>,
    next_table: u32,
    next_group: u32,
}

impl Default for Steering {
    fn default() -> Self {
        Self { tables: BTreeMap::new(), roots: BTreeMap::new(), next_table: 1, next_group: 1 }
    }
}

/// Where the walk ended: receive interfaces, each with the tag of the entry that led there.
pub(crate) type Verdict = Vec<(u32, u32)>;

impl Steering {
    /// Adds a table and names it.
    pub(crate) fn add_table(&mut self, table: Table) -> u32 {
        let id = self.next_table;
        self.next_table += 1;
        self.tables.insert(id, table);
        id
    }

    /// A number for a new group.
    pub(crate) fn group_number(&mut self) -> u32 {
        self.next_group += 1;
        self.next_group - 1
    }

    /// Whether a table is a root, a miss table or a destination.
    pub(crate) fn table_in_use(&self, id: u32) -> bool {
        self.roots.values().any(|&root| root == id)
            || self.tables.iter().any(|(&other, table)| {
                other != id
                    && (table.miss == Some(id)
                        || table.entries.values().any(|e| e.to.contains(&Destination::Table(id))))
            })
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
    /// The first entry that matches: groups in index order, entries in index order.
    pub(crate) fn lookup(&self, packet: &[u8]) -> Option<&Entry> {
        let mut groups: Vec<(&u32, &Group)> = self.groups.iter().collect();
        groups.sort_by_key(|(_, group)| group.start);
        let index = groups.into_iter().find_map(|(&id, group)| {
            self.entries
                .range(group.start..=group.end)
                .find(|(_, entry)| entry.group == id && group.matches(&entry.value, packet))
                .map(|(&index, _)| index)
        })?;
        self.entries.get(&index)
    }
}

impl Group {
    /// Whether a packet equals `value` under the mask. What a packet does not have (misc
    /// parameters, inner headers) is zero.
    pub(crate) fn matches(&self, value: &[u8], packet: &[u8]) -> bool {
        let at = |bytes: &[u8], i: usize| bytes.get(i).copied().unwrap_or(0);
        (0..MATCH_BYTES)
            .filter(|&i| self.enabled(i))
            .all(|i| (at(value, i) ^ at(packet, i)) & at(&self.mask, i) == 0)
    }

    fn enabled(&self, i: usize) -> bool {
        let part = if OUTER.contains(&i) { 0 } else { i / 0x40 };
        part < 8 && self.enable & (1 << part) != 0
    }
}
