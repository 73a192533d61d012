//! The acts, in the order in which they run.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use dat_core::{CloseFlag, DtoEvent, DtoOperation, DtoStatus, EpState, Event, MemPriv, RmrTriplet};
use hca_mlx5::platform::{Dma, Fence};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::environment::Environment;
use super::run::{Done, Run};
use super::table::{
    NONE, SMALL, Side, Table, check, expect_dto, expect_event, fill, local, post_recv, remote,
};

/// Runs all acts.
///
/// # Errors
/// The first thing that was not as it should be.
pub fn all<'s, G: Environment<'s>>(run: &mut Run<'_, G>) -> Result<()> {
    let mut set = None;
    run.act("objects of both sides", |run| {
        set = Some(Table::set(run)?);
        Ok(Done::new(2, 0, "PZ, EVDs, EP, two LMRs each"))
    })?;
    let table = set.context("there is no table")?;
    let [a, b] = &table.sides;
    run.act("address resolution and connect", |run| {
        table.connect(run)?;
        let kind = if run.options.ipv6 { "IPv6 ND" } else { "ARP" };
        Ok(Done::new(1, 0, format!("{kind}, REQ/REP/RTU; private data both ways")))
    })?;
    run.act("send and receive", |run| send_receive(run, a, b))?;
    run.act("RDMA write", |run| write(run, a, b))?;
    run.act("RDMA read", |run| read(run, a, b))?;
    bulk(run, a, b)?;
    run.act("RMR bind, write inside the window", |run| window(run, a, b))?;
    run.act("reset of both, reconnect", |run| {
        for (side, ep) in [(0, a.ep), (1, b.ep)] {
            run.env.ia(side).ep_reset(ep).map_err(|e| anyhow!("{e}"))?;
        }
        table.connect(run)?;
        send_receive(run, a, b)?;
        Ok(Done::new(1, 0, "new queue pair state, new PSNs; traffic flows"))
    })?;
    run.act("graceful disconnect under load", |run| graceful(run, a, b))?;

    table.free(run)
}

fn send_receive<'s, G: Environment<'s>>(
    run: &mut Run<'_, G>,
    a: &Side<'s, G>,
    b: &Side<'s, G>,
) -> Result<Done> {
    let sizes = [0, 1, 8, 64, 1000, 4096, 8000];
    let mut bytes = vec![0; SMALL];
    for (n, &len) in sizes.iter().enumerate() {
        for (from, to, sender, receiver) in [(0, 1, a, b), (1, 0, b, a)] {
            let cookie = (n as u64) << 8 | from as u64;
            post_recv(run, to, receiver, 0, 8192, cookie)?;
            let content = (100 * n + from) as u32;
            fill(content, &mut bytes[..len]);
            sender.small.copy_in(8192, &bytes[..len]);
            run.env
                .ia(from)
                .ep_post_send(sender.ep, &local(&sender.lmr, 8192, len), cookie, NONE)
                .map_err(|e| anyhow!("post_send: {e}"))?;
            expect_dto(run, from, sender.dto, DtoOperation::Send, cookie)?;
            let got = expect_dto(run, to, receiver.dto, DtoOperation::Receive, cookie)?;
            ensure!(got as usize == len, "{got} bytes received, {len} sent");
            receiver.small.copy_out(0, &mut bytes[..len]);
            check(content, &bytes[..len], "receive")?;
        }
    }
    Ok(Done::new(2 * sizes.len() as u64, 0, "both ways, 0 to 8000 bytes"))
}

fn write<'s, G: Environment<'s>>(
    run: &mut Run<'_, G>,
    a: &Side<'s, G>,
    b: &Side<'s, G>,
) -> Result<Done> {
    let len = 4096;
    let mut bytes = vec![0; len];
    for n in 0..16 {
        fill(1000 + n, &mut bytes);
        a.small.copy_in(0, &bytes);
        run.env
            .ia(0)
            .ep_post_rdma_write(
                a.ep,
                &local(&a.lmr, 0, len),
                n.into(),
                &remote(&b.lmr, 4096, len),
                NONE,
            )
            .map_err(|e| anyhow!("post_rdma_write: {e}"))?;
        expect_dto(run, 0, a.dto, DtoOperation::RdmaWrite, n.into())?;
        seen(run, 1);
        b.small.copy_out(4096, &mut bytes);
        check(1000 + n, &bytes, "written memory")?;
    }
    Ok(Done::new(16, len as u64, "verified at the target"))
}

