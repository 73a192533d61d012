//! What the tiny device does with commands that no script wants: enough to be brought up and taken
//! down.

use std::collections::{BTreeMap, VecDeque};
use std::vec;
use std::vec::Vec;

use super::{Command, FIRMWARE};
use crate::prm;
use crate::prm::caps::{AtomicCap, EthernetCap, FlowTableCap, GeneralCap, RoceCap};
use crate::prm::cmd::{InputHead, Opcode};
use crate::prm::eq::{CREATE_EQ_PAGES, EQ_CONTEXT, EqContext};
use crate::prm::pages::{ManagePagesIn, PageOp};
use crate::prm::vport::{MODIFIED_CONTEXT, ModifyNicVportIn, NicVportContext, QUERIED_CONTEXT};

/// Commands that have an `op_mod`.
const HAS_OP_MOD: &[Opcode] = &[
    Opcode::QueryPages,
    Opcode::ManagePages,
    Opcode::QueryHcaCap,
    Opcode::SetHcaCap,
    Opcode::AccessReg,
    Opcode::MadIfc,
];
/// Commands whose second quarter is zero: of no object, or of function 0.
const NO_NUMBER: &[Opcode] = &[
    Opcode::EnableHca,
    Opcode::DisableHca,
    Opcode::QueryIssi,
    Opcode::QueryPages,
    Opcode::QueryHcaCap,
    Opcode::SetHcaCap,
    Opcode::InitHca,
    Opcode::AllocUar,
    Opcode::AllocPd,
    Opcode::QueryNicVportContext,
];

/// What the tiny device remembers.
pub(crate) struct Tiny {
    pub(crate) caps: BTreeMap<u16, Vec<u8>>,
    pub(crate) needs: BTreeMap<u16, i32>,
    /// Pages it holds, oldest first.
    pub(crate) held: VecDeque<u64>,
    /// How many it gives back at each take, in turn; all that is asked when empty.
    pub(crate) takes: VecDeque<usize>,
    pub(crate) vport: NicVportContext<[u8; 256]>,
    pub(crate) max_frame: u16,
    pub(crate) frame: u16,
    /// Ring address, log size, producer of each event queue.
    pub(crate) eqs: BTreeMap<u8, (Vec<u64>, u32, u32)>,
    pub(crate) next_number: u32,
    pub(crate) fast_state: bool,
}

