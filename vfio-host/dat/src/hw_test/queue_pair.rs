//! Step 5: a connection looped to the port itself: every operation, sizes around each boundary,
//! rings that wrap, and each error on purpose.

use std::time::Duration;

use dat_core::{DtoStatus, EpState};
use serde_json::json;
use vfio_host::{Host, Nic};

use super::super::failure::Failure;
use super::super::traffic::await_link;
use super::Run;
use super::pair::{PLAIN, Pair, Terms, contents};
use super::raw;
use super::report::{Finding, Stop, fail, skip};

/// Bytes of a pair's memory: two messages of the greatest size.
const MEMORY: usize = 4 << 20;
const LARGEST: usize = 1 << 20;
/// Where a message lands.
const THERE: usize = MEMORY / 2;
/// Sizes: none, one byte, what fits a block inline and no more, a page, many packets.
const SIZES: &[usize] = &[0, 1, 12, 13, 28, 29, 44, 45, 1024, 1025, 4096, LARGEST];
/// Requests of three rings.
const WRAPS: usize = 3 * 64;
/// Longest wait for an error by retries.
const RETRIES: Duration = Duration::from_secs(20);

/// An operation of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Send,
    Write,
    Read,
    WriteImmediate,
}

const OPS: [(Op, &str); 4] = [
    (Op::Send, "send"),
    (Op::Write, "write"),
    (Op::Read, "read"),
    (Op::WriteImmediate, "write-immediate"),
];

/// Moves `len` bytes from the front of the memory to its middle and compares them.
pub(super) fn moves<'p, H: Host>(
    nic: &mut Nic<'_, 'p, H>,
    pair: &Pair<'p, H>,
    op: Op,
    len: usize,
    number: usize,
) -> Result<(), Stop> {
    let bytes = contents(number, len);
    pair.memory.store(0, &bytes);
    pair.memory.store(THERE, &vec![!0; len]);
    let (from, to) = (pair.local(0, len), pair.far(THERE, len));
    let ep = pair.eps[0];
    if matches!(op, Op::Send | Op::WriteImmediate) {
        pair.recv(nic, 1, THERE, len.max(1))?;
    }
    let segments = if len == 0 { &[][..] } else { &[from][..] };
    match op {
        Op::Send => nic.ep_post_send(ep, segments, 1, PLAIN)?,
        Op::Write => nic.ep_post_rdma_write(ep, segments, 1, &to, PLAIN)?,
        Op::WriteImmediate => nic.ep_post_rdma_write_immed(ep, segments, 1, &to, 7, PLAIN)?,
        Op::Read => {
            let into = pair.local(THERE, len);
            let segments = if len == 0 { &[][..] } else { &[into][..] };
            nic.ep_post_rdma_read(ep, segments, 1, &pair.far(0, len), PLAIN)?;
        }
    }
    pair.done(nic, 0)?;
    if matches!(op, Op::Send | Op::WriteImmediate) {
        let got = pair.done(nic, 1)?;
        if got as usize != len {
            return fail(format!("{got} bytes of {len} arrived"));
        }
    }
    let mut there = vec![0; len];
    pair.memory.load(THERE, &mut there);
    match there.iter().zip(&bytes).position(|(there, here)| there != here) {
        None => Ok(()),
        Some(at) => fail(format!("byte {at} of {len} is wrong")),
    }
}

/// Writes completions that a check made.
pub(super) fn keep<H: Host>(
    run: &Run<'_>,
    nic: &Nic<'_, '_, H>,
    step: u8,
    what: &str,
    before: &raw::Before,
) -> usize {
    let new = raw::new_completions(nic, false, before);
    let count = new.len();
    for bytes in new {
        run.report.bytes("cqe", bytes, json!({ "step": step, "what": what }));
    }
    count
}

/// Waits for the link: what is down loses messages to itself, too.
pub(super) fn link<H: Host>(
    nic: &mut Nic<'_, '_, H>,
    run: &Run<'_>,
    step: u8,
) -> Result<(), Failure> {
    run.report.prepare(step, "link", || {
        let (name, wait) = (nic.host().name(), run.args.link);
        await_link(name, wait, || nic.provider_mut().link_up())?;
        Ok(String::new())
    })?;
    Ok(())
}

