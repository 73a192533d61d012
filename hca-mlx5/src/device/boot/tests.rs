//! Bring-up and teardown: their order, their choices, and what every failure undoes.
//!
//! Length: one scripted firmware, and each of its answers with what has to be undone then.

use dat_core::provider::FaultKind;
use std::boxed::Box;
use std::vec::Vec;

use super::*;
use crate::device::scripted::{Command, Reply, Scripted, TICK, config};
use crate::platform::Clock;
use crate::prm::cmd::TeardownHcaIn;
use crate::prm::reg::{self, AccessRegIn, CONTENTS, Paos, Pmtu};
use crate::prm::vport::{MODIFIED_CONTEXT, ModifyNicVportIn, NicVportContext};
use dat_core::Instant;

fn open(platform: &Scripted) -> Device<'_, Scripted> {
    Device::open(platform, &config()).unwrap()
}

#[test]
fn without_entropy_nothing_is_opened() {
    let platform = Scripted::new();
    let fault = Device::open(&platform, &Config::default()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::BadParameter);
    assert!(platform.opcodes().is_empty());
}

#[test]
fn commands_go_in_the_order_of_the_manual() {
    use Opcode::*;
    let platform = Scripted::new();
    let mut device = open(&platform);
    let up = platform.opcodes();
    assert_eq!(
        up,
        [
            EnableHca,
            QueryIssi,
            SetIssi,
            QueryPages,
            ManagePages,
            AccessReg,
            QueryHcaCap,
            QueryHcaCap,
            SetHcaCap,
            QueryHcaCap,
            QueryHcaCap,
            QueryHcaCap,
            SetHcaCap,
            QueryPages,
            ManagePages,
            ManagePages,
            ManagePages,
            InitHca,
            QueryPages,
            QueryHcaCap,
            QueryHcaCap,
            QueryHcaCap,
            QueryHcaCap,
            QueryHcaCap,
            AllocUar,
            CreateEq,
            CreateEq,
            CreateEq,
            CreateEq,
            QueryNicVportContext,
            AccessReg,
            AccessReg,
            AccessReg,
            ModifyNicVportContext,
            ModifyNicVportContext,
            AccessReg,
        ]
    );
    device.close().unwrap();
    assert_eq!(
        platform.opcodes()[up.len()..],
        [
            DestroyEq,
            DestroyEq,
            DestroyEq,
            DestroyEq,
            DeallocUar,
            TeardownHca,
            ManagePages,
            ManagePages,
            ManagePages,
            DisableHca
        ]
    );
    assert_eq!(platform.held(), 0);
    assert!(platform.given.borrow().is_empty());
}

#[test]
fn after_the_end_nothing_more_is_sent() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    device.close().unwrap();
    let sent = platform.log.borrow().len();
    assert_eq!(device.alloc_pd().unwrap_err().kind, FaultKind::BadState);
    device.service(Instant::NEVER, |_| {});
    device.close().unwrap();
    assert_eq!(platform.log.borrow().len(), sent);
}

#[test]
fn the_identity_of_the_port() {
    let platform = Scripted::new();
    let identity = *open(&platform).identity();
    assert_eq!(identity.firmware, (14, 12, 1220));
    assert_eq!(identity.mac, [0x00, 0x02, 0xc9, 0xa1, 0xb2, 0xc3]);
    assert_eq!(identity.node_guid, 0x0202_c9ff_fea1_b2c3);
    assert_eq!(identity.min_wqe_inline_mode, 1);
    assert_eq!(identity.frame_size, 4210);
    platform.tiny.borrow_mut().vport.set_node_guid(77);
    assert_eq!(open(&platform).identity().node_guid, 77);
}

#[test]
fn the_general_block_is_the_current_one_edited_and_nothing_else() {
    let platform = Scripted::new();
    {
        let mut tiny = platform.tiny.borrow_mut();
        let current = tiny.caps.get_mut(&1).unwrap();
        current.resize(4096, 0);
        current[0x40] |= 0x40;
        current[0x42] |= 0xc0;
        current[0xfff] = 0x5a;
    }
    Device::open(&platform, &Config { log_max_qp: 10, ..config() }).unwrap();
    let set = &platform.commands(Opcode::SetHcaCap)[0];
    assert_eq!((set.op_mod, set.input.len()), (0, 4112));
    assert_eq!(set.input[8..16], [0; 8], "nothing of the answer's head goes back");
    let cap = GeneralCap::read(&set.input, BLOCK_AT);
    assert_eq!(
        (cap.log_max_qp(), cap.cmdif_checksum(), cap.striding_rq(), cap.roce()),
        (10, 0, true, true)
    );
    assert_eq!(set.input[0x10 + 0xfff], 0x5a);
}

