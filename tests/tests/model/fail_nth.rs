//! Every allocation, and every command after bring-up, of an adapter that opens, connects, moves data
//! and closes fails once: the failure is reported, nothing waits without end, and nothing stays
//! taken. What fails at bring-up is in `mute`.
#![expect(
    clippy::indexing_slicing,
    clippy::large_stack_arrays,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use dat_core::{CloseFlag, EvdFlags, Event, MemPriv, PspFlag, Qos};
use dat_tests::bringup::light;
use dat_tests::host::inproc::Slot;
use dat_tests::pair::{Pair, Room, Stage};
use dat_tests::session::{NONE, far, seg};
use hca_mlx5::dma::Buffer;
use mlx5_model::Status;
use mlx5_model::faults::{Script, When};

const SECOND: Duration = Duration::from_secs(1);
const PORT: u64 = 4711;
const LEN: usize = 4096;

/// Opens two adapters, lets something go wrong with the first one's slot, before or after it is
/// open, and uses it. Returns whether all went well; nothing may be left in any case.
fn attempt(before: impl FnOnce(&Slot), after: impl FnOnce(&Slot), end: impl FnOnce(&Slot)) -> bool {
    let stage = Stage { cards: [light(), light()], ..Stage::default() };
    let (world, slots) = stage.plug(&mut |_, wire| wire);
    let mut rooms = [Box::new(Room::new()), Box::new(Room::new())];
    let [a, b] = &mut rooms;
    let mut peer = stage.open(&slots[1], b, 1, None).unwrap();
    before(&slots[0]);
    let done = match stage.open(&slots[0], a, 0, None) {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            let now = dat_core::Instant::from_nanos(world.now());
            peer.close(now, CloseFlag::Abrupt).unwrap();
            false
        }
        Ok(own) => {
            after(&slots[0]);
            let mut pair = Pair {
                world: Arc::clone(&world),
                slots: [&slots[0], &slots[1]],
                ias: [own, peer],
                stage: stage.clone(),
            };
            let mut buffers = Vec::new();
            let used = usage(&mut pair, &mut buffers);
            end(&slots[0]);
            for ia in &mut pair.ias {
                let now = dat_core::Instant::from_nanos(world.now());
                ia.close(now, CloseFlag::Abrupt).unwrap();
            }
            drop(pair);
            buffers.into_iter().for_each(Buffer::release);
            used.is_ok()
        }
    };
    for slot in &slots {
        assert_eq!((slot.in_use(), slot.views().pages_out()), (0, 0), "something stays taken");
    }
    done
}

/// Both sides make their objects; the first connects to the second, writes and disconnects.
fn usage<'s>(pair: &mut Pair<'s>, buffers: &mut Vec<Buffer<'s, Slot>>) -> Result<(), String> {
    let mut sides = Vec::new();
    for side in [1, 0] {
        let buffer = Buffer::zeroed(pair.slots[side], LEN).ok_or("no memory")?;
        let region = buffer.region();
        buffers.push(buffer);
        let ia = &mut pair.ias[side];
        let made = (|| {
            let pz = ia.pz_create()?;
            let evd = ia.evd_create(16, EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::CR)?;
            let lmr = ia.lmr_create(pz, region, MemPriv::ALL)?;
            let rmr = ia.rmr_create(pz)?;
            let ep = ia.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
            ia.rmr_free(rmr)?;
            Ok::<_, dat_core::Error>((ep, evd, lmr))
        })();
        sides.push(made.map_err(|error| error.to_string())?);
    }
    let Ok([(passive, there, target), (active, here, source)]) = <[_; 2]>::try_from(sides) else {
        panic!()
    };
    let text = |error: dat_core::Error| error.to_string();
    pair.ias[1].psp_create(PORT, there, PspFlag::Consumer).map_err(text)?;
    let (now, to) = (pair.now(), pair.stage.address(1));
    pair.ias[0]
        .ep_connect(now, active, to, PORT, 10 * SECOND, b"", Qos::BestEffort)
        .map_err(text)?;
    // Whatever goes wrong is reported, within the time of the attempt and of its answer.
    let next = |pair: &mut Pair<'_>| {
        let event = pair.until(60 * SECOND, |pair| {
            let mine = pair.ias[0].evd_dequeue(here).ok().map(|event| (0, event));
            mine.or_else(|| pair.ias[1].evd_dequeue(there).ok().map(|event| (1, event)))
        });
        event.unwrap_or_else(|| panic!("nothing is reported"))
    };
    let mut up = [false; 2];
    while up != [true; 2] {
        match next(pair) {
            (1, Event::ConnectionRequest { cr, .. }) => {
                let now = pair.now();
                pair.ias[1].cr_accept(now, cr, Some(passive), b"").map_err(text)?;
            }
            (side, Event::Established(_)) => up[side] = true,
            (side, event) => return Err(format!("side {side}: {event:?}")),
        }
    }
    let (from, to) = ([seg(&source, 0, 64)], far(&target, 0, 64));
    pair.ias[0].ep_post_rdma_write(active, &from, 1, &to, NONE).map_err(|ret| ret.to_string())?;
    match next(pair) {
        (0, Event::Dto(_)) => {}
        other => return Err(format!("{other:?}")),
    }
    let now = pair.now();
    pair.ias[0].ep_disconnect(now, active, CloseFlag::Graceful).map_err(text)?;
    for _ in 0..2 {
        let (_, event) = next(pair);
        if !matches!(event, Event::Disconnected(_) | Event::Broken(_)) {
            return Err(format!("{event:?}"));
        }
    }
    Ok(())
}

#[test]
fn every_allocation_fails_once() {
    let mut failures = 0;
    for nth in 0.. {
        let mut spared = false;
        let done = attempt(|slot| slot.fail_alloc(nth), |_| (), |slot| spared = slot.spare_alloc());
        if spared {
            assert!(done, "nothing failed, and it did not work");
            break;
        }
        failures += usize::from(!done);
    }
    eprintln!("{failures} allocations failed");
    assert!(failures >= 15, "{failures}: the journey is too short");
}

#[test]
fn every_command_after_bring_up_is_refused_once() {
    let mut refused = 0;
    for nth in 0.. {
        let mut reached = false;
        let strike = |slot: &Slot| {
            let mut hca = slot.hca();
            let script = Script::new().refuse(When::Nth(hca.commands() + nth), Status::NoResources);
            hca.set_command_hook(Some(Box::new(script)));
        };
        let first = Cell::new(0);
        let done = attempt(
            |_| (),
            |slot| {
                first.set(slot.hca().commands());
                strike(slot);
            },
            |slot| {
                reached = slot.hca().commands() > first.get() + nth;
                slot.hca().set_command_hook(None);
            },
        );
        if !reached {
            assert!(done, "nothing was refused, and it did not work");
            break;
        }
        refused += usize::from(!done);
    }
    eprintln!("{refused} commands refused");
    assert!(refused >= 8, "{refused}: the journey is too short");
}
