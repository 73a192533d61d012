//! Common parts of all messages: the header of a MAD, its errors, and addresses as GIDs.

use core::net::{IpAddr, Ipv6Addr};

use crate::cm::wire::Rtu;
use crate::cm::wire::field::Field;
use crate::cm::wire::reason::Reason;
use crate::provider::canonical;

/// Bytes of a MAD.
pub const MAD_LEN: usize = 256;
/// Where the message starts, behind the common header.
pub(crate) const BODY: usize = 24;

/// Why 256 bytes are no sane message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Base version, class, class version or method is not that of connection management.
    Header,
    /// The attribute is not one of the messages here.
    Attribute(u16),
    /// A field that has to name something is zero, or names nothing known.
    Field,
    /// A REQ that cannot be served; the reason to answer with.
    Refuse(Reason),
}

/// The common header, first 24 bytes of every MAD.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; MAD_LEN]);

impl<'a> Header<'a> {
    const BASE_VERSION: Field<u8> = Field::header(0, 8);
    const CLASS: Field<u8> = Field::header(1, 8);
    const CLASS_VERSION: Field<u8> = Field::header(2, 8);
    const METHOD: Field<u8> = Field::header(3, 8);
    const TRANSACTION: Field<u64> = Field::header(8, 64);
    const ATTRIBUTE: Field<u16> = Field::header(16, 16);

    /// Reads the bytes as a connection management MAD: base version 1, class 7 version 2, method
    /// Send.
    pub fn new_checked(mad: &'a [u8; MAD_LEN]) -> Result<Self, WireError> {
        let ours = Self::BASE_VERSION.get(mad) == 1
            && Self::CLASS.get(mad) == 7
            && Self::CLASS_VERSION.get(mad) == 2
            && Self::METHOD.get(mad) == 3;
        if ours { Ok(Self(mad)) } else { Err(WireError::Header) }
    }

    /// A MAD of zeros behind the header of one message.
    pub(crate) fn emit(transaction: u64, attribute: u16) -> [u8; MAD_LEN] {
        let mut mad = [0; MAD_LEN];
        Self::BASE_VERSION.set(&mut mad, 1);
        Self::CLASS.set(&mut mad, 7);
        Self::CLASS_VERSION.set(&mut mad, 2);
        Self::METHOD.set(&mut mad, 3);
        Self::TRANSACTION.set(&mut mad, transaction);
        Self::ATTRIBUTE.set(&mut mad, attribute);
        mad
    }

    /// Transaction ID: chosen by who sends a REQ, SIDR_REQ or DREQ, and repeated in all that
    /// answers it.
    #[must_use]
    pub fn transaction(&self) -> u64 {
        Self::TRANSACTION.get(self.0)
    }

    /// Which message it is.
    #[must_use]
    pub fn attribute(&self) -> u16 {
        Self::ATTRIBUTE.get(self.0)
    }

    pub(crate) fn expect(&self, attribute: u16) -> Result<(), WireError> {
        if self.attribute() == attribute {
            Ok(())
        } else {
            Err(WireError::Attribute(self.attribute()))
        }
    }
}

/// Which message a REJ rejects or an MRA asks patience for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// The REQ.
    Req,
    /// The REP.
    Rep,
    /// Any other, or none in particular.
    Other,
}

impl About {
    pub(crate) const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Req,
            1 => Self::Rep,
            _ => Self::Other,
        }
    }

    pub(crate) const fn code(self) -> u8 {
        self as u8
    }
}

/// A message that names both ends of its connection and carries no private data. All that have two
/// IDs have them here.
#[inline(never)]
pub(crate) fn plain(transaction: u64, attribute: u16, ids: [u32; 2]) -> [u8; MAD_LEN] {
    let mut mad = Header::emit(transaction, attribute);
    let [local_id, remote_id] = ids;
    let mut message = Rtu::new_unchecked(&mut mad);
    message.set_local_id(local_id);
    message.set_remote_id(remote_id);
    mad
}

/// The GID of an address: IPv6 as it is, IPv4 as `::ffff:a.b.c.d`.
pub(crate) fn gid(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The address that a GID is.
#[inline(never)]
pub(crate) fn address(gid: u128) -> IpAddr {
    canonical(IpAddr::V6(Ipv6Addr::from_bits(gid)))
}

/// It is that of an IPv4 address.
pub(crate) const fn is_v4(gid: u128) -> bool {
    gid >> 32 == 0xffff
}
