//! The objects of both sides: made, connected and freed.

use anyhow::{Context, Result, anyhow, bail, ensure};
use dat_core::{
    CompletionFlags, DtoEvent, DtoOperation, DtoStatus, Ep, Evd, EvdFlags, Event, LmrParam,
    LmrTriplet, MemPriv, Psp, PspFlag, Pz, Qos, RmrTriplet,
};
use hca_mlx5::dma::Buffer;

use super::environment::Environment;
use super::run::{LIMIT, Run};

/// The service point the passive side listens at.
const QUALIFIER: u64 = 4711;
/// Private data of the active side's request, and of the passive side's acceptance.
const HELLO: &[u8] = b"hello over QP1";
const WELCOME: &[u8] = b"welcome";
/// Bytes of the small buffers at each side.
pub(super) const SMALL: usize = 16 << 10;

/// Attempts to connect that a stale connection at the peer may cost.
const ATTEMPTS: usize = 8;

/// No flags.
pub(crate) const NONE: CompletionFlags = CompletionFlags::empty();

/// One side's objects.
pub(crate) struct Side<'s, G: Environment<'s>> {
    pub(crate) pz: Pz,
    pub(crate) dto: Evd,
    pub(crate) conn: Evd,
    pub(crate) ep: Ep,
    pub(crate) small: Buffer<'s, G::Platform>,
    pub(crate) lmr: LmrParam,
    pub(crate) bulk: Buffer<'s, G::Platform>,
    pub(crate) bulk_lmr: LmrParam,
}

/// Both sides, and what the passive one listens with.
pub(crate) struct Table<'s, G: Environment<'s>> {
    pub(crate) sides: [Side<'s, G>; 2],
    cr: Evd,
    psp: Psp,
}

impl<'s, G: Environment<'s>> Table<'s, G> {
    /// Makes everything.
    pub(crate) fn set(run: &mut Run<'_, G>) -> Result<Self> {
        let sides = [objects(run, 0)?, objects(run, 1)?];
        let ia = run.env.ia(1);
        let mut listen = || {
            let cr = ia.evd_create(16, EvdFlags::CR)?;
            Ok::<_, dat_core::Error>((cr, ia.psp_create(QUALIFIER, cr, PspFlag::Consumer)?))
        };
        let (cr, psp) = listen().map_err(|e| anyhow!("service point: {e}"))?;
        Ok(Self { sides, cr, psp })
    }

    /// Connects the two Endpoints.
    pub(crate) fn connect(&self, run: &mut Run<'_, G>) -> Result<()> {
        let [a, b] = &self.sides;
        let (from, to) = (run.env.address(0), run.env.address(1));
        let mut asked = None;
        for _ in 0..ATTEMPTS {
            let now = run.env.now();
            run.env
                .ia(0)
                .ep_connect(now, a.ep, to, QUALIFIER, LIMIT, HELLO, Qos::BestEffort)
                .map_err(|e| anyhow!("{e}"))?;
            let first = run.env.first(&[(1, self.cr), (0, a.conn)], LIMIT)?;
            asked = first.map(|(_, event)| event);
            if asked != Some(Event::NonPeerRejected(a.ep)) {
                break;
            }
            // On a lossy wire the peer may have missed the end of the last connection, and rejects
            // this one as stale. That also ends its old connection, so that the next attempt
            // passes.
            run.env.ia(0).ep_reset(a.ep).map_err(|e| anyhow!("{e}"))?;
        }
        let Some(Event::ConnectionRequest { cr, conn_qual, .. }) = asked else {
            bail!("no connection request came to the passive side, but {asked:?}")
        };
        ensure!(conn_qual == QUALIFIER, "the request is for {conn_qual}");
        let request = run.env.ia(1).cr_query(cr).map_err(|e| anyhow!("{e}"))?;
        ensure!(
            request.private_data.starts_with(HELLO),
            "the request's private data is not what was sent"
        );
        ensure!(request.remote == from, "the request came from {}", request.remote);
        let now = run.env.now();
        run.env.ia(1).cr_accept(now, cr, Some(b.ep), WELCOME).map_err(|e| anyhow!("{e}"))?;
        for (side, own) in self.sides.iter().enumerate() {
            let event = expect_event(run, side, own.conn)?;
            ensure!(
                event == Event::Established(own.ep),
                "side {side}: expected ESTABLISHED, got {event:?}"
            );
        }
        let private = run.env.ia(0).ep_private_data(a.ep).map_err(|e| anyhow!("{e}"))?;
        ensure!(private.starts_with(WELCOME), "the acceptance's private data is not what was sent");
        Ok(())
    }

