//! Step 6: memory keys, windows and fast registration.

use std::time::Duration;

use dat_core::{CompletionFlags, DtoStatus, MemPriv, PhysicalPages, RmrTriplet, VaType};
use hca_mlx5::prm::cmd::Opcode;
use vfio_host::{Host, Nic};

use super::super::failure::Failure;
use super::super::traffic::memory::Memory;
use super::Run;
use super::pair::{PLAIN, Pair, contents};
use super::queue_pair::{Op, keep, link, moves, with};
use super::raw;
use super::report::{Finding, Stop, fail, skip};

/// Sizes of registrations, up to a key over several keys.
const REGIONS: [usize; 4] = [100, 4096, 1 << 20, 12 << 20];
/// Where windows are.
const AT: usize = 0x4000;
const LEN: usize = 256;
/// Pages of a fast registration.
const PAGES: u32 = 4;
const PAGE: usize = 4096;
/// Rounds of the stress of fences.
const ROUNDS: usize = 100;
/// Longest wait for an error.
const LIMIT: Duration = Duration::from_secs(5);

/// Writes `LEN` bytes from the front of the memory through a context; they are compared at `at`.
fn reaches<'p, H: Host>(
    nic: &mut Nic<'_, 'p, H>,
    pair: &Pair<'p, H>,
    far: RmrTriplet,
    at: usize,
    number: usize,
) -> Result<(), Stop> {
    let bytes = contents(number, LEN);
    pair.memory.store(0, &bytes);
    nic.ep_post_rdma_write(pair.eps[1], &[pair.local(0, LEN)], 2, &far, PLAIN)?;
    pair.done(nic, 1)?;
    let mut there = vec![0; LEN];
    pair.memory.load(at, &mut there);
    if there == bytes { Ok(()) } else { fail("the bytes did not arrive") }
}

/// The same must be refused.
fn refused<'p, H: Host>(
    nic: &mut Nic<'_, 'p, H>,
    pair: &Pair<'p, H>,
    far: RmrTriplet,
) -> Result<(), Stop> {
    nic.ep_post_rdma_write(pair.eps[1], &[pair.local(0, LEN)], 3, &far, PLAIN)?;
    let [_, found] = pair.endings(nic, LIMIT)?;
    if found.contains(&DtoStatus::ErrRemoteAccess) {
        return Ok(());
    }
    fail(format!("a write through it ended with {found:?}"))
}

/// Windows: bound, used, bound again; the context of before must be stale.
fn window<'p, H: Host>(nic: &mut Nic<'_, 'p, H>, pair: &Pair<'p, H>, own: bool) -> Finding {
    let made = if own { nic.rmr_create_for_ep(pair.pz) } else { nic.rmr_create(pair.pz) };
    let rmr = match made {
        Ok(rmr) => rmr,
        Err(refused) => return skip(format!("the device has no such windows: {refused}")),
    };
    let range = pair.local(AT, LEN);
    let mut far = pair.far(AT, LEN);
    let mut stale = 0;
    for number in 0..3 {
        let ep = pair.eps[0];
        let rights = MemPriv::REMOTE_WRITE | MemPriv::REMOTE_READ;
        stale = far.context;
        far.context = nic.rmr_bind(rmr, &range, rights, ep, 1, PLAIN)?;
        pair.done(nic, 0)?;
        reaches(nic, pair, far, AT, number)?;
    }
    if own {
        // The peer's message takes the window back.
        pair.recv(nic, 0, 0x8000, 64)?;
        let list = [pair.local(0, 16)];
        let context = Some(far.context);
        nic.ep_post_send_with_invalidate(pair.eps[1], &list, 4, PLAIN, context)?;
        pair.done(nic, 1)?;
        pair.done(nic, 0)?;
    } else {
        far.context = stale;
    }
    refused(nic, pair, far)?;
    nic.rmr_free(rmr)?;
    Ok(String::new())
}

