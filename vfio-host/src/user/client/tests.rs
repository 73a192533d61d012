use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::thread;

use super::*;

const LIMIT: Duration = Duration::from_millis(300);

/// Starts a server for one client. `answer` makes the whole reply from the request's number and
/// command; an empty reply is not sent.
fn server(answer: impl Fn(u16, u16) -> Vec<u8> + Send + 'static) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut header = [0; HEADER];
        while stream.read_exact(&mut header).is_ok() {
            let mut body = vec![0; word(&header, 1) as usize - HEADER];
            stream.read_exact(&mut body).unwrap();
            let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
            let reply = answer(half(0), half(2));
            if word(&header, 2) == 0 && stream.write_all(&reply).is_err() {
                break;
            }
        }
    });
    (folder, path)
}

fn reply(id: u16, flags: u32, error: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = request(id, Command::Version, false, &[body]);
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&error.to_ne_bytes());
    bytes
}

const VERSION: u16 = Command::Version as u16;

fn greeting(id: u16) -> Vec<u8> {
    reply(id, 1, 0, b"\0\0\x01\0{}\0")
}

fn connected(answer: impl Fn(u16) -> Vec<u8> + Send + 'static) -> (tempfile::TempDir, Client) {
    let (folder, path) = server(move |id, command| match command {
        VERSION => greeting(id),
        _ => answer(id),
    });
    let client = Client::connect(&path, LIMIT).unwrap();
    (folder, client)
}

/// A client behind its greeting, and the server's end.
fn raw() -> (UnixStream, Client) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let server = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let _ = stream.read(&mut [0; 512]).unwrap();
        stream.write_all(&greeting(0)).unwrap();
        stream
    });
    let client = Client::connect(&path, LIMIT).unwrap();
    (server.join().unwrap(), client)
}

/// Returns the result of a read, and whether the connection has ended.
fn read(client: &mut Client) -> (Result<[u8; 4], Error>, bool) {
    let mut bytes = [0; 4];
    let result = client.read(0, 0, &mut bytes).map(|()| bytes);
    (result, client.ended().is_some())
}

fn data(bytes: &[u8]) -> Vec<u8> {
    let mut body = vec![0; 16];
    body.extend(bytes);
    body
}

#[test]
fn a_server_without_replies_times_out() {
    let (_folder, mut client) = connected(|_| Vec::new());
    let start = Instant::now();
    let (result, ended) = read(&mut client);
    assert!(start.elapsed() < Duration::from_secs(3));
    let text = result.unwrap_err().to_string();
    assert!(ended && text.contains("did not answer REGION_READ"), "{text}");
    // Permanently.
    assert_eq!(read(&mut client).0.unwrap_err().to_string(), text);
}

#[test]
fn a_refusal_keeps_the_connection() {
    let (_folder, mut client) = connected(|id| reply(id, 0x21, 22, &[]));
    let (result, ended) = read(&mut client);
    let error = result.unwrap_err();
    assert!(!ended && error.kind() == Kind::Refused, "{error}");
    assert!(error.to_string().contains("refused REGION_READ: Invalid argument"), "{error}");
}

#[test]
fn an_error_reply_to_a_posted_write_is_skipped() {
    let (_folder, mut client) = connected(|id| {
        let mut bytes = reply(id.wrapping_sub(1), 0x21, 22, &[]);
        bytes.extend(reply(id, 1, 0, &data(&[1, 2, 3, 4])));
        bytes
    });
    for _ in 0..2 {
        client.write(0, 0, &[0; 4], true).unwrap();
        assert_eq!(read(&mut client), (Ok([1, 2, 3, 4]), false));
    }
    // None was posted since the last reply.
    let (result, ended) = read(&mut client);
    assert!(ended && result.unwrap_err().to_string().contains("not made"));
}

#[test]
fn each_posted_write_may_be_refused_once() {
    for (writes, refusals, keeps) in [(5, 5, true), (5, 6, false), (0, 1, false), (1, 2, false)] {
        let (_folder, mut client) = connected(move |id| {
            let earlier = (1..=refusals).rev().map(|n: u16| id.wrapping_sub(n));
            let mut bytes: Vec<u8> = earlier.flat_map(|id| reply(id, 0x21, 22, &[])).collect();
            bytes.extend(reply(id, 1, 0, &data(&[1; 4])));
            bytes
        });
        for _ in 0..writes {
            client.write(0, 0, &[0; 4], true).unwrap();
        }
        assert_eq!(read(&mut client).1, !keeps, "{writes} writes, {refusals} refusals");
        assert_eq!(client.refused_writes(), if keeps { refusals.into() } else { 0 });
    }
}

