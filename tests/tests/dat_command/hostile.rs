//! Peers that are no `dat`: what they say is written here byte by byte, and none of it disturbs
//! anybody else.

use std::time::Duration;

use dat_core::{CompletionFlags, DtoStatus, Ep, EvdFlags, Event, PspFlag, RmrTriplet};

use crate::foreign::{ForeignPeer, listening};
use crate::golden;
use crate::stage::{Process, Stage};

const NONE: CompletionFlags = CompletionFlags::empty();
/// Where `dat listen` listens.
const PORT: u16 = 4711;
const SIZE: u32 = 64;
const COUNT: u64 = 10;

/// A hello: kind (1 ping, 2 send, 3 write, 4 read, 5 bind), depth 4 (a ping's is 1), 64 bytes, 10
/// operations, MTU 4096.
fn hello(kind: u8) -> Vec<u8> {
    let mut bytes = b"dat?\x01".to_vec();
    bytes.push(kind);
    bytes.extend(if kind == 1 { 1_u16 } else { 4 }.to_be_bytes());
    bytes.extend(SIZE.to_be_bytes());
    bytes.extend(COUNT.to_be_bytes());
    bytes.extend(7_u64.to_be_bytes());
    bytes.extend(4096_u16.to_be_bytes());
    bytes
}

/// The message "verify up to `number`", with a piece of memory.
fn verify(number: u64, addr: u64, key: u32, len: u32) -> Vec<u8> {
    message(2, number, addr, key, len)
}

