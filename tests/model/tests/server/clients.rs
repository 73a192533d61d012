//! Clients that come, go, break and compete; servers that start and stop.

use crate::rig::{
    BASE, Dir, Driver, EINVAL, PATIENCE, Raw, cmd, command, eventfd, fields, memfd, quick, serve,
    signalled, until,
};
use mlx5_model::server::{Handle, Link, Server, Settings};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::time::Instant;
use vfio_user::Client;

/// Whether the server hangs up on us.
fn hangs_up(stream: &mut UnixStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    loop {
        match stream.read(&mut [0; 64]) {
            Ok(n) => return n == 0,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("neither bytes nor an end: {error}"),
        }
    }
}

fn notes(server: &Handle) -> String {
    server.with(0, |one| one.report().notes.join("; ")).unwrap()
}

#[test]
fn stop_with_a_client_connected() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut raw = Raw::greet(&dir.at("a"));
    let began = Instant::now();
    server.stop();
    assert!(hangs_up(&mut raw.stream));
    assert!(!dir.at("a").exists());
    assert!(began.elapsed().as_secs() < 2);
}

#[test]
fn dropping_the_handle_is_stopping() {
    let dir = Dir::new();
    drop(serve(&dir));
    assert!(!dir.at("a").exists());
    drop(serve(&dir));
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let dir = Dir::new();
    drop(UnixListener::bind(dir.at("a")).unwrap());
    assert!(dir.at("a").exists(), "left behind");
    let server = serve(&dir);
    let mut raw = Raw::greet(&dir.at("a"));
    let again = Server::start(Settings::new([dir.at("a")]));
    let error = again.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().contains("another process listens there"), "{error}");
    assert!(raw.read(7, 0, 4).is_ok(), "the server in use was not disturbed");
    drop(server);
    std::fs::write(dir.at("f"), "precious").unwrap();
    let error = Server::start(Settings::new([dir.at("f")])).unwrap_err();
    assert!(error.to_string().contains("is a file"), "{error}");
    assert_eq!(std::fs::read_to_string(dir.at("f")).unwrap(), "precious");
}

#[test]
fn a_second_client_is_turned_away_and_the_first_goes_on() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut driver = Driver::new(&dir.at("a"));
    let mut second = Raw::connect(&dir.at("a"));
    second.post(command::VERSION, 0, &fields![0u16, 0u16], &[]);
    assert!(hangs_up(&mut Raw::connect(&dir.at("a")).stream), "a third, at once");
    driver.ok(&cmd(0x104, 0, 16), 16);
    const BUSY: i32 = 16;
    assert_eq!(second.reply(), Err(BUSY), "the second, after a while");
    assert!(hangs_up(&mut second.stream));
    driver.ok(&cmd(0x80d, 0, 16), 16);
    let report = server.stop();
    assert_eq!((report.functions[0].clients, report.functions[0].turned_away), (1, 2));
}

#[test]
fn a_second_client_that_waits_for_the_first_to_go() {
    let dir = Dir::new();
    let server = serve(&dir);
    let first = Raw::greet(&dir.at("a"));
    let mut second = Raw::connect(&dir.at("a"));
    let hello = fields![0u16, 0u16];
    second.post(command::VERSION, 0, &hello, &[]);
    drop(first);
    second.reply().unwrap();
    assert!(second.read(7, 0, 4).is_ok());
    assert_eq!(server.stop().functions[0].turned_away, 0);
}

#[test]
fn clients_one_after_the_other_find_a_fresh_device() {
    let dir = Dir::new();
    let server = serve(&dir);
    for _ in 0..20 {
        let mut driver = Driver::new(&dir.at("a"));
        driver.init();
    }
    let mut client = Client::new(&dir.at("a")).unwrap();
    let mut word = [0; 4];
    client.region_read(7, 4, &mut word).unwrap();
    assert_eq!(word[0] & 6, 0, "power-on");
    client.shutdown().unwrap();
    drop(client);
    until("nobody is there", || server.with(0, |one| !one.has_client()).unwrap());
    let report = server.stop();
    assert_eq!((report.functions[0].clients, report.functions[0].turned_away), (21, 0));
    assert_eq!(report.functions[0].notes, [""; 0]);
}

