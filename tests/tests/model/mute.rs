//! A device that stops answering, refuses, or never starts: at every command and every register
//! step the driver gives up within its deadline, names the command, and frees all that it may free.
//!
//! After a command without an answer the device may still write to host memory, so the arena's
//! mailboxes, the queues that it knows and the firmware's pages stay taken until the host resets
//! the function. After a refusal the device holds nothing new: there all of it comes back.
#![expect(clippy::unwrap_used, reason = "test code: a panic here is a failed test")]

use std::time::Duration;

use dat_core::provider::{Fault, FaultKind, Notice, Provider};
use dat_tests::bringup::{Driver, Rig, Step, Taken, journey, net, patience, usual};
use dat_tests::host::watched::Watched;
use hca_mlx5::prm::cmd::Opcode;
use hca_mlx5::{Config, Device};
use mlx5_model::Verdict;
use mlx5_model::faults::{Log, Script, When};

/// Opcodes of a journey without trouble.
fn commands() -> Vec<Opcode> {
    let rig = Rig::light();
    let log = Log::new(Script::new());
    rig.hook(Some(Box::new(log.clone())));
    journey(&rig.slot, &patience()).unwrap();
    let opcodes: Vec<_> =
        log.records().iter().map(|r| Opcode::from_code(r.opcode).unwrap()).collect();
    assert!(opcodes.len() > 80, "{}", opcodes.len());
    opcodes
}

/// A journey without trouble and one expired command take less.
const BOUND: Duration = Duration::from_millis(300);

const NOTHING: Taken = Taken { arena: 0, pages: 0 };

/// Journey over a device that stops answering at the `n`th command by `verdict`.
fn muted(
    n: usize,
    verdict: Verdict,
    config: &Config<'_>,
) -> (Rig, Result<(), (Step, Fault)>, Duration) {
    let rig = Rig::light();
    rig.script(|first, script| script.on(When::From(first + n as u64), verdict));
    let start = rig.now();
    let result = journey(&Watched::new(&rig.slot), config);
    let took = rig.now() - start;
    (rig, result, took)
}

#[test]
fn the_device_falls_mute_at_every_command() {
    for (n, op) in commands().iter().enumerate() {
        let (rig, result, took) = muted(n, Verdict::Mute, &patience());
        let (step, fault) = result.expect_err("a mute device is an error");
        assert_eq!(fault.operation, op.name(), "command {n}, {step}: {fault}");
        assert!(
            matches!(fault.kind, FaultKind::Timeout | FaultKind::Gone),
            "command {n}, {step}: {fault}"
        );
        assert!(fault.advice.contains("reset") || *op == Opcode::EnableHca, "{fault}");
        assert!(took < BOUND, "command {n}, {op:?}, {step}: {took:?}");
        // The firmware has what it was given: none of it may be used for anything else.
        let owned = rig.slot.hca().pages_owned() as usize;
        assert!(
            rig.taken().pages >= owned,
            "command {n}, {op:?}: {:?}, {owned} owned",
            rig.taken()
        );
        assert!(rig.taken().arena > 0, "command {n}, {op:?}: mailboxes the device may write");
        assert_eq!(rig.slot.views().refused, 0, "command {n}, {op:?}");
        // The host does what the advice says; then everything is back, and the function works
        // again.
        rig.reset();
        assert_eq!(rig.taken(), NOTHING, "command {n}, {op:?}");
        journey(&rig.slot, &patience()).unwrap();
        assert_eq!(rig.taken(), NOTHING, "command {n}, {op:?}");
    }
}

#[test]
fn one_command_without_an_answer_is_enough() {
    // Only that one: the device would answer the next, but its result could depend on the command
    // without a known outcome.
    for (n, op) in commands().iter().enumerate() {
        let rig = Rig::light();
        rig.script(|first, script| script.on(When::Nth(first + n as u64), Verdict::Mute));
        let start = rig.now();
        let (step, fault) = journey(&Watched::new(&rig.slot), &patience()).expect_err("an error");
        assert_eq!(fault.operation, op.name(), "command {n}, {step}: {fault}");
        assert!(rig.now() - start < BOUND);
        assert!(rig.taken().pages >= rig.slot.hca().pages_owned() as usize);
    }
}

#[test]
fn an_answer_after_the_deadline_finds_its_memory_untouched_by_anybody_else() {
    for (n, op) in commands().iter().enumerate() {
        let (rig, result, _) = muted(n, Verdict::Late(200_000_000), &patience());
        let (_, fault) = result.expect_err("late is lost");
        assert_eq!(fault.operation, op.name(), "command {n}: {fault}");
        // The answer comes, into memory that is still the device's: nothing of it has been given
        // away.
        let free = rig.taken();
        rig.pass(Duration::from_millis(400));
        assert_eq!(rig.taken(), free);
        assert_eq!(rig.slot.views().refused, 0);
    }
}

