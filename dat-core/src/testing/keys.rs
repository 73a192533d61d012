//! Memory keys and windows of a port, and the checks on every access.

use heapless::Vec;

use crate::provider::Backing;
use crate::provider::Bind;
use crate::provider::Pd;
use crate::provider::Region;
use crate::provider::Registration;
use crate::provider::Scope;
use crate::provider::Segment;
use crate::testing::MEMORY;
use crate::testing::fabric::Memory;
use crate::testing::fabric::Port;
use crate::testing::fabric::Segments;
use crate::testing::fabric::offset;
use crate::types::flags::Access;

/// Most pages of one region, and pieces of memory of one access.
pub(super) const PAGES: usize = 16;
/// Bytes in a row, by their place in the fabric.
pub(super) type Pieces = Vec<Segment, { PAGES * crate::testing::SEGMENTS }>;

/// What the addresses of a key stand for.
#[derive(Clone, Debug)]
pub(super) enum Below {
    /// Nothing: no access.
    Nothing,
    /// Memory from this address on.
    Memory(u64),
    /// Pages of that size.
    Pages(Vec<u64, PAGES>, u8),
    /// Of a window: the key of a region, and the address in it.
    Key(u32, u64),
}

/// What may become of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It stays what it is.
    Region,
    /// Registrations open it, unbinds close it. The list that the next registration takes over is
    /// kept here.
    Registered,
    /// Binds open and close it.
    Window,
    /// The same, for one queue pair.
    OwnWindow,
}

/// One key: a region, or a window over one.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) variant: u8,
    pub(super) pd: Pd,
    /// The range, in the key's own addresses.
    pub(super) region: Region,
    pub(super) access: Access,
    pub(super) kind: Kind,
    pub(super) below: Below,
    /// The one queue pair that may use it.
    pub(super) qp: Option<usize>,
    /// The list for the next registration.
    pub(super) list: (Vec<u64, PAGES>, u8),
}

impl Key {
    /// One that opens nothing yet.
    pub(super) fn closed(pd: Pd, kind: Kind) -> Self {
        Self {
            variant: 0,
            pd,
            region: Region::default(),
            access: Access::empty(),
            kind,
            below: Below::Nothing,
            qp: None,
            list: (Vec::new(), 0),
        }
    }

    /// One of a region whose first byte has the address `start`; none if it is not whole.
    pub(super) fn region(pd: Pd, backing: Backing<'_>, start: u64, access: Access) -> Option<Self> {
        let (below, len) = match backing {
            Backing::Host(region) => (Below::Memory(region.addr), region.len),
            Backing::Pages { pages, log_page, len } => {
                (Below::Pages(Vec::from_slice(pages).ok()?, log_page), len)
            }
        };
        let key = Self {
            region: Region { addr: start, len },
            access,
            below,
            ..Self::closed(pd, Kind::Region)
        };
        start.checked_add(len).map(|_| key)
    }

    fn is_window(&self) -> bool {
        matches!(self.kind, Kind::Window | Kind::OwnWindow)
    }
}

/// Who wants to do what through a key.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub(super) pd: Pd,
    pub(super) qp: usize,
    pub(super) access: Access,
}

/// Where a key is. Number 0 is nobody's: a context of 0 means that there is none.
pub(super) const fn slot(key: u32) -> usize {
    (key >> 8).wrapping_sub(1) as usize
}

impl Port {
    pub(super) fn key(&self, key: u32) -> Option<&Key> {
        let entry = self.keys.get(slot(key))?.as_ref()?;
        (u32::from(entry.variant) == key & 0xff).then_some(entry)
    }

    fn place(&mut self, key: u32) -> Option<&mut Key> {
        self.keys.get_mut(slot(key))?.as_mut()
    }

    /// Finds a free entry and gives it a key unlike any the entry had just before.
    pub(super) fn add_key(&mut self, mut key: Key) -> Option<u32> {
        let index = self.keys.iter().position(Option::is_none)?;
        self.variant = self.variant.wrapping_add(1);
        key.variant = self.variant;
        *self.keys.get_mut(index)? = Some(key);
        Some((index as u32 + 1) << 8 | u32::from(self.variant))
    }

    pub(super) fn drop_key(&mut self, key: u32) -> bool {
        self.keys.get_mut(slot(key)).and_then(Option::take).is_some()
    }

    /// Keeps a list for the next registration of a key.
    pub(super) fn keep_list(&mut self, key: u32, pages: &[u64], log_page: u8) -> Option<()> {
        let entry = self.place(key).filter(|key| key.kind == Kind::Registered)?;
        entry.list = (Vec::from_slice(pages).ok()?, log_page);
        Some(())
    }

