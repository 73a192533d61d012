//! The header that the RDMA IP CM service puts before the private data of a REQ.

use core::net::IpAddr;
use core::net::Ipv4Addr;
use core::net::Ipv6Addr;

use crate::cm::wire::header::{WireError, is_v4};

/// Bytes of the header.
pub const IP_HEADER_LEN: usize = 36;

/// Ports and addresses of a connection, as rdma_cm tells them. The destination port is in the
/// service ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpHeader {
    /// IPv4.
    V4 {
        /// Port of the active side.
        source_port: u16,
        /// Address of the active side.
        source: Ipv4Addr,
        /// Address of the passive side.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Port of the active side.
        source_port: u16,
        /// Address of the active side.
        source: Ipv6Addr,
        /// Address of the passive side.
        destination: Ipv6Addr,
    },
}

impl IpHeader {
    /// The header for these addresses; `None` if one is IPv4 and the other IPv6.
    #[must_use]
    pub const fn new(source_port: u16, source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Some(Self::V4 { source_port, source, destination })
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Some(Self::V6 { source_port, source, destination })
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
        }
    }

    /// Addresses of the active and of the passive side.
    #[must_use]
    pub const fn addresses(&self) -> (IpAddr, IpAddr) {
        match *self {
            Self::V4 { source, destination, .. } => (IpAddr::V4(source), IpAddr::V4(destination)),
            Self::V6 { source, destination, .. } => (IpAddr::V6(source), IpAddr::V6(destination)),
        }
    }

    /// Port of the active side.
    #[must_use]
    pub const fn source_port(&self) -> u16 {
        match self {
            Self::V4 { source_port, .. } | Self::V6 { source_port, .. } => *source_port,
        }
    }

    /// Reads a header: version 0, IP version 4 or 6. IPv4 addresses stand in the last four bytes of
    /// their fields.
    pub fn parse(bytes: &[u8; IP_HEADER_LEN]) -> Result<Self, WireError> {
        let [0, version, port_high, port_low, addresses @ ..] = bytes else {
            return Err(WireError::Field);
        };
        let source_port = u16::from_be_bytes([*port_high, *port_low]);
        let (Some(source), Some(destination)) = (addresses.first_chunk(), addresses.last_chunk())
        else {
            return Err(WireError::Field);
        };
        let (source, destination) = (Ipv6Addr::from(*source), Ipv6Addr::from(*destination));
        let low = |address: Ipv6Addr| {
            let [.., a, b, c, d] = address.octets();
            Ipv4Addr::new(a, b, c, d)
        };
        match version >> 4 {
            4 => Ok(Self::V4 { source_port, source: low(source), destination: low(destination) }),
            6 => Ok(Self::V6 { source_port, source, destination }),
            _ => Err(WireError::Field),
        }
    }

    /// Writes the header.
    #[must_use]
    pub fn emit(&self) -> [u8; IP_HEADER_LEN] {
        match self {
            Self::V4 { source_port, source, destination } => {
                let bits = |address: &Ipv4Addr| u128::from(address.to_bits());
                write(0x40, *source_port, bits(source), bits(destination))
            }
            Self::V6 { source_port, source, destination } => {
                write(0x60, *source_port, source.to_bits(), destination.to_bits())
            }
        }
    }
}

/// The header for two GIDs of one family.
pub(in crate::cm) fn ip_header(port: u16, source: u128, destination: u128) -> [u8; IP_HEADER_LEN] {
    let (version, own) =
        if is_v4(source) { (0x40, u128::from(u32::MAX)) } else { (0x60, u128::MAX) };
    write(version, port, source & own, destination & own)
}

fn write(version: u8, port: u16, source: u128, destination: u128) -> [u8; IP_HEADER_LEN] {
    let mut bytes = [0; IP_HEADER_LEN];
    let [_, version_at, high, low, addresses @ ..] = &mut bytes;
    *version_at = version;
    [*high, *low] = port.to_be_bytes();
    if let Some(place) = addresses.first_chunk_mut() {
        *place = source.to_be_bytes();
    }
    if let Some(place) = addresses.last_chunk_mut() {
        *place = destination.to_be_bytes();
    }
    bytes
}
