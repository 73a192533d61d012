use super::*;
use proptest::prelude::*;

const SEND: Hello = Hello {
    kind: Kind::Send,
    depth: 16,
    size: 4096,
    count: 1000,
    seed: 0x0123_4567_89ab_cdef,
    mtu: 4096,
};

#[test]
fn a_padded_hello_is_decoded() {
    let mut bytes = SEND.bytes().to_vec();
    assert_eq!(Hello::read(&bytes), Ok(SEND));
    bytes.resize(56, 0);
    assert_eq!(Hello::read(&bytes), Ok(SEND));
    assert_eq!(bytes[..12], *b"dat?\x01\x02\x00\x10\x00\x00\x10\x00");
}

#[test]
fn every_truncation_and_every_foreign_byte_is_refused() {
    let bytes = SEND.bytes();
    for len in 0..bytes.len() {
        assert!(Hello::read(&bytes[..len]).is_err(), "{len}");
    }
    // Magic, version, kind; and the padding.
    for at in (0..6).chain(30..56) {
        let mut bytes = bytes.to_vec();
        bytes.resize(56, 0);
        bytes[at] ^= 0x80;
        assert!(Hello::read(&bytes).is_err(), "{at}");
    }
}

#[test]
fn requests_have_limits() {
    let refused = |change: fn(&mut Hello), word: &str| {
        let mut hello = SEND;
        change(&mut hello);
        let said = Hello::read(&hello.bytes()).unwrap_err();
        assert!(said.contains(word), "{said}");
        assert!(said.len() <= WORDS);
    };
    refused(|h| h.size = 0, "1 byte to 1M");
    refused(|h| h.size = MOST_SIZE + 1, "1 byte to 1M");
    refused(|h| h.size = u32::MAX, "1 byte to 1M");
    refused(|h| h.depth = 0, "1 to 48");
    refused(|h| h.depth = u16::MAX, "1 to 48");
    refused(|h| h.kind = Kind::Ping, "one message in flight");
    refused(|h| h.size = MOST_SIZE, "too much");
    for kind in Kind::ALL {
        let endless = Hello { kind, depth: 1, count: 0, ..SEND };
        assert_eq!(Hello::read(&endless.bytes()), Ok(endless));
    }
}

#[test]
fn pieces_do_not_overlap_and_lie_inside() {
    for kind in Kind::ALL {
        for (depth, size) in [(1, 1), (1, 65), (48, 4096), (7, 100_000)] {
            let depth = if kind == Kind::Ping { 1 } else { depth };
            let hello = Hello { kind, depth, size, ..SEND };
            assert_eq!(hello.check(), Ok(()));
            for layout in [hello.server(), hello.client()] {
                let Layout { recv, landing, data, notes, far } = layout;
                assert_eq!((recv.at, data.at, far.at), (0, 0, 0));
                assert_eq!((landing.at, notes.at), (recv.end(), data.end()));
                assert_eq!(layout.total(), landing.end() + notes.end() + far.end());
                for pieces in [recv, landing, data, notes, far] {
                    let count = pieces.count as u64;
                    assert!(count == 0 || pieces.stride >= 64);
                    for n in 0..3 * count {
                        let at = pieces.of(n);
                        assert!(at >= pieces.at && at + pieces.stride <= pieces.end());
                        assert_eq!(at, pieces.of(n + count));
                    }
                }
            }
        }
    }
}

#[test]
fn a_welcome_answers_one_hello() {
    let hello = Hello { kind: Kind::Write, ..SEND };
    let welcome = Welcome { addr: 0x7f00_0000_0000, len: 32 * 4096, context: 0xabcd };
    let mut bytes = welcome.bytes(&hello).to_vec();
    bytes.resize(196, 0);
    assert_eq!(Welcome::read(&bytes, &hello), Some(welcome));
    for other in [Hello { depth: 8, ..hello }, Hello { kind: Kind::Read, ..hello }] {
        assert_eq!(Welcome::read(&bytes, &other), None);
    }
    for at in [0, 4, 5, 7, 20, 28, 195] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        assert_eq!(Welcome::read(&bytes, &hello), None, "{at}");
    }
    let wrapping = Welcome { addr: u64::MAX, ..welcome };
    assert_eq!(Welcome::read(&wrapping.bytes(&hello), &hello), None);
}

#[test]
fn a_refusal_contains_its_text_only() {
    let mut bytes = refusal("no room");
    bytes.resize(148, 0);
    assert_eq!(refusal_words(&bytes).as_deref(), Some("no room"));
    assert!(refusal(&"x".repeat(1000)).len() <= 148);
    let rude = refusal("a\x1b[31mb\u{7}\u{fc}c");
    assert_eq!(refusal_words(&rude).as_deref(), Some("a[31mbc"));
    for none in [&b""[..], b"dat-", b"dat-\x01", b"dat-\x01\0words", b"dat?\x01words"] {
        assert_eq!(refusal_words(none), None);
    }
}

#[test]
fn a_message_has_one_length() {
    let message = Message { addr: 1 << 40, context: 7, len: 9, ..Message::new(Saying::Verify, 12) };
    let bytes = message.bytes();
    assert_eq!(Message::read(&bytes), Some(message));
    assert_eq!(Message::read(&bytes[..31]), None);
    assert_eq!(Message::read(&[&bytes[..], &[0]].concat()), None);
    for at in 0..8 {
        let mut bytes = bytes;
        bytes[at] ^= 0x40;
        assert_eq!(Message::read(&bytes), None, "{at}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64), like in any::<bool>()) {
        let mut bytes = bytes;
        if like {
            for (place, byte) in bytes.iter_mut().zip(*b"dat?\x01") {
                *place = byte;
            }
        }
        if let Ok(hello) = Hello::read(&bytes) {
            prop_assert_eq!(hello.check(), Ok(()));
            prop_assert!(hello.server().total() <= MOST_MEMORY);
        }
        let _ = (Welcome::read(&bytes, &SEND), Message::read(&bytes), refusal_words(&bytes));
    }
}
