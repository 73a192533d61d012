//! `DAT_IA_ADDRESS_PTR`: addresses as `struct sockaddr_in` and `struct sockaddr_in6`.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::pointer::In;

/// `AF_INET`.
const INET: u16 = 2;
/// `AF_INET6`.
const INET6: u16 = 10;

/// Both structures in one: they have family and port in common, and the address of the first lies
/// where the second has its flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(4))]
pub(crate) struct SockAddr {
    family: [u8; 2],
    port: [u8; 2],
    v4: [u8; 4],
    v6: [u8; 16],
    scope: [u8; 4],
}

const _: () = {
    assert!(size_of::<SockAddr>() == size_of::<libc::sockaddr_in6>());
    assert!(size_of::<SockAddr>() >= size_of::<libc::sockaddr_in>());
    assert!(
        core::mem::offset_of!(SockAddr, port) == core::mem::offset_of!(libc::sockaddr_in, sin_port)
    );
    assert!(
        core::mem::offset_of!(SockAddr, port)
            == core::mem::offset_of!(libc::sockaddr_in6, sin6_port)
    );
    assert!(
        core::mem::offset_of!(SockAddr, v4) == core::mem::offset_of!(libc::sockaddr_in, sin_addr)
    );
    assert!(
        core::mem::offset_of!(SockAddr, v6) == core::mem::offset_of!(libc::sockaddr_in6, sin6_addr)
    );
    assert!(
        core::mem::offset_of!(SockAddr, scope)
            == core::mem::offset_of!(libc::sockaddr_in6, sin6_scope_id)
    );
    assert!(libc::AF_INET == INET as i32 && libc::AF_INET6 == INET6 as i32);
};

impl SockAddr {
    /// No address.
    pub(crate) const NONE: Self =
        Self { family: [0; 2], port: [0; 2], v4: [0; 4], v6: [0; 16], scope: [0; 4] };

    /// That address.
    pub(crate) fn new(address: IpAddr, port: u16) -> Self {
        let port = port.to_be_bytes();
        match address {
            IpAddr::V4(v4) => {
                Self { family: INET.to_ne_bytes(), port, v4: v4.octets(), ..Self::default() }
            }
            IpAddr::V6(v6) => {
                Self { family: INET6.to_ne_bytes(), port, v6: v6.octets(), ..Self::default() }
            }
        }
    }

    /// What it says; `None` for a family that is neither. An address of IPv4 written as one of IPv6
    /// is one of IPv4.
    pub(crate) fn read(&self) -> Option<SocketAddr> {
        let ip: IpAddr = match u16::from_ne_bytes(self.family) {
            INET => Ipv4Addr::from(self.v4).into(),
            INET6 => Ipv6Addr::from(self.v6).to_canonical(),
            _ => return None,
        };
        Some(SocketAddr::new(ip, u16::from_be_bytes(self.port)))
    }
}

/// An address that a consumer passes: that of a structure whose length its family tells.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct SockAddrPtr(*const SockAddr);

impl fmt::Debug for SockAddrPtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.0)
    }
}

impl SockAddrPtr {
    /// What it says; `None` of no address, and of a family that is neither.
    pub(crate) fn get(self) -> Option<SocketAddr> {
        let family = In(self.0.cast::<u16>()).get()?;
        if family == INET6 {
            return In(self.0).get()?.read();
        }
        // The structure of IPv4 ends before that of IPv6 does.
        let [family, v4] =
            [0, 4].map(|at| In(self.0.cast::<[u8; 4]>().wrapping_byte_add(at)).get());
        let ([low, high, port @ ..], v4) = (family?, v4?);
        let short = SockAddr { family: [low, high], port, v4, ..SockAddr::default() };
        short.read()
    }
}
