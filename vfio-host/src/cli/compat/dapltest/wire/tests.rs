//! Bytes as dapltest 2.1.10 has sent them, over a network on which this stack was the server: words
//! of each message that are not zero, by their places.

use super::*;

type Words = &'static [(usize, &'static str)];

fn message(words: Words) -> Vec<u8> {
    let mut bytes = vec![0; CONTROL];
    for (at, hex) in words {
        let digits = hex.as_bytes().chunks(2);
        for (byte, digits) in bytes[*at..].iter_mut().zip(digits) {
            *byte = u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap();
        }
    }
    bytes
}

/// `-s 192.168.9.3 -D ia9`.
const LABELS: Labels<'static> = Labels { server: "192.168.9.3", adapter: "ia9", port: 62000 };

/// `-T T -i 7 -t 2 -w 3 -V -P -r -d client RW 4096 2 server RR 2048 4 client SR 1024 3 -f server SR
/// 256 3 -f`.
const TRANSACTION: Words = &[
    (0, "06000000010000003139322e3136382e392e3300"),
    (264, "070000000200000003000000"),
    (280, "0100000001000000010000000100000030f20000"),
    (304, "69613900"),
    (564, "07000000"),
    (572, "010000000200000000100000"),
    (588, "01000000"),
    (596, "0400000000080000"),
    (
        612,
        "02000000030000000004000001000000010000000200000003000000000100000100000001000000020000000100000000100000",
    ),
    (672, "020000000100000000100000"),
    (688, "01000000020000000100000000100000"),
];

/// `-T P -i 100 -p 16 -m p RR 32768 3`.
const PERFORMANCE: Words = &[
    (0, "06000000010000003139322e3136382e392e3300"),
    (264, "69613900"),
    (528, "010000006400000010000000"),
    (544, "0080000003000000"),
    (556, "30f20000"),
];

/// `-T Q`.
const QUIT: Words = &[(0, "3139322e3136382e392e3300"), (256, "69613900"), (520, "30f20000")];

fn op(by_server: bool, transfer: Transfer, size: u32, segments: u32, deferred: bool) -> Op {
    Op { by_server, transfer, segments, size, deferred }
}

#[test]
fn who_a_client_is() {
    for (words, kind, connections) in [
        ("06000000010000000100000006000000", Kind::Transaction, 6),
        ("06000000010000000200000001000000", Kind::Performance, 1),
        ("06000000010000000400000000000000", Kind::Quit, 0),
    ] {
        let bytes = message(vec![(0, words)].leak());
        let info = ClientInfo::new(kind, connections);
        assert_eq!(ClientInfo::read(&bytes), Ok(info));
        assert_eq!(info.bytes(), bytes);
    }
}

#[test]
fn a_server_s_answer() {
    let bytes = message(&[(0, "060000000100000031f20000")]);
    let answer = ServerInfo { order: Order::Little, first_port: 62001 };
    assert_eq!(ServerInfo::read(&bytes), Ok(answer));
    assert_eq!(answer.bytes(), bytes);
}

#[test]
fn commands_of_the_tool() {
    let bytes = message(TRANSACTION);
    let command = Transaction {
        iterations: 7,
        threads: 2,
        eps: 3,
        rsp: true,
        debug: true,
        validate: true,
        poll: true,
        ops: vec![
            op(false, Transfer::Write, 4096, 2, false),
            op(true, Transfer::Read, 2048, 4, false),
            op(false, Transfer::Send, 1024, 3, true),
            op(true, Transfer::Send, 256, 3, true),
            op(true, Transfer::Send, 4096, 1, false),
            op(false, Transfer::Send, 4096, 1, false),
            op(true, Transfer::Send, 4096, 1, false),
        ],
    };
    assert_eq!(Transaction::read(&bytes), Ok(command.clone()));
    assert_eq!(command.bytes(LABELS), bytes);

    let bytes = message(PERFORMANCE);
    let command = Performance {
        debug: false,
        poll: true,
        iterations: 100,
        pipeline: 16,
        transfer: Transfer::Read,
        size: 32768,
        segments: 3,
    };
    assert_eq!(Performance::read(&bytes), Ok(command));
    assert_eq!(command.bytes(LABELS), bytes);
    assert_eq!(quit(LABELS, false), message(QUIT));
}

#[test]
fn what_no_tool_says() {
    let other = |at: usize, byte: u8| {
        let mut bytes = message(TRANSACTION);
        bytes[at] = byte;
        Transaction::read(&bytes).map_err(|failure| failure.cause)
    };
    assert!(other(0, 5).unwrap_err().contains("version 5"));
    assert!(other(564, 101).unwrap_err().contains("101 operations"));
    assert!(other(572, 3).unwrap_err().contains("kind 3"));
    assert!(ClientInfo::read(&message(&[(0, "060000000100000003000000")])).is_err());
    assert!(ClientInfo::read(&[]).is_err());
    assert!(Transaction::read(&[6, 0, 0, 0]).is_ok_and(|it| it.ops.is_empty()));
    // A name that does not fit is cut, and ends in its place.
    let long = "x".repeat(300);
    let labels = Labels { server: &long, ..LABELS };
    let bytes = quit(labels, true);
    assert_eq!((bytes[254], bytes[255], bytes[256]), (b'x', 0, b'i'));
}

#[test]
fn memory_is_told_in_either_order() {
    let far = Far { key: 0x0102_0304, addr: 0x1122_3344_5566_7788 };
    let little = [4, 3, 2, 1, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11];
    let big = [1, 2, 3, 4, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];
    for (order, bytes) in [(Order::Little, little), (Order::Big, big)] {
        assert_eq!(far.bytes(order), bytes);
        assert_eq!(Far::read(bytes, order), far);
    }
    let bytes = message(&[(0, "060000000000000031f20000")]);
    let answer = ServerInfo::read(&bytes).unwrap();
    assert_eq!(answer.order, Order::Big);
}
