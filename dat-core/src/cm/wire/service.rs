//! Service IDs, and how the RDMA IP CM service makes them of ports.

/// The 64-bit name of a service that a REQ asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServiceId(pub u64);

/// Service IDs of the RDMA IP CM service, protocols TCP and UDP: this prefix and a 16-bit port.
const IP_CM_TCP: u64 = 0x0106_0000;
const IP_CM_UDP: u64 = 0x0111_0000;

impl ServiceId {
    /// The service at a port of the RDMA IP CM service, as rdma_cm listens on in its TCP port
    /// space.
    #[must_use]
    pub const fn tcp(port: u16) -> Self {
        Self(IP_CM_TCP | port as u64)
    }

    /// The same in its UDP port space, for datagrams: what a SIDR_REQ asks for.
    #[must_use]
    pub const fn udp(port: u16) -> Self {
        Self(IP_CM_UDP | port as u64)
    }

    /// The port, if this is a service for connections of the RDMA IP CM; such a REQ carries the IP
    /// CM header.
    #[must_use]
    pub const fn port(self) -> Option<u16> {
        let [prefix @ .., high, low] = self.0.to_be_bytes();
        match prefix {
            [0, 0, 0, 0, 1, 6] => Some(u16::from_be_bytes([high, low])),
            _ => None,
        }
    }

    /// The port, if this is a service for datagrams of the RDMA IP CM; such a SIDR_REQ carries the
    /// IP CM header.
    #[must_use]
    pub const fn udp_port(self) -> Option<u16> {
        Self(self.0 ^ IP_CM_TCP ^ IP_CM_UDP).port()
    }
}
