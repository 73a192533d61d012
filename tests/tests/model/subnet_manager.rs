//! The driver's subnet manager over the fabric of the model: two channel adapters on one cable.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "test code: a panic here is a failed test"
)]

use std::time::Duration;

use dat_core::Instant;
use hca_mlx5::net::ib::sm::{
    BROADCAST_MGID, Config, Destination, Interface, SUBNET_PREFIX, Side, Source, State,
    SubnetManager,
};
use hca_mlx5::prm::mad::{MadHeader, class, method, status};
use hca_mlx5::prm::sa::{
    self, McMemberRecord, PathRecord, SaHeader, attribute, join_state, member_component,
    path_component,
};
use mlx5_model::subnet::port::{CAPABILITY_SM, State as PortState};
use mlx5_model::subnet::{Cause, End, Fabric, Identity, Node, Smp};
use mlx5_model::wire::headers::{Bth, Deth, Extended};
use mlx5_model::wire::ib::{Lrh, Next, Packet, lid};
use mlx5_model::wire::opcode::{Opcode, Service};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

type Mad = [u8; 256];

const GSI_QKEY: u32 = 0x8001_0000;
/// Port GUIDs: the nodes' and one, as the ports are number 1.
const GUIDS: [u64; 2] = [0x1001, 0x2001];
/// A queue pair that asks the SA.
const CLIENT_QP: u32 = 0x55;

/// Two channel adapters on a cable, each with a manager or without.
struct Pair {
    fabric: Fabric,
    ends: [End; 2],
    managers: [Option<SubnetManager>; 2],
    /// What came for the client of each end.
    replies: [Vec<Mad>; 2],
    links: [bool; 2],
    now: Instant,
    /// Three of ten datagrams of the managers are lost where this is set.
    loss: Option<SmallRng>,
}

fn adapter(guid: u64) -> Node {
    let identity = Identity {
        node_guid: guid,
        system_guid: guid,
        description: "adapter".to_owned(),
        vendor_id: 0x02_c903,
        device_id: 4115,
    };
    Node::channel_adapter(identity, 1)
}

fn manager(priority: u8, first_tid: u64) -> SubnetManager {
    SubnetManager::new(Config { port: 1, priority, first_tid })
}

impl Pair {
    /// With managers of these priorities; the cable is plugged in.
    fn new(priorities: [Option<u8>; 2]) -> Self {
        let mut fabric = Fabric::default();
        let ends = GUIDS.map(|guid| End { node: fabric.add(adapter(guid - 1)), port: 1 });
        let mut pair = Self {
            fabric,
            ends,
            managers: [None, None],
            replies: [Vec::new(), Vec::new()],
            links: [false; 2],
            now: Instant::from_nanos(1),
            loss: None,
        };
        for (at, priority) in priorities.into_iter().enumerate() {
            pair.start_manager(at, priority);
        }
        pair.plug();
        pair
    }

    fn start_manager(&mut self, at: usize, priority: Option<u8>) {
        let node = self.fabric.node_mut(self.ends[at].node);
        node.set_capability(1, CAPABILITY_SM, priority.is_some());
        self.managers[at] = priority.map(|priority| manager(priority, 1000 * (at as u64 + 1)));
    }

    fn plug(&mut self) {
        self.fabric.connect(self.ends[0], self.ends[1]);
        self.run();
    }

    fn pull(&mut self) {
        self.fabric.disconnect(self.ends[0]);
        self.run();
    }

    fn port_state(&self, at: usize) -> PortState {
        self.fabric.node(self.ends[at].node).port(1).unwrap().state()
    }

    fn lid(&self, at: usize) -> u16 {
        self.fabric.node(self.ends[at].node).port(1).unwrap().lid()
    }

    fn sm_lid(&self, at: usize) -> u16 {
        self.fabric.node(self.ends[at].node).port(1).unwrap().master_sm_lid()
    }

    fn state(&self, at: usize) -> State {
        self.managers[at].as_ref().unwrap().state()
    }

