//! Queues, keys, steering: everything that has a number and a context.
//!
//! [`Objects`] holds the tables. A command handler (`*_cmd` functions, listed in [`COMMANDS`])
//! checks everything before it takes a number or a reference, so a refused command leaves no trace.
//! The data path goes through [`device::Device`], which borrows the tables beside the bus and is
//! the host of the transport's engines.

mod blueflame;
mod buffer;
mod complete;
mod compress;
mod cq;
mod cq_cmd;
mod cq_users;
mod cqe;
mod device;
mod doorbell;
mod edits;
mod ethernet;
mod flow;
mod flow_cmd;
mod flow_counter_cmd;
mod l2;
mod late;
mod lso;
mod mkey;
mod mkey_cmd;
mod moderation;
mod multicast;
mod qp;
mod qp_cmd;
mod qp_state;
mod qps;
mod rmp;
mod rq_sq;
mod rss;
mod subnet;
mod tir_tis;
mod traffic;
mod umem;
mod umr;
mod wq;
mod wq_cmd;
mod wqe;

pub(crate) use doorbell::{cq_arm, ring_begun, send_doorbell};
pub(crate) use traffic::{fail, step, write_completions};

use crate::caps::Caps;
use crate::cmd::{Command, Handler, Stage};
use crate::facts::{Facts, OpenFact};
use crate::ifc::Field;
use crate::ifc::caps::cmd_hca_cap as cap;
use crate::numbers::Numbers;
use crate::table::{Deadlines, Table};
use std::collections::VecDeque;

/// A frame on its way out.
#[derive(Debug)]
struct Outgoing {
    frame: Vec<u8>,
    /// Transport domain of the raw queue that sent it.
    domain: Option<u32>,
}

/// All objects of the function.
#[derive(Debug)]
pub(crate) struct Objects {
    /// CQ numbers; a queue that uses a CQ holds it.
    cq_numbers: Numbers,
    /// One space for QPs, SQs and RQs: a doorbell carries only the number.
    queue_numbers: Numbers,
    /// One space for RMPs and XRC SRQs.
    srq_numbers: Numbers,
    mkey_numbers: Numbers,
    tir_numbers: Numbers,
    tis_numbers: Numbers,
    rqt_numbers: Numbers,
    umem_numbers: Numbers,
    /// Completion queues.
    cqs: Table<u32, cq::Cq>,
    /// The queues that complete to them.
    cq_users: cq_users::CqUsers,
    /// Queue pairs.
    qps: qps::Qps,
    /// Raw send queues.
    sqs: Table<u32, rq_sq::Sq>,
    /// Raw receive queues.
    rqs: Table<u32, rq_sq::Rq>,
    /// Shared receive queues.
    rmps: Table<u32, rmp::Rmp>,
    tirs: Table<u32, tir_tis::Tir>,
    tiss: Table<u32, tir_tis::Tis>,
    rqts: Table<u32, tir_tis::Rqt>,
    /// User memory.
    umems: Table<u32, umem::Umem>,
    /// Memory keys.
    tpt: mkey::Tpt,
    /// Flow tables.
    steering: flow::Steering,
    /// MACs the physical function lets through, by table index.
    l2: l2::L2,
    /// Queue counters that moved, by set and place of the counter in the query.
    tallies: Table<(u32, usize), u32>,
    /// Flow counters.
    flow_counters: flow::Counters,
    /// Multicast groups.
    groups: multicast::Groups,
    /// BlueFlame registers.
    blueflame: blueflame::Registers,
    /// Completions on their way.
    late: late::Late,
    /// When the open sessions of compressed completions of CQs end.
    sessions: Deadlines,
    /// When the events of CQs that wait are raised.
    held_events: Deadlines,
    /// Frames to send, in order.
    outbox: VecDeque<Outgoing>,
    /// Queues that lost their CQ: they go to error as soon as no engine runs.
    doomed: Vec<u32>,
}