#[test]
fn a_command_that_answers_just_in_time_is_no_trouble() {
    let (rig, result, took) = muted(0, Verdict::Late(45_000_000), &patience());
    result.unwrap();
    assert!(took > Duration::from_secs(4), "{took:?}: nearly a hundred commands, each late");
    assert_eq!(rig.taken(), NOTHING);
}

#[test]
fn a_mute_device_costs_one_time_limit_and_not_one_per_object() {
    // The default limit is a minute. One is waited for, not a hundred.
    let rig = Rig::light();
    let mut driver = Driver::open(&rig.slot, &usual()).unwrap();
    driver.set_net(&net(), rig.now()).unwrap();
    for _ in 0..8 {
        driver.pd_create().unwrap();
        driver.cq_create(16).unwrap();
    }
    rig.script(Script::mute_from_here);
    let start = rig.now();
    let fault = driver.close().unwrap_err();
    let took = rig.now() - start;
    assert!(took >= Duration::from_secs(60) && took < Duration::from_secs(61), "{took:?}: {fault}");
}

/// `mute_from` with the arguments in the order of [`Rig::script`].
trait Here: Sized {
    fn mute_from_here(first: u64, script: Self) -> Self;
}

impl Here for Script {
    fn mute_from_here(first: u64, script: Self) -> Self {
        script.mute_from(first)
    }
}

#[test]
fn a_loss_is_reported_once_and_service_takes_nothing_more() {
    let rig = Rig::light();
    let mut driver = Driver::open(&rig.slot, &patience()).unwrap();
    driver.set_net(&net(), rig.now()).unwrap();
    rig.script(Script::mute_from_here);
    driver.pd_create().unwrap_err();
    let taken = rig.taken();
    let mut count = 0;
    for _ in 0..200 {
        rig.pass(Duration::from_millis(100));
        driver.service(rig.now());
        while let Some(notice) = driver.notice() {
            assert!(matches!(notice, Notice::Catastrophic(_)), "{notice:?}");
            count += 1;
        }
    }
    assert_eq!(count, 1);
    assert_eq!(rig.taken(), taken, "a lost device takes no more memory");
    let fault = driver.cq_create(16).map(drop).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Gone, "{fault}");
}

// ---- refusals ----

/// Every status the manual names, and one it does not.
const STATUSES: [u8; 17] = [
    0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0f, 0x10, 0x30, 0x40, 0x50, 0x51,
    0xee,
];

/// Steps that a device may refuse without harm.
fn optional(op: Opcode) -> bool {
    matches!(
        op,
        Opcode::QueryIssi
            | Opcode::SetIssi
            | Opcode::AccessReg
            | Opcode::AllocQCounter
            | Opcode::ModifyNicVportContext
            | Opcode::SetL2TableEntry
            | Opcode::AllocUar
            | Opcode::DeallocUar
            | Opcode::ToRstQp
    )
}

#[test]
fn every_status_at_every_command_is_reported_by_name_and_undone() {
    let all = commands();
    // Without the second SET_HCA_CAP there are no atomics, and all else works.
    let sets = all.iter().enumerate().filter(|(_, op)| **op == Opcode::SetHcaCap);
    let atomics = sets.map(|(n, _)| n).nth(1);
    for (n, &op) in all.iter().enumerate() {
        for status in STATUSES {
            let rig = Rig::light();
            let verdict = Verdict::Refuse { status, syndrome: 0x4bb_88f };
            rig.script(|first, script| script.on(When::Nth(first + n as u64), verdict));
            let result = journey(&Watched::new(&rig.slot), &patience());
            let here = format!("command {n} {op:?} status {status:#x}");
            match result {
                Ok(()) => assert!(optional(op) || atomics == Some(n), "{here}: nobody noticed"),
                Err((step, fault)) => {
                    assert_eq!(fault.operation, op.name(), "{here}: {step}: {fault}");
                    assert_eq!((fault.status, fault.syndrome), (status, 0x4bb_88f), "{here}");
                    assert!(!fault.cause.is_empty(), "{here}");
                }
            }
            // Pages that the firmware does not give back are not the host's before a reset;
            // everything else is.
            let keeps = matches!(op, Opcode::TeardownHca | Opcode::ManagePages);
            let owned = rig.slot.hca().pages_owned() as usize;
            assert!(owned == 0 || keeps, "{here}");
            assert_eq!(rig.taken(), Taken { arena: 0, pages: owned }, "{here}");
        }
    }
}

#[test]
fn every_opcode_refused_for_ever_is_reported_by_name_and_undone() {
    let mut seen = commands();
    seen.sort_by_key(|op| op.code());
    seen.dedup();
    for op in seen {
        let rig = Rig::light();
        let verdict = Verdict::Refuse { status: 0x01, syndrome: 1 };
        rig.script(|_, script| script.on(When::Opcode(op.code()), verdict));
        let result = journey(&Watched::new(&rig.slot), &patience());
        if let Err((step, fault)) = result {
            assert_eq!(fault.operation, op.name(), "{op:?}: {step}: {fault}");
        } else {
            assert!(optional(op), "{op:?}: nobody noticed");
        }
        let owned = rig.slot.hca().pages_owned() as usize;
        let keeps = matches!(op, Opcode::TeardownHca | Opcode::ManagePages);
        assert!(owned == 0 || keeps, "{op:?}");
        assert_eq!(rig.taken(), Taken { arena: 0, pages: owned }, "{op:?}");
    }
}

