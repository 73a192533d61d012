//! Payload in completions: what a completion queue needs to put it where its receive says.
//!
//! PRM "Scatter to CQE"; Linux `mlx5_ib`, libmlx5 `mlx5_copy_to_recv_wqe`. A queue pair with
//! `cs_res` gets a message of up to 32 bytes in the first half of its completion, and the device
//! leaves the memory of the receive alone. The reaping end copies it there when it takes the
//! completion: it finds the receive in the ring of its queue pair, and the memory by the keys of
//! the receive, as the device would.
//!
//! The reaping end may be in another thread than the control path. So queues and keys stand in two
//! directories that the control path alone changes and reaping ends search without a lock. What is
//! taken out of a directory is gone when every end that was copying at that moment has finished
//! ([`Copying`]): no copy ends in memory whose registration has ended, or by a ring that is another
//! queue's by now. The directories lie in the arena, as the ends outlive any borrow of the provider.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use super::cq::Cq;
use super::ring::Ring;
use crate::platform::dma::{Entries, Probe};
use crate::platform::{Lend, Platform, Span};
use crate::prm::cqe::{self, Owner, Source};
use crate::prm::wqe;

/// Bytes of an entry of a directory: a word of state, and from [`FIELDS_AT`] on its fields.
pub(crate) const ENTRY: usize = 64;
const FIELDS_AT: usize = 8;
pub(crate) type Fields = [u64; 6];
/// State of an entry that holds nothing and never did.
const FREE: u32 = 0;
/// State of an entry that holds nothing any more.
const GONE: u32 = 1;
/// State of an entry of number 0.
const TAKEN: u32 = 2;

/// Objects by number: a hash table that one thread changes and others search.
struct Directory<'p, T> {
    entries: Entries<'p, ENTRY, T>,
    slots: u32,
}

impl<T> Clone for Directory<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Directory<'_, T> {}

impl<T: Probe> Directory<'_, T> {
    fn state(&self, slot: u32) -> &AtomicU32 {
        self.entries.shared::<0>(slot)
    }

    /// The slots where an object of that number may stand, the first choice first.
    fn slots(&self, number: u32) -> impl Iterator<Item = u32> {
        (0..self.slots).map(move |ahead| number.wrapping_add(ahead))
    }

    fn find(&self, number: u32) -> Option<u32> {
        let taken = number.wrapping_add(TAKEN);
        // ORDER: the state precedes the fields, as `insert` stores them.
        let state = |slot: &u32| self.state(*slot).load(Ordering::Acquire);
        let slots = self.slots(number).take_while(|slot| state(slot) != FREE);
        { slots }.find(|slot| state(slot) == taken)
    }

    fn get(&self, number: u32) -> Option<Fields> {
        self.find(number).map(|slot| self.entries.load_words::<6, FIELDS_AT>(slot))
    }

    /// Enters an object, for which there is room. Its slot has been nobody's since the last
    /// [`Copying::over`].
    fn insert(&self, number: u32, fields: &Fields) {
        let free = |slot: &u32| self.state(*slot).load(Ordering::Relaxed) < TAKEN;
        if let Some(slot) = self.slots(number).find(free) {
            self.entries.store_words::<6, FIELDS_AT>(slot, fields);
            // ORDER: the fields precede the state by which others find them.
            self.state(slot).store(number.wrapping_add(TAKEN), Ordering::Release);
        }
    }

    /// Takes an object out. Nobody may begin a copy by it any more.
    fn remove(&self, number: u32) -> Option<Fields> {
        let slot = self.find(number)?;
        self.state(slot).store(GONE, Ordering::Relaxed);
        Some(self.entries.load_words::<6, FIELDS_AT>(slot))
    }
}

/// What a directory holds, by its number or key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Object {
    Queue(u32),
    Key(u32),
}

/// The receive queue of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(crate) ring: Ring,
    /// log2 of the bytes of a slot.
    pub(crate) log_stride: u8,
    /// What its completions carry.
    pub(crate) index: u32,
    pub(crate) pd: u32,
}