impl Objects {
    /// None yet; of completion queues and keys as many as the capabilities say.
    pub(crate) fn new(caps: &Caps, facts: &Facts) -> Self {
        let numbers = |first: u32, most, what| {
            let end = first + (1 << caps.general(most).min(24));
            Numbers::new(first, end.min(1 << 24), what)
        };
        Self {
            cq_numbers: numbers(0x400, cap::log_max_cq, 0x40_0000),
            queue_numbers: Numbers::new(0x48, 1 << 24, 0x50_0000),
            srq_numbers: Numbers::new(0x10, 1 << 24, 0x90_c000),
            // Index 1 would make key 0x100, which ends a scatter list.
            mkey_numbers: numbers(0x1002, cap::log_max_mkey, 0x20_0000)
                .reusing(facts.on(OpenFact::KeyIndex)),
            tir_numbers: Numbers::new(1, 1 << 24, 0x90_0000),
            tis_numbers: Numbers::new(1, 1 << 24, 0x91_2000),
            rqt_numbers: Numbers::new(1, 1 << 24, 0x91_6000),
            umem_numbers: Numbers::new(1, 1 << 24, 0xa0_8020),
            cqs: Table::default(),
            cq_users: cq_users::CqUsers::default(),
            qps: qps::Qps::default(),
            sqs: Table::default(),
            rqs: Table::default(),
            rmps: Table::default(),
            tirs: Table::default(),
            tiss: Table::default(),
            rqts: Table::default(),
            umems: Table::default(),
            tpt: mkey::Tpt::default(),
            steering: flow::Steering::default(),
            l2: l2::L2::default(),
            tallies: Table::default(),
            flow_counters: flow::Counters::default(),
            groups: multicast::Groups::default(),
            blueflame: blueflame::Registers::default(),
            late: late::Late::default(),
            sessions: Deadlines::default(),
            held_events: Deadlines::default(),
            outbox: VecDeque::new(),
            doomed: Vec::new(),
        }
    }

    /// Objects that exist: queues of all kinds, completion queues, keys.
    pub(crate) fn live(&self) -> [usize; 3] {
        let queues = [&self.queue_numbers, &self.srq_numbers, &self.tir_numbers, &self.tis_numbers];
        let queues = queues.map(Numbers::live).iter().sum();
        [queues, self.cq_numbers.live(), self.mkey_numbers.live()]
    }

    /// One more of a counter of a set; set 0 is none.
    fn tally(&mut self, set: u32, counter: Field) {
        if set != 0 {
            let count = self.tallies.entry((set, counter.bit)).or_default();
            *count = count.wrapping_add(1);
        }
    }

    /// The counters of a set that moved: where they stand in the query, and their values.
    pub(crate) fn tallies(&self, set: u32) -> impl Iterator<Item = (Field, u32)> + '_ {
        let all = (set, 0)..=(set, usize::MAX);
        self.tallies.range(all).map(|((_, bit), &count)| (Field::at(bit, 32), count))
    }

    /// Counts from zero again.
    pub(crate) fn forget_tallies(&mut self, set: u32) {
        let gone: Vec<_> =
            self.tallies.range((set, 0)..=(set, usize::MAX)).map(|(at, _)| at).collect();
        for at in gone {
            self.tallies.remove(&at);
        }
    }
}

const fn row(
    opcode: u16,
    name: &'static str,
    input: usize,
    output: usize,
    run: Handler,
) -> Command {
    Command { opcode, name, input, output, stage: Stage::Running, run }
}

