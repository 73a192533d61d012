//! Data over the sockets: every operation, contents verified, completions by interrupt; and what is
//! mapped for the device.

use dat_core::{CloseFlag, DtoStatus, Event, LmrTriplet, MemPriv, RmrTriplet};
use mlx5_model::Config as Card;
use vfio_host::{Host, Reach};

use crate::rig::{NONE, Pair, Rig, interrupts};

/// A device that answers a command later than its caller stays awake.
fn slow() -> Card {
    Card { command_latency: 500_000, ..Card::default() }
}

#[test]
fn two_hcas_connect_and_move_data_by_every_operation() {
    Rig::of(&slow()).connected(|pair| {
        let text: Vec<u8> = (0..5000u32).map(|n| (n * 7) as u8).collect();
        let len = text.len();

        // Send.
        let ep = [0, 1].map(|side| pair.sides[side].ep);
        pair.sides[0].buffer.copy_in(0, &text);
        let place = pair.sides[1].near(0, len);
        pair.sides[1].nic.ep_post_recv(ep[1], &place, 1, NONE).unwrap();
        let place = pair.sides[0].near(0, len);
        pair.sides[0].nic.ep_post_send(ep[0], &place, 2, NONE).unwrap();
        let mut seen = [false; 2];
        while seen != [true; 2] {
            let (side, event) = pair.next().unwrap();
            let Event::Dto(done) = event else { panic!("{event:?}") };
            assert_eq!((done.cookie, done.len as usize), ([2, 1][side], len));
            seen[side] = true;
        }
        assert_eq!(pair.sides[1].look(0, len), text);

        // Write, and read it back to another place.
        let far = pair.sides[1].far(8192, len);
        let near = pair.sides[0].near(0, len);
        pair.sides[0].nic.ep_post_rdma_write(ep[0], &near, 3, &far, NONE).unwrap();
        pair.done(0, 3);
        assert_eq!(pair.sides[1].look(8192, len), text);
        let near = pair.sides[0].near(16384, len);
        pair.sides[0].nic.ep_post_rdma_read(ep[0], &near, 4, &far, NONE).unwrap();
        pair.done(0, 4);
        assert_eq!(pair.sides[0].look(16384, len), text);

        // Bind a window on the passive side and write inside it.
        let pz = pair.sides[1].pz;
        let rmr = pair.sides[1].nic.rmr_create(pz).unwrap();
        let range = pair.sides[1].near(32768, 64)[0];
        let rights = MemPriv::REMOTE_WRITE;
        let context = pair.sides[1].nic.rmr_bind(rmr, &range, rights, ep[1], 5, NONE);
        assert!(matches!(pair.event(1), Event::RmrBind { cookie: 5, .. }));
        let far = RmrTriplet { addr: range.addr, len: 8, context: context.unwrap() };
        let near = pair.sides[0].near(0, 8);
        pair.sides[0].nic.ep_post_rdma_write(ep[0], &near, 6, &far, NONE).unwrap();
        pair.done(0, 6);
        assert_eq!(pair.sides[1].look(32768, 8), text[..8]);
        pair.sides[1].nic.rmr_free(rmr).unwrap();

        // Interrupts reported them: completions have a vector of their own, and commands. What is
        // there before its waiter sleeps interrupts nobody.
        let mut reported = 0;
        for side in &mut pair.sides {
            let [_, completions, commands] = interrupts(side.nic.host());
            reported += completions;
            assert!(commands > 0);
        }
        assert!(reported > 0);

        pair.sides[0].nic.ep_disconnect(ep[0], CloseFlag::Graceful).unwrap();
        let mut seen = [false; 2];
        while seen != [true; 2] {
            match pair.next().unwrap() {
                (side, Event::Disconnected(_)) => seen[side] = true,
                other => panic!("{other:?}"),
            }
        }
    });
}

/// A message each way.
fn greet(pair: &mut Pair<'_>) {
    for (from, to) in [(0, 1), (1, 0)] {
        let (ep, place) = (pair.sides[to].ep, pair.sides[to].near(64, 8));
        let receive = pair.sides[to].nic.ep_post_recv(ep, &place, 1, NONE);
        receive.unwrap();
        let (ep, place) = (pair.sides[from].ep, pair.sides[from].near(0, 8));
        pair.sides[from].buffer.copy_in(0, b"greeting");
        pair.sides[from].nic.ep_post_send(ep, &place, 2, NONE).unwrap();
        for _ in 0..2 {
            let (side, event) = pair.next().unwrap();
            let cookie = if side == from { 2 } else { 1 };
            assert!(matches!(event, Event::Dto(done) if done.cookie == cookie), "{event:?}");
        }
        assert_eq!(pair.sides[to].look(64, 8), b"greeting");
    }
}

