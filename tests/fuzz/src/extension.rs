//! Programs of the extension `dat_dapldat.h` between two connected Endpoints: lists, bursts and
//! deferred doorbells, with any counts, flags, handles and addresses, aligned or not.
//!
//! What the provider reports has to hold: a list reports how many elements it posted, a burst stores
//! no more events than it was asked for, and what was posted completes once, in order, in the end.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use arbitrary::{Arbitrary, Unstructured};

use crate::calls::{IA_CLOSE, LEN, Shared, number, pages};

const EVD_CREATE: usize = 136;
const EVD_WAIT: usize = 176;
const EVD_RESIZE: usize = 184;
const EVD_POST_SE: usize = 192;
const EVD_DEQUEUE: usize = 200;
const EVD_FREE: usize = 208;
const EP_CREATE: usize = 216;
const EP_CONNECT: usize = 240;
const EP_DISCONNECT: usize = 256;
const EP_SEND: usize = 264;
const EP_RECV: usize = 272;
const EP_READ: usize = 280;
const EP_WRITE: usize = 288;
const EP_FREE: usize = 304;
const LMR_CREATE: usize = 312;
const PSP_CREATE: usize = 368;
const PSP_FREE: usize = 384;
const PZ_CREATE: usize = 416;
const CR_ACCEPT: usize = 112;
const EXTENSION: usize = 640;

const RING: u64 = 0x5a01_0000;
const WRITES: u64 = RING + 1;
const READS: u64 = RING + 2;
const RECVS: u64 = RING + 4;
const DEQUEUE: u64 = RING + 5;

const SUPPRESS: u64 = 1;
const DEFER: u64 = 0x100;
const MOST: u64 = 65536;
/// Elements that a program has memory for.
const ROOM: usize = 64;
/// Words of an event, and of an element of a list of RDMA and of messages.
const EVENT: usize = 15;
const RDMA: usize = 6;
const MESSAGE: usize = 4;
const UNTOUCHED: u8 = 0xa5;

const QUEUE_EMPTY: u32 = 0x000d_0000;
const INVALID_HANDLE: u32 = 0x0005_0000;
const INVALID_PARAMETER: u32 = 0x0006_0000;
const TYPE: u32 = 0x3fff_0000;

const DTO: u64 = 0x0_0001;
const REQUEST: u64 = 0x0_2001;
const ESTABLISHED: u64 = 0x0_4001;

/// `va_list` of x86-64 whose registers are used up.
#[repr(C)]
struct Tag {
    gp_offset: u32,
    fp_offset: u32,
    stack: *const u64,
    registers: *const u64,
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| Shared::start("extension", 2))
}

fn extended(handle: u64, operation: u64, args: &[u64]) -> u32 {
    let registers = std::ptr::null();
    let mut tag = Tag { gp_offset: 48, fp_offset: 304, stack: args.as_ptr(), registers };
    shared().call(EXTENSION, &[handle, operation, &raw mut tag as u64])
}

/// Calls what gives one handle.
fn new(offset: usize, args: &[u64]) -> u64 {
    let mut handle = 0_u64;
    let mut all = args.to_vec();
    all.push(&raw mut handle as u64);
    let got = shared().call(offset, &all);
    assert_eq!(got, 0, "the call at {offset}: {got:#x}");
    handle
}

/// Something posted and not completed: its cookie, and whether its success has no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Posted {
    cookie: u64,
    silent: bool,
}

/// One adapter with an Endpoint.
struct Side {
    ia: u64,
    pz: u64,
    conn: u64,
    ep: u64,
    lkey: u64,
    rkey: u64,
    /// Event Dispatchers of requests and of receives, and what is outstanding.
    evds: [u64; 2],
    posted: [VecDeque<Posted>; 2],
    /// The Endpoint is freed: nobody knows what becomes of its requests.
    freed: bool,
}

impl Side {
    fn open(hca: usize) -> Self {
        let [_, ia] = shared().open(hca);
        let pz = new(PZ_CREATE, &[ia]);
        let evd = |flags| new(EVD_CREATE, &[ia, 1024, 0, flags]);
        let evds = [evd(0xa1), evd(0x21)];
        let conn = evd(0x40);
        let ep = new(EP_CREATE, &[ia, pz, evds[1], evds[0], conn, 0]);
        let mut out = [0_u64; 5];
        let [lmr, lkey, rkey, len, start] = out.each_mut().map(|word| &raw mut *word as u64);
        let args = [ia, 0, pages(), 0, LEN, pz, 0x33, 0, lmr, lkey, rkey, len, start];
        assert_eq!(shared().call(LMR_CREATE, &args), 0);
        let posted = [VecDeque::new(), VecDeque::new()];
        Self { ia, pz, conn, ep, lkey: out[1], rkey: out[2], evds, posted, freed: false }
    }
}

