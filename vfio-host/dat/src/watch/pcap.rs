//! Datagrams of the connection manager as a capture file, which Wireshark decodes.
//!
//! Each stands there as a RoCEv2 datagram without a link (IBTA annex A17: IP, UDP port 4791, BTH and
//! DETH of queue pair 1, the MAD, ICRC), on InfiniBand too. What the device adds by itself is not
//! known here: identification, hop limit and ICRC are not those on the wire.

use std::borrow::Cow;
use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, PcapError, TsResolution};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpAddress, IpProtocol, IpRepr, UDP_HEADER_LEN, UdpPacket, UdpRepr};
use vfio_host::status::Datagram;

use super::super::failure::Failure;

/// UDP port of RoCEv2 (IBTA annex A17).
const PORT: u16 = 4791;
/// BTH of a datagram to queue pair 1: UD SEND only, migrated, default P_Key; DETH from queue pair 1:
/// the Q_Key of management (IBTA vol. 1, 9.2, 9.3.3, 3.5.3).
const HEADERS: [u8; 20] =
    [0x64, 0x40, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 0x80, 0x01, 0, 0, 0, 0, 0, 1];
/// The ICRC.
const TRAILER: [u8; 4] = [0; 4];
/// A usual one, as its value is not known.
const HOP_LIMIT: u8 = 64;

/// A capture file.
pub(super) struct Capture {
    file: PathBuf,
    writer: PcapWriter<File>,
    /// Since 1970, when the first line could have come.
    start: Duration,
}

impl Capture {
    /// Begins one.
    pub(super) fn new(file: &Path) -> Result<Self, Failure> {
        let opened = File::create(file).map_err(|error| failed(file, &error))?;
        let header = PcapHeader {
            datalink: DataLink::RAW,
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        let writer =
            PcapWriter::with_header(opened, header).map_err(|error| failed(file, &error))?;
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self { file: file.to_path_buf(), writer, start })
    }

    /// Adds a datagram of so many seconds after the beginning.
    pub(super) fn add(&mut self, seconds: f64, datagram: &Datagram) -> Result<(), Failure> {
        let packet = packet(datagram);
        let length = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let time = self.start.saturating_add(time);
        let packet = PcapPacket { timestamp: time, orig_len: length, data: Cow::Owned(packet) };
        let written = self.writer.write_packet(&packet).map(drop);
        written.map_err(|error: PcapError| failed(&self.file, &error))
    }
}

fn failed(file: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("{}: {error}", file.display()))
        .remedy("give --pcap a file that can be written")
}

/// The datagram as an IP packet.
fn packet(datagram: &Datagram) -> Vec<u8> {
    let payload = [&HEADERS[..], &datagram.mad, &TRAILER].concat();
    let (from, to) = if datagram.sent {
        (datagram.local, datagram.remote)
    } else {
        (datagram.remote, datagram.local)
    };
    // A packet is of one kind: an address of the other is written as IPv6 has it.
    let mapped = |addr: IpAddr| -> IpAddress {
        match addr {
            IpAddr::V4(addr) if from.is_ipv6() || to.is_ipv6() => addr.to_ipv6_mapped().into(),
            IpAddr::V4(addr) => addr.into(),
            IpAddr::V6(addr) => addr.into(),
        }
    };
    let (from, to) = (mapped(from), mapped(to));
    let len = UDP_HEADER_LEN + payload.len();
    let ip = IpRepr::new(from, to, IpProtocol::Udp, len, HOP_LIMIT);
    let mut bytes = vec![0; ip.buffer_len()];
    ip.emit(&mut bytes[..], &ChecksumCapabilities::default());
    let mut inner = UdpPacket::new_unchecked(bytes.split_at_mut(ip.header_len()).1);
    let udp = UdpRepr { src_port: PORT, dst_port: PORT };
    let fill = |bytes: &mut [u8]| bytes.copy_from_slice(&payload);
    // RoCEv2 has no checksum in UDP: the ICRC is stronger.
    let unchecked = ChecksumCapabilities::ignored();
    udp.emit(&mut inner, &from, &to, payload.len(), fill, &unchecked);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoltcp::wire::{Ipv4Packet, Ipv6Packet};

    fn datagram(sent: bool, local: &str, remote: &str) -> Datagram {
        let [local, remote] = [local, remote].map(|text| text.parse().unwrap());
        Datagram { sent, local, remote, mad: [7; 256] }
    }

    #[test]
    fn a_datagram_is_a_packet_of_roce() {
        let bytes = packet(&datagram(true, "10.0.0.1", "10.0.0.2"));
        let ip = Ipv4Packet::new_checked(&bytes).unwrap();
        assert!(ip.verify_checksum() && ip.src_addr().octets()[3] == 1);
        let udp = UdpPacket::new_checked(ip.payload()).unwrap();
        assert_eq!((udp.dst_port(), udp.checksum(), udp.payload().len()), (4791, 0, 280));
        assert_eq!(udp.payload()[20..276], [7; 256]);

        let bytes = packet(&datagram(false, "fd00::1", "fd00::2"));
        let ip = Ipv6Packet::new_checked(&bytes).unwrap();
        assert_eq!((ip.src_addr().segments()[7], ip.dst_addr().segments()[7]), (2, 1));
        assert_eq!(UdpPacket::new_checked(ip.payload()).unwrap().payload().len(), 280);
        let bytes = packet(&datagram(true, "10.0.0.1", "fd00::2"));
        assert!(Ipv6Packet::new_checked(&bytes).unwrap().src_addr().to_ipv4_mapped().is_some());
    }

    #[test]
    fn a_file_that_cannot_be_is_named() {
        let failure = Capture::new(Path::new("/nonexistent/cm.pcap")).err().unwrap();
        assert!(failure.cause.starts_with("/nonexistent/cm.pcap: "), "{failure:?}");
    }
}
