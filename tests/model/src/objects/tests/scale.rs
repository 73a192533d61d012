//! What a step, a command, a write and a timer cost beside many other objects.
//!
//! Every look at an entry of a table is counted ([`crate::table::visits`]). The same work is done
//! beside a few objects and beside [`MANY`]: the count may grow by half at most. A few are as many
//! as the queue pairs in error that one step looks at.

use std::hint::black_box;

use super::super::blueflame::Pushed;
use super::super::cqe::{Cqe, CqeOpcode};
use super::super::device::Device;
use super::super::qp::path;
use super::orders::{connect, raddr};
use super::qp::to_rts;
use super::{BASE, CQ_DBR, DATA, QP_DBR, QP_PAGE, Rig, control, cq_arm, pointer, put_page};
use crate::cmd::{FunctionState, Status};
use crate::config::Config;
use crate::ifc::cmd::{cmd_entry, cmd_mailbox, head_out};
use crate::ifc::cq::cqc;
use crate::ifc::flow::set_l2_table_entry_in as l2;
use crate::ifc::qp::{ads, mcg_in, qp_in, qpc};
use crate::table::visits;

const COMMANDS: u64 = BASE + 0x9000;
const MAILBOX: u64 = BASE + 0xa000;
const CROWD_PAGE: u64 = BASE + 0x6000;
const CROWD_DBR: u64 = BASE + 0xb000;
const FEW: u32 = 16;
const MANY: u32 = 10_000;
/// Time between two steps: short of every timer, and long enough for a burst to leave.
const TICK: u64 = 5_000;

/// Two connected queue pairs that do the work, and a crowd of objects that do not.
pub(super) struct Scale {
    rig: Rig,
    now: u64,
    /// The queue pair that writes, and how often it did.
    qpn: u32,
    posted: u16,
    cqn: u32,
    key: u32,
    /// What the crowd counts.
    made: u32,
    member: u32,
}

impl Scale {
    fn new(facts: &str) -> Self {
        let mut rig = Rig::with_facts(facts);
        rig.hca.config_write(4, &[6, 0]);
        rig.hca.cmd.base = Some(COMMANDS);
        rig.hca.cmd.state = FunctionState::Running;
        let cqn = rig.cq(5);
        let (qpn, _) = connect(&mut rig, cqn, |_| {});
        let key = rig.key(|_| {}).unwrap();
        Self { rig, now: 0, qpn, posted: 0, cqn, key, made: 0, member: 0 }
    }

    fn step(&mut self) -> Option<u64> {
        self.now += TICK;
        self.rig.hca.step(self.now)
    }

    /// Runs a command of the command interface; returns the number in its answer.
    fn command(&mut self, opcode: u16, input: &mut [u8]) -> u32 {
        input[..2].copy_from_slice(&opcode.to_be_bytes());
        let mut entry = [0; cmd_entry::BYTES];
        let head = input.len().min(16);
        cmd_entry::transport.set(&mut entry, 7);
        cmd_entry::input_length.set(&mut entry, input.len() as u32);
        cmd_entry::output_length.set(&mut entry, 16);
        cmd_entry::token.set(&mut entry, 1);
        cmd_entry::ownership.set(&mut entry, 1);
        cmd_entry::input.bytes_mut(&mut entry)[..head].copy_from_slice(&input[..head]);
        if input.len() > head {
            let mut block = [0; cmd_mailbox::BYTES];
            cmd_mailbox::data.bytes_mut(&mut block)[..input.len() - head]
                .copy_from_slice(&input[head..]);
            cmd_mailbox::token.set(&mut block, 1);
            cmd_entry::input_mailbox.set64(&mut entry, MAILBOX);
            self.rig.poke(MAILBOX, &block);
        }
        self.rig.poke(COMMANDS, &entry);
        self.rig.hca.bar_write(0x18, &1u32.to_be_bytes());
        self.step();
        let at = COMMANDS + cmd_entry::output.byte() as u64;
        let output = self.rig.peek(at, 16);
        assert_eq!(output[0], 0, "command {opcode:#x}: {output:x?}");
        head_out::number.get(&output) & 0xff_ffff
    }

    /// The CREATE_QP input of a queue pair of the crowd.
    fn qp_input(&self, cqn: u32) -> Vec<u8> {
        let mut input = self.rig.qp_input(cqn);
        qpc::dbr_addr.set64(qp_in::qpc.bytes_mut(&mut input), CROWD_DBR);
        put_page(&mut input, qp_in::pas, CROWD_PAGE);
        input
    }