/// Waits for an event of a number, and returns its word at an index.
fn wait(evd: u64, number: u64, word: usize) -> u64 {
    let mut event = [0_u64; EVENT];
    let mut more = 0_u64;
    let args = [evd, 5_000_000, 1, event.as_mut_ptr() as u64, &raw mut more as u64];
    let got = shared().call(EVD_WAIT, &args);
    assert_eq!((got, event[0] & 0xffff_ffff), (0, number));
    event[word]
}

/// Bytes that an address is off its alignment by.
fn unaligned(bytes: &mut Unstructured<'_>) -> arbitrary::Result<usize> {
    Ok(usize::from(u8::arbitrary(bytes)?.saturating_sub(0xe0) % 8))
}

struct Program {
    sides: [Side; 2],
    connected: bool,
    /// Handles of no use for what they are given to.
    others: Vec<u64>,
    cookie: u64,
    list: [u64; ROOM * RDMA + 1],
    events: [u8; (ROOM * EVENT + 2) * 8],
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let sides = [Side::open(0), Side::open(1)];
    let mut others: Vec<u64> =
        sides.iter().flat_map(|side| [side.ia, side.pz, side.conn]).collect();
    let gone = new(EVD_CREATE, &[sides[0].ia, 8, 0, 0x20]);
    assert_eq!(shared().call(EVD_FREE, &[gone]), 0);
    others.push(gone);
    let mut program = Program {
        connected: data.first().is_some_and(|first| first & 7 != 0),
        sides,
        others,
        cookie: 0,
        list: [0; ROOM * RDMA + 1],
        events: [UNTOUCHED; (ROOM * EVENT + 2) * 8],
    };
    // Without a connection there are receives only.
    if program.connected {
        program.connect();
    }
    for _ in 0..64 {
        if bytes.is_empty() || program.step(&mut bytes).is_err() {
            break;
        }
    }
    program.end();
}

impl Program {
    fn connect(&self) {
        let [near, far] = &self.sides;
        let port = 20_000;
        let requests = new(EVD_CREATE, &[far.ia, 8, 0, 0x10]);
        let psp = new(PSP_CREATE, &[far.ia, port, requests, 0]);
        let address = [u64::from_ne_bytes([2, 0, 0, 0, 192, 168, 7, 2]), 0, 0, 0];
        let args = [near.ep, address.as_ptr() as u64, port, 5_000_000, 0, 0, 0, 0];
        assert_eq!(shared().call(EP_CONNECT, &args), 0);
        let cr = wait(requests, REQUEST, 5);
        assert_eq!(shared().call(CR_ACCEPT, &[cr, far.ep, 0, 0]), 0);
        let _ = wait(far.conn, ESTABLISHED, 2);
        let _ = wait(near.conn, ESTABLISHED, 2);
        assert_eq!(shared().call(PSP_FREE, &[psp]), 0);
        assert_eq!(shared().call(EVD_FREE, &[requests]), 0);
    }

    fn step(&mut self, bytes: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let pick = u8::arbitrary(bytes)?;
        let side = usize::from(pick >> 7);
        match pick & 0x7f {
            0..0x40 => self.post_list(side, bytes)?,
            0x40..0x60 => self.burst(side, bytes)?,
            0x60..0x68 => self.post_one(side, bytes)?,
            0x68..0x6c => {
                let handle = self.ep_or_other(side, bytes)?;
                let got = extended(handle, RING, &[]);
                assert_eq!(got == 0, handle == self.sides[side].ep && !self.sides[side].freed);
            }
            0x6c..0x70 => {
                let operation = RING | number(bytes)?;
                if !(RING..=DEQUEUE).contains(&operation) && operation >> 16 == RING >> 16 {
                    assert_ne!(extended(self.sides[side].ep, operation, &[0; 8]), 0);
                }
            }
            0x70..0x74 => {
                let evd = self.sides[side].evds[0];
                let mut event = [0_u64; EVENT];
                (event[0], event[2]) = (0x1_0001, self.cookie);
                let _ = shared().call(EVD_POST_SE, &[evd, event.as_ptr() as u64]);
            }
            0x74..0x78 => {
                // A queue never becomes so short that events are lost.
                let longer = 1024 + u64::from(u8::arbitrary(bytes)?);
                let evd = self.sides[side].evds[usize::from(pick & 1)];
                let _ = shared().call(EVD_RESIZE, &[evd, longer]);
            }
            0x78..0x7a => std::thread::sleep(Duration::from_micros(200)),
            0x7a..0x7d => {
                let how = u64::from(pick & 1);
                let _ = shared().call(EP_DISCONNECT, &[self.sides[side].ep, how]);
            }
            _ => {
                let side = &mut self.sides[side];
                if shared().call(EP_FREE, &[side.ep]) == 0 {
                    side.freed = true;
                    side.posted.iter_mut().for_each(VecDeque::clear);
                }
            }
        }
        Ok(())
    }