    /// Carries what is under way until nothing moves.
    fn run(&mut self) {
        loop {
            let mut moved = false;
            for at in 0..2 {
                moved |= self.report_link(at) | self.deliver(at) | self.transmit(at);
            }
            if !moved {
                return;
            }
        }
    }

    fn report_link(&mut self, at: usize) -> bool {
        let is_up = self.port_state(at) != PortState::Down;
        let is_new = is_up != std::mem::replace(&mut self.links[at], is_up);
        if let Some(manager) = self.managers[at].as_mut().filter(|_| is_new) {
            manager.link_changed(self.now, is_up);
        }
        is_new
    }

    fn deliver(&mut self, at: usize) -> bool {
        let Some(frame) = self.fabric.receive(self.ends[at]) else { return false };
        let packet = Packet::parse(&frame).unwrap();
        let mad: Mad = packet.payload.as_slice().try_into().unwrap();
        let (lid, qpn) = (packet.lrh.slid, packet.ext.deth.unwrap().src_qp);
        if packet.bth.dest_qp == CLIENT_QP {
            self.replies[at].push(mad);
            return true;
        }
        let (interface, side) = match packet.bth.dest_qp {
            0 => (Interface::Smi, if from_agent(&mad) { Side::Own } else { Side::Peer }),
            _ => (Interface::Gsi, Side::Peer),
        };
        if let Some(manager) = &mut self.managers[at] {
            manager.input(self.now, Source { interface, side, lid, qpn }, &mad);
        }
        true
    }

    fn transmit(&mut self, at: usize) -> bool {
        let Some(manager) = &mut self.managers[at] else { return false };
        let mut mad = [0; 256];
        let Some(to) = manager.poll_transmit(self.now, &mut mad) else { return false };
        let (own, end) = (self.lid(at), self.ends[at]);
        if to != Destination::Agent && self.loss.as_mut().is_some_and(|rng| rng.random_bool(0.3)) {
            return true;
        }
        match to {
            Destination::Agent if mad[1] == class::SUBNET_DIRECTED => {
                self.fabric.submit(end, Smp(mad), lid::PERMISSIVE);
            }
            Destination::Agent => self.fabric.submit(end, Smp(mad), own),
            Destination::Directed => {
                let frame = Packet::management(lid::PERMISSIVE, lid::PERMISSIVE, &mad).build();
                self.fabric.send(end, frame);
            }
            Destination::Management { lid } => self.fabric.submit(end, Smp(mad), lid),
            Destination::General { lid, qpn } if lid == own => {
                assert_eq!(qpn, CLIENT_QP);
                self.replies[at].push(mad);
            }
            Destination::General { lid, qpn } => {
                self.fabric.send(end, general(lid, own, qpn, 1, &mad));
            }
        }
        true
    }

    /// Lets time pass, from deadline to deadline.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.run();
            let due = |manager: &Option<SubnetManager>| manager.as_ref()?.next_deadline();
            let next = Instant::sooner(due(&self.managers[0]), due(&self.managers[1]));
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            self.fabric.advance(self.now.as_nanos());
            for manager in self.managers.iter_mut().flatten() {
                if manager.next_deadline().is_some_and(|due| due <= self.now) {
                    manager.advance(self.now);
                }
            }
        }
        self.now = end;
        self.fabric.advance(end.as_nanos());
        self.run();
    }

    /// Asks the SA from an end; the answer.
    fn ask(&mut self, at: usize, mad: &Mad) -> Mad {
        let (own, sm) = (self.lid(at), self.sm_lid(at));
        self.replies[at].clear();
        if own == sm {
            let source =
                Source { interface: Interface::Gsi, side: Side::Own, lid: own, qpn: CLIENT_QP };
            self.managers[at].as_mut().unwrap().input(self.now, source, mad);
        } else {
            self.fabric.send(self.ends[at], general(sm, own, 1, CLIENT_QP, mad));
        }
        self.run();
        self.replies[at].pop().expect("an answer")
    }

    fn expect_up(&self) {
        assert_eq!([self.port_state(0), self.port_state(1)], [PortState::Active; 2]);
        assert_ne!(self.lid(0), self.lid(1));
        assert_eq!(self.sm_lid(0), self.sm_lid(1));
        assert!([self.lid(0), self.lid(1)].contains(&self.sm_lid(0)));
    }
}