fn read<'s, G: Environment<'s>>(
    run: &mut Run<'_, G>,
    a: &Side<'s, G>,
    b: &Side<'s, G>,
) -> Result<Done> {
    let len = 4096;
    let mut bytes = vec![0; len];
    for n in 0..16 {
        fill(2000 + n, &mut bytes);
        b.small.copy_in(0, &bytes);
        seen(run, 1);
        run.env
            .ia(0)
            .ep_post_rdma_read(
                a.ep,
                &local(&a.lmr, 8192, len),
                n.into(),
                &remote(&b.lmr, 0, len),
                NONE,
            )
            .map_err(|e| anyhow!("post_rdma_read: {e}"))?;
        let got = expect_dto(run, 0, a.dto, DtoOperation::RdmaRead, n.into())?;
        ensure!(got as usize == len, "{got} bytes read");
        a.small.copy_out(8192, &mut bytes);
        check(2000 + n, &bytes, "memory read")?;
    }
    Ok(Done::new(16, len as u64, "verified at the reader"))
}

/// Orders a side's reads after a peer's accesses that no completion reports.
fn seen<'s, G: Environment<'s>>(run: &Run<'_, G>, side: usize) {
    let slot = run.env.platform(side);
    slot.fence(Fence::BeforeDoorbell);
    slot.fence(Fence::AfterOwnership);
}