#[test]
fn few_vectors_are_shared() {
    for vectors in [1, 2] {
        Rig::of(&Card { vectors, ..slow() }).connected(|pair| {
            assert_eq!(pair.sides[0].nic.host().vectors(), vectors);
            // A completion that is there before its waiter sleeps wakes nobody; one of some does.
            let waked = (0..1000).any(|_| {
                greet(pair);
                interrupts(pair.sides[0].nic.host())[usize::from(vectors == 2)] > 0
            });
            assert!(waked);
            let [shared, completions, commands] = interrupts(pair.sides[0].nic.host());
            assert!(shared > 0, "a command wakes by the shared vector");
            assert_eq!((completions > 0, commands), (vectors == 2, 0));
        });
    }
}

#[test]
fn send_only_memory_cannot_be_written_by_the_device() {
    let rig = Rig::new();
    rig.connected(|pair| {
        let [a, b] = &mut pair.sides;
        let source = a.nic.send_buffer(4096).unwrap();
        source.copy_in(0, b"from here only");
        let rights = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
        let lmr = a.nic.lmr_create(a.pz, source.region(), rights).unwrap();
        let near = [LmrTriplet { addr: source.addr(), len: 14, context: lmr.lmr_context }];
        let far = b.far(0, 14);
        let ep = a.ep;
        a.nic.ep_post_rdma_write(ep, &near, 1, &far, NONE).unwrap();
        pair.done(0, 1);
        assert_eq!(pair.sides[1].look(0, 14), b"from here only");

        // A right too many on the registration, and the IOMMU still says no.
        let before = rig.server().with(0, |function| function.dma_refused());
        let side = &mut pair.sides[0];
        side.nic.ep_post_rdma_read(ep, &near, 2, &far, NONE).unwrap();
        let (of, event) = pair.next().unwrap();
        assert!(
            of == 0 && matches!(event, Event::Dto(done) if done.status != DtoStatus::Success),
            "{event:?}"
        );
        let after = rig.server().with(0, |function| function.dma_refused());
        assert!(after > before);
        let mut text = [0; 14];
        source.copy_out(0, &mut text);
        assert_eq!(text, *b"from here only");
    });
}

#[test]
fn the_device_can_reach_what_the_ledger_says_and_nothing_else() {
    let rig = Rig::new();
    rig.connected(|pair| {
        let host = pair.sides[0].nic.host();
        let mut ledger = host.maps();
        ledger.sort_by_key(|mapping| mapping.iova);
        let maps = rig.server().with(0, |function| function.maps()).unwrap();
        let seen: Vec<_> = maps.iter().map(|m| (m.iova, m.size, m.read, m.write)).collect();
        let said: Vec<_> =
            ledger.iter().map(|m| (m.iova, m.len, true, m.reach == Reach::ReadWrite)).collect();
        assert_eq!(seen, said);
        assert!(ledger.iter().any(|mapping| mapping.reach == Reach::Read));
        for mapping in ledger.clone() {
            let (start, end) = (mapping.iova, mapping.iova + mapping.len);
            let neighbour = |at: u64| ledger.iter().any(|m| (m.iova..m.iova + m.len).contains(&at));
            let device = |at: u64, write: bool| {
                let tried = rig.server().with(0, move |function| {
                    if write {
                        // Rewrites the present byte, so that the driver's own state survives.
                        let byte = function.dma_read(at, 1)?;
                        function.dma_write(at, &byte)
                    } else {
                        function.dma_read(at, 1).map(drop)
                    }
                });
                tried.unwrap().is_ok()
            };
            for at in [start, end - 1] {
                assert!(device(at, false));
                assert_eq!(device(at, true), mapping.reach == Reach::ReadWrite);
            }
            for at in [start - 1, end] {
                assert_eq!(device(at, false), neighbour(at), "{at:#x}");
            }
        }
    });
    // The hosts are gone, and so is every mapping.
    for side in [0, 1] {
        let left = rig.server().with(side, |function| function.maps().len());
        assert_eq!(left, Some(0));
    }
}
