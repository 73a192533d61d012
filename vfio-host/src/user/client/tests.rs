use std::io::Write;
use std::os::unix::net::UnixListener;
use std::thread;

use super::*;

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
    let client = Client::connect_within(&path, Duration::from_millis(300)).unwrap();
    (folder, client)
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
    client.write(0, 0, &[0; 4], true).unwrap();
    assert_eq!(read(&mut client), (Ok([1, 2, 3, 4]), false));
    assert_eq!(read(&mut client), (Ok([1, 2, 3, 4]), false));
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
    let error = Client::connect(&path).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported, "{error}");
    let (_folder, path) = server(|id, _| reply(id, 1, 0, b""));
    assert_eq!(Client::connect(&path).unwrap_err().kind(), Kind::Gone);
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
    let error = Client::connect_within(&path, Duration::from_millis(200)).unwrap_err();
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