pub(super) fn run<'p, H: Host>(nic: &mut Nic<'_, 'p, H>, run: &Run<'_>) -> Result<(), Failure> {
    link(nic, run, 5)?;
    let report = run.report;
    for (op, name) in OPS {
        report.check(5, &format!("operation.{name}"), || {
            with(nic, run, |nic, pair| {
                let before = raw::completions(nic, false);
                moves(nic, pair, op, 64, 1)?;
                keep(run, nic, 5, name, &before);
                Ok(String::new())
            })
        })?;
        report.check(5, &format!("sizes.{name}"), || {
            with(nic, run, |nic, pair| {
                for (number, len) in SIZES.iter().enumerate() {
                    moves(nic, pair, op, *len, number)
                        .map_err(|stop| at(stop, &format!("{len} bytes")))?;
                }
                Ok(String::new())
            })
        })?;
    }
    report.check(5, "operation.fetch-add", || {
        with(nic, run, |nic, pair| atomic(nic, run, pair, true))
    })?;
    report.check(5, "operation.compare-swap", || {
        with(nic, run, |nic, pair| atomic(nic, run, pair, false))
    })?;
    report.check(5, "segments", || with(nic, run, segments))?;
    report.check(5, "ring-wraps", || {
        with(nic, run, |nic, pair| {
            for number in 0..WRAPS {
                moves(nic, pair, Op::Send, 100, number)?;
            }
            Ok(format!("{WRAPS} messages"))
        })
    })?;
    report.check(5, "shared-receives", || {
        let pair = Pair::new(nic, MEMORY, true)?;
        pair.connect(nic, run.net.addr, Terms::default())?;
        for number in 0..WRAPS {
            moves(nic, &pair, Op::Send, 200, number)?;
        }
        pair.free(nic)?;
        Ok(String::new())
    })?;
    report.check(5, "resize", || {
        with(nic, run, |nic, pair| {
            for (number, size) in [1000, 300, 2000].into_iter().enumerate() {
                nic.evd_resize(pair.evds[0], size)?;
                moves(nic, pair, Op::Send, 300, number)?;
            }
            Ok(String::new())
        })
    })?;
    errors(nic, run)
}

/// Says where a check stopped.
fn at(stop: Stop, what: &str) -> Stop {
    match stop {
        Stop::Fail(says) => Stop::Fail(format!("{what}: {says}")),
        Stop::Skip(says) => Stop::Skip(says),
    }
}

/// Runs `act` on a connected pair.
pub(super) fn with<'s, 'p, H: Host>(
    nic: &mut Nic<'s, 'p, H>,
    run: &Run<'_>,
    act: impl FnOnce(&mut Nic<'s, 'p, H>, &Pair<'p, H>) -> Finding,
) -> Finding {
    with_terms(nic, run, Terms::default(), act)
}

fn with_terms<'s, 'p, H: Host>(
    nic: &mut Nic<'s, 'p, H>,
    run: &Run<'_>,
    terms: Terms,
    act: impl FnOnce(&mut Nic<'s, 'p, H>, &Pair<'p, H>) -> Finding,
) -> Finding {
    let pair = Pair::connected(nic, run.net.addr, MEMORY, terms)?;
    let found = act(nic, &pair);
    let freed = pair.free(nic);
    let found = found?;
    freed.map(|()| found)
}

/// An atomic on eight bytes whose order shows.
fn atomic<'p, H: Host>(
    nic: &mut Nic<'_, 'p, H>,
    run: &Run<'_>,
    pair: &Pair<'p, H>,
    add: bool,
) -> Finding {
    const FIRST: u64 = 0x0102_0304_0506_0708;
    let before = raw::completions(nic, false);
    pair.memory.store(THERE, &FIRST.to_ne_bytes());
    let (local, far, ep) = (pair.local(0, 8), pair.far(THERE, 8), pair.eps[0]);
    let posted = if add {
        nic.ep_post_fetch_add(ep, 0x10, &local, 1, &far, PLAIN)
    } else {
        nic.ep_post_cmp_swap(ep, FIRST, FIRST + 0x10, &local, 1, &far, PLAIN)
    };
    if let Err(refused) = posted {
        return skip(format!("the driver offers no atomics on this device: {refused}"));
    }
    pair.done(nic, 0)?;
    keep(run, nic, 5, if add { "fetch-add" } else { "compare-swap" }, &before);
    let word = |at| {
        let mut bytes = [0; 8];
        pair.memory.load(at, &mut bytes);
        u64::from_ne_bytes(bytes)
    };
    let (old, new) = (word(0), word(THERE));
    if (old, new) == (FIRST, FIRST + 0x10) {
        return Ok(String::new());
    }
    fail(format!("{old:#018x} came back and {new:#018x} is there: {FIRST:#018x} was, plus 0x10"))
}

/// A message gathered from several pieces.
fn segments<'p, H: Host>(nic: &mut Nic<'_, 'p, H>, pair: &Pair<'p, H>) -> Finding {
    let lengths = [1, 100, 4096, 33];
    let (mut list, mut wanted, mut from) = (Vec::new(), Vec::new(), 0);
    for (number, len) in lengths.into_iter().enumerate() {
        let bytes = contents(number, len);
        pair.memory.store(from, &bytes);
        list.push(pair.local(from, len));
        wanted.extend(bytes);
        from += 5000;
    }
    pair.recv(nic, 1, THERE, wanted.len())?;
    nic.ep_post_send(pair.eps[0], &list, 1, PLAIN)?;
    pair.done(nic, 0)?;
    pair.done(nic, 1)?;
    let mut there = vec![0; wanted.len()];
    pair.memory.load(THERE, &mut there);
    if there == wanted { Ok(format!("{} pieces", list.len())) } else { fail("the bytes differ") }
}