#[test]
fn a_small_footprint_never_raises_a_limit() {
    let platform = Scripted::new();
    Device::open(&platform, &Config { log_max_qp: 20, ..config() }).unwrap();
    assert_eq!(
        GeneralCap::read(&platform.commands(Opcode::SetHcaCap)[0].input, BLOCK_AT).log_max_qp(),
        14
    );
}

/// 23 is the scripted device's maximum, 14 what it starts with.
#[test]
fn a_large_table_raises_the_queue_pairs_as_far_as_the_device_can() {
    for (log_min_qp, set) in [(0, 14), (14, 14), (16, 16), (23, 23), (24, 23)] {
        let platform = Scripted::new();
        Device::open(&platform, &Config { log_min_qp, ..config() }).unwrap();
        let input = &platform.commands(Opcode::SetHcaCap)[0].input;
        assert_eq!(GeneralCap::read(input, BLOCK_AT).log_max_qp(), set);
    }
}

#[test]
fn roce_is_switched_on_where_it_can_be() {
    let platform = Scripted::new();
    let edit = |key, edit: &dyn Fn(&mut GeneralCap<[u8; 256]>)| {
        let mut tiny = platform.tiny.borrow_mut();
        let mut cap = GeneralCap::read(&tiny.caps[&key], 0);
        edit(&mut cap);
        tiny.caps.insert(key, cap.0.to_vec());
    };
    edit(1, &|cap| cap.set_roce(false));
    let fault = Device::open(&platform, &config()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unsupported);
    assert!(fault.advice.contains("RoCE"));
    assert_eq!(platform.held(), 0);
    edit(1, &|cap| cap.set_roce(false));
    edit(0, &|cap| cap.set_roce_rw_supported(true));
    assert!(open(&platform).caps().general.roce());
}

/// Makes the port one of InfiniBand.
fn make_infiniband(platform: &Scripted, ib_virt: bool) {
    for op_mod in [CapType::General.current(), CapType::General.max()] {
        let mut tiny = platform.tiny.borrow_mut();
        let block = tiny.caps.get_mut(&op_mod).unwrap();
        let mut cap = GeneralCap::read(block, 0);
        cap.set_port_type(0);
        cap.set_roce(false);
        cap.set_roce_rw_supported(true);
        cap.set_ib_virt(ib_virt);
        cap.write(block, 0);
    }
}

#[test]
fn a_port_of_infiniband_comes_up_without_roce_and_raw_ethernet() {
    let platform = Scripted::new();
    make_infiniband(&platform, true);
    let mut device = open(&platform);
    assert_eq!(device.link(), LinkType::InfiniBand);
    assert!(!device.caps().general.roce());
    for op in [Opcode::ModifyNicVportContext, Opcode::QueryNicVportContext] {
        assert_eq!(platform.commands(op).len(), 0, "{op:?}");
    }
    assert_eq!(platform.commands(Opcode::QueryHcaVportContext).len(), 1);
    assert!(!platform.opcodes().contains(&Opcode::MadIfc));
    assert!(!device.port_up().unwrap(), "zeros are no state");
    device.close().unwrap();
    assert_eq!(platform.held(), 0);
}

#[test]
fn without_a_virtual_port_its_agent_is_asked() {
    use crate::prm::hca_vport::MAD_AT;
    let platform = Scripted::new();
    make_infiniband(&platform, false);
    // The agent of a device that answers with zeros names no attribute.
    let fault = Device::open(&platform, &config()).unwrap_err();
    assert_eq!(fault.operation, "MAD_IFC");
    assert_eq!(platform.held(), 0);
    let [asked] = &platform.commands(Opcode::MadIfc)[..] else { panic!("one question") };
    assert_eq!((asked.op_mod, asked.input.len()), (3, 272));
    assert_eq!(asked.input[0x0b], 1, "the port");
    // Get(NodeInfo) of subnet management by LID.
    assert_eq!(asked.input[MAD_AT..MAD_AT + 4], [1, 1, 1, 1]);
    assert_eq!(asked.input[MAD_AT + 16..MAD_AT + 18], [0, 0x11]);
}

