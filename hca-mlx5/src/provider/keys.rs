//! The memory keys of a provider: what each is for, what hangs on it, and how a region becomes one
//! or several.
//!
//! A region whose pages fit into one command is one key, unless they would be larger if the region
//! were named by other addresses, and do not fit a short command as they are. Any other is a key over
//! keys (`verbs::mkey`), each of which names its memory by the addresses that suit that best; those
//! beneath stand in the same table, chained behind it in the order of their memory, and go with it. A region of fast registrations has the list that the device reads, in the
//! arena, and the key by which it reads it, chained likewise.

use dat_core::fault;
use dat_core::provider::{Access, Fault, Mr, MrInit, Mw, Pages, Pd};

use crate::device::cmd::mailbox::Tail;
use crate::device::in_flight::few;
use crate::device::page_list::{Logs, PageList, Place, survey};
use crate::device::{Begun, note};
use crate::platform::{Platform, Reach, Span};
use crate::prm::cmd::Opcode;
use crate::prm::mkey::{Mkey, TRANSLATION_AT};
use crate::prm::object;
use crate::prm::wqe;
use crate::provider::table::Table;
use crate::provider::{Mlx5, full, no_such_object, twice};
use crate::verbs::mkey::{self, Wanted};
use crate::verbs::window;

/// log2 of pages that are large enough: 2 MiB.
const LOG_HUGE: u8 = 21;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Region,
    /// For fast registrations.
    Registered,
    Window,
    /// Of type 2.
    OwnWindow,
    /// Chained behind another.
    Below,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyEntry {
    pub(crate) key: Mkey,
    pub(crate) kind: KeyKind,
    pub(crate) pd: Pd,
    /// The next of the keys that go with it.
    below: Option<Mkey>,
    /// Memory that goes with it.
    list: Option<Span>,
}

impl KeyEntry {
    /// The present form of the key, whose low byte is that of `newest`.
    fn newest(&self, newest: u32) -> Mkey {
        Mkey(self.key.0 & !0xff | newest & 0xff)
    }
}

/// A region on its way to be one.
pub(super) struct Mapping {
    wanted: Wanted,
    place: Place,
    logs: Logs,
    /// Its pages, if it is one short command.
    pub(super) list: Option<PageList>,
    creation: Option<mkey::Creation>,
}