/// A message: 1 verified, 2 verify, 3 wrong.
fn message(saying: u8, number: u64, addr: u64, key: u32, len: u32) -> Vec<u8> {
    let mut bytes = b"dat:".to_vec();
    bytes.extend([saying, 0, 0, 0]);
    bytes.extend(number.to_be_bytes());
    bytes.extend(addr.to_be_bytes());
    bytes.extend(key.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

/// Agrees on a test: the Endpoint, and the memory that may be reached.
fn agree(peer: &mut ForeignPeer<'_>, kind: u8) -> (Ep, RmrTriplet) {
    let (ep, event, private) = peer.call(PORT, &hello(kind));
    assert_eq!(event, Event::Established(ep));
    assert_eq!(private[..6], [b'd', b'a', b't', b'!', 1, kind]);
    let far = RmrTriplet {
        addr: u64::from_be_bytes(private[8..16].try_into().unwrap()),
        len: u64::from_be_bytes(private[16..24].try_into().unwrap()).try_into().unwrap(),
        context: u32::from_be_bytes(private[24..28].try_into().unwrap()),
    };
    (ep, far)
}

#[test]
fn another_program_is_refused_in_words() {
    let stage = Stage::of(3);
    let listener = stage.listen("");
    ForeignPeer::run(&stage, 2, |peer| {
        let mut version = hello(2);
        version[4] = 2;
        let mut shallow = hello(3);
        shallow[6..8].fill(0);
        let mut huge = hello(2);
        huge[8..12].fill(0xff);
        let mut eager = hello(1);
        eager[7] = 4;
        let mut tail = hello(2);
        tail.resize(56, 1);
        for (bytes, words) in [
            (&b""[..], "no dat test"),
            (b"GET / HTTP/1.1", "no dat test"),
            (&version, "another version"),
            (&hello(9), "no such kind"),
            (&shallow, "1 to 48 operations"),
            (&huge, "1 byte to 1M"),
            (&eager, "a ping has one message in flight"),
            (&tail, "behind the hello"),
        ] {
            let (ep, event, private) = peer.call(PORT, bytes);
            assert_eq!(event, Event::PeerRejected(ep), "{words}");
            assert_eq!(private[..5], *b"dat-\x01");
            let said = String::from_utf8_lossy(&private[5..]);
            assert!(said.contains(words), "{said}");
            golden::is_known(&format!("refusal: {}", said.trim_end_matches('\0')));
            peer.nic.ep_free(ep).unwrap();
        }
    });
    stage.client("ping", 1, "--count 10").well();
    listener.interrupt();
    let listener = listener.end().well();
    assert_eq!(listener.out.lines().count(), 1, "{}", listener.out);
}

#[test]
fn a_liar_fails_its_own_test_only() {
    let stage = Stage::of(3);
    let listener = stage.listen("");
    ForeignPeer::run(&stage, 2, |liar| {
        // A message of another length, and one with other contents: the answer says which.
        let (ep, _) = agree(liar, 2);
        liar.send(ep, b"short");
        liar.ends(ep);
        let (ep, _) = agree(liar, 2);
        liar.send(ep, &[0; SIZE as usize]);
        let Event::Dto(dto) = liar.event() else { panic!() };
        let mut words = [0; 16];
        liar.buffer.copy_out(4096 * usize::try_from(dto.cookie).unwrap(), &mut words);
        assert_eq!(words, *b"dat:\x03\0\0\0\0\0\0\0\0\0\0\0");
        liar.ends(ep);

        // Operations that were never done, too many of them, none; a message that makes no sense.
        for claim in [
            verify(4, 0, 0, 0),
            verify(11, 0, 0, 0),
            verify(0, 0, 0, 0),
            verify(u64::MAX, 0, 0, 0),
            vec![b'x'; 32],
        ] {
            let (ep, _) = agree(liar, 3);
            liar.send(ep, &claim);
            liar.ends(ep);
        }

        // A byte beyond the memory that may be written, and a write to what may only be read.
        for (kind, beyond) in [(3, 1), (4, 0)] {
            let (ep, far) = agree(liar, kind);
            let to = RmrTriplet {
                addr: far.addr + u64::from(far.len - SIZE) + beyond,
                len: SIZE,
                ..far
            };
            let segment = liar.segment(0, SIZE as usize);
            liar.nic.ep_post_rdma_write(ep, &segment, 1, &to, NONE).unwrap();
            let Event::Dto(dto) = liar.event() else { panic!() };
            assert_eq!(dto.status, DtoStatus::ErrRemoteAccess);
            liar.ends(ep);
        }

        // A window that is none, and one of another length.
        for (key, len) in [(0xdead_be00, SIZE), (liar.lmr.rmr_context, u32::MAX)] {
            let (ep, _) = agree(liar, 5);
            let addr = liar.lmr.region.addr;
            liar.send(ep, &verify(4, addr, key, len));
            liar.ends(ep);
        }
        // Somebody else is served meanwhile.
        let (ep, _) = agree(liar, 1);
        stage.client("perf", 1, "--count 50").well();
        liar.nic.ep_free(ep).unwrap();
    });
    listener.interrupt();
    let listener = listener.end().fails(1, &[]);
    let lines: Vec<&str> = listener.out.lines().collect();
    assert_eq!(lines.len(), 13, "{}", listener.out);
    for words in [
        "FAILED: message 0 has 5 bytes instead of 64",
        "FAILED: operation 0 has wrong contents from byte 0 on",
        "FAILED: the peer claims 11 operations of 10 after 0",
        "FAILED: the peer claims 0 operations of 10 after 0",
        "FAILED: the peer sent a malformed message",
        "FAILED: the connection broke",
        "FAILED: the peer's device refused its memory",
        "FAILED: the peer's window has 4294967295 bytes instead of 64",
        "192.168.7.2: write, 4096 bytes, 50 verified",
    ] {
        assert!(listener.out.contains(words), "{words}: {}", listener.out);
    }
}

#[test]
fn a_listener_at_its_limits_says_so() {
    let stage = Stage::of(3);
    let listener = stage.listen("");
    ForeignPeer::run(&stage, 2, |peer| {
        let eps: Vec<Ep> = (0..8).map(|_| agree(peer, 1).0).collect();
        stage.client("ping", 1, "").fails(
            1,
            &["192.168.7.1:4711 refused the test: too many tests are running; try again later"],
        );
        eps.into_iter().for_each(|ep| peer.part(ep));
    });
    listener.interrupt();
    listener.end().well();
    let listener = stage.listen("--count 1");
    ForeignPeer::run(&stage, 2, |peer| {
        let (ep, _) = agree(peer, 1);
        stage
            .client("ping", 1, "")
            .fails(1, &["192.168.7.1:4711 refused the test: the listener serves no more tests"]);
        peer.part(ep);
    });
    listener.end().well();
}

#[test]
fn a_client_that_wants_more_memory_than_it_has_gets_a_remedy() {
    let stage = Stage::new();
    let listener = stage.listen("");
    let more = "--kind send --size 1M --depth 4 --connections 8";
    stage.client("perf", 1, more).fails(
        1,
        &["there is no memory for 4194", " bytes of buffers", "help: give a smaller --size"],
    );
    listener.interrupt();
    listener.end().well();
}

/// A `dat listen`'s welcome to a test of one or four in flight, with this memory.
fn welcome(kind: u8, addr: u64, len: u64, key: u32) -> Vec<u8> {
    let mut bytes = b"dat!\x01".to_vec();
    bytes.push(kind);
    bytes.extend(if kind == 1 { 1_u16 } else { 4 }.to_be_bytes());
    bytes.extend(addr.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.extend(key.to_be_bytes());
    bytes
}

#[test]
fn a_listener_need_not_be_dat() {
    let stage = Stage::new();
    let run = listening(
        &stage,
        PORT.into(),
        |peer, cr| {
            peer.nic.cr_reject(cr, b"go away").unwrap();
            // The rejection goes out when the adapter is driven.
            peer.idle(Duration::from_millis(200));
        },
        || stage.client("ping", 1, ""),
    );
    run.fails(1, &["refused the connection, and it is no dat listen", "help:"]);
    let perf = "--size 64 --depth 4 --count 100 --kind";
    let (zeros, short) = (vec![0; SIZE as usize], b"short".to_vec());
    let wrong = message(3, 3, 7, 0, 0);
    let early = message(1, 99, 0, 0, 0);
    let open = |kind, pieces: u64, peer: &ForeignPeer<'_>| {
        welcome(kind, peer.lmr.region.addr, pieces * u64::from(SIZE), peer.lmr.rmr_context)
    };
    type Welcome<'a> = &'a (dyn Fn(&ForeignPeer<'_>) -> Vec<u8> + Sync);
    let cases: [(&str, Welcome<'_>, &[u8], &[&str]); 8] = [
        (
            "ping",
            &|_| b"220 mail.example.org".to_vec(),
            &zeros,
            &["is no dat listen of this version", "help:"],
        ),
        // Nothing like an answer behind a welcome, and one of another length.
        ("ping", &|_| welcome(1, 0, 0, 0), &zeros, &["answer 0 has wrong contents from byte 0 on"]),
        ("ping", &|_| welcome(1, 0, 0, 0), &short, &["answer 0 has 5 bytes instead of 64"]),
        ("send", &|_| welcome(2, 0, 0, 0), &zeros, &["the peer sent a malformed message"]),
        (
            "send",
            &|_| welcome(2, 0, 0, 0),
            &wrong,
            &["the peer found operation 3 with wrong contents from byte 7 on"],
        ),
        (
            "send",
            &|_| welcome(2, 0, 0, 0),
            &early,
            &["the peer claims to have verified 99 operations of 4 posted"],
        ),
        // Memory with other contents, and a key of none.
        ("read", &|peer| open(4, 5, peer), b"", &["read 0 has wrong contents from byte 0 on"]),
        (
            "write",
            &|peer| welcome(3, peer.lmr.region.addr, 512, 0xdead_be00),
            b"",
            &["192.168.7.1:4711 failed: the peer's device refused its memory", "help:"],
        ),
    ];
    for (test, welcome, answer, words) in cases {
        let run = listening(
            &stage,
            PORT.into(),
            |peer, cr| {
                let ep = peer.endpoint();
                let private = welcome(peer);
                peer.nic.cr_accept(cr, Some(ep), &private).unwrap();
                while !peer.event().is_terminal() {
                    // The answer to anything is the same.
                    if !answer.is_empty() {
                        peer.buffer.copy_in(60 << 10, answer);
                        let segment = peer.segment(60 << 10, answer.len());
                        let _ = peer.nic.ep_post_send(ep, &segment, 5, NONE);
                    }
                }
            },
            || match test {
                "ping" => stage.client("ping", 1, "--count 10"),
                kind => stage.client("perf", 1, &format!("{perf} {kind}")),
            },
        );
        run.fails(1, words);
    }
}

/// A listener whose queue of requests is full, because it takes none.
#[test]
fn a_listener_without_room_for_a_request_is_named() {
    let stage = Stage::of(3);
    ForeignPeer::run(&stage, 0, |peer| {
        let requests = peer.nic.evd_create(1, EvdFlags::CR).unwrap();
        for port in [u64::from(PORT), 7174] {
            peer.nic.psp_create(port, requests, PspFlag::Consumer).unwrap();
        }
        let more = "192.168.7.1 --ip 192.168.7.2/24 -v";
        let mut first = Process::start(stage.command("ping", 1, more));
        first.wait_for("connecting to");
        peer.idle(Duration::from_millis(500));
        for (command, more, help) in [
            ("ping", "192.168.7.1", "its output may say why; try again later"),
            ("compat rping", "--client 192.168.7.1", "the peer's output and its kernel log may"),
        ] {
            let more = format!("{more} --ip 192.168.7.3/24");
            let second = Process::start(stage.command(command, 2, &more));
            peer.idle(Duration::from_millis(1000));
            second.end().fails(
                1,
                &["192.168.7.1:", " rejected the connection: no resources available", help],
            );
        }
        first.interrupt();
        first.end().fails(1, &["interrupted while connecting"]);
    });
}

/// A client of `compat rping` that is none: what it says first, and how it goes on.
#[test]
fn an_rping_client_need_not_be_rping() {
    let stage = Stage::new();
    // rping's announcement: address, key, length.
    let announcement = |peer: &ForeignPeer<'_>, len: u32| {
        let mut bytes = peer.lmr.region.addr.to_be_bytes().to_vec();
        bytes.extend(peer.lmr.rmr_context.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes
    };
    type Act<'a> = &'a dyn Fn(&mut ForeignPeer<'_>, Ep);
    let cases: [(&str, Act<'_>, &str, &str); 5] = [
        (
            "",
            &|peer, ep| peer.send(ep, b"short"),
            "192.168.7.2 sent 5 bytes; rping's messages have 16",
            "help: is it rping?",
        ),
        (
            "",
            &|peer, ep| peer.send(ep, &announcement(peer, 0)),
            "192.168.7.2 announced 0 bytes; a ping has 1 to 65535",
            "help: is it rping?",
        ),
        (
            "",
            &|peer, ep| {
                // Both under one doorbell: the second comes while the server reads.
                let bytes = announcement(peer, 60000);
                peer.buffer.copy_in(60 << 10, &bytes);
                let segment = peer.segment(60 << 10, bytes.len());
                for flags in [CompletionFlags::DEFER, NONE] {
                    peer.nic.ep_post_send(ep, &segment, 99, flags).unwrap();
                }
            },
            "192.168.7.2 spoke out of turn",
            "help: is it rping?",
        ),
        (
            "-V",
            &|peer, ep| peer.send(ep, &announcement(peer, 64)),
            "ping 0: what was read is wrong from byte 0 on",
            "help: the peer wrote other contents, or one of the two adapters",
        ),
        (
            "",
            &|peer, ep| {
                peer.send(ep, &announcement(peer, 64));
                // The word to go on.
                assert!(matches!(peer.event(), Event::Dto(_)));
                peer.nic.ep_disconnect(ep, dat_core::CloseFlag::Graceful).unwrap();
            },
            "192.168.7.2 ended the connection in mid-ping",
            "help: its output says why",
        ),
    ];
    for (more, act, cause, help) in cases {
        let server = crate::compat::serve(&stage, "rping", more);
        ForeignPeer::run(&stage, 1, |peer| {
            let (ep, event, _) = peer.call(7174, b"");
            assert_eq!(event, Event::Established(ep));
            act(peer, ep);
            peer.ends(ep);
        });
        server.end().fails(1, &[cause, help]);
    }
}
