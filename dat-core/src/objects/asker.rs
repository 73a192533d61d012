//! Who looks a service point up: the Endpoint that the question came from.
//!
//! A SIDR_REQ has no field for the asker's queue pair, but the consumer that accepts is to be able
//! to send to it. So the last bytes of the private data say it: this provider's mark, the length of
//! what the asker's consumer gave, the Q_Key, the queue pair. A peer of another make finds them where
//! it would find zeros.

/// An Endpoint for datagrams that asked for a service point: its queue pair takes datagrams with
/// this Q_Key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdAsker {
    /// Its queue pair.
    pub qpn: u32,
    /// What that takes.
    pub qkey: u32,
}

/// Private data of a SIDR_REQ behind its IP CM header; a REQ has less.
pub(crate) type RequestData = heapless::Vec<u8, FIELD>;

/// Bytes of the field.
const FIELD: usize = 180;
/// Bytes of private data in `ep_connect` of an Endpoint for datagrams: what the SIDR_REQ has
/// besides the addresses and who asks.
pub const MAX_CONNECT_UD_PRIVATE: usize = FIELD - TAIL;
/// This provider's mark.
const MARK: [u8; 3] = *b"DAT";
/// Bytes at the end: mark, length, Q_Key, queue pair.
const TAIL: usize = 12;

impl UdAsker {
    /// The whole field, with the consumer's data in front, as much of it as fits.
    pub(crate) fn field(self, private_data: &[u8]) -> [u8; FIELD] {
        let mut field = [0; FIELD];
        let len = private_data.len().min(MAX_CONNECT_UD_PRIVATE);
        let [qkey, qpn] = [self.qkey, self.qpn].map(u32::to_be_bytes);
        let tail = MARK.into_iter().chain([u8::try_from(len).unwrap_or(0)]).chain(qkey).chain(qpn);
        let (front, back) = field.split_at_mut(MAX_CONNECT_UD_PRIVATE);
        front.iter_mut().zip(private_data).for_each(|(to, from)| *to = *from);
        back.iter_mut().zip(tail).for_each(|(to, from)| *to = from);
        field
    }

    /// Who asks with this private data, which is cut to what the consumer gave. `None`, and nothing
    /// is cut, of a peer that does not say.
    pub(crate) fn cut(private: &mut RequestData) -> Option<Self> {
        let tail: &[u8; TAIL] = private.get(MAX_CONNECT_UD_PRIVATE..)?.try_into().ok()?;
        let [m0, m1, m2, len, k0, k1, k2, k3, q0, q1, q2, q3] = *tail;
        let (qkey, qpn) =
            (u32::from_be_bytes([k0, k1, k2, k3]), u32::from_be_bytes([q0, q1, q2, q3]));
        let says = [m0, m1, m2] == MARK && usize::from(len) <= MAX_CONNECT_UD_PRIVATE;
        // Queue pairs 0 and 1 are management's.
        if !says || !(2..1 << 24).contains(&qpn) {
            return None;
        }
        private.truncate(len.into());
        Some(Self { qpn, qkey })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKER: UdAsker = UdAsker { qpn: 0x12_3456, qkey: 0x1d51_1d51 };

    fn received(field: &[u8]) -> RequestData {
        RequestData::from_slice(field).unwrap()
    }

    #[test]
    fn what_was_put_in_comes_out_at_its_length() {
        for len in [0, 1, MAX_CONNECT_UD_PRIVATE] {
            let given = [7; MAX_CONNECT_UD_PRIVATE];
            let mut private = received(&ASKER.field(&given[..len]));
            assert_eq!(UdAsker::cut(&mut private), Some(ASKER));
            assert_eq!(private, given[..len]);
        }
    }

    #[test]
    fn a_field_of_another_make_stays_whole() {
        let good = ASKER.field(b"who");
        for (at, value) in [(168, 0), (171, 169), (176, 1), (179, 0)] {
            let mut field = good;
            field[at] = value;
            if at == 179 {
                field[176..].fill(0);
            }
            let mut private = received(&field);
            assert_eq!(UdAsker::cut(&mut private), None, "{at}");
            assert_eq!(private, field);
        }
        let mut short = received(&good[..179]);
        assert_eq!((UdAsker::cut(&mut short), short.len()), (None, 179));
    }
}
