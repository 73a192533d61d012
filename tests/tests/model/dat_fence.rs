//! A host that ignores one of the fences makes a plain transfer go wrong, every time.
//!
//! The in-process host lets stores and device writes cross only at the fences, so a driver that
//! lacks one fails. This is the proof: the same transfer with every fence, and with one of them
//! ignored by the host.
#![expect(
    clippy::indexing_slicing,
    clippy::large_stack_arrays,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::time::Duration;

use dat_core::{
    CloseFlag, CompletionFlags, DtoStatus, EvdFlags, Event, Ia, Instant, LmrParam, LmrTriplet,
    MemPriv, PspFlag, Qos, RmrTriplet, Storage,
};
use dat_tests::host::watched::{Fence, Watched};
use dat_tests::pair::Stage;
use dat_tests::session::contents;
use hca_mlx5::Mlx5;
use hca_mlx5::dma::Buffer;

type Driver<'p, 's> = Mlx5<'p, Watched<'s>>;
type Room<'p, 's> = Storage<Driver<'p, 's>, 2, 8, 4, 64>;

const LEN: usize = 1500;
const ROUNDS: u64 = 8;
const NONE: CompletionFlags = CompletionFlags::empty();

/// Sends a few messages from one side to the other and back, over hosts that lack a fence once the
/// connection is established. Returns the failure, if there is one.
fn transfer(seed: u64, without: Option<Fence>) -> Result<(), String> {
    let stage = Stage { seed, ..Stage::default() };
    let (world, slots) = stage.plug(&mut |_, wire| wire);
    let hosts = slots.each_ref().map(Watched::new);
    let mut rooms = [Box::new(Room::new()), Box::new(Room::new())];
    let now = || Instant::from_nanos(world.now());
    let [a, b] = &mut rooms;
    let open = |side: usize, parts| {
        let driver = Driver::open(&hosts[side], &slots[side].config(stage.config(None))).unwrap();
        Ia::open(driver, parts, stage.net(side), now(), [seed.to_le_bytes()[0] + 1; 32]).unwrap()
    };
    let mut ias = [open(0, a.parts()), open(1, b.parts())];
    let turn = |ias: &mut [Ia<'_, Driver<'_, '_>>; 2]| {
        let now = now();
        for ia in ias.iter_mut() {
            ia.advance(now);
        }
        world.turn_by(5_000);
    };
    let mut made = Vec::new();
    for (side, ia) in ias.iter_mut().enumerate() {
        let pz = ia.pz_create().unwrap();
        let dto = ia.evd_create(128, EvdFlags::DTO).unwrap();
        let conn = ia.evd_create(8, EvdFlags::CONNECTION | EvdFlags::CR).unwrap();
        let ep = ia.ep_create(Some(pz), Some(dto), Some(dto), Some(conn), None).unwrap();
        let mem = Buffer::zeroed(&hosts[side], 4 * LEN).unwrap();
        let lmr = ia.lmr_create(pz, mem.region(), MemPriv::ALL).unwrap();
        made.push((dto, conn, ep, mem, lmr));
    }
    ias[1].psp_create(9, made[1].1, PspFlag::Consumer).unwrap();
    ias[0]
        .ep_connect(
            now(),
            made[0].2,
            stage.address(1),
            9,
            Duration::from_secs(5),
            b"",
            Qos::BestEffort,
        )
        .unwrap();
    let mut up = 0;
    while up < 2 {
        for side in 0..2 {
            match ias[side].evd_dequeue(made[side].1) {
                Ok(Event::ConnectionRequest { cr, .. }) => {
                    ias[1].cr_accept(now(), cr, Some(made[1].2), b"").unwrap()
                }
                Ok(Event::Established(_)) => up += 1,
                Ok(other) => panic!("{other:?}"),
                Err(_) => {}
            }
        }
        turn(&mut ias);
    }

    let seg = |lmr: &LmrParam, at: usize| {
        [LmrTriplet { addr: lmr.region.addr + at as u64, len: 1500, context: lmr.lmr_context }]
    };
    let far = |lmr: &LmrParam, at: usize| RmrTriplet {
        addr: lmr.region.addr + at as u64,
        len: 1500,
        context: lmr.rmr_context,
    };
    let mut run = || {
        hosts.iter().for_each(|host| host.take_away(without));
        for round in 0..ROUNDS {
            for side in 0..2 {
                let peer = 1 - side;
                let n = u32::try_from(round).unwrap() * 4 + u32::try_from(side).unwrap();
                ias[peer].ep_post_recv(made[peer].2, &seg(&made[peer].4, 0), round, NONE).unwrap();
                made[side].3.copy_in(LEN, &contents(n, LEN));
                ias[side]
                    .ep_post_send(made[side].2, &seg(&made[side].4, LEN), round, NONE)
                    .unwrap();
                let (own, there) = (seg(&made[side].4, 3 * LEN), far(&made[peer].4, LEN));
                ias[side].ep_post_rdma_read(made[side].2, &own, round, &there, NONE).unwrap();
                let mut left = [2, 2];
                left[peer] = 1;
                let end = now() + Duration::from_millis(500);
                while left != [0, 0] {
                    if now() > end {
                        return Err(format!("round {round}: {left:?} completions are missing"));
                    }
                    for side in 0..2 {
                        match ias[side].evd_dequeue(made[side].0) {
                            Ok(Event::Dto(dto))
                                if dto.status == DtoStatus::Success && dto.cookie == round =>
                            {
                                if left[side] == 0 {
                                    return Err(format!("round {round}: {dto:?} too many"));
                                }
                                left[side] -= 1;
                            }
                            Ok(other) => return Err(format!("round {round}: {other:?}")),
                            Err(_) => {}
                        }
                    }
                    turn(&mut ias);
                }
                // No fence here: the dequeued completion orders the reads.
                let mut got = vec![0; LEN];
                made[peer].3.copy_out(0, &mut got);
                if got != contents(n, LEN) {
                    return Err(format!(
                        "round {round}: side {peer} sees other bytes than were sent"
                    ));
                }
            }
        }
        for (side, slot) in slots.iter().enumerate() {
            if let Some(complaint) = slot.hca().complaints().first() {
                return Err(format!("the model of side {side} complains: {complaint}"));
            }
        }
        Ok(())
    };
    let result = run();
    hosts.iter().for_each(|host| host.take_away(None));
    for ia in &mut ias {
        let _ = ia.close(now(), CloseFlag::Abrupt);
    }
    result
}

#[test]
fn with_every_fence_it_works() {
    for seed in 0..5 {
        assert_eq!(transfer(seed, None), Ok(()));
    }
}

#[test]
fn without_the_fence_before_the_doorbell_it_never_does() {
    for seed in 0..5 {
        let first = transfer(seed, Some(Fence::BeforeDoorbell)).unwrap_err();
        assert_eq!(
            transfer(seed, Some(Fence::BeforeDoorbell)).unwrap_err(),
            first,
            "the same each time"
        );
    }
}

#[test]
fn without_the_fence_after_ownership_it_never_does() {
    for seed in 0..5 {
        let first = transfer(seed, Some(Fence::AfterOwnership)).unwrap_err();
        assert_eq!(
            transfer(seed, Some(Fence::AfterOwnership)).unwrap_err(),
            first,
            "the same each time"
        );
    }
}
