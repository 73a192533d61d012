//! Two sides on InfiniBand ports joined by a cable. Side 0 runs the driver's own subnet manager
//! where a test does not say otherwise.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::net::{IpAddr, Ipv6Addr};
use std::task::Poll;
use std::time::Duration;

use dat_core::provider::{FaultKind, LinkType, NextHop, Path, Provider};
use dat_core::{CloseFlag, DtoStatus, Ep, Event, GRH_LEN};
use dat_tests::attack::ib::smp_by_lid;
use dat_tests::pair::Stage;
use dat_tests::session::{LIMIT, NONE, Session, Setup};
use hca_mlx5::PortState;
use hca_mlx5::net::ib::sm::State;
use mlx5_model::ifc::subnet::{port_info, smp as layout};
use mlx5_model::subnet::Smp;
use mlx5_model::subnet::smp::{attribute, method};
use mlx5_model::wire::ib::Packet;

const QKEY: u32 = 0x0123_4567;

fn infiniband() -> Setup {
    Setup { stage: Stage::infiniband(), ..Setup::default() }
}

/// The path from a side to the other one's address.
fn path(session: &mut Session<'_>, side: usize) -> Path {
    let remote = session.address(1 - side);
    let found = session.pair.until(LIMIT, |pair| {
        let now = pair.now();
        match pair.ias[side].provider_mut().resolve(remote, now) {
            Poll::Ready(found) => Some(found),
            Poll::Pending => None,
        }
    });
    found.unwrap().unwrap()
}

#[test]
fn the_built_in_manager_brings_both_ports_up() {
    infiniband().run(|session| {
        let ports = [0, 1].map(|side| {
            let provider = session.pair.ias[side].provider_mut();
            assert_eq!(provider.limits().link, LinkType::InfiniBand);
            provider.ib_port().unwrap().unwrap()
        });
        let [a, b] = &ports;
        assert_eq!((a.state, b.state), (PortState::Active, PortState::Active));
        assert!(a.lid != 0 && b.lid != 0 && a.lid != b.lid, "{ports:?}");
        assert_eq!((a.sm_lid, b.sm_lid), (a.lid, a.lid));
        assert_eq!(session.pair.ias[0].provider().subnet_manager(), Some(State::Master));
        assert_eq!(session.pair.ias[1].provider().subnet_manager(), None);
        let to_b = path(session, 0);
        let NextHop::Lid(hop) = to_b.next_hop else { panic!("{to_b:?}") };
        assert_eq!((hop.lid, hop.pkey_index), (b.lid, 0));
        assert_eq!(to_b.remote, Ipv6Addr::from_bits(b.gid));
    });
}

#[test]
fn a_connection_by_ip_carries_all_operations() {
    infiniband().connected(|session| {
        for n in 0..3 {
            session.traffic(n);
        }
    });
}

#[test]
fn without_a_virtual_port_all_is_the_same() {
    let mut setup = infiniband();
    setup.stage.cards.iter_mut().for_each(|card| card.facts = "ib-virt=no".parse().unwrap());
    setup.connected(|session| session.traffic(0));
}

/// Both ports have just become active: the groups of IP are joined, the address is looked up and
/// the path is asked for, without a timeout in between.
#[test]
fn the_first_connection_takes_a_tenth_of_a_second() {
    for ipv6 in [false, true] {
        let mut setup = infiniband();
        setup.stage.ipv6 = ipv6;
        setup.run(|session| {
            let begun = session.now();
            session.connect();
            let took = session.now().since(begun);
            assert!(took < Duration::from_millis(100), "IPv6 {ipv6}: {took:?}");
        });
    }
}

#[test]
fn a_connection_by_ipv6_is_found_by_neighbor_discovery() {
    let mut setup = infiniband();
    setup.stage.ipv6 = true;
    setup.connected(|session| session.traffic(0));
}