    fn ep_or_other(&self, side: usize, bytes: &mut Unstructured<'_>) -> arbitrary::Result<u64> {
        let pick = usize::from(u8::arbitrary(bytes)?);
        let evd = self.sides[side].evds[pick & 1];
        let others = self.others.get(pick & 15).copied();
        Ok(if pick < 0xe0 { self.sides[side].ep } else { others.unwrap_or(evd) })
    }

    /// A segment of the memory, or beside it.
    fn segment(bytes: &mut Unstructured<'_>) -> arbitrary::Result<[u64; 2]> {
        let at = u64::from(u16::arbitrary(bytes)?);
        Ok([pages() + at % LEN, u64::from(u8::arbitrary(bytes)?)])
    }

    fn flags(bytes: &mut Unstructured<'_>) -> arbitrary::Result<u64> {
        Ok(match u8::arbitrary(bytes)? {
            0..0x60 => 0,
            0x60..0x90 => SUPPRESS,
            0x90..0xb0 => DEFER,
            0xb0..0xc0 => DEFER | SUPPRESS,
            0xc0..0xf0 => u64::from(u16::arbitrary(bytes)? & 0x13f),
            _ => u64::arbitrary(bytes)?,
        })
    }

    fn post_list(&mut self, side: usize, bytes: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let handle = self.ep_or_other(side, bytes)?;
        let operation = WRITES + u64::from(u8::arbitrary(bytes)? & 3);
        let words = if operation <= READS { RDMA } else { MESSAGE };
        let (count, strange) = match u8::arbitrary(bytes)? {
            n @ 0..0xf0 => (u64::from(n) % (ROOM as u64 + 1), false),
            n => ([u64::MAX, MOST + 1, 0x7fff_ffff, 0x8000_0000][usize::from(n & 3)], true),
        };
        let (null, offset) = match u8::arbitrary(bytes)? {
            0 => (true, 0),
            1 => (false, 1),
            2 => (false, 4),
            _ => (false, 0),
        };
        let rkey = self.sides[1 - side].rkey;
        let (mut segment, mut flags) = ([pages(), 8], 0);
        let first = self.cookie;
        for nth in 0..ROOM {
            // A few shapes, each for a run of elements.
            if nth % 8 == 0 && !bytes.is_empty() {
                segment = Self::segment(bytes)?;
                flags = Self::flags(bytes)?;
            }
            let element = &mut self.list[nth * words..];
            (element[0], self.cookie) = (self.cookie, self.cookie + 1);
            // Address; length and context of 32 bits each.
            (element[1], element[2]) = (segment[0], segment[1] | self.sides[side].lkey << 32);
            if words == RDMA {
                (element[3], element[4]) = (segment[0], segment[1] | rkey << 32);
            }
            element[words - 1] = flags;
        }
        let mut reported = [0_u8; 16];
        let place = unaligned(bytes)?;
        let list = if null { 0 } else { self.list.as_ptr() as u64 + offset };
        let got =
            extended(handle, operation, &[count, list, reported[place..].as_mut_ptr() as u64]);
        let reported = i32::from_ne_bytes(reported[place..][..4].try_into().unwrap());
        let reported = u64::try_from(reported).expect("a number of elements");
        let ours = handle == self.sides[side].ep && !self.sides[side].freed;
        let bad = strange || count != 0 && (null || offset != 0);
        assert!(bad || reported <= count, "{reported} of {count}");
        assert_eq!(got == 0, !bad && ours && reported == count, "{got:#x}: {reported} of {count}");
        if bad {
            assert_eq!((got & TYPE, reported), (INVALID_PARAMETER, 0));
        } else if !ours {
            assert_eq!((got & TYPE, reported), (INVALID_HANDLE, 0));
        }
        let to = usize::from(operation == RECVS);
        for nth in 0..reported as usize {
            let silent = self.list[nth * words + words - 1] & SUPPRESS != 0 && to == 0;
            self.sides[side].posted[to].push_back(Posted { cookie: first + nth as u64, silent });
        }
        Ok(())
    }

    fn post_one(&mut self, side: usize, bytes: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let handle = self.ep_or_other(side, bytes)?;
        let offset = [EP_SEND, EP_RECV, EP_READ, EP_WRITE][usize::from(u8::arbitrary(bytes)? & 3)];
        let [addr, len] = Self::segment(bytes)?;
        let flags = Self::flags(bytes)? & 0xffff_ffff;
        let cookie = self.cookie;
        self.cookie += 1;
        let local = [addr, len | self.sides[side].lkey << 32];
        let remote = [addr, len | self.sides[1 - side].rkey << 32];
        let mut args = vec![handle, 1, local.as_ptr() as u64, cookie];
        if offset >= EP_READ {
            args.push(remote.as_ptr() as u64);
        }
        args.push(flags);
        if shared().call(offset, &args) == 0 {
            assert!(handle == self.sides[side].ep && !self.sides[side].freed);
            let to = usize::from(offset == EP_RECV);
            let silent = flags & SUPPRESS != 0 && to == 0;
            self.sides[side].posted[to].push_back(Posted { cookie, silent });
        }
        Ok(())
    }