impl Tiny {
    pub(super) fn new() -> Self {
        let mut general = GeneralCap::new();
        for set in [
            GeneralCap::set_roce,
            GeneralCap::set_atomic,
            GeneralCap::set_eth_net_offloads,
            GeneralCap::set_nic_flow_table,
            GeneralCap::set_rc,
            GeneralCap::set_sw_owner_id,
        ] {
            set(&mut general, true);
        }
        for set in [
            GeneralCap::set_log_max_eq,
            GeneralCap::set_log_max_cq,
            GeneralCap::set_log_max_mkey,
            GeneralCap::set_log_max_pd,
            GeneralCap::set_log_max_transport_domain,
            GeneralCap::set_log_max_tis,
            GeneralCap::set_log_max_tir,
            GeneralCap::set_log_max_sq,
            GeneralCap::set_log_max_rq,
        ] {
            set(&mut general, 8);
        }
        general.set_log_max_eq_sz(22);
        general.set_log_max_cq_sz(22);
        general.set_log_max_qp_sz(15);
        general.set_log_max_msg(30);
        general.set_log_max_qp(14);
        general.set_port_type(1);
        general.set_num_ports(1);
        let mut max = general;
        max.set_log_max_qp(23);
        max.set_cmdif_checksum(3);
        max.set_log_uar_page_sz(8);
        let mut roce = RoceCap::new();
        roce.set_roce_address_table_size(16);
        roce.set_roce_version(5);
        let mut roce_max = roce;
        roce_max.set_sw_r_roce_src_udp_port(true);
        let mut atomic = AtomicCap::new();
        atomic.set_atomic_operations(3);
        let mut ethernet = EthernetCap::new();
        ethernet.set_wqe_inline_mode(1);
        let mut flow = vec![0; 0x80];
        let mut receive = FlowTableCap::new();
        receive.set_ft_support(true);
        receive.write(&mut flow, 0x40);
        let caps = [
            (0, max.0.to_vec()),
            (1, general.0.to_vec()),
            (2, ethernet.0.to_vec()),
            (3, ethernet.0.to_vec()),
            (6, atomic.0.to_vec()),
            (7, atomic.0.to_vec()),
            (8, roce_max.0.to_vec()),
            (9, roce.0.to_vec()),
            (14, flow.clone()),
            (15, flow),
        ];
        let mut vport = NicVportContext::new();
        vport.set_permanent_address(0x0000_0002_c9a1_b2c3);
        vport.set_mtu(1522);
        vport.set_min_wqe_inline_mode(1);
        Self {
            caps: caps.into_iter().collect(),
            needs: [(1, 6), (2, 1100), (3, -2)].into_iter().collect(),
            held: VecDeque::new(),
            takes: VecDeque::new(),
            vport,
            max_frame: 9500,
            frame: 1522,
            eqs: BTreeMap::new(),
            next_number: 2,
            fast_state: false,
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "commands not named are answered with zeros"
    )]
    pub(super) fn run(&mut self, command: &Command) -> Vec<u8> {
        let input = &command.input;
        let head = InputHead::read(input, 0);
        let number = head.number();
        if !HAS_OP_MOD.contains(&command.op) {
            assert_eq!(head.op_mod(), 0, "op_mod of {:?}", command.op);
        }
        if NO_NUMBER.contains(&command.op) {
            assert_eq!(input[2..6], [0; 4], "reserved");
            assert_eq!(input[8] & 0x7f, 0, "{:?} of the embedded CPU, or not", command.op);
            assert_eq!(input[9..16], [0; 7], "{:?} of nothing, or of function 0", command.op);
        }
        let mut out = vec![0; command.entry.output_length() as usize];
        match command.op {
            Opcode::QueryIssi => prm::put(&mut out, 0x6c, &2u32.to_be_bytes()),
            Opcode::QueryPages => {
                let need = self.needs.get(&command.op_mod).copied().unwrap_or(0);
                prm::put(&mut out, 0x08, &[0, 0, 0, 7]);
                prm::put(&mut out, 0x0c, &need.to_be_bytes());
            }
            Opcode::ManagePages => {
                let head = ManagePagesIn::read(input, 0);
                assert_eq!(head.function_id(), 7, "the function id is the one of the query");
                let count = head.input_num_entries() as usize;
                if command.op_mod == PageOp::Give as u16 {
                    for at in (16..).step_by(8).take(count) {
                        let address = u64::from_be_bytes(prm::take(input, at));
                        assert!(
                            address >= FIRMWARE
                                && address % 4096 == 0
                                && !self.held.contains(&address)
                        );
                        self.held.push_back(address);
                    }
                } else if command.op_mod == PageOp::Take as u16 {
                    let count =
                        self.takes.pop_front().unwrap_or(count).min(count).min(self.held.len());
                    prm::put(&mut out, 0x08, &u32::try_from(count).unwrap().to_be_bytes());
                    for at in (16..).step_by(8).take(count) {
                        prm::put(&mut out, at, &self.held.pop_front().unwrap().to_be_bytes());
                    }
                }
            }
            Opcode::QueryHcaCap => match self.caps.get(&command.op_mod) {
                Some(block) => prm::put(&mut out, 0x10, block),
                None => out[0] = 3,
            },
            Opcode::SetHcaCap => {
                self.caps.insert(command.op_mod | 1, input[0x10..].to_vec());
            }
            Opcode::CreateEq => {
                let context = EqContext::read(input, EQ_CONTEXT);
                let pages = (CREATE_EQ_PAGES..input.len())
                    .step_by(8)
                    .map(|at| u64::from_be_bytes(prm::take(input, at)))
                    .collect();
                self.next_number += 1;
                self.eqs.insert(
                    u8::try_from(self.next_number).unwrap(),
                    (pages, u32::from(context.log_eq_size()), 0),
                );
                prm::put(&mut out, 0x08, &self.next_number.to_be_bytes());
            }
            Opcode::DestroyEq => {
                self.eqs.remove(&u8::try_from(number).unwrap()).unwrap();
            }
            Opcode::AllocUar => prm::put(&mut out, 0x08, &2u32.to_be_bytes()),
            Opcode::AllocPd => {
                self.next_number += 1;
                prm::put(&mut out, 0x08, &self.next_number.to_be_bytes());
            }
            Opcode::QueryNicVportContext => self.vport.write(&mut out, QUERIED_CONTEXT),
            Opcode::ModifyNicVportContext => {
                let select = ModifyNicVportIn::read(input, 0);
                let context = NicVportContext::read(input, MODIFIED_CONTEXT);
                if select.select_mtu() {
                    self.vport.set_mtu(context.mtu());
                }
                if select.select_roce_en() {
                    self.vport.set_roce_en(context.roce_en());
                }
            }
            Opcode::QueryVportState => out[0x0f] = 0x11,
            Opcode::AccessReg => {
                prm::put(&mut out, 0x10, &input[0x10..]);
                if prm::take(input, 0x0a) == [0x50, 0x03] {
                    if command.op_mod == 0 {
                        self.frame = u16::from_be_bytes(prm::take(input, 0x18));
                    }
                    prm::put(&mut out, 0x14, &self.max_frame.to_be_bytes());
                    prm::put(&mut out, 0x1c, &self.frame.to_be_bytes());
                }
            }
            Opcode::TeardownHca => out[0x0f] = u8::from(self.fast_state && input[0x0b] == 2),
            _ => {}
        }
        out
    }
}
