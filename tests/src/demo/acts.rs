//! The acts, in order.
//!
//! Length: the acts in the order they are played; each is short.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use dat_core::{
    CloseFlag, CompletionFlags, DtoEvent, DtoOperation, DtoStatus, Ep, EpState, Evd, EvdFlags,
    Event, LmrParam, LmrTriplet, MemPriv, PspFlag, Pz, Qos, RmrTriplet,
};
use hca_mlx5::dma::Buffer;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::stage::{Done, LIMIT, Play};
use crate::host::inproc::Slot;

/// The service point the passive side listens at.
const QUALIFIER: u64 = 4711;
/// What the active side says with its request, and the passive side with its acceptance.
const HELLO: &[u8] = b"hello over QP1";
const WELCOME: &[u8] = b"welcome";
/// Bytes of the small buffers at each side.
const SMALL: usize = 16 << 10;

/// Attempts to connect that a stale connection at the peer may cost.
const ATTEMPTS: usize = 8;

const NONE: CompletionFlags = CompletionFlags::empty();

/// One side's objects.
struct Side<'s> {
    pz: Pz,
    dto: Evd,
    conn: Evd,
    ep: Ep,
    small: Buffer<'s, Slot>,
    lmr: LmrParam,
    bulk: Buffer<'s, Slot>,
    bulk_lmr: LmrParam,
}

/// Byte `i` of the contents numbered `n`: no two of a demo alike.
fn pattern(n: u32, i: usize) -> u8 {
    let x = (i as u32 ^ n.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
    (x >> 13) as u8
}

fn fill(n: u32, bytes: &mut [u8]) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = pattern(n, i);
    }
}

fn check(n: u32, bytes: &[u8], what: &str) -> Result<()> {
    match bytes
        .iter()
        .enumerate()
        .find(|&(i, &byte)| byte != pattern(n, i))
    {
        None => Ok(()),
        Some((i, byte)) => bail!(
            "{what}: byte {i} of {} is {byte:#04x}, not {:#04x}",
            bytes.len(),
            pattern(n, i)
        ),
    }
}

/// Plays everything.
pub(super) fn all(play: &mut Play<'_, '_>) -> Result<()> {
    let mut sides = None;
    play.act("objects of both sides", |play| {
        sides = Some((objects(play, 0)?, objects(play, 1)?));
        Ok(Done::new(2, 0, "PZ, EVDs, EP, two LMRs each"))
    })?;
    let (a, b) = sides.ok_or_else(|| anyhow!("there are no sides"))?;
    let cr = play.pair.ias[1]
        .evd_create(16, EvdFlags::CR)
        .map_err(|e| anyhow!("{e}"))?;
    let psp = play.pair.ias[1]
        .psp_create(QUALIFIER, cr, PspFlag::Consumer)
        .map_err(|e| anyhow!("{e}"))?;

    play.act("address resolution and connect", |play| {
        connect(play, &a, &b, cr)?;
        let kind = if play.options.ipv6 { "IPv6 ND" } else { "ARP" };
        Ok(Done::new(
            1,
            0,
            format!("{kind}, REQ/REP/RTU; private data both ways"),
        ))
    })?;
    play.act("send and receive", |play| send_receive(play, &a, &b))?;
    play.act("RDMA write", |play| write(play, &a, &b))?;
    play.act("RDMA read", |play| read(play, &a, &b))?;
    bulk(play, &a, &b)?;
    play.act("RMR bind, write inside the window", |play| {
        window(play, &a, &b)
    })?;
    play.act("reset of both, reconnect", |play| {
        for (side, ep) in [(0, a.ep), (1, b.ep)] {
            play.pair.ias[side]
                .ep_reset(ep)
                .map_err(|e| anyhow!("{e}"))?;
        }
        connect(play, &a, &b, cr)?;
        send_receive(play, &a, &b)?;
        Ok(Done::new(
            1,
            0,
            "new queue pair state, new PSNs; traffic flows",
        ))
    })?;
    play.act("graceful disconnect under load", |play| {
        graceful(play, &a, &b)
    })?;

    for (side, own) in [(0, a), (1, b)] {
        let ia = &mut play.pair.ias[side];
        let now = dat_core::Instant::from_nanos(play.pair.world.now());
        let mut free = || -> Result<(), dat_core::Error> {
            ia.ep_free(now, own.ep)?;
            if side == 1 {
                ia.psp_free(psp)?;
                ia.evd_free(cr)?;
            }
            ia.lmr_free(own.lmr.lmr)?;
            ia.lmr_free(own.bulk_lmr.lmr)?;
            ia.pz_free(own.pz)?;
            ia.evd_free(own.dto)?;
            ia.evd_free(own.conn)
        };
        free().map_err(|e| anyhow!("freeing the objects of side {side}: {e}"))?;
        own.small.release();
        own.bulk.release();
    }
    Ok(())
}

