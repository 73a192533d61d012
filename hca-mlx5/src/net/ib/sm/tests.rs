//! The manager with an agent at each port that does as it is asked, and datagrams by bytes.
//!
//! Length: all tests of one state machine, which share its agents.

use core::time::Duration;
use std::vec::Vec;

use proptest::prelude::*;

use super::params::SWEEP_INTERVAL;
use super::*;
use crate::prm::mad::status;
use crate::prm::put;
use crate::prm::sa::{
    self, McMemberRecord, PathRecord, SaHeader, join_state, member_component, path_component, rate,
    selector,
};
use crate::prm::smp::{NodeInfo, PortInfo, SmInfo, capability, node_type, sm_control};

const OWN_GUID: u64 = 0x0002_c903_0000_0011;
const PEER_GUID: u64 = 0x0002_c903_0000_0022;
const OWN_GID: u128 = (SUBNET_PREFIX as u128) << 64 | OWN_GUID as u128;
const PEER_GID: u128 = (SUBNET_PREFIX as u128) << 64 | PEER_GUID as u128;
const LIDS: [u16; 2] = [1, 2];
const FIRST_TID: u64 = 0x1122_3344_5566_7700;
const NOW: Instant = Instant::from_nanos(1_000_000);

/// What answers at a port.
#[derive(Clone, Copy)]
struct Agent {
    guid: u64,
    node_type: u8,
    info: PortInfo<[u8; 64]>,
    /// It takes settings.
    obeys: bool,
    answers: bool,
    /// The manager behind it.
    manager: Option<SmInfo<[u8; 24]>>,
}

impl Agent {
    fn new(guid: u64) -> Self {
        let mut info = PortInfo::new();
        info.set_port_state(port_state::INIT);
        info.set_mtu_cap(5);
        info.set_vl_cap(4);
        info.set_link_width_active(2);
        info.set_link_speed_active(4);
        info.set_cap_mask(capability::CLIENT_REREGISTER);
        let node_type = node_type::CHANNEL_ADAPTER;
        Self { guid, node_type, info, obeys: true, answers: true, manager: None }
    }

    fn answer(&mut self, request: &Mad) -> Option<Mad> {
        if !self.answers {
            return None;
        }
        let mut answer = *request;
        MadHeader(&mut answer).set_method(method::GET_RESP);
        SmpHeader(&mut answer).set_direction(true);
        let is_set = MadHeader(request).method() == method::SET;
        match MadHeader(request).attr_id() {
            attribute::NODE_INFO => {
                let mut node = NodeInfo::new();
                node.set_node_type(self.node_type);
                node.set_port_guid(self.guid);
                node.set_local_port_num(1);
                put(&mut answer, smp::DATA, &node.0);
            }
            attribute::PORT_INFO => {
                if is_set && self.obeys {
                    let state = self.info.port_state();
                    self.info.load(request, smp::DATA);
                    if self.info.port_state() == port_state::NO_CHANGE {
                        self.info.set_port_state(state);
                    }
                }
                let mut info = self.info;
                info.set_client_rereg(false);
                put(&mut answer, smp::DATA, &info.0);
            }
            _ => match self.manager {
                Some(manager) => put(&mut answer, smp::DATA, &manager.0),
                None => {
                    SmpHeader(&mut answer).set_status(status::UNSUPPORTED_METHOD_ATTRIBUTE);
                }
            },
        }
        Some(answer)
    }
}

struct Rig {
    manager: SubnetManager,
    agents: [Agent; 2],
    now: Instant,
    /// Requests and answers of the manager, but for those that the agents answer.
    sent: Vec<(Destination, Mad)>,
    requests: Vec<Mad>,
}

impl Rig {
    fn new() -> Self {
        let config = Config { port: 1, priority: 0, first_tid: FIRST_TID };
        Self {
            manager: SubnetManager::new(config),
            agents: [Agent::new(OWN_GUID), Agent::new(PEER_GUID)],
            now: NOW,
            sent: Vec::new(),
            requests: Vec::new(),
        }
    }

    fn up() -> Self {
        let mut rig = Self::new();
        rig.start();
        assert!(rig.manager.is_up());
        rig
    }

    fn start(&mut self) {
        self.manager.link_changed(self.now, true);
        self.run();
    }

    fn run(&mut self) {
        let mut mad = [0; 256];
        while let Some(to) = self.manager.poll_transmit(self.now, &mut mad) {
            let side = if to == Destination::Agent { Side::Own } else { Side::Peer };
            let is_request = matches!(mad[3], method::GET | method::SET);
            let agent = &mut self.agents[side.index()];
            if is_request {
                self.requests.push(mad);
                if let Some(answer) = agent.answer(&mad) {
                    self.manager.input(self.now, smi(side), &answer);
                }
            } else {
                self.sent.push((to, mad));
            }
        }
    }

    /// Lets time pass, from deadline to deadline.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.manager.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.manager.advance(self.now);
            self.run();
        }
        self.now = end;
    }

    /// A request to the SA and its answer.
    fn ask(&mut self, from: u16, mad: &Mad) -> Option<Mad> {
        let source = Source { interface: Interface::Gsi, side: Side::Peer, lid: from, qpn: 77 };
        self.manager.input(self.now, source, mad);
        self.run();
        let (to, answer) = self.sent.pop()?;
        assert_eq!(to, Destination::General { lid: from, qpn: 77 });
        Some(answer)
    }

    fn status(&mut self, from: u16, mad: &Mad) -> u16 {
        MadHeader(&self.ask(from, mad).unwrap()).status()
    }
}

