//! The connection manager on InfiniBand: peers are GIDs, the REQ names the path.

use core::net::{IpAddr, Ipv6Addr};

use dat_core::Instant;
use dat_core::cm::wire::{Header, Message};
use dat_core::cm::{Cm, CmEvent, Config, Slot};
use dat_core::provider::{Class, LidHop, LinkType, Mtu, NextHop, Path, SubnetPath};

use crate::pair::{A, GUIDS, Kind, Pair, QPN_A, kind, random, v4};

/// GIDs of both ports.
const GIDS: [u128; 2] =
    [0xfe80_0000_0000_0000_0200_00ff_fe00_0001, 0xfe80_0000_0000_0000_0200_00ff_fe00_0002];
const NOW: Instant = Instant::from_nanos(1_000);
/// A path that stays in the subnet.
const SL: u8 = 9;

fn gid(n: usize) -> IpAddr {
    Ipv6Addr::from_bits(GIDS[n]).into()
}

fn cm(n: usize) -> Cm<'static> {
    let slots = Box::leak(vec![Slot::new(); 4].into_boxed_slice());
    let config = Config { link: LinkType::InfiniBand, ..Config::new(GUIDS[n]) };
    Cm::new(slots, config, random(n as u64))
}

fn path() -> (Path, SubnetPath) {
    let path = Path {
        remote: gid(1),
        next_hop: NextHop::Lid(LidHop { lid: 5, path_bits: 1, rate: 0, pkey_index: 2 }),
        source_index: 0,
        hop_limit: 0,
        class: Class { traffic_class: 3, priority: SL },
        flow_label: 0,
    };
    let subnet = SubnetPath {
        local_gid: GIDS[0],
        local_lid: 4,
        p_key: 0x8001,
        rate: 7,
        mtu: Mtu::B4096,
        lifetime: 14,
    };
    (path, subnet)
}

/// The REQ of A to the address 10.9.0.2 of B, on that path.
fn request(a: &mut Cm<'_>) -> [u8; 256] {
    let params = Pair::with(1, 1, [v4(1), v4(2)]).params(QPN_A);
    let conn = a.prepare(NOW, &params).unwrap();
    let (path, subnet) = path();
    a.send_request_in_subnet(NOW, conn, &path, &subnet, 15);
    let sent = a.poll_transmit(NOW).unwrap();
    assert_eq!(sent.to, gid(1), "to its GID");
    assert_eq!(a.class(conn), Some(path.class));
    assert_eq!(a.peer_of(conn), Some((gid(1), Some(5))));
    sent.mad
}

#[test]
fn a_request_names_the_path_by_lids() {
    let mad = request(&mut cm(A));
    let Ok((_, Message::Req(req))) = Message::parse(&mad) else { panic!("a REQ") };
    assert_eq!((req.p_key, req.mtu, req.sl, req.ack_timeout), (0x8001, Mtu::B4096, SL, 15));
    assert_eq!((req.traffic_class, req.hop_limit), (3, 0));
    assert_eq!((req.local, req.remote), (gid(0), gid(1)));
    let body = &mad[24..];
    assert_eq!(body[52..56], [0, 4, 0, 5], "LIDs");
    assert_eq!(body[91] & 0x3f, 7, "packet rate");
    assert_eq!(body[94] & 0x0f, 0x08, "it stays in the subnet");
    assert_eq!(body[96..100], [0; 4], "no alternate path");
    // The addresses for the consumer are behind that.
    assert_eq!(body[140 + 16..140 + 20], [10, 9, 0, 1]);
    assert_eq!(body[140 + 32..140 + 36], [10, 9, 0, 2]);
}

#[test]
fn a_request_is_known_by_its_addresses_and_answered_on_its_path() {
    for alternate in [false, true] {
        let (mut a, mut b) = (cm(0), cm(1));
        let mut mad = request(&mut a);
        if alternate {
            mad[24 + 96..24 + 98].copy_from_slice(&[0, 6]);
        }
        b.input(NOW, gid(0), &mad);
        let Some(CmEvent::Request(request)) = b.poll_event() else { panic!("a request") };
        assert_eq!((request.remote, request.local), (v4(1), v4(2)));
        assert_eq!((request.terms.class.priority, request.terms.mtu), (SL, Mtu::B4096));
        assert_eq!(b.private_data(request.conn)[..5], *b"hello");
        assert_eq!(b.peer_of(request.conn), Some((gid(0), Some(4))));
        b.accept(NOW, request.conn, &Pair::accept_params()).unwrap();
        let rep = b.poll_transmit(NOW).unwrap();
        assert_eq!((rep.to, kind(&rep.mad)), (gid(0), Kind::Rep));
        let failover = rep.mad[24 + 26] >> 1 & 3;
        assert_eq!(failover, u8::from(alternate), "an alternate path is not supported");
        a.input(NOW, gid(1), &rep.mad);
        let Some(CmEvent::Reply(reply)) = a.poll_event() else { panic!("a reply") };
        // The lifetime of the path, and the peer's delay.
        assert_eq!(reply.terms.ack_timeout, dat_core::cm::ack_timeout(15, 14));
    }
}

#[test]
fn a_request_from_another_port_than_it_names_is_refused() {
    let (mut a, mut b) = (cm(0), cm(1));
    let mad = request(&mut a);
    b.input(NOW, "fe80::3".parse().unwrap(), &mad);
    assert!(b.poll_event().is_none());
    let answer = b.poll_transmit(NOW).unwrap();
    assert_eq!(kind(&answer.mad), Kind::Rej);
    assert_eq!(Header::new_checked(&answer.mad).unwrap().attribute(), 0x12);
}
