//! The header that the RDMA IP CM service puts before the private data of a REQ.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::WireError;

/// Bytes of the header.
pub const IP_HEADER_LEN: usize = 36;

/// Ports and addresses of a connection, as rdma_cm tells them. The destination port is in the service ID.
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
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Self::V4 {
                source_port,
                source,
                destination,
            }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Self::V6 {
                source_port,
                source,
                destination,
            }),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
        }
    }

    /// Addresses of the active and of the passive side.
    #[must_use]
    pub const fn addresses(&self) -> (IpAddr, IpAddr) {
        match *self {
            Self::V4 {
                source,
                destination,
                ..
            } => (IpAddr::V4(source), IpAddr::V4(destination)),
            Self::V6 {
                source,
                destination,
                ..
            } => (IpAddr::V6(source), IpAddr::V6(destination)),
        }
    }

    /// Port of the active side.
    #[must_use]
    pub const fn source_port(&self) -> u16 {
        match self {
            Self::V4 { source_port, .. } | Self::V6 { source_port, .. } => *source_port,
        }
    }

    /// Reads a header: version 0, IP version 4 or 6. IPv4 addresses stand in the last four bytes of their fields.
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
            4 => Ok(Self::V4 {
                source_port,
                source: low(source),
                destination: low(destination),
            }),
            6 => Ok(Self::V6 {
                source_port,
                source,
                destination,
            }),
            _ => Err(WireError::Field),
        }
    }

    /// Writes the header.
    #[must_use]
    pub fn emit(&self) -> [u8; IP_HEADER_LEN] {
        let (version, source, destination) = match self {
            Self::V4 {
                source,
                destination,
                ..
            } => (
                0x40,
                u128::from(source.to_bits()),
                u128::from(destination.to_bits()),
            ),
            Self::V6 {
                source,
                destination,
                ..
            } => (0x60, source.to_bits(), destination.to_bits()),
        };
        let mut bytes = [0; IP_HEADER_LEN];
        let parts = [0, version]
            .into_iter()
            .chain(self.source_port().to_be_bytes());
        let parts = parts
            .chain(source.to_be_bytes())
            .chain(destination.to_be_bytes());
        for (byte, part) in bytes.iter_mut().zip(parts) {
            *byte = part;
        }
        bytes
    }
}
