//! Frames byte by byte, with VLAN tags and without.

use super::*;

#[test]
fn golden_arp_reply() {
    let (mut a, _) = v4();
    let question = hex("ffffffffffff 02000000000b 0806
         0001 0800 06 04 0001  02000000000b c0a80702  000000000000 c0a80701");
    a.receive(&question, ms(0));
    #[rustfmt::skip]
    let golden = hex(
        "02000000000b 02000000000a 0806
         0001 0800 06 04 0002  02000000000a c0a80701  02000000000b c0a80702
         0000 00000000 00000000 00000000 00000000");
    assert_eq!(a.transmit(ms(0)).unwrap().as_slice(), golden);
}

#[test]
fn golden_solicitation_and_advertisement() {
    let (mut a, mut b) = v6();
    let _ = a.resolve(ip("2001:db8::2"), ms(0));
    let question = a.transmit(ms(0)).unwrap();
    let mut golden = hex("3333ff000002 02000000000a 86dd
         60000000 0020 3a ff
         20010db8000000000000000000000001 ff0200000000000000000001ff000002
         87 00 0000 00000000 20010db8000000000000000000000002
         01 01 02000000000a");
    seal(&mut golden);
    assert_eq!(question.as_slice(), golden);
    b.receive(&question, ms(0));
    let answer = b.transmit(ms(0)).unwrap();
    let mut golden = hex("02000000000a 02000000000b 86dd
         60000000 0020 3a ff
         20010db8000000000000000000000002 20010db8000000000000000000000001
         88 00 0000 60000000 20010db8000000000000000000000002
         02 01 02000000000b");
    seal(&mut golden);
    assert_eq!(answer.as_slice(), golden);
}

#[test]
fn golden_vlan_tag() {
    let config = Net { vlan: Some(5), ..net("192.168.7.1", 24) };
    let mut a = announced(MAC_A, &config);
    let _ = a.resolve(ip("192.168.7.2"), ms(0));
    let question = a.transmit(ms(0)).unwrap();
    let start = hex("ffffffffffff 02000000000a 8100 0005 0806 0001 0800 0604 0001");
    assert_eq!(question[..start.len()], start);
    assert_eq!(question.len(), 64);
}

#[test]
fn no_frame_is_longer_than_the_bound_and_the_bound_is_reached() {
    let config = Net { vlan: Some(4094), ..net("2001:db8::1", 64) };
    let mut a = Station::new(MAC_A, &config, ms(0)).unwrap();
    assert_eq!(a.transmit(ms(0)).unwrap().len(), FRAME);
}

#[test]
fn only_the_own_vlan_is_received() {
    let on = |vlan| Net { vlan, ..net("192.168.7.1", 24) };
    let peer = |vlan| Net { vlan, ..net("192.168.7.2", 24) };
    for (ours, theirs, received) in [
        (Some(5), Some(5), true),
        (Some(5), Some(6), false),
        (Some(5), None, false),
        (None, Some(5), false),
        (None, None, true),
    ] {
        let (mut a, mut b) = pair(&on(ours), &peer(theirs));
        let _ = a.resolve(ip("192.168.7.2"), ms(0));
        exchange(&mut a, &mut b, ms(0), &mut never);
        assert_eq!(a.resolve(ip("192.168.7.2"), ms(0)).is_ready(), received, "{ours:?} {theirs:?}");
        assert_eq!(b.counters().ignored, u32::from(!received));
    }
}

#[test]
fn a_priority_tag_is_no_vlan_and_priority_bits_do_not_hide_one() {
    let tagged = |tci: [u8; 2]| {
        let mut frame = hex("ffffffffffff 02000000000b 8100 0000 0806
             0001 0800 06 04 0001  02000000000b c0a80702  000000000000 c0a80701");
        frame[14..16].copy_from_slice(&tci);
        frame
    };
    let (mut a, _) = v4();
    a.receive(&tagged([0xe0, 0]), ms(0));
    assert_eq!(a.counters().answered, 1);
    let mut a = announced(MAC_A, &Net { vlan: Some(0x123), ..net("192.168.7.1", 24) });
    a.receive(&tagged([0xb1, 0x23]), ms(0));
    assert_eq!(a.counters().answered, 1);
    let reply = a.transmit(ms(0)).unwrap();
    assert_eq!(reply[12..16], [0x81, 0, 0x01, 0x23]);
}

#[test]
fn ipv6_works_on_a_vlan() {
    let vlan = Some(100);
    let (mut a, mut b) =
        pair(&Net { vlan, ..net("2001:db8::1", 64) }, &Net { vlan, ..net("2001:db8::2", 64) });
    let _ = a.resolve(ip("2001:db8::2"), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert_eq!(known(a.resolve(ip("2001:db8::2"), ms(0))), MAC_B);
}