/// Endpoints for datagrams: by address and by a service point.
#[test]
fn datagrams_go_by_lid_and_have_no_global_header() {
    infiniband().run(|session| {
        let eps: [Ep; 2] = [0, 1].map(|side| {
            let own = &session.sides[side];
            session.pair.ias[side]
                .ep_create_ud(own.pz, own.recv, own.request, Some(own.conn), None, QKEY)
                .unwrap()
        });
        let [a, b] = eps;
        session.ask(a, b"who", LIMIT);
        let cr_evd = session.sides[1].cr;
        let cr = match session.pair.wait(1, cr_evd, LIMIT) {
            Some(Event::UdConnectionRequest { cr, .. }) => cr,
            other => panic!("{other:?}"),
        };
        let request = session.pair.ias[1].cr_query(cr).unwrap();
        assert_eq!(request.remote, session.address(0));
        assert_eq!(request.private_data, b"who");
        let now = session.now();
        session.pair.ias[1].cr_accept(now, cr, Some(b), b"here").unwrap();
        let conn = session.sides[0].conn;
        let found = session.pair.wait(0, conn, LIMIT);
        assert!(matches!(found, Some(Event::UdEstablished(ep, _)) if ep == a), "{found:?}");
        let address = session.pair.ias[0].ep_ud_address(a).unwrap();
        session.fill(0, 0x100, 300, 9);
        let there = session.seg(1, 0x4000, 300 + GRH_LEN);
        session.pair.ias[1].ep_post_recv(b, &[there], 7, NONE).unwrap();
        session.fence(1);
        let here = session.seg(0, 0x100, 300);
        session.pair.ias[0].ep_post_send_ud(a, &[here], &address, None, 3, NONE).unwrap();
        let recv = session.sides[1].recv;
        match session.pair.wait(1, recv, LIMIT) {
            Some(Event::IbDto(event)) => {
                assert_eq!(event.status(), DtoStatus::Success);
                assert_eq!(event.len as usize, 300 + GRH_LEN);
            }
            other => panic!("{other:?}"),
        }
        session.check(1, 0x4000 + GRH_LEN, 300, 9);
        session.pair.idle(0, a, LIMIT);
    });
}

/// Members of a group get what is sent to it, with a global header, until they leave; a group of
/// another Q_Key is refused, and an Endpoint that is freed leaves nothing behind.
#[test]
fn datagrams_to_a_group_come_to_its_members() {
    infiniband().run(|session| {
        let group: IpAddr = "239.7.7.7".parse().unwrap();
        let make = |session: &mut Session<'_>, side: usize, qkey: u32| {
            let own = &session.sides[side];
            session.pair.ias[side]
                .ep_create_ud(own.pz, own.recv, own.request, Some(own.conn), None, qkey)
                .unwrap()
        };
        let join = |session: &mut Session<'_>, side: usize, ep: Ep| {
            let joined = session.pair.until(LIMIT, |pair| {
                let now = pair.now();
                match pair.ias[side].ep_ud_join(now, ep, group) {
                    Poll::Ready(joined) => Some(joined),
                    Poll::Pending => None,
                }
            });
            joined.unwrap()
        };
        let [a, b] = [0, 1].map(|side| make(session, side, QKEY));
        let to = join(session, 0, a).unwrap();
        assert_eq!(join(session, 1, b).unwrap().path.remote, to.path.remote);
        assert_eq!((to.qpn, to.qkey), (0xff_ffff, QKEY));
        let NextHop::Lid(hop) = to.path.next_hop else { panic!("{to:?}") };
        assert!((0xc000..0xffff).contains(&hop.lid), "{hop:?}");
        let send = |session: &mut Session<'_>, n: u32| {
            let there = session.seg(1, 0x4000, 300 + GRH_LEN);
            session.pair.ias[1].ep_post_recv(b, &[there], n.into(), NONE).unwrap();
            session.fence(1);
            session.fill(0, 0x100, 300, n);
            let here = session.seg(0, 0x100, 300);
            session.pair.ias[0].ep_post_send_ud(a, &[here], &to, None, 3, NONE).unwrap();
            session.pair.idle(0, a, LIMIT);
        };
        send(session, 9);
        let recv = session.sides[1].recv;
        match session.pair.wait(1, recv, LIMIT) {
            Some(Event::IbDto(event)) => assert_eq!(event.len as usize, 300 + GRH_LEN),
            other => panic!("{other:?}"),
        }
        session.check(1, 0x4000 + GRH_LEN, 300, 9);
        let header = session.look(1, 0x4000, GRH_LEN);
        let gid = match to.path.remote {
            IpAddr::V6(gid) => gid.octets(),
            IpAddr::V4(_) => panic!("{to:?}"),
        };
        assert_eq!(header[24..], gid);
        let other = make(session, 1, QKEY + 1);
        assert!(join(session, 1, other).is_err(), "another Q_Key");
        session.pair.ias[1].ep_ud_leave(b, group).unwrap();
        session.pair.ias[1].ep_ud_leave(b, group).unwrap();
        send(session, 10);
        let nothing = session.pair.wait(1, recv, Duration::from_millis(20));
        assert!(nothing.is_none(), "{nothing:?}");
        // And again a member: the receive that was posted meanwhile is used.
        join(session, 1, b).unwrap();
        send(session, 11);
        assert!(matches!(session.pair.wait(1, recv, LIMIT), Some(Event::IbDto(_))));
        session.check(1, 0x4000 + GRH_LEN, 300, 11);
        let now = session.now();
        session.pair.ias[0].ep_free(now, a).unwrap();
    });
}

