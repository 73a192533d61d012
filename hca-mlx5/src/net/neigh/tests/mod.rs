//! Two ends against each other over a link that loses frames; golden frames; frames that mean harm.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::task::Poll;
use core::time::Duration;
use std::string::ToString;
use std::vec::Vec;

use dat_core::Instant;
use dat_core::provider::{Fault, FaultKind, Net};
use proptest::prelude::*;

use super::*;

mod answer;
mod askers;
mod format;
mod harm;
mod memory;
mod patience;
mod resolve;
mod scale;
mod takeover;

const MAC_A: Mac = [0x02, 0, 0, 0, 0, 0x0a];
const MAC_B: Mac = [0x02, 0, 0, 0, 0, 0x0b];
const MAC_X: Mac = [0x02, 0, 0, 0, 0, 0x66];

type Station = Neighbours<4>;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(addr: &str, prefix: u8) -> Net {
    Net::new(ip(addr), prefix)
}

fn ms(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// A station whose announcements are over.
fn announced(mac: Mac, net: &Net) -> Station {
    let mut station = Station::new(mac, net, Instant::ZERO).unwrap();
    station.announcement = None;
    station
}

fn pair(a: &Net, b: &Net) -> (Station, Station) {
    (announced(MAC_A, a), announced(MAC_B, b))
}

/// Carries frames both ways until there are none; each is lost if `lost` says so. Returns how many
/// were carried.
fn exchange(
    a: &mut Station,
    b: &mut Station,
    now: Instant,
    lost: &mut dyn FnMut() -> bool,
) -> usize {
    let mut carried = 0;
    loop {
        let (from_a, from_b) = (a.transmit(now), b.transmit(now));
        if from_a.is_none() && from_b.is_none() {
            return carried;
        }
        for (frame, to) in [(from_a, &mut *b), (from_b, &mut *a)] {
            if let Some(frame) = frame.filter(|_| !lost()) {
                to.receive(&frame, now);
                carried += 1;
            }
        }
    }
}

fn never() -> bool {
    false
}

fn known(answer: Poll<Result<Mac, Fault>>) -> Mac {
    let Poll::Ready(Ok(mac)) = answer else {
        panic!("{answer:?}");
    };
    mac
}

fn refused(answer: Poll<Result<Mac, Fault>>) -> Fault {
    let Poll::Ready(Err(fault)) = answer else {
        panic!("{answer:?}");
    };
    fault
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|d| u8::try_from(d).unwrap()).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn v4() -> (Station, Station) {
    pair(&net("192.168.7.1", 24), &net("192.168.7.2", 24))
}

fn v6() -> (Station, Station) {
    pair(&net("2001:db8::1", 64), &net("2001:db8::2", 64))
}

fn answer_from(station: &mut Station, last: u8, now: Instant) {
    let own = Ipv4Addr::new(192, 168, 7, last);
    let reply = arp::reply(
        Tag::new(None).unwrap(),
        [2, 0, 0, 0, 1, last],
        own,
        MAC_A,
        Ipv4Addr::new(192, 168, 7, 1),
    );
    station.receive(&reply.unwrap(), now);
}

fn host(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 168, 7, last))
}

/// Writes the ICMPv6 checksum of an untagged frame, computed here.
fn seal(frame: &mut [u8]) {
    frame[56..58].fill(0);
    let mut sum = 58 + (u32::try_from(frame.len()).unwrap() - 54);
    for pair in frame[22..].chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let sum = !u16::try_from(sum).unwrap();
    frame[56..58].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let good = net("192.168.7.1", 24);
    let cases = [
        ([1, 0, 0, 0, 0, 1], good),
        ([0; 6], good),
        (MAC_A, net("192.168.7.1", 33)),
        (MAC_A, net("2001:db8::1", 129)),
        (MAC_A, net("192.168.7.255", 24)),
        (MAC_A, net("224.0.0.5", 24)),
        (MAC_A, net("ff02::1", 64)),
        (MAC_A, net("::", 64)),
        (MAC_A, net("::ffff:192.168.7.1", 120)),
        (MAC_A, Net { vlan: Some(0), ..good }),
        (MAC_A, Net { vlan: Some(4095), ..good }),
        (MAC_A, Net { gateway: Some(ip("10.0.0.1")), ..good }),
        (MAC_A, Net { gateway: Some(ip("192.168.7.1")), ..good }),
        (MAC_A, Net { gateway: Some(ip("fe80::1")), ..good }),
        (MAC_A, Net { gateway: Some(ip("192.168.7.255")), ..good }),
    ];
    for (mac, net) in cases {
        let fault = Station::new(mac, &net, ms(0)).unwrap_err();
        assert_eq!(fault.kind, FaultKind::BadParameter, "{net:?}");
        assert_eq!(fault.host, Some(net.addr));
    }
    assert!(Station::new(MAC_A, &good, ms(0)).is_ok());
    for vlan in [1, 4094] {
        assert!(Station::new(MAC_A, &Net { vlan: Some(vlan), ..good }, ms(0)).is_ok());
    }
    assert!(Station::new([0; 6], &good, ms(0)).is_err());
}

#[test]
fn the_port_receives_its_groups() {
    let (a, _) = v4();
    assert_eq!(a.groups(), [[0xff; 6]]);
    let (a, _) = v6();
    assert_eq!(
        a.groups(),
        [[0x33, 0x33, 0, 0, 0, 1], [0x33, 0x33, 0xff, 0, 0, 0x01], [0x33, 0x33, 0xff, 0, 0, 0x0a],]
    );
    let shared = announced(MAC_A, &net("2001:db8::ff:fe00:a", 64));
    assert_eq!(shared.groups().len(), 2, "both addresses end alike");
}

#[test]
fn the_schedule_ends_within_the_connect_timeouts_in_use() {
    let whole: Duration = WAITS.iter().sum();
    assert_eq!(whole, Duration::from_millis(3200));
}