fn objects<'s>(play: &mut Play<'s, '_>, side: usize) -> Result<Side<'s>> {
    let depth = play.depth;
    let slot = play.pair.slots[side];
    let ia = &mut play.pair.ias[side];
    let small = Buffer::zeroed(slot, SMALL).context("no memory for the small buffers")?;
    let bulk = Buffer::zeroed(slot, play.options.size * depth)
        .context("no memory for the bulk buffers")?;
    let mut make = || {
        let pz = ia.pz_create()?;
        let dto = ia.evd_create(256, EvdFlags::DTO | EvdFlags::RMR_BIND)?;
        let conn = ia.evd_create(16, EvdFlags::CONNECTION)?;
        let ep = ia.ep_create(Some(pz), Some(dto), Some(dto), Some(conn), None)?;
        let lmr = ia.lmr_create(pz, small.region(), MemPriv::ALL)?;
        let bulk_lmr = ia.lmr_create(pz, bulk.region(), MemPriv::ALL)?;
        Ok::<_, dat_core::Error>((pz, dto, conn, ep, lmr, bulk_lmr))
    };
    let (pz, dto, conn, ep, lmr, bulk_lmr) = make().map_err(|e| anyhow!("side {side}: {e}"))?;
    Ok(Side {
        pz,
        dto,
        conn,
        ep,
        small,
        lmr,
        bulk,
        bulk_lmr,
    })
}

fn local(lmr: &LmrParam, at: usize, len: usize) -> [LmrTriplet; 1] {
    [LmrTriplet {
        addr: lmr.region.addr + at as u64,
        len: len as u32,
        context: lmr.lmr_context,
    }]
}

fn remote(lmr: &LmrParam, at: usize, len: usize) -> RmrTriplet {
    RmrTriplet {
        addr: lmr.region.addr + at as u64,
        len: len as u32,
        context: lmr.rmr_context,
    }
}

fn expect_event(play: &mut Play<'_, '_>, side: usize, evd: Evd) -> Result<Event> {
    play.pair.wait(side, evd, LIMIT).ok_or_else(|| {
        anyhow!(
            "side {side}: no event within {} s of model time",
            LIMIT.as_secs()
        )
    })
}

fn expect_dto(
    play: &mut Play<'_, '_>,
    side: usize,
    evd: Evd,
    operation: DtoOperation,
    cookie: u64,
) -> Result<u32> {
    match expect_event(play, side, evd)? {
        Event::Dto(DtoEvent {
            status: DtoStatus::Success,
            len,
            operation: o,
            cookie: c,
            ..
        }) if o == operation && c == cookie => Ok(len),
        other => bail!("side {side}: expected {operation:?} with cookie {cookie}, got {other:?}"),
    }
}

fn connect(play: &mut Play<'_, '_>, a: &Side<'_>, b: &Side<'_>, cr: Evd) -> Result<()> {
    let to = play.pair.stage.address(1);
    let mut asked = None;
    for _ in 0..ATTEMPTS {
        let now = play.pair.now();
        play.pair.ias[0]
            .ep_connect(now, a.ep, to, QUALIFIER, LIMIT, HELLO, Qos::BestEffort)
            .map_err(|e| anyhow!("{e}"))?;
        asked = play.pair.until(LIMIT, |pair| {
            let request = pair.ias[1].evd_dequeue(cr).ok();
            request.or_else(|| pair.ias[0].evd_dequeue(a.conn).ok())
        });
        if asked != Some(Event::NonPeerRejected(a.ep)) {
            break;
        }
        // On a lossy wire the peer may not have heard of the end of the last connection yet, and takes this one for a
        // ghost of it. Now it knows.
        play.pair.ias[0]
            .ep_reset(a.ep)
            .map_err(|e| anyhow!("{e}"))?;
    }
    let Some(Event::ConnectionRequest { cr, conn_qual, .. }) = asked else {
        bail!("no connection request came to the passive side, but {asked:?}")
    };
    ensure!(conn_qual == QUALIFIER, "the request is for {conn_qual}");
    let request = play.pair.ias[1].cr_query(cr).map_err(|e| anyhow!("{e}"))?;
    ensure!(
        request.private_data.starts_with(HELLO),
        "the request's private data is not what was sent"
    );
    ensure!(
        request.remote == play.pair.stage.address(0),
        "the request came from {}",
        request.remote
    );
    let now = play.pair.now();
    play.pair.ias[1]
        .cr_accept(now, cr, Some(b.ep), WELCOME)
        .map_err(|e| anyhow!("{e}"))?;
    for (side, own) in [(0, a), (1, b)] {
        let event = expect_event(play, side, own.conn)?;
        ensure!(
            event == Event::Established(own.ep),
            "side {side}: expected ESTABLISHED, got {event:?}"
        );
    }
    let private = play.pair.ias[0]
        .ep_private_data(a.ep)
        .map_err(|e| anyhow!("{e}"))?;
    ensure!(
        private.starts_with(WELCOME),
        "the acceptance's private data is not what was sent"
    );
    Ok(())
}