/// Fast registration of pages by a request, twice, and its end.
fn fast<'p, H: Host>(nic: &mut Nic<'_, 'p, H>, pair: &Pair<'p, H>) -> Finding {
    let lmr = match nic.lmr_allocate(pair.pz, PAGES) {
        Ok(lmr) => lmr,
        Err(refused) => return skip(format!("not on this device: {refused}")),
    };
    let memory = nic.host().memory();
    let (start, _, _) = pair.memory.far();
    let base = usize::try_from(start.wrapping_sub(memory.addr())).unwrap_or(usize::MAX);
    let mut far = pair.far(AT, LEN);
    for number in 0..2 {
        let first = AT * (1 + number);
        let pages: Vec<u64> = (0..PAGES as usize)
            .filter_map(|page| nic.host().iova(base + first + page * PAGE))
            .map(|(iova, _)| iova)
            .collect();
        let memory =
            PhysicalPages { pages: &pages, log_page: 12, len: PAGE as u64 * u64::from(PAGES) };
        let ep = pair.eps[0];
        let made = nic.lmr_fmr(lmr, memory, MemPriv::ALL, VaType::Zb, ep, 1, PLAIN)?;
        pair.done(nic, 0)?;
        far = RmrTriplet { addr: PAGE as u64, context: made.rmr_context, ..far };
        reaches(nic, pair, far, first + PAGE, number)?;
        nic.lmr_invalidate(lmr, pair.eps[0], 5, PLAIN)?;
        pair.done(nic, 0)?;
    }
    refused(nic, pair, far)?;
    nic.lmr_free(lmr)?;
    Ok(String::new())
}

/// A write, then behind a fence a read of what it wrote.
fn fences<'p, H: Host>(nic: &mut Nic<'_, 'p, H>, pair: &Pair<'p, H>) -> Finding {
    for number in 0..ROUNDS {
        let bytes = contents(number, LEN);
        pair.memory.store(0, &bytes);
        let ep = pair.eps[0];
        nic.ep_post_rdma_write(ep, &[pair.local(0, LEN)], 1, &pair.far(AT, LEN), PLAIN)?;
        nic.ep_post_rdma_read(ep, &[pair.local(0x8000, LEN)], 2, &pair.far(AT, LEN), PLAIN)?;
        // Of what the read brings.
        let fence = CompletionFlags::BARRIER_FENCE;
        nic.ep_post_rdma_write(ep, &[pair.local(0x8000, LEN)], 3, &pair.far(0xc000, LEN), fence)?;
        for _ in 0..3 {
            pair.done(nic, 0)?;
        }
        let mut there = vec![0; LEN];
        pair.memory.load(0xc000, &mut there);
        if there != bytes {
            return fail(format!("round {number}: what was read was sent on too early"));
        }
    }
    Ok(format!("{ROUNDS} rounds"))
}

pub(super) fn run<'p, H: Host>(nic: &mut Nic<'_, 'p, H>, run: &Run<'_>) -> Result<(), Failure> {
    link(nic, run, 6)?;
    let report = run.report;
    for len in REGIONS {
        report.check(6, &format!("register.{len}"), || {
            let pz = nic.pz_create()?;
            let before = run.watch.count();
            let memory = Memory::new(nic, pz, len, MemPriv::ALL)?;
            let made = run.watch.commands(|commands| {
                let new = commands.iter().skip(before);
                new.filter(|command| command.op == Opcode::CreateMkey).count()
            });
            memory.free(nic)?;
            nic.pz_free(pz)?;
            Ok(format!("{made} keys"))
        })?;
    }
    for (own, name) in [(false, "window.type-1"), (true, "window.type-2")] {
        report.check(6, name, || {
            with(nic, run, |nic, pair| {
                let before = raw::completions(nic, false);
                let found = window(nic, pair, own);
                keep(run, nic, 6, name, &before);
                found
            })
        })?;
    }
    report.check(6, "fast-registration", || {
        with(nic, run, |nic, pair| {
            let before = raw::completions(nic, false);
            let found = fast(nic, pair);
            keep(run, nic, 6, "fast-registration", &before);
            found
        })
    })?;
    report.check(6, "fences", || with(nic, run, fences))?;
    Ok(())
}

/// Traffic while the device could write to the queues of work.
pub(super) fn writable<'p, H: Host>(
    nic: &mut Nic<'_, 'p, H>,
    run: &Run<'_>,
) -> Result<(), Failure> {
    link(nic, run, 6)?;
    run.report.check(6, "queues-writable", || {
        with(nic, run, |nic, pair| {
            for number in 0..ROUNDS {
                moves(nic, pair, Op::Send, 200, number)?;
            }
            Ok(String::new())
        })
    })?;
    Ok(())
}
