//! What cards may do otherwise than the first one on record: each fact on two models, with all that a
//! program does. The driver of the first edition failed each of these; `cargo xtask switches` runs
//! whole suites with every fact.
#![expect(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::time::Duration;

use dat_core::{
    DtoOperation, DtoStatus, EvdFlags, Event, MemPriv, PhysicalPages, PspFlag, Qos, RmrTriplet,
    VaType,
};
use dat_tests::pair::Stage;
use dat_tests::session::{NONE, Session, Setup};
use hca_mlx5::PortState;
use hca_mlx5::platform::Dma as _;
use mlx5_model::LinkLayer;

/// Side 0 writes so many bytes through the context, and side 1 has them.
#[track_caller]
fn reaches(session: &mut Session<'_>, context: u32, addr: u64, at: usize, n: u32) {
    session.fill(0, 0x100, 64, n);
    session.write_to(0, 0x100, 64, RmrTriplet { addr, len: 64, context }, n.into());
    session.requested(0, DtoOperation::RdmaWrite, n.into());
    session.check(1, at, 64, n);
}

/// Connects, moves data, binds a window and registers pages by a request.
fn works(facts: &str) {
    Setup { stage: Stage::of(facts), ..Setup::default() }.connected(|session| {
        session.traffic(1);
        let (pz, ep) = (session.sides[1].pz, session.sides[1].ep);
        let evd = session.sides[1].request;
        let rmr = session.pair.ias[1].rmr_create(pz).unwrap();
        let range = session.seg(1, 0x3000, 64);
        let ia = &mut session.pair.ias[1];
        let context = ia.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 7, NONE).unwrap();
        let bound = Event::RmrBind { rmr, cookie: 7, status: DtoStatus::Success };
        assert_eq!(session.event(1, evd), bound);
        reaches(session, context, range.addr, 0x3000, 50);

        let slot = session.pair.slots[1];
        let region = session.sides[1].lmr.region;
        let first = (region.addr - slot.memory().addr()) as usize;
        let pages: Vec<u64> = (first..first + region.len as usize)
            .step_by(4096)
            .map(|at| slot.iova(at).unwrap().0)
            .collect();
        let memory = PhysicalPages { pages: &pages, log_page: 12, len: region.len };
        let ia = &mut session.pair.ias[1];
        let lmr = ia.lmr_allocate(pz, pages.len() as u32).unwrap();
        let contexts = ia.lmr_fmr(lmr, memory, MemPriv::ALL, VaType::Zb, ep, 8, NONE).unwrap();
        session.requested(1, DtoOperation::LmrFmr, 8);
        reaches(session, contexts.rmr_context, 0x5000, 0x5000, 51);
        session.pair.ias[1].lmr_invalidate(lmr, ep, 9, NONE).unwrap();
        session.requested(1, DtoOperation::LmrInvalidate, 9);
    });
}

/// Bring-up fails, and says why.
fn names(facts: &str, words: &str) {
    let stage = Stage::of(facts);
    let (_world, slots) = stage.plug(&mut |_, wire| wire);
    let mut room = Box::new(dat_tests::pair::Room::new());
    let error = stage.open(&slots[0], &mut room, 0, None).map(drop).unwrap_err();
    assert!(error.to_string().contains(words), "{error}");
}

macro_rules! facts {
    ($($test:ident: $facts:literal;)*) => {
        $(#[test]
        fn $test() {
            works($facts);
        })*
    };
}