const fn smi(side: Side) -> Source {
    Source { interface: Interface::Smi, side, lid: mad::PERMISSIVE_LID, qpn: 0 }
}

fn sa_request(method: u8, attr_id: u16, mask: u64, record: &[u8]) -> Mad {
    let mut mad = [0; 256];
    let mut header = MadHeader(&mut mad);
    header.set_base_version(1);
    header.set_mgmt_class(3);
    header.set_class_version(2);
    header.set_method(method);
    header.set_attr_id(attr_id);
    header.set_tid(99);
    SaHeader(&mut mad).set_comp_mask(mask);
    put(&mut mad, sa::DATA, record);
    mad
}

fn member(mgid: u128, gid: u128, state: u8) -> McMemberRecord<[u8; 52]> {
    let mut record = McMemberRecord::new();
    record.set_mgid(mgid);
    record.set_port_gid(gid);
    record.set_join_state(state);
    record.set_pkey(0xffff);
    record.set_qkey(0x1234);
    record
}

const JOIN: u64 =
    member_component::MGID | member_component::PORT_GID | member_component::JOIN_STATE;
const CREATE: u64 = JOIN
    | member_component::QKEY
    | member_component::PKEY
    | member_component::TRAFFIC_CLASS
    | member_component::FLOW_LABEL
    | member_component::SL;

fn join(mask: u64, mgid: u128, gid: u128, state: u8) -> Mad {
    sa_request(sa::method::SET, sa::attribute::MC_MEMBER_RECORD, mask, &member(mgid, gid, state).0)
}

fn leave(mgid: u128, gid: u128, state: u8) -> Mad {
    let record = member(mgid, gid, state);
    sa_request(sa::method::DELETE, sa::attribute::MC_MEMBER_RECORD, JOIN, &record.0)
}

fn path(method: u8, mask: u64, sgid: u128, dgid: u128) -> (Mad, PathRecord<[u8; 64]>) {
    let mut record = PathRecord::new();
    record.set_sgid(sgid);
    record.set_dgid(dgid);
    (sa_request(method, sa::attribute::PATH_RECORD, mask, &record.0), record)
}

/// An IPv6 solicited-node group of IPoIB.
fn group(number: u32) -> u128 {
    0xff12_601b_ffff_0000_0000_0001_ff00_0000 | u128::from(number)
}

// ---- the sweep ----

#[test]
fn first_requests_by_bytes() {
    let mut rig = Rig::new();
    let mut mad = [0xee; 256];
    assert_eq!(rig.manager.poll_transmit(NOW, &mut mad), None);
    rig.manager.link_changed(NOW, true);
    assert_eq!(rig.manager.poll_transmit(NOW, &mut mad), Some(Destination::Agent));
    let mut expected = [0; 256];
    // Directed route, version 1, Get; transaction; NodeInfo; permissive LIDs.
    expected[..4].copy_from_slice(&[1, 0x81, 1, 1]);
    expected[8..16].copy_from_slice(&(FIRST_TID + 1).to_be_bytes());
    expected[16..18].copy_from_slice(&[0, 0x11]);
    expected[32..36].copy_from_slice(&[0xff; 4]);
    assert_eq!(mad, expected);
    // Through the cable: one hop, by port 1, its first step done.
    rig.run();
    rig.start();
    let peer = rig.requests.iter().find(|mad| mad[7] == 1).unwrap();
    assert_eq!((peer[6], peer[0x80], peer[0x81]), (1, 0, 1));
    assert_eq!(peer[0xc0..], [0; 64]);
}

#[test]
fn a_sweep_sets_both_ports_and_brings_them_up() {
    let rig = Rig::up();
    for (agent, lid) in rig.agents.iter().zip(LIDS) {
        let info = &agent.info;
        assert_eq!((info.lid(), info.sm_lid(), info.lmc()), (lid, 1, 0));
        assert_eq!(info.gid_prefix(), SUBNET_PREFIX);
        assert_eq!((info.neighbor_mtu(), info.operational_vls()), (5, 4));
        assert_eq!((info.mkey(), info.subnet_timeout()), (0, 18));
        assert_eq!(info.port_state(), port_state::ACTIVE);
    }
    // One state at a time; the own port is active first, as the SA answers through it.
    let sets: Vec<_> = rig.requests.iter().filter(|mad| mad[3] == method::SET).collect();
    let steps: Vec<_> =
        sets.iter().map(|mad| (mad[7], PortInfo::read(&mad[..], smp::DATA).port_state())).collect();
    assert_eq!(steps, [(1, 0), (0, 0), (1, 3), (0, 3), (0, 4), (1, 4)]);
}

/// The other port asks when it is active, which is before its agent's answer has come.
#[test]
fn who_asks_as_soon_as_a_port_is_active_has_an_answer() {
    for (side, lid, gid) in [(Side::Own, 1, OWN_GID), (Side::Peer, 2, PEER_GID)] {
        let mut rig = Rig::new();
        rig.manager.link_changed(NOW, true);
        let mut mad = [0; 256];
        loop {
            let to = rig.manager.poll_transmit(NOW, &mut mad).unwrap();
            let of = if to == Destination::Agent { Side::Own } else { Side::Peer };
            let answer = rig.agents[of.index()].answer(&mad).unwrap();
            let state = PortInfo::read(&mad[..], smp::DATA).port_state();
            let is_last = mad[3] == method::SET && state == port_state::ACTIVE && of == side;
            if is_last && side == Side::Peer {
                break;
            }
            rig.manager.input(NOW, smi(of), &answer);
            if is_last {
                break;
            }
        }
        let join = join(JOIN, BROADCAST_MGID, gid, join_state::FULL);
        let source = Source { interface: Interface::Gsi, side, lid, qpn: 1 };
        rig.manager.input(NOW, source, &join);
        let to = rig.manager.poll_transmit(NOW, &mut mad);
        assert_eq!(to, Some(Destination::General { lid, qpn: 1 }), "{side:?}");
        assert_eq!(MadHeader(&mad).status(), 0);
    }
}

