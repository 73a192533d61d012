//! Objects that are made and freed several at a time, with a device of which each command takes a
//! tenth of a millisecond: how many commands that is, and how often the driver waits for one.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::collections::BTreeMap;

use dat_core::{
    CloseFlag, Control, Controlled, DatSubtype, DatType, Ep, EpCreate, Error, Evd, EvdFlags,
    LmrCreate, MemPriv, Memory, Pz, VaType,
};
use dat_tests::bringup::light;
use dat_tests::pair::{Pair, Stage};
use hca_mlx5::dma::Buffer;
use mlx5_model::faults::{Script, When};
use mlx5_model::{Status, Verdict};

/// What a command takes.
const COMMAND: u64 = 100_000;
/// Endpoints and LMRs of a test.
const MANY: usize = 16;
const BYTES: usize = 4096;
const CREATE_QP: u16 = 0x500;
const RST2INIT_QP: u16 = 0x502;
const MANAGE_PAGES: u16 = 0x108;

/// Runs a test on cards whose commands take their time.
fn on<T>(test: impl FnOnce(&mut Pair<'_>) -> T) -> T {
    let card = mlx5_model::Config { command_latency: COMMAND, ..light() };
    Stage { cards: [card, light()], ..Stage::default() }.run_at_once(test)
}

/// Commands of the first card that a step takes, and how many of them began while no other was under
/// way: so often the driver waits for as long as a command takes. Pages for the firmware do not
/// count.
fn cost(pair: &mut Pair<'_>, step: impl FnOnce(&mut Pair<'_>)) -> (u64, u64) {
    let count = |pair: &Pair<'_>| {
        let hca = pair.slots[0].hca();
        let sum = |all: &BTreeMap<u16, u64>| -> u64 {
            all.iter().filter(|(opcode, _)| **opcode != MANAGE_PAGES).map(|(_, times)| times).sum()
        };
        (sum(&hca.stats().commands), sum(&hca.stats().commands_beside))
    };
    let before = count(pair);
    step(pair);
    let after = count(pair);
    let (all, beside) = (after.0 - before.0, after.1 - before.1);
    (all, all - beside)
}

/// What Endpoints are made of. As many as a test makes have been there: their doorbell pages are kept.
fn objects(pair: &mut Pair<'_>) -> (Pz, Evd) {
    let ia = &mut pair.ias[0];
    let evd = ia.evd_create(64, EvdFlags::DTO | EvdFlags::CONNECTION).unwrap();
    let of = (ia.pz_create().unwrap(), evd);
    let now = pair.now();
    for ep in endpoints(pair, of) {
        pair.ias[0].ep_free(now, ep).unwrap();
    }
    of
}

fn wanted((pz, evd): (Pz, Evd)) -> EpCreate {
    let evd = Some(evd);
    EpCreate { pz: Some(pz), recv_evd: evd, request_evd: evd, connect_evd: evd, attr: None }
}

/// Makes Endpoints together, and returns them.
fn endpoints(pair: &mut Pair<'_>, of: (Pz, Evd)) -> Vec<Ep> {
    let mut all = [(Control::EpCreate(wanted(of)), None); MANY];
    let now = pair.now();
    pair.ias[0].control_each(now, &mut all);
    let ep = |(_, came): (_, Option<Result<_, Error>>)| match came.unwrap().unwrap() {
        Controlled::Ep(ep) => ep,
        other @ (Controlled::Lmr(_) | Controlled::Freed) => panic!("{other:?}"),
    };
    all.map(ep).to_vec()
}

/// One by one each command is waited for; together eight are on their way.
#[test]
fn several_endpoints_wait_for_an_eighth_of_the_commands() {
    on(|pair| {
        let of = objects(pair);
        let ask = wanted(of);
        let mut eps = Vec::new();
        let one_by_one = cost(pair, |pair| {
            let ia = &mut pair.ias[0];
            for _ in 0..MANY {
                let evd = ask.recv_evd;
                eps.push(ia.ep_create(ask.pz, evd, evd, evd, None).unwrap());
            }
        });
        assert_eq!(one_by_one, (32, 32), "CREATE_QP and RST2INIT each");
        let freed = cost(pair, |pair| {
            let now = pair.now();
            eps.drain(..).for_each(|ep| pair.ias[0].ep_free(now, ep).unwrap());
        });
        assert_eq!(freed, (32, 32), "2RST and DESTROY_QP each");
        let together = cost(pair, |pair| eps = endpoints(pair, of));
        assert_eq!(together, (32, 4));
        let freed = cost(pair, |pair| {
            let now = pair.now();
            let mut all: Vec<_> = eps.iter().map(|ep| (Control::EpFree(*ep), None)).collect();
            pair.ias[0].control_each(now, &mut all);
            assert!(all.iter().all(|(_, freed)| matches!(freed, Some(Ok(Controlled::Freed)))));
        });
        assert_eq!(freed, (32, 4));
    });
}