fn post_recv(
    play: &mut Play<'_, '_>,
    side: usize,
    own: &Side<'_>,
    at: usize,
    len: usize,
    cookie: u64,
) -> Result<()> {
    play.pair.ias[side]
        .ep_post_recv(own.ep, &local(&own.lmr, at, len), cookie, NONE)
        .map_err(|e| anyhow!("post_recv: {e}"))
}

fn send_receive(play: &mut Play<'_, '_>, a: &Side<'_>, b: &Side<'_>) -> Result<Done> {
    let sizes = [0, 1, 8, 64, 1000, 4096, 8000];
    let mut bytes = vec![0; SMALL];
    for (n, &len) in sizes.iter().enumerate() {
        for (from, to, sender, receiver) in [(0, 1, a, b), (1, 0, b, a)] {
            let cookie = (n as u64) << 8 | from as u64;
            post_recv(play, to, receiver, 0, 8192, cookie)?;
            let content = (100 * n + from) as u32;
            fill(content, &mut bytes[..len]);
            sender.small.copy_in(8192, &bytes[..len]);
            play.pair.ias[from]
                .ep_post_send(sender.ep, &local(&sender.lmr, 8192, len), cookie, NONE)
                .map_err(|e| anyhow!("post_send: {e}"))?;
            expect_dto(play, from, sender.dto, DtoOperation::Send, cookie)?;
            let got = expect_dto(play, to, receiver.dto, DtoOperation::Receive, cookie)?;
            ensure!(got as usize == len, "{got} bytes received, {len} sent");
            receiver.small.copy_out(0, &mut bytes[..len]);
            check(content, &bytes[..len], "receive")?;
        }
    }
    Ok(Done::new(
        2 * sizes.len() as u64,
        0,
        "both ways, 0 to 8000 bytes",
    ))
}

fn write(play: &mut Play<'_, '_>, a: &Side<'_>, b: &Side<'_>) -> Result<Done> {
    let len = 4096;
    let mut bytes = vec![0; len];
    for n in 0..16 {
        fill(1000 + n, &mut bytes);
        a.small.copy_in(0, &bytes);
        play.pair.ias[0]
            .ep_post_rdma_write(
                a.ep,
                &local(&a.lmr, 0, len),
                n.into(),
                &remote(&b.lmr, 4096, len),
                NONE,
            )
            .map_err(|e| anyhow!("post_rdma_write: {e}"))?;
        expect_dto(play, 0, a.dto, DtoOperation::RdmaWrite, n.into())?;
        seen(play, 1);
        b.small.copy_out(4096, &mut bytes);
        check(1000 + n, &bytes, "written memory")?;
    }
    Ok(Done::new(16, len as u64, "verified at the target"))
}

fn read(play: &mut Play<'_, '_>, a: &Side<'_>, b: &Side<'_>) -> Result<Done> {
    let len = 4096;
    let mut bytes = vec![0; len];
    for n in 0..16 {
        fill(2000 + n, &mut bytes);
        b.small.copy_in(0, &bytes);
        seen(play, 1);
        play.pair.ias[0]
            .ep_post_rdma_read(
                a.ep,
                &local(&a.lmr, 8192, len),
                n.into(),
                &remote(&b.lmr, 0, len),
                NONE,
            )
            .map_err(|e| anyhow!("post_rdma_read: {e}"))?;
        let got = expect_dto(play, 0, a.dto, DtoOperation::RdmaRead, n.into())?;
        ensure!(got as usize == len, "{got} bytes read");
        a.small.copy_out(8192, &mut bytes);
        check(2000 + n, &bytes, "memory read")?;
    }
    Ok(Done::new(16, len as u64, "verified at the reader"))
}