/// Memory under a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) lkey: u32,
    pub(crate) pd: u32,
    /// How segments name its first byte.
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) writable: bool,
    /// Where the host has it.
    pub(crate) addr: u64,
}

/// Both directories, and how to reach memory.
pub(crate) struct Landing<'p, P: Platform> {
    platform: &'p P,
    lender: Option<&'p (dyn Lend + Sync)>,
    queues: Directory<'p, P::Probe>,
    keys: Directory<'p, P::Probe>,
}

impl<P: Platform> Clone for Landing<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Landing<'_, P> {}

impl<P: Platform> fmt::Debug for Landing<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Landing").finish_non_exhaustive()
    }
}

/// Bytes of a directory for so many objects.
const fn length(objects: usize) -> usize {
    ENTRY.saturating_mul(objects.next_power_of_two())
}

/// Bytes of the directories for so many queue pairs and keys.
pub(crate) const fn bytes([qps, keys]: [usize; 2]) -> usize {
    length(qps).saturating_add(length(keys))
}

impl<'p, P: Platform> Landing<'p, P> {
    /// Empty directories for so many queue pairs and keys in zeroed memory of [`bytes`]. None if
    /// that is not in the arena.
    pub(crate) fn new(
        platform: &'p P,
        lender: Option<&'p (dyn Lend + Sync)>,
        offset: usize,
        [qps, keys]: [usize; 2],
    ) -> Option<Self> {
        let directory = |offset, objects| {
            let len = length(objects);
            let slots = u32::try_from(len / ENTRY).ok()?;
            let entries = platform.memory().entries(Span { offset, len })?;
            Some(Directory { entries, slots })
        };
        let queues = directory(offset, qps)?;
        let keys = directory(offset.checked_add(length(qps))?, keys)?;
        Some(Self { platform, lender, queues, keys })
    }

    pub(crate) fn enter_queue(&self, qpn: u32, queue: &Queue) {
        let shape = u64::from(queue.ring.slots()) << 32 | u64::from(queue.log_stride);
        let first = u64::try_from(queue.ring.slot(0, 0)).unwrap_or(u64::MAX);
        let fields = [first, shape, queue.index.into(), queue.pd.into(), 0, 0];
        self.queues.insert(qpn, &fields);
    }

    pub(crate) fn enter_key(&self, key: &Opened) {
        let Opened { lkey, pd, start, len, writable, addr } = *key;
        let fields = [lkey.into(), pd.into(), start, len, writable.into(), addr];
        self.keys.insert(lkey >> 8, &fields);
    }

    /// Takes an object out of its directory, so that nobody may begin a copy by it any more.
    pub(crate) fn remove(&self, object: Object) -> Option<Fields> {
        match object {
            Object::Queue(qpn) => self.queues.remove(qpn),
            Object::Key(lkey) => self.keys.remove(lkey >> 8),
        }
    }

    /// Enters again what has been taken out.
    pub(crate) fn restore(&self, object: Object, fields: &Fields) {
        match object {
            Object::Queue(qpn) => self.queues.insert(qpn, fields),
            Object::Key(lkey) => self.keys.insert(lkey >> 8, fields),
        }
    }

    /// Copies the payload of a receive of that queue pair, whose completions carry `name`, where the
    /// receive says. False if the queue
    /// pair is gone, or the segments do not let it.
    fn land(&self, qpn: u32, name: u32, token: u16, mut payload: &[u8]) -> bool {
        let Some([first, shape, index, pd, ..]) = self.queues.get(qpn) else {
            return false;
        };
        // The number may be that of a later queue pair by now.
        if index != name.into() {
            return false;
        }
        let [slots, stride] = [shape >> 32, 1_u64 << (shape & 0x1f)];
        let slot = u64::from(token) & slots.wrapping_sub(1);
        let units = stride / wqe::UNIT as u64;
        for unit in 0..units {
            if payload.is_empty() {
                return true;
            }
            let at = first.wrapping_add(slot.wrapping_mul(stride)).wrapping_add(unit * 16);
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            let [head, addr] = self.platform.memory().load_words::<2>(at).map(u64::from_be);
            let (len, lkey) = wqe::data_of(head);
            if lkey == wqe::TERMINATE {
                break;
            }
            let most = usize::try_from(len).unwrap_or(usize::MAX).min(payload.len());
            let (now, rest) = payload.split_at(most);
            if !self.store(lkey, pd, addr, now) {
                return false;
            }
            payload = rest;
        }
        payload.is_empty()
    }

