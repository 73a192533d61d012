//! Addresses as the device and the wire have them in GIDs: of either version in 16 bytes, which
//! compare as one number.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IPv6 address, or an IPv4 address in its mapped form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gid(pub(crate) u128);

/// Bits before an IPv4 address.
pub(crate) const MAPPED: u8 = 96;

impl Gid {
    /// It is an IPv4 address.
    pub(crate) const fn is_v4(self) -> bool {
        self.0 >> 32 == 0xffff
    }

    /// The IPv4 address, if it is one.
    pub(crate) const fn v4(self) -> Option<Ipv4Addr> {
        if self.is_v4() { Some(self.low()) } else { None }
    }

    /// The IPv4 address that it is, of one that is known to be one.
    #[expect(clippy::cast_possible_truncation, reason = "the address is in the low bits")]
    pub(crate) const fn low(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.0 as u32)
    }

    /// The IPv6 address, if it is no IPv4 address.
    pub(crate) const fn v6(self) -> Option<Ipv6Addr> {
        if self.is_v4() { None } else { Some(Ipv6Addr::from_bits(self.0)) }
    }
}

impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(address: Ipv4Addr) -> Self {
        Self(0xffff << 32 | u128::from(address.to_bits()))
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.to_bits())
    }
}

impl From<Gid> for IpAddr {
    fn from(gid: Gid) -> Self {
        match gid.v4() {
            Some(v4) => Self::V4(v4),
            None => Self::V6(Ipv6Addr::from_bits(gid.0)),
        }
    }
}