#[test]
fn valid_lids_stay_and_equal_ones_do_not() {
    for (had, get) in [
        ([7, 9], [7, 9]),
        ([0, 1], [2, 1]),
        ([1, 1], [1, 2]),
        ([0xc001, 5], [1, 5]),
        ([5, 0xffff], [5, 1]),
        ([0, 0], [1, 2]),
    ] {
        let mut rig = Rig::new();
        for (agent, lid) in rig.agents.iter_mut().zip(had) {
            agent.info.set_lid(lid);
        }
        rig.start();
        assert_eq!(rig.agents.map(|agent| agent.info.lid()), get, "{had:?}");
        assert_eq!(Side::ALL.map(|side| rig.manager.lid(side)), get.map(Some));
    }
}

#[test]
fn the_smaller_mtu_counts_and_nonsense_is_cut() {
    for (caps, mtu) in [([5, 4], 4), ([0, 5], 1), ([15, 15], 5)] {
        let mut rig = Rig::new();
        for (agent, cap) in rig.agents.iter_mut().zip(caps) {
            agent.info.set_mtu_cap(cap);
        }
        rig.start();
        assert_eq!(rig.agents.map(|agent| agent.info.neighbor_mtu()), [mtu; 2]);
    }
}

#[test]
fn active_ports_keep_their_link_when_a_manager_starts() {
    let mut rig = Rig::new();
    for agent in &mut rig.agents {
        agent.info.set_port_state(port_state::ACTIVE);
        agent.info.set_neighbor_mtu(3);
    }
    rig.start();
    assert!(rig.manager.is_up());
    assert_eq!(rig.requests.iter().filter(|mad| mad[3] == method::SET).count(), 2);
    assert_eq!(rig.agents.map(|agent| agent.info.neighbor_mtu()), [3; 2]);
}

#[test]
fn a_silent_port_is_asked_four_times_and_then_now_and_then() {
    for side in Side::ALL {
        let mut rig = Rig::new();
        rig.agents[side.index()].answers = false;
        rig.start();
        assert_eq!(
            rig.manager.state(),
            if side == Side::Own { State::Down } else { State::Discovering }
        );
        let before = rig.requests.len();
        rig.pass(Duration::from_millis(900));
        assert_eq!(rig.requests.len(), before + 3, "{side:?}");
        assert_eq!(rig.manager.state(), State::Unanswered(side));
        assert_eq!(rig.requests[before], rig.requests[before - 1], "the same transaction");
        rig.agents[side.index()].answers = true;
        rig.pass(SWEEP_INTERVAL);
        assert!(rig.manager.is_up());
    }
}

#[test]
fn a_port_that_does_not_obey_is_not_set_for_ever() {
    let mut rig = Rig::new();
    rig.agents[1].obeys = false;
    rig.start();
    assert!(!rig.manager.is_up());
    assert!(rig.requests.len() < 20);
    assert!(rig.manager.next_deadline().unwrap() >= NOW + SWEEP_INTERVAL);
}

#[test]
fn a_port_that_lost_its_link_unseen_is_set_and_asked_again() {
    let mut rig = Rig::up();
    assert_eq!(rig.status(2, &join(CREATE, group(1), PEER_GID, join_state::FULL)), 0);
    let asked = |rig: &Rig| {
        let sets = rig.requests.iter().filter(|mad| mad[3] == method::SET && mad[7] == 1);
        sets.filter(|mad| PortInfo::read(&mad[..], smp::DATA).client_rereg()).count()
    };
    assert_eq!(asked(&rig), 1);
    rig.agents[1].info.set_port_state(port_state::INIT);
    rig.pass(SWEEP_INTERVAL);
    assert!(rig.manager.is_up());
    assert_eq!(asked(&rig), 2);
    assert_eq!(rig.status(2, &mad_of_group(1)), sa::status::NO_RECORDS);
}

#[test]
fn a_plug_that_loops_back_is_no_subnet() {
    let mut rig = Rig::new();
    rig.agents[1].guid = OWN_GUID;
    rig.start();
    assert_eq!(rig.manager.state(), State::Unanswered(Side::Peer));
}

#[test]
fn a_switch_and_a_router_are_left_alone() {
    for node_type in [node_type::SWITCH, node_type::ROUTER, 0, 9] {
        let mut rig = Rig::new();
        rig.agents[1].node_type = node_type;
        rig.start();
        assert_eq!(rig.manager.state(), State::Switch);
        assert!(rig.requests.iter().all(|mad| mad[3] == method::GET));
        rig.pass(Duration::from_secs(60));
        assert_eq!(rig.manager.state(), State::Switch);
        // Not even for the time of a sweep does it announce itself to the real one.
        rig.now = rig.manager.next_deadline().unwrap();
        rig.manager.advance(rig.now);
        assert!(!rig.manager.is_announced());
        rig.run();
        // And when the cable has moved to an adapter, it works.
        rig.agents[1].node_type = node_type::CHANNEL_ADAPTER;
        rig.pass(SWEEP_INTERVAL);
        assert!(rig.manager.is_up());
    }
}