facts! {
    a_link_that_comes_after_twenty_seconds: "link=after-20s";
    a_link_that_comes_and_goes: "link=flapping";
    a_port_that_was_taken_down: "port-admin=down";
    switches_that_carry_1500_bytes: "peer-mtu=1500";
    commands_held_back_until_pages_come: "shortage=stall";
    pages_asked_for_beside_a_command: "shortage=beside";
    commands_refused_for_want_of_pages_that_no_event_asks_for: "shortage=refuse,page-event=polled";
    commands_refused_before_pages_are_asked_for: "shortage=refuse,eqe-order=bursts";
    commands_refused_long_before_pages_are_asked_for: "shortage=refuse,eqe-order=reordered";
    another_functions_assert_in_the_health_buffer: "health=stale-counter-byte";
    a_warning_in_the_health_buffer: "health=stale-warning";
    page_lists_that_need_their_access_bits: "umr-entry-bits=required";
    a_strong_fence_behind_fast_registrations: "umr-fence=0";
    a_small_fence_behind_fast_registrations: "umr-fence=1";
    no_fence_behind_fast_registrations: "umr-fence=2";
    page_sizes_that_no_request_may_change: "umr-modify-entity-size-disabled=1";
    atomic_rights_that_no_request_may_change: "umr-modify-atomic-disabled=1";
    a_real_time_clock: "qp-ts-format=1,sq-ts-format=1,rq-ts-format=1";
    a_function_without_a_mac: "mac=zero";
    a_rewritten_checksum_before_datagrams: "grh-checksum=rewritten";
    no_checksum_before_datagrams: "grh-checksum=zero";
    a_completion_that_does_not_say_which_header: "cqe-l3-type=absent";
    the_processor_of_a_dpu: "embedded-cpu=dpu";
    a_device_that_writes_to_work_queues: "queue-writes=back";
    a_command_queue_address_that_reads_as_zero: "command-address=zero";
    a_card_that_has_to_know_the_byte_order: "host-endianness=required";
    source_ports_chosen_by_software: "sw-r-roce-src-udp-port=settable";
    first_pages_of_a_connectx_6: "init-pages=8000";
    an_uplink_that_has_to_follow: "uplink-follow=1";
    a_switch_inside_that_filters_addresses: "eswitch-manager=filters";
    an_owner_that_bring_up_names: "sw-owner-id=1";
    two_ports_that_are_affiliated: "num-vhca-ports=2";
    a_card_that_can_be_stopped_in_haste: "fast-teardown=1";
    completion_queues_of_one_size: "cq-resize=0";
    a_key_whose_index_was_freed_last: "key-index=freed-last";
}

#[test]
fn a_port_of_infiniband_waits_for_a_subnet_manager() {
    let mut stage = Stage::of("port-type=infiniband");
    stage.cards.iter_mut().for_each(|card| card.link = LinkLayer::InfiniBand);
    stage.run_at_once(|pair| {
        for ia in &mut pair.ias {
            let port = ia.provider_mut().ib_port().unwrap().unwrap();
            assert_eq!(port.state, PortState::Init);
        }
    });
}

#[test]
fn the_first_version_of_roce_alone_is_named() {
    names("roce-version=1", "roce_version");
}

#[test]
fn completions_without_a_user_index_are_named() {
    names("cqe-version=0", "do not carry the caller's index");
}

/// A host that does not wait finds nobody; what it asked before the link came is asked again then.
#[test]
fn a_connection_begun_before_the_link_is_up_is_made_when_it_comes() {
    Stage::of("link=after-2s").run_at_once(|pair| {
        let evds = [0, 1].map(|side| {
            let flags = EvdFlags::CONNECTION | EvdFlags::CR | EvdFlags::DTO;
            pair.ias[side].evd_create(16, flags).unwrap()
        });
        pair.ias[1].psp_create(77, evds[1], PspFlag::Consumer).unwrap();
        let pz = pair.ias[0].pz_create().unwrap();
        let (now, limit) = (pair.now(), Duration::from_secs(30));
        let evd = Some(evds[0]);
        let ep = pair.ias[0].ep_create(Some(pz), evd, evd, evd, None).unwrap();
        let to = pair.stage.address(1);
        pair.ias[0].ep_connect(now, ep, to, 77, limit, b"", Qos::BestEffort).unwrap();
        let event = pair.wait(1, evds[1], limit);
        assert!(matches!(event, Some(Event::ConnectionRequest { .. })), "{event:?}");
        assert!(pair.now().since(now) < Duration::from_secs(8));
    });
}
