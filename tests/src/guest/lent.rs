//! Memory of the process on real hosts: lent, registered and used by every operation, and taken
//! back.

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Parser;
use dat_core::provider::Region;
use dat_core::{
    CloseFlag, DtoStatus, Ep, Evd, Event, LmrParam, LmrTriplet, MemPriv, Memory, RmrTriplet, VaType,
};
use vfio_host::{Host, Mapping, Reach};

use super::hosts::{Part, two};
use super::sides::{Sides, rooms};
use crate::bytes::Bytes;
use crate::demo::table::{NONE, Table};
use crate::demo::{Environment, Options, Report, Run, depth};

/// Bytes of each piece of memory, and where in it the lent ones begin and how many these are:
/// nothing is a multiple of anything.
const ALL: usize = 40_001;
const AT: usize = 1003;
const LEN: usize = 36_001;
/// Where in them the operations go.
const LENGTHS: [usize; 6] = [1, 8, 28, 45, 4097, 30_011];
const LIMIT: std::time::Duration = std::time::Duration::from_secs(20);

static STATIC: Bytes<ALL> = Bytes::new();

/// Lends.
pub(super) struct Lent;

/// One side's registration.
struct Mem<'b> {
    bytes: &'b Bytes<ALL>,
    lmr: LmrParam,
}

impl Mem<'_> {
    fn near(&self, at: usize, len: usize) -> [LmrTriplet; 1] {
        [LmrTriplet {
            addr: self.lmr.region.addr + at as u64,
            len: len as u32,
            context: self.lmr.lmr_context,
        }]
    }

    fn far(&self, at: usize, len: usize) -> RmrTriplet {
        RmrTriplet {
            addr: self.lmr.region.addr + at as u64,
            len: len as u32,
            context: self.lmr.rmr_context,
        }
    }
}

fn text(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 + seed) as u8).collect()
}

fn process<H: Host>(host: &H) -> Vec<Mapping> {
    let mut maps = host.maps();
    maps.retain(|map| map.purpose == "process");
    maps
}

/// The next completion of a side's requests, which has to be that one.
fn done<H: Host>(
    run: &mut Run<'_, Sides<'_, '_, H>>,
    of: &[(usize, Evd)],
    cookie: u64,
) -> Result<()> {
    let event = run.env.first(of, LIMIT)?;
    let status = match event {
        Some((_, Event::Dto(dto))) if dto.cookie == cookie => dto.status,
        Some((_, Event::IbDto(dto))) if dto.cookie == cookie => dto.status(),
        other => bail!("{other:?} instead of request {cookie}"),
    };
    ensure!(status == DtoStatus::Success, "request {cookie}: {status:?}");
    Ok(())
}