#[test]
fn answers_count_by_transaction_side_and_attribute() {
    let mut rig = Rig::new();
    rig.manager.link_changed(NOW, true);
    let mut request = [0; 256];
    rig.manager.poll_transmit(NOW, &mut request);
    let answer = rig.agents[0].answer(&request).unwrap();
    let mut other_transaction = answer;
    MadHeader(&mut other_transaction).set_tid(FIRST_TID);
    let mut other_attribute = answer;
    MadHeader(&mut other_attribute).set_attr_id(attribute::PORT_INFO);
    for (side, mad) in
        [(Side::Own, other_transaction), (Side::Own, other_attribute), (Side::Peer, answer)]
    {
        rig.manager.input(NOW, smi(side), &mad);
        assert_eq!(rig.manager.poll_transmit(NOW, &mut request), None);
    }
    assert_eq!(rig.manager.counters().malformed, 3);
    rig.manager.input(NOW, smi(Side::Own), &answer);
    assert_eq!(rig.manager.poll_transmit(NOW, &mut request), Some(Destination::Agent));
    assert_eq!(request[16..18], [0, 0x15]);
}

// ---- other managers ----

fn sm_info(priority: u8, guid: u64, state: u8) -> SmInfo<[u8; 24]> {
    let mut info = SmInfo::new();
    info.set_priority(priority);
    info.set_guid(guid);
    info.set_state(state);
    info
}

fn with_manager(info: SmInfo<[u8; 24]>) -> Rig {
    let mut rig = Rig::new();
    rig.agents[1].manager = Some(info);
    rig.agents[1].info.set_cap_mask(capability::SM);
    rig.start();
    rig
}

#[test]
fn who_precedes_and_who_is_master_decides() {
    let standby = State::Standby { master: PEER_GUID };
    let low = 1;
    for (info, state) in [
        (sm_info(1, PEER_GUID, sm_state::DISCOVERING), standby),
        (sm_info(1, PEER_GUID, sm_state::STANDBY), standby),
        (sm_info(1, PEER_GUID, sm_state::NOT_ACTIVE), State::Master),
        (sm_info(0, PEER_GUID, sm_state::DISCOVERING), State::Master),
        (sm_info(0, low, sm_state::DISCOVERING), State::Standby { master: low }),
        (sm_info(0, PEER_GUID, sm_state::MASTER), standby),
        (sm_info(0, PEER_GUID, sm_state::NOT_ACTIVE), State::Master),
    ] {
        let rig = with_manager(info);
        assert_eq!(rig.manager.state(), state, "{info:?}");
        let is_set = rig.requests.iter().any(|mad| mad[3] == method::SET);
        assert_eq!(is_set, state == State::Master, "a standby is silent");
    }
}

#[test]
fn a_master_that_is_silent_is_lost_after_four_polls() {
    let mut rig = with_manager(sm_info(1, PEER_GUID, sm_state::MASTER));
    rig.pass(Duration::from_secs(100));
    assert_eq!(rig.manager.state(), State::Standby { master: PEER_GUID });
    rig.agents[1].manager = None;
    rig.pass(Duration::from_secs(29));
    assert_eq!(rig.manager.state(), State::Standby { master: PEER_GUID });
    rig.agents[1].info.set_cap_mask(0);
    rig.pass(Duration::from_secs(15));
    assert!(rig.manager.is_up());
}

/// A request of the manager at the other end, by directed route as it is when it arrives.
fn control(method: u8, modifier: u32, info: SmInfo<[u8; 24]>) -> Mad {
    let mut mad = SubnetManager::smp(method, attribute::SM_INFO, modifier, 5);
    let mut header = SmpHeader(&mut mad);
    header.set_hop_cnt(1);
    header.set_hop_ptr(1);
    put(&mut mad, smp::INITIAL_PATH + 1, &[2]);
    put(&mut mad, smp::DATA, &info.0);
    mad
}

#[test]
fn sm_info_is_answered_along_the_route_back() {
    let mut rig = Rig::up();
    let mad = control(method::GET, 0, SmInfo::new());
    rig.manager.input(rig.now, smi(Side::Peer), &mad);
    rig.run();
    let (to, answer) = rig.sent.pop().unwrap();
    assert_eq!(to, Destination::Directed);
    assert_eq!(answer[..8], [1, 0x81, 1, 0x81, 0x80, 0, 1, 1]);
    assert_eq!((answer[0x81], answer[0xc1]), (2, 1));
    let info = SmInfo::read(&answer, smp::DATA);
    assert_eq!((info.guid(), info.priority(), info.state()), (OWN_GUID, 0, sm_state::MASTER));
    // By LID likewise.
    let mut mad = mad;
    MadHeader(&mut mad).set_mgmt_class(class::SUBNET_LID);
    rig.manager.input(rig.now, Source { lid: 2, ..smi(Side::Peer) }, &mad);
    rig.run();
    assert_eq!(rig.sent.pop().unwrap().0, Destination::Management { lid: 2 });
}

#[test]
fn sm_info_is_not_answered_before_the_own_guid_is_known() {
    let mut rig = Rig::new();
    rig.manager.link_changed(NOW, true);
    let mut mad = [0; 256];
    rig.manager.poll_transmit(NOW, &mut mad);
    rig.manager.input(NOW, smi(Side::Peer), &control(method::GET, 0, SmInfo::new()));
    assert_eq!(rig.manager.poll_transmit(NOW, &mut mad), None);
}

