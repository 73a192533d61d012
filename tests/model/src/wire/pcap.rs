//! A tap: writes every frame of a wire to a capture file, stamped with model time.
//!
//! The file is the classic pcap format with nanosecond stamps, which every analyser reads. The link
//! type is Ethernet, or InfiniBand for frames that begin with an LRH. A write error stops the capture and is kept for [`Tap::error`]; the wire goes
//! on.

use std::io::{self, Write};

use super::{ModelClock, Wire};
use crate::host::Nanos;

/// Magic number of classic pcap with nanosecond stamps.
const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
/// Longest frame that is kept whole.
const SNAP_LEN: u32 = 65_535;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// What the frames of a file begin with: its number is the link type of the file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LinkType {
    /// `LINKTYPE_ETHERNET`: an Ethernet header; no FCS.
    Ethernet = 1,
    /// `LINKTYPE_INFINIBAND`: a local route header; ICRC and VCRC at the end. Wireshark (4.0) has
    /// no reader for such files.
    InfiniBand = 247,
    /// `LINKTYPE_ERF`: the same behind a record header of Endace's capture cards, which Wireshark
    /// reads.
    InfiniBandErf = 197,
}

/// Bytes of an ERF record header.
const ERF_LEN: u16 = 16;
/// Type of an ERF record: an InfiniBand frame (Wireshark `ERF_TYPE_INFINIBAND`).
const ERF_INFINIBAND: u8 = 21;
/// Flag of an ERF record: its length varies.
const ERF_VARYING: u8 = 4;

/// A wire whose traffic, both ways, is written to `out`.
#[derive(Debug)]
pub struct Tap<W, O> {
    inner: W,
    out: O,
    link: LinkType,
    clock: ModelClock,
    error: Option<io::Error>,
}

impl<W: Wire, O: Write> Tap<W, O> {
    /// Wraps `inner`, a wire of Ethernet frames; the file header is written at once.
    pub fn new(inner: W, out: O, clock: ModelClock) -> io::Result<Self> {
        Self::of_link(LinkType::Ethernet, inner, out, clock)
    }

    /// The same for a wire of any frames.
    pub fn of_link(link: LinkType, inner: W, mut out: O, clock: ModelClock) -> io::Result<Self> {
        let mut header = Vec::with_capacity(24);
        header.extend_from_slice(&MAGIC_NANOS.to_le_bytes());
        header.extend_from_slice(&2u16.to_le_bytes());
        header.extend_from_slice(&4u16.to_le_bytes());
        header.extend_from_slice(&[0; 8]);
        header.extend_from_slice(&SNAP_LEN.to_le_bytes());
        header.extend_from_slice(&(link as u32).to_le_bytes());
        out.write_all(&header)?;
        Ok(Self { inner, out, link, clock, error: None })
    }

    /// The error that ended the capture, if one did.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// Flushes the file and gives both parts back.
    pub fn into_parts(mut self) -> io::Result<(W, O)> {
        self.out.flush()?;
        match self.error {
            Some(e) => Err(e),
            None => Ok((self.inner, self.out)),
        }
    }

    fn record(&mut self, frame: &[u8]) {
        if self.error.is_some() {
            return;
        }
        let now = self.clock.now();
        // Classic pcap counts seconds in 32 bits: model time begins at 0, so this holds 136 years.
        let seconds = u32::try_from(now / NANOS_PER_SECOND).unwrap_or(u32::MAX);
        let nanos = u32::try_from(now % NANOS_PER_SECOND).unwrap_or(0);
        let erf = match self.link {
            LinkType::InfiniBandErf => erf_header(now, frame.len()).to_vec(),
            LinkType::Ethernet | LinkType::InfiniBand => Vec::new(),
        };
        let len = u32::try_from(erf.len() + frame.len()).unwrap_or(u32::MAX);
        let kept = len.min(SNAP_LEN);
        let mut record = Vec::with_capacity(16 + erf.len() + frame.len());
        for word in [seconds, nanos, kept, len] {
            record.extend_from_slice(&word.to_le_bytes());
        }
        record.extend(erf.iter().chain(frame).take(kept as usize));
        if let Err(e) = self.out.write_all(&record) {
            self.error = Some(e);
        }
    }
}