/// What the own agent answers has made no hop; its traps name the own LID, which the manager knows.
fn from_agent(mad: &Mad) -> bool {
    Smp(*mad).is_directed() && mad[7] == 0
}

fn general(dlid: u16, slid: u16, dest_qp: u32, src_qp: u32, mad: &Mad) -> Vec<u8> {
    Packet {
        lrh: Lrh { vl: 0, sl: 0, next: Next::Bth, dlid, slid },
        grh: None,
        bth: Bth {
            service: Service::Ud,
            opcode: Opcode::UdSendOnly,
            solicited: false,
            migrated: false,
            pkey: 0xffff,
            fecn: false,
            becn: false,
            dest_qp,
            ack_req: false,
            psn: 0,
        },
        ext: Extended { deth: Some(Deth { qkey: GSI_QKEY, src_qp }), ..Extended::default() },
        payload: mad.to_vec(),
    }
    .build()
}

fn request(method: u8, attr_id: u16, mask: u64, record: &[u8]) -> Mad {
    let mut mad = [0; 256];
    let mut header = MadHeader(&mut mad);
    header.set_base_version(1);
    header.set_mgmt_class(class::SUBNET_ADMINISTRATION);
    header.set_class_version(sa::CLASS_VERSION);
    header.set_method(method);
    header.set_attr_id(attr_id);
    header.set_tid(0x1234_5678_9abc);
    SaHeader(&mut mad).set_comp_mask(mask);
    mad[sa::DATA..sa::DATA + record.len()].copy_from_slice(record);
    mad
}

fn gid(at: usize) -> u128 {
    u128::from(SUBNET_PREFIX) << 64 | u128::from(GUIDS[at])
}

fn ask_path(pair: &mut Pair, at: usize, to: u128) -> (u16, PathRecord<[u8; 64]>) {
    let mut path = PathRecord::new();
    path.set_sgid(gid(at));
    path.set_dgid(to);
    path.set_numb_path(1);
    path.set_pkey(0xffff);
    let mask = path_component::SGID
        | path_component::DGID
        | path_component::NUMB_PATH
        | path_component::PKEY;
    let answer = pair.ask(at, &request(sa::method::GET, attribute::PATH_RECORD, mask, &path.0));
    assert_eq!(MadHeader(&answer).method(), method::GET_RESP);
    assert_eq!(MadHeader(&answer).tid(), 0x1234_5678_9abc);
    (MadHeader(&answer).status(), PathRecord::read(&answer, sa::DATA))
}

fn join(pair: &mut Pair, at: usize, mgid: u128) -> (u16, McMemberRecord<[u8; 52]>) {
    let mut record = McMemberRecord::new();
    record.set_mgid(mgid);
    record.set_port_gid(gid(at));
    record.set_join_state(join_state::FULL);
    let mask = member_component::MGID | member_component::PORT_GID | member_component::JOIN_STATE;
    let answer =
        pair.ask(at, &request(sa::method::SET, attribute::MC_MEMBER_RECORD, mask, &record.0));
    (MadHeader(&answer).status(), McMemberRecord::read(&answer, sa::DATA))
}