#[test]
fn control_is_obeyed_where_the_state_allows_it() {
    let other = sm_info(1, PEER_GUID, sm_state::MASTER);
    let set = |rig: &mut Rig, modifier| {
        rig.manager.input(rig.now, smi(Side::Peer), &control(method::SET, modifier, other));
        let mut mad = [0; 256];
        assert!(rig.manager.poll_transmit(rig.now, &mut mad).is_some());
        SmpHeader(&mad).status()
    };
    let mut rig = Rig::up();
    for refused in [0, sm_control::DISABLE, sm_control::STANDBY, sm_control::DISCOVER, 6, 1 << 31] {
        assert_eq!(set(&mut rig, refused), status::INVALID_FIELD, "{refused}");
        assert_eq!(rig.manager.state(), State::Master);
    }
    assert_eq!(set(&mut rig, sm_control::ACKNOWLEDGE), 0);
    assert_eq!(rig.manager.state(), State::Standby { master: PEER_GUID });
    assert_eq!(set(&mut rig, sm_control::DISABLE), 0);
    assert_eq!(rig.manager.state(), State::NotActive);
    assert_eq!(rig.manager.next_deadline(), None);
    assert_eq!(set(&mut rig, sm_control::HANDOVER), status::INVALID_FIELD);
    assert_eq!(set(&mut rig, sm_control::STANDBY), 0);
    assert_eq!(set(&mut rig, sm_control::HANDOVER), 0);
    assert_eq!(rig.manager.state(), State::Master);
    rig.run();
    let acknowledged = rig.requests.iter().any(|mad| mad[3] == method::SET && mad[0x17] == 2);
    assert!(acknowledged && rig.manager.is_up());
}

#[test]
fn traps_are_repressed_and_looked_into() {
    let mut rig = Rig::up();
    rig.requests.clear();
    let mut trap = SubnetManager::smp(method::TRAP, attribute::NOTICE, 0, 42);
    MadHeader(&mut trap).set_mgmt_class(class::SUBNET_LID);
    let mut notice = mad::Notice::new();
    notice.set_is_generic(true);
    notice.set_trap_num(mad::trap::CAPABILITIES);
    put(&mut trap, smp::DATA, &notice.0);
    for (lid, to) in [(2, Destination::Management { lid: 2 }), (1, Destination::Agent)] {
        rig.manager.input(rig.now, Source { lid, ..smi(Side::Peer) }, &trap);
        rig.run();
        let (destination, mad) = rig.sent.pop().unwrap();
        let mut expected = trap;
        expected[3] = 7;
        assert_eq!((destination, mad), (to, expected));
    }
    rig.pass(TRAP_DELAY);
    assert_eq!(rig.requests.len(), 4, "one sweep for both");
}

// ---- subnet administration ----

#[test]
fn nothing_is_sent_to_a_lid_that_no_port_can_have() {
    for lid in [0, 0xc000, 0xffff] {
        let mut rig = Rig::up();
        let mut trap = SubnetManager::smp(method::TRAP, attribute::NOTICE, 0, 7);
        MadHeader(&mut trap).set_mgmt_class(class::SUBNET_LID);
        let malformed = rig.manager.counters().malformed;
        rig.manager.input(rig.now, Source { lid, ..smi(Side::Peer) }, &trap);
        rig.run();
        assert!(rig.sent.is_empty(), "{lid:#x}: {:?}", rig.sent.first().map(|sent| sent.0));
        assert_eq!(rig.manager.counters().malformed, malformed + 1);
    }
}

#[test]
fn a_group_without_a_name_gets_one_of_a_scope_that_exists() {
    let mut rig = Rig::up();
    for scope in [0, 15, 5] {
        let mut record = member(0, PEER_GID, join_state::FULL);
        record.set_scope(scope);
        let mask = CREATE | member_component::SCOPE;
        let mad = sa_request(sa::method::SET, sa::attribute::MC_MEMBER_RECORD, mask, &record.0);
        let wanted = if scope == 5 { 0 } else { sa::status::REQ_INVALID };
        assert_eq!(rig.status(LIDS[1], &mad), wanted, "scope {scope}");
    }
}

#[test]
fn a_path_is_found_by_the_lid_of_its_end() {
    let mut rig = Rig::up();
    let mut record = PathRecord::new();
    record.set_sgid(OWN_GID);
    record.set_dlid(LIDS[1]);
    let mask = path_component::SGID | path_component::DLID | path_component::NUMB_PATH;
    record.set_numb_path(1);
    let mad = sa_request(sa::method::GET, sa::attribute::PATH_RECORD, mask, &record.0);
    let answer = rig.ask(LIDS[0], &mad).unwrap();
    assert_eq!(MadHeader(&answer).status(), 0);
    assert_eq!(PathRecord::read(&answer[..], sa::DATA).dgid(), PEER_GID);
}

