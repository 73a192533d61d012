//! Finding the MAC: on the link, through the gateway, not at all.

use super::*;
use dat_core::provider::FaultKind;

#[test]
fn arp_resolves_in_one_exchange() {
    let (mut a, mut b) = v4();
    assert!(a.resolve(ip("192.168.7.2"), ms(0)).is_pending());
    assert_eq!(exchange(&mut a, &mut b, ms(0), &mut never), 2);
    assert_eq!(known(a.resolve(ip("192.168.7.2"), ms(1))), MAC_B);
    assert_eq!((a.counters().asked, b.counters().answered), (1, 1));
}

#[test]
fn the_one_who_answered_knows_the_asker() {
    let (mut a, mut b) = v4();
    let _ = a.resolve(ip("192.168.7.2"), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert_eq!(known(b.resolve(ip("192.168.7.1"), ms(1))), MAC_A);
    assert_eq!(b.counters().asked, 0);
}

#[test]
fn neighbor_discovery_resolves_in_one_exchange() {
    let (mut a, mut b) = v6();
    assert!(a.resolve(ip("2001:db8::2"), ms(0)).is_pending());
    assert_eq!(exchange(&mut a, &mut b, ms(0), &mut never), 2);
    assert_eq!(known(a.resolve(ip("2001:db8::2"), ms(1))), MAC_B);
    assert_eq!(known(b.resolve(ip("2001:db8::1"), ms(1))), MAC_A);
}

#[test]
fn link_local_addresses_resolve_from_the_link_local_address() {
    let (mut a, mut b) = v6();
    let peer = IpAddr::V6(nd::link_local(MAC_B));
    assert_eq!(peer, ip("fe80::ff:fe00:b"));
    assert!(a.resolve(peer, ms(0)).is_pending());
    let question = a.transmit(ms(0)).unwrap();
    assert_eq!(question[22..38], nd::link_local(MAC_A).octets());
    b.receive(&question, ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert_eq!(known(a.resolve(peer, ms(1))), MAC_B);
}

#[test]
fn a_port_configured_with_a_link_local_address_has_only_that() {
    let (mut a, mut b) = pair(&net("fe80::1", 64), &net("fe80::2", 64));
    assert_eq!(a.own(), [ip("fe80::1")]);
    let _ = a.resolve(ip("fe80::2"), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert_eq!(known(a.resolve(ip("fe80::2"), ms(0))), MAC_B);
}

#[test]
fn ipv4_link_local_needs_no_gateway() {
    let (mut a, mut b) = pair(&net("169.254.1.1", 16), &net("169.254.200.7", 16));
    let _ = a.resolve(ip("169.254.200.7"), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert_eq!(known(a.resolve(ip("169.254.200.7"), ms(0))), MAC_B);
}

#[test]
fn own_addresses_resolve_to_the_own_mac() {
    let (mut a, _) = v6();
    assert_eq!(known(a.resolve(ip("2001:db8::1"), ms(0))), MAC_A);
    assert_eq!(known(a.resolve(IpAddr::V6(nd::link_local(MAC_A)), ms(0))), MAC_A);
    assert!(a.transmit(ms(0)).is_none());
}

#[test]
fn an_ipv4_address_in_ipv6_form_is_resolved_as_ipv4() {
    let (mut a, mut b) = v4();
    let _ = a.resolve(ip("::ffff:192.168.7.2"), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert_eq!(known(a.resolve(ip("::ffff:192.168.7.2"), ms(0))), MAC_B);
}

#[test]
fn off_the_link_the_gateway_is_asked() {
    let config = Net { gateway: Some(ip("192.168.7.2")), ..net("192.168.7.1", 24) };
    let (mut a, mut b) = pair(&config, &net("192.168.7.2", 24));
    for remote in ["10.0.0.1", "8.8.8.8"] {
        let _ = a.resolve(ip(remote), ms(0));
    }
    exchange(&mut a, &mut b, ms(0), &mut never);
    for remote in ["10.0.0.1", "8.8.8.8", "192.168.7.2"] {
        assert_eq!(known(a.resolve(ip(remote), ms(1))), MAC_B);
    }
    assert_eq!(a.counters().asked, 1);
}

/// The first and the last address of a network are none of a host on this link only.
#[test]
fn addresses_beyond_the_link_may_end_in_anything() {
    let config = Net { gateway: Some(ip("192.168.7.2")), ..net("192.168.7.1", 24) };
    let (mut a, mut b) = pair(&config, &net("192.168.7.2", 24));
    let _ = a.resolve(ip("10.0.0.1"), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    for remote in ["10.0.5.0", "10.0.5.255"] {
        assert_eq!(known(a.resolve(ip(remote), ms(1))), MAC_B);
    }
    for remote in ["169.254.5.0", "169.254.5.255"] {
        assert!(a.resolve(ip(remote), ms(1)).is_pending(), "link-local: {remote}");
    }
}

#[test]
fn an_ipv6_gateway_may_be_link_local() {
    let gateway = IpAddr::V6(nd::link_local(MAC_B));
    let config = Net { gateway: Some(gateway), ..net("2001:db8::1", 64) };
    let (mut a, mut b) = pair(&config, &net("2001:db8:1::1", 64));
    let _ = a.resolve(ip("2001:db8:2::9"), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert_eq!(known(a.resolve(ip("2001:db8:2::9"), ms(1))), MAC_B);
}

#[test]
fn off_the_link_without_gateway_is_unreachable() {
    let (mut a, _) = v4();
    let fault = refused(a.resolve(ip("10.0.0.1"), ms(0)));
    assert_eq!(fault.kind, FaultKind::Unreachable);
    assert!(fault.to_string().contains("10.0.0.1: ARP: off the link"), "{fault}");
    assert!(a.transmit(ms(0)).is_none());
}

#[test]
fn the_other_ip_version_is_unreachable() {
    let (mut a, _) = v4();
    let fault = refused(a.resolve(ip("2001:db8::2"), ms(0)));
    assert_eq!(fault.kind, FaultKind::Unreachable);
    assert!(fault.to_string().contains("IP version"), "{fault}");
}

#[test]
fn addresses_of_no_host_are_refused() {
    let (mut a, _) = v4();
    for remote in
        ["255.255.255.255", "192.168.7.255", "192.168.7.0", "224.0.0.1", "127.0.0.1", "0.0.0.0"]
    {
        let fault = refused(a.resolve(ip(remote), ms(0)));
        assert_eq!(fault.kind, FaultKind::BadParameter, "{remote}");
    }
    let (mut a, _) = v6();
    for remote in ["::", "::1", "ff02::1"] {
        let fault = refused(a.resolve(ip(remote), ms(0)));
        assert_eq!(fault.kind, FaultKind::BadParameter, "{remote}");
    }
}

#[test]
fn both_ends_of_a_31_bit_prefix_are_hosts() {
    let (mut a, mut b) = pair(&net("10.0.0.0", 31), &net("10.0.0.1", 31));
    let _ = a.resolve(ip("10.0.0.1"), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert_eq!(known(a.resolve(ip("10.0.0.1"), ms(0))), MAC_B);
}

#[test]
fn a_prefix_may_be_as_long_as_the_address() {
    for own in [net("192.168.7.1", 32), net("2001:db8::1", 128)] {
        assert!(Station::new(MAC_A, &own, ms(0)).is_ok());
    }
}

#[test]
fn a_prefix_of_nothing_has_everybody_on_the_link() {
    let (mut a, mut b) = pair(&net("10.0.0.1", 0), &net("77.1.2.3", 0));
    let _ = a.resolve(ip("77.1.2.3"), ms(0));
    exchange(&mut a, &mut b, ms(0), &mut never);
    assert_eq!(known(a.resolve(ip("77.1.2.3"), ms(0))), MAC_B);
}
