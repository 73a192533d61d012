//! Captures: frames of any length and time go through the model's writer, and an independent reader
//! finds them again; any bytes into that reader end without panic, as they do in our tests.

use arbitrary::{Arbitrary, Unstructured};
use mlx5_model::wire::pcap::Tap;
use mlx5_model::wire::{ModelClock, Wire, switch};
use pcap_file::pcap::PcapReader;

use crate::input::steps;

#[derive(Debug, Arbitrary)]
struct Sent<'a> {
    after: u32,
    frame: &'a [u8],
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let clock = ModelClock::default();
    let (wire, _peer) = switch::cable();
    let mut tap = Tap::new(wire, Vec::new(), clock.clone()).unwrap();
    let mut sent = Vec::new();
    for Sent { after, frame } in steps(&mut Unstructured::new(data), 64) {
        clock.advance(u64::from(after) << 8);
        tap.send(frame);
        sent.push((clock.now(), frame));
    }
    let (_, file) = tap.into_parts().unwrap();
    let mut reader = PcapReader::new(file.as_slice()).unwrap();
    for (now, frame) in sent {
        let packet = reader.next_packet().expect("a frame for each that was sent").unwrap();
        assert_eq!((packet.timestamp.as_nanos(), &*packet.data), (now.into(), frame));
    }
    assert!(reader.next_packet().is_none());
}