#[test]
fn a_path_by_bytes() {
    let mut rig = Rig::up();
    let mask = path_component::SGID | path_component::DGID | path_component::NUMB_PATH;
    let (mut mad, _) = path(sa::method::GET, mask, PEER_GID, OWN_GID);
    mad[sa::DATA + 0x31] = 1;
    let answer = rig.ask(2, &mad).unwrap();
    let mut expected = [0; 256];
    expected[..4].copy_from_slice(&[1, 3, 2, 0x81]);
    expected[15] = 99;
    expected[17] = 0x35;
    // Records are eight times eight bytes long; the mask comes back.
    expected[0x2d] = 8;
    expected[0x30..0x38].copy_from_slice(&mask.to_be_bytes());
    expected[0x40..0x50].copy_from_slice(&OWN_GID.to_be_bytes());
    expected[0x50..0x60].copy_from_slice(&PEER_GID.to_be_bytes());
    expected[0x60..0x64].copy_from_slice(&[0, 1, 0, 2]);
    expected[0x69] = 0x80;
    expected[0x6a..0x6c].copy_from_slice(&[0xff, 0xff]);
    // Exactly 4096 bytes, 40 Gbit/s, one second.
    expected[0x6e..0x71].copy_from_slice(&[0x80 | 5, 0x80 | 7, 0x80 | 18]);
    assert_eq!(answer, expected);
}

#[test]
fn paths_are_as_asked_or_none() {
    let mut rig = Rig::up();
    let both = path_component::SGID | path_component::DGID;
    type Change = fn(&mut PathRecord<[u8; 64]>);
    let rows: [(u64, Change, u16); 13] = [
        (0, |_| (), 0),
        (path_component::PKEY, |p| p.set_pkey(0x7fff), 0),
        (path_component::PKEY, |p| p.set_pkey(0x8001), sa::status::NO_RECORDS),
        (path_component::SL, |p| p.set_sl(3), sa::status::NO_RECORDS),
        (path_component::RAW_TRAFFIC, |p| p.set_raw_traffic(true), sa::status::NO_RECORDS),
        (path_component::SLID, |p| p.set_slid(1), 0),
        (path_component::SLID, |p| p.set_slid(2), sa::status::NO_RECORDS),
        (path_component::DLID, |p| p.set_dlid(2), 0),
        (
            path_component::MTU | path_component::MTU_SELECTOR,
            |p| {
                p.set_mtu(4);
                p.set_mtu_selector(selector::GREATER);
            },
            0,
        ),
        (
            path_component::MTU | path_component::MTU_SELECTOR,
            |p| {
                p.set_mtu(5);
                p.set_mtu_selector(selector::LESS);
            },
            sa::status::NO_RECORDS,
        ),
        (
            path_component::RATE | path_component::RATE_SELECTOR,
            |p| {
                p.set_rate(rate::GBPS_5);
                p.set_rate_selector(selector::GREATER);
            },
            0,
        ),
        (
            path_component::RATE | path_component::RATE_SELECTOR,
            |p| {
                p.set_rate(rate::GBPS_56);
                p.set_rate_selector(selector::GREATER);
            },
            sa::status::NO_RECORDS,
        ),
        (path_component::NUMB_PATH, |p| p.set_numb_path(0), sa::status::NO_RECORDS),
    ];
    for (row, (component, change, expected)) in rows.into_iter().enumerate() {
        let (_, mut record) = path(sa::method::GET, 0, OWN_GID, PEER_GID);
        change(&mut record);
        let mad =
            sa_request(sa::method::GET, sa::attribute::PATH_RECORD, both | component, &record.0);
        assert_eq!(rig.status(1, &mad), expected, "row {row}");
    }
    let (mad, _) = path(sa::method::GET, path_component::SGID, OWN_GID, 0);
    assert_eq!(rig.status(1, &mad), sa::status::REQ_INSUFFICIENT_COMPONENTS);
    let (mad, _) = path(sa::method::GET, both, OWN_GID ^ 1 << 64, PEER_GID);
    assert_eq!(rig.status(1, &mad), sa::status::REQ_INVALID_GID);
}

#[test]
fn tables_come_in_one_segment() {
    let mut rig = Rig::up();
    let (mad, _) = path(sa::method::GET_TABLE, path_component::SGID, OWN_GID, 0);
    let answer = rig.ask(2, &mad).unwrap();
    assert_eq!(answer[3], sa::method::GET_TABLE_RESP);
    // Version 1, data, no response time and first, last, active; segment 1; two records of 64 bytes
    // and the header.
    assert_eq!(answer[0x18..0x24], [1, 1, 0xff, 0, 0, 0, 0, 1, 0, 0, 0, 20 + 128]);
    let dgids = [0, 64].map(|at| PathRecord::read(&answer, sa::DATA + at).dgid());
    assert_eq!(dgids, [OWN_GID, PEER_GID]);
}