#[test]
fn a_path_mtu_that_is_asked_for_is_the_one_there_is() {
    use dat_core::provider::Mtu;
    let platform = Scripted::new();
    let mut device = open(&platform);
    for mtu in [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096] {
        device.identity.frame_size = Config::default().with_path_mtu(mtu).frame_size;
        assert_eq!(device.path_mtu(), mtu);
    }
    let default = Config::default().frame_size;
    assert_eq!(Config::default().with_path_mtu(Mtu::B4096).frame_size, default);
}

#[test]
fn the_source_port_is_taken_from_software_where_the_device_can() {
    let platform = Scripted::new();
    assert!(open(&platform).caps().roce.sw_r_roce_src_udp_port());
    assert_eq!(platform.commands(Opcode::SetHcaCap)[1].op_mod, 8);
    let platform = Scripted::new();
    let same = platform.tiny.borrow().caps[&9].clone();
    platform.tiny.borrow_mut().caps.insert(8, same);
    assert!(!open(&platform).caps().roce.sw_r_roce_src_udp_port());
    assert_eq!(platform.commands(Opcode::SetHcaCap).len(), 1);
}

#[test]
fn only_announced_capabilities_are_asked_for() {
    let platform = Scripted::new();
    {
        let mut tiny = platform.tiny.borrow_mut();
        let mut cap = GeneralCap::read(&tiny.caps[&1], 0);
        cap.set_atomic(false);
        cap.set_nic_flow_table(false);
        cap.set_eth_net_offloads(false);
        tiny.caps.insert(1, cap.0.to_vec());
    }
    let device = open(&platform);
    assert_eq!(device.caps().atomic.atomic_operations(), 0);
    let asked: Vec<u16> =
        platform.commands(Opcode::QueryHcaCap).iter().map(|command| command.op_mod).collect();
    assert_eq!(asked, [0, 1, 8, 9, 1, 9]);
}

#[test]
fn a_firmware_without_issi_stays_at_zero() {
    let platform =
        Scripted::with(
            |c| {
                if c.op == Opcode::QueryIssi { Reply::Status(2, 0) } else { Reply::Normal }
            },
        );
    open(&platform);
    assert!(platform.commands(Opcode::SetIssi).is_empty());
    let platform =
        Scripted::with(
            |c| {
                if c.op == Opcode::SetIssi { Reply::Status(3, 0) } else { Reply::Normal }
            },
        );
    open(&platform);
}

#[test]
fn the_owner_is_random_and_only_where_there_is_one() {
    let platform = Scripted::new();
    for entropy in [[1; 32], [2; 32]] {
        Device::open(&platform, &Config { entropy, ..config() }).unwrap();
    }
    let owners: Vec<u128> = platform
        .commands(Opcode::InitHca)
        .iter()
        .map(|c| InitHcaIn::read(&c.input, 0).sw_owner_id())
        .collect();
    assert!(owners[0] != 0 && owners[0] != owners[1]);
}

#[test]
fn a_function_without_a_mac_gets_a_random_one() {
    let mut macs = Vec::new();
    for seed in [7, 8] {
        let platform = Scripted::new();
        platform.tiny.borrow_mut().vport.set_permanent_address(0);
        let config = Config { entropy: [seed; 32], ..config() };
        let identity = *Device::open(&platform, &config).unwrap().identity();
        assert!(!identity.mac_given && identity.mac[0] & 3 == 2, "unicast, locally administered");
        assert!(identity.node_guid != 0);
        macs.push(identity.mac);
    }
    assert_ne!(macs[0], macs[1]);
    let platform = Scripted::new();
    assert!(open(&platform).identity().mac_given);
}

#[test]
fn a_function_of_an_embedded_cpu_says_so_wherever_it_has_to() {
    let platform = Scripted::new();
    platform.set(init_seg::INITIALIZING, 1 << 23);
    let mut device = open(&platform);
    device.close().unwrap();
    for op in [Opcode::EnableHca, Opcode::QueryPages, Opcode::DisableHca] {
        for command in platform.commands(op) {
            assert_eq!(command.input[8..12], [0x80, 0, 0, 0], "{op:?}");
        }
    }
}

#[test]
fn a_virtual_function_may_not_touch_the_port_and_comes_up_all_the_same() {
    let platform = Scripted::with(|command| {
        if command.op == Opcode::AccessReg { Reply::Status(5, 0x30_5684) } else { Reply::Normal }
    });
    let device = open(&platform);
    assert_eq!(device.identity().frame_size, 1522, "what the vport says");
    assert_eq!(device.path_mtu(), dat_core::provider::Mtu::B1024);
    assert!(platform.tiny.borrow().vport.roce_en());
}