/// Whatever comes in small pieces: the limit is for all of it.
#[test]
fn a_reply_byte_by_byte_times_out() {
    let (mut stream, mut client) = raw();
    thread::spawn(move || {
        while stream.write_all(&[1]).is_ok() {
            thread::sleep(LIMIT / 10);
        }
    });
    let start = Instant::now();
    let error = client.reset().unwrap_err();
    assert!(error.to_string().contains("did not answer"), "{error}");
    assert!((LIMIT..LIMIT * 3).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[test]
fn a_server_that_reads_nothing_times_out() {
    let (_stream, mut client) = raw();
    let start = Instant::now();
    let error = (0..100_000).find_map(|_| client.write(0, 0, &[0; 4096], true).err()).unwrap();
    assert!(error.to_string().contains("did not answer REGION_WRITE"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(3));
}

/// Only the description of a region may come with files, which nobody takes.
#[test]
fn file_descriptors_of_the_server_are_refused() {
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    for known in [true, false] {
        let (stream, mut client) = raw();
        let id = client.next;
        let body = if known { vec![0; 32] } else { data(&[0; 4]) };
        send_all(&stream, &reply(id, 1, 0, &body), Some(stream.as_fd()), client.deadline())
            .unwrap();
        let before = open();
        let error = if known { client.region_len(0).err() } else { read(&mut client).0.err() };
        // Other tests of this program open and close some meanwhile.
        assert!(open() <= before + 20);
        assert_eq!(error.is_none(), known);
        if let Some(error) = error {
            assert!(error.to_string().contains("REGION_READ with file descriptors"), "{error}");
        }
    }
}

#[test]
fn limits_beyond_the_bounds_are_those() {
    for (limit, is) in [(Duration::ZERO, PATIENCE[0]), (Duration::MAX, PATIENCE[1])] {
        let (_folder, path) = server(|id, _| greeting(id));
        match Client::connect(&path, limit) {
            Ok(client) => assert_eq!(client.patience, is),
            Err(error) => assert_eq!((error.kind(), is), (Kind::Gone, PATIENCE[0])),
        }
    }
}

#[test]
fn malformed_replies_end_the_connection() {
    type Answer = fn(u16) -> Vec<u8>;
    let answers: [(Answer, &str); 6] = [
        (|_| vec![0xff; 16], "no reply"),
        (|id| reply(id, 0, 0, &data(&[0; 4])), "no reply"),
        (|id| reply(id.wrapping_add(1), 1, 0, &data(&[0; 4])), "not made"),
        (|id| reply(id, 1, 0, &data(&[0; 3])), "wrong number"),
        (|id| reply(id, 1, 0, &[]), "wrong number"),
        // Cut off.
        (|id| reply(id, 1, 0, &data(&[0; 4]))[..20].to_vec(), "did not answer"),
    ];
    for (answer, cause) in answers {
        let (_folder, mut client) = connected(answer);
        let (result, ended) = read(&mut client);
        let error = result.unwrap_err();
        assert!(ended && error.kind() == Kind::Gone, "{error}");
        assert!(error.to_string().contains(cause), "{error}");
    }
}

#[test]
fn another_version_is_refused() {
    let (_folder, path) = server(|id, _| reply(id, 1, 0, b"\x01\0\0\0{}\0"));
    let error = Client::connect(&path, LIMIT).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported, "{error}");
    let (_folder, path) = server(|id, _| reply(id, 1, 0, b""));
    assert_eq!(Client::connect(&path, LIMIT).unwrap_err().kind(), Kind::Gone);
}

#[test]
fn a_server_that_accepts_no_connection_times_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = socket.unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    // The backlog holds this many; the next connection has to wait.
    let _first = UnixStream::connect(&path).unwrap();
    let start = Instant::now();
    let error = Client::connect(&path, Duration::from_millis(200)).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(3));
    assert_eq!(error.kind(), Kind::Busy, "{error}");
}

#[test]
fn a_server_without_space_for_a_mapping_is_named() {
    let (_folder, mut client) = connected(|id| reply(id, 0x21, 28, &[]));
    let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let error = client.dma_map(3, file.as_fd(), 0, 0x1000, 0x1000).unwrap_err();
    assert_eq!(error.kind(), Kind::DmaEntries);
}