#[test]
fn groups_are_created_joined_left_and_deleted() {
    let mut rig = Rig::up();
    let full = join_state::FULL;
    // Nobody creates a group without saying what it is, or without being in it.
    let mad = join(JOIN, group(1), OWN_GID, full);
    assert_eq!(rig.status(1, &mad), sa::status::REQ_INSUFFICIENT_COMPONENTS);
    let mad = join(CREATE, group(1), OWN_GID, join_state::SEND_ONLY);
    assert_eq!(rig.status(1, &mad), sa::status::REQ_INVALID);
    let created = rig.ask(1, &join(CREATE, group(1), OWN_GID, full)).unwrap();
    let record = McMemberRecord::read(&created, sa::DATA);
    assert_eq!((MadHeader(&created).status(), record.mlid()), (0, 0xc001));
    assert_eq!((record.qkey(), record.scope(), record.mtu()), (0x1234, 2, 5));
    // The other joins without more, and not as somebody else.
    assert_eq!(rig.status(2, &join(JOIN, group(1), PEER_GID, full)), 0);
    for (from, gid) in [(2, OWN_GID), (1, PEER_GID), (1, OWN_GID + 5)] {
        assert_eq!(rig.status(from, &join(JOIN, group(1), gid, full)), sa::status::REQ_INVALID);
    }
    let mut other_key = member(group(1), PEER_GID, full);
    other_key.set_qkey(1);
    let mask = JOIN | member_component::QKEY;
    let mad = sa_request(2, sa::attribute::MC_MEMBER_RECORD, mask, &other_key.0);
    assert_eq!(rig.status(2, &mad), sa::status::REQ_INVALID);
    // It is there until both have left.
    let get = |state| {
        let record = member(group(1), 0, state);
        sa_request(1, sa::attribute::MC_MEMBER_RECORD, member_component::MGID, &record.0)
    };
    assert_eq!(rig.status(1, &leave(group(1), OWN_GID, full)), 0);
    assert_eq!(rig.status(1, &leave(group(1), OWN_GID, full)), sa::status::REQ_INVALID);
    assert_eq!(rig.status(1, &get(0)), 0);
    assert_eq!(rig.status(2, &leave(group(1), PEER_GID, full)), 0);
    assert_eq!(rig.status(1, &get(0)), sa::status::NO_RECORDS);
    // The broadcast group has no end.
    assert_eq!(rig.status(2, &join(JOIN, BROADCAST_MGID, PEER_GID, full)), 0);
    assert_eq!(rig.status(2, &leave(BROADCAST_MGID, PEER_GID, full)), 0);
    assert_eq!(rig.status(2, &join(JOIN, BROADCAST_MGID, PEER_GID, full)), 0);
}

#[test]
fn a_full_table_has_no_resources() {
    let mut rig = Rig::up();
    for number in 0..31 {
        assert_eq!(rig.status(1, &join(CREATE, group(number), OWN_GID, join_state::FULL)), 0);
    }
    let mad = join(CREATE, group(31), OWN_GID, join_state::FULL);
    assert_eq!(rig.status(1, &mad), sa::status::NO_RESOURCES);
    assert_eq!(rig.status(2, &join(JOIN, group(30), PEER_GID, join_state::FULL)), 0);
    // A table of that many does not fit into one datagram.
    let mad = sa_request(sa::method::GET_TABLE, sa::attribute::MC_MEMBER_RECORD, 0, &[]);
    assert_eq!(rig.status(1, &mad), sa::status::TOO_MANY_RECORDS);
    // When the link has been down all are gone.
    rig.manager.link_changed(rig.now, false);
    for agent in &mut rig.agents {
        agent.info.set_port_state(port_state::INIT);
    }
    rig.start();
    assert_eq!(rig.status(1, &mad_of_group(0)), sa::status::NO_RECORDS);
}

fn mad_of_group(number: u32) -> Mad {
    let record = member(group(number), 0, 0);
    sa_request(1, sa::attribute::MC_MEMBER_RECORD, member_component::MGID, &record.0)
}

#[test]
fn a_group_without_a_name_gets_one() {
    let mut rig = Rig::up();
    let mgids = [(); 2].map(|()| {
        let answer = rig.ask(1, &join(CREATE, 0, OWN_GID, join_state::FULL)).unwrap();
        assert_eq!(MadHeader(&answer).status(), 0);
        McMemberRecord::read(&answer, sa::DATA).mgid()
    });
    assert_ne!(mgids[0], mgids[1]);
    assert!(mgids.iter().all(|mgid| mgid >> 96 == 0xff12_a01b));
    for bad in [1, OWN_GID, 0xff00 << 112 | 1, 0xfff2 << 112, 0xff1f << 112] {
        let mad = join(CREATE, bad, OWN_GID, join_state::FULL);
        assert_eq!(rig.status(1, &mad), sa::status::REQ_INVALID, "{bad:x}");
    }
}

#[test]
fn what_is_not_there_is_refused_by_status() {
    let mut rig = Rig::up();
    let refused = status::UNSUPPORTED_METHOD_ATTRIBUTE;
    for (method, attr_id, expected) in [
        (1, sa::attribute::CLASS_PORT_INFO, 0),
        (2, sa::attribute::CLASS_PORT_INFO, refused),
        (1, sa::attribute::SERVICE_RECORD, refused),
        (2, sa::attribute::SERVICE_RECORD, refused),
        (0x15, sa::attribute::SERVICE_RECORD, refused),
        (2, sa::attribute::PATH_RECORD, refused),
        (1, 0x7777, refused),
        (0x14, 0x3a, status::UNSUPPORTED_METHOD),
        (0x7f, sa::attribute::PATH_RECORD, status::UNSUPPORTED_METHOD),
        (0, 0, status::UNSUPPORTED_METHOD),
    ] {
        assert_eq!(rig.status(1, &sa_request(method, attr_id, 0, &[])), expected, "{attr_id:#x}");
    }
    let mut inform = mad::InformInfo::new();
    for (subscribe, expected) in [(0, 0x200), (1, 0x100), (2, status::INVALID_FIELD)] {
        inform.set_subscribe(subscribe);
        let mad = sa_request(2, sa::attribute::INFORM_INFO, 0, &inform.0);
        assert_eq!(rig.status(1, &mad), expected);
    }
    let mut version = sa_request(1, sa::attribute::CLASS_PORT_INFO, 0, &[]);
    version[2] = 1;
    assert_eq!(rig.status(1, &version), status::BAD_VERSION);
}