    /// Frees everything.
    pub(crate) fn free(self, run: &mut Run<'_, G>) -> Result<()> {
        for (side, own) in self.sides.into_iter().enumerate() {
            let now = run.env.now();
            let ia = run.env.ia(side);
            let mut free = || -> Result<(), dat_core::Error> {
                ia.ep_free(now, own.ep)?;
                if side == 1 {
                    ia.psp_free(self.psp)?;
                    ia.evd_free(self.cr)?;
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
}

/// Byte `i` of the contents numbered `n`: no two of a demo alike.
pub(super) fn pattern(n: u32, i: usize) -> u8 {
    let x = (i as u32 ^ n.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
    (x >> 13) as u8
}

pub(super) fn fill(n: u32, bytes: &mut [u8]) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = pattern(n, i);
    }
}

pub(super) fn check(n: u32, bytes: &[u8], what: &str) -> Result<()> {
    match bytes.iter().enumerate().find(|&(i, &byte)| byte != pattern(n, i)) {
        None => Ok(()),
        Some((i, byte)) => {
            bail!("{what}: byte {i} of {} is {byte:#04x}, not {:#04x}", bytes.len(), pattern(n, i))
        }
    }
}

fn objects<'s, G: Environment<'s>>(run: &mut Run<'_, G>, side: usize) -> Result<Side<'s, G>> {
    let depth = run.depth;
    let slot = run.env.platform(side);
    let ia = run.env.ia(side);
    let small = Buffer::zeroed(slot, SMALL).context("no memory for the small buffers")?;
    let bulk =
        Buffer::zeroed(slot, run.options.size * depth).context("no memory for the bulk buffers")?;
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
    Ok(Side { pz, dto, conn, ep, small, lmr, bulk, bulk_lmr })
}

/// A local segment.
pub(crate) fn local(lmr: &LmrParam, at: usize, len: usize) -> [LmrTriplet; 1] {
    [lmr.local(at as u64, len as u32)]
}

/// The same bytes, as the peer names them.
pub(crate) fn remote(lmr: &LmrParam, at: usize, len: usize) -> RmrTriplet {
    lmr.remote(at as u64, len as u32)
}

/// The next event of a side.
pub(crate) fn expect_event<'s, G: Environment<'s>>(
    run: &mut Run<'_, G>,
    side: usize,
    evd: Evd,
) -> Result<Event> {
    let first = run.env.first(&[(side, evd)], LIMIT)?;
    let (_, event) =
        first.ok_or_else(|| anyhow!("side {side}: no event within {} s", LIMIT.as_secs()))?;
    Ok(event)
}

/// The success of a request, and its bytes.
pub(crate) fn expect_dto<'s, G: Environment<'s>>(
    run: &mut Run<'_, G>,
    side: usize,
    evd: Evd,
    operation: DtoOperation,
    cookie: u64,
) -> Result<u32> {
    match expect_event(run, side, evd)? {
        Event::Dto(DtoEvent {
            status: DtoStatus::Success, len, operation: o, cookie: c, ..
        }) if o == operation && c == cookie => Ok(len),
        other => bail!("side {side}: expected {operation:?} with cookie {cookie}, got {other:?}"),
    }
}

/// Posts a receive into the small buffer.
pub(crate) fn post_recv<'s, G: Environment<'s>>(
    run: &mut Run<'_, G>,
    side: usize,
    own: &Side<'s, G>,
    at: usize,
    len: usize,
    cookie: u64,
) -> Result<()> {
    run.env
        .ia(side)
        .ep_post_recv(own.ep, &local(&own.lmr, at, len), cookie, NONE)
        .map_err(|e| anyhow!("post_recv: {e}"))
}