    /// A queue pair of the crowd, connected to nobody.
    fn extra(&mut self, cqn: u32) -> u32 {
        let input = self.qp_input(cqn);
        let qpn = self.rig.run(0x500, &input).unwrap();
        to_rts(&mut self.rig, qpn);
        qpn
    }

    /// Creates a queue pair, brings it to RTS and destroys it.
    #[inline(never)]
    fn cycle(&mut self) {
        let mut create = self.qp_input(self.cqn);
        let qpn = self.command(0x500, &mut create);
        let steps: [(u16, &[_]); 3] = [
            (0x502, &[(qpc::pm_state, 3), (path(ads::vhca_port_num), 1), (qpc::rwe, 1)]),
            (
                0x503,
                &[
                    (qpc::mtu, 3),
                    (qpc::log_msg_max, 30),
                    (qpc::remote_qpn, 0x77),
                    (path(ads::hop_limit), 64),
                    (path(ads::udp_sport), 0xc001),
                    (path(ads::rmac_31_0), 5),
                    (path(ads::rgid_rip), 6),
                ],
            ),
            (0x504, &[(qpc::retry_count, 5), (path(ads::ack_timeout), 14)]),
        ];
        for (opcode, fields) in steps {
            let mut input = vec![0; 272];
            input[8..12].copy_from_slice(&qpn.to_be_bytes());
            let context = qp_in::qpc.bytes_mut(&mut input);
            fields.iter().for_each(|(field, value)| field.set(context, *value));
            self.command(opcode, &mut input);
        }
        let mut destroy = [0; 16];
        destroy[8..12].copy_from_slice(&qpn.to_be_bytes());
        self.command(0x501, &mut destroy);
    }

    /// Writes 8 bytes to the peer: doorbell, frame, acknowledgement, completion.
    #[inline(never)]
    fn write(&mut self) {
        let index = self.posted;
        self.posted = index.wrapping_add(1);
        let mut wqe = control(8, index, self.qpn, 3, 0);
        wqe.extend(raddr(DATA + 0x100, self.key));
        wqe.extend(pointer(8, self.key, DATA));
        self.rig.poke(QP_PAGE + 256 + u64::from(index % 4) * 64, &wqe);
        self.rig.poke32(CQ_DBR, u32::from(index));
        self.rig.poke32(QP_DBR + 4, u32::from(self.posted));
        self.rig.ring(self.qpn);
        self.step();
        let cqe = self.rig.cqe(u64::from(index % 32));
        assert_eq!(cqe[0x3f] >> 4, 0, "{index}: {:?}", self.rig.hca.complaints());
    }

    /// A step in which nothing is due.
    #[inline(never)]
    fn idle(&mut self) {
        black_box(self.step());
    }

    /// A step without time.
    fn still(&mut self) {
        black_box(self.rig.hca.step(self.now));
    }

    /// A step in which the first timer is due, and no other.
    #[inline(never)]
    fn timer(&mut self) {
        let due = self.step().expect("a timer runs");
        assert!(due > self.now, "a timer is due already");
        let before = self.rig.hca.bus.stats.retransmissions;
        self.now = due;
        self.rig.hca.step(due);
        assert_eq!(self.rig.hca.bus.stats.retransmissions, before + 1);
    }

    /// Entries of tables that a piece of work looks at.
    fn looks(&mut self, work: Work) -> u64 {
        let before = visits();
        work.1(self);
        visits() - before
    }
}

