//! The Address Resolution Protocol (RFC 826, RFC 5227), for IPv4.

use core::net::Ipv4Addr;

use dat_core::Instant;
use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetAddress};

use super::frame::{self, ARP, Frame, Header, Mac, Tag, is_station};
use super::{Claim, Neighbours, Reply, Rule, Verdict};

/// Length of a packet.
const PACKET: usize = 28;
/// Everybody.
pub(super) const BROADCAST: Mac = [0xff; 6];

/// Asks everybody, or the station `known`, for `target`; with `own == target` it is an announcement.
pub(super) fn request(
    tag: Tag,
    mac: Mac,
    own: Ipv4Addr,
    target: Ipv4Addr,
    known: Option<Mac>,
) -> Option<Frame> {
    let to = known.unwrap_or(BROADCAST);
    build(tag, ArpOperation::Request, (mac, own), (to, [0; 6], target))
}

/// Tells `asker` our MAC.
pub(super) fn reply(tag: Tag, mac: Mac, own: Ipv4Addr, to: Mac, asker: Ipv4Addr) -> Option<Frame> {
    build(tag, ArpOperation::Reply, (mac, own), (to, to, asker))
}

fn build(
    tag: Tag,
    operation: ArpOperation,
    (mac, own): (Mac, Ipv4Addr),
    (to, target_mac, target): (Mac, Mac, Ipv4Addr),
) -> Option<Frame> {
    let packet = ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: EthernetAddress(mac),
        source_protocol_addr: own,
        target_hardware_addr: EthernetAddress(target_mac),
        target_protocol_addr: target,
    };
    let mut bytes = [0; PACKET];
    packet.emit(&mut ArpPacket::new_unchecked(&mut bytes));
    frame::build(tag, to, mac, ARP, &bytes)
}

impl<const N: usize> Neighbours<N> {
    pub(super) fn receive_arp(&mut self, header: &Header<'_>, now: Instant) -> Verdict {
        let Some(own) = self.first().v4() else {
            return Verdict::Ignored;
        };
        if header.destination != self.mac && header.destination != BROADCAST {
            return Verdict::Ignored;
        }
        let packet = ArpPacket::new_checked(header.payload).and_then(|p| ArpRepr::parse(&p));
        let Ok(ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: EthernetAddress(sender_mac),
            source_protocol_addr: sender,
            target_protocol_addr: target,
            ..
        }) = packet
        else {
            return Verdict::Malformed;
        };
        if !is_station(sender_mac) {
            return Verdict::Broken(Rule::Source);
        }
        if sender_mac == self.mac {
            return Verdict::Ignored;
        }
        if sender == own {
            return Verdict::Conflict;
        }
        match operation {
            ArpOperation::Request if target == own => {
                // A sender of 0.0.0.0 only probes whether the address is free.
                if !sender.is_unspecified() {
                    self.claimed(sender.into(), sender_mac, Claim::Question, now);
                }
                self.queue(Reply { mac: sender_mac, asker: sender.into(), target: own.into() });
                Verdict::Accepted
            }
            ArpOperation::Unknown(_) => Verdict::Malformed,
            ArpOperation::Reply if target == own && header.destination == self.mac => {
                self.claimed(sender.into(), sender_mac, Claim::Answer, now)
            }
            ArpOperation::Request | ArpOperation::Reply if sender == target => {
                self.claimed(sender.into(), sender_mac, Claim::Announcement, now)
            }
            // To nobody here, and no announcement.
            ArpOperation::Request | ArpOperation::Reply => Verdict::Ignored,
        }
    }
}
