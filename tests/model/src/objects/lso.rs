//! Large sends: one work request becomes as many frames as its payload has segments.
//!
//! The headers ride inline in the work request. Every frame repeats them with lengths, IPv4
//! identification and TCP sequence number of its own; FIN and PSH stay with the last frame, CWR
//! with the first. A UDP datagram is cut the same way into datagrams. Checksums are filled in
//! afterwards, where the work request asks for them.

use super::ethernet::{Headers, put};

const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// Cuts `payload` into frames of at most `mss` bytes of it behind `head`; none when the headers are
/// not those of a TCP segment or a UDP datagram.
pub(crate) fn segments(head: &[u8], payload: &[u8], mss: u16) -> Option<Vec<Vec<u8>>> {
    let headers = Headers::of_start(head)?;
    let l4 = headers.l4?;
    let count = payload.len().div_ceil(usize::from(mss)).max(1);
    let base = u16::from_be_bytes([*head.get(headers.l3 + 4)?, *head.get(headers.l3 + 5)?]);
    let mut out = Vec::with_capacity(count);
    for (nth, piece) in pieces(payload, usize::from(mss)).enumerate() {
        let mut frame = head.to_vec();
        frame.extend_from_slice(piece);
        if headers.ip_version == 4 {
            put(&mut frame, headers.l3 + 2, (head.len() - headers.l3 + piece.len()) as u16);
            put(&mut frame, headers.l3 + 4, base.wrapping_add(nth as u16));
        } else {
            let length = head.len() - headers.l3 - 40 + piece.len();
            put(&mut frame, headers.l3 + 4, length as u16);
        }
        if headers.is_tcp() {
            let at = l4 + 4;
            let first = u32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?);
            let number = first.wrapping_add((nth * usize::from(mss)) as u32);
            frame.get_mut(at..at + 4)?.copy_from_slice(&number.to_be_bytes());
            let flags = frame.get_mut(l4 + 13)?;
            if nth + 1 != count {
                *flags &= !FIN_PSH;
            }
            if nth != 0 {
                *flags &= !CWR;
            }
        } else {
            put(&mut frame, l4 + 4, (head.len() - l4 + piece.len()) as u16);
        }
        out.push(frame);
    }
    Some(out)
}

/// The payload in pieces; one empty piece of an empty one.
fn pieces(payload: &[u8], mss: usize) -> impl Iterator<Item = &[u8]> {
    let empty = payload.is_empty().then_some(payload);
    empty.into_iter().chain(payload.chunks(mss.max(1)))
}
