//! The order in which payload reaches memory: what a program may conclude from a byte that it polls.
//! The last byte of a message comes last, unless the region asks for relaxed ordering, and no key
//! asks for that on its own.
#![expect(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dat_core::{DtoOperation, Event, LmrParam, LmrTriplet, MemPriv, PhysicalPages, VaType};
use dat_tests::bringup::{Rig, journey, patience};
use dat_tests::pair::Stage;
use dat_tests::session::{NONE, Session, Setup, far, seg};
use hca_mlx5::platform::Dma;
use mlx5_model::watch::{Observer, Seen};
use mlx5_model::{Config as Card, Wrote};

/// The order of the device's writes differs as much as it may.
const FACTS: &str = "relaxed-writes=last-first";
const MTUS: [u16; 3] = [256, 512, 1024];
const LENS: [usize; 13] = [1, 2, 63, 64, 65, 255, 256, 257, 1025, 4095, 4096, 4097, 20_001];
/// Offsets of messages on their page.
const PLACES: [usize; 5] = [0, 1, 7, 63, 4090];
const PAGE: usize = 4096;

/// Writes of the device to the memory of side 1.
type Writes = Arc<Mutex<Vec<Write>>>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Write {
    /// Payload, by offset in the memory.
    Payload(Range<usize>),
    Completion,
}

/// Notes what the device of side 1 writes from now on.
fn watch(session: &Session<'_>) -> Writes {
    let slot = session.pair.slots[1];
    let region = session.sides[1].lmr.region;
    let start = (region.addr - slot.memory().addr()) as usize;
    // Pages of the arena that the memory has bytes on, by bus address.
    let end = start + region.len as usize;
    let pages = (start / PAGE * PAGE..end).step_by(PAGE);
    let pages: BTreeMap<u64, usize> =
        pages.map(|page| (slot.iova(page).unwrap().0, page)).collect();
    let writes = Writes::default();
    let noted = Arc::clone(&writes);
    slot.hca().set_mangle(Some(Box::new(move |wrote, iova, bytes| {
        let within = iova % PAGE as u64;
        let page = pages.get(&(iova - within));
        let write = match (wrote, page) {
            (Wrote::Payload, Some(page)) => {
                let at = page + within as usize - start;
                Some(Write::Payload(at..at + bytes.len()))
            }
            (Wrote::Cqe, _) => Some(Write::Completion),
            _ => None,
        };
        noted.lock().unwrap().extend(write);
        true
    })));
    writes
}

/// What is to be known of the order of a message's writes.
#[derive(Debug)]
struct Order {
    /// Every byte comes once, and none before one at a lower address.
    ascending: bool,
    /// The last byte comes before the first.
    last_first: bool,
}

/// Looks at the writes of one message at `place`: every byte comes once, before a completion.
#[track_caller]
fn order(writes: &Writes, place: &Range<usize>) -> Order {
    let writes = std::mem::take(&mut *writes.lock().unwrap());
    let end = writes.iter().position(|write| *write == Write::Completion);
    assert!(end.is_none_or(|end| end + 1 == writes.len()), "payload behind a completion");
    let payload = writes.iter().filter_map(|write| match write {
        Write::Payload(range) => Some(range.clone()),
        Write::Completion => None,
    });
    let came: Vec<_> = payload.collect();
    let mut sorted = came.clone();
    sorted.sort_by_key(|range| range.start);
    let covered = sorted.iter().fold(place.start, |at, range| {
        assert_eq!(range.start, at, "{came:?}");
        range.end
    });
    assert_eq!(covered, place.end, "{came:?}");
    let nth = |byte| came.iter().position(|range| range.contains(&byte));
    Order { ascending: came == sorted, last_first: nth(place.end - 1) < nth(place.start) }
}

