//! Messages of a vfio-user server into the client: replies of every kind to every request, with
//! descriptors, cut short, and any bytes. The client has hung up, or has all its answers.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use arbitrary::{Arbitrary, Unstructured};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::input::{Patch, patch, steps};

/// Bytes of a message's header.
const HEADER: usize = 16;
/// Bodies of the replies that the client expects, in the order of its requests.
const BODIES: [usize; 13] = [8, 16, 32, 16, 0, 0, 16 + 4096, 0, 16 + 2, 16, 16 + 4, 24, 0];

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    /// The reply to the next request.
    Reply {
        id: i8,
        error: Option<u8>,
        longer: i8,
        patches: [Option<Patch>; 3],
        files: u8,
    },
    /// Good replies to so many.
    Good {
        count: u8,
    },
    Any(&'a [u8]),
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let (client, server) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    let mut next = 0;
    for step in steps(&mut Unstructured::new(data), 32) {
        match step {
            Step::Reply { id, error, longer, patches, files } => {
                let mut message = reply(next, id, error, longer);
                patch(&mut message, &patches);
                send(&server, &message, files % 4);
                next += 1;
            }
            Step::Good { count } => {
                for _ in 0..count % 16 {
                    send(&server, &reply(next, 0, None, 0), 0);
                    next += 1;
                }
            }
            Step::Any(bytes) => send(&server, bytes, 0),
        }
    }
    server.shutdown(Shutdown::Write).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    if let Err(error) = vfio_host::user::make_requests(client, file.as_fd()) {
        assert!(!error.to_string().is_empty());
    }
}

/// The reply to the `nth` request that has one. Two are posted before the tenth.
fn reply(nth: usize, id: i8, error: Option<u8>, longer: i8) -> Vec<u8> {
    let posted = if nth >= 10 { 2 } else { 0 };
    let body = BODIES.get(nth).copied().unwrap_or(0).saturating_add_signed(longer.into());
    let number = (nth as u16 + posted).wrapping_add_signed(id.into());
    let flags = if error.is_some() { 0x21_u32 } else { 1 };
    let mut message = Vec::with_capacity(HEADER + body);
    message.extend(number.to_ne_bytes());
    message.extend(1_u16.to_ne_bytes());
    message.extend(((HEADER + body) as u32).to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(u32::from(error.unwrap_or(0)).to_ne_bytes());
    // Not zero: a device that can be reset, of some length. The version is zero.
    let fill = if nth == 0 { 0 } else { 3 };
    message.resize(HEADER + body, fill);
    message
}

/// Sends what there is room for.
fn send(server: &UnixStream, message: &[u8], files: u8) {
    let null = std::fs::File::open("/dev/null").unwrap();
    let many = [null.as_fd(), null.as_fd(), null.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if files > 0 {
        assert!(control.push(SendAncillaryMessage::ScmRights(&many[..files.into()])));
    }
    let _ = sendmsg(server, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL);
}