/// The commands handled here.
pub(crate) const COMMANDS: &[Command] = &[
    row(0x200, "CREATE_MKEY", 272, 16, mkey_cmd::create),
    row(0x201, "QUERY_MKEY", 16, 80, mkey_cmd::query),
    row(0x202, "DESTROY_MKEY", 16, 16, mkey_cmd::destroy),
    row(0x400, "CREATE_CQ", 272, 16, cq_cmd::create),
    row(0x401, "DESTROY_CQ", 16, 16, cq_cmd::destroy),
    row(0x402, "QUERY_CQ", 16, 80, cq_cmd::query),
    row(0x403, "MODIFY_CQ", 80, 16, cq_cmd::modify),
    row(0x500, "CREATE_QP", 272, 16, qp_cmd::create),
    row(0x501, "DESTROY_QP", 16, 16, qp_cmd::destroy),
    row(0x502, "RST2INIT_QP", 256, 16, qp_cmd::transition),
    row(0x503, "INIT2RTR_QP", 256, 16, qp_cmd::transition),
    row(0x504, "RTR2RTS_QP", 256, 16, qp_cmd::transition),
    row(0x505, "RTS2RTS_QP", 256, 16, qp_cmd::transition),
    row(0x506, "SQERR2RTS_QP", 256, 16, qp_cmd::transition),
    row(0x507, "2ERR_QP", 16, 16, qp_cmd::transition),
    row(0x50a, "2RST_QP", 16, 16, qp_cmd::transition),
    row(0x50b, "QUERY_QP", 16, 256, qp_cmd::query),
    row(0x50e, "INIT2INIT_QP", 256, 16, qp_cmd::transition),
    row(0x700, "CREATE_SRQ", 272, 16, rmp::create_srq),
    row(0x701, "DESTROY_SRQ", 16, 16, rmp::destroy),
    row(0x702, "QUERY_SRQ", 16, 272, rmp::query),
    row(0x703, "ARM_RQ", 16, 16, rmp::arm),
    row(0x705, "CREATE_XRC_SRQ", 272, 16, rmp::create_xrc),
    row(0x706, "DESTROY_XRC_SRQ", 16, 16, rmp::destroy),
    row(0x707, "QUERY_XRC_SRQ", 16, 272, rmp::query),
    row(0x708, "ARM_XRC_SRQ", 16, 16, rmp::arm),
    row(0x806, "ATTACH_TO_MCG", 32, 16, multicast::attach),
    row(0x807, "DETACH_FROM_MCG", 32, 16, multicast::detach),
    row(0x829, "SET_L2_TABLE_ENTRY", 64, 16, flow_cmd::set_l2),
    row(0x82b, "DELETE_L2_TABLE_ENTRY", 64, 16, flow_cmd::delete_l2),
    row(0x900, "CREATE_TIR", 272, 16, tir_tis::create_tir),
    row(0x901, "MODIFY_TIR", 272, 16, tir_tis::modify_tir),
    row(0x902, "DESTROY_TIR", 16, 16, tir_tis::destroy_tir),
    row(0x904, "CREATE_SQ", 272, 16, wq_cmd::create_sq),
    row(0x905, "MODIFY_SQ", 272, 16, wq_cmd::modify_sq),
    row(0x906, "DESTROY_SQ", 16, 16, wq_cmd::destroy_sq),
    row(0x907, "QUERY_SQ", 16, 272, wq_cmd::query_sq),
    row(0x908, "CREATE_RQ", 272, 16, wq_cmd::create_rq),
    row(0x909, "MODIFY_RQ", 272, 16, wq_cmd::modify_rq),
    row(0x90a, "DESTROY_RQ", 16, 16, wq_cmd::destroy_rq),
    row(0x90b, "QUERY_RQ", 16, 272, wq_cmd::query_rq),
    row(0x90c, "CREATE_RMP", 272, 16, rmp::create),
    row(0x90d, "MODIFY_RMP", 272, 16, rmp::modify),
    row(0x90e, "DESTROY_RMP", 16, 16, rmp::destroy),
    row(0x90f, "QUERY_RMP", 16, 272, rmp::query),
    row(0x912, "CREATE_TIS", 192, 16, tir_tis::create_tis),
    row(0x913, "MODIFY_TIS", 192, 16, tir_tis::modify_tis),
    row(0x914, "DESTROY_TIS", 16, 16, tir_tis::destroy_tis),
    row(0x916, "CREATE_RQT", 272, 16, tir_tis::create_rqt),
    row(0x917, "MODIFY_RQT", 272, 16, tir_tis::modify_rqt),
    row(0x918, "DESTROY_RQT", 16, 16, tir_tis::destroy_rqt),
    row(0x92f, "SET_FLOW_TABLE_ROOT", 64, 16, flow_cmd::set_root),
    row(0x930, "CREATE_FLOW_TABLE", 64, 16, flow_cmd::create_table),
    row(0x931, "DESTROY_FLOW_TABLE", 64, 16, flow_cmd::destroy_table),
    row(0x933, "CREATE_FLOW_GROUP", 1024, 16, flow_cmd::create_group),
    row(0x934, "DESTROY_FLOW_GROUP", 64, 16, flow_cmd::destroy_group),
    row(0x936, "SET_FLOW_TABLE_ENTRY", 832, 16, flow_cmd::set_entry),
    row(0x938, "DELETE_FLOW_TABLE_ENTRY", 64, 16, flow_cmd::delete_entry),
    row(0x939, "ALLOC_FLOW_COUNTER", 16, 16, flow_counter_cmd::alloc),
    row(0x93a, "DEALLOC_FLOW_COUNTER", 16, 16, flow_counter_cmd::dealloc),
    row(0x93b, "QUERY_FLOW_COUNTER", 32, 32, flow_counter_cmd::query),
    row(0x93c, "MODIFY_FLOW_TABLE", 64, 16, flow_cmd::modify_table),
    row(0xa08, "CREATE_UMEM", 48, 16, umem::create),
    row(0xa0a, "DESTROY_UMEM", 16, 16, umem::destroy),
];

#[cfg(test)]
mod tests;