#[test]
fn the_frame_size_is_what_the_port_can_do_and_the_vport_follows() {
    let platform = Scripted::new();
    platform.tiny.borrow_mut().max_frame = 2200;
    let device = open(&platform);
    assert_eq!(device.identity().frame_size, 2200);
    assert_eq!(platform.tiny.borrow().vport.mtu(), 2200);
    assert_eq!(device.path_mtu(), dat_core::provider::Mtu::B2048);
    let all = platform.commands(Opcode::AccessReg);
    // The byte order of the host, which is little.
    let [order, writes @ ..] = &all[..] else { panic!("nothing was written") };
    assert_eq!(order.input[8..], *[&[0, 0, 0x70, 4][..], &[0; 20]].concat());
    assert_eq!(order.op_mod, reg::WRITE);
    let pmtu = Pmtu::read(&writes[1].input, CONTENTS);
    assert_eq!(
        (AccessRegIn::read(&writes[1].input, 0).register_id(), pmtu.admin_mtu(), pmtu.local_port()),
        (0x5003, 2200, 1)
    );
    for (write, register) in writes.iter().zip([0x5003_u16, 0x5003, 0x5003, 0x5006]) {
        assert_eq!(write.input.len(), 32);
        assert_eq!(write.input[8..10], [0; 2]);
        assert_eq!(write.input[10..12], register.to_be_bytes());
        assert_eq!(write.input[12..16], [0; 4], "no argument");
    }
    assert_eq!(writes[1].input[CONTENTS..CONTENTS + 8], [0, 1, 0, 0, 0, 0, 0, 0]);
    // A read names the port and nothing else.
    for read in [0, 2] {
        let mut golden = [0; 16];
        golden[1] = 1;
        assert_eq!(writes[read].input[CONTENTS..], golden);
    }
    let ops = [reg::READ, reg::WRITE, reg::READ, reg::WRITE];
    assert!(writes.iter().map(|write| write.op_mod).eq(ops));
    let paos = Paos::read(&writes[3].input, CONTENTS);
    assert_eq!(
        (writes[3].op_mod, paos.admin_status(), paos.ase(), paos.local_port()),
        (0, 1, true, 1)
    );
}

/// A port that answers with zeros is not given a frame size, and carries what the vport says, or a
/// plain frame where that says nothing.
#[test]
fn a_port_that_names_no_frame_size_keeps_its_own() {
    for (vport, frame) in [(1600, 1600), (1, 1), (0, 1522)] {
        let platform = Scripted::new();
        platform.tiny.borrow_mut().max_frame = 0;
        platform.tiny.borrow_mut().frame = 4210;
        platform.tiny.borrow_mut().vport.set_mtu(vport);
        assert_eq!(open(&platform).identity().frame_size, frame);
        assert_eq!(platform.commands(Opcode::AccessReg).len(), 3, "byte order, one look, link");
        assert_eq!(platform.tiny.borrow().vport.mtu(), vport);
    }
}

/// One that takes the size and then does not say what it uses.
#[test]
fn a_port_that_reports_no_size_in_use_keeps_its_own() {
    let platform = Scripted::with(|command| {
        let pmtu = AccessRegIn::read(&command.input, 0).register_id() == 0x5003;
        if command.op != Opcode::AccessReg || !pmtu || command.op_mod == reg::WRITE {
            return Reply::Normal;
        }
        let mut answer = std::vec![0; 32];
        answer[0x14..0x16].copy_from_slice(&9500_u16.to_be_bytes());
        Reply::Answer(answer)
    });
    assert_eq!(open(&platform).identity().frame_size, 1522);
    assert_eq!(platform.commands(Opcode::AccessReg).len(), 5);
}

#[test]
fn the_path_mtu_leaves_room_for_all_headers() {
    use dat_core::provider::Mtu;
    let platform = Scripted::new();
    let mut device = open(&platform);
    for (frame, mtu) in [
        (9500, Mtu::B4096),
        (4210, Mtu::B4096),
        (4209, Mtu::B2048),
        (2162, Mtu::B2048),
        (2161, Mtu::B1024),
        (1522, Mtu::B1024),
        (1137, Mtu::B512),
        (625, Mtu::B256),
        (0, Mtu::B256),
    ] {
        device.identity.frame_size = frame;
        assert_eq!(device.path_mtu(), mtu, "{frame}");
    }
}