#[test]
fn several_lmrs_wait_for_an_eighth_of_the_commands() {
    on(|pair| {
        let (pz, _) = objects(pair);
        let buffer = Buffer::zeroed(pair.slots[0], BYTES).unwrap();
        let memory = Memory::Virtual(buffer.region());
        let create = LmrCreate { pz, memory, privileges: MemPriv::ALL, va_type: VaType::Va };
        let mut all = [(Control::LmrCreate(create), None); MANY];
        // Twice, so that the firmware gives indexes out again: then once the driver learns which,
        // and makes the keys of one batch anew.
        for (turn, most) in [(0, 2), (1, 20), (2, 2), (3, 2)] {
            let now = pair.now();
            let made = cost(pair, |pair| pair.ias[0].control_each(now, &mut all));
            assert!(made.1 <= most, "turn {turn}: {made:?}");
            let mut lmrs = all.map(|(_, came)| match came.unwrap().unwrap() {
                Controlled::Lmr(lmr) => (Control::LmrFree(lmr), None),
                other @ (Controlled::Ep(_) | Controlled::Freed) => panic!("{other:?}"),
            });
            let freed = cost(pair, |pair| pair.ias[0].control_each(now, &mut lmrs));
            assert_eq!(freed, (16, 2), "DESTROY_MKEY each");
            assert!(lmrs.iter().all(|(_, freed)| matches!(freed, Some(Ok(Controlled::Freed)))));
        }
        buffer.release();
    });
}

/// A close waits as often with posters in the adapter as with posters out of it.
#[test]
fn a_close_frees_what_is_left_several_at_a_time() {
    for posters_out in [false, true] {
        let close = |made: bool| {
            on(|pair| {
                let of = objects(pair);
                let eps = if made { endpoints(pair, of) } else { Vec::new() };
                let posters: Vec<_> = eps
                    .iter()
                    .filter(|_| posters_out)
                    .map(|ep| pair.ias[0].ep_take_poster(*ep).unwrap())
                    .collect();
                let spent = cost(pair, |pair| {
                    let now = pair.now();
                    pair.ias[0].close(now, CloseFlag::Abrupt).unwrap();
                });
                drop(posters);
                assert_eq!((pair.slots[0].in_use(), pair.slots[0].views().pages_out()), (0, 0));
                spent
            })
        };
        let (bare, full) = (close(false), close(true));
        let endpoints = (full.0 - bare.0, full.1 - bare.1);
        assert_eq!(endpoints, (32, 4), "2RST and DESTROY_QP each; posters out: {posters_out}");
    }
}

/// A command of a batch that is never answered ends the device: what was answered before is made, all
/// else fails, and the adapter closes.
#[test]
fn a_lost_command_ends_the_batch_and_the_device() {
    for opcode in [CREATE_QP, RST2INIT_QP] {
        on(|pair| {
            let of = objects(pair);
            let script = Script::new().on(When::OpcodeNth(opcode, 3), Verdict::Mute);
            pair.slots[0].hca().set_command_hook(Some(Box::new(script)));
            let mut all = [(Control::EpCreate(wanted(of)), None); MANY];
            let now = pair.now();
            pair.ias[0].control_each(now, &mut all);
            for (nth, (_, made)) in all.iter().enumerate() {
                match made.unwrap() {
                    Ok(_) => assert!(nth < 8 && nth != 3 && opcode == RST2INIT_QP, "{nth}"),
                    Err(error) => assert!(error.fault().is_some(), "{nth}: {error}"),
                }
            }
            let now = pair.now();
            assert!(pair.ias[0].close(now, CloseFlag::Abrupt).is_err());
        });
    }
}