#[test]
fn every_delivery_failure_at_every_command_is_undone() {
    for (n, op) in commands().iter().enumerate() {
        for delivery in [1, 2, 3, 4, 5, 6, 7, 8, 9, 0x10, 0x7f] {
            let rig = Rig::light();
            let verdict = Verdict::Undelivered(delivery);
            rig.script(|first, script| script.on(When::Nth(first + n as u64), verdict));
            let result = journey(&Watched::new(&rig.slot), &patience());
            let here = format!("command {n} {op:?} delivery {delivery:#x}");
            match result {
                Ok(()) => assert!(optional(*op), "{here}: nobody noticed"),
                Err((step, fault)) => {
                    assert_eq!(fault.operation, op.name(), "{here}: {step}: {fault}")
                }
            }
        }
    }
}

// ---- registers ----

const INITIALIZING: usize = 0x1fc;

#[test]
fn a_firmware_that_never_starts_is_reported_at_its_deadline() {
    let rig = Rig::light();
    let watched = Watched::new(&rig.slot);
    watched.look(|at, value| if at == INITIALIZING { value | 1 << 31 } else { value });
    let start = rig.now();
    let fault = Device::open(&watched, &patience()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Timeout);
    assert!(fault.operation.contains("initialization"), "{fault}");
    let took = rig.now() - start;
    assert!(took >= Duration::from_millis(500) && took < Duration::from_millis(510), "{took:?}");
    assert_eq!(rig.taken(), NOTHING);
}

#[test]
fn a_firmware_that_stays_busy_after_the_command_page_is_reported() {
    let rig = Rig::light();
    let watched = Watched::new(&rig.slot);
    let mut reads = 0;
    watched.look(move |at, value| {
        reads += u32::from(at == INITIALIZING);
        if at == INITIALIZING && reads > 1 { value | 1 << 31 } else { value }
    });
    let start = rig.now();
    let fault = Device::open(&watched, &patience()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Timeout);
    assert!(rig.now() - start < Duration::from_millis(2100));
    // It was given the page, and nothing else: no command ran.
    assert_eq!(rig.slot.hca().commands(), 0);
}

/// Commands take so long that the device's health is looked at.
#[test]
fn at_every_register_read_the_device_may_leave_the_bus() {
    let slow = || {
        let rig = Rig::light();
        rig.script(|first, script| script.on(When::From(first), Verdict::Late(2_000_000)));
        rig
    };
    let total = {
        let rig = slow();
        let watched = Watched::new(&rig.slot);
        journey(&watched, &patience()).unwrap();
        watched.reads()
    };
    assert!(total > 100, "{total}");
    for n in 0..total {
        let rig = slow();
        let watched = Watched::new(&rig.slot);
        let mut reads = 0;
        watched.look(move |_, value| {
            reads += 1;
            if reads > n { u32::MAX } else { value }
        });
        let start = rig.now();
        let result = journey(&watched, &patience());
        let took = rig.now() - start;
        assert!(took < Duration::from_secs(3), "read {n}: {took:?}");
        // The last command's answer is in memory: its registers are not needed any more.
        if let Err((step, fault)) = result {
            assert!(
                matches!(fault.kind, FaultKind::Gone | FaultKind::Timeout | FaultKind::Nonsense),
                "read {n}, {step}: {fault}"
            );
        }
    }
}

#[test]
fn another_interface_revision_is_refused_in_words() {
    for revision in [0, 4, 6, 0xffff] {
        let rig = Rig::light();
        let watched = Watched::new(&rig.slot);
        watched.look(
            move |at, value| {
                if at == 4 { revision << 16 | value & 0xffff } else { value }
            },
        );
        let fault = Device::open(&watched, &patience()).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Nonsense);
        assert_eq!(fault.number, revision);
        assert_eq!((rig.taken(), rig.slot.hca().commands()), (NOTHING, 0));
    }
}

#[test]
fn every_geometry_of_the_command_queue_is_used_or_refused() {
    for word in 0..=0xff_u32 {
        let rig = Rig::light();
        let watched = Watched::new(&rig.slot);
        watched.look(move |at, value| if at == 0x14 { value & !0xff | word } else { value });
        let (size, stride) = (word >> 4, word & 0xf);
        match Device::open(&watched, &patience()) {
            // The card's own stride is 6: with another the driver's entries are elsewhere, but slot
            // 0 is slot 0.
            Ok(mut device) => {
                assert!(size <= 5 && stride >= 6 && size + stride <= 12, "{word:#x}");
                device.close().unwrap();
            }
            Err(fault) => assert_eq!(fault.kind, FaultKind::Nonsense, "{word:#x}: {fault}"),
        }
        assert_eq!(rig.taken(), NOTHING, "{word:#x}");
    }
}