/// All operations between two pieces of memory.
fn operations<H: Host>(
    run: &mut Run<'_, Sides<'_, '_, H>>,
    eps: [(Ep, Evd); 2],
    [a, b]: &[Mem<'_>; 2],
) -> Result<u32> {
    let [(ep, dto), (far_ep, far_dto)] = eps;
    let said = |what| move |error| anyhow!("{what}: {error}");
    let mut count = 0;
    for (round, len) in LENGTHS.into_iter().enumerate() {
        let at = round * 3 + 1;
        let sent = text(len, len);
        a.bytes.put(AT + at, &sent);
        let ia = run.env.ia(1);
        ia.ep_post_recv(far_ep, &b.near(at + 1, len), 1, NONE).map_err(said("post_recv"))?;
        let ia = run.env.ia(0);
        ia.ep_post_send(ep, &a.near(at, len), 2, NONE).map_err(said("post_send"))?;
        done(run, &[(0, dto)], 2)?;
        done(run, &[(1, far_dto)], 1)?;
        ensure!(b.bytes.get(AT + at + 1, len) == sent, "send of {len} bytes");

        let written = text(len, 77);
        a.bytes.put(AT + at, &written);
        let ia = run.env.ia(0);
        ia.ep_post_rdma_write(ep, &a.near(at, len), 3, &b.far(at, len), NONE)
            .map_err(said("post_rdma_write"))?;
        done(run, &[(0, dto)], 3)?;
        ensure!(b.bytes.get(AT + at, len) == written, "write of {len} bytes");

        a.bytes.put(AT + at, &text(len, 5));
        let ia = run.env.ia(0);
        ia.ep_post_rdma_read(ep, &a.near(at, len), 4, &b.far(at, len), NONE)
            .map_err(said("post_rdma_read"))?;
        done(run, &[(0, dto)], 4)?;
        ensure!(a.bytes.get(AT + at, len) == written, "read of {len} bytes");
        count += 3;
    }
    let at = b.lmr.region.addr.next_multiple_of(8) - b.lmr.region.addr;
    let at = at as usize;
    b.bytes.put(AT + at, &40u64.to_ne_bytes());
    let ia = run.env.ia(0);
    ia.ep_post_fetch_add(ep, 2, &a.near(11, 8)[0], 5, &b.far(at, 8), NONE)
        .map_err(said("post_fetch_add"))?;
    done(run, &[(0, dto)], 5)?;
    let pair = (a.bytes.get(AT + 11, 8), b.bytes.get(AT + at, 8));
    ensure!(
        pair == (40u64.to_ne_bytes().into(), 42u64.to_ne_bytes().into()),
        "fetch and add: {pair:?}"
    );
    Ok(count + 1)
}

impl Part for Lent {
    #[expect(unsafe_code, reason = "what is lent here is taken back before it goes")]
    fn run<H: Host>(&self, hosts: &mut [H]) -> Result<()> {
        let hosts = two(hosts)?;
        let options = Options::try_parse_from(["demo", "--json"])?;
        let before = [0, 1].map(|side| hosts[side].maps().len());
        let mut rooms = rooms();
        let mut run = Run {
            env: Sides::open(hosts, &mut rooms)?,
            options: &options,
            report: Report::default(),
            depth: depth(options.size),
        };
        let table = Table::set(&mut run)?;
        table.connect(&mut run)?;
        let eps = [0, 1].map(|side| (table.sides[side].ep, table.sides[side].dto));
        let heap = Box::new(Bytes::<ALL>::new());
        let stack = Bytes::<ALL>::new();
        let mut count = 0;
        for pair in [[&*heap, &STATIC], [&STATIC, &stack], [&stack, &heap]] {
            let mut mems = Vec::new();
            for (side, bytes) in pair.into_iter().enumerate() {
                bytes.put(0, &text(ALL, 9));
                let host = &hosts[side];
                let region = Region { addr: bytes.addr() + AT as u64, len: LEN as u64 };
                // SAFETY: taken back below, before the bytes go.
                unsafe { host.lend(region.addr, region.len, Reach::ReadWrite) }
                    .map_err(|error| anyhow!("lend: {error}"))?;
                let [map] = *process(host) else {
                    bail!("side {side}: {:?} for one range", process(host));
                };
                let inside = map.len >= region.len && map.len <= region.len + 2 * 4096;
                ensure!(inside, "side {side}: {map:?} for {region:?}");
                let rights = MemPriv::ALL | MemPriv::REMOTE_ATOMIC;
                let pz = table.sides[side].pz;
                let lmr = run.env.ia(side).lmr_create(pz, region, rights);
                let lmr = lmr.map_err(|error| anyhow!("lmr_create: {error}"))?;
                mems.push(Mem { bytes, lmr });
            }
            let mems: [Mem<'_>; 2] = mems.try_into().ok().context("two sides")?;
            count += operations(&mut run, eps, &mems)?;
            for (side, mem) in mems.iter().enumerate() {
                let ia = run.env.ia(side);
                ia.lmr_free(mem.lmr.lmr).map_err(|error| anyhow!("lmr_free: {error}"))?;
                hosts[side].take_back(mem.lmr.region.addr, LEN as u64);
                ensure!(process(&hosts[side]).is_empty(), "side {side}: something is left");
                let rest = [0..AT, AT + LEN..ALL];
                for around in rest {
                    let want = &text(ALL, 9)[around.clone()];
                    let seen = mem.bytes.get(around.start, around.len());
                    ensure!(seen == want, "side {side}: bytes beside the memory changed");
                }
            }
        }
        // Nothing is there, and nothing of that is lent.
        // SAFETY: it is refused.
        let refused = unsafe { hosts[0].lend(4096, 4096, Reach::ReadWrite) };
        let error = refused.err().context("memory that is not there was lent")?;
        ensure!(error.to_string().contains("process has no memory"), "{error}");
        by_name(hosts, &mut run, &table, eps)?;

        for side in 0..2 {
            let now = run.env.now();
            let closed = run.env.ia(side).close(now, CloseFlag::Abrupt);
            closed.map_err(|error| anyhow!("close: {error}"))?;
        }
        for own in table.sides {
            own.small.release();
            own.bulk.release();
        }
        drop(run);
        let after = [0, 1].map(|side| hosts[side].maps().len());
        ensure!(after == before, "{before:?} mappings before, {after:?} after");
        println!(
            "@@lent {count} operations between heap, stack and static memory, one of memory with a name"
        );
        Ok(())
    }
}

/// Two sides share memory by name, and register it so.
fn by_name<'s, 'p: 's, H: Host>(
    hosts: &[H; 2],
    run: &mut Run<'_, Sides<'s, 'p, H>>,
    table: &Table<'s, Sides<'s, 'p, H>>,
    [(ep, dto), _]: [(Ep, Evd); 2],
) -> Result<()> {
    let name = [b'n'; 40];
    let mut mems = Vec::new();
    for (side, host) in hosts.iter().enumerate() {
        let region = host.share(&name, 8192).map_err(|error| anyhow!("share: {error}"))?;
        let memory = Memory::SharedVirtual(region, &name);
        let (ia, pz) = (run.env.ia(side), table.sides[side].pz);
        let lmr = ia.lmr_create_from(pz, memory, MemPriv::ALL, VaType::Va);
        mems.push(lmr.map_err(|error| anyhow!("lmr_create_from: {error}"))?);
    }
    // From its first page to its second, by the device of the other mapping.
    let (from, to) = (mems[0].region, mems[1].region);
    ensure!(from.addr != to.addr, "one mapping for two");
    let near = [LmrTriplet { addr: from.addr, len: 4096, context: mems[0].lmr_context }];
    let far = RmrTriplet { addr: to.addr + 4096, len: 4096, context: mems[1].rmr_context };
    let own = &table.sides[0];
    own.small.copy_in(0, &text(4096, 3));
    let put = [LmrTriplet { addr: own.small.addr(), len: 4096, context: own.lmr.lmr_context }];
    let first = RmrTriplet { addr: to.addr, ..far };
    own.small.copy_in(4096, &[0; 4096]);
    let back = [LmrTriplet { addr: own.small.addr() + 4096, ..put[0] }];
    let ia = run.env.ia(0);
    let post = |error| anyhow!("post: {error}");
    ia.ep_post_rdma_write(ep, &put, 1, &first, NONE).map_err(post)?;
    done(run, &[(0, dto)], 1)?;
    let ia = run.env.ia(0);
    ia.ep_post_rdma_write(ep, &near, 2, &far, NONE).map_err(post)?;
    done(run, &[(0, dto)], 2)?;
    let ia = run.env.ia(0);
    ia.ep_post_rdma_read(ep, &back, 3, &far, NONE).map_err(post)?;
    done(run, &[(0, dto)], 3)?;
    let mut seen = vec![0; 4096];
    own.small.copy_out(4096, &mut seen);
    ensure!(seen == text(4096, 3), "the two mappings are not of the same memory");
    for (side, host) in hosts.iter().enumerate() {
        let freed = run.env.ia(side).lmr_free(mems[side].lmr);
        freed.map_err(|error| anyhow!("lmr_free: {error}"))?;
        host.unshare(mems[side].region);
    }
    Ok(())
}