fn bar<'s, G: Environment<'s>>(run: &Run<'_, G>, label: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(u64::from(run.options.count));
    if run.options.json {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{msg:<12} {wide_bar} {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    bar.set_message(label);
    bar
}

/// Many transfers with several in flight: written to the peer, verified there, read back, verified
/// here.
fn bulk<'s, G: Environment<'s>>(
    run: &mut Run<'_, G>,
    a: &Side<'s, G>,
    b: &Side<'s, G>,
) -> Result<()> {
    let (size, count, depth) = (run.options.size, run.options.count, run.depth as u32);
    let mut bytes = vec![0; size];
    let slice = |n: u32| (n % depth) as usize * size;
    run.act("bulk RDMA write", |run| {
        let bar = bar(run, "bulk write");
        let (mut posted, mut done) = (0, 0);
        while done < count {
            while posted < count && posted < done + depth {
                fill(posted, &mut bytes);
                a.bulk.copy_in(slice(posted), &bytes);
                let (from, to) = (
                    local(&a.bulk_lmr, slice(posted), size),
                    remote(&b.bulk_lmr, slice(posted), size),
                );
                run.env
                    .ia(0)
                    .ep_post_rdma_write(a.ep, &from, posted.into(), &to, NONE)
                    .map_err(|e| anyhow!("post_rdma_write {posted}: {e}"))?;
                posted += 1;
            }
            expect_dto(run, 0, a.dto, DtoOperation::RdmaWrite, done.into())?;
            seen(run, 1);
            b.bulk.copy_out(slice(done), &mut bytes);
            check(done, &bytes, "bulk write")?;
            done += 1;
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(Done::new(
            count.into(),
            size as u64,
            format!("{depth} in flight, verified at the target"),
        ))
    })?;
    run.act("bulk RDMA read", |run| {
        let bar = bar(run, "bulk read");
        let (mut posted, mut done) = (0, 0);
        while done < count {
            while posted < count && posted < done + depth {
                fill(!posted, &mut bytes);
                b.bulk.copy_in(slice(posted), &bytes);
                seen(run, 1);
                let (to, from) = (
                    local(&a.bulk_lmr, slice(posted), size),
                    remote(&b.bulk_lmr, slice(posted), size),
                );
                run.env
                    .ia(0)
                    .ep_post_rdma_read(a.ep, &to, posted.into(), &from, NONE)
                    .map_err(|e| anyhow!("post_rdma_read {posted}: {e}"))?;
                posted += 1;
            }
            expect_dto(run, 0, a.dto, DtoOperation::RdmaRead, done.into())?;
            a.bulk.copy_out(slice(done), &mut bytes);
            check(!done, &bytes, "bulk read")?;
            done += 1;
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(Done::new(
            count.into(),
            size as u64,
            format!("{depth} in flight, verified at the reader"),
        ))
    })
}

/// A window: what lies inside can be written, what lies outside breaks the connection.
fn window<'s, G: Environment<'s>>(
    run: &mut Run<'_, G>,
    a: &Side<'s, G>,
    b: &Side<'s, G>,
) -> Result<Done> {
    let rmr = run.env.ia(1).rmr_create(b.pz).map_err(|e| anyhow!("rmr_create: {e}"))?;
    let opened = local(&b.lmr, 4096, 1024)[0];
    let context = run
        .env
        .ia(1)
        .rmr_bind(rmr, &opened, MemPriv::REMOTE_WRITE, b.ep, 77, NONE)
        .map_err(|e| anyhow!("rmr_bind: {e}"))?;
    match expect_event(run, 1, b.dto)? {
        Event::RmrBind { rmr: r, cookie: 77, status: DtoStatus::Success } if r == rmr => {}
        other => bail!("expected the bind's completion, got {other:?}"),
    }
    let mut bytes = vec![0; 1024];
    fill(3000, &mut bytes);
    a.small.copy_in(0, &bytes);
    let inside = RmrTriplet { addr: opened.addr, len: 1024, context };
    run.env
        .ia(0)
        .ep_post_rdma_write(a.ep, &local(&a.lmr, 0, 1024), 1, &inside, NONE)
        .map_err(|e| anyhow!("write inside: {e}"))?;
    expect_dto(run, 0, a.dto, DtoOperation::RdmaWrite, 1)?;
    seen(run, 1);
    b.small.copy_out(4096, &mut bytes);
    check(3000, &bytes, "window")?;

    // One byte too far, with a receive and a request behind it that must come back flushed.
    let before = {
        let mut all = vec![0; SMALL];
        b.small.copy_out(0, &mut all);
        all
    };
    post_recv(run, 0, a, 0, 64, 90)?;
    post_recv(run, 1, b, 0, 64, 91)?;
    let outside = RmrTriplet { addr: opened.addr + 1, len: 1024, context };
    run.env
        .ia(0)
        .ep_post_rdma_write(a.ep, &local(&a.lmr, 0, 1024), 2, &outside, NONE)
        .map_err(|e| anyhow!("write outside: {e}"))?;
    run.env
        .ia(0)
        .ep_post_rdma_write(a.ep, &local(&a.lmr, 0, 8), 3, &inside, NONE)
        .map_err(|e| anyhow!("write behind it: {e}"))?;
    let mut said = Vec::new();
    for _ in 0..3 {
        match expect_event(run, 0, a.dto)? {
            Event::Dto(dto) => said.push((dto.cookie, dto.status)),
            other => bail!("expected completions, got {other:?}"),
        }
    }
    said.sort_by_key(|(cookie, _)| *cookie);
    let wanted =
        [(2, DtoStatus::ErrRemoteAccess), (3, DtoStatus::ErrFlushed), (90, DtoStatus::ErrFlushed)];
    // The NAK is sent once and may be lost: then this side sees only the peer's disconnect.
    let without_nak = [(2, DtoStatus::ErrFlushed), wanted[1], wanted[2]];
    let lossy = run.options.loss > 0.0;
    ensure!(
        said == wanted || lossy && said == without_nak,
        "the write outside and what followed it completed as {said:?}"
    );
    for (side, own) in [(0, a), (1, b)] {
        let event = expect_event(run, side, own.conn)?;
        let ended = matches!(event, Event::Broken(ep) | Event::Disconnected(ep) if ep == own.ep);
        ensure!(ended, "side {side}: expected the end of the connection, got {event:?}");
        let state = run.env.ia(side).ep_get_status(own.ep).map_err(|e| anyhow!("{e}"))?.state;
        ensure!(state == EpState::Disconnected, "side {side} is in {state:?}");
    }
    match expect_event(run, 1, b.dto)? {
        Event::Dto(DtoEvent { cookie: 91, status: DtoStatus::ErrFlushed, .. }) => {}
        other => bail!("the target's receive came back as {other:?}"),
    }
    let mut after = vec![0; SMALL];
    b.small.copy_out(0, &mut after);
    ensure!(before == after, "the refused write changed the target's memory");
    run.env.ia(1).rmr_free(rmr).map_err(|e| anyhow!("rmr_free: {e}"))?;
    Ok(Done::new(3, 0, "one byte outside: REMOTE_ACCESS, flushed, broken"))
}

fn graceful<'s, G: Environment<'s>>(
    run: &mut Run<'_, G>,
    a: &Side<'s, G>,
    b: &Side<'s, G>,
) -> Result<Done> {
    let load = 32;
    let len = 4096;
    let mut bytes = vec![0; len];
    fill(4000, &mut bytes);
    a.small.copy_in(0, &bytes);
    post_recv(run, 0, a, 8192, 64, 500)?;
    for n in 0..load {
        run.env
            .ia(0)
            .ep_post_rdma_write(a.ep, &local(&a.lmr, 0, len), n, &remote(&b.lmr, 0, len), NONE)
            .map_err(|e| anyhow!("post_rdma_write {n}: {e}"))?;
    }
    let now = run.env.now();
    run.env.ia(0).ep_disconnect(now, a.ep, CloseFlag::Graceful).map_err(|e| anyhow!("{e}"))?;
    for n in 0..load {
        expect_dto(run, 0, a.dto, DtoOperation::RdmaWrite, n)?;
    }
    match expect_event(run, 0, a.dto)? {
        Event::Dto(DtoEvent { cookie: 500, status: DtoStatus::ErrFlushed, .. }) => {}
        other => bail!("the receive came back as {other:?}"),
    }
    for (side, own) in [(0, a), (1, b)] {
        let event = expect_event(run, side, own.conn)?;
        ensure!(event == Event::Disconnected(own.ep), "side {side}: got {event:?}");
        let more = run.env.first(&[(side, own.conn)], Duration::from_millis(50))?;
        ensure!(more.is_none(), "side {side}: a second event {more:?} after the last one");
    }
    seen(run, 1);
    b.small.copy_out(0, &mut bytes);
    check(4000, &bytes, "memory after the disconnect")?;
    Ok(Done::new(load, len as u64, "all requests succeeded first; one DISCONNECTED each"))
}