#[test]
fn roce_must_be_switched_on_in_the_vport() {
    let platform = Scripted::with(|command| {
        let roce = command.op == Opcode::ModifyNicVportContext
            && ModifyNicVportIn::read(&command.input, 0).select_roce_en();
        if roce { Reply::Status(3, 0xc1_f678) } else { Reply::Normal }
    });
    let fault = Device::open(&platform, &config()).unwrap_err();
    assert!(fault.advice.contains("RoCE"), "{fault}");
    let last = platform.commands(Opcode::ModifyNicVportContext);
    assert!(NicVportContext::read(&last.last().unwrap().input, MODIFIED_CONTEXT).roce_en());
}

#[test]
fn an_initializing_device_is_waited_for() {
    let platform = Scripted::new();
    platform.busy_until.set(platform.now() + 900 * TICK);
    open(&platform);
    let platform = Scripted::new();
    platform.busy_until.set(u64::MAX);
    let before = platform.now();
    let fault = Device::open(&platform, &config()).unwrap_err();
    assert_eq!((fault.kind, platform.now() - before), (FaultKind::Timeout, 120_000_000_000));
    platform.gone.set(true);
    assert_eq!(Device::open(&platform, &config()).unwrap_err().kind, FaultKind::Gone);
}

#[test]
fn a_bar_that_is_not_an_mlx5_is_refused_before_anything_is_written() {
    let platform = Scripted::new();
    platform.set(init_seg::CMDIF_REV_FW_SUB, 4 << 16);
    let fault = Device::open(&platform, &config()).unwrap_err();
    assert_eq!((fault.kind, fault.number), (FaultKind::Nonsense, 4));
    assert_eq!((platform.get(init_seg::CMDQ_ADDR_H), platform.held()), (0, 0));
}

#[test]
fn a_doorbell_page_outside_the_bar_is_refused() {
    let platform = Scripted::with(|command| {
        let answer = [&[0; 9][..], &[0xff, 0xff, 0xff]].concat();
        if command.op == Opcode::AllocUar { Reply::Answer(answer) } else { Reply::Normal }
    });
    let fault = Device::open(&platform, &config()).unwrap_err();
    assert_eq!((fault.kind, fault.number), (FaultKind::Nonsense, 0xff_ffff));
    let freed = platform.commands(Opcode::DeallocUar);
    assert_eq!(freed.len(), 1);
    assert_eq!(freed[0].input[8..12], [0, 0xff, 0xff, 0xff]);
}

/// Commands whose refusal bring-up survives.
const OPTIONAL: &[Opcode] = &[Opcode::QueryIssi, Opcode::SetIssi, Opcode::AccessReg];

#[test]
fn every_refusal_unwinds_all_that_was_done() {
    let all = Scripted::new();
    open(&all);
    let steps = all.opcodes();
    for (step, op) in steps.iter().enumerate() {
        let mut seen = 0;
        let platform = Scripted::with(move |_| {
            seen += 1;
            if seen == step + 1 { Reply::Status(3, 0x99) } else { Reply::Normal }
        });
        let reached = match Device::open(&platform, &config()) {
            Ok(mut device) => {
                // The frame size of the vport is the one optional modification.
                let vport_mtu = *op == Opcode::ModifyNicVportContext && step == 33;
                assert!(OPTIONAL.contains(op) || vport_mtu, "step {step} {op:?} was not missed");
                device.close().unwrap();
                steps.len()
            }
            Err(fault) => {
                assert_eq!((fault.operation, fault.syndrome), (op.name(), 0x99), "step {step}");
                assert_eq!(fault.number, about(&platform.log.borrow()[step]), "step {step}");
                step
            }
        };
        assert_eq!(platform.held(), 0, "arena after step {step} {op:?}");
        assert!(platform.given.borrow().is_empty(), "pages after step {step} {op:?}");
        let down = platform.opcodes();
        let count = |op| down.iter().filter(|o| **o == op).count();
        assert_eq!(count(Opcode::DisableHca), usize::from(reached > 0), "step {step}");
        assert_eq!(count(Opcode::TeardownHca), usize::from(reached > 17), "step {step}");
        assert_eq!(count(Opcode::DeallocUar), usize::from(reached > 24), "step {step}");
        assert_eq!(
            count(Opcode::DestroyEq),
            (25..29).filter(|made| reached > *made).count(),
            "step {step}"
        );
    }
}