/// The address is a GID itself: neither side looks anything up by IP.
#[test]
fn a_peer_is_reached_by_its_gid() {
    infiniband().run(|session| {
        let gid = session.pair.ias[1].provider_mut().ib_port().unwrap().unwrap().gid;
        let remote = Ipv6Addr::from_bits(gid).into();
        let found = session.pair.until(LIMIT, |pair| {
            let now = pair.now();
            match pair.ias[0].provider_mut().resolve(remote, now) {
                Poll::Ready(found) => Some(found),
                Poll::Pending => None,
            }
        });
        assert_eq!(found.unwrap().unwrap().remote, remote);
    });
}

#[test]
fn without_a_manager_an_address_is_not_found_and_the_cause_is_named() {
    let stage = Stage { managers: [false; 2], ..Stage::infiniband() };
    stage.run_at_once(|pair| {
        let remote = pair.stage.address(1);
        let found = pair.until(LIMIT, |pair| {
            let now = pair.now();
            match pair.ias[0].provider_mut().resolve(remote, now) {
                Poll::Ready(found) => Some(found),
                Poll::Pending => None,
            }
        });
        let fault = found.expect("an end to the search").unwrap_err();
        assert_eq!(fault.kind, FaultKind::Unreachable);
        assert!(format!("{fault}").contains("subnet manager"), "{fault}");
        let port = pair.ias[0].provider_mut().ib_port().unwrap().unwrap();
        assert_eq!((port.state, port.lid), (PortState::Init, 0));
        assert!(!pair.ias[0].provider_mut().link_up().unwrap());
    });
}

/// A connection that stands outlives a link that goes down and comes back, and addresses are found
/// again.
#[test]
fn a_link_that_comes_back_is_configured_again() {
    infiniband().connected(|session| {
        session.traffic(0);
        for side in [0, 1] {
            session.pair.slots[side].hca().set_link(false);
        }
        session.pass(Duration::from_millis(20));
        assert!(!session.pair.ias[0].provider_mut().link_up().unwrap());
        for side in [0, 1] {
            session.pair.slots[side].hca().set_link(true);
        }
        session.pair.await_links();
        session.traffic(1);
        let _ = path(session, 0);
        let _ = path(session, 1);
    });
}

/// Both sides have a manager: one is master, the other waits.
#[test]
fn of_two_managers_one_yields() {
    let mut setup = infiniband();
    setup.stage.managers = [true; 2];
    setup.connected(|session| {
        let states = [0, 1].map(|side| session.pair.ias[side].provider().subnet_manager().unwrap());
        assert!(states.contains(&State::Master), "{states:?}");
        assert!(states.iter().any(|state| matches!(state, State::Standby { .. })), "{states:?}");
        session.traffic(0);
    });
}