#[test]
fn a_dead_client_leaves_nothing_behind() {
    let dir = Dir::new();
    let server = serve(&dir);
    let fd = eventfd();
    let mut driver = Driver::new(&dir.at("a"));
    driver.raw.set_irqs(0x24, 2, 3, 1, &[fd.as_fd()]).unwrap();
    driver.init();
    server.with(0, |one| one.hca().die(1)).unwrap();
    drop(driver);
    until("it is noticed", || server.with(0, |one| !one.has_client()).unwrap());
    assert_eq!(server.with(0, |one| one.maps()).unwrap(), []);
    assert_eq!(server.with(0, |one| one.dma_read(BASE, 1).is_err()), Some(true));
    let mut next = Driver::new(&dir.at("a"));
    next.raw.set_irqs(0x21, 2, 3, 1, &[]).unwrap();
    assert_eq!(signalled(&fd), 0, "the eventfd of another");
    next.init();
}

#[test]
fn half_a_message_and_nonsense() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut raw = Raw::greet(&dir.at("a"));
    raw.stream.write_all(&[1, 0, 4]).unwrap();
    drop(raw);
    for (size, what) in [(15u32, "too short"), (u32::MAX, "too long")] {
        let mut raw = Raw::greet(&dir.at("a"));
        let header = fields![9u16, command::DEVICE_INFO, size, 0u32, 0u32];
        raw.stream.write_all(&header).unwrap();
        assert!(hangs_up(&mut raw.stream), "{what}");
    }
    let mut raw = Raw::greet(&dir.at("a"));
    assert!(raw.call(command::DEVICE_INFO, &[], &[]).is_ok());
    let notes = notes(&server);
    assert!(notes.contains("within a message"), "{notes}");
    assert!(notes.contains("impossible length"), "{notes}");
}

#[test]
fn unknown_commands_are_refused_and_the_stream_goes_on() {
    let dir = Dir::new();
    let _server = serve(&dir);
    let mut raw = Raw::greet(&dir.at("a"));
    const ENOTSUP: i32 = 95;
    for unknown in [0, 6, 11, 12, 14, 15, 16, 999] {
        assert_eq!(raw.call(unknown, &[7; 100], &[]), Err(ENOTSUP), "{unknown}");
    }
    for known in [1, 2, 3, 5, 7, 8, 9, 10] {
        assert_eq!(raw.call(known, &[0; 2], &[]), Err(EINVAL), "{known} cut short");
    }
    let one = fields![32u32, 3u32, 0u64, 0u64, 4096u64];
    let (a, b) = (memfd(4096), memfd(4096));
    let two = [a.as_fd(), b.as_fd()];
    assert_eq!(raw.call(command::DMA_MAP, &one, &two), Err(EINVAL), "two descriptors");
    assert!(raw.call(command::DEVICE_INFO, &[], &[]).is_ok());
}

#[test]
fn random_requests_do_no_harm() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut rng = SmallRng::seed_from_u64(0x15b3);
    // Numbers that mean something now and then.
    let odd = |rng: &mut SmallRng| -> u64 {
        match rng.random_range(0..6) {
            0 => rng.random_range(0..16),
            1 => 1 << rng.random_range(0..64),
            2 => rng.random_range(0..64) << 12,
            3 => u64::MAX << rng.random_range(0..64),
            4 => rng.random_range(0..0x4000),
            _ => rng.random(),
        }
    };
    let (ram, event) = (memfd(1 << 20), eventfd());
    let mut done = [0; 2];
    for _ in 0..20 {
        let mut raw = Raw::greet(&dir.at("a"));
        raw.set_command(6);
        for _ in 0..500 {
            let mut body = Vec::new();
            for _ in 0..rng.random_range(0..10) {
                match rng.random_range(0..2) {
                    0 => body.extend_from_slice(&odd(&mut rng).to_le_bytes()),
                    _ => body.extend_from_slice(&(odd(&mut rng) as u32).to_le_bytes()),
                }
            }
            let fds = [ram.as_fd(), event.as_fd()];
            let fds = &fds[rng.random_range(0..2)..rng.random_range(1..=2)];
            let answer = raw.call(rng.random_range(0..16), &body, fds);
            done[usize::from(answer.is_ok())] += 1;
        }
    }
    assert!(done[0] > 1000 && done[1] > 1000, "{done:?} refused and done");
    until("nobody is there", || server.with(0, |one| !one.has_client()).unwrap());
    Driver::new(&dir.at("a")).init();
    server.stop();
}