/// The header of an ERF record: time as seconds and a binary fraction, type, flags, length of the
/// record, records lost, length of the frame.
fn erf_header(now: Nanos, frame: usize) -> [u8; ERF_LEN as usize] {
    let fraction = ((now % NANOS_PER_SECOND) << 32) / NANOS_PER_SECOND;
    let frame = u16::try_from(frame).unwrap_or(u16::MAX);
    let mut out = [0; ERF_LEN as usize];
    let time = (now / NANOS_PER_SECOND) << 32 | fraction;
    out[..8].copy_from_slice(&time.to_le_bytes());
    out[8..10].copy_from_slice(&[ERF_INFINIBAND, ERF_VARYING]);
    out[10..12].copy_from_slice(&frame.saturating_add(ERF_LEN).to_be_bytes());
    out[14..].copy_from_slice(&frame.to_be_bytes());
    out
}

impl<W: Wire, O: Write> Wire for Tap<W, O> {
    fn send(&mut self, frame: &[u8]) {
        self.record(frame);
        self.inner.send(frame);
    }

    fn recv(&mut self) -> Option<Vec<u8>> {
        let frame = self.inner.recv()?;
        self.record(&frame);
        Some(frame)
    }

    fn set_carrier(&mut self, is_up: bool) {
        self.inner.set_carrier(is_up);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pcap_file::pcap::PcapReader;

    use super::*;
    use crate::wire::ib::{Packet, lid};
    use crate::wire::switch::cable;

    #[test]
    fn an_independent_reader_finds_both_directions_with_their_times() {
        let clock = ModelClock::default();
        let (a, mut b) = cable();
        let mut tap = Tap::new(a, Vec::new(), clock.clone()).unwrap();
        clock.set(1_500_000_007);
        tap.send(&[7; 60]);
        clock.set(2_000_000_000);
        b.send(&[9; 61]);
        assert_eq!(tap.recv().unwrap().len(), 61);
        assert_eq!(b.recv().unwrap().len(), 60);
        let (_, file) = tap.into_parts().unwrap();
        let mut reader = PcapReader::new(file.as_slice()).unwrap();
        let first = reader.next_packet().unwrap().unwrap();
        assert_eq!(first.timestamp, Duration::from_nanos(1_500_000_007));
        assert_eq!(first.data.as_ref(), &[7; 60]);
        let second = reader.next_packet().unwrap().unwrap();
        assert_eq!(second.timestamp, Duration::from_secs(2));
        assert_eq!(second.data.as_ref(), &[9; 61]);
        assert!(reader.next_packet().is_none());
    }

    #[test]
    fn a_file_of_infiniband_frames_says_so() {
        let (a, mut b) = cable();
        let clock = ModelClock::default();
        let mut tap = Tap::of_link(LinkType::InfiniBand, a, Vec::new(), clock).unwrap();
        let frame = Packet::management(lid::PERMISSIVE, lid::PERMISSIVE, &[1; 256]).build();
        tap.send(&frame);
        assert_eq!(b.recv().unwrap(), frame);
        let (_, file) = tap.into_parts().unwrap();
        let mut reader = PcapReader::new(file.as_slice()).unwrap();
        assert_eq!(u32::from(reader.header().datalink), 247);
        assert_eq!(reader.next_packet().unwrap().unwrap().data.as_ref(), frame);
    }

    /// The header as the card wrote it that took the frames of `wire/ib/fixtures`.
    #[test]
    fn a_record_for_wireshark_has_its_header() {
        let (a, _peer) = cable();
        let clock = ModelClock::default();
        clock.set(3_500_000_000);
        let mut tap = Tap::of_link(LinkType::InfiniBandErf, a, Vec::new(), clock).unwrap();
        tap.send(&[5; 290]);
        let (_, file) = tap.into_parts().unwrap();
        let mut reader = PcapReader::new(file.as_slice()).unwrap();
        assert_eq!(u32::from(reader.header().datalink), 197);
        let record = reader.next_packet().unwrap().unwrap();
        let header = [0, 0, 0, 0x80, 3, 0, 0, 0, 0x15, 4, 1, 0x32, 0, 0, 1, 0x22];
        assert_eq!(record.data[..16], header);
        assert_eq!(record.data[16..], [5; 290]);
    }

    #[test]
    fn a_full_disk_ends_the_capture_not_the_traffic() {
        let mut space = [0u8; 30];
        let (a, mut b) = cable();
        let mut tap = Tap::new(a, space.as_mut_slice(), ModelClock::default()).unwrap();
        tap.send(&[1; 60]);
        assert_eq!(b.recv().unwrap(), vec![1; 60]);
        assert!(tap.error().is_some());
        assert!(tap.into_parts().is_err());
    }
}