/// Each error on purpose, with its completions.
fn errors<'p, H: Host>(nic: &mut Nic<'_, 'p, H>, run: &Run<'_>) -> Result<(), Failure> {
    type Provoke<H> =
        for<'a, 's, 'p> fn(&'a mut Nic<'s, 'p, H>, &'a Pair<'p, H>) -> Result<(), Stop>;
    let few = Terms { retries: [1, 1], ack_timeout: 10, ..Terms::default() };
    let nobody = Terms { misses: 0x5000, ..few };
    let cases: [(&str, Terms, DtoStatus, Provoke<H>); 7] = [
        ("local-length", few, DtoStatus::ErrRemoteResponder, |nic, pair| {
            pair.recv(nic, 1, THERE, 64)?;
            Ok(nic.ep_post_send(pair.eps[0], &[pair.local(0, 128)], 1, PLAIN)?)
        }),
        ("remote-key", few, DtoStatus::ErrRemoteAccess, |nic, pair| {
            let mut far = pair.far(THERE, 64);
            far.context ^= 0x55;
            Ok(nic.ep_post_rdma_write(pair.eps[0], &[pair.local(0, 64)], 1, &far, PLAIN)?)
        }),
        ("remote-range", few, DtoStatus::ErrRemoteAccess, |nic, pair| {
            let far = pair.far(MEMORY - 32, 64);
            Ok(nic.ep_post_rdma_read(pair.eps[0], &[pair.local(0, 64)], 1, &far, PLAIN)?)
        }),
        ("atomic-unaligned", few, DtoStatus::ErrRemoteResponder, |nic, pair| {
            let far = pair.far(THERE + 4, 8);
            match nic.ep_post_fetch_add(pair.eps[0], 1, &pair.local(0, 8), 1, &far, PLAIN) {
                Ok(()) => Ok(()),
                Err(refused) => skip(format!("the driver refuses it before the device: {refused}")),
            }
        }),
        ("no-receive", few, DtoStatus::ErrReceiverNotReady, |nic, pair| {
            Ok(nic.ep_post_send(pair.eps[0], &[pair.local(0, 64)], 1, PLAIN)?)
        }),
        ("nobody", nobody, DtoStatus::ErrTransport, |nic, pair| {
            Ok(nic.ep_post_rdma_write(
                pair.eps[0],
                &[pair.local(0, 64)],
                1,
                &pair.far(THERE, 64),
                PLAIN,
            )?)
        }),
        ("flushed", few, DtoStatus::ErrFlushed, |nic, pair| {
            // Behind one that fails.
            let mut far = pair.far(THERE, 64);
            far.context ^= 0x55;
            for cookie in 1..4 {
                nic.ep_post_rdma_write(pair.eps[0], &[pair.local(0, 64)], cookie, &far, PLAIN)?;
            }
            Ok(())
        }),
    ];
    for (name, terms, wanted, provoke) in cases {
        run.report.check(5, &format!("error.{name}"), || {
            with_terms(nic, run, terms, |nic, pair| {
                let before = raw::completions(nic, false);
                provoke(nic, pair)?;
                let [own, peers] = pair.endings(nic, RETRIES)?;
                let count = keep(run, nic, 5, name, &before);
                if !own.contains(&wanted) {
                    return fail(format!("{own:?} instead of {wanted:?}; the peer had {peers:?}"));
                }
                let state = nic.ep_query(pair.eps[0])?.state;
                if state == EpState::Connected {
                    return fail("the connection is still there");
                }
                Ok(format!("{count} completions"))
            })
        })?;
    }
    Ok(())
}