impl<P: Platform, const QPS: usize, const CQS: usize, const KEYS: usize, const NEIGHBOURS: usize>
    Mlx5<'_, P, QPS, CQS, KEYS, NEIGHBOURS>
{
    fn known_key(&self, key: u32, kinds: &[KeyKind]) -> Result<KeyEntry, Fault> {
        let entry = self.keys.get(Mkey(key).index()).copied();
        // Binds give a window a new low byte.
        let is_it = |entry: &KeyEntry| match entry.kind {
            KeyKind::Window | KeyKind::OwnWindow => true,
            KeyKind::Region | KeyKind::Registered | KeyKind::Below => entry.key.0 == key,
        };
        entry.filter(|entry| is_it(entry) && kinds.contains(&entry.kind)).ok_or(no_such_object(
            Opcode::DestroyMkey,
            object::MKEY,
            key,
        ))
    }

    /// That there is room for so many keys, and their domain is known.
    fn room_for(&self, pd: Pd, keys: usize) -> Result<(), Fault> {
        self.known_pd(Opcode::CreateMkey, pd)?;
        if self.keys.room() < keys {
            return Err(full(Opcode::CreateMkey, object::MEMORY_KEYS));
        }
        Ok(())
    }

    /// Enters a key, for which there is room.
    fn enter_key(
        &mut self,
        key: Mkey,
        kind: KeyKind,
        pd: Pd,
        below: Option<Mkey>,
        list: Option<Span>,
    ) -> Result<(), Fault> {
        let entry = KeyEntry { key, kind, pd, below, list };
        if self.keys.insert(key.index(), entry) {
            self.pds.hold(pd.0);
            Ok(())
        } else {
            Err(twice(Opcode::CreateMkey, object::MKEY, key.index()))
        }
    }

    /// Destroys a key, of which `newest` is the present form, and what goes with it: first the key
    /// itself, so that nothing reaches through it any more.
    pub(crate) fn drop_key(&mut self, entry: &KeyEntry, newest: u32) -> Result<(), Fault> {
        mkey::destroy(&mut self.device, entry.newest(newest))?;
        self.let_go(entry)
    }

    /// A key is destroyed: destroys what goes with it.
    fn let_go(&mut self, entry: &KeyEntry) -> Result<(), Fault> {
        self.forget_key(entry);
        self.drop_below(entry.below)?;
        if let Some(list) = entry.list {
            self.device.platform().free(list);
        }
        Ok(())
    }

    /// The key is gone.
    fn forget_key(&mut self, entry: &KeyEntry) {
        self.keys.remove(entry.key.index());
        self.pds.release(entry.pd.0);
    }

    /// Destroys a chain of keys that nobody has been given.
    fn drop_below(&mut self, mut below: Option<Mkey>) -> Result<(), Fault> {
        while let Some(entry) = below.and_then(|key| self.keys.get(key.index()).copied()) {
            mkey::destroy(&mut self.device, entry.key)?;
            self.forget_key(&entry);
            below = entry.below;
        }
        Ok(())
    }

    /// Registers memory of the arena, or that the host lent.
    pub(crate) fn map_region(&mut self, init: &MrInit) -> Result<Mr, Fault> {
        let mapping = self.begin_region(init, 0)?;
        self.finish_region(init, mapping)
    }

    /// Asks the device for a region that is one short command; `ahead` others are on their way.
    pub(super) fn begin_region(&mut self, init: &MrInit, ahead: usize) -> Result<Mapping, Fault> {
        let MrInit { pd, region, start, access } = *init;
        self.room_for(pd, ahead.saturating_add(1))?;
        let place = mkey::place(&self.device, region)?;
        let wanted = Wanted { pd: pd.0, start, len: region.len, access };
        let logs = survey(self.device.platform(), place, start)?;
        let short = PageList::of(place, start, logs.at_base, mkey::MAX_PAGES);
        let list = short.ok().filter(|_| logs.fits());
        let creation = match &list {
            Some(list) => mkey::begin_over(&mut self.device, &wanted, list, ahead)?,
            None => None,
        };
        Ok(Mapping { wanted, place, logs, list, creation })
    }

    /// Waits for the device's answer, and enters the region.
    pub(super) fn finish_region(&mut self, init: &MrInit, mapping: Mapping) -> Result<Mr, Fault> {
        let Mapping { wanted, place, logs, list, creation } = mapping;
        let made = match list {
            Some(list) => mkey::finish_over(&mut self.device, &wanted, &list, creation)
                .and_then(|key| self.region_of(init.pd, key)),
            None => self.map_long(init.pd, &wanted, place, logs),
        };
        made.inspect(|mr| self.enter_opened(Mkey(mr.lkey), &wanted, init.region))
    }

    /// Registers memory whose pages do not fit a short command. What its commands need of the arena
    /// is taken once for all of them.
    fn map_long(&mut self, pd: Pd, wanted: &Wanted, place: Place, logs: Logs) -> Result<Mr, Fault> {
        // Larger pages are worth a key over keys, but where these are large.
        let single = logs.fits() && logs.at_base >= logs.at_iova.min(LOG_HUGE);
        let (base, log_page) =
            if single { (wanted.start, logs.at_base) } else { (logs.iova, logs.at_iova) };
        let whole = PageList::of(place, base, log_page, usize::MAX)?;
        let most = self.lengthen(whole.count);
        let made = if single && whole.count <= most {
            mkey::over(&mut self.device, wanted, &whole).and_then(|key| self.region_of(pd, key))
        } else {
            self.key_over_keys(pd, wanted, place, logs, most)
        };
        self.device.queue.shorten();
        made
    }

    /// Takes memory for commands with lists of so many pages, as far as there is any. Returns how
    /// many pages a list may have then.
    fn lengthen(&mut self, pages: usize) -> usize {
        let bytes = pages.saturating_add(1).saturating_mul(8).saturating_add(TRANSLATION_AT);
        mkey::pages_in(self.device.queue.lengthen(bytes))
    }

    /// Registers pages of the arena, by their device addresses.
    pub(crate) fn map_pages(
        &mut self,
        wanted: &Wanted,
        pages: &[u64],
        log_page: u8,
    ) -> Result<Mr, Fault> {
        let pd = Pd(wanted.pd);
        self.room_for(pd, 1)?;
        if !mkey::owns(self.device.platform(), pages, log_page) {
            return Err(fault!(
                BadParameter,
                "CREATE_MKEY",
                "a page is not inside the arena",
                "register only memory that the platform handed out",
            ));
        }
        let most = self.lengthen(pages.len());
        let made = if pages.len() > most || wanted.len > mkey::max_region(self.device.caps()) {
            Err(fault!(
                Resources,
                "CREATE_MKEY",
                "the list of pages is too long",
                "use larger pages, or register fewer at a time",
            ))
        } else {
            mkey::over_pages(&mut self.device, wanted, pages, log_page)
        };
        self.device.queue.shorten();
        self.region_of(pd, made?)
    }

    /// The region that a key is.
    fn region_of(&mut self, pd: Pd, key: Mkey) -> Result<Mr, Fault> {
        self.enter_key(key, KeyKind::Region, pd, None, None)?;
        Ok(both(key))
    }

    /// Registers a region as a key over keys, each of which has at most as many pages as one command
    /// carries.
    fn key_over_keys(
        &mut self,
        pd: Pd,
        wanted: &Wanted,
        place: Place,
        logs: Logs,
        most: usize,
    ) -> Result<Mr, Fault> {
        let page = 1_u64 << logs.at_iova;
        // A span that begins inside a page touches one more.
        let pages = u64::try_from(most.saturating_sub(1)).unwrap_or(u64::MAX);
        let span = page.saturating_mul(pages).clamp(1, mkey::MAX_SPAN);
        let parts = usize::try_from(wanted.len.div_ceil(span)).unwrap_or(usize::MAX);
        let caps = &self.device.caps().general;
        let listed = 1_usize.checked_shl(caps.log_max_klm_list_size().into()).unwrap_or(usize::MAX);
        if parts > listed.min(most / 2) {
            return Err(fault!(
                Resources,
                "CREATE_MKEY",
                "so many keys under one are more than log_max_klm_list_size or a message allows",
                "back the memory with larger contiguous pages, or register less at a time",
            )
            .of(object::MEMORY_KEYS, u32::try_from(parts).unwrap_or(u32::MAX)));
        }
        self.room_for(pd, parts.saturating_add(1))?;
        // Nobody names these by addresses of the host.
        let spans =
            Spans { start: logs.iova & (page - 1), len: wanted.len, span, log_page: logs.at_iova };
        let mut below = None;
        let made = self
            .keys_beneath(pd, wanted, place, spans, parts, &mut below)
            .and_then(|()| {
                let parts = Parts { keys: &self.keys, spans, count: parts, first: below };
                mkey::over_keys(&mut self.device, wanted, &parts)
            })
            .and_then(|key| {
                self.enter_key(key, KeyKind::Region, pd, below, None)?;
                Ok(both(key))
            });
        if made.is_err() {
            // The first failure is the one to tell.
            let _ = self.drop_below(below);
        }
        made
    }

    /// Makes the keys beneath a key, the last first: so they are chained in ascending order.
    fn keys_beneath(
        &mut self,
        pd: Pd,
        wanted: &Wanted,
        place: Place,
        spans: Spans,
        parts: usize,
        below: &mut Option<Mkey>,
    ) -> Result<(), Fault> {
        for (at, start, len) in (0..parts).rev().filter_map(|part| spans.part(part)) {
            let piece = place.piece(at, len);
            let list = PageList::of(piece, start, spans.log_page, usize::MAX)?;
            let part = Wanted { pd: wanted.pd, start, len, access: wanted.beneath() };
            let key = mkey::over(&mut self.device, &part, &list)?;
            self.enter_key(key, KeyKind::Below, pd, *below, None)?;
            *below = Some(key);
        }
        Ok(())
    }

    pub(crate) fn allocate_region(&mut self, pd: Pd, pages: u32) -> Result<Mr, Fault> {
        self.requests_edit_keys()?;
        self.room_for(pd, 2)?;
        if pages > mkey::MAX_REGISTERED {
            return Err(fault!(
                Resources,
                "CREATE_MKEY",
                "the list of pages is too long",
                "use larger pages, or register fewer at a time",
            ));
        }
        let platform = self.device.platform();
        let bytes = 16 * usize::from(wqe::page_octowords(pages));
        let list = platform.alloc(bytes, wqe::LIST_ALIGN, Reach::Read).ok_or(fault!(
            Resources,
            "CREATE_MKEY",
            "the arena is full",
            "make the arena larger"
        ))?;
        let made = self.allocated(pd, pages, list);
        if made.is_err() {
            // In any case no request names the list now.
            self.device.platform().free(list);
        }
        made
    }

    fn allocated(&mut self, pd: Pd, pages: u32, list: Span) -> Result<Mr, Fault> {
        let platform = self.device.platform();
        let addr = address(list);
        let pages_of_list = PageList::new(platform, list, addr, mkey::MAX_PAGES)?;
        let wanted = Wanted {
            pd: pd.0,
            start: addr,
            len: u64::try_from(list.len).unwrap_or(u64::MAX),
            access: Access::LOCAL_READ,
        };
        let reader = mkey::over(&mut self.device, &wanted, &pages_of_list)?;
        self.enter_key(reader, KeyKind::Below, pd, None, None)?;
        let made = mkey::allocate(&mut self.device, pd.0, pages).and_then(|key| {
            self.enter_key(key, KeyKind::Registered, pd, Some(reader), Some(list))?;
            Ok(both(key))
        });
        if made.is_err() {
            let _ = self.drop_below(Some(reader));
        }
        made
    }

    pub(crate) fn keep_pages(
        &mut self,
        mr: Mr,
        pages: &[u64],
        log_page: u8,
    ) -> Result<Pages, Fault> {
        let entry = self.known_key(mr.lkey, &[KeyKind::Registered])?;
        let platform = self.device.platform();
        let (Some(list), Some(reader)) = (entry.list, entry.below) else {
            return Err(no_such_object(Opcode::CreateMkey, object::MKEY, mr.lkey));
        };
        if log_page != mkey::LOG_REGISTERED
            && self.device.caps().general.umr_modify_entity_size_disabled()
        {
            return Err(fault!(
                Unsupported,
                "UMR",
                "this device changes no page size by a work request (umr_modify_entity_size_disabled)",
                "give the memory in pages of 4 KiB",
            )
            .of(object::MKEY, mr.lkey));
        }
        if !mkey::owns(platform, pages, log_page) || pages.len().saturating_mul(8) > list.len {
            return Err(fault!(
                BadParameter,
                "UMR",
                "a page is not inside the arena",
                "register only memory that the platform handed out",
            )
            .of(object::MKEY, mr.lkey));
        }
        let granules = pages.len().next_multiple_of(8);
        let padded = pages.iter().map(|page| page | wqe::LISTED).chain(core::iter::repeat(0));
        for (index, page) in padded.take(granules).enumerate() {
            let at = list.offset.saturating_add(8 * index);
            platform.memory().write_bytes(at, &page.to_be_bytes());
        }
        Ok(Pages {
            addr: address(list),
            lkey: reader.0,
            count: u32::try_from(pages.len()).unwrap_or(u32::MAX),
            log_page,
        })
    }

    pub(crate) fn reserved_region(&mut self, pd: Pd) -> Result<Mr, Fault> {
        self.room_for(pd, 1)?;
        let key = mkey::physical(&mut self.device, pd.0)?;
        self.region_of(pd, key)
    }

    /// A region of any kind, if it is one.
    pub(super) fn known_region(&self, mr: Mr) -> Result<KeyEntry, Fault> {
        self.known_key(mr.lkey, &[KeyKind::Region, KeyKind::Registered])
    }

    /// Waits for the device's answer to the end of a region.
    pub(super) fn finish_region_end(
        &mut self,
        entry: &KeyEntry,
        mr: Mr,
        begun: Option<Begun>,
    ) -> Result<(), Fault> {
        self.device.finish_end(Opcode::DestroyMkey, entry.key.index(), begun)?;
        self.device.key_rest.free(entry.newest(mr.rkey));
        self.let_go(entry)
    }

    /// Whether work requests may edit keys: a bind does, and a fast registration.
    fn requests_edit_keys(&self) -> Result<(), Fault> {
        let cause = match (self.limits.windows, self.device.caps().general.imaicl()) {
            (true, _) => return Ok(()),
            (false, false) => "the device has no memory windows: imaicl is 0",
            (false, true) => "requests may not edit such keys: umr_indirect_mkey_disabled is 1",
        };
        Err(fault!(Unsupported, "CREATE_MKEY", cause, "do without: the limits say so too"))
    }

    pub(crate) fn create_window(&mut self, pd: Pd, kind: KeyKind) -> Result<Mw, Fault> {
        self.known_pd(Opcode::CreateMkey, pd)?;
        self.requests_edit_keys()?;
        self.room_for(pd, 1)?;
        let key = window::create(&mut self.device, pd.0, kind == KeyKind::OwnWindow)?;
        self.enter_key(key, kind, pd, None, None)?;
        Ok(Mw { rkey: key.0 })
    }

    /// Makes another window before the old one goes, so that the two have different keys whatever
    /// happens.
    pub(crate) fn renew_window(&mut self, mw: Mw) -> Result<Mw, Fault> {
        let entry = self.known_key(mw.rkey, &[KeyKind::OwnWindow])?;
        let new = window::create(&mut self.device, entry.pd.0, true)?;
        if let Err(fault) = self.drop_key(&entry, mw.rkey) {
            let _ = mkey::destroy(&mut self.device, new);
            return Err(fault);
        }
        self.enter_key(new, entry.kind, entry.pd, None, None)?;
        Ok(Mw { rkey: new.0 })
    }

    pub(crate) fn destroy_window(&mut self, mw: Mw) -> Result<(), Fault> {
        let entry = self.known_key(mw.rkey, &[KeyKind::Window, KeyKind::OwnWindow])?;
        self.drop_key(&entry, mw.rkey)
    }

    /// Destroys every key there is.
    pub(crate) fn drop_all_keys(&mut self, first: &mut Result<(), Fault>) {
        let mut entries = self.keys.values();
        loop {
            let some = few(entries.by_ref());
            if some.is_empty() {
                break;
            }
            let mut ends = few(some.iter().map(|entry| (entry.key.index(), None)));
            self.device.end_each(Opcode::DestroyMkey, &mut ends);
            for (entry, (_, ended)) in some.iter().zip(&ends) {
                let ended = ended.unwrap_or(Ok(()));
                if let (Ok(()), Some(list)) = (&ended, entry.list) {
                    self.device.platform().free(list);
                }
                note(first, ended);
            }
        }
        drop(entries);
        self.keys.clear();
    }
}