/// The path from a side to an address, if it is known.
fn now_known(session: &mut Session<'_>, side: usize, remote: IpAddr) -> Option<Path> {
    let now = session.now();
    match session.pair.ias[side].provider_mut().resolve(remote, now) {
        Poll::Ready(found) => Some(found.unwrap()),
        Poll::Pending => None,
    }
}

/// Somebody at the manager's LID answers with another transaction ID, and leads elsewhere.
#[test]
fn a_forged_path_record_is_dropped() {
    infiniband().run(|session| {
        session.lines[0].record();
        let _ = path(session, 1);
        let answers = session.lines[0].recorded();
        let is_path = |packet: &Packet| packet.payload.get(..4) == Some(&[1, 3, 2, 0x81]);
        let mut packets = answers.iter().filter_map(|frame| Packet::parse(frame).ok());
        let mut forged = packets.find(is_path).unwrap();
        // Asked for anew, and the true answer does not come.
        let port = session.pair.ias[1].provider_mut().ib_port().unwrap().unwrap();
        let own = IpAddr::V6(Ipv6Addr::from_bits(port.gid));
        session.lines[0].cut(true);
        assert_eq!(now_known(session, 1, own), None);
        let path = 56;
        forged.payload[path + 8..path + 24].copy_from_slice(&port.gid.to_be_bytes());
        forged.payload[path + 40..path + 42].copy_from_slice(&0x77_u16.to_be_bytes());
        session.lines[1].inject(forged.build());
        session.pass(Duration::from_millis(50));
        assert_eq!(now_known(session, 1, own), None);
        session.lines[0].cut(false);
        let found = session.pair.until(LIMIT, |pair| {
            let now = pair.now();
            match pair.ias[1].provider_mut().resolve(own, now) {
                Poll::Ready(found) => Some(found.unwrap()),
                Poll::Pending => None,
            }
        });
        let NextHop::Lid(hop) = found.unwrap().next_hop else { panic!("a LID") };
        assert_eq!(hop.lid, port.lid);
    });
}

/// The master goes away: the other manager takes over, at another LID, and is asked from then on.
#[test]
fn another_manager_is_asked_when_the_master_is_lost() {
    let mut setup = infiniband();
    setup.stage.managers = [true; 2];
    setup.run(|session| {
        let peer = session.pair.ias[0].provider_mut().ib_port().unwrap().unwrap();
        let gid = IpAddr::V6(Ipv6Addr::from_bits(peer.gid));
        let before = session.pair.ias[1].provider_mut().ib_port().unwrap().unwrap();
        assert_eq!(before.sm_lid, peer.lid, "side 0 has the lower GUID");
        let now = session.now();
        session.pair.ias[0].close(now, CloseFlag::Abrupt).unwrap();
        session.lost[0] = true;
        let master = session.pair.until(3 * LIMIT, |pair| {
            let is_master = pair.ias[1].provider().subnet_manager() == Some(State::Master);
            is_master.then_some(())
        });
        assert!(master.is_some(), "nobody took over");
        session.pass(Duration::from_secs(1));
        let port = session.pair.ias[1].provider_mut().ib_port().unwrap().unwrap();
        assert_eq!((port.state, port.sm_lid), (PortState::Active, port.lid));
        let found = session.pair.until(LIMIT, |pair| {
            let now = pair.now();
            match pair.ias[1].provider_mut().resolve(gid, now) {
                Poll::Ready(found) => Some(found.unwrap()),
                Poll::Pending => None,
            }
        });
        let NextHop::Lid(hop) = found.unwrap().next_hop else { panic!("a LID") };
        assert_eq!(hop.lid, peer.lid);
    });
}

