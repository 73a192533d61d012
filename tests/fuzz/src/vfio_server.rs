//! Messages of a vfio-user client into the model's server: requests of every kind, with
//! descriptors, cut short, and any bytes. The server answers or hangs up; then it takes the next.

use std::cell::RefCell;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use arbitrary::{Arbitrary, Unstructured};
use mlx5_model::Config;
use mlx5_model::server::Function;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::input::{Patch, patch, steps};

/// Bytes of a message's header.
const HEADER: usize = 16;
/// Bytes of the memory that is mapped.
const MEMORY: u64 = 1 << 16;

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    Map {
        flags: u8,
        offset: u8,
        iova: u8,
        pages: u8,
        file: u8,
    },
    Unmap {
        flags: u8,
        iova: u8,
        pages: u8,
    },
    Info {
        command: u8,
        index: u8,
    },
    Irqs {
        flags: u8,
        index: u8,
        start: u8,
        count: u8,
        files: u8,
        data: u8,
    },
    Read {
        region: u8,
        offset: u16,
        count: u16,
    },
    Write {
        region: u8,
        offset: u16,
        bytes: [u8; 8],
        len: u8,
    },
    Reset,
    /// A request whose header and fields are these.
    Other {
        command: u8,
        flags: u8,
        fields: [u32; 6],
        patches: [Option<Patch>; 2],
        files: u8,
    },
    Any(&'a [u8]),
}

thread_local! {
    /// Made once: it is as at power-on whenever a client has gone.
    static FUNCTION: RefCell<Option<Function>> = const { RefCell::new(None) };
    static FILES: [OwnedFd; 2] = files();
}

fn files() -> [OwnedFd; 2] {
    let memory = memfd_create("fuzz", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&memory, MEMORY).unwrap();
    let events = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    [memory, events]
}

fn function() -> Function {
    let name = format!("dat-fuzz-{}-{:?}", std::process::id(), std::thread::current().id());
    let socket = std::env::temp_dir().join(name);
    Function::alone(socket, Config::default()).unwrap()
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let (client, server) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    client.set_nonblocking(true).unwrap();
    request(&client, 1, 0, &[0, 0], &[], 0);
    for step in steps(&mut Unstructured::new(data), 64) {
        make(&client, step);
    }
    client.shutdown(Shutdown::Write).unwrap();
    FUNCTION.with_borrow_mut(|function| {
        let function = function.get_or_insert_with(self::function);
        function.converse(server, (1..=20).map(|n| n * 100_000));
        assert!(!function.has_client(), "it does not see that the client has gone");
        assert!(function.maps().is_empty(), "mappings of a client that has gone");
    });
    let mut replies = Vec::new();
    let _ = (&client).read_to_end(&mut replies);
}

fn make(client: &UnixStream, step: Step<'_>) {
    let page = |n: u8| u32::from(n) << 12;
    match step {
        Step::Map { flags, offset, iova, pages, file } => {
            let fields = [32, flags.into(), page(offset), 0, page(iova), 0, page(pages), 0];
            request(client, 2, 0, &fields, &[], file % 4);
        }
        Step::Unmap { flags, iova, pages } => {
            request(client, 3, 0, &[24, flags.into(), page(iova), 0, page(pages), 0], &[], 0);
        }
        Step::Info { command, index } => {
            let command = [4, 5, 7][usize::from(command) % 3];
            request(client, command, 0, &[32, 0, index.into(), 0, 0, 0, 0, 0], &[], 0);
        }
        Step::Irqs { flags, index, start, count, files, data } => {
            let fields = [20, flags.into(), index.into(), start.into(), count.into()];
            request(client, 8, 0, &fields, &[data; 4], files % 4);
        }
        Step::Read { region, offset, count } => {
            let fields = [offset.into(), 0, region.into(), count.into()];
            request(client, 9, 0, &fields, &[], 0);
        }
        Step::Write { region, offset, bytes, len } => {
            let bytes = &bytes[..usize::from(len) % 9];
            let fields = [offset.into(), 0, region.into(), bytes.len() as u32];
            request(client, 10, 0, &fields, bytes, 0);
        }
        Step::Reset => request(client, 13, 0, &[], &[], 0),
        Step::Other { command, flags, fields, patches, files } => {
            let mut message = message(command.into(), flags.into(), &fields, &[]);
            patch(&mut message, &patches);
            send(client, &message, files % 4);
        }
        Step::Any(bytes) => send(client, bytes, 0),
    }
}

fn message(command: u16, flags: u32, fields: &[u32], data: &[u8]) -> Vec<u8> {
    let mut message = vec![1, 0];
    message.extend(command.to_le_bytes());
    message.extend(((HEADER + 4 * fields.len() + data.len()) as u32).to_le_bytes());
    message.extend(flags.to_le_bytes());
    message.extend([0; 4]);
    message.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
    message.extend(data);
    message
}

fn request(client: &UnixStream, command: u16, flags: u32, fields: &[u32], data: &[u8], files: u8) {
    send(client, &message(command, flags, fields, data), files);
}

/// Sends what there is room for: with no file, the memory, an eventfd, or both.
fn send(client: &UnixStream, message: &[u8], files: u8) {
    FILES.with(|[memory, events]| {
        let both = [memory.as_fd(), events.as_fd()];
        let some: &[BorrowedFd<'_>] = match files {
            0 => &[],
            1 => &both[..1],
            2 => &both[1..],
            _ => &both,
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(some.is_empty() || control.push(SendAncillaryMessage::ScmRights(some)));
        let _ = sendmsg(client, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL);
    });
}
