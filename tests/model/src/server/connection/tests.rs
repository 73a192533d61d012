use super::*;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::IoSlice;

/// A connection and its client.
fn pair() -> (Connection, UnixStream) {
    let (server, client) = UnixStream::pair().unwrap();
    (Connection::new(server).unwrap(), client)
}

/// A message with a number in its body, `length` bytes in all.
fn message(number: u8, length: usize) -> Vec<u8> {
    let mut bytes = vec![number; length];
    bytes[..HEADER].fill(0);
    bytes[4..8].copy_from_slice(&(length as u32).to_le_bytes());
    bytes
}

fn send(client: &UnixStream, bytes: &[u8], fds: usize) {
    let fds = vec![client.as_fd(); fds];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    }
    let sent =
        rustix::net::sendmsg(client, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(bytes.len()));
}

/// Numbers and descriptors of the messages that have been read.
fn taken(connection: &mut Connection) -> Vec<(u8, usize)> {
    let next = || connection.take().unwrap();
    std::iter::from_fn(next).map(|(_, body, fds)| (body[0], fds.len())).collect()
}

#[test]
fn one_read_takes_all_doorbells_that_wait() {
    let (mut connection, client) = pair();
    for number in 0..60 {
        send(&client, &message(number, 40), 0);
    }
    assert_eq!(connection.fill(), Filled::Empty);
    let all: Vec<_> = (0..60).map(|number| (number, 0)).collect();
    assert_eq!(taken(&mut connection), all);
    assert_eq!(connection.fill(), Filled::Empty);
}

#[test]
fn descriptors_belong_to_the_message_that_they_came_with() {
    let (mut connection, client) = pair();
    for (number, fds) in [(1, 0), (2, 1), (3, 0), (4, 2), (5, 0)] {
        send(&client, &message(number, 40), fds);
    }
    let mut all = Vec::new();
    for filled in [Filled::More, Filled::More, Filled::Empty] {
        assert_eq!(connection.fill(), filled);
        all.extend(taken(&mut connection));
    }
    assert_eq!(all, [(1, 0), (2, 1), (3, 0), (4, 2), (5, 0)]);

    // With its header, with its body, and with both.
    for fds in [[1, 0], [0, 1], [1, 1]] {
        let bytes = message(6, 40);
        send(&client, &message(5, 40), 0);
        for (part, fds) in bytes.chunks(HEADER + 8).zip(fds) {
            send(&client, part, fds);
        }
        send(&client, &message(7, 40), 0);
        let mut all = Vec::new();
        for _ in 0..4 {
            connection.fill();
            all.extend(taken(&mut connection));
        }
        assert_eq!(all, [(5, 0), (6, fds.iter().sum()), (7, 0)]);
    }
}

#[test]
fn a_message_comes_in_pieces_and_longer_than_a_read() {
    let (mut connection, client) = pair();
    let bytes = [message(1, 40), message(2, 3 * AHEAD), message(3, HEADER + 1)].concat();
    let mut all = Vec::new();
    for piece in bytes.chunks(7) {
        send(&client, piece, 0);
        connection.fill();
        all.extend(taken(&mut connection));
    }
    assert_eq!(all, [(1, 0), (2, 0), (3, 0)]);
    send(&client, &bytes, 0);
    drop(client);
    let mut last = Filled::More;
    let mut all = Vec::new();
    for _ in 0..8 {
        last = connection.fill();
        all.extend(taken(&mut connection));
    }
    assert_eq!((all.len(), last), (3, Filled::End("hung up")));
}

#[test]
fn an_impossible_length_and_a_hoard_of_descriptors_end_the_connection() {
    let (mut connection, client) = pair();
    send(&client, &[0; HEADER], 0);
    connection.fill();
    assert!(connection.take().is_err());

    let (mut connection, client) = pair();
    send(&client, &message(1, 40)[..20], MOST_FDS);
    send(&client, &[1], MOST_FDS);
    send(&client, &[1], 1);
    let filled = [(); 3].map(|()| connection.fill());
    assert_eq!(filled, [Filled::More, Filled::More, Filled::End("sent too many descriptors")]);

    let (mut connection, client) = pair();
    send(&client, &[message(1, 40), message(2, 40)].concat(), 0);
    connection.fill();
    connection.send(&vec![0; MOST_UNSENT + (1 << 20)]);
    assert!(connection.take().is_err(), "replies that nobody fetches");
}