type Crowd = fn(&mut Scale);
type Work = (&'static str, fn(&mut Scale));

const STILL: Work = ("step at the same time", Scale::still);
const IDLE: Work = ("idle step", Scale::idle);
const CYCLE: Work = ("create to destroy", Scale::cycle);
const WRITE: Work = ("write", Scale::write);
const TIMER: Work = ("timer", Scale::timer);
const ALL: &[Work] = &[IDLE, CYCLE, WRITE];

/// Objects of which there are many: open facts, what makes one more, and the work beside them.
const CROWDS: &[(&str, &str, Crowd, &[Work])] = &[
    ("connected", "", connected, ALL),
    ("waiting", "", waiting, &[IDLE, CYCLE, WRITE, TIMER]),
    ("failed", "", failed, ALL),
    ("moderated", "", moderated, ALL),
    ("compressing", "cqe-compression=always", compressing, &[STILL]),
    ("late", "cqe-order=late", late, &[IDLE]),
    ("begun", "", begun, &[WRITE]),
    ("grouped", "", grouped, ALL),
    ("macs", "", macs, ALL),
];

/// A CQ of the crowd.
fn crowd_cq(scale: &mut Scale, log: u32, edit: impl FnOnce(&mut [u8])) -> u32 {
    let edit = |context: &mut [u8]| {
        cqc::dbr_addr.set64(context, CROWD_DBR + 64);
        edit(context);
    };
    scale.rig.cq_with(log, edit).unwrap()
}

/// A connected queue pair with a CQ and a key.
fn connected(scale: &mut Scale) {
    let cqn = crowd_cq(scale, 2, |_| {});
    scale.extra(cqn);
    scale.rig.key(|_| {}).unwrap();
}

/// A queue pair that waits for an answer.
fn waiting(scale: &mut Scale) {
    let qpn = scale.extra(scale.cqn);
    let mut wqe = control(8, 0, qpn, 3, 0);
    wqe.extend(raddr(DATA + 0x100, scale.key));
    wqe.extend(pointer(8, scale.key, DATA));
    scale.rig.poke(CROWD_PAGE + 256, &wqe);
    scale.rig.poke32(CROWD_DBR + 4, 1);
    scale.rig.ring(qpn);
    scale.rig.poke32(CROWD_DBR + 4, 0);
    // No two wait until the same time.
    scale.now += 100;
    scale.rig.hca.step(scale.now);
}

/// A queue pair in error.
fn failed(scale: &mut Scale) {
    let qpn = scale.extra(scale.cqn);
    scale.rig.short(0x507, qpn).unwrap();
}

/// A CQ with an open session of compressed completions.
fn compressing(scale: &mut Scale) {
    let cqn = crowd_cq(scale, 4, |context| cqc::cqe_comp_en.set(context, 1));
    let cqe = Cqe { user_index: 1, ..Cqe::new(CqeOpcode::RespSend, 0x48) };
    Device::of(&mut scale.rig.hca).complete(0x48, cqn, &cqe);
}

/// A completion on its way, of a queue of its own.
fn late(scale: &mut Scale) {
    scale.made += 1;
    let cqe = Cqe::new(CqeOpcode::RespSend, 0x48);
    let number = 0x1_0000 + scale.made;
    scale.rig.hca.objects.late.put(1 << 40, number, scale.cqn, &cqe);
}

/// A WQE of which only the first block has come.
fn begun(scale: &mut Scale) {
    scale.made += 1;
    let wqe = control(8, 0, 0xf0_0000 + scale.made, 5, 0);
    let bytes = [wqe, vec![0; 48]].concat();
    let pushed = Pushed::begin(&bytes, 0x100).unwrap();
    scale.rig.hca.objects.blueflame.keep(0x1000_0000 + u64::from(scale.made) * 0x100, pushed);
}

/// A multicast group.
fn grouped(scale: &mut Scale) {
    if scale.member == 0 {
        let mut input = scale.qp_input(scale.cqn);
        qpc::st.set(qp_in::qpc.bytes_mut(&mut input), 2);
        scale.member = scale.rig.run(0x500, &input).unwrap();
    }
    scale.made += 1;
    let mut input = vec![0; 32];
    mcg_in::qpn.set(&mut input, scale.member);
    let gid = mcg_in::multicast_gid.bytes_mut(&mut input);
    gid[..2].copy_from_slice(&[0xff, 0x0e]);
    gid[12..].copy_from_slice(&scale.made.to_be_bytes());
    scale.rig.run(0x806, &input).unwrap();
}

/// A MAC that the switch lets through.
fn macs(scale: &mut Scale) {
    scale.made += 1;
    let [_, a, b, c] = scale.made.to_be_bytes();
    let mut input = vec![0; 64];
    l2::table_index.set(&mut input, scale.made);
    l2::mac_address.bytes_mut(&mut input)[2..8].copy_from_slice(&[2, 9, 0, a, b, c]);
    scale.rig.run(0x829, &input).unwrap();
}

/// A CQ whose event waits for its time.
fn moderated(scale: &mut Scale) {
    let cqn = crowd_cq(scale, 6, |context| {
        cqc::cq_max_count.set(context, 4);
        cqc::cq_period.set(context, 4000);
        cqc::cq_period_mode.set(context, 1);
    });
    let rig = &mut scale.rig;
    rig.poke(CROWD_DBR + 64, &[0; 8]);
    cq_arm(&mut rig.hca, rig.uar, 0, cqn);
    let cqe = Cqe::new(CqeOpcode::Requester, 0x48);
    Device::of(&mut rig.hca).complete(0x48, cqn, &cqe);
}

#[test]
fn work_costs_the_same_beside_many_objects() {
    for &(name, facts, crowd, works) in CROWDS {
        let [few, many] = [FEW, MANY].map(|size| {
            let mut scale = Scale::new(facts);
            (0..size).for_each(|_| crowd(&mut scale));
            // What a change of every object left to do is done here.
            scale.idle();
            works.iter().map(|work| scale.looks(*work)).collect::<Vec<_>>()
        });
        for ((work, _), (few, many)) in works.iter().zip(few.iter().zip(&many)) {
            let looks = format!("{name}, {work}: {few} looks beside {FEW}, {many} beside {MANY}");
            println!("{looks}");
            assert!(2 * many <= 3 * few + 2, "{looks}");
        }
    }
}

#[test]
fn a_doorbell_of_a_crowd_is_rescheduled_once() {
    let mut scale = Scale::new("");
    (0..100).for_each(|_| connected(&mut scale));
    scale.idle();
    for _ in 0..1000 {
        scale.rig.ring(scale.qpn);
        scale.rig.ring(scale.qpn + 2);
    }
    assert_eq!(scale.rig.hca.objects.qps.listed(), 2);
}

#[test]
fn what_is_destroyed_leaves_nothing_behind() {
    let mut scale = Scale::new("");
    let cqn = scale.cqn;
    let users = scale.rig.hca.objects.cq_users.len();
    for crowd in [waiting, failed] {
        for _ in 0..200 {
            crowd(&mut scale);
            let objects = &scale.rig.hca.objects;
            let qpn = objects.cq_users.of(cqn).last().unwrap();
            scale.rig.short(0x501, qpn).unwrap();
        }
    }
    let lists = |scale: &Scale| {
        let objects = &scale.rig.hca.objects;
        (objects.qps.listed(), objects.cq_users.len())
    };
    assert!(lists(&scale).0 < 10, "{:?}", lists(&scale));
    scale.idle();
    assert_eq!(lists(&scale), (0, users));
    for crowd in [moderated, compressing] {
        let mut scale = Scale::new("cqe-compression=always");
        for _ in 0..20 {
            crowd(&mut scale);
        }
        let objects = |scale: &Scale| {
            let objects = &scale.rig.hca.objects;
            objects.sessions.len() + objects.held_events.len()
        };
        assert_eq!(objects(&scale), 20);
        for nth in 1..=20 {
            scale.rig.short(0x401, cqn + nth).unwrap();
        }
        assert_eq!(objects(&scale), 0);
    }
}

#[test]
fn objects_are_as_many_as_the_capabilities_say() {
    let caps = vec![("log_max_qp", 16), ("log_max_cq", 1), ("log_max_mkey", 1)];
    let mut rig = Rig::with(Config { general_caps: caps, ..Config::default() });
    let cqn = rig.cq(5);
    let mut last = 0;
    for _ in 0..1 << 16 {
        last = rig.qp(cqn);
    }
    let input = rig.qp_input(cqn);
    assert_eq!(rig.run(0x500, &input).unwrap_err().status, Status::ExceedLimit as u8);
    rig.short(0x501, last).unwrap();
    rig.run(0x500, &input).unwrap();
    // Those of the special services are beyond it.
    let mut special = rig.qp_input(cqn);
    qpc::st.set(qp_in::qpc.bytes_mut(&mut special), 8);
    let special = rig.run(0x500, &special).unwrap();
    rig.short(0x501, special).unwrap();
    assert_eq!(rig.run(0x500, &input).unwrap_err().status, Status::ExceedLimit as u8);
    rig.cq(5);
    assert_eq!(rig.cq_with(5, |_| {}).unwrap_err().status, Status::ExceedLimit as u8);
    let keys = [0; 3].map(|_| rig.key(|_| {}));
    assert!(keys[0].is_ok() && keys[1].is_ok() && keys[2].is_err());
}