    /// Where the bytes are that `wish` may reach through `key`, in order; a window asks its region
    /// too.
    pub(super) fn pieces(
        &self,
        key: u32,
        wish: Wish,
        addr: u64,
        len: u64,
        to: &mut Pieces,
    ) -> Option<()> {
        let entry = self.key(key)?;
        let mine = entry.pd == wish.pd && entry.qp.is_none_or(|qp| qp == wish.qp);
        if !mine || !entry.access.contains(wish.access) || !inside(entry.region, addr, len) {
            return None;
        }
        let skip = addr - entry.region.addr;
        match &entry.below {
            Below::Nothing => None,
            Below::Memory(at) => piece(to, at.checked_add(skip)?, len),
            Below::Pages(pages, log_page) => {
                let size = 1_u64.checked_shl((*log_page).into())?;
                let (mut at, mut left) = (skip, len);
                while left != 0 {
                    let page = pages.get(usize::try_from(at >> log_page).ok()?)?;
                    let within = at & (size - 1);
                    let run = (size - within).min(left);
                    piece(to, page.checked_add(within)?, run)?;
                    at += run;
                    left -= run;
                }
                Some(())
            }
            Below::Key(under, at) => {
                if self.key(*under)?.is_window() {
                    return None;
                }
                let changes = Access::REMOTE_WRITE | Access::LOCAL_WRITE;
                let local = if wish.access.intersects(changes) {
                    Access::LOCAL_WRITE
                } else {
                    Access::LOCAL_READ
                };
                let wish = Wish { access: local, ..wish };
                self.pieces(*under, wish, at.checked_add(skip)?, len, to)
            }
        }
    }

    /// Carries out a bind for queue pair `qp` of `pd`.
    pub(super) fn bind(&mut self, pd: Pd, qp: usize, bind: &Bind) -> bool {
        let same = bind.old_rkey >> 8 == bind.new_rkey >> 8;
        let fits = bind.len == 0
            || self.key(bind.lkey).is_some_and(|region| {
                !region.is_window() && region.pd == pd && inside(region.region, bind.addr, bind.len)
            });
        let Some(key) = self.place(bind.new_rkey) else {
            return false;
        };
        // A region of registrations is closed as a window is.
        let closes = bind.len == 0 && key.kind == Kind::Registered;
        if !same || !fits || !(key.is_window() || closes) || key.pd != pd {
            return false;
        }
        let fresh = bind.scope == Scope::QueuePair { bound: false } && bind.len != 0;
        if fresh && !matches!(key.below, Below::Nothing) {
            return false;
        }
        key.variant = (bind.new_rkey & 0xff) as u8;
        key.region = Region { addr: bind.start, len: bind.len };
        let remote = Access::REMOTE_READ | Access::REMOTE_WRITE;
        key.access = bind.access & remote;
        key.qp = (bind.scope != Scope::Domain).then_some(qp);
        key.below = if bind.len == 0 { Below::Nothing } else { Below::Key(bind.lkey, bind.addr) };
        true
    }

    /// Carries out a registration for a queue pair of `pd`.
    pub(super) fn register(&mut self, pd: Pd, made: &Registration) -> bool {
        let Some(key) = self.place(made.new_key) else {
            return false;
        };
        let same = made.old_key >> 8 == made.new_key >> 8;
        if !same || key.kind != Kind::Registered || key.pd != pd {
            return false;
        }
        key.variant = (made.new_key & 0xff) as u8;
        key.region = Region { addr: made.start, len: made.len };
        key.access = made.access;
        let (pages, log_page) = core::mem::take(&mut key.list);
        key.below = Below::Pages(pages, log_page);
        true
    }

    /// A message for queue pair `qp` of `pd` closes the window of that key, if it is one that a
    /// peer may close.
    pub(super) fn close_window(&mut self, pd: Pd, qp: usize, rkey: u32) -> bool {
        if self.key(rkey).is_none() {
            return false;
        }
        let Some(key) = self.place(rkey) else {
            return false;
        };
        let open = !matches!(key.below, Below::Nothing);
        let may = key.kind == Kind::OwnWindow && key.pd == pd && key.qp == Some(qp) && open;
        if may {
            key.below = Below::Nothing;
        }
        may
    }
}

/// Appends a run of memory; none if there is no room, or no such memory.
fn piece(to: &mut Pieces, addr: u64, len: u64) -> Option<()> {
    if len == 0 {
        return Some(());
    }
    let len = u32::try_from(len).ok()?;
    let lkey = 0;
    to.push(Segment { addr, len, lkey }).ok()
}

impl Memory {
    /// Where the segments are, if each is open to `wish`.
    pub(super) fn open_segments(&self, port: usize, wish: Wish, list: &Segments) -> Option<Pieces> {
        let port = self.ports.get(port)?;
        let mut pieces = Pieces::new();
        for s in list {
            port.pieces(s.lkey, wish, s.addr, u64::from(s.len), &mut pieces)?;
        }
        Some(pieces)
    }

    /// Copies `len` bytes from one list of pieces to another.
    pub(super) fn copy(&mut self, from: &[Segment], to: &[Segment], len: u32) {
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

pub(super) fn addresses(list: &[Segment]) -> impl Iterator<Item = u64> {
    list.iter().flat_map(|s| (0..u64::from(s.len)).map(|i| s.addr.wrapping_add(i)))
}

pub(super) fn length(list: &[Segment]) -> u32 {
    list.iter().fold(0, |sum, s| sum.saturating_add(s.len))
}

pub(super) fn inside(region: Region, addr: u64, len: u64) -> bool {
    addr >= region.addr
        && addr
            .checked_add(len)
            .zip(region.addr.checked_add(region.len))
            .is_some_and(|(end, limit)| end <= limit)
}

/// Whether a region lies in the memory of `port`, or in what both share.
pub(super) fn in_port(port: usize, region: Region) -> bool {
    let own =
        Region { addr: crate::testing::fabric::BASE + (port * MEMORY) as u64, len: MEMORY as u64 };
    [own, crate::testing::fabric::COMMON].iter().any(|all| inside(*all, region.addr, region.len))
}