#[test]
fn nothing_before_the_greeting() {
    let dir = Dir::new();
    let _server = serve(&dir);
    let mut raw = Raw::connect(&dir.at("a"));
    const EPROTO: i32 = 71;
    assert_eq!(raw.call(command::DEVICE_INFO, &[], &[]), Err(EPROTO));
    assert_eq!(raw.call(command::VERSION, &fields![1u16, 0u16], &[]), Err(EINVAL));
    let version = raw.call(command::VERSION, &fields![0u16, 0u16], &[]).unwrap();
    let text = std::str::from_utf8(&version[4..]).unwrap();
    assert_eq!(version[..4], [0; 4]);
    assert!(text.ends_with('\0') && text.contains("max_msg_fds"), "{text}");
}

#[test]
fn posted_writes_get_no_reply_whatever_becomes_of_them() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut raw = Raw::greet(&dir.at("a"));
    raw.set_command(2);
    raw.store(0, 0x10, &[0, 0, 0, 9]);
    raw.store(0, 1 << 40, &[0; 4]);
    raw.store(5, 0, &[0; 4]);
    assert_eq!(raw.be32(0x10), 9, "in order, and the replies still fit the requests");
    assert_eq!(notes(&server).matches("RegionWrite").count(), 2);
}

#[test]
fn a_message_in_crumbs() {
    let dir = Dir::new();
    let _server = serve(&dir);
    let mut raw = Raw::greet(&dir.at("a"));
    let mut message = fields![1u16 + 1, command::REGION_READ, 32u32, 0u32, 0u32];
    message.extend_from_slice(&fields![0u64, 7u32, 4u32]);
    for byte in &message {
        raw.stream.write_all(&[*byte]).unwrap();
    }
    let mut reply = [0; 36];
    raw.stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[32..], [0xb3, 0x15, 0x13, 0x10]);
}

#[test]
fn a_client_that_never_reads_is_left_alone_and_then_left() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut raw = Raw::greet(&dir.at("a"));
    raw.stream.set_nonblocking(true).unwrap();
    let mut message = fields![1u16, command::REGION_READ, 32u32, 0u32, 0u32];
    message.extend_from_slice(&fields![0u64, 0u32, 1u32 << 20]);
    // Each asks for a mebibyte; none is fetched. The server answers others meanwhile, and hangs up
    // in the end.
    until("it is hung up on", || {
        let gone = raw.stream.write_all(&message).is_err_and(|e| e.kind() != ErrorKind::WouldBlock);
        gone || server.with(0, |one| !one.has_client()).unwrap()
    });
    until("it is noted", || notes(&server).contains("does not fetch"));
    assert!(Raw::greet(&dir.at("a")).read(7, 0, 4).is_ok());
}

#[test]
fn frames_come_in_by_the_uplink_and_its_peer_need_not_be_there() {
    let dir = Dir::new();
    let settings = Settings {
        link: Link::Datagram { local: dir.at("l"), remote: dir.at("r") },
        pcap: Some(dir.at("pcap")),
        ..Settings::with_device(&quick(), [dir.at("a"), dir.at("b")])
    };
    let server = Server::start(settings).unwrap();
    let peer = UnixDatagram::unbound().unwrap();
    let mut frame = [0x5a; 60];
    frame[..6].fill(0xff);
    frame[6] = 2;
    for _ in 0..3 {
        peer.send_to(&frame, dir.at("l")).unwrap();
    }
    for function in 0..2 {
        until("the frames", || server.with(function, |one| one.stats().frames_in) == Some(3));
    }
    server.stop();
    let file = std::fs::read(dir.at("pcap")).unwrap();
    let mut reader = pcap_file::pcap::PcapReader::new(file.as_slice()).unwrap();
    let mut frames = 0;
    while let Some(packet) = reader.next_packet() {
        assert_eq!(packet.unwrap().data.as_ref(), frame);
        frames += 1;
    }
    assert_eq!(frames, 3);
}
