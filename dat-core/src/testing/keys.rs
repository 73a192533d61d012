//! Memory keys and windows of a port, and the checks on every access.

use super::MEMORY;
use super::fabric::{Memory, Port, Segments, offset};
use crate::provider::{Access, Bind, Pd, Region};

/// One key: a region, or a window over one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) variant: u8,
    pub(super) pd: Pd,
    pub(super) region: Region,
    pub(super) access: Access,
    pub(super) window: bool,
    /// A window opens nothing until it is bound; a region is always open.
    pub(super) bound: Option<u32>,
}

impl Port {
    pub(super) fn key(&self, key: u32) -> Option<&Key> {
        let entry = self.keys.get((key >> 8) as usize)?.as_ref()?;
        (u32::from(entry.variant) == key & 0xff).then_some(entry)
    }

    /// Finds a free entry and gives it a key unlike any the entry had just before.
    pub(super) fn add_key(&mut self, mut key: Key) -> Option<u32> {
        let index = self.keys.iter().position(Option::is_none)?;
        self.variant = self.variant.wrapping_add(1);
        key.variant = self.variant;
        *self.keys.get_mut(index)? = Some(key);
        Some((index as u32) << 8 | u32::from(self.variant))
    }

    pub(super) fn drop_key(&mut self, key: u32) -> bool {
        self.keys
            .get_mut((key >> 8) as usize)
            .and_then(Option::take)
            .is_some()
    }

    /// Whether `pd` may do `access` to that range through `key`; a window asks its region too.
    pub(super) fn allows(&self, key: u32, pd: Pd, addr: u64, len: u64, access: Access) -> bool {
        let Some(entry) = self.key(key) else {
            return false;
        };
        if entry.pd != pd || !entry.access.contains(access) || !inside(entry.region, addr, len) {
            return false;
        }
        match (entry.window, entry.bound) {
            (false, _) => true,
            (true, None) => false,
            (true, Some(under)) => {
                let local = if access.contains(Access::REMOTE_WRITE) {
                    Access::LOCAL_WRITE
                } else {
                    Access::LOCAL_READ
                };
                self.key(under).is_some_and(|region| {
                    !region.window
                        && region.pd == pd
                        && region.access.contains(local)
                        && inside(region.region, addr, len)
                })
            }
        }
    }

    /// Carries out a bind for a queue pair of `pd`.
    pub(super) fn bind(&mut self, pd: Pd, bind: &Bind) -> bool {
        let same_window = bind.old_rkey >> 8 == bind.new_rkey >> 8;
        let region_fits = bind.len == 0
            || self.key(bind.lkey).is_some_and(|region| {
                !region.window && region.pd == pd && inside(region.region, bind.addr, bind.len)
            });
        let Some(Some(window)) = self.keys.get_mut((bind.new_rkey >> 8) as usize) else {
            return false;
        };
        if !same_window || !region_fits || !window.window || window.pd != pd {
            return false;
        }
        window.variant = (bind.new_rkey & 0xff) as u8;
        window.region = Region {
            addr: bind.addr,
            len: bind.len,
        };
        window.access = bind.access & (Access::REMOTE_READ | Access::REMOTE_WRITE);
        window.bound = (bind.len != 0).then_some(bind.lkey);
        true
    }
}

impl Memory {
    /// Whether every segment is open to `pd` for `access`.
    pub(super) fn segments_open(
        &self,
        port: usize,
        pd: Pd,
        list: &Segments,
        access: Access,
    ) -> bool {
        self.ports.get(port).is_some_and(|port| {
            list.iter()
                .all(|s| port.allows(s.lkey, pd, s.addr, u64::from(s.len), access))
        })
    }

    /// Copies `len` bytes from one list of spans to another. Both have been checked.
    pub(super) fn copy(&mut self, from: &Segments, to: &Segments, len: u32) {
        let mut source = addresses(from);
        let mut target = addresses(to);
        for _ in 0..len {
            let (Some(s), Some(t)) = (source.next(), target.next()) else {
                return;
            };
            let (Some(s), Some(t)) = (offset(s), offset(t)) else {
                return;
            };
            let Some(&byte) = self.memory.get(s) else {
                return;
            };
            if let Some(place) = self.memory.get_mut(t) {
                *place = byte;
            }
        }
    }
}

fn addresses(list: &Segments) -> impl Iterator<Item = u64> {
    list.iter()
        .flat_map(|s| (0..u64::from(s.len)).map(|i| s.addr.wrapping_add(i)))
}

pub(super) fn length(list: &Segments) -> u32 {
    list.iter().fold(0, |sum, s| sum.saturating_add(s.len))
}

pub(super) fn inside(region: Region, addr: u64, len: u64) -> bool {
    addr >= region.addr
        && addr
            .checked_add(len)
            .zip(region.addr.checked_add(region.len))
            .is_some_and(|(end, limit)| end <= limit)
}

/// Whether a region lies in the memory of `port`.
pub(super) fn in_port(port: usize, region: Region) -> bool {
    inside(
        Region {
            addr: super::fabric::BASE + (port * MEMORY) as u64,
            len: MEMORY as u64,
        },
        region.addr,
        region.len,
    )
}