/// What a consumer that is not told of a peer's access has to do before it looks: pass a point of order of its own.
fn seen(play: &Play<'_, '_>, side: usize) {
    use hca_mlx5::platform::Platform;
    let slot = play.pair.slots[side];
    slot.before_doorbell();
    slot.after_ownership();
}

fn bar(play: &Play<'_, '_>, label: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(u64::from(play.options.count));
    if play.options.json {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{msg:<12} {wide_bar} {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    bar.set_message(label);
    bar
}

/// Many transfers with several in flight: written to the peer, verified there, read back, verified here.
fn bulk(play: &mut Play<'_, '_>, a: &Side<'_>, b: &Side<'_>) -> Result<()> {
    let (size, count, depth) = (play.options.size, play.options.count, play.depth as u32);
    let mut bytes = vec![0; size];
    let slice = |n: u32| (n % depth) as usize * size;
    play.act("bulk RDMA write", |play| {
        let bar = bar(play, "bulk write");
        let (mut posted, mut done) = (0, 0);
        while done < count {
            while posted < count && posted < done + depth {
                fill(posted, &mut bytes);
                a.bulk.copy_in(slice(posted), &bytes);
                let (from, to) = (
                    local(&a.bulk_lmr, slice(posted), size),
                    remote(&b.bulk_lmr, slice(posted), size),
                );
                play.pair.ias[0]
                    .ep_post_rdma_write(a.ep, &from, posted.into(), &to, NONE)
                    .map_err(|e| anyhow!("post_rdma_write {posted}: {e}"))?;
                posted += 1;
            }
            expect_dto(play, 0, a.dto, DtoOperation::RdmaWrite, done.into())?;
            seen(play, 1);
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
    play.act("bulk RDMA read", |play| {
        let bar = bar(play, "bulk read");
        let (mut posted, mut done) = (0, 0);
        while done < count {
            while posted < count && posted < done + depth {
                fill(!posted, &mut bytes);
                b.bulk.copy_in(slice(posted), &bytes);
                seen(play, 1);
                let (to, from) = (
                    local(&a.bulk_lmr, slice(posted), size),
                    remote(&b.bulk_lmr, slice(posted), size),
                );
                play.pair.ias[0]
                    .ep_post_rdma_read(a.ep, &to, posted.into(), &from, NONE)
                    .map_err(|e| anyhow!("post_rdma_read {posted}: {e}"))?;
                posted += 1;
            }
            expect_dto(play, 0, a.dto, DtoOperation::RdmaRead, done.into())?;
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
fn window(play: &mut Play<'_, '_>, a: &Side<'_>, b: &Side<'_>) -> Result<Done> {
    let rmr = play.pair.ias[1]
        .rmr_create(b.pz)
        .map_err(|e| anyhow!("rmr_create: {e}"))?;
    let opened = local(&b.lmr, 4096, 1024)[0];
    let context = play.pair.ias[1]
        .rmr_bind(rmr, &opened, MemPriv::REMOTE_WRITE, b.ep, 77, NONE)
        .map_err(|e| anyhow!("rmr_bind: {e}"))?;
    match expect_event(play, 1, b.dto)? {
        Event::RmrBind {
            rmr: r,
            cookie: 77,
            status: DtoStatus::Success,
        } if r == rmr => {}
        other => bail!("expected the bind's completion, got {other:?}"),
    }
    let mut bytes = vec![0; 1024];
    fill(3000, &mut bytes);
    a.small.copy_in(0, &bytes);
    let inside = RmrTriplet {
        addr: opened.addr,
        len: 1024,
        context,
    };
    play.pair.ias[0]
        .ep_post_rdma_write(a.ep, &local(&a.lmr, 0, 1024), 1, &inside, NONE)
        .map_err(|e| anyhow!("write inside: {e}"))?;
    expect_dto(play, 0, a.dto, DtoOperation::RdmaWrite, 1)?;
    seen(play, 1);
    b.small.copy_out(4096, &mut bytes);
    check(3000, &bytes, "window")?;

    // One byte too far, with a receive and a request behind it that must come back flushed.
    let before = {
        let mut all = vec![0; SMALL];
        b.small.copy_out(0, &mut all);
        all
    };
    post_recv(play, 0, a, 0, 64, 90)?;
    post_recv(play, 1, b, 0, 64, 91)?;
    let outside = RmrTriplet {
        addr: opened.addr + 1,
        len: 1024,
        context,
    };
    play.pair.ias[0]
        .ep_post_rdma_write(a.ep, &local(&a.lmr, 0, 1024), 2, &outside, NONE)
        .map_err(|e| anyhow!("write outside: {e}"))?;
    play.pair.ias[0]
        .ep_post_rdma_write(a.ep, &local(&a.lmr, 0, 8), 3, &inside, NONE)
        .map_err(|e| anyhow!("write behind it: {e}"))?;
    let mut said = Vec::new();
    for _ in 0..3 {
        match expect_event(play, 0, a.dto)? {
            Event::Dto(dto) => said.push((dto.cookie, dto.status)),
            other => bail!("expected completions, got {other:?}"),
        }
    }
    said.sort_by_key(|(cookie, _)| *cookie);
    let wanted = [
        (2, DtoStatus::ErrRemoteAccess),
        (3, DtoStatus::ErrFlushed),
        (90, DtoStatus::ErrFlushed),
    ];
    // The NAK is said once and may be lost: then the peer's disconnect is all this side hears.
    let unheard = [(2, DtoStatus::ErrFlushed), wanted[1], wanted[2]];
    let lossy = play.options.loss > 0.0;
    ensure!(
        said == wanted || lossy && said == unheard,
        "the write outside and what followed it completed as {said:?}"
    );
    for (side, own) in [(0, a), (1, b)] {
        let event = expect_event(play, side, own.conn)?;
        let ended = matches!(event, Event::Broken(ep) | Event::Disconnected(ep) if ep == own.ep);
        ensure!(
            ended,
            "side {side}: expected the end of the connection, got {event:?}"
        );
        let state = play.pair.ias[side]
            .ep_get_status(own.ep)
            .map_err(|e| anyhow!("{e}"))?
            .state;
        ensure!(
            state == EpState::Disconnected,
            "side {side} is in {state:?}"
        );
    }
    match expect_event(play, 1, b.dto)? {
        Event::Dto(DtoEvent {
            cookie: 91,
            status: DtoStatus::ErrFlushed,
            ..
        }) => {}
        other => bail!("the target's receive came back as {other:?}"),
    }
    let mut after = vec![0; SMALL];
    b.small.copy_out(0, &mut after);
    ensure!(
        before == after,
        "the refused write changed the target's memory"
    );
    play.pair.ias[1]
        .rmr_free(rmr)
        .map_err(|e| anyhow!("rmr_free: {e}"))?;
    Ok(Done::new(
        3,
        0,
        "one byte outside: REMOTE_ACCESS, flushed, broken",
    ))
}

fn graceful(play: &mut Play<'_, '_>, a: &Side<'_>, b: &Side<'_>) -> Result<Done> {
    let load = 32;
    let len = 4096;
    let mut bytes = vec![0; len];
    fill(4000, &mut bytes);
    a.small.copy_in(0, &bytes);
    post_recv(play, 0, a, 8192, 64, 500)?;
    for n in 0..load {
        play.pair.ias[0]
            .ep_post_rdma_write(
                a.ep,
                &local(&a.lmr, 0, len),
                n,
                &remote(&b.lmr, 0, len),
                NONE,
            )
            .map_err(|e| anyhow!("post_rdma_write {n}: {e}"))?;
    }
    let now = play.pair.now();
    play.pair.ias[0]
        .ep_disconnect(now, a.ep, CloseFlag::Graceful)
        .map_err(|e| anyhow!("{e}"))?;
    for n in 0..load {
        expect_dto(play, 0, a.dto, DtoOperation::RdmaWrite, n)?;
    }
    match expect_event(play, 0, a.dto)? {
        Event::Dto(DtoEvent {
            cookie: 500,
            status: DtoStatus::ErrFlushed,
            ..
        }) => {}
        other => bail!("the receive came back as {other:?}"),
    }
    for (side, own) in [(0, a), (1, b)] {
        let event = expect_event(play, side, own.conn)?;
        ensure!(
            event == Event::Disconnected(own.ep),
            "side {side}: got {event:?}"
        );
        let more = play.pair.wait(side, own.conn, Duration::from_millis(50));
        ensure!(
            more.is_none(),
            "side {side}: a second event {more:?} after the last one"
        );
    }
    seen(play, 1);
    b.small.copy_out(0, &mut bytes);
    check(4000, &bytes, "memory after the disconnect")?;
    Ok(Done::new(
        load,
        len as u64,
        "all requests succeeded first; one DISCONNECTED each",
    ))
}
