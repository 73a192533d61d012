//! Two servers' wires, joined by their uplinks, in one thread.

use super::*;
use crate::config::Config;

/// A directory of one test's own, gone when dropped.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mlx5w-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The wires of a server with so many functions, and an uplink from one name to another.
    fn fabric(&self, functions: usize, local: &str, remote: &str) -> (Fabric, Vec<Plug>) {
        let settings = Settings {
            functions: vec![(PathBuf::new(), Config::default()); functions],
            link: Link::Datagram { local: self.0.join(local), remote: self.0.join(remote) },
            pcap: Some(self.0.join(format!("{local}.pcap"))),
            ..Settings::default()
        };
        Fabric::new(&settings).unwrap()
    }

    fn captured(&self, local: &str) -> usize {
        let file = std::fs::read(self.0.join(format!("{local}.pcap"))).unwrap();
        let mut reader = pcap_file::pcap::PcapReader::new(file.as_slice()).unwrap();
        let mut frames = 0;
        while let Some(packet) = reader.next_packet() {
            packet.unwrap();
            frames += 1;
        }
        frames
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn frame(to: u8, from: u8, nth: u8) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, to, 0x02, 0, 0, 0, 0, from, 0x88, 0xb5];
    frame.resize(60, nth);
    frame
}

fn all(plug: &mut Plug) -> Vec<u8> {
    std::iter::from_fn(|| plug.recv()).map(|f| f[59]).collect()
}

#[test]
fn frames_cross_from_server_to_server() {
    let dir = Dir::new("cross");
    let (mut one, mut left) = dir.fabric(2, "l", "r");
    let (mut two, mut right) = dir.fabric(1, "r", "l");
    let before = one.sent();
    left[0].send(&frame(9, 1, 1));
    assert_ne!(one.sent(), before, "the event loop is notified");
    one.pump();
    two.pump();
    assert_eq!(all(&mut right[0]), [1]);
    assert_eq!(all(&mut left[1]), [1], "flooded in its own server too");
    let before = one.sent();
    right[0].send(&frame(1, 9, 2));
    two.pump();
    one.pump();
    assert_ne!(one.sent(), before);
    assert_eq!((all(&mut left[0]), all(&mut left[1])), (vec![2], vec![]), "learned");
    assert_eq!((one.lost(), two.lost()), (0, 0));
    assert_eq!((dir.captured("l"), dir.captured("r")), (2, 2), "each once on each side");
}

#[test]
fn nobody_at_the_other_end_loses_frames_until_somebody_comes() {
    let dir = Dir::new("nobody");
    let (mut one, mut left) = dir.fabric(1, "l", "r");
    left[0].send(&frame(9, 1, 1));
    one.pump();
    assert_eq!(one.lost(), 1);
    for generation in 2..4 {
        let (mut two, mut right) = dir.fabric(1, "r", "l");
        // The first may be lost: the sender may still have the previous peer's address.
        for nth in [0, generation] {
            left[0].send(&frame(9, 1, nth));
            one.pump();
        }
        two.pump();
        assert_eq!(all(&mut right[0]).last(), Some(&generation));
        right[0].send(&frame(1, 9, generation));
        two.pump();
        one.pump();
        assert_eq!(all(&mut left[0]), [generation], "from the new peer too");
    }
}

#[test]
fn a_peer_that_does_not_fetch_holds_frames_up_and_then_loses_them() {
    let dir = Dir::new("full");
    let (mut one, mut left) = dir.fabric(1, "l", "r");
    let (mut two, mut right) = dir.fabric(1, "r", "l");
    const SENT: usize = 4000;
    for _ in 0..SENT {
        left[0].send(&frame(9, 1, 7));
        one.pump();
    }
    assert!(one.outward().is_some(), "waits for room");
    assert!(one.lost() > 0);
    let mut got = 0;
    while one.outward().is_some() {
        two.pump();
        got += all(&mut right[0]).len();
        one.pump();
    }
    two.pump();
    got += all(&mut right[0]).len();
    assert_eq!(got + one.lost() as usize, SENT, "none twice, none silently");
}

#[test]
fn impairment_affects_all_wires_until_it_is_cleared() {
    let (mut fabric, mut plugs) = Fabric::new(&Settings::new(["a", "b"])).unwrap();
    let mut arrived = |drop: u32, fabric: &mut Fabric| {
        fabric.impairment.lock().unwrap().0.drop = drop;
        for nth in 0..200 {
            plugs[0].send(&frame(2, 1, nth));
            plugs[1].send(&frame(1, 2, nth));
        }
        let [one, two] = plugs.as_mut_slice() else { unreachable!("two functions") };
        (all(one).len(), all(two).len())
    };
    assert_eq!(arrived(0, &mut fabric), (200, 200));
    let (one, two) = arrived(500, &mut fabric);
    assert!((50..150).contains(&one) && (50..150).contains(&two), "{one} {two}");
    assert_eq!(arrived(1000, &mut fabric), (0, 0));
    fabric.impairment.lock().unwrap().1 = true;
    assert_eq!(arrived(1000, &mut fabric), (200, 200), "none of it RoCE");
    assert_eq!(arrived(0, &mut fabric), (200, 200));
}
