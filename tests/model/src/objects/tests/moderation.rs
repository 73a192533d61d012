//! Moderation of completion events: count, period, what ends the waiting, and refusals.

use super::super::cqe::{Cqe, CqeOpcode};
use super::super::device::Device;
use super::{CQ_DBR, Rig, cq_arm};
use crate::cmd::Refusal;
use crate::config::{Config, Profile};
use crate::host::Nanos;
use crate::ifc::Field;
use crate::ifc::cq::{cqc, create_cq_in, query_cq_out};
use crate::transport::host::Syndrome;

const US: Nanos = 1000;
const FROM_EVENT: u32 = 0;
const FROM_COMPLETION: u32 = 1;

/// A CQ with moderation, and how its driver uses it.
struct Moderated {
    rig: Rig,
    cqn: u32,
    /// Entries that came.
    posted: u16,
    /// Arms so far.
    arms: u32,
    now: Nanos,
}

impl Moderated {
    /// Four completions or ten microseconds, and the first event at 1 ms.
    fn new(facts: &str, mode: u32, edit: impl FnOnce(&mut [u8])) -> Self {
        let mut rig = Rig::with_facts(facts);
        let cqn = rig.cq_with(6, |c| {
            cqc::cq_max_count.set(c, 4);
            cqc::cq_period.set(c, 10);
            cqc::cq_period_mode.set(c, mode);
            edit(c);
        });
        let mut this = Self { rig, cqn: cqn.unwrap(), posted: 0, arms: 0, now: 0 };
        this.at(1000 * US);
        this.arm(0);
        // By mode and facts it takes one completion, or four.
        while this.events() == 0 {
            this.post();
        }
        this
    }

    /// Lets the device work at a time; says when it wants to work next.
    fn at(&mut self, now: Nanos) -> Option<Nanos> {
        self.now = now;
        self.rig.hca.step(now)
    }

    fn after(&mut self, time: Nanos) -> Option<Nanos> {
        self.at(self.now + time)
    }

    fn put(&mut self, edit: impl FnOnce(&mut Cqe)) {
        let mut cqe = Cqe::new(CqeOpcode::Requester, 0x48);
        cqe.wqe_counter = self.posted;
        edit(&mut cqe);
        self.posted += 1;
        Device::of(&mut self.rig.hca).complete(0x48, self.cqn, &cqe);
    }

    fn post(&mut self) {
        self.put(|_| {});
    }

    /// Arms the CQ with everything consumed but the `unread` newest entries.
    fn arm_with(&mut self, unread: u16, solicited: bool) {
        let read = self.rig.hca.bus.stats.eqes as u32;
        let (eqn, uar) = (self.rig.eqn, self.rig.uar);
        self.rig.hca.eqs.doorbell(&mut self.rig.hca.bus, uar, eqn << 24 | read, false);
        let index = u32::from(self.posted - unread);
        let word = self.arms << 28 | u32::from(solicited) << 24 | index;
        self.arms = (self.arms + 1) & 3;
        self.rig.poke32(CQ_DBR, index);
        self.rig.poke32(CQ_DBR + 4, word);
        cq_arm(&mut self.rig.hca, uar, word, self.cqn);
    }

    fn arm(&mut self, unread: u16) {
        self.arm_with(unread, false);
    }

    fn events(&mut self) -> usize {
        self.rig.events().len()
    }

    fn modify(&mut self, select: u32, fields: &[(Field, u32)]) -> Result<u32, Refusal> {
        modify(&mut self.rig, self.cqn, select, fields)
    }
}

fn modify(rig: &mut Rig, cqn: u32, select: u32, fields: &[(Field, u32)]) -> Result<u32, Refusal> {
    let mut input = vec![0; 280];
    input[8..12].copy_from_slice(&cqn.to_be_bytes());
    create_cq_in::field_select.set(&mut input, select);
    let context = create_cq_in::cqc.bytes_mut(&mut input);
    fields.iter().for_each(|(field, value)| field.set(context, *value));
    rig.run(0x403, &input)
}

#[test]
fn the_count_raises_the_event() {
    for mode in [FROM_EVENT, FROM_COMPLETION] {
        let mut cq = Moderated::new("", mode, |_| {});
        cq.arm(0);
        (0..3).for_each(|_| cq.post());
        assert_eq!(cq.events(), 1, "three of four, mode {mode}");
        cq.post();
        assert_eq!(cq.events(), 2);
    }
}

