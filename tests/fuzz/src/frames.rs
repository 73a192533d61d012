//! Frames into the model's parser: it says what they are without panic, and a packet that it
//! understands is the same when it is built and parsed again.

use mlx5_model::wire::frame::{Demux, Packet, demux};

use crate::input::seal;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((first, frame)) = data.split_first() else { return };
    let mut frame = frame.to_vec();
    if first & 2 != 0 {
        seal(&mut frame);
    }
    if let Demux::Roce(packet) = demux(&frame, |net| net.v1 == (first & 1 == 1)) {
        again(&packet);
    }
    if let Ok(packet) = Packet::parse(&frame) {
        again(&packet);
        let _ = (packet.congested(), packet.net.layer3());
    }
}

fn again(packet: &Packet) {
    let built = packet.build();
    // The header before a datagram is as it came, and may say what a packet leaves open: whether it
    // may come in fragments.
    let parsed = Packet::parse(&built).map(|other| Packet { grh: packet.grh, ..other });
    assert_eq!(parsed.as_ref(), Ok(packet), "a packet built and parsed again is another");
    assert_eq!(parsed.map(|packet| packet.build()), Ok(built));
}
