//! Device addresses: a PCI address, or the socket of a vfio-user server.
//!
//! `0000:3b:00.0` (or `3b:00.0`, in domain 0) is a function bound to vfio-pci; `vfio-user:PATH` is
//! a device that another process offers on a UNIX socket. Parsing does not check that the device
//! exists.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::{Error, Kind};

/// A PCI function: domain, bus, device, function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Segment group; 0 on most machines.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device on the bus, below 32.
    pub device: u8,
    /// Function of the device, below 8.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl FromStr for PciAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).ok_or_else(|| {
            Error::new(
                Kind::Address,
                text,
                "this is no PCI address",
                "write it as 0000:3b:00.0: domain, bus, device, function",
            )
        })
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
    let hex = |digits: &str, most: usize| {
        let sound = (1..=most).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        sound.then(|| u32::from_str_radix(digits, 16).ok())?
    };
    let address = PciAddress {
        domain: hex(domain, 8)?,
        bus: u8::try_from(hex(bus, 2)?).ok()?,
        device: u8::try_from(hex(device, 2)?).ok()?,
        function: u8::try_from(hex(function, 1)?).ok()?,
    };
    (address.device < 32 && address.function < 8).then_some(address)
}

/// The address of a device of either kind of host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A PCI function of this machine, bound to vfio-pci.
    Pci(PciAddress),
    /// A device that a vfio-user server offers on this socket.
    User(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci(address) => address.fmt(f),
            Self::User(path) => write!(f, "vfio-user:{}", path.display()),
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.strip_prefix("vfio-user:") {
            Some("") => Err(Error::new(
                Kind::Address,
                text,
                "the path of the socket is missing",
                "write it as vfio-user:/run/hca0",
            )),
            Some(path) => Ok(Self::User(path.into())),
            None => text.parse().map(Self::Pci),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_parse_and_print() {
        for text in ["0000:3b:00.0", "10002:ff:1f.7", "vfio-user:/run/hca0"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        let short: Address = "3b:00.1".parse().unwrap();
        assert_eq!(short.to_string(), "0000:3b:00.1");
    }

    #[test]
    fn anything_else_is_refused_with_a_reason() {
        for text in ["", "3b", "3b:00", "3b:00.8", "3b:20.0", "0:0:0:0.0", "3b:+0.0", "x3b:00.0"] {
            let error = text.parse::<Address>().unwrap_err();
            assert_eq!(error.kind(), Kind::Address, "{text}");
            assert!(error.to_string().contains("0000:3b:00.0"), "{error}");
        }
        assert!("vfio-user:".parse::<Address>().is_err());
    }
}