#[test]
fn the_period_runs_from_the_last_event_or_from_the_last_completion() {
    for (mode, due) in [(FROM_EVENT, 10), (FROM_COMPLETION, 7 + 10)] {
        let mut cq = Moderated::new("", mode, |_| {});
        let event = cq.now;
        cq.arm(0);
        cq.after(3 * US);
        cq.post();
        cq.after(4 * US);
        cq.post();
        assert_eq!(cq.at(cq.now), Some(event + due * US), "it says when it is due");
        cq.at(event + due * US - 1);
        assert_eq!(cq.events(), 1, "mode {mode}");
        cq.at(event + due * US);
        assert_eq!(cq.events(), 2, "mode {mode}");
        assert_eq!(cq.after(1000 * US), None, "once");
        assert_eq!(cq.events(), 2);
    }
}

#[test]
fn a_period_that_is_over_raises_at_once_or_begins_anew() {
    for (facts, mode, waits) in [
        ("", FROM_EVENT, false),
        ("cq-period-start=whole", FROM_EVENT, true),
        ("", FROM_COMPLETION, true),
    ] {
        let mut cq = Moderated::new(facts, mode, |_| {});
        cq.arm(0);
        cq.after(1000 * US);
        cq.post();
        assert_eq!(cq.events(), if waits { 1 } else { 2 }, "{facts} mode {mode}");
        cq.after(10 * US);
        assert_eq!(cq.events(), 2, "{facts} mode {mode}");
    }
}

#[test]
fn an_arm_behind_the_producer_waits_or_not() {
    for (facts, waits) in [("", true), ("cq-arm-moderation=at-once", false)] {
        let mut cq = Moderated::new(facts, FROM_COMPLETION, |_| {});
        cq.post();
        cq.arm(1);
        assert_eq!(cq.events(), if waits { 1 } else { 2 }, "{facts}");
        cq.after(10 * US);
        assert_eq!(cq.events(), 2, "{facts}");
        (0..4).for_each(|_| cq.post());
        cq.arm(4);
        assert_eq!(cq.events(), 3, "the count is reached");
        cq.post();
        cq.after(10 * US);
        cq.arm(1);
        assert_eq!(cq.events(), 4, "the period is over");
    }
}

#[test]
fn an_arm_with_everything_consumed_takes_back_what_waits() {
    let mut cq = Moderated::new("", FROM_COMPLETION, |_| {});
    cq.arm(0);
    cq.post();
    cq.arm(0);
    assert_eq!(cq.after(1000 * US), None);
    assert_eq!(cq.events(), 1);
}

#[test]
fn solicited_completions_break_moderation_where_the_queue_says_so() {
    let solicited = |cqe: &mut Cqe| cqe.solicited = true;
    let error = |cqe: &mut Cqe| cqe.error = Some(Syndrome::Flushed);
    for (facts, breaks, only, at_once) in [
        ("", 0, false, false),
        ("", 0, true, false),
        ("", 1, false, true),
        ("", 1, true, true),
        ("cq-solicited-moderation=at-once", 0, false, false),
        ("cq-solicited-moderation=at-once", 0, true, true),
    ] {
        let case = format!("{facts} {breaks} {only}");
        let set = |c: &mut [u8]| cqc::scqe_break_moderation_en.set(c, breaks);
        for edit in [solicited, error] {
            let mut cq = Moderated::new(facts, FROM_COMPLETION, set);
            cq.arm_with(0, only);
            cq.post();
            cq.put(edit);
            assert_eq!(cq.events(), if at_once { 2 } else { 1 }, "{case}");
            cq.after(10 * US);
            assert_eq!(cq.events(), 2, "{case}");
            cq.put(edit);
            cq.arm_with(1, only);
            assert_eq!(cq.events(), if at_once { 3 } else { 2 }, "{case}, armed behind it");
        }
    }
}

#[test]
fn only_solicited_completions_ask_for_the_event_and_all_count() {
    let mut cq = Moderated::new("", FROM_EVENT, |_| {});
    cq.arm_with(0, true);
    (0..5).for_each(|_| cq.post());
    cq.after(1000 * US);
    assert_eq!(cq.events(), 1, "none of them is solicited");
    cq.put(|cqe| cqe.solicited = true);
    assert_eq!(cq.events(), 2);
}