/// Sends a side's agent a request by its LID, and returns the answer.
fn agent(session: &mut Session<'_>, side: usize, smp: &Smp) -> Smp {
    let lid = session.pair.ias[side].provider_mut().ib_port().unwrap().unwrap().lid;
    session.lines[side].record();
    session.lines[side].inject(smp_by_lid(0x66, lid, smp).build());
    session.pass(Duration::from_millis(5));
    let sent = session.lines[side].recorded();
    let mads = sent.iter().filter_map(|frame| Packet::parse(frame).ok()?.subnet_mad().copied());
    let tid = layout::tid.get64(&smp.0);
    let mut answers = mads.map(Smp).filter(|mad| mad.method() == method::GET_RESP);
    answers.find(|answer| layout::tid.get64(&answer.0) == tid).unwrap()
}

/// Gives a port another LID, as a manager does that has lost its records.
fn move_to(session: &mut Session<'_>, side: usize, lid: u16, manager: u16) {
    set_port(session, side, |data| {
        port_info::lid.set(data, lid.into());
        port_info::master_sm_lid.set(data, manager.into());
    });
}

/// Sets a port as it is, but for what `edit` changes.
fn set_port(session: &mut Session<'_>, side: usize, edit: impl FnOnce(&mut [u8])) {
    let mut get = Smp::request(method::GET, attribute::PORT_INFO, 0, 0x6600);
    get.set(layout::attr_mod, 1);
    let now = agent(session, side, &get);
    let mut set = Smp::request(method::SET, attribute::PORT_INFO, 0, 0x6601);
    set.set(layout::attr_mod, 1);
    set.data_mut().copy_from_slice(now.data());
    let data = set.data_mut();
    for unchanged in [
        port_info::port_state,
        port_info::port_physical_state,
        port_info::link_width_enabled,
        port_info::link_speed_enabled,
        port_info::link_down_default_state,
    ] {
        unchanged.set(data, 0);
    }
    edit(data);
    let _ = agent(session, side, &set);
}

/// Both ports get other LIDs in mid-connection. Queue pairs keep the old ones, so a request runs out
/// of retries and the connection ends on both sides; the same adapters connect again soon.
#[test]
fn with_other_lids_a_connection_ends_and_the_next_one_works() {
    infiniband().connected(|session| {
        session.traffic(0);
        let lids = [0x41, 0x42];
        for side in [1, 0] {
            move_to(session, side, lids[side], lids[0]);
        }
        session.pass(Duration::from_secs(1));
        for (side, lid) in lids.into_iter().enumerate() {
            let port = session.pair.ias[side].provider_mut().ib_port().unwrap().unwrap();
            assert_eq!((port.state, port.lid, port.sm_lid), (PortState::Active, lid, lids[0]));
        }
        session.recv(1, 0x8000, 3000, 5);
        session.fence(1);
        session.send(0, 0x9000, 2500, 6);
        assert_eq!(session.requests(0, 1), [(6, DtoStatus::ErrTransport)]);
        let ends = session.ended();
        assert_eq!(ends[0], Event::Broken(session.sides[0].ep));
        assert_eq!(session.receives(1, 1), [(5, DtoStatus::ErrFlushed)]);
        for side in [0, 1] {
            let ep = session.sides[side].ep;
            session.pair.ias[side].ep_reset(ep).unwrap();
        }
        let start = session.now();
        session.connect();
        let took = session.now().since(start);
        assert!(took < Duration::from_secs(10), "{took:?}");
        session.traffic(1);
    });
}

/// The manager asks for new registrations, and its answers are lost for a while. An address that is
/// looked up meanwhile is asked for as soon as the group for that is joined.
#[test]
fn a_question_that_waited_for_the_group_is_asked_when_it_is_joined() {
    infiniband().run(|session| {
        session.lines[0].cut(true);
        set_port(session, 1, |data| port_info::client_reregister.set(data, 1));
        let remote = session.address(0);
        assert_eq!(now_known(session, 1, remote), None);
        session.pass(Duration::from_secs(3));
        assert_eq!(now_known(session, 1, remote), None);
        session.lines[0].cut(false);
        let found = session.pair.until(Duration::from_secs(2), |pair| {
            let now = pair.now();
            match pair.ias[1].provider_mut().resolve(remote, now) {
                Poll::Ready(found) => Some(found.unwrap()),
                Poll::Pending => None,
            }
        });
        assert!(found.is_some());
    });
}