/// A region in spans of one length, each under a key.
#[derive(Clone, Copy)]
struct Spans {
    /// What the first of those keys calls its first byte.
    start: u64,
    /// Bytes of all of them.
    len: u64,
    /// Bytes of each but the last.
    span: u64,
    /// log2 of the pages that fit.
    log_page: u8,
}

impl Spans {
    /// Of the span of that number: where it begins in the region, what its key calls its first byte,
    /// and its bytes.
    fn part(&self, number: usize) -> Option<(u64, u64, u64)> {
        let at = self.span.checked_mul(u64::try_from(number).ok()?)?;
        let len = self.len.checked_sub(at)?.min(self.span);
        Some((at, self.start.checked_add(at)?, len))
    }
}

/// The entries of a key over keys, behind a head.
struct Parts<'a, const KEYS: usize> {
    keys: &'a Table<KeyEntry, KEYS>,
    spans: Spans,
    count: usize,
    /// The key of the first span; those of the others are chained behind it.
    first: Option<Mkey>,
}

impl<const KEYS: usize> Parts<'_, KEYS> {
    /// The key chained behind another.
    fn behind(&self, key: Mkey) -> Option<Mkey> {
        self.keys.get(key.index())?.below
    }
}

impl<const KEYS: usize> Tail for Parts<'_, KEYS> {
    fn len(&self) -> usize {
        16 * self.count.next_multiple_of(4)
    }
    fn write(&self, at: usize, to: &mut [u8]) {
        let from = at / 16;
        // From the first key on each time: one walk for 32 entries.
        let mut next = (0..from).fold(self.first, |key, _| self.behind(key?));
        for (number, entry) in
            (from..self.count).zip(to.chunks_exact_mut(16).filter_map(<[_]>::first_chunk_mut::<16>))
        {
            let Some((key, (_, start, len))) = next.zip(self.spans.part(number)) else { return };
            // No span is longer than the field.
            let words = wqe::data(start, u32::try_from(len).unwrap_or(u32::MAX), key.0);
            for (half, word) in
                entry.chunks_exact_mut(8).filter_map(<[_]>::first_chunk_mut::<8>).zip(words)
            {
                *half = word.to_be_bytes();
            }
            next = self.behind(key);
        }
    }
}

/// The same key for both uses.
const fn both(key: Mkey) -> Mr {
    Mr { lkey: key.0, rkey: key.0 }
}

/// What the key over a list calls its first byte: its offset in the arena, so that the device sees
/// no address of the host.
fn address(list: Span) -> u64 {
    u64::try_from(list.offset).unwrap_or(u64::MAX)
}