/// Of several Endpoints one is of a dead zone, one is refused by the firmware when it is made, one
/// at its first step, and the last find no slot: the others are made, and nothing stays of those.
#[test]
fn an_entry_that_fails_does_not_disturb_the_others() {
    on(|pair| {
        let of = objects(pair);
        let ia = &mut pair.ias[0];
        let dead = ia.pz_create().unwrap();
        ia.pz_free(dead).unwrap();
        let used = pair.slots[0].in_use();
        for turn in 0..3 {
            // The third CREATE_QP, and the fourth RST2INIT of those that are left.
            let refuse = Verdict::Refuse { status: Status::BadParam as u8, syndrome: 0x77 };
            let script = Script::new()
                .on(When::OpcodeNth(CREATE_QP, 2), refuse)
                .on(When::OpcodeNth(RST2INIT_QP, 3), refuse);
            pair.slots[0].hca().set_command_hook(Some(Box::new(script)));
            let mut all = [(Control::EpCreate(wanted(of)), None); MANY + 4];
            all[1].0 = Control::EpCreate(EpCreate { pz: Some(dead), ..wanted(of) });
            let now = pair.now();
            pair.ias[0].control_each(now, &mut all);
            pair.slots[0].hca().set_command_hook(None);
            let mut eps = Vec::new();
            for (nth, (_, made)) in all.iter().enumerate() {
                match (nth, made.unwrap()) {
                    (1, Err(error)) => {
                        assert_eq!(error.ret().subtype(), DatSubtype::InvalidHandlePz);
                    }
                    (3 | 5, Err(error)) => assert_eq!(error.fault().unwrap().syndrome, 0x77),
                    (19, Err(error)) => {
                        assert_eq!(error.ret().subtype(), DatSubtype::ResourceTep);
                    }
                    (_, Ok(Controlled::Ep(ep))) => eps.push((Control::EpFree(ep), None)),
                    (_, came) => panic!("{nth}: {came:?}"),
                }
            }
            assert_eq!(eps.len(), MANY, "all slots are used");
            // One twice, and one that is freed already.
            eps.insert(3, eps[2]);
            eps.push(eps[0]);
            pair.ias[0].control_each(now, &mut eps);
            for (nth, (_, freed)) in eps.iter().enumerate() {
                let again = nth == 3 || nth == eps.len() - 1;
                match freed.unwrap() {
                    Ok(_) => assert!(!again),
                    Err(error) => {
                        assert!(again, "turn {turn}, {nth}: {error}");
                        assert_eq!(error.ret().ty(), DatType::InvalidHandle);
                    }
                }
            }
            assert_eq!(pair.slots[0].in_use(), used, "turn {turn}");
        }
    });
}

/// Calls of all four kinds at once: two waits, as many as one Endpoint has.
#[test]
fn calls_of_different_kinds_wait_together() {
    on(|pair| {
        let of = objects(pair);
        let buffer = Buffer::zeroed(pair.slots[0], BYTES).unwrap();
        let memory = Memory::Virtual(buffer.region());
        let create = LmrCreate { pz: of.0, memory, privileges: MemPriv::ALL, va_type: VaType::Va };
        let old: [Ep; 2] = [(); 2].map(|()| {
            let evd = Some(of.1);
            pair.ias[0].ep_create(Some(of.0), evd, evd, evd, None).unwrap()
        });
        let lmr = pair.ias[0].lmr_create(of.0, buffer.region(), MemPriv::ALL).unwrap().lmr;
        let mut all = [
            Control::EpCreate(wanted(of)),
            Control::LmrFree(lmr),
            Control::EpFree(old[0]),
            Control::LmrCreate(create),
            Control::EpFree(old[1]),
        ]
        .map(|control| (control, None));
        let spent = cost(pair, |pair| {
            let now = pair.now();
            pair.ias[0].control_each(now, &mut all);
        });
        assert!(all.iter().all(|(_, came)| matches!(came, Some(Ok(_)))), "{all:?}");
        assert_eq!(spent, (8, 2));
        let now = pair.now();
        pair.ias[0].close(now, CloseFlag::Abrupt).unwrap();
        buffer.release();
    });
}
