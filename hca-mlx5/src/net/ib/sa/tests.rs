//! The client of subnet administration by bytes: what it asks, which answers count.

use proptest::prelude::*;

use super::*;
use crate::device::PortState;

const OWN: u128 = 0xfe80_0000_0000_0000_0200_00ff_fe00_0001;
const PEER: u128 = 0xfe80_0000_0000_0000_0200_00ff_fe00_0002;
const SM: Route = Route { slid: 9, grh: false, source_qpn: 1 };
const NOW: Instant = Instant::ZERO;

fn client() -> Sa<8> {
    let mut sa = Sa::new(Random::new([7; 32]));
    let port = IbPort {
        state: PortState::Active,
        lid: 3,
        sm_lid: 9,
        sm_sl: 2,
        gid: OWN,
        ..IbPort::default()
    };
    sa.restart(&port, 0xffff, NOW);
    sa
}

/// Asks for the path to the peer.
fn asked() -> (Sa<8>, Outgoing) {
    let mut sa = client();
    assert!(sa.path(Target::Gid(PEER), false, NOW).is_pending());
    let outgoing = sa.next(NOW).unwrap();
    assert!(sa.next(NOW).is_none());
    (sa, outgoing)
}

/// A good answer.
fn answer(question: &Mad) -> Mad {
    let mut mad = *question;
    MadHeader(&mut mad).set_method(method::GET_RESP);
    let mut path = PathRecord(At::<_, DATA>(&mut mad));
    path.set_dlid(5);
    path.set_slid(3);
    path.set_sl(4);
    path.set_mtu(5);
    path.set_rate(7);
    path.set_packet_lifetime(16);
    mad
}

#[test]
fn a_path_is_asked_for_by_its_ends_and_used_as_it_is_answered() {
    let (mut sa, Outgoing { server, mad }) = asked();
    assert_eq!((server.lid, server.sl, server.qpn, server.qkey), (9, 2, 1, 0x8001_0000));
    assert_eq!(mad[..4], [1, 3, 2, 1], "SubnAdmGet");
    assert_eq!(mad[16..18], [0, 0x35], "PathRecord");
    let mask = u64::from_be_bytes(mad[48..56].try_into().unwrap());
    assert_eq!(mask, 1 << 2 | 1 << 3 | 1 << 11 | 1 << 12 | 1 << 13);
    assert_eq!(mad[64..80], PEER.to_be_bytes());
    assert_eq!(mad[80..96], OWN.to_be_bytes());
    sa.receive(&SM, &answer(&mad), NOW);
    let Poll::Ready(Ok(record)) = sa.path(Target::Gid(PEER), false, NOW) else {
        panic!("it is known");
    };
    assert_eq!((record.gid, record.lid, record.sl, record.rate), (PEER, 5, 4, 7));
    assert_eq!((record.mtu, record.lifetime, record.hop_limit), (Mtu::B4096, 16, 0));
    assert_eq!(sa.by_lid(5, NOW), Some(record));
    assert_eq!(sa.strange, 0);
}

#[test]
fn an_answer_from_elsewhere_or_to_another_question_does_not_count() {
    type Edit = fn(&mut Route, &mut Mad);
    let edits: [(&str, Edit); 9] = [
        ("another LID", |route, _| route.slid = 5),
        ("another queue pair", |route, _| route.source_qpn = 0x48),
        ("another transaction", |_, mad| mad[15] ^= 1),
        ("a request", |_, mad| mad[3] = 1),
        ("another class", |_, mad| mad[1] = 4),
        ("another version", |_, mad| mad[2] = 1),
        ("another attribute", |_, mad| mad[17] = 0x38),
        ("another destination", |_, mad| mad[79] ^= 1),
        ("another source", |_, mad| mad[95] ^= 1),
    ];
    for (what, edit) in edits {
        let (mut sa, outgoing) = asked();
        let (mut route, mut mad) = (SM, answer(&outgoing.mad));
        edit(&mut route, &mut mad);
        sa.receive(&route, &mad, NOW);
        assert!(sa.path(Target::Gid(PEER), false, NOW).is_pending(), "{what}");
        assert_eq!(sa.strange, 1, "{what}");
        sa.receive(&SM, &answer(&outgoing.mad), NOW);
        assert!(sa.path(Target::Gid(PEER), false, NOW).is_ready(), "{what}");
    }
}

#[test]
fn a_status_or_a_path_that_cannot_be_is_a_failure_and_busy_is_patience() {
    for (at, byte, fails) in
        [(4, 3, true), (DATA + 0x28, 0xc0, true), (DATA + 0x36, 9, true), (5, 1, false)]
    {
        let (mut sa, outgoing) = asked();
        let mut mad = answer(&outgoing.mad);
        mad[at] = byte;
        sa.receive(&SM, &mad, NOW);
        let found = sa.path(Target::Gid(PEER), false, NOW);
        assert_eq!(found.is_ready(), fails, "{at}");
        assert!(!matches!(found, Poll::Ready(Ok(_))), "{at}");
    }
}