/// Number that the fault of a command is about.
fn about(command: &Command) -> u32 {
    #[expect(clippy::wildcard_enum_match_arm, reason = "all others are about no object yet")]
    match command.op {
        Opcode::QueryHcaCap => command.op_mod.into(),
        Opcode::AccessReg => AccessRegIn::read(&command.input, 0).register_id().into(),
        _ => 0,
    }
}

#[test]
fn after_a_timeout_nothing_more_is_sent_and_nothing_freed_that_may_be_written() {
    let all = Scripted::new();
    open(&all);
    for step in 0..all.opcodes().len() {
        let mut seen = 0;
        let platform = Scripted::with(move |_| {
            seen += 1;
            if seen == step + 1 { Reply::Never } else { Reply::Normal }
        });
        let fault = Device::open(&platform, &config()).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Timeout, "step {step}");
        assert_eq!(fault.number, about(&platform.log.borrow()[step]), "step {step}");
        assert_eq!(platform.log.borrow().len(), step + 1, "step {step}");
        assert!(platform.held() >= 4096 + 64 * 1024, "step {step}");
        assert!(platform.given.borrow().len() >= device_pages(step), "step {step}");
    }
}

/// Pages the firmware holds for certain when step `step` is on its way.
fn device_pages(step: usize) -> usize {
    match step {
        0..=4 => 0,
        5..=13 => 6,
        14 => 518,
        15 => 1030,
        _ => 1106,
    }
}

#[test]
fn a_device_lost_in_bring_up_is_left_at_once() {
    for step in [0, 3, 8, 15, 24, 31] {
        for reply in [Reply::Vanish, Reply::Sick(8)] {
            let mut seen = 0;
            let platform = Scripted::with(move |_| {
                seen += 1;
                if seen == step + 1 { reply.clone() } else { Reply::Normal }
            });
            let before = platform.now();
            let fault = Device::open(&platform, &config()).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Gone, "step {step}");
            assert!(platform.now() - before <= TICK, "step {step}");
        }
    }
}

#[test]
fn slow_commands_are_no_trouble() {
    let platform = Scripted::with(|_| Reply::Later(700, Box::new(Reply::Normal)));
    let mut device = open(&platform);
    device.close().unwrap();
    assert_eq!(platform.held(), 0);
}

#[test]
fn where_the_orderly_teardown_is_refused_the_fast_one_stops_the_device() {
    let platform = Scripted::new();
    {
        let mut tiny = platform.tiny.borrow_mut();
        let mut cap = GeneralCap::read(&tiny.caps[&1], 0);
        cap.set_fast_teardown(true);
        tiny.caps.insert(1, cap.0.to_vec());
    }
    let mut device = open(&platform);
    platform.script(|command| {
        let graceful = command.op == Opcode::TeardownHca
            && TeardownHcaIn::read(&command.input, 0).profile() == 0;
        if graceful { Reply::Status(4, 0) } else { Reply::Normal }
    });
    let fault = device.close().unwrap_err();
    assert_eq!((fault.operation, fault.status), ("TEARDOWN_HCA", 4));
    let profiles: Vec<u16> = platform
        .commands(Opcode::TeardownHca)
        .iter()
        .map(|command| TeardownHcaIn::read(&command.input, 0).profile())
        .collect();
    assert_eq!(profiles, [0, 2]);
    assert_eq!(platform.get(init_seg::CMDQ_ADDR_L_SZ) >> 8 & 7, 1, "the interface is off");
    assert_eq!(platform.opcodes().last(), Some(&Opcode::TeardownHca));
    assert_eq!(platform.given.borrow().len(), 1106, "the pages stay the device's until a reset");
}

/// The bit says something of the fast teardown only.
#[test]
fn an_orderly_teardown_succeeds_whatever_the_bit_of_the_fast_one_says() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    platform.script(|command| {
        if command.op == Opcode::TeardownHca {
            let mut answer = std::vec![0; 16];
            answer[15] = 1;
            return Reply::Answer(answer);
        }
        Reply::Normal
    });
    device.close().unwrap();
}

#[test]
fn a_fast_teardown_that_is_refused_by_its_bit_is_a_failure() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    platform.tiny.borrow_mut().fast_state = true;
    let fault = device.stop_fast().unwrap_err();
    assert!(fault.cause.contains("refused"), "{fault}");
}