#[test]
fn either_of_zero_switches_moderation_off() {
    for (select, field) in [(1, cqc::cq_period), (2, cqc::cq_max_count)] {
        let mut cq = Moderated::new("", FROM_COMPLETION, |_| {});
        cq.arm(0);
        cq.post();
        assert_eq!(cq.events(), 1);
        cq.modify(select, &[(field, 0)]).unwrap();
        assert_eq!(cq.events(), 2, "what waits is raised");
        cq.arm(0);
        cq.post();
        assert_eq!(cq.events(), 3);
    }
}

#[test]
fn moderation_is_modified_and_read_back() {
    let mut cq = Moderated::new("", FROM_EVENT, |_| {});
    let wanted = [(cqc::cq_period, 100), (cqc::cq_max_count, 9), (cqc::cq_period_mode, 1)];
    cq.modify(0x13, &wanted).unwrap();
    let mut input = vec![0; 16];
    input[8..12].copy_from_slice(&cq.cqn.to_be_bytes());
    let mut output = vec![0; 272];
    cq.rig.query(0x402, &input, &mut output).unwrap();
    for (field, value) in wanted {
        assert_eq!(field.get(query_cq_out::cqc.bytes(&output)), value);
    }
    cq.arm(0);
    let began = cq.now;
    cq.post();
    assert_eq!(cq.at(began), Some(began + 100 * US));
    (0..8).for_each(|_| cq.post());
    assert_eq!(cq.events(), 2);
}

#[test]
fn commands_do_not_hurry_an_event() {
    let mut cq = Moderated::new("", FROM_COMPLETION, |_| {});
    cq.arm(0);
    cq.post();
    super::super::traffic::write_completions(&mut cq.rig.hca);
    assert_eq!(cq.events(), 1);
    cq.after(10 * US);
    assert_eq!(cq.events(), 2);
}

#[test]
fn what_is_held_back_is_written_before_the_event() {
    let mut cq = Moderated::new("cqe-compression=always", FROM_COMPLETION, |c| {
        cqc::cqe_comp_en.set(c, 1);
        cqc::cq_period.set(c, 1);
    });
    cq.arm(0);
    cq.put(|cqe| cqe.opcode = CqeOpcode::RespSend);
    assert_eq!(cq.rig.cqe(4)[0x3f], 0xf1, "held back");
    cq.after(US);
    assert_eq!(cq.events(), 2);
    assert_eq!(cq.rig.cqe(4)[0x3f] >> 4, CqeOpcode::RespSend as u8);
}

#[test]
fn a_queue_in_error_raises_no_completion_event() {
    let mut cq = Moderated::new("", FROM_EVENT, |c| {
        cqc::cq_max_count.set(c, 100);
        cqc::log_cq_size.set(c, 2);
    });
    cq.arm(0);
    (0..5).for_each(|_| cq.post());
    cq.after(1000 * US);
    assert_eq!(cq.rig.events(), [0, 4], "the fifth entry has no slot");
}

#[test]
fn what_the_device_has_not_got_is_refused() {
    let bad = |answer: Result<u32, Refusal>| assert_eq!(answer.unwrap_err().status, 3);
    let mut cq = Moderated::new("", FROM_EVENT, |_| {});
    for mode in [2, 3] {
        bad(cq.rig.cq_with(2, |c| cqc::cq_period_mode.set(c, mode)));
        bad(cq.modify(0x10, &[(cqc::cq_period_mode, mode)]));
    }
    for unknown in [8, 0x20, 0x8000_0000] {
        bad(cq.modify(unknown, &[]));
    }
    let mut small = Rig::with(Config { profile: Profile::Small, ..Config::default() });
    let cqn = small.cq(2);
    bad(small.cq_with(2, |c| cqc::cq_period_mode.set(c, 1)));
    bad(small.cq_with(2, |c| cqc::scqe_break_moderation_en.set(c, 1)));
    bad(modify(&mut small, cqn, 0x10, &[]));
    modify(&mut small, cqn, 3, &[(cqc::cq_period, 4095), (cqc::cq_max_count, 65535)]).unwrap();
    let none = vec![("cq_moderation", 0), ("cq_oi", 0)];
    let mut none = Rig::with(Config { general_caps: none, ..Config::default() });
    let cqn = none.cq(2);
    bad(none.cq_with(2, |c| cqc::cq_period.set(c, 1)));
    bad(none.cq_with(2, |c| cqc::cq_max_count.set(c, 1)));
    for select in [1, 2, 4] {
        bad(modify(&mut none, cqn, select, &[]));
    }
}