#[test]
fn a_redirection_is_followed_once() {
    let (mut sa, outgoing) = asked();
    let mut mad = answer(&outgoing.mad);
    let mut head = MadHeader(&mut mad);
    head.set_status(status::REDIRECT);
    head.set_attr_id(attribute::CLASS_PORT_INFO);
    let mut info = ClassPortInfo(At::<_, DATA>(&mut mad));
    info.set_redirect_lid(12);
    info.set_redirect_qp(0x40);
    info.set_redirect_qkey(0x8001_0000);
    info.set_redirect_sl(1);
    sa.receive(&SM, &mad, NOW);
    let again = sa.next(NOW).unwrap();
    assert_eq!((again.server.lid, again.server.qpn, again.server.sl), (12, 0x40, 1));
    assert_ne!(again.mad[8..16], outgoing.mad[8..16]);
    // The one before is not asked any more, and the new one may not send elsewhere.
    sa.receive(&SM, &answer(&outgoing.mad), NOW);
    let there = Route { slid: 12, source_qpn: 0x40, ..SM };
    MadHeader(&mut mad).set_tid(MadHeader(&again.mad).tid());
    sa.receive(&there, &mad, NOW);
    assert_eq!(sa.strange, 2);
    assert!(sa.next(NOW).is_none());
    sa.receive(&there, &answer(&again.mad), NOW);
    assert!(sa.path(Target::Gid(PEER), false, NOW).is_ready());
}

#[test]
fn another_manager_is_asked_for_all_again() {
    let (mut sa, outgoing) = asked();
    sa.receive(&SM, &answer(&outgoing.mad), NOW);
    let port = IbPort { sm_lid: 11, gid: OWN, ..IbPort::default() };
    sa.restart(&port, 0xffff, NOW);
    assert_eq!(sa.by_gid(PEER), None);
    assert!(sa.path(Target::Gid(PEER), false, NOW).is_pending());
    assert_eq!(sa.next(NOW).unwrap().server.lid, 11);
}

#[test]
fn a_group_is_joined_with_its_parameters_only_if_it_may_be_made() {
    let mut sa = client();
    let group = 0xff12_401b_ffff_0000_0000_0000_ffff_ffff;
    assert!(sa.member(group, Role::Full, NOW).is_pending());
    let question = sa.next(NOW).unwrap().mad;
    assert_eq!(question[3], 2, "SubnAdmSet");
    let mask = |mad: &Mad| u64::from_be_bytes(mad[48..56].try_into().unwrap());
    assert_eq!(mask(&question), 1 | 2 | 1 << 16);
    let mut mad = question;
    MadHeader(&mut mad).set_method(method::GET_RESP);
    let mut record = McMemberRecord(At::<_, DATA>(&mut mad));
    record.set_mlid(0xc001);
    record.set_qkey(0xb1b);
    record.set_mtu(4);
    record.set_rate(3);
    record.set_pkey(0xffff);
    sa.receive(&SM, &mad, NOW);
    let Poll::Ready(Ok(member)) = sa.member(group, Role::Full, NOW) else {
        panic!("it is a member");
    };
    assert_eq!((member.lid, member.qkey), (0xc001, 0xb1b));
    assert!(sa.member(group + 1, Role::Founder(member, member.qkey), NOW).is_pending());
    let founding = sa.next(NOW).unwrap().mad;
    assert_eq!(mask(&founding), 0x1_73f7);
    assert_eq!(founding[DATA + 0x30], 1, "a full member");
    assert_eq!(sa.leave(group).unwrap().mad[3], 0x15, "SubnAdmDelete");
}

#[test]
fn without_a_manager_nothing_is_sent_and_questions_fail() {
    let mut sa = Sa::<8>::new(Random::new([7; 32]));
    let mut now = NOW;
    while sa.path(Target::Gid(PEER), false, now).is_pending() {
        assert!(sa.next(now).is_none());
        now = sa.next_deadline().unwrap_or(now);
    }
    assert!(now < NOW + Duration::from_secs(10));
}

proptest! {
    #[test]
    fn no_datagram_does_harm(bytes in prop::collection::vec(any::<u8>(), MAD_LEN), known: bool) {
        let (mut sa, outgoing) = asked();
        let mut mad: Mad = bytes.try_into().unwrap();
        if known {
            mad[..24].copy_from_slice(&answer(&outgoing.mad)[..24]);
        }
        sa.receive(&SM, &mad, NOW);
        if let Poll::Ready(Ok(record)) = sa.path(Target::Gid(PEER), false, NOW) {
            prop_assert!(record.gid == PEER && (1..0xc000).contains(&record.lid));
        }
    }
}
