//! The address of an adapter.

use core::net::IpAddr;
use core::str::FromStr;

use crate::types::dat_return::{DatSubtype, DatType, Error};

/// The address an Interface Adapter answers to.
///
/// ```
/// use dat_core::provider::Net;
/// let net: Net = "192.168.7.1/24".parse()?;
/// assert_eq!(net, Net::new([192, 168, 7, 1].into(), 24));
/// let routed = Net { gateway: Some([192, 168, 7, 254].into()), ..net };
/// # Ok::<(), dat_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// Own address.
    pub addr: IpAddr,
    /// Prefix length of the attached network.
    pub prefix: u8,
    /// Next hop for all other destinations.
    pub gateway: Option<IpAddr>,
    /// 802.1Q VLAN.
    pub vlan: Option<u16>,
}

impl Net {
    /// An address and its prefix length, without a gateway or a VLAN.
    #[must_use]
    pub const fn new(addr: IpAddr, prefix: u8) -> Self {
        Self { addr, prefix, gateway: None, vlan: None }
    }
}

/// Reads `ADDRESS/PREFIX`, as `ip address` prints it.
impl FromStr for Net {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let malformed = Error::new(DatType::InvalidAddress, DatSubtype::AddressMalformed);
        let (addr, prefix) = text.split_once('/').ok_or(malformed)?;
        let addr: IpAddr = addr.parse().map_err(|_| malformed)?;
        let prefix: u8 = prefix.parse().map_err(|_| malformed)?;
        let longest = if addr.is_ipv4() { 32 } else { 128 };
        if prefix > longest { Err(malformed) } else { Ok(Self::new(addr, prefix)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_its_prefix_is_read() {
        assert_eq!("10.0.0.1/8".parse(), Ok(Net::new([10, 0, 0, 1].into(), 8)));
        assert_eq!("fd00::1/128".parse::<Net>().map(|net| net.prefix), Ok(128));
        for text in ["", "10.0.0.1", "10.0.0.1/", "/8", "10.0.0.1/33", "fd00::1/129", "10.0.0/8"] {
            let error = text.parse::<Net>().unwrap_err();
            assert_eq!(error.ret().subtype(), DatSubtype::AddressMalformed, "{text}");
        }
    }
}