#[test]
fn one_manager_brings_both_ports_up() {
    let mut pair = Pair::new([Some(0), None]);
    assert_eq!(pair.state(0), State::Master);
    assert!(pair.managers[0].as_ref().unwrap().is_up());
    pair.expect_up();
    assert_eq!(pair.sm_lid(0), pair.lid(0));
    // Sweeps later on change nothing, and ask clients for nothing.
    let lids = [pair.lid(0), pair.lid(1)];
    let asked = |pair: &Pair| {
        pair.ends.map(|end| pair.fabric.node(end.node).port(1).unwrap().reregistrations)
    };
    assert_eq!(asked(&pair), [1, 1]);
    pair.fabric.record();
    pair.pass(Duration::from_secs(60));
    assert!(pair.fabric.take_record().len() > 12, "no sweep");
    pair.expect_up();
    assert_eq!(([pair.lid(0), pair.lid(1)], asked(&pair)), (lids, [1, 1]));
    for end in pair.ends {
        for why in [Cause::Route, Cause::NotAnswered, Cause::NotMine, Cause::LidZero] {
            assert_eq!(pair.fabric.dropped(end, why), 0, "{why:?}");
        }
    }
    assert_eq!(pair.managers[0].as_ref().unwrap().counters().malformed, 0);
}

#[test]
fn paths_are_found_from_both_ends() {
    let mut pair = Pair::new([Some(0), None]);
    for at in 0..2 {
        for to in 0..2 {
            let (code, path) = ask_path(&mut pair, at, gid(to));
            assert_eq!(code, status::SUCCESS);
            assert_eq!((path.slid(), path.dlid()), (pair.lid(at), pair.lid(to)));
            assert_eq!((path.sgid(), path.dgid()), (gid(at), gid(to)));
            assert_eq!((path.mtu(), path.rate()), (5, sa::rate::GBPS_40));
            assert_eq!((path.pkey(), path.hop_limit(), path.sl()), (0xffff, 0, 0));
        }
        let (code, _) = ask_path(&mut pair, at, gid(0) + 0x77);
        assert_eq!(code, sa::status::REQ_INVALID_GID);
    }
}

#[test]
fn both_ends_join_the_broadcast_group() {
    let mut pair = Pair::new([Some(0), None]);
    let joined = [0, 1].map(|at| {
        let (code, record) = join(&mut pair, at, BROADCAST_MGID);
        assert_eq!(code, status::SUCCESS);
        assert_eq!((record.port_gid(), record.join_state()), (gid(at), join_state::FULL));
        assert_eq!((record.qkey(), record.mtu(), record.pkey()), (0x0b1b, 4, 0xffff));
        record.mlid()
    });
    assert_eq!(joined[0], joined[1]);
    assert!(joined[0] >= 0xc000);
}

#[test]
fn a_cable_that_was_pulled_comes_up_again() {
    let mut pair = Pair::new([Some(0), None]);
    let lids = [pair.lid(0), pair.lid(1)];
    join(&mut pair, 1, BROADCAST_MGID);
    for _ in 0..3 {
        pair.pull();
        assert_eq!(pair.state(0), State::Down);
        pair.pass(Duration::from_secs(25));
        assert_eq!(pair.state(0), State::Down);
        pair.plug();
        pair.expect_up();
        assert_eq!([pair.lid(0), pair.lid(1)], lids);
        assert_eq!(ask_path(&mut pair, 1, gid(0)).0, status::SUCCESS);
    }
}

#[test]
fn of_two_managers_the_lower_guid_is_master() {
    let mut pair = Pair::new([Some(0), Some(0)]);
    pair.pass(Duration::from_secs(30));
    assert_eq!(
        (pair.state(0), pair.state(1)),
        (State::Master, State::Standby { master: GUIDS[0] })
    );
    pair.expect_up();
    assert_eq!(pair.sm_lid(1), pair.lid(0));
    // The standby does not answer as SA.
    assert_eq!(ask_path(&mut pair, 1, gid(0)).0, status::SUCCESS);
}

#[test]
fn of_two_managers_the_higher_priority_is_master() {
    let mut pair = Pair::new([Some(0), Some(3)]);
    pair.pass(Duration::from_secs(30));
    assert_eq!(
        (pair.state(0), pair.state(1)),
        (State::Standby { master: GUIDS[1] }, State::Master)
    );
    pair.expect_up();
    assert_eq!(pair.sm_lid(0), pair.lid(1));
}