    fn burst(&mut self, side: usize, bytes: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let pick = u8::arbitrary(bytes)?;
        let of = usize::from(pick & 1);
        let evd = match pick {
            0..0xd0 => self.sides[side].evds[of],
            0xd0..0xe8 => self.sides[side].ep,
            _ => self.others[usize::from(pick) % self.others.len()],
        };
        let most = match u8::arbitrary(bytes)? {
            n @ 0..0xf0 => u64::from(n) % (ROOM as u64 + 1),
            _ => number(bytes)?,
        };
        let null = u8::arbitrary(bytes)? == 0;
        let bad = most == 0 || most > MOST || null;
        // Longer than the memory, without memory.
        if most > ROOM as u64 && most <= MOST && !null {
            return Ok(());
        }
        let offset = unaligned(bytes)?;
        self.events.fill(UNTOUCHED);
        let at = self.events[offset..].as_mut_ptr() as u64;
        let mut reported = u64::MAX;
        let args = [most, if null { 0 } else { at }, &raw mut reported as u64];
        let got = extended(evd, DEQUEUE, &args);
        let reported = reported as u32 as usize;
        if bad {
            assert_eq!((got & TYPE, reported), (INVALID_PARAMETER, 0), "most {most}");
            return Ok(());
        }
        let own = self.sides[side].evds.contains(&evd);
        if !own {
            let is_evd = self.sides.iter().any(|side| side.conn == evd);
            let want =
                if is_evd && got & TYPE == QUEUE_EMPTY { QUEUE_EMPTY } else { INVALID_HANDLE };
            assert!(is_evd && got == 0 || (got & TYPE, reported) == (want, 0), "{got:#x}");
            return Ok(());
        }
        assert!(reported as u64 <= most);
        assert_eq!(got == 0, reported > 0, "{got:#x} with {reported}");
        let (before, rest) = self.events.split_at(offset);
        let (stored, behind) = rest.split_at(reported * EVENT * 8);
        assert!(before.iter().chain(behind).all(|byte| *byte == UNTOUCHED));
        let word = |event: &[u8], nth: usize| {
            u64::from_ne_bytes(event[nth * 8..][..8].try_into().unwrap())
        };
        let events: Vec<[u64; EVENT]> = stored
            .chunks_exact(EVENT * 8)
            .map(|event| std::array::from_fn(|nth| word(event, nth)))
            .collect();
        events.iter().for_each(|event| self.completed(side, of, evd, event));
        Ok(())
    }

    /// Accounts for an event of an Event Dispatcher of requests or receives.
    fn completed(&mut self, side: usize, of: usize, evd: u64, event: &[u64; EVENT]) {
        assert_eq!(event[1], evd);
        let side = &mut self.sides[side];
        if event[0] & 0xffff_ffff != DTO || side.freed {
            return;
        }
        assert_eq!(event[2], side.ep);
        let posted = &mut side.posted[of];
        let cookie = event[3];
        loop {
            let next = posted.pop_front();
            let next = next.unwrap_or_else(|| panic!("cookie {cookie} was not posted, or is done"));
            if next.cookie == cookie {
                break;
            }
            assert!(next.silent, "cookie {cookie} came before {next:?}");
        }
    }

    /// Ends the connection: everything posted comes back. Then closes all.
    fn end(&mut self) {
        let connected = self.connected && self.sides.iter().all(|side| !side.freed);
        for side in &self.sides {
            // Of an Endpoint without a connection refused.
            let _ = shared().call(EP_DISCONNECT, &[side.ep, 0]);
        }
        let until = Instant::now() + Duration::from_secs(5);
        let is_outstanding =
            |side: &Side| side.posted.iter().flatten().any(|posted| !posted.silent);
        while connected && self.sides.iter().any(is_outstanding) {
            let mut progress = false;
            for (side, of) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let evd = self.sides[side].evds[of];
                let mut event = [0_u64; EVENT];
                if shared().call(EVD_DEQUEUE, &[evd, event.as_mut_ptr() as u64]) == 0 {
                    progress = true;
                    self.completed(side, of, evd, &event);
                }
            }
            if !progress {
                let left = self.sides.each_ref().map(|side| &side.posted);
                assert!(Instant::now() < until, "posted and never completed: {left:?}");
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        for side in &self.sides {
            assert_eq!(shared().call(IA_CLOSE, &[side.ia, 0]), 0);
        }
    }
}