    /// Stores bytes by a key as the device would, of a queue pair of that domain.
    fn store(&self, lkey: u32, domain: u64, addr: u64, bytes: &[u8]) -> bool {
        let Some([key, pd, start, len, writable, place]) = self.keys.get(lkey >> 8) else {
            return false;
        };
        let from = addr.wrapping_sub(start);
        let end = from.checked_add(bytes.len() as u64);
        if key != lkey.into() || pd != domain || writable == 0 || end.is_none_or(|end| end > len) {
            return false;
        }
        let addr = place.wrapping_add(from);
        let memory = self.platform.memory();
        let inside = usize::try_from(addr.wrapping_sub(memory.addr()));
        match (inside.ok().filter(|offset| *offset < memory.len()), self.lender) {
            (Some(offset), _) => memory.write_bytes(offset, bytes),
            (None, Some(lender)) => return lender.write(addr, bytes),
            (None, None) => return false,
        }
        true
    }
}

/// A word of a reaping end that says whether it is copying: odd then. It counts, so that who waits
/// for the end of one copy does not wait for the next.
pub(crate) struct Copying<'w>(pub(crate) &'w AtomicU32);

impl Copying<'_> {
    fn during<T>(&self, copy: impl FnOnce() -> T) -> T {
        self.0.fetch_add(1, Ordering::Relaxed);
        // ORDER: the word precedes the search of the directories. With the fence of `begun`, either
        // that sees the copy or this sees what was taken out.
        fence(Ordering::SeqCst);
        let copied = copy();
        // ORDER: the copy precedes the word.
        self.0.fetch_add(1, Ordering::Release);
        copied
    }

    /// What the word says of a copy that may have begun before the caller took something out of a
    /// directory; none if there is none.
    pub(crate) fn begun(&self) -> Option<u32> {
        fence(Ordering::SeqCst);
        // ORDER: the end of the last copy precedes what the caller does next.
        let word = self.0.load(Ordering::Acquire);
        (word & 1 != 0).then_some(word)
    }

    /// Whether that copy is over.
    pub(crate) fn over(&self, begun: u32) -> bool {
        // ORDER: as in `begun`.
        self.0.load(Ordering::Acquire) != begun
    }
}

impl<P: Platform> Cq<'_, P> {
    /// Whether an entry that succeeded holds payload that this queue knows what to do with.
    pub(super) fn has_payload(&self, owner: Owner) -> bool {
        owner.format() == cqe::INLINE_32
            && (cqe::RESPONDER_SEND..=cqe::RESPONDER_SEND_INVALIDATE).contains(&owner.opcode())
            && self.landing.is_some()
    }

    /// Copies the payload of the entry at `at`, which is about to be taken, to the receive of that
    /// queue pair and token. False if its segments do not let it in.
    // By values: a completion by reference would stand in memory for everyone.
    #[cold]
    #[inline(never)]
    pub(super) fn land(&self, at: u32, index: u32, token: u16, len: u32) -> bool {
        let Some(landing) = self.landing else {
            return false;
        };
        let bytes = self.entries.load_words::<4, 0>(at).map(u64::to_ne_bytes);
        let [source] = self.entries.load_words::<1, { cqe::SOURCE_AT }>(at);
        let source = Source::from_word(u64::from_be(source));
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let payload = bytes.as_flattened().get(..len).unwrap_or_default();
        self.copying().during(|| landing.land(source.qpn(), index, token, payload))
    }
}