/// One message to side 1, by a write or a send into memory of that registration.
fn message(session: &mut Session<'_>, to: &LmrParam, at: usize, len: usize, send: bool, n: u32) {
    session.fill(0, 0, len, n);
    session.fill(1, at, len, n + 1);
    if send {
        let (ep, place) = (session.sides[1].ep, [seg(to, at, len)]);
        session.pair.ias[1].ep_post_recv(ep, &place, 1, NONE).unwrap();
        session.send(0, 0, len, 2);
        session.requested(0, DtoOperation::Send, 2);
        session.received(1, 1);
    } else {
        session.write_to(0, 0, len, far(to, at, len), 2);
        session.requested(0, DtoOperation::RdmaWrite, 2);
        // The last pieces are still on their way when the peer has its acknowledgement.
        session.pass(Duration::from_micros(10));
    }
    session.check(1, at, len, n);
}

/// All messages, through keys with these rights besides all others.
fn messages(more: MemPriv, mut each: impl FnMut(u16, Range<usize>, bool, Order)) {
    for mtu in MTUS {
        let stage = Stage { mtu: Some(mtu), ..Stage::of(FACTS) };
        Setup { stage, ..Setup::default() }.connected(|session| {
            let to = session.register(1, MemPriv::ALL | more);
            let writes = watch(session);
            let mut n = 0;
            for (at, len) in PLACES.into_iter().flat_map(|at| LENS.map(|len| (at, len))) {
                for send in [false, true] {
                    n += 2;
                    message(session, &to, at, len, send, n);
                    each(mtu, at..at + len, send, order(&writes, &(at..at + len)));
                }
            }
            session.pair.slots[1].hca().set_mangle(None);
            session.pair.ias[1].lmr_free(to.lmr).unwrap();
        });
    }
}

#[test]
fn the_last_byte_of_a_message_comes_last() {
    let mut count = 0;
    messages(MemPriv::empty(), |mtu, place, send, order| {
        count += 1;
        assert!(order.ascending, "MTU {mtu}, {place:?}, send: {send}");
    });
    assert_eq!(count, MTUS.len() * PLACES.len() * LENS.len() * 2);
}

/// The same messages, so that the test above has something to find.
#[test]
fn the_last_byte_comes_earlier_where_the_region_asks_for_it() {
    let mut earlier = 0;
    messages(MemPriv::RELAXED_ORDERING, |mtu, place, send, order| {
        // Bytes of a line of 64 keep together.
        let lines = place.start / 64 != (place.end - 1) / 64;
        assert_eq!(!order.ascending, lines, "MTU {mtu}, {place:?}, send: {send}");
        if place.len() <= mtu.into() {
            assert_eq!(order.last_first, lines, "MTU {mtu}, {place:?}, send: {send}");
        }
        earlier += usize::from(order.last_first);
    });
    assert!(earlier > MTUS.len() * PLACES.len() * LENS.len(), "{earlier}");
}

/// Counts keys that CREATE_MKEY and UMR work requests make: all, and those with relaxed ordering.
#[derive(Clone, Debug, Default)]
struct Keys(Arc<Mutex<[usize; 2]>>);