#[test]
fn a_standby_takes_over_from_a_master_that_is_lost() {
    let mut pair = Pair::new([Some(0), Some(0)]);
    let lids = [pair.lid(0), pair.lid(1)];
    pair.start_manager(0, None);
    // Four polls of ten seconds.
    pair.pass(Duration::from_secs(65));
    assert_eq!(pair.state(1), State::Master);
    pair.expect_up();
    assert_eq!([pair.lid(0), pair.lid(1)], lids, "connections survive");
    assert_eq!(pair.sm_lid(0), pair.lid(1));
    assert_eq!(ask_path(&mut pair, 0, gid(1)).0, status::SUCCESS);
}

#[test]
fn a_manager_that_starts_later_stands_by_or_is_handed_the_subnet() {
    // The running one has the higher GUID: the later one would be master of two that start at once,
    // and gets the subnet by a handover.
    let mut pair = Pair::new([None, Some(0)]);
    assert_eq!(pair.state(1), State::Master);
    pair.start_manager(0, Some(0));
    pair.managers[0].as_mut().unwrap().link_changed(pair.now, true);
    pair.run();
    assert_eq!(pair.state(0), State::Standby { master: GUIDS[1] });
    pair.pass(Duration::from_secs(30));
    assert_eq!(
        (pair.state(0), pair.state(1)),
        (State::Master, State::Standby { master: GUIDS[0] })
    );
    pair.expect_up();
    assert_eq!(pair.sm_lid(1), pair.lid(0));
    // And with the roles the other way round, it stays where it is.
    let mut pair = Pair::new([Some(0), None]);
    pair.start_manager(1, Some(0));
    pair.managers[1].as_mut().unwrap().link_changed(pair.now, true);
    pair.pass(Duration::from_secs(60));
    assert_eq!(
        (pair.state(0), pair.state(1)),
        (State::Master, State::Standby { master: GUIDS[0] })
    );
    pair.expect_up();
}

#[test]
fn a_switch_needs_a_real_subnet_manager() {
    let mut fabric = Fabric::default();
    let node = fabric.add(adapter(GUIDS[0] - 1));
    let identity = fabric.node(node).identity().clone();
    let switch = fabric.add(Node::switch(Identity { node_guid: 0x9000, ..identity }, 4));
    let ends = [End { node, port: 1 }, End { node: switch, port: 2 }];
    let mut pair = Pair {
        fabric,
        ends,
        managers: [Some(manager(15, 1)), None],
        replies: [Vec::new(), Vec::new()],
        links: [false; 2],
        now: Instant::from_nanos(1),
        loss: None,
    };
    pair.plug();
    for _ in 0..3 {
        assert_eq!(pair.state(0), State::Switch);
        assert!(!pair.managers[0].as_ref().unwrap().is_announced());
        assert_eq!((pair.lid(0), pair.port_state(0)), (0, PortState::Init));
        pair.pass(Duration::from_secs(15));
    }
}

#[test]
fn the_manager_represses_traps() {
    let mut pair = Pair::new([Some(0), None]);
    for (at, traps) in [(1, 1), (0, 2)] {
        pair.fabric.node_mut(pair.ends[at].node).set_capability(1, 1 << 16, true);
        pair.pass(Duration::from_secs(5));
        assert_eq!(pair.managers[0].as_ref().unwrap().counters().traps, traps);
    }
    pair.expect_up();
}

#[test]
fn datagrams_that_are_lost_are_sent_again() {
    for seed in 0..20 {
        let mut pair = Pair::new([Some(0), Some((seed % 3) as u8)]);
        pair.pull();
        pair.loss = Some(SmallRng::seed_from_u64(seed));
        pair.plug();
        pair.pass(Duration::from_secs(200));
        // Whatever they came to believe meanwhile: two masters find one another, and one hands over.
        pair.loss = None;
        pair.pass(Duration::from_secs(100));
        pair.expect_up();
        let masters = [0, 1].map(|at| pair.state(at) == State::Master);
        assert_eq!(masters.iter().filter(|is| **is).count(), 1, "seed {seed}");
        let master = usize::from(masters[1]);
        assert_eq!(pair.sm_lid(0), pair.lid(master), "seed {seed}");
    }
}