#[test]
fn nobody_else_is_answered() {
    let mad = sa_request(1, sa::attribute::CLASS_PORT_INFO, 0, &[]);
    let mut rig = Rig::up();
    for lid in [0, 3, 0xc000, 0xffff] {
        assert!(rig.ask(lid, &mad).is_none());
    }
    assert_eq!(rig.manager.counters().unknown_requesters, 4);
    let mut keyed = mad;
    SaHeader(&mut keyed).set_sm_key(1);
    let mut response = mad;
    response[3] |= 0x80;
    for mad in [keyed, response] {
        assert!(rig.ask(1, &mad).is_none());
    }
    // A datagram of another length, class or version is none.
    for mad in [&mad[..255], &[], &[0; 256]] {
        let source = Source { interface: Interface::Gsi, ..smi(Side::Peer) };
        rig.manager.input(rig.now, source, mad);
    }
    assert_eq!(rig.manager.counters().malformed, 4);
    // Nor is there an answer before both ports are up, or from a standby.
    let mut rig = Rig::new();
    rig.agents[1].obeys = false;
    rig.start();
    assert!(rig.ask(1, &mad).is_none());
    let mut rig = with_manager(sm_info(1, PEER_GUID, sm_state::MASTER));
    assert!(rig.ask(1, &mad).is_none());
}

#[test]
fn more_answers_than_slots_are_dropped() {
    let mut rig = Rig::up();
    let mad = sa_request(1, sa::attribute::CLASS_PORT_INFO, 0, &[]);
    let source = Source { interface: Interface::Gsi, side: Side::Peer, lid: 2, qpn: 1 };
    for _ in 0..100 {
        rig.manager.input(rig.now, source, &mad);
    }
    rig.run();
    assert_eq!((rig.sent.len(), rig.manager.counters().dropped_answers), (8, 92));
}

#[test]
fn rates_of_links() {
    for (width, speed, extended, expected) in [
        (1, 1, 0, rate::GBPS_2_5),
        (2, 1, 0, rate::GBPS_10),
        (2, 4, 0, rate::GBPS_40),
        (2, 4, 1, rate::GBPS_56),
        (2, 4, 2, rate::GBPS_100),
        (2, 4, 4, rate::GBPS_200),
        (2, 4, 8, rate::GBPS_400),
        (16, 4, 4, rate::GBPS_100),
        (8, 4, 8, rate::GBPS_1200),
        (0, 0, 0, rate::GBPS_2_5),
        (255, 15, 15, rate::GBPS_2_5),
    ] {
        let mut info = PortInfo::new();
        info.set_cap_mask(capability::EXTENDED_SPEEDS);
        info.set_link_width_active(width);
        info.set_link_speed_active(speed);
        info.set_link_speed_ext_active(extended);
        assert_eq!(rates::of_port(&info), expected, "{width} {speed} {extended}");
    }
}

// ---- arbitrary datagrams ----

/// A datagram with a header that is likely to be looked at, and arbitrary bytes behind it.
fn any_mad() -> impl Strategy<Value = Vec<u8>> {
    let header = (
        prop_oneof![Just(1_u8), Just(3), Just(0x81)],
        prop_oneof![Just(1_u8), Just(2)],
        prop_oneof![Just(1_u8), Just(2), Just(5), Just(0x12), Just(0x15), Just(0x81), any::<u8>()],
        prop_oneof![
            Just(2_u16),
            Just(3),
            Just(0x11),
            Just(0x15),
            Just(0x20),
            Just(0x35),
            Just(0x38)
        ],
        0..12_u64,
        0..4_u8,
    );
    let bytes = proptest::collection::vec(any::<u8>(), 256);
    (header, bytes, any::<bool>(), any::<prop::sample::Index>()).prop_map(
        |((class, version, method, attribute, tid, hops), mut mad, clean, len)| {
            if clean {
                mad[..0x40].fill(0);
            }
            mad[..4].copy_from_slice(&[1, class, version, method]);
            mad[4..8].copy_from_slice(&[0, 0, hops, hops & 1]);
            mad[8..16].copy_from_slice(&(FIRST_TID + tid).to_be_bytes());
            mad[16..18].copy_from_slice(&attribute.to_be_bytes());
            mad[36..44].fill(0);
            if len.index(16) == 0 {
                mad.truncate(len.index(256));
            }
            mad
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever comes, the manager goes on: it sends a bounded number of datagrams, has a deadline
    /// unless it was disabled, and answers only the two ports.
    #[test]
    fn arbitrary_datagrams_do_no_harm(
        mads in proptest::collection::vec((any_mad(), 0..4_u16, any::<[bool; 3]>()), 1..40),
        is_up in any::<bool>(),
    ) {
        let mut rig = if is_up { Rig::up() } else { Rig::new() };
        if !is_up {
            rig.manager.link_changed(rig.now, true);
        }
        for (mad, lid, [is_own, is_general, waits]) in mads {
            let source = Source {
                interface: if is_general { Interface::Gsi } else { Interface::Smi },
                side: if is_own { Side::Own } else { Side::Peer },
                lid,
                qpn: 1,
            };
            rig.manager.input(rig.now, source, &mad);
            let mut out = [0; 256];
            let mut sent = 0;
            while let Some(to) = rig.manager.poll_transmit(rig.now, &mut out) {
                sent += 1;
                prop_assert!(sent <= 10);
                if let Destination::General { lid, .. } = to {
                    prop_assert!(rig.manager.state() == State::Master);
                    prop_assert!((1..0xc000).contains(&lid));
                }
            }
            if let Some(due) = rig.manager.next_deadline() {
                if waits {
                    rig.now = rig.now.max(due);
                    rig.manager.advance(rig.now);
                }
            } else {
                prop_assert_eq!(rig.manager.state(), State::NotActive);
            }
        }
    }
}