impl Keys {
    fn take(&self) -> [usize; 2] {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Observer for Keys {
    fn saw(&mut self, seen: &Seen<'_>) {
        // PRM memory key context: relaxed_ordering_write and _read. The bits of a UMR's mask are
        // those by which it would change them.
        let bit = |bytes: &[u8], at: usize, mask: u8| bytes.get(at).is_some_and(|b| b & mask != 0);
        let of = |bytes: &[u8], at: usize| bit(bytes, at + 1, 0x04) || bit(bytes, at + 0x3b, 0x40);
        let relaxed = match *seen {
            Seen::Command { opcode: 0x200, input, .. } => of(input, 0x10),
            Seen::Send { bytes, .. } if bytes.get(3) == Some(&0x25) => {
                of(bytes, 64) || bit(bytes, 16 + 8 + 4, 0x02) || bit(bytes, 16 + 8 + 2, 0x80)
            }
            _ => return,
        };
        let [all, with] = &mut *self.0.lock().unwrap();
        *all += 1;
        *with += usize::from(relaxed);
    }
}

/// Keys of bring-up and of the driver's own buffers, keys of regions of every kind and those
/// beneath them, windows, fast registrations.
#[test]
fn no_key_is_relaxed_unless_its_region_asks_for_it() {
    let keys = Keys::default();
    let rig = Rig::new(Card::default());
    rig.slot.hca().observe(Box::new(keys.clone()));
    journey(&rig.slot, &patience()).unwrap();
    let [all, relaxed] = keys.take();
    // The journey's one region asks for everything.
    assert!(all > 2 && relaxed == 1, "{relaxed} of {all}");

    Setup::default().connected(|session| {
        session.pair.slots[1].hca().observe(Box::new(keys.clone()));
        let (pz, ep) = (session.sides[1].pz, session.sides[1].ep);
        let lent = session.pair.slots[1].lend(50_000);
        // Named by addresses under which its pages are small: 33 keys beneath.
        let long = session.pair.slots[1].lend_ends(64 << 30, 0x1000);
        let arena = session.sides[1].lmr.region;
        let evd = session.sides[1].request;
        let rmr = session.pair.ias[1].rmr_create(pz).unwrap();
        for asked in [MemPriv::empty(), MemPriv::RELAXED_ORDERING] {
            let mut made = 0;
            for rights in [MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE, MemPriv::ALL] {
                for region in [arena, lent, long] {
                    let ia = &mut session.pair.ias[1];
                    let lmr = ia.lmr_create(pz, region, rights | asked).unwrap();
                    made += if region == long { 34 } else { 1 };
                    if rights == MemPriv::ALL {
                        let context = lmr.lmr_context;
                        let range = LmrTriplet { addr: region.addr, len: 64, context };
                        ia.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 7, NONE).unwrap();
                        assert!(matches!(session.event(1, evd), Event::RmrBind { .. }));
                        let none = LmrTriplet::default();
                        let ia = &mut session.pair.ias[1];
                        ia.rmr_bind(rmr, &none, MemPriv::REMOTE, ep, 7, NONE).unwrap();
                        assert!(matches!(session.event(1, evd), Event::RmrBind { .. }));
                    }
                    session.pair.ias[1].lmr_free(lmr.lmr).unwrap();
                }
            }
            let [all, relaxed] = keys.take();
            let expected = if asked.is_empty() { 0 } else { made };
            assert!(all >= made + 6 && relaxed == expected, "{relaxed} of {all}, {asked:?}");
        }
        fast(session);
        let [all, relaxed] = keys.take();
        assert!(all >= 2 && relaxed == 0, "{relaxed} of {all}");
        session.pair.ias[1].rmr_free(rmr).unwrap();
        session.pair.slots[1].take_back(lent);
        session.pair.slots[1].take_back(long);
    });
}

/// A fast registration of side 1, which asks in vain.
fn fast(session: &mut Session<'_>) {
    let slot = session.pair.slots[1];
    let (pz, ep) = (session.sides[1].pz, session.sides[1].ep);
    let start = session.sides[1].lmr.region.addr - slot.memory().addr();
    let (page, _) = slot.iova((start as usize).next_multiple_of(PAGE)).unwrap();
    let ia = &mut session.pair.ias[1];
    let lmr = ia.lmr_allocate(pz, 1).unwrap();
    let memory = PhysicalPages { pages: &[page], log_page: 12, len: PAGE as u64 };
    let rights = MemPriv::ALL | MemPriv::RELAXED_ORDERING;
    ia.lmr_fmr(lmr, memory, rights, VaType::Zb, ep, 8, NONE).unwrap();
    session.requested(1, DtoOperation::LmrFmr, 8);
    session.pair.ias[1].lmr_free(lmr).unwrap();
}
